//! Where output goes, and how a file of it is whole or absent.

use crate::journal::WORK;
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

/// Checks that an output folder is for these devices to write to: new or empty, or with what they, or others of the
/// same run, are still at or have written.
pub fn check_place(out: &Path, ranks: &[u64]) -> Result<(), StagingError> {
    let names = crate::journal::names(out).map_err(system(out))?;
    let begun = |rank: &u64| out.join(WORK).join(format!("rank-{rank}")).exists();
    let at_work = ranks.iter().any(begun);
    let own = |name: &String| ranks.iter().any(|rank| *name == format!("receipt-{rank}.cose"));
    let known = |name: &str| {
        [WORK, "traces"].contains(&name)
            || ["receipt-", "log", "loss"].iter().any(|start| name.starts_with(start))
    };
    match names.into_iter().find(|name| !known(name) || (own(name) && !at_work)) {
        Some(found) => Err(StagingError::NotEmpty { path: out.to_owned(), found }),
        None => Ok(()),
    }
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

/// The folder that holds a path.
pub fn parent_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Names in a folder are on disk once the folder itself is synced.
pub fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// An error of the system, with the path it is about.
pub fn system(path: &Path) -> impl Fn(io::Error) -> StagingError + use<> {
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
    fn a_place_is_taken_if_it_is_new_or_of_a_run_that_goes_on() {
        let parent = tempfile::tempdir().unwrap();
        let out = parent.path().join("out");
        assert!(check_place(&out, &[0]).is_ok());
        fs::create_dir_all(out.join("work/rank-1")).unwrap();
        for name in ["receipt-0.cose", "receipt-0.body.cbor", "log.jsonl", "loss.svg"] {
            fs::write(out.join(name), b"").unwrap();
        }
        assert!(check_place(&out, &[1]).is_ok(), "another device of the run may be finished");
        let error = check_place(&out, &[0]).unwrap_err();
        assert!(
            matches!(&error, StagingError::NotEmpty { found, .. } if found == "receipt-0.cose"),
            "{error}"
        );
        assert!(check_place(&out, &[0, 1]).is_ok(), "one that was ended while it handed in goes on");
        fs::write(out.join("mine"), b"").unwrap();
        let error = check_place(&out, &[1]).unwrap_err();
        assert!(matches!(&error, StagingError::NotEmpty { found, .. } if found == "mine"), "{error}");
        let file = parent.path().join("file");
        fs::write(&file, b"").unwrap();
        assert!(check_place(&file, &[0]).is_err());
    }

    #[test]
    fn a_file_that_cannot_be_put_in_place_leaves_no_remains() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("taken")).unwrap();
        assert!(write_atomic(&folder.path().join("taken"), b"1", 0o600).is_err());
        assert_eq!(names(folder.path()), ["taken"]);
    }
}
