//! What a log holds of a run: the entries it lists, each opened and proven, and whether its register lists others.

use crate::ledger::{Ledger, LedgerError, RunEntry, SignedHead};
use crate::output::Hinted;
use anyhow::{Context as _, ensure};
use schemas::digest::{EntryDigest, RunId};
use schemas::key::PublicKey;
use schemas::opening::Opening;
use schemas::prediction::Prediction;
use schemas::receipt::Receipt;
use schemas::register::EntryLeaf;
use schemas::run::Run;
use schemas::statement::{Payload, Statement};
use schemas::verdict::Verdict;
use std::collections::BTreeSet;
use tlog::note::Verifier as _;
use tlog::tree::TreeHead;
use verify::completeness::check;
use verify::report::Class;

/// Most entries that are opened; of a run with more, those by which predictions are judged come first.
const ENTRIES_MAX: usize = 1000;

/// An entry that is in the log, as it was opened.
pub(super) struct Seen<T> {
    pub(super) index: u64,
    pub(super) digest: EntryDigest,
    pub(super) signer: PublicKey,
    pub(super) object: T,
}

/// A run's entries by kind, by ascending index.
pub(super) struct Found {
    pub(super) id: RunId,
    /// The log's origin, and the tree that all are proven in.
    pub(super) origin: String,
    pub(super) signed: SignedHead,
    pub(super) run: Seen<Run>,
    pub(super) predictions: Vec<Seen<Prediction>>,
    pub(super) openings: Vec<Seen<Opening>>,
    pub(super) receipts: Vec<Seen<Receipt>>,
    pub(super) verdicts: Vec<Seen<Verdict>>,
    /// Whether the server says that it listed all.
    pub(super) complete: bool,
    /// What is not shown, in words.
    pub(super) notes: Vec<String>,
    /// Why the newest register does not hold, if it does not.
    pub(super) register_fails: Option<String>,
}

/// Fetches, opens and proves the entries of a run; `predictors` are those asked about, if anybody is.
pub(super) fn gather(ledger: &Ledger, run: RunId, predictors: &[PublicKey]) -> anyhow::Result<Found> {
    // Register, list, tree, in this order: each covers what the one before it has.
    let register = register(ledger, run)?;
    let (mut listed, complete) = ledger.run_listing(run)?;
    let signed = ledger.checkpoint()?;
    let mut notes = Vec::new();
    let register_fails = match register {
        Some(bytes) => registered(ledger, run, &bytes, (&listed, complete), signed.head, &mut notes)?,
        None => {
            notes.push(
                "that the list leaves nothing out is the server's word: it gives no register of the run"
                    .into(),
            );
            None
        }
    };
    if !complete {
        notes.push("the server lists only a part of the run's entries".into());
    }
    let all = listed.len();
    in_order(&mut listed, predictors);
    listed.truncate(ENTRIES_MAX);
    if all > ENTRIES_MAX {
        notes.push(format!("{ENTRIES_MAX} of {all} listed entries were looked at"));
    }
    let mut kinds = Kinds::default();
    for row in listed.iter().filter(|row| row.kind != "register") {
        kinds.push(ledger, run, row, &signed)?;
    }
    let run_entry = kinds.runs.into_iter().next().ok_or_else(|| {
        Hinted::new(
            format!("run {run} is not in the log at {}", ledger.address()),
            "`oracle predict --commit --ledger URL` puts a run and its prediction there",
        )
    })?;
    Ok(Found {
        id: run,
        origin: ledger.key().name().to_string(),
        signed,
        run: run_entry,
        predictions: kinds.predictions,
        openings: kinds.openings,
        receipts: kinds.receipts,
        verdicts: kinds.verdicts,
        complete,
        notes,
        register_fails,
    })
}

/// In which order entries are looked at, where they are too many: nobody's flood hides an opening. Keys cost nothing:
/// what the predictors asked about have signed comes before what others have; where nobody is asked about, what the
/// signer of the first run statement has.
fn in_order(listed: &mut [RunEntry], predictors: &[PublicKey]) {
    let first = listed.iter().filter(|entry| entry.kind == "run").min_by_key(|entry| entry.index);
    let first = first.map(|entry| (entry.index, entry.signer));
    let asked = |signer: PublicKey| match predictors {
        [] => first.is_some_and(|(_, first)| first == signer),
        _ => predictors.contains(&signer),
    };
    listed.sort_by_key(|entry| {
        let is_first = first.is_some_and(|(index, _)| index == entry.index);
        (!is_first, !asked(entry.signer), rank(&entry.kind), entry.index)
    });
}

fn rank(kind: &str) -> u8 {
    match kind {
        "run" => 0,
        // A prediction whose opening is not looked at would be called sealed.
        "opening" => 1,
        "prediction" => 2,
        "verdict" => 3,
        "receipt" => 4,
        _ => 5,
    }
}

/// Entries by kind.
#[derive(Default)]
struct Kinds {
    runs: Vec<Seen<Run>>,
    predictions: Vec<Seen<Prediction>>,
    openings: Vec<Seen<Opening>>,
    receipts: Vec<Seen<Receipt>>,
    verdicts: Vec<Seen<Verdict>>,
}

impl Kinds {
    /// Opens a listed entry and proves its place.
    fn push(
        &mut self,
        ledger: &Ledger,
        run: RunId,
        row: &RunEntry,
        signed: &SignedHead,
    ) -> anyhow::Result<()> {
        let bytes = ledger.entry(row.digest)?;
        let Statement { digest, signer, payload } =
            Statement::open(&bytes).map_err(|error| lied(row, &error.to_string()))?;
        let (kind, of) = (payload.stem(), payload.run());
        ensure!(
            kind == row.kind && signer == row.signer && of == run,
            lied(row, &format!("it is a {kind} of run {of} by {signer}"))
        );
        let logged = ledger.proof(&bytes, row.index, signed.head.size.0)?;
        ensure!(
            logged.signed.head == signed.head,
            Hinted::new(
                format!("the log signed two trees of size {}", signed.head.size),
                "keep what the server sent: it is evidence against the log's operator",
            )
        );
        let index = row.index;
        match payload {
            Payload::Run(object) => self.runs.push(Seen { index, digest, signer, object }),
            Payload::Prediction(object) => self.predictions.push(Seen { index, digest, signer, object }),
            Payload::Opening(object) => self.openings.push(Seen { index, digest, signer, object }),
            Payload::Receipt(object) => self.receipts.push(Seen { index, digest, signer, object: *object }),
            Payload::Verdict(object) => self.verdicts.push(Seen { index, digest, signer, object: *object }),
            Payload::Register(_) => {}
        }
        Ok(())
    }
}

fn lied(row: &RunEntry, found: &str) -> anyhow::Error {
    anyhow::anyhow!("the server lists entry {} as a {} by {}; {found}", row.index, row.kind, row.signer)
}

/// The completeness file of a run, if there is a register of it.
fn register(ledger: &Ledger, run: RunId) -> anyhow::Result<Option<Vec<u8>>> {
    match ledger.completeness(run, true) {
        Err(LedgerError::Http(error)) if error.status() == Some(404) => Ok(None),
        other => Ok(Some(other?)),
    }
}

/// Holds the list against the newest register of the run, which is the log's signed word. Returns why that does not
/// hold, if it does not; and notes what no register covers.
fn registered(
    ledger: &Ledger,
    run: RunId,
    register: &[u8],
    (listed, complete): (&[RunEntry], bool),
    head: TreeHead,
    notes: &mut Vec<String>,
) -> anyhow::Result<Option<String>> {
    let report = check(register, ledger.key(), &[]);
    let Some(found) = &report.complete else {
        return match report.class {
            Class::CouldNot => Err(anyhow::anyhow!("the server's completeness: {}", report.summary())),
            _ => Ok(Some(report.summary())),
        };
    };
    ensure!(found.run == run, "the server gave the completeness of run {}, expected run {run}", found.run);
    if found.head != head {
        ledger.consistency(found.head, head).context("the register's tree")?;
    }
    let entries = found.entries.as_deref().unwrap_or_default();
    if let Some(why) = left_out(entries, (listed, complete)) {
        return Ok(Some(why));
    }
    notes.push(format!(
        "that nothing below entry {} is left out is the log's signed word; from there on it is the server's",
        found.size
    ));
    Ok(None)
}

/// The first entry of a register that is not among those listed, in words; of a list that says that it is cut, none.
fn left_out(entries: &[EntryLeaf], (listed, complete): (&[RunEntry], bool)) -> Option<String> {
    if !complete {
        return None;
    }
    let rows: BTreeSet<_> =
        listed.iter().map(|row| (row.index, row.kind.as_str(), row.signer, row.digest)).collect();
    let is_listed = |leaf: &&EntryLeaf| rows.contains(&(leaf.index, leaf.kind, leaf.signer, leaf.entry));
    let leaf = entries.iter().find(|leaf| !is_listed(leaf))?;
    let (index, kind) = (leaf.index, leaf.kind);
    Some(format!("the log's register has {kind} {index}, and the server's list has not"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use schemas::key::SecretKey;

    #[test]
    fn an_entry_of_the_register_that_is_not_listed_as_it_is_is_told() {
        let signer = SecretKey::from_seed([1; 32]).public();
        let digest = |index: u64| EntryDigest([index as u8; 32]);
        let row = |index, kind: &str| RunEntry { index, kind: kind.into(), signer, digest: digest(index) };
        let leaf = |index, kind| EntryLeaf { index, kind, signer, entry: digest(index) };
        let entries = [leaf(1, "run"), leaf(2, "prediction"), leaf(5, "opening")];
        let mut listed = vec![row(1, "run"), row(2, "prediction"), row(5, "opening"), row(7, "verdict")];
        assert_eq!(left_out(&entries, (&listed, true)), None);
        listed[2].kind = "receipt".into();
        let told = "the log's register has opening 5, and the server's list has not";
        assert_eq!(left_out(&entries, (&listed, true)).as_deref(), Some(told));
        listed.remove(2);
        assert_eq!(left_out(&entries, (&listed, true)).as_deref(), Some(told));
        assert_eq!(left_out(&entries, (&listed, false)), None, "a list that is cut, and says so");
        listed[1].digest = digest(9);
        assert!(left_out(&entries, (&listed, true)).unwrap().contains("has prediction 2, "));
    }

    #[test]
    fn no_flood_of_strangers_comes_before_what_is_asked_about() {
        let key = |number: u8| SecretKey::from_seed([number; 32]).public();
        let row = |index, kind: &str, signer| {
            let digest = EntryDigest([index as u8; 32]);
            RunEntry { index, kind: kind.into(), signer, digest }
        };
        let (own, other) = (key(1), key(2));
        let mut listed = vec![row(1, "run", own), row(2, "prediction", own)];
        let kinds = ["run", "prediction", "opening", "verdict", "receipt"];
        listed.extend((3..23).map(|index| row(index, kinds[index as usize % 5], key(index as u8))));
        listed.extend([row(30, "opening", own), row(31, "verdict", own), row(32, "register", own)]);
        listed.extend([row(33, "prediction", other), row(34, "opening", other)]);
        let order = |predictors: &[PublicKey]| {
            let mut listed = listed.clone();
            in_order(&mut listed, predictors);
            listed.iter().map(|entry| entry.index).collect::<Vec<u64>>()
        };
        // Nobody is asked about: whoever stated the run first.
        for asked in [&[][..], &[own]] {
            assert_eq!(order(asked)[..5], [1, 30, 2, 31, 32]);
        }
        // Of another predictor the run is what it was.
        assert_eq!(order(&[other])[..3], [1, 34, 33]);
        // Of strangers, receipts come last: what predictions are judged by comes before them.
        let last: Vec<u64> = (3..23).filter(|index| index % 5 == 4).collect();
        assert!(order(&[own]).ends_with(&last), "{:?}", order(&[own]));
    }
}
