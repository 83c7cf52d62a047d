//! The right edge: the partial tiles of a tree, which are all that is needed to append to it.
//!
//! This is how a server grows a tree. It computes the new root on its own way, from the edge alone; a server reads
//! the tiles it has written back and computes the root again through [`crate::tile::TileReader`], so that the two
//! ways check one another before anything is signed.

use crate::hash::{EMPTY_ROOT, Hash};
use crate::tile::{
    TILE_WIDTH, Tile, TileKind, TileReadError, TileReader, TileSource, encode_hashes, perfect_root,
    tile_in_tree,
};
use crate::tree::{TreeHead, TreeSize, combine};

/// The hashes of each level that are not yet part of a full tile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RightEdge {
    size: u64,
    /// `levels[l]` is the partial tile of level l, fewer than 256 hashes; the highest level is not empty.
    levels: Vec<Vec<Hash>>,
}

/// A tile of hashes and its bytes, ready to be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TileBytes {
    /// Its coordinates.
    pub tile: Tile,
    /// Its content.
    pub bytes: Vec<u8>,
}

impl RightEdge {
    /// The edge of the tree with no leaves.
    pub fn empty() -> RightEdge {
        RightEdge { size: 0, levels: Vec::new() }
    }

    /// Reads the edge of a tree of `size` leaves. Compare its root hash with a trusted one before building on it.
    pub fn read<S: TileSource>(size: TreeSize, source: &S) -> Result<RightEdge, TileReadError<S::Error>> {
        let reader = TileReader { size, source };
        let mut levels = Vec::new();
        let mut count = size.0;
        while count > 0 {
            let index = count / u64::from(TILE_WIDTH);
            let kind = TileKind::Hashes(levels.len() as u8);
            levels.push(match tile_in_tree(kind, index, size) {
                Some(tile) => reader.read_hashes_of(tile)?,
                None => Vec::new(),
            });
            count = index;
        }
        Ok(RightEdge { size: size.0, levels })
    }

    /// Number of leaves.
    pub fn size(&self) -> TreeSize {
        TreeSize(self.size)
    }

    /// Appends leaves and returns every tile of hashes that the grown tree has and the old one had not.
    pub fn append(&mut self, leaves: &[Hash]) -> Vec<TileBytes> {
        let old_counts: Vec<u64> = (0..self.levels.len()).map(|level| self.count_at(level)).collect();
        let mut tiles = Vec::new();
        for leaf in leaves {
            self.size += 1;
            self.push_at(0, *leaf, &mut tiles);
        }
        for (level, row) in self.levels.iter().enumerate() {
            let grown = self.count_at(level) != old_counts.get(level).copied().unwrap_or(0);
            if grown && !row.is_empty() {
                let index = self.count_at(level) / u64::from(TILE_WIDTH);
                tiles.push(tile_bytes(level, index, row));
            }
        }
        tiles
    }

    /// The size and root hash of the tree.
    pub fn head(&self) -> TreeHead {
        // From the left: the highest level first, and in each row the largest perfect subtree first.
        let mut parts = Vec::new();
        for row in self.levels.iter().rev() {
            let mut rest = row.as_slice();
            while !rest.is_empty() {
                let length = 1 << (usize::BITS - 1 - rest.len().leading_zeros());
                let (subtree, after) = rest.split_at(length);
                parts.push(perfect_root(subtree));
                rest = after;
            }
        }
        let root = if parts.is_empty() { EMPTY_ROOT } else { combine(&parts) };
        TreeHead { size: self.size(), root }
    }

    /// Hashes that a level has in the whole tree.
    fn count_at(&self, level: usize) -> u64 {
        self.size >> (8 * level)
    }

    fn push_at(&mut self, level: usize, hash: Hash, tiles: &mut Vec<TileBytes>) {
        if level == self.levels.len() {
            self.levels.push(Vec::with_capacity(usize::from(TILE_WIDTH)));
        }
        let row = &mut self.levels[level];
        row.push(hash);
        if row.len() < usize::from(TILE_WIDTH) {
            return;
        }
        let full = std::mem::take(row);
        let index = self.count_at(level) / u64::from(TILE_WIDTH) - 1;
        tiles.push(tile_bytes(level, index, &full));
        self.push_at(level + 1, perfect_root(&full), tiles);
    }
}

fn tile_bytes(level: usize, index: u64, row: &[Hash]) -> TileBytes {
    let tile = Tile { kind: TileKind::Hashes(level as u8), index, width: row.len() as u16 };
    TileBytes { tile, bytes: encode_hashes(row) }
}
