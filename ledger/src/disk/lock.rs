//! The lock: one server per folder, and the record of what this log last promised.
//!
//! `lock/head` holds the last signed checkpoint note. It is replaced atomically, and only by a server that shows the
//! note it replaces. It is kept apart from the rest so that an old copy of the folder beside a current lock (or the
//! other way round) is noticed before a second root is signed for a size that has one.

use std::fs::{File, TryLockError};
use std::path::Path;

use crate::disk::durable::{ensure_folder, read_optional, sync_folder};
use crate::disk::store::Store;
use crate::error::LogError;

/// The folder's lock, held as long as the value lives.
pub struct FolderLock {
    _file: File,
}

impl FolderLock {
    /// Takes the lock of a log's folder, making the folder if need be.
    pub fn take(base: &Path) -> Result<FolderLock, LogError> {
        let folder = base.join("lock");
        ensure_folder(&folder).map_err(LogError::io(&folder))?;
        sync_folder(base).map_err(LogError::io(base))?;
        Ok(FolderLock { _file: lock_file(&folder.join("server"), base)? })
    }
}

/// Takes the lock that a file stands for, for whoever has the folder `base`; it lasts as long as the file is open.
pub fn lock_file(path: &Path, base: &Path) -> Result<File, LogError> {
    let file = File::options().create(true).append(true).open(path).map_err(LogError::io(path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(LogError::InUse { path: base.to_owned() }),
        Err(TryLockError::Error(source)) => Err(LogError::Io { path: path.to_owned(), source }),
    }
}

/// The last signed checkpoint note, if the log has signed any.
pub fn read_head(store: &Store) -> Result<Option<Vec<u8>>, LogError> {
    let path = store.path("lock/head");
    read_optional(&path).map_err(LogError::io(path))
}

/// Compare and swap: replaces the record by `new` if it is `old`.
///
/// An error other than [`LogError::LockChanged`] leaves open whether the record was replaced.
pub fn replace_head(store: &Store, old: Option<&str>, new: &str) -> Result<(), LogError> {
    let found = read_head(store)?;
    if found.as_deref() != old.map(str::as_bytes) {
        return Err(LogError::LockChanged);
    }
    let path = store.path("lock/head");
    store.files.replace(&path, new.as_bytes()).map_err(LogError::io(path))
}
