//! What must not pass, each told apart by its own message and exit code.

use tests::workshop::Workshop;
use verify::bundle::check;
use verify::policy::Policy;
use verify::report::Class;

/// Putting right what was missing is still possible after a refusal: the log holds no opening.
#[test]
fn a_missing_receipt_can_be_brought_later_because_nothing_was_opened() {
    let (shop, log) = Workshop::ready();
    let (here, away) = (shop.path("run/receipts/receipt-1.cose"), shop.path("receipt-1.cose"));
    std::fs::rename(&here, &away).unwrap();
    shop.reconcile("run", &log, "--no-replay").expect_code(2).expect_text("nothing was opened");
    std::fs::rename(&away, &here).unwrap();
    // The same receipts named twice are the same receipts.
    let twice = shop.reconcile("run", &log, "--no-replay --receipts run/receipts").expect_code(0);
    twice.expect_text("agree");
    let bytes = std::fs::read(shop.path("run.tally")).unwrap();
    shop.reconcile("run", &log, "--no-replay").expect_code(0);
    assert!(std::fs::read(shop.path("run.tally")).unwrap() == bytes, "other bytes by the same receipts");
}

/// Others may state the run, but it is the predictor's own statement that has to be in the log before the prediction.
#[test]
fn a_prediction_before_its_predictors_run_statement_is_not_opened() {
    let shop = Workshop::open();
    shop.write_run("run", 1);
    let log = shop.ledger();
    let commit = format!("--commit --ledger {} --log-key log/log.pub", log.url);
    let stranger = format!("predict --run run.toml --steps 0..3 --out strange --key stranger.key {commit}");
    shop.run("oracle", &stranger).expect_code(0);
    shop.predict("run", None).expect_code(0);
    let submit = |name: &str| {
        let file = format!("submit run/prediction/{name}.cose --ledger {} --log-key log/log.pub", log.url);
        shop.run("client", &file).expect_code(0);
    };
    submit("prediction");
    shop.challenge("run", &log).expect_code(0);
    shop.devices("run", 2, "receipts", "").expect_code(0);
    let refused = || {
        shop.reconcile("run", &log, "--no-replay")
            .expect_code(2)
            .expect_text("the predictor's run statement ")
            .expect_text("before the prediction\n")
            .expect_text("client: hint: another signer's statement of this run does not do");
    };
    refused();
    submit("run");
    refused();
    assert!(!shop.path("run.tally").exists());
}

/// Nothing of another run is computed, and nothing opened.
#[test]
fn a_replay_of_another_run_is_refused() {
    let (shop, log) = Workshop::ready();
    shop.write_run("other", 2);
    shop.reconcile("run", &log, "--replay other.toml")
        .expect_code(2)
        .expect_text("other.toml describes run ")
        .expect_text(&format!(", the prediction is of run {}", shop.run_id("run")))
        .expect_text("client: hint: give the run.toml that the prediction was made from");
    let listed = log.get(&format!("/run/{}", shop.run_id("run")));
    let listed: serde_json::Value = serde_json::from_slice(&listed).unwrap();
    let kinds: Vec<_> = listed["entries"].as_array().unwrap().iter().map(|entry| &entry["kind"]).collect();
    assert_eq!(kinds, ["run", "prediction"]);
}

/// A device that answers another challenge cannot switch off the check of the answers.
#[test]
fn different_challenges_do_not_agree() {
    let (shop, log) = Workshop::ready();
    // The log has grown: another checkpoint covers the prediction too.
    shop.run("client", &format!("submit run/receipts/receipt-0.cose --ledger {}", log.url)).expect_code(0);
    let path = shop.path("run/job/challenge.note");
    let first = std::fs::read(&path).unwrap();
    shop.challenge("run", &log).expect_code(0).expect_text("of size 3, the smallest that there can be");
    assert_eq!(std::fs::read(&path).unwrap(), first, "a challenge does not change as the log grows");
    std::fs::write(&path, log.get("/checkpoint")).unwrap();
    shop.devices("run", 2, "second", "").expect_code(0);
    for name in ["receipt-1.cose", "receipt-1.body.cbor"] {
        std::fs::copy(shop.path("run/second").join(name), shop.path("run/receipts").join(name)).unwrap();
    }
    for replay in ["--no-replay", "--replay run.toml"] {
        shop.reconcile("run", &log, replay).expect_code(2).expect_text("one challenge for all receipts");
    }
    // It is the answers that were looked at, so nobody is told that they were not needed.
    let ended = shop.reconcile("run", &log, "--no-replay --accept-incomplete").expect_code(1);
    ended
        .expect_text("answers to the challenge: not held against a replay")
        .expect_text("challenge: the tree of size 3, the smallest tree that holds the prediction")
        .expect_text(
            "challenge: the tree of size 4, 1 entry later than the smallest tree that holds the prediction",
        );
}

#[test]
fn a_challenge_is_the_smallest_published_checkpoint_and_says_how_much_later_another_is() {
    let (shop, log) = Workshop::ready();
    shop.run("client", &format!("submit run/receipts/receipt-0.cose --ledger {}", log.url)).expect_code(0);
    log.stop();
    // A note that is lost stays lost, but for the last. A prediction that came with later entries has none either.
    std::fs::remove_file(shop.path("log/history/published")).unwrap();
    let log = shop.ledger();
    std::fs::remove_file(shop.path("run/job/challenge.note")).unwrap();
    let ended = shop.challenge("run", &log).expect_code(0);
    ended.expect_text("of size 4, 1 entry later than the smallest that there can be");
}

#[test]
fn a_challenge_of_another_log_is_refused() {
    let (shop, log) = Workshop::ready();
    let other = Workshop::open();
    let other_log = other.ledger();
    std::fs::write(shop.path("run/job/challenge.note"), other_log.get("/checkpoint")).unwrap();
    shop.devices("run", 2, "foreign", "").expect_code(0);
    std::fs::remove_dir_all(shop.path("run/receipts")).unwrap();
    std::fs::rename(shop.path("run/foreign"), shop.path("run/receipts")).unwrap();
    shop.expect_incomplete(&log, "not signed by this log");
}

#[test]
fn a_missing_receipt_is_incomplete() {
    let (shop, log) = Workshop::ready();
    std::fs::remove_file(shop.path("run/receipts/receipt-1.cose")).unwrap();
    shop.expect_incomplete(&log, "device 1 of 2: no receipt");
    shop.verify("run.tally").expect_code(1).expect_text("incomplete");
}

#[test]
fn a_wrong_key_is_told_from_a_damaged_file() {
    let (shop, log) = Workshop::ready();
    shop.reconcile("run", &log, "--no-replay").expect_code(0);
    shop.verify("run.tally").expect_code(0);
    shop.run("client", "keygen other.key").expect_code(0);
    let verify = "verify run.tally --log-key log/log.pub --predictor-key";
    shop.run("client", &format!("{verify} other.pub")).expect_code(1).expect_text("the run is signed by");
    let other = Workshop::open();
    let other_log = other.ledger();
    drop(other_log);
    std::fs::copy(other.path("log/log.pub"), shop.path("otherlog.pub")).unwrap();
    let wrong = "verify run.tally --log-key otherlog.pub --predictor-key predictor.pub";
    shop.run("client", wrong).expect_code(1).expect_text("checkpoint");
    let device =
        "verify run.tally --log-key log/log.pub --predictor-key predictor.pub --device-key other.pub";
    shop.run("client", device).expect_code(1).expect_text("the receipt is signed by");

    // Could not check: nothing there, not a bundle, cut short, no usable key.
    shop.run("client", &format!("{verify} predictor.pub").replace("run.tally", "absent.tally"))
        .expect_code(2);
    std::fs::write(shop.path("text.tally"), "not a bundle").unwrap();
    shop.verify("text.tally").expect_code(2).expect_text("bundle");
    let bytes = std::fs::read(shop.path("run.tally")).unwrap();
    std::fs::write(shop.path("cut.tally"), &bytes[..bytes.len() / 2]).unwrap();
    shop.verify("cut.tally").expect_code(2);
    std::fs::write(shop.path("bad.pub"), "no key\n").unwrap();
    shop.run("client", &format!("{verify} bad.pub")).expect_code(2).expect_text("key");
}

#[test]
fn every_byte_of_a_real_bundle_matters() {
    let (shop, log) = Workshop::ready();
    shop.reconcile("run", &log, "--no-replay").expect_code(0);
    let bytes = std::fs::read(shop.path("run.tally")).unwrap();
    let log_key = std::fs::read_to_string(shop.path("log/log.pub")).unwrap();
    let predictor = std::fs::read_to_string(shop.path("predictor.pub")).unwrap();
    let policy = Policy::parse(&log_key, &[&predictor], &[], &[]).unwrap();
    let agrees = |bytes: &[u8]| check(bytes, &policy).class == Class::Agreeing;
    assert!(agrees(&bytes));
    for index in 0..bytes.len() {
        let mut edited = bytes.clone();
        edited[index] ^= 1 << (index % 8);
        assert!(!agrees(&edited), "byte {index} of {} was flipped and nobody noticed", bytes.len());
    }
}
