//! Checkpoints (C2SP tlog-checkpoint v1.0.0): a signed note whose text is origin, tree size and root hash.
//!
//! ```text
//! example.com/log
//! 3
//! Wqx3HImawpLnS/Gv4ubjAvi1WIOy0b8Ze0amvqbavKk=
//! ```
//!
//! Extension lines are never written and not accepted: monitors cannot audit them, and some cosignature types do
//! not cover them. What would go there goes into a log entry instead.

use thiserror::Error;

use crate::cosignature::{Cosignature, CosignerKey};
use crate::hash::{EMPTY_ROOT, Hash, HashError};
use crate::note::{NoteError, SignedNote, SigningKey, Verifier};
use crate::tree::{TreeHead, TreeSize};

/// A log's statement of its tree, not yet or no longer signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// The log's identity line.
    pub origin: String,
    /// Its tree size and root hash.
    pub head: TreeHead,
}

/// Why a note is not a checkpoint of the expected log.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CheckpointError {
    /// The note is malformed or its signatures do not stand.
    #[error(transparent)]
    Note(#[from] NoteError),
    /// The text is not three lines.
    #[error("checkpoint has {found} lines, expected origin, tree size and root hash")]
    WrongLineCount {
        /// Lines found.
        found: usize,
    },
    /// The first line is empty.
    #[error("checkpoint origin is empty")]
    EmptyOrigin,
    /// The checkpoint is another log's.
    #[error("checkpoint origin is {found:?}, expected {expected:?}")]
    OriginMismatch {
        /// The origin asked for.
        expected: String,
        /// The origin found.
        found: String,
    },
    /// The second line is not a decimal without sign and leading zeros.
    #[error("checkpoint tree size {found:?} is not a canonical decimal")]
    BadSize {
        /// The line found.
        found: String,
    },
    /// The third line is not base64 of 32 bytes.
    #[error("checkpoint root: {0}")]
    BadRoot(#[from] HashError),
    /// A tree with no leaves has one root only.
    #[error("checkpoint of size 0 has root {found}, expected {EMPTY_ROOT}")]
    BadEmptyRoot {
        /// The root found.
        found: Hash,
    },
}

impl Checkpoint {
    /// The note text: three lines.
    pub fn text(&self) -> String {
        format!("{}\n{}\n{}\n", self.origin, self.head.size, self.head.root)
    }

    /// Parses a note text strictly.
    pub fn parse_text(text: &str) -> Result<Checkpoint, CheckpointError> {
        let lines: Vec<&str> = text.split_terminator('\n').collect();
        let [origin, size, root] = lines[..] else {
            return Err(CheckpointError::WrongLineCount { found: lines.len() });
        };
        if !text.ends_with('\n') {
            return Err(CheckpointError::WrongLineCount { found: 2 });
        }
        if origin.is_empty() {
            return Err(CheckpointError::EmptyOrigin);
        }
        let size = parse_decimal(size).ok_or_else(|| CheckpointError::BadSize { found: size.to_owned() })?;
        let root = Hash::from_base64(root)?;
        if size == 0 && root != EMPTY_ROOT {
            return Err(CheckpointError::BadEmptyRoot { found: root });
        }
        Ok(Checkpoint { origin: origin.to_owned(), head: TreeHead { size: TreeSize(size), root } })
    }

    /// Signs with the log's key, whose name must be the origin, and returns the note.
    pub fn sign(&self, key: &SigningKey) -> String {
        assert_eq!(
            key.verifier().name().as_str(),
            self.origin,
            "tlog: the log's key is named like its origin"
        );
        key.sign(&self.text())
    }

    /// Opens a checkpoint note: form, the log key's signature, origin.
    pub fn open(note: &[u8], origin: &str, log: &dyn Verifier) -> Result<Checkpoint, CheckpointError> {
        Ok(Checkpoint::open_cosigned(note, origin, log, &[])?.0)
    }

    /// Opens a checkpoint note that witnesses may have cosigned: form, the log key's signature, origin, and the
    /// cosignatures of known witnesses. Whether these are enough is for a policy to say.
    ///
    /// Lines of unknown keys are ignored; a line of the log or of a known witness that fails rejects the note.
    pub fn open_cosigned(
        note: &[u8],
        origin: &str,
        log: &dyn Verifier,
        witnesses: &[CosignerKey],
    ) -> Result<(Checkpoint, Vec<Cosignature>), CheckpointError> {
        let note = SignedNote::parse(note)?;
        let checkpoint = Checkpoint::parse_text(note.open(&[log])?)?;
        if checkpoint.origin != origin {
            return Err(CheckpointError::OriginMismatch {
                expected: origin.to_owned(),
                found: checkpoint.origin,
            });
        }
        Ok((checkpoint, note.cosignatures(witnesses)?))
    }
}

/// An unsigned decimal in the one way Rust writes it: no sign, no leading zeros, fits in 64 bits.
pub(crate) fn parse_decimal(text: &str) -> Option<u64> {
    let value: u64 = text.parse().ok()?;
    (value.to_string() == text).then_some(value)
}
