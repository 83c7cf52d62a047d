//! `client challenge`: the checkpoint that receipts have to answer.

use crate::atomic::{self, WriteError};
use crate::cli::ChallengeArgs;
use crate::deadline;
use crate::folder::{Entries, read_entries, read_file};
use crate::ledger::{Ledger, LedgerError, Logged, SignedHead};
use crate::output::{self, Hinted};
use crate::submit::{connect, find_prediction};
use schemas::challenge::{CHECKPOINT_BYTES_MAX, challenge};
use std::io::ErrorKind;
use std::path::Path;

/// Finds the prediction, checks that a signed checkpoint covers it, and writes the checkpoint's exact bytes.
///
/// A log answers a submission only when a checkpoint covers it, and a proof of inclusion comes with the checkpoint it
/// is proven in. Only for a log's witnesses there is something to wait for: receipts that hold their cosignatures prove
/// after when they were signed.
pub fn run(args: &ChallengeArgs) -> anyhow::Result<u8> {
    let entries = read_entries(&args.prediction)?;
    let ledger = connect(&args.ledger, args.log_key.as_deref())?;
    let logged = find_prediction(&ledger, &entries)?;
    let index = logged.index;
    let signed = signed_of(&ledger, &entries, logged)?;
    write(&args.out, &signed.note)?;
    let size = signed.head.size.0;
    let which = match size - index {
        1 => "the smallest that there can be".into(),
        2 => "1 entry later than the smallest that there can be".into(),
        more => format!("{} entries later than the smallest that there can be", more - 1),
    };
    output::result(&format!(
        "challenge {}: prediction at index {index} is covered by the checkpoint of size {size}, {which}\n",
        challenge(entries.id, &signed.note),
    ));
    if entries.prediction.open.is_none() {
        // Whether it has been opened meanwhile is for `client status` to say.
        let told = deadline::tell(entries.prediction.reveal_by, deadline::now_unix_s());
        output::note(&format!("unless the prediction has been opened: {told} (this machine's clock)"));
    }
    Ok(output::YES)
}

/// The first cosigned checkpoint that covers the prediction; of a log without witnesses, the smallest one that is
/// published, or else the one it was proven in.
fn signed_of(ledger: &Ledger, entries: &Entries, logged: Logged) -> anyhow::Result<SignedHead> {
    if ledger.is_witnessed()? {
        if let Some(cosigned) = ledger.cosigned(&entries.prediction_bytes, logged.index)? {
            return Ok(cosigned);
        }
        output::note(
            "the log's witnesses have not cosigned in time: receipts will not prove when they were signed",
        );
    }
    smallest(ledger, entries, logged)
}

/// The smallest published checkpoint that covers the prediction, or else the one it was proven in. Of the smallest a
/// reader can tell that nobody chose it: no smaller tree holds the prediction.
pub(crate) fn smallest(ledger: &Ledger, entries: &Entries, logged: Logged) -> anyhow::Result<SignedHead> {
    match ledger.proof(&entries.prediction_bytes, logged.index, logged.index + 1) {
        Ok(smallest) => Ok(smallest.signed),
        // It came into the log together with later entries: no checkpoint ends with it.
        Err(LedgerError::Http(error)) if error.status() == Some(404) => Ok(logged.signed),
        Err(error) => Err(error.into()),
    }
}

/// Writes the checkpoint. A file with other content is left alone: devices may be answering it.
fn write(out: &Path, note: &[u8]) -> anyhow::Result<()> {
    match atomic::write_new(out, note, atomic::PUBLIC) {
        Err(WriteError { source, .. }) if source.kind() == ErrorKind::AlreadyExists => {}
        other => return Ok(other?),
    }
    let there = read_file(out, CHECKPOINT_BYTES_MAX as u64);
    if there.is_ok_and(|bytes| bytes == note) {
        return Ok(());
    }
    let message = format!("{} is there and has other content", out.display());
    let hint = "devices may be answering it, and a challenge stays good as the log grows; for another one, give \
                another name";
    Err(Hinted::new(message, hint).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_challenge_is_never_replaced_by_another() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("challenge.note");
        write(&out, b"first").unwrap();
        write(&out, b"first").unwrap();
        let error = write(&out, b"second").unwrap_err();
        assert!(output::hint_of(&error).unwrap().contains("another name"), "{error}");
        assert_eq!(std::fs::read(&out).unwrap(), b"first");
        let absent = write(&folder.path().join("absent/challenge.note"), b"first").unwrap_err();
        assert!(output::hint_of(&absent).unwrap().contains("make it first"), "{absent}");
    }
}
