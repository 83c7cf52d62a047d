//! Tiles: how a tree is cut into static files (C2SP tlog-tiles).
//!
//! A tile holds up to 256 consecutive hashes of one level. Tile `n` of level `l` holds the nodes of tree level
//! 8*l from 256*n on; the tree levels between are recomputed from them. A tile with fewer than 256 hashes is
//! partial, stands only at the right edge of the tree, and is never hashed into the level above.

use thiserror::Error;

use crate::hash::{HASH_BYTES, Hash, HashError};
use crate::tree::{HashReader, NodeId, TreeSize, combine};

/// Tree levels in a tile, and so the base-2 logarithm of its width.
pub const TILE_HEIGHT: u8 = 8;
/// Hashes, or entries, in a full tile.
pub const TILE_WIDTH: u16 = 256;
/// Highest tile level the specification allows in a path.
pub const TILE_LEVEL_MAX: u8 = 63;
/// Tile levels a tree with a 64-bit size can have.
const TILE_LEVELS: u8 = 8;
/// Longest tile path: `tile/entries/`, seven groups of `x123/`, `.p/255`.
const PATH_BYTES_MAX: usize = 64;

/// What a tile holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TileKind {
    /// An entry bundle; it has the coordinates of the level 0 tile with its leaf hashes.
    Entries,
    /// Hashes of the given tile level.
    Hashes(u8),
}

/// The coordinates of a tile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tile {
    /// Hashes of a level, or entries.
    pub kind: TileKind,
    /// Position within its level, from the left.
    pub index: u64,
    /// Hashes or entries in it, 1 to 256.
    pub width: u16,
}

/// Why a text is not a tile path.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TilePathError {
    /// The path is longer than any tile path.
    #[error("tile path is {found} bytes, expected at most {PATH_BYTES_MAX}")]
    TooLong {
        /// Bytes found.
        found: usize,
    },
    /// The path is not the one way to write some tile's coordinates.
    #[error("tile path {found:?} is not of the form tile/<level or entries>/<index>[.p/<width>]")]
    NotCanonical {
        /// The path found.
        found: String,
    },
}

impl Tile {
    /// The path below the log's prefix, such as `tile/0/x001/234/067` or `tile/entries/000.p/5`.
    pub fn path(&self) -> String {
        let mut path = match self.kind {
            TileKind::Entries => "tile/entries/".to_owned(),
            TileKind::Hashes(level) => format!("tile/{level}/"),
        };
        let mut groups = vec![format!("{:03}", self.index % 1000)];
        let mut rest = self.index / 1000;
        while rest > 0 {
            groups.push(format!("x{:03}", rest % 1000));
            rest /= 1000;
        }
        groups.reverse();
        path.push_str(&groups.join("/"));
        if self.width < TILE_WIDTH {
            path.push_str(&format!(".p/{}", self.width));
        }
        path
    }

    /// Parses a tile path. Only the text that [`Tile::path`] writes is accepted.
    pub fn parse(path: &str) -> Result<Tile, TilePathError> {
        if path.len() > PATH_BYTES_MAX {
            return Err(TilePathError::TooLong { found: path.len() });
        }
        match parse_loosely(path) {
            // Writing it again settles leading zeros, signs and needless groups all at once.
            Some(tile) if tile.path() == path => Ok(tile),
            _ => Err(TilePathError::NotCanonical { found: path.to_owned() }),
        }
    }

    /// The full tile at the same place, to fall back on when a partial one has been deleted.
    pub fn full(&self) -> Tile {
        Tile { width: TILE_WIDTH, ..*self }
    }

    /// Whether the tile holds 256 hashes or entries.
    pub fn is_full(&self) -> bool {
        self.width == TILE_WIDTH
    }
}

fn parse_loosely(path: &str) -> Option<Tile> {
    let (kind, rest) = path.strip_prefix("tile/")?.split_once('/')?;
    let kind = match kind {
        "entries" => TileKind::Entries,
        level => TileKind::Hashes(level.parse().ok().filter(|level| *level <= TILE_LEVEL_MAX)?),
    };
    let (groups, width) = match rest.split_once(".p/") {
        Some((groups, width)) => {
            (groups, width.parse().ok().filter(|width| (1..TILE_WIDTH).contains(width))?)
        }
        None => (rest, TILE_WIDTH),
    };
    let mut index: u64 = 0;
    for group in groups.split('/') {
        let digits = group.strip_prefix('x').unwrap_or(group);
        let value: u64 = digits.parse().ok().filter(|value| *value < 1000)?;
        index = index.checked_mul(1000)?.checked_add(value)?;
    }
    Some(Tile { kind, index, width })
}

/// Hashes at a tile level in a tree of `size` leaves: the full tiles of the level below, or the leaves.
fn hashes_at(level: u8, size: TreeSize) -> u64 {
    let shift = u32::from(level) * u32::from(TILE_HEIGHT);
    size.0.checked_shr(shift).unwrap_or(0)
}

/// The tile of that kind and index as it is in a tree of `size` leaves; none if the tree has no hash there.
pub fn tile_in_tree(kind: TileKind, index: u64, size: TreeSize) -> Option<Tile> {
    let level = match kind {
        TileKind::Entries => 0,
        TileKind::Hashes(level) => level,
    };
    let before = index.checked_mul(u64::from(TILE_WIDTH))?;
    let there = hashes_at(level, size).checked_sub(before).filter(|there| *there > 0)?;
    Some(Tile { kind, index, width: there.min(u64::from(TILE_WIDTH)) as u16 })
}

/// Every tile that a tree of `new` leaves has and a tree of `old` leaves has not: what a server must write to grow
/// from one to the other. Entry bundles first, then hashes from level 0 up.
pub fn new_tiles(old: TreeSize, new: TreeSize) -> Vec<Tile> {
    assert!(old.0 <= new.0, "tlog: tiles of a tree that shrinks from {old} to {new}");
    let mut tiles = Vec::new();
    let kinds = std::iter::once(TileKind::Entries).chain((0..TILE_LEVELS).map(TileKind::Hashes));
    for kind in kinds {
        let level = if let TileKind::Hashes(level) = kind { level } else { 0 };
        let (from, to) = (hashes_at(level, old), hashes_at(level, new));
        if from == to {
            continue;
        }
        // The first changed tile is the one that was partial, or the first one not there before.
        let mut index = from / u64::from(TILE_WIDTH);
        while let Some(tile) = tile_in_tree(kind, index, new) {
            tiles.push(tile);
            index += 1;
        }
    }
    tiles
}

/// The bytes of a tile of hashes.
pub fn encode_hashes(hashes: &[Hash]) -> Vec<u8> {
    hashes.iter().flat_map(|hash| *hash.as_bytes()).collect()
}

/// Reads a tile of hashes; `bytes` must be a whole number of them.
pub fn decode_hashes(bytes: &[u8]) -> Result<Vec<Hash>, HashError> {
    bytes.chunks(HASH_BYTES).map(Hash::from_slice).collect()
}

/// Where tiles come from: files, a network, or memory.
pub trait TileSource {
    /// What can go wrong when reading.
    type Error: std::error::Error + 'static;

    /// The bytes of a tile. Where a partial tile is gone, a source may answer with the bytes of the full one.
    fn read_tile(&self, tile: Tile) -> Result<Vec<u8>, Self::Error>;
}

/// Why hashes could not be read from tiles.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TileReadError<E: std::error::Error + 'static> {
    /// The tile could not be read.
    #[error("tile {path} could not be read: {source}")]
    Source {
        /// The tile's path.
        path: String,
        /// What the source said.
        source: E,
    },
    /// The tile has not the length its coordinates call for.
    #[error("tile {path} is {found} bytes, expected {expected}")]
    WrongLength {
        /// The tile's path.
        path: String,
        /// Bytes that its width calls for.
        expected: usize,
        /// Bytes found.
        found: usize,
    },
    /// A hash was asked for that a tree of this size has not.
    #[error("node {index} of level {level} is not complete in a tree of {size} leaves")]
    OutsideTree {
        /// The node's level.
        level: u8,
        /// The node's index in its level.
        index: u64,
        /// The tree size.
        size: TreeSize,
    },
}

/// Reads the hashes of a tree of a given size from tiles.
///
/// The hashes are as good as the source: whatever is computed from them must be compared with a root hash that is
/// trusted for another reason.
#[derive(Debug)]
pub struct TileReader<'a, S> {
    /// The tree size that decides how wide the tiles of the right edge are.
    pub size: TreeSize,
    /// Where tiles come from.
    pub source: &'a S,
}

impl<S: TileSource> TileReader<'_, S> {
    /// The hashes of one tile of this tree.
    pub fn read_hashes_of(&self, tile: Tile) -> Result<Vec<Hash>, TileReadError<S::Error>> {
        let bytes = self
            .source
            .read_tile(tile)
            .map_err(|source| TileReadError::Source { path: tile.path(), source })?;
        let expected = usize::from(tile.width) * HASH_BYTES;
        // A source may answer with the full tile, of which the partial one is the beginning.
        let full = usize::from(TILE_WIDTH) * HASH_BYTES;
        if bytes.len() != expected && bytes.len() != full {
            return Err(TileReadError::WrongLength { path: tile.path(), expected, found: bytes.len() });
        }
        let hashes = decode_hashes(&bytes[..expected]).expect("tlog: the length was just checked");
        Ok(hashes)
    }

    /// The tile that holds a node, and the node's first hash and number of hashes in it.
    fn place(&self, node: NodeId) -> Result<(Tile, usize, usize), TileReadError<S::Error>> {
        let outside = || TileReadError::OutsideTree { level: node.level, index: node.index, size: self.size };
        let complete = self.size.0.checked_shr(u32::from(node.level)).unwrap_or(0);
        if node.index >= complete {
            return Err(outside());
        }
        let level = node.level / TILE_HEIGHT;
        let above = node.level % TILE_HEIGHT;
        let first = node.index << above;
        let index = first / u64::from(TILE_WIDTH);
        let tile = tile_in_tree(TileKind::Hashes(level), index, self.size).ok_or_else(outside)?;
        let start = (first % u64::from(TILE_WIDTH)) as usize;
        Ok((tile, start, 1 << above))
    }
}

impl<S: TileSource> HashReader for TileReader<'_, S> {
    type Error = TileReadError<S::Error>;

    fn read_hashes(&self, nodes: &[NodeId]) -> Result<Vec<Hash>, Self::Error> {
        let mut read: Vec<(Tile, Vec<Hash>)> = Vec::new();
        let mut hashes = Vec::with_capacity(nodes.len());
        for node in nodes {
            let (tile, start, count) = self.place(*node)?;
            // A proof needs at most two tiles a level, so a list is quicker to search than a map.
            let at = match read.iter().position(|(known, _)| *known == tile) {
                Some(at) => at,
                None => {
                    read.push((tile, self.read_hashes_of(tile)?));
                    read.len() - 1
                }
            };
            let leaves = &read[at].1[start..start + count];
            hashes.push(perfect_root(leaves));
        }
        Ok(hashes)
    }
}

/// The root of a perfect subtree from its bottom row, whose length must be a power of two: what the tile above a full
/// tile holds of it.
pub fn perfect_root(row: &[Hash]) -> Hash {
    assert!(row.len().is_power_of_two(), "tlog: a row of {} hashes is not a perfect subtree", row.len());
    let mut row = row.to_vec();
    while row.len() > 1 {
        row = row.chunks(2).map(combine).collect();
    }
    row[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hashes(level: u8, index: u64, width: u16) -> Tile {
        Tile { kind: TileKind::Hashes(level), index, width }
    }

    #[test]
    fn paths_are_those_of_the_specification() {
        assert_eq!(hashes(0, 1_234_067, 256).path(), "tile/0/x001/x234/067");
        assert_eq!(hashes(3, 0, 7).path(), "tile/3/000.p/7");
        assert_eq!(Tile { kind: TileKind::Entries, index: 999, width: 256 }.path(), "tile/entries/999");
        for index in [0, 1, 999, 1000, 999_999, 1_000_000, u64::MAX] {
            for width in [1, 255, 256] {
                for kind in [TileKind::Entries, TileKind::Hashes(0), TileKind::Hashes(63)] {
                    let tile = Tile { kind, index, width };
                    assert_eq!(Tile::parse(&tile.path()), Ok(tile));
                }
            }
        }
    }

    #[test]
    fn other_spellings_of_a_path_are_rejected() {
        let bad = "tile/00/000 tile/64/000 tile/-1/000 tile/+1/000 tile/0/00 tile/0/0000 tile/0/x000/001 \
                   tile/0/001/002 tile/0/x001 tile/0/000.p/0 tile/0/000.p/256 tile/0/000.p/01 \
                   tile/0/000.p/+1 tile/0/000.p/ tile/0/ tile/0 tile//000 tile/entries tile/data/000 \
                   /tile/0/000 tile/0/000/ tile/0/+01 tile/0/xx01/000 \
                   tile/0/x018/x446/x744/x073/x709/x551/616 tile/0/../000 tile/0/000.p/1.p/1";
        for path in bad.split_whitespace() {
            assert!(Tile::parse(path).is_err(), "{path}");
        }
        assert_eq!(Tile::parse(&"x".repeat(65)), Err(TilePathError::TooLong { found: 65 }));
    }

    #[test]
    fn a_tree_of_70_000_leaves_has_the_tiles_of_the_specification() {
        let tiles = new_tiles(TreeSize(0), TreeSize(70_000));
        let of = |level| tiles.iter().filter(move |tile| tile.kind == TileKind::Hashes(level));
        assert_eq!(of(0).filter(|tile| tile.is_full()).count(), 273);
        assert_eq!(of(0).next_back(), Some(&hashes(0, 273, 112)));
        assert_eq!(of(1).copied().collect::<Vec<_>>(), [hashes(1, 0, 256), hashes(1, 1, 17)]);
        assert_eq!(of(2).copied().collect::<Vec<_>>(), [hashes(2, 0, 1)]);
        assert_eq!(of(3).count(), 0);
        assert_eq!(tiles.iter().filter(|tile| tile.kind == TileKind::Entries).count(), 274);
    }

    #[test]
    fn a_full_tile_is_hashed_upward_and_an_empty_one_is_not_written() {
        let tiles = new_tiles(TreeSize(255), TreeSize(256));
        let entries = Tile { kind: TileKind::Entries, index: 0, width: 256 };
        assert_eq!(tiles, [entries, hashes(0, 0, 256), hashes(1, 0, 1)]);
        assert_eq!(new_tiles(TreeSize(256), TreeSize(256)), []);
    }
}
