//! `client pinpoint`: from a device's trace of one leaf to the operation, the word and the cause, without a log.

use crate::account;
use crate::cause::{cause_of, configurations};
use crate::cli::PinpointArgs;
use crate::folder::{Entries, Secrets, read_entries, read_file, read_secrets, read_statement};
use crate::output::{self, Hinted};
use crate::replay::{self, Replay};
use crate::steps;
use anyhow::{Context as _, ensure};
use schemas::attachment::{ATTACHMENT_BYTES_MAX, AttachmentName};
use schemas::object::Object as _;
use schemas::receipt::ReceiptBody;
use schemas::statement::Payload;
use schemas::trace::Trace;
use schemas::verdict::Cause;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::Path;
use verify::json::{is_tokens, word};
use verify::pinpoint::{Difference, first_difference};

/// Runs the command.
pub fn run(args: &PinpointArgs) -> anyhow::Result<u8> {
    let entries = read_entries(&args.prediction)?;
    let secrets = read_secrets(&entries)?;
    let found = read_trace(&args.trace)?;
    if let Some(path) = &args.receipt {
        check_signed(path, &entries, &found)?;
    }
    let setup = args.replay.as_deref().map(|run_toml| replay::load(&entries, run_toml)).transpose()?;
    let replay = setup.as_ref().map(|setup| Replay::new(&entries, &secrets, setup)).transpose()?;
    let expected = predicted(&entries, &secrets, &found, replay.as_ref())?;
    let Some(mut difference) = first_difference(&secrets.plan, entries.run.plan, &expected, &found) else {
        let text = format!("step {}, leaf {}: every fold is as predicted\n", found.step, found.leaf);
        let value = json!({ "agrees": true, "step": found.step, "leaf": found.leaf });
        output::result(&if args.json { format!("{value}\n") } else { text });
        return Ok(output::YES);
    };
    match (&replay, difference.folds) {
        (Some(replay), Some((_, fold))) => {
            let names = configurations(found.step, found.leaf, (difference.tap, fold), replay)?;
            difference.cause = cause_of(&names);
        }
        (None, Some(_)) => {
            output::hint("--replay run.toml tries every known configuration, to name the cause")
        }
        _ => {}
    }
    output::result(&match args.json {
        true => format!("{}\n", to_json(&secrets, &found, &difference)),
        false => output::printable(&tell(&secrets, &found, &difference)),
    });
    Ok(output::NOT_SO)
}

fn read_trace(path: &Path) -> anyhow::Result<Trace> {
    let bytes = read_file(path, Trace::BYTES_MAX as u64)?;
    let trace = Trace::decode(&bytes);
    Ok(trace.map_err(|error| {
        let hint = "`device run --traces` writes them: traces/rank-R/step-S-leaf-L.cbor beside the receipts";
        Hinted::new(format!("{}: {error}", path.display()), hint)
    })?)
}

/// The predicted trace of the leaf: a kept one, or the leaf computed again. It has the predicted root.
fn predicted(
    entries: &Entries,
    secrets: &Secrets,
    found: &Trace,
    replay: Option<&Replay>,
) -> anyhow::Result<Trace> {
    let (step, leaf) = (found.step, found.leaf);
    let record = secrets.body.record(step).with_context(|| {
        format!("the trace is of step {step}, the prediction of steps {}", entries.prediction.steps)
    })?;
    let root = *record.traces.get(leaf as usize).with_context(|| {
        format!("the trace is of leaf {leaf}, the predicted step has {} leaves", record.traces.len())
    })?;
    let kept = steps::find(&entries.folder.join("steps"), entries.id, step);
    let kept = kept.and_then(|kept| kept.traces.into_iter().nth(leaf as usize));
    let kept = kept.and_then(|bytes| Trace::decode(&bytes).ok()).filter(|trace| trace.root() == root);
    match (kept, replay) {
        (Some(trace), _) => Ok(trace),
        (None, Some(replay)) => replay.trace(step, leaf),
        (None, None) => Err(Hinted::new(
            format!("the prediction's folder keeps no trace of step {step}, leaf {leaf}"),
            "--replay run.toml computes that leaf again",
        )
        .into()),
    }
}

/// Whether the trace is the one that a receipt of this run commits to.
fn check_signed(path: &Path, entries: &Entries, trace: &Trace) -> anyhow::Result<()> {
    let (_, statement) = read_statement(path)?;
    let found = statement.payload.stem();
    let Payload::Receipt(receipt) = statement.payload else {
        anyhow::bail!("{}: expected a receipt statement, found {found}", path.display());
    };
    ensure!(
        receipt.run == entries.id,
        "{}: expected a receipt for run {}, found one for another run, {}",
        path.display(),
        entries.id,
        receipt.run
    );
    let body_path = path.with_extension("body.cbor");
    let bytes = read_file(&body_path, ATTACHMENT_BYTES_MAX)?;
    ensure!(
        AttachmentName::of(&bytes) == receipt.body,
        "{}: expected the body that the receipt names, {}, found {}",
        body_path.display(),
        receipt.body.sha256,
        AttachmentName::of(&bytes).sha256
    );
    let body = ReceiptBody::decode(&bytes).with_context(|| body_path.display().to_string())?;
    let (step, leaf, rank) = (trace.step, trace.leaf, receipt.rank);
    let record = body.records.iter().find(|record| record.step == step);
    let record =
        record.with_context(|| format!("the receipt of device {rank} has no record of step {step}"))?;
    let own = leaf.checked_sub(rank * record.traces.len() as u64);
    let signed = own.and_then(|own| record.traces.get(own as usize));
    let signed = signed.with_context(|| format!("leaf {leaf} is not one of device {rank}"))?;
    ensure!(
        *signed == trace.root(),
        "the trace has root {}, the receipt of device {rank} has {signed} for step {step}, leaf {leaf}",
        trace.root()
    );
    Ok(())
}

/// What the folds say, and what a replay came to.
fn note(difference: &Difference) -> String {
    match difference.cause {
        Cause::Configuration(_) => {
            format!("{}; computed again in this configuration it has the device's bits", difference.words)
        }
        Cause::Fault if difference.word.is_none() => {
            format!("{}; computed again, no known configuration gives these bits", difference.words)
        }
        _ => difference.words.clone(),
    }
}

fn names(secrets: &Secrets, difference: &Difference) -> (Option<String>, Option<String>) {
    let plan = &secrets.plan;
    let operation = difference.at.map(|tap| plan.operations[tap.operation].name.clone());
    (operation, difference.at.map(|tap| plan.operand_name(tap.operand)))
}

fn tell(secrets: &Secrets, trace: &Trace, difference: &Difference) -> String {
    let (operation, tensor) = names(secrets, difference);
    let mut text = format!("step {}, leaf {}: not as predicted\n", trace.step, trace.leaf);
    let mut line = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            let _ = writeln!(text, "  {name:<10} {value}");
        }
    };
    line("operation", operation.clone());
    line("tensor", tensor);
    line("element", difference.word.map(|word| word.element.to_string()));
    line("bits", difference.word.map(|word| account::bits(word, operation.as_deref())));
    line("cause", Some(difference.cause.to_string()));
    line("note", Some(note(difference)));
    text
}

fn to_json(secrets: &Secrets, trace: &Trace, difference: &Difference) -> Value {
    let (operation, tensor) = names(secrets, difference);
    json!({
        "agrees": false,
        "step": trace.step,
        "leaf": trace.leaf,
        "tap": difference.tap,
        "word": difference.word.map(|found| word(found, is_tokens(operation.as_deref()))),
        "operation": operation,
        "tensor": tensor,
        "cause": difference.cause.to_string(),
        "note": note(difference),
    })
}
