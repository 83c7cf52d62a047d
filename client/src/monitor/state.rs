//! What a monitor remembers, in one redb file: the log's tiles as it hashed them itself, each run's lists, and what it
//! has found. A change of it is made whole or not at all.

use crate::monitor::finding::Finding;
use crate::monitor::lists::RunLists;
use crate::monitor::seen;
use redb::backends::InMemoryBackend;
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition, WriteTransaction};
use schemas::digest::{EntryDigest, RunId};
use schemas::key::PublicKey;
use schemas::run::Steps;
use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use tlog::edge::TileBytes;
use tlog::hash::{EMPTY_ROOT, HASH_BYTES, Hash};
use tlog::note::VerifierKey;
use tlog::tile::{Tile, TileKind, TileReadError, TileReader, TileSource};
use tlog::tree::{TreeHead, TreeSize, root_hash};

const VERSION: u64 = 1;
/// Memory for pages of the file.
const CACHE_BYTES: usize = 64 << 20;
/// Findings of one kind that are kept each for itself; a hostile log could otherwise fill the disk with them.
pub const FINDINGS_MAX: u64 = 1000;

/// A digest or a key.
type Bytes = [u8; 32];

const META: TableDefinition<&str, &[u8]> = TableDefinition::new("meta");
/// Tile level and index to its hashes, as far as they are known.
const TILES: TableDefinition<(u8, u64), &[u8]> = TableDefinition::new("tiles");
const RUNS: TableDefinition<[u8; 32], &[u8]> = TableDefinition::new("runs");
/// Runs that wait for a register, by the index of what they wait for.
const WAITING: TableDefinition<u64, [u8; 32]> = TableDefinition::new("waiting");
/// Run, predictor and first step to end step and the leaf index of a prediction; ranges that share a step are joined.
type PredictedKey = ([u8; 32], [u8; 32], u64);
const PREDICTED: TableDefinition<PredictedKey, (u64, u64)> = TableDefinition::new("predicted");
/// Prediction's entry and signer to the leaf index of the first opening, and its run.
const OPENED: TableDefinition<(Bytes, Bytes), (u64, Bytes)> = TableDefinition::new("opened");
/// Sealed predictions that are not opened: time and leaf index to entry, signer and run.
const SEALED: TableDefinition<(u64, u64), (Bytes, Bytes, Bytes)> = TableDefinition::new("sealed");
/// Entry of a sealed prediction that is not opened to its key in `SEALED`.
const SEALED_PLACES: TableDefinition<[u8; 32], (u64, u64)> = TableDefinition::new("sealed_places");
/// Findings in the order they were made, as JSON lines.
const FINDINGS: TableDefinition<u64, &str> = TableDefinition::new("findings");
/// Kind and subject of each finding.
const FOUND: TableDefinition<(&str, &str), ()> = TableDefinition::new("found");
/// How many findings of each kind there were, kept or not.
const COUNTS: TableDefinition<&str, u64> = TableDefinition::new("counts");

/// Why a state cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The file failed.
    #[error("the monitor's state: {0}")]
    Redb(#[from] redb::Error),
    /// It is another log's.
    #[error("{} is the state of log {found}, expected {expected}", path.display())]
    OtherLog {
        /// The folder.
        path: PathBuf,
        /// The key given.
        expected: String,
        /// The key it was made with.
        found: String,
    },
    /// It is of another version of this program.
    #[error("{} is of version {found}, expected {VERSION}", path.display())]
    Version {
        /// The folder.
        path: PathBuf,
        /// Found.
        found: u64,
    },
    /// It does not bear out itself.
    #[error("the monitor's state is damaged: {0}")]
    Damaged(String),
}

impl StateError {
    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            StateError::OtherLog { .. } => "one folder for each log: give --state another one",
            StateError::Redb(redb::Error::DatabaseAlreadyOpen) => {
                "another monitor uses that folder: one at a time"
            }
            StateError::Damaged(_) | StateError::Version { .. } => {
                "keep checkpoint and findings.jsonl, start again in another folder, and see that it comes as far as \
                 that checkpoint: everything else is read from the log"
            }
            StateError::Redb(_) => return None,
        };
        Some(hint.into())
    }
}

pub(crate) fn failed<E: Into<redb::Error>>(error: E) -> StateError {
    StateError::Redb(error.into())
}

/// The state of one log's monitor.
pub(crate) struct State {
    database: Database,
}

/// The tree that was hashed, and the signed note of a tree that it is the beginning of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) head: TreeHead,
    /// Size and note of the newest checkpoint that was found consistent; none at first.
    pub(crate) seen: Option<(TreeSize, String)>,
}

impl State {
    /// Opens the state in a folder, or makes one; without a folder it is forgotten at the end.
    pub(crate) fn open(folder: Option<&Path>, log: &VerifierKey) -> Result<State, StateError> {
        let database = match folder {
            Some(folder) => open_file(folder)?,
            None => builder().create_with_backend(InMemoryBackend::new()).map_err(failed)?,
        };
        let state = State { database };
        let path = folder.unwrap_or(Path::new("")).to_owned();
        let change = state.begin()?;
        {
            let mut meta = change.write.open_table(META).map_err(failed)?;
            let found = meta.get("log").map_err(failed)?.map(|text| text.value().to_vec());
            let version = meta.get("version").map_err(failed)?.map(|bytes| bytes.value().to_vec());
            match (found, version) {
                (None, None) => {
                    meta.insert("log", log.to_string().as_bytes()).map_err(failed)?;
                    meta.insert("version", VERSION.to_le_bytes().as_slice()).map_err(failed)?;
                }
                (_, version) if version.as_deref() != Some(&VERSION.to_le_bytes()) => {
                    let found = version.and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes);
                    return Err(StateError::Version { path, found });
                }
                (found, _) => {
                    let found = String::from_utf8_lossy(&found.unwrap_or_default()).into_owned();
                    if found != log.to_string() {
                        return Err(StateError::OtherLog { path, expected: log.to_string(), found });
                    }
                }
            }
        }
        // Opening a table in a change makes it; readers expect all of them.
        change.write.open_table(TILES).map_err(failed)?;
        change.write.open_table(FINDINGS).map_err(failed)?;
        change.finish()?;
        if let Some(folder) = folder {
            seen::check_state(folder, log, &state)?;
        }
        Ok(state)
    }

    /// Starts a change. One that is dropped has not happened.
    pub(crate) fn begin(&self) -> Result<Change, StateError> {
        Ok(Change { write: self.database.begin_write().map_err(failed)? })
    }

    /// What has been followed so far.
    pub(crate) fn known(&self) -> Result<Known, StateError> {
        let read = self.database.begin_read().map_err(failed)?;
        let meta = read.open_table(META).map_err(failed)?;
        let get = |name: &str| -> Result<Option<Vec<u8>>, StateError> {
            Ok(meta.get(name).map_err(failed)?.map(|bytes| bytes.value().to_vec()))
        };
        let size = number(get("size")?)?;
        let root = if size == 0 { EMPTY_ROOT } else { self.root(TreeSize(size), TreeSize(size))? };
        if size > 0 && get("root")?.as_deref() != Some(root.as_bytes().as_slice()) {
            return Err(StateError::Damaged(format!(
                "its tiles of size {size} have another root than noted"
            )));
        }
        let seen = match get("note")? {
            Some(note) => {
                Some((TreeSize(number(get("seen")?)?), String::from_utf8_lossy(&note).into_owned()))
            }
            None => None,
        };
        Ok(Known { head: TreeHead { size: TreeSize(size), root }, seen })
    }

    /// The root of the first `of` entries of the `size` that were hashed.
    pub(crate) fn root(&self, of: TreeSize, size: TreeSize) -> Result<Hash, StateError> {
        root_hash(of, &TileReader { size, source: self }).map_err(damaged)
    }

    /// All findings that are kept, in order.
    pub(crate) fn findings(&self) -> Result<Vec<String>, StateError> {
        let read = self.database.begin_read().map_err(failed)?;
        let table = read.open_table(FINDINGS).map_err(failed)?;
        let line = |row: Result<(_, redb::AccessGuard<'_, &str>), _>| match row {
            Ok((_, line)) => Ok(line.value().to_owned()),
            Err(error) => Err(failed::<redb::StorageError>(error)),
        };
        table.iter().map_err(failed)?.map(line).collect()
    }

    /// How many of them have been told.
    pub(crate) fn told(&self) -> Result<u64, StateError> {
        let read = self.database.begin_read().map_err(failed)?;
        let meta = read.open_table(META).map_err(failed)?;
        number(meta.get("told").map_err(failed)?.map(|bytes| bytes.value().to_vec()))
    }
}

fn builder() -> redb::Builder {
    let mut builder = Database::builder();
    builder.set_cache_size(CACHE_BYTES);
    builder
}

/// Opens the file and checks all of it: its library believes what it reads, and panics on some of what is damaged.
fn open_file(folder: &Path) -> Result<Database, StateError> {
    let path = folder.join("monitor.redb");
    // Its library would wait for a pipe.
    if path.metadata().is_ok_and(|metadata| !metadata.is_file()) {
        return Err(StateError::Damaged(format!("{}: expected a regular file", path.display())));
    }
    let there = path.metadata().is_ok_and(|metadata| metadata.len() > 0);
    seen::check_folder(folder, there)?;
    let open = || -> Result<(Database, bool), StateError> {
        let mut database = builder().create(&path).map_err(failed)?;
        let whole = !there || database.check_integrity().map_err(failed)?;
        Ok((database, whole))
    };
    // Said by the error below, and not by the panic too.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let opened = catch_unwind(AssertUnwindSafe(open));
    std::panic::set_hook(hook);
    let reason = match opened {
        Ok(Ok((database, true))) => return Ok(database),
        // The check has mended it, from an older state: it must not pass for this one at the next start.
        Ok(Ok((database, false))) => {
            drop(database);
            let aside = folder.join("monitor.redb.damaged");
            std::fs::rename(&path, &aside).map_err(|error| StateError::Redb(error.into()))?;
            format!("its sums do not hold; it is kept as {}", aside.display())
        }
        Ok(Err(error @ StateError::Redb(redb::Error::DatabaseAlreadyOpen))) => return Err(error),
        Ok(Err(StateError::Redb(redb::Error::Io(error))))
            if !matches!(error.kind(), ErrorKind::InvalidData | ErrorKind::UnexpectedEof) =>
        {
            return Err(StateError::Redb(error.into()));
        }
        Ok(Err(error)) => error.to_string(),
        Err(_) => "it cannot be read".to_owned(),
    };
    Err(StateError::Damaged(format!("{}: {reason}", path.display())))
}

fn number(bytes: Option<Vec<u8>>) -> Result<u64, StateError> {
    let Some(bytes) = bytes else { return Ok(0) };
    let bytes = bytes.try_into().map_err(|_| StateError::Damaged("a number of another length".into()))?;
    Ok(u64::from_le_bytes(bytes))
}

pub(crate) fn damaged(error: TileReadError<StateError>) -> StateError {
    match error {
        TileReadError::Source { source, .. } => source,
        other => StateError::Damaged(other.to_string()),
    }
}

impl TileSource for State {
    type Error = StateError;

    fn read_tile(&self, tile: Tile) -> Result<Vec<u8>, StateError> {
        let TileKind::Hashes(level) = tile.kind else {
            return Err(StateError::Damaged("entries are not kept".into()));
        };
        let read = self.database.begin_read().map_err(failed)?;
        let table = read.open_table(TILES).map_err(failed)?;
        let row = table.get((level, tile.index)).map_err(failed)?;
        let mut bytes = row.map(|row| row.value().to_vec()).unwrap_or_default();
        // A narrower tile is the beginning of the one that is kept.
        bytes.truncate(usize::from(tile.width) * HASH_BYTES);
        Ok(bytes)
    }
}

/// A change of the state.
pub(crate) struct Change {
    write: WriteTransaction,
}

impl Change {
    /// Makes the change durable.
    pub(crate) fn finish(self) -> Result<(), StateError> {
        self.write.commit().map_err(failed)
    }

    /// Keeps what a tile holds by now.
    pub(crate) fn keep_tile(&self, made: &TileBytes) -> Result<(), StateError> {
        let TileKind::Hashes(level) = made.tile.kind else { return Ok(()) };
        let mut table = self.write.open_table(TILES).map_err(failed)?;
        table.insert((level, made.tile.index), made.bytes.as_slice()).map_err(failed)?;
        Ok(())
    }

    /// Notes how far the log has been followed, and under which checkpoint.
    pub(crate) fn keep_head(&self, head: TreeHead, seen: TreeSize, note: &str) -> Result<(), StateError> {
        let mut meta = self.write.open_table(META).map_err(failed)?;
        meta.insert("size", head.size.0.to_le_bytes().as_slice()).map_err(failed)?;
        meta.insert("root", head.root.as_bytes().as_slice()).map_err(failed)?;
        meta.insert("seen", seen.0.to_le_bytes().as_slice()).map_err(failed)?;
        meta.insert("note", note.as_bytes()).map_err(failed)?;
        Ok(())
    }

    /// Notes that the first `count` findings have been told.
    pub(crate) fn keep_told(&self, count: u64) -> Result<(), StateError> {
        let mut meta = self.write.open_table(META).map_err(failed)?;
        meta.insert("told", count.to_le_bytes().as_slice()).map_err(failed)?;
        Ok(())
    }

    /// What is known of a run.
    pub(crate) fn run(&self, run: RunId) -> Result<RunLists, StateError> {
        let table = self.write.open_table(RUNS).map_err(failed)?;
        let row = table.get(run.0).map_err(failed)?;
        let Some(row) = row else { return Ok(RunLists::default()) };
        let damaged = || StateError::Damaged(format!("the lists of run {run}"));
        RunLists::decode(row.value()).ok_or_else(damaged)
    }

    /// Keeps what is known of a run.
    pub(crate) fn keep_run(&self, run: RunId, lists: &RunLists) -> Result<(), StateError> {
        let mut table = self.write.open_table(RUNS).map_err(failed)?;
        table.insert(run.0, lists.encode().as_slice()).map_err(failed)?;
        Ok(())
    }

    /// A run waits for a register of the entry at `index`, or no longer.
    pub(crate) fn set_waiting(&self, index: u64, run: RunId, waits: bool) -> Result<(), StateError> {
        let mut table = self.write.open_table(WAITING).map_err(failed)?;
        match waits {
            true => drop(table.insert(index, run.0).map_err(failed)?),
            false => drop(table.remove(index).map_err(failed)?),
        }
        Ok(())
    }

    /// Everything that waits for a register.
    pub(crate) fn waiting(&self) -> Result<Vec<(u64, RunId)>, StateError> {
        let table = self.write.open_table(WAITING).map_err(failed)?;
        let mut waiting = Vec::new();
        for row in table.iter().map_err(failed)?.take(FINDINGS_MAX as usize) {
            let (index, run) = row.map_err(failed)?;
            waiting.push((index.value(), RunId(run.value())));
        }
        Ok(waiting)
    }

    /// Notes a prediction; returns the range and index of an earlier one of the same key and run that shares a step.
    pub(crate) fn predict(
        &self,
        run: RunId,
        signer: PublicKey,
        steps: Steps,
        index: u64,
    ) -> Result<Option<(Steps, u64)>, StateError> {
        let mut table = self.write.open_table(PREDICTED).map_err(failed)?;
        let key = |first| (run.0, signer.to_bytes(), first);
        let (mut joined, mut found) = (steps, None);
        // Ranges in the table share no step, so those that share one with this are the last before its end.
        loop {
            let earlier = match table.range(key(0)..key(joined.end)).map_err(failed)?.next_back() {
                Some(row) => {
                    let (key, value) = row.map_err(failed)?;
                    let (end, index) = value.value();
                    Some((Steps { first: key.value().2, end }, index))
                }
                None => None,
            };
            let Some((range, at)) = earlier.filter(|(range, _)| range.overlaps(joined)) else { break };
            table.remove(key(range.first)).map_err(failed)?;
            joined = Steps { first: joined.first.min(range.first), end: joined.end.max(range.end) };
            found = Some((range, at));
        }
        let kept = found.map_or(index, |(_, at)| at);
        table.insert(key(joined.first), (joined.end, kept)).map_err(failed)?;
        Ok(found)
    }

    /// Notes a sealed prediction that has to be opened by a time, unless it has been.
    pub(crate) fn seal(
        &self,
        prediction: EntryDigest,
        signer: PublicKey,
        run: RunId,
        place: (u64, u64),
    ) -> Result<(), StateError> {
        let opened = self.write.open_table(OPENED).map_err(failed)?;
        let opening = opened.get((prediction.0, signer.to_bytes())).map_err(failed)?;
        if opening.is_some_and(|opening| opening.value().1 == run.0) {
            return Ok(());
        }
        let mut sealed = self.write.open_table(SEALED).map_err(failed)?;
        sealed.insert(place, (prediction.0, signer.to_bytes(), run.0)).map_err(failed)?;
        let mut places = self.write.open_table(SEALED_PLACES).map_err(failed)?;
        places.insert(prediction.0, place).map_err(failed)?;
        Ok(())
    }

    /// Notes an opening; returns the index of an earlier one of the same signer.
    pub(crate) fn open(
        &self,
        prediction: EntryDigest,
        signer: PublicKey,
        run: RunId,
        index: u64,
    ) -> Result<Option<u64>, StateError> {
        let mut opened = self.write.open_table(OPENED).map_err(failed)?;
        let key = (prediction.0, signer.to_bytes());
        let earlier = opened.get(key).map_err(failed)?.map(|row| row.value().0);
        if earlier.is_none() {
            opened.insert(key, (index, run.0)).map_err(failed)?;
        }
        let mut places = self.write.open_table(SEALED_PLACES).map_err(failed)?;
        let place = places.get(prediction.0).map_err(failed)?.map(|place| place.value());
        let Some(place) = place else { return Ok(earlier) };
        let mut sealed = self.write.open_table(SEALED).map_err(failed)?;
        let by_the_predictor = match sealed.get(place).map_err(failed)? {
            Some(row) => row.value() == (prediction.0, signer.to_bytes(), run.0),
            None => false,
        };
        if by_the_predictor {
            sealed.remove(place).map_err(failed)?;
            places.remove(prediction.0).map_err(failed)?;
        }
        Ok(earlier)
    }

    /// Takes the sealed predictions whose time has passed: time, leaf index, entry.
    pub(crate) fn take_overdue(&self, now_unix_s: u64) -> Result<Vec<(u64, u64, EntryDigest)>, StateError> {
        let mut sealed = self.write.open_table(SEALED).map_err(failed)?;
        let mut overdue = Vec::new();
        for row in sealed.range(..(now_unix_s, 0)).map_err(failed)? {
            let (place, row) = row.map_err(failed)?;
            let (time, index) = place.value();
            overdue.push((time, index, EntryDigest(row.value().0)));
        }
        let mut places = self.write.open_table(SEALED_PLACES).map_err(failed)?;
        for (time, index, prediction) in &overdue {
            sealed.remove((*time, *index)).map_err(failed)?;
            places.remove(prediction.0).map_err(failed)?;
        }
        Ok(overdue)
    }

    /// Keeps a finding, once.
    pub(crate) fn find(&self, finding: &Finding, now_unix_s: u64) -> Result<(), StateError> {
        let word = finding.kind.word();
        let mut found = self.write.open_table(FOUND).map_err(failed)?;
        if found.get((word, finding.subject.as_str())).map_err(failed)?.is_some() {
            return Ok(());
        }
        let mut counts = self.write.open_table(COUNTS).map_err(failed)?;
        let count = counts.get(word).map_err(failed)?.map_or(0, |count| count.value()) + 1;
        counts.insert(word, count).map_err(failed)?;
        let line = match count {
            0..=FINDINGS_MAX => finding.line(now_unix_s),
            // Said once, in place of all that follow.
            more if more == FINDINGS_MAX + 1 => {
                let text = format!("more than {FINDINGS_MAX} of this kind; further ones are not kept");
                Finding::new(finding.kind, "further", text).line(now_unix_s)
            }
            _ => return Ok(()),
        };
        if count <= FINDINGS_MAX {
            found.insert((word, finding.subject.as_str()), ()).map_err(failed)?;
        }
        let mut findings = self.write.open_table(FINDINGS).map_err(failed)?;
        let next = findings.last().map_err(failed)?.map_or(0, |(last, _)| last.value() + 1);
        findings.insert(next, line.as_str()).map_err(failed)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::monitor::finding::Kind;
    use schemas::key::SecretKey;
    use tlog::note::{KeyName, SigningKey};

    fn log() -> VerifierKey {
        SigningKey::from_seed(KeyName::new("log.example/test").unwrap(), &[1; 32]).verifier().clone()
    }

    #[test]
    fn every_step_that_was_predicted_before_is_noticed() {
        let state = State::open(None, &log()).unwrap();
        let change = state.begin().unwrap();
        let (run, key) = (RunId([1; 32]), SecretKey::from_seed([1; 32]).public());
        let mut known: Vec<Steps> = Vec::new();
        // Every range within 0..7, in a scrambled order, against a list of all before it.
        for number in 0..64u64 {
            let (first, length) = (number * 5 % 8, number * 3 % 7);
            let steps = Steps { first, end: first + length + 1 };
            let expected = known.iter().any(|range| range.overlaps(steps));
            let found = change.predict(run, key, steps, number).unwrap();
            assert_eq!(found.is_some(), expected, "{steps}");
            assert!(found.is_none_or(|(range, _)| range.overlaps(steps)));
            // Another key has its own steps.
            let other = SecretKey::from_seed([number as u8 + 2; 32]).public();
            assert_eq!(change.predict(run, other, steps, number).unwrap(), None);
            known.push(steps);
        }
    }

    fn key(seed: u8) -> PublicKey {
        SecretKey::from_seed([seed; 32]).public()
    }

    #[test]
    fn a_state_of_another_version_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let open = || State::open(Some(folder.path()), &log());
        let state = open().unwrap();
        let change = state.begin().unwrap();
        let mut meta = change.write.open_table(META).unwrap();
        meta.insert("version", 2u64.to_le_bytes().as_slice()).unwrap();
        drop(meta);
        change.finish().unwrap();
        drop(state);
        let error = open().err().unwrap();
        assert!(matches!(error, StateError::Version { found: 2, .. }), "{error}");
    }

    #[test]
    fn of_several_predictions_or_openings_the_first_is_named() {
        let state = State::open(None, &log()).unwrap();
        let change = state.begin().unwrap();
        let steps = |first, end| Steps { first, end };
        let predict = |steps, index| change.predict(RunId([1; 32]), key(1), steps, index).unwrap();
        assert_eq!(predict(steps(0, 3), 2), None);
        assert_eq!(predict(steps(2, 5), 3), Some((steps(0, 3), 2)));
        // Those two are one range from here on.
        assert_eq!(predict(steps(4, 6), 4), Some((steps(0, 5), 2)));
        assert_eq!(predict(steps(6, 7), 5), None);
        let open = |index| change.open(EntryDigest([1; 32]), key(1), RunId([1; 32]), index).unwrap();
        assert_eq!([open(6), open(7), open(8)], [None, Some(6), Some(6)]);
    }

    #[test]
    fn an_opening_by_the_signer_and_of_the_run_alone_opens_whether_it_comes_before_or_after() {
        let (prediction, run) = (EntryDigest([9; 32]), RunId([1; 32]));
        for (signer, of, opens) in [(1, 1, true), (2, 1, false), (1, 2, false)] {
            for before in [true, false] {
                let state = State::open(None, &log()).unwrap();
                let change = state.begin().unwrap();
                let open = || change.open(prediction, key(signer), RunId([of; 32]), 3).unwrap();
                assert!(!before || open().is_none());
                change.seal(prediction, key(1), run, (100, 2)).unwrap();
                assert!(before || open().is_none());
                // The second that is stated still counts.
                assert_eq!(change.take_overdue(100).unwrap(), []);
                let expected = if opens { vec![] } else { vec![(100, 2, prediction)] };
                assert_eq!(change.take_overdue(101).unwrap(), expected, "{signer} {of} {before}");
                assert_eq!(change.take_overdue(101).unwrap(), [], "told once");
            }
        }
    }

    #[test]
    fn what_is_found_too_often_is_told_once_more_and_then_only_counted() {
        let state = State::open(None, &log()).unwrap();
        for numbers in [0..FINDINGS_MAX + 1, FINDINGS_MAX + 1..2 * FINDINGS_MAX] {
            let change = state.begin().unwrap();
            for number in numbers {
                let finding = Finding::new(Kind::Invalid, number.to_string(), "a message");
                change.find(&finding, 0).unwrap();
                // Once more, of one that is kept.
                if number < FINDINGS_MAX {
                    change.find(&finding, 1).unwrap();
                }
            }
            change.finish().unwrap();
            let findings = state.findings().unwrap();
            assert_eq!(findings.len() as u64, FINDINGS_MAX + 1);
            assert!(findings.last().unwrap().contains("further ones are not kept"));
        }
        let change = state.begin().unwrap();
        change.find(&Finding::new(Kind::Genesis, "0", "another kind"), 0).unwrap();
        change.finish().unwrap();
        let findings = state.findings().unwrap();
        assert_eq!(findings.len() as u64, FINDINGS_MAX + 2);
        assert!(findings[FINDINGS_MAX as usize].contains("further ones are not kept"));
    }
}
