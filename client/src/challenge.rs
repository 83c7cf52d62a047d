//! `client challenge`: the checkpoint that receipts have to answer.

use crate::atomic;
use crate::cli::ChallengeArgs;
use crate::folder::read_entries;
use crate::output;
use crate::submit::{connect, find_prediction};
use schemas::challenge::challenge;

/// Finds the prediction, checks that a signed checkpoint covers it, and writes the checkpoint's exact bytes.
///
/// There is nothing to wait for: a log answers a submission only when a checkpoint covers it, and a proof of
/// inclusion comes with the checkpoint it is proven in.
pub fn run(args: &ChallengeArgs) -> anyhow::Result<u8> {
    let entries = read_entries(&args.prediction)?;
    let ledger = connect(&args.ledger, args.log_key.as_deref())?;
    let (logged, _) = find_prediction(&ledger, &entries)?;
    atomic::write(&args.out, &logged.signed.note, atomic::PUBLIC)?;
    output::result(&format!(
        "challenge {}: prediction at index {} is covered by the checkpoint of size {}\n",
        challenge(entries.id, &logged.signed.note),
        logged.index,
        logged.signed.head.size
    ));
    Ok(output::YES)
}
