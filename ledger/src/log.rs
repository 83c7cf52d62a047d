//! Opening a log: lock, key, recovery, index, genesis.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use schemas::digest::EntryDigest;
use tlog::note::{Verifier as _, VerifierKey};
use tlog::tile::{TILE_WIDTH, TileKind, tile_in_tree};
use tlog::tree::{LeafIndex, TreeSize};

use crate::disk::durable::Files;
use crate::disk::folder::check_folder;
use crate::disk::history::History;
use crate::disk::key::{genesis_entry, open_key};
use crate::disk::lock::{self, FolderLock};
use crate::disk::store::Store;
use crate::error::LogError;
use crate::http::cose_receipt::ReceiptSigner;
use crate::metrics::Metrics;
use crate::order::commit::Committer;
use crate::order::index::Index;
use crate::order::sequencer::{Pool, Published, Sequencer};
use crate::witness::witnessed::Witnessed;

/// Most entries that are caught up with in memory before they go into the index's file.
const MERGE_ENTRIES_MAX: u64 = 65_536;

/// What readers share.
pub struct Log {
    /// The folder.
    pub store: Arc<Store>,
    /// The index.
    pub index: Arc<Index>,
    /// Published and cosigned checkpoints by size.
    pub history: History,
    /// The latest checkpoint.
    pub published: Published,
    /// The latest one that witnesses have cosigned.
    pub witnessed: Witnessed,
    /// The log's public key.
    pub verifier: VerifierKey,
    /// Signs COSE receipts.
    pub receipts: ReceiptSigner,
    /// What is counted.
    pub metrics: Arc<Metrics>,
}

impl Log {
    /// The log's identity line.
    pub fn origin(&self) -> &str {
        self.verifier.name().as_str()
    }
}

/// An open log: readers, the way in, the sequencer that must be run, and the lock.
pub struct OpenLog {
    /// What readers share.
    pub log: Arc<Log>,
    /// The way into the pool.
    pub pool: Pool,
    /// To be run on a thread of its own.
    pub sequencer: Sequencer,
    /// Released when dropped with the sequencer, so keep it until that has ended.
    pub lock: Arc<FolderLock>,
}

/// Opens the log in a folder, or starts one there. Its lock is beside it unless it is said to be elsewhere.
pub fn open_log(
    base: &Path,
    lock_folder: Option<&Path>,
    origin: Option<&str>,
    files: Files,
) -> Result<OpenLog, LogError> {
    let lock_folder = lock_folder.map_or_else(|| lock::beside(base), |folder| Ok(folder.to_owned()))?;
    check_folder(base, &lock_folder)?;
    let lock = Arc::new(FolderLock::take(base, &lock_folder)?);
    let store = Arc::new(Store::new(base, files));
    let key = Arc::new(open_key(&store, origin)?);
    let verifier = key.verifier().clone();
    let receipts = ReceiptSigner::new(key.clone());
    let mut committer = Committer::open(store.clone(), key, &lock_folder)?;
    committer.hold(lock.clone());
    if committer.signed().is_none() {
        committer.commit(vec![genesis_entry(verifier.name().as_str())])?;
        // Nothing is answered before there is a trace of the log that a lost lock would be missed by.
        committer.sync()?;
    }
    let index = Arc::new(open_index(&store, committer.size())?);
    let history = committer.history().clone();
    let signed = committer.signed().expect("ledger: a log has its genesis entry").clone();
    let published = Published::new(signed);
    let metrics: Arc<Metrics> = Arc::default();
    let (sequencer, pool) = Sequencer::new(committer, index.clone(), published.clone(), metrics.clone());
    let witnessed = Witnessed::default();
    if let Some((size, note)) = history.latest_cosigned()? {
        witnessed.add(size, &note);
    }
    let log = Arc::new(Log { store, index, history, published, witnessed, verifier, receipts, metrics });
    Ok(OpenLog { log, pool, sequencer, lock })
}

/// Opens the index and brings it up to date with the log.
///
/// The index is derived, so whatever is wrong with it (it is damaged, or belongs to another log or another past of
/// this one) it is made anew, once. Its library may panic on some damaged files; nothing of a failed attempt is kept.
pub fn open_index(store: &Store, size: TreeSize) -> Result<Index, LogError> {
    let path = store.path("index.redb");
    let attempt = || {
        let index = Index::open(&path)?;
        catch_up(store, &index, size)?;
        Ok(index)
    };
    let reason = match catch_unwind(AssertUnwindSafe(attempt)) {
        Ok(Err(error @ (LogError::IndexMismatch { .. } | LogError::Index(_) | LogError::IndexDamaged))) => {
            error.to_string()
        }
        Ok(other) => return other,
        // If it was not the index that panicked, the second attempt panics again.
        Err(_) => "reading it panicked".to_owned(),
    };
    tracing::warn!("index {} is made anew: {reason}", path.display());
    store.files.remove(&path).map_err(LogError::io(&path))?;
    attempt()
}

/// Adds the entries that the index lacks. Those it has are taken for right if the last of them is the log's.
pub(crate) fn catch_up(store: &Store, index: &Index, size: TreeSize) -> Result<(), LogError> {
    let mut indexed = index.size()?;
    let nothing = EntryDigest([0; 32]);
    if indexed > size.0 {
        return Err(LogError::IndexMismatch { index: size.0, expected: nothing, found: nothing });
    }
    if let Some(last) = indexed.checked_sub(1) {
        let entry = store.read_entry(LeafIndex(last), size)?;
        let found = entry.map_or(nothing, |entry| EntryDigest::of(&entry));
        let expected = index.facts(last)?.map_or(nothing, |facts| facts.digest);
        if expected != found || index.find(found)?.is_none() {
            return Err(LogError::IndexMismatch { index: last, expected, found });
        }
    }
    let mut merged = indexed;
    while indexed < size.0 {
        let bundle = indexed / u64::from(TILE_WIDTH);
        let Some(tile) = tile_in_tree(TileKind::Entries, bundle, size) else { break };
        let change = index.begin()?;
        let entries = store.read_entries(tile)?;
        for entry in entries.iter().skip((indexed % u64::from(TILE_WIDTH)) as usize) {
            change.insert_bytes(indexed, entry)?;
            indexed += 1;
        }
        change.finish();
        if indexed - merged >= MERGE_ENTRIES_MAX {
            index.sync()?;
            merged = indexed;
        }
    }
    Ok(())
}
