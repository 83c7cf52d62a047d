//! The right edge: the partial tiles of a tree, which are all that is needed to append to it.
//!
//! This is how a server grows a tree. It computes the new root on its own way, from the edge alone; a server reads
//! the tiles it has written back and computes the root again through [`crate::tile::TileReader`], so that the two
//! ways check one another before anything is signed.
//!
//! Every inner node of the last tiles is kept, so that a leaf costs as many hashes as it completes nodes, and a proof
//! none.

use thiserror::Error;

use crate::hash::{EMPTY_ROOT, Hash, node_hash};
use crate::tile::{
    TILE_HEIGHT, TILE_WIDTH, Tile, TileKind, TileReadError, TileReader, TileSource, encode_hashes, new_tiles,
    tile_in_tree,
};
use crate::tree::{HashReader, LeafRange, NodeId, TreeHead, TreeSize, combine};

/// The hashes of each level that are not yet part of a full tile.
///
/// Between [`RightEdge::grow`] and [`RightEdge::trim`] also those of the tiles that have become full since: enough to
/// write these tiles, and to prove every leaf that was appended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RightEdge {
    size: u64,
    /// One row for each level of the tree, from the leaves up; the highest is not empty.
    rows: Vec<Row>,
}

/// The last nodes of one level.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Row {
    /// Position in its level of the first one.
    first: u64,
    hashes: Vec<Hash>,
}

/// A tile of hashes and its bytes, ready to be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TileBytes {
    /// Its coordinates.
    pub tile: Tile,
    /// Its content.
    pub bytes: Vec<u8>,
}

/// A hash was asked for that lies to the left of the edge, or outside the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("node {index} of level {level} is not at the tree's right edge")]
pub struct NotAtTheEdge {
    /// The node's level.
    pub level: u8,
    /// The node's index in its level.
    pub index: u64,
}

impl RightEdge {
    /// The edge of the tree with no leaves.
    pub fn empty() -> RightEdge {
        RightEdge { size: 0, rows: Vec::new() }
    }

    /// Reads the edge of a tree of `size` leaves. Compare its root hash with a trusted one before building on it.
    pub fn read<S: TileSource>(size: TreeSize, source: &S) -> Result<RightEdge, TileReadError<S::Error>> {
        let reader = TileReader { size, source };
        let mut rows = Vec::new();
        let mut count = size.0;
        while count > 0 {
            let index = count / u64::from(TILE_WIDTH);
            let kind = TileKind::Hashes(rows.len() as u8 / TILE_HEIGHT);
            let mut hashes = match tile_in_tree(kind, index, size) {
                Some(tile) => reader.read_hashes_of(tile)?,
                None => Vec::new(),
            };
            for above in 0..TILE_HEIGHT {
                let level = rows.len() as u32;
                // A level without a node has no row, unless there is a node in a level above: then it has all below.
                if size.0.checked_shr(level).unwrap_or(0) == 0 {
                    break;
                }
                let next = hashes.chunks_exact(2).map(combine).collect();
                rows.push(Row { first: index << (TILE_HEIGHT - above), hashes });
                hashes = next;
            }
            count = index;
        }
        Ok(RightEdge { size: size.0, rows })
    }

    /// Number of leaves.
    pub fn size(&self) -> TreeSize {
        TreeSize(self.size)
    }

    /// Appends leaves and returns every tile of hashes that the grown tree has and the old one had not.
    pub fn append(&mut self, leaves: &[Hash]) -> Vec<TileBytes> {
        let old = self.size();
        self.grow(leaves);
        let tiles = self.tiles_since(old);
        self.trim();
        tiles
    }

    /// Appends leaves and keeps what [`RightEdge::tiles_since`] and proofs of these leaves need.
    pub fn grow(&mut self, leaves: &[Hash]) {
        for leaf in leaves {
            self.size += 1;
            let mut hash = *leaf;
            for level in 0.. {
                if level == self.rows.len() {
                    self.rows.push(Row { first: 0, hashes: Vec::new() });
                }
                let row = &mut self.rows[level].hashes;
                row.push(hash);
                // The leaf completes a subtree of the next level if it is the last of a right child.
                if !(self.size >> level).is_multiple_of(2) {
                    break;
                }
                let [.., left, right] = row.as_slice() else {
                    panic!("tlog: a right child without its sibling at level {level}")
                };
                hash = node_hash(left, right);
            }
        }
    }

    /// Every tile of hashes that this tree has and the tree of `old` leaves had not, from level 0 up. The edge must have
    /// been that tree's when it was last trimmed, or later.
    pub fn tiles_since(&self, old: TreeSize) -> Vec<TileBytes> {
        let tiles = new_tiles(old, self.size()).into_iter().filter(|tile| tile.kind != TileKind::Entries);
        let bytes = |tile: Tile| self.tile_bytes(tile).expect("tlog: new tiles are at the edge");
        tiles.map(|tile| TileBytes { tile, bytes: bytes(tile) }).collect()
    }

    /// The bytes of a tile of hashes; none if not all of its hashes are at the edge.
    pub fn tile_bytes(&self, tile: Tile) -> Option<Vec<u8>> {
        let TileKind::Hashes(level) = tile.kind else { return None };
        let row = self.rows.get(usize::from(level) * usize::from(TILE_HEIGHT))?;
        let start = (tile.index * u64::from(TILE_WIDTH)).checked_sub(row.first)? as usize;
        row.hashes.get(start..start + usize::from(tile.width)).map(encode_hashes)
    }

    /// Forgets the hashes of full tiles.
    pub fn trim(&mut self) {
        for (level, row) in self.rows.iter_mut().enumerate() {
            // The level's partial tile starts at the last multiple of a tile's width.
            let tile_level = level as u32 / u32::from(TILE_HEIGHT) + 1;
            let tile = self.size.checked_shr(tile_level * u32::from(TILE_HEIGHT)).unwrap_or(0);
            let first = tile << (u32::from(TILE_HEIGHT) - level as u32 % u32::from(TILE_HEIGHT));
            row.hashes.drain(..(first - row.first) as usize);
            row.first = first;
        }
    }

    /// The size and root hash of the tree.
    pub fn head(&self) -> TreeHead {
        let root = match self.size {
            0 => EMPTY_ROOT,
            size => {
                let nodes = LeafRange { lo: 0, hi: size }.nodes();
                let parts = self.read_hashes(&nodes).expect("tlog: the largest subtrees are at the edge");
                combine(&parts)
            }
        };
        TreeHead { size: self.size(), root }
    }
}

impl HashReader for RightEdge {
    type Error = NotAtTheEdge;

    fn read_hashes(&self, nodes: &[NodeId]) -> Result<Vec<Hash>, NotAtTheEdge> {
        let read = |node: &NodeId| {
            let row = self.rows.get(usize::from(node.level))?;
            row.hashes.get(node.index.checked_sub(row.first)? as usize).copied()
        };
        let missing = |node: &NodeId| NotAtTheEdge { level: node.level, index: node.index };
        nodes.iter().map(|node| read(node).ok_or_else(|| missing(node))).collect()
    }
}
