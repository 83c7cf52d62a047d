//! The `receipt` statement: what one device says it computed (docs/spec/receipt.md).

use crate::attachment::{ATTACHMENT_BYTES_MAX, AttachmentName};
use crate::cbor::{self, Value};
use crate::challenge::CHECKPOINT_BYTES_MAX;
use crate::digest::{AttachmentDigest, Challenge, Checksum, RunId, TraceRoot};
use crate::fold::Fold;
use crate::layout::{ITEM_BYTES_MAX, Layout};
use crate::object::{Fields, Object, ObjectError};
use crate::prediction::PREDICTION_STEPS_MAX;
use crate::record::{
    NonFinite, bits_value, moments_value, non_finite_pair, take_bits, take_moments, take_non_finite,
};
use crate::run::{LEAVES_MAX, STEPS_MAX, Steps};
use crate::source::Place;
use sha2::{Digest as _, Sha256};

/// A device's statement about its part of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// The run.
    pub run: RunId,
    /// The steps it was asked to run.
    pub steps: Steps,
    /// How many devices shared each step; a power of two.
    pub devices: u64,
    /// Which of them this is; it owned the leaves `rank * leaves / devices ..` of each step.
    pub rank: u64,
    /// Whether the arithmetic ran on the oracle's own code instead of a device.
    pub simulated: bool,
    /// The device's facts about itself.
    pub facts: DeviceFacts,
    /// The exact bytes of the log checkpoint that the challenge is derived from.
    pub checkpoint: Vec<u8>,
    /// The answer to the challenge; absent if the run ended before the step it chose.
    pub answer: Option<Answer>,
    /// The encoded [`ReceiptBody`].
    pub body: AttachmentName,
}

impl Receipt {
    /// The challenge this receipt answers.
    pub fn challenge(&self) -> Challenge {
        crate::challenge::challenge(self.run, &self.checkpoint)
    }
}

/// What a device says of itself. Nothing is concluded from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceFacts {
    /// Product name.
    pub name: String,
    /// Architecture, such as `sm_90` or `x86_64`.
    pub architecture: String,
    /// Driver or runtime, with version.
    pub driver: String,
    /// Compute units (SMs, cores).
    pub units: u64,
    /// Digest of the kernels as built, hexadecimal, or the version of the simulated backend.
    pub kernels: String,
}

/// Folds keyed by the challenge, over the tensors of the step it chose: to compute them, one must hold the tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The step, by [`crate::challenge::chosen_step`].
    pub step: u64,
    /// Keyed fold of the reduced gradient.
    pub reduced: Fold,
    /// Keyed fold of the parameters after the step.
    pub parameters: Fold,
}

impl Answer {
    /// The answer as a map.
    pub fn to_value(self) -> Value {
        Value::map([
            ("step", Value::Uint(self.step)),
            ("reduced", Value::bytes(self.reduced.to_bytes())),
            ("parameters", Value::bytes(self.parameters.to_bytes())),
        ])
    }

    /// The answer of a map.
    pub fn from_value(object: &'static str, value: Value) -> Result<Answer, ObjectError> {
        let mut fields = Fields::open(object, value)?;
        let answer = Answer {
            step: fields.uint("step", STEPS_MAX)?,
            reduced: Fold::from_bytes(fields.bytes("reduced")?),
            parameters: Fold::from_bytes(fields.bytes("parameters")?),
        };
        fields.close()?;
        Ok(answer)
    }
}

impl Object for Receipt {
    const STEM: &'static str = "receipt";
    const BYTES_MAX: usize = 32 << 10;

    fn to_value(&self) -> Value {
        let facts = Value::map([
            ("name", Value::text(&self.facts.name)),
            ("architecture", Value::text(&self.facts.architecture)),
            ("driver", Value::text(&self.facts.driver)),
            ("units", Value::Uint(self.facts.units)),
            ("kernels", Value::text(&self.facts.kernels)),
        ]);
        let mut pairs = vec![
            (Value::text("run"), Value::bytes(self.run.0)),
            (Value::text("steps"), self.steps.to_value()),
            (Value::text("devices"), Value::Uint(self.devices)),
            (Value::text("rank"), Value::Uint(self.rank)),
            (Value::text("simulated"), Value::Bool(self.simulated)),
            (Value::text("facts"), facts),
            (Value::text("checkpoint"), Value::bytes(&self.checkpoint)),
            (Value::text("body"), self.body.to_value()),
        ];
        pairs.extend(self.answer.map(|answer| (Value::text("answer"), answer.to_value())));
        Value::Map(pairs)
    }

    fn from_value(value: Value) -> Result<Receipt, ObjectError> {
        let mut fields = Fields::open(Self::STEM, value)?;
        let facts = fields.take("facts")?;
        let answer =
            fields.take_optional("answer").map(|value| Answer::from_value(Self::STEM, value)).transpose()?;
        let receipt = Receipt {
            run: RunId(fields.bytes("run")?),
            steps: fields.steps("steps")?,
            devices: fields.uint("devices", LEAVES_MAX)?,
            rank: fields.uint("rank", LEAVES_MAX)?,
            simulated: fields.truth("simulated")?,
            facts: facts_from(facts)?,
            checkpoint: fields.blob("checkpoint")?,
            answer,
            body: AttachmentName::take(&mut fields, "body")?,
        };
        if !receipt.devices.is_power_of_two() || receipt.rank >= receipt.devices {
            let found = format!("rank {} of {}", receipt.rank, receipt.devices);
            return Err(fields.wrong("rank", "below the number of devices, a power of two", found));
        }
        if receipt.checkpoint.len() > CHECKPOINT_BYTES_MAX {
            let found = format!("{} bytes", receipt.checkpoint.len());
            return Err(fields.wrong("checkpoint", format!("at most {CHECKPOINT_BYTES_MAX} bytes"), found));
        }
        fields.close()?;
        Ok(receipt)
    }
}

fn facts_from(value: Value) -> Result<DeviceFacts, ObjectError> {
    let mut fields = Fields::open(Receipt::STEM, value)?;
    let facts = DeviceFacts {
        name: fields.text("name", 200)?,
        architecture: fields.text("architecture", 80)?,
        driver: fields.text("driver", 200)?,
        units: fields.uint("units", 1 << 32)?,
        kernels: fields.text("kernels", 80)?,
    };
    fields.close()?;
    Ok(facts)
}

/// A tensor as a device reports it: committed to, and locatable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sum {
    /// Checksum of the flat gradient or parameters, shape `[P]`.
    pub checksum: Checksum,
    /// Fold under the plan's key.
    pub fold: Fold,
}

impl Sum {
    fn to_bytes(self) -> [u8; 48] {
        let mut bytes = [0; 48];
        bytes[..32].copy_from_slice(&self.checksum.0);
        bytes[32..].copy_from_slice(&self.fold.to_bytes());
        bytes
    }

    fn from_bytes(bytes: [u8; 48]) -> Sum {
        let (checksum, fold) = bytes.split_at(32);
        Sum {
            checksum: Checksum(checksum.try_into().expect("receipt: 32 of 48 bytes")),
            fold: Fold::from_bytes(fold.try_into().expect("receipt: 16 of 48 bytes")),
        }
    }
}

/// One exchange with a peer: `partner = rank xor 2^level`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// What arrived, as digested on receipt.
    pub received: Sum,
    /// Left plus right, lower rank left.
    pub sum: Sum,
}

/// What a device produced in one step beyond its leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceOutcome {
    /// The subtree over its own leaves, before sending.
    pub partial: Sum,
    /// log2(devices) exchanges, nearest partner first. What it sends at level l is its sum of level l - 1.
    pub exchanges: Vec<Exchange>,
    /// The last sum times the bits of 1/leaves.
    pub reduced: Sum,
    /// Bits of the global norm before clipping.
    pub norm: u32,
    /// Parameters after the step.
    pub parameters: Sum,
    /// Fold of the first moment after the step.
    pub first_moment: Fold,
    /// Fold of the second moment after the step.
    pub second_moment: Fold,
}

/// One step of one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceRecord {
    /// Zero-based step.
    pub step: u64,
    /// Trace root of each leaf it owned.
    pub traces: Vec<TraceRoot>,
    /// Loss bits of each leaf it owned.
    pub losses: Vec<u32>,
    /// Absent when some leaf, its own or a peer's, was not finite.
    pub outcome: Option<DeviceOutcome>,
    /// Set if the step was invalid.
    pub non_finite: Option<NonFinite>,
}

/// All records of one device; an attachment of its receipt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiptBody {
    /// The run.
    pub run: RunId,
    /// The device.
    pub rank: u64,
    /// Records with ascending steps.
    pub records: Vec<DeviceRecord>,
}

impl ReceiptBody {
    /// The record of `step`.
    pub fn record(&self, step: u64) -> Option<&DeviceRecord> {
        self.records.iter().find(|record| record.step == step)
    }

    /// The name of the body with these records, `count` of them, which is never whole in memory.
    pub fn name_of(
        run: RunId,
        rank: u64,
        count: usize,
        records: impl Iterator<Item = DeviceRecord>,
    ) -> AttachmentName {
        // The records are the last field: what comes before them is what a body without any begins with.
        let mut head = ReceiptBody { run, rank, records: Vec::new() }.encode();
        assert_eq!(head.pop(), Some(0x80), "receipt: a body ends with its list of records");
        head.extend(cbor::array_head(count as u64));
        let (mut hasher, mut bytes) = (Sha256::new(), 0);
        let mut write = |part: &[u8]| {
            hasher.update(part);
            bytes += part.len() as u64;
        };
        write(&head);
        records.for_each(|record| write(&cbor::encode(&record_value(&record))));
        AttachmentName { sha256: AttachmentDigest(hasher.finalize().into()), bytes }
    }
}

impl Object for ReceiptBody {
    const STEM: &'static str = "receipt";
    const BYTES_MAX: usize = ATTACHMENT_BYTES_MAX as usize;

    fn to_value(&self) -> Value {
        Value::map([
            ("run", Value::bytes(self.run.0)),
            ("rank", Value::Uint(self.rank)),
            ("records", Value::Array(self.records.iter().map(record_value).collect())),
        ])
    }

    fn decode(bytes: &[u8]) -> Result<ReceiptBody, ObjectError> {
        let names = ["run", "rank", "records"];
        let place = Place::whole(&bytes);
        let mut layout = Layout::open(Self::STEM, &bytes, place, Self::BYTES_MAX, &names)?;
        let mut fields = layout.fields(&["run", "rank"], ITEM_BYTES_MAX)?;
        let run = RunId(fields.bytes("run")?);
        let rank = fields.uint("rank", LEAVES_MAX)?;
        let mut last = None;
        let records = layout.array("records", PREDICTION_STEPS_MAX)?.read(ITEM_BYTES_MAX, |item| {
            let record = record_from(item)?;
            if let Some(last) = last.replace(record.step).filter(|last| *last >= record.step) {
                let found = format!("{} after {last}", record.step);
                return Err(fields.wrong("records", "ascending steps", found));
            }
            Ok(record)
        })?;
        layout.close()?;
        Ok(ReceiptBody { run, rank, records })
    }
}

fn record_value(record: &DeviceRecord) -> Value {
    let mut pairs = vec![
        (Value::text("step"), Value::Uint(record.step)),
        (Value::text("traces"), Value::Bytes(record.traces.iter().flat_map(|root| root.0).collect())),
        (Value::text("losses"), bits_value(&record.losses)),
    ];
    if let Some(outcome) = &record.outcome {
        let exchanges = outcome
            .exchanges
            .iter()
            .flat_map(|e| [e.received.to_bytes(), e.sum.to_bytes()])
            .flatten()
            .collect();
        pairs.push((Value::text("partial"), Value::bytes(outcome.partial.to_bytes())));
        pairs.push((Value::text("exchanges"), Value::Bytes(exchanges)));
        pairs.push((Value::text("reduced"), Value::bytes(outcome.reduced.to_bytes())));
        pairs.push((Value::text("norm"), Value::Uint(outcome.norm.into())));
        pairs.push((Value::text("parameters"), Value::bytes(outcome.parameters.to_bytes())));
        pairs.push((Value::text("moments"), moments_value(outcome.first_moment, outcome.second_moment)));
    }
    pairs.extend(record.non_finite.map(non_finite_pair));
    Value::Map(pairs)
}

fn record_from(value: Value) -> Result<DeviceRecord, ObjectError> {
    let mut fields = Fields::open("receipt", value)?;
    let step = fields.uint("step", STEPS_MAX)?;
    let traces: Vec<_> = fields.row("traces", 1..=LEAVES_MAX as usize)?.into_iter().map(TraceRoot).collect();
    let losses = take_bits(&mut fields, "losses", traces.len())?;
    let non_finite = take_non_finite(&mut fields)?;
    let in_leaf = matches!(non_finite, Some(NonFinite::Tap { .. }));
    let outcome = if in_leaf { None } else { Some(outcome_from(&mut fields)?) };
    fields.close()?;
    Ok(DeviceRecord { step, traces, losses, outcome, non_finite })
}

fn outcome_from(fields: &mut Fields) -> Result<DeviceOutcome, ObjectError> {
    let partial = Sum::from_bytes(fields.bytes("partial")?);
    let exchanges = fields
        .row::<96>("exchanges", 0..=LEAVES_MAX.ilog2() as usize)?
        .into_iter()
        .map(|bytes| {
            let (received, sum) = bytes.split_at(48);
            let half = |bytes: &[u8]| Sum::from_bytes(bytes.try_into().expect("receipt: half of 96 bytes"));
            Exchange { received: half(received), sum: half(sum) }
        })
        .collect();
    let reduced = Sum::from_bytes(fields.bytes("reduced")?);
    let norm = fields.bits("norm")?;
    let parameters = Sum::from_bytes(fields.bytes("parameters")?);
    let (first_moment, second_moment) = take_moments(fields)?;
    Ok(DeviceOutcome { partial, exchanges, reduced, norm, parameters, first_moment, second_moment })
}
