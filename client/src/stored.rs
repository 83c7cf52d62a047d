//! A bundle's file, read where it lies: at most some pieces of it are in memory.

use crate::output::{self, Hinted};
use anyhow::Context as _;
use schemas::bundle::stored::{StoredBundle, unread};
use schemas::source::{Source, SourceError};
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use step::file::open_file;

/// What may be behind a file that could not be read to its end, or not twice alike.
const STILL_WRITTEN: &str = "is it still being written or copied? wait for that, and try again";

/// A file that was opened. Its length is what it was then.
pub struct StoredFile {
    path: PathBuf,
    file: File,
    bytes: u64,
    written: Option<SystemTime>,
}

impl StoredFile {
    /// Opens a regular file.
    pub fn open(path: &Path) -> anyhow::Result<StoredFile> {
        let named = || format!("cannot read {}", path.display());
        let file = open_file(path).with_context(named)?;
        let there = file.metadata().with_context(named)?;
        let (bytes, written) = (there.len(), there.modified().ok());
        Ok(StoredFile { path: path.to_owned(), file, bytes, written })
    }

    /// Whether nobody has written to it since. What was concluded from it holds for what was read; who asked wants to
    /// know of the file.
    pub fn check_unchanged(&self) -> anyhow::Result<()> {
        let there = self.file.metadata().with_context(|| format!("cannot read {}", self.path.display()))?;
        match (there.len(), there.modified().ok()) == (self.bytes, self.written) {
            true => Ok(()),
            false => Err(self.unread(&SourceError::Changed { what: "the file".into() })),
        }
    }

    /// The bundle that the file is.
    pub fn bundle(&self) -> anyhow::Result<StoredBundle<'_>> {
        StoredBundle::read(self).map_err(|error| match unread(&error) {
            Some(error) => self.unread(error),
            None => Hinted::new(format!("{}: {error}", self.path.display()), self.advice()).into(),
        })
    }

    /// What to say of it if it is no bundle.
    pub fn advice(&self) -> &'static str {
        let mut head = vec![0; self.bytes.min(10) as usize];
        match self.read_at(0, &mut head) {
            Ok(()) => output::no_bundle(&head),
            Err(_) => output::no_bundle(&[]),
        }
    }

    /// What to say of a file that could not be read.
    pub fn unread(&self, error: &SourceError) -> anyhow::Error {
        Hinted::new(format!("{}: {error}", self.path.display()), STILL_WRITTEN).into()
    }
}

impl Source for StoredFile {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn read_at(&self, at: u64, into: &mut [u8]) -> Result<(), SourceError> {
        self.file.read_exact_at(into, at).map_err(|error| {
            let reason = match error.kind() {
                ErrorKind::UnexpectedEof => "it is shorter than when it was opened".into(),
                _ => error.to_string().into(),
            };
            SourceError::Unreadable { at, reason }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_file_that_was_written_to_since_is_told_be_it_as_long_as_before() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.tally");
        std::fs::write(&path, "twelve bytes").unwrap();
        let file = StoredFile::open(&path).unwrap();
        file.check_unchanged().unwrap();
        let told = || {
            let error = file.check_unchanged().unwrap_err();
            assert!(error.to_string().contains("run.tally: changed while it was read: the file"), "{error}");
            assert_eq!(output::hint_of(&error).as_deref(), Some(STILL_WRITTEN));
        };
        let written = file.written.unwrap();
        let write = |bytes: u64, time: SystemTime| {
            let file = File::options().write(true).open(&path).unwrap();
            file.set_len(bytes).unwrap();
            file.set_modified(time).unwrap();
        };
        write(12, written + Duration::from_secs(1));
        told();
        write(11, written);
        told();
        write(12, written);
        file.check_unchanged().unwrap();
    }
}
