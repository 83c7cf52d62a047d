//! One step of a sealed prediction, shown while the others stay sealed: each check broken alone, and what is not shown.

mod support;

use schemas::digest::{Salt, StepSeal};
use schemas::key::PublicKey;
use schemas::object::Object as _;
use schemas::opened::OpenedStep;
use schemas::prediction::{Prediction, step_salt, step_seal};
use schemas::record::NonFinite;
use schemas::run::Steps;
use schemas::statement::{Payload, Statement};
use support::log::{Log, witness};
use support::story::{SALT, Story, device_key, policy, predictor_key};
use support::{World, invalid_world};
use tlog::note::VerifierKey;
use verify::opened::{begins, check};
use verify::policy::Policy;
use verify::report::{Class, State};

fn fixture(path: &str) -> Vec<u8> {
    std::fs::read(format!("{}/../fixtures/{path}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

/// The fixtures' log and predictor.
fn fixtures_policy() -> Policy {
    let log = VerifierKey::parse(String::from_utf8(fixture("checkpoint/log.vkey")).unwrap().trim()).unwrap();
    let predictor = Statement::open(&fixture("statement/prediction.cbor")).unwrap().signer;
    Policy::new(log, vec![predictor], vec![], vec![]).unwrap()
}

/// A log with a run and its sealed prediction.
fn begun(world: &World) -> Story {
    let mut story = Story::new();
    story.log_run(world);
    story.log.append(b"somebody else's".to_vec());
    story.log_prediction(world, false);
    story
}

/// Opens one step of the prediction that a story has logged.
fn opened(story: &Story, world: &World, step: u64) -> OpenedStep {
    let size = story.log.size();
    let place = (step - world.body.first) as usize;
    let mut seals = world.body.step_seals(SALT);
    seals.remove(place);
    OpenedStep {
        checkpoint: story.log.checkpoint(size),
        prediction: story.log.proven(story.prediction_index, size),
        run: world.run.clone(),
        step,
        salt: step_salt(SALT, step),
        record: world.body.records[place].clone(),
        seals,
    }
}

/// The number of the check that fails and what it says.
fn failure(object: &OpenedStep, policy: &Policy) -> (usize, String) {
    let report = check(&object.encode(), policy);
    assert_eq!((report.class, &report.opened), (Class::NotSo, &None), "{report}");
    let failed = report.failure().unwrap();
    let State::Fails(why) = &failed.state else { unreachable!() };
    assert_eq!(report.summary(), format!("not verified: check {}: {why}", failed.number));
    (failed.number, why.clone())
}

#[test]
fn the_fixture_is_step_1_as_sealed() {
    let bytes = fixture("opened/step.cbor");
    assert!(begins(&bytes) && !begins(&fixture("bundle/agree.cbor")) && !begins(b""));
    let report = check(&bytes, &fixtures_policy());
    assert_eq!(report.class, Class::Agreeing, "{report}");
    let step = report.opened.as_ref().unwrap();
    assert_eq!((step.step, step.index, step.records, step.by_s), (1, 2, 3, None));
    let text = report.to_string();
    for line in [
        "note: no order is proven: who has this record can copy it into a receipt that is made later\n",
        "\n  leaf 0        loss 2.25 (0x40100000), trace bc2f1ff0",
        "\n  node 1 of 2   ",
        "\n  norm          1.375 (0x3fb00000)\n",
    ] {
        assert!(text.contains(line), "{line} is not in {text}");
    }
    assert!(text.ends_with(&format!("as sealed by {} in entry 2\n", step.signer)), "{text}");
    let json = verify::json::opened(&report);
    assert_eq!((&json["status"], &json["opened"]["step"]), (&0.into(), &1.into()));
    assert_eq!(json["opened"]["record"]["leaves"][0]["loss"]["value"], "2.25");
    assert_eq!(json["opened"]["record"]["outcome"]["nodes"][2]["name"], "root");
}

#[test]
fn no_bit_of_a_file_can_be_changed_and_no_byte_left_out() {
    let (file, policy) = (fixture("opened/step.cbor"), fixtures_policy());
    for at in 0..file.len() {
        for bit in 0..8 {
            let mut changed = file.clone();
            changed[at] ^= 1 << bit;
            assert_ne!(check(&changed, &policy).class, Class::Agreeing, "byte {at}, bit {bit}");
        }
        assert_eq!(check(&file[..at], &policy).class, Class::CouldNot, "cut at {at}");
    }
}

#[test]
fn each_step_of_a_prediction_can_be_shown_alone() {
    let world = World::new(4, 2, 5);
    let story = begun(&world);
    for step in 0..5 {
        let report = check(&opened(&story, &world, step).encode(), &policy(story.log.key()));
        assert_eq!(report.class, Class::Agreeing, "{report}");
        let found = report.opened.unwrap();
        assert_eq!((found.step, &found.record), (step, &world.body.records[step as usize]));
        assert_eq!(report.caveats.len(), 2);
    }
    // The only step of a prediction: there are no others.
    let world = World::new(2, 1, 1);
    let story = begun(&world);
    let report = check(&opened(&story, &world, 0).encode(), &policy(story.log.key()));
    assert_eq!(report.class, Class::Agreeing, "{report}");
}

/// Which other records' seals are explained by a salt that stands anywhere in some bytes, as a step's own or as the
/// prediction's. The records are known: anybody can compute them.
fn confirmed(bytes: &[u8], world: &World, seals: &[StepSeal], shown: u64) -> Vec<u64> {
    let others = (0..).zip(&world.body.records).filter(|(step, _)| *step != shown);
    let explained = |(step, record): &(u64, &schemas::record::StepRecord)| {
        bytes.windows(32).any(|window| {
            let salt = Salt(window.try_into().unwrap());
            [salt, step_salt(salt, *step)]
                .into_iter()
                .any(|salt| seals.contains(&step_seal(world.id, *step, salt, record)))
        })
    };
    others.filter(explained).map(|(step, _)| step).collect()
}

#[test]
fn neither_the_salt_nor_the_record_of_another_step_can_be_had_from_a_file() {
    let world = World::new(4, 2, 4);
    let story = begun(&world);
    let object = opened(&story, &world, 2);
    let bytes = object.encode();
    assert_eq!(confirmed(&bytes, &world, &object.seals, 2), [0_u64; 0]);
    // The search does find what is there: another step's salt, or the prediction's.
    let with = |salt: Salt| confirmed(&[&bytes[..], &salt.0].concat(), &world, &object.seals, 2);
    assert_eq!(with(step_salt(SALT, 1)), [1]);
    assert_eq!(with(SALT), [0, 1, 3]);
    // Nor does any digest of another record stand in it.
    let there = |digest: &[u8]| bytes.windows(digest.len()).any(|window| window == digest);
    assert!(there(&world.body.records[2].traces[0].0), "the shown one does");
    for step in [0, 1, 3] {
        let record = &world.body.records[step];
        let outcome = record.outcome.as_ref().unwrap();
        assert!(record.traces.iter().all(|trace| !there(&trace.0)), "step {step}");
        assert!(outcome.nodes.iter().all(|node| !there(&node.0)), "step {step}");
        for digest in [outcome.reduced.0, outcome.parameters.0, outcome.meeting.0] {
            assert!(!there(&digest), "step {step}");
        }
        assert!(!there(&outcome.first_moment.to_bytes()), "step {step}");
    }
}

#[test]
fn each_check_fails_for_its_own_reason() {
    let world = World::new(4, 2, 4);
    let story = begun(&world);
    let good = opened(&story, &world, 2);
    let own = policy(story.log.key());
    let fails = |change: &dyn Fn(&mut OpenedStep)| {
        let mut object = good.clone();
        change(&mut object);
        failure(&object, &own)
    };
    let foreign = Log::new("log.example/test", 2);
    let (number, why) = failure(&good, &policy(foreign.key()));
    assert_eq!((number, why.as_str()), (2, "note has no signature of a known key (1 of unknown keys)"));
    assert_eq!(fails(&|object| object.prediction.index -= 1).0, 3);
    let other = Policy::new(story.log.key().clone(), vec![device_key(0).public()], vec![], vec![]).unwrap();
    let (number, why) = failure(&good, &other);
    assert_eq!(number, 4);
    assert!(why.starts_with("entry 3: the prediction is signed by ed25519:"), "{why}");
    let run_entry = |object: &mut OpenedStep| {
        object.prediction = story.log.proven(story.run_index, story.log.size());
    };
    assert_eq!(fails(&run_entry), (4, "entry 1 is a run, expected a prediction".into()));
    let (number, why) = fails(&|object| object.run.name = "other".into());
    assert_eq!((number, why.starts_with("the run has id ")), (5, true), "{why}");
    let step = |step| fails(&|object: &mut OpenedStep| object.step = step);
    assert_eq!(step(4), (6, "step 4, expected one of the steps 0..4 of the prediction".into()));
    assert_eq!(step(1).0, 6);
    let more = |object: &mut OpenedStep| object.seals.push(StepSeal([7; 32]));
    let expected = "5 records are sealed, expected at most 4, one for each step of the prediction";
    assert_eq!(fails(&more), (6, expected.into()));
    // As many records as before the step, and none for it.
    let (number, why) = fails(&|object| object.seals.truncate(1));
    assert_eq!((number, why.as_str()), (6, "step 2, expected one of the steps 0..2 of the prediction"));
    for change in [
        (|object: &mut OpenedStep| object.salt = SALT) as fn(&mut OpenedStep),
        |object| object.record.losses[1] ^= 1,
        |object| object.seals.swap(0, 1),
        |object| object.seals.truncate(2),
    ] {
        let (number, why) = fails(&change);
        assert_eq!(
            (number, why.starts_with("salt, record and the others' seals have seal ")),
            (6, true),
            "{why}"
        );
    }
}

/// A prediction of `world`'s body as it says itself, of these steps.
fn log_prediction(story: &mut Story, world: &World, steps: Steps) {
    let prediction = Prediction {
        run: world.id,
        steps,
        seal: world.body.seal(SALT),
        reveal_by: 2_000_000_000,
        by: None,
        open: None,
    };
    story.prediction_index = story.sign(Payload::Prediction(prediction), &predictor_key());
}

#[test]
fn a_record_that_cannot_be_of_the_run_is_refused_although_it_was_sealed() {
    let refused = |world: &World, steps: Steps, step: u64| {
        let mut story = Story::new();
        log_prediction(&mut story, world, steps);
        failure(&opened(&story, world, step), &policy(story.log.key()))
    };
    let all = Steps { first: 0, end: 3 };
    let mut world = World::new(4, 2, 3);
    let (number, why) = refused(&world, Steps { first: 0, end: 4 }, 1);
    assert_eq!((number, why.as_str()), (5, "the run has 3 steps, the prediction is of steps 0..4"));
    world.body.records[1].traces.pop();
    world.body.records[1].losses.pop();
    let (number, why) = refused(&world, all, 1);
    assert_eq!((number, why.as_str()), (7, "leaves in the record of step 1: expected 4, found 3"));

    let mut world = World::new(4, 2, 3);
    world.body.records[1].outcome.as_mut().unwrap().nodes.truncate(1);
    let (number, why) = refused(&world, all, 1);
    assert_eq!((number, why.as_str()), (7, "tree nodes in the record of step 1: expected 3, found 1"));

    let mut world = World::new(4, 2, 3);
    world.body.records[1].non_finite = Some(NonFinite::Update { stage: 1 });
    let (number, why) = refused(&world, all, 1);
    let expected = "the record says that step 1 is invalid, expected no record after it, found 1";
    assert_eq!((number, why.as_str()), (7, expected));

    let mut world = World::new(4, 2, 3);
    world.body.records.truncate(2);
    let (number, why) = refused(&world, all, 1);
    let expected =
        "step 1 has the last record, expected one that says that the step is invalid, or the step 2";
    assert_eq!((number, why.as_str()), (7, expected));
}

#[test]
fn of_a_prediction_that_ends_early_the_end_is_shown_or_said_not_to_be() {
    for at in [NonFinite::Tap { leaf: 5, tap: 3 }, NonFinite::Update { stage: 2 }] {
        let world = invalid_world(at);
        let story = begun(&world);
        let report = |step| check(&opened(&story, &world, step).encode(), &policy(story.log.key()));
        let last = report(1);
        assert_eq!((last.class, last.caveats.len()), (Class::Agreeing, 2), "{last}");
        assert!(last.to_string().contains("\n  not finite    "), "{last}");
        let before = report(0);
        assert_eq!((before.class, before.caveats.len()), (Class::Agreeing, 3), "{before}");
        let caveat = "the sealed records end at step 1, of steps 0..3: that this step is invalid";
        assert!(before.caveats[2].starts_with(caveat), "{before}");
    }
}

#[test]
fn a_policys_quorum_and_profiles_count_and_its_witnesses_prove_a_time() {
    let world = World::new(2, 2, 2);
    let story = begun(&world);
    let mut object = opened(&story, &world, 0);
    let predictor: PublicKey = predictor_key().public();
    let policy = |lines: &str| {
        let witnesses: String =
            (0..3).map(|number| format!("witness w{number} {}\n", witness(number).verifier())).collect();
        let log = story.log.key();
        let text = format!(
            "log {log}\n{witnesses}group two 2 w0 w1 w2\nquorum two\npredictor {predictor}\nfaulty 1\n{lines}"
        );
        verify::policy_file::parse(text.as_bytes()).unwrap()
    };
    let (number, why) = failure(&object, &policy(""));
    assert_eq!((number, why.ends_with("no quorum of the policy")), (2, true), "{why}");
    object.checkpoint = story.log.cosigned(story.log.size(), &[(0, 1_800_000_000), (1, 1_800_000_007)]);
    let report = check(&object.encode(), &policy(""));
    assert_eq!(report.opened.as_ref().unwrap().by_s, Some(1_800_000_007), "{report}");
    assert!(report.to_string().contains("time: the prediction was in the log by 2027-01-15T08:00:07Z\n"));
    assert_eq!(verify::json::opened(&report)["opened"]["prediction_by_unix_s"], 1_800_000_007);
    assert_eq!(check(&object.encode(), &policy("profile f32-fma\n")).class, Class::Agreeing);
    // What is asked of bundles alone is not asked here.
    assert_eq!(check(&object.encode(), &policy("complete yes\nsimulated no\n")).class, Class::Agreeing);

    let mut world = World::new(2, 2, 2);
    world.run.profile = "other".into();
    (world.id, world.body.run) = (world.run.id(), world.run.id());
    let mut foreign = Story::new();
    log_prediction(&mut foreign, &world, world.steps);
    let mut object = opened(&foreign, &world, 0);
    object.checkpoint = foreign.log.cosigned(foreign.log.size(), &[(0, 1), (1, 2)]);
    assert_eq!(check(&object.encode(), &policy("")).class, Class::Agreeing);
    let (number, why) = failure(&object, &policy("profile f32-fma\n"));
    assert_eq!((number, why.as_str()), (5, "the run's profile is \"other\", the policy accepts f32-fma"));
}
