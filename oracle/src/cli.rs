//! Flags and help of the command.

use crate::bench::{self, Model};
use crate::data::{self, DataCommand};
use crate::{commit, explain, init, predict, weights};
use anyhow::Context;
use clap::{Args, Parser, Subcommand};
use client::output::result;
use schemas::run::Steps;
use std::path::PathBuf;
use std::time::Instant;
use step::dispatch::Backend;
use step::setup::Setup;

/// States beforehand, bit for bit, what each step of a training run must produce.
#[derive(Parser)]
#[command(
    version,
    after_help = "Example:\n  oracle init run.toml\n  oracle plan --run run.toml\n  oracle predict --run \
                                 run.toml --steps 0..3 --commit --ledger http://127.0.0.1:7180 --log-key log/log.pub"
)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Write a run.toml in which every key is explained.
    #[command(after_help = "Example:\n  oracle init --model llama run.toml")]
    Init {
        /// The file to write; an existing file is left alone.
        #[arg(default_value = "run.toml")]
        file: PathBuf,
        /// The model to begin with.
        #[arg(long, value_enum, default_value = "gpt2")]
        model: init::Start,
    },
    /// Explain the plan of a run and what it costs, before anything runs.
    #[command(after_help = "Example:\n  oracle plan --run run.toml --steps 0..100 --json")]
    Plan(PlanArgs),
    /// Show what a run reads, and prove it.
    #[command(subcommand, after_help = "Example:\n  oracle data inspect --run run.toml")]
    Data(DataCommand),
    /// Compute the records of a range of steps, seal them and, with --commit, put them into a log.
    ///
    /// Interrupted work goes on from its last snapshot when the same command is given again.
    #[command(
        after_help = "Example:\n  oracle predict --run run.toml --steps 0..300 --out july --commit \\\n      \
                            --ledger http://log.example --log-key log/log.pub"
    )]
    Predict(PredictArgs),
    /// Measure how fast this machine predicts: products against its peak, a step against PyTorch's.
    ///
    /// Needs no run.toml. With a Python that can import torch, its step of the same work is taken in turns with ours.
    #[command(
        after_help = "Example:\n  oracle bench --model 124M --sequences 4 --length 64 --threads 2 --json"
    )]
    Bench(BenchArgs),
    /// Write the weights of a snapshot as a file that Hugging Face's libraries read.
    #[command(after_help = "Example:\n  oracle weights --run run.toml --snapshot \\\n      \
                            july/prediction/snapshots/step-000300.safetensors --out model.safetensors")]
    Weights(WeightsArgs),
}

/// Arguments of `oracle plan`.
#[derive(Args)]
pub struct PlanArgs {
    /// The run.toml.
    #[arg(long)]
    pub run: PathBuf,
    /// Steps to estimate, `first..end`; all if absent.
    #[arg(long, value_parser = parse_steps)]
    pub steps: Option<Steps>,
    /// List every tap: the tensors that a trace folds.
    #[arg(long)]
    pub operations: bool,
    /// Save a snapshot every so many steps: what the disk has to hold.
    #[arg(long, default_value_t = 100)]
    pub snapshot_every: u64,
    /// Kernels and threads.
    #[command(flatten)]
    pub machine: Machine,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// What runs the kernels. No choice changes a bit.
#[derive(Args)]
pub struct Machine {
    /// Kernels: reference, scalar, avx2, avx512 or neon; the fastest here if absent.
    #[arg(long)]
    pub backend: Option<String>,
    /// Threads; all cores if absent.
    #[arg(long)]
    pub threads: Option<usize>,
}

impl Machine {
    /// Starts the threads and finds the kernels.
    fn start(&self) -> anyhow::Result<Backend> {
        if let Some(threads) = self.threads {
            anyhow::ensure!((1..=1024).contains(&threads), "--threads: expected 1 to 1024, found {threads}");
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
            pool.build_global().context("could not start the threads")?;
        }
        match &self.backend {
            None => Ok(Backend::detect()),
            Some(name) => name.parse().context("--backend"),
        }
    }
}

/// Arguments of `oracle weights`.
#[derive(Args)]
pub struct WeightsArgs {
    /// The run.toml that the snapshot is of.
    #[arg(long)]
    pub run: PathBuf,
    /// The snapshot, such as `OUT/prediction/snapshots/step-000100.safetensors`.
    #[arg(long)]
    pub snapshot: PathBuf,
    /// The file to write.
    #[arg(long)]
    pub out: PathBuf,
}

/// Arguments of `oracle predict`.
#[derive(Args)]
pub struct PredictArgs {
    /// The run.toml.
    #[arg(long)]
    pub run: PathBuf,
    /// Steps to predict, `first..end`.
    #[arg(long, value_parser = parse_steps)]
    pub steps: Steps,
    /// Folder to write: `job/` for the operator, `prediction/` to be kept secret. Default: the run.toml's name without
    /// its ending, beside it.
    #[arg(long)]
    pub out: Option<PathBuf>,
    /// The predictor's secret key file; created if absent, with the public key beside it as `.pub`.
    #[arg(long, default_value = "predictor.key")]
    pub key: PathBuf,
    /// Predict openly: the log shows the salt and the body at once. Anyone can then copy them.
    #[arg(long)]
    pub open: bool,
    /// Submit the run and the prediction to the log.
    #[arg(long, requires = "ledger")]
    pub commit: bool,
    /// Address of the log.
    #[arg(long, requires = "commit")]
    pub ledger: Option<String>,
    /// The log's verifier key, or a file that holds it. Without it the key the log states is taken, and said so.
    #[arg(long)]
    pub log_key: Option<String>,
    /// Days until a prediction that was not opened counts as a failure.
    #[arg(long, default_value_t = 30)]
    pub reveal_days: u64,
    /// Save a snapshot every so many steps.
    #[arg(long, default_value_t = 100)]
    pub snapshot_every: u64,
    /// Keep no traces: a differing operation can then be named only by computing its leaf again.
    #[arg(long)]
    pub no_traces: bool,
    /// Kernels and threads.
    #[command(flatten)]
    pub machine: Machine,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `oracle bench`.
#[derive(Args)]
pub struct BenchArgs {
    /// The model.
    #[arg(long, default_value = "124M")]
    pub model: Model,
    /// Sequences in the leaf.
    #[arg(long, default_value_t = 4)]
    pub sequences: u64,
    /// Tokens in a sequence.
    #[arg(long, default_value_t = 64)]
    pub length: u64,
    /// Steps of each kind that are timed.
    #[arg(long, default_value_t = 5)]
    pub repeats: u64,
    /// A Python that can import torch; the first of the usual ones that can if absent.
    #[arg(long, conflicts_with = "no_torch")]
    pub python: Option<PathBuf>,
    /// Leave PyTorch out.
    #[arg(long)]
    pub no_torch: bool,
    #[command(flatten)]
    machine: Machine,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

fn parse_steps(text: &str) -> Result<Steps, String> {
    let numbers = text.split_once("..").and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
    match numbers {
        Some((first, end)) if first < end => Ok(Steps { first, end }),
        _ => Err(format!("expected first..end with first < end, such as 0..3, found {text:?}")),
    }
}

/// Runs a parsed command line.
pub fn run(cli: Cli) -> anyhow::Result<()> {
    match cli.command {
        Command::Init { file, model } => init::write(&file, model),
        Command::Plan(args) => {
            let backend = args.machine.start()?;
            let start = Instant::now();
            let setup = Setup::load_telling(&args.run, &mut data::progress())?;
            result(&explain::explain(&setup, start.elapsed(), backend, &args)?);
            Ok(())
        }
        Command::Bench(args) => {
            let backend = args.machine.start()?;
            result(&bench::bench(backend, &args)?);
            Ok(())
        }
        Command::Data(command) => data::run(command),
        Command::Predict(args) => {
            let backend = args.machine.start()?;
            let setup = Setup::load_telling(&args.run, &mut data::progress())?;
            // The log is asked first: what it would refuse need not be computed.
            let log = if args.commit { Some(commit::Log::open(&args)?) } else { None };
            let predicted = predict::predict(setup, backend, &args, log.as_ref())?;
            let logged = log.map(|log| log.commit(&predicted, &args)).transpose()?;
            predict::report(&predicted, logged.as_ref(), &args);
            Ok(())
        }
        Command::Weights(args) => weights::write(&args),
    }
}
