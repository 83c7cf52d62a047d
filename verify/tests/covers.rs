//! Check 6 of a bundle, the parts about trees: covers, and the register of its predictions.

mod support;

use schemas::bundle::Bundle;
use schemas::object::Object as _;
use schemas::prediction::Prediction;
use schemas::register::{EntryLeaf, PredictionLeaf};
use schemas::run::Steps;
use schemas::statement::Payload;
use support::World;
use support::story::{Story, device_key, list_root, predictor_key};
use support::trust::{policy, sixth};
use verify::bundle::check;
use verify::report::Class;

const FIRST: [(u8, u64); 2] = [(0, 1_800_000_000), (1, 1_800_000_007)];

fn small() -> World {
    World::new(2, 2, 2)
}

/// A told story, and its bundle with the first cosigned cover.
fn honest(world: &World) -> (Story, Bundle) {
    let mut story = Story::new();
    story.tell(world, &world.bodies(2), vec![], false);
    let bundle = story.bundle_2(world, &FIRST, &FIRST);
    (story, bundle)
}

#[test]
fn a_covers_checkpoint_is_of_its_size_and_of_one_tree_with_the_receipts() {
    let world = small();
    let (story, bundle) = honest(&world);
    let policy = policy(&story.log, "two", "");
    assert_eq!(check(&bundle.encode(), &policy).class, Class::Agreeing);
    let size = bundle.covers[0].tree_size;
    let mut other = bundle.clone();
    other.covers[0].checkpoint = Some(story.log.cosigned(size + 1, &FIRST));
    assert_eq!(
        sixth(&other, &policy),
        format!("the cover of size {size} has a checkpoint of size {}", size + 1)
    );
    // The log signs another history of the size that the receipts answer, and witnesses go along.
    let mut fork = support::log::Log::new("log.example/test", 1);
    while fork.size() < size {
        fork.append(b"another".to_vec());
    }
    other.covers[0].checkpoint = Some(fork.cosigned(size, &FIRST));
    let why = format!(
        "the log signed two trees of size {size}, one root in a cover or receipt and another in a receipt"
    );
    assert_eq!(sixth(&other, &policy), why);
}

/// The bundle of a story, after whose verdict its predictor predicts these steps as well.
fn predicted_again(world: &World, steps: Steps) -> (Story, Bundle) {
    let mut story = Story::new();
    story.tell(world, &world.bodies(2), vec![], false);
    let second = Prediction { steps, ..story.prediction.clone().unwrap() };
    story.sign(Payload::Prediction(second), &predictor_key());
    let bundle = story.bundle_2(world, &FIRST, &FIRST);
    (story, bundle)
}

#[test]
fn a_second_prediction_counts_if_it_shares_a_step_and_not_otherwise() {
    // The world's own has two steps of three.
    let mut world = World::new(2, 2, 3);
    world.steps.end = 2;
    world.body.records.pop();
    for (first, end, shares) in [(1, 3, true), (0, 1, true), (2, 3, false)] {
        let (story, bundle) = predicted_again(&world, Steps { first, end });
        let policy = policy(&story.log, "two", "");
        if shares {
            let why = sixth(&bundle, &policy);
            assert!(why.contains("as the only prediction of these steps by its signer, found "), "{why}");
        } else {
            let report = check(&bundle.encode(), &policy);
            assert_eq!(report.class, Class::Agreeing, "{report}");
        }
    }
}

/// A bundle whose register lists what `change` makes of the predictions.
fn registered(world: &World, change: impl Fn(&mut Vec<PredictionLeaf>)) -> (Story, Bundle) {
    let mut story = Story::new();
    story.tell(world, &world.bodies(2), vec![], false);
    let (entries, mut predictions) = story.lists();
    change(&mut predictions);
    let register = schemas::register::Register {
        run: world.id,
        size: story.log.size(),
        entries: list_root(entries.iter().map(EntryLeaf::encode)),
        predictions: list_root(predictions.iter().map(PredictionLeaf::encode)),
    };
    let index = story.log.append_register(register);
    let mut bundle = story.bundle_2(world, &FIRST, &FIRST);
    let completeness = bundle.completeness.as_mut().unwrap();
    completeness.register = story.log.proven(index, story.log.size());
    completeness.predictions = predictions;
    (story, bundle)
}

#[test]
fn the_listed_prediction_is_the_bundles_by_place_and_by_entry() {
    let world = small();
    let (story, bundle) = registered(&world, |_| ());
    assert_eq!(check(&bundle.encode(), &policy(&story.log, "two", "")).class, Class::Agreeing);
    type Change<'a> = (fn(&mut Vec<PredictionLeaf>), &'a str);
    let changes: [Change; 3] = [
        (|leaves| leaves[0].entry.0[0] ^= 1, "found 3"),
        (|leaves| leaves[0].index -= 1, "found 2"),
        (|leaves| leaves.clear(), "found none"),
    ];
    for (change, found) in changes {
        let (story, bundle) = registered(&world, change);
        let why = sixth(&bundle, &policy(&story.log, "two", ""));
        assert!(why.ends_with(found), "{why}");
    }
}

#[test]
fn a_register_is_of_this_run_and_in_the_bundles_tree() {
    let world = small();
    let (story, bundle) = honest(&world);
    let mut unproven = bundle.clone();
    unproven.completeness.as_mut().unwrap().register.proof[0][0] ^= 1;
    let why = sixth(&unproven, &policy(&story.log, "two", ""));
    assert!(why.starts_with("completeness: entry "), "{why}");

    // A register of another run in the same log that lists this prediction.
    let mut story = Story::new();
    story.tell(&world, &world.bodies(2), vec![], false);
    let (entries, predictions) = story.lists();
    let run = schemas::digest::RunId([9; 32]);
    let register = schemas::register::Register {
        run,
        size: story.log.size(),
        entries: list_root(entries.iter().map(EntryLeaf::encode)),
        predictions: list_root(predictions.iter().map(PredictionLeaf::encode)),
    };
    let index = story.log.append_register(register);
    let mut bundle = story.bundle_2(&world, &FIRST, &FIRST);
    bundle.completeness.as_mut().unwrap().register = story.log.proven(index, story.log.size());
    let why = format!("completeness: expected run {}, found run {run}", world.id);
    assert_eq!(sixth(&bundle, &policy(&story.log, "two", "")), why);
}

#[test]
fn of_a_prediction_made_openly_the_register_is_later_than_the_prediction() {
    let world = small();
    let mut story = Story::new();
    story.log_run(&world);
    let before = story.register();
    story.log_prediction(&world, true);
    let note = story.log.checkpoint(story.log.size());
    for body in world.bodies(2) {
        let receipt = story.receipt(&world, 2, &body, &note);
        story.log_receipt(receipt, &body, device_key(body.rank));
    }
    story.log_verdict(&world, None);
    let mut bundle = story.bundle_2(&world, &FIRST, &FIRST);
    let policy = policy(&story.log, "two", "");
    assert_eq!(check(&bundle.encode(), &policy).class, Class::Agreeing);
    let completeness = bundle.completeness.as_mut().unwrap();
    completeness.register = story.log.proven(before, story.log.size());
    completeness.predictions.clear();
    let after = story.prediction_index;
    let why = format!("completeness: expected a register after entry {after}, found it at index {before}");
    assert_eq!(sixth(&bundle, &policy), why);
}
