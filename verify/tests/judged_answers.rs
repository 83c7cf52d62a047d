//! Answers to the challenge: when they are judged, and what is then said of them.

mod support;

use schemas::receipt::Answer;
use schemas::verdict::{Outcome, Verdict};
use support::World;
use support::story::{Story, device_key, honest_answer};
use verify::reconcile::decided_before_answers;

fn world() -> World {
    World::new(4, 2, 3)
}

/// Two devices' honest receipts under one challenge, but for what is changed of their answers.
fn story(world: &World, change: impl Fn(u64, &mut Option<Answer>)) -> (Story, Answer) {
    let mut story = Story::new();
    story.log_run(world);
    story.log_prediction(world, false);
    let note = story.log.checkpoint(story.log.size());
    for body in world.bodies(2) {
        let mut receipt = story.receipt(world, 2, &body, &note);
        change(body.rank, &mut receipt.answer);
        story.log_receipt(receipt, &body, device_key(body.rank));
    }
    (story, honest_answer(world, &note))
}

#[test]
fn receipts_that_answer_different_challenges_are_not_judged_by_their_answers() {
    let world = world();
    let mut story = Story::new();
    story.log_run(&world);
    story.log_prediction(&world, false);
    let mut notes = Vec::new();
    for body in world.bodies(2) {
        notes.push(story.log.checkpoint(story.log.size()));
        let mut receipt = story.receipt(&world, 2, &body, notes.last().unwrap());
        // What device 1 answers does not matter then.
        receipt.answer = receipt.answer.filter(|_| body.rank == 0);
        story.log_receipt(receipt, &body, device_key(body.rank));
    }
    assert_ne!(notes[0], notes[1]);
    for expected in [None, Some(honest_answer(&world, &notes[0]))] {
        let decision = story.decision(&world, expected);
        assert_eq!(
            (decision.outcome, decision.step, decision.answers_judged),
            (Outcome::Incomplete, None, true)
        );
        assert!(decision.findings.is_empty(), "{:?}", decision.findings);
        let missing = ["one challenge for all receipts: devices 0 and 1 answer different ones"];
        assert_eq!(decision.missing, missing);
        assert!(!decided_before_answers(&story.verdict(&world, expected)));
    }
}

#[test]
fn each_part_of_an_answer_is_held_against_the_replay_and_both_are_told() {
    let world = world();
    let changes: [fn(&mut Answer); 4] = [
        |answer| answer.reduced.a ^= 1,
        |answer| answer.reduced.b ^= 1,
        |answer| answer.parameters.a ^= 1,
        |answer| answer.parameters.b ^= 1,
    ];
    for change in changes {
        let (story, honest) = story(&world, |rank, answer| {
            answer.as_mut().filter(|_| rank == 1).into_iter().for_each(change);
        });
        let decision = story.decision(&world, Some(honest));
        assert_eq!((decision.outcome, decision.step), (Outcome::Diverge, Some(honest.step)));
        let mut wrong = honest;
        change(&mut wrong);
        let show = |one: Answer| format!("step {} {:?} {:?}", one.step, one.reduced, one.parameters);
        let note =
            format!("its answer is not the replayed one: expected {}, found {}", show(honest), show(wrong));
        let told: Vec<_> = decision.findings.iter().map(|one| (one.rank, one.note.clone())).collect();
        assert_eq!(told, [(1, note)]);
    }
}

#[test]
fn answers_that_differ_are_missing_a_replay_only_where_nothing_else_is_said_of_them() {
    let world = world();
    let (unequal, honest) = story(&world, |rank, answer| answer.as_mut().unwrap().reduced.a ^= rank);
    let decision = unequal.decision(&world, None);
    assert_eq!(decision.missing, ["devices 0 and 1 answer one challenge differently: a replay of its step"]);
    // A replay of another step is of no use, and that is what is missing.
    let decision = unequal.decision(&world, Some(Answer { step: honest.step ^ 1, ..honest }));
    let (step, found) = (honest.step, honest.step ^ 1);
    let line = format!("the replayed answer of step {step}, which the challenge chose; found step {found}");
    assert_eq!(decision.missing, [line]);
    // A device that does not answer is found out without.
    let (silent, _) = story(&world, |rank, answer| *answer = answer.filter(|_| rank == 0));
    let decision = silent.decision(&world, None);
    assert_eq!((decision.outcome, decision.findings.len(), decision.missing.len()), (Outcome::Diverge, 1, 0));
    assert!(!decided_before_answers(&silent.verdict(&world, None)));
}

#[test]
fn whether_a_verdict_came_to_the_answers_follows_from_what_it_says() {
    let world = world();
    let (story, answer) = story(&world, |_, _| ());
    let agree = story.verdict(&world, Some(answer));
    assert_eq!((agree.outcome, decided_before_answers(&agree)), (Outcome::Agree, false));
    let with = |outcome, answer| Verdict { outcome, answer, ..agree.clone() };
    assert!(decided_before_answers(&with(Outcome::Invalid, None)));
    // Something is missing, and it is not about the answers: they were looked at only if one was expected.
    let missing = vec!["the replayed answer of step 1, which the challenge chose; found step 0".to_owned()];
    for (answer, before) in [(None, true), (Some(answer), false)] {
        let verdict = Verdict { missing: missing.clone(), ..with(Outcome::Incomplete, answer) };
        assert_eq!(decided_before_answers(&verdict), before);
    }
}
