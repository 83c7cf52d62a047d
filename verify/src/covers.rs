//! Step 6 of a bundle, the parts about trees: which checkpoints held the prediction, and that it was the only one.

use crate::completeness;
use crate::entries::Entries;
use crate::policy::Policy;
use crate::receipt::{CoverError, check_cover};
use crate::times::names;
use schemas::bundle::stored::StoredBundle;
use schemas::register::PredictionLeaf;
use std::collections::BTreeMap;
use tlog::checkpoint::{Checkpoint, CheckpointError};
use tlog::cosignature::Cosignature;
use tlog::note::{Verifier as _, VerifierKey};
use tlog::tree::TreeHead;

/// Why the covers, or the completeness, of a bundle do not stand.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CoversError {
    #[error("expected covers of the receipts' checkpoints of sizes {expected}, found {found}")]
    Sizes { expected: String, found: String },
    #[error(transparent)]
    Cover(#[from] CoverError),
    #[error("the cover of size {size}: {source}")]
    Checkpoint { size: u64, source: CheckpointError },
    #[error("the cover of size {expected} has a checkpoint of size {found}")]
    Size { expected: u64, found: u64 },
    #[error(
        "the log signed two trees of size {size}, one root in a cover or receipt and another in a receipt"
    )]
    Root { size: u64 },
    #[error(transparent)]
    Quorum(#[from] NoQuorum),
    #[error("the policy asks for completeness, found a bundle without it")]
    NoCompleteness,
    #[error("completeness: expected the bundle's checkpoint, found another")]
    OtherCheckpoint,
    #[error("completeness: {0}")]
    Completeness(String),
    #[error("completeness: expected run {expected}, found run {found}")]
    Run { expected: schemas::digest::RunId, found: schemas::digest::RunId },
    #[error("completeness: expected a register after entry {after}, found it at index {found}")]
    Early { after: u64, found: u64 },
    #[error(
        "completeness: expected entry {expected} as the only prediction of these steps by its signer, found {found}"
    )]
    Predictions { expected: u64, found: String },
}

/// A checkpoint that too few of the policy's witnesses have cosigned.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the checkpoint of size {size} is cosigned by {cosigned}, and not by {missing}: no quorum of the policy"
)]
pub(crate) struct NoQuorum {
    size: u64,
    cosigned: String,
    missing: String,
}

/// Opens a checkpoint of the log, with the cosignatures of the policy's witnesses.
pub(crate) fn open(
    note: &[u8],
    policy: &Policy,
    log: &VerifierKey,
) -> Result<(TreeHead, Vec<Cosignature>), CheckpointError> {
    let keys = policy.witness_keys();
    let (checkpoint, cosignatures) = Checkpoint::open_cosigned(note, log.name().as_str(), log, &keys)?;
    Ok((checkpoint.head, cosignatures))
}

/// Whether these cosignatures are as many as the policy asks for.
pub(crate) fn quorum(policy: &Policy, head: TreeHead, cosignatures: &[Cosignature]) -> Result<(), NoQuorum> {
    match policy.witnesses() {
        Some(trust) if !trust.is_quorum(cosignatures) => {
            let (cosigned, missing) = names(policy, cosignatures);
            Err(NoQuorum { size: head.size.0, cosigned, missing })
        }
        _ => Ok(()),
    }
}

/// Each tree that a receipt answers has its cover, and each cover is of such a tree or has its own cosigned checkpoint;
/// all hold the prediction and are part of the tree `last`. Returns the covers' cosignatures.
pub(crate) fn check(
    bundle: &StoredBundle,
    entries: &Entries,
    (policy, log): (&Policy, &VerifierKey),
    answered: &BTreeMap<u64, TreeHead>,
    last: TreeHead,
) -> Result<Vec<Cosignature>, CoversError> {
    let mut heads = answered.clone();
    let mut all = Vec::new();
    for cover in &bundle.covers {
        let size = cover.tree_size;
        let Some(note) = &cover.checkpoint else { continue };
        let (head, cosignatures) =
            open(note, policy, log).map_err(|source| CoversError::Checkpoint { size, source })?;
        if head.size.0 != size {
            return Err(CoversError::Size { expected: size, found: head.size.0 });
        }
        if *heads.entry(size).or_insert(head) != head {
            return Err(CoversError::Root { size });
        }
        quorum(policy, head, &cosignatures)?;
        all.extend(cosignatures);
    }
    let found: Vec<u64> = bundle.covers.iter().map(|cover| cover.tree_size).collect();
    let expected: Vec<u64> = heads.keys().copied().collect();
    if found != expected {
        return Err(CoversError::Sizes { expected: format!("{expected:?}"), found: format!("{found:?}") });
    }
    for (cover, head) in bundle.covers.iter().zip(heads.into_values()) {
        check_cover(cover, head, entries.prediction_leaf, last)?;
    }
    Ok(all)
}

/// By the log's register, which is later than the opening, the prediction is its signer's only one of any of its steps.
/// Returns the register's index, if the bundle has one.
pub(crate) fn only_prediction(
    bundle: &StoredBundle,
    entries: &Entries,
    (policy, log): (&Policy, &VerifierKey),
    last: TreeHead,
) -> Result<Option<u64>, CoversError> {
    let Some(object) = &bundle.completeness else {
        return if policy.complete() { Err(CoversError::NoCompleteness) } else { Ok(None) };
    };
    if object.checkpoint != bundle.checkpoint {
        return Err(CoversError::OtherCheckpoint);
    }
    let register = completeness::registered(object, last, log).map_err(CoversError::Completeness)?;
    if register.run != entries.id {
        return Err(CoversError::Run { expected: entries.id, found: register.run });
    }
    let after = entries.opening.as_ref().map_or(entries.prediction.index, |opening| opening.index);
    if register.size <= after {
        return Err(CoversError::Early { after, found: register.size });
    }
    let prediction = &entries.prediction;
    let own = |leaf: &&PredictionLeaf| {
        leaf.signer == prediction.signer && leaf.steps.overlaps(prediction.object.steps)
    };
    let found: Vec<&PredictionLeaf> = object.predictions.iter().filter(own).collect();
    match found[..] {
        [leaf] if (leaf.index, leaf.entry) == (prediction.index, prediction.digest) => {
            Ok(Some(register.size))
        }
        _ => {
            let mut indexes: Vec<String> = found.iter().take(20).map(|leaf| leaf.index.to_string()).collect();
            if indexes.is_empty() {
                indexes.push("none".into());
            }
            Err(CoversError::Predictions { expected: prediction.index, found: indexes.join(", ") })
        }
    }
}
