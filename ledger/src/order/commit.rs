//! The commit order: how entries become part of the log, and what a crash costs at each moment.

use std::sync::Arc;

use tlog::checkpoint::Checkpoint;
use tlog::edge::RightEdge;
use tlog::entries::{decode_bundle_of, push_entry};
use tlog::hash::{EMPTY_ROOT, Hash, leaf_hash};
use tlog::note::{SigningKey, Verifier as _};
use tlog::tile::{TILE_WIDTH, Tile, TileKind, TileReader, TileSource as _, decode_hashes, new_tiles};
use tlog::tree::{TreeHead, TreeSize, root_hash};

use crate::disk::check::check_tiles;
use crate::disk::folder::check_lock;
use crate::disk::lock::{read_head, replace_head};
use crate::disk::stage::{Overlay, Staged};
use crate::disk::store::Store;
use crate::error::LogError;

/// Most entries in one commit: they touch at most two entry bundles.
pub const COMMIT_ENTRIES_MAX: usize = TILE_WIDTH as usize;

/// A tree head and the note that signs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedHead {
    /// Size and root.
    pub head: TreeHead,
    /// The checkpoint note.
    pub note: String,
}

/// What a failed commit means.
#[derive(Debug)]
pub enum CommitError {
    /// Nothing was promised: these entries are not in the log, and the next commit may go ahead.
    NotCommitted(LogError),
    /// It is not known whether the new tree was promised. The server must stop; the next start finds out.
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
    store: Arc<Store>,
    key: Arc<SigningKey>,
    /// What was last promised; none before the first commit.
    signed: Option<SignedHead>,
    edge: RightEdge,
}

impl Committer {
    /// Opens the log: repairs what a crash left, and refuses a folder that does not bear out what was promised.
    ///
    /// Every entry of the log is hashed again and shown to `visit`.
    pub fn recover(
        store: Arc<Store>,
        key: Arc<SigningKey>,
        visit: impl FnMut(u64, &[u8]) -> Result<(), LogError>,
    ) -> Result<Committer, LogError> {
        let Some(note) = read_head(&store)? else {
            // Nothing was ever promised, so a staging file is of no account; but tiles without a lock are a log
            // whose promises we cannot know.
            check_lock(store.base())?;
            return Ok(Committer { store, key, signed: None, edge: RightEdge::empty() });
        };
        let promised = open_note(&store, &key, &note, "lock/head")?;
        let published = match store.read_published()? {
            Some(note) => Some(open_note(&store, &key, &note, "checkpoint")?),
            None => None,
        };
        if published.as_ref() != Some(&promised) {
            finish_commit(&store, &promised, published.as_ref())?;
        }
        let size = promised.head.size;
        let found = check_tiles(&store, size, visit)?;
        if found != promised.head {
            return Err(LogError::RootMismatch { size, expected: promised.head.root, found: found.root });
        }
        let edge = RightEdge::read(size, store.as_ref())?;
        assert_eq!(edge.head(), promised.head, "ledger: the right edge of checked tiles");
        Ok(Committer { store, key, signed: Some(promised), edge })
    }

    /// What was last promised; none before the first commit.
    pub fn signed(&self) -> Option<&SignedHead> {
        self.signed.as_ref()
    }

    /// Size of the log.
    pub fn size(&self) -> TreeSize {
        self.edge.size()
    }

    /// Adds entries to the log. After `Ok` they are durable and covered by the published checkpoint returned.
    pub fn commit(&mut self, entries: &[Vec<u8>]) -> Result<SignedHead, CommitError> {
        assert!(
            (1..=COMMIT_ENTRIES_MAX).contains(&entries.len()),
            "ledger: commit of {} entries",
            entries.len()
        );
        let not_committed = CommitError::NotCommitted;
        let old = self.edge.head();
        let (edge, staged) = self.grow(entries).map_err(not_committed)?;

        // All new tiles go into one staging file. A crash here costs nothing: nobody was told anything, and the
        // next commit overwrites the file.
        self.store.write_stage(&staged).map_err(not_committed)?;

        // What will be served is what is on disk, so that is what is hashed. A bit lost on the way to the disk
        // costs these submissions and not the log.
        let staged = self.store.read_stage().map_err(not_committed)?;
        rehash(&self.store, &staged, old, edge.head()).map_err(not_committed)?;
        let signed = self.sign(edge.head());

        // POINT OF NO RETURN: the new tree is promised when this record is replaced. If this fails it is not known
        // whether it was, so the server stops and the next start reads which of the two it is.
        let old_note = self.signed.as_ref().map(|signed| signed.note.as_str());
        replace_head(&self.store, old_note, &signed.note).map_err(CommitError::Unknown)?;

        // A crash or failure from here on is repaired at the next start, which calls this same function.
        publish_staged(&self.store, &staged, &signed).map_err(CommitError::Unknown)?;

        self.edge = edge;
        self.signed = Some(signed.clone());
        Ok(signed)
    }

    /// The edge and the tiles of the tree grown by some entries.
    fn grow(&self, entries: &[Vec<u8>]) -> Result<(RightEdge, Staged), LogError> {
        let mut edge = self.edge.clone();
        let old = edge.size();
        let leaves: Vec<Hash> = entries.iter().map(|entry| leaf_hash(entry)).collect();
        let hashes = edge.append(&leaves);
        let new = edge.size();
        let mut tiles = Vec::new();
        let mut waiting = entries.iter();
        let bundles = new_tiles(old, new).into_iter().filter(|tile| tile.kind == TileKind::Entries);
        for tile in bundles {
            let first_new = old.0.saturating_sub(tile.index * 256).min(256) as u16;
            let mut bytes = match first_new {
                0 => Vec::new(),
                width => {
                    let stored = Tile { width, ..tile };
                    self.store.read_tile(stored).map_err(LogError::io(self.store.path(&stored.path())))?
                }
            };
            for entry in waiting.by_ref().take(usize::from(tile.width - first_new)) {
                push_entry(&mut bytes, entry)
                    .map_err(|source| LogError::Entries { path: tile.path(), source })?;
            }
            tiles.push((tile, bytes));
        }
        assert_eq!(waiting.len(), 0, "ledger: entries left over after all bundles");
        tiles.extend(hashes.into_iter().map(|made| (made.tile, made.bytes)));
        Ok((edge, Staged { old, new, tiles }))
    }

    fn sign(&self, head: TreeHead) -> SignedHead {
        let origin = self.key.verifier().name().as_str().to_owned();
        SignedHead { head, note: Checkpoint { origin, head }.sign(&self.key) }
    }
}

/// Moves the staged tiles to their places and then publishes the checkpoint that covers them.
///
/// It may run any number of times: it only ever writes the same bytes to the same places.
fn publish_staged(store: &Store, staged: &Staged, signed: &SignedHead) -> Result<(), LogError> {
    assert_eq!(staged.new, signed.head.size, "ledger: published tiles of another size");
    for (tile, bytes) in &staged.tiles {
        store.write_tile(*tile, bytes)?;
    }
    store.write_checkpoint(signed.head.size, &signed.note)?;
    // The narrower tiles are the beginnings of these ones, and are served from them from now on.
    for (tile, _) in &staged.tiles {
        store.remove_narrower(*tile)?;
    }
    Ok(())
}

/// Finishes the commit that a crash interrupted after its point of no return.
fn finish_commit(
    store: &Store,
    promised: &SignedHead,
    published: Option<&SignedHead>,
) -> Result<(), LogError> {
    let data = published.map_or(TreeSize(0), |published| published.head.size);
    let lock = promised.head.size;
    if data > lock {
        return Err(LogError::LockOlderThanData { data, lock });
    }
    if data == lock {
        let (expected, found) =
            (promised.head.root, published.map_or(EMPTY_ROOT, |published| published.head.root));
        return Err(LogError::RootMismatch { size: lock, expected, found });
    }
    let staged = match store.read_stage() {
        Err(LogError::Stage(_)) => return Err(LogError::DataOlderThanLock { data, lock }),
        other => other?,
    };
    if staged.new != lock || staged.old != data {
        return Err(LogError::DataOlderThanLock { data, lock });
    }
    let old = published.map_or(TreeHead { size: TreeSize(0), root: EMPTY_ROOT }, |published| published.head);
    rehash(store, &staged, old, promised.head)?;
    publish_staged(store, &staged, promised)?;
    for (tile, _) in &staged.tiles {
        store.sync_folders(*tile)?;
    }
    Ok(())
}

/// Hashes staged tiles as read back from the disk: entries against leaf hashes, the new root, and the old root,
/// which the grown tree must still contain.
fn rehash(store: &Store, staged: &Staged, old: TreeHead, new: TreeHead) -> Result<(), LogError> {
    if (staged.old, staged.new) != (old.size, new.size) {
        return Err(LogError::DataOlderThanLock { data: staged.new, lock: new.size });
    }
    for (tile, bytes) in staged.tiles.iter().filter(|(tile, _)| tile.kind == TileKind::Entries) {
        let entries = decode_bundle_of(bytes, tile.width);
        let entries = entries.map_err(|source| LogError::Entries { path: tile.path(), source })?;
        let leaves: Vec<Hash> = entries.into_iter().map(leaf_hash).collect();
        let level_0 = Tile { kind: TileKind::Hashes(0), ..*tile };
        let stated = staged.tile(level_0).and_then(|bytes| decode_hashes(bytes).ok());
        if stated.as_ref() != Some(&leaves) {
            return Err(LogError::TileMismatch { path: level_0.path() });
        }
    }
    let source = Overlay { staged, store };
    let reader = TileReader { size: new.size, source: &source };
    for expected in [new, old] {
        let found = root_hash(expected.size, &reader)?;
        if found != expected.root {
            return Err(LogError::RootMismatch { size: expected.size, expected: expected.root, found });
        }
    }
    Ok(())
}

fn open_note(store: &Store, key: &SigningKey, note: &[u8], file: &str) -> Result<SignedHead, LogError> {
    let wrong = |source| LogError::Checkpoint { path: store.path(file), source };
    let origin = key.verifier().name().as_str();
    let checkpoint = Checkpoint::open(note, origin, key.verifier()).map_err(wrong)?;
    // A note that opens is UTF-8.
    Ok(SignedHead { head: checkpoint.head, note: String::from_utf8_lossy(note).into_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::durable::Files;
    use tlog::note::KeyName;

    fn committer(folder: &std::path::Path) -> Committer {
        let key = Arc::new(SigningKey::from_seed(KeyName::new("example.com/log").unwrap(), &[7; 32]));
        let mut committer =
            Committer::recover(Arc::new(Store::new(folder, Files::default())), key, |_, _| Ok(())).unwrap();
        committer.commit(&[b"one".to_vec(), b"two".to_vec()]).unwrap();
        committer
    }

    #[test]
    fn staged_tiles_with_any_byte_changed_are_not_signed() {
        let folder = tempfile::tempdir().unwrap();
        let committer = committer(folder.path());
        let old = committer.edge.head();
        let (edge, staged) = committer.grow(&[b"three".to_vec()]).unwrap();
        assert!(rehash(&committer.store, &staged, old, edge.head()).is_ok());
        for tile in 0..staged.tiles.len() {
            for at in 0..staged.tiles[tile].1.len() {
                let mut damaged = staged.clone();
                damaged.tiles[tile].1[at] ^= 1;
                assert!(
                    rehash(&committer.store, &damaged, old, edge.head()).is_err(),
                    "tile {tile} byte {at}"
                );
            }
        }
    }

    #[test]
    fn a_tree_that_does_not_contain_the_old_one_is_not_signed() {
        let folder = tempfile::tempdir().unwrap();
        let committer = committer(folder.path());
        let old = committer.edge.head();
        // Another past of the same length, grown by the same entry, as if memory and disk had parted ways.
        let other = tempfile::tempdir().unwrap();
        let mut forked = Committer::recover(
            Arc::new(Store::new(other.path(), Files::default())),
            committer.key.clone(),
            |_, _| Ok(()),
        )
        .unwrap();
        forked.commit(&[b"one".to_vec(), b"TWO".to_vec()]).unwrap();
        let (edge, staged) = forked.grow(&[b"three".to_vec()]).unwrap();
        assert!(matches!(
            rehash(&forked.store, &staged, old, edge.head()),
            Err(LogError::RootMismatch { size: TreeSize(2), .. })
        ));
    }

    #[test]
    fn a_lock_record_that_someone_else_replaced_stops_the_server() {
        let folder = tempfile::tempdir().unwrap();
        let mut committer = committer(folder.path());
        std::fs::write(folder.path().join("lock/head"), "another note").unwrap();
        let result = committer.commit(&[b"three".to_vec()]);
        assert!(matches!(result, Err(CommitError::Unknown(LogError::LockChanged))));
        assert_eq!(committer.size(), TreeSize(2));
    }
}
