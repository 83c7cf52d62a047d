//! `client show`: what a bundle says. Nothing is checked but its form.

use crate::account;
use crate::cli::ShowArgs;
use crate::folder::read_file;
use crate::output;
use anyhow::Context as _;
use schemas::attachment::AttachmentName;
use schemas::bundle::{Bundle, ProvenEntry};
use schemas::object::Object as _;
use schemas::statement::{Payload, Statement};
use std::fmt::Write as _;

/// Runs the command.
pub fn run(args: &ShowArgs) -> anyhow::Result<u8> {
    let bytes = read_file(&args.file, Bundle::BYTES_MAX as u64)?;
    let bundle = Bundle::decode(&bytes).with_context(|| args.file.display().to_string())?;
    output::result(&describe(&bundle));
    Ok(output::YES)
}

/// A bundle in words.
pub fn describe(bundle: &Bundle) -> String {
    let mut text = String::from("nothing below was verified: `client verify` does that\n\n");
    text.push_str("checkpoint\n");
    for line in String::from_utf8_lossy(&bundle.checkpoint).lines() {
        let _ = writeln!(text, "  {}", printable(line));
    }
    for entry in &bundle.entries {
        text.push('\n');
        describe_entry(entry, &mut text);
    }
    text.push('\n');
    for cover in &bundle.covers {
        let _ = writeln!(text, "cover: a challenge's checkpoint of size {}", cover.tree_size);
    }
    let _ = writeln!(text, "plan: {} bytes", bundle.plan.len());
    for bytes in &bundle.attachments {
        let name = AttachmentName::of(bytes);
        let _ = writeln!(text, "attachment {}: {} bytes", name.sha256, name.bytes);
    }
    text
}

fn describe_entry(entry: &ProvenEntry, text: &mut String) {
    let statement = match Statement::open(&entry.bytes) {
        Ok(statement) => statement,
        Err(error) => {
            let _ =
                writeln!(text, "entry {}: cannot be read: {}", entry.index, printable(&error.to_string()));
            return;
        }
    };
    let _ = writeln!(text, "entry {}: {} {}", entry.index, statement.payload.stem(), statement.digest);
    let _ = writeln!(text, "  signed by {}", statement.signer);
    match &statement.payload {
        Payload::Run(run) => {
            let _ = writeln!(text, "  run {} ({:?}), profile {}", run.id(), run.name, run.profile);
            let (steps, leaves, most) = (run.steps, run.leaves, run.devices_max);
            let _ = writeln!(text, "  {steps} steps of {leaves} leaves on at most {most} devices");
        }
        Payload::Prediction(prediction) => {
            let how = if prediction.open.is_some() { "open" } else { "sealed" };
            let _ = writeln!(text, "  steps {}, {how}, seal {}", prediction.steps, prediction.seal);
        }
        Payload::Opening(opening) => {
            let _ = writeln!(text, "  opens prediction {}", opening.prediction);
        }
        Payload::Receipt(receipt) => {
            let simulated = if receipt.simulated { ", simulated" } else { "" };
            let (rank, of) = (receipt.rank, receipt.devices);
            let _ = writeln!(text, "  rank {rank} of {of}, steps {}{simulated}", receipt.steps);
            let facts = &receipt.facts;
            let _ = writeln!(text, "  {:?}, {:?}, {:?}", facts.name, facts.architecture, facts.driver);
        }
        Payload::Verdict(verdict) => {
            for line in account::tell(verdict).lines() {
                let _ = writeln!(text, "  {line}");
            }
        }
    }
}

/// Text from a bundle may hold anything; a terminal gets none of its control characters.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}
