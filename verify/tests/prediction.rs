//! Run, plan and body have to say the same: each thing that two of them state, made to differ alone.

mod support;

use schemas::prediction::PredictionBody;
use schemas::record::NonFinite;
use schemas::run::{Run, Steps};
use support::World;
use verify::prediction::{check_body, check_plan};

#[test]
fn every_field_that_run_and_plan_state_is_compared() {
    let world = World::new(4, 4, 2);
    assert_eq!(check_plan(&world.run, &world.plan), Ok(()));
    type Change = fn(&mut Run);
    let changes: [(&str, Change); 7] = [
        ("the run's profile", |run| run.profile = "f32-fma-2".into()),
        ("the run's profile digest", |run| run.profile_digest.0[0] ^= 1),
        ("the plan's config digest", |run| run.config.0[0] ^= 1),
        ("the plan's data set", |run| run.dataset.0[0] ^= 1),
        ("the plan's number of steps", |run| run.steps += 1),
        ("the plan's number of leaves", |run| run.leaves = 8),
        ("the plan's devices_max", |run| run.devices_max = 2),
    ];
    for (what, change) in changes {
        let mut run = world.run.clone();
        change(&mut run);
        let why = check_plan(&run, &world.plan).unwrap_err().to_string();
        assert!(why.starts_with(&format!("{what}: expected ")), "{what}: {why}");
    }
}

#[test]
fn a_body_has_the_steps_of_its_prediction_and_the_shape_of_its_run() {
    let world = World::new(4, 4, 2);
    let check = |steps: Steps, change: fn(&mut PredictionBody)| {
        let mut body = world.body.clone();
        change(&mut body);
        check_body(&world.run, steps, &body).map_err(|error| error.to_string())
    };
    let whole = Steps { first: 0, end: 2 };
    assert_eq!(check(whole, |_| ()), Ok(()));
    let early: fn(&mut PredictionBody) = |body| {
        body.records.truncate(1);
        body.records[0].non_finite = Some(NonFinite::Update { stage: 1 });
    };
    assert_eq!(check(whole, early), Ok(()), "a body may end at an invalid step");
    type Change = fn(&mut PredictionBody);
    let changes: [(Steps, Change, &str); 7] = [
        (Steps { first: 1, end: 2 }, |_| (), "the body's first step: expected 1, found 0"),
        (Steps { first: 0, end: 3 }, |_| (), "the last predicted step's end: expected at most 2, found 3"),
        (Steps { first: 0, end: 1 }, |_| (), "the body's number of records: expected 1, found 2"),
        (whole, |body| body.records.truncate(1), "the body's number of records: expected 2, found 1"),
        (
            whole,
            |body| body.records[1].traces.truncate(3),
            "leaves in the record of step 1: expected 4, found 3",
        ),
        (
            whole,
            |body| body.records[1].outcome.as_mut().unwrap().nodes.truncate(3),
            "tree nodes in the record of step 1: expected 7, found 3",
        ),
        (
            whole,
            |body| body.records[1].non_finite = Some(NonFinite::Tap { leaf: 4, tap: 0 }),
            "non-finite leaf of step 1: expected below 4, found 4",
        ),
    ];
    for (steps, change, expected) in changes {
        assert_eq!(check(steps, change), Err(expected.into()));
    }
}
