//! `client keygen` and `client submit`, and connecting to a log.

use crate::cli::{KeygenArgs, SubmitArgs};
use crate::folder::{Entries, read_statement};
use crate::keyfile;
use crate::ledger::{Ledger, Logged};
use crate::output::{self, Hinted};
use schemas::statement::StatementError;

/// Makes a key and prints its public half.
pub fn keygen(args: &KeygenArgs) -> anyhow::Result<u8> {
    let key = keyfile::create(&args.file)?;
    output::result(&format!("{}\n", key.public()));
    Ok(output::YES)
}

/// Submits a statement and prints its place.
pub fn run(args: &SubmitArgs) -> anyhow::Result<u8> {
    let (bytes, statement) = read_statement(&args.file).map_err(|error| {
        if error.downcast_ref::<StatementError>().is_none() {
            return error;
        }
        let hint = "cut short, or not a statement? `oracle predict` and `device run` write them (.cose)";
        Hinted::new(output::message_of(&error), hint).into()
    })?;
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

/// Where a prediction stands in the log, proven.
pub fn find_prediction(ledger: &Ledger, entries: &Entries) -> anyhow::Result<Logged> {
    // It is not submitted here: a prediction that comes after its receipts is none.
    let found = ledger.find(&entries.prediction_bytes)?;
    Ok(found.ok_or_else(|| {
        Hinted::new(
            format!("prediction {} is not in the log at {}", entries.prediction_digest, ledger.address()),
            "`oracle predict --commit --ledger URL` puts it there, before the devices run",
        )
    })?)
}
