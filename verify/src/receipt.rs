//! May a receipt be judged: the challenge rule, and the form of its body (docs/spec/receipt.md).
//!
//! The rule proves an order by hashes: the receipt holds a log checkpoint, the checkpoint covers the prediction, so
//! the prediction was fixed before the receipt was made. A receipt also has to be logged before the prediction is
//! opened, or it could have been copied from it.

use crate::implied;
use schemas::bundle::Cover;
use schemas::digest::{AttachmentDigest, EntryDigest, RunId};
use schemas::key::PublicKey;
use schemas::object::{Object, ObjectError};
use schemas::prediction::PredictionBody;
use schemas::receipt::{DeviceRecord, Receipt, ReceiptBody};
use schemas::record::{NonFinite, StepRecord};
use schemas::run::Run;
use std::borrow::Cow;
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
    /// Every predicted step before this one is as predicted, and its records were let go.
    settled_before: u64,
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

    /// Its records; of a receipt that was made brief, only those that are left.
    pub fn body(&self) -> &ReceiptBody {
        &self.body
    }

    /// A receipt whose records are all as predicted, and are not needed.
    pub(crate) fn as_predicted(
        entry: EntryDigest,
        device: PublicKey,
        receipt: &Receipt,
        run: RunId,
    ) -> Admitted {
        let body = ReceiptBody { run, rank: receipt.rank, records: Vec::new() };
        Admitted { entry, device, receipt: receipt.clone(), body, settled_before: u64::MAX }
    }

    /// Lets go of all records but the first that is not as predicted: the earliest such step of all devices decides,
    /// and what comes after it is not looked at. So many receipts need not be in memory at once.
    pub(crate) fn brief(mut self, run: &Run, predicted: &PredictionBody) -> Admitted {
        let mut records = std::mem::take(&mut self.body.records).into_iter().peekable();
        self.settled_before = u64::MAX;
        for (step, expected) in (predicted.first..).zip(&predicted.records) {
            while records.next_if(|record| record.step < step).is_some() {}
            let found = records.next_if(|record| record.step == step);
            let is_right =
                |found: &DeviceRecord| implied::is_as_predicted(run, &self.receipt, expected, found);
            if !found.as_ref().is_some_and(is_right) {
                self.settled_before = step;
                self.body.records = found.into_iter().collect();
                break;
            }
        }
        self
    }

    /// Whether `step` is known to be as predicted.
    pub(crate) fn is_settled(&self, step: u64) -> bool {
        step < self.settled_before
    }

    /// The record of a predicted step. One that was let go is made again, without folds of sums: those are looked at
    /// only where something differs.
    pub(crate) fn record_of(
        &self,
        run: &Run,
        step: u64,
        predicted: &StepRecord,
    ) -> Option<Cow<'_, DeviceRecord>> {
        match self.is_settled(step) {
            true => implied::record_of(run, &self.receipt, step, predicted).map(Cow::Owned),
            false => self.record(step).map(Cow::Borrowed),
        }
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
    Ok(Admitted { entry, device, receipt: receipt.clone(), body, settled_before: 0 })
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
    check_devices(receipt, run)?;
    for (at, record) in body.records.iter().enumerate() {
        check_record(receipt, run, record)?;
        if record.non_finite.is_some() && at + 1 != body.records.len() {
            let found = (body.records.len() - at - 1).to_string();
            same(format!("records after the invalid step {}", record.step), "none".to_string(), found)?;
        }
    }
    Ok(())
}

pub(crate) fn check_record(receipt: &Receipt, run: &Run, record: &DeviceRecord) -> Result<(), Refusal> {
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

pub(crate) fn check_devices(receipt: &Receipt, run: &Run) -> Result<(), Refusal> {
    let most = run.devices_max;
    match receipt.devices > most {
        true => same("number of devices", format!("at most {most}"), receipt.devices.to_string()),
        false => Ok(()),
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
