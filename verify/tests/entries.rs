//! Entries out of order, of another run, or by the wrong hand: each told apart, though every proof and signature holds.

mod support;

use schemas::bundle::{Bundle, Cover};
use schemas::key::SecretKey;
use schemas::object::Object as _;
use schemas::statement::{Payload, Statement};
use support::World;
use support::log::Log;
use support::story::{Story, device_key, honest_answer, policy, predictor_key};
use verify::bundle::check;
use verify::report::{Class, State};

fn world() -> World {
    World::new(2, 2, 2)
}

fn whole(world: &World) -> Story {
    Story::whole(world, &world.bodies(2), vec![], false)
}

fn failure(story: &Story, world: &World) -> (usize, String) {
    failed(story, &story.bundle(world))
}

/// The number of the check that fails and what it says.
fn failed(story: &Story, bundle: &Bundle) -> (usize, String) {
    let report = check(&bundle.encode(), &policy(story.log.key()));
    assert_eq!(report.class, Class::NotSo, "{report}");
    let check = report.failure().expect("a check fails");
    let State::Fails(why) = &check.state else { unreachable!() };
    (check.number, why.clone())
}

/// Logs the entry at the index that `place` picks once more: its place is then the last.
fn move_last(story: &mut Story, place: fn(&mut Story) -> &mut u64) {
    let index = *place(story) as usize;
    let bytes = story.log.entries[index].clone();
    *place(story) = story.log.append(bytes);
}

/// What fails if the bundle's entry `at` is replaced by its payload, changed, and signed by another key.
fn replaced(at: usize, change: impl Fn(&mut Payload), key: &SecretKey) -> (usize, String) {
    let world = world();
    let mut story = whole(&world);
    let old = story.bundle(&world).entries.remove(at);
    let mut payload = Statement::open(&old.bytes).unwrap().payload;
    change(&mut payload);
    let index = story.sign(payload, key);
    let mut bundle = story.bundle(&world);
    bundle.entries[at] = story.log.proven(index, story.log.size());
    failed(&story, &bundle)
}

#[test]
fn each_entry_has_to_stand_before_those_that_rest_on_it() {
    let world = world();
    let mut run_last = whole(&world);
    move_last(&mut run_last, |story| &mut story.run_index);
    let mut opening_last = whole(&world);
    move_last(&mut opening_last, |story| story.opening_index.as_mut().unwrap());
    // Without an opening that it would be late for, a receipt is late for the verdict.
    let mut receipt_last = Story::new();
    receipt_last.log_run(&world);
    receipt_last.log_prediction(&world, true);
    let note = receipt_last.log.checkpoint(receipt_last.log.size());
    for body in world.bodies(2) {
        let receipt = receipt_last.receipt(&world, 2, &body, &note);
        receipt_last.log_receipt(receipt, &body, device_key(body.rank));
    }
    receipt_last.log_verdict(&world, None);
    move_last(&mut receipt_last, |story| &mut story.receipts[1].index);
    // Where no receipt stands between them.
    let mut opened_before = Story::new();
    opened_before.log_run(&world);
    opened_before.log_prediction(&world, false);
    opened_before.log_opening(&world);
    move_last(&mut opened_before, |story| &mut story.prediction_index);
    opened_before.log_verdict(&world, None);
    let mut judged_before = Story::new();
    judged_before.log_run(&world);
    judged_before.log_prediction(&world, true);
    judged_before.log_verdict(&world, None);
    move_last(&mut judged_before, |story| &mut story.prediction_index);
    for (story, expected) in [
        (run_last, "expected run before prediction, found it at index 8 and the other at 3"),
        (opening_last, "expected opening before verdict, found it at index 8 and the other at 7"),
        (receipt_last, "expected receipt before verdict, found it at index 6 and the other at 5"),
        (opened_before, "expected prediction before opening, found it at index 4 and the other at 3"),
        (judged_before, "expected prediction before verdict, found it at index 4 and the other at 3"),
    ] {
        assert_eq!(failure(&story, &world), (6, expected.into()));
    }
}

#[test]
fn an_entry_of_another_run_is_refused_whatever_its_kind() {
    let change = |payload: &mut Payload| match payload {
        Payload::Prediction(prediction) => prediction.run.0[0] ^= 1,
        Payload::Opening(opening) => opening.run.0[0] ^= 1,
        Payload::Receipt(receipt) => receipt.run.0[0] ^= 1,
        Payload::Verdict(verdict) => verdict.run.0[0] ^= 1,
        Payload::Run(_) | Payload::Register(_) => unreachable!(),
    };
    for (at, kind, key) in [
        (1, "prediction", predictor_key()),
        (2, "opening", predictor_key()),
        (4, "receipt", device_key(1)),
        (5, "verdict", predictor_key()),
    ] {
        let (number, why) = replaced(at, change, &key);
        assert_eq!(
            (number, why.contains(&format!("the {kind} belongs to run "))),
            (4, true),
            "{kind}: {why}"
        );
    }
}

#[test]
fn every_entry_that_a_stranger_signed_is_refused_alone() {
    let stranger = device_key(9);
    for (at, kind) in [(0, "run"), (1, "prediction"), (2, "opening"), (5, "verdict")] {
        let (number, why) = replaced(at, |_| (), &stranger);
        let expected = format!("entry 8: the {kind} is signed by {}, expected one of ", stranger.public());
        assert_eq!((number, why.starts_with(&expected)), (4, true), "{kind}: {why}");
    }
}

#[test]
fn an_opening_that_names_the_body_with_another_length_is_refused() {
    let change = |payload: &mut Payload| {
        let Payload::Opening(opening) = payload else { unreachable!() };
        opening.open.body.bytes += 1;
    };
    let (number, why) = replaced(2, change, &predictor_key());
    let expected = "the prediction's body is not among the attachments: ";
    assert_eq!((number, why.starts_with(expected)), (5, true), "{why}");
}

/// The log shows two trees of one size to two devices. A cover for the honest one must not stand for both.
#[test]
fn two_checkpoints_of_one_size_need_a_cover_each() {
    let world = world();
    let mut story = Story::new();
    story.log_run(&world);
    story.log_prediction(&world, false);
    story.log.append(b"only in the log".to_vec());
    let mut fork = Log::new("log.example/test", 1);
    for entry in &story.log.entries[1..3] {
        fork.append(entry.clone());
    }
    fork.append(b"only in the fork".to_vec());
    let notes = [story.log.checkpoint(4), fork.checkpoint(4)];
    for (body, note) in world.bodies(2).iter().zip(&notes) {
        let receipt = story.receipt(&world, 2, body, note);
        assert_eq!(receipt.answer, Some(honest_answer(&world, note)));
        story.log_receipt(receipt, body, device_key(body.rank));
    }
    story.log_opening(&world);
    story.log_verdict(&world, None);
    let expected =
        "the log signed two trees of size 4, one root in a cover or receipt and another in a receipt";
    assert_eq!(failure(&story, &world), (6, expected.into()));
    // A second cover of that size is no bundle at all; were it one, only one tree could be consistent.
    let mut bundle = story.bundle(&world);
    let size = story.log.size();
    let inclusion = fork.inclusion(story.prediction_index, 4);
    bundle.covers.push(Cover {
        tree_size: 4,
        inclusion,
        consistency: story.log.consistency(4, size),
        checkpoint: None,
    });
    assert_eq!(check(&bundle.encode(), &policy(story.log.key())).class, Class::CouldNot);
}
