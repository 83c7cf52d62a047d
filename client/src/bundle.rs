//! `client bundle`: a bundle's argument told part by part, and its proofs as files of their own ([`export`]).

use crate::cli::BundleArgs;
use crate::export;
use crate::output;
use crate::stored::StoredFile;
use schemas::bundle::ProvenEntry;
use schemas::bundle::stored::StoredBundle;
use schemas::counted::counted;
use schemas::statement::{Payload, Statement};
use std::fmt::Write as _;
use tlog::note::SignedNote;

/// Runs the command.
pub fn run(args: &BundleArgs) -> anyhow::Result<u8> {
    let file = StoredFile::open(&args.file)?;
    let bundle = file.bundle()?;
    if let Some(folder) = &args.export {
        let log = args.ledger.as_deref().zip(args.log_key.as_deref());
        export::export(&bundle, folder, log)?;
    }
    if args.explain {
        output::result(&output::printable(&explain(&bundle)));
    }
    Ok(output::YES)
}

/// The argument, for whoever has never seen one.
pub fn explain(bundle: &StoredBundle) -> String {
    let mut text = String::from(
        "This explains what the bundle says. Nothing was verified: `client verify` does that, and only with keys\n\
         that you have from somewhere else is its answer worth anything.\n",
    );
    let mut part = |title: &str, says: String, proves: &str| {
        let _ = write!(text, "\n{title}\n  is      {says}\n  proves  {proves}\n");
    };
    let (origin, size) = head(&bundle.checkpoint);
    part(
        "checkpoint",
        format!("the log {origin} with {size} entries, as one hash that the log has signed"),
        "that everything below stands in this one log: each entry comes with the few hashes that lead from it to that \
         hash, and one changed byte would lead elsewhere.",
    );
    cosigners(&bundle.checkpoint, &mut part);
    for entry in &bundle.entries {
        tell_entry(entry, &mut part);
    }
    for cover in &bundle.covers {
        let title = format!("cover of size {}", cover.tree_size);
        part(
            &title,
            format!("the log when it had {} entries, the prediction among them", cover.tree_size),
            "that the prediction was in the log before anybody could answer this checkpoint's challenge, and that the \
             log has only grown since: nothing was taken out or changed.",
        );
        if let Some(note) = &cover.checkpoint {
            cosigners(note, &mut part);
        }
    }
    match &bundle.completeness {
        Some(object) => {
            let (count, index) = (object.predictions.len(), object.register.index);
            part(
                "completeness",
                format!(
                    "the log's register, entry {index}, which lists every prediction of this run: {count}"
                ),
                "that nobody made several predictions with one key, in this log, to show the one that fits. That the \
                 log left none out is its signed word, which anybody who reads the log can check.",
            );
        }
        None => part(
            "completeness",
            "not there".into(),
            "nothing: there may be other predictions of these steps by the same predictor.",
        ),
    }
    let attached: u64 = bundle.attachments.iter().map(|attachment| attachment.name.bytes).sum();
    part(
        "plan and attachments",
        format!(
            "the plan ({} bytes), and {} ({attached} bytes): the opened prediction, what devices recorded that does \
             not follow from it, and evidence if there is any",
            bundle.plan_bytes(),
            counted(bundle.attachments.len() as u64, "attachment")
        ),
        "that you can compare again from the start: whether the numbers agree has not to be believed.",
    );
    text
}

fn tell_entry(entry: &ProvenEntry, part: &mut impl FnMut(&str, String, &str)) {
    let index = entry.index;
    let Ok(statement) = Statement::open(&entry.bytes) else {
        return part(&format!("entry {index}"), "not a statement that can be read".into(), "nothing.");
    };
    let (says, proves) = match &statement.payload {
        Payload::Run(run) => (
            format!(
                "what is to be computed: {} of {:?}, by the rules {}",
                counted(run.steps, "step"),
                run.name,
                run.profile
            ),
            "that plan, data and first state were fixed before anything else.",
        ),
        Payload::Prediction(prediction) if prediction.open.is_some() => (
            format!("what every device must get in steps {}, for all to read", prediction.steps),
            "that the prediction was there before the receipts were signed; but whoever made them could have copied \
             it.",
        ),
        Payload::Prediction(prediction) => (
            format!("what every device must get in steps {}, as a sealed hash", prediction.steps),
            "that the prediction was made before the receipts were signed, and that nobody could read it out of the \
             log.",
        ),
        Payload::Opening(_) => (
            "what was sealed, laid open".into(),
            "that the prediction is the sealed one to the bit; it stands after the receipts, so they were not copied \
             from it.",
        ),
        Payload::Receipt(receipt) => (
            format!(
                "what device {} of {} says it computed{}, with its answer to a challenge that the log's own hash posed",
                receipt.rank,
                receipt.devices,
                if receipt.simulated { " (simulated: no device at all)" } else { "" }
            ),
            "that the receipt was signed after the prediction was in the log, by whoever holds the device's key. Not \
             that a certain physical card did the work, or when.",
        ),
        Payload::Verdict(verdict) => (
            format!("the comparison's outcome: {}", verdict.outcome.word()),
            "what the signer found. `client verify` compares again, and says what still rests on the signer's word.",
        ),
        Payload::Register(_) => ("a register, which does not belong here".into(), "nothing."),
    };
    let title = format!("entry {index}: {}, signed by {}", statement.payload.stem(), statement.signer);
    part(&title, says, proves);
}

fn cosigners(note: &[u8], part: &mut impl FnMut(&str, String, &str)) {
    let Ok(note) = SignedNote::parse(note) else { return };
    let origin = note.text().lines().next().unwrap_or_default();
    let others = note.signatures().iter().filter(|line| line.name.as_str() != origin);
    let names: Vec<&str> = others.map(|line| line.name.as_str()).collect();
    if names.is_empty() {
        return;
    }
    part(
        "  its cosignatures",
        format!("signature lines under the names of {}", names.join(", ")),
        "that this state of the log existed by the time each of them states, and that the log shows them the same \
         history; as far as you trust these witnesses. A policy says whom, and how many may be wrong.",
    );
}

/// Origin and size, as the checkpoint states them.
fn head(note: &[u8]) -> (String, String) {
    let text = String::from_utf8_lossy(note);
    let mut lines = text.lines().map(str::to_owned);
    (lines.next().unwrap_or_default(), lines.next().unwrap_or_default())
}
