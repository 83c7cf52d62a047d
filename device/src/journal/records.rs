//! The file of finished steps: entries that are whole or absent, one after the other (docs/spec/work.md#records).

use schemas::digest::RunId;
use schemas::fold::Fold;
use schemas::object::Object as _;
use schemas::receipt::{Answer, DeviceRecord, ReceiptBody};
use sha2::{Digest as _, Sha256};
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::Path;

/// Longest entry: a record of 1024 leaves is far shorter.
const ENTRY_BYTES_MAX: u64 = 1 << 20;
/// Begins an entry of a step.
const STEP: u8 = 1;
/// Begins the entry that says that nothing follows.
const END: u8 = 2;

/// A finished step of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What its receipt will say of it.
    pub record: DeviceRecord,
    /// The answer to the challenge, in the step it chose.
    pub answer: Option<Answer>,
    /// Loss bits of all leaves of the step; absent if a partner was lost before it told its own.
    pub losses: Option<Vec<u32>>,
    /// How long the step took.
    pub micros: u64,
    /// When it was finished, in milliseconds since 1970.
    pub unix_ms: u64,
}

/// What a file of records holds.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Steps 0, 1, 2, ..., without a gap.
    pub entries: Vec<Entry>,
    /// Where each entry begins, and where the last of them ends.
    pub places: Vec<u64>,
    /// Whether it says that nothing follows.
    pub ended: bool,
    /// Bytes after the last whole entry: what was being written when the process ended, or damage.
    pub unread: u64,
}

/// Bytes of an entry, with its frame.
pub fn encode(run: RunId, rank: u64, entry: &Entry) -> Vec<u8> {
    let mut bytes = vec![STEP];
    bytes.extend(entry.micros.to_le_bytes());
    bytes.extend(entry.unix_ms.to_le_bytes());
    bytes.push(entry.answer.is_some().into());
    if let Some(answer) = entry.answer {
        bytes.extend(answer.reduced.to_bytes());
        bytes.extend(answer.parameters.to_bytes());
    }
    let losses = entry.losses.as_deref().unwrap_or_default();
    bytes.extend((losses.len() as u32).to_le_bytes());
    losses.iter().for_each(|loss| bytes.extend(loss.to_le_bytes()));
    bytes.extend(ReceiptBody { run, rank, records: vec![entry.record.clone()] }.encode());
    framed(bytes)
}

/// Bytes of the entry that says that nothing follows, with its frame.
pub fn encode_end() -> Vec<u8> {
    framed(vec![END])
}

fn framed(bytes: Vec<u8>) -> Vec<u8> {
    let digest: [u8; 32] = Sha256::digest(&bytes).into();
    [&(bytes.len() as u64).to_le_bytes()[..], &digest, &bytes].concat()
}

/// Reads what is whole, and stops where something is not.
pub fn read(bytes: &[u8], run: RunId, rank: u64) -> Found {
    let mut found = Found { places: vec![0], ..Found::default() };
    let mut rest = bytes;
    while let Some((entry, after)) = split(rest).filter(|_| !found.ended) {
        match decode(entry, run, rank) {
            Some(Some(entry)) if entry.record.step == found.entries.len() as u64 => found.entries.push(entry),
            Some(None) => found.ended = true,
            _ => break,
        }
        rest = after;
        if !found.ended {
            found.places.push((bytes.len() - rest.len()) as u64);
        }
    }
    found.unread = rest.len() as u64;
    found
}

/// The next entry, if it is whole, and what follows it.
fn split(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<8>()?;
    let (digest, rest) = rest.split_first_chunk::<32>()?;
    let length = u64::from_le_bytes(*length);
    if ENTRY_BYTES_MAX < length || (rest.len() as u64) < length {
        return None;
    }
    let (entry, rest) = rest.split_at(length as usize);
    (Sha256::digest(entry).as_slice() == digest).then_some((entry, rest))
}

/// An entry that is whole, or the one that says that nothing follows.
fn decode(bytes: &[u8], run: RunId, rank: u64) -> Option<Option<Entry>> {
    let (&kind, bytes) = bytes.split_first()?;
    if kind == END {
        return bytes.is_empty().then_some(None);
    }
    let (micros, bytes) = bytes.split_first_chunk::<8>()?;
    let (unix_ms, bytes) = bytes.split_first_chunk::<8>()?;
    let (&answered, mut bytes) = bytes.split_first()?;
    let mut folds = None;
    if answered == 1 {
        let (reduced, rest) = bytes.split_first_chunk::<16>()?;
        let (parameters, rest) = rest.split_first_chunk::<16>()?;
        folds = Some((Fold::from_bytes(*reduced), Fold::from_bytes(*parameters)));
        bytes = rest;
    }
    let (count, bytes) = bytes.split_first_chunk::<4>()?;
    let (losses, bytes) = bytes.split_at_checked(4 * u32::from_le_bytes(*count) as usize)?;
    let losses: Vec<u32> = losses.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word)).collect();
    let mut body = ReceiptBody::decode(bytes).ok()?;
    let record =
        body.records.pop().filter(|_| body.records.is_empty() && body.run == run && body.rank == rank)?;
    let answer = folds.map(|(reduced, parameters)| Answer { step: record.step, reduced, parameters });
    let losses = Some(losses).filter(|losses| !losses.is_empty());
    let (micros, unix_ms) = (u64::from_le_bytes(*micros), u64::from_le_bytes(*unix_ms));
    (kind == STEP && answered <= 1).then_some(Some(Entry { record, answer, losses, micros, unix_ms }))
}

/// The file, open for entries to follow.
pub struct Records {
    file: File,
    run: RunId,
    rank: u64,
}

impl Records {
    /// Opens the file, or makes it, and reads what it holds.
    pub fn open(path: &Path, run: RunId, rank: u64) -> io::Result<(Records, Found)> {
        let mut file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok((Records { file, run, rank }, read(&bytes, run, rank)))
    }

    /// Forgets everything from a place on.
    pub fn cut(&mut self, place: u64) -> io::Result<()> {
        self.file.set_len(place)?;
        self.file.sync_all()
    }

    /// Adds a step, and says how many bytes it takes.
    pub fn append(&mut self, entry: &Entry) -> io::Result<u64> {
        let bytes = encode(self.run, self.rank, entry);
        self.file.write_all(&bytes)?;
        Ok(bytes.len() as u64)
    }

    /// Adds that nothing follows.
    pub fn append_end(&mut self) -> io::Result<()> {
        self.file.write_all(&encode_end())
    }

    /// Waits until everything is on disk.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use schemas::digest::{Checksum, TraceRoot};
    use schemas::receipt::{DeviceOutcome, Sum};

    /// A made-up run.
    pub const RUN: RunId = RunId([4; 32]);

    /// A made-up step.
    pub fn entry(step: u64) -> Entry {
        let fold = |a| Fold { a, b: step };
        let sum = |byte| Sum { checksum: Checksum([byte; 32]), fold: fold(u64::from(byte)) };
        let outcome = DeviceOutcome {
            partial: sum(1),
            exchanges: vec![],
            reduced: sum(2),
            norm: 3,
            parameters: sum(4),
            first_moment: fold(5),
            second_moment: fold(6),
        };
        let record = DeviceRecord {
            step,
            traces: vec![TraceRoot([7; 32]); 2],
            losses: vec![8, 9],
            outcome: Some(outcome),
            non_finite: None,
        };
        let answer = (step % 2 == 1).then_some(Answer { step, reduced: fold(10), parameters: fold(11) });
        let losses = (step != 2).then_some(vec![8, 9, 8, 9]);
        Entry { record, answer, losses, micros: 100 + step, unix_ms: 1 << 40 }
    }

    fn file(steps: u64) -> Vec<u8> {
        (0..steps).flat_map(|step| encode(RUN, 1, &entry(step))).collect()
    }

    #[test]
    fn entries_are_read_as_they_were_written() {
        let bytes = [file(4), encode_end()].concat();
        let found = read(&bytes, RUN, 1);
        assert_eq!(found.entries, [0, 1, 2, 3].map(entry));
        assert_eq!(found.places, [0, 1, 2, 3, 4].map(|steps| file(steps).len() as u64));
        assert_eq!((found.ended, found.unread), (true, 0));
        assert_eq!(read(&[], RUN, 1), Found { places: vec![0], ..Found::default() });
    }

    #[test]
    fn a_file_cut_anywhere_gives_the_entries_that_are_whole() {
        let bytes = [file(3), encode_end()].concat();
        let places: Vec<usize> = [1, 2, 3].map(|steps| file(steps).len()).to_vec();
        for end in 0..bytes.len() {
            let found = read(&bytes[..end], RUN, 1);
            let whole = places.iter().filter(|place| **place <= end).count();
            assert_eq!((found.entries.len(), found.ended), (whole, false), "{end} bytes");
            assert_eq!(found.places.last().unwrap() + found.unread, end as u64);
        }
    }

    #[test]
    fn a_changed_byte_ends_what_is_read_before_it() {
        let bytes = [file(3), encode_end()].concat();
        let places: Vec<usize> = [1, 2, 3].map(|steps| file(steps).len()).to_vec();
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            let found = read(&changed, RUN, 1);
            let before = places.iter().filter(|place| **place <= at).count();
            assert_eq!((found.entries.len(), found.ended), (before, false), "byte {at}");
        }
    }

    #[test]
    fn entries_of_another_run_rank_or_place_are_not_read() {
        assert!(read(&file(2), RunId([5; 32]), 1).entries.is_empty());
        assert!(read(&file(2), RUN, 0).entries.is_empty());
        let gap = [encode(RUN, 1, &entry(0)), encode(RUN, 1, &entry(2))].concat();
        assert_eq!(read(&gap, RUN, 1).entries.len(), 1);
        let after = [encode(RUN, 1, &entry(0)), encode_end(), encode(RUN, 1, &entry(1))].concat();
        let found = read(&after, RUN, 1);
        assert_eq!((found.entries.len(), found.ended), (1, true));
        assert!(found.unread > 0);
    }

    #[test]
    fn a_full_disk_is_said_and_what_is_half_written_is_dropped_at_the_next_start() {
        let full = OpenOptions::new().read(true).append(true).open("/dev/full");
        let Ok(file) = full else { return };
        let mut records = Records { file, run: RUN, rank: 1 };
        assert_eq!(records.append(&entry(0)).unwrap_err().kind(), io::ErrorKind::StorageFull);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("records");
        let whole = encode(RUN, 1, &entry(0));
        std::fs::write(&path, [&whole[..], &whole[..20]].concat()).unwrap();
        let (mut records, found) = Records::open(&path, RUN, 1).unwrap();
        assert_eq!((found.entries.len(), found.unread), (1, 20));
        records.cut(*found.places.last().unwrap()).unwrap();
        records.append(&entry(1)).unwrap();
        let (_, found) = Records::open(&path, RUN, 1).unwrap();
        assert_eq!((found.entries, found.unread), (vec![entry(0), entry(1)], 0));
    }
}
