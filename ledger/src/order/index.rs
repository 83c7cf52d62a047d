//! The index: what can be looked up without reading the log, in one redb file.
//!
//! It is derived: at the start it is brought up to date from the entries, or made anew. Losing it loses nothing.

use std::path::Path;

use redb::{Database, Durability, ReadableDatabase, ReadableTable, TableDefinition, WriteTransaction};
use schemas::digest::{EntryDigest, RunId};
use schemas::key::PublicKey;
use schemas::run::Steps;
use schemas::statement::{Payload, Statement};

use crate::error::LogError;

/// Entry digest to leaf index.
const BY_DIGEST: TableDefinition<[u8; 32], u64> = TableDefinition::new("by_digest");
/// Leaf index to facts (see `EntryFacts::encode`).
const FACTS: TableDefinition<u64, [u8; FACTS_BYTES]> = TableDefinition::new("facts");
/// Run and leaf index of every entry of a run.
const BY_RUN: TableDefinition<([u8; 32], u64), ()> = TableDefinition::new("by_run");
/// Run to the leaf index of its first `run` statement.
const RUNS: TableDefinition<[u8; 32], u64> = TableDefinition::new("runs");
/// Leaf index of each run's first `run` statement, for listing.
const RUN_ORDER: TableDefinition<u64, [u8; 32]> = TableDefinition::new("run_order");
/// Run, predictor and first step.
type PredictionKey = ([u8; 32], [u8; 32], u64);
/// End step and leaf index.
type PredictionPlace = (u64, u64);
/// Where each prediction stands.
const PREDICTIONS: TableDefinition<PredictionKey, PredictionPlace> = TableDefinition::new("predictions");
/// Prediction's entry and signer to the leaf index of that signer's first opening of it.
const OPENINGS: TableDefinition<([u8; 32], [u8; 32]), u64> = TableDefinition::new("openings");
/// One row: which tables there are. An index of another version is made anew.
const VERSION: TableDefinition<(), u64> = TableDefinition::new("version");
const CURRENT_VERSION: u64 = 2;
/// One row: number of entries indexed.
const SIZE: TableDefinition<(), u64> = TableDefinition::new("size");

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

    fn decode(bytes: &[u8; FACTS_BYTES]) -> EntryFacts {
        let part = |at: usize| -> [u8; 32] { bytes[at..at + 32].try_into().expect("ledger: 32 of 97 bytes") };
        let kind = Kind::ALL.get(usize::from(bytes[0])).copied().unwrap_or(Kind::Unknown);
        let statement = !matches!(kind, Kind::Genesis | Kind::Unknown);
        EntryFacts {
            kind,
            digest: EntryDigest(part(1)),
            run: statement.then(|| RunId(part(33))),
            signer: if statement { PublicKey::from_bytes(part(65)).ok() } else { None },
        }
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
    database: Database,
}

fn redb_error<E: Into<redb::Error>>(error: E) -> LogError {
    LogError::Index(error.into())
}

impl Index {
    /// Opens the index file; makes one if there is none, and forgets the content of one of another version.
    ///
    /// The file's library may panic on a damaged file, here and in any later reading: see [`crate::log::open_log`].
    pub fn open(path: &Path) -> Result<Index, LogError> {
        let index = Index { database: Database::create(path).map_err(redb_error)? };
        let change = index.begin()?;
        if change.version()? != CURRENT_VERSION {
            change.delete_tables()?;
        }
        change.make_tables()?;
        change.finish()?;
        Ok(index)
    }

    /// Number of entries indexed.
    pub fn size(&self) -> Result<u64, LogError> {
        let read = self.database.begin_read().map_err(redb_error)?;
        let table = read.open_table(SIZE).map_err(redb_error)?;
        Ok(table.get(()).map_err(redb_error)?.map_or(0, |size| size.value()))
    }

    /// Starts a change; there is one at a time. A change that is dropped has not happened.
    pub fn begin(&self) -> Result<Change, LogError> {
        let mut write = self.database.begin_write().map_err(redb_error)?;
        // Not synced: after a crash the index is brought up to date from the entries.
        write.set_durability(Durability::None).map_err(redb_error)?;
        Ok(Change { write })
    }

    /// Syncs the index to disk, so that the next start need not catch up.
    pub fn sync(&self) -> Result<(), LogError> {
        let write = self.database.begin_write().map_err(redb_error)?;
        write.commit().map_err(redb_error)
    }

    /// The leaf index of the entry with this digest.
    pub fn find(&self, digest: EntryDigest) -> Result<Option<u64>, LogError> {
        let read = self.database.begin_read().map_err(redb_error)?;
        let table = read.open_table(BY_DIGEST).map_err(redb_error)?;
        Ok(table.get(digest.0).map_err(redb_error)?.map(|index| index.value()))
    }

    /// What is known of an entry.
    pub fn facts(&self, index: u64) -> Result<Option<EntryFacts>, LogError> {
        let read = self.database.begin_read().map_err(redb_error)?;
        let table = read.open_table(FACTS).map_err(redb_error)?;
        Ok(table.get(index).map_err(redb_error)?.map(|facts| EntryFacts::decode(&facts.value())))
    }

    /// Up to `count` entries below `before`, newest first.
    pub fn newest(&self, before: u64, count: usize) -> Result<Vec<Indexed>, LogError> {
        let read = self.database.begin_read().map_err(redb_error)?;
        let table = read.open_table(FACTS).map_err(redb_error)?;
        let mut rows = Vec::new();
        for row in table.range(..before).map_err(redb_error)?.rev().take(count) {
            let (index, facts) = row.map_err(redb_error)?;
            rows.push(Indexed { index: index.value(), facts: EntryFacts::decode(&facts.value()) });
        }
        Ok(rows)
    }

    /// Up to `count` runs whose first statement lies below `before`, newest first.
    pub fn newest_runs(&self, before: u64, count: usize) -> Result<Vec<(RunId, u64)>, LogError> {
        let read = self.database.begin_read().map_err(redb_error)?;
        let table = read.open_table(RUN_ORDER).map_err(redb_error)?;
        let mut runs = Vec::new();
        for row in table.range(..before).map_err(redb_error)?.rev().take(count) {
            let (index, run) = row.map_err(redb_error)?;
            runs.push((RunId(run.value()), index.value()));
        }
        Ok(runs)
    }

    /// The first `count` entries of a run, in log order.
    pub fn of_run(&self, run: RunId, count: usize) -> Result<Vec<Indexed>, LogError> {
        let read = self.database.begin_read().map_err(redb_error)?;
        let by_run = read.open_table(BY_RUN).map_err(redb_error)?;
        let facts = read.open_table(FACTS).map_err(redb_error)?;
        let mut entries = Vec::new();
        for row in by_run.range((run.0, 0)..=(run.0, u64::MAX)).map_err(redb_error)?.take(count) {
            let (_, index) = row.map_err(redb_error)?.0.value();
            let Some(found) = facts.get(index).map_err(redb_error)? else { continue };
            entries.push(Indexed { index, facts: EntryFacts::decode(&found.value()) });
        }
        Ok(entries)
    }
}

/// A change of the index that becomes visible all at once.
pub struct Change {
    write: WriteTransaction,
}

impl Change {
    /// Makes the change visible to readers.
    pub fn finish(self) -> Result<(), LogError> {
        self.write.commit().map_err(redb_error)
    }

    /// Number of entries indexed, this change included.
    pub fn size(&self) -> Result<u64, LogError> {
        let table = self.write.open_table(SIZE).map_err(redb_error)?;
        let size = table.get(()).map_err(redb_error)?.map_or(0, |size| size.value());
        Ok(size)
    }

    /// The leaf index of the entry with this digest, this change included.
    pub fn find(&self, digest: EntryDigest) -> Result<Option<u64>, LogError> {
        let table = self.write.open_table(BY_DIGEST).map_err(redb_error)?;
        let index = table.get(digest.0).map_err(redb_error)?.map(|index| index.value());
        Ok(index)
    }

    /// The leaf index of a run's first `run` statement, this change included.
    pub fn find_run(&self, run: RunId) -> Result<Option<u64>, LogError> {
        let table = self.write.open_table(RUNS).map_err(redb_error)?;
        let index = table.get(run.0).map_err(redb_error)?.map(|index| index.value());
        Ok(index)
    }

    /// The steps and leaf index of a prediction of the same run and predictor that shares a step with `steps`.
    pub fn find_prediction(
        &self,
        run: RunId,
        signer: PublicKey,
        steps: Steps,
    ) -> Result<Option<(Steps, u64)>, LogError> {
        let table = self.write.open_table(PREDICTIONS).map_err(redb_error)?;
        let key = |first| (run.0, signer.to_bytes(), first);
        // Predictions of one key share no step, so only the last that starts before the end of `steps` can reach in.
        let Some(row) = table.range(key(0)..key(steps.end)).map_err(redb_error)?.next_back() else {
            return Ok(None);
        };
        let (key, value) = row.map_err(redb_error)?;
        let (end, index) = value.value();
        let found = Steps { first: key.value().2, end };
        Ok(found.overlaps(steps).then_some((found, index)))
    }

    /// The leaf index of a signer's first opening of a prediction, this change included.
    pub fn find_opening(&self, prediction: EntryDigest, signer: PublicKey) -> Result<Option<u64>, LogError> {
        let table = self.write.open_table(OPENINGS).map_err(redb_error)?;
        let key = (prediction.0, signer.to_bytes());
        let index = table.get(key).map_err(redb_error)?.map(|index| index.value());
        Ok(index)
    }

    /// Adds the next entry.
    pub fn insert(&self, index: u64, facts: EntryFacts, payload: Option<&Payload>) -> Result<(), LogError> {
        assert_eq!(self.size()?, index, "ledger: index entries are added in log order");
        self.write.open_table(SIZE).map_err(redb_error)?.insert((), index + 1).map_err(redb_error)?;
        self.write
            .open_table(FACTS)
            .map_err(redb_error)?
            .insert(index, facts.encode())
            .map_err(redb_error)?;
        let mut by_digest = self.write.open_table(BY_DIGEST).map_err(redb_error)?;
        by_digest.insert(facts.digest.0, index).map_err(redb_error)?;
        let (Some(payload), Some(signer)) = (payload, facts.signer) else { return Ok(()) };
        let run = payload.run();
        self.write.open_table(BY_RUN).map_err(redb_error)?.insert((run.0, index), ()).map_err(redb_error)?;
        match payload {
            Payload::Run(_) if self.find_run(run)?.is_none() => {
                self.write.open_table(RUNS).map_err(redb_error)?.insert(run.0, index).map_err(redb_error)?;
                let mut order = self.write.open_table(RUN_ORDER).map_err(redb_error)?;
                order.insert(index, run.0).map_err(redb_error)?;
            }
            Payload::Prediction(prediction) => {
                let mut predictions = self.write.open_table(PREDICTIONS).map_err(redb_error)?;
                let key = (run.0, signer.to_bytes(), prediction.steps.first);
                predictions.insert(key, (prediction.steps.end, index)).map_err(redb_error)?;
            }
            Payload::Opening(opening) if self.find_opening(opening.prediction, signer)?.is_none() => {
                let mut openings = self.write.open_table(OPENINGS).map_err(redb_error)?;
                openings.insert((opening.prediction.0, signer.to_bytes()), index).map_err(redb_error)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Adds the next entry from its bytes, when catching up.
    pub fn insert_bytes(&self, index: u64, entry: &[u8]) -> Result<(), LogError> {
        if let Ok(statement) = Statement::open(entry) {
            return self.insert(index, EntryFacts::of(&statement), Some(&statement.payload));
        }
        let kind = if index == 0 { Kind::Genesis } else { Kind::Unknown };
        let facts = EntryFacts { kind, digest: EntryDigest::of(entry), run: None, signer: None };
        self.insert(index, facts, None)
    }

    fn version(&self) -> Result<u64, LogError> {
        let table = self.write.open_table(VERSION).map_err(redb_error)?;
        let version = table.get(()).map_err(redb_error)?.map_or(0, |version| version.value());
        Ok(version)
    }

    fn make_tables(&self) -> Result<(), LogError> {
        // Opening a table in a change makes it; readers expect all of them.
        self.write.open_table(BY_DIGEST).map_err(redb_error)?;
        self.write.open_table(FACTS).map_err(redb_error)?;
        self.write.open_table(BY_RUN).map_err(redb_error)?;
        self.write.open_table(RUNS).map_err(redb_error)?;
        self.write.open_table(RUN_ORDER).map_err(redb_error)?;
        self.write.open_table(PREDICTIONS).map_err(redb_error)?;
        self.write.open_table(OPENINGS).map_err(redb_error)?;
        self.write.open_table(SIZE).map_err(redb_error)?;
        let mut version = self.write.open_table(VERSION).map_err(redb_error)?;
        version.insert((), CURRENT_VERSION).map_err(redb_error)?;
        Ok(())
    }

    fn delete_tables(&self) -> Result<(), LogError> {
        self.write.delete_table(BY_DIGEST).map_err(redb_error)?;
        self.write.delete_table(FACTS).map_err(redb_error)?;
        self.write.delete_table(BY_RUN).map_err(redb_error)?;
        self.write.delete_table(RUNS).map_err(redb_error)?;
        self.write.delete_table(RUN_ORDER).map_err(redb_error)?;
        self.write.delete_table(PREDICTIONS).map_err(redb_error)?;
        self.write.delete_table(OPENINGS).map_err(redb_error)?;
        self.write.delete_table(SIZE).map_err(redb_error)?;
        Ok(())
    }
}
