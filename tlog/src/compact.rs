//! The compact form of a tree: the hashes of the perfect subtrees it is made of, at most one of each size. It is all
//! that is needed to append leaves one by one and to know the root.

use crate::hash::{EMPTY_ROOT, HASH_BYTES, Hash, node_hash};
use crate::tile::decode_hashes;
use crate::tree::{TreeHead, TreeSize, combine};

/// A tree that grows and remembers nothing of its leaves.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CompactTree {
    size: u64,
    /// Roots of the perfect subtrees, largest first: one for each bit of the size.
    parts: Vec<Hash>,
}

impl CompactTree {
    /// The tree with no leaves.
    pub fn new() -> CompactTree {
        CompactTree::default()
    }

    /// Appends its size, u64, little-endian, and its parts.
    pub fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.size.to_le_bytes());
        self.parts.iter().for_each(|part| bytes.extend(part.as_bytes()));
    }

    /// What [`CompactTree::encode`] wrote at the beginning of these bytes, and what follows; none if it is anything
    /// else.
    pub fn decode(bytes: &[u8]) -> Option<(CompactTree, &[u8])> {
        let (size, rest) = bytes.split_first_chunk::<8>()?;
        let size = u64::from_le_bytes(*size);
        let (parts, rest) = rest.split_at_checked(size.count_ones() as usize * HASH_BYTES)?;
        let parts = decode_hashes(parts).ok()?;
        Some((CompactTree { size, parts }, rest))
    }

    /// Number of leaves.
    pub fn size(&self) -> TreeSize {
        TreeSize(self.size)
    }

    /// Appends a leaf.
    pub fn push(&mut self, leaf: Hash) {
        let mut hash = leaf;
        // Each trailing one bit of the size is a subtree as large as the one that has just been completed.
        for _ in 0..self.size.trailing_ones() {
            let left = self.parts.pop().expect("tlog: a part for each bit of the size");
            hash = node_hash(&left, &hash);
        }
        self.parts.push(hash);
        self.size += 1;
    }

    /// Size and root hash.
    pub fn head(&self) -> TreeHead {
        let root = if self.parts.is_empty() { EMPTY_ROOT } else { combine(&self.parts) };
        TreeHead { size: self.size(), root }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::leaf_hash;
    use crate::tree::StoredHashes;

    #[test]
    fn every_root_to_600_leaves_is_that_of_the_whole_tree() {
        let (mut compact, mut whole) = (CompactTree::new(), StoredHashes::new());
        assert_eq!(compact.head().root, EMPTY_ROOT);
        for i in 0..600u32 {
            let leaf = leaf_hash(&i.to_le_bytes());
            compact.push(leaf);
            whole.push(leaf);
            assert_eq!(compact.head(), TreeHead { size: whole.size(), root: whole.root(whole.size()) });
            let mut bytes = Vec::new();
            compact.encode(&mut bytes);
            assert_eq!(CompactTree::decode(&bytes[..bytes.len() - 1]), None);
            bytes.extend(b"more");
            assert_eq!(CompactTree::decode(&bytes), Some((compact.clone(), &b"more"[..])));
        }
    }
}
