//! What becomes of a whole case: one outcome among several that could be, and lists to their limits.

mod support;

use schemas::object::Object as _;
use schemas::record::NonFinite;
use schemas::run::Steps;
use schemas::verdict::{Finding, Outcome, Phase};
use support::judged::{judge, judge_without, only};
use support::story::{Story, decide, device_key};
use support::{World, invalid_bodies, invalid_world, outcome};
use verify::case::{LISTED_MAX, Need};
use verify::evidence::Evidence;

fn world() -> World {
    World::new(8, 4, 3)
}

/// Two devices, whose receipts are changed before they are logged.
fn story(world: &World, change: impl Fn(&mut schemas::receipt::Receipt)) -> Story {
    let mut story = Story::new();
    story.log_run(world);
    story.log_prediction(world, false);
    let note = story.log.checkpoint(story.log.size());
    for body in world.bodies(2) {
        let mut receipt = story.receipt(world, 2, &body, &note);
        change(&mut receipt);
        story.log_receipt(receipt, &body, device_key(body.rank));
    }
    story
}

#[test]
fn one_simulated_receipt_makes_a_decision_simulated() {
    let world = world();
    for (simulated, said) in [([true, false], true), ([false, true], true), ([false, false], false)] {
        let story = story(&world, |receipt| receipt.simulated = simulated[receipt.rank as usize]);
        assert_eq!(story.decision(&world, None).simulated, said);
    }
}

#[test]
fn receipts_of_steps_that_begin_elsewhere_are_not_judged() {
    let world = world();
    let mut body = world.bodies(1).remove(0);
    body.records.remove(0);
    let mut story = Story::new();
    story.log_run(&world);
    story.log_prediction(&world, false);
    let mut receipt = story.receipt(&world, 1, &body, &story.log.checkpoint(story.log.size()));
    receipt.steps = Steps { first: 1, end: 3 };
    story.log_receipt(receipt, &body, device_key(0));
    let missing = story.decision(&world, None).missing;
    assert_eq!(missing, ["a receipt of device 0 for the predicted steps 0..3: found steps 1..3"]);
}

#[test]
fn an_invalid_step_is_told_only_of_a_whole_run_and_before_any_answer() {
    let at = NonFinite::Tap { leaf: 5, tap: 3 };
    let world = invalid_world(at);
    let bodies = invalid_bodies(&world, 4, at);
    let decision = judge(&world, &bodies);
    assert_eq!((decision.outcome, decision.answers_judged), (Outcome::Invalid, false));
    let decision = judge_without(&world, &bodies, &[3], &[]);
    assert_eq!((decision.outcome, decision.step, decision.invalid_at), (Outcome::Incomplete, None, None));
    let at = NonFinite::Update { stage: 0 };
    let world = invalid_world(at);
    let decision = judge(&world, &invalid_bodies(&world, 2, at));
    assert_eq!(decision.invalid_at.as_deref(), Some("not finite in the reduced gradient"));
}

#[test]
fn where_a_device_is_missing_nobody_is_accused_by_an_answer() {
    let world = world();
    let story = story(&world, |receipt| receipt.answer = None);
    assert_eq!(story.decision(&world, None).findings.len(), 2);
    let decision = decide(&world, &story.admitted(&world)[..1], &[], &Evidence::none(), None);
    assert_eq!((decision.outcome, decision.answers_judged), (Outcome::Incomplete, false));
    assert_eq!((decision.findings.len(), decision.missing), (0, vec!["device 1 of 2: no receipt".into()]));
}

#[test]
fn of_two_that_contradict_a_receipt_the_first_is_named() {
    let world = world();
    let mut bodies = world.bodies(4);
    // Device 0 received the right partial from device 1, device 3 the right sum.
    outcome(&mut bodies, 1, 1).partial = world.sum_of(&[4; 21]);
    outcome(&mut bodies, 1, 1).exchanges[0].sum = world.sum_of(&[5; 21]);
    let finding = only(judge(&world, &bodies));
    assert_eq!((finding.rank, finding.phase, finding.peer), (1, Phase::Receipt, Some(0)));
    assert!(finding.note.contains("received from it at level 0,"), "{}", finding.note);
}

#[test]
fn the_lower_of_two_leaves_that_are_not_finite_tells_whose_it_is() {
    let at = NonFinite::Tap { leaf: 5, tap: 3 };
    let world = invalid_world(at);
    // Device 1 says so of its own leaf 2, whose trace is as predicted.
    let mut bodies = invalid_bodies(&world, 4, at);
    bodies[1].records[1].non_finite = Some(NonFinite::Tap { leaf: 2, tap: 0 });
    let finding = only(judge(&world, &bodies));
    assert_eq!((finding.rank, finding.phase, finding.leaf, finding.peer), (1, Phase::Leaf, Some(2), None));
    let note = "its trace and loss are as predicted, yet it reports otherwise: expected leaf 5 not finite at \
                forward.head (logits), found leaf 2 not finite at window (tokens)";
    assert_eq!(finding.note, note);

    // Device 2, whose leaf it is, has a wrong loss beside: what device 0 says is inherited.
    let mut bodies = invalid_bodies(&world, 4, at);
    bodies[0].records[1].non_finite = Some(NonFinite::Tap { leaf: 5, tap: 4 });
    bodies[2].records[1].losses[0] ^= 1;
    let finding = only(judge(&world, &bodies));
    assert_eq!((finding.rank, finding.phase, finding.leaf), (2, Phase::Leaf, Some(4)));
    // Of a device that is missing, too, and it is named as the source.
    let decision = judge_without(&world, &bodies, &[2], &[]);
    let line = "device 2: its part in step 1, from which device 0 differs by inheritance";
    assert_eq!(decision.missing, ["device 2 of 4: no receipt", line]);
}

#[test]
fn lists_are_cut_only_beyond_their_limit() {
    let world = World::new(64, 64, 1);
    let mut bodies = world.bodies(64);
    bodies.iter_mut().take(LISTED_MAX).for_each(|body| body.records[0].losses[0] ^= 1);
    let decision = judge(&world, &bodies);
    assert_eq!((decision.findings.len(), decision.missing.len()), (LISTED_MAX, 0));
    let bodies = world.bodies(64);
    let absent =
        |count: u64| judge_without(&world, &bodies, &(64 - count..64).collect::<Vec<_>>(), &[]).missing;
    let last = |count: u64| absent(count).pop().unwrap();
    assert_eq!((absent(32).len(), &*last(32)), (LISTED_MAX, "device 63 of 64: no receipt"));
    assert_eq!((absent(33).len(), &*last(33)), (LISTED_MAX, "2 more things"));
}

#[test]
fn what_is_told_fits_in_a_verdict_and_has_no_control_characters() {
    let world = world();
    let story = story(&world, |_| ());
    let told = |refused: String| {
        decide(&world, &story.admitted(&world)[..1], &[refused], &Evidence::none(), None).missing.remove(1)
    };
    assert_eq!(told("a\nb\u{7f}c".into()), "refused: a b c");
    let full = "x".repeat(200 - "refused: ".len());
    assert_eq!(told(full.clone()), format!("refused: {full}"));
    assert_eq!(told(full.clone() + "x"), format!("refused: {}...", &full[3..]));
}

#[test]
fn what_is_needed_is_told_once_and_in_order() {
    let world = world();
    let mut bodies = world.bodies(2);
    outcome(&mut bodies, 0, 1).reduced = world.sum_of(&[1; 21]);
    outcome(&mut bodies, 1, 1).reduced = world.sum_of(&[2; 21]);
    let needed = |bodies: &[_]| Story::whole(&world, bodies, vec![], false).decision(&world, None).needed;
    assert_eq!(needed(&bodies), [Need::Meeting { step: 1 }]);
    bodies[1].records[1].traces[2].0[0] ^= 1;
    let leaf = 6;
    let traces = [Need::PredictedTrace { step: 1, leaf }, Need::DeviceTrace { step: 1, leaf, rank: 1 }];
    assert_eq!(needed(&bodies), [&traces[..], &[Need::Meeting { step: 1 }]].concat());
}

/// The note of the only finding on leaf 3 of device 1, whose trace is `found`, with this evidence.
fn of_leaf_3(world: &World, found: &schemas::trace::Trace, evidence: &[Vec<u8>]) -> (Finding, Vec<Need>) {
    let mut bodies = world.bodies(4);
    bodies[1].records[1].traces[1] = found.root();
    let story = Story::whole(world, &bodies, evidence.to_vec(), false);
    let decision = story.decision(world, None);
    (only(decision.clone()), decision.needed)
}

#[test]
fn a_leafs_note_says_which_tap_of_how_many_and_what_is_not_at_hand() {
    let world = world();
    let (expected, wrong) = (world.trace(1, 3).encode(), world.wrong_trace(1, 3, 3, &[(0, 1)]));
    let end = "yet the sum of its leaves is as predicted";
    let (finding, _) = of_leaf_3(&world, &wrong, &[expected.clone(), wrong.encode()]);
    let taps = world.plan.taps().count();
    let note = format!("leaf 3 differs first in tap 3 of {taps}; one wrong word explains it exactly; {end}");
    assert_eq!(finding.note, note);
    let (finding, needed) = of_leaf_3(&world, &wrong, &[wrong.encode()]);
    assert_eq!(finding.note, format!("leaf 3 differs; its predicted trace is not at hand; {end}"));
    assert_eq!(needed, [Need::PredictedTrace { step: 1, leaf: 3 }]);
    // A signed trace of another step is none of this leaf's.
    let elsewhere = world.wrong_trace(2, 3, 3, &[(0, 1)]);
    let (finding, _) = of_leaf_3(&world, &elsewhere, &[expected.clone(), elsewhere.encode()]);
    assert_eq!(finding.note, format!("leaf 3 differs; the device's trace of it is not at hand; {end}"));
    // One with more taps than the plan has.
    let mut longer = world.trace(1, 3);
    longer.folds.push(longer.folds[0]);
    let (finding, _) = of_leaf_3(&world, &longer, &[expected, longer.encode()]);
    assert_eq!(finding.note, format!("leaf 3 differs in tap {taps}, which the plan has not; {end}"));
    assert_eq!(finding.operation, None);
    // Where the sum of the leaves differs as well, nothing is said of it.
    let mut bodies = world.bodies(1);
    bodies[0].records[1].losses[3] ^= 1;
    outcome(&mut bodies, 0, 1).partial = world.sum_of(&[1; 21]);
    assert_eq!(only(judge(&world, &bodies)).note, "leaf 3 differs in its mean loss only");
}
