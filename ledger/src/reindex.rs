//! `ledger reindex`: all that is derived is thrown away and made again from the tiles and the notes that were kept.

use std::path::Path;

use tlog::tree::TreeSize;

use crate::disk::durable::Files;
use crate::disk::folder::require_log;
use crate::disk::lock::{FolderLock, beside};
use crate::error::LogError;
use crate::log::{OpenLog, open_log};

/// What is derived: the index, and the rows by which notes are found.
pub const DERIVED: [&str; 3] = ["index.redb", "history/published.sizes", "history/cosigned.sizes"];

/// Makes what is derived anew in the folder of a log that no server works on; the size of its tree.
///
/// A start does the same whenever it sees that something is wrong, but it does not look at every row. Whether the tiles
/// themselves are right is fsck's question. A crash leaves what the next start, or another run of this, makes whole.
pub fn reindex(base: &Path, lock_folder: Option<&Path>) -> Result<TreeSize, LogError> {
    let lock = lock_folder.map_or_else(|| beside(base), |folder| Ok(folder.to_owned()))?;
    require_log(base, &lock)?;
    let held = FolderLock::take(base, &lock)?;
    for name in DERIVED {
        let path = base.join(name);
        Files::default().remove(&path).map_err(LogError::io(&path))?;
    }
    // Opening takes the lock again. Whoever takes it in between finds a log that lacks its index, which is no harm.
    drop(held);
    let OpenLog { log, pool, sequencer, lock: _held } = open_log(base, Some(&lock), None, Files::default())?;
    // With no way in, the sequencer has nothing to do but to make everything durable.
    drop(pool);
    sequencer.run()?;
    Ok(log.published.latest().head.size)
}
