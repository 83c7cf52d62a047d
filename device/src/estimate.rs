//! What a run will need, from its plan alone.

use schemas::plan::{Kind, Operand, Operation, Plan};
use schemas::run::Steps;

/// Memory and work of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// P.
    pub parameters: u64,
    /// Taps of one leaf.
    pub taps: u64,
    /// Leaves of one device in a step.
    pub leaves_per_device: u64,
    /// Parameters and moments of one device.
    pub state_bytes: u64,
    /// Gradients of one device at the worst moment.
    pub gradient_bytes: u64,
    /// All tensors of one leaf, as if none were freed.
    pub leaf_bytes: u64,
    /// Tokens and the first state, once for all devices.
    pub shared_bytes: u64,
    /// All devices together.
    pub total_bytes: u64,
    /// Tokens in a step.
    pub step_tokens: u64,
    /// Multiplications with an addition in the matrix products of a step: nearly all of its work.
    pub step_fma: u128,
    /// The same for all steps that will be run.
    pub run_fma: u128,
    /// Bytes that cross links in a step, all devices together.
    pub step_link_bytes: u64,
    /// Trace files that `--traces` writes.
    pub trace_files: u64,
    /// Bytes in them.
    pub trace_bytes: u64,
}

/// The estimate for `devices` devices recording `steps`. Steps before the first are run as well.
pub fn estimate(plan: &Plan, devices: u64, steps: Steps) -> Estimate {
    let parameters = plan.parameter_count();
    let leaves_per_device = plan.leaves / devices;
    let levels = u64::from(devices.ilog2());
    let taps = plan.taps().count() as u64;
    let tensor_bytes = |index| 4 * plan.elements(Operand::Tensor(index));
    let leaf_bytes = (0..plan.tensors.len()).map(tensor_bytes).fold(0, u64::saturating_add);
    let state_bytes = 12 * parameters;
    // While leaves are computed: one for each level of its tree, its root, and the leaf's own. While nodes are swapped:
    // its own, as bytes to send, as bytes that arrive, and read from these.
    let in_tree = u64::from(leaves_per_device.next_power_of_two().ilog2()) + 2;
    let held = in_tree.max(if levels > 0 { 4 } else { 0 });
    let gradient_bytes = 4 * parameters * held;
    let shared_bytes = 4 * plan.data.tokens + state_bytes;
    let each = state_bytes.saturating_add(gradient_bytes).saturating_add(leaf_bytes);
    let leaf_fma: u128 = plan.operations.iter().map(|operation| fma(plan, operation)).sum();
    let step_fma = leaf_fma * u128::from(plan.leaves);
    let trace_files = plan.leaves * steps.count();
    Estimate {
        parameters,
        taps,
        leaves_per_device,
        state_bytes,
        gradient_bytes,
        leaf_bytes,
        shared_bytes,
        total_bytes: each.saturating_mul(devices).saturating_add(shared_bytes),
        step_tokens: plan.leaves * plan.dimensions.rows(),
        step_fma,
        run_fma: step_fma * u128::from(steps.end),
        step_link_bytes: 4 * parameters * devices * levels,
        trace_files,
        trace_bytes: trace_files * (16 * taps + 40),
    }
}

/// What a run writes, all devices together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    /// Snapshots at the worst moment: two that are kept, one of an interruption, one that is being written.
    pub snapshot_bytes: u64,
    /// Traces that are kept.
    pub trace_bytes: u64,
    /// Records, at most: in the work folders, and in the receipts.
    pub record_bytes: u64,
}

impl Disk {
    /// All of it.
    pub fn total_bytes(&self) -> u64 {
        self.snapshot_bytes.saturating_add(self.trace_bytes).saturating_add(self.record_bytes)
    }
}

/// The disk that `devices` devices need, of whose traces the last `traces` steps are kept, if any.
pub fn disk(plan: &Plan, devices: u64, steps: Steps, traces: Option<u64>, snapshot_every: u64) -> Disk {
    let needs = estimate(plan, devices, steps);
    let written = if snapshot_every == 0 { 1 } else { steps.end.div_ceil(snapshot_every).clamp(1, 4) };
    // A step's traces are written before the oldest are taken away.
    let kept = traces.unwrap_or(0).saturating_add(traces.map_or(0, |_| 1)).min(steps.count());
    // Names and lengths around what a record holds: three sums, folds of the moments, the norm; the answer; the frame.
    let record = 36 * needs.leaves_per_device + 96 * u64::from(devices.ilog2()) + 520;
    let in_work = steps.end * (record + 4 * plan.leaves);
    Disk {
        snapshot_bytes: devices * written * (needs.state_bytes + 400 * plan.parameters.len() as u64),
        trace_bytes: needs.trace_bytes / steps.count() * kept,
        record_bytes: devices * (in_work + steps.count() * record + 40_000),
    }
}

/// Multiplications with an addition in the matrix products of an operation.
fn fma(plan: &Plan, operation: &Operation) -> u128 {
    let elements = |operands: &[Operand], index: usize| u128::from(plan.elements(operands[index]));
    let (inputs, outputs) = (&operation.inputs, &operation.outputs);
    let d = &plan.dimensions;
    let rows = u128::from(d.rows());
    let pairs = rows * u128::from(d.time + 1) * u128::from(d.query_width());
    match operation.kind {
        // rows x the elements of the matrix, whichever of the three is the product.
        Kind::Linear | Kind::Project | Kind::LinearBackwardInput | Kind::ProjectBackwardInput => {
            rows * elements(inputs, 1)
        }
        Kind::LinearBackwardWeight | Kind::ProjectBackwardWeight => rows * elements(outputs, 0),
        // Half of T x T pairs; two products forward, five backward (scores again, d_p, d_q, d_k, d_v).
        Kind::Attention | Kind::GroupedAttention => pairs,
        Kind::AttentionBackward | Kind::GroupedAttentionBackward => pairs * 5 / 2,
        _ => 0,
    }
}
