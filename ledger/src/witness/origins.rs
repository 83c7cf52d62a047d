//! Which origins a witness has ever cosigned for, so that a record that is gone is not taken for one never made.
//!
//! `origins` beside the key holds `sha256 `, the digest of what follows, a line feed, and then in ascending order the
//! name of each record, each on a line. A name is entered after its first record is durable and before the cosignature
//! is given out, and is never taken out again.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use sha2::{Digest, Sha256};

use crate::disk::durable::{Files, read_optional};
use crate::error::LogError;
use crate::witness::error::WitnessError;

/// The list's name within a witness's folder.
pub const ORIGINS: &str = "origins";

/// The list as it is on disk.
pub(crate) struct Origins {
    path: PathBuf,
    entered: Mutex<BTreeSet<String>>,
}

impl Origins {
    /// Makes the empty list of a new witness.
    pub(crate) fn create(base: &Path, files: &Files) -> Result<(), WitnessError> {
        let path = base.join(ORIGINS);
        Ok(files.replace(&path, format(&BTreeSet::new()).as_bytes()).map_err(LogError::io(&path))?)
    }

    /// Whether the list, as far as it is there, says that something was cosigned.
    pub(crate) fn any(base: &Path) -> Result<bool, WitnessError> {
        let path = base.join(ORIGINS);
        let bytes = read_optional(&path).map_err(LogError::io(&path))?;
        Ok(bytes.is_some_and(|bytes| bytes != format(&BTreeSet::new()).as_bytes()))
    }

    /// Reads the list, and enters the records that a crash kept out of it.
    pub(crate) fn open(base: &Path, records: &[String], files: &Files) -> Result<Origins, WitnessError> {
        let path = base.join(ORIGINS);
        let bytes = read_optional(&path).map_err(LogError::io(&path))?;
        let bytes = bytes.ok_or_else(|| WitnessError::RecordsMissing { path: path.clone() })?;
        let damaged = || WitnessError::OriginsDamaged { path: path.clone() };
        let entered = parse(&bytes).ok_or_else(damaged)?;
        let origins = Origins { path, entered: Mutex::new(entered) };
        origins.enter(records, files)?;
        Ok(origins)
    }

    /// All names, in ascending order.
    pub(crate) fn names(&self) -> Vec<String> {
        self.entered.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    /// Makes durable that these names have records; nothing is written for those that are entered.
    pub(crate) fn enter(&self, names: &[String], files: &Files) -> Result<(), WitnessError> {
        // Held while writing: the file has one writer at a time.
        let mut entered = self.entered.lock().unwrap_or_else(PoisonError::into_inner);
        if names.iter().all(|name| entered.contains(name)) {
            return Ok(());
        }
        let mut more = entered.clone();
        more.extend(names.iter().cloned());
        files.replace(&self.path, format(&more).as_bytes()).map_err(LogError::io(&self.path))?;
        *entered = more;
        Ok(())
    }
}

fn format(names: &BTreeSet<String>) -> String {
    let lines: String = names.iter().map(|name| format!("{name}\n")).collect();
    format!("sha256 {}\n{lines}", hex::encode(Sha256::digest(&lines)))
}

fn parse(bytes: &[u8]) -> Option<BTreeSet<String>> {
    let text = std::str::from_utf8(bytes).ok()?;
    let (_, lines) = text.split_once('\n')?;
    let names = lines.lines().map(str::to_owned).collect();
    (format(&names) == text).then_some(names)
}
