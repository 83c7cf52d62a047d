//! Causes that rest on a replay of an operation: what they may say, of which findings, and what a verifier makes of it.

mod support;

use schemas::object::Object as _;
use schemas::receipt::ReceiptBody;
use schemas::verdict::{Cause, Finding, Phase, Verdict};
use support::story::{Story, case, policy};
use support::{Vector, World, outcome};
use verify::bundle::check;
use verify::case::{Case, Decision, Replayed};
use verify::evidence::Evidence;
use verify::reconcile::reconcile;
use verify::report::State;

fn world() -> World {
    World::new(8, 4, 3)
}

fn split_k() -> Cause {
    Cause::Configuration("split-k-4 or split-k-8".into())
}

/// Two devices, of which 1 has `changes` wrong words in tap 3 of leaf 4.
fn wrong_leaf(world: &World, changes: &[(usize, u32)]) -> (Vec<ReceiptBody>, Vec<Vec<u8>>) {
    let trace = world.wrong_trace(1, 4, 3, changes);
    let mut bodies = world.bodies(2);
    bodies[1].records[1].traces[0] = trace.root();
    (bodies, vec![trace.encode()])
}

fn story(world: &World, bodies: &[ReceiptBody], mut evidence: Vec<Vec<u8>>) -> Story {
    evidence.extend(world.traces.iter().flatten().map(|trace| trace.encode()));
    evidence.extend(world.meetings.iter().map(|meeting| meeting.encode()));
    Story::whole(world, bodies, evidence, false)
}

fn decide(world: &World, story: &Story, replayed: &[Replayed]) -> Decision {
    let mut evidence = Evidence::none();
    story.evidence.iter().for_each(|bytes| evidence.add(bytes).unwrap());
    reconcile(&Case { replayed, ..case(world, &story.admitted(world), &evidence) }).unwrap()
}

fn finding(world: &World, story: &Story, rank: u64, cause: Cause) -> (Finding, bool) {
    let mut decision = decide(world, story, &[Replayed { rank, cause }]);
    assert_eq!(decision.findings.len(), 1, "{decision:?}");
    (decision.findings.remove(0), decision.causes_replayed)
}

#[test]
fn a_replay_names_the_configuration_or_leaves_a_fault() {
    let world = world();
    let (bodies, evidence) = wrong_leaf(&world, &[(0, 1), (1, 1)]);
    let story = story(&world, &bodies, evidence);
    let without = decide(&world, &story, &[]).findings.remove(0);
    assert_eq!((&without.cause, without.phase), (&Cause::Undetermined, Phase::Leaf));

    let (configured, said) = finding(&world, &story, 1, split_k());
    assert_eq!((configured.cause, said), (split_k(), true));
    let note = format!("{}; computed again in this configuration it has the device's bits", without.note);
    assert_eq!(configured.note, note);
    let (fault, said) = finding(&world, &story, 1, Cause::Fault);
    assert_eq!((fault.cause, said), (Cause::Fault, true));
    assert_eq!(
        fault.note,
        format!("{}; computed again, no known configuration gives these bits", without.note)
    );

    // What decides nothing, or is about another device, changes nothing.
    assert_eq!(finding(&world, &story, 1, Cause::Undetermined), (without.clone(), false));
    assert_eq!(finding(&world, &story, 0, split_k()), (without, false));
}

#[test]
fn one_wrong_word_is_a_fault_unless_a_configuration_gives_it() {
    let world = world();
    let (bodies, evidence) = wrong_leaf(&world, &[(2, 1 << 9)]);
    let story = story(&world, &bodies, evidence);
    let without = decide(&world, &story, &[]).findings.remove(0);
    assert_eq!(without.cause, Cause::Fault);
    assert_eq!(finding(&world, &story, 1, Cause::Fault), (without.clone(), false));
    assert_eq!(finding(&world, &story, 1, Cause::Undetermined), (without.clone(), false));
    let (configured, said) = finding(&world, &story, 1, split_k());
    assert_eq!((configured.cause, configured.word, said), (split_k(), without.word, true));
}

#[test]
fn a_replay_is_of_a_leafs_operation_or_of_the_update() {
    let world = world();
    type Change = fn(&World, &mut Vec<ReceiptBody>);
    let changes: [(Phase, bool, Change); 6] = [
        (Phase::Update, true, |_, bodies| outcome(bodies, 1, 1).norm ^= 1),
        (Phase::Update, true, |world, bodies| {
            outcome(bodies, 1, 1).second_moment =
                world.sum_with(1, Vector::SecondMoment, &[(1, 1), (2, 1)]).fold;
        }),
        (Phase::Reduce, false, |world, bodies| outcome(bodies, 1, 1).reduced = world.sum_of(&[5; 21])),
        (Phase::Partial, false, |world, bodies| {
            outcome(bodies, 1, 1).partial = world.sum_of(&[5; 21]);
            outcome(bodies, 0, 1).exchanges[0].received = world.sum_of(&[5; 21]);
        }),
        (Phase::Link, false, |world, bodies| {
            outcome(bodies, 1, 1).exchanges[0].received = world.sum_of(&[5; 21]);
        }),
        // A leaf without a trace: nothing names an operation.
        (Phase::Leaf, false, |_, bodies| bodies[1].records[1].traces[0].0[0] ^= 1),
    ];
    for (phase, replayable, change) in changes {
        let mut bodies = world.bodies(2);
        change(&world, &mut bodies);
        let story = story(&world, &bodies, vec![]);
        let (found, said) = finding(&world, &story, 1, split_k());
        assert_eq!((found.phase, said), (phase, replayable), "{found:?}");
        assert_eq!(found.cause == split_k(), replayable);
    }
}

/// Logs a verdict that was changed, and verifies its bundle: the number of the check that fails, why, and what is left
/// open.
fn verified(world: &World, story: &mut Story, change: impl Fn(&mut Verdict)) -> (usize, String, Vec<String>) {
    let mut verdict = story.verdict(world, None);
    change(&mut verdict);
    story.log_verdict_of(verdict);
    let report = check(&story.bundle(world).encode(), &policy(story.log.key()));
    let failed = report.failure().unwrap();
    let State::Fails(why) = &failed.state else { panic!("{report}") };
    (failed.number, why.clone(), report.caveats.clone())
}

#[test]
fn a_logged_cause_that_needs_a_replay_is_its_signers_word_and_the_rest_is_checked() {
    let world = world();
    let (bodies, evidence) = wrong_leaf(&world, &[(0, 1), (1, 1)]);
    let honest = || story(&world, &bodies, evidence.clone());
    let is_said = |caveats: &[String]| caveats.iter().any(|caveat| caveat.contains("no known one is"));

    let (number, _, caveats) = verified(&world, &mut honest(), |_| ());
    assert_eq!((number, is_said(&caveats)), (9, false));
    for cause in [split_k(), Cause::Fault] {
        let (told, _) = finding(&world, &honest(), 1, cause);
        let (number, why, caveats) =
            verified(&world, &mut honest(), |verdict| verdict.findings[0] = told.clone());
        assert_eq!((number, is_said(&caveats)), (9, true), "{why}");
        assert!(why.contains("device 1 in phase leaf"), "{why}");
    }
    // The sentence that goes with it is the comparison's.
    let (number, why, _) = verified(&world, &mut honest(), |verdict| verdict.findings[0].cause = split_k());
    assert_eq!(number, 8, "{why}");
    assert!(why.contains("the logged verdict's findings"), "{why}");

    // One wrong word follows from the folds: no signer can leave it undetermined, or change it.
    let (bodies, evidence) = wrong_leaf(&world, &[(2, 1 << 9)]);
    type Change = fn(&mut Finding);
    let changes: [Change; 2] =
        [|finding| finding.cause = Cause::Undetermined, |finding| finding.word.as_mut().unwrap().found ^= 1];
    for change in changes {
        let mut story = story(&world, &bodies, evidence.clone());
        let (number, why, _) = verified(&world, &mut story, |verdict| change(&mut verdict.findings[0]));
        assert_eq!(number, 8, "{why}");
    }
    // No operation of a leaf or an update, no replay.
    let mut bodies = world.bodies(2);
    outcome(&mut bodies, 1, 1).reduced = world.sum_of(&[5; 21]);
    let mut scaled = story(&world, &bodies, vec![]);
    let (number, why, _) = verified(&world, &mut scaled, |verdict| verdict.findings[0].cause = split_k());
    assert_eq!(number, 8, "{why}");
}

/// What to say of a difference that may come of the state before step 1.
const BEFORE: &str =
    "; no record shows the state before step 1: this may come of an earlier step, and of any device";

#[test]
fn what_may_come_of_a_step_without_records_is_no_fault() {
    let (late, whole) = (world().beginning_at(1), world());
    // Embedding, head and the gradient of its input read parameters; data, loss and sums of gradients do not.
    for (tap, rests) in [(0, false), (2, true), (3, true), (4, false), (7, false), (8, true), (9, false)] {
        for changes in [vec![(1, 1 << 9)], vec![(0, 1), (1, 1)]] {
            let trace = late.wrong_trace(1, 4, tap, &changes);
            let mut bodies = late.bodies(2);
            bodies[1].records[0].traces[0] = trace.root();
            let story = story(&late, &bodies, vec![trace.encode()]);
            let told = |cause| finding(&late, &story, 1, cause).0;
            for cause in [Cause::Undetermined, Cause::Fault] {
                let found = told(cause.clone());
                let fault = !rests && (changes.len() == 1 || cause == Cause::Fault);
                assert_eq!(found.cause == Cause::Fault, fault, "tap {tap}: {found:?}");
                assert_eq!(found.note.contains(BEFORE), rests, "tap {tap}: {found:?}");
                assert_eq!(found.word.is_some(), changes.len() == 1, "what differs is known all the same");
            }
            assert_eq!(told(split_k()).cause, split_k(), "bits of a configuration are from the right state");
            // The same in a run that was predicted from its first step on.
            let mut bodies = whole.bodies(2);
            bodies[1].records[1].traces[0] = trace.root();
            let of_whole = self::story(&whole, &bodies, vec![trace.encode()]);
            let found = finding(&whole, &of_whole, 1, Cause::Fault).0;
            assert!(found.cause == Cause::Fault && !found.note.contains("no record"), "{found:?}");
        }
    }
    // A later step: all records before it are as predicted.
    let trace = late.wrong_trace(2, 4, 2, &[(1, 1)]);
    let mut bodies = late.bodies(2);
    bodies[1].records[1].traces[0] = trace.root();
    let of_later = story(&late, &bodies, vec![trace.encode()]);
    assert_eq!(finding(&late, &of_later, 1, Cause::Undetermined).0.cause, Cause::Fault);
    // A leaf whose trace is not at hand.
    let mut bodies = late.bodies(2);
    bodies[1].records[0].traces[0] = trace.root();
    let without = story(&late, &bodies, vec![]);
    let found = finding(&late, &without, 1, Cause::Fault).0;
    assert!(found.cause == Cause::Undetermined && found.note.contains(BEFORE), "{found:?}");
}

#[test]
fn what_an_optimizer_began_with_may_come_of_a_step_without_records() {
    let late = world().beginning_at(1);
    type Change = fn(&World, &mut Vec<ReceiptBody>, &[(usize, u32)]);
    let changes: [(bool, Change); 4] = [
        (false, |_, bodies, _| outcome(bodies, 1, 0).norm ^= 1),
        (true, |world, bodies, words| {
            outcome(bodies, 1, 0).first_moment = world.sum_with(1, Vector::FirstMoment, words).fold;
        }),
        (true, |world, bodies, words| {
            outcome(bodies, 1, 0).second_moment = world.sum_with(1, Vector::SecondMoment, words).fold;
        }),
        (true, |world, bodies, words| {
            outcome(bodies, 1, 0).parameters = world.sum_with(1, Vector::Parameters, words);
        }),
    ];
    for (rests, change) in changes {
        for words in [vec![(1, 1)], vec![(1, 1), (2, 1)]] {
            let mut bodies = late.bodies(2);
            change(&late, &mut bodies, &words);
            let story = story(&late, &bodies, vec![]);
            let found = finding(&late, &story, 1, Cause::Fault).0;
            assert_eq!(found.phase, Phase::Update);
            assert_eq!(found.cause == Cause::Fault, !rests, "{found:?}");
            assert_eq!(found.note.contains(BEFORE), rests, "{found:?}");
            assert_eq!(finding(&late, &story, 1, split_k()).0.cause, split_k());
        }
    }
}
