//! `oracle plan`: what a run is and what predicting it costs.

pub mod cost;
mod taps;

use crate::cli::PlanArgs;
use client::progress::duration;
use cost::Cost;
use schemas::counted::counted;
use schemas::plan::Plan;
use schemas::run::Steps;
use std::time::{Duration, Instant};
use step::dispatch::Backend;
use step::kernels::matmul;
use step::memory;
use step::reference::matmul::View;
use step::setup::Setup;

/// A recorded step's time as a multiple of its products': norms, attention's rows, folds and checksums, the update.
const NOT_PRODUCTS: f64 = 1.2;
/// How long the rate is measured.
const MEASURED: Duration = Duration::from_millis(100);

/// Multiply-accumulates per second of all threads, measured on a product like those of the plan, or a smaller one where
/// that would take long.
pub fn measured_rate(plan: &Plan, backend: Backend) -> f64 {
    let d = &plan.dimensions;
    let (rows, inner) = (d.rows().min(256) as usize, d.channels.min(1024) as usize);
    let columns = 4 * inner;
    let (a, b) = (vec![1.0_f32; rows * inner], vec![0.5_f32; inner * columns]);
    let mut out = vec![0.0_f32; rows * columns];
    let begun = Instant::now();
    // Within the pool, as a step's products are: its threads are awake then. The best counts: a disturbance only slows.
    let seconds = rayon::scope(|_| {
        let mut best = f64::INFINITY;
        loop {
            let start = Instant::now();
            matmul(backend, View::rows(&a, inner), View::rows(&b, columns), inner, columns, &mut out);
            best = best.min(start.elapsed().as_secs_f64());
            if begun.elapsed() >= MEASURED {
                return best;
            }
        }
    });
    (rows * inner * columns) as f64 / seconds.max(1e-9)
}

/// The plan in words, or as JSON; `reading` is how long data and first weights took.
pub fn explain(
    setup: &Setup,
    reading: Duration,
    backend: Backend,
    args: &PlanArgs,
) -> anyhow::Result<String> {
    let plan = &setup.plan;
    let steps = args.steps.unwrap_or(Steps { first: 0, end: setup.config.steps });
    anyhow::ensure!(
        steps.end <= setup.config.steps,
        "--steps {steps}: the run has {} (key `steps` in run.toml)",
        counted(setup.config.steps, "step")
    );
    anyhow::ensure!(args.snapshot_every > 0, "--snapshot-every: expected at least 1, found 0");
    let threads = rayon::current_num_threads() as u64;
    let cost = Cost::of(plan, steps, threads, args.snapshot_every);
    let rate = measured_rate(plan, backend);
    let seconds = NOT_PRODUCTS * cost.macs as f64 * steps.end as f64 / rate;
    let rows = if args.operations { taps::rows(plan) } else { vec![] };
    if args.json {
        let needs = &cost.memory;
        let mut object = serde_json::json!({
            "run_id": setup.run.id().to_string(), "plan": plan.digest().to_string(),
            "parameters": plan.parameter_count(), "tokens": plan.data.tokens,
            "operations_per_leaf": cost.operations, "taps_per_leaf": cost.taps, "macs_per_step": cost.macs,
            "steps": [steps.first, steps.end], "backend": backend.name(), "threads": threads,
            "memory_bytes": needs.total(), "state_bytes": needs.state, "data_bytes": needs.data,
            "gradient_bytes": needs.gradients, "tensor_bytes": needs.tensors, "program_bytes": needs.program,
            "leaves_side_by_side": needs.side_by_side, "record_bytes_per_step": cost.record_bytes,
            "disk_bytes": cost.disk.total(), "snapshots": cost.disk.snapshots, "estimated_seconds": seconds,
            "reading_seconds": reading.as_secs_f64(), "machine_memory_bytes": memory::installed(),
        });
        if args.operations {
            object["taps"] = taps::to_json(&rows);
        }
        return Ok(format!("{object}\n"));
    }
    let mut text = String::new();
    describe(setup, &mut text);
    let mut line = |name: &str, value: String| text.push_str(&format!("{name:<12} {value}\n"));
    line("leaf", format!("{} operations, {} taps", cost.operations, cost.taps));
    if args.operations {
        text.push_str(&taps::table(&rows));
    }
    tell_cost(&cost, threads, &mut text);
    let mut line = |name: &str, value: String| text.push_str(&format!("{name:<12} {value}\n"));
    let measured = format!("from a measured {:.1} GMAC/s with {} kernels", rate / 1e9, backend.name());
    line(
        &format!("steps {steps}"),
        format!("about {} of arithmetic on this machine, {measured}", duration(seconds)),
    );
    let read = match reading.as_secs_f64() {
        s if s < 0.5 => "less than a second".into(),
        s => duration(s),
    };
    let written = bytes(cost.disk.total());
    line("", format!("beside it: data and first weights, {read} just now; writing {written} to the disk"));
    if steps.first > 0 {
        line(
            "",
            format!("({} before step {} to be computed too)", counted(steps.first, "step"), steps.first),
        );
    }
    Ok(text)
}

/// Arithmetic, memory and disk.
fn tell_cost(cost: &Cost, threads: u64, text: &mut String) {
    let mut line = |name: &str, value: String| text.push_str(&format!("{name:<12} {value}\n"));
    line("step", format!("{} multiply-accumulates", grouped(cost.macs)));
    let needs = &cost.memory;
    let on = counted(threads, "thread");
    let at_once = match needs.side_by_side {
        1 => "one leaf at a time".into(),
        leaves => format!("{leaves} leaves side by side"),
    };
    line(
        "memory",
        format!("{} at the peak on {on}, {at_once} (512 MB of leaves at most)", bytes(needs.total())),
    );
    let installed = memory::installed();
    if needs.total() > installed {
        line(
            "",
            format!("this machine has {}: `oracle predict` will refuse this run here", bytes(installed)),
        );
    }
    let (state, gradients, tensors) = (bytes(needs.state), bytes(needs.gradients), bytes(needs.tensors));
    let rest = bytes(needs.data + needs.program);
    line(
        "",
        format!("state {state}, gradients {gradients}, tensors of leaves {tensors}, data and program {rest}"),
    );
    let disk = &cost.disk;
    let snapshots = counted(disk.snapshots, "snapshot");
    let (job, snapshots_bytes, steps) = (bytes(disk.job), bytes(disk.snapshots_bytes), bytes(disk.steps));
    let parts = format!("job {job}, {snapshots} {snapshots_bytes}, steps {steps}");
    line("disk", format!("{}: {parts}", bytes(disk.total())));
    line("record", format!("about {} per step", bytes(cost.record_bytes)));
}

/// What is computed: run, model, data, devices, profile.
fn describe(setup: &Setup, text: &mut String) {
    let (plan, d) = (&setup.plan, &setup.plan.dimensions);
    let mut line = |name: &str, value: String| text.push_str(&format!("{name:<12} {value}\n"));
    line("run", format!("{} ({})", setup.config.name, setup.run.id()));
    let (layers, channels) = (counted(d.layers, "layer"), counted(d.channels, "channel"));
    let shape = format!("{layers} of {channels}, {}", counted(d.heads, "head"));
    let parameters = grouped(plan.parameter_count());
    let model = setup.config.model.model_type();
    line("model", format!("{model}, {shape}, vocabulary {}, {parameters} parameters", d.vocabulary));
    let reads = format!("a step reads {} x {}", counted(plan.leaves, "leaf"), counted(d.batch, "sequence"));
    line("data", format!("{} tokens in windows of {}; {reads}", grouped(plan.data.tokens), d.time));
    line("devices", format!("1 to {} may share a step; the bits are the same", plan.devices_max));
    line("profile", plan.profile.clone());
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

/// A number of bytes in words.
pub fn bytes(n: u64) -> String {
    match n {
        0..10_000 => format!("{n} bytes"),
        10_000..10_000_000 => format!("{:.0} kB", n as f64 / 1e3),
        10_000_000..10_000_000_000 => format!("{:.0} MB", n as f64 / 1e6),
        _ => format!("{:.1} GB", n as f64 / 1e9),
    }
}
