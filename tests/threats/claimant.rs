//! Whoever predicts, and wants to be right whatever happens.

use crate::forge::{as_operator, bundle, read, run_of, said, secret, sign, write_bundle};
use crate::lying::Files;
use schemas::attachment::AttachmentName;
use schemas::bundle::{BUNDLE_VERSION, Bundle};
use schemas::digest::{EntryDigest, PlanDigest, Seal};
use schemas::object::Object as _;
use schemas::opening::Opening;
use schemas::prediction::{OpenBody, PredictionBody};
use schemas::run::Steps;
use schemas::statement::{Payload, Statement};
use schemas::verdict::{Outcome, Verdict};
use tests::workshop::{Ended, Log, Workshop};

fn monitor(shop: &Workshop, address: &str) -> Ended {
    shop.run("client", &format!("monitor --ledger {address} --log-key log/log.pub --once"))
}

/// First the run, then the "prediction".
#[test]
fn predicting_after_the_run() {
    let shop = Workshop::open();
    shop.write_run("run", 1);
    let log = shop.ledger();
    // The run alone is logged; the devices answer a checkpoint of that time and log their receipts. Then someone
    // predicts.
    shop.predict("run", None).expect_code(0);
    shop.run("client", &format!("submit run/job/run.cose --ledger {}", log.url)).expect_code(0);
    std::fs::write(shop.path("run/job/challenge.note"), log.get("/checkpoint")).unwrap();
    shop.devices("run", 2, "receipts", "").expect_code(0);
    for rank in 0..2 {
        let submit = format!("submit run/receipts/receipt-{rank}.cose --ledger {}", log.url);
        shop.run("client", &submit).expect_code(0);
    }
    shop.predict("run", Some(&log)).expect_code(0);
    shop.expect_incomplete(&log, "prediction logged after the receipt");
}

/// The receipts are held back until the prediction is in the log: their challenge is too old all the same.
#[test]
fn a_challenge_from_before_the_prediction() {
    let shop = Workshop::open();
    shop.write_run("run", 1);
    let log = shop.ledger();
    let old = log.get("/checkpoint");
    shop.predict("run", Some(&log)).expect_code(0);
    std::fs::write(shop.path("run/job/challenge.note"), old).unwrap();
    shop.devices("run", 2, "receipts", "").expect_code(0);
    shop.expect_incomplete(&log, "challenge older than the prediction");
}

/// Many predictions, of which one will fit: the log takes one for each key; one that takes more is caught by its own
/// register, or by whoever reads it.
#[test]
fn a_hundred_predictions() {
    let (shop, log) = Workshop::ready();
    let again = format!(
        "predict --run run.toml --steps 0..3 --out second --key predictor.key --commit --ledger {} \
         --log-key log/log.pub",
        log.url
    );
    shop.run("oracle", &again).expect_code(2).expect_text("already predicts");
    shop.reconcile("run", &log, "--no-replay").expect_code(0);
    shop.verify("run.tally").expect_code(0).expect_text("its signer's only prediction of these steps");

    // A log that helps: 99 more right behind the first, and everything after them as it was.
    let honest = as_operator(&shop, &log);
    let run = shop.run_id("run");
    let Payload::Prediction(prediction) = Statement::open(&honest.entries[2]).unwrap().payload else {
        panic!()
    };
    let mut lying = honest.clone();
    lying.entries.truncate(3);
    for number in 1..100 {
        let other = schemas::prediction::Prediction { seal: Seal([number; 32]), ..prediction.clone() };
        let other = Statement::sign(&Payload::Prediction(other), &secret(&shop, "predictor.key")).unwrap();
        lying.append(other);
    }
    let is_register =
        |entry: &Vec<u8>| matches!(Statement::open(entry).unwrap().payload, Payload::Register(_));
    for entry in &honest.entries[3..] {
        match is_register(entry) {
            true => lying.add_register(run),
            false => drop(lying.append(entry.clone())),
        }
    }
    write_bundle(&shop, "helped.tally", bundle(&shop, "run.tally"), &lying);
    let ended = shop.verify("helped.tally").expect_code(1);
    ended.expect_text("expected entry 2 as the only prediction of these steps by its signer, found 2, 3, 4,");
    std::fs::write(shop.path("helped.completeness"), lying.completeness(run).encode()).unwrap();
    let check = "completeness helped.completeness --log-key log/log.pub --predictor-key predictor.pub";
    shop.run("client", check).expect_code(1).expect_text("not shown to be complete: check 6");
    let files = Files::default();
    let address = files.start();
    files.show(&lying);
    monitor(&shop, &address)
        .expect_code(1)
        .expect_text("second prediction: entry 3 predicts steps 0..3 of run");

    // It leaves them out of its register: the bundle verifies, by the log's word, which whoever reads the log refutes.
    let mut register = lying.register(run);
    let whole = honest.completeness(run);
    register.predictions = honest.register(run).predictions;
    lying.entries.pop();
    register.size = lying.size();
    lying.append_register(register);
    let mut hidden = bundle(&shop, "run.tally");
    hidden.completeness = None;
    write_bundle(&shop, "hidden.tally", hidden.clone(), &lying);
    let ended = shop.verify("hidden.tally").expect_code(0);
    ended.expect_text("that the predictor made no other prediction of these steps is not shown");
    let proven = lying.completeness(run);
    let listed =
        schemas::completeness::Completeness { predictions: whole.predictions, entries: None, ..proven };
    let mut hidden = bundle(&shop, "hidden.tally");
    hidden.completeness = Some(listed);
    std::fs::write(shop.path("hidden.tally"), hidden.encode()).unwrap();
    shop.verify("hidden.tally")
        .expect_code(0)
        .expect_text("leaves no prediction out is the log's word, signed");
    files.show(&lying);
    monitor(&shop, &address).expect_code(1).expect_text("register wrong: entry ");
}

/// Another key is another predictor: nothing forbids it, and everybody can see it.
#[test]
fn a_second_prediction_under_another_key() {
    let (shop, log) = Workshop::ready();
    let again = format!(
        "predict --run run.toml --steps 0..3 --out second --key second.key --commit --ledger {} --log-key log/log.pub",
        log.url
    );
    shop.run("oracle", &again).expect_code(0);
    shop.reconcile("run", &log, "--no-replay").expect_code(0);
    shop.verify("run.tally")
        .expect_code(0)
        .expect_text("predictions under another key or in another log are not seen");
    let fetch = format!(
        "completeness {} --ledger {} --log-key log/log.pub --out run.completeness",
        shop.run_id("run"),
        log.url
    );
    shop.run("client", &fetch).expect_code(0).expect_text("among them 2 predictions");
    let page = log.page(&format!("/runs/{}", shop.run_id("run")));
    assert!(page.contains(&secret(&shop, "second.key").public().to_string()[8..16]), "{page}");
}

/// A prediction that turned out badly and is never opened.
#[test]
fn never_opening() {
    let (shop, log) = Workshop::ready();
    // The same claim with another deadline, by the claimant's own tools and in a log of its own.
    let other = Workshop::open();
    let other_log = other.ledger();
    let Payload::Prediction(mut prediction) = said(&shop, "run/prediction/prediction.cose") else { panic!() };
    prediction.reveal_by = 1_000_000_000;
    std::fs::copy(shop.path("run/job/run.cose"), other.path("run.cose")).unwrap();
    std::fs::copy(shop.path("predictor.key"), other.path("predictor.key")).unwrap();
    sign(&other, "prediction.cose", &Payload::Prediction(prediction), "predictor.key");
    for file in ["run.cose", "prediction.cose"] {
        other.run("client", &format!("submit {file} --ledger {}", other_log.url)).expect_code(0);
    }
    let overdue = "had to be opened by 1000000000 (POSIX seconds) and is not";
    monitor(&other, &other_log.url).expect_code(1).expect_text("overdue: prediction ").expect_text(overdue);
    let run = shop.run_id("run");
    let status = format!("status {run} --ledger {} --log-key log/log.pub", other_log.url);
    let unopened = "unopened: it had to be opened by 2001-09-09T01:46:40Z";
    other.run("client", &status).expect_code(1).expect_text(unopened);
    let page = |log: &Log| log.page(&format!("/runs/{run}"));
    assert!(page(&other_log).contains("unopened"), "{}", page(&other_log));
    // While there is time nobody complains, and the deadline is there for all to see.
    monitor(&shop, &log.url).expect_code(0);
    assert!(!page(&log).contains("unopened") && page(&log).contains("sealed"), "{}", page(&log));
}

/// The statement names another plan or other data than the job has.
#[test]
fn a_run_statement_of_another_plan() {
    let (shop, log) = Workshop::ready();
    shop.reconcile("run", &log, "--no-replay").expect_code(0);
    let job = |file: &str| format!("run/job/{file}");
    let whole = ["run.cose", "tokens.bin", "plan.cbor"].map(|file| (job(file), read(&shop, &job(file))));
    let refused = |what: &str, change: &dyn Fn(), message: &str| {
        change();
        shop.devices("run", 2, what, "").expect_code(2).expect_text(message);
        assert!(!shop.path(&format!("run/{what}/receipt-0.cose")).exists());
        for (file, bytes) in &whole {
            std::fs::write(shop.path(file), bytes).unwrap();
        }
    };
    let other = schemas::run::Run { plan: PlanDigest([7; 32]), ..run_of(&shop, "run") };
    let sign_other = || sign(&shop, "run/job/run.cose", &Payload::Run(other.clone()), "predictor.key");
    refused("plan", &sign_other, "plan.cbor: digest is");
    let spoil = || {
        let mut tokens = read(&shop, "run/job/tokens.bin");
        tokens[0] ^= 1;
        std::fs::write(shop.path("run/job/tokens.bin"), tokens).unwrap();
    };
    refused("data", &spoil, "tokens.bin: ");
    // In a bundle: another plan than the run's.
    shop.write_run("other", 2);
    shop.predict("other", None).expect_code(0);
    let mut swapped = bundle(&shop, "run.tally");
    swapped.plan = read(&shop, "other/job/plan.cbor");
    std::fs::write(shop.path("swapped.tally"), swapped.encode()).unwrap();
    shop.verify("swapped.tally").expect_code(1).expect_text("not verified: check 5");
}

/// The seal holds one prediction, and not the one that would have been right.
#[test]
fn opening_something_else() {
    let shop = Workshop::open();
    shop.write_run("run", 1);
    let log = shop.ledger();
    shop.predict("run", Some(&log)).expect_code(0);
    shop.challenge("run", &log).expect_code(0);
    shop.devices("run", 2, "receipts", "--fault skipped-update:device=0,step=2").expect_code(0);
    // In the folder: noticed before anything is opened.
    let file = "run/prediction/body.cbor";
    let bytes = read(&shop, file);
    let mut body = PredictionBody::decode(&bytes).unwrap();
    body.records[2].losses[0] ^= 1;
    std::fs::write(shop.path(file), body.encode()).unwrap();
    shop.reconcile("run", &log, "--no-replay").expect_code(2).expect_text("seal");
    // By the claimant's own tools: the opening is in the log before an honest one can be.
    let salt = String::from_utf8(read(&shop, "run/prediction/salt")).unwrap().trim().parse().unwrap();
    let prediction = Statement::open(&read(&shop, "run/prediction/prediction.cose")).unwrap().digest;
    let open = OpenBody { salt, body: AttachmentName::of(&body.encode()) };
    let opening = Payload::Opening(Opening { run: shop.run_id("run"), prediction, open });
    sign(&shop, "opening.cose", &opening, "predictor.key");
    for rank in 0..2 {
        let submit = format!("submit run/receipts/receipt-{rank}.cose --ledger {}", log.url);
        shop.run("client", &submit).expect_code(0);
    }
    shop.run("client", &format!("submit opening.cose --ledger {}", log.url)).expect_code(0);
    std::fs::write(shop.path(file), &bytes).unwrap();
    shop.reconcile("run", &log, "--no-replay").expect_code(2).expect_text("is already opened by this key");
    // A bundle of it, as good as it can be made.
    let mut own = as_operator(&shop, &log);
    let digest = |index: usize| EntryDigest::of(&own.entries[index]);
    let verdict = Verdict {
        run: shop.run_id("run"),
        prediction,
        opening: Some(digest(5)),
        receipts: vec![digest(3), digest(4)],
        steps: Steps { first: 0, end: 3 },
        outcome: Outcome::Agree,
        step: None,
        findings: vec![],
        missing: vec![],
        simulated: true,
        answer: None,
        evidence: vec![],
    };
    let verdict = Payload::Verdict(Box::new(verdict));
    own.append(Statement::sign(&verdict, &secret(&shop, "predictor.key")).unwrap());
    // Run, prediction, opening, receipts, verdict; entry 6 is the opening's register.
    let entries = [1, 2, 5, 3, 4, 7].map(|index| own.proven(index));
    let forged = Bundle {
        version: BUNDLE_VERSION,
        checkpoint: vec![],
        entries: entries.to_vec(),
        covers: vec![],
        plan: read(&shop, "run/job/plan.cbor"),
        attachments: vec![body.encode()],
        folds: vec![],
        completeness: None,
    };
    write_bundle(&shop, "forged.tally", forged, &own);
    let ended = shop.verify("forged.tally").expect_code(1);
    ended.expect_text("not verified: check 5: salt and body have seal");
}
