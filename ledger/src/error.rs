//! What can be wrong with a log's folder.

use std::io;
use std::path::PathBuf;

use schemas::digest::{AttachmentDigest, EntryDigest};
use thiserror::Error;
use tlog::checkpoint::CheckpointError;
use tlog::entries::EntriesError;
use tlog::hash::Hash;
use tlog::note::{KeyError, NoteError};
use tlog::tile::TileReadError;
use tlog::tree::{LeafIndex, TreeSize};

use crate::disk::journal::RecordError;

/// Why a log could not be opened, read or grown.
#[derive(Debug, Error)]
pub enum LogError {
    /// A file operation failed.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Another server has the folder.
    #[error("{} is in use by another ledger", path.display())]
    InUse {
        /// The folder.
        path: PathBuf,
    },
    /// The folder holds something, but no log.
    #[error("{} holds no log: expected log.key or an empty folder, found {found:?}", path.display())]
    NotALog {
        /// The folder.
        path: PathBuf,
        /// One of the things in it.
        found: String,
    },
    /// The key file is not one.
    #[error("{}: {source}", path.display())]
    Key {
        /// The key file.
        path: PathBuf,
        /// What is wrong with it.
        source: KeyError,
    },
    /// The log has another origin than the one asked for.
    #[error("the log's origin is {found:?}, expected {expected:?}")]
    OriginMismatch {
        /// Asked for.
        expected: String,
        /// In the log's key.
        found: String,
    },
    /// The lock record or the published checkpoint does not open under the log's key.
    #[error("{}: {source}", path.display())]
    Checkpoint {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: CheckpointError,
    },
    /// A note that was kept is none.
    #[error("{}: {source}", path.display())]
    Note {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: NoteError,
    },
    /// There are tiles or a checkpoint but no lock record, which alone says what was promised.
    #[error("{} is missing although the folder holds a log: found {found}", path.display())]
    LockMissing {
        /// The lock record.
        path: PathBuf,
        /// What shows that there is a log.
        found: String,
    },
    /// There are traces of a log but no key. A new key would start another log in its place.
    #[error("{} is missing although the folder holds a log: found {found}", path.display())]
    KeyMissing {
        /// The key file.
        path: PathBuf,
        /// What shows that there is a log.
        found: String,
    },
    /// Others can read the key, so it may not be the log's alone.
    #[error("{} can be read by others: its mode is {mode:03o}, expected 600", path.display())]
    KeyExposed {
        /// The key file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// A stored attachment is not what its name says.
    #[error("{} has SHA-256 {found}, expected that of its name", path.display())]
    AttachmentMismatch {
        /// The attachment's file.
        path: PathBuf,
        /// Of its bytes.
        found: AttachmentDigest,
    },
    /// The lock record promises more than the folder holds: an old copy of the folder.
    #[error("the folder holds a log of size {data}, expected size {lock} as recorded in the lock")]
    DataOlderThanLock {
        /// Published size.
        data: TreeSize,
        /// Promised size.
        lock: TreeSize,
    },
    /// The lock record is that of another log.
    #[error("{} is the lock of another log: of {found}, expected {expected}", path.display())]
    LockOfAnother {
        /// The lock record.
        path: PathBuf,
        /// The origin in it, or that another key signed it.
        found: String,
        /// This log's key.
        expected: String,
    },
    /// The lock record is none.
    #[error("{} is damaged: neither of its slots holds what was promised", path.display())]
    LockDamaged {
        /// The lock record.
        path: PathBuf,
    },
    /// The lock is where the first version had it.
    #[error("the lock is in {}, expected it beside the folder, in {}", found.display(), expected.display())]
    LockMoved {
        /// Where it is.
        found: PathBuf,
        /// Where it belongs.
        expected: PathBuf,
    },
    /// The lock would be inside the folder that it guards.
    #[error("the lock {} is inside the log's folder, expected it elsewhere", path.display())]
    LockInside {
        /// The lock's folder.
        path: PathBuf,
    },
    /// The lock record is older than what was published: an old copy of the lock.
    #[error("the lock records size {lock}, expected at least the published size {data}")]
    LockOlderThanData {
        /// Published size.
        data: TreeSize,
        /// Promised size.
        lock: TreeSize,
    },
    /// One of the lock's two slots is damaged, and the folder has published what the other one does not know.
    #[error(
        "{}: one of its two slots is damaged; the other records size {lock}, and the folder has published size {data}",
        path.display()
    )]
    LockSlotDamaged {
        /// The lock record.
        path: PathBuf,
        /// Published size.
        data: TreeSize,
        /// Promised size, by the slot that is left.
        lock: TreeSize,
    },
    /// The published checkpoint is gone, and what else there is does not lead to what was promised.
    #[error(
        "{} is missing, and neither the tiles nor the journal lead to size {lock} as recorded in the lock",
        path.display()
    )]
    CheckpointMissing {
        /// The checkpoint's file.
        path: PathBuf,
        /// Promised size.
        lock: TreeSize,
    },
    /// A folder that a server works on was moved or replaced.
    #[error("{} is not the folder that this server opened: it was moved or replaced", path.display())]
    Moved {
        /// Where the folder was.
        path: PathBuf,
    },
    /// The tiles hash to another root than the one signed.
    #[error("the tiles of size {size} hash to {found}, expected {expected}")]
    RootMismatch {
        /// Tree size.
        size: TreeSize,
        /// The signed root.
        expected: Hash,
        /// The root computed.
        found: Hash,
    },
    /// The entries hash to another root than the one signed, so nothing can be made of them.
    #[error("the entries of size {size} hash to {found}, expected {expected}; nothing was changed")]
    EntriesMismatch {
        /// Tree size.
        size: TreeSize,
        /// The signed root.
        expected: Hash,
        /// The root computed.
        found: Hash,
    },
    /// A tile is not what the entries hash to.
    #[error("tile {path} is not what the entries hash to")]
    TileMismatch {
        /// Its path.
        path: String,
    },
    /// A proof that was made from the tiles does not lead to the signed root.
    #[error(
        "no proof of leaf {index} leads to the root that was signed for size {size}: {suspect} is likely damaged, \
         run `ledger fsck`"
    )]
    ProofMismatch {
        /// The leaf.
        index: LeafIndex,
        /// Size of the tree.
        size: TreeSize,
        /// The tiles that do not agree.
        suspect: String,
    },
    /// A tile could not be read.
    #[error(transparent)]
    Tile(#[from] TileReadError<io::Error>),
    /// An entry bundle is malformed.
    #[error("{path}: {source}")]
    Entries {
        /// The bundle's path.
        path: String,
        /// What is wrong with it.
        source: EntriesError,
    },
    /// A note in the history is not what was written there.
    #[error("{}: note {at} is damaged: expected a note that fits its check and its row", path.display())]
    HistoryDamaged {
        /// The file of notes.
        path: PathBuf,
        /// Number of notes before it.
        at: u64,
    },
    /// A record of the journal, read back, is not what was written.
    #[error("journal: {0}")]
    Journal(#[from] RecordError),
    /// A tile's file, read back, is not what was written.
    #[error("tile {path} is not on disk as it was written")]
    WrittenMismatch {
        /// Its path.
        path: String,
    },
    /// The lock record changed under us.
    #[error("the lock record is not the one this server wrote last")]
    LockChanged,
    /// The index and the tiles do not agree.
    #[error("entry {index} has digest {found}, expected {expected} from the index")]
    IndexMismatch {
        /// The entry's index.
        index: u64,
        /// In the index.
        expected: EntryDigest,
        /// In the tiles.
        found: EntryDigest,
    },
    /// The index failed.
    #[error("index: {0}")]
    Index(#[from] redb::Error),
    /// A page of the index is not what was written; the file's library says no more.
    #[error("index: a page of it is damaged")]
    IndexDamaged,
    /// The operating system gave no random bytes for the key.
    #[error("no random bytes for the log key: {0}")]
    Random(getrandom::Error),
}

impl LogError {
    /// Whether this says that the folder does not bear out what was promised, rather than that nobody can tell.
    pub fn disproves(&self) -> bool {
        matches!(
            self,
            LogError::Checkpoint { .. }
                | LogError::DataOlderThanLock { .. }
                | LogError::LockOlderThanData { .. }
                | LogError::LockSlotDamaged { .. }
                | LogError::CheckpointMissing { .. }
                | LogError::RootMismatch { .. }
                | LogError::TileMismatch { .. }
                | LogError::EntriesMismatch { .. }
                | LogError::Entries { .. }
                | LogError::AttachmentMismatch { .. }
        )
    }

    /// Names the file that an I/O error is about.
    pub fn io(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> LogError {
        let path = path.into();
        move |source| LogError::Io { path, source }
    }
}
