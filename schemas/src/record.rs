//! A step record: every value a step must produce, as checksums, folds and bits (docs/spec/prediction.md).
//!
//! An array, not a map: 661 bytes for 8 leaves and up to 4 devices, so that 300 steps fit in 200 kB.

use crate::cbor::Value;
use crate::digest::{Checksum, MeetingRoot, TraceRoot};
use crate::fold::Fold;
use crate::object::{Fields, ObjectError};
use crate::run::LEAVES_MAX;

/// Where a NaN or an infinity was first met: the step is invalid and the run ends there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NonFinite {
    /// In the output of a tap of a leaf.
    Tap {
        /// Lowest such leaf.
        leaf: u64,
        /// First such tap of that leaf.
        tap: u64,
    },
    /// Beyond the leaves: 0 the tree's root or reduced gradient, 1 the norm, 2 the new parameters or moments.
    Update {
        /// Which of the three.
        stage: u64,
    },
}

/// What a step produces beyond its leaves; absent when a leaf was not finite.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Gradient-tree nodes where devices may meet: level of `devices_max` nodes first, root last;
    /// `2 devices_max - 1` of them. Checksums of flat f32 gradients of shape `[P]`, P the number of parameters.
    pub nodes: Vec<Checksum>,
    /// The root node times the bits of 1/leaves.
    pub reduced: Checksum,
    /// Bits of the global norm before clipping.
    pub norm: u32,
    /// Flat parameters after the step, shape `[P]`.
    pub parameters: Checksum,
    /// Fold of the first moment after the step.
    pub first_moment: Fold,
    /// Fold of the second moment after the step.
    pub second_moment: Fold,
    /// Root over the folds of nodes, reduced gradient and parameters.
    pub meeting: MeetingRoot,
}

/// One step, as predicted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepRecord {
    /// Trace root of each leaf.
    pub traces: Vec<TraceRoot>,
    /// Bits of each leaf's mean loss; of a leaf that was not finite, the canonical NaN 0x7fc00000.
    pub losses: Vec<u32>,
    /// What the step produces.
    pub outcome: Option<Outcome>,
    /// Set if the step is invalid. Then the run's records end here.
    pub non_finite: Option<NonFinite>,
}

impl StepRecord {
    /// The record as an array of [`WHOLE`], its last item only if the step is invalid, or of [`LEAVES`].
    pub fn to_value(&self) -> Value {
        let mut items = vec![
            Value::Bytes(self.traces.iter().flat_map(|root| root.0).collect()),
            bits_value(&self.losses),
        ];
        if let Some(outcome) = &self.outcome {
            items.push(Value::Bytes(outcome.nodes.iter().flat_map(|sum| sum.0).collect()));
            items.push(Value::bytes(outcome.reduced.0));
            items.push(Value::Uint(outcome.norm.into()));
            items.push(Value::bytes(outcome.parameters.0));
            items.push(moments_value(outcome.first_moment, outcome.second_moment));
            items.push(Value::bytes(outcome.meeting.0));
        }
        items.extend(self.non_finite.map(|at| non_finite_pair(at).1));
        Value::Array(items)
    }

    /// The record of an array. A record has an outcome, or says which leaf was not finite; with an outcome it may say
    /// where the step stopped being finite beyond the leaves.
    pub fn from_value(value: Value) -> Result<StepRecord, ObjectError> {
        let shape = |found: String| ObjectError::Field {
            object: "prediction",
            field: "records".into(),
            expected: format!("arrays of {}, {} or {} items", LEAVES.len(), WHOLE.len() - 1, WHOLE.len()),
            found,
        };
        let Value::Array(items) = value else { return Err(shape(value.kind().into())) };
        let names = match items.len() {
            count if count == LEAVES.len() => &LEAVES[..],
            count if count == WHOLE.len() - 1 || count == WHOLE.len() => &WHOLE[..count],
            count => return Err(shape(format!("{count} items"))),
        };
        let mut fields = Fields::named("prediction", names, items);
        let leaves_max = LEAVES_MAX as usize;
        let traces: Vec<_> = fields.row("traces", 1..=leaves_max)?.into_iter().map(TraceRoot).collect();
        let losses = take_bits(&mut fields, "losses", traces.len())?;
        let non_finite = take_non_finite(&mut fields)?;
        let in_leaf = names == LEAVES;
        if in_leaf != matches!(non_finite, Some(NonFinite::Tap { .. })) {
            let expected =
                if in_leaf { "[leaf, tap] without an outcome" } else { "[stage] beside an outcome" };
            return Err(fields.wrong("non_finite", expected, format!("{non_finite:?}")));
        }
        let outcome = if in_leaf { None } else { Some(take_outcome(&mut fields)?) };
        fields.close()?;
        Ok(StepRecord { traces, losses, outcome, non_finite })
    }
}

/// The items of a record of a step whose leaves were finite; the last only if the step is invalid.
pub const WHOLE: [&str; 9] =
    ["traces", "losses", "nodes", "reduced", "norm", "parameters", "moments", "meeting", "non_finite"];
/// The items of a record of a step with a leaf that was not finite.
pub const LEAVES: [&str; 3] = ["traces", "losses", "non_finite"];

fn take_outcome(fields: &mut Fields) -> Result<Outcome, ObjectError> {
    let nodes: Vec<_> = fields.row("nodes", 1..=2 * LEAVES_MAX as usize)?.into_iter().map(Checksum).collect();
    if !(nodes.len() + 1).is_power_of_two() {
        return Err(fields.wrong("nodes", "2 devices_max - 1 checksums", nodes.len().to_string()));
    }
    let reduced = Checksum(fields.bytes("reduced")?);
    let norm = fields.bits("norm")?;
    let parameters = Checksum(fields.bytes("parameters")?);
    let (first_moment, second_moment) = take_moments(fields)?;
    let meeting = MeetingRoot(fields.bytes("meeting")?);
    Ok(Outcome { nodes, reduced, norm, parameters, first_moment, second_moment, meeting })
}

/// Both moments' folds as one byte string.
pub(crate) fn moments_value(first: Fold, second: Fold) -> Value {
    Value::bytes([first.to_bytes(), second.to_bytes()].concat())
}

/// The counterpart of [`moments_value`].
pub(crate) fn take_moments(fields: &mut Fields) -> Result<(Fold, Fold), ObjectError> {
    let folds = fields.row::<16>("moments", 2..=2)?;
    Ok((Fold::from_bytes(folds[0]), Fold::from_bytes(folds[1])))
}

/// f32 bit patterns as one byte string, little-endian.
pub(crate) fn bits_value(bits: &[u32]) -> Value {
    Value::Bytes(bits.iter().flat_map(|word| word.to_le_bytes()).collect())
}

/// The counterpart of [`bits_value`], with an exact count.
pub(crate) fn take_bits(
    fields: &mut Fields,
    field: &'static str,
    count: usize,
) -> Result<Vec<u32>, ObjectError> {
    Ok(fields.row::<4>(field, count..=count)?.into_iter().map(u32::from_le_bytes).collect())
}

/// `non_finite`: `[leaf, tap]` or `[stage]`.
pub(crate) fn non_finite_pair(at: NonFinite) -> (Value, Value) {
    let items = match at {
        NonFinite::Tap { leaf, tap } => vec![Value::Uint(leaf), Value::Uint(tap)],
        NonFinite::Update { stage } => vec![Value::Uint(stage)],
    };
    (Value::text("non_finite"), Value::Array(items))
}

/// The counterpart of [`non_finite_pair`].
pub(crate) fn take_non_finite(fields: &mut Fields) -> Result<Option<NonFinite>, ObjectError> {
    let Some(value) = fields.take_optional("non_finite") else { return Ok(None) };
    let mut numbers = Vec::new();
    for item in fields.as_array("non_finite", value, 2)? {
        numbers.push(fields.as_uint("non_finite", item, u32::MAX.into())?);
    }
    match numbers[..] {
        [leaf, tap] => Ok(Some(NonFinite::Tap { leaf, tap })),
        [stage] if stage <= 2 => Ok(Some(NonFinite::Update { stage })),
        _ => Err(fields.wrong(
            "non_finite",
            "[leaf, tap] or [stage] with stage at most 2",
            format!("{numbers:?}"),
        )),
    }
}
