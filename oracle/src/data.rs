//! `oracle data`: what a run reads, and proof of it.

pub mod inspect;
pub mod prove;
pub mod show;

use clap::{Args, Subcommand};
use client::folder::read_file;
use client::output::result;
use indicatif::{ProgressBar, ProgressStyle};
use schemas::object::Object as _;
use schemas::plan::Plan;
use schemas::window::WindowProof;
use std::path::{Path, PathBuf};
use step::order::Order;
use step::tokens::tokenizer::Tokenizer;
use verify::window::WindowError;

/// Data below which nobody waits for its reading.
const QUICK_BYTES: u64 = 16 << 20;

/// Commands of `oracle data`.
#[derive(Subcommand)]
pub enum DataCommand {
    /// Show what the run's data is or, with --step and --leaf, what one leaf of one step reads.
    #[command(
        after_help = "Example:\n  oracle data inspect --run run.toml --step 12 --leaf 3 --proof window.cbor"
    )]
    Inspect(InspectArgs),
    /// Check, from a plan and a proof alone, what one leaf of one step reads and that it is committed.
    #[command(
        after_help = "Example:\n  oracle data verify --plan job/plan.cbor --proof window.cbor\n\nExit \
                      status: 0 the proof holds, 1 it does not, 2 it could not be checked."
    )]
    Verify(VerifyArgs),
}

/// Arguments of `oracle data inspect`.
#[derive(Args)]
pub struct InspectArgs {
    /// The run.toml.
    #[arg(long)]
    pub run: PathBuf,
    /// The step.
    #[arg(long, requires = "leaf")]
    pub step: Option<u64>,
    /// The leaf.
    #[arg(long, requires = "step")]
    pub leaf: Option<u64>,
    /// Write a proof of what the leaf reads to this file.
    #[arg(long, requires = "step")]
    pub proof: Option<PathBuf>,
    /// For token files: show their text by this tokenizer, `gpt2`, `bytes` or the path of a tokenizer.json.
    #[arg(long)]
    pub decode: Option<String>,
    /// Print one JSON object, with every token.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `oracle data verify`.
#[derive(Args)]
pub struct VerifyArgs {
    /// The plan.
    #[arg(long)]
    pub plan: PathBuf,
    /// The proof, from `oracle data inspect --proof`.
    #[arg(long)]
    pub proof: PathBuf,
    /// Show the text by this tokenizer: `gpt2`, `bytes` or the path of a tokenizer.json.
    #[arg(long)]
    pub decode: Option<String>,
    /// Print one JSON object, with every token.
    #[arg(long)]
    pub json: bool,
}

/// Runs one of them.
pub fn run(command: DataCommand) -> anyhow::Result<()> {
    match command {
        DataCommand::Inspect(args) => inspect::run(&args),
        DataCommand::Verify(args) => verify(&args),
    }
}

/// Whether an error means "checked, and not so".
pub fn is_not_so(error: &anyhow::Error) -> bool {
    error.is::<WindowError>()
}

fn verify(args: &VerifyArgs) -> anyhow::Result<()> {
    let plan = Plan::decode(&read_file(&args.plan, Plan::BYTES_MAX as u64)?)?;
    let proof = WindowProof::decode(&read_file(&args.proof, WindowProof::BYTES_MAX as u64)?)?;
    let tokenizer = tokenizer(args.decode.as_deref())?;
    let d = &plan.dimensions;
    let order = Order::new(plan.data.tokens, d.time, plan.data.seed)?;
    let windows = || order.leaf_windows(proof.step, proof.leaf, plan.leaves, d.batch);
    let sequences = verify::window::check(&proof, &plan, windows)?;
    let first = (proof.step * plan.leaves + proof.leaf) * d.batch;
    let shown: Vec<show::Shown> = sequences
        .into_iter()
        .zip(first..)
        .map(|(sequence, number)| show::Shown::new(number, order.windows(), sequence, tokenizer.as_ref()))
        .collect();
    let leaf = show::Leaf { step: proof.step, leaf: proof.leaf, time: d.time, sequences: shown };
    result(&if args.json {
        let mut object = leaf.to_json();
        object["verified"] = true.into();
        object["plan"] = plan.digest().to_string().into();
        object["dataset"] = plan.data.dataset.to_string().into();
        format!("{object}\n")
    } else {
        let chunks = proof.chunks.len();
        format!(
            "{}verified     these are the windows that the plan gives step {} leaf {}, and all {chunks} chunks are in\n\
             dataset      {}\nplan         {}\n",
            leaf.to_text(),
            proof.step,
            proof.leaf,
            plan.data.dataset,
            plan.digest()
        )
    });
    Ok(())
}

/// The tokenizer of `--decode`.
fn tokenizer(name: Option<&str>) -> anyhow::Result<Option<Tokenizer>> {
    Ok(name.map(|name| Tokenizer::open(name, Path::new(""))).transpose()?)
}

/// Tells on stderr how much of the data has been read, where that takes a while and somebody looks.
pub fn progress() -> impl FnMut(u64, u64) {
    let mut bar = None;
    move |done, total| {
        if total < QUICK_BYTES {
            return;
        }
        let bar = bar.get_or_insert_with(|| {
            ProgressBar::new(total).with_style(
                ProgressStyle::with_template("data {bytes}/{total_bytes} {wide_bar} {elapsed} left {eta}")
                    .expect("data: the template is a constant"),
            )
        });
        bar.set_position(done);
        if done == total {
            bar.finish_and_clear();
        }
    }
}
