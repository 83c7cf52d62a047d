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
use schemas::plan::Plan;
use schemas::receipt::ReceiptBody;
use schemas::statement::Payload;
use schemas::trace::Trace;
use schemas::verdict::Cause;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::Path;
use verify::json::{is_tokens, word};
use verify::pinpoint::{Difference, first_difference, reads_parameters, unrecorded_before};

/// Runs the command.
pub fn run(args: &PinpointArgs) -> anyhow::Result<u8> {
    let entries = read_entries(&args.prediction)?;
    let secrets = read_secrets(&entries)?;
    let found = read_trace(&args.trace)?;
    let signed = args.receipt.as_deref().map(|path| check_signed(path, &entries, &found)).transpose()?;
    let setup = args.replay.as_deref().map(|run_toml| replay::load(&entries, run_toml)).transpose()?;
    let replay =
        setup.as_ref().map(|setup| Replay::new(&entries, &secrets, setup, output::note)).transpose()?;
    let expected = predicted(&entries, &secrets, &found, replay.as_ref())?;
    let Some(mut difference) = first_difference(&secrets.plan, entries.run.plan, &expected, &found) else {
        let text = format!("step {}, leaf {}: every fold is as predicted\n", found.step, found.leaf);
        let value = json!({ "agrees": true, "step": found.step, "leaf": found.leaf });
        output::result(&if args.json { format!("{value}\n") } else { text });
        return Ok(output::YES);
    };
    if signed.is_none() {
        output::note(
            "without --receipt nothing shows that the trace is of this run, nor that the step began as predicted",
        );
    }
    let doubt = doubt(&entries, &secrets, found.step, signed.as_ref());
    let doubt = doubt.filter(|_| rests_on_state(&secrets.plan, &difference));
    if let Some(doubt) = &doubt {
        difference.cause = Cause::Undetermined;
        difference.words = format!("{}; {doubt}", difference.words);
    }
    match (&replay, difference.folds) {
        (Some(replay), Some((_, fold))) => {
            let names = configurations(found.step, found.leaf, (difference.tap, fold), replay)?;
            if doubt.is_none() || !names.is_empty() {
                difference.cause = cause_of(&names);
            }
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

/// Why the device may have begun the step with other parameters than the predicted ones. None if it did not, or nothing
/// says that it did.
fn doubt(entries: &Entries, secrets: &Secrets, step: u64, signed: Option<&ReceiptBody>) -> Option<String> {
    let before = step.checked_sub(1)?;
    let Some(predicted) = secrets.body.record(before).and_then(|record| record.outcome.as_ref()) else {
        return Some(unrecorded_before(step));
    };
    let record = signed?.records.iter().find(|record| record.step == before);
    let Some(found) = record.and_then(|record| record.outcome.as_ref()) else {
        return Some(unrecorded_before(step));
    };
    let differ = found.parameters.checksum != predicted.parameters;
    differ.then(|| {
        let first = entries.prediction.steps.first;
        format!(
            "its parameters after step {before} are not as predicted either, so this may be inherited: look at the \
             first step that differs, from step {first} on"
        )
    })
}

/// Whether what differs was made of parameters too, and not of what taps before it show alone.
fn rests_on_state(plan: &Plan, difference: &Difference) -> bool {
    difference.at.is_none_or(|tap| reads_parameters(&plan.operations[tap.operation]))
}

/// The body of a receipt of this run, if it commits to the trace.
fn check_signed(path: &Path, entries: &Entries, trace: &Trace) -> anyhow::Result<ReceiptBody> {
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
    Ok(body)
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
