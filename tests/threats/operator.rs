//! Whoever runs the devices, and devices that lie.

use crate::forge::{copied, device_key, fold, hand_in, receipt, sum};
use schemas::object::Object as _;
use schemas::prediction::PredictionBody;
use schemas::receipt::{Answer, DeviceRecord};
use tests::workshop::{Ended, Log, Workshop};

/// A run of two devices, predicted and committed, with its challenge; nothing has run yet.
fn challenged(more: &str) -> (Workshop, Log) {
    let shop = Workshop::open();
    shop.write_run("run", 1);
    let log = shop.ledger();
    let commit = format!("--commit --ledger {} --log-key log/log.pub", log.url);
    let predict =
        format!("predict --run run.toml --steps 0..3 --out run --key predictor.key {commit} {more}");
    shop.run("oracle", &predict).expect_code(0);
    shop.challenge("run", &log).expect_code(0);
    (shop, log)
}

/// The prediction's records, as whoever has them reads them.
fn predicted(bytes: &[u8]) -> PredictionBody {
    PredictionBody::decode(bytes).unwrap()
}

fn hand_in_copies(shop: &Workshop, body: &PredictionBody) {
    for rank in 0..2 {
        let copy = copied(shop, "run", body, (rank, 2));
        hand_in(shop, "run/receipts", copy, &device_key(shop, rank));
    }
}

fn verify_under(shop: &Workshop, lines: &str) -> Ended {
    let read = |name: &str| std::fs::read_to_string(shop.path(name)).unwrap();
    let (log, predictor) = (read("log/log.pub"), read("predictor.pub"));
    let policy = format!("log {}\nquorum none\npredictor {}\n{lines}", log.trim(), predictor.trim());
    std::fs::write(shop.path("policy.txt"), policy).unwrap();
    shop.run("client", "verify run.tally --policy policy.txt")
}

/// Devices that agree with each other on numbers that nobody computed.
#[test]
fn made_up_checksums() {
    let (shop, log) = Workshop::ready();
    let invent = |record: &mut DeviceRecord, rank: u8| {
        let outcome = record.outcome.as_mut().unwrap();
        record.traces.iter_mut().for_each(|root| root.0 = [7; 32]);
        (outcome.partial, outcome.reduced, outcome.parameters) = (sum(rank), sum(8), sum(9));
        (outcome.exchanges[0].received, outcome.exchanges[0].sum) = (sum(1 - rank), sum(7));
    };
    for rank in 0..2 {
        let (receipt, mut body) = receipt(&shop, "run/receipts", rank);
        body.records.iter_mut().for_each(|record| invent(record, rank as u8));
        hand_in(&shop, "run/receipts", (receipt, body), &device_key(&shop, rank));
    }
    let ended = shop.reconcile("run", &log, "--no-replay").expect_code(1);
    ended.expect_text("diverge at step 0").expect_text("device 1 (").expect_text("phase leaf");
    shop.verify("run.tally").expect_code(1).expect_text(
        "genuine, but verdict is diverge at step 0: device 0 in phase leaf, device 1 in phase leaf",
    );
}

/// A prediction made openly is there for all to copy. It is said, a policy can refuse it, and a replay finds it.
#[test]
fn copied_from_an_open_prediction() {
    let (shop, log) = challenged("--open");
    hand_in_copies(&shop, &predicted(&crate::forge::read(&shop, "run/prediction/body.cbor")));
    shop.reconcile("run", &log, "--no-replay").expect_code(0).expect_text("agree");
    let ended = shop.verify("run.tally").expect_code(0);
    let ended = ended.expect_text("the prediction was made openly: receipts could have been copied from it");
    ended.expect_text("the answers to the challenge were not held against a replay");
    verify_under(&shop, "sealed yes\n")
        .expect_code(1)
        .expect_text("the prediction was made openly, which the policy does not accept");

    let ended = shop.reconcile("run", &log, "--replay run.toml").expect_code(1);
    ended.expect_text("phase answer").expect_text("its answer is not the replayed one");
    shop.verify("run.tally").expect_code(1).expect_text("device 0 in phase answer, device 1 in phase answer");
}

/// What is read from the opening comes too late.
#[test]
fn copied_after_the_opening() {
    let (shop, log) = Workshop::ready();
    let receipt = shop.path("run/receipts/receipt-1.cose");
    std::fs::remove_file(&receipt).unwrap();
    shop.reconcile("run", &log, "--no-replay --accept-incomplete").expect_code(1);
    // The opened body is an attachment in the log: the one of which the opening speaks.
    let name =
        schemas::attachment::AttachmentName::of(&crate::forge::read(&shop, "run/prediction/body.cbor"));
    let body = predicted(&log.get(&format!("/attachments/{}", name.sha256)));
    let copy = copied(&shop, "run", &body, (1, 2));
    hand_in(&shop, "run/receipts", copy, "keys/device-1.key");
    shop.run("client", &format!("submit run/receipts/receipt-1.cose --ledger {}", log.url)).expect_code(0);
    let ended = shop.reconcile("run", &log, "--no-replay --accept-incomplete").expect_code(1);
    ended.expect_text("incomplete").expect_text("receipt logged after the opening");
    shop.verify("run.tally").expect_code(1).expect_text("genuine, but verdict is incomplete");
}

/// The prediction's folder was leaked: every record is right, and whoever has no tensors cannot answer.
#[test]
fn precomputed_from_leaked_roots() {
    let (shop, log) = challenged("");
    hand_in_copies(&shop, &predicted(&crate::forge::read(&shop, "run/prediction/body.cbor")));
    let ended = shop.reconcile("run", &log, "--replay run.toml").expect_code(1);
    let ended = ended.expect_text("diverge at step").expect_text("phase answer");
    ended.expect_text("its answer is not the replayed one");
    shop.verify("run.tally").expect_code(1).expect_text("device 0 in phase answer, device 1 in phase answer");
    // Where nobody computes the step again, the copy passes, and this is said.
    let ended = shop.reconcile("run", &log, "--no-replay").expect_code(0);
    ended.expect_text("not held against a replay");
    // That it is not simulated is its own word.
    let ended = verify_under(&shop, "simulated no\n").expect_code(0);
    ended.expect_text("the answers to the challenge were not held against a replay");
    verify_under(&shop, "replayed yes\n").expect_code(1).expect_text(
        "the answers to the challenge were not held against a replay, which the policy asks for",
    );
}

/// No answer, or one to a question that was not asked.
#[test]
fn an_answer_for_another_step() {
    let (shop, log) = Workshop::ready();
    let (first, body) = receipt(&shop, "run/receipts", 0);
    let step = (first.answer.unwrap().step + 1) % 3;
    let answer = Some(Answer { step, reduced: fold(1), parameters: fold(2) });
    let other = schemas::receipt::Receipt { answer, ..first };
    hand_in(&shop, "run/receipts", (other, body), "keys/device-0.key");
    let (second, body) = receipt(&shop, "run/receipts", 1);
    let silent = schemas::receipt::Receipt { answer: None, ..second };
    hand_in(&shop, "run/receipts", (silent, body), "keys/device-1.key");
    let ended = shop.reconcile("run", &log, "--no-replay").expect_code(1);
    let ended = ended.expect_text("it answers for step").expect_text("it does not answer the challenge");
    ended.expect_text("phase answer");
    shop.verify("run.tally").expect_code(1).expect_text("device 0 in phase answer, device 1 in phase answer");
}

/// One device that plays two, and a stranger in a device's place.
#[test]
fn signing_for_another_rank() {
    let (shop, log) = Workshop::ready();
    let second = receipt(&shop, "run/receipts", 1);
    hand_in(&shop, "run/receipts", second.clone(), "keys/device-0.key");
    shop.reconcile("run", &log, "--no-replay")
        .expect_code(2)
        .expect_text("a key for each device: devices 0 and 1 have one");
    shop.run("client", "keygen stranger.key").expect_code(0);
    hand_in(&shop, "run/receipts", second, "stranger.key");
    shop.reconcile("run", &log, "--no-replay").expect_code(0);
    shop.verify("run.tally")
        .expect_code(0)
        .expect_text("no device keys were given: receipts were taken from any key");
    let read = |name: &str| std::fs::read_to_string(shop.path(name)).unwrap();
    let devices =
        ["keys/device-0.pub", "keys/device-1.pub"].map(|name| format!("device {}\n", read(name).trim()));
    verify_under(&shop, &devices.concat()).expect_code(1).expect_text("the receipt is signed by");
}

/// A receipt of a run that went well, handed in for one that did not.
#[test]
fn a_receipt_of_another_run() {
    let (shop, log) = Workshop::ready();
    shop.write_run("old", 2);
    shop.predict("old", Some(&log)).expect_code(0);
    shop.challenge("old", &log).expect_code(0);
    let replayed = "--fault replayed-receipt:device=1,receipt=run/receipts/receipt-1.cose";
    shop.devices("old", 2, "receipts", replayed).expect_code(0);
    let ended = shop.reconcile("old", &log, "--no-replay").expect_code(2);
    ended.expect_text("receipt for another run").expect_text("nothing was opened");
    // The same with the run's name changed in it: then the body is another run's.
    let (stolen, body) = receipt(&shop, "run/receipts", 1);
    let checkpoint = crate::forge::read(&shop, "old/job/challenge.note");
    let renamed = schemas::receipt::Receipt { run: shop.run_id("old"), checkpoint, ..stolen };
    hand_in(&shop, "old/receipts", (renamed.clone(), body.clone()), "keys/device-1.key");
    shop.reconcile("old", &log, "--no-replay").expect_code(2).expect_text("receipt body: run: expected");
    let body = schemas::receipt::ReceiptBody { run: shop.run_id("old"), ..body };
    hand_in(&shop, "old/receipts", (renamed, body), "keys/device-1.key");
    let ended = shop.reconcile("old", &log, "--no-replay").expect_code(1);
    ended.expect_text("diverge at step 0").expect_text("device 1 (");
}

/// A device that signs two receipts has not said what it computed.
#[test]
fn two_receipts_of_one_device() {
    let (shop, log) = Workshop::ready();
    // The same one twice is one entry.
    let submit = format!("submit run/receipts/receipt-0.cose --ledger {}", log.url);
    shop.run("client", &submit).expect_code(0);
    shop.run("client", &submit).expect_code(0).expect_text("(it was there)");
    let (first, mut body) = receipt(&shop, "run/receipts", 0);
    body.records[1].losses[0] ^= 1;
    hand_in(&shop, "again", (first, body), "keys/device-0.key");
    let both = format!(
        "reconcile --ledger {} --log-key log/log.pub --key predictor.key --prediction run/prediction \
         --receipts run/receipts again --out run.tally --no-replay",
        log.url
    );
    let ended = shop.run("client", &both).expect_code(2);
    ended.expect_text("one receipt of device 0: found entries").expect_text("nothing was opened");
}

/// A device that would rather say nothing.
#[test]
fn silence() {
    let (shop, log) = challenged("");
    shop.devices("run", 2, "receipts", "--fault silent:device=1").expect_code(0);
    let ended = shop.reconcile("run", &log, "--no-replay").expect_code(2);
    ended.expect_text("device 1 of 2: no receipt").expect_text("nothing was opened");
    shop.reconcile("run", &log, "--no-replay --accept-incomplete").expect_code(1);
    shop.verify("run.tally")
        .expect_code(1)
        .expect_text("verdict is incomplete: missing device 1 of 2: no receipt");
}
