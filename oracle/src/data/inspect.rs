//! `oracle data inspect`: the data of a run, and what one leaf of it reads.

use super::show::{Leaf, Shown};
use super::{InspectArgs, progress, prove, tokenizer};
use client::output::{printable, result};
use client::{atomic, output::Hinted};
use schemas::counted::counted;
use schemas::object::Object as _;
use schemas::window::WindowProof;
use serde_json::json;
use std::fmt::Write as _;
use step::order::{Order, inputs_and_targets};
use step::setup::Data;
use verify::window::Sequence;

/// Files that are listed for people.
const SHOWN_SHARDS: usize = 24;

/// Runs the command.
pub fn run(args: &InspectArgs) -> anyhow::Result<()> {
    // Asked first: a wrong name should not take as long as the data.
    let decode = tokenizer(args.decode.as_deref())?;
    let data = Data::load(&args.run, &mut progress())?;
    let plan = &data.plan;
    let order = Order::new(plan.data.tokens, plan.dimensions.time, plan.data.seed)?;
    let (Some(step), Some(leaf)) = (args.step, args.leaf) else {
        result(&whole(&data, &order, args.json));
        return Ok(());
    };
    let outside = |name: &str, found: u64, count: u64, key: &str| {
        Hinted::new(
            format!("--{name}: expected 0 to {}, found {found}", count - 1),
            format!("the run has {count} of them (key `{key}` in run.toml)"),
        )
    };
    anyhow::ensure!(step < data.config.steps, outside("step", step, data.config.steps, "steps"));
    anyhow::ensure!(leaf < plan.leaves, outside("leaf", leaf, plan.leaves, "leaves"));
    let time = plan.dimensions.time;
    let windows = order.leaf_windows(step, leaf, plan.leaves, plan.dimensions.batch);
    let first = (step * plan.leaves + leaf) * plan.dimensions.batch;
    let tokenizer = decode.as_ref().or(data.stream.tokenizer.as_ref());
    let shown = |(&window, number): (&u64, u64)| {
        let (inputs, targets) = inputs_and_targets(&data.stream.tokens, &[window], time as usize);
        let sequence = Sequence { window, inputs, targets };
        Shown::new(number, order.windows(), sequence, tokenizer).located(&data.stream, time)
    };
    let leaf_read = Leaf { step, leaf, time, sequences: windows.iter().zip(first..).map(shown).collect() };
    // Written before anything is said, so that what is said of it is true.
    let written = match &args.proof {
        None => None,
        Some(file) => {
            let proof = prove::prove(plan, &data.stream.tokens, step, leaf, windows)?;
            let bytes = proof.encode();
            anyhow::ensure!(
                bytes.len() <= WindowProof::BYTES_MAX,
                "--proof: {} bytes, a proof has at most {}",
                bytes.len(),
                WindowProof::BYTES_MAX
            );
            atomic::write_new(file, &bytes, atomic::PUBLIC)?;
            Some((file, bytes.len(), proof.chunks.len()))
        }
    };
    if args.json {
        result(&format!("{}\n", leaf_read.to_json()));
    } else {
        let mut text = leaf_read.to_text();
        if let Some((file, bytes, chunks)) = written {
            let file = printable(&file.display().to_string());
            writeln!(text, "{:<12} {file}: {bytes} bytes, {chunks} chunks", "proof")?;
        }
        result(&text);
    }
    Ok(())
}

/// All of the data.
fn whole(data: &Data, order: &Order, as_json: bool) -> String {
    let (plan, stream) = (&data.plan, &data.stream);
    let time = plan.dimensions.time;
    let largest = stream.tokens.iter().max().copied().unwrap_or(0);
    let read = data.config.steps * plan.leaves * plan.dimensions.batch;
    let epochs = read as f64 / order.windows() as f64;
    let tokenizer = data.config.data.tokenizer.as_deref().unwrap_or("none");
    let left = plan.data.tokens - 1 - order.windows() * time;
    if as_json {
        let shards: Vec<_> = stream
            .shards
            .iter()
            .map(|shard| json!({"file": shard.path.to_string_lossy(), "first": shard.first, "tokens": shard.tokens}))
            .collect();
        let object = json!({
            "shards": shards, "tokens": plan.data.tokens, "format": data.config.data.format, "tokenizer": tokenizer,
            "windows": order.windows(), "length": time, "tokens_in_no_window": left, "sequences_in_run": read,
            "epochs_in_run": epochs, "largest_token": largest, "vocabulary": plan.dimensions.vocabulary,
            "dataset": plan.data.dataset.to_string(), "plan": plan.digest().to_string(),
        });
        return format!("{object}\n");
    }
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        writeln!(text, "{name:<12} {value}").expect("inspect: a text takes everything");
    };
    line(
        "data",
        format!("{}, {}", counted(plan.data.tokens, "token"), counted(stream.shards.len() as u64, "file")),
    );
    for shard in stream.shards.iter().take(SHOWN_SHARDS) {
        let file = printable(&shard.path.to_string_lossy());
        line("  file", format!("{file}: {} tokens, the first is token {}", shard.tokens, shard.first));
    }
    if stream.shards.len() > SHOWN_SHARDS {
        line("", format!("and {} more (--json lists all)", stream.shards.len() - SHOWN_SHARDS));
    }
    line("format", format!("{}, tokenizer {tokenizer}", data.config.data.format));
    let left = match left {
        0 => "none is left over".to_owned(),
        1 => "the last token is in none".to_owned(),
        left => format!("the last {left} tokens are in none"),
    };
    line("windows", format!("{} of {}; {left}", order.windows(), counted(time, "token")));
    let (leaves, sequences) = (counted(plan.leaves, "leaf"), counted(plan.dimensions.batch, "sequence"));
    let steps = format!("{} x {leaves} x {sequences}", counted(data.config.steps, "step"));
    line("run", format!("{steps} = {read} windows: {epochs:.2} epochs"));
    line("vocabulary", format!("{}; the largest token is {largest}", plan.dimensions.vocabulary));
    line("dataset", plan.data.dataset.to_string());
    text
}
