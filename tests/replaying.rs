//! A replay begins with the nearest snapshot that the prediction's folder keeps, says which that is, and comes to the
//! predicted values or says that it does not.

use client::folder::read_entries;
use client::replay;
use schemas::challenge::{challenge, chosen_step};
use std::path::PathBuf;
use step::dispatch::Backend;
use step::session::Session;
use step::setup::Setup;
use step::snapshot;
use step::state::State;
use tests::workshop::{Ended, Log, Workshop};

/// `run/` predicted with a snapshot before each step but the first, without traces, and run by two devices.
fn ready() -> (Workshop, Log) {
    let shop = Workshop::open();
    shop.write_run("run", 1);
    let log = shop.ledger();
    let more = "--snapshot-every 1 --no-traces --commit --log-key log/log.pub";
    let predict = "predict --run run.toml --steps 0..3 --out run --key predictor.key";
    shop.run("oracle", &format!("{predict} {more} --ledger {}", log.url)).expect_code(0);
    shop.challenge("run", &log).expect_code(0);
    shop.devices("run", 2, "receipts", "--traces").expect_code(0);
    (shop, log)
}

/// The step that the challenge chose.
fn chosen(shop: &Workshop) -> u64 {
    let entries = read_entries(&shop.path("run/prediction")).unwrap();
    let note = std::fs::read(shop.path("run/job/challenge.note")).unwrap();
    chosen_step(challenge(entries.id, &note), entries.prediction.steps)
}

/// Computes a leaf of step 2 again, to hold the device's trace of it against.
fn replay_step_2(shop: &Workshop) -> Ended {
    let trace = "run/receipts/traces/rank-0/step-000002-leaf-0000.cbor";
    shop.run("client", &format!("pinpoint {trace} --prediction run/prediction --replay run.toml"))
}

fn snapshot_of(shop: &Workshop, step: u64) -> PathBuf {
    shop.path(&format!("run/prediction/snapshots/step-{step:06}.safetensors"))
}

fn setup(shop: &Workshop) -> Setup {
    replay::load(&read_entries(&shop.path("run/prediction")).unwrap(), &shop.path("run.toml")).unwrap()
}

/// The state before a step.
fn state_before(setup: &Setup, step: u64) -> State {
    let session = Session::new(&setup.plan, &setup.tokens, Backend::detect()).unwrap();
    let mut state = setup.state.clone();
    (0..step).for_each(|_| drop(session.step(&mut state).unwrap()));
    state
}

/// Saves a state where the prediction's own snapshots are, as if it were one of them.
fn keep(shop: &Workshop, setup: &Setup, state: &State) {
    let folder = shop.path("run/prediction/snapshots");
    snapshot::keep(&folder, &setup.plan.parameters, setup.run.id(), state).unwrap();
}

#[test]
fn a_reconciliation_computes_the_chosen_step_alone_where_the_snapshot_before_it_is_kept() {
    let (shop, log) = ready();
    let chosen = chosen(&shop);
    let begins = match chosen {
        0 => "begins with the run's first state, for".to_owned(),
        step => format!("begins with the snapshot before step {step}: 1 step to compute"),
    };
    let ended = shop.reconcile("run", &log, "--replay run.toml").expect_code(0);
    ended
        .expect_text(&format!("client: note: the replay of step {chosen} {begins}"))
        .expect_text(": 1 step to compute")
        .expect_text(&format!("held against a replay of step {chosen}"));
}

#[test]
fn a_missing_or_damaged_snapshot_is_told_and_an_earlier_one_gone_on_from() {
    let (shop, _log) = ready();
    let right = |ended: Ended| ended.expect_code(0).expect_text("step 2, leaf 0: every fold is as predicted");
    let begins = |step: u64, steps: &str| {
        format!("note: the replay of step 2 begins with the snapshot before step {step}: {steps} to compute")
    };
    right(replay_step_2(&shop)).expect_text(&begins(2, "1 step"));

    // One flipped bit; then no digest beside it; then no file.
    let path = snapshot_of(&shop, 2);
    let mut bytes = std::fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let damaged = "note: the snapshot before step 2 is damaged, not used: ";
    let ended =
        right(replay_step_2(&shop)).expect_text(damaged).expect_text("step-000002.safetensors: expected ");
    ended.expect_text(&begins(1, "2 steps"));
    std::fs::remove_file(path.with_extension("digest")).unwrap();
    right(replay_step_2(&shop)).expect_text(damaged).expect_text(&begins(1, "2 steps"));
    std::fs::remove_file(&path).unwrap();
    let ended = right(replay_step_2(&shop)).expect_text(&begins(1, "2 steps"));
    assert!(!ended.stderr.contains("damaged"), "{}", ended.stderr);
    // A whole snapshot of a state that was not predicted.
    let setup = setup(&shop);
    let mut other = state_before(&setup, 2);
    other.parameters[7] += 1.0;
    keep(&shop, &setup, &other);
    let ended =
        right(replay_step_2(&shop)).expect_text(damaged).expect_text("expected the predicted parameters ");
    ended.expect_text(&begins(1, "2 steps"));

    std::fs::remove_dir_all(shop.path("run/prediction/snapshots")).unwrap();
    let first = "note: the replay of step 2 begins with the run's first state, for ";
    let ended = right(replay_step_2(&shop)).expect_text(first);
    ended.expect_text("run/prediction/snapshots keeps no snapshot to begin with: 3 steps to compute");
}

/// Moments are in no record but as folds: such a snapshot is noticed when it leads elsewhere. If the replay had begun
/// with step 0, nothing would be wrong here.
#[test]
fn a_snapshot_that_leads_elsewhere_is_an_error_and_accuses_nobody() {
    // Before step 0 there is no snapshot: so of a log by whose checkpoint another step was chosen.
    let (shop, log) = loop {
        let (shop, log) = ready();
        if chosen(&shop) > 0 {
            break (shop, log);
        }
    };
    let setup = setup(&shop);
    for step in 1..3 {
        let mut other = state_before(&setup, step);
        other.first_moment.iter_mut().for_each(|moment| *moment += 1.0);
        keep(&shop, &setup, &other);
    }
    std::fs::remove_file(snapshot_of(&shop, 2)).unwrap();
    let elsewhere = "the folder's snapshots are of another run, or damaged";
    let hint =
        "hint: move the prediction's `snapshots` away: the replay then begins with the run's first state";
    let ended =
        replay_step_2(&shop).expect_code(2).expect_text("the replay of step 2, leaf 0 gives trace root ");
    ended.expect_text(elsewhere).expect_text(hint);

    let ended = shop.reconcile("run", &log, "--replay run.toml");
    ended.expect_code(2).expect_text(elsewhere).expect_text(hint);
    assert!(!shop.path("run.tally").exists());
    std::fs::rename(shop.path("run/prediction/snapshots"), shop.path("run/prediction/away")).unwrap();
    shop.reconcile("run", &log, "--replay run.toml").expect_code(0).expect_text("agree: ");
}
