//! The decision table of `reconcile`, row by row.

mod support;

use schemas::object::Object as _;
use schemas::receipt::ReceiptBody;
use schemas::record::NonFinite;
use schemas::run::Steps;
use schemas::verdict::{Cause, Outcome, Phase, WrongWord};
use support::judged::{judge, judge_without, only};
use support::story::{SALT, Story, decide, device_key};
use support::{Vector, World, invalid_bodies, invalid_world, outcome};
use verify::case::{LISTED_MAX, Need};
use verify::evidence::Evidence;

fn world() -> World {
    World::new(8, 4, 3)
}

#[test]
fn equal_records_agree_on_any_number_of_devices() {
    let world = world();
    for devices in [1, 2, 4] {
        let decision = judge(&world, &world.bodies(devices));
        assert_eq!((decision.outcome, decision.step), (Outcome::Agree, None));
        assert!(decision.findings.is_empty() && decision.missing.is_empty() && decision.needed.is_empty());
        assert!(decision.simulated);
    }
}

#[test]
fn a_wrong_word_in_a_tap_names_operation_tensor_element_and_bits() {
    let world = world();
    for tap in 2..world.plan.taps().count() {
        let words = world.tap_words(1, 5, tap);
        let element = words.len() - 1;
        let trace = world.wrong_trace(1, 5, tap, &[(element, 0x0040_0000)]);
        let mut bodies = world.bodies(4);
        bodies[2].records[1].traces[1] = trace.root();
        outcome(&mut bodies, 2, 1).partial = world.sum_of(&[1; 21]);
        outcome(&mut bodies, 3, 1).exchanges[0].received = world.sum_of(&[1; 21]);
        let finding = only(judge_without(&world, &bodies, &[], &[trace.encode()]));
        assert_eq!((finding.rank, finding.phase, finding.leaf), (2, Phase::Leaf, Some(5)));
        assert_eq!(finding.device, device_key(2).public());
        let expected = world.plan.taps().nth(tap).unwrap();
        assert_eq!(finding.operation.as_deref(), Some(&*world.plan.operations[expected.operation].name));
        assert_eq!(finding.tensor, Some(world.plan.operand_name(expected.operand)));
        let (expected, found) = (words[element], words[element] ^ 0x0040_0000);
        assert_eq!(finding.word, Some(WrongWord { element: element as u64, expected, found }));
        assert_eq!(finding.cause, Cause::Fault);
        assert!(finding.note.contains("one wrong word explains it exactly"), "{}", finding.note);
    }
}

#[test]
fn a_tensor_of_one_word_says_nothing_of_the_cause() {
    let world = World::of_time(2, 1, 2, 1);
    let tap = world.plan.taps().position(|tap| world.plan.operand_name(tap.operand) == "max").unwrap();
    let trace = world.wrong_trace(1, 0, tap, &[(0, 4)]);
    let mut bodies = world.bodies(1);
    bodies[0].records[1].traces[0] = trace.root();
    let finding = only(judge_without(&world, &bodies, &[], &[trace.encode()]));
    assert_eq!((finding.tensor.as_deref(), finding.cause), (Some("max"), Cause::Undetermined));
    let expected = world.tap_words(1, 0, tap)[0];
    assert_eq!(finding.word, Some(WrongWord { element: 0, expected, found: expected ^ 4 }));
}

#[test]
fn a_tap_with_several_wrong_words_is_named_without_a_word() {
    let world = world();
    let trace = world.wrong_trace(1, 0, 3, &[(0, 1), (1, 1)]);
    let mut bodies = world.bodies(2);
    bodies[0].records[1].traces[0] = trace.root();
    let finding = only(judge_without(&world, &bodies, &[], &[trace.encode()]));
    assert_eq!(finding.operation.as_deref(), Some("forward.head"));
    assert_eq!((finding.word, finding.cause), (None, Cause::Undetermined));
    assert!(finding.note.contains("more than one word differs"), "{}", finding.note);
    assert!(finding.note.contains("yet the sum of its leaves is as predicted"), "{}", finding.note);
}

#[test]
fn a_trace_that_is_not_at_hand_is_asked_for() {
    let world = world();
    let trace = world.wrong_trace(1, 3, 3, &[(0, 1)]);
    let mut bodies = world.bodies(4);
    bodies[1].records[1].traces[1] = trace.root();
    let decision = judge(&world, &bodies);
    assert_eq!(decision.needed, [Need::DeviceTrace { step: 1, leaf: 3, rank: 1 }]);
    let finding = only(decision);
    assert_eq!((finding.operation, finding.cause), (None, Cause::Undetermined));
    assert!(finding.note.starts_with("leaf 3 differs; the device's trace of it is not at hand"));

    let stray = world.wrong_trace(1, 3, 3, &[(0, 2)]);
    let finding = only(judge_without(&world, &bodies, &[], &[stray.encode()]));
    assert!(finding.note.contains("another root than the one signed"), "{}", finding.note);
    let elsewhere = world.wrong_trace(1, 4, 3, &[(0, 1)]);
    bodies[1].records[1].traces[1] = elsewhere.root();
    let finding = only(judge_without(&world, &bodies, &[], &[elsewhere.encode()]));
    assert!(finding.note.contains("is not at hand"), "a trace of another leaf: {}", finding.note);
}

#[test]
fn without_the_predicted_trace_both_are_asked_for() {
    let world = world();
    let mut bodies = world.bodies(1);
    bodies[0].records[1].traces[6].0[0] ^= 1;
    let mut story = Story::new();
    story.log_run(&world);
    story.log_prediction(&world, false);
    let note = story.log.checkpoint(story.log.size());
    let receipt = story.receipt(&world, 1, &bodies[0], &note);
    story.log_receipt(receipt, &bodies[0], device_key(0));
    let decision = story.decision(&world, None);
    let expected =
        [Need::PredictedTrace { step: 1, leaf: 6 }, Need::DeviceTrace { step: 1, leaf: 6, rank: 0 }];
    assert_eq!(decision.needed, expected);
    assert!(only(decision).note.contains("neither its predicted trace nor the device's"));
}

#[test]
fn a_trace_that_ends_early_names_the_tap_it_ends_before() {
    let world = world();
    let mut trace = world.trace(1, 2);
    trace.folds.truncate(4);
    let mut bodies = world.bodies(4);
    let record = &mut bodies[1].records[1];
    record.traces[0] = trace.root();
    record.losses[0] = 0x7fc0_0000;
    record.outcome = None;
    record.non_finite = Some(NonFinite::Tap { leaf: 2, tap: 3 });
    bodies[1].records.truncate(2);
    // Its peers heard of it.
    for rank in [0, 2, 3] {
        let record = &mut bodies[rank].records[1];
        record.outcome = None;
        record.non_finite = Some(NonFinite::Tap { leaf: 2, tap: 3 });
        bodies[rank].records.truncate(2);
    }
    let finding = only(judge_without(&world, &bodies, &[], &[trace.encode()]));
    assert_eq!((finding.rank, finding.leaf), (1, Some(2)));
    assert_eq!(finding.operation.as_deref(), Some("forward.loss"));
    assert!(finding.note.contains("the device's trace ends at a NaN"), "{}", finding.note);
}

#[test]
fn a_loss_alone_points_at_the_loss_operation() {
    let world = world();
    let mut bodies = world.bodies(4);
    bodies[3].records[1].losses[0] ^= 1;
    let finding = only(judge(&world, &bodies));
    assert_eq!((finding.phase, finding.leaf), (Phase::Leaf, Some(6)));
    assert_eq!(finding.operation.as_deref(), Some("forward.loss"));
    assert_eq!(finding.tensor.as_deref(), Some("loss"));
    let expected = world.body.records[1].losses[6];
    assert_eq!(finding.word, Some(WrongWord { element: 0, expected, found: expected ^ 1 }));
    assert_eq!(finding.cause, Cause::Undetermined);
}

#[test]
fn the_lowest_wrong_leaf_of_each_device_is_named() {
    let world = world();
    let mut bodies = world.bodies(2);
    bodies[0].records[1].losses[3] ^= 1;
    bodies[0].records[1].losses[2] ^= 1;
    bodies[1].records[1].losses[0] ^= 1;
    let decision = judge(&world, &bodies);
    let leaves: Vec<_> = decision.findings.iter().map(|finding| (finding.rank, finding.leaf)).collect();
    assert_eq!(leaves, [(0, Some(2)), (1, Some(4))]);
}

#[test]
fn a_wrong_partial_is_located_in_its_parameter() {
    let world = world();
    let node = world.node(4, 2, 0);
    let mut bodies = world.bodies(4);
    let wrong = world.sum_with(1, Vector::Node(node), &[(17, 1 << 31)]);
    outcome(&mut bodies, 2, 1).partial = wrong;
    // Its partner received what it sent, and went on from it.
    outcome(&mut bodies, 3, 1).exchanges[0].received = wrong;
    let finding = only(judge(&world, &bodies));
    assert_eq!((finding.rank, finding.phase), (2, Phase::Partial));
    assert_eq!(finding.operation.as_deref(), Some("tree"));
    // Flat element 17 is the third of wpe, after the 15 of wte.
    assert_eq!(finding.tensor.as_deref(), Some("d_wpe"));
    let expected = world.vector(1, Vector::Node(node))[17];
    assert_eq!(finding.word, Some(WrongWord { element: 2, expected, found: expected ^ (1 << 31) }));
    assert_eq!(finding.cause, Cause::Fault);
}

#[test]
fn a_wrong_arrival_of_a_right_sending_is_a_link_at_every_level() {
    let world = world();
    for level in 0..2 {
        for rank in 0..4u64 {
            let partner = rank ^ (1 << level);
            let node = world.node(4, partner, level);
            let mut bodies = world.bodies(4);
            let wrong = world.sum_with(1, Vector::Node(node), &[(0, 3)]);
            let exchange = &mut outcome(&mut bodies, rank as usize, 1).exchanges[level as usize];
            exchange.received = wrong;
            exchange.sum = world.sum_of(&[7; 21]);
            // Everything later on this device follows from it.
            outcome(&mut bodies, rank as usize, 1).reduced = world.sum_of(&[8; 21]);
            if level == 0 {
                let next = (rank ^ 2) as usize;
                outcome(&mut bodies, next, 1).exchanges[1].received = world.sum_of(&[7; 21]);
            }
            let finding = only(judge(&world, &bodies));
            assert_eq!((finding.rank, finding.phase, finding.peer), (rank, Phase::Link, Some(partner)));
            let expected = world.vector(1, Vector::Node(node))[0];
            assert_eq!(finding.word, Some(WrongWord { element: 0, expected, found: expected ^ 3 }));
            assert_eq!(finding.tensor.as_deref(), Some("d_wte"));
        }
    }
}

#[test]
fn a_wrong_sum_of_right_addends_is_reduce_and_its_heirs_have_no_finding() {
    let world = world();
    let mut bodies = world.bodies(4);
    let node = world.node(4, 0, 1);
    let wrong = world.sum_with(1, Vector::Node(node), &[(3, 1)]);
    outcome(&mut bodies, 1, 1).exchanges[0].sum = wrong;
    outcome(&mut bodies, 3, 1).exchanges[1].received = wrong;
    outcome(&mut bodies, 3, 1).parameters = world.sum_of(&[9; 21]);
    let finding = only(judge(&world, &bodies));
    assert_eq!((finding.rank, finding.phase, finding.peer), (1, Phase::Reduce, Some(0)));
    assert_eq!(finding.operation.as_deref(), Some("tree"));
    assert_eq!(finding.tensor.as_deref(), Some("d_wte"));
    assert_eq!(finding.word.unwrap().element, 3);
}

#[test]
fn a_receipt_that_its_peer_contradicts_is_a_receipt_finding() {
    let world = world();
    // Rank 1 claims a wrong partial (and wrong leaf), yet rank 0 received the right one.
    for leaf_too in [false, true] {
        let mut bodies = world.bodies(2);
        outcome(&mut bodies, 1, 1).partial = world.sum_of(&[4; 21]);
        if leaf_too {
            bodies[1].records[1].losses[0] ^= 1;
        }
        let finding = only(judge(&world, &bodies));
        assert_eq!((finding.rank, finding.phase, finding.peer), (1, Phase::Receipt, Some(0)));
        assert!(
            finding.note.contains("contradicts what device 0 says it received from it"),
            "{}",
            finding.note
        );
    }
    // A wrong leaf with a right partial is not contradicted by a peer that received the right partial.
    let mut bodies = world.bodies(2);
    bodies[1].records[1].losses[0] ^= 1;
    assert_eq!(only(judge(&world, &bodies)).phase, Phase::Leaf);
}

#[test]
fn scale_norm_moments_and_parameters_are_told_apart_in_order() {
    let world = world();
    let all = |bodies: &mut [ReceiptBody], from: usize| {
        let found = outcome(bodies, 0, 1);
        // Everything from this stage on is wrong; the first is what is named.
        if from == 0 {
            found.reduced = world.sum_with(1, Vector::Reduced, &[(1, 2)]);
        }
        if from <= 1 {
            found.norm ^= 1;
        }
        if from <= 2 {
            found.first_moment = world.sum_with(1, Vector::FirstMoment, &[(16, 2)]).fold;
        }
        if from <= 3 {
            found.second_moment = world.sum_with(1, Vector::SecondMoment, &[(20, 2)]).fold;
        }
        found.parameters = world.sum_with(1, Vector::Parameters, &[(14, 2)]);
    };
    let expected = [
        (Phase::Reduce, "scale", "d_wte", 1, Cause::Fault),
        (Phase::Update, "norm", "norm", 0, Cause::Undetermined),
        (Phase::Update, "adamw", "adamw.m.wpe", 1, Cause::Fault),
        (Phase::Update, "adamw", "adamw.v.wpe", 5, Cause::Fault),
        (Phase::Update, "adamw", "wte", 14, Cause::Fault),
    ];
    for (from, (phase, operation, tensor, element, cause)) in expected.into_iter().enumerate() {
        let mut bodies = world.bodies(2);
        all(&mut bodies, from);
        let finding = only(judge(&world, &bodies));
        assert_eq!((finding.rank, finding.phase), (0, phase));
        assert_eq!(finding.operation.as_deref(), Some(operation));
        assert_eq!(finding.tensor.as_deref(), Some(tensor));
        assert_eq!((finding.word.unwrap().element, finding.cause), (element, cause));
    }
}

#[test]
fn a_missing_meeting_is_asked_for_and_moments_need_none() {
    let world = world();
    let cases: [fn(&World, &mut [ReceiptBody]); 3] = [
        |world, bodies| outcome(bodies, 0, 1).partial = world.sum_of(&[1; 21]),
        |world, bodies| outcome(bodies, 0, 1).reduced = world.sum_of(&[1; 21]),
        |world, bodies| outcome(bodies, 0, 1).parameters = world.sum_of(&[1; 21]),
    ];
    for change in cases {
        let mut bodies = world.bodies(1);
        change(&world, &mut bodies);
        let story = Story::whole(&world, &bodies, vec![], false);
        let decision = story.decision(&world, None);
        assert_eq!(decision.needed, [Need::Meeting { step: 1 }]);
        assert!(only(decision).note.contains("the predicted folds are not at hand"));
    }
    let mut bodies = world.bodies(1);
    outcome(&mut bodies, 0, 1).first_moment = world.sum_with(1, Vector::FirstMoment, &[(0, 1)]).fold;
    let story = Story::whole(&world, &bodies, vec![], false);
    let decision = story.decision(&world, None);
    assert!(decision.needed.is_empty());
    assert_eq!(only(decision).word.unwrap().element, 0);
}

#[test]
fn a_checksum_that_contradicts_its_own_fold_says_so() {
    let world = world();
    let mut bodies = world.bodies(1);
    outcome(&mut bodies, 0, 1).reduced.checksum.0[0] ^= 1;
    let finding = only(judge(&world, &bodies));
    assert_eq!(finding.cause, Cause::Undetermined);
    assert!(finding.note.contains("its fold equals the prediction although its checksum does not"));
}

#[test]
fn only_the_first_differing_step_is_judged() {
    let world = world();
    let mut bodies = world.bodies(2);
    outcome(&mut bodies, 1, 2).norm ^= 1;
    outcome(&mut bodies, 0, 1).norm ^= 1;
    let finding = only(judge(&world, &bodies));
    assert_eq!(finding.rank, 0);
}

#[test]
fn a_missing_record_stops_the_comparison() {
    let world = world();
    let mut bodies = world.bodies(2);
    bodies[1].records.remove(1);
    outcome(&mut bodies, 0, 2).norm ^= 1;
    let decision = judge(&world, &bodies);
    assert_eq!((decision.outcome, decision.step), (Outcome::Incomplete, None));
    let key = device_key(1).public();
    assert_eq!(decision.missing, [format!("device 1 ({key}): no record of step 1")]);
    // A finding in the same step wins; what is missing is still listed.
    outcome(&mut bodies, 0, 1).norm ^= 1;
    let decision = judge(&world, &bodies);
    assert_eq!((decision.outcome, decision.missing.len()), (Outcome::Diverge, 1));
}

#[test]
fn a_missing_receipt_is_missing_and_the_others_are_judged() {
    let world = world();
    let mut bodies = world.bodies(4);
    let decision = judge_without(&world, &bodies, &[2], &[]);
    assert_eq!((decision.outcome, decision.step), (Outcome::Incomplete, None));
    assert_eq!(decision.missing, ["device 2 of 4: no receipt"]);
    // What rank 3 received from rank 2 is wrong: inherited, and the source is missing.
    outcome(&mut bodies, 3, 1).exchanges[0].received = world.sum_of(&[1; 21]);
    let decision = judge_without(&world, &bodies, &[2], &[]);
    assert_eq!((decision.outcome, decision.step), (Outcome::Incomplete, Some(1)));
    assert!(decision.missing[1].starts_with("device 2: its part in step 1"), "{:?}", decision.missing);
    outcome(&mut bodies, 0, 1).norm ^= 1;
    let decision = judge_without(&world, &bodies, &[2], &[]);
    assert_eq!((decision.outcome, decision.findings.len()), (Outcome::Diverge, 1));
}

#[test]
fn receipts_that_do_not_belong_together_are_incomplete() {
    let world = world();
    let bodies = world.bodies(2);
    let missing = |change: &dyn Fn(&mut Story, &World, &[u8])| {
        let mut story = Story::new();
        story.log_run(&world);
        story.log_prediction(&world, false);
        let note = story.log.checkpoint(story.log.size());
        change(&mut story, &world, &note);
        let decision = story.decision(&world, None);
        assert_eq!((decision.outcome, decision.step), (Outcome::Incomplete, None));
        decision.missing
    };
    assert_eq!(missing(&|_, _, _| {}), ["any receipt"]);
    for devices in [[2, 4], [4, 2]] {
        let mixed = missing(&|story, world, note| {
            for (rank, devices) in (0..).zip(devices) {
                let body = &world.bodies(devices)[rank as usize];
                story.log_receipt(story.receipt(world, devices, body, note), body, device_key(rank));
            }
        });
        let [one, other] = devices;
        let told = format!("one number of devices: device 0 says {one}, device 1 says {other}");
        assert_eq!(mixed, [told]);
    }
    let twice = missing(&|story, world, note| {
        story.log_receipt(story.receipt(world, 2, &bodies[0], note), &bodies[0], device_key(0));
        story.log_receipt(story.receipt(world, 2, &bodies[0], note), &bodies[0], device_key(5));
    });
    assert!(twice[0].starts_with("one receipt of device 0: found entries "), "{twice:?}");
    let one_key = missing(&|story, world, note| {
        story.log_receipt(story.receipt(world, 2, &bodies[0], note), &bodies[0], device_key(0));
        story.log_receipt(story.receipt(world, 2, &bodies[1], note), &bodies[1], device_key(0));
    });
    assert!(
        one_key[0].starts_with("a key for each device: devices 0 and 1 have one, ed25519:"),
        "{one_key:?}"
    );
    let shorter = missing(&|story, world, note| {
        let mut body = bodies[0].clone();
        body.records.pop();
        let mut receipt = story.receipt(world, 2, &body, note);
        receipt.steps = Steps { first: 0, end: 2 };
        story.log_receipt(receipt, &body, device_key(0));
    });
    assert_eq!(shorter, ["a receipt of device 0 for the predicted steps 0..3: found steps 0..2"]);
}

#[test]
fn a_predicted_invalid_step_that_all_report_is_invalid() {
    let at = NonFinite::Tap { leaf: 5, tap: 3 };
    let world = invalid_world(at);
    let decision = judge(&world, &invalid_bodies(&world, 4, at));
    assert_eq!((decision.outcome, decision.step), (Outcome::Invalid, Some(1)), "{decision:?}");
    assert_eq!(decision.invalid_at.as_deref(), Some("leaf 5, forward.head (logits)"));
    let at = NonFinite::Update { stage: 1 };
    let world = invalid_world(at);
    let decision = judge(&world, &invalid_bodies(&world, 2, at));
    assert_eq!((decision.outcome, decision.step), (Outcome::Invalid, Some(1)));
    assert_eq!(decision.invalid_at.as_deref(), Some("not finite in the norm"));
    assert_ne!(world.body.seal(SALT), World::new(8, 4, 3).body.seal(SALT));
}

#[test]
fn what_is_said_of_non_finite_leaves_is_own_link_or_inherited() {
    let at = NonFinite::Tap { leaf: 5, tap: 3 };
    let world = invalid_world(at);
    // Rank 0 did not hear of rank 2's leaf 5: a link to rank 2.
    let mut bodies = invalid_bodies(&world, 4, at);
    bodies[0].records[1].non_finite = Some(NonFinite::Tap { leaf: 5, tap: 4 });
    let finding = only(judge(&world, &bodies));
    assert_eq!((finding.rank, finding.phase, finding.peer), (0, Phase::Link, Some(2)));
    // Rank 2 says another tap of its own leaf; all others heard the same from it: only rank 2 departs.
    let elsewhere = NonFinite::Tap { leaf: 5, tap: 4 };
    let mut bodies = invalid_bodies(&world, 4, at);
    bodies.iter_mut().for_each(|body| body.records[1].non_finite = Some(elsewhere));
    let finding = only(judge(&world, &bodies));
    assert_eq!((finding.rank, finding.phase, finding.leaf), (2, Phase::Leaf, Some(5)));
    assert!(finding.note.contains("forward.head"), "{}", finding.note);
    // Without rank 2's receipt it is open who is right.
    let decision = judge_without(&world, &bodies, &[2], &[]);
    assert_eq!((decision.outcome, decision.step), (Outcome::Incomplete, Some(1)));
    // A stage of the update that differs while all values agree.
    let at = NonFinite::Update { stage: 1 };
    let world = invalid_world(at);
    let mut bodies = invalid_bodies(&world, 2, at);
    bodies[1].records[1].non_finite = None;
    let finding = only(judge(&world, &bodies));
    assert_eq!((finding.rank, finding.phase), (1, Phase::Update));
    assert!(finding.note.contains("expected not finite in the norm, found all finite"), "{}", finding.note);
}

#[test]
fn refusals_are_listed_only_where_something_is_missing() {
    let world = world();
    let story = Story::whole(&world, &world.bodies(2), vec![], false);
    let refused = vec!["receipt for another run".to_owned(); 20];
    let of = |receipts: &[_]| decide(&world, receipts, &refused, &Evidence::none(), None);
    let all = of(&story.admitted(&world));
    assert_eq!((all.outcome, all.missing.len()), (Outcome::Agree, 0));
    let one = of(&story.admitted(&world)[..1]);
    assert_eq!(one.outcome, Outcome::Incomplete);
    assert_eq!(one.missing.len(), 1 + 8);
    assert_eq!(one.missing[8], "refused: receipt for another run");
    let again = verify::reconcile::refused_of(&one.missing);
    let same = decide(&world, &story.admitted(&world)[..1], &again, &Evidence::none(), None);
    assert_eq!(same, one);
}

#[test]
fn long_lists_are_cut_and_counted() {
    let world = World::new(64, 64, 1);
    let mut bodies = world.bodies(64);
    bodies.iter_mut().for_each(|body| body.records[0].losses[0] ^= 1);
    let decision = judge(&world, &bodies);
    assert_eq!(decision.findings.len(), LISTED_MAX);
    assert_eq!(decision.missing, ["room for 32 more findings in this step"]);
    let decision = judge_without(&world, &world.bodies(64), &(1..64).collect::<Vec<u64>>(), &[]);
    assert_eq!(decision.missing.len(), LISTED_MAX);
    assert_eq!(decision.missing[LISTED_MAX - 1], "32 more things");
}

#[test]
fn a_case_whose_parts_do_not_belong_together_is_an_error() {
    use verify::case::{Case, CaseError};
    let world = world();
    let other = World::new(4, 2, 3);
    let story = Story::whole(&world, &world.bodies(4), vec![], false);
    let receipts = story.admitted(&world);
    let evidence = Evidence::none();
    let case = support::story::case(&world, &receipts, &evidence);
    let reconcile = verify::reconcile::reconcile;
    assert!(reconcile(&case).is_ok());
    assert!(matches!(reconcile(&Case { plan: &other.plan, ..case }), Err(CaseError::Prediction(_))));
    assert!(matches!(reconcile(&Case { body: &other.body, ..case }), Err(CaseError::Prediction(_))));
    let steps = Steps { first: 0, end: 2 };
    assert!(matches!(reconcile(&Case { steps, ..case }), Err(CaseError::Prediction(_))));
    let foreign = Case { run: &other.run, plan: &other.plan, body: &other.body, ..case };
    assert!(matches!(reconcile(&foreign), Err(CaseError::Receipt { .. })));
}
