//! Inclusion and consistency proofs (RFC 6962 sections 2.1.1 and 2.1.2), and their checks (RFC 9162 sections
//! 2.1.3.2 and 2.1.4.2).
//!
//! Making a proof and checking one are written differently on purpose: making walks down from the root by ranges of
//! leaves, checking walks up from the leaf by bits of its index. A slip in one shows against the other.

use thiserror::Error;

use crate::hash::{EMPTY_ROOT, Hash, node_hash};
use crate::tree::{HashReader, LeafIndex, LeafRange, TreeHead, TreeSize, hash_ranges};

/// Most hashes any proof can hold: one for each bit of a 64-bit tree size.
pub const PROOF_HASHES_MAX: usize = 64;

/// A leaf: where it stands and its hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leaf {
    /// Its position.
    pub index: LeafIndex,
    /// The hash of its entry.
    pub hash: Hash,
}

/// Sibling hashes from a leaf up to the root.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct InclusionProof(pub Vec<Hash>);

/// Hashes that show an older tree to be a prefix of a newer one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ConsistencyProof(pub Vec<Hash>);

/// Why a proof could not be made.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ProveError<E: std::error::Error + 'static> {
    /// The leaf is not in a tree of that size.
    #[error("leaf index {index} is not in a tree of {size} leaves")]
    OutsideTree {
        /// The index asked for.
        index: LeafIndex,
        /// The tree size asked for.
        size: TreeSize,
    },
    /// The older tree is larger than the newer one.
    #[error("older tree size {old} is greater than newer tree size {new}")]
    OldIsNewer {
        /// The older size asked for.
        old: TreeSize,
        /// The newer size asked for.
        new: TreeSize,
    },
    /// The stored hashes could not be read.
    #[error("stored hashes could not be read: {0}")]
    Read(#[source] E),
}

/// Why a proof does not hold.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ProofError {
    /// The leaf is not in a tree of that size.
    #[error("leaf index {index} is not in a tree of {size} leaves")]
    OutsideTree {
        /// The index claimed.
        index: LeafIndex,
        /// The tree size claimed.
        size: TreeSize,
    },
    /// The older tree is larger than the newer one.
    #[error("older tree size {old} is greater than newer tree size {new}")]
    OldIsNewer {
        /// The older size.
        old: TreeSize,
        /// The newer size.
        new: TreeSize,
    },
    /// The proof has too few or too many hashes for these sizes.
    #[error("proof has {found} hashes, expected {expected}")]
    WrongLength {
        /// Hashes that the sizes call for.
        expected: usize,
        /// Hashes found.
        found: usize,
    },
    /// The hashes lead to another root than the (newer) tree head's.
    #[error("proof leads to root {found}, expected {expected}")]
    RootMismatch {
        /// The tree head's root.
        expected: Hash,
        /// The root computed from the proof.
        found: Hash,
    },
    /// The hashes lead to another root than the older tree head's.
    #[error("proof leads to older root {found}, expected {expected}")]
    OldRootMismatch {
        /// The older tree head's root.
        expected: Hash,
        /// The older root computed from the proof.
        found: Hash,
    },
}

/// Makes the proof that leaf `index` is in the tree of the first `size` leaves.
pub fn prove_inclusion<R: HashReader>(
    index: LeafIndex,
    size: TreeSize,
    reader: &R,
) -> Result<InclusionProof, ProveError<R::Error>>
where
    R::Error: std::error::Error + 'static,
{
    if index.0 >= size.0 {
        return Err(ProveError::OutsideTree { index, size });
    }
    let hashes = hash_ranges(&inclusion_ranges(index, size), reader).map_err(ProveError::Read)?;
    Ok(InclusionProof(hashes))
}

/// Checks that `leaf` is in the tree that `head` commits to.
pub fn check_inclusion(proof: &InclusionProof, leaf: Leaf, head: TreeHead) -> Result<(), ProofError> {
    match root_of(proof, leaf, head.size)? {
        found if found != head.root => Err(ProofError::RootMismatch { expected: head.root, found }),
        _ => Ok(()),
    }
}

/// The root that a proof leads to from `leaf`, in a tree of this size. By itself it shows nothing: somebody has to have
/// signed it.
pub fn root_of(proof: &InclusionProof, leaf: Leaf, size: TreeSize) -> Result<Hash, ProofError> {
    if leaf.index.0 >= size.0 {
        return Err(ProofError::OutsideTree { index: leaf.index, size });
    }
    let expected = inclusion_ranges(leaf.index, size).len();
    if proof.0.len() != expected {
        return Err(ProofError::WrongLength { expected, found: proof.0.len() });
    }
    // `at` is the node under construction and `last` the last node, both at the current level.
    let mut at = leaf.index.0;
    let mut last = size.0 - 1;
    let mut hash = leaf.hash;
    for sibling in &proof.0 {
        if at & 1 == 1 || at == last {
            hash = node_hash(sibling, &hash);
            // A left child that is the last node has no sibling here: go up until it is a right child.
            while at & 1 == 0 {
                assert!(at > 0, "tlog: proof is longer than the tree is high");
                at >>= 1;
                last >>= 1;
            }
        } else {
            hash = node_hash(&hash, sibling);
        }
        at >>= 1;
        last >>= 1;
    }
    Ok(hash)
}

/// Makes the proof that the tree of `old` leaves is a prefix of the tree of `new` leaves.
///
/// The proof is empty when both are equal and when the older tree is empty: nothing needs showing then.
pub fn prove_consistency<R: HashReader>(
    old: TreeSize,
    new: TreeSize,
    reader: &R,
) -> Result<ConsistencyProof, ProveError<R::Error>>
where
    R::Error: std::error::Error + 'static,
{
    if old.0 > new.0 {
        return Err(ProveError::OldIsNewer { old, new });
    }
    let hashes = hash_ranges(&consistency_ranges(old, new), reader).map_err(ProveError::Read)?;
    Ok(ConsistencyProof(hashes))
}

/// Checks that the tree of `old` is a prefix of the tree of `new`.
///
/// An empty older tree is a prefix of everything; its root must be the empty root and the proof empty.
pub fn check_consistency(proof: &ConsistencyProof, old: TreeHead, new: TreeHead) -> Result<(), ProofError> {
    if old.size.0 > new.size.0 {
        return Err(ProofError::OldIsNewer { old: old.size, new: new.size });
    }
    let expected = consistency_ranges(old.size, new.size).len();
    if proof.0.len() != expected {
        return Err(ProofError::WrongLength { expected, found: proof.0.len() });
    }
    if old.size.0 == 0 {
        if old.root != EMPTY_ROOT {
            return Err(ProofError::OldRootMismatch { expected: old.root, found: EMPTY_ROOT });
        }
        if new.size.0 == 0 && new.root != EMPTY_ROOT {
            return Err(ProofError::RootMismatch { expected: new.root, found: EMPTY_ROOT });
        }
        return Ok(());
    }
    if old.size == new.size {
        if old.root != new.root {
            return Err(ProofError::RootMismatch { expected: new.root, found: old.root });
        }
        return Ok(());
    }
    let (old_root, new_root) = roots_from_consistency(&proof.0, old, new);
    if old_root != old.root {
        return Err(ProofError::OldRootMismatch { expected: old.root, found: old_root });
    }
    if new_root != new.root {
        return Err(ProofError::RootMismatch { expected: new.root, found: new_root });
    }
    Ok(())
}

/// Both roots that a consistency proof of the right length leads to; 0 < old.size < new.size.
fn roots_from_consistency(proof: &[Hash], old: TreeHead, new: TreeHead) -> (Hash, Hash) {
    let mut at = old.size.0 - 1;
    let mut last = new.size.0 - 1;
    // Go up to the largest perfect subtree that ends where the older tree ends.
    while at & 1 == 1 {
        at >>= 1;
        last >>= 1;
    }
    // If the older tree is that subtree, its root is already known and is left out of the proof.
    let (seed, path) = if old.size.0.is_power_of_two() {
        (old.root, proof)
    } else {
        let (first, rest) = proof.split_first().expect("tlog: a proof of the right length is not empty here");
        (*first, rest)
    };
    let mut old_root = seed;
    let mut new_root = seed;
    for sibling in path {
        assert!(last > 0, "tlog: consistency proof is longer than the tree is high");
        if at & 1 == 1 || at == last {
            old_root = node_hash(sibling, &old_root);
            new_root = node_hash(sibling, &new_root);
            while at & 1 == 0 && at > 0 {
                at >>= 1;
                last >>= 1;
            }
        } else {
            new_root = node_hash(&new_root, sibling);
        }
        at >>= 1;
        last >>= 1;
    }
    assert_eq!(last, 0, "tlog: consistency proof is shorter than the tree is high");
    (old_root, new_root)
}

/// The ranges whose hashes prove inclusion, leaf to root: PATH(m, D[n]) of RFC 6962 section 2.1.1.
fn inclusion_ranges(index: LeafIndex, size: TreeSize) -> Vec<LeafRange> {
    assert!(index.0 < size.0, "tlog: inclusion ranges of a leaf outside the tree");
    let mut at = LeafRange { lo: 0, hi: size.0 };
    let mut ranges = Vec::new();
    while at.hi - at.lo > 1 {
        let middle = at.split();
        if index.0 < middle {
            ranges.push(LeafRange { lo: middle, hi: at.hi });
            at.hi = middle;
        } else {
            ranges.push(LeafRange { lo: at.lo, hi: middle });
            at.lo = middle;
        }
    }
    ranges.reverse();
    ranges
}

/// The ranges whose hashes prove consistency: PROOF(m, D[n]) of RFC 6962 section 2.1.2.
fn consistency_ranges(old: TreeSize, new: TreeSize) -> Vec<LeafRange> {
    assert!(old.0 <= new.0, "tlog: consistency ranges of a larger tree in a smaller one");
    let mut ranges = Vec::new();
    if old.0 == 0 || old.0 == new.0 {
        return ranges;
    }
    let mut at = LeafRange { lo: 0, hi: new.0 };
    while at.hi != old.0 {
        let middle = at.split();
        if old.0 <= middle {
            ranges.push(LeafRange { lo: middle, hi: at.hi });
            at.hi = middle;
        } else {
            ranges.push(LeafRange { lo: at.lo, hi: middle });
            at.lo = middle;
        }
    }
    // A range that starts at the first leaf and ends at the older size is the older tree itself: its root is known.
    if at.lo != 0 {
        ranges.push(at);
    }
    ranges.reverse();
    ranges
}
