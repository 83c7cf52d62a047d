//! The lock: one server for a log, and the record of what this log last promised.
//!
//! It stands in a folder of its own beside the log's, never inside: who restores an old copy of the log's folder does
//! not restore what was promised since, and is told so before a second root is signed for a size that has one.
//!
//! `head` holds two slots of 4096 bytes. A slot is a number, u64, the length of a checkpoint note, u32, the note, and
//! SHA-256 over these; numbers are big-endian. The slot with the higher number counts, and the other one is written
//! over, so that a write that is cut short leaves what was promised before.

use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest, Sha256};
use tlog::tree::TreeSize;

use crate::disk::durable::{Files, ensure_folder, patient, read_optional};
use crate::error::LogError;

const SLOT_BYTES: usize = 4096;
const NOTE_AT: usize = 12;
const DIGEST_BYTES: usize = 32;

/// Where the lock of a log's folder is, unless said otherwise: beside it, with `.lock` after its name.
pub fn beside(base: &Path) -> Result<PathBuf, LogError> {
    let named = match base.file_name() {
        Some(_) => base.to_owned(),
        // Such as `.`: its name is what it is called where it stands.
        None => base.canonicalize().map_err(LogError::io(base))?,
    };
    match named.file_name() {
        Some(name) => Ok(named.with_file_name(format!("{}.lock", name.to_string_lossy()))),
        None => Err(LogError::LockInside { path: named }),
    }
}

/// Both folders, held as long as the value lives.
pub struct FolderLock {
    held: [Held; 2],
}

/// A folder, held by a file in it.
struct Held {
    folder: PathBuf,
    file: File,
}

impl FolderLock {
    /// Takes the folders of a log and of its lock, making them if need be.
    pub fn take(base: &Path, lock: &Path) -> Result<FolderLock, LogError> {
        let inside = || LogError::LockInside { path: lock.to_owned() };
        // By name, so that nothing is made in there, and then by what the names lead to.
        let absolute = |folder: &Path| std::path::absolute(folder).map_err(LogError::io(folder));
        if absolute(lock)?.starts_with(absolute(base)?) {
            return Err(inside());
        }
        for folder in [base, lock] {
            ensure_folder(folder).map_err(LogError::io(folder))?;
        }
        let real = |folder: &Path| folder.canonicalize().map_err(LogError::io(folder));
        if real(lock)?.starts_with(real(base)?) {
            return Err(inside());
        }
        Ok(FolderLock { held: [Held::take(base)?, Held::take(lock)?] })
    }

    /// Refuses to go on if what stands where a folder was is another one by now, or nothing: whoever writes there would
    /// write into a copy, or begin a new log. Costs a look at each folder.
    pub fn check(&self) -> Result<(), LogError> {
        self.held.iter().try_for_each(Held::check)
    }
}

/// Held by a server in each of its folders.
const IN_USE: &str = "in-use";

impl Held {
    fn take(folder: &Path) -> Result<Held, LogError> {
        let file = lock_file(&folder.join(IN_USE), folder)?;
        Ok(Held { folder: folder.to_owned(), file })
    }

    fn check(&self) -> Result<(), LogError> {
        let moved = || LogError::Moved { path: self.folder.clone() };
        let found = std::fs::metadata(self.folder.join(IN_USE)).map_err(|_| moved())?;
        let held = self.file.metadata().map_err(LogError::io(&self.folder))?;
        // The file is open, so no other one has its number.
        if (found.dev(), found.ino()) == (held.dev(), held.ino()) { Ok(()) } else { Err(moved()) }
    }
}

/// Takes the lock that a file stands for, for whoever has the folder `base`; it lasts as long as the file is open.
pub fn lock_file(path: &Path, base: &Path) -> Result<File, LogError> {
    let file = File::options().create(true).append(true).open(path).map_err(LogError::io(path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(LogError::InUse { path: base.to_owned() }),
        Err(TryLockError::Error(source)) => Err(LogError::Io { path: path.to_owned(), source }),
    }
}

/// The record of what was promised.
pub struct Lock {
    path: PathBuf,
    files: Arc<Files>,
}

/// What is in a slot.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Slot {
    number: u64,
    note: String,
}

impl Lock {
    /// The record in a lock's folder.
    pub fn new(folder: &Path, files: Arc<Files>) -> Lock {
        Lock { path: folder.join("head"), files }
    }

    /// The record's file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The last signed checkpoint note, if the log has signed any.
    pub fn read(&self) -> Result<Option<String>, LogError> {
        let Some(bytes) = read_optional(&self.path).map_err(LogError::io(&self.path))? else {
            return Ok(None);
        };
        match current(&bytes).map(|(_, slot)| slot.note).or_else(|| first_form(&bytes)) {
            Some(note) => Ok(Some(note)),
            None => Err(LogError::LockDamaged { path: self.path.clone() }),
        }
    }

    /// Whether one of the two slots is not whole. A write that was cut short leaves that too, but then nothing was
    /// published that the other slot does not have.
    pub fn has_damaged_slot(&self) -> Result<bool, LogError> {
        let bytes = read_optional(&self.path).map_err(LogError::io(&self.path))?.unwrap_or_default();
        Ok(current(&bytes).is_some_and(|(at, slot)| {
            let other = SLOT_BYTES - at;
            // Of the first record there is one slot only.
            slot.number > 1 && bytes.get(other..other + SLOT_BYTES).and_then(decode).is_none()
        }))
    }

    /// What it means that a folder has published more than the record says, if one of its slots was damaged or not.
    pub fn older_than(&self, damaged: bool, data: TreeSize, lock: TreeSize) -> LogError {
        match damaged {
            true => LogError::LockSlotDamaged { path: self.path.clone(), data, lock },
            false => LogError::LockOlderThanData { data, lock },
        }
    }

    /// Writes down again what is there. A write that had failed may stand in memory only, and look as if it were on
    /// disk.
    pub fn renew(&self, note: &str) -> Result<(), LogError> {
        self.replace(Some(note), note)
    }

    /// Compare and swap: replaces the record by `new` if it is `old`.
    ///
    /// An error other than [`LogError::LockChanged`] leaves open whether the record was replaced.
    pub fn replace(&self, old: Option<&str>, new: &str) -> Result<(), LogError> {
        assert!(NOTE_AT + new.len() + DIGEST_BYTES <= SLOT_BYTES, "ledger: a note of {} bytes", new.len());
        let wrong = LogError::io(&self.path);
        let found = read_optional(&self.path).map_err(LogError::io(&self.path))?;
        let slot = found.as_deref().and_then(current);
        let note = slot.as_ref().map(|(_, slot)| slot.note.clone());
        let note = note.or_else(|| found.as_deref().and_then(first_form));
        if note.as_deref() != old || (note.is_none() && found.is_some()) {
            return Err(LogError::LockChanged);
        }
        let Some((at, slot)) = slot else {
            let mut bytes = encode(&Slot { number: 1, note: new.to_owned() });
            bytes.resize(2 * SLOT_BYTES, 0);
            return self.files.replace(&self.path, &bytes).map_err(wrong);
        };
        let bytes = encode(&Slot { number: slot.number + 1, note: new.to_owned() });
        let open = || OpenOptions::new().write(true).open(&self.path);
        let file = patient(open).map_err(LogError::io(&self.path))?;
        let other = if at == 0 { SLOT_BYTES as u64 } else { 0 };
        let written = self.files.write_at(&file, &self.path, &bytes, other);
        written.and_then(|()| self.files.sync(&file, &self.path)).map_err(wrong)
    }
}

/// The slot that counts, and where it starts.
fn current(bytes: &[u8]) -> Option<(usize, Slot)> {
    let slots = [0, SLOT_BYTES].into_iter();
    let slots = slots.filter_map(|at| Some((at, decode(bytes.get(at..at + SLOT_BYTES)?)?)));
    slots.max_by_key(|(_, slot)| slot.number)
}

/// The note alone, as the first version wrote it.
fn first_form(bytes: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(bytes).ok()?;
    (text.contains("\n\n") && text.ends_with('\n')).then(|| text.to_owned())
}

fn encode(slot: &Slot) -> Vec<u8> {
    let mut bytes = slot.number.to_be_bytes().to_vec();
    bytes.extend_from_slice(&(slot.note.len() as u32).to_be_bytes());
    bytes.extend_from_slice(slot.note.as_bytes());
    let digest = Sha256::digest(&bytes);
    bytes.extend_from_slice(&digest);
    bytes.resize(SLOT_BYTES, 0);
    bytes
}

fn decode(bytes: &[u8]) -> Option<Slot> {
    let number = u64::from_be_bytes(bytes.get(..8)?.try_into().ok()?);
    let length = u32::from_be_bytes(bytes.get(8..NOTE_AT)?.try_into().ok()?) as usize;
    let end = NOTE_AT.checked_add(length)?;
    let digest = bytes.get(end..end.checked_add(DIGEST_BYTES)?)?;
    if Sha256::digest(&bytes[..end]).as_slice() != digest {
        return None;
    }
    Some(Slot { number, note: String::from_utf8(bytes[NOTE_AT..end].to_vec()).ok()? })
}

/// Whether a lock of the first version stands inside a log's folder.
pub fn inside(base: &Path) -> bool {
    base.join("lock/head").symlink_metadata().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(folder: &Path) -> Lock {
        Lock::new(folder, Arc::default())
    }

    #[test]
    fn the_record_is_replaced_by_whoever_shows_it_and_by_nobody_else() {
        let folder = tempfile::tempdir().unwrap();
        let lock = lock(folder.path());
        assert_eq!(lock.read().unwrap(), None);
        assert!(matches!(lock.replace(Some("note 0\n"), "note 1\n"), Err(LogError::LockChanged)));
        lock.replace(None, "note 1\n").unwrap();
        assert!(matches!(lock.replace(None, "note 2\n"), Err(LogError::LockChanged)));
        for number in 1..5 {
            lock.replace(Some(&format!("note {number}\n")), &format!("note {}\n", number + 1)).unwrap();
            assert_eq!(lock.read().unwrap(), Some(format!("note {}\n", number + 1)));
        }
        lock.renew("note 5\n").unwrap();
        assert_eq!(lock.read().unwrap(), Some("note 5\n".to_owned()));
    }

    #[test]
    fn a_write_that_is_cut_short_anywhere_leaves_what_was_promised_before() {
        let folder = tempfile::tempdir().unwrap();
        let lock = lock(folder.path());
        lock.replace(None, "note 1\n").unwrap();
        lock.replace(Some("note 1\n"), "note 2\n").unwrap();
        let before = std::fs::read(lock.path()).unwrap();
        lock.replace(Some("note 2\n"), "note 3\n").unwrap();
        let after = std::fs::read(lock.path()).unwrap();
        for at in 0..before.len() {
            let torn = [&after[..at], &before[at..]].concat();
            std::fs::write(lock.path(), &torn).unwrap();
            let expected = if torn == after { "note 3\n" } else { "note 2\n" };
            assert_eq!(lock.read().unwrap().as_deref(), Some(expected), "cut at {at}");
        }
    }

    #[test]
    fn a_record_of_the_first_version_is_read_and_one_of_no_version_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let lock = lock(folder.path());
        let note = "example.com/log\n1\nroot\n\n\u{2014} signature\n";
        std::fs::write(lock.path(), note).unwrap();
        assert_eq!(lock.read().unwrap().as_deref(), Some(note));
        lock.replace(Some(note), "note 2\n").unwrap();
        assert_eq!(lock.read().unwrap().as_deref(), Some("note 2\n"));
        for bytes in [&b""[..], b"something", &[0; 2 * SLOT_BYTES]] {
            std::fs::write(lock.path(), bytes).unwrap();
            assert!(matches!(lock.read(), Err(LogError::LockDamaged { .. })), "{} bytes", bytes.len());
            assert!(matches!(lock.replace(None, "note\n"), Err(LogError::LockChanged)));
        }
    }
}
