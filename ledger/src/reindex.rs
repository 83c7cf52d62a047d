//! `ledger reindex`: all that is derived is thrown away and made again from the tiles and the notes that were kept; and
//! the tiles of hashes from the entries, if that is asked for.

use std::path::Path;

use tlog::checkpoint::Checkpoint;
use tlog::edge::{RightEdge, TileBytes};
use tlog::hash::leaf_hash;
use tlog::note::Verifier as _;
use tlog::tile::{TILE_WIDTH, Tile, TileKind, TileSource as _, tile_in_tree};
use tlog::tree::{TreeHead, TreeSize};

use crate::disk::durable::Files;
use crate::disk::folder::require_log;
use crate::disk::key::open_key;
use crate::disk::lock::{FolderLock, Lock, beside};
use crate::disk::store::Store;
use crate::disk::sync::partial_tiles;
use crate::error::LogError;
use crate::log::{OpenLog, open_log};

/// What is derived: the index, and the rows by which notes are found.
pub const DERIVED: [&str; 3] = ["index.redb", "history/published.sizes", "history/cosigned.sizes"];

/// What was made anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reindexed {
    /// Size of the log.
    pub size: TreeSize,
    /// Tiles of hashes that were missing or other than the entries call for; none if nobody asked.
    pub tiles: Option<u64>,
}

/// Makes what is derived anew in the folder of a log that no server works on; tiles of hashes only if asked.
///
/// A start does the same with the index whenever it sees that something is wrong, but it does not look at every row.
/// Whether the tiles themselves are right is fsck's question. A crash leaves what the next start, or another run of
/// this, makes whole.
pub fn reindex(base: &Path, lock_folder: Option<&Path>, tiles: bool) -> Result<Reindexed, LogError> {
    let lock = lock_folder.map_or_else(|| beside(base), |folder| Ok(folder.to_owned()))?;
    require_log(base, &lock)?;
    let held = FolderLock::take(base, &lock)?;
    let tiles = tiles.then(|| remake_tiles(base, &lock)).transpose()?;
    for name in DERIVED {
        let path = base.join(name);
        Files::default().remove(&path).map_err(LogError::io(&path))?;
    }
    // Opening takes the lock again. Whoever takes it in between finds a log that lacks its index, which is no harm.
    drop(held);
    let OpenLog { log, pool, sequencer, lock: _held } = open_log(base, Some(&lock), None, Files::default())?;
    // With no way in, the sequencer has nothing to do but to make everything durable.
    drop(pool);
    sequencer.run()?;
    Ok(Reindexed { size: log.published.latest().head.size, tiles })
}

/// Writes every tile of hashes that is not what the entries call for; how many there were.
///
/// The entries are read twice: first to see that they lead to the signed root, and nothing is written unless they do.
fn remake_tiles(base: &Path, lock_folder: &Path) -> Result<u64, LogError> {
    let store = Store::new(base, Files::default());
    let head = signed_head(&store, &Lock::new(lock_folder, store.files.clone()))?;
    let mut remade = 0;
    let found = from_entries(&store, head.size, |_, _| Ok(()))?;
    if found != head {
        return Err(LogError::EntriesMismatch { size: head.size, expected: head.root, found: found.root });
    }
    from_entries(&store, head.size, |tile, bytes| {
        // A partial tile is a beginning of the wider one, which may stand in its place.
        if store.read_tile(tile).is_ok_and(|stored| stored == bytes) {
            return Ok(());
        }
        remade += 1;
        let path = store.path(&tile.path());
        store.files.replace(&path, &bytes).map_err(LogError::io(path))
    })?;
    Ok(remade)
}

/// The tree that the folder's checkpoint signs, or where that is lost, what was promised last.
fn signed_head(store: &Store, lock: &Lock) -> Result<TreeHead, LogError> {
    let key = open_key(store, None)?;
    let (path, note) = match store.read_checkpoint()? {
        Some(note) => (store.path("checkpoint"), note),
        None => (lock.path().to_owned(), lock.read()?.unwrap_or_default().into_bytes()),
    };
    let origin = key.verifier().name().as_str();
    let opened = Checkpoint::open(&note, origin, key.verifier());
    Ok(opened.map_err(|source| LogError::Checkpoint { path, source })?.head)
}

/// Hashes every entry of a tree of `size`, one bundle in memory at a time, and shows each tile of hashes that comes of
/// it; what the tree's head is.
fn from_entries(
    store: &Store,
    size: TreeSize,
    mut made: impl FnMut(Tile, Vec<u8>) -> Result<(), LogError>,
) -> Result<TreeHead, LogError> {
    let mut tree = RightEdge::empty();
    for bundle in 0..size.0.div_ceil(u64::from(TILE_WIDTH)) {
        let Some(tile) = tile_in_tree(TileKind::Entries, bundle, size) else { break };
        let leaves: Vec<_> = store.read_entries(tile)?.iter().map(|entry| leaf_hash(entry)).collect();
        for TileBytes { tile, bytes } in tree.append(&leaves) {
            // Of the partial ones those at the tree's end count.
            if tile.is_full() {
                made(tile, bytes)?;
            }
        }
    }
    for tile in partial_tiles(size) {
        if let Some(bytes) = tree.tile_bytes(tile) {
            made(tile, bytes)?;
        }
    }
    Ok(tree.head())
}
