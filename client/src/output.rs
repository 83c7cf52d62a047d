//! Results go to stdout, everything else to stderr, in one form.

use crate::atomic::WriteError;
use crate::keyfile::KeyFileError;
use crate::ledger::LedgerError;
use crate::monitor::{FollowError, StateError};
use std::io::{self, ErrorKind, Write as _};
use std::sync::OnceLock;

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

/// Advice about a file that is no bundle.
const NO_BUNDLE: &str = "cut short, or not a bundle? `client reconcile` writes them (.tally)";

/// What may be behind a file that is no bundle, by how it begins.
pub fn no_bundle(head: &[u8]) -> &'static str {
    match head {
        [0xd2, ..] => {
            "a statement alone? bundles hold statements with their proofs: `client reconcile` writes them (.tally)"
        }
        [_, b'h', b'r', b'e', b'g', b'i', b's', b't', b'e', b'r', ..]
        | [_, b'g', b'e', b'n', b't', b'r', b'i', b'e', b's', ..] => {
            "a completeness file? `client completeness FILE --log-key ...` checks it"
        }
        [_, b'c', b'r', b'u', b'n', ..] => "an opened step? `client verify` checks and shows it",
        _ => NO_BUNDLE,
    }
}

/// Writes a result. Whoever closed the pipe has read enough; a result that cannot be written for any other reason (a
/// full disk) must not look like one that was, so the command ends as one that could not.
pub fn result(text: &str) {
    let mut out = std::io::stdout().lock();
    if let Err(error) = out.write_all(text.as_bytes()).and_then(|()| out.flush())
        && error.kind() != std::io::ErrorKind::BrokenPipe
    {
        self::error(&format!("could not write the result: {error}"));
        std::process::exit(COULD_NOT.into());
    }
}

/// A text without what would move a terminal's cursor, change its colours or reverse its lines: control characters and
/// Unicode's invisible format characters become `?`.
pub fn printable(text: &str) -> String {
    let unseen = |c: char| {
        c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
    };
    text.chars().map(|c| if unseen(c) && c != '\n' { '?' } else { c }).collect()
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

/// Writes how far something is.
pub fn progress(message: &str) {
    write(message);
}

/// The command that speaks.
static SPEAKER: OnceLock<&str> = OnceLock::new();

/// Names the command that speaks from now on, where it is not `client`: this library is the oracle's too.
pub fn speak_as(command: &'static str) {
    let first = SPEAKER.set(command);
    assert!(first.is_ok(), "output: a command has one name");
}

fn say(kind: &str, message: &str) {
    write(&format!("{kind}: {message}"));
}

fn write(message: &str) {
    let command = SPEAKER.get().unwrap_or(&"client");
    let _ = writeln!(std::io::stderr().lock(), "{command}: {}", printable(message));
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
        let follow = cause.downcast_ref::<FollowError>().and_then(FollowError::hint);
        let state = cause.downcast_ref::<StateError>().and_then(StateError::hint);
        let write = cause.downcast_ref::<WriteError>().and_then(WriteError::hint);
        let system = cause.downcast_ref::<io::Error>().and_then(|error| full(error.kind()));
        ledger.or(key).or(own).or(follow).or(state).or(write).or(system)
    })
}

/// Advice about a file that there is no room for.
fn full(kind: ErrorKind) -> Option<String> {
    let full = matches!(kind, ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge);
    full.then(|| {
        let more = match SPEAKER.get() {
            Some(&"oracle") => "; `oracle plan` tells how many bytes a prediction needs",
            _ => "",
        };
        format!("the disk is full, or a limit is set (`ulimit -f`, a quota){more}")
    })
}
