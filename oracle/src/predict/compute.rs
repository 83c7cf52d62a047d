//! The steps of a prediction: computed one after the other, kept many at a time.
//!
//! Work is gone on from the last snapshot, so nothing after it has to be durable: steps wait in memory and are written
//! as one file, just before the snapshot that needs them there. Whatever moment a call is ended at, the next one finds
//! whole files and goes on to the same bytes.

use super::{describe, mean_loss};
use crate::cli::PredictArgs;
use crate::folder::Folder;
use anyhow::Context as _;
use client::output::Hinted;
use client::progress::Progress;
use client::steps::Kept;
use schemas::digest::RunId;
use schemas::object::Object as _;
use schemas::record::StepRecord;
use schemas::run::Steps;
use step::dispatch::Backend;
use step::session::{Session, Step};
use step::setup::Setup;
use step::snapshot;
use step::state::State;

/// Steps are written when their traces come to this much, if no snapshot does it before.
const WAITING_BYTES_MAX: usize = 16 << 20;

/// Runs the steps up to the end of the range and returns the records of the range. The setup's state is used up.
pub fn compute(
    setup: &mut Setup,
    args: &PredictArgs,
    backend: Backend,
    folder: &Folder,
) -> anyhow::Result<Vec<StepRecord>> {
    let Steps { first, end } = args.steps;
    let mut state = first_state(setup, args.steps, folder)?;
    let session = Session::new(&setup.plan, &setup.tokens, backend)?;
    let mut progress = Progress::start(state.step, end);
    let mut waiting = Waiting { first: state.step.max(first), steps: vec![], bytes: 0 };
    while state.step < end {
        let number = state.step;
        let step = session.step(&mut state)?;
        progress.done(number, &format!("loss {:.4}", mean_loss(setup, &step.record)));
        if number >= first {
            waiting.push(&step, !args.no_traces);
        }
        if let Some(at) = step.record.non_finite {
            let place = describe(&setup.plan, at);
            anyhow::ensure!(
                number >= first,
                "step {number} is invalid ({place}), before the first step asked for"
            );
            break;
        }
        let snapshot = state.step.is_multiple_of(args.snapshot_every) || state.step == end;
        if snapshot || waiting.bytes > WAITING_BYTES_MAX {
            waiting.write(setup.run.id(), folder)?;
        }
        if snapshot {
            folder.keep_snapshot(setup, &state)?;
        }
    }
    waiting.write(setup.run.id(), folder)?;
    progress.finish();
    let records = folder.records(setup.run.id(), first, end);
    let whole =
        records.len() as u64 == end - first || records.last().is_some_and(|last| last.non_finite.is_some());
    anyhow::ensure!(
        whole,
        Hinted::new(
            format!("the record of step {} is missing or damaged", first + records.len() as u64),
            format!("remove {} and predict again", folder.prediction("").display())
        )
    );
    Ok(records)
}

/// The state to go on from: the latest that an earlier call saved, or the run's first.
fn first_state(setup: &mut Setup, steps: Steps, folder: &Folder) -> anyhow::Result<State> {
    let saved = folder.resumable(setup.run.id(), steps.first, steps.end);
    let initial = std::mem::replace(&mut setup.state, State::fresh(vec![]));
    if saved.is_empty() {
        return Ok(initial);
    }
    // One state at a time: what `oracle plan` says of memory holds for a resumed run too.
    drop(initial);
    for step in saved {
        if let Some(state) = folder.snapshot(setup, step) {
            eprintln!("oracle: going on from the snapshot before step {step}");
            return Ok(state);
        }
    }
    let path = folder.job("initial.safetensors");
    let state = snapshot::read(&path, &setup.plan.parameters)?;
    let (expected, found) = (setup.run.state, state.digest());
    anyhow::ensure!(found == expected, "{}: expected state {expected}, found {found}", path.display());
    Ok(state)
}

/// Steps computed and not yet written.
struct Waiting {
    first: u64,
    steps: Vec<Kept>,
    bytes: usize,
}

impl Waiting {
    fn push(&mut self, step: &Step, with_traces: bool) {
        let traces: Vec<Vec<u8>> = match with_traces {
            true => step.traces.iter().map(|trace| trace.encode()).collect(),
            false => vec![],
        };
        self.bytes += 1024 + traces.iter().map(Vec::len).sum::<usize>();
        let meeting = step.meeting.as_ref().map(|meeting| meeting.encode());
        self.steps.push(Kept { record: step.record.clone(), meeting, traces });
    }

    fn write(&mut self, run: RunId, folder: &Folder) -> anyhow::Result<()> {
        if !self.steps.is_empty() {
            folder.keep_steps(run, self.first, &self.steps).context("could not keep the steps computed")?;
        }
        self.first += self.steps.len() as u64;
        (self.steps, self.bytes) = (vec![], 0);
        Ok(())
    }
}
