//! Which receipts may be judged: each rule broken alone, with its own message.

mod support;

use schemas::attachment::AttachmentName;
use schemas::digest::RunId;
use schemas::object::Object as _;
use schemas::receipt::ReceiptBody;
use schemas::record::NonFinite;
use support::World;
use support::log::Log;
use support::story::{Story, device_key, policy};
use verify::bundle::check;
use verify::receipt::Refusal;

/// A world with a logged run and prediction.
fn begun() -> (World, Story) {
    let world = World::new(4, 4, 2);
    let mut story = Story::new();
    story.log_run(&world);
    story.log_prediction(&world, false);
    (world, story)
}

fn log_one(story: &mut Story, world: &World, note: &[u8]) {
    let body = &world.bodies(1)[0];
    let receipt = story.receipt(world, 1, body, note);
    story.log_receipt(receipt, body, device_key(0));
}

fn refusal(story: &Story, world: &World) -> Refusal {
    story.admit(world, &story.receipts[0]).expect_err("the receipt is refused")
}

#[test]
fn a_receipt_under_a_checkpoint_that_covers_the_prediction_is_admitted() {
    let (world, mut story) = begun();
    let note = story.log.checkpoint(story.log.size());
    log_one(&mut story, &world, &note);
    let admitted = story.admit(&world, &story.receipts[0]).unwrap();
    assert_eq!(admitted.device(), device_key(0).public());
    assert_eq!(admitted.body(), &world.bodies(1)[0]);
    assert_eq!(admitted.entry(), story.receipts[0].entry);
}

#[test]
fn a_receipt_for_another_run_is_refused() {
    let (world, mut story) = begun();
    let note = story.log.checkpoint(story.log.size());
    log_one(&mut story, &world, &note);
    story.receipts[0].receipt.run = RunId([9; 32]);
    let refusal = refusal(&story, &world);
    assert!(matches!(refusal, Refusal::AnotherRun { .. }));
    assert!(refusal.to_string().starts_with("receipt for another run: expected run "), "{refusal}");
}

#[test]
fn a_checkpoint_of_another_log_or_none_is_refused() {
    let (world, mut story) = begun();
    let mut foreign = Log::new("log.example/test", 2);
    for _ in 0..9 {
        foreign.append(vec![1]);
    }
    let own = story.log.checkpoint(story.log.size());
    let mut unsigned = own.clone();
    let at = unsigned.len() - 20;
    unsigned[at] = if unsigned[at] == b'A' { b'B' } else { b'A' };
    for note in
        [foreign.checkpoint(9), Log::new("other.example", 1).checkpoint(1), unsigned, vec![], b"x".to_vec()]
    {
        story.receipts.clear();
        log_one(&mut story, &world, &note);
        let refusal = refusal(&story, &world);
        assert!(matches!(refusal, Refusal::NotThisLog(_)), "{refusal}");
        assert!(refusal.to_string().starts_with("checkpoint not signed by this log: "), "{refusal}");
    }
}

#[test]
fn a_challenge_older_than_the_prediction_is_refused() {
    let (world, mut story) = begun();
    // A tree of `size` entries holds the indexes below `size`: the prediction's index is its own first size.
    for size in 0..=story.prediction_index {
        story.receipts.clear();
        let note = story.log.checkpoint(size);
        log_one(&mut story, &world, &note);
        let refusal = refusal(&story, &world);
        assert!(matches!(refusal, Refusal::ChallengeOlder { size: found, .. } if found == size));
        assert!(refusal.to_string().starts_with("challenge older than the prediction: "), "{refusal}");
    }
    story.receipts.clear();
    let note = story.log.checkpoint(story.prediction_index + 1);
    log_one(&mut story, &world, &note);
    assert!(story.admit(&world, &story.receipts[0]).is_ok());
}

#[test]
fn a_prediction_logged_after_the_receipt_is_refused() {
    let world = World::new(4, 4, 2);
    let mut story = Story::new();
    story.log_run(&world);
    let note = story.log.checkpoint(story.log.size());
    log_one(&mut story, &world, &note);
    story.log_prediction(&world, false);
    let refusal = refusal(&story, &world);
    assert_eq!(
        refusal.to_string(),
        "prediction logged after the receipt: the prediction has index 3, the receipt 2"
    );
}

#[test]
fn a_receipt_logged_after_the_opening_is_refused() {
    let (world, mut story) = begun();
    let note = story.log.checkpoint(story.log.size());
    story.log_opening(&world);
    log_one(&mut story, &world, &note);
    assert_eq!(
        refusal(&story, &world).to_string(),
        "receipt logged after the opening: the opening has index 3, the receipt 4"
    );
}

#[test]
fn a_bundle_with_a_receipt_that_breaks_the_rule_fails_at_step_six() {
    let (world, mut story) = begun();
    let note = story.log.checkpoint(story.log.size());
    log_one(&mut story, &world, &note);
    story.log_opening(&world);
    story.log_verdict(&world, None);
    // The same story, its receipt now one that was logged last.
    let mut late = story.receipts.remove(0);
    late.index = story.log.append(story.log.entries[late.index as usize].clone());
    story.receipts.push(late);
    let report = check(&story.bundle(&world).encode(), &policy(story.log.key()));
    assert!(report.summary().contains("check 6: entry 6: receipt logged after the opening"), "{report}");
}

#[test]
fn a_cover_of_another_history_fails_at_step_six() {
    let (world, mut story) = begun();
    // The log shows one tree to the device and another to everyone else: a fork.
    let mut fork = Log::new("log.example/test", 1);
    for entry in &story.log.entries[1..] {
        fork.append(entry.clone());
    }
    fork.append(b"only in the fork".to_vec());
    let note = fork.checkpoint(fork.size());
    story.log.append(b"only in the log".to_vec());
    log_one(&mut story, &world, &note);
    story.log_opening(&world);
    story.log_verdict(&world, None);
    let mut bundle = story.bundle(&world);
    let report = check(&bundle.encode(), &policy(story.log.key()));
    assert!(
        report.summary().contains("check 6: the challenge's checkpoint of size 4 does not hold"),
        "{report}"
    );
    bundle.covers[0].inclusion = fork.inclusion(story.prediction_index, fork.size());
    let report = check(&bundle.encode(), &policy(story.log.key()));
    assert!(report.summary().contains("is not of the same history as the bundle's"), "{report}");
    bundle.covers.clear();
    let report = check(&bundle.encode(), &policy(story.log.key()));
    let expected = "check 6: expected covers of the receipts' checkpoints of sizes [4], found []";
    assert!(report.summary().contains(expected), "{report}");
}

/// A receipt whose body is changed before it is named.
fn with_body(change: impl Fn(&mut ReceiptBody)) -> Refusal {
    let (world, mut story) = begun();
    let note = story.log.checkpoint(story.log.size());
    let honest = &world.bodies(2)[1];
    let mut body = honest.clone();
    change(&mut body);
    let mut receipt = story.receipt(&world, 2, honest, &note);
    receipt.body = AttachmentName::of(&body.encode());
    story.log_receipt(receipt, &body, device_key(1));
    refusal(&story, &world)
}

#[test]
fn a_body_that_does_not_fit_its_receipt_or_run_is_refused() {
    type Change = fn(&mut ReceiptBody);
    let changes: [(Change, &str); 7] = [
        (|body| body.run.0[0] ^= 1, "receipt body: run: expected "),
        (|body| body.rank = 0, "receipt body: rank: expected 1, found 0"),
        (
            |body| {
                body.records[0].traces.pop();
                body.records[0].losses.pop();
            },
            "receipt body: leaves in the record of step 0: expected 2, found 1",
        ),
        (
            |body| body.records[1].outcome.as_mut().unwrap().exchanges.clear(),
            "receipt body: exchanges in the record of step 1: expected 1, found 0",
        ),
        (|body| body.records[1].step = 2, "receipt body: a record's step: expected within 0..2, found 2"),
        (
            |body| body.records[0].non_finite = Some(NonFinite::Update { stage: 1 }),
            "receipt body: records after the invalid step 0: expected none, found 1",
        ),
        (
            |body| {
                body.records[1].outcome = None;
                body.records[1].non_finite = Some(NonFinite::Tap { leaf: 4, tap: 0 });
            },
            "receipt body: non-finite leaf of step 1: expected below 4, found 4",
        ),
    ];
    for (change, expected) in changes {
        let refusal = with_body(change).to_string();
        assert!(refusal.starts_with(expected), "{refusal}");
    }
}

#[test]
fn a_body_that_is_not_the_named_one_is_refused() {
    let (world, mut story) = begun();
    let note = story.log.checkpoint(story.log.size());
    log_one(&mut story, &world, &note);
    story.receipts[0].body[7] ^= 1;
    let refusal = refusal(&story, &world);
    assert!(matches!(refusal, Refusal::BodyName { .. }), "{refusal}");
    // The right bytes, and another number of them named.
    story.receipts[0].body[7] ^= 1;
    story.receipts[0].receipt.body.bytes += 1;
    let told = self::refusal(&story, &world).to_string();
    assert!(told.starts_with("receipt body: expected ") && told.contains(" bytes, found "), "{told}");
    story.receipts[0].body = b"no body".to_vec();
    story.receipts[0].receipt.body = AttachmentName::of(b"no body");
    assert!(matches!(story.admit(&world, &story.receipts[0]), Err(Refusal::Body(_))));
}

#[test]
fn a_record_of_a_step_before_the_receipts_is_refused() {
    let (world, mut story) = begun();
    let note = story.log.checkpoint(story.log.size());
    log_one(&mut story, &world, &note);
    story.receipts[0].receipt.steps.first = 1;
    let why = "receipt body: a record's step: expected within 1..2, found 0";
    assert_eq!(refusal(&story, &world).to_string(), why);
}

#[test]
fn more_devices_than_the_run_allows_are_refused() {
    for most in [1, 2] {
        let world = World::new(4, most, 1);
        let mut story = Story::new();
        story.log_run(&world);
        story.log_prediction(&world, false);
        let note = story.log.checkpoint(story.log.size());
        let body = ReceiptBody { run: world.id, rank: most, records: vec![] };
        let receipt = story.receipt(&world, 2 * most, &body, &note);
        story.log_receipt(receipt, &body, device_key(3));
        let why = format!("receipt body: number of devices: expected at most {most}, found {}", 2 * most);
        assert_eq!(refusal(&story, &world).to_string(), why);
    }
}
