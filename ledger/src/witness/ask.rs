//! Asking one witness, over and over, at its own pace: a slow or dead one keeps nobody else waiting.

use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use thiserror::Error;
use tlog::checkpoint::Checkpoint;
use tlog::cosignature::CosignerKey;
use tlog::hash::Hash;
use tlog::note::{NoteSignature, Verifier as _};
use tlog::proof::{ConsistencyProof, prove_consistency};
use tlog::tile::TileReader;
use tlog::tree::{TreeSize, root_hash};
use tlog::witness::{AddCheckpoint, SIZE_TYPE, parse_size};
use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, timeout};

use crate::call::client::{Answer, CallError, Client};
use crate::error::LogError;
use crate::http::accept::is_of_type;
use crate::log::Log;
use crate::order::commit::SignedHead;
use crate::witness::counters::{Counter, WitnessCounters};
use crate::witness::plan::Plan;
use crate::witness::records::name_of;

/// Longest answer that is read: a witness answers one signature line or a size.
const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// Most requests for one checkpoint before a witness is left alone for a while.
const ATTEMPTS_MAX: usize = 3;
/// Most seconds between a cosignature's time and this server's clock.
const CLOCK_DIFFERENCE_S_MAX: u64 = 300;

/// What one witness has found.
pub enum Found {
    /// A verified cosignature of a checkpoint.
    Cosigned {
        /// The witness's place among those asked.
        witness: usize,
        /// The checkpoint.
        signed: Arc<SignedHead>,
        /// The signature line.
        line: NoteSignature,
    },
    /// Proof that this log's key has signed a checkpoint that this log does not bear out.
    Forked(String),
}

/// Why a witness gave no cosignature.
#[derive(Debug, Error)]
enum Trouble {
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("no answer within {0:?}")]
    TooSlow(Duration),
    #[error("it answers {status}: {body}")]
    Refused { status: StatusCode, body: String },
    #[error("it lies: {0}")]
    Lied(String),
    #[error(
        "it says that this log's checkpoint of size {size} does not follow from what it cosigned at size {old}"
    )]
    Inconsistent { old: TreeSize, size: TreeSize },
    #[error("it says to have cosigned size {found}, and this log has never published more than {published}")]
    Beyond { found: TreeSize, published: TreeSize },
    #[error(transparent)]
    Log(#[from] LogError),
}

/// The task of one witness.
pub struct Asker {
    /// Its place among those asked.
    pub witness: usize,
    /// How witnesses are asked.
    pub plan: Plan,
    /// The log.
    pub log: Arc<Log>,
    /// The checkpoint to be cosigned.
    pub targets: watch::Receiver<Arc<SignedHead>>,
    /// Where findings go.
    pub found: mpsc::Sender<Found>,
}

impl Asker {
    /// Asks for each new target, until nobody sets targets any more.
    pub async fn run(mut self) {
        let (at, url) = self.plan.asked[self.witness].clone();
        let name = self.plan.policy.witnesses()[at].name.clone();
        let mut state = State { client: Client::new(url), last: self.last_cosigned(at) };
        let (mut failures, mut told) = (0, None);
        loop {
            let signed = self.targets.borrow_and_update().clone();
            match self.ask(&mut state, &signed).await {
                Ok(line) => {
                    if told.take().is_some() {
                        tracing::info!("witness {name} cosigns again");
                    }
                    failures = 0;
                    let found = line.map(|line| Found::Cosigned { witness: self.witness, signed, line });
                    if let Some(found) = found
                        && self.found.send(found).await.is_err()
                    {
                        return;
                    }
                    if self.targets.changed().await.is_err() {
                        return;
                    }
                }
                Err(trouble) => {
                    self.counter(&trouble).count();
                    self.tell(&name, &trouble, &mut told);
                    if matches!(trouble, Trouble::Inconsistent { .. } | Trouble::Beyond { .. })
                        && let Some(proof) = self.examine(&mut state).await
                        && self.found.send(Found::Forked(format!("witness {name}: {proof}"))).await.is_err()
                    {
                        return;
                    }
                    sleep(self.backoff(failures)).await;
                    failures += 1;
                }
            }
        }
    }

    /// A cosignature of a checkpoint; none if the witness has cosigned a later one of this log already.
    async fn ask(
        &self,
        state: &mut State,
        signed: &Arc<SignedHead>,
    ) -> Result<Option<NoteSignature>, Trouble> {
        let size = signed.head.size;
        for _ in 0..ATTEMPTS_MAX {
            // Of a checkpoint larger than this one there is no proof; its answer tells whether it still says so.
            let old = state.last.min(size);
            let proof = self.prove(old, size).await?;
            let request = AddCheckpoint { old, proof, checkpoint: signed.note.clone() }.format();
            let answer =
                self.limited(state.client.post("/add-checkpoint", request, ANSWER_BYTES_MAX)).await?;
            match answer.status {
                StatusCode::OK => {
                    let key = &self.plan.policy.witnesses()[self.plan.asked[self.witness].0].key;
                    let text = Checkpoint { origin: self.log.origin().to_owned(), head: signed.head }.text();
                    let line = cosignature_of(&answer.body, key, &text, (self.plan.clock)());
                    let line = line.map_err(Trouble::Lied)?;
                    state.last = size;
                    self.counters().cosigned.count();
                    self.counters().size.set(size.0);
                    return Ok(Some(line));
                }
                // By earlier versions of its page a witness said so of another root for the same size.
                StatusCode::CONFLICT
                    if !answer.content_type.as_deref().is_some_and(|found| is_of_type(found, SIZE_TYPE)) =>
                {
                    return Err(Trouble::Inconsistent { old, size });
                }
                StatusCode::CONFLICT => {
                    let found = parse_size(&answer.body);
                    let found = found.ok_or_else(|| Trouble::Lied("status 409 without a size".to_owned()))?;
                    state.last = found;
                    let published = self.log.published.latest().head.size;
                    if found > published {
                        return Err(Trouble::Beyond { found, published });
                    }
                    if found > size {
                        return Ok(None);
                    }
                }
                StatusCode::UNPROCESSABLE_ENTITY => return Err(Trouble::Inconsistent { old, size }),
                status => return Err(Trouble::Refused { status, body: shortened(&answer.body) }),
            }
        }
        Err(Trouble::Lied(format!("status 409 {ATTEMPTS_MAX} times, whatever size it said before")))
    }

    async fn prove(&self, old: TreeSize, new: TreeSize) -> Result<ConsistencyProof, Trouble> {
        let log = self.log.clone();
        let prove = move || {
            let reader = TileReader { size: log.published.latest().head.size, source: log.store.as_ref() };
            prove_consistency(old, new, &reader).map_err(|error| match error {
                tlog::proof::ProveError::Read(error) => LogError::from(error),
                other => unreachable!("ledger: sizes were compared: {other}"),
            })
        };
        Ok(off_thread(prove).await?)
    }

    /// Looks for proof of a fork: what the witness holds, if this log's key has signed it and its tiles differ.
    async fn examine(&self, state: &mut State) -> Option<String> {
        let path = format!("/{}/checkpoint", name_of(self.log.origin()));
        let answer = self.limited(state.client.get(&path, ANSWER_BYTES_MAX)).await.ok()?;
        if answer.status != StatusCode::OK {
            return None;
        }
        let theirs = Checkpoint::open(&answer.body, self.log.origin(), &self.log.verifier).ok()?.head;
        let published = self.log.published.latest().head;
        if theirs.size > published.size {
            return Some(format!(
                "it holds a checkpoint of size {} signed by this log's key, and this log has only ever published {}; \
                 it was set back, or another log has its key",
                theirs.size, published.size
            ));
        }
        let ours = self.root(theirs.size).await.ok()?;
        (ours != theirs.root).then(|| {
            format!(
                "it holds a checkpoint of size {} with root {} signed by this log's key, and this log has root {ours}",
                theirs.size, theirs.root
            )
        })
    }

    async fn root(&self, size: TreeSize) -> Result<Hash, LogError> {
        let log = self.log.clone();
        off_thread(move || {
            let reader = TileReader { size: log.published.latest().head.size, source: log.store.as_ref() };
            Ok(root_hash(size, &reader)?)
        })
        .await
    }

    async fn limited(
        &self,
        call: impl Future<Output = Result<Answer, CallError>>,
    ) -> Result<Answer, Trouble> {
        let limit = self.plan.pace.request;
        match timeout(limit, call).await {
            Ok(answer) => Ok(answer?),
            Err(_) => Err(Trouble::TooSlow(limit)),
        }
    }

    /// The size that a witness cosigned last, as far as this log has kept it. It corrects a wrong one.
    fn last_cosigned(&self, at: usize) -> TreeSize {
        let key = &self.plan.policy.witnesses()[at].key;
        let kept = self.log.history.latest_cosigned().ok().flatten();
        let of_key = kept.filter(|(_, note)| note.contains(&format!("\n\u{2014} {} ", key.name())));
        of_key.map_or(TreeSize(0), |(size, _)| size)
    }

    fn backoff(&self, failures: u32) -> Duration {
        let pace = &self.plan.pace;
        pace.backoff.saturating_mul(1 << failures.min(16)).min(pace.backoff_max)
    }

    fn counters(&self) -> &WitnessCounters {
        &self.plan.counters.witnesses[self.witness]
    }

    fn counter(&self, trouble: &Trouble) -> &Counter {
        let counters = self.counters();
        match trouble {
            Trouble::Call(_) | Trouble::TooSlow(_) | Trouble::Log(_) => &counters.unreachable,
            Trouble::Refused { .. } => &counters.refused,
            Trouble::Lied(_) => &counters.lied,
            Trouble::Inconsistent { .. } | Trouble::Beyond { .. } => &counters.inconsistent,
        }
    }

    /// Tells a trouble once: again only when it is of another kind.
    fn tell(&self, name: &str, trouble: &Trouble, told: &mut Option<std::mem::Discriminant<Trouble>>) {
        let kind = std::mem::discriminant(trouble);
        if told.replace(kind) == Some(kind) {
            return;
        }
        match trouble {
            Trouble::Inconsistent { .. } | Trouble::Beyond { .. } => {
                tracing::error!("witness {name}: {trouble}; if it is right, this log has forked");
            }
            _ => tracing::warn!("witness {name} does not cosign: {trouble}; it is asked again later"),
        }
    }
}

/// What is remembered of a witness.
struct State {
    client: Client,
    /// The size that it cosigned last, as far as known.
    last: TreeSize,
}

/// The witness's own line in an answer, verified.
fn cosignature_of(body: &[u8], key: &CosignerKey, text: &str, now_s: u64) -> Result<NoteSignature, String> {
    let lines =
        NoteSignature::parse_lines(body).map_err(|error| format!("its answer is no signatures: {error}"))?;
    let line =
        lines.into_iter().find(|line| line.is_of(key)).ok_or("its answer has no signature of its key")?;
    let time_s = key.time_of(text, &line.bytes).ok_or("its cosignature does not verify")?;
    if time_s.abs_diff(now_s) > CLOCK_DIFFERENCE_S_MAX {
        return Err(format!("its cosignature is of time {time_s}, and this server's clock says {now_s}"));
    }
    Ok(line)
}

fn shortened(body: &[u8]) -> String {
    String::from_utf8_lossy(body).trim().chars().filter(|c| !c.is_control()).take(200).collect()
}

/// Runs what waits for the disk off the threads that serve connections.
pub async fn off_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        // The server is stopping, and whoever waits for this is about to be dropped.
        Err(_) => std::future::pending().await,
    }
}
