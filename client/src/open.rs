//! `client open`: a sealed prediction, opened without a verdict; and the opening itself, as `client reconcile` makes
//! it too.

use crate::cli::OpenArgs;
use crate::deadline;
use crate::folder::{Entries, Secrets, read_entries, read_secrets};
use crate::keyfile;
use crate::ledger::Ledger;
use crate::open_step;
use crate::output::{self, Hinted};
use crate::submit::{connect, find_prediction};
use anyhow::ensure;
use schemas::attachment::AttachmentName;
use schemas::key::SecretKey;
use schemas::opening::Opening;
use schemas::prediction::OpenBody;
use schemas::receipt::Receipt;
use schemas::run::Steps;
use schemas::statement::{Payload, Statement};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Most receipts of a run that are read to see whether some are missing.
const RECEIPTS_READ_MAX: usize = 1000;

/// Runs the command: a whole prediction, or one step of it.
pub fn run(args: &OpenArgs) -> anyhow::Result<u8> {
    match (args.step, &args.out, &args.key) {
        (Some(step), Some(out), _) => open_step::run(args, step, out),
        (_, _, Some(key)) => whole(args, key),
        _ => anyhow::bail!("expected --key, or --step and --out"),
    }
}

/// Opens a whole prediction. Everything that can be refused is refused before anything is sent.
fn whole(args: &OpenArgs, key: &Path) -> anyhow::Result<u8> {
    let entries = read_entries(&args.prediction)?;
    let key = predictors_key(key, &entries)?;
    let secrets = read_secrets(&entries)?;
    let ledger = connect(&args.ledger, Some(&args.log_key))?;
    let logged = find_prediction(&ledger, &entries)?;
    let opening = opening_of(&entries, &secrets, &key)?;
    let earlier = match &opening {
        Some(bytes) => ledger.find(bytes)?.map(|logged| logged.index),
        None => None,
    };
    let now_unix_s = deadline::now_unix_s();
    if opening.is_some() && earlier.is_none() {
        output::note(&sealed_note(&entries, now_unix_s));
        if !args.without_receipts {
            stop_if_receipts_are_missing(&ledger, &entries, logged.index)?;
        }
    }

    // Point of no return: from here on anybody can read the prediction.
    let placed = open(&ledger, &secrets, opening)?.map(|(_, index)| index);

    let body = AttachmentName::of(&secrets.body_bytes);
    let prediction = format!("prediction {} (entry {})", entries.prediction_digest, logged.index);
    let text = match (placed, earlier) {
        (None, _) => format!("{prediction} was made openly: there is nothing to open"),
        (Some(index), Some(_)) => format!("{prediction} was open already, by entry {index}"),
        (Some(index), None) => format!("{prediction} is open, by entry {index}"),
    };
    if args.json {
        let value = json!({
            "run": entries.id.to_string(),
            "prediction": entries.prediction_digest.to_string(),
            "prediction_index": logged.index,
            "opening_index": placed,
            "repeated": earlier.is_some(),
            "body": body.sha256.to_string(),
            "body_bytes": body.bytes,
            "reveal_by_unix_s": entries.prediction.reveal_by,
        });
        output::result(&format!("{value}\n"));
    } else {
        let (steps, address) = (entries.prediction.steps, ledger.address());
        output::result(&format!(
            "{text}\nsteps {steps} of run {}: {} bytes at {address}/attachments/{}\n",
            entries.id, body.bytes, body.sha256
        ));
    }
    if let (Some(index), None) = (placed, earlier) {
        output::note(&format!(
            "this cannot be taken back: receipts logged after entry {index} are not judged"
        ));
        output::hint(
            "`client reconcile` still compares the receipts that were logged before, and logs the verdict",
        );
    }
    Ok(output::YES)
}

/// The predictor's secret key from a file, by which alone a prediction is opened.
pub(crate) fn predictors_key(path: &Path, entries: &Entries) -> anyhow::Result<SecretKey> {
    let key = keyfile::load(path)?;
    ensure!(
        key.public() == entries.predictor,
        "{}: expected the predictor's key {}, found {}",
        path.display(),
        entries.predictor,
        key.public()
    );
    Ok(key)
}

/// How a prediction that is still sealed stands.
pub(crate) fn sealed_note(entries: &Entries, now_unix_s: u64) -> String {
    let told = deadline::tell(entries.prediction.reveal_by, now_unix_s);
    format!("the prediction is sealed: {told} (this machine's clock)")
}

/// The statement that opens a sealed prediction; the same bytes every time, so that a second call finds the first's.
pub(crate) fn opening_of(
    entries: &Entries,
    secrets: &Secrets,
    key: &SecretKey,
) -> anyhow::Result<Option<Vec<u8>>> {
    if entries.prediction.open.is_some() {
        return Ok(None);
    }
    let open = OpenBody { salt: secrets.salt, body: AttachmentName::of(&secrets.body_bytes) };
    let opening = Opening { run: entries.id, prediction: entries.prediction_digest, open };
    Ok(Some(Statement::sign(&Payload::Opening(opening), key)?))
}

/// Opens a sealed prediction: the body first, so that whoever sees the opening can have it.
pub(crate) fn open(
    ledger: &Ledger,
    secrets: &Secrets,
    opening: Option<Vec<u8>>,
) -> anyhow::Result<Option<(Vec<u8>, u64)>> {
    ledger.attach(&secrets.body_bytes)?;
    let Some(bytes) = opening else { return Ok(None) };
    let index = ledger.submit(&bytes)?.index;
    Ok(Some((bytes, index)))
}

/// Receipts that come after the opening are not judged, so those there are should be in the log. This is a courtesy:
/// which receipts there will be, nobody can know, and anybody can log one.
fn stop_if_receipts_are_missing(ledger: &Ledger, entries: &Entries, prediction: u64) -> anyhow::Result<()> {
    let listed = ledger.run_entries(entries.id)?;
    let mut receipts = Vec::new();
    for entry in listed.iter().filter(|entry| entry.kind == "receipt" && entry.index > prediction) {
        if receipts.len() == RECEIPTS_READ_MAX {
            break;
        }
        if let Payload::Receipt(receipt) = Statement::open(&ledger.entry(entry.digest)?)?.payload {
            receipts.push(*receipt);
        }
    }
    let Some(missing) = missing(&receipts, entries.prediction.steps) else { return Ok(()) };
    let message = format!("{missing}; nothing was opened");
    let hint = "`client reconcile` logs receipts, opens the prediction and logs a verdict. To open it all the same, \
                give --without-receipts: this cannot be taken back, and receipts logged later are not judged";
    Err(Hinted::new(message, hint).into())
}

/// Which devices' receipts are wanting, in words; nothing if those of some number of devices are all there.
pub(crate) fn missing(receipts: &[Receipt], steps: Steps) -> Option<String> {
    let mut ranks: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
    for receipt in receipts.iter().filter(|receipt| receipt.steps.overlaps(steps)) {
        ranks.entry(receipt.devices).or_default().insert(receipt.rank);
    }
    let nearest = ranks.iter().min_by_key(|(devices, ranks)| **devices - ranks.len() as u64);
    let Some((devices, ranks)) = nearest else {
        return Some(format!("the log holds no receipt of steps {steps} of this run"));
    };
    let absent: Vec<u64> = (0..*devices).filter(|rank| !ranks.contains(rank)).collect();
    match absent[..] {
        [] => None,
        [rank] => Some(format!("the log holds no receipt of device {rank} of {devices}")),
        [rank, ..] => {
            let more = absent.len() - 1;
            Some(format!("the log holds no receipt of device {rank} of {devices}, and of {more} more"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schemas::digest::RunId;
    use schemas::receipt::DeviceFacts;

    fn receipt(rank: u64, devices: u64, first: u64, end: u64) -> Receipt {
        let text = String::new;
        let facts =
            DeviceFacts { name: text(), architecture: text(), driver: text(), units: 1, kernels: text() };
        let body = AttachmentName::of(b"");
        let (run, steps) = (RunId([1; 32]), Steps { first, end });
        Receipt { run, steps, devices, rank, simulated: true, facts, checkpoint: vec![], answer: None, body }
    }

    #[test]
    fn receipts_are_missing_until_those_of_some_number_of_devices_are_all_there() {
        let steps = Steps { first: 3, end: 6 };
        let told = |receipts: &[Receipt]| missing(receipts, steps).unwrap_or_default();
        let none = "the log holds no receipt of steps 3..6 of this run";
        assert_eq!(told(&[]), none);
        assert_eq!(told(&[receipt(0, 1, 0, 3)]), none, "other steps");
        let two_of_four = [receipt(0, 4, 3, 6), receipt(2, 4, 3, 6), receipt(2, 4, 0, 6)];
        assert_eq!(told(&two_of_four), "the log holds no receipt of device 1 of 4, and of 1 more");
        let with = |receipt: Receipt| [&two_of_four[..], &[receipt]].concat();
        assert_eq!(told(&with(receipt(1, 2, 3, 6))), "the log holds no receipt of device 0 of 2");
        assert_eq!(missing(&with(receipt(0, 1, 3, 6)), steps), None);
    }
}
