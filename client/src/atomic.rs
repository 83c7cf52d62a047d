//! Files that are there whole or not at all: written beside their place, made durable, then renamed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// Mode of files that anyone may read.
pub const PUBLIC: u32 = 0o644;
/// Mode of files that only their owner may read.
pub const SECRET: u32 = 0o600;

/// Why a file was not written. Nothing of it is left behind.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}: {source}", path.display())]
pub struct WriteError {
    /// The file.
    pub path: PathBuf,
    /// What the system said.
    pub source: io::Error,
}

impl WriteError {
    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        if self.source.kind() == io::ErrorKind::AlreadyExists {
            return Some("it is there already and is left alone: give another name, or move it away".into());
        }
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty())?;
        (self.source.kind() == io::ErrorKind::NotFound && !folder.exists())
            .then(|| format!("there is no folder {}: make it first", folder.display()))
    }
}

/// Writes a file, in place of any that is there. When this returns, it is durable.
pub fn write(path: &Path, bytes: &[u8], mode: u32) -> Result<(), WriteError> {
    wrap(path, || {
        let staged = Staged::create(path, bytes, mode)?;
        // A crash before this line leaves the old file; after it, the new one.
        fs::rename(&staged.path, path)?;
        sync_folder_of(path)
    })
}

/// Writes a file that must not be there yet; an error of kind `AlreadyExists` if it is.
pub fn write_new(path: &Path, bytes: &[u8], mode: u32) -> Result<(), WriteError> {
    wrap(path, || {
        let staged = Staged::create(path, bytes, mode)?;
        // Unlike a rename, a link never replaces what is there.
        fs::hard_link(&staged.path, path)?;
        sync_folder_of(path)
    })
}

fn wrap<T>(path: &Path, work: impl FnOnce() -> io::Result<T>) -> Result<T, WriteError> {
    work().map_err(|source| WriteError { path: path.to_owned(), source })
}

/// A file beside its place; removed when dropped, whatever became of it.
struct Staged {
    path: PathBuf,
}

impl Staged {
    fn create(path: &Path, bytes: &[u8], mode: u32) -> io::Result<Staged> {
        let staged = Staged { path: staged_beside(path)? };
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&staged.path)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        Ok(staged)
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        // After a rename there is nothing left to remove.
        let _ = fs::remove_file(&self.path);
    }
}

/// A new folder that is there whole or not at all: filled beside its place, removed when dropped before it is placed.
pub struct StagedFolder {
    path: PathBuf,
    place: PathBuf,
}

impl StagedFolder {
    /// For a folder that must not be there yet.
    pub fn create(place: &Path) -> Result<StagedFolder, WriteError> {
        wrap(place, || {
            if place.symlink_metadata().is_ok() {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            let path = staged_beside(place)?;
            fs::create_dir(&path)?;
            Ok(StagedFolder { path, place: place.to_owned() })
        })
    }

    /// Where it is filled.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Gives it its name. Only an empty folder can have come there since, and would be replaced.
    pub fn place(self) -> Result<(), WriteError> {
        wrap(&self.place, || {
            fs::rename(&self.path, &self.place)?;
            sync_folder_of(&self.place)
        })
    }
}

impl Drop for StagedFolder {
    fn drop(&mut self) {
        // After a rename there is nothing left to remove.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// A name beside a place that nobody has.
fn staged_beside(path: &Path) -> io::Result<PathBuf> {
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(|error| io::Error::other(error.to_string()))?;
    let name = path.file_name().ok_or_else(|| io::Error::other("the path names no file"))?;
    let mut staged_name = std::ffi::OsString::from(".");
    staged_name.push(name);
    staged_name.push(format!(".{}.partial", hex::encode(random)));
    Ok(path.with_file_name(staged_name))
}

/// Makes a name in a folder durable.
fn sync_folder_of(path: &Path) -> io::Result<()> {
    let folder = match path.parent() {
        Some(folder) if folder.as_os_str().is_empty() => Path::new("."),
        Some(folder) => folder,
        None => Path::new("/"),
    };
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_written_whole_with_its_mode_and_replaces_the_old_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.tally");
        write(&path, b"old", SECRET).unwrap();
        write(&path, b"new", PUBLIC).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o077, 0o044);
        write(&path, b"newer", SECRET).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(names(folder.path()), ["run.tally"]);
    }

    #[test]
    fn a_new_file_never_replaces_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.key");
        write_new(&path, b"first", SECRET).unwrap();
        let error = write_new(&path, b"second", SECRET).unwrap_err();
        assert_eq!(error.source.kind(), io::ErrorKind::AlreadyExists);
        assert!(error.hint().unwrap().contains("move it away"), "{:?}", error.hint());
        assert_eq!(fs::read(&path).unwrap(), b"first");
        assert_eq!(names(folder.path()), ["a.key"]);
    }

    #[test]
    fn a_failure_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let error = write(&folder.path().join("absent/file"), b"x", PUBLIC).unwrap_err();
        assert!(error.hint().unwrap().ends_with("absent: make it first"), "{:?}", error.hint());
        // A folder stands where the file should go: the rename fails after the bytes were staged.
        let taken = folder.path().join("taken");
        fs::create_dir(&taken).unwrap();
        fs::write(taken.join("inside"), b"").unwrap();
        let error = write(&taken, b"x", PUBLIC).unwrap_err();
        assert!(error.to_string().starts_with("cannot write "), "{error}");
        assert_eq!(names(folder.path()), ["taken"]);
        assert!(write(Path::new("/"), b"x", PUBLIC).is_err());
    }
}
