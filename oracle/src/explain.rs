//! `oracle plan`: what a run is and what predicting it costs.

use crate::cli::PlanArgs;
use schemas::plan::{Kind, Operand, Operation, Plan};
use schemas::run::Steps;
use std::time::Instant;
use step::dispatch::Backend;
use step::kernels::matmul;
use step::reference::matmul::View;
use step::setup::Setup;

/// What one step costs.
pub struct Cost {
    /// Operations of one leaf.
    pub operations: usize,
    /// Taps of one leaf.
    pub taps: usize,
    /// Multiply-accumulates of one step: matrix products and attention, forward and backward.
    pub macs: u64,
    /// Bytes of parameters and moments.
    pub state_bytes: u64,
    /// Largest sum of the bytes of one leaf's tensors that live at one time, and its gradient.
    pub leaf_bytes: u64,
    /// Bytes of one step's record.
    pub record_bytes: u64,
}

/// The cost of one step of `plan`.
pub fn cost(plan: &Plan) -> Cost {
    let parameters = plan.parameter_count();
    let leaf_macs: u64 = plan.operations.iter().map(|operation| macs(plan, operation)).sum();
    Cost {
        operations: plan.operations.len(),
        taps: plan.taps().count(),
        macs: leaf_macs * plan.leaves,
        state_bytes: 12 * parameters,
        leaf_bytes: live_bytes(plan) + 4 * parameters,
        record_bytes: 36 * plan.leaves + 32 * (2 * plan.devices_max - 1) + 160,
    }
}

/// Multiply-accumulates of one operation of a leaf. Attention counts the pairs it computes, half of T x T.
fn macs(plan: &Plan, operation: &Operation) -> u64 {
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

/// A tensor lives from the operation that writes it to the last one that reads it.
fn live_bytes(plan: &Plan) -> u64 {
    let mut last = vec![0; plan.tensors.len()];
    for (index, operation) in plan.operations.iter().enumerate() {
        for operand in operation.inputs.iter().chain(&operation.outputs) {
            if let Operand::Tensor(tensor) = operand {
                last[*tensor] = index;
            }
        }
    }
    let (mut live, mut most) = (0, 0);
    for (index, operation) in plan.operations.iter().enumerate() {
        live += operation.outputs.iter().map(|output| 4 * plan.elements(*output)).sum::<u64>();
        most = most.max(live);
        for (tensor, _) in last.iter().enumerate().filter(|(_, last)| **last == index) {
            live -= 4 * plan.elements(Operand::Tensor(tensor));
        }
        // Gradients move to the flat buffer, which is counted apart.
        let gradients = operation.outputs.iter().filter(|output| matches!(output, Operand::Gradient(_)));
        live -= gradients.map(|output| 4 * plan.elements(*output)).sum::<u64>();
    }
    most
}

/// Multiply-accumulates per second of one thread, measured for a few milliseconds on a matrix that fits the cache.
pub fn measured_rate() -> f64 {
    const N: usize = 192;
    let backend = Backend::detect();
    let (a, b) = (vec![1.0_f32; N * N], vec![0.5_f32; N * N]);
    let mut out = vec![0.0_f32; N * N];
    let mut best = f64::INFINITY;
    for _ in 0..5 {
        let start = Instant::now();
        matmul(backend, View::rows(&a, N), View::rows(&b, N), N, N, &mut out);
        best = best.min(start.elapsed().as_secs_f64());
    }
    // `kernels::matmul` already spreads rows over the threads, so this is the rate of all of them.
    (N * N * N) as f64 / best.max(1e-9)
}

/// The plan in words, or as JSON.
pub fn explain(setup: &Setup, args: &PlanArgs) -> anyhow::Result<String> {
    let plan = &setup.plan;
    let steps = args.steps.unwrap_or(Steps { first: 0, end: setup.config.steps });
    anyhow::ensure!(
        steps.end <= setup.config.steps,
        "--steps {steps}: the run has {} steps (key `steps` in run.toml)",
        setup.config.steps
    );
    let cost = cost(plan);
    let rate = measured_rate();
    // What is not a matrix product takes about a fifth of the time, and making each step's files durable a moment.
    let seconds = 1.2 * (cost.macs * steps.end) as f64 / rate + 0.05 * steps.end as f64;
    let threads = rayon::current_num_threads() as u64;
    let gradients = threads + u64::from(plan.leaves.ilog2()) + 1;
    let memory = cost.state_bytes + threads * cost.leaf_bytes + gradients * 4 * plan.parameter_count();
    if args.json {
        let object = serde_json::json!({
            "run_id": setup.run.id().to_string(), "plan": plan.digest().to_string(),
            "parameters": plan.parameter_count(), "tokens": plan.data.tokens,
            "operations_per_leaf": cost.operations, "taps_per_leaf": cost.taps, "macs_per_step": cost.macs,
            "steps": [steps.first, steps.end], "state_bytes": cost.state_bytes, "memory_bytes": memory,
            "record_bytes_per_step": cost.record_bytes, "estimated_seconds": seconds,
        });
        return Ok(format!("{object}\n"));
    }
    let mut text = String::new();
    describe(setup, &mut text);
    let mut line = |name: &str, value: String| text.push_str(&format!("{name:<12} {value}\n"));
    line("leaf", format!("{} operations, {} taps", cost.operations, cost.taps));
    if args.operations {
        plan.operations.iter().for_each(|operation| line("", operation_line(plan, operation)));
    }
    line("step", format!("{} multiply-accumulates", grouped(cost.macs)));
    line("memory", format!("about {} for {threads} threads", bytes(memory)));
    line("record", format!("about {} per step", bytes(cost.record_bytes)));
    let measured = format!("from a measured {:.1} GMAC/s", rate / 1e9);
    line(&format!("steps {steps}"), format!("about {} on this machine, {measured}", duration(seconds)));
    if steps.first > 0 {
        line("", format!("(the {} steps before {} have to be computed too)", steps.first, steps.first));
    }
    Ok(text)
}

/// What is computed: run, model, data, devices, profile.
fn describe(setup: &Setup, text: &mut String) {
    let (plan, d) = (&setup.plan, &setup.plan.dimensions);
    let mut line = |name: &str, value: String| text.push_str(&format!("{name:<12} {value}\n"));
    line("run", format!("{} ({})", setup.config.name, setup.run.id()));
    let shape = format!("{} layers of {} channels, {} heads", d.layers, d.channels, d.heads);
    let parameters = grouped(plan.parameter_count());
    let model = setup.config.model.model_type();
    line("model", format!("{model}, {shape}, vocabulary {}, {parameters} parameters", d.vocabulary));
    let reads = format!("a step reads {} leaves x {} sequences", plan.leaves, d.batch);
    line("data", format!("{} tokens in windows of {}; {reads}", grouped(plan.data.tokens), d.time));
    line("devices", format!("1 to {} may share a step; the bits are the same", plan.devices_max));
    line("profile", plan.profile.clone());
}

fn operation_line(plan: &Plan, operation: &Operation) -> String {
    let output = |&operand: &Operand| format!("{} {:?}", plan.operand_name(operand), plan.shape(operand));
    let outputs: Vec<String> = operation.outputs.iter().map(output).collect();
    format!("{:<44} {:<22} {}", operation.name, operation.kind.name(), outputs.join(", "))
}

fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

fn bytes(n: u64) -> String {
    match n {
        0..10_000 => format!("{n} bytes"),
        10_000..10_000_000 => format!("{:.0} kB", n as f64 / 1e3),
        10_000_000..10_000_000_000 => format!("{:.0} MB", n as f64 / 1e6),
        _ => format!("{:.1} GB", n as f64 / 1e9),
    }
}

fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 1.0 => "1 second".into(),
        s if s < 120.0 => format!("{s:.0} seconds"),
        s if s < 7200.0 => format!("{:.0} minutes", s / 60.0),
        s => format!("{:.1} hours", s / 3600.0),
    }
}
