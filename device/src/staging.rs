//! Output that is whole or absent: single files by rename, a whole folder by building it beside its place.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// Why output cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum StagingError {
    /// The system refused.
    #[error("{}: {source}", path.display())]
    System {
        /// Which file or folder.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The output folder already holds something.
    #[error("{}: expected a new or empty folder for the output, found {found:?} in it", path.display())]
    NotEmpty {
        /// The folder.
        path: PathBuf,
        /// One of the things in it.
        found: String,
    },
}

/// A folder under construction. Dropped before [`Staging::publish`], it leaves nothing behind; what a killed process
/// left is removed by the next start for the same place.
pub struct Staging {
    place: PathBuf,
    beside: PathBuf,
    /// Shows others that somebody is still at work here: the system releases it however the process ends.
    _lock: Option<File>,
}

impl Staging {
    /// Starts a folder that shall stand at `place`, which must not exist yet or be empty.
    pub fn start(place: &Path) -> Result<Staging, StagingError> {
        let (place, is_there) = free_place(place)?;
        let name = place.file_name().ok_or_else(|| unusable(&place))?.to_string_lossy().into_owned();
        let parent = parent_of(&place);
        fs::create_dir_all(parent).map_err(system(parent))?;
        let prefix = format!(".{name}.part-");
        remove_abandoned(parent, &prefix).map_err(system(parent))?;
        // The process id keeps two runs apart that were given one place; the second to finish is refused.
        let beside = parent.join(format!("{prefix}{}", std::process::id()));
        fs::create_dir(&beside).map_err(system(&beside))?;
        let mut staging = Staging { place, beside, _lock: None };
        if is_there {
            // Rehearsed while nothing is lost yet: some folders (mount points) cannot be replaced at all.
            fs::rename(&staging.beside, &staging.place).map_err(system(&staging.place))?;
            fs::create_dir(&staging.beside).map_err(system(&staging.beside))?;
        }
        let folder = File::open(&staging.beside).map_err(system(&staging.beside))?;
        // On a file system without locks the folder goes unmarked, and nobody can take it for abandoned either.
        staging._lock = folder.try_lock().is_ok().then_some(folder);
        Ok(staging)
    }

    /// Writes a file of the folder, with the folders above it, and waits until it is on disk.
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<(), StagingError> {
        let path = self.beside.join(name);
        let folder = parent_of(&path);
        fs::create_dir_all(folder).map_err(system(folder))?;
        let written = File::create_new(&path).and_then(|mut file| {
            file.write_all(bytes)?;
            file.sync_all()
        });
        written.map_err(system(&path))
    }

    /// Puts the folder in its place: from here on, all of it is there.
    pub fn publish(self) -> Result<(), StagingError> {
        sync_folders(&self.beside).map_err(system(&self.beside))?;
        // Point of no return. The system replaces an empty folder by this one in one step, and refuses a full one.
        fs::rename(&self.beside, &self.place).map_err(system(&self.place))?;
        sync(parent_of(&self.place)).map_err(system(&self.place))
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // After `publish` there is nothing here. Before it, a failure is being reported already.
        let _ = fs::remove_dir_all(&self.beside);
    }
}

/// Removes what processes that were killed left of a folder under construction: those that nobody holds a lock on.
fn remove_abandoned(parent: &Path, prefix: &str) -> io::Result<()> {
    for entry in fs::read_dir(parent)? {
        let entry = entry?;
        let name = entry.file_name();
        let process = name.to_str().and_then(|name| name.strip_prefix(prefix));
        let ours = process.is_some_and(|process| process.parse::<u32>().is_ok());
        // Of the entry itself: what a link leads to is none of ours.
        if !ours || !entry.file_type()?.is_dir() {
            continue;
        }
        // Somebody who starts at this very moment may lose the folder that is not locked yet, and is told so.
        let abandoned = File::open(entry.path()).is_ok_and(|folder| folder.try_lock().is_ok());
        if abandoned {
            // What cannot be removed is in nobody's way: this process makes a folder of its own.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    Ok(())
}

/// The name that output can take, and whether an empty folder stands there.
fn free_place(place: &Path) -> Result<(PathBuf, bool), StagingError> {
    let mut entries = match fs::read_dir(place) {
        Ok(entries) => entries,
        // `a/.` and `a/` name what `a` names; a rename needs the name itself.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok((place.components().collect(), false));
        }
        Err(source) => return Err(StagingError::System { path: place.to_owned(), source }),
    };
    if let Some(entry) = entries.next() {
        let found = entry.map_err(system(place))?.file_name().to_string_lossy().into_owned();
        return Err(StagingError::NotEmpty { path: place.to_owned(), found });
    }
    // A link to a folder cannot be replaced by a folder; what it leads to can.
    let real = place.canonicalize().map_err(system(place))?;
    // Whoever stands in a folder that is replaced goes on seeing the old, empty one.
    let current = std::env::current_dir().map_err(system(place))?;
    match current.starts_with(&real) {
        true => Err(unusable(place)),
        false => Ok((real, true)),
    }
}

fn unusable(place: &Path) -> StagingError {
    let expected = "expected the name of a folder that is not the current one";
    let source = io::Error::new(io::ErrorKind::InvalidInput, expected);
    StagingError::System { path: place.to_owned(), source }
}

/// Writes a file to its folder under another name, syncs it, and renames it: it is whole or absent.
pub fn write_atomic(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".part-{}", std::process::id()));
    let beside = PathBuf::from(beside);
    let mut options = OpenOptions::new();
    let written = options.write(true).create_new(true).mode(mode).open(&beside).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&beside, path)
    });
    if written.is_err() {
        // What failed is reported; that its remains cannot be removed would say the same again.
        let _ = fs::remove_file(&beside);
    }
    written?;
    sync(parent_of(path))
}

fn parent_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Names in a folder are on disk once the folder itself is synced.
fn sync_folders(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            sync_folders(&entry.path())?;
        }
    }
    sync(folder)
}

fn system(path: &Path) -> impl Fn(io::Error) -> StagingError + use<> {
    let path = path.to_owned();
    move |source| StagingError::System { path: path.clone(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_folder_appears_whole_and_nothing_else_is_left() {
        let parent = tempfile::tempdir().unwrap();
        for place in ["new", "empty/", "deep/er/still"] {
            let place = parent.path().join(place);
            if place.to_string_lossy().ends_with("empty/") {
                fs::create_dir(&place).unwrap();
            }
            let staging = Staging::start(&place).unwrap();
            staging.write("a", b"1").unwrap();
            staging.write("traces/rank-0/b", b"2").unwrap();
            assert!(!place.join("a").exists());
            staging.publish().unwrap();
            assert_eq!(names(&place), ["a", "traces"]);
            assert_eq!(fs::read(place.join("traces/rank-0/b")).unwrap(), b"2");
        }
        assert_eq!(names(parent.path()), ["deep", "empty", "new"]);
    }

    #[test]
    fn an_abandoned_folder_leaves_nothing() {
        let parent = tempfile::tempdir().unwrap();
        let staging = Staging::start(&parent.path().join("out")).unwrap();
        staging.write("a", b"1").unwrap();
        drop(staging);
        assert!(names(parent.path()).is_empty());
    }

    #[test]
    fn what_a_killed_process_left_is_removed_by_the_next_start_for_the_same_place() {
        let parent = tempfile::tempdir().unwrap();
        let left = [".out.part-1", ".out.part-77", ".out.part-x", ".other.part-1", ".out.part-2"];
        for name in &left[..4] {
            fs::create_dir(parent.path().join(name)).unwrap();
            fs::write(parent.path().join(name).join("receipt-0.cose"), b"1").unwrap();
        }
        fs::write(parent.path().join(left[4]), b"a file").unwrap();
        let mine = parent.path().join(format!(".out.part-{}", std::process::id()));
        fs::create_dir(&mine).unwrap();
        let alive = File::open(parent.path().join(".out.part-77")).unwrap();
        alive.try_lock().unwrap();
        let staging = Staging::start(&parent.path().join("out")).unwrap();
        assert!(names(&mine).is_empty());
        let second = File::open(&mine).unwrap();
        assert!(second.try_lock().is_err(), "a folder under construction is marked as held");
        staging.write("a", b"1").unwrap();
        staging.publish().unwrap();
        let kept = [".other.part-1", ".out.part-2", ".out.part-77", ".out.part-x", "out"];
        assert_eq!(names(parent.path()), kept);
    }

    #[test]
    fn a_folder_with_something_in_it_is_never_replaced() {
        let parent = tempfile::tempdir().unwrap();
        let place = parent.path().join("out");
        let staging = Staging::start(&place).unwrap();
        staging.write("a", b"1").unwrap();
        fs::create_dir(&place).unwrap();
        fs::write(place.join("old"), b"0").unwrap();
        assert!(matches!(staging.publish(), Err(StagingError::System { .. })));
        assert_eq!(names(parent.path()), ["out"]);
        assert_eq!(names(&place), ["old"]);
        let error = Staging::start(&place).err().unwrap();
        assert!(matches!(&error, StagingError::NotEmpty { found, .. } if found == "old"), "{error}");
    }

    #[test]
    fn a_link_to_an_empty_folder_is_followed() {
        let parent = tempfile::tempdir().unwrap();
        fs::create_dir(parent.path().join("real")).unwrap();
        let link = parent.path().join("link");
        std::os::unix::fs::symlink("real", &link).unwrap();
        let staging = Staging::start(&link).unwrap();
        staging.write("a", b"1").unwrap();
        staging.publish().unwrap();
        assert_eq!(names(&parent.path().join("real")), ["a"]);
        assert_eq!(names(parent.path()), ["link", "real"]);
    }

    #[test]
    fn places_that_cannot_be_a_folder_are_refused_at_the_start() {
        let parent = tempfile::tempdir().unwrap();
        let file = parent.path().join("file");
        fs::write(&file, b"").unwrap();
        for place in [&file, &file.join("under"), Path::new("/"), Path::new(""), Path::new("..")] {
            assert!(Staging::start(place).is_err(), "{}", place.display());
        }
        assert_eq!(names(parent.path()), ["file"]);
    }

    #[test]
    fn a_file_that_cannot_be_put_in_place_leaves_no_remains() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("taken")).unwrap();
        assert!(write_atomic(&folder.path().join("taken"), b"1", 0o600).is_err());
        assert_eq!(names(folder.path()), ["taken"]);
    }
}
