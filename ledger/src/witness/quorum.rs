//! Which checkpoint witnesses are asked for, and what is done with their cosignatures: the first quorum is kept.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tlog::checkpoint::Checkpoint;
use tlog::note::NoteSignature;
use tlog::tree::TreeSize;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::http::server::told_to_stop;
use crate::log::Log;
use crate::order::commit::SignedHead;
use crate::witness::ask::{Asker, Found, off_thread};
use crate::witness::plan::Plan;
use crate::witness::witnessed::Standing;

/// How often a newer checkpoint is looked for.
const LOOK: Duration = Duration::from_millis(20);
/// Most checkpoints for which cosignatures are gathered: late ones may still complete a quorum.
const GATHERED_MAX: usize = 4;
/// Most findings that wait to be looked at.
const FOUND_MAX: usize = 64;

/// Asks the witnesses of a plan for cosignatures of this log's checkpoints until told to stop.
pub async fn run(plan: Plan, log: Arc<Log>, mut stopping: watch::Receiver<bool>) {
    tokio::select! {
        () = gather(plan, log) => {}
        () = told_to_stop(&mut stopping) => {}
    }
}

async fn gather(plan: Plan, log: Arc<Log>) {
    start_from(&plan, &log);
    let asked = plan.asked.len();
    let witnesses = if asked == 1 { "1 witness is" } else { &format!("{asked} witnesses are") };
    tracing::info!("{witnesses} asked for cosignatures");
    let mut target = log.published.latest();
    let mut since = Instant::now();
    let (targets, receiver) = watch::channel(target.clone());
    let (sender, mut found) = mpsc::channel(FOUND_MAX);
    // Dropped, and with it every task, when this ends.
    let mut askers = JoinSet::new();
    for witness in 0..plan.asked.len() {
        let (plan, log, targets, found) = (plan.clone(), log.clone(), receiver.clone(), sender.clone());
        askers.spawn(Asker { witness, plan, log, targets, found }.run());
    }
    let mut gathered = Gathered::default();
    let mut look = interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            Some(found) = found.recv() => match found {
                Found::Cosigned { witness, signed, line } => {
                    let size = signed.head.size;
                    if let Some(note) = gathered.add(&plan, witness, signed, line)
                        && keep(&plan, &log, size, note).await
                    {
                        gathered.done(size);
                    }
                }
                Found::Forked(proof) => {
                    plan.counters.forked.set(1);
                    tracing::error!("THIS LOG HAS FORKED: {proof}; no checkpoint is called witnessed any more");
                    log.witnessed.fork();
                    return;
                }
            },
            _ = look.tick() => {}
        }
        // A target stays until a quorum has cosigned it, or that has taken too long: else slow witnesses would each
        // cosign another one, and no quorum would ever come together.
        let held = since.elapsed();
        let over = gathered.is_done(target.head.size) || held >= plan.pace.request;
        let latest = log.published.latest();
        if latest.head.size > target.head.size && held >= plan.pace.interval && over {
            target = latest;
            since = Instant::now();
            targets.send_replace(target.clone());
        }
    }
}

/// What was witnessed before the start stands if the policy still says so.
fn start_from(plan: &Plan, log: &Log) {
    let keys = plan.policy.witness_keys();
    if let Standing::Note(size, note) = log.witnessed.standing() {
        let opened = Checkpoint::open_cosigned(note.as_bytes(), log.origin(), &log.verifier, &keys);
        match opened {
            Ok((_, cosignatures)) if plan.policy.is_quorum(&cosignatures) => {
                plan.counters.witnessed_size.set(size.0);
            }
            _ => {
                tracing::info!("the checkpoint of size {size} was witnessed under another policy");
                log.witnessed.forget();
            }
        }
    }
}

/// Keeps a cosigned note, and shows it once it is durable. Whether it is kept.
async fn keep(plan: &Plan, log: &Arc<Log>, size: TreeSize, note: String) -> bool {
    let keys = plan.policy.witness_keys();
    let opened = Checkpoint::open_cosigned(note.as_bytes(), log.origin(), &log.verifier, &keys);
    let (_, cosignatures) = opened.expect("ledger: verified lines make a note that opens");
    assert!(plan.policy.is_quorum(&cosignatures), "ledger: a quorum of lines is one of the note");
    let (history, text) = (log.history.clone(), note.clone());
    match off_thread(move || history.add_cosigned(size, &text)).await {
        Ok(()) => {
            log.witnessed.add(size, &note);
            plan.counters.quorums.count();
            plan.counters.witnessed_size.set(size.0);
            true
        }
        Err(error) => {
            tracing::error!("the cosigned checkpoint of size {size} could not be kept: {error}");
            false
        }
    }
}

/// Cosignatures by checkpoint.
#[derive(Default)]
struct Gathered(BTreeMap<TreeSize, Lines>);

#[derive(Default)]
struct Lines {
    by_witness: BTreeMap<usize, NoteSignature>,
    done: bool,
}

impl Gathered {
    /// Adds a line; the note with all lines if they are a quorum now and none was kept yet.
    fn add(
        &mut self,
        plan: &Plan,
        witness: usize,
        signed: Arc<SignedHead>,
        line: NoteSignature,
    ) -> Option<String> {
        let lines = self.0.entry(signed.head.size).or_default();
        // The first one of a witness stays: it states the earliest time.
        lines.by_witness.entry(witness).or_insert(line);
        let has = |at: usize| lines.by_witness.contains_key(&at);
        let keys = || plan.asked.iter().enumerate().filter(|(at, _)| has(*at)).map(|(_, (place, _))| *place);
        let met = plan.policy.is_met(|known| keys().any(|place| plan.policy.witnesses()[place] == *known));
        let note = (met && !lines.done).then(|| {
            let lines: String = lines.by_witness.values().map(|line| line.to_string()).collect();
            format!("{}{lines}", signed.note)
        });
        while self.0.len() > GATHERED_MAX {
            self.0.pop_first();
        }
        note
    }

    fn done(&mut self, size: TreeSize) {
        if let Some(lines) = self.0.get_mut(&size) {
            lines.done = true;
        }
    }

    fn is_done(&self, size: TreeSize) -> bool {
        self.0.get(&size).is_some_and(|lines| lines.done)
    }
}
