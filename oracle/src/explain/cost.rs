//! What a run costs: arithmetic, memory, disk.

use schemas::plan::{Kind, Operand, Operation, Plan};
use schemas::run::Steps;
use step::memory::Needs;

/// What steps cost.
pub struct Cost {
    /// Operations of one leaf.
    pub operations: usize,
    /// Taps of one leaf.
    pub taps: usize,
    /// Multiply-accumulates of one step: matrix products and attention, forward and backward.
    pub macs: u64,
    /// What has to be in memory at the peak.
    pub memory: Needs,
    /// Bytes of one step's record.
    pub record_bytes: u64,
    /// What will be on the disk.
    pub disk: Disk,
}

/// Bytes on the disk.
pub struct Disk {
    /// First state and tokens.
    pub job: u64,
    /// How many snapshots.
    pub snapshots: u64,
    /// All of them together.
    pub snapshots_bytes: u64,
    /// Records, meetings and traces, and the body that is sealed.
    pub steps: u64,
}

impl Disk {
    /// All of it.
    pub fn total(&self) -> u64 {
        self.job + self.snapshots_bytes + self.steps
    }
}

impl Cost {
    /// The cost of `steps` of `plan` on `threads` threads, with a snapshot every `every` steps.
    pub fn of(plan: &Plan, steps: Steps, threads: u64, every: u64) -> Cost {
        let taps = plan.taps().count();
        let leaf_macs: u64 = plan.operations.iter().map(|operation| macs(plan, operation)).sum();
        let memory = Needs::of(plan, threads);
        let nodes = 2 * plan.devices_max - 1;
        let record_bytes = 36 * plan.leaves + 32 * nodes + 160;
        let kept_bytes = record_bytes + 16 * (nodes + 2) + 80 + plan.leaves * (16 * taps as u64 + 40);
        // Every so many steps, and at the end.
        let snapshots = steps.end / every + u64::from(!steps.end.is_multiple_of(every));
        let disk = Disk {
            job: memory.state + memory.data,
            snapshots,
            snapshots_bytes: snapshots * memory.state,
            steps: (steps.end - steps.first) * (kept_bytes + record_bytes),
        };
        Cost {
            operations: plan.operations.len(),
            taps,
            macs: leaf_macs * plan.leaves,
            memory,
            record_bytes,
            disk,
        }
    }
}

/// Multiply-accumulates of one operation of a leaf. Attention counts the pairs it computes, half of T x T.
pub fn macs(plan: &Plan, operation: &Operation) -> u64 {
    let d = &plan.dimensions;
    let elements = |operand: Operand| plan.elements(operand);
    let pairs = d.batch * d.time * (d.time + 1) / 2 * d.query_width();
    match operation.kind {
        Kind::Linear | Kind::LinearBackwardInput | Kind::Project | Kind::ProjectBackwardInput => {
            d.rows() * elements(operation.inputs[1])
        }
        Kind::LinearBackwardWeight | Kind::ProjectBackwardWeight => d.rows() * elements(operation.outputs[0]),
        Kind::Attention | Kind::GroupedAttention => 2 * pairs,
        Kind::AttentionBackward | Kind::GroupedAttentionBackward => 5 * pairs,
        _ => 0,
    }
}
