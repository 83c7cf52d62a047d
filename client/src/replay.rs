//! The challenge's step, computed again: the expected answer.

use crate::folder::{Entries, Secrets};
use crate::output::Hinted;
use anyhow::{Context as _, ensure};
use schemas::challenge::chosen_step;
use schemas::digest::Challenge;
use schemas::fold::FoldKey;
use schemas::receipt::Answer;
use std::path::Path;
use step::checksum::{FoldTables, checksum_f32};
use step::dispatch::Backend;
use step::session::Session;
use step::setup::Setup;
use step::snapshot;
use step::state::State;

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

/// Computes the step that `challenge` chose, from the nearest snapshot before it, and folds what a device has to
/// answer with. The step's own checksums must be the predicted ones: then this is the computation predicted.
pub fn expected_answer(
    entries: &Entries,
    secrets: &Secrets,
    challenge: Challenge,
    setup: &Setup,
) -> anyhow::Result<Option<Answer>> {
    let chosen = chosen_step(challenge, entries.prediction.steps);
    // A run that ended before the chosen step has nothing to answer with.
    let Some(record) = secrets.body.record(chosen) else { return Ok(None) };
    let Some(outcome) = &record.outcome else { return Ok(None) };
    let session = Session::new(&setup.plan, &setup.tokens, Backend::detect())?;
    let mut state = state_before(entries, setup, chosen)?;
    while state.step < chosen {
        let before = state.step;
        session.step(&mut state)?;
        ensure!(state.step == before + 1, "the replay met a NaN or an infinity in step {before}");
    }
    let step = session.step(&mut state)?;
    let reduced = step.reduced.context("the replay met a NaN or an infinity in a leaf")?;
    let shape = [state.parameters.len() as u64];
    let found = [checksum_f32(&shape, &reduced), checksum_f32(&shape, &state.parameters)];
    let expected = [outcome.reduced, outcome.parameters];
    ensure!(
        found == expected,
        "the replay of step {chosen} gives {found:?}, the prediction has {expected:?}: the folder's snapshots are \
         of another run"
    );
    let tables = FoldTables::new(session.backend(), FoldKey::from(challenge), reduced.len());
    Ok(Some(Answer {
        step: chosen,
        reduced: tables.fold(&reduced).fold,
        parameters: tables.fold(&state.parameters).fold,
    }))
}

/// The latest state that the prediction's folder keeps at or before `step`, or the run's first.
fn state_before(entries: &Entries, setup: &Setup, step: u64) -> anyhow::Result<State> {
    let folder = entries.folder.join("snapshots");
    let Some(latest) = snapshot::saved_steps(&folder).into_iter().rfind(|saved| *saved <= step) else {
        return Ok(setup.state.clone());
    };
    Ok(snapshot::kept(&folder, &setup.plan.parameters, setup.run.id(), latest)?)
}
