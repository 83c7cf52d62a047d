//! Asking a witness (C2SP tlog-witness, add-checkpoint): the request, the answers, and what a witness decides.
//!
//! ```text
//! old <size last cosigned>
//! <base64 consistency hash>          (none or more)
//!
//! <checkpoint note, verbatim>
//! ```
//!
//! A witness answers 200 with its signature lines (see [`NoteSignature::parse_lines`]), 409 with the size it last
//! cosigned, or another status. What it decides is a pure function of the request and of what it cosigned last.
//!
//! [`NoteSignature::parse_lines`]: crate::note::NoteSignature::parse_lines

use thiserror::Error;

use crate::checkpoint::{Checkpoint, CheckpointError, parse_decimal};
use crate::hash::{EMPTY_ROOT, Hash, HashError};
use crate::note::{NoteError, NoteSignature, SignedNote, Verifier, VerifierKey};
use crate::proof::{ConsistencyProof, ProofError, check_consistency};
use crate::tree::{TreeHead, TreeSize};

/// Longest request that is looked at.
pub const ADD_CHECKPOINT_BYTES_MAX: usize = 64 * 1024;
/// Most consistency hashes of a request.
pub const CONSISTENCY_LINES_MAX: usize = 63;
/// Content type of a 409 answer.
pub const SIZE_TYPE: &str = "text/x.tlog.size";

/// A request to cosign a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddCheckpoint {
    /// The size that the witness is thought to have cosigned last.
    pub old: TreeSize,
    /// That the tree of that size is a prefix of the checkpoint's.
    pub proof: ConsistencyProof,
    /// The checkpoint note.
    pub checkpoint: String,
}

/// Why some bytes are not a request.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum AddCheckpointError {
    /// The request is longer than the limit.
    #[error("request is {found} bytes, expected at most {ADD_CHECKPOINT_BYTES_MAX}")]
    TooLong {
        /// Bytes found.
        found: usize,
    },
    /// The request is not UTF-8.
    #[error("request is not utf-8")]
    NotText,
    /// There is no empty line before the checkpoint.
    #[error("request has no empty line before the checkpoint")]
    NoCheckpoint,
    /// The first line is another one.
    #[error("request starts with {found:?}, expected old, a space and a canonical decimal")]
    BadOldSize {
        /// The line found.
        found: String,
    },
    /// A line between the first and the empty one is not a hash.
    #[error("consistency line {line}: {source}")]
    BadHash {
        /// Its number, from 1.
        line: usize,
        /// What is wrong with it.
        source: HashError,
    },
    /// There are more hashes than the limit.
    #[error("request has more than {CONSISTENCY_LINES_MAX} consistency lines")]
    TooManyHashes,
}

impl AddCheckpoint {
    /// The request's text.
    pub fn format(&self) -> String {
        let hashes: String = self.proof.0.iter().map(|hash| format!("{hash}\n")).collect();
        format!("old {}\n{hashes}\n{}", self.old, self.checkpoint)
    }

    /// Parses a request strictly. The checkpoint is taken verbatim and looked at only by [`decide`].
    pub fn parse(bytes: &[u8]) -> Result<AddCheckpoint, AddCheckpointError> {
        if bytes.len() > ADD_CHECKPOINT_BYTES_MAX {
            return Err(AddCheckpointError::TooLong { found: bytes.len() });
        }
        let text = std::str::from_utf8(bytes).map_err(|_| AddCheckpointError::NotText)?;
        let (above, checkpoint) = text.split_once("\n\n").ok_or(AddCheckpointError::NoCheckpoint)?;
        let mut lines = above.split('\n');
        let first = lines.next().unwrap_or_default();
        let old = first.strip_prefix("old ").and_then(parse_decimal);
        let old = old.ok_or_else(|| AddCheckpointError::BadOldSize { found: shortened(first) })?;
        let mut hashes = Vec::new();
        for (at, line) in lines.enumerate() {
            if at == CONSISTENCY_LINES_MAX {
                return Err(AddCheckpointError::TooManyHashes);
            }
            let hash = Hash::from_base64(line);
            hashes.push(hash.map_err(|source| AddCheckpointError::BadHash { line: at + 1, source })?);
        }
        let proof = ConsistencyProof(hashes);
        Ok(AddCheckpoint { old: TreeSize(old), proof, checkpoint: checkpoint.to_owned() })
    }

    /// The checkpoint's first line, by which a witness finds the log's keys and what it cosigned last.
    pub fn origin(&self) -> &str {
        self.checkpoint.split('\n').next().unwrap_or_default()
    }
}

/// The body of a 409 answer: the size last cosigned.
pub fn format_size(size: TreeSize) -> String {
    format!("{size}\n")
}

/// Parses the body of a 409 answer.
pub fn parse_size(bytes: &[u8]) -> Option<TreeSize> {
    let text = std::str::from_utf8(bytes).ok()?;
    text.strip_suffix('\n').and_then(parse_decimal).map(TreeSize)
}

/// What a witness may cosign: a checkpoint that follows from what it cosigned last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accepted {
    /// The checkpoint.
    pub checkpoint: Checkpoint,
    /// Its signature lines by known keys, verified, one for each. Lines of unknown keys are not among them, so that
    /// nothing unverified is ever stored.
    pub signatures: Vec<NoteSignature>,
}

/// Why a witness does not cosign.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Refusal {
    /// 400: the checkpoint is malformed.
    #[error(transparent)]
    Malformed(CheckpointError),
    /// 400: the old size is greater than the checkpoint's.
    #[error("old size {old} is greater than checkpoint size {size}")]
    OldBeyondCheckpoint {
        /// The old size.
        old: TreeSize,
        /// The checkpoint's size.
        size: TreeSize,
    },
    /// 403: no signature of a known key, or one that fails.
    #[error(transparent)]
    NotSigned(NoteError),
    /// 404: no key is known for the origin.
    #[error("origin {origin:?} is not known to this witness")]
    UnknownOrigin {
        /// The origin.
        origin: String,
    },
    /// 409: the witness has cosigned another size last.
    #[error("old size is {found}, expected {expected}, which was last cosigned")]
    Conflict {
        /// The size last cosigned; zero if none was.
        expected: TreeSize,
        /// The old size.
        found: TreeSize,
    },
    /// 422: the checkpoint does not follow from what was cosigned last.
    #[error("checkpoint of size {size} does not follow from the one last cosigned: {source}")]
    Inconsistent {
        /// The checkpoint's size.
        size: TreeSize,
        /// What does not hold.
        source: ProofError,
    },
}

impl Refusal {
    /// The HTTP status.
    pub fn status(&self) -> u16 {
        match self {
            Refusal::Malformed(_) | Refusal::OldBeyondCheckpoint { .. } => 400,
            Refusal::NotSigned(_) => 403,
            Refusal::UnknownOrigin { .. } => 404,
            Refusal::Conflict { .. } => 409,
            Refusal::Inconsistent { .. } => 422,
        }
    }
}

/// Whether a witness that knows `keys` for the request's origin, and has cosigned `last` for it, cosigns.
///
/// The checks are in the order of the page. A repetition of what was cosigned last is accepted: it is a refresh.
pub fn decide(
    request: &AddCheckpoint,
    keys: &[VerifierKey],
    last: Option<TreeHead>,
) -> Result<Accepted, Refusal> {
    if keys.is_empty() {
        return Err(Refusal::UnknownOrigin { origin: shortened(request.origin()) });
    }
    let note = SignedNote::parse(request.checkpoint.as_bytes());
    let note = note.map_err(|error| Refusal::Malformed(error.into()))?;
    let known: Vec<&dyn Verifier> = keys.iter().map(|key| key as &dyn Verifier).collect();
    let text = note.open(&known).map_err(Refusal::NotSigned)?;
    let checkpoint = match Checkpoint::parse_text(text) {
        Ok(checkpoint) => checkpoint,
        // A wrong root of an empty tree is inconsistent and not malformed: the sizes are compared first.
        Err(CheckpointError::BadEmptyRoot { found }) => {
            let head = TreeHead { size: TreeSize(0), root: found };
            Checkpoint { origin: request.origin().to_owned(), head }
        }
        Err(error) => return Err(Refusal::Malformed(error)),
    };
    let (old, new) = (request.old, checkpoint.head);
    if old > new.size {
        return Err(Refusal::OldBeyondCheckpoint { old, size: new.size });
    }
    let last = last.unwrap_or(TreeHead { size: TreeSize(0), root: EMPTY_ROOT });
    if old != last.size {
        return Err(Refusal::Conflict { expected: last.size, found: old });
    }
    let consistent = check_consistency(&request.proof, last, new);
    consistent.map_err(|source| Refusal::Inconsistent { size: new.size, source })?;
    let line_of = |key: &&dyn Verifier| note.signatures().iter().find(|line| line.is_of(*key)).cloned();
    let signatures = known.iter().filter_map(line_of).collect();
    Ok(Accepted { checkpoint, signatures })
}

/// A peer's text as far as an error repeats it.
fn shortened(text: &str) -> String {
    text.chars().take(128).collect()
}
