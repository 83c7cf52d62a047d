//! `client open --step N`: one step of a sealed prediction as a file, while the others stay sealed.

use crate::atomic;
use crate::challenge::smallest;
use crate::cli::OpenArgs;
use crate::folder::{Entries, Secrets, read_entries, read_secrets};
use crate::ledger::{Ledger, Logged};
use crate::output;
use crate::submit::{connect, find_prediction};
use anyhow::{Context as _, ensure};
use schemas::bundle::ProvenEntry;
use schemas::object::Object as _;
use schemas::opened::OpenedStep;
use schemas::prediction::step_salt;
use std::path::Path;
use verify::opened::check;
use verify::policy::Policy;
use verify::report::Class;

/// Runs the command. It signs nothing and puts nothing into the log.
pub(crate) fn run(args: &OpenArgs, step: u64, out: &Path) -> anyhow::Result<u8> {
    let entries = read_entries(&args.prediction)?;
    let secrets = read_secrets(&entries)?;
    let place = place(&entries, &secrets, step)?;
    let ledger = connect(&args.ledger, Some(&args.log_key))?;
    let logged = find_prediction(&ledger, &entries)?;
    let logged = proof(&ledger, &entries, logged)?;
    let bytes = opened(&entries, &secrets, place, logged).encode();
    let report = checked(&ledger, &entries, &bytes)?;
    atomic::write(out, &bytes, atomic::PUBLIC)?;
    if args.json {
        let mut value = verify::json::opened(&report);
        value["file"] = out.display().to_string().into();
        value["bytes"] = bytes.len().into();
        output::result(&format!("{value}\n"));
    } else {
        let others = match secrets.body.records.len() - 1 {
            0 => "there is no other record".to_owned(),
            1 => "of the other record it holds the seal alone".to_owned(),
            others => format!("of the other {others} records it holds the seals alone"),
        };
        output::result(&format!(
            "step {step} of run {} in {} ({} bytes); {others}\n",
            entries.id,
            out.display(),
            bytes.len()
        ));
    }
    output::note(
        "who has this file can copy the record of the step into a receipt: it proves nothing of order",
    );
    output::hint(&format!(
        "whoever gets it: client verify {} --log-key {} --predictor-key {}",
        out.display(),
        args.log_key,
        entries.predictor
    ));
    Ok(output::YES)
}

/// Where the record of a step stands in the body.
fn place(entries: &Entries, secrets: &Secrets, step: u64) -> anyhow::Result<usize> {
    let (steps, records) = (entries.prediction.steps, secrets.body.records.len() as u64);
    let place = step.checked_sub(steps.first).filter(|_| step < steps.end);
    let place = place
        .with_context(|| format!("--step {step}: expected one of the steps {steps} of the prediction"))?;
    let last = steps.first + records - 1;
    ensure!(place < records, "--step {step}: the prediction ends at step {last}, which is invalid");
    Ok(place as usize)
}

/// Under the first checkpoint that witnesses have cosigned, which proves the earliest time; if there is none, under the
/// smallest, which stays the same as the log grows.
fn proof(ledger: &Ledger, entries: &Entries, logged: Logged) -> anyhow::Result<Logged> {
    let (bytes, index) = (&entries.prediction_bytes, logged.index);
    let first = ledger.first_proof(bytes, index)?;
    if first.signed.is_cosigned() {
        return Ok(first);
    }
    let smallest = smallest(ledger, entries, logged)?;
    Ok(ledger.proof(bytes, index, smallest.head.size.0)?)
}

fn opened(entries: &Entries, secrets: &Secrets, place: usize, logged: Logged) -> OpenedStep {
    let step = secrets.body.first + place as u64;
    let mut seals = secrets.body.step_seals(secrets.salt);
    seals.remove(place);
    OpenedStep {
        checkpoint: logged.signed.note,
        prediction: ProvenEntry {
            index: logged.index,
            bytes: entries.prediction_bytes.clone(),
            proof: logged.proof.inclusion.0.iter().map(|hash| *hash.as_bytes()).collect(),
        },
        run: entries.run.clone(),
        step,
        salt: step_salt(secrets.salt, step),
        record: secrets.body.records[place].clone(),
        seals,
    }
}

/// Checks the file as its reader will.
fn checked(ledger: &Ledger, entries: &Entries, bytes: &[u8]) -> anyhow::Result<verify::opened::Report> {
    let own = Policy::new(ledger.key().clone(), vec![entries.predictor], vec![], vec![])?;
    let report = check(bytes, &own);
    ensure!(
        report.class == Class::Agreeing,
        "the opened step does not stand its own check: {}",
        report.summary()
    );
    Ok(report)
}
