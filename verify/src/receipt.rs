//! May a receipt be judged: the challenge rule, and the form of its body (docs/spec/receipt.md).
//!
//! The rule proves an order by hashes: the receipt holds a log checkpoint, the checkpoint covers the prediction, so
//! the prediction was fixed before the receipt was made. A receipt also has to be logged before the prediction is
//! opened, or it could have been copied from it.

use schemas::bundle::Cover;
use schemas::digest::{AttachmentDigest, EntryDigest, RunId};
use schemas::key::PublicKey;
use schemas::object::{Object, ObjectError};
use schemas::receipt::{DeviceRecord, Receipt, ReceiptBody};
use schemas::record::NonFinite;
use schemas::run::Run;
use tlog::checkpoint::{Checkpoint, CheckpointError};
use tlog::hash::Hash;
use tlog::note::{Verifier as _, VerifierKey};
use tlog::proof::{ConsistencyProof, InclusionProof, Leaf, ProofError, check_consistency, check_inclusion};
use tlog::tree::TreeHead;

/// Why a receipt is not judged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It belongs to another run.
    #[error("receipt for another run: expected run {expected}, found {found}")]
    AnotherRun {
        /// The run at hand.
        expected: RunId,
        /// The receipt's.
        found: RunId,
    },
    /// The log has it before the prediction.
    #[error(
        "prediction logged after the receipt: the prediction has index {prediction}, the receipt {receipt}"
    )]
    PredictionLater {
        /// Leaf index of the prediction.
        prediction: u64,
        /// Leaf index of the receipt.
        receipt: u64,
    },
    /// The log has it after the opening: by then the prediction could be copied.
    #[error("receipt logged after the opening: the opening has index {opening}, the receipt {receipt}")]
    AfterOpening {
        /// Leaf index of the opening.
        opening: u64,
        /// Leaf index of the receipt.
        receipt: u64,
    },
    /// Its checkpoint is not one of the log in use.
    #[error("checkpoint not signed by this log: {0}")]
    NotThisLog(#[from] CheckpointError),
    /// Its checkpoint was made before the prediction was logged.
    #[error(
        "challenge older than the prediction: its checkpoint covers entries below {size}, \
         the prediction is entry {prediction}"
    )]
    ChallengeOlder {
        /// Tree size of the receipt's checkpoint.
        size: u64,
        /// Leaf index of the prediction.
        prediction: u64,
    },
    /// The body is not the one the receipt names.
    #[error(
        "receipt body: expected {expected} of {expected_bytes} bytes, found {found} of {found_bytes} bytes"
    )]
    BodyName {
        /// Named in the receipt.
        expected: AttachmentDigest,
        /// Named in the receipt.
        expected_bytes: u64,
        /// Of the bytes given.
        found: AttachmentDigest,
        /// Of the bytes given.
        found_bytes: u64,
    },
    /// The body cannot be read.
    #[error("receipt body: {0}")]
    Body(#[from] ObjectError),
    /// Receipt and body, or body and run, do not fit together.
    #[error("receipt body: {what}: expected {expected}, found {found}")]
    Shape {
        /// Of what.
        what: String,
        /// By run and receipt.
        expected: String,
        /// By the body.
        found: String,
    },
}

/// What a receipt is held against.
#[derive(Clone, Copy, Debug)]
pub struct Terms<'a> {
    /// The run.
    pub run: &'a Run,
    /// Its id.
    pub id: RunId,
    /// The log's key; the log's origin is the key's name.
    pub log: &'a VerifierKey,
    /// Leaf index of the prediction.
    pub prediction_index: u64,
    /// Leaf index of the opening, if the prediction was sealed and is opened.
    pub opening_index: Option<u64>,
}

/// A receipt that may be judged. Only [`admit`] makes one.
#[derive(Clone, Debug)]
pub struct Admitted {
    entry: EntryDigest,
    device: PublicKey,
    receipt: Receipt,
    body: ReceiptBody,
}

impl Admitted {
    /// The log entry.
    pub fn entry(&self) -> EntryDigest {
        self.entry
    }

    /// Who signed.
    pub fn device(&self) -> PublicKey {
        self.device
    }

    /// The receipt.
    pub fn receipt(&self) -> &Receipt {
        &self.receipt
    }

    /// Its records.
    pub fn body(&self) -> &ReceiptBody {
        &self.body
    }

    /// The record of `step`; records are in ascending order.
    pub fn record(&self, step: u64) -> Option<&DeviceRecord> {
        let at = self.body.records.binary_search_by_key(&step, |record| record.step).ok()?;
        Some(&self.body.records[at])
    }
}

/// Admits a receipt of entry `entry`, signed by `device`, at leaf index `index`, with its encoded body.
pub fn admit(
    entry: EntryDigest,
    device: PublicKey,
    receipt: &Receipt,
    index: u64,
    body: &[u8],
    terms: &Terms,
) -> Result<Admitted, Refusal> {
    check_rule(receipt, index, terms)?;
    let body = read_body(receipt, body, terms)?;
    Ok(Admitted { entry, device, receipt: receipt.clone(), body })
}

/// Checks run and order, and returns the tree of the receipt's checkpoint. That this tree is a part of the log's
/// history, and holds the prediction, is shown by a cover ([`check_cover`]).
pub fn check_rule(receipt: &Receipt, index: u64, terms: &Terms) -> Result<TreeHead, Refusal> {
    let prediction = terms.prediction_index;
    if receipt.run != terms.id {
        return Err(Refusal::AnotherRun { expected: terms.id, found: receipt.run });
    }
    if prediction > index {
        return Err(Refusal::PredictionLater { prediction, receipt: index });
    }
    if let Some(opening) = terms.opening_index.filter(|&opening| opening < index) {
        return Err(Refusal::AfterOpening { opening, receipt: index });
    }
    let checkpoint = Checkpoint::open(&receipt.checkpoint, terms.log.name().as_str(), terms.log)?;
    let size = checkpoint.head.size.0;
    if size <= prediction {
        return Err(Refusal::ChallengeOlder { size, prediction });
    }
    Ok(checkpoint.head)
}

/// Reads the body that the receipt names and checks that it has the receipt's rank and the run's shape. After
/// this, a record has as many leaves and exchanges as its rank calls for.
pub fn read_body(receipt: &Receipt, bytes: &[u8], terms: &Terms) -> Result<ReceiptBody, Refusal> {
    if !receipt.body.names(bytes) {
        return Err(Refusal::BodyName {
            expected: receipt.body.sha256,
            expected_bytes: receipt.body.bytes,
            found: AttachmentDigest::of(bytes),
            found_bytes: bytes.len() as u64,
        });
    }
    let body = ReceiptBody::decode(bytes)?;
    same("run", terms.id, body.run)?;
    check_shape(receipt, &body, terms.run)?;
    Ok(body)
}

/// Checks that receipt, body and run fit together, so that records can be indexed by leaf and level.
pub(crate) fn check_shape(receipt: &Receipt, body: &ReceiptBody, run: &Run) -> Result<(), Refusal> {
    same("rank", receipt.rank, body.rank)?;
    let most = run.devices_max;
    if receipt.devices > most {
        same("number of devices", format!("at most {most}"), receipt.devices.to_string())?;
    }
    for (at, record) in body.records.iter().enumerate() {
        check_record(receipt, run, record)?;
        if record.non_finite.is_some() && at + 1 != body.records.len() {
            let found = (body.records.len() - at - 1).to_string();
            same(format!("records after the invalid step {}", record.step), "none".to_string(), found)?;
        }
    }
    Ok(())
}

fn check_record(receipt: &Receipt, run: &Run, record: &DeviceRecord) -> Result<(), Refusal> {
    let step = record.step;
    if !(receipt.steps.first..receipt.steps.end).contains(&step) {
        same("a record's step", format!("within {}", receipt.steps), step.to_string())?;
    }
    let leaves = run.leaves / receipt.devices;
    same(format!("leaves in the record of step {step}"), leaves, record.traces.len() as u64)?;
    if let Some(outcome) = &record.outcome {
        let levels = u64::from(receipt.devices.ilog2());
        same(format!("exchanges in the record of step {step}"), levels, outcome.exchanges.len() as u64)?;
    }
    match record.non_finite {
        Some(NonFinite::Tap { leaf, .. }) if leaf >= run.leaves => {
            same(format!("non-finite leaf of step {step}"), format!("below {}", run.leaves), leaf.to_string())
        }
        _ => Ok(()),
    }
}

fn same<T: PartialEq + std::fmt::Display>(
    what: impl Into<String>,
    expected: T,
    found: T,
) -> Result<(), Refusal> {
    match expected == found {
        true => Ok(()),
        false => Err(Refusal::Shape {
            what: what.into(),
            expected: expected.to_string(),
            found: found.to_string(),
        }),
    }
}

/// Why a cover does not show what it should.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CoverError {
    /// The prediction is not in the challenge's tree.
    #[error("the challenge's checkpoint of size {size} does not hold the prediction: {source}")]
    Inclusion {
        /// Tree size of the challenge's checkpoint.
        size: u64,
        /// What failed.
        source: ProofError,
    },
    /// The challenge's tree is not a part of the log's history.
    #[error("the challenge's checkpoint of size {size} is not of the same history as the bundle's: {source}")]
    Consistency {
        /// Tree size of the challenge's checkpoint.
        size: u64,
        /// What failed.
        source: ProofError,
    },
}

/// Checks that the tree `head` of a challenge holds the prediction and is a prefix of the tree `last`.
pub fn check_cover(
    cover: &Cover,
    head: TreeHead,
    prediction: Leaf,
    last: TreeHead,
) -> Result<(), CoverError> {
    let size = head.size.0;
    check_inclusion(&inclusion(&cover.inclusion), prediction, head)
        .map_err(|source| CoverError::Inclusion { size, source })?;
    let hashes = cover.consistency.iter().map(|hash| Hash::new(*hash)).collect();
    check_consistency(&ConsistencyProof(hashes), head, last)
        .map_err(|source| CoverError::Consistency { size, source })
}

/// An inclusion proof from a bundle's bytes.
pub(crate) fn inclusion(hashes: &[[u8; 32]]) -> InclusionProof {
    InclusionProof(hashes.iter().map(|hash| Hash::new(*hash)).collect())
}
