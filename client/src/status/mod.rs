//! `client status`: how a run stands in a log, checked as far as the log's proofs go.

mod gather;
mod judge;
mod tell;

use crate::cli::StatusArgs;
use crate::deadline;
use crate::folder::read_entries;
use crate::keyfile;
use crate::output::{self, Hinted};
use crate::submit::connect;
use gather::gather;
use judge::judge;
use schemas::digest::{EntryDigest, RunId};
use schemas::key::PublicKey;
use std::path::Path;

/// What is asked about.
struct Asked {
    run: RunId,
    /// Whose predictions count; nobody named means everybody's.
    predictors: Vec<PublicKey>,
    /// The folder's own prediction.
    own: Option<EntryDigest>,
}

/// Runs the command. Its status is 1 if something that counts is overdue, or wrong.
pub fn run(args: &StatusArgs) -> anyhow::Result<u8> {
    let asked = asked(args)?;
    let ledger = connect(&args.ledger, Some(&args.log_key))?;
    let found = gather(&ledger, asked.run, &asked.predictors)?;
    let now_unix_s = args.at.unwrap_or_else(deadline::now_unix_s);
    let standing = judge(&ledger, found, &asked, now_unix_s)?;
    if args.json {
        output::result(&format!("{}\n", tell::to_json(&standing)));
    } else {
        output::result(&output::printable(&tell::tell(&standing)));
    }
    if let Some(next) = &standing.next {
        output::hint(&format!("next: {next}"));
    }
    Ok(if standing.is_wrong() { output::NOT_SO } else { output::YES })
}

/// A run id, or a folder of which the run and the predictor are asked about.
fn asked(args: &StatusArgs) -> anyhow::Result<Asked> {
    let keys = args.predictor_key.iter().map(|text| Ok(keyfile::public_key(text)?));
    let mut predictors: Vec<PublicKey> = keys.collect::<anyhow::Result<_>>()?;
    let folder = Path::new(&args.subject);
    if !folder.is_dir() {
        let run = args.subject.parse().map_err(|error| {
            let hint =
                "`oracle predict` prints the run id, all of it; or give OUT/prediction, the folder it writes";
            Hinted::new(format!("expected a run id or a prediction's folder: {error}"), hint)
        })?;
        return Ok(Asked { run, predictors, own: None });
    }
    let entries = read_entries(folder)?;
    if predictors.is_empty() {
        predictors.push(entries.predictor);
    }
    Ok(Asked { run: entries.id, predictors, own: Some(entries.prediction_digest) })
}
