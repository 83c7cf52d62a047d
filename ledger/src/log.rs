//! Opening a log: lock, key, recovery, index, genesis.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use schemas::digest::EntryDigest;
use tlog::note::{SigningKey, Verifier as _, VerifierKey};

use crate::disk::durable::Files;
use crate::disk::folder::check_folder;
use crate::disk::history::History;
use crate::disk::key::{genesis_entry, open_key};
use crate::disk::lock::FolderLock;
use crate::disk::store::Store;
use crate::error::LogError;
use crate::http::cose_receipt::ReceiptSigner;
use crate::order::commit::Committer;
use crate::order::index::Index;
use crate::order::sequencer::{Pool, Published, Sequencer};
use crate::witness::witnessed::Witnessed;

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
    /// Released when dropped, so keep it until the sequencer has ended.
    pub lock: FolderLock,
}

/// Opens the log in a folder, or starts one there.
pub fn open_log(base: &Path, origin: Option<&str>, files: Files) -> Result<OpenLog, LogError> {
    check_folder(base)?;
    let lock = FolderLock::take(base)?;
    let store = Arc::new(Store::new(base, files));
    let key = Arc::new(open_key(&store, origin)?);
    let verifier = key.verifier().clone();
    let receipts = ReceiptSigner::new(key.clone());
    let (mut committer, index) = recover_with_index(&store, key)?;
    let index = Arc::new(index);
    if committer.signed().is_none() {
        let genesis = genesis_entry(verifier.name().as_str());
        let change = index.begin()?;
        change.insert_bytes(0, &genesis)?;
        committer.commit(&[genesis])?;
        change.finish()?;
    }
    index.sync()?;
    let signed = committer.signed().expect("ledger: a log has its genesis entry").clone();
    let published = Published::new(signed);
    let (sequencer, pool) = Sequencer::new(committer, index.clone(), published.clone());
    let history = History::open(base, store.files.clone())?;
    let witnessed = Witnessed::default();
    if let Some((size, note)) = history.latest_cosigned()? {
        witnessed.add(size, &note);
    }
    let log = Arc::new(Log { store, index, history, published, witnessed, verifier, receipts });
    Ok(OpenLog { log, pool, sequencer, lock })
}

/// Recovers the log and brings the index up to date with it.
///
/// The index is derived, so whatever is wrong with it (it is damaged, or belongs to another log or another past of
/// this one) it is made anew, once. Its library panics on some damaged files; nothing of a failed attempt is kept.
fn recover_with_index(store: &Arc<Store>, key: Arc<SigningKey>) -> Result<(Committer, Index), LogError> {
    let path = store.path("index.redb");
    let attempt = || {
        let index = Index::open(&path)?;
        Ok((catch_up(store, key.clone(), &index)?, index))
    };
    let reason = match catch_unwind(AssertUnwindSafe(attempt)) {
        Ok(Err(error @ (LogError::IndexMismatch { .. } | LogError::Index(_)))) => error.to_string(),
        Ok(other) => return other,
        // If it was not the index that panicked, the second attempt panics again.
        Err(_) => "reading it panicked".to_owned(),
    };
    tracing::warn!("index {} is made anew: {reason}", path.display());
    store.files.remove(&path).map_err(LogError::io(&path))?;
    attempt()
}

fn catch_up(store: &Arc<Store>, key: Arc<SigningKey>, index: &Index) -> Result<Committer, LogError> {
    let indexed = index.size()?;
    let change = index.begin()?;
    let committer = Committer::recover(store.clone(), key, |at, entry| {
        if at >= indexed {
            return change.insert_bytes(at, entry);
        }
        let found = EntryDigest::of(entry);
        let expected = index.facts(at)?.map(|facts| facts.digest);
        match expected {
            Some(expected) if expected == found => Ok(()),
            expected => {
                let expected = expected.unwrap_or(EntryDigest([0; 32]));
                Err(LogError::IndexMismatch { index: at, expected, found })
            }
        }
    })?;
    if change.size()? > committer.size().0 {
        let nothing = EntryDigest([0; 32]);
        return Err(LogError::IndexMismatch { index: committer.size().0, expected: nothing, found: nothing });
    }
    change.finish()?;
    Ok(committer)
}
