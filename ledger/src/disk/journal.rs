//! The journal: every commit since the tiles were last synced, one record each.
//!
//! A record is `tallystick journal v1` LF; its length from here to before the digest, u64; old size and new size, u64;
//! the length of the note that promised the old size, u32, and the note; each new entry after its length, u16; and
//! SHA-256 over everything before. Numbers are big-endian. A record stands in a segment, a file named by the size at
//! which it begins; segments are removed when the tiles of all their records are on disk for certain.
//!
//! Hash tiles are not in it: they follow from the entries.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest, Sha256};
use thiserror::Error;
use tlog::entries::push_entry;
use tlog::tree::TreeSize;

use crate::disk::durable::{Files, open_file};
use crate::error::LogError;

const HEADER: &[u8] = b"tallystick journal v1\n";
const LENGTH_BYTES: usize = 8;
const DIGEST_BYTES: usize = 32;
/// Longest record that is read: more than a commit can hold.
const RECORD_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// One commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Size before.
    pub old: TreeSize,
    /// The checkpoint note of that size; empty before the first commit.
    pub previous: String,
    /// The entries that were added.
    pub entries: Vec<Vec<u8>>,
}

/// Why some bytes are not a record.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RecordError {
    /// The first line is another one.
    #[error("unknown header")]
    BadHeader,
    /// The digest at the end is not that of the content.
    #[error("digest does not match")]
    BadDigest,
    /// The content ends early or late, or holds another number of entries than its sizes say.
    #[error("content is cut short or has bytes left over")]
    BadLength,
}

impl Record {
    /// Size after.
    pub fn new_size(&self) -> TreeSize {
        TreeSize(self.old.0 + self.entries.len() as u64)
    }

    /// The record's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let content: usize = self.entries.iter().map(|entry| entry.len() + 2).sum();
        let mut bytes = Vec::with_capacity(HEADER.len() + 64 + self.previous.len() + content + DIGEST_BYTES);
        bytes.extend_from_slice(HEADER);
        bytes.extend_from_slice(&[0; LENGTH_BYTES]);
        bytes.extend_from_slice(&self.old.0.to_be_bytes());
        bytes.extend_from_slice(&self.new_size().0.to_be_bytes());
        bytes.extend_from_slice(&(self.previous.len() as u32).to_be_bytes());
        bytes.extend_from_slice(self.previous.as_bytes());
        for entry in &self.entries {
            push_entry(&mut bytes, entry).expect("ledger: an admitted entry fits in a bundle");
        }
        let length = (bytes.len() - HEADER.len() - LENGTH_BYTES) as u64;
        bytes[HEADER.len()..HEADER.len() + LENGTH_BYTES].copy_from_slice(&length.to_be_bytes());
        let digest = Sha256::digest(&bytes);
        bytes.extend_from_slice(&digest);
        bytes
    }

    /// Reads a record's bytes.
    pub fn decode(bytes: &[u8]) -> Result<Record, RecordError> {
        let split = bytes.len().checked_sub(DIGEST_BYTES).ok_or(RecordError::BadLength)?;
        let (content, digest) = bytes.split_at(split);
        let mut rest = content.strip_prefix(HEADER).ok_or(RecordError::BadHeader)?;
        if Sha256::digest(content).as_slice() != digest {
            return Err(RecordError::BadDigest);
        }
        let length = u64::from_be_bytes(take(&mut rest)?);
        if length != rest.len() as u64 {
            return Err(RecordError::BadLength);
        }
        let old = u64::from_be_bytes(take(&mut rest)?);
        let new = u64::from_be_bytes(take(&mut rest)?);
        let note_bytes = u32::from_be_bytes(take(&mut rest)?) as usize;
        let note = std::str::from_utf8(take_slice(&mut rest, note_bytes)?);
        let previous = note.map_err(|_| RecordError::BadLength)?.to_owned();
        let mut entries = Vec::new();
        while !rest.is_empty() {
            let entry_bytes = usize::from(u16::from_be_bytes(take(&mut rest)?));
            entries.push(take_slice(&mut rest, entry_bytes)?.to_vec());
        }
        match old.checked_add(entries.len() as u64) {
            Some(end) if end == new => Ok(Record { old: TreeSize(old), previous, entries }),
            _ => Err(RecordError::BadLength),
        }
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], RecordError> {
    let (head, after) = rest.split_first_chunk::<N>().ok_or(RecordError::BadLength)?;
    *rest = after;
    Ok(*head)
}

fn take_slice<'a>(rest: &mut &'a [u8], length: usize) -> Result<&'a [u8], RecordError> {
    let (head, after) = rest.split_at_checked(length).ok_or(RecordError::BadLength)?;
    *rest = after;
    Ok(head)
}

/// The journal of one log.
pub struct Journal {
    folder: PathBuf,
    files: Arc<Files>,
    segment: Option<Segment>,
    /// A sync has failed: nobody knows what is on disk, and asking again would not tell.
    broken: bool,
}

/// The segment that is being written.
struct Segment {
    path: PathBuf,
    file: File,
    /// Where the last promised record ends.
    kept: u64,
    /// Where the last record ends.
    end: u64,
}

impl Journal {
    /// A log's journal; the first record starts a new segment.
    pub fn new(folder: PathBuf, files: Arc<Files>) -> Journal {
        Journal { folder, files, segment: None, broken: false }
    }

    /// Adds a record durably, and returns it as read back from the file.
    ///
    /// It counts once it is promised, which the next call takes for granted; call [`Journal::undo`] if it was not.
    pub fn append(&mut self, record: &Record) -> Result<Record, LogError> {
        if self.broken {
            return Err(io_error(&self.folder, io::Error::other("an earlier sync has failed")));
        }
        let bytes = record.encode();
        if self.segment.is_none() {
            let path = self.folder.join(format!("{:020}", record.old.0));
            let file = self.files.open(&path).map_err(LogError::io(&path))?;
            let entered = self.files.sync_path(&self.folder);
            self.broken = entered.is_err();
            entered.map_err(LogError::io(&self.folder))?;
            self.segment = Some(Segment { path, file, kept: 0, end: 0 });
        }
        let segment = self.segment.as_mut().expect("ledger: a segment was just opened");
        segment.kept = segment.end;
        let wrong = |source| io_error(&segment.path, source);
        // Beyond the end even if the write fails half-way: then undoing cuts it off.
        segment.end += bytes.len() as u64;
        self.files.write_at(&segment.file, &segment.path, &bytes, segment.kept).map_err(wrong)?;
        let synced = self.files.sync(&segment.file, &segment.path);
        self.broken = synced.is_err();
        synced.map_err(wrong)?;
        let mut found = vec![0; bytes.len()];
        segment.file.read_exact_at(&mut found, segment.kept).map_err(wrong)?;
        Ok(Record::decode(&found)?)
    }

    /// Takes the last record away, which was not promised. An error means that it may come back.
    pub fn undo(&mut self) -> Result<(), LogError> {
        if self.broken {
            return Err(io_error(&self.folder, io::Error::other("an earlier sync has failed")));
        }
        let Some(segment) = &mut self.segment else { return Ok(()) };
        if segment.end > segment.kept {
            let cut = self.files.truncate(&segment.file, &segment.path, segment.kept);
            self.broken = cut.is_err();
            cut.map_err(|source| io_error(&segment.path, source))?;
            segment.end = segment.kept;
        }
        Ok(())
    }

    /// Bytes in the segment that is being written.
    pub fn segment_bytes(&self) -> u64 {
        self.segment.as_ref().map_or(0, |segment| segment.end)
    }

    /// Ends the segment, and lists all there are: to be removed when what they hold is on disk elsewhere.
    pub fn close_segment(&mut self) -> Result<Vec<PathBuf>, LogError> {
        self.segment = None;
        segments(&self.folder)
    }

    /// Shows every whole record in order. What follows a torn one in its segment is passed over: it was never promised,
    /// or whoever looks for what was will miss it.
    pub fn replay(&self, mut visit: impl FnMut(Record) -> Result<(), LogError>) -> Result<(), LogError> {
        for path in segments(&self.folder)? {
            let file = open_file(&path).map_err(LogError::io(&path))?;
            let mut left = file.metadata().map_err(LogError::io(&path))?.len();
            let mut file = BufReader::new(file);
            while let Some(record) = read_record(&mut file, &mut left).map_err(LogError::io(&path))? {
                visit(record)?;
            }
        }
        Ok(())
    }
}

fn io_error(path: &Path, source: io::Error) -> LogError {
    LogError::Io { path: path.to_owned(), source }
}

/// The segments in order.
fn segments(folder: &Path) -> Result<Vec<PathBuf>, LogError> {
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(LogError::io(folder))?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(LogError::io(folder))?;
        let name = entry.file_name();
        if name.to_str().is_some_and(|name| name.len() == 20 && name.bytes().all(|c| c.is_ascii_digit())) {
            found.push(entry.path());
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// The next record of a segment with `left` bytes to come; none where there is no whole one.
fn read_record(file: &mut impl Read, left: &mut u64) -> io::Result<Option<Record>> {
    let head_bytes = HEADER.len() + LENGTH_BYTES;
    if *left < (head_bytes + DIGEST_BYTES) as u64 {
        return Ok(None);
    }
    let mut bytes = vec![0; head_bytes];
    file.read_exact(&mut bytes)?;
    let length = u64::from_be_bytes(bytes[HEADER.len()..].try_into().expect("ledger: eight bytes"));
    let rest = *left - head_bytes as u64 - DIGEST_BYTES as u64;
    if !bytes.starts_with(HEADER) || length > rest || length > RECORD_BYTES_MAX {
        return Ok(None);
    }
    let whole = head_bytes + length as usize + DIGEST_BYTES;
    bytes.resize(whole, 0);
    file.read_exact(&mut bytes[head_bytes..])?;
    *left -= whole as u64;
    Ok(Record::decode(&bytes).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::durable::{Fault, Operation};

    fn record(old: u64, entries: &[&[u8]]) -> Record {
        let entries = entries.iter().map(|entry| entry.to_vec()).collect();
        Record { old: TreeSize(old), previous: format!("note {old}\n"), entries }
    }

    fn records(folder: &Path) -> Vec<Record> {
        let mut found = Vec::new();
        let journal = Journal::new(folder.to_owned(), Arc::default());
        let keep = |record| {
            found.push(record);
            Ok(())
        };
        journal.replay(keep).unwrap();
        found
    }

    #[test]
    fn a_record_is_read_back_and_every_damage_is_seen() {
        let record = record(3, &[b"one", b"", &[7; 300]]);
        let bytes = record.encode();
        assert_eq!(Record::decode(&bytes), Ok(record));
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(Record::decode(&damaged).is_err(), "byte {at}");
            assert!(Record::decode(&bytes[..at]).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn a_segment_cut_at_any_byte_or_followed_by_garbage_keeps_its_whole_records() {
        let folder = tempfile::tempdir().unwrap();
        let mut journal = Journal::new(folder.path().to_owned(), Arc::default());
        let all = [record(0, &[b"a"]), record(1, &[b"b", b"c"]), record(3, &[b"d"])];
        let mut ends = Vec::new();
        for record in &all {
            assert_eq!(journal.append(record).unwrap(), *record);
            ends.push(journal.segment_bytes() as usize);
        }
        let path = folder.path().join(format!("{:020}", 0));
        let good = std::fs::read(&path).unwrap();
        for at in 0..=good.len() {
            let whole = ends.iter().filter(|end| **end <= at).count();
            for garbage in [&b""[..], &[0; 100], &[0xff; 100], &HEADER.repeat(9)] {
                std::fs::write(&path, [&good[..at], garbage].concat()).unwrap();
                assert_eq!(records(folder.path()), all[..whole], "cut at {at}, then {} bytes", garbage.len());
            }
        }
    }

    #[test]
    fn a_record_that_was_not_promised_is_gone_and_another_takes_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let mut journal = Journal::new(folder.path().to_owned(), Arc::default());
        journal.append(&record(0, &[b"a"])).unwrap();
        journal.append(&record(1, &[b"not promised", b"this neither"])).unwrap();
        journal.undo().unwrap();
        assert_eq!(records(folder.path()), [record(0, &[b"a"])]);
        journal.append(&record(1, &[b"b"])).unwrap();
        assert_eq!(journal.close_segment().unwrap().len(), 1);
        journal.append(&record(2, &[b"c"])).unwrap();
        assert_eq!(records(folder.path()), [record(0, &[b"a"]), record(1, &[b"b"]), record(2, &[b"c"])]);
    }

    #[test]
    fn what_is_not_read_back_as_it_was_written_does_not_count() {
        let folder = tempfile::tempdir().unwrap();
        // The disk changes a bit of what it is given.
        let flip = |operation, path: &Path| {
            if operation == Operation::Sync && path.is_file() {
                let mut bytes = std::fs::read(path).unwrap();
                bytes[HEADER.len() + 60] ^= 1;
                std::fs::write(path, bytes).unwrap();
            }
            Fault::None
        };
        let files = Files::with_faults(Box::new(flip));
        let mut journal = Journal::new(folder.path().to_owned(), Arc::new(files));
        let result = journal.append(&record(0, &[&[7; 300]]));
        assert!(matches!(result, Err(LogError::Journal(RecordError::BadDigest))), "{result:?}");
        journal.undo().unwrap();
        assert_eq!(records(folder.path()), []);
    }
}
