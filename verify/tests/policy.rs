//! Policies and what they change: quorums, times, profiles, simulated receipts; and bundles of version 2.

mod support;

use schemas::bundle::Bundle;
use schemas::object::Object as _;
use schemas::statement::Payload;
use support::World;
use support::log::Log;
use support::story::{Story, device_key, predictor_key};
use support::trust::{failed, file, policy};
use verify::answered::Asked;
use verify::bundle::check;
use verify::policy_file::parse;
use verify::report::{Class, State};
use verify::times::Times;

const FIRST: [(u8, u64); 2] = [(0, 1_800_000_000), (1, 1_800_000_007)];
const LATER: [(u8, u64); 2] = [(0, 1_800_000_100), (1, 1_800_000_090)];
const LAST: [(u8, u64); 2] = [(0, 1_800_000_200), (1, 1_800_000_201)];

fn small() -> World {
    World::new(2, 2, 2)
}

/// An honest bundle of version 2: the prediction is in a cosigned tree at once, the receipts hold later cosignatures.
fn honest(world: &World) -> (Story, Bundle) {
    let mut story = Story::new();
    story.cosigners = LATER.to_vec();
    story.log_run(world);
    story.log_prediction(world, false);
    story.log.append(b"somebody else's".to_vec());
    let note = story.log.cosigned(story.log.size(), &LATER);
    for body in world.bodies(2) {
        let receipt = story.receipt(world, 2, &body, &note);
        story.log_receipt(receipt, &body, device_key(body.rank));
    }
    story.log_opening(world);
    story.log_verdict(world, None);
    let mut bundle = story.bundle_2(world, &FIRST, &LAST);
    story.leave_out_implied(world, &mut bundle);
    (story, bundle)
}

#[test]
fn a_cosigned_bundle_proves_times_and_the_only_prediction() {
    let world = small();
    let (story, bundle) = honest(&world);
    assert_eq!(bundle.covers.len(), 2, "the first cosigned tree, and the one that the receipts answer");
    for (faulty, by, after, verdict) in [(0, 0, 100, 200), (1, 7, 90, 201)] {
        let policy = policy(&story.log, "two", &format!("faulty {faulty}\ncomplete yes\n"));
        let report = check(&bundle.encode(), &policy);
        assert_eq!(report.class, Class::Agreeing, "{report}");
        let at = |second: u64| Some(1_800_000_000 + second);
        let times = Times {
            witnesses: 3,
            faulty,
            prediction_by_s: at(by),
            receipts_after_s: at(after),
            verdict_by_s: at(verdict),
        };
        assert_eq!((times.lead_s(), report.times.as_ref()), (Some(after - by), Some(&times)));
        let text = report.to_string();
        assert!(text.contains(&format!("time: lead: at least {} s from", after - by)), "{text}");
        assert!(text.contains(&format!("if at most {faulty} of 3 witnesses are wrong")), "{text}");
        assert!(text.contains("leaves no prediction out is the log's word, signed"), "{text}");
        let json = verify::json::report(&report);
        assert_eq!(json["times"]["lead_s"], after - by);
        assert_eq!(json["register"], bundle.completeness.as_ref().unwrap().register.index);
    }
    let policy = policy(&story.log, "two", "faulty 2\n");
    let report = check(&bundle.encode(), &policy);
    let text = report.to_string();
    assert_eq!(report.class, Class::Agreeing, "{report}");
    assert!(
        text.contains("time: by when the prediction was in the log is not proven: no 3 witnesses"),
        "{text}"
    );
    assert!(text.contains("time: after when the receipts were signed is not proven"), "{text}");
    let report = check(&bundle.encode(), &support::story::policy(story.log.key()));
    assert!(
        report.to_string().contains("time: no time is proven: the policy names no witnesses\n"),
        "{report}"
    );
}

#[test]
fn a_missing_quorum_is_told_with_the_names_of_who_is_missing() {
    let world = small();
    let (mut story, bundle) = honest(&world);
    let two = policy(&story.log, "two", "");
    let why = failed(&check(&bundle.encode(), &policy(&story.log, "w2", "")));
    let size = story.log.size();
    let expected = format!(
        "the checkpoint of size {size} is cosigned by w0, w1, and not by w2: no quorum of the policy"
    );
    assert_eq!(why, (2, expected));
    let mut fewer = bundle.clone();
    fewer.checkpoint = story.log.cosigned(size, &LAST[..1]);
    let report = check(&fewer.encode(), &two);
    assert_eq!((report.class, failed(&report).0), (Class::NotSo, 2));
    assert!(failed(&report).1.contains("cosigned by w0, and not by w1, w2: "), "{report}");
    // A cover that too few have cosigned; one by nobody whom the policy knows.
    let mut fewer = bundle.clone();
    fewer.covers[0].checkpoint = Some(story.log.cosigned(bundle.covers[0].tree_size, &FIRST[1..]));
    assert_eq!(failed(&check(&fewer.encode(), &two)).0, 6);
    fewer.covers[0].checkpoint = Some(story.log.cosigned(bundle.covers[0].tree_size, &[(7, 5)]));
    assert!(failed(&check(&fewer.encode(), &two)).1.contains("cosigned by nobody, and not by w0, w1, w2"));
    // A bundle of the first version may be cosigned, too.
    let mut first = story.bundle(&world);
    assert_eq!(failed(&check(&first.encode(), &two)).0, 2);
    first.checkpoint = story.log.cosigned(story.log.size(), &LAST);
    let report = check(&first.encode(), &two);
    assert_eq!(report.class, Class::Agreeing, "{report}");
    assert_eq!(report.times.unwrap().prediction_by_s, Some(1_800_000_090));
    story.log.append(b"more".to_vec());
}

#[test]
fn no_byte_can_be_changed_and_none_left_out_under_a_policy_that_asks_for_the_witnesses() {
    let world = small();
    let (story, bundle) = honest(&world);
    let policy = policy(&story.log, "two", "");
    let bytes = bundle.encode();
    assert_eq!(check(&bytes, &policy).class, Class::Agreeing);
    // Not the other version but for the number, either.
    let name = b"tallystick_bundle";
    let version = bytes.windows(name.len()).position(|window| window == name).unwrap() + name.len();
    let mut first = bytes.clone();
    first[version] = 1;
    assert_eq!(check(&first, &policy).class, Class::CouldNot);
    let mut by_check = [0; 10];
    for at in 0..bytes.len() {
        let change = [0x01, 0x03, 0x80][at % 3];
        let mut flipped = bytes.clone();
        flipped[at] ^= change;
        let report = check(&flipped, &policy);
        assert_ne!(report.class, Class::Agreeing, "byte {at} xor {change:#x}");
        by_check[failed(&report).0] += 1;
        assert_eq!(check(&bytes[..at], &policy).class, Class::CouldNot, "cut at {at}");
    }
    assert!(by_check[1] > 0 && by_check[2] > 0 && by_check[6] > 0, "{by_check:?}");
}

#[test]
fn completeness_is_of_this_run_under_this_checkpoint_and_later_than_the_opening() {
    let world = small();
    let (story, bundle) = honest(&world);
    let asks = policy(&story.log, "two", "complete yes\n");
    let why = |change: &dyn Fn(&mut Bundle)| {
        let mut changed = bundle.clone();
        change(&mut changed);
        let (number, why) = failed(&check(&changed.encode(), &asks));
        assert_eq!(number, 6, "{why}");
        why
    };
    let none = why(&|bundle| bundle.completeness = None);
    assert_eq!(none, "the policy asks for completeness, found a bundle without it");
    let other = why(&|bundle| {
        let size = story.log.size();
        bundle.completeness.as_mut().unwrap().checkpoint = story.log.checkpoint(size);
    });
    assert_eq!(other, "completeness: expected the bundle's checkpoint, found another");
    let hidden = why(&|bundle| bundle.completeness.as_mut().unwrap().predictions.clear());
    assert!(hidden.starts_with("completeness: 0 predictions with root "), "{hidden}");
    let verdict = why(&|bundle| bundle.completeness.as_mut().unwrap().register = bundle.entries[5].clone());
    assert!(verdict.ends_with("is a verdict, expected a register"), "{verdict}");

    // A register from before the opening; then a second prediction, which an honest log would not have taken.
    let mut early = Story::new();
    early.log_run(&world);
    early.log_prediction(&world, false);
    let before = early.register();
    let mut later = Story::within(early.log);
    (later.run_index, later.prediction_index) = (early.run_index, early.prediction_index);
    let note = later.log.checkpoint(later.log.size());
    for body in world.bodies(2) {
        let receipt = later.receipt(&world, 2, &body, &note);
        later.log_receipt(receipt, &body, device_key(body.rank));
    }
    later.log_opening(&world);
    later.log_verdict(&world, None);
    let mut bundle = later.bundle_2(&world, &FIRST, &LAST);
    let last = bundle.completeness.as_ref().unwrap().register.index;
    bundle.completeness.as_mut().unwrap().register = later.log.proven(before, later.log.size());
    let (number, why) = failed(&check(&bundle.encode(), &policy(&later.log, "two", "")));
    assert_eq!(number, 6);
    assert!(why.starts_with("completeness: expected a register after entry "), "{why} {last}");

    let mut twice = Story::new();
    twice.tell(&world, &world.bodies(2), vec![], false);
    let mut second = twice.prediction.clone().unwrap();
    second.reveal_by += 1;
    let index = twice.sign(Payload::Prediction(second), &predictor_key());
    let bundle = twice.bundle_2(&world, &FIRST, &LAST);
    let (number, why) = failed(&check(&bundle.encode(), &policy(&twice.log, "two", "")));
    assert_eq!(number, 6);
    let expected = format!("found {}, {index}", twice.prediction_index);
    assert!(why.ends_with(&expected), "{why}");
    assert!(why.contains("as the only prediction of these steps by its signer"), "{why}");
    // Under another key it is another's, and is not seen.
    let mut stranger = Story::new();
    stranger.tell(&world, &world.bodies(2), vec![], false);
    let prediction = stranger.prediction.clone().unwrap();
    stranger.sign(Payload::Prediction(prediction), &device_key(5));
    let bundle = stranger.bundle_2(&world, &FIRST, &LAST);
    let report = check(&bundle.encode(), &policy(&stranger.log, "two", ""));
    assert_eq!(report.class, Class::Agreeing, "{report}");
}

#[test]
fn bodies_that_follow_from_the_prediction_are_left_out_and_others_stay() {
    let world = World::new(4, 4, 3);
    // Of two partners that both depart, nobody else has the nodes: their folds are then 0 and must be.
    let cases: [(u64, &[usize]); 6] = [(4, &[]), (2, &[]), (1, &[]), (4, &[2]), (2, &[0]), (4, &[2, 3])];
    for (devices, changed) in cases {
        let mut bodies = world.bodies(devices);
        for rank in changed {
            support::outcome(&mut bodies, *rank, 1).norm ^= 1;
        }
        let mut story = Story::new();
        story.tell(&world, &bodies, vec![], false);
        let mut bundle = story.bundle_2(&world, &FIRST, &LAST);
        let whole = check(&bundle.encode(), &policy(&story.log, "two", ""));
        story.leave_out_implied(&world, &mut bundle);
        let report = check(&bundle.encode(), &policy(&story.log, "two", ""));
        assert_eq!((report.class, &report.verdict), (whole.class, &whole.verdict), "{report}");
        let left = bundle.attachments.len() - 1;
        assert_eq!(left, changed.len(), "{devices} devices");
        let seventh = &report.checks[6].state;
        let count = devices as usize - left;
        let what = format!("bodies of {count} receipt");
        assert!(matches!(seventh, State::Holds(text) if text.contains(&what)), "{report}");
        // A fold that nobody speaks for, one more, one less, and another in place of a right one.
        let fails = |change: &dyn Fn(&mut Vec<schemas::fold::Fold>)| {
            let mut other = bundle.clone();
            change(&mut other.folds);
            let report = check(&other.encode(), &policy(&story.log, "two", ""));
            assert_eq!(failed(&report).0, 7, "{report}");
        };
        fails(&|folds| folds.truncate(folds.len() - 1));
        fails(&|folds| folds.push(folds[0]));
        for at in 0..bundle.folds.len() {
            fails(&|folds| folds[at].b ^= 1);
        }
    }
}

#[test]
fn simulated_receipts_count_only_if_the_policy_says_so() {
    let world = small();
    let (story, bundle) = honest(&world);
    let report = check(&bundle.encode(), &policy(&story.log, "two", "simulated no\n"));
    let why = "verdict is agree by receipts of a simulated device, which the policy does not accept";
    assert_eq!((report.class, failed(&report)), (Class::NotSo, (9, why.into())));
    assert_eq!(report.summary(), format!("genuine, but {why}"));
    let report = check(&bundle.encode(), &policy(&story.log, "two", "simulated yes\n"));
    assert_eq!(report.class, Class::Agreeing, "{report}");
}

#[test]
fn the_first_log_key_that_signed_will_do() {
    let world = small();
    let (story, bundle) = honest(&world);
    let [other, stranger] =
        [("log.example/test", 2), ("log.example/other", 3)].map(|(name, seed)| Log::new(name, seed));
    let lines = format!("log {}\nlog {}\n", other.key(), stranger.key());
    let report = check(&bundle.encode(), &policy(&story.log, "two", &lines));
    assert_eq!(report.class, Class::Agreeing, "{report}");
    let text = file(&other, "two", &format!("log {}\n", stranger.key()));
    assert_eq!(failed(&check(&bundle.encode(), &parse(text.as_bytes()).unwrap())).0, 2);
}

#[test]
fn a_policy_file_is_read_strictly_and_wrong_lines_are_told_by_number() {
    let log = Log::new("log.example/test", 1);
    let key = device_key(0).public();
    let with = |lines: &str| parse(file(&log, "two", lines).as_bytes()).map_err(|error| error.to_string());
    let every = format!(
        "device {key}\n\tverdict\t{key}\nprofile f32-fma\nsimulated no\ncomplete yes\nsealed yes\nfaulty 2\n"
    );
    let policy = with(&every).unwrap();
    assert_eq!((policy.devices(), policy.verdict_signers()), (&[key][..], &[key][..]));
    assert_eq!((policy.profiles(), policy.simulated()), (&["f32-fma".to_owned()][..], false));
    assert_eq!((policy.complete(), policy.sealed(), policy.faulty()), (true, true, 2));
    let plain = with("").unwrap();
    assert_eq!(
        (plain.simulated(), plain.complete(), plain.sealed(), plain.faulty()),
        (true, false, false, 0)
    );
    assert_eq!(plain.verdict_signers(), plain.predictors());
    // The lines before are ten.
    for (lines, why) in [
        ("devices x\n", "line 10: the line begins with \"devices\", expected log, witness, "),
        ("device\n", "line 10: the line has 1 items, expected `device <key>`"),
        ("device a b\n", "line 10: the line has 3 items, expected `device <key>`"),
        ("\ndevice ed25519:00\n", "line 11: "),
        ("profile bf16\n", "line 10: profile \"bf16\" is not known here; expected \"f32-fma\""),
        ("profile f32-fma\nprofile f32-fma\n", "line 11: said on line 10 already; expected it once"),
        ("simulated maybe\n", "line 10: expected yes or no, found \"maybe\""),
        ("simulated No\n", "line 10: expected yes or no, found \"No\""),
        ("simulated YES\n", "line 10: expected yes or no, found \"YES\""),
        ("simulated no\n#\nsimulated no\n", "line 12: said on line 10 already"),
        ("faulty 01\n", "line 10: expected a decimal without leading zeros, found \"01\""),
        ("faulty -1\n", "line 10: expected a decimal"),
        ("faulty 3\n", "line 10: faulty 3: expected a number below that of the policy's witnesses, 3"),
        ("quorum two\n", "line 10: a second quorum line; expected one"),
        (
            "complete yes\nwitness w0\n",
            "line 11: the line has 2 items, expected `witness <name> <vkey> [<url>]`",
        ),
        ("complete yes", "line 10: the line does not end in a line feed"),
        ("device \u{7f}\n", "line 10: expected text of UTF-8 without control characters"),
        ("complete\u{0} yes\n", "line 10: expected text"),
        ("replayed\n", "line 10: the line has 1 items, expected `replayed yes|no`"),
        ("replayed always\n", "line 10: expected yes or no, found \"always\""),
        ("replayed no\nreplayed yes\n", "line 11: said on line 10 already; expected it once"),
        ("challenge last\n", "line 10: expected cosigned, first or smallest, found \"last\""),
        ("challenge\n", "line 10: the line has 1 items, expected `challenge cosigned|first|smallest`"),
        ("challenge first\nchallenge first\n", "line 11: said on line 10 already; expected it once"),
    ] {
        let error = with(lines).unwrap_err();
        assert!(error.starts_with(why), "{lines:?}: {error}");
    }
    let challenge = with("replayed yes\nchallenge smallest\nchallenge first\n").unwrap();
    assert_eq!((challenge.replayed(), challenge.challenge()), (true, &[Asked::Smallest, Asked::First][..]));
    assert_eq!((plain.replayed(), plain.challenge()), (false, &[][..]));
    // Without a quorum there is nobody whose cosignature could be asked for.
    for (word, refused) in [("cosigned", true), ("first", true), ("smallest", false)] {
        let text = file(&log, "none", &format!("challenge {word}\n"));
        let why = parse(text.as_bytes()).err().map(|error| error.to_string());
        let expected = format!(
            "line 10: challenge {word} asks for cosignatures, and the quorum is none; expected witnesses and a quorum \
             of them"
        );
        assert_eq!(why, refused.then_some(expected));
    }
    let twice = format!("device {key}\ndevice {key}\n");
    assert_eq!(with(&twice).unwrap_err(), "line 11: said on line 10 already; expected it once");
    let without = |word: &str| {
        let text = file(&log, "none", "");
        let kept: String = text.split_inclusive('\n').filter(|line| !line.starts_with(word)).collect();
        parse(kept.as_bytes()).unwrap_err().to_string()
    };
    assert_eq!(without("log"), "expected at least one log key, found none");
    assert_eq!(without("predictor"), "expected at least one predictor key, found none");
    assert!(without("quorum").starts_with("policy has no quorum line"), "{}", without("quorum"));
    let no = with("complete no\nsealed no\nreplayed no\n").unwrap();
    assert_eq!((no.complete(), no.sealed(), no.replayed()), (false, false, false));
    let long = "d".repeat(81);
    assert!(with(&format!("{long}\n")).unwrap_err().contains(&format!(" {:?}, expected", &long[1..])));
    // As long as may be, and a byte longer: with a line of tlog-policy's, and with one of ours, which it does not see.
    for line in ["#", "profile f32-fma"] {
        let start = file(&log, "two", line);
        let room = tlog::policy::POLICY_BYTES_MAX - start.len() - 1;
        let text = |blanks: usize| start.clone() + &" ".repeat(blanks) + "\n";
        assert!(parse(text(room).as_bytes()).is_ok(), "{line}");
        let error = parse(text(room + 1).as_bytes()).unwrap_err().to_string();
        assert!(error.starts_with("policy is 65537 bytes"), "{line}: {error}");
    }
}

#[test]
fn both_versions_of_the_fixtures_verify() {
    let read =
        |path: &str| std::fs::read(format!("{}/../fixtures/{path}", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let trust = String::from_utf8(read("witness/policy.txt")).unwrap();
    let mut seed = [0; 32];
    seed[..9].copy_from_slice(b"predictor");
    let predictor = schemas::key::SecretKey::from_seed(seed).public();
    let plain = trust.replace("quorum both", "quorum none") + &format!("predictor {predictor}\n");
    let report = check(&read("bundle/v1/agree.cbor"), &parse(plain.as_bytes()).unwrap());
    assert_eq!((report.class, report.register), (Class::Agreeing, None), "{report}");
    assert!(report.to_string().contains("is not shown: the bundle holds no completeness\n"), "{report}");
    let strict = trust + &format!("predictor {predictor}\nfaulty 1\ncomplete yes\n");
    assert_eq!(failed(&check(&read("bundle/v1/agree.cbor"), &parse(strict.as_bytes()).unwrap())).0, 2);
    let report = check(&read("bundle/agree.cbor"), &parse(strict.as_bytes()).unwrap());
    assert_eq!((report.class, report.register), (Class::Agreeing, Some(8)), "{report}");
    let times = report.times.unwrap();
    assert_eq!((times.prediction_by_s, times.receipts_after_s), (Some(1_800_000_007), None));
    assert_eq!(times.lead_s(), None);
}
