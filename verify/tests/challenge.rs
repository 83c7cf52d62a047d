//! Which checkpoint receipts answered, and what a policy asks of it and of the answers.

mod support;

use schemas::bundle::{Bundle, Cover};
use schemas::challenge::{challenge, chosen_step};
use schemas::object::Object as _;
use support::World;
use support::log::{Log, witness};
use support::story::{Story, device_key, honest_answer, predictor_key};
use verify::answered::Answered;
use verify::bundle::check;
use verify::policy::Policy;
use verify::policy_file::parse;
use verify::report::{Class, Report, State};

const TWO: [(u8, u64); 2] = [(0, 1_800_000_000), (1, 1_800_000_007)];
const SMALLEST: &str = "the smallest tree that holds the prediction";
const FIRST: &str = "the first cosigned checkpoint that holds the prediction";

fn small() -> World {
    World::new(2, 2, 2)
}

/// A policy of two witnesses, of which both have to cosign if there is a quorum.
fn policy(log: &Log, quorum: &str, lines: &str) -> Policy {
    let witnesses: String =
        (0..2).map(|number| format!("witness w{number} {}\n", witness(number).verifier())).collect();
    let (log, predictor) = (log.key(), predictor_key().public());
    let text = format!(
        "log {log}\n{witnesses}group both all w0 w1\nquorum {quorum}\npredictor {predictor}\n{lines}"
    );
    parse(text.as_bytes()).unwrap()
}

/// A bundle whose devices answer the trees that are so many entries later than the smallest with the prediction, with
/// these cosigners, and whose cosigned cover is so much later.
fn bundle(world: &World, answered: [u64; 2], cosigners: &[(u8, u64)], cover: Option<u64>) -> (Story, Bundle) {
    let mut story = Story::new();
    story.log_run(world);
    story.log_prediction(world, false);
    let smallest = story.prediction_index + 1;
    for number in 0..4 {
        story.log.append(vec![number]);
    }
    for body in world.bodies(2) {
        let note = story.log.cosigned(smallest + answered[body.rank as usize], cosigners);
        let receipt = story.receipt(world, 2, &body, &note);
        story.log_receipt(receipt, &body, device_key(body.rank));
    }
    story.log_opening(world);
    story.log_verdict(world, None);
    let mut bundle = story.bundle_2(world, &[], &TWO);
    if let Some(later) = cover {
        let tree_size = smallest + later;
        bundle.covers.retain(|cover| cover.tree_size != tree_size);
        bundle.covers.push(Cover {
            tree_size,
            inclusion: story.log.inclusion(story.prediction_index, tree_size),
            consistency: story.log.consistency(tree_size, story.log.size()),
            checkpoint: Some(story.log.cosigned(tree_size, &TWO)),
        });
        bundle.covers.sort_by_key(|cover| cover.tree_size);
    }
    (story, bundle)
}

fn failed(report: &Report) -> (usize, String) {
    let check = report.failure().unwrap_or_else(|| panic!("a check fails: {report}"));
    let State::Fails(why) = &check.state else { unreachable!() };
    (check.number, why.clone())
}

/// What is told of the checkpoint that was answered.
fn told(report: &Report) -> Vec<String> {
    let text = report.to_string();
    text.lines().filter_map(|line| line.strip_prefix("challenge: ")).map(str::to_owned).collect()
}

/// How much later the answered tree and the cosigned cover are than the smallest; what is told after the tree's size;
/// and why a policy that asks for the first, or for the smallest, refuses.
type Case = (u64, Option<u64>, &'static str, Option<&'static str>, Option<&'static str>);

#[test]
fn which_checkpoint_was_answered_is_told_and_held_against_the_policy() {
    let world = small();
    let cases: [Case; 7] = [
        (0, Some(0), ", {S}: by its size alone there is no earlier one", None, None),
        (0, None, ", {S}: by its size alone there is no earlier one", Some("found no cosigned cover"), None),
        (0, Some(2), ", {S}: by its size alone there is no earlier one", Some(", 2 entries earlier"), None),
        (
            2,
            Some(2),
            ", {F} by the word of the log and of whoever made the bundle; 2 entries later than {S}",
            None,
            Some(", 2 entries later"),
        ),
        (
            3,
            Some(2),
            ", 1 entry later than {F}: whoever answers can wait for a step that suits them",
            Some(", 1 entry later"),
            Some(", 3 entries later"),
        ),
        (
            1,
            Some(3),
            ", 1 entry later than {S}, and 2 entries earlier than {F}",
            Some(", 2 entries earlier"),
            Some(", 1 entry later"),
        ),
        (
            1,
            None,
            ", 1 entry later than {S}; no cosigned one is here",
            Some("found no cosigned cover"),
            Some(", 1 entry later"),
        ),
    ];
    for (answered, cover, says, first, smallest) in cases {
        let (story, bundle) = bundle(&world, [answered; 2], &[], cover);
        let size = story.prediction_index + 1 + answered;
        let step = chosen_step(challenge(world.id, &story.log.checkpoint(size)), world.steps);
        let says = says.replace("{S}", SMALLEST).replace("{F}", FIRST);
        let says = format!("step {step} was chosen by the tree of size {size}{says}");
        let report = check(&bundle.encode(), &policy(&story.log, "both", ""));
        assert_eq!((report.class, told(&report)), (Class::Agreeing, vec![says.clone()]), "{report}");
        let json = verify::json::report(&report);
        assert_eq!(json["challenge"]["sizes"], serde_json::json!([size]));
        assert_eq!(json["challenge"]["smallest"], story.prediction_index + 1);
        let cosigned = cover.map(|later| story.prediction_index + 1 + later);
        assert_eq!(json["challenge"]["first_cosigned"], serde_json::json!(cosigned));
        assert_eq!(json["challenge"]["step"], step);
        assert_eq!(json["challenge"]["says"][0], says);

        for (word, what, why) in [("first", FIRST, first), ("smallest", SMALLEST, smallest)] {
            let asks = policy(&story.log, "both", &format!("challenge {word}\n"));
            let report = check(&bundle.encode(), &asks);
            let Some(why) = why else {
                assert_eq!(report.class, Class::Agreeing, "{word}: {report}");
                continue;
            };
            let (number, found) = failed(&report);
            assert_eq!((number, report.class), (6, Class::NotSo), "{report}");
            assert!(found.starts_with(&format!("the policy asks for the challenge of {what}, ")), "{found}");
            assert!(found.ends_with(why), "{found}");
        }
    }
}

#[test]
fn devices_that_answer_different_checkpoints_are_told_each_and_the_one_that_chose_is_named() {
    let world = small();
    let (story, bundle) = bundle(&world, [0, 1], &[], Some(0));
    let size = story.prediction_index + 1;
    let report = check(&bundle.encode(), &policy(&story.log, "both", ""));
    let why = "verdict is incomplete: missing one challenge for all receipts: devices 0 and 1 answer different ones";
    assert_eq!(failed(&report), (9, why.into()));
    let lines = [
        format!("the tree of size {size}, {SMALLEST}: by its size alone there is no earlier one"),
        format!(
            "the tree of size {}, 1 entry later than {FIRST}: whoever answers can wait for a step that suits them",
            size + 1
        ),
    ];
    assert_eq!(told(&report), lines);
    for (word, what) in [("first", FIRST), ("smallest", SMALLEST)] {
        let asks = policy(&story.log, "both", &format!("challenge {word}\n"));
        let expected = format!(
            "the policy asks for the challenge of {what}, of size {size}; device 1 answers that of size {}, \
             1 entry later",
            size + 1
        );
        assert_eq!(failed(&check(&bundle.encode(), &asks)), (6, expected));
    }
}

#[test]
fn without_a_quorum_nothing_counts_as_cosigned() {
    let world = small();
    let (story, bundle) = bundle(&world, [2, 2], &TWO, Some(2));
    let report = check(&bundle.encode(), &policy(&story.log, "none", ""));
    assert_eq!(report.class, Class::Agreeing, "{report}");
    assert!(told(&report)[0].ends_with(&format!(", 2 entries later than {SMALLEST}")), "{report}");
    assert_eq!(verify::json::report(&report)["challenge"]["first_cosigned"], serde_json::Value::Null);
    let report = check(&bundle.encode(), &support::story::policy(story.log.key()));
    assert!(told(&report)[0].ends_with(&format!(", 2 entries later than {SMALLEST}")), "{report}");
}

#[test]
fn a_policy_can_ask_that_each_receipts_own_checkpoint_is_cosigned() {
    let world = small();
    let asks = |story: &Story| policy(&story.log, "both", "challenge cosigned\nchallenge first\n");
    let (story, cosigned) = bundle(&world, [1, 1], &TWO, Some(1));
    let report = check(&cosigned.encode(), &asks(&story));
    assert_eq!(report.class, Class::Agreeing, "{report}");

    // The same tree, but the receipts hold the checkpoint without enough cosignatures.
    for (cosigners, who) in [(&TWO[..0], "nobody, and not by w0, w1"), (&TWO[..1], "w0, and not by w1")] {
        let (story, bundle) = bundle(&world, [1, 1], cosigners, Some(1));
        assert_eq!(check(&bundle.encode(), &policy(&story.log, "both", "")).class, Class::Agreeing);
        let expected = format!(
            "the policy asks for cosigned challenges; that of device 0 is none: the checkpoint of size {} is cosigned \
             by {who}: no quorum of the policy",
            story.prediction_index + 2
        );
        assert_eq!(failed(&check(&bundle.encode(), &asks(&story))), (6, expected));
    }
}

#[test]
fn a_line_of_a_known_witness_that_does_not_verify_makes_no_cosigned_challenge() {
    let world = small();
    let mut story = Story::new();
    story.log_run(&world);
    story.log_prediction(&world, false);
    let size = story.log.size();
    // The second witness's line of another tree.
    let (own, other) = (story.log.cosigned(size, &TWO[..1]), story.log.cosigned(size - 1, &TWO[1..]));
    let other = String::from_utf8(other).unwrap();
    let note = String::from_utf8(own).unwrap() + other.lines().last().unwrap() + "\n";
    for body in world.bodies(2) {
        let receipt = story.receipt(&world, 2, &body, note.as_bytes());
        story.log_receipt(receipt, &body, device_key(body.rank));
    }
    story.log_opening(&world);
    story.log_verdict(&world, None);
    let bundle = story.bundle_2(&world, &TWO, &TWO);
    let plain = check(&bundle.encode(), &policy(&story.log, "both", ""));
    assert_eq!(plain.class, Class::Agreeing, "{plain}");
    let (number, why) = failed(&check(&bundle.encode(), &policy(&story.log, "both", "challenge cosigned\n")));
    assert_eq!(number, 6);
    let start = "the policy asks for cosigned challenges; that of device 0 is none: ";
    assert!(why.starts_with(start) && why.contains("witness.example/1"), "{why}");
}

#[test]
fn a_policy_can_ask_for_answers_that_were_held_against_a_replay() {
    let world = small();
    let told = |replayed: bool, lines: &str| {
        let mut story = Story::new();
        story.log_run(&world);
        story.log_prediction(&world, false);
        let note = story.log.checkpoint(story.log.size());
        for body in world.bodies(2) {
            let receipt = story.receipt(&world, 2, &body, &note);
            story.log_receipt(receipt, &body, device_key(body.rank));
        }
        story.log_opening(&world);
        story.log_verdict(&world, replayed.then(|| honest_answer(&world, &note)));
        let bundle = story.bundle_2(&world, &TWO, &TWO);
        check(&bundle.encode(), &policy(&story.log, "both", lines))
    };
    let skipped = "note: the answers to the challenge were not held against a replay\n";
    for lines in ["", "replayed no\n"] {
        let report = told(false, lines);
        assert_eq!(report.class, Class::Agreeing, "{report}");
        assert!(report.to_string().contains(skipped), "{report}");
    }
    let report = told(false, "replayed yes\n");
    let why = "verdict is agree, but the answers to the challenge were not held against a replay, which the policy \
               asks for: `client reconcile --replay run.toml` does it";
    assert_eq!((report.class, failed(&report)), (Class::NotSo, (9, why.into())));
    assert_eq!(report.summary(), format!("genuine, but {why}"));
    assert!(report.to_string().contains(skipped), "{report}");
    let report = told(true, "replayed yes\n");
    assert_eq!(report.class, Class::Agreeing, "{report}");
    assert!(report.to_string().contains("is the verdict signer's: nothing here recomputes it"), "{report}");
}

#[test]
fn of_several_cosigned_covers_the_first_is_the_smallest() {
    let world = small();
    let (story, mut bundle) = bundle(&world, [2, 2], &TWO, Some(2));
    let smallest = story.prediction_index + 1;
    let tree_size = smallest + 3;
    bundle.covers.push(Cover {
        tree_size,
        inclusion: story.log.inclusion(story.prediction_index, tree_size),
        consistency: story.log.consistency(tree_size, story.log.size()),
        checkpoint: Some(story.log.cosigned(tree_size, &TWO)),
    });
    let report = check(&bundle.encode(), &policy(&story.log, "both", "challenge first\n"));
    assert_eq!(report.answered.unwrap().first_cosigned, Some(smallest + 2));
}

#[test]
fn a_long_list_of_trees_is_cut_and_counted() {
    let lines = |count: u64| {
        let sizes = (1..=count).collect();
        Answered { sizes, smallest: 1, first_cosigned: None, asks: false, step: Some(3) }.lines()
    };
    assert_eq!(lines(8).len(), 8);
    assert!(
        lines(8)[7].starts_with("step 3 was chosen by the tree of size 8, 7 entries later than "),
        "{:?}",
        lines(8)
    );
    assert_eq!((lines(10).len(), lines(10)[8].as_str()), (9, "and 2 more trees"));
}
