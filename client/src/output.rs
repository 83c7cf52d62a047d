//! Results go to stdout, everything else to stderr, in one form.

use crate::keyfile::KeyFileError;
use crate::ledger::LedgerError;
use std::io::Write as _;

/// Exit status of a yes.
pub const YES: u8 = 0;
/// Exit status of "checked, and not so".
pub const NOT_SO: u8 = 1;
/// Exit status of "could not check".
pub const COULD_NOT: u8 = 2;

/// An error with advice.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Hinted {
    /// What is wrong: expected and found.
    pub message: String,
    /// What to do about it.
    pub hint: String,
}

impl Hinted {
    /// An error with advice.
    pub fn new(message: impl Into<String>, hint: impl Into<String>) -> Hinted {
        Hinted { message: message.into(), hint: hint.into() }
    }
}

/// Writes a result.
pub fn result(text: &str) {
    // Whoever closed the pipe has read enough.
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
}

/// Writes an error message.
pub fn error(message: &str) {
    say("error", message);
}

/// Writes advice.
pub fn hint(message: &str) {
    say("hint", message);
}

/// Writes something that should be known and stops nothing.
pub fn note(message: &str) {
    say("note", message);
}

fn say(kind: &str, message: &str) {
    let _ = writeln!(std::io::stderr().lock(), "client: {kind}: {message}");
}

/// A chain of errors in one line. A cause that the message before it already tells is not told twice.
pub fn message_of(error: &anyhow::Error) -> String {
    let mut message = String::new();
    for cause in error.chain().map(|cause| cause.to_string()) {
        if message.is_empty() {
            message = cause;
        } else if !message.contains(&cause) {
            message = format!("{message}: {cause}");
        }
    }
    message
}

/// The first advice in a chain of errors.
pub fn hint_of(error: &anyhow::Error) -> Option<String> {
    error.chain().find_map(|cause| {
        let ledger = cause.downcast_ref::<LedgerError>().and_then(LedgerError::hint);
        let key = cause.downcast_ref::<KeyFileError>().and_then(KeyFileError::hint);
        let own = cause.downcast_ref::<Hinted>().map(|hinted| hinted.hint.clone());
        ledger.or(key).or(own)
    })
}
