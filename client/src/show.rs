//! `client show`: what a bundle says. Nothing is checked but its form.

use crate::account;
use crate::cli::ShowArgs;
use crate::output;
use crate::stored::StoredFile;
use schemas::bundle::ProvenEntry;
use schemas::bundle::stored::{StoredAttachment, StoredBundle};
use schemas::counted::counted;
use schemas::statement::{Payload, Statement};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// Runs the command.
pub fn run(args: &ShowArgs) -> anyhow::Result<u8> {
    let file = StoredFile::open(&args.file)?;
    let bundle = file.bundle()?;
    match args.json {
        true => output::result(&format!("{}\n", to_json(&bundle))),
        false => output::result(&describe(&bundle)),
    }
    Ok(output::YES)
}

/// A bundle in words.
pub fn describe(bundle: &StoredBundle) -> String {
    let mut text = String::from("nothing below was verified: `client verify` does that\n\n");
    text.push_str("checkpoint\n");
    for line in String::from_utf8_lossy(&bundle.checkpoint).lines() {
        let _ = writeln!(text, "  {}", output::printable(line));
    }
    for entry in &bundle.entries {
        text.push('\n');
        describe_entry(entry, &mut text);
    }
    text.push('\n');
    for cover in &bundle.covers {
        let cosigned = if cover.checkpoint.is_some() { ", with cosignatures" } else { "" };
        let _ = writeln!(
            text,
            "cover: a checkpoint of size {} that holds the prediction{cosigned}",
            cover.tree_size
        );
    }
    if let Some(object) = &bundle.completeness {
        let (count, index) = (counted(object.predictions.len() as u64, "prediction"), object.register.index);
        let _ = writeln!(text, "completeness: {count} of the run, by the register of entry {index}");
    }
    let _ = writeln!(text, "plan: {} bytes", bundle.plan_bytes());
    for StoredAttachment { name, .. } in &bundle.attachments {
        let _ = writeln!(text, "attachment {}: {} bytes", name.sha256, name.bytes);
    }
    text
}

fn describe_entry(entry: &ProvenEntry, text: &mut String) {
    let statement = match Statement::open(&entry.bytes) {
        Ok(statement) => statement,
        Err(error) => {
            let _ = writeln!(
                text,
                "entry {}: cannot be read: {}",
                entry.index,
                output::printable(&error.to_string())
            );
            return;
        }
    };
    let _ = writeln!(text, "entry {}: {} {}", entry.index, statement.payload.stem(), statement.digest);
    let _ = writeln!(text, "  signed by {}", statement.signer);
    match &statement.payload {
        Payload::Run(run) => {
            let _ = writeln!(text, "  run {} ({:?}), profile {}", run.id(), run.name, run.profile);
            let (steps, leaves) = (counted(run.steps, "step"), counted(run.leaves, "leaf"));
            let _ = writeln!(text, "  {steps} of {leaves} on at most {}", counted(run.devices_max, "device"));
        }
        Payload::Prediction(prediction) => {
            let how = if prediction.open.is_some() { "open" } else { "sealed" };
            let _ = writeln!(text, "  steps {}, {how}, seal {}", prediction.steps, prediction.seal);
            if let Some(by) = &prediction.by {
                let _ = writeln!(text, "  computed by {:?} with kernels {:?}", by.program, by.backend);
            }
        }
        Payload::Opening(opening) => {
            let _ = writeln!(text, "  opens prediction {}", opening.prediction);
        }
        Payload::Receipt(receipt) => {
            let simulated = if receipt.simulated { ", simulated" } else { "" };
            let (rank, of) = (receipt.rank, receipt.devices);
            let _ = writeln!(text, "  device {rank} of {of}, steps {}{simulated}", receipt.steps);
            let facts = &receipt.facts;
            let _ = writeln!(text, "  {:?}, {:?}, {:?}", facts.name, facts.architecture, facts.driver);
        }
        Payload::Verdict(verdict) => {
            for line in account::tell(verdict).lines() {
                let _ = writeln!(text, "  {line}");
            }
        }
        Payload::Register(register) => {
            let entries = counted(register.entries.count, "entry");
            let predictions = counted(register.predictions.count, "prediction");
            let _ = writeln!(text, "  below {}: {entries}, {predictions} of the run", register.size);
        }
    }
}

/// A bundle as JSON.
pub fn to_json(bundle: &StoredBundle) -> Value {
    let attachment = |attachment: &StoredAttachment| {
        let name = attachment.name;
        json!({ "sha256": name.sha256.to_string(), "bytes": name.bytes })
    };
    json!({
        // Said in the JSON too: whoever reads it has not seen the first line of the text.
        "verified": Value::Null,
        "version": bundle.version,
        "checkpoint": String::from_utf8_lossy(&bundle.checkpoint),
        "entries": bundle.entries.iter().map(entry_json).collect::<Vec<_>>(),
        "cover_sizes": bundle.covers.iter().map(|cover| cover.tree_size).collect::<Vec<_>>(),
        "register": bundle.completeness.as_ref().map(|object| object.register.index),
        "plan_bytes": bundle.plan_bytes(),
        "attachments": bundle.attachments.iter().map(attachment).collect::<Vec<_>>(),
    })
}

fn entry_json(entry: &ProvenEntry) -> Value {
    let statement = match Statement::open(&entry.bytes) {
        Ok(statement) => statement,
        Err(error) => return json!({ "index": entry.index, "error": error.to_string() }),
    };
    let content = match &statement.payload {
        Payload::Run(run) => json!({
            "run": run.id().to_string(),
            "name": run.name,
            "profile": run.profile,
            "steps": run.steps,
            "leaves": run.leaves,
            "devices_max": run.devices_max,
        }),
        Payload::Prediction(prediction) => json!({
            "run": prediction.run.to_string(),
            "steps": [prediction.steps.first, prediction.steps.end],
            "open": prediction.open.is_some(),
            "seal": prediction.seal.to_string(),
            "by": prediction.by.as_ref().map(|by| json!({ "program": by.program, "backend": by.backend })),
        }),
        Payload::Opening(opening) => json!({
            "run": opening.run.to_string(),
            "prediction": opening.prediction.to_string(),
        }),
        Payload::Receipt(receipt) => json!({
            "run": receipt.run.to_string(),
            "rank": receipt.rank,
            "devices": receipt.devices,
            "steps": [receipt.steps.first, receipt.steps.end],
            "simulated": receipt.simulated,
            "name": receipt.facts.name,
            "architecture": receipt.facts.architecture,
            "driver": receipt.facts.driver,
        }),
        Payload::Verdict(verdict) => verify::json::verdict(verdict),
        Payload::Register(register) => json!({
            "run": register.run.to_string(),
            "size": register.size,
            "entries": register.entries.count,
            "predictions": register.predictions.count,
        }),
    };
    json!({
        "index": entry.index,
        "kind": statement.payload.stem(),
        "sha256": statement.digest.to_string(),
        "signer": statement.signer.to_string(),
        "content": content,
    })
}
