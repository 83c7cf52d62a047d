//! One device, from its leaves to its records: digests before sending, on receipt and after reducing.

use crate::backend::{BackendError, Device, Leaf, Moments, Spoil, Which};
use crate::checksum::Digested;
use crate::fault::Faults;
use crate::job::Job;
use crate::journal::records::Entry;
use crate::journal::{Journal, JournalError};
use crate::link::{BadLeaf, Cargo, Links, Lost};
use schemas::challenge::chosen_step;
use schemas::digest::{Challenge, TraceRoot};
use schemas::fold::NAN_WORD;
use schemas::object::Object as _;
use schemas::receipt::{Answer, DeviceOutcome, DeviceRecord, Exchange, Sum};
use schemas::record::NonFinite;
use schemas::run::Steps;
use schemas::trace::Trace;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Why a device ended without records.
#[derive(Debug, thiserror::Error)]
pub enum RankError {
    /// Its backend stopped.
    #[error("device {rank} stopped in step {step}: {source}")]
    Backend {
        /// Which device.
        rank: u64,
        /// In which step.
        step: u64,
        /// Why.
        source: BackendError,
    },
    /// A peer is gone.
    #[error("device {rank} cannot go on: {source}")]
    Lost {
        /// Which device says so.
        rank: u64,
        /// Who is gone.
        source: Lost,
    },
    /// Its records, traces or snapshots could not be written.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// It was told to stop.
    #[error("device {rank} was told to stop before step {step}")]
    Stopped {
        /// Which device.
        rank: u64,
        /// The step that comes next.
        step: u64,
    },
}

/// What all devices of a run share.
pub struct Shared<'a> {
    /// What to run.
    pub job: &'a Job,
    /// How many devices share each step.
    pub devices: u64,
    /// Steps to record. Those before are run without a record.
    pub steps: Steps,
    /// What the receipts answer.
    pub challenge: Challenge,
    /// What is to go wrong.
    pub faults: &'a Faults,
    /// Of how many of the last steps traces are kept, if they are.
    pub traces: Option<u64>,
    /// After how many steps a snapshot is written; 0 for never.
    pub snapshot_every: u64,
    /// The step before which to stop. Set to 0 from outside, it is the next one.
    pub stop: &'a AtomicUsize,
}

/// A step that a device has finished, for who watches.
#[derive(Clone, Debug)]
pub struct Progress {
    /// Which device.
    pub rank: u64,
    /// Which step.
    pub step: u64,
    /// Loss bits of all leaves of the step, if the partners told theirs.
    pub losses: Option<Vec<u32>>,
    /// Bits of the global norm, if there was one.
    pub norm: Option<u32>,
    /// How long it took.
    pub micros: u64,
    /// When it was finished, in milliseconds since 1970.
    pub unix_ms: u64,
    /// Whether an earlier process finished it.
    pub earlier: bool,
}

impl Progress {
    /// What there is to see of a step that is on record.
    pub fn of(rank: u64, entry: &Entry, earlier: bool) -> Progress {
        Progress {
            rank,
            step: entry.record.step,
            losses: entry.losses.clone(),
            norm: entry.record.outcome.as_ref().map(|outcome| outcome.norm),
            micros: entry.micros,
            unix_ms: entry.unix_ms,
            earlier,
        }
    }
}

/// What a device has to say at the end.
pub struct Account {
    /// One record for each step it claims.
    pub records: Vec<DeviceRecord>,
    /// The answer to the challenge, if its run reached the step.
    pub answer: Option<Answer>,
    /// Where the run met a NaN or an infinity.
    pub invalid: Option<(u64, NonFinite)>,
}

impl Account {
    /// What a device has to say whose records are in a journal.
    pub fn of(journal: &Journal, rank: u64, steps: Steps, faults: &Faults) -> Account {
        let entries = journal.entries();
        let told = |step| steps.first <= step && !faults.skips_record(rank, step);
        let records = entries.iter().map(|entry| &entry.record).filter(|record| told(record.step));
        let last = entries.last().map(|entry| &entry.record);
        Account {
            records: records.cloned().collect(),
            answer: entries.iter().find_map(|entry| entry.answer),
            invalid: last.and_then(|record| record.non_finite.map(|at| (record.step, at))),
        }
    }
}

/// One device and its place among the others.
pub struct Rank<'a> {
    /// What all share.
    pub shared: &'a Shared<'a>,
    /// Which device this is.
    pub rank: u64,
    /// Its ends of the links.
    pub links: Links,
    /// The device itself.
    pub device: Box<dyn Device + 'a>,
    /// Its work folder. The device's state is the one before the step that follows its records.
    pub journal: Journal,
}

/// A node of the gradient tree, or why there is none. Its words stay on the device.
#[derive(Clone, Copy)]
enum Node {
    Gradient,
    NonFinite(BadLeaf),
    Ended,
}

/// What is to go wrong in this device's leaves of one step.
struct Tampering<'a> {
    faults: &'a Faults,
    rank: u64,
    step: u64,
}

impl Spoil for Tampering<'_> {
    fn wants(&self, leaf: u64, tap: usize) -> bool {
        self.faults.wants_tap(self.rank, self.step, leaf, tap)
    }

    fn spoil(&self, leaf: u64, tap: usize, words: &mut [f32]) {
        self.faults.spoil_tap(self.rank, self.step, leaf, tap, words);
    }

    fn data_of(&self, leaf: u64) -> u64 {
        self.faults.data_of(self.rank, self.step, leaf)
    }
}

impl Rank<'_> {
    /// Runs all steps that are not on record yet. However it ends, the journal on disk is one to go on from.
    pub fn run(mut self, watch: &Sender<Progress>) -> Result<Journal, RankError> {
        let ended = self.steps(watch);
        let next = self.journal.entries().len() as u64;
        match ended {
            Ok(()) => {
                self.journal.end()?;
                let lost = |source| RankError::Lost { rank: self.rank, source };
                // As long as a device may have steps to run again, it needs the others for them.
                self.links.done(next).map_err(lost)?;
                Ok(self.journal)
            }
            Err(error) => {
                if let RankError::Stopped { .. } | RankError::Lost { .. } = error {
                    // The step that follows was not begun, or got no further than its meeting: the state is still the
                    // one before it. What cannot be written is computed again from an earlier snapshot.
                    let _ = self.snapshot(next, false);
                }
                if let RankError::Stopped { step, .. } = error {
                    self.links.stop(step);
                }
                Err(error)
            }
        }
    }

    fn steps(&mut self, watch: &Sender<Progress>) -> Result<(), RankError> {
        let Steps { first, end } = self.shared.steps;
        let chosen = chosen_step(self.shared.challenge, self.shared.steps);
        for step in self.journal.entries().len() as u64..end {
            if self.shared.stop.load(Ordering::Relaxed) as u64 <= step {
                return Err(RankError::Stopped { rank: self.rank, step });
            }
            let began = Instant::now();
            let mut answer = None;
            let keyed = (step == chosen).then_some(&mut answer);
            let Some(record) = self.step(step, keyed)? else { break };
            let invalid = record.non_finite.is_some();
            // A partner that is lost here is missed in the next meeting.
            let losses = self.links.share(self.rank, step, &record.losses).ok();
            let micros = began.elapsed().as_micros() as u64;
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let entry = Entry { record, answer, losses, micros, unix_ms: now.as_millis() as u64 };
            let progress = Progress::of(self.rank, &entry, false);
            self.journal.append(entry)?;
            if let Some(kept) = self.shared.traces.filter(|_| first <= step) {
                self.journal.forget_traces((step + 1).saturating_sub(kept))?;
            }
            let every = self.shared.snapshot_every;
            if every > 0 && (step + 1).is_multiple_of(every) && step + 1 < end && !invalid {
                self.snapshot(step + 1, true)?;
            }
            // Nobody may be watching any more; that is no reason to stop.
            let _ = watch.send(progress);
            if invalid {
                // Peers with other bits may not have met it; they must not wait for this device.
                if step + 1 < end {
                    self.links.end(step + 1);
                }
                break;
            }
        }
        Ok(())
    }

    fn snapshot(&mut self, step: u64, regular: bool) -> Result<(), RankError> {
        let state = self.device.state().map_err(self.stopped(step))?;
        Ok(self.journal.snapshot(step, &self.shared.job.plan, &state, regular)?)
    }

    /// One step; `None` if a peer's run ended before it. The answer is set if the step has tensors to answer from.
    fn step(
        &mut self,
        step: u64,
        answer: Option<&mut Option<Answer>>,
    ) -> Result<Option<DeviceRecord>, RankError> {
        let leaves = self.leaves(step)?;
        let (traces, losses) = self.report_leaves(step, &leaves)?;
        let mut record = DeviceRecord { step, traces, losses, outcome: None, non_finite: None };

        let (mut own, mut partial) = (Node::Gradient, None);
        match self.first_bad_leaf(&leaves) {
            Some(bad) => own = Node::NonFinite(bad),
            None => {
                for (element, bit) in self.shared.faults.partial_flips(self.rank, step) {
                    self.device.flip(Which::Node, element, bit).map_err(self.stopped(step))?;
                }
                partial = Some(self.digest(step, Which::Node)?.sum);
            }
        }
        let (total, exchanges) = self.meet(step, own)?;
        match total {
            Node::Ended => return Ok(None),
            Node::NonFinite(BadLeaf { leaf, tap }) => record.non_finite = Some(NonFinite::Tap { leaf, tap }),
            Node::Gradient => {
                let partial = partial.expect("rank: a sum over all devices has this one's share");
                let (outcome, stage) = self.finish(step, partial, exchanges)?;
                if let Some(answer) = answer {
                    let keyed = self.device.keyed(self.shared.challenge);
                    let [reduced, parameters] = keyed.map_err(self.stopped(step))?;
                    *answer = Some(Answer { step, reduced, parameters });
                }
                record.outcome = Some(outcome);
                record.non_finite = stage.map(|stage| NonFinite::Update { stage });
            }
        }
        self.shared.faults.falsify(self.rank, &mut record);
        Ok(Some(record))
    }

    /// An error of this device, in words that name it.
    fn stopped(&self, step: u64) -> impl Fn(BackendError) -> RankError + use<> {
        let rank = self.rank;
        move |source| RankError::Backend { rank, step, source }
    }

    fn leaves(&mut self, step: u64) -> Result<Vec<Leaf>, RankError> {
        let each = self.shared.job.plan.leaves / self.shared.devices;
        let range = self.rank * each..(self.rank + 1) * each;
        for (which, element, bit) in self.shared.faults.state_flips(self.rank, step) {
            self.device.flip(which, element, bit).map_err(self.stopped(step))?;
        }
        let tampering = Tampering { faults: self.shared.faults, rank: self.rank, step };
        let leaves = self.device.leaves(step, range, &tampering).map_err(self.stopped(step))?;
        assert_eq!(leaves.len() as u64, each, "rank: a backend reports every leaf it was given");
        Ok(leaves)
    }

    fn digest(&mut self, step: u64, which: Which) -> Result<Digested, RankError> {
        self.device.digest(which).map_err(self.stopped(step))
    }

    /// Trace roots and losses; the traces themselves are written if they are kept.
    fn report_leaves(&mut self, step: u64, leaves: &[Leaf]) -> Result<(Vec<TraceRoot>, Vec<u32>), RankError> {
        let first = self.rank * leaves.len() as u64;
        let mut roots = Vec::new();
        for (leaf, report) in (first..).zip(leaves) {
            let trace = Trace { step, leaf, folds: report.folds.clone() };
            roots.push(trace.root());
            let kept = self.shared.traces.filter(|_| self.shared.steps.first <= step);
            if kept.is_some() && !self.shared.faults.without_files(self.rank) {
                self.journal.trace(step, leaf, &trace.encode())?;
            }
        }
        Ok((roots, leaves.iter().map(|leaf| leaf.loss).collect()))
    }

    /// The first leaf that was not finite, and with which tap it ended.
    fn first_bad_leaf(&self, leaves: &[Leaf]) -> Option<BadLeaf> {
        let first = self.rank * leaves.len() as u64;
        let (leaf, report) = (first..).zip(leaves).find(|(_, report)| !report.finite)?;
        let tap = report.folds.len().checked_sub(1).expect("rank: a leaf ends at a tap");
        Some(BadLeaf { leaf, tap: tap as u64 })
    }

    /// Recursive doubling: at each level, swap nodes with the partner and add, lower rank left. A device without a
    /// gradient takes part all the same, so that all devices learn of the lowest leaf that was not finite.
    fn meet(&mut self, step: u64, own: Node) -> Result<(Node, Vec<Exchange>), RankError> {
        let mut node = own;
        let mut exchanges = Vec::new();
        for level in 0..self.links.levels() {
            let cargo = match node {
                Node::Gradient => {
                    let mut bytes = self.device.node_bytes().map_err(self.stopped(step))?;
                    self.shared.faults.spoil_sent(self.rank, step, level, &mut bytes);
                    Cargo::Gradient(bytes)
                }
                Node::NonFinite(bad) => Cargo::NonFinite(bad),
                Node::Ended => Cargo::Ended,
            };
            let lost = |source| RankError::Lost { rank: self.rank, source };
            let arrived = match self.links.swap(level, step, cargo).map_err(lost)? {
                Cargo::Gradient(mut bytes) => {
                    self.shared.faults.spoil_arrival(self.rank, step, level, &mut bytes);
                    self.device.arrive(&bytes).map_err(self.stopped(step))?;
                    Node::Gradient
                }
                Cargo::NonFinite(bad) => Node::NonFinite(bad),
                Cargo::Ended => Node::Ended,
            };
            node = match (node, arrived) {
                (Node::Gradient, Node::Gradient) => {
                    exchanges.push(self.join(step, level)?);
                    Node::Gradient
                }
                (Node::Ended, _) | (_, Node::Ended) => Node::Ended,
                (Node::NonFinite(one), Node::NonFinite(other)) => Node::NonFinite(one.min(other)),
                (Node::NonFinite(bad), _) | (_, Node::NonFinite(bad)) => Node::NonFinite(bad),
            };
        }
        Ok((node, exchanges))
    }

    /// Adds what arrived to the node: digested on receipt, and again after adding.
    fn join(&mut self, step: u64, level: usize) -> Result<Exchange, RankError> {
        let received = self.digest(step, Which::Arrived)?.sum;
        let mine_is_left = self.rank < self.links.partner(level);
        self.device.join(mine_is_left).map_err(self.stopped(step))?;
        for (element, bit) in self.shared.faults.sum_flips(self.rank, step, level) {
            self.device.flip(Which::Node, element, bit).map_err(self.stopped(step))?;
        }
        Ok(Exchange { received, sum: self.digest(step, Which::Node)?.sum })
    }

    /// Norm and optimizer, and what they leave behind. With it, the first stage that was not finite: 0 the reduced
    /// gradient, 1 the norm, 2 parameters or moments.
    fn finish(
        &mut self,
        step: u64,
        partial: Sum,
        exchanges: Vec<Exchange>,
    ) -> Result<(DeviceOutcome, Option<u64>), RankError> {
        let stopped = self.stopped(step);
        self.device.reduce().map_err(&stopped)?;
        let reduced = self.digest(step, Which::Reduced)?;
        let norm = self.device.norm().map_err(&stopped)?;
        if !self.shared.faults.skips_update(self.rank, step) {
            self.device.update(step).map_err(&stopped)?;
        }
        for (element, bit) in self.shared.faults.update_flips(self.rank, step) {
            self.device.flip(Which::Parameters, element, bit).map_err(&stopped)?;
        }
        let after = self.digest(step, Which::Parameters)?;
        let Moments { first, second, finite } = self.device.moments().map_err(&stopped)?;
        let stages = [reduced.finite, norm.is_finite(), after.finite && finite];
        let outcome = DeviceOutcome {
            partial,
            exchanges,
            reduced: reduced.sum,
            norm: if norm.is_nan() { NAN_WORD } else { norm.to_bits() },
            parameters: after.sum,
            first_moment: first,
            second_moment: second,
        };
        Ok((outcome, stages.iter().position(|finite| !finite).map(|stage| stage as u64)))
    }
}
