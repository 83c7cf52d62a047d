//! Trees as ranges of perfect subtrees, the flat order in which their hashes are stored, and the root hash.
//!
//! A *perfect subtree* is the node at level L and index n that covers the leaves [n*2^L, (n+1)*2^L). Once its last
//! leaf is there it never changes, which is why only perfect subtrees are ever stored. Every other hash (the right
//! edge of a tree whose size is not a power of two) is computed from perfect ones when it is needed.

use std::convert::Infallible;

use crate::hash::{EMPTY_ROOT, Hash, node_hash};

/// Zero-based position of an entry in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeafIndex(pub u64);

/// Number of leaves in a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TreeSize(pub u64);

impl std::fmt::Display for LeafIndex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl std::fmt::Display for TreeSize {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// What a tree commits to: its size and its root hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TreeHead {
    /// Number of leaves.
    pub size: TreeSize,
    /// Root hash over them.
    pub root: Hash,
}

/// A perfect subtree: it covers the leaves [index * 2^level, (index + 1) * 2^level).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId {
    /// Height above the leaves; 0 is a leaf.
    pub level: u8,
    /// Position among the nodes of that level, from the left.
    pub index: u64,
}

/// Where the hashes of perfect subtrees come from.
pub trait HashReader {
    /// What can go wrong when reading.
    type Error;

    /// The hashes of `nodes`, in the order asked for.
    fn read_hashes(&self, nodes: &[NodeId]) -> Result<Vec<Hash>, Self::Error>;
}

/// The leaves [lo, hi), not empty, with `lo` a multiple of the smallest power of two that is at least hi - lo:
/// exactly the ranges that occur as nodes in an RFC 6962 tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LeafRange {
    pub(crate) lo: u64,
    pub(crate) hi: u64,
}

impl LeafRange {
    /// Where RFC 6962 splits this range: its left part has the largest power of two less than its length.
    pub(crate) fn split(self) -> u64 {
        let length = self.hi - self.lo;
        assert!(length > 1, "tlog: a range of {length} leaves cannot be split");
        // The highest bit of length - 1 is the largest power of two that is strictly below length.
        self.lo + (1u64 << (63 - (length - 1).leading_zeros()))
    }

    /// The perfect subtrees that make up this range, from the left, each smaller than the one before.
    pub(crate) fn nodes(self) -> Vec<NodeId> {
        let mut nodes = Vec::new();
        let mut lo = self.lo;
        while lo < self.hi {
            let level = 63 - (self.hi - lo).leading_zeros();
            assert!(lo.trailing_zeros() >= level, "tlog: range {self:?} is not aligned");
            nodes.push(NodeId { level: level as u8, index: lo >> level });
            lo += 1u64 << level;
        }
        nodes
    }
}

/// The hash of a range from the hashes of its perfect subtrees, left to right.
pub(crate) fn combine(parts: &[Hash]) -> Hash {
    let (last, earlier) = parts.split_last().expect("tlog: a range has at least one subtree");
    // Each subtree is larger than all to its right together, so RFC 6962 splits right after it: fold from the right.
    earlier.iter().rev().fold(*last, |right, left| node_hash(left, &right))
}

/// The hashes of several ranges, read in one call.
pub(crate) fn hash_ranges<R: HashReader>(ranges: &[LeafRange], reader: &R) -> Result<Vec<Hash>, R::Error> {
    let per_range: Vec<Vec<NodeId>> = ranges.iter().map(|range| range.nodes()).collect();
    let wanted: Vec<NodeId> = per_range.iter().flatten().copied().collect();
    let found = reader.read_hashes(&wanted)?;
    assert_eq!(found.len(), wanted.len(), "tlog: reader returned another number of hashes than asked for");
    let mut rest = found.as_slice();
    let mut hashes = Vec::with_capacity(ranges.len());
    for nodes in &per_range {
        let (parts, after) = rest.split_at(nodes.len());
        hashes.push(combine(parts));
        rest = after;
    }
    assert!(rest.is_empty(), "tlog: unused hashes after all ranges");
    Ok(hashes)
}

/// The root hash of the first `size` leaves (RFC 6962 section 2.1).
pub fn root_hash<R: HashReader>(size: TreeSize, reader: &R) -> Result<Hash, R::Error> {
    if size.0 == 0 {
        return Ok(EMPTY_ROOT);
    }
    let hashes = hash_ranges(&[LeafRange { lo: 0, hi: size.0 }], reader)?;
    Ok(hashes[0])
}

/// Position of a node in the flat order of stored hashes.
///
/// The order is the one in which hashes become known: a leaf, then every subtree which that leaf completes, from
/// the bottom up. So level L+1's n'th hash stands right after level L's (2n+1)'th hash.
pub fn stored_hash_index(node: NodeId) -> u64 {
    // Walk down to the last leaf under the node: its hash is written `level` places before the node's.
    let last_leaf = ((node.index + 1) << node.level) - 1;
    assert!(last_leaf < 1 << 62, "tlog: node {node:?} lies beyond what can be stored");
    stored_hash_count(TreeSize(last_leaf)) + u64::from(node.level)
}

/// Number of stored hashes of a tree: one per leaf and one per completed subtree.
pub fn stored_hash_count(size: TreeSize) -> u64 {
    // Of n leaves, n/2 complete a subtree of level 1, n/4 one of level 2 and so on: n + n/2 + n/4 + ...
    let mut count = 0;
    let mut at_level = size.0;
    while at_level > 0 {
        count += at_level;
        at_level >>= 1;
    }
    count
}

/// The node whose hash stands at `position` in the flat order; the inverse of [`stored_hash_index`].
pub fn split_stored_hash_index(position: u64) -> NodeId {
    assert!(position < 1 << 62, "tlog: position {position} lies beyond what can be stored");
    // A leaf n stands at 2n - popcount(n), so it is at or after position/2 and at most 64 leaves later.
    let mut leaf = position / 2;
    while stored_hash_count(TreeSize(leaf + 1)) <= position {
        leaf += 1;
    }
    let level = position - stored_hash_count(TreeSize(leaf));
    NodeId { level: level as u8, index: leaf >> level }
}

/// A whole tree in memory: its stored hashes in flat order.
#[derive(Debug, Clone, Default)]
pub struct StoredHashes {
    hashes: Vec<Hash>,
    size: u64,
}

impl StoredHashes {
    /// The tree with no leaves.
    pub fn new() -> StoredHashes {
        StoredHashes::default()
    }

    /// Appends one leaf and every subtree that it completes.
    pub fn push(&mut self, leaf: Hash) {
        self.hashes.push(leaf);
        let mut node = NodeId { level: 0, index: self.size };
        let mut hash = leaf;
        while node.index & 1 == 1 {
            let left = self.at(NodeId { level: node.level, index: node.index - 1 });
            hash = node_hash(&left, &hash);
            self.hashes.push(hash);
            node = NodeId { level: node.level + 1, index: node.index >> 1 };
        }
        self.size += 1;
        assert_eq!(self.hashes.len() as u64, stored_hash_count(self.size()), "tlog: stored hash count");
    }

    /// Number of leaves.
    pub fn size(&self) -> TreeSize {
        TreeSize(self.size)
    }

    /// The root hash of the first `size` leaves; `size` must not exceed what is there.
    pub fn root(&self, size: TreeSize) -> Hash {
        assert!(size.0 <= self.size, "tlog: root of {size} leaves asked of a tree of {}", self.size);
        match root_hash(size, self) {
            Ok(hash) => hash,
            Err(never) => match never {},
        }
    }

    fn at(&self, node: NodeId) -> Hash {
        self.hashes[stored_hash_index(node) as usize]
    }
}

impl HashReader for StoredHashes {
    type Error = Infallible;

    fn read_hashes(&self, nodes: &[NodeId]) -> Result<Vec<Hash>, Infallible> {
        Ok(nodes.iter().map(|node| self.at(*node)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::leaf_hash;

    /// RFC 6962 section 2.1, word for word: the definition everything else is compared with.
    fn merkle_tree_hash(entries: &[Vec<u8>]) -> Hash {
        match entries.len() {
            0 => EMPTY_ROOT,
            1 => leaf_hash(&entries[0]),
            n => {
                let mut k = 1;
                while k * 2 < n {
                    k *= 2;
                }
                node_hash(&merkle_tree_hash(&entries[..k]), &merkle_tree_hash(&entries[k..]))
            }
        }
    }

    #[test]
    fn every_root_to_130_leaves_is_the_one_rfc_6962_defines() {
        let entries: Vec<Vec<u8>> = (0..130u32).map(|i| i.to_le_bytes().to_vec()).collect();
        let mut tree = StoredHashes::new();
        for entry in &entries {
            tree.push(leaf_hash(entry));
        }
        for size in 0..=entries.len() {
            assert_eq!(tree.root(TreeSize(size as u64)), merkle_tree_hash(&entries[..size]), "size {size}");
        }
    }

    #[test]
    fn stored_positions_are_dense_and_invertible() {
        let mut position = 0;
        for leaf in 0..1000u64 {
            for level in 0..=(leaf + 1).trailing_zeros() {
                let node = NodeId { level: level as u8, index: leaf >> level };
                assert_eq!(stored_hash_index(node), position);
                assert_eq!(split_stored_hash_index(position), node);
                position += 1;
            }
            assert_eq!(stored_hash_count(TreeSize(leaf + 1)), position);
        }
    }

    #[test]
    fn ranges_at_the_end_of_the_number_line_do_not_overflow() {
        let range = LeafRange { lo: 0, hi: u64::MAX };
        assert_eq!(range.split(), 1 << 63);
        assert_eq!(range.nodes().len(), 64);
    }
}
