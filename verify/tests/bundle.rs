//! Whole bundles: the honest one verifies, and nothing else does.

mod support;

use schemas::bundle::Bundle;
use schemas::object::Object as _;
use schemas::record::NonFinite;
use schemas::statement::{Payload, Statement};
use schemas::verdict::{Outcome, Verdict};
use support::log::Log;
use support::story::{Story, device_key, policy, predictor_key};
use support::{Vector, World, invalid_bodies, invalid_world, outcome};
use verify::bundle::check;
use verify::policy::{Policy, PolicyError};
use verify::reconcile::decided_before_answers;
use verify::report::{Class, State};

fn small() -> World {
    World::new(2, 2, 2)
}

fn honest(world: &World) -> (Story, Vec<u8>) {
    let story = Story::whole(world, &world.bodies(2), vec![], true);
    let bytes = story.bundle(world).encode();
    (story, bytes)
}

/// The number of the check that fails and what it says.
fn failure(story: &Story, bundle: &Bundle) -> (usize, String) {
    let report = check(&bundle.encode(), &policy(story.log.key()));
    assert_eq!(report.class, Class::NotSo, "{report}");
    failed(&report)
}

fn failed(report: &verify::report::Report) -> (usize, String) {
    let check = report.failure().expect("a check fails");
    let State::Fails(why) = &check.state else { unreachable!() };
    (check.number, why.clone())
}

#[test]
fn an_honest_bundle_verifies_and_says_what_was_checked() {
    let world = small();
    let (story, bytes) = honest(&world);
    let report = check(&bytes, &policy(story.log.key()));
    assert_eq!(report.class, Class::Agreeing, "{report}");
    assert!(report.checks.iter().all(|check| matches!(check.state, State::Holds(_))));
    assert!(report.summary().starts_with("verified: steps 0..2 of run "), "{}", report.summary());
    assert!(!decided_before_answers(report.verdict.as_ref().unwrap()));
    let text = report.to_string();
    assert!(text.contains("3. every entry is in the log [ok]: 6 inclusion proofs"), "{text}");
    assert!(text.contains("note: no device keys were given"), "{text}");
    assert!(text.contains("note: some receipts are of a simulated device"), "{text}");
}

#[test]
fn no_flipped_byte_leaves_a_bundle_verified() {
    let world = small();
    let (story, bytes) = honest(&world);
    let policy = policy(story.log.key());
    let mut by_check = [0; 10];
    for at in 0..bytes.len() {
        for change in [0x01, 0x80] {
            let mut flipped = bytes.clone();
            flipped[at] ^= change;
            let report = check(&flipped, &policy);
            assert_ne!(report.class, Class::Agreeing, "byte {at} xor {change:#x}");
            by_check[failed(&report).0] += 1;
        }
    }
    // Each of these checks is the one that catches some flip; later ones are reached only by honest signers' lies.
    println!("flips caught by each check: {by_check:?} of {} bytes", bytes.len());
    assert!(by_check[1] > 0 && by_check[2] > 0 && by_check[3] > 0 && by_check[5] > 0 && by_check[6] > 0);
    assert!(by_check[7] > 0);
}

#[test]
fn no_truncation_or_addition_leaves_a_bundle_readable() {
    let world = small();
    let (story, bytes) = honest(&world);
    let policy = policy(story.log.key());
    for end in 0..bytes.len() {
        assert_eq!(check(&bytes[..end], &policy).class, Class::CouldNot, "cut at {end}");
    }
    let longer = [&bytes[..], &[0]].concat();
    assert_eq!(check(&longer, &policy).class, Class::CouldNot);
    let report = check(b"hello", &policy);
    assert_eq!(failed(&report).0, 1);
    assert!(report.summary().starts_with("not verified: check 1: "), "{}", report.summary());
}

#[test]
fn an_unsupported_version_could_not_be_checked() {
    let world = small();
    let (story, bytes) = honest(&world);
    let name = b"tallystick_bundle";
    let at = bytes.windows(name.len()).position(|window| window == name).unwrap() + name.len();
    let mut newer = bytes.clone();
    newer[at] = 3;
    let report = check(&newer, &policy(story.log.key()));
    assert_eq!(report.class, Class::CouldNot);
    assert!(failed(&report).1.contains("expected version 1 or 2, found 3"), "{report}");
}

#[test]
fn a_bundle_of_four_devices_and_one_of_a_single_device_verify() {
    for (leaves, devices) in [(4, 4), (3, 1), (4, 2)] {
        let world = World::new(leaves, if leaves == 3 { 1 } else { 4 }, 3);
        let story = Story::whole(&world, &world.bodies(devices), vec![], false);
        let report = check(&story.bundle(&world).encode(), &policy(story.log.key()));
        assert_eq!(report.class, Class::Agreeing, "{report}");
        assert!(report.to_string().contains("answers to the challenge were not held against a replay"));
    }
}

#[test]
fn places_in_a_log_are_counted_beyond_32_bits() {
    let world = small();
    let mut story = Story::within(Log::after(5 << 33, "log.example/test", 1));
    story.tell(&world, &world.bodies(2), vec![], true);
    let bundle = story.bundle(&world);
    let report = check(&bundle.encode(), &policy(story.log.key()));
    assert_eq!(report.class, Class::Agreeing, "{report}");
    let text = report.to_string();
    assert!(text.contains("2 receipts after entry 42949672963, answering 1 checkpoint"), "{text}");
    let mut nearer = bundle.clone();
    nearer.entries[2].index &= u64::from(u32::MAX);
    assert_eq!(failure(&story, &nearer).0, 3);
}

#[test]
fn an_open_prediction_verifies_with_a_caveat() {
    let world = small();
    let mut story = Story::new();
    story.log_run(&world);
    story.log_prediction(&world, true);
    let note = story.log.checkpoint(story.log.size());
    for body in world.bodies(2) {
        let receipt = story.receipt(&world, 2, &body, &note);
        story.log_receipt(receipt, &body, device_key(body.rank));
    }
    story.log_verdict(&world, None);
    let report = check(&story.bundle(&world).encode(), &policy(story.log.key()));
    assert_eq!(report.class, Class::Agreeing, "{report}");
    let text = report.to_string();
    let sixth = "6. prediction came before the receipts [ok]: made openly: receipts could have been copied; 2 receipts";
    assert!(text.contains(sixth), "{text}");
    assert!(!text.contains("before the opening"), "no order that there is not is claimed: {text}");
    assert!(text.contains("note: the prediction was made openly: receipts could have been copied"), "{text}");
    let asks = support::trust::policy(&story.log, "none", "sealed yes\n");
    let (number, why) = failed(&check(&story.bundle(&world).encode(), &asks));
    assert_eq!(
        (number, why.as_str()),
        (9, "the prediction was made openly, which the policy does not accept")
    );
    let (sealed, bytes) = honest(&world);
    let asks = support::trust::policy(&sealed.log, "none", "sealed yes\n");
    assert_eq!(check(&bytes, &asks).class, Class::Agreeing);
    story.log_opening(&world);
    let (number, why) = failure(&story, &story.bundle(&world));
    assert_eq!((number, why.as_str()), (4, "the prediction is open, expected no opening among the entries"));
}

#[test]
fn a_diverging_run_is_genuine_and_not_so() {
    let world = small();
    let mut bodies = world.bodies(2);
    outcome(&mut bodies, 1, 1).parameters = world.sum_with(1, Vector::Parameters, &[(4, 1 << 22)]);
    let evidence = vec![world.meetings[1].encode()];
    let story = Story::whole(&world, &bodies, evidence, false);
    let report = check(&story.bundle(&world).encode(), &policy(story.log.key()));
    assert_eq!(report.class, Class::NotSo);
    assert_eq!(failed(&report), (9, "verdict is diverge at step 1: device 1 in phase update".into()));
    let verdict = report.verdict.unwrap();
    assert_eq!(verdict.outcome, Outcome::Diverge);
    assert!(report.caveats.iter().all(|caveat| !caveat.contains("answer")), "it did not come to the answers");
    assert!(decided_before_answers(&verdict));
    assert_eq!(verdict.findings[0].tensor.as_deref(), Some("wte"));
    assert_eq!(verdict.findings[0].word.unwrap().element, 4);
}

#[test]
fn an_expected_answer_is_told_of_only_where_answers_were_looked_at() {
    let world = small();
    let mut bodies = world.bodies(2);
    outcome(&mut bodies, 1, 1).norm ^= 1;
    for (bodies, said) in [(world.bodies(2), true), (bodies, false)] {
        let story = Story::whole(&world, &bodies, vec![], true);
        let report = check(&story.bundle(&world).encode(), &policy(story.log.key()));
        let found =
            report.caveats.iter().any(|caveat| caveat.starts_with("the expected answer to the challenge"));
        assert_eq!(found, said, "{report}");
    }
}

#[test]
fn an_invalid_run_is_genuine_and_not_so() {
    let at = NonFinite::Tap { leaf: 5, tap: 3 };
    let world = invalid_world(at);
    let story = Story::whole(&world, &invalid_bodies(&world, 2, at), vec![], false);
    let report = check(&story.bundle(&world).encode(), &policy(story.log.key()));
    assert_eq!((report.class, failed(&report).0), (Class::NotSo, 9));
    let expected = "verdict is invalid at step 1: a NaN or an infinity, leaf 5, forward.head (logits)";
    assert_eq!(failed(&report).1, expected);
    assert_eq!(report.verdict.unwrap().outcome, Outcome::Invalid);
}

/// The honest story, with another verdict signed in place of the right one.
fn with_verdict(world: &World, story: &mut Story, change: impl Fn(&mut Verdict)) -> (usize, String) {
    let mut verdict = story.verdict(world, None);
    change(&mut verdict);
    story.log_verdict_of(verdict);
    failure(story, &story.bundle(world))
}

#[test]
fn every_field_of_a_verdict_is_compared_with_the_comparison_made_again() {
    let world = small();
    let mut bodies = world.bodies(2);
    outcome(&mut bodies, 1, 1).norm ^= 1;
    type Change = fn(&mut Verdict);
    let changes: [(&str, Change); 9] = [
        ("prediction", |verdict| verdict.prediction.0[0] ^= 1),
        ("opening", |verdict| verdict.opening = None),
        ("receipts", |verdict| verdict.receipts.reverse()),
        ("steps", |verdict| verdict.steps.end += 1),
        ("outcome", |verdict| verdict.outcome = Outcome::Agree),
        ("step", |verdict| verdict.step = Some(0)),
        ("findings", |verdict| verdict.findings[0].rank = 0),
        ("missing", |verdict| verdict.missing.push("a tooth".into())),
        ("simulated", |verdict| verdict.simulated = false),
    ];
    for (field, change) in changes {
        let mut story = Story::whole(&world, &bodies, vec![], false);
        let (number, why) = with_verdict(&world, &mut story, change);
        assert_eq!(number, 8, "{field}: {why}");
        assert!(why.starts_with(&format!("the logged verdict's {field} is ")), "{why}");
    }
}

#[test]
fn a_field_is_told_whole_up_to_600_characters_and_cut_there() {
    let world = small();
    let told = |chars: usize| {
        let mut story = Story::whole(&world, &world.bodies(2), vec![], false);
        let change = |verdict: &mut Verdict| {
            verdict.missing = [150, 150, 150, chars - 466].map(|count| "x".repeat(count)).to_vec();
        };
        let (_, why) = with_verdict(&world, &mut story, change);
        let told = why.strip_prefix("the logged verdict's missing is ").unwrap();
        told.strip_suffix(", the comparison gives []").unwrap().to_owned()
    };
    assert!(told(600).ends_with("x\"]") && told(600).chars().count() == 600, "{}", told(600));
    assert!(told(601).ends_with("x\"...") && told(601).chars().count() == 603, "{}", told(601));
}

#[test]
fn refused_receipts_are_their_signers_word_and_noted() {
    let world = small();
    // One receipt of two: the other was refused.
    let mut story = Story::new();
    story.log_run(&world);
    story.log_prediction(&world, false);
    let note = story.log.checkpoint(story.log.size());
    let body = &world.bodies(2)[0];
    let receipt = story.receipt(&world, 2, body, &note);
    story.log_receipt(receipt, body, device_key(0));
    story.log_opening(&world);
    let mut verdict = story.verdict(&world, None);
    assert_eq!(verdict.outcome, Outcome::Incomplete);
    verdict.missing.push("refused: receipt for another run".into());
    story.log_verdict_of(verdict);
    let report = check(&story.bundle(&world).encode(), &policy(story.log.key()));
    let (number, why) = failed(&report);
    assert_eq!(number, 9, "{report}");
    assert!(why.contains("device 1 of 2: no receipt; refused: receipt for another run"), "{why}");
    assert!(report.caveats.iter().any(|caveat| caveat.contains("refused")));
}

#[test]
fn keys_count_only_in_their_roles() {
    let world = small();
    let (story, bytes) = honest(&world);
    let key = |seed: u8| schemas::key::SecretKey::from_seed([seed; 32]).public();
    let log = story.log.key().clone();
    let predictor = predictor_key().public();
    let devices = vec![device_key(0).public(), device_key(1).public()];
    let of = |predictors, devices, signers| {
        let policy = Policy::new(log.clone(), predictors, devices, signers).unwrap();
        check(&bytes, &policy)
    };
    assert_eq!(of(vec![predictor], devices.clone(), vec![]).class, Class::Agreeing);
    assert!(!of(vec![predictor], devices.clone(), vec![]).to_string().contains("no device keys"));
    for (report, kind) in [
        (of(vec![key(99)], vec![], vec![]), "run"),
        (of(vec![predictor], devices[..1].to_vec(), vec![]), "receipt"),
        (of(vec![predictor], devices.clone(), devices.clone()), "verdict"),
    ] {
        let (number, why) = failed(&report);
        assert_eq!((report.class, number), (Class::NotSo, 4));
        assert!(why.contains(&format!("the {kind} is signed by ed25519:")), "{why}");
    }
    let other_log = Log::new("log.example/test", 2);
    let (number, why) = failed(&check(&bytes, &policy(other_log.key())));
    assert_eq!((number, why.contains("no signature of a known key")), (2, true), "{why}");
}

#[test]
fn unusable_policies_are_refused() {
    let log = Story::new().log.key().to_string();
    let key = predictor_key().public().to_string();
    assert!(Policy::parse(&format!("{log}\n"), &[&key], &[&key], &[&key]).is_ok());
    assert!(matches!(Policy::parse(&log, &[], &[], &[]), Err(PolicyError::NoPredictor)));
    assert!(matches!(Policy::parse("log", &[&key], &[], &[]), Err(PolicyError::Log { .. })));
    assert!(matches!(Policy::parse(&log, &["ed25519:00"], &[], &[]), Err(PolicyError::Key { .. })));
    let weak = format!("ed25519:{}", "00".repeat(32));
    assert!(matches!(
        Policy::parse(&log, &[&key], &[&weak], &[]),
        Err(PolicyError::Key { role: "device", .. })
    ));
}

#[test]
fn roles_follow_from_kind_and_position() {
    let world = small();
    let (story, _) = honest(&world);
    let bundle = story.bundle(&world);
    let kinds = |bundle: &Bundle| {
        let (number, why) = failure(&story, bundle);
        assert_eq!(number, 4, "{why}");
        why
    };
    for absent in [0, 1, 5] {
        let mut fewer = bundle.clone();
        fewer.entries.remove(absent);
        assert!(kinds(&fewer).starts_with("expected entries run, prediction"));
    }
    let mut sealed = bundle.clone();
    sealed.entries.remove(2);
    assert_eq!(kinds(&sealed), "the prediction is sealed, expected an opening among the entries");
    let mut twice = bundle.clone();
    twice.entries.push(bundle.entries[5].clone());
    assert!(kinds(&twice).ends_with("found run, prediction, opening, receipt, receipt, verdict, verdict"));
    let mut foreign = bundle.clone();
    foreign.entries[0] = story.log.proven(0, story.log.size());
    assert!(kinds(&foreign).starts_with("entry 0: statement: "), "genesis is no statement");
}

#[test]
fn a_receipt_left_out_or_put_in_the_wrong_place_is_noticed() {
    let world = small();
    let (story, _) = honest(&world);
    let bundle = story.bundle(&world);
    let mut swapped = bundle.clone();
    swapped.entries.swap(3, 4);
    let (number, why) = failure(&story, &swapped);
    assert_eq!(
        (number, why.as_str()),
        (6, "expected receipts by ascending rank, found device 0 after device 1")
    );
    let mut fewer = bundle.clone();
    fewer.entries.remove(3);
    let (number, why) = failure(&story, &fewer);
    assert_eq!((number, why.ends_with("is named by no entry")), (7, true), "{why}");
    let unnamed = world.bodies(2)[0].encode();
    fewer.attachments.retain(|bytes| *bytes != unnamed);
    let (number, why) = failure(&story, &fewer);
    assert_eq!((number, why.starts_with("the logged verdict's receipts is ")), (8, true), "{why}");
}

#[test]
fn attachments_are_exactly_those_named() {
    let world = small();
    let (story, _) = honest(&world);
    let bundle = story.bundle(&world);
    let mut more = bundle.clone();
    more.attachments.push(b"extra".to_vec());
    more.attachments.sort_by_key(|bytes| schemas::digest::AttachmentDigest::of(bytes));
    assert_eq!(failure(&story, &more).0, 7);
    let body = world.body.encode();
    for at in 0..bundle.attachments.len() {
        let mut fewer = bundle.clone();
        let expected = if fewer.attachments.remove(at) == body { 5 } else { 7 };
        let (number, why) = failure(&story, &fewer);
        assert_eq!(number, expected);
        assert!(why.contains("is not among the attachments: expected "), "{why}");
    }
}

#[test]
fn another_plan_and_another_opening_are_told_apart() {
    let world = small();
    let (story, _) = honest(&world);
    let mut other = story.bundle(&world);
    other.plan = World::new(2, 2, 3).plan.encode();
    let (number, why) = failure(&story, &other);
    assert_eq!((number, why.starts_with("the plan has digest ")), (5, true), "{why}");

    // The predictor opens with another salt, then with another prediction's body.
    for change in 0..2 {
        let mut story = Story::whole(&world, &world.bodies(2), vec![], false);
        let bytes = &story.log.entries[story.opening_index.unwrap() as usize];
        let Payload::Opening(mut opening) = Statement::open(bytes).unwrap().payload else { unreachable!() };
        match change {
            0 => opening.open.salt.0[5] ^= 4,
            _ => opening.prediction.0[5] ^= 4,
        }
        let index = story.sign(Payload::Opening(opening), &predictor_key());
        story.opening_index = Some(index);
        let (number, why) = failure(&story, &story.bundle(&world));
        let expected = ["salt and body have seal ", "the opening opens prediction "][change];
        assert_eq!((number, why.starts_with(expected)), (5, true), "{why}");
    }
}

#[test]
fn an_opening_by_another_trusted_predictor_is_refused() {
    let world = small();
    let mut story = Story::whole(&world, &world.bodies(2), vec![], false);
    let bytes = &story.log.entries[story.opening_index.unwrap() as usize];
    let payload = Statement::open(bytes).unwrap().payload;
    story.opening_index = Some(story.sign(payload, &device_key(9)));
    let keys = vec![predictor_key().public(), device_key(9).public()];
    let policy = Policy::new(story.log.key().clone(), keys, vec![], vec![]).unwrap();
    let (number, why) = failed(&check(&story.bundle(&world).encode(), &policy));
    assert_eq!((number, why.starts_with("the opening is signed by ")), (4, true), "{why}");
}

#[test]
fn a_verdict_that_came_to_the_answers_is_told_from_one_decided_before() {
    let world = small();
    // Two answers to one challenge and no replay: incomplete because of the answers.
    let mut story = Story::new();
    story.log_run(&world);
    story.log_prediction(&world, false);
    let note = story.log.checkpoint(story.log.size());
    for body in world.bodies(2) {
        let mut receipt = story.receipt(&world, 2, &body, &note);
        receipt.answer.as_mut().unwrap().reduced.a ^= body.rank;
        story.log_receipt(receipt, &body, device_key(body.rank));
    }
    let verdict = story.verdict(&world, None);
    assert_eq!(verdict.outcome, Outcome::Incomplete);
    assert!(!decided_before_answers(&verdict), "{:?}", verdict.missing);
    // A receipt that is not there: incomplete before anybody looked at answers.
    story.receipts.pop();
    let verdict = story.verdict(&world, None);
    assert_eq!(verdict.outcome, Outcome::Incomplete);
    assert!(decided_before_answers(&verdict), "{:?}", verdict.missing);
}
