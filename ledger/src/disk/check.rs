//! The whole log, hashed again from its entries.

use std::path::{Path, PathBuf};

use tlog::checkpoint::Checkpoint;
use tlog::edge::RightEdge;
use tlog::hash::{Hash, leaf_hash};
use tlog::note::{SigningKey, Verifier as _};
use tlog::tile::{TileKind, TileSource, tile_in_tree};
use tlog::tree::{TreeHead, TreeSize};

use crate::disk::lock::Lock;
use crate::disk::store::Store;
use crate::error::LogError;

/// Reads every entry of a tree of `size` leaves, shows each to `visit`, and compares every tile with what the
/// entries hash to. Returns the tree's head, which the caller compares with the one that was signed.
pub fn check_tiles(
    store: &Store,
    size: TreeSize,
    mut visit: impl FnMut(u64, &[u8]) -> Result<(), LogError>,
) -> Result<TreeHead, LogError> {
    let mut edge = RightEdge::empty();
    let mut bundle = 0;
    while let Some(tile) = tile_in_tree(TileKind::Entries, bundle, size) {
        let entries = store.read_entries(tile)?;
        let leaves: Vec<Hash> = entries.iter().map(|entry| leaf_hash(entry)).collect();
        for (index, entry) in (bundle * 256..).zip(&entries) {
            visit(index, entry)?;
        }
        for made in edge.append(&leaves) {
            let TileKind::Hashes(_) = made.tile.kind else { continue };
            // A higher level's tile is partial on the way and was never stored so; only its last form counts.
            if tile_in_tree(made.tile.kind, made.tile.index, size) != Some(made.tile) {
                continue;
            }
            let stored = store.read_tile(made.tile).map_err(LogError::io(store.path(&made.tile.path())))?;
            if stored != made.bytes {
                return Err(LogError::TileMismatch { path: made.tile.path() });
            }
        }
        bundle += 1;
    }
    assert_eq!(edge.size(), size, "ledger: bundles do not add up to the tree size");
    Ok(edge.head())
}

/// Checks the whole log in a folder that no server works on: the tiles against the checkpoint they bear out, and that
/// against what the lock says was promised. Changes nothing.
pub fn check_log(store: &Store, key: &SigningKey, lock_folder: &Path) -> Result<TreeHead, LogError> {
    let origin = key.verifier().name().as_str();
    let open = |note: &[u8], path: PathBuf| {
        let opened = Checkpoint::open(note, origin, key.verifier());
        opened.map(|checkpoint| checkpoint.head).map_err(|source| LogError::Checkpoint { path, source })
    };
    let lock = Lock::new(lock_folder, store.files.clone());
    let missing = || LogError::LockMissing { path: lock.path().to_owned(), found: "a log".to_owned() };
    let promised = open(lock.read()?.ok_or_else(missing)?.as_bytes(), lock.path().to_owned())?;
    let note = store.read_checkpoint()?;
    let head = note.map(|note| open(&note, store.path("checkpoint"))).transpose()?;
    let data = head.map_or(TreeSize(0), |head| head.size);
    if data > promised.size {
        return Err(LogError::LockOlderThanData { data, lock: promised.size });
    }
    if data < promised.size {
        return Err(LogError::DataOlderThanLock { data, lock: promised.size });
    }
    let found = check_tiles(store, data, |_, _| Ok(()))?;
    match head.into_iter().chain([promised]).find(|expected| *expected != found) {
        Some(expected) => {
            Err(LogError::RootMismatch { size: data, expected: expected.root, found: found.root })
        }
        None => Ok(found),
    }
}
