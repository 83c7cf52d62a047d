//! The index: what can be looked up without reading the log, in one redb file.
//!
//! It is derived: at the start it is brought up to date from the entries, or made anew. Losing it loses nothing.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::Path;

use schemas::digest::{EntryDigest, RunId};
use schemas::key::PublicKey;
use schemas::register::{PredictionLeaf, Register};
use schemas::run::Steps;
use schemas::statement::{Payload, Statement};

use crate::error::LogError;
use crate::order::registers::RunLists;
use crate::order::rows::{Ask, Changing, Difference, Rows, Table, Visit, Way, difference};

/// Which tables there are. An index of another version is made anew.
const VERSION: u64 = 4;
/// Bytes of a digest that are in a key. What is found by them is compared whole.
const PREFIX_BYTES: usize = 8;

const FACTS_BYTES: usize = 1 + 3 * 32;

/// What kind of entry something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The log's first entry.
    Genesis,
    /// A `run` statement.
    Run,
    /// A `prediction` statement.
    Prediction,
    /// An `opening` statement.
    Opening,
    /// A `receipt` statement.
    Receipt,
    /// A `verdict` statement.
    Verdict,
    /// A `register` statement.
    Register,
    /// An entry that this version cannot read.
    Unknown,
}

impl Kind {
    const ALL: [Kind; 8] = [
        Kind::Genesis,
        Kind::Run,
        Kind::Prediction,
        Kind::Opening,
        Kind::Receipt,
        Kind::Verdict,
        Kind::Unknown,
        Kind::Register,
    ];

    /// The word: a statement's stem, or `genesis`, or `unknown`.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Genesis => "genesis",
            Kind::Run => "run",
            Kind::Prediction => "prediction",
            Kind::Opening => "opening",
            Kind::Receipt => "receipt",
            Kind::Verdict => "verdict",
            Kind::Register => "register",
            Kind::Unknown => "unknown",
        }
    }
}

/// What the index knows of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryFacts {
    /// Its kind.
    pub kind: Kind,
    /// Its digest, which names it.
    pub digest: EntryDigest,
    /// The run it belongs to; none if it is not a statement.
    pub run: Option<RunId>,
    /// Who signed it; none if it is not a statement.
    pub signer: Option<PublicKey>,
}

impl EntryFacts {
    /// The facts of a statement.
    pub fn of(statement: &Statement) -> EntryFacts {
        let kind = match &statement.payload {
            Payload::Run(_) => Kind::Run,
            Payload::Prediction(_) => Kind::Prediction,
            Payload::Opening(_) => Kind::Opening,
            Payload::Receipt(_) => Kind::Receipt,
            Payload::Verdict(_) => Kind::Verdict,
            Payload::Register(_) => Kind::Register,
        };
        let run = Some(statement.payload.run());
        EntryFacts { kind, digest: statement.digest, run, signer: Some(statement.signer) }
    }

    fn encode(&self) -> [u8; FACTS_BYTES] {
        let mut bytes = [0; FACTS_BYTES];
        bytes[0] =
            Kind::ALL.iter().position(|kind| *kind == self.kind).expect("ledger: every kind is listed") as u8;
        bytes[1..33].copy_from_slice(&self.digest.0);
        bytes[33..65].copy_from_slice(&self.run.map_or([0; 32], |run| run.0));
        bytes[65..].copy_from_slice(&self.signer.map_or([0; 32], PublicKey::to_bytes));
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<EntryFacts> {
        let bytes: &[u8; FACTS_BYTES] = bytes.try_into().ok()?;
        let part = |at: usize| -> [u8; 32] { bytes[at..at + 32].try_into().expect("ledger: 32 of 97 bytes") };
        let kind = Kind::ALL.get(usize::from(bytes[0])).copied().unwrap_or(Kind::Unknown);
        let statement = !matches!(kind, Kind::Genesis | Kind::Unknown);
        Some(EntryFacts {
            kind,
            digest: EntryDigest(part(1)),
            run: statement.then(|| RunId(part(33))),
            signer: if statement { PublicKey::from_bytes(part(65)).ok() } else { None },
        })
    }
}

/// An entry that is in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Indexed {
    /// Its leaf index.
    pub index: u64,
    /// What is known of it.
    pub facts: EntryFacts,
}

/// The index of one log.
pub struct Index {
    rows: Rows,
}

impl Index {
    /// Opens the index file; makes one if there is none, and forgets the content of one of another version.
    ///
    /// Every page of the file is read and held against its check. The file's library may panic on a damaged file here;
    /// see [`crate::log::open_index`]. In later reading that is [`LogError::IndexDamaged`].
    pub fn open(path: &Path) -> Result<Index, LogError> {
        Ok(Index { rows: Rows::open(path, VERSION)? })
    }

    /// Number of entries indexed.
    pub fn size(&self) -> Result<u64, LogError> {
        size(&self.rows.read()?)
    }

    /// The first row in which this index differs from another.
    pub fn difference(&self, expected: &Index) -> Result<Option<Difference>, LogError> {
        difference(&self.rows.read()?, &expected.rows.read()?)
    }

    /// Starts a change; there is one at a time. A change that is dropped has not happened.
    pub fn begin(&self) -> Result<Change<'_>, LogError> {
        let rows = self.rows.begin()?;
        Ok(Change { rows, lists: RefCell::default() })
    }

    /// Takes away what was changed since the last time, to be merged into the file. Not while that is being done, nor
    /// during a change.
    pub fn freeze(&self) -> bool {
        self.rows.freeze()
    }

    /// Merges what was taken away into the file, so that the next start need not catch up with it.
    pub fn merge(&self) -> Result<(), LogError> {
        self.rows.merge()
    }

    /// Merges all there is.
    pub fn sync(&self) -> Result<(), LogError> {
        self.merge()?;
        self.freeze();
        self.merge()
    }

    /// The leaf index of the entry with this digest.
    pub fn find(&self, digest: EntryDigest) -> Result<Option<u64>, LogError> {
        find(&self.rows.read()?, digest)
    }

    /// What is known of an entry.
    pub fn facts(&self, index: u64) -> Result<Option<EntryFacts>, LogError> {
        let found = self.rows.read()?.get(Table::Facts, &index.to_be_bytes())?;
        Ok(found.and_then(|facts| EntryFacts::decode(&facts)))
    }

    /// Up to `count` entries below `before`, newest first.
    pub fn newest(&self, before: u64, count: usize) -> Result<Vec<Indexed>, LogError> {
        let mut found = Vec::new();
        let range = (&[][..], &before.to_be_bytes()[..]);
        self.rows.read()?.scan(Table::Facts, range, Way::Down, &mut |index, facts| {
            if let Some(facts) = EntryFacts::decode(facts).filter(|_| found.len() < count) {
                found.push(Indexed { index: number(index), facts });
            }
            Ok(found.len() < count)
        })?;
        Ok(found)
    }

    /// Up to `count` runs whose first statement lies below `before`, newest first.
    pub fn newest_runs(&self, before: u64, count: usize) -> Result<Vec<(RunId, u64)>, LogError> {
        let mut found = Vec::new();
        let range = (&[][..], &before.to_be_bytes()[..]);
        self.rows.read()?.scan(Table::RunOrder, range, Way::Down, &mut |index, run| {
            if let Ok(run) = run.try_into()
                && found.len() < count
            {
                found.push((RunId(run), number(index)));
            }
            Ok(found.len() < count)
        })?;
        Ok(found)
    }

    /// The first `count` entries of a run, in log order.
    pub fn of_run(&self, run: RunId, count: usize) -> Result<Vec<Indexed>, LogError> {
        self.of_run_from(run, 0, count)
    }

    /// The first `count` entries of a run from leaf index `from` on, in log order.
    fn of_run_from(&self, run: RunId, from: u64, count: usize) -> Result<Vec<Indexed>, LogError> {
        let mut found = Vec::new();
        let rows = self.rows.read()?;
        scan_run(&rows, run, from, &mut |index, facts| {
            if found.len() < count {
                let index = number(index);
                found.extend(EntryFacts::decode(facts).map(|facts| Indexed { index, facts }));
            }
            Ok(found.len() < count)
        })?;
        Ok(found)
    }
}

/// Rows that are read in one go. Changes wait for a reader, so a long list is read in parts.
const PART_ROWS: usize = 500;

/// What is kept for registers.
impl Index {
    /// Leaf index of a run's newest register below `before`.
    pub fn newest_register(&self, run: RunId, before: u64) -> Result<Option<u64>, LogError> {
        let newest = read_lists(&self.rows.read()?, run)?.newest();
        if newest.is_none_or(|index| index < before) {
            return Ok(newest);
        }
        // The index may be ahead of what is published, by one commit.
        let mut newest = None;
        self.each_of_run(run, before, |entry| {
            if entry.facts.kind == Kind::Register {
                newest = Some(entry.index);
            }
        })?;
        Ok(newest)
    }

    /// Shows every entry of a run below `before`, in log order.
    pub fn each_of_run(
        &self,
        run: RunId,
        before: u64,
        mut visit: impl FnMut(Indexed),
    ) -> Result<(), LogError> {
        let mut from = 0;
        loop {
            let part = self.of_run_from(run, from, PART_ROWS)?;
            let Some(last) = part.last().map(|entry| entry.index) else { return Ok(()) };
            part.into_iter().filter(|entry| entry.index < before).for_each(&mut visit);
            if last >= before {
                return Ok(());
            }
            from = last + 1;
        }
    }

    /// The predictions of a run below `before`, by leaf index; no more than `count` and a few.
    pub fn predictions(
        &self,
        run: RunId,
        before: u64,
        count: usize,
    ) -> Result<Vec<PredictionLeaf>, LogError> {
        let mut leaves = Vec::new();
        let mut from = [&run.0[..], &[0; 40]].concat();
        let to = [&run.0[..], &[0xff; 40]].concat();
        let mut more = true;
        while more && leaves.len() <= count {
            more = false;
            let mut read = 0;
            let rows = self.rows.read()?;
            rows.scan(Table::Predictions, (&from.clone(), &to), Way::Up, &mut |key, value| {
                if read == PART_ROWS {
                    from = key.to_vec();
                    more = true;
                    return Ok(false);
                }
                read += 1;
                let (end, index) = value.split_at_checked(8).unwrap_or_default();
                let facts = rows.get(Table::Facts, index)?.and_then(|facts| EntryFacts::decode(&facts));
                let steps = Steps { first: number(&key[64..]), end: number(end) };
                let index = number(index);
                if let Some(EntryFacts { digest, signer: Some(signer), .. }) =
                    facts.filter(|_| index < before)
                {
                    leaves.push(PredictionLeaf { index, signer, steps, entry: digest });
                }
                Ok(true)
            })?;
        }
        leaves.sort_unstable_by_key(|leaf| leaf.index);
        Ok(leaves)
    }
}

fn read_lists(rows: &dyn Ask, run: RunId) -> Result<RunLists, LogError> {
    let Some(row) = rows.get(Table::RunLists, &run.0)? else { return Ok(RunLists::default()) };
    let damaged = || redb::Error::Corrupted(format!("the lists of run {run}"));
    RunLists::decode(&row).ok_or_else(|| LogError::Index(damaged()))
}

/// A change of the index that becomes visible all at once.
pub struct Change<'a> {
    rows: Changing<'a>,
    /// Lists of the runs that this change is about.
    lists: RefCell<HashMap<RunId, RunLists>>,
}

impl Change<'_> {
    /// Makes the change visible to readers.
    pub fn finish(self) {
        for (run, lists) in self.lists.take() {
            self.rows.put(Table::RunLists, &run.0, &lists.encode());
        }
        self.rows.finish();
    }

    /// Number of entries indexed, this change included.
    pub fn size(&self) -> Result<u64, LogError> {
        size(&self.rows)
    }

    /// The leaf index of the entry with this digest, this change included.
    pub fn find(&self, digest: EntryDigest) -> Result<Option<u64>, LogError> {
        find(&self.rows, digest)
    }

    /// The leaf index of a run's first `run` statement, this change included.
    pub fn find_run(&self, run: RunId) -> Result<Option<u64>, LogError> {
        let mut first = None;
        // Nothing of a run is admitted before its statement.
        scan_run(&self.rows, run, 0, &mut |index, _| {
            first = Some(number(index));
            Ok(false)
        })?;
        Ok(first)
    }

    /// The steps and leaf index of a prediction of the same run and predictor that shares a step with `steps`.
    pub fn find_prediction(
        &self,
        run: RunId,
        signer: PublicKey,
        steps: Steps,
    ) -> Result<Option<(Steps, u64)>, LogError> {
        let key = |first: u64| [&run.0[..], &signer.to_bytes(), &first.to_be_bytes()].concat();
        let mut found = None;
        // Predictions of one key share no step, so only the last that starts before the end of `steps` can reach in.
        let range = (&key(0)[..], &key(steps.end)[..]);
        self.rows.scan(Table::Predictions, range, Way::Down, &mut |key, value| {
            let (end, index) = value.split_at_checked(8).unwrap_or_default();
            found = Some((Steps { first: number(&key[64..]), end: number(end) }, number(index)));
            Ok(false)
        })?;
        Ok(found.filter(|(found, _)| found.overlaps(steps)))
    }

    /// The leaf index of a signer's first opening of a prediction, this change included.
    pub fn find_opening(&self, prediction: EntryDigest, signer: PublicKey) -> Result<Option<u64>, LogError> {
        let found = self.rows.get(Table::Openings, &opening_key(prediction, signer))?;
        Ok(found.map(|index| number(&index)))
    }

    /// The register of a run that would come next, at `index`, this change included.
    pub fn next_register(&self, run: RunId, index: u64) -> Result<Register, LogError> {
        self.with_lists(run, |lists| lists.register(run, index))
    }

    /// The lists of a run, read once for each change.
    fn with_lists<T>(&self, run: RunId, work: impl FnOnce(&mut RunLists) -> T) -> Result<T, LogError> {
        let mut known = self.lists.borrow_mut();
        if let Some(lists) = known.get_mut(&run) {
            return Ok(work(lists));
        }
        let mut lists = read_lists(&self.rows, run)?;
        let result = work(&mut lists);
        known.insert(run, lists);
        Ok(result)
    }

    /// Adds the next entry.
    pub fn insert(&self, index: u64, facts: EntryFacts, payload: Option<&Payload>) -> Result<(), LogError> {
        assert_eq!(self.size()?, index, "ledger: index entries are added in log order");
        let number = index.to_be_bytes();
        let put = |table, key: &[u8], value: &[u8]| self.rows.put(table, key, value);
        put(Table::Meta, SIZE, &(index + 1).to_be_bytes());
        put(Table::Digests, &[&facts.digest.0[..PREFIX_BYTES], &number[..]].concat(), &[]);
        let (Some(payload), Some(run)) = (payload, facts.run) else {
            put(Table::Facts, &number, &facts.encode());
            return Ok(());
        };
        let signer = facts.signer.expect("ledger: a statement has a signer");
        self.with_lists(run, |lists| lists.push(index, facts.digest, signer, payload))?;
        match payload {
            Payload::Run(_) if self.find_run(run)?.is_none() => put(Table::RunOrder, &number, &run.0),
            Payload::Prediction(prediction) => {
                let key = [&run.0[..], &signer.to_bytes(), &prediction.steps.first.to_be_bytes()].concat();
                put(Table::Predictions, &key, &[prediction.steps.end.to_be_bytes(), number].concat());
            }
            Payload::Opening(opening) if self.find_opening(opening.prediction, signer)?.is_none() => {
                put(Table::Openings, &opening_key(opening.prediction, signer), &number);
            }
            _ => {}
        }
        put(Table::Facts, &number, &facts.encode());
        put(Table::Runs, &[&run.0[..PREFIX_BYTES], &number[..]].concat(), &[]);
        Ok(())
    }

    /// Adds the next entry from its bytes, when catching up. They were checked when they came into the log.
    pub fn insert_bytes(&self, index: u64, entry: &[u8]) -> Result<(), LogError> {
        if let Ok(statement) = Statement::reread(entry) {
            return self.insert(index, EntryFacts::of(&statement), Some(&statement.payload));
        }
        let kind = if index == 0 { Kind::Genesis } else { Kind::Unknown };
        let facts = EntryFacts { kind, digest: EntryDigest::of(entry), run: None, signer: None };
        self.insert(index, facts, None)
    }
}

const SIZE: &[u8] = b"size";

fn size(rows: &dyn Ask) -> Result<u64, LogError> {
    Ok(rows.get(Table::Meta, SIZE)?.map_or(0, |size| number(&size)))
}

fn find(rows: &dyn Ask, digest: EntryDigest) -> Result<Option<u64>, LogError> {
    let mut found = None;
    let (from, to) = prefix_range(&digest.0);
    rows.scan(Table::Digests, (&from, &to), Way::Up, &mut |key, _| {
        let index = &key[PREFIX_BYTES..];
        let facts = rows.get(Table::Facts, index)?;
        if facts.is_some_and(|facts| facts.get(1..33) == Some(&digest.0[..])) {
            found = Some(number(index));
        }
        Ok(found.is_none())
    })?;
    Ok(found)
}

/// Shows the index and facts of a run's entries from leaf index `first` on, in log order, until `visit` answers false.
fn scan_run(rows: &dyn Ask, run: RunId, first: u64, visit: Visit<'_>) -> Result<(), LogError> {
    let (mut from, to) = prefix_range(&run.0);
    from[PREFIX_BYTES..].copy_from_slice(&first.to_be_bytes());
    rows.scan(Table::Runs, (&from, &to), Way::Up, &mut |key, _| {
        let index = &key[PREFIX_BYTES..];
        match rows.get(Table::Facts, index)? {
            Some(facts) if facts.get(33..65) == Some(&run.0[..]) => visit(index, &facts),
            _ => Ok(true),
        }
    })
}

/// The range of all keys that begin like a hash.
fn prefix_range(hash: &[u8; 32]) -> (Vec<u8>, Vec<u8>) {
    let prefix = &hash[..PREFIX_BYTES];
    // No leaf index is as high as the upper end.
    ([prefix, &[0; 8]].concat(), [prefix, &[0xff; 8]].concat())
}

fn opening_key(prediction: EntryDigest, signer: PublicKey) -> Vec<u8> {
    [prediction.0, signer.to_bytes()].concat()
}

/// A number as rows hold it. A damaged row has some other one, which whoever follows it notices.
fn number(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(u64::MAX, u64::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use schemas::attachment::AttachmentName;
    use schemas::digest::Salt;
    use schemas::key::SecretKey;
    use schemas::opening::Opening;
    use schemas::prediction::OpenBody;
    use tempfile::TempDir;

    use super::*;

    /// Ids that are the same in what a key has of them.
    const ALIKE: [RunId; 2] = [RunId([7; 32]), alike()];

    const fn alike() -> RunId {
        let mut bytes = [7; 32];
        bytes[31] = 8;
        RunId(bytes)
    }

    fn index() -> (TempDir, Index) {
        let folder = tempfile::tempdir().unwrap();
        let index = Index::open(&folder.path().join("index.redb")).unwrap();
        (folder, index)
    }

    fn facts(kind: Kind, digest: [u8; 32], run: RunId) -> EntryFacts {
        let signer = Some(SecretKey::from_seed([1; 32]).public());
        EntryFacts { kind, digest: EntryDigest(digest), run: Some(run), signer }
    }

    fn opening(run: RunId) -> Payload {
        let open = OpenBody { salt: Salt([9; 32]), body: AttachmentName::of(b"body") };
        Payload::Opening(Opening { run, prediction: EntryDigest([5; 32]), open })
    }

    fn register(run: RunId) -> Payload {
        Payload::Register(RunLists::default().register(run, 0))
    }

    #[test]
    fn digests_and_runs_that_begin_alike_are_told_apart() {
        let (_folder, index) = index();
        let change = index.begin().unwrap();
        for (at, run) in (0..).zip(ALIKE) {
            change.insert(at, facts(Kind::Opening, run.0, run), Some(&opening(run))).unwrap();
        }
        for (at, run) in (0..).zip(ALIKE) {
            assert_eq!(change.find(EntryDigest(run.0)).unwrap(), Some(at));
            assert_eq!(change.find_run(run).unwrap(), Some(at));
        }
        change.finish();
        let mut third = ALIKE[0].0;
        third[31] = 9;
        assert_eq!(index.find(EntryDigest(third)).unwrap(), None);
        assert_eq!(index.of_run(RunId(third), 9).unwrap(), []);
        for (at, run) in (0..).zip(ALIKE) {
            assert_eq!(index.find(EntryDigest(run.0)).unwrap(), Some(at));
            let found: Vec<u64> = index.of_run(run, 9).unwrap().iter().map(|entry| entry.index).collect();
            assert_eq!(found, [at]);
        }
    }

    #[test]
    fn the_first_opening_of_a_signer_stays_the_first() {
        let (_folder, index) = index();
        let change = index.begin().unwrap();
        for at in 0..2 {
            let facts = facts(Kind::Opening, [at as u8; 32], ALIKE[0]);
            change.insert(at, facts, Some(&opening(ALIKE[0]))).unwrap();
        }
        let signer = SecretKey::from_seed([1; 32]).public();
        assert_eq!(change.find_opening(EntryDigest([5; 32]), signer).unwrap(), Some(0));
    }

    #[test]
    fn a_register_above_what_is_published_is_not_the_newest() {
        let (_folder, index) = index();
        let change = index.begin().unwrap();
        for at in 0..4 {
            let (kind, payload) = match at % 2 {
                0 => (Kind::Opening, opening(ALIKE[0])),
                _ => (Kind::Register, register(ALIKE[0])),
            };
            change.insert(at, facts(kind, [at as u8; 32], ALIKE[0]), Some(&payload)).unwrap();
        }
        change.finish();
        for (before, newest) in [(5, Some(3)), (4, Some(3)), (3, Some(1)), (2, Some(1)), (1, None), (0, None)]
        {
            assert_eq!(index.newest_register(ALIKE[0], before).unwrap(), newest, "below {before}");
        }
    }
}
