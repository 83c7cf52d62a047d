//! Are these the tokens that a leaf reads, and are they committed? (docs/spec/window.md)
//!
//! Which windows a leaf reads is arithmetic on the plan's seed; it comes in as an argument.

use schemas::checksum::{CHUNK_BYTES, Dtype, bind};
use schemas::counted::counted;
use schemas::digest::{Checksum, PlanDigest};
use schemas::plan::Plan;
use schemas::window::WindowProof;
use std::collections::{BTreeMap, BTreeSet};
use tlog::hash::{Hash, leaf_hash};
use tlog::proof::{InclusionProof, Leaf, ProofError, check_inclusion};
use tlog::tree::{LeafIndex, TreeHead, TreeSize};

/// Tokens of a whole chunk.
pub const CHUNK_TOKENS: u64 = CHUNK_BYTES as u64 / 4;

/// One sequence of a leaf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sequence {
    /// The number of its window.
    pub window: u64,
    /// T tokens.
    pub inputs: Vec<u32>,
    /// The token after each.
    pub targets: Vec<u32>,
}

/// Why a proof does not show what a leaf reads.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WindowError {
    /// About another plan.
    #[error("the proof is about plan {found}, expected {expected}")]
    Plan {
        /// The digest of the plan at hand.
        expected: PlanDigest,
        /// The proof's.
        found: PlanDigest,
    },
    /// No such step or leaf.
    #[error(
        "the proof is about step {step} leaf {leaf}; the plan has {} of {}",
        counted(*steps, "step"),
        counted(*leaves, "leaf")
    )]
    Outside {
        /// The proof's.
        step: u64,
        /// The proof's.
        leaf: u64,
        /// The plan's.
        steps: u64,
        /// The plan's.
        leaves: u64,
    },
    /// Not the windows that the plan's order gives.
    #[error("sequence {sequence} of the leaf: expected window {expected}, found {found}")]
    Window {
        /// Place in the batch.
        sequence: usize,
        /// By the plan.
        expected: String,
        /// In the proof.
        found: String,
    },
    /// Not the root that the plan commits to.
    #[error("the root gives the dataset checksum {found}, expected {expected}")]
    Root {
        /// The plan's.
        expected: Checksum,
        /// From the proof's root.
        found: Checksum,
    },
    /// Chunks that are not needed, or too few.
    #[error("expected the chunks {expected:?} and no others, found {found:?}")]
    Chunks {
        /// Those that hold the windows.
        expected: Vec<u64>,
        /// Those in the proof.
        found: Vec<u64>,
    },
    /// A chunk of another length.
    #[error("chunk {index}: expected {expected} bytes, found {found}")]
    Length {
        /// Which.
        index: u64,
        /// 4096, or what is left for the last.
        expected: u64,
        /// In the proof.
        found: u64,
    },
    /// A chunk that is not in the tree.
    #[error("chunk {index}: {source}")]
    Path {
        /// Which.
        index: u64,
        /// What the path lacks.
        source: ProofError,
    },
}

/// The chunks that hold `windows` of `time` tokens and the token after each.
pub fn chunks_of(windows: &[u64], time: u64) -> BTreeSet<u64> {
    let ends = windows.iter().map(|window| (window * time, window * time + time));
    ends.flat_map(|(first, last)| first / CHUNK_TOKENS..=last / CHUNK_TOKENS).collect()
}

/// Checks `proof` against `plan`; `expected` are the windows that the plan's order gives the proof's step and leaf,
/// asked for only when the plan has both. Returns what the leaf reads.
pub fn check(
    proof: &WindowProof,
    plan: &Plan,
    expected: impl FnOnce() -> Vec<u64>,
) -> Result<Vec<Sequence>, WindowError> {
    let digest = plan.digest();
    if proof.plan != digest {
        return Err(WindowError::Plan { expected: digest, found: proof.plan });
    }
    let (steps, leaves) = (plan.update.steps() as u64, plan.leaves);
    if proof.step >= steps || proof.leaf >= leaves {
        return Err(WindowError::Outside { step: proof.step, leaf: proof.leaf, steps, leaves });
    }
    let expected = expected();
    same_windows(&proof.windows, &expected)?;
    let (tokens, time) = (plan.data.tokens, plan.dimensions.time);
    let found = bind(Dtype::U32, &[tokens], &proof.root);
    if found != plan.data.dataset {
        return Err(WindowError::Root { expected: plan.data.dataset, found });
    }
    let wanted: Vec<u64> = chunks_of(&expected, time).into_iter().collect();
    let found: Vec<u64> = proof.chunks.iter().map(|chunk| chunk.index).collect();
    if wanted != found {
        return Err(WindowError::Chunks { expected: wanted, found });
    }
    let opened = open_chunks(proof, tokens)?;
    let token = |place: u64| {
        let bytes = &opened[&(place / CHUNK_TOKENS)][4 * (place % CHUNK_TOKENS) as usize..][..4];
        u32::from_le_bytes(bytes.try_into().expect("window: four bytes"))
    };
    let sequence = |window: u64| Sequence {
        window,
        inputs: (window * time..window * time + time).map(token).collect(),
        targets: (window * time + 1..=window * time + time).map(token).collect(),
    };
    Ok(expected.into_iter().map(sequence).collect())
}

fn same_windows(found: &[u64], expected: &[u64]) -> Result<(), WindowError> {
    let name = |window: Option<&u64>| window.map_or("none".into(), u64::to_string);
    for sequence in 0..found.len().max(expected.len()) {
        let (found, expected) = (found.get(sequence), expected.get(sequence));
        if found != expected {
            return Err(WindowError::Window { sequence, expected: name(expected), found: name(found) });
        }
    }
    Ok(())
}

/// The chunks' bytes by index, each of its length and in the tree.
fn open_chunks(proof: &WindowProof, tokens: u64) -> Result<BTreeMap<u64, &[u8]>, WindowError> {
    let head = TreeHead { size: TreeSize(tokens.div_ceil(CHUNK_TOKENS)), root: Hash::new(proof.root) };
    let mut opened = BTreeMap::new();
    for chunk in &proof.chunks {
        let (index, found) = (chunk.index, chunk.bytes.len() as u64);
        let expected = 4 * CHUNK_TOKENS.min(tokens.saturating_sub(index * CHUNK_TOKENS));
        if found != expected {
            return Err(WindowError::Length { index, expected, found });
        }
        let leaf = Leaf { index: LeafIndex(index), hash: leaf_hash(&chunk.bytes) };
        let path = InclusionProof(chunk.path.iter().map(|hash| Hash::new(*hash)).collect());
        check_inclusion(&path, leaf, head).map_err(|source| WindowError::Path { index, source })?;
        opened.insert(index, &chunk.bytes[..]);
    }
    Ok(opened)
}
