//! Files that survive a power cut: written beside their place, synced, renamed, and the folder synced.
//!
//! The order of system calls for one file is: open a temporary file in the same folder, write, fsync, rename over
//! the name, fsync the folder. After a crash at any moment the name holds the old bytes or the new ones, whole.
//!
//! What is only appended to, and what is synced later, uses the single steps. A sync that has failed is never tried
//! again: the system may have forgotten what it could not write, and the second try would say that all is well.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Errors of the system: this process, or all together, have too many files open. Linux and the BSDs agree on them.
const OPEN_FILES: i32 = 24;
const OPEN_FILES_IN_ALL: i32 = 23;
/// How often, and after what pause, opening is tried again then: five seconds in all.
const PATIENCE: usize = 100;
const PAUSE_MS: u64 = 50;

/// What a fault table makes of one file operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It works.
    None,
    /// It fails and has done nothing.
    Before,
    /// It fails although it has done its work: the caller cannot know.
    After,
    /// The disk is full: a write does half of its work and fails, anything else that needs room fails.
    Full,
}

/// What is done to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// The whole of [`Files::replace`].
    Replace,
    /// It is opened, or made if it is not there.
    Open,
    /// Bytes are written, not yet durably.
    Write,
    /// Its bytes are made durable.
    Sync,
    /// It is given its name.
    Rename,
    /// It is cut to a length.
    Truncate,
    /// It is removed.
    Remove,
}

/// Decides the fate of each file operation; only tests have one.
pub type Faults = Box<dyn Fn(Operation, &Path) -> Fault + Send + Sync>;

/// The file operations that durability rests on.
#[derive(Default)]
pub struct Files {
    faults: Option<Faults>,
}

impl Files {
    /// Files whose operations fail as `faults` says.
    pub fn with_faults(faults: Faults) -> Files {
        Files { faults: Some(faults) }
    }

    /// Replaces a file's content: afterwards it is the old content or the new one, whole, and after `Ok` the new.
    /// The folder is made if it is not there.
    pub fn replace(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.attempt(Operation::Replace, path, || replace(path, bytes, 0o644))
    }

    /// Like [`Files::replace`], for a file that only its owner may read.
    pub fn replace_secret(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.attempt(Operation::Replace, path, || replace(path, bytes, 0o600))
    }

    /// Opens a file to read and write, making it and its folder if need be. Its name is durable once the folder is
    /// synced.
    pub fn open(&self, path: &Path) -> io::Result<File> {
        let mut opened = None;
        self.attempt(Operation::Open, path, || {
            ensure_folder(folder_of(path)?)?;
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false);
            opened = Some(patient(|| options.open(path))?);
            Ok(())
        })?;
        opened.ok_or_else(|| io::Error::other("not opened"))
    }

    /// Writes a file beside its place, not durably. [`Files::unveil`] gives it its name.
    pub fn prepare(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let write = |bytes: &[u8]| beside(path, bytes, 0o644).map(drop);
        self.attempt_write(path, bytes, write)
    }

    /// Gives a prepared file its name, not durably.
    pub fn unveil(&self, path: &Path) -> io::Result<()> {
        self.attempt(Operation::Rename, path, || fs::rename(temporary(path)?, path))
    }

    /// Writes bytes at a place of an open file, not durably.
    pub fn write_at(&self, file: &File, path: &Path, bytes: &[u8], at: u64) -> io::Result<()> {
        self.attempt_write(path, bytes, |bytes| file.write_all_at(bytes, at))
    }

    /// Makes what was written to an open file survive a crash.
    pub fn sync(&self, file: &File, path: &Path) -> io::Result<()> {
        self.attempt(Operation::Sync, path, || file.sync_data())
    }

    /// Makes what was written to a file, or entered into a folder, whoever did it, survive a crash.
    pub fn sync_path(&self, path: &Path) -> io::Result<()> {
        self.attempt(Operation::Sync, path, || patient(|| File::open(path))?.sync_all())
    }

    /// Cuts an open file to a length, durably.
    pub fn truncate(&self, file: &File, path: &Path, length: u64) -> io::Result<()> {
        self.attempt(Operation::Truncate, path, || {
            file.set_len(length)?;
            file.sync_all()
        })
    }

    /// Removes a file if it is there. This need not survive a crash: whatever is removed is no longer needed.
    pub fn remove(&self, path: &Path) -> io::Result<()> {
        self.attempt(Operation::Remove, path, || fs::remove_file(path).or_else(ignore_missing))
    }

    fn attempt(
        &self,
        operation: Operation,
        path: &Path,
        work: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        match self.fault(operation, path) {
            Fault::None => work(),
            Fault::Before => Err(io::Error::other("fault before the operation")),
            Fault::After => work().and(Err(io::Error::other("fault after the operation"))),
            Fault::Full if matches!(operation, Operation::Replace | Operation::Open) => Err(full()),
            Fault::Full => work(),
        }
    }

    fn attempt_write(
        &self,
        path: &Path,
        bytes: &[u8],
        write: impl Fn(&[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        match self.fault(Operation::Write, path) {
            Fault::Full => write(&bytes[..bytes.len() / 2]).and(Err(full())),
            Fault::None => write(bytes),
            Fault::Before => Err(io::Error::other("fault before the operation")),
            Fault::After => write(bytes).and(Err(io::Error::other("fault after the operation"))),
        }
    }

    fn fault(&self, operation: Operation, path: &Path) -> Fault {
        self.faults.as_ref().map_or(Fault::None, |faults| faults(operation, path))
    }
}

fn full() -> io::Error {
    io::Error::from(io::ErrorKind::StorageFull)
}

fn replace(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    beside(path, bytes, mode)?.sync_all()?;
    fs::rename(temporary(path)?, path)?;
    sync_folder(folder_of(path)?)
}

/// Writes a file beside its place. Each path has one writer, so the temporary name is fixed and a leftover of a crash
/// is simply written again: as a new file, since nobody knows what became of the old one's bytes.
fn beside(path: &Path, bytes: &[u8], mode: u32) -> io::Result<File> {
    ensure_folder(folder_of(path)?)?;
    let temporary = temporary(path)?;
    fs::remove_file(&temporary).or_else(ignore_missing)?;
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(mode);
    let mut file = patient(|| options.open(&temporary))?;
    file.write_all(bytes)?;
    Ok(file)
}

fn folder_of(path: &Path) -> io::Result<&Path> {
    let folder = path.parent().ok_or_else(|| io::Error::other("a file without a folder"))?;
    // A bare name stands in the current folder.
    Ok(if folder.as_os_str().is_empty() { Path::new(".") } else { folder })
}

fn temporary(path: &Path) -> io::Result<PathBuf> {
    let name = path.file_name().ok_or_else(|| io::Error::other("a file without a name"))?;
    Ok(folder_of(path)?.join(format!(".{}.new", name.to_string_lossy())))
}

fn ignore_missing(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

/// Tries again for a while where too many files are open: that passes, and is no reason to stop.
pub fn patient<T>(mut open: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    for _ in 0..PATIENCE {
        match open() {
            Err(error) if matches!(error.raw_os_error(), Some(OPEN_FILES | OPEN_FILES_IN_ALL)) => {
                std::thread::sleep(Duration::from_millis(PAUSE_MS));
            }
            other => return other,
        }
    }
    open()
}

/// Makes a folder and those above it, each entered durably into the one above.
pub fn ensure_folder(folder: &Path) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    let parent = folder.parent().filter(|parent| !parent.as_os_str().is_empty());
    if let Some(parent) = parent {
        ensure_folder(parent)?;
    }
    match fs::create_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        other => other?,
    }
    sync_folder(parent.unwrap_or(Path::new(".")))
}

/// Makes what was renamed into a folder, or made in it, survive a crash.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    patient(|| File::open(folder))?.sync_all()
}

/// Syncs every folder from the one a file lies in up to `base`. A crash may have come between making a folder and
/// entering it durably into the one above; whoever finds the folder there cannot tell.
pub fn sync_folders_up_to(base: &Path, path: &Path) -> io::Result<()> {
    for folder in path.ancestors().skip(1).take_while(|folder| folder.starts_with(base)) {
        sync_folder(folder)?;
    }
    Ok(())
}

/// Opens a regular file. Asked before it is opened: a pipe would wait for a writer, a device might never end.
pub fn open_file(path: &Path) -> io::Result<File> {
    let kind = fs::metadata(path)?.file_type();
    let found = match () {
        () if kind.is_file() => return File::open(path),
        () if kind.is_dir() => "a folder",
        () => "a pipe, a socket or a device",
    };
    Err(io::Error::other(format!("expected a regular file, found {found}")))
}

/// A regular file of at most `bytes_max` bytes.
pub fn read_limited(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_file(path)?.take(bytes_max + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 {
        found if found > bytes_max => {
            Err(io::Error::other(format!("expected at most {bytes_max} bytes, found more")))
        }
        _ => Ok(bytes),
    }
}

/// A file's content, or none if there is no such file.
pub fn read_optional(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let read = || {
        let mut bytes = Vec::new();
        open_file(path)?.read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    match patient(read) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_many_open_files_is_waited_for_and_nothing_else_is() {
        for code in [OPEN_FILES, OPEN_FILES_IN_ALL] {
            let mut tries = 0;
            let opened = patient(|| {
                tries += 1;
                if tries < 3 { Err(io::Error::from_raw_os_error(code)) } else { Ok(tries) }
            });
            assert_eq!(opened.unwrap(), 3);
        }
        let mut tries = 0;
        let opened: io::Result<()> = patient(|| {
            tries += 1;
            Err(io::ErrorKind::NotFound.into())
        });
        assert_eq!((opened.unwrap_err().kind(), tries), (io::ErrorKind::NotFound, 1));
    }
}
