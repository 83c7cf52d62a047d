//! `oracle bench`: how fast this machine predicts, as ratios taken in one run.
//!
//! Absolute times depend on the machine and the hour. What is printed is what lasts: matrix products against the
//! multiply-add peak of the same registers, a step against PyTorch's step of the same work, each measured in turns.

mod kernels;
mod profile;
mod torch;
mod workload;

use crate::cli::BenchArgs;
use kernels::{Bandwidth, Product};
use profile::Profile;
use schemas::plan::Plan;
use std::time::{Duration, Instant};
use step::dispatch::Backend;
use step::init::initial_parameters;
use step::session::Session;
use step::state::State;
use torch::Torch;
pub use workload::Model;
use workload::{Shape, Workload, workload};

/// PyTorch's threads spin for a while after a step; ours would be timed against them.
const SETTLE: Duration = Duration::from_millis(300);

/// Everything measured.
struct Measured {
    shape: Shape,
    backend: Backend,
    threads: usize,
    /// Multiply-adds in registers, in GFLOP/s: the median of what was found beside the products.
    peak: f64,
    products: Vec<Product>,
    bandwidth: Bandwidth,
    steps: Steps,
    profile: Profile,
}

/// Seconds of whole steps, each list in the order they were taken.
#[derive(Default)]
struct Steps {
    bare: Vec<f64>,
    recorded: Vec<f64>,
    torch: Vec<f64>,
    torch_version: Option<String>,
}

impl Measured {
    /// Of the peak, over the products of a step in proportion to their work.
    fn matmul_fraction(&self) -> f64 {
        let flops: f64 = self.products.iter().map(|product| product.flops).sum();
        let at_peak: f64 = self.products.iter().map(|product| product.flops / product.fraction).sum();
        flops / at_peak
    }

    /// Of the peak, over the products of the fastest bare step, whatever lies between them counted.
    fn matmul_fraction_in_step(&self, plan: &Plan) -> f64 {
        self.profile.products_gflops(plan) / self.peak
    }

    /// The share of a bare step that is neither a product's nor what attention's own products take at their rate.
    fn outside_fraction(&self, plan: &Plan) -> f64 {
        let rate = self.matmul_fraction() * self.peak * 1e9;
        self.profile.outside(plan, rate)
    }
}

/// Measures and says what was found.
pub fn bench(backend: Backend, args: &BenchArgs) -> anyhow::Result<String> {
    let (repeats, most) = (args.repeats, 1000);
    anyhow::ensure!((1..=most).contains(&repeats), "--repeats: expected 1 to {most}, found {repeats}");
    let threads = rayon::current_num_threads();
    let shape = Shape::new(args.model, args.sequences, args.length);
    let work = workload(&shape, 2 * args.repeats + 2)?;
    let python = if args.no_torch { None } else { torch::find_python(args.python.as_deref())? };
    if python.is_none() && !args.no_torch {
        eprintln!("oracle: note: no Python here can import torch; the ratios to PyTorch are left out");
        eprintln!("oracle: hint: name one with --python, or say --no-torch");
    }
    eprintln!("oracle: measuring products");
    // Within the pool, as a step's products are: its threads are awake then.
    let (peak, products) = rayon::scope(|_| kernels::products(backend, threads, &shape));
    eprintln!("oracle: measuring checksums and folds");
    let bandwidth = rayon::scope(|_| kernels::bandwidth(backend));
    let mut torch = match &python {
        None => None,
        Some(python) => {
            eprintln!("oracle: starting PyTorch");
            Some(Torch::start(python, &shape, threads)?)
        }
    };
    let (steps, profile) = steps(&work, backend, args.repeats, torch.as_mut())?;
    let measured = Measured { shape, backend, threads, peak, products, bandwidth, steps, profile };
    Ok(if args.json { json(&measured, &work.plan) } else { text(&measured, &work.plan) })
}

/// Steps in turns: PyTorch, ours without recording, ours with every tap, fold and checksum.
fn steps(
    work: &Workload,
    backend: Backend,
    repeats: u64,
    mut torch: Option<&mut Torch>,
) -> anyhow::Result<(Steps, Profile)> {
    let session = Session::new(&work.plan, &work.tokens, backend)?;
    let mut state = State::fresh(initial_parameters(&work.plan, 0, work.initializer_range));
    // The first of each kind touches its memory for the first time and is not counted.
    session.step_unrecorded(&mut state)?;
    session.step(&mut state)?;
    let mut steps =
        Steps { torch_version: torch.as_ref().map(|torch| torch.version.clone()), ..Steps::default() };
    let mut profile = Profile::default();
    for repeat in 0..repeats {
        eprintln!("oracle: step {} of {repeats}", repeat + 1);
        if let Some(torch) = torch.as_mut() {
            steps.torch.push(torch.step()?);
            std::thread::sleep(SETTLE);
        }
        let taken = profile::step(&session, &work.plan, &mut state)?;
        steps.bare.push(taken.seconds);
        profile.keep_faster(taken);
        let start = Instant::now();
        session.step(&mut state)?;
        steps.recorded.push(start.elapsed().as_secs_f64());
    }
    Ok((steps, profile))
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// The median of the ratios of neighbours: what disturbs a turn disturbs both.
fn ratio(ours: &[f64], theirs: &[f64]) -> Option<f64> {
    let ratios: Vec<f64> = ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect();
    (!ratios.is_empty()).then(|| median(&ratios))
}

fn json(m: &Measured, plan: &Plan) -> String {
    let products: Vec<serde_json::Value> = m
        .products
        .iter()
        .map(|product| {
            let gflops = product.fraction * m.peak;
            serde_json::json!({
                "name": product.name, "shape": product.shape,
                "gflops": gflops, "fraction_of_peak": product.fraction
            })
        })
        .collect();
    let shares: Vec<serde_json::Value> = m
        .profile
        .shares()
        .into_iter()
        .map(|(kind, share)| serde_json::json!({ "kind": kind, "share": share }))
        .collect();
    let object = serde_json::json!({
        "backend": m.backend.name(), "threads": m.threads,
        "layers": m.shape.layers, "channels": m.shape.channels,
        "sequences": m.shape.sequences, "length": m.shape.length,
        "fma_peak_gflops": m.peak,
        "matmul_fraction_of_peak": m.matmul_fraction(),
        "matmul_fraction_in_step": m.matmul_fraction_in_step(plan),
        "step_seconds": median(&m.steps.bare),
        "step_seconds_recorded": median(&m.steps.recorded),
        "torch_version": m.steps.torch_version,
        "torch_seconds": (!m.steps.torch.is_empty()).then(|| median(&m.steps.torch)),
        "step_ratio_torch": ratio(&m.steps.bare, &m.steps.torch),
        "step_ratio_torch_recorded": ratio(&m.steps.recorded, &m.steps.torch),
        "outside_matmul_fraction": m.outside_fraction(plan),
        "checksum_gb_per_s": m.bandwidth.checksum,
        "fold_gb_per_s": m.bandwidth.fold,
        "products": products,
        "step_shares": shares,
    });
    format!("{object}\n")
}

fn text(m: &Measured, plan: &Plan) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: String| text.push_str(&format!("{name:<22} {value}\n"));
    let Shape { layers, channels, vocabulary, sequences, length, .. } = m.shape;
    line("model", format!("gpt2, {layers} layers of {channels} channels, vocabulary {vocabulary}"));
    line("leaf", format!("one, {sequences} sequences of {length}"));
    line("backend", format!("{} on {} threads", m.backend, m.threads));
    line("multiply-add peak", format!("{:.0} GFLOP/s in registers", m.peak));
    for product in &m.products {
        let shape = product.shape.map(|n| n.to_string()).join(" x ");
        line(
            &format!("  {}", product.name),
            format!(
                "{shape:<20} {:>6.0} GFLOP/s  {:>4.0} %  {}",
                product.fraction * m.peak,
                100.0 * product.fraction,
                bar(product.fraction)
            ),
        );
    }
    let [alone, in_step] = [m.matmul_fraction(), m.matmul_fraction_in_step(plan)].map(|part| 100.0 * part);
    line("products together", format!("{alone:.1} % of the peak, {in_step:.1} % in a step"));
    line("checksums", format!("{:.1} GB/s", m.bandwidth.checksum));
    line("folds", format!("{:.1} GB/s", m.bandwidth.fold));
    line("step", format!("{:.3} s, {:.3} s recorded", median(&m.steps.bare), median(&m.steps.recorded)));
    for (kind, share) in m.profile.shares() {
        line(&format!("  {kind}"), format!("{:>4.1} %  {}", 100.0 * share, bar(share)));
    }
    line("outside products", format!("{:.1} % of the step", 100.0 * m.outside_fraction(plan)));
    if let (Some(version), Some(bare), Some(recorded)) = (
        &m.steps.torch_version,
        ratio(&m.steps.bare, &m.steps.torch),
        ratio(&m.steps.recorded, &m.steps.torch),
    ) {
        line("PyTorch", format!("{:.3} s (version {version})", median(&m.steps.torch)));
        line("ratio to PyTorch", format!("{bare:.2}, {recorded:.2} recorded (less is faster)"));
    }
    text
}

/// A bar of at most twenty characters.
fn bar(fraction: f64) -> String {
    "#".repeat((20.0 * fraction.clamp(0.0, 1.0)).round() as usize)
}
