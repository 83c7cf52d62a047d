//! Files that survive a power cut: written beside their place, synced, renamed, and the folder synced.
//!
//! The order of system calls for one file is: open a temporary file in the same folder, write, fsync, rename over
//! the name, fsync the folder. After a crash at any moment the name holds the old bytes or the new ones, whole.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// What a fault table makes of one file operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It works.
    None,
    /// It fails and has done nothing.
    Before,
    /// It fails although it has done its work: the caller cannot know.
    After,
}

/// Decides the fate of each file operation; only tests have one.
pub type Faults = Box<dyn Fn(&Path) -> Fault + Send + Sync>;

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
        self.attempt(path, || replace(path, bytes, 0o644))
    }

    /// Like [`Files::replace`], for a file that only its owner may read.
    pub fn replace_secret(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.attempt(path, || replace(path, bytes, 0o600))
    }

    /// Removes a file if it is there. This need not survive a crash: whatever is removed is no longer needed.
    pub fn remove(&self, path: &Path) -> io::Result<()> {
        self.attempt(path, || match fs::remove_file(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        })
    }

    fn attempt(&self, path: &Path, work: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let fault = self.faults.as_ref().map_or(Fault::None, |faults| faults(path));
        if fault == Fault::Before {
            return Err(io::Error::other("fault before the operation"));
        }
        work()?;
        if fault == Fault::After {
            return Err(io::Error::other("fault after the operation"));
        }
        Ok(())
    }
}

fn replace(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let folder = path.parent().ok_or_else(|| io::Error::other("a file without a folder"))?;
    // A bare name stands in the current folder.
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let name = path.file_name().ok_or_else(|| io::Error::other("a file without a name"))?;
    ensure_folder(folder)?;
    // Each path has one writer, so the temporary name is fixed and a leftover of a crash is simply overwritten.
    let temporary = folder.join(format!(".{}.new", name.to_string_lossy()));
    fs::remove_file(&temporary).or_else(ignore_missing)?;
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&temporary)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    sync_folder(folder)
}

fn ignore_missing(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
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
    File::open(folder)?.sync_all()
}

/// Syncs every folder from the one a file lies in up to `base`. A crash may have come between making a folder and
/// entering it durably into the one above; whoever finds the folder there cannot tell.
pub fn sync_folders_up_to(base: &Path, path: &Path) -> io::Result<()> {
    for folder in path.ancestors().skip(1).take_while(|folder| folder.starts_with(base)) {
        sync_folder(folder)?;
    }
    Ok(())
}

/// A file's content, or none if there is no such file.
pub fn read_optional(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
