//! Checking a whole log, in a folder or over HTTP, and naming what is wrong with it to the byte.
//!
//! The walk goes from the signed root down: what hashes to a hash that is known to be right is right itself, so each
//! difference has a side that is to blame.

// In path order: where files come from, what is wrong with them, which side is right, one bundle, the tree over
// bundles, the command.
pub mod source;
pub mod folder;
pub mod remote;
pub mod finding;
mod choice;
mod bundle;
mod walk;
mod history;
mod index;
pub mod command;

use thiserror::Error;
use tlog::checkpoint::{Checkpoint, CheckpointError};
use tlog::note::{Verifier as _, VerifierKey};
use tlog::tree::TreeHead;

use crate::argument::ArgumentError;
use crate::error::LogError;
use crate::fsck::finding::Findings;
use crate::fsck::source::{Source, SourceError};
use crate::fsck::walk::Walk;

/// Why a log could not be checked, or has no checkpoint to be held against.
#[derive(Debug, Error)]
pub enum FsckError {
    /// A file could not be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// There is no checkpoint.
    #[error("{place} has no checkpoint")]
    NoCheckpoint {
        /// The folder or address.
        place: String,
    },
    /// The checkpoint is not this log's.
    #[error("{place}: checkpoint: {source}")]
    Checkpoint {
        /// The folder or address.
        place: String,
        /// What is wrong with it.
        source: CheckpointError,
    },
    /// The key given is none.
    #[error("--log-key: {0}")]
    Key(#[from] ArgumentError),
    /// Nothing says whose checkpoint it must be.
    #[error("{place}: the log's key is not known, expected --log-key")]
    NoKey {
        /// The folder or address.
        place: String,
    },
    /// The checkpoint is gone, and the journal has commits that were to follow it.
    #[error(
        "the checkpoint is missing and the lock records size {promised}: its server did not end in order"
    )]
    CheckpointMissing {
        /// In the lock.
        promised: u64,
    },
    /// What was promised last is not in its place yet, but in the journal.
    #[error(
        "the log promised size {promised} and the folder is synced to size {published}: its server did not end in order"
    )]
    Interrupted {
        /// In the lock.
        promised: u64,
        /// In the folder.
        published: u64,
    },
    /// The folder is in use, is no log's, or does not bear out what was promised.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The result could not be written.
    #[error("cannot write the result: {0}")]
    Output(#[from] std::io::Error),
}

impl FsckError {
    /// Whether this says that the log does not bear out what was promised, rather than that nobody can tell.
    pub fn disproves(&self) -> bool {
        match self {
            FsckError::Checkpoint { .. } => true,
            FsckError::Log(error) => error.disproves(),
            _ => false,
        }
    }
}

/// The checkpoint of a log, with the signature of its key.
pub fn open_checkpoint(
    source: &impl Source,
    place: &str,
    key: &VerifierKey,
) -> Result<Checkpoint, FsckError> {
    let note = source.checkpoint()?.ok_or_else(|| FsckError::NoCheckpoint { place: place.to_owned() })?;
    Checkpoint::open(&note, key.name().as_str(), key)
        .map_err(|source| FsckError::Checkpoint { place: place.to_owned(), source })
}

/// Looks at every tile and every entry of the tree of `head`, which is trusted. Returns what is wrong and the number of
/// tiles of hashes looked at; `progress` is told how many entries have been looked at, now and then.
pub fn check_tree(
    source: &impl Source,
    head: TreeHead,
    progress: &mut dyn FnMut(u64),
) -> Result<(Findings, u64), SourceError> {
    let mut walk = Walk { source, head, findings: Findings::default(), tiles: 0, progress };
    walk.run()?;
    Ok((walk.findings, walk.tiles))
}
