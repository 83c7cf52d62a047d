//! Every checkpoint that was published, and every one that witnesses have cosigned, by tree size.
//!
//! Two files of notes, `history/published` and `history/cosigned`, are only ever appended to: a note's length as u32,
//! big-endian, the note, and the first 8 bytes of SHA-256 over both. Sizes ascend. Beside each lies a file of rows,
//! `.sizes`: a note's tree size and where the note ends, both u64, so that a size is found by halving. Rows are
//! derived, and made anew from the notes where they do not fit them.

use std::fs::File;
use std::io::{self, BufReader, Read as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sha2::{Digest, Sha256};
use tlog::note::NOTE_BYTES_MAX;
use tlog::tree::TreeSize;

use crate::disk::durable::Files;
use crate::error::LogError;

const LENGTH_BYTES: u64 = 4;
const CHECK_BYTES: u64 = 8;
const ROW_BYTES: u64 = 16;

/// The notes of one log. Cheap to share; readers never wait for a disk that a writer waits for.
#[derive(Clone)]
pub struct History {
    published: Arc<Notes>,
    cosigned: Arc<Notes>,
}

impl History {
    /// Opens the files in a log's folder, making them if need be. What a crash cut short is dropped.
    pub fn open(base: &Path, files: Arc<Files>) -> Result<History, LogError> {
        let open = |name: &str| Notes::open(base.join("history").join(name), files.clone()).map(Arc::new);
        Ok(History { published: open("published")?, cosigned: open("cosigned")? })
    }

    /// The note that the log published for that size, if it did.
    pub fn of_size(&self, size: TreeSize) -> Result<Option<String>, LogError> {
        Ok(self.published.at_or_above(size)?.filter(|(found, _)| *found == size).map(|(_, note)| note))
    }

    /// Adds a cosigned note, which is durable when this returns. Sizes ascend: a note whose size is not above the
    /// latest one's changes nothing, so the first for a size stays.
    pub fn add_cosigned(&self, size: TreeSize, note: &str) -> Result<(), LogError> {
        self.cosigned.append(size, note, true)
    }

    /// The smallest cosigned size that is at least `size`, and its note.
    pub fn cosigned_from(&self, size: TreeSize) -> Result<Option<(TreeSize, String)>, LogError> {
        self.cosigned.at_or_above(size)
    }

    /// The largest cosigned size that is less than `size`, and its note.
    pub fn cosigned_below(&self, size: TreeSize) -> Result<Option<(TreeSize, String)>, LogError> {
        self.cosigned.below(size)
    }

    /// The largest cosigned size, and its note.
    pub fn latest_cosigned(&self) -> Result<Option<(TreeSize, String)>, LogError> {
        self.cosigned.below(TreeSize(u64::MAX))
    }

    /// Adds a note that is being published. It survives a crash once [`History::sync`] has returned; until then the
    /// journal has it.
    pub fn add_published(&self, size: TreeSize, note: &str) -> Result<(), LogError> {
        self.published.append(size, note, false)
    }

    /// The largest size that was published; 0 if none was.
    pub fn latest_published(&self) -> TreeSize {
        self.published.end().size
    }

    /// Says what is known to be lost of the notes up to a published size, file by file.
    pub fn lost(&self, published: TreeSize) -> Vec<String> {
        let mut lost: Vec<String> = [&self.published, &self.cosigned]
            .into_iter()
            .filter_map(|notes| Some((notes.lost?, notes)))
            .filter(|(lost, _)| lost.first <= published)
            .map(|(Lost { count, first, last }, notes)| {
                format!("{}: {count} notes of sizes {first} to {last} are lost", notes.path.display())
            })
            .collect();
        // Without rows there is no number, but a log begins with size 1 and its last sync had that size's note.
        let path = self.published.path.display();
        if self.published.lost.is_none() {
            let last = self.latest_published();
            let first = match self.published.row(0) {
                Ok((first, _)) if last.0 > 0 => first,
                _ => published,
            };
            if first.0 > 1 {
                lost.push(format!("{path}: every note of a size below {first} is lost"));
            }
            if last.0 > 0 && last < published {
                lost.push(format!("{path}: every note of a size above {last} and below {published} is lost"));
            }
        }
        lost
    }

    /// Makes all published notes survive a crash.
    pub fn sync(&self) -> Result<(), LogError> {
        self.published.sync()
    }

    /// Drops published notes above a size: what was written after the last sync may be cut short, and comes again
    /// from the journal.
    pub fn forget_published_above(&self, size: TreeSize) -> Result<(), LogError> {
        self.published.cut_above(size)
    }
}

/// A file of notes and its rows.
struct Notes {
    path: PathBuf,
    notes: File,
    rows_path: PathBuf,
    rows: File,
    files: Arc<Files>,
    end: Mutex<End>,
    /// What the rows know of and is not there.
    lost: Option<Lost>,
}

/// Notes that are lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Lost {
    count: u64,
    first: TreeSize,
    last: TreeSize,
}

/// Where the next note goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct End {
    /// Number of notes.
    count: u64,
    /// Where the last one ends.
    bytes: u64,
    /// Its tree size.
    size: TreeSize,
    /// A sync is under way or has failed, so nobody knows what is on disk.
    broken: bool,
}

/// A row: a note's size and where it ends.
type Row = (TreeSize, u64);

impl Notes {
    fn open(path: PathBuf, files: Arc<Files>) -> Result<Notes, LogError> {
        let rows_path = path.with_extension("sizes");
        let notes = files.open(&path).map_err(LogError::io(&path))?;
        let rows = files.open(&rows_path).map_err(LogError::io(&rows_path))?;
        let end = Mutex::new(End { count: 0, bytes: 0, size: TreeSize(0), broken: false });
        let mut opened = Notes { path, notes, rows_path, rows, files, end, lost: None };
        opened.lost = opened.catch_up().map_err(LogError::io(&opened.path))?;
        Ok(opened)
    }

    /// Finds the end: as far as the rows are of use, and from there by the notes themselves. Says what is lost.
    fn catch_up(&self) -> io::Result<Option<Lost>> {
        let known = self.known()?;
        let length = self.notes.metadata()?.len();
        let mut end = *self.end();
        let mut rows = BufReader::new(&self.rows);
        let mut row = [0; ROW_BYTES as usize];
        while rows.read_exact(&mut row).is_ok() {
            let (size, bytes) = split_row(&row);
            if size <= end.size || bytes <= end.bytes || bytes > length {
                break;
            }
            end = End { count: end.count + 1, bytes, size, ..end };
        }
        if end.count > 0 {
            let (first, last) = (self.read(0)?.is_some(), self.read(end.count - 1)?.is_some());
            // A row or a note is wrong. If the notes alone lead as far as the rows it is a row, so the others may be
            // too: forget them all. If they do not, a note is damaged, and without rows those behind it would be lost.
            if !(first && last) && (!(first || last) || self.whole_notes(length)? >= end.count) {
                end = End { count: 0, bytes: 0, size: TreeSize(0), ..end };
            }
        }
        let mut lost = Vec::new();
        while let Some(note) = self.read_note(end.bytes, length)?
            && let Some(size) = size_of(&note).filter(|size| *size > end.size)
        {
            let bytes = end.bytes + record_bytes(&note);
            end = End { count: end.count + 1, bytes, size, ..end };
            lost.extend_from_slice(&row_of((size, bytes)));
        }
        let kept = end.count * ROW_BYTES - lost.len() as u64;
        if kept + lost.len() as u64 != self.rows.metadata()?.len() || !lost.is_empty() {
            self.rows.set_len(kept)?;
            self.rows.write_all_at(&lost, kept)?;
        }
        if end.bytes < length {
            self.keep_damaged(end.bytes, length)?;
            self.notes.set_len(end.bytes)?;
        }
        *self.end() = end;
        let lost = known.get(end.count as usize..).unwrap_or_default();
        Ok(lost.first().zip(lost.last()).map(|(first, last)| Lost {
            count: lost.len() as u64,
            first: *first,
            last: *last,
        }))
    }

    /// The sizes that the rows know of, as far as they ascend.
    fn known(&self) -> io::Result<Vec<TreeSize>> {
        let mut sizes: Vec<TreeSize> = Vec::new();
        let mut bytes = vec![0; (self.rows.metadata()?.len() / ROW_BYTES * ROW_BYTES) as usize];
        self.rows.read_exact_at(&mut bytes, 0)?;
        for row in bytes.as_chunks::<{ ROW_BYTES as usize }>().0 {
            let (size, _) = split_row(row);
            if sizes.last().unwrap_or(&TreeSize(0)) >= &size {
                break;
            }
            sizes.push(size);
        }
        Ok(sizes)
    }

    /// Number of whole notes from the beginning.
    fn whole_notes(&self, length: u64) -> io::Result<u64> {
        let (mut count, mut at) = (0, 0);
        while let Some(note) = self.read_note(at, length)? {
            at += record_bytes(&note);
            count += 1;
        }
        Ok(count)
    }

    /// A crash cuts the last note short. Where whole notes follow, something else has happened, and the file is kept
    /// beside the one that goes on.
    fn keep_damaged(&self, from: u64, length: u64) -> io::Result<()> {
        let kept = self.path.with_extension("damaged");
        let mut bytes = vec![0; (length - from) as usize];
        self.notes.read_exact_at(&mut bytes, from)?;
        if !kept.exists() && (1..bytes.len()).any(|at| next_note(&bytes, at).is_some()) {
            std::fs::copy(&self.path, &kept)?;
            tracing::warn!(
                "{} is damaged at byte {from}: it is kept in {}",
                self.path.display(),
                kept.display()
            );
        }
        Ok(())
    }

    fn append(&self, size: TreeSize, note: &str, durable: bool) -> Result<(), LogError> {
        let wrong = |source| LogError::Io { path: self.path.clone(), source };
        // Not held while the disk is waited for: readers take it for the moment of a copy.
        let mut end = self.end();
        if end.broken {
            return Err(wrong(io::Error::other("another write is under way or has failed")));
        }
        if end.count > 0 && size <= end.size {
            return Ok(());
        }
        assert!(note.len() <= NOTE_BYTES_MAX, "ledger: a note of {} bytes", note.len());
        let record = record_of(note);
        let bytes = end.bytes + record.len() as u64;
        // What a failed write leaves beyond the end is written over by the next one.
        self.files.write_at(&self.notes, &self.path, &record, end.bytes).map_err(wrong)?;
        if durable {
            // Readers, and another writer, which has to give way.
            end.broken = true;
            drop(end);
            self.files.sync(&self.notes, &self.path).map_err(wrong)?;
            end = self.end();
            end.broken = false;
        }
        let row = row_of((size, bytes));
        let written = self.files.write_at(&self.rows, &self.rows_path, &row, end.count * ROW_BYTES);
        written.map_err(LogError::io(&self.rows_path))?;
        *end = End { count: end.count + 1, bytes, size, broken: false };
        Ok(())
    }

    fn sync(&self) -> Result<(), LogError> {
        self.files.sync(&self.notes, &self.path).map_err(LogError::io(&self.path))?;
        self.files.sync(&self.rows, &self.rows_path).map_err(LogError::io(&self.rows_path))
    }

    fn cut_above(&self, size: TreeSize) -> Result<(), LogError> {
        let mut end = *self.end();
        if end.size <= size {
            return Ok(());
        }
        let wrong = LogError::io(&self.path);
        let count = self.count_below(TreeSize(size.0 + 1)).map_err(LogError::io(&self.path))?;
        let cut = || -> io::Result<(TreeSize, u64)> {
            let last = if count == 0 { (TreeSize(0), 0) } else { self.row(count - 1)? };
            self.files.truncate(&self.notes, &self.path, last.1)?;
            self.files.truncate(&self.rows, &self.rows_path, count * ROW_BYTES)?;
            Ok(last)
        };
        let (size, bytes) = cut().map_err(wrong)?;
        end = End { count, bytes, size, ..end };
        *self.end() = end;
        Ok(())
    }

    fn at_or_above(&self, size: TreeSize) -> Result<Option<(TreeSize, String)>, LogError> {
        let at = self.count_below(size).map_err(LogError::io(&self.path))?;
        self.note(at)
    }

    fn below(&self, size: TreeSize) -> Result<Option<(TreeSize, String)>, LogError> {
        let above = self.count_below(size).map_err(LogError::io(&self.path))?;
        above.checked_sub(1).map_or(Ok(None), |at| self.note(at))
    }

    /// Note number `at`; none beyond the last one.
    fn note(&self, at: u64) -> Result<Option<(TreeSize, String)>, LogError> {
        if at >= self.end().count {
            return Ok(None);
        }
        match self.read(at).map_err(LogError::io(&self.path))? {
            Some(found) => Ok(Some(found)),
            None => Err(LogError::HistoryDamaged { path: self.path.clone(), at }),
        }
    }

    /// Note number `at`, which there must be; none if what is stored is no note or does not fit its row.
    fn read(&self, at: u64) -> io::Result<Option<(TreeSize, String)>> {
        let (size, end) = self.row(at)?;
        let start = if at == 0 { 0 } else { self.row(at - 1)?.1 };
        let note = if start < end { self.read_note(start, end)? } else { None };
        let fits = |note: &String| start + record_bytes(note) == end && size_of(note) == Some(size);
        Ok(note.filter(fits).map(|note| (size, note)))
    }

    /// The note that starts at a place and ends at or before `end`; none if there is no whole and sound one.
    fn read_note(&self, start: u64, end: u64) -> io::Result<Option<String>> {
        let mut length = [0; LENGTH_BYTES as usize];
        if start + LENGTH_BYTES + CHECK_BYTES > end {
            return Ok(None);
        }
        self.notes.read_exact_at(&mut length, start)?;
        let length = u64::from(u32::from_be_bytes(length));
        if length > NOTE_BYTES_MAX as u64 || start + LENGTH_BYTES + length + CHECK_BYTES > end {
            return Ok(None);
        }
        let mut record = vec![0; (LENGTH_BYTES + length + CHECK_BYTES) as usize];
        self.notes.read_exact_at(&mut record, start)?;
        let note = &record[LENGTH_BYTES as usize..(LENGTH_BYTES + length) as usize];
        let note = std::str::from_utf8(note).ok().filter(|note| record_of(note) == record);
        Ok(note.map(str::to_owned))
    }

    /// Number of notes whose size is less than `size`.
    fn count_below(&self, size: TreeSize) -> io::Result<u64> {
        let (mut low, mut high) = (0, self.end().count);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.row(middle)?.0 < size { low = middle + 1 } else { high = middle }
        }
        Ok(low)
    }

    fn row(&self, at: u64) -> io::Result<Row> {
        let mut row = [0; ROW_BYTES as usize];
        self.rows.read_exact_at(&mut row, at * ROW_BYTES)?;
        Ok(split_row(&row))
    }

    fn end(&self) -> MutexGuard<'_, End> {
        // It is changed as a whole, so a poisoned lock still holds a good one.
        self.end.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn record_bytes(note: &str) -> u64 {
    LENGTH_BYTES + note.len() as u64 + CHECK_BYTES
}

fn record_of(note: &str) -> Vec<u8> {
    let mut record = (note.len() as u32).to_be_bytes().to_vec();
    record.extend_from_slice(note.as_bytes());
    let check = Sha256::digest(&record);
    record.extend_from_slice(&check[..CHECK_BYTES as usize]);
    record
}

/// The note that begins at a place in a file's bytes, and where it ends; none if there is no whole one.
pub fn next_note(bytes: &[u8], at: usize) -> Option<(&str, usize)> {
    let rest = bytes.get(at..)?;
    let length = u32::from_be_bytes(*rest.first_chunk()?) as usize;
    if length > NOTE_BYTES_MAX {
        return None;
    }
    let end = LENGTH_BYTES as usize + length + CHECK_BYTES as usize;
    let record = rest.get(..end)?;
    let note = std::str::from_utf8(&record[LENGTH_BYTES as usize..LENGTH_BYTES as usize + length]).ok()?;
    (record_of(note) == record).then_some((note, at + end))
}

/// The row of a note: its size and where it ends.
pub fn row_of((size, end): Row) -> [u8; ROW_BYTES as usize] {
    let mut row = [0; ROW_BYTES as usize];
    row[..8].copy_from_slice(&size.0.to_be_bytes());
    row[8..].copy_from_slice(&end.to_be_bytes());
    row
}

fn split_row(row: &[u8; ROW_BYTES as usize]) -> Row {
    let number = |at: usize| u64::from_be_bytes(row[at..at + 8].try_into().expect("ledger: 8 of 16 bytes"));
    (TreeSize(number(0)), number(8))
}

/// The tree size in a checkpoint note.
fn size_of(note: &str) -> Option<TreeSize> {
    note.split('\n').nth(1)?.parse().ok().map(TreeSize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::durable::{Fault, Operation};

    fn note(size: u64) -> String {
        format!("example.com/log\n{size}\nroot of {size}\n\n\u{2014} signature\n")
    }

    fn open(folder: &Path) -> History {
        History::open(folder, Arc::default()).unwrap()
    }

    fn with(sizes: &[u64]) -> (tempfile::TempDir, History) {
        let folder = tempfile::tempdir().unwrap();
        let history = open(folder.path());
        for size in sizes {
            history.add_published(TreeSize(*size), &note(*size)).unwrap();
            history.add_cosigned(TreeSize(*size), &note(*size)).unwrap();
        }
        (folder, history)
    }

    fn sizes(history: &History) -> Vec<u64> {
        (0..=100).filter(|size| history.of_size(TreeSize(*size)).unwrap() == Some(note(*size))).collect()
    }

    #[test]
    fn notes_are_found_by_size_and_by_neighbour() {
        let (folder, history) = with(&[1, 3, 4, 10]);
        for history in [history, open(folder.path())] {
            assert_eq!(sizes(&history), [1, 3, 4, 10]);
            let found = |found: Result<Option<(TreeSize, String)>, LogError>| {
                found.unwrap().map(|(size, text)| (text == note(size.0)).then_some(size.0).unwrap())
            };
            let from = |size| found(history.cosigned_from(TreeSize(size)));
            let below = |size| found(history.cosigned_below(TreeSize(size)));
            assert_eq!(
                [0, 1, 2, 3, 5, 10, 11].map(from),
                [1, 1, 3, 3, 10, 10, 0].map(|n| (n > 0).then_some(n))
            );
            assert_eq!(
                [0, 1, 2, 3, 5, 10, 11].map(below),
                [0, 0, 1, 1, 4, 4, 10].map(|n| (n > 0).then_some(n))
            );
            assert_eq!(found(history.latest_cosigned()), Some(10));
        }
    }

    #[test]
    fn the_first_note_for_a_size_stays() {
        let (_folder, history) = with(&[5]);
        history.add_cosigned(TreeSize(5), "another\n5\n").unwrap();
        history.add_cosigned(TreeSize(3), &note(3)).unwrap();
        assert_eq!(history.latest_cosigned().unwrap(), Some((TreeSize(5), note(5))));
        assert_eq!(history.cosigned_below(TreeSize(5)).unwrap(), None);
    }

    #[test]
    fn a_file_cut_or_damaged_anywhere_keeps_the_notes_before_that_place() {
        let (folder, history) = with(&[1, 2, 3]);
        drop(history);
        let path = folder.path().join("history/published");
        let good = std::fs::read(&path).unwrap();
        let end = |count: u64| (1..=count).map(|size| record_bytes(&note(size)) as usize).sum::<usize>();
        for at in 0..good.len() {
            let whole: Vec<u64> = (1..=3).filter(|size| end(*size) <= at).collect();
            std::fs::write(&path, &good[..at]).unwrap();
            assert_eq!(sizes(&open(folder.path())), whole, "cut at {at}");
            // Lost notes come back, and those that are there stay.
            let history = open(folder.path());
            (1..=3).for_each(|size| history.add_published(TreeSize(size), &note(size)).unwrap());
            assert_eq!(std::fs::read(&path).unwrap(), good, "cut at {at}");
            let mut damaged = good.clone();
            damaged[at] ^= 1;
            std::fs::write(&path, damaged).unwrap();
            std::fs::remove_file(folder.path().join("history/published.sizes")).unwrap();
            assert_eq!(sizes(&open(folder.path())), whole, "changed at {at}");
        }
    }

    #[test]
    fn rows_that_are_missing_or_wrong_are_made_anew() {
        let (folder, history) = with(&[1, 2, 3]);
        drop(history);
        let path = folder.path().join("history/published.sizes");
        let good = std::fs::read(&path).unwrap();
        let zeros = vec![0; good.len()];
        let rows = [&good[..0], &good[..20], &good[16..], &zeros, &[good.as_slice(), &zeros].concat()];
        for rows in rows.map(<[u8]>::to_vec) {
            std::fs::write(&path, &rows).unwrap();
            assert_eq!(sizes(&open(folder.path())), [1, 2, 3], "{rows:?}");
            assert_eq!(std::fs::read(&path).unwrap(), good, "{rows:?}");
        }
    }

    #[test]
    fn what_was_not_synced_can_be_dropped() {
        for (above, left) in [(0, &[][..]), (1, &[1]), (5, &[1, 4]), (9, &[1, 4, 9]), (50, &[1, 4, 9])] {
            let (folder, history) = with(&[1, 4, 9]);
            history.forget_published_above(TreeSize(above)).unwrap();
            assert_eq!(sizes(&history), left);
            assert_eq!(sizes(&open(folder.path())), left);
        }
    }

    #[test]
    fn a_cosigned_note_that_could_not_be_made_durable_is_not_kept() {
        let folder = tempfile::tempdir().unwrap();
        let fails = |operation, path: &Path| match operation == Operation::Sync && path.ends_with("cosigned")
        {
            true => Fault::Before,
            false => Fault::None,
        };
        let history = History::open(folder.path(), Arc::new(Files::with_faults(Box::new(fails)))).unwrap();
        assert!(history.add_cosigned(TreeSize(1), &note(1)).is_err());
        assert_eq!(history.latest_cosigned().unwrap(), None);
        assert!(history.add_cosigned(TreeSize(2), &note(2)).is_err(), "nobody knows what is on disk");
    }
}
