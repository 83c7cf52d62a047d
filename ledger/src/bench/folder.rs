//! The folder that the log under load lies in.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A folder, removed with all that is in it when dropped if it was made for the load.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    temporary: bool,
}

impl Folder {
    /// The folder given, or a new one among the system's temporary files.
    pub fn open(given: Option<&Path>) -> io::Result<Folder> {
        if let Some(path) = given {
            fs::create_dir_all(path)?;
            return Ok(Folder { path: path.to_owned(), temporary: false });
        }
        let mut digits = [0; 8];
        getrandom::fill(&mut digits).map_err(io::Error::other)?;
        let path = std::env::temp_dir().join(format!("ledger-bench-{}", hex::encode(digits)));
        fs::create_dir(&path)?;
        Ok(Folder { path, temporary: true })
    }

    /// Where the log lies: in a folder of its own, with room for what a server keeps beside it.
    pub fn log(&self) -> PathBuf {
        self.path.join("log")
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> io::Result<u64> {
        let mut sum = 0;
        let mut waiting = vec![self.path.clone()];
        while let Some(folder) = waiting.pop() {
            for entry in fs::read_dir(folder)? {
                let entry = entry?;
                match entry.metadata()? {
                    found if found.is_dir() => waiting.push(entry.path()),
                    found => sum += found.len(),
                }
            }
        }
        Ok(sum)
    }

    /// The kind of file system, such as `ext4`, as the system tells it. On a `tmpfs` nothing ever reaches a disk.
    pub fn file_system(&self) -> Option<String> {
        let path = fs::canonicalize(&self.path).ok()?;
        let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
        let mounts = mounts.lines().filter_map(|line| {
            let mut words = line.split(' ').skip(1);
            Some((words.next()?, words.next()?))
        });
        let (_, kind) = mounts.filter(|(at, _)| path.starts_with(at)).max_by_key(|(at, _)| at.len())?;
        Some(kind.to_owned())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.temporary {
            // What cannot be removed is the system's to clean up: it lies among its temporary files.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_temporary_folder_counts_its_bytes_and_goes_away_and_a_given_one_stays() {
        let folder = Folder::open(None).unwrap();
        fs::create_dir_all(folder.log().join("tile")).unwrap();
        fs::write(folder.log().join("tile/000"), [0; 300]).unwrap();
        fs::write(folder.path.join("beside"), [0; 11]).unwrap();
        assert_eq!(folder.bytes().unwrap(), 311);
        let path = folder.path.clone();
        drop(folder);
        assert!(!path.exists());

        let given = tempfile::tempdir().unwrap();
        drop(Folder::open(Some(given.path())).unwrap());
        assert!(given.path().exists());
    }
}
