//! The index's rows: in one redb file, and the last of them in memory.
//!
//! Names are hashes, so each new entry touches pages all over the file. Written one commit at a time that would be most
//! of a commit's work; so commits only add to a layer in memory, and every few seconds the sync takes the layer away
//! and merges it into the file in order of its keys, in one durable step, while the next layer fills. Nobody waits for
//! it: readers look at both layers and the file. After a crash the entries of the lost layers are added again from the
//! tiles.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use redb::{
    Builder, Database, ReadOnlyTable, ReadTransaction, ReadableDatabase, ReadableTable as _, TableDefinition,
};

use crate::error::LogError;

/// Bytes of the file that are kept in memory.
const CACHE_BYTES: usize = 48 * 1024 * 1024;
/// Where a repair says it is once it has read every page and found its checks right: the library says 0.6 after the
/// first of its passes, which is that one, and less before.
const REPAIR_HAS_CHECKED: f64 = 0.5;

/// The tables. Keys are of one length in a table, numbers in them big-endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Table {
    /// `size` and `version`, each to a u64.
    Meta,
    /// Leaf index to facts.
    Facts,
    /// The first 8 bytes of an entry's digest and its leaf index.
    Digests,
    /// The first 8 bytes of a run id and the leaf index of one of its entries.
    Runs,
    /// Leaf index of each run's first `run` statement.
    RunOrder,
    /// Run, predictor and first step to end step and leaf index.
    Predictions,
    /// Prediction's entry and signer to the leaf index of that signer's first opening of it.
    Openings,
    /// Run to what is kept of it for registers.
    RunLists,
}

impl Table {
    const ALL: [Table; TABLES.len()] = [
        Table::Meta,
        Table::Facts,
        Table::Digests,
        Table::Runs,
        Table::RunOrder,
        Table::Predictions,
        Table::Openings,
        Table::RunLists,
    ];
}

type Definition = TableDefinition<'static, &'static [u8], &'static [u8]>;
type OpenTable = ReadOnlyTable<&'static [u8], &'static [u8]>;

const TABLES: [Definition; 8] = [
    TableDefinition::new("meta"),
    TableDefinition::new("facts"),
    TableDefinition::new("digests"),
    TableDefinition::new("runs"),
    TableDefinition::new("run_order"),
    TableDefinition::new("predictions"),
    TableDefinition::new("openings"),
    TableDefinition::new("run_lists"),
];

/// A row: key and value.
pub type Row = (Vec<u8>, Vec<u8>);
/// Rows of every table.
type Layer = [BTreeMap<Vec<u8>, Vec<u8>>; TABLES.len()];

/// The rows of one index.
pub struct Rows {
    database: Database,
    /// Rows of the changes since the last merge was started. Only the thread that makes changes writes to it.
    young: RwLock<Layer>,
    /// Rows that are being merged.
    old: RwLock<Option<Arc<Layer>>>,
}

/// Which way to go through a range of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// From the lowest key up.
    Up,
    /// From the highest key down.
    Down,
}

/// Works on the file. Its library panics on some damaged pages, which is an error like others.
fn guarded<T>(work: impl FnOnce() -> Result<T, LogError>) -> Result<T, LogError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or(Err(LogError::IndexDamaged))
}

fn redb_error<E: Into<redb::Error>>(error: E) -> LogError {
    LogError::Index(error.into())
}

impl Rows {
    /// Opens the file; makes one if there is none, and forgets the content of one of another version.
    pub fn open(path: &Path, version: u64) -> Result<Rows, LogError> {
        // Every page holds the checks of those below it, and reading looks at none of them. Opening a file after an
        // unclean stop checks them all and puts right what it left; after an orderly one they are checked here. Pages
        // that are not what was written are an error either way.
        let checked = Arc::new(AtomicBool::new(false));
        let told = checked.clone();
        let mut database = Builder::new()
            .set_cache_size(CACHE_BYTES)
            .set_repair_callback(move |repair| {
                told.fetch_or(repair.progress() >= REPAIR_HAS_CHECKED, Ordering::Relaxed);
            })
            .create(path)
            .map_err(redb_error)?;
        if !checked.load(Ordering::Relaxed) {
            database.check_integrity().map_err(redb_error)?;
        }
        let rows = Rows { database, young: RwLock::default(), old: RwLock::default() };
        let write = rows.database.begin_write().map_err(redb_error)?;
        let found = {
            let meta = write.open_table(TABLES[Table::Meta as usize]).map_err(redb_error)?;
            let found = meta.get(VERSION).map_err(redb_error)?;
            found.map(|value| value.value().to_vec())
        };
        if found.as_deref() != Some(&version.to_be_bytes()) {
            for table in TABLES {
                write.delete_table(table).map_err(redb_error)?;
            }
            for table in TABLES {
                // Opening a table makes it; readers expect all of them.
                write.open_table(table).map_err(redb_error)?;
            }
            let mut meta = write.open_table(TABLES[Table::Meta as usize]).map_err(redb_error)?;
            meta.insert(VERSION, version.to_be_bytes().as_slice()).map_err(redb_error)?;
        }
        write.commit().map_err(redb_error)?;
        Ok(rows)
    }

    /// What there is now, for reading. Changes wait until it is dropped.
    pub fn read(&self) -> Result<Reader<'_>, LogError> {
        // First the layers and then the file: a layer that goes away meanwhile is in the file by then.
        let young = self.young();
        let old = self.old();
        let tables = Snapshot::of(&self.database)?;
        Ok(Reader { young, old, tables })
    }

    /// Starts a change; there is one at a time. One that is dropped has not happened.
    pub fn begin(&self) -> Result<Changing<'_>, LogError> {
        let old = self.old();
        let tables = Snapshot::of(&self.database)?;
        Ok(Changing { rows: self, old, tables, pending: RefCell::default() })
    }

    /// Takes the young layer away, to be merged. Not while another one is being merged, nor during a change.
    pub fn freeze(&self) -> bool {
        let mut young = self.young.write().unwrap_or_else(PoisonError::into_inner);
        let mut old = self.old.write().unwrap_or_else(PoisonError::into_inner);
        if old.is_some() {
            return false;
        }
        *old = Some(Arc::new(std::mem::take(&mut *young)));
        true
    }

    /// Merges the layer that was taken away into the file, durably.
    pub fn merge(&self) -> Result<(), LogError> {
        let Some(old) = self.old() else { return Ok(()) };
        guarded(|| {
            let mut write = self.database.begin_write().map_err(redb_error)?;
            // Without it the next start after a crash would go through the whole file.
            write.set_quick_repair(true);
            for (definition, rows) in TABLES.into_iter().zip(old.iter()) {
                let mut table = write.open_table(definition).map_err(redb_error)?;
                for (key, value) in rows {
                    table.insert(key.as_slice(), value.as_slice()).map_err(redb_error)?;
                }
            }
            write.commit().map_err(redb_error)
        })?;
        *self.old.write().unwrap_or_else(PoisonError::into_inner) = None;
        Ok(())
    }

    fn young(&self) -> RwLockReadGuard<'_, Layer> {
        // A panic between two rows ends the sequencer, and the layer is forgotten.
        self.young.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn old(&self) -> Option<Arc<Layer>> {
        self.old.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

const VERSION: &[u8] = b"version";

/// The file's tables at one moment.
struct Snapshot {
    tables: Vec<OpenTable>,
    _read: ReadTransaction,
}

impl Snapshot {
    fn of(database: &Database) -> Result<Snapshot, LogError> {
        guarded(|| {
            let read = database.begin_read().map_err(redb_error)?;
            let tables = TABLES.into_iter().map(|table| read.open_table(table)).collect::<Result<_, _>>();
            Ok(Snapshot { tables: tables.map_err(redb_error)?, _read: read })
        })
    }
}

/// All rows at one moment.
pub struct Reader<'a> {
    young: RwLockReadGuard<'a, Layer>,
    old: Option<Arc<Layer>>,
    tables: Snapshot,
}

/// All rows and those of a change that is under way.
pub struct Changing<'a> {
    rows: &'a Rows,
    old: Option<Arc<Layer>>,
    tables: Snapshot,
    pending: RefCell<Layer>,
}

/// Looks at a row, and says whether to go on.
pub type Visit<'a> = &'a mut dyn FnMut(&[u8], &[u8]) -> Result<bool, LogError>;

/// What rows can be asked.
pub trait Ask {
    /// The value of a key.
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, LogError>;

    /// The rows from one key up to, not including, another, until `visit` has seen enough and answers false.
    fn scan(&self, table: Table, range: (&[u8], &[u8]), way: Way, visit: Visit<'_>) -> Result<(), LogError>;
}

impl Ask for Reader<'_> {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, LogError> {
        get(&[Some(&self.young), self.old.as_deref()], &self.tables, table, key)
    }

    fn scan(&self, table: Table, range: (&[u8], &[u8]), way: Way, visit: Visit<'_>) -> Result<(), LogError> {
        let layers = [Some(&*self.young), self.old.as_deref()];
        scan(&layers, &self.tables, table, range, way, visit)
    }
}

impl Ask for Changing<'_> {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, LogError> {
        let (pending, young) = (self.pending.borrow(), self.rows.young());
        get(&[Some(&pending), Some(&young), self.old.as_deref()], &self.tables, table, key)
    }

    fn scan(&self, table: Table, range: (&[u8], &[u8]), way: Way, visit: Visit<'_>) -> Result<(), LogError> {
        let (pending, young) = (self.pending.borrow(), self.rows.young());
        let layers = [Some(&*pending), Some(&young), self.old.as_deref()];
        scan(&layers, &self.tables, table, range, way, visit)
    }
}

impl Changing<'_> {
    /// Sets a row, for this change.
    pub fn put(&self, table: Table, key: &[u8], value: &[u8]) {
        self.pending.borrow_mut()[table as usize].insert(key.to_vec(), value.to_vec());
    }

    /// Makes the change visible to readers, all at once.
    pub fn finish(self) {
        let mut young = self.rows.young.write().unwrap_or_else(PoisonError::into_inner);
        for (rows, more) in young.iter_mut().zip(self.pending.into_inner()) {
            rows.extend(more);
        }
    }
}

fn get(
    layers: &[Option<&Layer>],
    tables: &Snapshot,
    table: Table,
    key: &[u8],
) -> Result<Option<Vec<u8>>, LogError> {
    for layer in layers.iter().flatten() {
        if let Some(value) = layer[table as usize].get(key) {
            return Ok(Some(value.clone()));
        }
    }
    guarded(|| {
        let value = tables.tables[table as usize].get(key).map_err(redb_error)?;
        Ok(value.map(|value| value.value().to_vec()))
    })
}

/// Goes through several layers and the file at once, in order of the keys; of rows with one key the newest counts.
fn scan(
    layers: &[Option<&Layer>],
    tables: &Snapshot,
    table: Table,
    (from, to): (&[u8], &[u8]),
    way: Way,
    visit: Visit<'_>,
) -> Result<(), LogError> {
    if from >= to {
        return Ok(());
    }
    type Source<'a> = Box<dyn Iterator<Item = Result<Row, LogError>> + 'a>;
    let bounds = (Bound::Included(from), Bound::Excluded(to));
    let mut sources: Vec<Source<'_>> = Vec::new();
    for layer in layers.iter().flatten() {
        let range = layer[table as usize].range::<[u8], _>(bounds);
        let range = range.map(|(key, value)| Ok((key.clone(), value.clone())));
        sources.push(match way {
            Way::Up => Box::new(range),
            Way::Down => Box::new(range.rev()),
        });
    }
    let mut range = guarded(|| tables.tables[table as usize].range::<&[u8]>(bounds).map_err(redb_error))?;
    let mut next = move || {
        let row = match way {
            Way::Up => range.next(),
            Way::Down => range.next_back(),
        };
        let Some(row) = row else { return Ok(None) };
        let (key, value) = row.map_err(redb_error)?;
        Ok(Some((key.value().to_vec(), value.value().to_vec())))
    };
    sources.push(Box::new(std::iter::from_fn(move || guarded(&mut next).transpose())));
    let mut heads: Vec<Option<Row>> = Vec::new();
    for source in &mut sources {
        heads.push(source.next().transpose()?);
    }
    loop {
        let keys = heads.iter().flatten().map(|(key, _)| key);
        let next = match way {
            Way::Up => keys.min(),
            Way::Down => keys.max(),
        };
        let Some(next) = next.cloned() else { return Ok(()) };
        let mut newest = None;
        for (head, source) in heads.iter_mut().zip(&mut sources) {
            if head.as_ref().is_some_and(|(key, _)| *key == next) {
                let row = std::mem::replace(head, source.next().transpose()?);
                newest = newest.or(row);
            }
        }
        let (key, value) = newest.expect("ledger: the lowest or highest key is some source's");
        if !visit(&key, &value)? {
            return Ok(());
        }
    }
}

/// Rows that are compared at once.
const PART_ROWS: usize = 1000;

/// The first row in which one index differs from another: its table, its key, and the values in both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The table.
    pub table: Table,
    /// The row's key.
    pub key: Vec<u8>,
    /// Its value in the one.
    pub found: Option<Vec<u8>>,
    /// Its value in the other.
    pub expected: Option<Vec<u8>>,
}

/// Compares all rows.
pub fn difference(found: &dyn Ask, expected: &dyn Ask) -> Result<Option<Difference>, LogError> {
    for table in Table::ALL {
        let mut from = Vec::new();
        loop {
            let (left, right) = (part(found, table, &from)?, part(expected, table, &from)?);
            for at in 0..left.len().max(right.len()) {
                let (left, right) = (left.get(at), right.get(at));
                if left == right {
                    continue;
                }
                let key = left.iter().chain(&right).map(|row| &row.0).min().cloned().unwrap_or_default();
                let value = |row: Option<&Row>| row.filter(|row| row.0 == key).map(|row| row.1.clone());
                let (found, expected) = (value(left), value(right));
                return Ok(Some(Difference { table, key, found, expected }));
            }
            let Some((last, _)) = left.last().filter(|_| left.len() == PART_ROWS) else { break };
            from = [last, &[0][..]].concat();
        }
    }
    Ok(None)
}

fn part(rows: &dyn Ask, table: Table, from: &[u8]) -> Result<Vec<Row>, LogError> {
    let mut found = Vec::new();
    // Higher than any key: those are of at most 72 bytes.
    let to = [0xff; 80];
    rows.scan(table, (from, &to), Way::Up, &mut |key, value| {
        found.push((key.to_vec(), value.to_vec()));
        Ok(found.len() < PART_ROWS)
    })?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(rows: &dyn Ask, range: (&[u8], &[u8]), way: Way) -> Vec<(u8, u8)> {
        let mut found = Vec::new();
        let mut visit = |key: &[u8], value: &[u8]| {
            found.push((key[0], value[0]));
            Ok(true)
        };
        rows.scan(Table::Facts, range, way, &mut visit).unwrap();
        found
    }

    #[test]
    fn rows_are_found_in_whichever_layer_they_are_and_the_newest_counts() {
        let folder = tempfile::tempdir().unwrap();
        let rows = Rows::open(&folder.path().join("rows"), 1).unwrap();
        let put = |more: &[(u8, u8)]| {
            let change = rows.begin().unwrap();
            more.iter().for_each(|(key, value)| change.put(Table::Facts, &[*key], &[*value]));
            change
        };
        let whole = (&[0][..], &[255][..]);
        let expected = [(1, 9), (2, 2), (3, 9), (4, 4), (5, 9), (6, 9)];
        put(&[(1, 1), (2, 2), (3, 3)]).finish();
        assert!(rows.freeze());
        rows.merge().unwrap();
        put(&[(3, 4), (4, 4), (5, 5)]).finish();
        assert!(rows.freeze());
        put(&[(5, 6), (1, 9)]).finish();
        assert!(!rows.freeze(), "a layer is still to be merged");
        drop(put(&[(2, 7), (7, 7)]));
        let change = put(&[(3, 9), (6, 9), (5, 9)]);
        assert_eq!(all(&change, whole, Way::Up), expected);
        // A merge meanwhile changes nothing for the change.
        rows.merge().unwrap();
        assert_eq!(all(&change, whole, Way::Up), expected);
        change.finish();
        for merged in 0..3 {
            let reader = rows.read().unwrap();
            assert_eq!(all(&reader, whole, Way::Up), expected, "merged {merged}");
            let down: Vec<_> = expected.into_iter().rev().collect();
            assert_eq!(all(&reader, whole, Way::Down), down, "merged {merged}");
            assert_eq!(all(&reader, (&[2], &[5]), Way::Down), [(4, 4), (3, 9), (2, 2)]);
            assert_eq!(all(&reader, (&[5], &[2]), Way::Up), []);
            assert_eq!(reader.get(Table::Facts, &[3]).unwrap(), Some(vec![9]));
            assert_eq!(reader.get(Table::Facts, &[7]).unwrap(), None);
            drop(reader);
            rows.freeze();
            rows.merge().unwrap();
        }
    }

    #[test]
    fn a_panic_of_the_files_library_is_an_error() {
        let result = guarded(|| -> Result<(), LogError> { panic!("as on a damaged page") });
        assert!(matches!(result, Err(LogError::IndexDamaged)), "{result:?}");
    }

    #[test]
    fn what_was_merged_is_there_after_a_crash_and_another_version_forgets_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows");
        let rows = Rows::open(&path, 1).unwrap();
        let change = rows.begin().unwrap();
        change.put(Table::Facts, &[1], &[1]);
        change.finish();
        rows.freeze();
        rows.merge().unwrap();
        let change = rows.begin().unwrap();
        change.put(Table::Facts, &[2], &[2]);
        change.finish();
        drop(rows);
        for (version, expected) in [(1, &[(1, 1)][..]), (2, &[])] {
            let rows = Rows::open(&path, version).unwrap();
            assert_eq!(all(&rows.read().unwrap(), (&[0], &[9]), Way::Up), expected);
        }
    }
}
