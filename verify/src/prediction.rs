//! Does the plan belong to the run, and the opened body to the prediction (docs/spec/bundle.md, step 5).

use schemas::digest::{PlanDigest, RunId, Salt, Seal, digest};
use schemas::object::{Object, ObjectError};
use schemas::plan::Plan;
use schemas::prediction::{Prediction, PredictionBody};
use schemas::profile::F32_FMA;
use schemas::record::{NonFinite, StepRecord};
use schemas::run::{Run, Steps};

/// Why a plan is not the run's, or a body not the prediction's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PredictionError {
    /// The plan is another one.
    #[error("the plan has digest {found}, the run names {expected}")]
    Plan {
        /// What the run statement names.
        expected: PlanDigest,
        /// What these bytes have.
        found: PlanDigest,
    },
    /// Not a plan or not a body.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// Run and plan, or run and body, say different things.
    #[error("{what}: expected {expected}, found {found}")]
    Mismatch {
        /// Of what.
        what: String,
        /// By the run or the prediction.
        expected: String,
        /// By the plan or the body.
        found: String,
    },
    /// The salt and body are not what was sealed.
    #[error("salt and body have seal {found}, the prediction was sealed with {expected}")]
    Seal {
        /// What the log shows.
        expected: Seal,
        /// What the opening gives.
        found: Seal,
    },
}

fn same<T: PartialEq + std::fmt::Display>(
    what: impl Into<String>,
    expected: T,
    found: T,
) -> Result<(), PredictionError> {
    match expected == found {
        true => Ok(()),
        false => Err(PredictionError::Mismatch {
            what: what.into(),
            expected: expected.to_string(),
            found: found.to_string(),
        }),
    }
}

/// Reads the plan that `run` names: its digest first, then everything that both state.
pub fn read_plan(run: &Run, bytes: &[u8]) -> Result<Plan, PredictionError> {
    let found = PlanDigest(digest("plan", &[bytes]));
    if found != run.plan {
        return Err(PredictionError::Plan { expected: run.plan, found });
    }
    let plan = Plan::decode(bytes)?;
    check_plan(run, &plan)?;
    Ok(plan)
}

/// Checks what both a run and its plan state; the digest is [`read_plan`]'s business.
pub fn check_plan(run: &Run, plan: &Plan) -> Result<(), PredictionError> {
    // Another version of a profile has the same name and other bits: this program would judge by the wrong rules.
    same("the run's profile", F32_FMA.id, &run.profile)?;
    same("the run's profile digest", F32_FMA.digest(), run.profile_digest)?;
    same("the plan's profile", run.profile.as_str(), &plan.profile)?;
    same("the plan's config digest", run.config, plan.config)?;
    same("the plan's data set", run.dataset, plan.data.dataset)?;
    same("the plan's number of steps", run.steps, plan.update.steps() as u64)?;
    same("the plan's number of leaves", run.leaves, plan.leaves)?;
    same("the plan's devices_max", run.devices_max, plan.devices_max)
}

/// Reads the body that was sealed.
pub fn read_body(
    id: RunId,
    run: &Run,
    prediction: &Prediction,
    salt: Salt,
    bytes: &[u8],
) -> Result<PredictionBody, PredictionError> {
    let body = PredictionBody::decode(bytes)?;
    same("the body's run", id, body.run)?;
    let found = body.seal(salt);
    if found != prediction.seal {
        return Err(PredictionError::Seal { expected: prediction.seal, found });
    }
    check_body(run, prediction.steps, &body)?;
    Ok(body)
}

/// Checks that a body has a record for each of `steps` (or ends at an invalid one), each with the run's leaves and
/// tree.
pub fn check_body(run: &Run, steps: Steps, body: &PredictionBody) -> Result<(), PredictionError> {
    same("the body's first step", steps.first, body.first)?;
    if steps.end > run.steps {
        same("the last predicted step's end", format!("at most {}", run.steps), steps.end.to_string())?;
    }
    let count = body.records.len() as u64;
    let ended = body.records.last().is_some_and(|record| record.non_finite.is_some());
    if count > steps.count() || (count < steps.count() && !ended) {
        same("the body's number of records", steps.count(), count)?;
    }
    for (step, record) in (steps.first..).zip(&body.records) {
        check_record(run, step, record)?;
    }
    Ok(())
}

/// Checks that a record has the run's leaves and tree.
pub fn check_record(run: &Run, step: u64, record: &StepRecord) -> Result<(), PredictionError> {
    same(format!("leaves in the record of step {step}"), run.leaves, record.traces.len() as u64)?;
    if let Some(NonFinite::Tap { leaf, .. }) = record.non_finite.filter(|at| outside(*at, run.leaves)) {
        let expected = format!("below {}", run.leaves);
        same(format!("non-finite leaf of step {step}"), expected, leaf.to_string())?;
    }
    if let Some(outcome) = &record.outcome {
        let nodes = 2 * run.devices_max - 1;
        same(format!("tree nodes in the record of step {step}"), nodes, outcome.nodes.len() as u64)?;
    }
    Ok(())
}

fn outside(at: NonFinite, leaves: u64) -> bool {
    matches!(at, NonFinite::Tap { leaf, .. } if leaf >= leaves)
}
