//! What can be wrong with a witness's folder.

use std::path::PathBuf;

use thiserror::Error;

use crate::error::LogError;

/// Why a witness cannot start or cannot cosign.
#[derive(Debug, Error)]
pub enum WitnessError {
    /// A file or the key, as with a log's.
    #[error(transparent)]
    Folder(#[from] LogError),
    /// The folder holds something, but no witness.
    #[error("{} holds no witness: expected witness.key or an empty folder, found {found:?}", path.display())]
    NotAWitness {
        /// The folder.
        path: PathBuf,
        /// One of the things in it.
        found: String,
    },
    /// There are records but no key: a new key would be another witness, under the old one's name.
    #[error("{} is missing although the folder holds records of what was cosigned", path.display())]
    KeyMissing {
        /// The key file.
        path: PathBuf,
    },
    /// There is a key but no records, or no list of them: with it, anything could be cosigned a second time.
    #[error("{} is missing although the folder holds a witness's key", path.display())]
    RecordsMissing {
        /// The folder of records, or the list.
        path: PathBuf,
    },
    /// The witness has another name than the one asked for.
    #[error("the witness's name is {found:?}, expected {expected:?}")]
    NameMismatch {
        /// Asked for.
        expected: String,
        /// In the witness's key.
        found: String,
    },
    /// A record is not one that this witness wrote.
    #[error("{} is damaged: {reason}", path.display())]
    RecordDamaged {
        /// The record.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A record is gone: without it, anything could be cosigned a second time.
    #[error(
        "{} is missing although this witness has cosigned for its origin; restore the current record, or start a new \
         witness in a new folder",
        path.display()
    )]
    RecordGone {
        /// The record.
        path: PathBuf,
    },
    /// The list of origins is not as this witness wrote it.
    #[error("{} is damaged: it has another digest than its first line says", path.display())]
    OriginsDamaged {
        /// The list.
        path: PathBuf,
    },
    /// A record could not be written, and nobody knows what is on disk.
    #[error("{} could not be made durable; what is on disk is read again at the next start", path.display())]
    RecordUnknown {
        /// The record.
        path: PathBuf,
    },
    /// The clock stands before the time of the last cosignature: a cosignature would state a wrong time.
    #[error("the clock says {now_s}, which is before {last_s}, the time of the last cosignature")]
    ClockBehind {
        /// What the clock says, in POSIX seconds.
        now_s: u64,
        /// The time last stated.
        last_s: u64,
    },
}
