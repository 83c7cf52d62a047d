//! The compact form of a tree: the hashes of the perfect subtrees it is made of, at most one of each size. It is all
//! that is needed to append leaves one by one and to know the root.

use crate::hash::{EMPTY_ROOT, Hash, node_hash};
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

    /// A tree as [`CompactTree::parts`] gave it; none if a tree of that size has another number of parts.
    pub fn from_parts(size: TreeSize, parts: Vec<Hash>) -> Option<CompactTree> {
        (parts.len() == size.0.count_ones() as usize).then_some(CompactTree { size: size.0, parts })
    }

    /// Roots of the perfect subtrees, largest first.
    pub fn parts(&self) -> &[Hash] {
        &self.parts
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
            let again = CompactTree::from_parts(compact.size(), compact.parts().to_vec());
            assert_eq!(again.as_ref(), Some(&compact));
            let fewer = compact.parts()[1..].to_vec();
            assert_eq!(CompactTree::from_parts(compact.size(), fewer), None);
        }
    }
}
