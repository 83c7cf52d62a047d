//! `client completeness`: what a log holds of a run, fetched and checked, or checked offline.

use crate::atomic;
use crate::cli::CompletenessArgs;
use crate::folder::read_file;
use crate::keyfile;
use crate::ledger::{Ledger, LedgerError};
use crate::output;
use anyhow::Context as _;
use schemas::completeness::Completeness;
use schemas::digest::RunId;
use schemas::key::PublicKey;
use schemas::object::Object as _;
use schemas::register::PredictionLeaf;
use schemas::statement::Statement;
use serde_json::{Value, json};
use std::path::Path;
use tlog::note::VerifierKey;
use verify::completeness::{Report, check};
use verify::report::Class;

/// Most entries that are fetched to derive their leaves again.
const DERIVED_MAX: usize = 1000;

/// Runs the command; its status is the report's class.
pub fn run(args: &CompletenessArgs) -> anyhow::Result<u8> {
    let log = keyfile::log_key(&args.log_key)?;
    let asked = args.predictor_key.iter().map(|text| Ok(keyfile::public_key(text)?));
    let asked: Vec<PublicKey> = asked.collect::<anyhow::Result<_>>()?;
    let report = match (&args.ledger, &args.out) {
        (Some(ledger), Some(out)) => fetch(args, ledger, &log, &asked, out)?,
        _ => {
            let bytes = read_file(Path::new(&args.subject), Completeness::BYTES_MAX as u64)?;
            check(&bytes, &log, &asked)
        }
    };
    if args.json {
        output::result(&format!("{}\n", to_json(&report, &asked)));
    } else {
        output::result(&output::printable(&report.to_string()));
    }
    if report.class == Class::CouldNot {
        output::hint(
            "cut short, or no completeness file? `client completeness RUN --ledger URL` fetches one",
        );
    }
    Ok(report.class as u8)
}

/// Fetches the file, checks it, derives the leaves of its predictions again from the entries, and writes it if it
/// holds.
fn fetch(
    args: &CompletenessArgs,
    address: &str,
    log: &VerifierKey,
    asked: &[PublicKey],
    out: &Path,
) -> anyhow::Result<Report> {
    let run: RunId = args.subject.parse().context("the run")?;
    let ledger = Ledger::connect(address, Some(log))?;
    let bytes = ledger.completeness(run, args.entries)?;
    let report = check(&bytes, log, asked);
    let Some(complete) = &report.complete else { return Ok(report) };
    anyhow::ensure!(
        complete.run == run,
        "the server gave the completeness of run {}, expected run {run}",
        complete.run
    );
    let derived = complete.predictions.iter().take(DERIVED_MAX);
    for leaf in derived.clone() {
        derive(&ledger, leaf)?;
    }
    match complete.predictions.len() {
        all if all > DERIVED_MAX => output::note(&format!(
            "the first {DERIVED_MAX} of {all} predictions were read and are as listed; the others are the log's word"
        )),
        1 => output::note("the one prediction was read and is as listed"),
        all => output::note(&format!("all {all} predictions were read and are as listed")),
    }
    atomic::write(out, &bytes, atomic::PUBLIC)?;
    Ok(report)
}

/// Reads a prediction's entry and compares it with its leaf.
fn derive(ledger: &Ledger, leaf: &PredictionLeaf) -> anyhow::Result<()> {
    let entry = ledger.entry(leaf.entry)?;
    let statement = Statement::open(&entry).map_err(|error| lied(leaf, error.to_string()))?;
    match PredictionLeaf::of(leaf.index, &statement) {
        Some(own) if own == *leaf => Ok(()),
        Some(own) => Err(lied(leaf, format!("it predicts steps {} by {}", own.steps, own.signer))),
        None => Err(lied(leaf, format!("it is a {}", statement.payload.stem()))),
    }
}

fn lied(leaf: &PredictionLeaf, found: String) -> anyhow::Error {
    output::Hinted::new(
        format!(
            "entry {} is listed as a prediction of steps {} by {}; {found}",
            leaf.index, leaf.steps, leaf.signer
        ),
        "keep what the server sent: a register that lists what is not so is evidence against the log's operator",
    )
    .into()
}

impl Ledger {
    /// The completeness of a run at the newest checkpoint, with the list of entries where it is wanted, unchecked.
    pub fn completeness(&self, run: RunId, entries: bool) -> Result<Vec<u8>, LedgerError> {
        let path = format!("/run/{run}/completeness{}", if entries { "?entries=1" } else { "" });
        self.fetch_long(&path, Completeness::BYTES_MAX as u64)
    }
}

fn to_json(report: &Report, asked: &[PublicKey]) -> Value {
    let prediction = |leaf: &PredictionLeaf| {
        json!({
            "index": leaf.index,
            "signer": leaf.signer.to_string(),
            "steps": [leaf.steps.first, leaf.steps.end],
            "sha256": leaf.entry.to_string(),
        })
    };
    let of_the_asked = |leaf: &&PredictionLeaf| asked.is_empty() || asked.contains(&leaf.signer);
    json!({
        "complete": report.class == Class::Agreeing,
        "status": report.class as u8,
        "summary": report.summary(),
        "checks": report.checks.iter().map(verify::json::check).collect::<Vec<_>>(),
        "caveats": report.caveats,
        "run": report.complete.as_ref().map(|complete| complete.run.to_string()),
        "size": report.complete.as_ref().map(|complete| complete.size),
        "predictions": report.complete.as_ref().map(|complete| {
            complete.predictions.iter().filter(of_the_asked).map(prediction).collect::<Vec<_>>()
        }),
    })
}
