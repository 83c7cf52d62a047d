//! Whoever reconciles, and whoever makes a bundle or hands it on.

use crate::forge::{as_operator, bundle, copied, hand_in, read, receipt, secret, sign, write_bundle};
use schemas::bundle::{Bundle, ProvenEntry};
use schemas::digest::EntryDigest;
use schemas::object::Object as _;
use schemas::statement::{Payload, Statement};
use schemas::verdict::{Cause, Finding, Outcome, Phase, Verdict};
use tests::workshop::{Log, Workshop};

/// Logs another verdict, signed by a key, and makes the bundle anew with it.
fn with_verdict(shop: &Workshop, log: &Log, key: &str, change: impl FnOnce(&mut Verdict)) {
    let mut told = bundle(shop, "run.tally");
    let last = told.entries.pop().unwrap();
    let Payload::Verdict(mut verdict) = Statement::open(&last.bytes).unwrap().payload else { panic!() };
    change(&mut verdict);
    sign(shop, "verdict.cose", &Payload::Verdict(verdict), key);
    shop.run("client", &format!("submit verdict.cose --ledger {}", log.url)).expect_code(0);
    told.entries.push(ProvenEntry { index: 0, bytes: read(shop, "verdict.cose"), proof: vec![] });
    write_bundle(shop, "forged.tally", told, &as_operator(shop, log));
}

/// The verdict says what did not come out, for the devices or against them.
#[test]
fn a_false_verdict() {
    let (shop, log, ended) = Workshop::faulty(&["--fault skipped-update:device=1,step=1"]);
    ended.expect_code(1);
    with_verdict(&shop, &log, "predictor.key", |verdict| {
        (verdict.outcome, verdict.step, verdict.findings) = (Outcome::Agree, None, vec![]);
    });
    let ended = shop.verify("forged.tally").expect_code(1).expect_text("not verified: check 8");
    ended.expect_text("the logged verdict's outcome is Agree, the comparison gives Diverge");

    let (shop, log, ended) = Workshop::faulty(&[]);
    ended.expect_code(0);
    let device = secret(&shop, "keys/device-1.key").public();
    with_verdict(&shop, &log, "predictor.key", |verdict| {
        let finding = Finding {
            device,
            rank: 1,
            phase: Phase::Update,
            peer: None,
            leaf: None,
            operation: None,
            tensor: None,
            word: None,
            cause: Cause::Undetermined,
            note: "made up".into(),
        };
        (verdict.outcome, verdict.step, verdict.findings) = (Outcome::Diverge, Some(1), vec![finding]);
    });
    let ended = shop.verify("forged.tally").expect_code(1);
    ended.expect_text("the logged verdict's outcome is Diverge, the comparison gives Agree");
    // A stranger's verdict, even a right one, is nobody's word.
    shop.run("client", "keygen stranger.key").expect_code(0);
    with_verdict(&shop, &log, "stranger.key", |_| ());
    shop.verify("forged.tally").expect_code(1).expect_text("the verdict is signed by");
}

/// The cause is made up: what it is about stays right, the report says whose word it is, and a replay tells.
#[test]
fn a_false_cause() {
    let fault =
        "--fault bit-flip:device=1,step=1,leaf=3,operation=forward.layer1.attention,element=100,bit=30";
    let (shop, log, ended) = Workshop::faulty(&[fault]);
    ended.expect_code(1).expect_text("cause fault");
    with_verdict(&shop, &log, "predictor.key", |verdict| {
        let finding = &mut verdict.findings[0];
        finding.cause = Cause::Configuration("uncontracted".into());
        finding.note += "; computed again in this configuration it has the device's bits";
    });
    let ended =
        shop.verify("forged.tally").expect_code(1).expect_text("diverge at step 1: device 1 in phase leaf");
    ended.expect_text(
        "that a configuration is the cause, or that no known one is, is the verdict signer's word",
    );
    let pinpoint =
        "pinpoint run/receipts/traces/rank-1/step-000001-leaf-0003.cbor --prediction run/prediction";
    shop.run("client", &format!("{pinpoint} --replay run.toml")).expect_code(1).expect_text("cause fault");
}

/// A receipt that is in the log and not in the bundle: of the devices' receipts the bundle shows what its maker chose.
#[test]
fn leaving_out_a_receipt() {
    let (shop, log) = Workshop::ready();
    let (first, mut body) = receipt(&shop, "run/receipts", 0);
    body.records[1].losses[0] ^= 1;
    hand_in(&shop, "unwelcome", (first, body), "keys/device-0.key");
    shop.run("client", &format!("submit unwelcome/receipt-0.cose --ledger {}", log.url)).expect_code(0);
    shop.reconcile("run", &log, "--no-replay").expect_code(0);
    shop.verify("run.tally").expect_code(0).expect_text("in 2 receipts");
    // What shows it is the list of everything that the log has of the run.
    let fetch = format!(
        "completeness {} --ledger {} --log-key log/log.pub --entries --out run.completeness",
        shop.run_id("run"),
        log.url
    );
    shop.run("client", &fetch).expect_code(0).expect_text("among them 1 prediction and 3 receipts");
    let check = "completeness run.completeness --log-key log/log.pub";
    shop.run("client", check).expect_code(0).expect_text("among them 1 prediction and 3 receipts");
    // A device that is left out altogether is missed, whatever the verdict says.
    let mut told = bundle(&shop, "run.tally");
    let gone = told.entries.remove(4);
    let name = EntryDigest::of(&gone.bytes);
    let last = told.entries.pop().unwrap();
    let Payload::Verdict(mut verdict) = Statement::open(&last.bytes).unwrap().payload else { panic!() };
    verdict.receipts.retain(|entry| *entry != name);
    sign(&shop, "verdict.cose", &Payload::Verdict(verdict), "predictor.key");
    shop.run("client", &format!("submit verdict.cose --ledger {}", log.url)).expect_code(0);
    told.entries.push(ProvenEntry { index: 0, bytes: read(&shop, "verdict.cose"), proof: vec![] });
    // Folds of a body that is not there have to be zeros: so the other body is put in as it is.
    told.folds = vec![];
    told.attachments.push(read(&shop, "run/receipts/receipt-0.body.cbor"));
    write_bundle(&shop, "fewer.tally", told, &as_operator(&shop, &log));
    let ended = shop.verify("fewer.tally").expect_code(1);
    ended.expect_text("the logged verdict's outcome is Agree, the comparison gives Incomplete");
}

/// Parts of two runs put together.
#[test]
fn mixing_two_runs() {
    let (shop, log) = Workshop::ready();
    shop.reconcile("run", &log, "--no-replay").expect_code(0);
    shop.write_run("better", 2);
    shop.predict("better", Some(&log)).expect_code(0);
    shop.challenge("better", &log).expect_code(0);
    shop.devices("better", 2, "receipts", "").expect_code(0);
    shop.reconcile("better", &log, "--no-replay").expect_code(0);
    let own = as_operator(&shop, &log);
    let (one, other) = (bundle(&shop, "run.tally"), bundle(&shop, "better.tally"));
    let mixed = |places: [&Bundle; 6]| {
        let entries = (0..).zip(places).map(|(at, from): (usize, &Bundle)| from.entries[at].clone());
        Bundle { entries: entries.collect(), completeness: None, ..one.clone() }
    };
    // Run, prediction, opening, two receipts, verdict.
    let refused = |places: [&Bundle; 6], message: &str| {
        write_bundle(&shop, "mixed.tally", mixed(places), &own);
        shop.verify("mixed.tally").expect_code(1).expect_text("check 4").expect_text(message);
    };
    refused([&one, &one, &one, &other, &one, &one], "the receipt belongs to run");
    refused([&one, &one, &other, &one, &one, &one], "the opening belongs to run");
    refused([&one, &other, &one, &one, &one, &one], "the prediction belongs to run");
    refused([&one, &one, &one, &one, &one, &other], "the verdict belongs to run");
    // Bodies of the other run, the entries left as they are.
    let bodies = Bundle { folds: other.folds.clone(), attachments: other.attachments.clone(), ..one.clone() };
    std::fs::write(shop.path("mixed.tally"), bodies.encode()).unwrap();
    shop.verify("mixed.tally")
        .expect_code(1)
        .expect_text("the prediction's body is not among the attachments");
    // A receipt that names the run, and was made for nothing: its body is not the one it names.
    let copy = copied(&shop, "run", &predicted(&shop), (0, 2));
    hand_in(&shop, "made", copy, "keys/device-0.key");
    let mut told = one.clone();
    let receipt = read(&shop, "made/receipt-0.cose");
    shop.run("client", &format!("submit made/receipt-0.cose --ledger {}", log.url)).expect_code(0);
    told.entries[3].bytes = receipt;
    told.completeness = None;
    write_bundle(&shop, "mixed.tally", told, &as_operator(&shop, &log));
    shop.verify("mixed.tally").expect_code(1).expect_text("receipt logged after the opening");
}

fn predicted(shop: &Workshop) -> schemas::prediction::PredictionBody {
    schemas::prediction::PredictionBody::decode(&read(shop, "run/prediction/body.cbor")).unwrap()
}
