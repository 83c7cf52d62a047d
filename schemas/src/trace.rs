//! A `trace`: the folds of everything one leaf computed, in plan order; and a `meeting`: the folds of what a step's
//! devices agree on (docs/spec/trace.md). Roots of both stand in the step record; the folds are asked for only where
//! something differs.

use crate::cbor::Value;
use crate::digest::{MeetingRoot, TraceRoot, digest};
use crate::fold::Fold;
use crate::object::{Fields, Object, ObjectError};
use crate::run::{LEAVES_MAX, STEPS_MAX};

/// Most taps in a trace.
pub const TAPS_MAX: usize = 1 << 16;

/// The folds of one leaf's taps. It ends early, at the first tap with a NaN or an infinity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// Zero-based step.
    pub step: u64,
    /// Leaf within the step.
    pub leaf: u64,
    /// One fold per tap, in plan order.
    pub folds: Vec<Fold>,
}

impl Trace {
    /// The root that stands in a record.
    pub fn root(&self) -> TraceRoot {
        TraceRoot(digest("trace", &[&self.encode()]))
    }
}

impl Object for Trace {
    const STEM: &'static str = "trace";
    const BYTES_MAX: usize = 64 + 16 * TAPS_MAX;

    fn to_value(&self) -> Value {
        Value::map([
            ("step", Value::Uint(self.step)),
            ("leaf", Value::Uint(self.leaf)),
            ("folds", folds_value(&self.folds)),
        ])
    }

    fn from_value(value: Value) -> Result<Trace, ObjectError> {
        let mut fields = Fields::open(Self::STEM, value)?;
        let step = fields.uint("step", STEPS_MAX)?;
        let leaf = fields.uint("leaf", LEAVES_MAX)?;
        let folds = fields.row("folds", 1..=TAPS_MAX)?.into_iter().map(Fold::from_bytes).collect();
        fields.close()?;
        Ok(Trace { step, leaf, folds })
    }
}

/// The predicted folds of one step beyond its leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meeting {
    /// Zero-based step.
    pub step: u64,
    /// Tree nodes in the order of the step record: the level of `devices_max` nodes first, the root last.
    pub nodes: Vec<Fold>,
    /// The reduced gradient.
    pub reduced: Fold,
    /// The parameters after the step.
    pub parameters: Fold,
}

impl Meeting {
    /// The root that stands in a record.
    pub fn root(&self) -> MeetingRoot {
        MeetingRoot(digest("meeting", &[&self.encode()]))
    }
}

impl Object for Meeting {
    const STEM: &'static str = "meeting";
    const BYTES_MAX: usize = 128 + 32 * LEAVES_MAX as usize;

    fn to_value(&self) -> Value {
        Value::map([
            ("step", Value::Uint(self.step)),
            ("nodes", folds_value(&self.nodes)),
            ("reduced", Value::bytes(self.reduced.to_bytes())),
            ("parameters", Value::bytes(self.parameters.to_bytes())),
        ])
    }

    fn from_value(value: Value) -> Result<Meeting, ObjectError> {
        let mut fields = Fields::open(Self::STEM, value)?;
        let meeting = Meeting {
            step: fields.uint("step", STEPS_MAX)?,
            nodes: fields
                .row("nodes", 1..=2 * LEAVES_MAX as usize)?
                .into_iter()
                .map(Fold::from_bytes)
                .collect(),
            reduced: Fold::from_bytes(fields.bytes("reduced")?),
            parameters: Fold::from_bytes(fields.bytes("parameters")?),
        };
        fields.close()?;
        Ok(meeting)
    }
}

fn folds_value(folds: &[Fold]) -> Value {
    Value::Bytes(folds.iter().flat_map(|fold| fold.to_bytes()).collect())
}
