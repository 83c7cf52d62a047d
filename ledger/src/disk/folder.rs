//! What a folder is before anything is made in it: a log's, one for a new log, or something else's.
//!
//! A log whose key or lock record is lost must never be taken for a new one: under the old key it would sign a second
//! root for a size that has one, and under a new key it would pass for the old log.

use std::fs::read_dir;
use std::io::ErrorKind;
use std::path::Path;

use crate::disk::lock::inside;
use crate::error::LogError;

/// What only a log that has promised something has.
const TRACES: [&str; 3] = ["checkpoint", "tile", "checkpoints"];

/// Refuses a folder that something else lives in, and one of a log that has lost its key or its lock record. Accepted
/// are that of a log, one with a key alone, an empty one, and one where a first start was interrupted.
pub fn check_folder(base: &Path, lock: &Path) -> Result<(), LogError> {
    if inside(base) {
        return Err(LogError::LockMoved { found: base.join("lock"), expected: lock.to_owned() });
    }
    if base.join("log.key").is_file() {
        return check_lock(base, lock);
    }
    let mut found = names(base)?;
    found.sort_unstable();
    let promised = lock.join("head").symlink_metadata().is_ok();
    let promised = promised.then(|| lock.join("head").display().to_string());
    let trace = found.iter().find(|name| *name == "log.pub" || TRACES.contains(&name.as_str())).cloned();
    if let Some(found) = trace.or(promised) {
        return Err(LogError::KeyMissing { path: base.join("log.key"), found });
    }
    match found.into_iter().find(|name| name != "in-use" && name != ".log.key.new") {
        Some(found) => Err(LogError::NotALog { path: base.to_owned(), found }),
        None => Ok(()),
    }
}

/// Refuses a folder that holds no log that has promised something, for whoever only reads.
pub fn require_log(base: &Path, lock: &Path) -> Result<(), LogError> {
    check_folder(base, lock)?;
    if lock.join("head").is_file() {
        return Ok(());
    }
    let found = names(base)?.into_iter().next().unwrap_or_else(|| "nothing".to_owned());
    Err(LogError::NotALog { path: base.to_owned(), found })
}

/// Refuses tiles or checkpoints without a lock record, which alone says what was promised.
pub fn check_lock(base: &Path, lock: &Path) -> Result<(), LogError> {
    let path = lock.join("head");
    // A link that leads nowhere is a trace too, so the name is looked at and not what it leads to.
    let there = |name: &&&str| base.join(name).symlink_metadata().is_ok();
    match TRACES.iter().find(there) {
        Some(found) if !path.is_file() => Err(LogError::LockMissing { path, found: (*found).to_owned() }),
        _ => Ok(()),
    }
}

/// Names in a folder; none if there is no such folder.
pub fn names(folder: &Path) -> Result<Vec<String>, LogError> {
    let entries = match read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(LogError::io(folder))?,
    };
    let name =
        |entry: std::io::Result<std::fs::DirEntry>| Ok(entry?.file_name().to_string_lossy().into_owned());
    entries.map(name).collect::<std::io::Result<_>>().map_err(LogError::io(folder))
}
