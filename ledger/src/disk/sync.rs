//! The sync: what commits have written since the last one is made durable, read back and compared, and only then does
//! the journal forget these commits.
//!
//! A commit itself waits for two files only, the journal and the lock. Its tiles are written without waiting, and the
//! partial ones not at all: they are in memory, and come to their places here. So the folder holds a whole tree, that
//! of its `checkpoint`, at every moment, and a start has to repair no more than the commits since the last sync.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use sha2::{Digest, Sha256};
use tlog::tile::{TILE_HEIGHT, Tile, TileKind, tile_in_tree};
use tlog::tree::TreeSize;

use crate::disk::durable::{patient, sync_folder};
use crate::disk::history::History;
use crate::disk::store::{Edge, Store};
use crate::error::LogError;

/// Tile levels a tree with a 64-bit size can have.
const TILE_LEVELS: u8 = 8;

/// SHA-256 of a file's content.
pub type FileDigest = [u8; 32];

/// What there is to sync, at the size of a published checkpoint.
pub struct Unsynced {
    /// Size of the last sync.
    pub before: TreeSize,
    /// The checkpoint note to be borne out.
    pub note: String,
    /// Its partial tiles.
    pub edge: Arc<Edge>,
    /// Full tiles that were written since the last sync.
    pub written: Vec<(Tile, FileDigest)>,
    /// Segments of the journal that are needed no longer afterwards.
    pub segments: Vec<PathBuf>,
}

/// The digest that a tile's file has to have.
pub fn digest_of(bytes: &[u8]) -> FileDigest {
    Sha256::digest(bytes).into()
}

impl Unsynced {
    /// Makes everything durable. After an error nobody knows what is on disk; the journal still has it.
    pub fn sync(mut self, store: &Store, history: &History) -> Result<(), LogError> {
        let size = self.edge.tree.size();
        for tile in partial_tiles(size) {
            let bytes = self.edge.tile_bytes(tile).expect("ledger: a partial tile is at the edge");
            let path = store.path(&tile.path());
            store.files.prepare(&path, &bytes).map_err(LogError::io(&path))?;
            store.files.unveil(&path).map_err(LogError::io(&path))?;
            self.written.push((tile, digest_of(&bytes)));
        }
        let mut folders = BTreeSet::new();
        for (tile, _) in &self.written {
            let path = store.path(&tile.path());
            store.files.sync_path(&path).map_err(LogError::io(&path))?;
            // A crash may have come between making a folder and entering it durably into the one above.
            let above = path.ancestors().skip(1).take_while(|folder| folder.starts_with(store.base()));
            folders.extend(above.map(|folder| folder.to_owned()));
        }
        for folder in folders {
            sync_folder(&folder).map_err(LogError::io(folder))?;
        }
        for (tile, digest) in &self.written {
            let path = store.path(&tile.path());
            let found = patient(|| fs::read(&path)).map_err(LogError::io(&path))?;
            if digest_of(&found) != *digest {
                return Err(LogError::WrittenMismatch { path: tile.path() });
            }
        }
        history.sync()?;
        let path = store.path("checkpoint");
        store.files.replace(&path, self.note.as_bytes()).map_err(LogError::io(&path))?;
        // From here on a start needs none of these.
        for segment in &self.segments {
            store.files.remove(segment).map_err(LogError::io(segment))?;
        }
        self.remove_narrower(store, size)
    }

    /// Removes the partial tiles of the last sync that wider ones have replaced.
    fn remove_narrower(&self, store: &Store, size: TreeSize) -> Result<(), LogError> {
        let now = partial_tiles(size);
        for tile in partial_tiles(self.before).into_iter().filter(|tile| !now.contains(tile)) {
            let path = store.path(&tile.path());
            store.files.remove(&path).map_err(LogError::io(&path))?;
            if !now.iter().any(|wider| (wider.kind, wider.index) == (tile.kind, tile.index))
                && let Some(folder) = path.parent()
            {
                // The full tile stands beside it. Whatever else is in it stays, and so does the folder then.
                let _ = fs::remove_dir(folder);
            }
        }
        Ok(())
    }
}

/// The partial tiles of a tree.
pub(crate) fn partial_tiles(size: TreeSize) -> Vec<Tile> {
    let levels = (0..TILE_LEVELS).map(|level| (TileKind::Hashes(level), level));
    let kinds = std::iter::once((TileKind::Entries, 0)).chain(levels);
    let partial = |(kind, level)| {
        // After the full tiles of the level comes the partial one, if there is one.
        let full = size.0.checked_shr(u32::from(TILE_HEIGHT) * (u32::from(level) + 1)).unwrap_or(0);
        tile_in_tree(kind, full, size)
    };
    kinds.filter_map(partial).collect()
}

#[cfg(test)]
mod tests {
    use tlog::edge::RightEdge;
    use tlog::hash::leaf_hash;
    use tlog::tile::new_tiles;

    use super::*;
    use crate::disk::durable::Files;

    #[test]
    fn a_file_that_is_not_on_disk_as_it_was_written_is_not_borne_out_and_the_journal_stays() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::new(folder.path(), Files::default());
        let history = History::open(folder.path(), store.files.clone()).unwrap();
        let mut tree = RightEdge::empty();
        tree.append(&[leaf_hash(b"entry")]);
        let edge = Arc::new(Edge { tree, entries: vec![Arc::from(&b"entry"[..])] });
        let full = Tile { kind: TileKind::Entries, index: 7, width: 256 };
        let path = folder.path().join(full.path());
        let segment = folder.path().join("segment");
        fs::write(&segment, b"records").unwrap();
        for (found, right) in
            [(&b"what was writtem"[..], false), (b"what was writte", false), (b"what was written", true)]
        {
            store.files.prepare(&path, found).unwrap();
            store.files.unveil(&path).unwrap();
            let unsynced = Unsynced {
                before: TreeSize(0),
                note: "note".to_owned(),
                edge: edge.clone(),
                written: vec![(full, digest_of(b"what was written"))],
                segments: vec![segment.clone()],
            };
            let result = unsynced.sync(&store, &history);
            let told = matches!(&result, Err(LogError::WrittenMismatch { path }) if *path == full.path());
            assert_eq!((result.is_ok(), told), (right, !right), "{result:?}");
            assert_eq!(segment.exists(), !right);
            assert_eq!(store.read_checkpoint().unwrap().is_some(), right);
        }
    }

    #[test]
    fn partial_tiles_are_those_of_the_whole_tree_that_are_not_full() {
        for size in [0, 1, 255, 256, 257, 511, 512, 65_535, 65_536, 65_537, 70_000, 131_072] {
            let mut expected = new_tiles(TreeSize(0), TreeSize(size));
            expected.retain(|tile| !tile.is_full());
            assert_eq!(partial_tiles(TreeSize(size)), expected, "size {size}");
        }
    }
}
