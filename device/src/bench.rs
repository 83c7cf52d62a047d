//! How fast a device is: each kind of operation, whole steps, what recording costs, checksums and folds.

use crate::backend::{BackendError, Device as _, Given, Honest, Which};
use crate::check::{CheckError, machines};
use crate::executor::{Executor, memories};
use crate::launches::{self, Shapes, Step};
use crate::machine::{Build, Found, Machine, Machines};
use crate::order;
use crate::places::{self, Layout, Place, Places};
use crate::simulated::Rehearsal;
use clap::Args;
use schemas::fold::FoldKey;
use schemas::plan::{Kind, Operation, Plan};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

/// Flags of `device bench`.
#[derive(Debug, Args)]
pub struct Flags {
    /// What runs the arithmetic (see `device list`)
    #[arg(long, value_name = "NAME")]
    pub backend: String,
    /// The run.toml whose leaves and steps are timed
    #[arg(long = "run", value_name = "FILE", default_value = "device/checks/gpt2-124m.toml")]
    pub run: PathBuf,
    /// How often each thing is timed; the shortest time counts
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub repeats: u32,
    /// Write JSON
    #[arg(long)]
    pub json: bool,
}

/// What was measured, in seconds.
#[derive(Clone, Debug, Default)]
pub struct Times {
    /// The device.
    pub device: String,
    /// Compiling the kernels and starting the device.
    pub start: f64,
    /// Tokens of a step.
    pub tokens: u64,
    /// Bytes of the flat vector.
    pub bytes: u64,
    /// One leaf, recorded.
    pub leaf: f64,
    /// One leaf without recording.
    pub leaf_unrecorded: f64,
    /// A whole step: leaves, tree, norm, update, digests.
    pub step: f64,
    /// The same without folds and checksums.
    pub step_unrecorded: f64,
    /// What recording takes of a step's time: the median of pairs of steps taken in turns.
    pub recording: f64,
    /// Checksum and fold of the flat vector.
    pub digest: f64,
    /// Folds of two flat vectors.
    pub folds: f64,
    /// Kinds of operations within a leaf: how many, seconds, billions of floating-point operations of products.
    pub kinds: BTreeMap<&'static str, (u64, f64, f64)>,
}

/// Measures the first device of a backend.
pub fn bench(flags: &Flags) -> Result<Times, CheckError> {
    let Some(machines) = machines(&flags.backend) else {
        let found = flags.backend.clone();
        return Err(CheckError::Backend { found, expected: "cuda or opencl".into() });
    };
    let run = Rehearsal::load(&flags.run).map_err(CheckError::Run)?;
    let stopped = |source| CheckError::Device { what: flags.backend.clone(), source };
    let devices = machines.devices().map_err(stopped)?;
    let first =
        devices.first().ok_or_else(|| stopped(BackendError("expected a device, found none".into())))?;
    measure(&*machines, first, &run, flags.repeats.max(1)).map_err(stopped)
}

fn build(found: &Found, recorded: bool) -> Build {
    Build { recorded, contracted: false, staged: found.staged }
}

fn measure(
    machines: &dyn Machines,
    found: &Found,
    run: &Rehearsal,
    repeats: u32,
) -> Result<Times, BackendError> {
    let plan = &run.plan;
    let device = format!("{} ({}, {} units)", found.facts.name, found.facts.architecture, found.facts.units);
    let (tokens, bytes) = (plan.leaves * plan.dimensions.rows(), 4 * plan.parameter_count());
    let mut times = Times { device, tokens, bytes, ..Times::default() };
    // Plain leaves first, so that each machine's memory is given back before the next takes its own.
    for recorded in [false, true] {
        let started = Instant::now();
        let build = build(found, recorded);
        let machine = machines.open(found.place, build)?;
        let mut leaf = BenchLeaf::new(machine, run, &build)?;
        leaf.run()?;
        times.start = started.elapsed().as_secs_f64();
        let seconds = shortest(repeats, || leaf.run())?;
        if recorded {
            times.leaf = seconds;
            times.kinds = leaf.kinds(plan)?;
        } else {
            times.leaf_unrecorded = seconds;
        }
    }
    let open = |recorded| {
        let build = build(found, recorded);
        let machine = machines.open(found.place, build)?;
        let given = Given { rank: 0, plan, tokens: &run.tokens, state: &run.state };
        Executor::new(machine, given, Shapes::of(&build), build)
    };
    let [mut plain, mut device] = [open(false)?, open(true)?];
    let steps = plan.update.steps() as u64;
    let mut pairs = Vec::new();
    // In turns, and each pair compared: how fast the machine is may drift. The first pair warms up.
    for turn in 0..=u64::from(repeats) {
        let times = [plain_step(&mut plain, plan, turn % steps)?, step(&mut device, plan, turn % steps)?];
        if turn > 0 {
            pairs.push(times);
        }
    }
    let least = |which: usize| pairs.iter().map(|pair| pair[which]).fold(f64::INFINITY, f64::min);
    (times.step_unrecorded, times.step) = (least(0), least(1));
    let mut shares: Vec<f64> = pairs.iter().map(|[plain, recorded]| 1.0 - plain / recorded).collect();
    shares.sort_by(f64::total_cmp);
    times.recording = shares[shares.len() / 2];
    drop(plain);
    times.digest = shortest(repeats, || device.digest(Which::Parameters).map(drop))?;
    times.folds = shortest(repeats, || device.moments().map(drop))?;
    Ok(times)
}

/// A whole step with everything that a record holds, in seconds.
fn step(device: &mut Executor<'_>, plan: &Plan, step: u64) -> Result<f64, BackendError> {
    let started = Instant::now();
    device.leaves(step, 0..plan.leaves, &Honest)?;
    device.digest(Which::Node)?;
    device.reduce()?;
    device.digest(Which::Reduced)?;
    device.norm()?;
    device.update(step)?;
    device.digest(Which::Parameters)?;
    device.moments()?;
    Ok(started.elapsed().as_secs_f64())
}

/// The same step without a fold or a checksum, in seconds.
fn plain_step(device: &mut Executor<'_>, plan: &Plan, step: u64) -> Result<f64, BackendError> {
    let started = Instant::now();
    device.leaves(step, 0..plan.leaves, &Honest)?;
    device.reduce()?;
    device.norm()?;
    device.update(step)?;
    device.finish()?;
    Ok(started.elapsed().as_secs_f64())
}

fn shortest(repeats: u32, mut work: impl FnMut() -> Result<(), BackendError>) -> Result<f64, BackendError> {
    let mut best = f64::INFINITY;
    for _ in 0..repeats {
        let started = Instant::now();
        work()?;
        best = best.min(started.elapsed().as_secs_f64());
    }
    Ok(best)
}

/// One leaf whose launches are timed apart from everything else.
struct BenchLeaf {
    machine: Box<dyn Machine>,
    steps: Vec<Step>,
}

impl BenchLeaf {
    fn new(mut machine: Box<dyn Machine>, run: &Rehearsal, build: &Build) -> Result<BenchLeaf, BackendError> {
        let plan = &run.plan;
        let shapes = Shapes::of(build);
        let layout = Layout::of(plan, &shapes, build)?;
        let m = &mut *machine;
        let flat = 4 * plan.parameter_count();
        let places = [m.allocate(flat)?, m.allocate(flat)?].map(|buffer| Place { buffer, at: 0 });
        let memories = memories(m, plan, &layout, FoldKey::from(plan.digest()), places)?;
        let starts = order::starts(plan, 0, 0);
        let tokens = order::tokens(&starts, plan.dimensions.time, &run.tokens);
        let starts: Vec<u8> = starts.iter().flat_map(|start| start.to_le_bytes()).collect();
        let parameters: Vec<u8> = run.state.parameters.iter().flat_map(|word| word.to_le_bytes()).collect();
        m.write(memories.starts, 0, &starts)?;
        m.write(memories.sorted, 0, &bytes_of(&order::sorted(&tokens, plan.dimensions.vocabulary)))?;
        m.write(memories.stream, 0, &bytes_of(&run.tokens))?;
        m.write(memories.tables, 0, &bytes_of(&places::tables(plan)))?;
        m.write(memories.parameters.buffer, 0, &parameters)?;
        let steps = launches::launches(plan, &Places { layout: &layout, memories }, &shapes, build);
        Ok(BenchLeaf { machine, steps })
    }

    fn run(&mut self) -> Result<(), BackendError> {
        for launch in self.steps.iter().flat_map(|step| step.launches.iter().chain(&step.after)) {
            self.machine.launch(launch)?;
        }
        self.machine.finish()
    }

    /// Each operation alone, summed up by kind.
    fn kinds(&mut self, plan: &Plan) -> Result<BTreeMap<&'static str, (u64, f64, f64)>, BackendError> {
        let mut kinds = BTreeMap::new();
        for step in &self.steps {
            let operation = &plan.operations[step.operation];
            let started = Instant::now();
            step.launches.iter().chain(&step.after).try_for_each(|launch| self.machine.launch(launch))?;
            self.machine.finish()?;
            let (count, seconds, work) = kinds.entry(operation.kind.name()).or_insert((0, 0.0, 0.0));
            *count += 1;
            *seconds += started.elapsed().as_secs_f64();
            *work += billions(plan, operation);
        }
        Ok(kinds)
    }
}

fn bytes_of(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Billions of floating-point operations of a matrix product, an fma being two; 0 for anything else.
fn billions(plan: &Plan, operation: &Operation) -> f64 {
    let (inputs, outputs) = (&operation.inputs, &operation.outputs);
    let elements = |operand| plan.elements(operand) as f64;
    // Of [N,I], [I,O] and [N,O], two are read and the third is written: N x I x O is the root of what they multiply to.
    match operation.kind {
        Kind::Linear
        | Kind::Project
        | Kind::LinearBackwardInput
        | Kind::LinearBackwardWeight
        | Kind::ProjectBackwardInput
        | Kind::ProjectBackwardWeight => {
            2e-9 * (elements(inputs[0]) * elements(inputs[1]) * elements(outputs[0])).sqrt()
        }
        _ => 0.0,
    }
}

impl Times {
    /// Billions of floating-point operations a second, of matrix products alone.
    pub fn products_gflops(&self) -> f64 {
        let products = self.kinds.values().filter(|(_, _, work)| *work > 0.0);
        let (seconds, work) = products.fold((0.0, 0.0), |(s, w), (_, seconds, work)| (s + seconds, w + work));
        work / seconds
    }

    /// For people.
    pub fn text(&self) -> String {
        let rate = |bytes: u64, seconds: f64| bytes as f64 / seconds / 1e9;
        let mut lines = vec![
            self.device.clone(),
            format!("start          {:9.1} s (kernels compiled, state and one leaf)", self.start),
            format!("matrix products {:8.0} GFLOP/s", self.products_gflops()),
            format!(
                "leaf           {:9.1} ms recorded, {:.1} ms not",
                1e3 * self.leaf,
                1e3 * self.leaf_unrecorded,
            ),
            format!(
                "step           {:9.1} ms, {:.0} tokens/s; {:.1} ms without recording, which takes {:.1} %",
                1e3 * self.step,
                self.tokens as f64 / self.step,
                1e3 * self.step_unrecorded,
                100.0 * self.recording
            ),
            format!("checksum, fold {:9.1} GB/s", rate(self.bytes, self.digest)),
            format!("fold           {:9.1} GB/s", rate(2 * self.bytes, self.folds)),
            "operations of a leaf, each waited for:".into(),
        ];
        for (kind, (count, seconds, work)) in &self.kinds {
            let rate = if *work > 0.0 { format!(", {:.0} GFLOP/s", work / seconds) } else { String::new() };
            lines.push(format!("  {kind:28} {count:4} in {:9.2} ms{rate}", 1e3 * seconds));
        }
        lines.join("\n") + "\n"
    }

    /// For machines.
    pub fn json(&self) -> Value {
        let kind = |(name, kind): (&&str, &(u64, f64, f64))| {
            let (count, seconds, work) = kind;
            json!({"kind": name, "count": count, "seconds": seconds, "gflop": work})
        };
        json!({
            "device": self.device,
            "start_s": self.start,
            "tokens": self.tokens,
            "bytes": self.bytes,
            "leaf_s": self.leaf,
            "leaf_unrecorded_s": self.leaf_unrecorded,
            "step_s": self.step,
            "step_unrecorded_s": self.step_unrecorded,
            "recording_percent": 100.0 * self.recording,
            "digest_s": self.digest,
            "folds_s": self.folds,
            "products_gflops": self.products_gflops(),
            "kinds": self.kinds.iter().map(kind).collect::<Vec<_>>(),
        })
    }
}
