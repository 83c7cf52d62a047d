//! `client keygen` and `client submit`, and connecting to a log.

use crate::cli::{KeygenArgs, SubmitArgs};
use crate::folder::{Entries, read_statement};
use crate::keyfile;
use crate::ledger::{Ledger, Logged, RunEntry};
use crate::output::{self, Hinted};

/// Makes a key and prints its public half.
pub fn keygen(args: &KeygenArgs) -> anyhow::Result<u8> {
    let key = keyfile::create(&args.file)?;
    output::result(&format!("{}\n", key.public()));
    Ok(output::YES)
}

/// Submits a statement and prints its place.
pub fn run(args: &SubmitArgs) -> anyhow::Result<u8> {
    let (bytes, statement) = read_statement(&args.file)?;
    let ledger = connect(&args.ledger, args.log_key.as_deref())?;
    let logged = ledger.submit(&bytes)?;
    output::result(&format!(
        "{} {} at index {} of {}{}\n",
        statement.payload.stem(),
        logged.digest,
        logged.index,
        tlog::note::Verifier::name(ledger.key()),
        if logged.repeated { " (it was there)" } else { "" }
    ));
    Ok(output::YES)
}

/// Connects to a log, by its key if there is one.
pub fn connect(address: &str, log_key: Option<&str>) -> anyhow::Result<Ledger> {
    let key = log_key.map(keyfile::log_key).transpose()?;
    let ledger = Ledger::connect(address, key.as_ref())?;
    if key.is_none() {
        output::note(&format!("no --log-key given: taking the key that the server names, {}", ledger.key()));
    }
    Ok(ledger)
}

/// Where a prediction stands in the log, proven, and what else the server lists of its run.
pub fn find_prediction(ledger: &Ledger, entries: &Entries) -> anyhow::Result<(Logged, Vec<RunEntry>)> {
    let listed = ledger.run_entries(entries.id)?;
    let found = listed.iter().find(|entry| entry.digest == entries.prediction_digest);
    // It is not submitted here: a prediction that comes after its receipts is none.
    let found = found.ok_or_else(|| {
        Hinted::new(
            format!("prediction {} is not in the log at {}", entries.prediction_digest, ledger.address()),
            "`oracle predict --commit --ledger URL` puts it there, before the devices run",
        )
    })?;
    let logged = ledger.proof(&entries.prediction_bytes, found.index, None)?;
    Ok((logged, listed))
}
