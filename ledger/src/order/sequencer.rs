//! The sequencer: one thread that takes waiting submissions in groups, admits them in order, and commits each group
//! at once, so that many submissions share the cost of reaching the disk.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

use schemas::statement::Statement;
use tokio::sync::oneshot;

use crate::error::LogError;
use crate::metrics::Metrics;
use crate::order::admission::{Refusal, admit};
use crate::order::commit::{
    COMMIT_BYTES_MAX, COMMIT_ENTRIES_MAX, CommitError, Committed, Committer, SignedHead,
};
use crate::order::index::{Change, EntryFacts, Index};
use crate::order::registers::calls_for_register;

/// Most submissions that may wait.
pub const POOL_ENTRIES_MAX: usize = 2048;
/// Most submissions in a group: each may call for a register in the same commit.
const GROUP_ENTRIES_MAX: usize = COMMIT_ENTRIES_MAX / 2;
/// Most bytes of submissions that may wait.
pub const POOL_BYTES_MAX: usize = 64 * 1024 * 1024;
/// How long the first submission of a group waits for others.
const POOL_DELAY: Duration = Duration::from_millis(5);
/// How long tiles may wait for a sync, and how many entries and bytes of the journal.
const SYNC_DELAY: Duration = Duration::from_secs(3);
const SYNC_ENTRIES_MAX: u64 = 32_768;
const SYNC_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Where an entry stands.
#[derive(Debug, Clone)]
pub struct Sequenced {
    /// Its leaf index, covered by the checkpoint published when this is answered.
    pub index: u64,
    /// Whether the very same entry was already there.
    pub repeated: bool,
    /// The commit that added it, which proves it from memory; none if it was there before.
    pub committed: Option<Arc<Committed>>,
}

/// Why a submission got no place.
#[derive(Debug)]
pub enum SubmitError {
    /// Too many are waiting.
    PoolFull,
    /// The log does not admit it.
    Refused(Refusal),
    /// It could not be stored, for this reason if there is one to tell. It is not in the log.
    NotStored(Option<Arc<LogError>>),
    /// The server is stopping.
    Stopping,
}

/// A submission that waits.
struct Waiting {
    bytes: Vec<u8>,
    statement: Statement,
    since: Instant,
    answer: oneshot::Sender<Result<Sequenced, SubmitError>>,
}

/// The latest promise, as readers see it.
#[derive(Clone)]
pub struct Published(Arc<RwLock<Arc<SignedHead>>>);

impl Published {
    /// Starts from a head.
    pub fn new(signed: Arc<SignedHead>) -> Published {
        Published(Arc::new(RwLock::new(signed)))
    }

    /// The latest published checkpoint.
    pub fn latest(&self) -> Arc<SignedHead> {
        // A writer only ever swaps the pointer, so a poisoned lock still holds a good one.
        self.0.read().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    fn replace(&self, signed: Arc<SignedHead>) {
        *self.0.write().unwrap_or_else(|poisoned| poisoned.into_inner()) = signed;
    }
}

/// The way into the pool.
#[derive(Clone)]
pub struct Pool {
    waiting: SyncSender<Waiting>,
    /// What waits.
    held: Arc<Held>,
}

/// How much waits in the pool.
#[derive(Debug, Default)]
struct Held {
    entries: AtomicUsize,
    bytes: AtomicUsize,
}

impl Held {
    fn add(&self, entries: usize, bytes: usize) -> usize {
        self.entries.fetch_add(entries, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes
    }

    fn remove(&self, entries: usize, bytes: usize) {
        self.entries.fetch_sub(entries, Ordering::Relaxed);
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Pool {
    /// How many submissions wait, and how many bytes.
    pub fn held(&self) -> (u64, u64) {
        let value = |number: &AtomicUsize| number.load(Ordering::Relaxed) as u64;
        (value(&self.held.entries), value(&self.held.bytes))
    }

    /// Puts an opened statement into the pool and waits until it has a place in a published checkpoint.
    pub async fn submit(&self, bytes: Vec<u8>, statement: Statement) -> Result<Sequenced, SubmitError> {
        let (answer, answered) = oneshot::channel();
        let length = bytes.len();
        if self.held.add(1, length) > POOL_BYTES_MAX {
            self.held.remove(1, length);
            return Err(SubmitError::PoolFull);
        }
        match self.waiting.try_send(Waiting { bytes, statement, since: Instant::now(), answer }) {
            Ok(()) => answered.await.unwrap_or(Err(SubmitError::Stopping)),
            Err(error) => {
                self.held.remove(1, length);
                match error {
                    TrySendError::Full(_) => Err(SubmitError::PoolFull),
                    TrySendError::Disconnected(_) => Err(SubmitError::Stopping),
                }
            }
        }
    }
}

/// The sequencer, not yet running.
pub struct Sequencer {
    committer: Committer,
    index: Arc<Index>,
    published: Published,
    waiting: Receiver<Waiting>,
    /// What waits.
    held: Arc<Held>,
    metrics: Arc<Metrics>,
    /// When the last sync was started.
    synced: Instant,
}

impl Sequencer {
    /// A sequencer and the way into its pool.
    pub fn new(
        committer: Committer,
        index: Arc<Index>,
        published: Published,
        metrics: Arc<Metrics>,
    ) -> (Sequencer, Pool) {
        let (sender, waiting) = sync_channel(POOL_ENTRIES_MAX);
        let held: Arc<Held> = Arc::default();
        let pool = Pool { waiting: sender, held: held.clone() };
        let synced = Instant::now();
        (Sequencer { committer, index, published, waiting, held, metrics, synced }, pool)
    }

    /// Runs until every [`Pool`] is dropped and empty, or until it is not known what is on disk.
    pub fn run(mut self) -> Result<(), LogError> {
        loop {
            match self.gather() {
                Some(group) if group.is_empty() => {}
                Some(group) => self.sequence(group)?,
                None => break,
            }
            self.sync()?;
        }
        self.committer.sync()?;
        self.index.sync()
    }

    /// The next group: the first to come, and those that follow within a few milliseconds. Empty when it is time to
    /// look after the disk.
    fn gather(&self) -> Option<Vec<Waiting>> {
        let first = match self.waiting.recv_timeout(SYNC_DELAY) {
            Ok(first) => first,
            Err(RecvTimeoutError::Timeout) => return Some(Vec::new()),
            Err(RecvTimeoutError::Disconnected) => return None,
        };
        let deadline = first.since + POOL_DELAY;
        let mut bytes = first.bytes.len();
        let mut group = vec![first];
        while group.len() < GROUP_ENTRIES_MAX && bytes < COMMIT_BYTES_MAX {
            match self.waiting.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(waiting) => {
                    bytes += waiting.bytes.len();
                    group.push(waiting);
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
            }
        }
        self.held.remove(group.len(), bytes);
        Some(group)
    }

    /// Starts a sync if it is time. An error is one of the last sync, and means that the server must stop.
    fn sync(&mut self) -> Result<(), LogError> {
        self.committer.check_sync()?;
        let due = self.synced.elapsed() >= SYNC_DELAY
            || self.committer.unsynced() >= SYNC_ENTRIES_MAX
            || self.committer.unsynced_bytes() >= SYNC_BYTES_MAX;
        if due {
            if self.committer.unsynced_bytes() >= 2 * SYNC_BYTES_MAX {
                // The disk is slower than we are: wait for it, so that the journal does not grow without end.
                self.committer.wait_for_sync()?;
            }
            if self.committer.may_sync() {
                self.synced = Instant::now();
                self.index.freeze();
                let index = self.index.clone();
                self.committer.start_sync(move || index.merge())?;
            }
        }
        Ok(())
    }

    /// Admits, commits and answers one group. An error means that the server must stop.
    fn sequence(&mut self, group: Vec<Waiting>) -> Result<(), LogError> {
        let change = self.index.begin()?;
        let size = self.committer.size().0;
        let mut entries = Vec::new();
        let mut decided = Vec::new();
        let mut runs = Vec::new();
        for waiting in group {
            let outcome = place(&change, &waiting.statement, size + entries.len() as u64)?;
            if let Ok(Sequenced { repeated: false, .. }) = outcome {
                entries.push(waiting.bytes);
                let run = waiting.statement.payload.run();
                if calls_for_register(&waiting.statement.payload) && !runs.contains(&run) {
                    runs.push(run);
                }
            }
            decided.push((waiting.answer, outcome));
        }
        for run in runs {
            let index = size + entries.len() as u64;
            let (bytes, register) = self.committer.register(change.next_register(run, index)?);
            change.insert(index, EntryFacts::of(&register), Some(&register.payload))?;
            entries.push(bytes);
        }
        let mut committed = None;
        let mut lost = None;
        if !entries.is_empty() {
            let count = entries.len() as u64;
            let bytes = entries.iter().map(|entry| entry.len() as u64).sum();
            let started = Instant::now();
            match self.committer.commit(entries) {
                Ok(done) => {
                    let took = started.elapsed();
                    self.metrics.committed(count, bytes, took);
                    tracing::debug!(
                        entries = count,
                        bytes,
                        size = size + count,
                        took_us = took.as_micros() as u64,
                        "committed"
                    );
                    change.finish();
                    self.published.replace(done.signed.clone());
                    committed = Some(Arc::new(done));
                }
                Err(CommitError::NotCommitted(error)) => {
                    tracing::error!("entries were not stored: {error}");
                    lost = Some(Arc::new(error));
                }
                // Dropping the answers tells the submitters that the server is stopping.
                Err(CommitError::Unknown(error)) => return Err(error),
            }
        }
        for (answer, outcome) in decided {
            let outcome = match (outcome, &lost) {
                (Ok(sequenced), Some(error)) if sequenced.index >= size => {
                    Err(SubmitError::NotStored(Some(error.clone())))
                }
                (Ok(sequenced), _) if sequenced.index >= size => {
                    Ok(Sequenced { committed: committed.clone(), ..sequenced })
                }
                (outcome, _) => outcome,
            };
            // A submitter that has gone away can ask again: the entry has its place.
            let _ = answer.send(outcome);
        }
        Ok(())
    }
}

/// The place of a statement: its old one if the same bytes are in the log or earlier in the group, or else `next`.
fn place(
    change: &Change<'_>,
    statement: &Statement,
    next: u64,
) -> Result<Result<Sequenced, SubmitError>, LogError> {
    if let Some(index) = change.find(statement.digest)? {
        return Ok(Ok(Sequenced { index, repeated: true, committed: None }));
    }
    if let Err(refusal) = admit(statement, change)? {
        return Ok(Err(SubmitError::Refused(refusal)));
    }
    change.insert(next, EntryFacts::of(statement), Some(&statement.payload))?;
    Ok(Ok(Sequenced { index: next, repeated: false, committed: None }))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use axum::http::{StatusCode, header};
    use axum::response::IntoResponse;

    use schemas::key::SecretKey;
    use schemas::object::Object as _;
    use schemas::run::Run;
    use schemas::statement::Payload;

    use super::*;
    use crate::disk::durable::{Fault, Files};
    use crate::http::problem::Problem;
    use crate::log::{OpenLog, open_log};

    fn statement() -> Vec<u8> {
        let run = Run::decode(include_bytes!("../../../fixtures/run/run.cbor")).unwrap();
        Statement::sign(&Payload::Run(run), &SecretKey::from_seed([1; 32])).unwrap()
    }

    #[test]
    fn what_a_full_disk_did_not_take_is_not_acknowledged_and_there_may_be_room_later() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().join("log");
        drop(open_log(&base, None, None, Files::default()).unwrap());
        let full = Arc::new(AtomicBool::new(true));
        let journal = {
            let full = full.clone();
            move |_, path: &std::path::Path| {
                let journal = path.parent().is_some_and(|folder| folder.ends_with("journal"));
                if journal && full.load(Ordering::Relaxed) { Fault::Full } else { Fault::None }
            }
        };
        let opened = open_log(&base, None, None, Files::with_faults(Box::new(journal))).unwrap();
        let OpenLog { log, pool, sequencer, lock: _lock } = opened;
        let running = std::thread::spawn(move || sequencer.run());
        let bytes = statement();
        let statement = Statement::open(&bytes).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let submit = || runtime.block_on(pool.submit(bytes.clone(), statement.clone()));
        let error = submit().unwrap_err();
        assert!(matches!(error, SubmitError::NotStored(_)), "{error:?}");
        let problem = Problem::from(error);
        assert_eq!(problem.status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(problem.detail.contains("could not be stored: no storage space"), "{}", problem.detail);
        assert_eq!(log.published.latest().head.size.0, 1, "the genesis entry alone");
        full.store(false, Ordering::Relaxed);
        assert_eq!(submit().unwrap().index, 1);
        assert_eq!(log.published.latest().head.size.0, 2);
        drop(pool);
        running.join().unwrap().unwrap();
    }

    #[test]
    fn a_full_pool_says_so_and_a_stopped_one_too() {
        let folder = tempfile::tempdir().unwrap();
        let opened = open_log(&folder.path().join("log"), None, None, Files::default()).unwrap();
        let bytes = statement();
        let statement = Statement::open(&bytes).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut waiting = Vec::new();
            for _ in 0..POOL_ENTRIES_MAX {
                let (pool, bytes, statement) = (opened.pool.clone(), bytes.clone(), statement.clone());
                waiting.push(tokio::spawn(async move { pool.submit(bytes, statement).await }));
            }
            // On one thread, yielding this often lets every submission run up to where it waits.
            for _ in 0..POOL_ENTRIES_MAX {
                tokio::task::yield_now().await;
            }
            let error = opened.pool.submit(bytes.clone(), statement.clone()).await.unwrap_err();
            assert!(matches!(error, SubmitError::PoolFull));
            let answer = Problem::from(error).into_response();
            assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
            assert_eq!(answer.headers()[header::RETRY_AFTER], "1");
            drop(opened.sequencer);
            for waiting in waiting {
                assert!(matches!(waiting.await.unwrap(), Err(SubmitError::Stopping)));
            }
            assert!(matches!(opened.pool.submit(bytes, statement).await, Err(SubmitError::Stopping)));
        });
    }
}
