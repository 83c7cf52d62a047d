//! The whole log, hashed again from its entries.

use tlog::edge::RightEdge;
use tlog::hash::{Hash, leaf_hash};
use tlog::tile::{TileKind, TileSource, tile_in_tree};
use tlog::tree::{TreeHead, TreeSize};

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
