//! A bundle's receipts are made brief before they are compared: the verdict is that of whole ones, whatever differs.

mod support;

use schemas::object::Object as _;
use schemas::receipt::ReceiptBody;
use schemas::record::NonFinite;
use schemas::verdict::Outcome;
use support::judged::judge_without;
use support::story::{Story, device_key, policy, some_verdict};
use support::trust::failed;
use support::{World, invalid_bodies, invalid_world, outcome};
use verify::bundle::check;

/// The story of receipts that say so many devices.
fn told(world: &World, bodies: &[ReceiptBody], devices: u64) -> Story {
    let mut story = Story::new();
    story.log_run(world);
    story.log_prediction(world, false);
    let note = story.log.checkpoint(story.log.size());
    for body in bodies {
        let receipt = story.receipt(world, devices, body, &note);
        story.log_receipt(receipt, body, device_key(body.rank));
    }
    story.log_opening(world);
    story.log_verdict(world, None);
    story
}

#[test]
fn a_record_that_is_missing_or_wrong_decides_in_a_bundle_as_it_does_without() {
    let world = World::new(4, 4, 3);
    type Change = fn(&World, &mut Vec<ReceiptBody>);
    let changes: [(Change, &str); 7] = [
        (|_, bodies| drop(bodies[1].records.remove(0)), "verdict is incomplete: missing device 1 ("),
        (|_, bodies| drop(bodies[1].records.remove(1)), "verdict is incomplete: missing device 1 ("),
        (|_, bodies| bodies[1].records.clear(), "verdict is incomplete: missing device 1 ("),
        (|_, bodies| drop(bodies.remove(1)), "verdict is incomplete: missing device 1 of 4: no receipt"),
        (
            |_, bodies| bodies[2].records[2].losses[0] ^= 1,
            "verdict is diverge at step 2: device 2 in phase leaf",
        ),
        (
            |world, bodies| {
                bodies[3].records[0].losses[0] ^= 1;
                outcome(bodies, 0, 0).parameters = world.sum_of(&[1; 21]);
            },
            "verdict is diverge at step 0: device 0 in phase update, device 3 in phase leaf",
        ),
        (
            |_, bodies| bodies[1].records[2].non_finite = Some(NonFinite::Update { stage: 1 }),
            "verdict is diverge at step 2: device 1 in phase update",
        ),
    ];
    for (change, why) in changes {
        let mut bodies = world.bodies(4);
        change(&world, &mut bodies);
        let story = told(&world, &bodies, 4);
        let report = check(&story.bundle(&world).encode(), &policy(story.log.key()));
        let (number, found) = failed(&report);
        assert!(number == 9 && found.starts_with(why), "{why:?}: {report}");
    }
}

#[test]
fn an_invalid_run_is_told_by_brief_receipts_too() {
    let at = NonFinite::Tap { leaf: 5, tap: 3 };
    let world = invalid_world(at);
    let mut bodies = invalid_bodies(&world, 4, at);
    let story = told(&world, &bodies, 4);
    let report = check(&story.bundle(&world).encode(), &policy(story.log.key()));
    assert_eq!(
        failed(&report).1,
        "verdict is invalid at step 1: a NaN or an infinity, leaf 5, forward.head (logits)"
    );
    // One says it ended otherwise.
    bodies[0].records[1].non_finite = Some(NonFinite::Tap { leaf: 5, tap: 4 });
    assert_eq!(judge_without(&world, &bodies, &[], &[]).outcome, Outcome::Diverge);
    let story = told(&world, &bodies, 4);
    let report = check(&story.bundle(&world).encode(), &policy(story.log.key()));
    assert_eq!(failed(&report).1, "verdict is diverge at step 1: device 0 in phase link");
}

#[test]
fn a_bundle_of_version_1_implies_no_body_even_where_that_takes_no_fold() {
    let at = NonFinite::Tap { leaf: 5, tap: 3 };
    let mut world = invalid_world(at);
    let mut bodies = invalid_bodies(&world, 2, at);
    world.body.records.remove(0);
    for body in &mut bodies {
        body.records.remove(0);
        body.records[0].step = 0;
    }
    let mut story = told(&world, &bodies, 2);
    let mut second = story.bundle_2(&world, &[], &[]);
    story.leave_out_implied(&world, &mut second);
    assert_eq!((second.folds.len(), second.attachments.len()), (0, 1));
    let trust = policy(story.log.key());
    assert_eq!(failed(&check(&second.encode(), &trust)).0, 9);
    let mut first = story.bundle(&world);
    assert_eq!(failed(&check(&first.encode(), &trust)).0, 9);
    first.attachments = second.attachments;
    let (number, why) = failed(&check(&first.encode(), &trust));
    assert_eq!(
        (number, why.starts_with("the body of the receipt of device 0 is not among")),
        (7, true),
        "{why}"
    );
}

#[test]
fn a_body_that_is_left_out_is_held_to_the_steps_of_its_receipt() {
    let world = World::new(2, 2, 2);
    let mut story = Story::new();
    story.log_run(&world);
    story.log_prediction(&world, false);
    let note = story.log.checkpoint(story.log.size());
    for body in world.bodies(2) {
        let mut receipt = story.receipt(&world, 2, &body, &note);
        receipt.steps.end -= 1;
        story.log_receipt(receipt, &body, device_key(body.rank));
    }
    story.log_opening(&world);
    let entries = story.receipts.iter().map(|logged| logged.entry).collect();
    let verdict = some_verdict(&world, &story, entries);
    story.log_verdict_of(verdict);
    let mut bundle = story.bundle_2(&world, &[], &[]);
    story.leave_out_implied(&world, &mut bundle);
    assert_eq!(bundle.attachments.len(), 1, "both bodies follow from the prediction");
    let why = "entry 3: receipt body: a record's step: expected within 0..1, found 1";
    assert_eq!(failed(&check(&bundle.encode(), &policy(story.log.key()))), (7, why.into()));
}

#[test]
fn receipts_of_one_rank_ascend_by_entry_and_none_is_there_twice() {
    let world = World::new(2, 2, 2);
    let mut story = Story::new();
    story.log_run(&world);
    story.log_prediction(&world, false);
    let note = story.log.checkpoint(story.log.size());
    let body = &world.bodies(2)[0];
    for key in [device_key(0), device_key(5)] {
        story.log_receipt(story.receipt(&world, 2, body, &note), body, key);
    }
    story.log_opening(&world);
    story.log_verdict(&world, None);
    let trust = policy(story.log.key());
    let bundle = story.bundle(&world);
    let (number, why) = failed(&check(&bundle.encode(), &trust));
    assert!(number == 9 && why.contains("one receipt of device 0: found entries "), "{why}");
    let order = "expected receipts by ascending rank, found device 0 after device 0";
    let mut swapped = bundle.clone();
    swapped.entries.swap(3, 4);
    assert_eq!(failed(&check(&swapped.encode(), &trust)), (6, order.to_owned()));
    let mut twice = bundle.clone();
    twice.entries[4] = twice.entries[3].clone();
    assert_eq!(failed(&check(&twice.encode(), &trust)), (6, order.to_owned()));
}
