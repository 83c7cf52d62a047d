//! Steps and leaves of a prediction, computed again: the expected answer, traces and meetings that nobody kept, and the
//! operation at which a device departed.

use crate::folder::{Entries, Secrets};
use crate::output::{self, Hinted};
use crate::progress::Progress;
use anyhow::{Context as _, ensure};
use schemas::challenge::chosen_step;
use schemas::digest::Challenge;
use schemas::fold::FoldKey;
use schemas::object::Object as _;
use schemas::receipt::Answer;
use schemas::trace::Trace;
use std::cell::{Ref, RefCell};
use std::path::Path;
use step::checksum::{FoldTables, checksum_f32};
use step::dispatch::Backend;
use step::session::{Session, Step};
use step::setup::Setup;
use step::snapshot;
use step::state::State;
use verify::case::Need;

/// Reads a run.toml and what it names, and checks that it is of the predicted run.
pub fn load(entries: &Entries, run_toml: &Path) -> anyhow::Result<Setup> {
    let setup = Setup::load(run_toml)?;
    let (expected, found) = (entries.id, setup.run.id());
    ensure!(
        found == expected,
        Hinted::new(
            format!("{} describes run {found}, the prediction is of run {expected}", run_toml.display()),
            "give the run.toml that the prediction was made from",
        )
    );
    Ok(setup)
}

/// A computation that is not the predicted one.
fn elsewhere(message: String) -> Hinted {
    Hinted::new(
        format!("{message}: the folder's snapshots are of another run, or damaged"),
        "move the prediction's `snapshots` away: the replay then begins with the run's first state",
    )
}

/// How many steps a replay computes.
fn to_compute(from: u64, step: u64) -> String {
    match step + 1 - from {
        1 => "1 step to compute".into(),
        steps => format!("{steps} steps to compute"),
    }
}

/// A predicted run, ready to be computed again from the snapshots in the prediction's folder.
pub struct Replay<'a> {
    entries: &'a Entries,
    secrets: &'a Secrets,
    setup: &'a Setup,
    session: Session<'a>,
    /// Says where it begins, and which snapshots are damaged.
    tell: fn(&str),
    /// The state that was asked for last.
    last: RefCell<Option<State>>,
}

impl<'a> Replay<'a> {
    /// Of the run that `setup` was read from. `tell` is told where the replay begins, and which snapshots are damaged.
    pub fn new(
        entries: &'a Entries,
        secrets: &'a Secrets,
        setup: &'a Setup,
        tell: fn(&str),
    ) -> anyhow::Result<Replay<'a>> {
        let session = Session::new(&setup.plan, &setup.tokens, Backend::detect())?;
        Ok(Replay { entries, secrets, setup, session, tell, last: RefCell::new(None) })
    }

    /// What computes.
    pub fn session(&self) -> &Session<'a> {
        &self.session
    }

    /// The state before `step`, from the nearest snapshot before it, or the run's first. It is kept for the next
    /// question.
    pub fn state_before(&self, step: u64) -> anyhow::Result<Ref<'_, State>> {
        let kept = self.last.take().filter(|state| state.step <= step);
        let mut state = match kept {
            Some(state) => state,
            None => self.nearest(step),
        };
        let mut progress = Progress::start(state.step, step);
        while state.step < step {
            let before = state.step;
            self.session.step(&mut state)?;
            ensure!(
                state.step == before + 1,
                elsewhere(format!("the replay met a NaN or an infinity in step {before}"))
            );
            progress.done(before, "computed again");
        }
        progress.finish();
        self.last.replace(Some(state));
        Ok(Ref::map(self.last.borrow(), |last| last.as_ref().expect("replay: it was put there")))
    }

    /// The latest state at or before `step` that the prediction's folder keeps whole, or the run's first. Where it
    /// begins is told, and why not later: without its snapshots a replay of a late step is most of the run again.
    fn nearest(&self, step: u64) -> State {
        let folder = self.entries.folder.join("snapshots");
        let saved = snapshot::saved_steps(&folder).into_iter().rev();
        for latest in saved.filter(|saved| *saved <= step) {
            match self.saved(&folder, latest) {
                Ok(state) => {
                    (self.tell)(&format!(
                        "the replay of step {step} begins with the snapshot before step {latest}: {}",
                        to_compute(latest, step)
                    ));
                    return state;
                }
                Err(why) => (self.tell)(&format!(
                    "the snapshot before step {latest} is damaged, not used: {}",
                    output::message_of(&why)
                )),
            }
        }
        (self.tell)(&format!(
            "the replay of step {step} begins with the run's first state, for {} keeps no snapshot to begin with: {}",
            folder.display(),
            to_compute(0, step)
        ));
        self.setup.state.clone()
    }

    /// The snapshot before `step`, if it is the one that was saved, with the parameters that were predicted.
    fn saved(&self, folder: &Path, step: u64) -> anyhow::Result<State> {
        let state = snapshot::kept(folder, &self.setup.plan.parameters, self.setup.run.id(), step)?;
        let before = step.checked_sub(1).and_then(|before| self.secrets.body.record(before));
        if let Some(outcome) = before.and_then(|record| record.outcome.as_ref()) {
            let found = checksum_f32(&[state.parameters.len() as u64], &state.parameters);
            let expected = outcome.parameters;
            ensure!(found == expected, "expected the predicted parameters {expected}, found {found}");
        }
        Ok(state)
    }

    /// A whole step, which has to come to the predicted gradient and parameters, and the state after it.
    pub fn step(&self, number: u64) -> anyhow::Result<(Step, State)> {
        let mut after = self.state_before(number)?.clone();
        let step = self.session.step(&mut after)?;
        let record =
            self.secrets.body.record(number).context("the replay is of a step that is not predicted")?;
        let predicted = record.outcome.as_ref().map(|outcome| [outcome.reduced, outcome.parameters]);
        let found = step.record.outcome.as_ref().map(|outcome| [outcome.reduced, outcome.parameters]);
        ensure!(
            found == predicted,
            elsewhere(format!(
                "the replay of step {number} gives {found:?}, the prediction has {predicted:?}"
            ))
        );
        Ok((step, after))
    }

    /// Holds the trace of a leaf computed again against the predicted root.
    pub fn check_trace(&self, trace: &Trace) -> anyhow::Result<()> {
        let (step, leaf) = (trace.step, trace.leaf);
        let record =
            self.secrets.body.record(step).context("the replay is of a step that is not predicted")?;
        let expected = record.traces.get(leaf as usize).copied();
        let found = trace.root();
        let text = expected.map_or("none".into(), |root| root.to_string());
        ensure!(
            expected == Some(found),
            elsewhere(format!(
                "the replay of step {step}, leaf {leaf} gives trace root {found}, the prediction has {text}"
            ))
        );
        Ok(())
    }

    /// The predicted trace of a leaf.
    pub fn trace(&self, step: u64, leaf: u64) -> anyhow::Result<Trace> {
        let state = self.state_before(step)?;
        let folds = self.session.leaf(step, leaf, &state.parameters, &mut |_, _| ()).folds;
        let trace = Trace { step, leaf, folds };
        self.check_trace(&trace)?;
        Ok(trace)
    }

    /// What a need names, encoded, if it is of the prediction.
    pub fn evidence(&self, need: Need) -> anyhow::Result<Option<Vec<u8>>> {
        match need {
            Need::PredictedTrace { step, leaf } => Ok(Some(self.trace(step, leaf)?.encode())),
            Need::Meeting { step } => Ok(self.step(step)?.0.meeting.map(|meeting| meeting.encode())),
            Need::DeviceTrace { .. } => Ok(None),
        }
    }

    /// Computes the step that `challenge` chose, and folds what a device has to answer with.
    pub fn expected_answer(&self, challenge: Challenge) -> anyhow::Result<Option<Answer>> {
        let chosen = chosen_step(challenge, self.entries.prediction.steps);
        // A run that ended before the chosen step has nothing to answer with.
        let Some(record) = self.secrets.body.record(chosen) else { return Ok(None) };
        let Some(outcome) = &record.outcome else { return Ok(None) };
        let (step, after) = self.step(chosen)?;
        let reduced = step.reduced.context("the replay met a NaN or an infinity in a leaf")?;
        let shape = [after.parameters.len() as u64];
        let found = [checksum_f32(&shape, &reduced), checksum_f32(&shape, &after.parameters)];
        ensure!(
            found == [outcome.reduced, outcome.parameters],
            elsewhere(format!("the replay of step {chosen} is not the one predicted"))
        );
        let tables = FoldTables::new(self.session.backend(), FoldKey::from(challenge), reduced.len());
        Ok(Some(Answer {
            step: chosen,
            reduced: tables.fold(&reduced).fold,
            parameters: tables.fold(&after.parameters).fold,
        }))
    }
}
