//! The `run` statement: what is to be computed. Its digest names the run (docs/spec/run.md).

use crate::cbor::Value;
use crate::digest::{Checksum, ConfigDigest, PlanDigest, ProfileDigest, RunId, StateDigest, digest};
use crate::object::{Fields, Object, ObjectError};

/// Most steps a run may have.
pub const STEPS_MAX: u64 = 1 << 32;
/// Most leaves (micro-batches) a step may have.
pub const LEAVES_MAX: u64 = 1024;

/// The steps `first..end`, never empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steps {
    /// First step, zero-based.
    pub first: u64,
    /// One past the last step.
    pub end: u64,
}

impl Steps {
    /// How many steps.
    pub fn count(self) -> u64 {
        self.end - self.first
    }

    /// Whether two ranges share a step.
    pub fn overlaps(self, other: Steps) -> bool {
        self.first < other.end && other.first < self.end
    }

    /// `[first, end]`.
    pub fn to_value(self) -> Value {
        Value::Array(vec![Value::Uint(self.first), Value::Uint(self.end)])
    }
}

impl std::fmt::Display for Steps {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}..{}", self.first, self.end)
    }
}

/// Everything that fixes a run's bits, by digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// A name for people; at most 80 characters.
    pub name: String,
    /// Id of the arithmetic profile, such as `f32-fma`.
    pub profile: String,
    /// The profile's digest: its id says which rules, its digest says which version of each.
    pub profile_digest: ProfileDigest,
    /// The config the plan was derived from.
    pub config: ConfigDigest,
    /// The plan.
    pub plan: PlanDigest,
    /// The state before step 0.
    pub state: StateDigest,
    /// The token stream, as a tensor of u32.
    pub dataset: Checksum,
    /// How many steps the plan has.
    pub steps: u64,
    /// Leaves in a step.
    pub leaves: u64,
    /// Most devices that may share a step; a power of two that divides `leaves`.
    pub devices_max: u64,
}

impl Run {
    /// The run's id: the digest of its encoding.
    pub fn id(&self) -> RunId {
        RunId::of_encoded(&self.encode())
    }
}

impl RunId {
    /// The id of the run with this encoding.
    pub fn of_encoded(encoding: &[u8]) -> RunId {
        RunId(digest("run", &[encoding]))
    }
}

impl Object for Run {
    const STEM: &'static str = "run";
    const BYTES_MAX: usize = 4096;

    fn to_value(&self) -> Value {
        Value::map([
            ("name", Value::text(&self.name)),
            ("profile", Value::text(&self.profile)),
            ("profile_digest", Value::bytes(self.profile_digest.0)),
            ("config", Value::bytes(self.config.0)),
            ("plan", Value::bytes(self.plan.0)),
            ("state", Value::bytes(self.state.0)),
            ("dataset", Value::bytes(self.dataset.0)),
            ("steps", Value::Uint(self.steps)),
            ("leaves", Value::Uint(self.leaves)),
            ("devices_max", Value::Uint(self.devices_max)),
        ])
    }

    fn from_value(value: Value) -> Result<Run, ObjectError> {
        let mut fields = Fields::open(Self::STEM, value)?;
        let run = Run {
            name: fields.text("name", 80)?,
            profile: fields.text("profile", 40)?,
            profile_digest: ProfileDigest(fields.bytes("profile_digest")?),
            config: ConfigDigest(fields.bytes("config")?),
            plan: PlanDigest(fields.bytes("plan")?),
            state: StateDigest(fields.bytes("state")?),
            dataset: Checksum(fields.bytes("dataset")?),
            steps: fields.uint("steps", STEPS_MAX)?,
            leaves: fields.uint("leaves", LEAVES_MAX)?,
            devices_max: fields.uint("devices_max", LEAVES_MAX)?,
        };
        if run.steps == 0 {
            return Err(fields.wrong("steps", "at least 1", "0"));
        }
        check_tree(&fields, run.leaves, run.devices_max)?;
        fields.close()?;
        Ok(run)
    }
}

/// The rule that makes every device's range of leaves a subtree (docs/spec/plan.md, "The gradient tree").
pub(crate) fn check_tree(fields: &Fields, leaves: u64, devices_max: u64) -> Result<(), ObjectError> {
    if !devices_max.is_power_of_two() || leaves == 0 || !leaves.is_multiple_of(devices_max) {
        let found = format!("{devices_max} for {leaves} leaves");
        return Err(fields.wrong("devices_max", "a power of two that divides the number of leaves", found));
    }
    Ok(())
}
