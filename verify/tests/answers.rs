//! Phase `answer`: what devices answer to the challenge, judged once everything else agrees.

mod support;

use schemas::receipt::Answer;
use schemas::record::NonFinite;
use schemas::verdict::{Outcome, Phase};
use std::collections::BTreeSet;
use support::story::{Story, device_key, honest_answer};
use support::{World, invalid_bodies, invalid_world};
use verify::case::Decision;

fn world() -> World {
    World::new(8, 4, 3)
}

/// Judges honest bodies with answers changed, and an expected answer.
fn judge_answers(
    change: impl Fn(u64, &mut Option<Answer>),
    expected: impl Fn(Answer) -> Option<Answer>,
) -> Decision {
    let world = world();
    let mut story = Story::new();
    story.log_run(&world);
    story.log_prediction(&world, false);
    let note = story.log.checkpoint(story.log.size());
    for body in world.bodies(2) {
        let mut receipt = story.receipt(&world, 2, &body, &note);
        change(body.rank, &mut receipt.answer);
        story.log_receipt(receipt, &body, device_key(body.rank));
    }
    story.decision(&world, expected(honest_answer(&world, &note)))
}

#[test]
fn answers_are_held_against_the_replayed_one() {
    let decision = judge_answers(|_, _| {}, Some);
    assert_eq!((decision.outcome, decision.answers_judged), (Outcome::Agree, true));
    let flip = |rank, answer: &mut Option<Answer>| {
        if rank == 1 {
            answer.as_mut().unwrap().reduced.a ^= 1;
        }
    };
    let decision = judge_answers(flip, Some);
    assert_eq!((decision.outcome, decision.findings.len()), (Outcome::Diverge, 1));
    assert_eq!((decision.findings[0].rank, decision.findings[0].phase), (1, Phase::Answer));
    assert!(decision.step.is_some());
    // Without a replay, two different answers to one challenge cannot both be right.
    let decision = judge_answers(flip, |_| None);
    assert_eq!(decision.outcome, Outcome::Incomplete);
    assert!(decision.missing[0].contains("answer one challenge differently"), "{:?}", decision.missing);
}

#[test]
fn an_answer_that_is_absent_or_for_another_step_is_found_without_a_replay() {
    for replayed in [false, true] {
        let expected = |answer| replayed.then_some(answer);
        let decision = judge_answers(|rank, answer| *answer = answer.filter(|_| rank == 0), expected);
        assert_eq!((decision.outcome, decision.findings[0].rank), (Outcome::Diverge, 1));
        assert!(decision.findings[0].note.contains("does not answer the challenge"));
        let another = |_, answer: &mut Option<Answer>| answer.as_mut().unwrap().step ^= 1;
        let decision = judge_answers(another, expected);
        assert_eq!((decision.outcome, decision.findings.len()), (Outcome::Diverge, 2));
        assert!(decision.findings[1].note.contains("the challenge chose step"));
    }
}

#[test]
fn an_answer_for_an_earlier_step_is_as_wrong_as_one_for_a_later() {
    let world = world();
    let mut compared = BTreeSet::new();
    for (later, step) in (0..12).flat_map(|later| (0..3).map(move |step| (later, step))) {
        let mut story = Story::new();
        story.log_run(&world);
        story.log_prediction(&world, false);
        for number in 0..later {
            story.log.append(vec![number]);
        }
        let note = story.log.checkpoint(story.log.size());
        let chosen = honest_answer(&world, &note).step;
        for body in world.bodies(2) {
            let mut receipt = story.receipt(&world, 2, &body, &note);
            receipt.answer = receipt.answer.map(|answer| Answer { step, ..answer });
            story.log_receipt(receipt, &body, device_key(body.rank));
        }
        let decision = story.decision(&world, None);
        let findings = if step == chosen { 0 } else { 2 };
        assert_eq!(decision.findings.len(), findings, "answers for step {step}, chosen was {chosen}");
        compared.insert(step.cmp(&chosen));
    }
    assert_eq!(compared.len(), 3, "earlier ones, later ones and the right ones");
}

#[test]
fn receipts_that_answer_different_challenges_do_not_agree_with_or_without_a_replay() {
    let world = world();
    let mut story = Story::new();
    story.log_run(&world);
    story.log_prediction(&world, false);
    for body in world.bodies(2) {
        // Each answers the checkpoint of its time, rightly.
        let note = story.log.checkpoint(story.log.size());
        let receipt = story.receipt(&world, 2, &body, &note);
        story.log_receipt(receipt, &body, device_key(body.rank));
    }
    for expected in [None, story.receipts[0].receipt.answer, story.receipts[1].receipt.answer] {
        let decision = story.decision(&world, expected);
        assert_eq!((decision.outcome, decision.findings.len()), (Outcome::Incomplete, 0));
        let missing = "one challenge for all receipts: devices 0 and 1 answer different ones";
        assert_eq!(decision.missing, [missing]);
    }
}

#[test]
fn a_run_that_ended_at_a_nan_is_invalid_whatever_its_receipts_answer() {
    let at = NonFinite::Tap { leaf: 5, tap: 3 };
    let world = invalid_world(at);
    let mut chosen = BTreeSet::new();
    for later in 0..12 {
        let mut story = Story::new();
        story.log_run(&world);
        story.log_prediction(&world, false);
        for number in 0..later {
            story.log.append(vec![number]);
        }
        let note = story.log.checkpoint(story.log.size());
        let honest = honest_answer(&world, &note);
        // Step 1 has no gradient, and step 2 was never computed: an honest device has nothing to answer with.
        let answer = (honest.step == 0).then_some(honest);
        for body in invalid_bodies(&world, 2, at) {
            let mut receipt = story.receipt(&world, 2, &body, &note);
            receipt.answer = answer;
            story.log_receipt(receipt, &body, device_key(body.rank));
        }
        chosen.insert(honest.step);
        for expected in [None, Some(honest)] {
            let decision = story.decision(&world, expected);
            assert_eq!((decision.outcome, decision.step), (Outcome::Invalid, Some(1)), "{decision:?}");
            assert!(decision.findings.is_empty() && decision.missing.is_empty() && !decision.answers_judged);
        }
    }
    assert_eq!(chosen.into_iter().collect::<Vec<_>>(), [0, 1, 2], "each step was chosen once at least");
}

#[test]
fn a_replay_of_another_step_accuses_no_device() {
    let decision = judge_answers(|_, _| {}, |answer| Some(Answer { step: answer.step ^ 1, ..answer }));
    assert_eq!((decision.outcome, decision.findings.len()), (Outcome::Incomplete, 0));
    assert!(decision.missing[0].starts_with("the replayed answer of step "), "{:?}", decision.missing);
}
