//! Opening a log: what a crash left is repaired, and a folder that does not bear out what was promised is refused.
//!
//! Not every entry is hashed again: that is `ledger fsck`. The right edge of the tree that was last synced must have
//! the root that was signed for it, and the journal must lead from there to what the lock says was promised. So
//! whatever is signed next contains all that was signed before, however the tiles to the left may look.

use std::path::Path;
use std::sync::Arc;

use tlog::checkpoint::{Checkpoint, CheckpointError};
use tlog::edge::RightEdge;
use tlog::hash::{EMPTY_ROOT, Hash, leaf_hash};
use tlog::note::{SigningKey, Verifier as _};
use tlog::tile::{TILE_WIDTH, Tile, TileKind, decode_hashes, tile_in_tree};
use tlog::tree::{TreeHead, TreeSize};

use crate::disk::durable::{ensure_folder, sync_folder};
use crate::disk::folder::check_lock;
use crate::disk::history::History;
use crate::disk::journal::{Journal, Record};
use crate::disk::lock::Lock;
use crate::disk::store::{Edge, Store};
use crate::error::LogError;
use crate::order::commit::{Committer, SignedHead};

impl Committer {
    /// Opens the log in a folder whose lock is in another.
    pub fn open(store: Arc<Store>, key: Arc<SigningKey>, lock_folder: &Path) -> Result<Committer, LogError> {
        let lock = Lock::new(lock_folder, store.files.clone());
        let journal = Journal::new(store.path("journal"), store.files.clone());
        let history = History::open(store.base(), store.files.clone())?;
        // Whoever made or renamed something here may have been killed before it was durable; it is built on from now
        // on.
        for folder in
            [store.path("journal"), store.path("history"), store.base().to_owned(), lock_folder.to_owned()]
        {
            ensure_folder(&folder).and_then(|()| sync_folder(&folder)).map_err(LogError::io(folder))?;
        }
        let mut committer = Committer {
            store,
            key,
            lock,
            held: None,
            journal,
            history,
            signed: None,
            edge: Arc::new(Edge::empty()),
            synced: TreeSize(0),
            written: Vec::new(),
            syncing: None,
        };
        match committer.lock.read()? {
            Some(note) => committer.recover(&note)?,
            // Nothing was ever promised, so a journal is of no account; but tiles without a lock are a log whose
            // promises we cannot know.
            None => {
                check_lock(committer.store.base(), lock_folder)?;
                let published = committer.history.latest_published();
                if published.0 > 0 {
                    let path = committer.lock.path().to_owned();
                    return Err(LogError::LockMissing {
                        path,
                        found: format!("a history up to size {published}"),
                    });
                }
                committer.drop_journal()?;
            }
        }
        Ok(committer)
    }

    fn recover(&mut self, note: &str) -> Result<(), LogError> {
        let promised = self.open_promise(note)?;
        let size = promised.head.size;
        // Looked at now: the record is written again below, over the slot that is not whole.
        let damaged = self.lock.has_damaged_slot()?;
        let synced = match self.store.read_checkpoint()? {
            Some(note) => Some(Arc::new(self.open_note(&note, &self.store.path("checkpoint"))?)),
            None => self.find_checkpoint(&promised)?,
        };
        let head = synced.as_ref().map_or(EMPTY, |synced| synced.head);
        let published = head.size.max(self.history.latest_published());
        if published > size {
            return Err(self.lock.older_than(damaged, published, size));
        }
        // What was read may be in memory only, left there by a write that had failed.
        self.lock.renew(note)?;
        if head.size == size && head.root != promised.head.root {
            return Err(LogError::RootMismatch { size, expected: promised.head.root, found: head.root });
        }
        self.edge = Arc::new(read_edge(&self.store, head)?);
        self.store.set_edge(self.edge.clone());
        self.synced = head.size;
        for lost in self.history.lost(head.size) {
            tracing::warn!("{lost}; proofs under them cannot be had any more");
        }
        // Notes above the last sync may be cut short, and come again from the journal.
        self.history.forget_published_above(head.size)?;
        if let Some(synced) = &synced {
            self.history.add_published(head.size, &synced.note)?;
        }
        self.signed = synced;
        self.replay(promised, damaged)?;
        self.sync()?;
        self.drop_journal()
    }

    /// The checkpoint of a log that has none: its first commit was cut short, or the file is lost. Then the journal
    /// begins where it stood, or it stood where the lock does, and the tiles have to bear that out.
    fn find_checkpoint(&self, promised: &SignedHead) -> Result<Option<Arc<SignedHead>>, LogError> {
        let mut begins = None;
        self.journal.replay(|record| {
            begins.get_or_insert((record.old, record.previous));
            Ok(())
        })?;
        let (note, from) = match begins {
            Some((TreeSize(0), _)) => return Ok(None),
            Some((_, previous)) => (previous, "journal"),
            None => (promised.note.clone(), "lock"),
        };
        let path = self.store.path("checkpoint");
        let found = self.open_note(note.as_bytes(), &path);
        match found.and_then(|found| read_edge(&self.store, found.head).map(|_| found)) {
            Ok(found) => {
                let size = found.head.size;
                tracing::warn!("{} is missing; made anew from the {from}, of size {size}", path.display());
                self.store.files.replace(&path, found.note.as_bytes()).map_err(LogError::io(path))?;
                Ok(Some(Arc::new(found)))
            }
            Err(_) => Err(LogError::CheckpointMissing { path, lock: promised.head.size }),
        }
    }

    /// Carries out every commit of the journal that was promised, by the functions that carry out new ones.
    fn replay(&mut self, promised: SignedHead, damaged: bool) -> Result<(), LogError> {
        let lock = promised.head.size;
        // Not this one's own: while it is read, commits are carried out.
        let journal = Journal::new(self.store.path("journal"), self.store.files.clone());
        journal.replay(|record| {
            let size = self.size();
            if record.old > lock {
                // It was built on a promise that the lock does not know.
                return Err(self.lock.older_than(damaged, record.old, lock));
            }
            if record.new_size() <= size || size == lock {
                return Ok(());
            }
            if record.old != size {
                return Err(LogError::DataOlderThanLock { data: size, lock });
            }
            self.bear_out(&record)?;
            let grown = self.grow(&record)?;
            self.prepare(&grown)?;
            self.publish(grown)?;
            Ok(())
        })?;
        let head = self.edge.tree.head();
        if head.size < lock {
            return Err(LogError::DataOlderThanLock { data: head.size, lock });
        }
        if head != promised.head {
            let (expected, found) = (promised.head.root, head.root);
            return Err(LogError::RootMismatch { size: lock, expected, found });
        }
        self.history.add_published(lock, &promised.note)?;
        self.signed = Some(Arc::new(promised));
        Ok(())
    }

    /// Takes the note of the tree so far from the record that builds on it.
    fn bear_out(&mut self, record: &Record) -> Result<(), LogError> {
        if record.old.0 == 0 {
            return Ok(());
        }
        let previous = self.open_note(record.previous.as_bytes(), &self.store.path("journal"))?;
        let found = self.edge.tree.head();
        if previous.head != found {
            let (size, expected, found) = (found.size, previous.head.root, found.root);
            return Err(LogError::RootMismatch { size, expected, found });
        }
        self.history.add_published(record.old, &record.previous)?;
        self.signed = Some(Arc::new(previous));
        Ok(())
    }

    fn drop_journal(&mut self) -> Result<(), LogError> {
        for segment in self.journal.close_segment()? {
            self.store.files.remove(&segment).map_err(LogError::io(segment))?;
        }
        Ok(())
    }

    /// Opens the note in the lock; another log's is told apart from a damaged one.
    fn open_promise(&self, note: &str) -> Result<SignedHead, LogError> {
        let error = match self.open_note(note.as_bytes(), self.lock.path()) {
            Ok(signed) => return Ok(signed),
            Err(error) => error,
        };
        let expected = self.key.verifier().to_string();
        let origin = note.split('\n').next().unwrap_or_default();
        let found = match &error {
            LogError::Checkpoint { source: CheckpointError::OriginMismatch { found, .. }, .. } => {
                found.clone()
            }
            _ if origin != self.key.verifier().name().as_str() => origin.to_owned(),
            LogError::Checkpoint { source: CheckpointError::Note(_), .. } => {
                format!("{origin} with another key")
            }
            _ => return Err(error),
        };
        Err(LogError::LockOfAnother { path: self.lock.path().to_owned(), found, expected })
    }

    fn open_note(&self, note: &[u8], path: &Path) -> Result<SignedHead, LogError> {
        let wrong = |source| LogError::Checkpoint { path: path.to_owned(), source };
        let origin = self.key.verifier().name().as_str();
        let checkpoint = Checkpoint::open(note, origin, self.key.verifier()).map_err(wrong)?;
        // A note that opens is UTF-8.
        Ok(SignedHead { head: checkpoint.head, note: String::from_utf8_lossy(note).into_owned() })
    }

    /// The notes by size, for readers.
    pub fn history(&self) -> &History {
        &self.history
    }
}

const EMPTY: TreeHead = TreeHead { size: TreeSize(0), root: EMPTY_ROOT };

/// Reads the partial tiles of a tree, which must have that root, and whose entries must be those of its leaves.
fn read_edge(store: &Store, head: TreeHead) -> Result<Edge, LogError> {
    let tree = RightEdge::read(head.size, store)?;
    let found = tree.head().root;
    if found != head.root {
        return Err(LogError::RootMismatch { size: head.size, expected: head.root, found });
    }
    let index = head.size.0 / u64::from(TILE_WIDTH);
    let Some(tile) = tile_in_tree(TileKind::Entries, index, head.size) else {
        return Ok(Edge { tree, entries: Vec::new() });
    };
    let entries = store.read_entries(tile)?;
    let leaves: Vec<Hash> = entries.iter().map(|entry| leaf_hash(entry)).collect();
    let level_0 = Tile { kind: TileKind::Hashes(0), ..tile };
    let stated = tree.tile_bytes(level_0).and_then(|bytes| decode_hashes(&bytes).ok());
    if stated.as_ref() != Some(&leaves) {
        return Err(LogError::TileMismatch { path: level_0.path() });
    }
    Ok(Edge { tree, entries: entries.into_iter().map(Arc::from).collect() })
}
