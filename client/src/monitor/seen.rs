//! `checkpoint` beside a monitor's state: the newest checkpoint that was found consistent, as the log signed it.
//!
//! A state that is lost, emptied or set back would let a log that was set back pass. This file is written after the
//! state, so the state is never behind it, and what it says is checked by the log's own signature.

use crate::atomic;
use crate::monitor::state::{Known, State, StateError};
use std::io::{ErrorKind, Read as _};
use std::path::Path;
use step::file::open_file;
use tlog::checkpoint::Checkpoint;
use tlog::note::{NOTE_BYTES_MAX, Verifier as _, VerifierKey};
use tlog::tree::TreeHead;

/// The file's name.
const FILE: &str = "checkpoint";
/// What only a folder has that held a state.
const TRACES: [&str; 2] = [FILE, "findings.jsonl"];

/// Refuses a folder whose state is gone; `there` says whether there is one.
pub(crate) fn check_folder(folder: &Path, there: bool) -> Result<(), StateError> {
    match TRACES.into_iter().find(|name| folder.join(name).exists()) {
        Some(found) if !there => {
            let message = format!("monitor.redb is missing or empty although {found} is there");
            Err(StateError::Damaged(message))
        }
        _ => Ok(()),
    }
}

/// Refuses a state that is behind the file, or has hashed another tree.
pub(crate) fn check_state(folder: &Path, log: &VerifierKey, state: &State) -> Result<(), StateError> {
    let Some(head) = read(folder, log)? else { return Ok(()) };
    let Known { head: hashed, seen } = state.known()?;
    let seen = seen.map_or(0, |(size, _)| size.0);
    if seen < head.size.0 {
        let message = format!("it has seen size {seen}, expected {} at least, as {FILE} says", head.size);
        return Err(StateError::Damaged(message));
    }
    if head.size <= hashed.size && state.root(head.size, hashed.size)? != head.root {
        let message = format!("its tiles of size {} have another root than {FILE} says", head.size);
        return Err(StateError::Damaged(message));
    }
    Ok(())
}

fn read(folder: &Path, log: &VerifierKey) -> Result<Option<TreeHead>, StateError> {
    let damaged = |reason: String| StateError::Damaged(format!("{FILE}: {reason}"));
    let file = match open_file(&folder.join(FILE)) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        file => file.map_err(|error| damaged(error.to_string()))?,
    };
    let mut note = Vec::new();
    // A byte more than a note may have: what is too long is for its parser to tell.
    let read = file.take(NOTE_BYTES_MAX as u64 + 1).read_to_end(&mut note);
    read.map_err(|error| damaged(error.to_string()))?;
    let checkpoint = Checkpoint::open(&note, log.name().as_str(), log);
    Ok(Some(checkpoint.map_err(|error| damaged(error.to_string()))?.head))
}

/// Writes the file if the state has seen another checkpoint than it says.
pub(crate) fn keep(folder: &Path, state: &State) -> anyhow::Result<()> {
    let Some((_, note)) = state.known()?.seen else { return Ok(()) };
    let path = folder.join(FILE);
    if std::fs::read(&path).is_ok_and(|kept| kept == note.as_bytes()) {
        return Ok(());
    }
    Ok(atomic::write(&path, note.as_bytes(), atomic::PUBLIC)?)
}
