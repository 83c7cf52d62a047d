//! The commit order: how entries become part of the log, and what a crash costs at each moment.

use std::sync::Arc;
use std::thread::JoinHandle;

use schemas::register::Register;
use schemas::statement::Statement;
use tlog::checkpoint::Checkpoint;
use tlog::edge::{NotAtTheEdge, RightEdge};
use tlog::hash::{Hash, leaf_hash};
use tlog::note::{SigningKey, Verifier as _};
use tlog::proof::{InclusionProof, ProveError, prove_inclusion};
use tlog::tile::{TILE_WIDTH, Tile, TileKind, TileReader, TileSource};
use tlog::tree::{LeafIndex, TreeHead, TreeSize, root_hash};

use crate::disk::history::History;
use crate::disk::journal::{Journal, Record};
use crate::disk::lock::{FolderLock, Lock};
use crate::disk::store::{Edge, Store, encode_bundle};
use crate::disk::sync::{FileDigest, Unsynced, digest_of};
use crate::error::LogError;
use crate::order::registers::sign;

/// Most entries in one commit.
pub const COMMIT_ENTRIES_MAX: usize = 1024;
/// Most bytes in one commit, more or less: a group takes no further entry when it has as many.
pub const COMMIT_BYTES_MAX: usize = 8 * 1024 * 1024;

/// A tree head and the note that signs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedHead {
    /// Size and root.
    pub head: TreeHead,
    /// The checkpoint note.
    pub note: String,
}

/// What a commit has added: enough to prove its entries without reading anything.
#[derive(Debug)]
pub struct Committed {
    /// The published checkpoint that covers them.
    pub signed: Arc<SignedHead>,
    grown: RightEdge,
}

impl Committed {
    /// The proof of an entry of this commit under its checkpoint.
    pub fn prove(&self, index: LeafIndex) -> Result<InclusionProof, ProveError<NotAtTheEdge>> {
        prove_inclusion(index, self.signed.head.size, &self.grown)
    }
}

/// What a failed commit means.
#[derive(Debug)]
pub enum CommitError {
    /// Nothing was promised: these entries are not in the log, and the next commit may go ahead.
    NotCommitted(LogError),
    /// It is not known what is on disk. The server must stop; the next start finds out.
    Unknown(LogError),
}

impl From<CommitError> for LogError {
    fn from(error: CommitError) -> LogError {
        match error {
            CommitError::NotCommitted(error) | CommitError::Unknown(error) => error,
        }
    }
}

/// The only writer of a log.
pub struct Committer {
    pub(super) store: Arc<Store>,
    pub(super) key: Arc<SigningKey>,
    pub(super) lock: Lock,
    /// Both folders, as a server holds them; none in tests of this alone.
    pub(super) held: Option<Arc<FolderLock>>,
    pub(super) journal: Journal,
    pub(super) history: History,
    /// What was last promised; none before the first commit.
    pub(super) signed: Option<Arc<SignedHead>>,
    /// The partial tiles of that tree.
    pub(super) edge: Arc<Edge>,
    /// Size of the last sync that was started.
    pub(super) synced: TreeSize,
    /// Full tiles written since then.
    pub(super) written: Vec<(Tile, FileDigest)>,
    /// The sync that is under way.
    pub(super) syncing: Option<JoinHandle<Result<(), LogError>>>,
}

impl Committer {
    /// What was last promised; none before the first commit.
    pub fn signed(&self) -> Option<&Arc<SignedHead>> {
        self.signed.as_ref()
    }

    /// Size of the log.
    pub fn size(&self) -> TreeSize {
        self.edge.tree.size()
    }

    /// A register, signed, as the entry that it becomes.
    pub fn register(&self, register: Register) -> (Vec<u8>, Statement) {
        sign(register, &self.key).expect("ledger: a register of this log's own is a statement")
    }

    /// Adds entries to the log. After `Ok` they are durable and covered by the published checkpoint returned.
    pub fn commit(&mut self, entries: Vec<Vec<u8>>) -> Result<Committed, CommitError> {
        assert!(
            (1..=COMMIT_ENTRIES_MAX).contains(&entries.len()),
            "ledger: commit of {} entries",
            entries.len()
        );
        self.check_place().map_err(CommitError::Unknown)?;
        let previous = self.signed.as_ref().map(|signed| signed.note.clone());
        let record = Record { old: self.size(), previous: previous.clone().unwrap_or_default(), entries };

        // The entries go into the journal, durably, and what is read back from there is what counts from here on: a bit
        // lost on the way to the disk costs these submissions and not the log. A crash here costs nothing: nobody was
        // told anything, and a start passes over a record that was not promised.
        let grown = self.journal.append(&record).and_then(|record| self.grow(&record));

        // Tiles that have become full are written beside their places. That needs no waiting, since the journal has the
        // entries, but it needs room: without, there is still time to say no.
        let grown = grown.and_then(|grown| self.prepare(&grown).map(|()| grown));
        let grown = grown.map_err(|error| self.give_up(error))?;
        let signed = Arc::new(self.sign(grown.tree.head()));

        self.check_place().map_err(CommitError::Unknown)?;

        // POINT OF NO RETURN: the new tree is promised when this record is replaced. If this fails it is not known
        // whether it was, so the server stops and the next start reads which of the two it is.
        self.lock.replace(previous.as_deref(), &signed.note).map_err(CommitError::Unknown)?;

        // A crash or failure from here on is repaired at the next start, which calls these same functions for each
        // record of the journal that was promised.
        let tree = self.publish(grown).map_err(CommitError::Unknown)?;
        self.history.add_published(signed.head.size, &signed.note).map_err(CommitError::Unknown)?;
        self.signed = Some(signed.clone());
        Ok(Committed { signed, grown: tree })
    }

    /// The tree grown by a record, and the tiles that become full. It is computed in two ways, by growing the nodes of
    /// the right edge and from the rows that the tiles will hold, which must also still contain the old tree.
    pub(super) fn grow(&self, record: &Record) -> Result<Grown, LogError> {
        let old = self.edge.tree.head();
        let leaves: Vec<Hash> = record.entries.iter().map(|entry| leaf_hash(entry)).collect();
        let mut tree = self.edge.tree.clone();
        tree.grow(&leaves);
        let new = tree.head();
        let reader = TileReader { size: new.size, source: &Rows(&tree) };
        let signed = self.signed.as_ref().map_or(old, |signed| signed.head);
        for expected in [new, signed] {
            let found = root_hash(expected.size, &reader)?;
            if found != expected.root {
                return Err(LogError::RootMismatch { size: expected.size, expected: expected.root, found });
            }
        }
        let hashes = tree.tiles_since(old.size).into_iter().map(|made| (made.tile, made.bytes));
        let mut full: Vec<(Tile, Vec<u8>)> = hashes.filter(|(tile, _)| tile.is_full()).collect();
        let mut entries = self.edge.entries.clone();
        let first = old.size.0 / u64::from(TILE_WIDTH);
        entries.extend(record.entries.iter().map(|entry| Arc::from(entry.as_slice())));
        let bundles = entries.chunks_exact(usize::from(TILE_WIDTH));
        let last = bundles.remainder().to_vec();
        for (index, bundle) in (first..).zip(bundles) {
            let tile = Tile { kind: TileKind::Entries, index, width: TILE_WIDTH };
            full.push((tile, encode_bundle(bundle.iter().map(|entry| &**entry))));
        }
        Ok(Grown { tree, full, entries: last })
    }

    /// Writes full tiles beside their places.
    pub(super) fn prepare(&self, grown: &Grown) -> Result<(), LogError> {
        for (tile, bytes) in &grown.full {
            let path = self.store.path(&tile.path());
            self.store.files.prepare(&path, bytes).map_err(LogError::io(path))?;
        }
        Ok(())
    }

    /// Moves full tiles to their places, and shows readers the partial ones. Returns the tree with all that was grown.
    pub(super) fn publish(&mut self, grown: Grown) -> Result<RightEdge, LogError> {
        for (tile, bytes) in &grown.full {
            let path = self.store.path(&tile.path());
            self.store.files.unveil(&path).map_err(LogError::io(path))?;
            self.written.push((*tile, digest_of(bytes)));
        }
        let mut trimmed = grown.tree.clone();
        trimmed.trim();
        self.edge = Arc::new(Edge { tree: trimmed, entries: grown.entries });
        self.store.set_edge(self.edge.clone());
        Ok(grown.tree)
    }

    /// Takes back what was written and not promised.
    fn give_up(&mut self, error: LogError) -> CommitError {
        match self.journal.undo() {
            Ok(()) => CommitError::NotCommitted(error),
            Err(_) => CommitError::Unknown(error),
        }
    }

    fn sign(&self, head: TreeHead) -> SignedHead {
        let origin = self.key.verifier().name().as_str().to_owned();
        SignedHead { head, note: Checkpoint { origin, head }.sign(&self.key) }
    }

    /// Entries since the last sync was started.
    pub fn unsynced(&self) -> u64 {
        self.size().0 - self.synced.0
    }

    /// Bytes of the journal that wait for a sync to be started.
    pub fn unsynced_bytes(&self) -> u64 {
        self.journal.segment_bytes()
    }

    /// Whether there is something to sync and no sync is under way.
    pub fn may_sync(&self) -> bool {
        self.unsynced() > 0 && self.syncing.is_none()
    }

    /// Starts a sync on a thread of its own, and has it do something else after it.
    pub fn start_sync(
        &mut self,
        after: impl FnOnce() -> Result<(), LogError> + Send + 'static,
    ) -> Result<(), LogError> {
        assert!(self.syncing.is_none(), "ledger: two syncs at once");
        let unsynced = self.take_unsynced()?;
        let (store, history) = (self.store.clone(), self.history.clone());
        let thread = std::thread::Builder::new().name("sync".to_owned());
        let thread = thread.spawn(move || unsynced.sync(&store, &history).and_then(|()| after()));
        self.syncing = Some(thread.map_err(LogError::io(self.store.base()))?);
        Ok(())
    }

    /// Holds both folders as long as the log is written, and stops when one is not in its place any more.
    pub fn hold(&mut self, held: Arc<FolderLock>) {
        self.held = Some(held);
    }

    fn check_place(&self) -> Result<(), LogError> {
        self.held.as_ref().map_or(Ok(()), |held| held.check())
    }

    /// An error is that of a sync that has ended, or says that the folder is not there any more: the server must stop.
    pub fn check_sync(&mut self) -> Result<(), LogError> {
        self.check_place()?;
        match &self.syncing {
            Some(syncing) if syncing.is_finished() => self.wait_for_sync(),
            _ => Ok(()),
        }
    }

    /// Waits for the sync that is under way, if there is one.
    pub fn wait_for_sync(&mut self) -> Result<(), LogError> {
        match self.syncing.take() {
            None => Ok(()),
            Some(syncing) => syncing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
        }
    }

    /// Syncs all there is, and waits for it.
    pub fn sync(&mut self) -> Result<(), LogError> {
        self.wait_for_sync()?;
        if self.unsynced() == 0 {
            return Ok(());
        }
        self.take_unsynced()?.sync(&self.store, &self.history)
    }

    fn take_unsynced(&mut self) -> Result<Unsynced, LogError> {
        self.check_place()?;
        let note = self.signed.as_ref().expect("ledger: a log that has grown is signed").note.clone();
        let (before, edge) = (self.synced, self.edge.clone());
        let segments = self.journal.close_segment()?;
        self.synced = edge.tree.size();
        Ok(Unsynced { before, note, edge, written: std::mem::take(&mut self.written), segments })
    }
}

impl Drop for Committer {
    fn drop(&mut self) {
        // Whoever opens the folder next must find nobody at work in it. How the sync ended, the next start finds out.
        if let Some(syncing) = self.syncing.take() {
            let _ = syncing.join();
        }
    }
}

/// A tree that has grown and is not yet promised.
#[derive(Debug)]
pub struct Grown {
    /// Its right edge, not trimmed.
    pub(super) tree: RightEdge,
    /// Tiles that were not full before.
    full: Vec<(Tile, Vec<u8>)>,
    /// Entries of the partial bundle.
    entries: Vec<Arc<[u8]>>,
}

/// The tiles of a tree that has grown, as they will be written.
struct Rows<'a>(&'a RightEdge);

impl TileSource for Rows<'_> {
    type Error = std::io::Error;

    fn read_tile(&self, tile: Tile) -> Result<Vec<u8>, std::io::Error> {
        self.0.tile_bytes(tile).ok_or_else(|| std::io::Error::other("not at the right edge"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::durable::Files;
    use tlog::note::KeyName;

    fn committer(folder: &std::path::Path) -> Committer {
        let key = Arc::new(SigningKey::from_seed(KeyName::new("example.com/log").unwrap(), &[7; 32]));
        let store = Arc::new(Store::new(&folder.join("log"), Files::default()));
        let mut committer = Committer::open(store, key, &folder.join("log.lock")).unwrap();
        committer.commit(vec![b"one".to_vec(), b"two".to_vec()]).unwrap();
        committer
    }

    #[test]
    fn a_tree_that_does_not_contain_what_was_promised_is_not_signed() {
        let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mut committer = committer(folder.path());
        // Another past of the same length, as if memory had changed.
        let mut leaves = committer.edge.tree.clone();
        leaves.grow(&[leaf_hash(b"three")]);
        let forked = {
            let mut forked = super::tests::committer(other.path());
            let mut tree = RightEdge::empty();
            tree.grow(&[leaf_hash(b"one"), leaf_hash(b"TWO")]);
            forked.edge = Arc::new(Edge { tree, entries: forked.edge.entries.clone() });
            forked.commit(vec![b"three".to_vec()])
        };
        assert!(matches!(
            forked,
            Err(CommitError::NotCommitted(LogError::RootMismatch { size: TreeSize(2), .. }))
        ));
        assert_eq!(committer.commit(vec![b"three".to_vec()]).unwrap().signed.head, leaves.head());
    }

    #[test]
    fn every_entry_of_a_commit_is_proven_from_memory() {
        let folder = tempfile::tempdir().unwrap();
        let mut committer = committer(folder.path());
        for count in [1, 252, 1, 1, 1000, 3] {
            let old = committer.size().0;
            let entries: Vec<Vec<u8>> = (old..old + count).map(|at| at.to_string().into_bytes()).collect();
            let committed = committer.commit(entries.clone()).unwrap();
            for (index, entry) in (old..).zip(&entries) {
                let leaf = tlog::proof::Leaf { index: LeafIndex(index), hash: leaf_hash(entry) };
                let proof = committed.prove(leaf.index).unwrap();
                tlog::proof::check_inclusion(&proof, leaf, committed.signed.head).unwrap();
            }
        }
    }

    #[test]
    fn a_lock_record_that_someone_else_replaced_stops_the_server() {
        let folder = tempfile::tempdir().unwrap();
        let mut committer = committer(folder.path());
        std::fs::write(folder.path().join("log.lock/head"), "another note").unwrap();
        let result = committer.commit(vec![b"three".to_vec()]);
        assert!(matches!(result, Err(CommitError::Unknown(LogError::LockChanged))));
        assert_eq!(committer.size(), TreeSize(2));
    }
}
