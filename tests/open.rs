//! `client open` and `client status`: a sealed prediction opened without a verdict, one step shown alone, and how a run
//! stands in between.

use schemas::attachment::AttachmentName;
use schemas::object::Object as _;
use schemas::opened::OpenedStep;
use schemas::opening::Opening;
use schemas::prediction::{OpenBody, PredictionBody};
use schemas::statement::{Payload, Statement};
use serde_json::Value;
use tests::workshop::{Ended, Log, Workshop};

/// A day after any deadline that `oracle predict` sets by itself.
const LATE: &str = "--at 9999999999";

/// A folder with `run/` predicted and committed, and its log.
fn committed() -> (Workshop, Log) {
    let shop = Workshop::open();
    shop.write_run("run", 1);
    let log = shop.ledger();
    shop.predict("run", Some(&log)).expect_code(0);
    (shop, log)
}

fn open(shop: &Workshop, log: &Log, more: &str) -> Ended {
    let with = format!("open --prediction run/prediction --ledger {} --log-key log/log.pub", log.url);
    shop.run("client", &format!("{with} {more}"))
}

fn status(shop: &Workshop, log: &Log, subject: &str, more: &str) -> Ended {
    shop.run("client", &format!("status {subject} --ledger {} --log-key log/log.pub {more}", log.url))
}

/// Kinds of the entries that the log lists for the run, in log order.
fn kinds(shop: &Workshop, log: &Log) -> Vec<String> {
    let listed: Value = serde_json::from_slice(&log.get(&format!("/run/{}", shop.run_id("run")))).unwrap();
    listed["entries"].as_array().unwrap().iter().map(|e| e["kind"].as_str().unwrap().to_owned()).collect()
}

fn monitor(shop: &Workshop, log: &Log) -> Ended {
    shop.run("client", &format!("monitor --ledger {} --log-key log/log.pub --once", log.url))
}

#[test]
fn a_device_that_never_answers_does_not_keep_a_prediction_from_being_opened() {
    let (shop, log) = committed();
    let sealed = ["run", "prediction"];
    // Without receipts it is asked for twice.
    open(&shop, &log, "--key predictor.key")
        .expect_code(2)
        .expect_text(" left to open it, by ")
        .expect_text("client: error: the log holds no receipt of steps 0..3 of this run; nothing was opened")
        .expect_text(
            "client: hint: `client reconcile` logs receipts, opens the prediction and logs a verdict.",
        )
        .expect_text(
            "--without-receipts: this cannot be taken back, and receipts logged later are not judged",
        );
    assert_eq!(kinds(&shop, &log), sealed);
    shop.run("client", "keygen other.key").expect_code(0);
    open(&shop, &log, "--key other.key --without-receipts")
        .expect_code(2)
        .expect_text("other.key: expected the predictor's key ed25519:");
    assert_eq!(kinds(&shop, &log), sealed);

    open(&shop, &log, "--key predictor.key --without-receipts")
        .expect_code(0)
        .expect_text("(entry 2) is open, by entry 3")
        .expect_text("client: note: this cannot be taken back: receipts logged after entry 3 are not judged");
    let after = ["run", "prediction", "opening", "register"];
    assert_eq!(kinds(&shop, &log), after);
    // Again: the same opening, and no flag is asked for.
    let again = open(&shop, &log, "--key predictor.key --json").expect_code(0);
    let again: Value = serde_json::from_str(&again.stdout).unwrap();
    assert_eq!((&again["opening_index"], &again["repeated"]), (&3.into(), &true.into()));
    assert_eq!(kinds(&shop, &log), after);
    // The body is there for everybody.
    let body = log.get(&format!("/attachments/{}", again["body"].as_str().unwrap()));
    assert_eq!(body, std::fs::read(shop.path("run/prediction/body.cbor")).unwrap());
    assert!(log.page(&format!("/runs/{}", shop.run_id("run"))).contains(">opened<"));
    monitor(&shop, &log).expect_code(0);

    // The device answers after all: too late. Reconciling takes the same opening.
    shop.challenge("run", &log).expect_code(0);
    shop.devices("run", 1, "receipts", "").expect_code(0);
    shop.reconcile("run", &log, "--no-replay --accept-incomplete")
        .expect_code(1)
        .expect_text("receipt logged after the opening");
    assert_eq!(kinds(&shop, &log), [&after[..], &["receipt", "verdict", "register"]].concat());
}

#[test]
fn receipts_of_some_devices_are_not_all_receipts() {
    let (shop, log) = Workshop::ready();
    let submit = |rank: u64| {
        let file =
            format!("submit run/receipts/receipt-{rank}.cose --ledger {} --log-key log/log.pub", log.url);
        shop.run("client", &file).expect_code(0);
    };
    submit(0);
    open(&shop, &log, "--key predictor.key")
        .expect_code(2)
        .expect_text("error: the log holds no receipt of device 1 of 2; nothing was opened");
    submit(1);
    open(&shop, &log, "--key predictor.key").expect_code(0).expect_text("is open, by entry 5");
    // Receipts that came before are judged, after an opening by whichever command.
    shop.reconcile("run", &log, "--replay run.toml")
        .expect_code(0)
        .expect_text("agree: every compared value");
    shop.verify("run.tally").expect_code(0);
}

#[test]
fn a_damaged_salt_or_body_is_noticed_before_anything_is_sent() {
    let (shop, log) = committed();
    let salt = std::fs::read_to_string(shop.path("run/prediction/salt")).unwrap();
    let other = if salt.starts_with('0') { "1" } else { "0" }.to_owned() + &salt[1..];
    let refused = |message: &str| {
        for what in ["--key predictor.key --without-receipts", "--step 1 --out step-1.opened"] {
            open(&shop, &log, what).expect_code(2).expect_text(message);
        }
        assert_eq!(kinds(&shop, &log), ["run", "prediction"]);
        assert!(!shop.path("step-1.opened").exists());
    };
    std::fs::write(shop.path("run/prediction/salt"), &other).unwrap();
    refused("the prediction was sealed with");
    refused("client: hint: one of salt and body.cbor is damaged: `oracle predict` again with the same --out");
    std::fs::write(shop.path("run/prediction/salt"), &salt[..40]).unwrap();
    refused("salt: expected 64 lower-case hexadecimal digits");
    std::fs::write(shop.path("run/prediction/salt"), &salt).unwrap();
    std::fs::write(shop.path("run/prediction/body.cbor"), b"").unwrap();
    refused("body.cbor: prediction: not well-formed CBOR");
    // The hint is right: the body comes back, the salt and the entry stay.
    shop.predict("run", Some(&log)).expect_code(0);
    open(&shop, &log, "--step 1 --out step-1.opened").expect_code(0);
    assert_eq!(kinds(&shop, &log), ["run", "prediction"]);
}

#[test]
fn one_step_is_shown_and_checked_offline_while_the_others_stay_sealed() {
    let (shop, log) = committed();
    open(&shop, &log, "--step 3 --out step-3.opened")
        .expect_code(2)
        .expect_text("--step 3: expected one of the steps 0..3 of the prediction");
    open(&shop, &log, "--step 1").expect_code(2).expect_text("--out");
    let made = open(&shop, &log, "--step 1 --out step-1.opened").expect_code(0);
    let made = made
        .expect_text("of the other 2 records it holds the seals alone")
        .expect_text("can copy the record of the step");
    let (_, hint) = made.stderr.split_once("client: hint: whoever gets it: client ").unwrap();
    assert_eq!(kinds(&shop, &log), ["run", "prediction"], "nothing goes into the log");
    let state = status(&shop, &log, "run/prediction", "").expect_code(0);
    state.expect_text(" left to open it, by ");
    // The same answers of the log give the same bytes.
    let bytes = std::fs::read(shop.path("step-1.opened")).unwrap();
    open(&shop, &log, "--step 1 --out again.opened").expect_code(0);
    assert_eq!(std::fs::read(shop.path("again.opened")).unwrap(), bytes);
    drop(log);

    let verified = shop.run("client", hint.trim()).expect_code(0);
    let body = std::fs::read(shop.path("run/prediction/body.cbor")).unwrap();
    let body = PredictionBody::decode(&body).unwrap();
    let loss = f32::from_bits(body.records[1].losses[2]);
    let verified = verified
        .expect_text("6. record is the one sealed [ok]: step 1, record 2 of 3, seal ")
        .expect_text(&format!("leaf 2 loss {loss} (0x{:08x}), trace ", body.records[1].losses[2]))
        .expect_text("note: no order is proven: who has this record can copy it")
        .expect_text("verified: this is step 1 of run ");
    assert!(verified.stdout.contains(&body.records[1].outcome.as_ref().unwrap().parameters.to_string()));
    let json = shop.run("client", &format!("{} --json", hint.trim())).expect_code(0);
    let json: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!((&json["verified"], &json["opened"]["step"]), (&true.into(), &1.into()));
    shop.run("client", "verify step-1.opened --log-key log/log.pub --predictor-key keys/none.pub")
        .expect_code(2);

    // Neither the salt nor another record is in it.
    let holds = |part: &[u8]| bytes.windows(part.len()).any(|window| window == part);
    let salt = std::fs::read_to_string(shop.path("run/prediction/salt")).unwrap();
    let salt: schemas::digest::Salt = salt.trim().parse().unwrap();
    assert!(!holds(&salt.0) && !holds(salt.to_string().as_bytes()));
    for (step, record) in body.records.iter().enumerate() {
        let shown = step == 1;
        assert!(record.traces.iter().all(|trace| holds(&trace.0) == shown), "step {step}");
        assert_eq!(holds(&record.outcome.as_ref().unwrap().parameters.0), shown, "step {step}");
    }
    // Another's key, another log's key, a changed record, a file cut short.
    shop.run("client", "keygen other.key").expect_code(0);
    shop.run("client", "verify step-1.opened --log-key log/log.pub --predictor-key other.pub")
        .expect_code(1)
        .expect_text("not verified: check 4: entry 2: the prediction is signed by ed25519:")
        .expect_text("client: hint: another predictor's key, or another's step");
    let mut object = OpenedStep::decode(&bytes).unwrap();
    object.record.losses[2] ^= 1 << 12;
    std::fs::write(shop.path("changed.opened"), object.encode()).unwrap();
    shop.verify("changed.opened")
        .expect_code(1)
        .expect_text("not verified: check 6: salt, record and the others'");
    std::fs::write(shop.path("cut.opened"), &bytes[..bytes.len() - 1]).unwrap();
    shop.verify("cut.opened")
        .expect_code(2)
        .expect_text("not verified: check 1: opened: not well-formed CBOR");
}

#[test]
fn an_unopened_prediction_past_its_deadline_is_named_by_status_monitor_and_site() {
    let shop = Workshop::open();
    shop.write_run("run", 1);
    let log = shop.ledger();
    // A deadline of this very second: over before the next question is asked.
    let commit = format!("--commit --ledger {} --log-key log/log.pub --reveal-days 0", log.url);
    let predict =
        format!("predict --run run.toml --steps 0..3 --out run --key predictor.key {commit} --json");
    let predicted = shop.run("oracle", &predict).expect_code(0);
    let predicted: Value = serde_json::from_str(&predicted.stdout).unwrap();
    let reveal_by = predicted["reveal_by_unix_s"].as_u64().unwrap();
    let late = format!("--at {}", reveal_by + 2 * 86_400 + 3_601);
    let run = shop.run_id("run").to_string();
    status(&shop, &log, &run, &late)
        .expect_code(1)
        .expect_text("unopened: it had to be opened by ")
        .expect_text(", 2 days 1 hour ago, and counts as unopened")
        .expect_text("client: hint: next: the predictor opens entry 2, late:");
    // The last second still counts.
    status(&shop, &log, &run, &format!("--at {reveal_by}"))
        .expect_code(0)
        .expect_text("sealed: 0 seconds left");
    // Monitor and site ask this machine's clock, which has passed it by now or does so within this second.
    while std::time::SystemTime::now()
        <= std::time::UNIX_EPOCH + std::time::Duration::from_secs(reveal_by + 1)
    {
        std::thread::yield_now();
    }
    monitor(&shop, &log).expect_code(1).expect_text("overdue: prediction ");
    assert!(log.page(&format!("/runs/{run}")).contains(">unopened<"));
    shop.challenge("run", &log)
        .expect_code(0)
        .expect_text("note: unless the prediction has been opened: it had to be");
    shop.devices("run", 1, "receipts", "").expect_code(0);
    shop.reconcile("run", &log, "--no-replay")
        .expect_code(0)
        .expect_text("and counts as unopened (this machine's clock)");
    // Opened late is opened: no clock of the log says when.
    status(&shop, &log, &run, LATE)
        .expect_code(0)
        .expect_text("opened by entry 4: its body is the one sealed")
        .expect_text("note: whether an opening came in time is not shown");
}

#[test]
fn status_tells_how_a_run_stands_at_each_stage() {
    let (shop, log) = Workshop::ready();
    let run = shop.run_id("run").to_string();
    let of = |subject: &str| status(&shop, &log, subject, "");
    of("run/prediction")
        .expect_code(0)
        .expect_text("no receipt")
        .expect_text("the log holds no receipt of steps 0..3 of this run: `client challenge`")
        .expect_text("note: that the list leaves nothing out is the server's word");
    of(&run[..16])
        .expect_code(2)
        .expect_text("expected a run id or a prediction's folder: run id: expected 64");
    of(&"0".repeat(64)).expect_code(2).expect_text("is not in the log at http://");
    for rank in 0..2 {
        let file = format!("submit run/receipts/receipt-{rank}.cose --ledger {}", log.url);
        shop.run("client", &file).expect_code(0);
    }
    of(&run)
        .expect_code(0)
        .expect_text("receipt, entry 4, of device 1 of 2, steps 0..3, simulated, by ed25519:")
        .expect_text("while the prediction is sealed")
        .expect_text("next: `client reconcile` opens entry 2 and logs the verdict; by ");
    open(&shop, &log, "--key predictor.key").expect_code(0);
    let opened = of(&run).expect_code(0).expect_text("opened by entry 5: its body is the one sealed");
    opened
        .expect_text("before the opening")
        .expect_text("note: that nothing below entry 6 is left out is the log's signed word")
        .expect_text("next: `client reconcile` logs the verdict over the receipts");
    shop.reconcile("run", &log, "--no-replay").expect_code(0);
    // One more device answers, after the opening.
    let late = "--challenge run/job/challenge.note --devices 1 --steps 0..3 --keys late-keys --out run/late";
    shop.run("device", &format!("run --backend simulated --job run/job {late}")).expect_code(0);
    shop.run("client", &format!("submit run/late/receipt-0.cose --ledger {}", log.url)).expect_code(0);
    let last = status(&shop, &log, &run, "--json").expect_code(0);
    let last: Value = serde_json::from_str(&last.stdout).unwrap();
    assert_eq!(
        (&last["predictions"][0]["state"], &last["verdicts"][0]["outcome"]),
        (&"opened".into(), &"agree".into())
    );
    assert_eq!(
        (&last["predictions"][0]["index"], &last["predictions"][0]["opening_index"]),
        (&2.into(), &5.into())
    );
    let when = |at: usize| last["receipts"][at]["came"][0]["when"].as_str().unwrap().to_owned();
    assert_eq!([when(0), when(2)], ["before the opening", "after the opening, so it is not judged"]);
    assert!(last["next"].as_str().unwrap().contains("`client verify run.tally`"), "{last}");
}

/// The opening of `run/`, by its predictor's key, over this salt and the body of the folder.
fn write_opening(shop: &Workshop, file: &str, salt: &str) {
    let read = |name: &str| std::fs::read(shop.path(&format!("run/prediction/{name}"))).unwrap();
    let open = OpenBody { salt: salt.trim().parse().unwrap(), body: AttachmentName::of(&read("body.cbor")) };
    let prediction = Statement::open(&read("prediction.cose")).unwrap().digest;
    let opening = Payload::Opening(Opening { run: shop.run_id("run"), prediction, open });
    let key = client::keyfile::load(&shop.path("predictor.key")).unwrap();
    std::fs::write(shop.path(file), Statement::sign(&opening, &key).unwrap()).unwrap();
}

#[test]
fn an_opening_whose_body_is_not_there_or_not_the_sealed_one_opens_in_name_only() {
    let (shop, log) = committed();
    let salt = std::fs::read_to_string(shop.path("run/prediction/salt")).unwrap();
    let submit = |file: &str, log: &Log| {
        let arguments = format!("submit {file} --ledger {} --log-key log/log.pub", log.url);
        shop.run("client", &arguments).expect_code(0);
    };
    // The opening alone, without the body; the right one, so that doing it again mends it.
    write_opening(&shop, "opening.cose", &salt);
    submit("opening.cose", &log);
    status(&shop, &log, "run/prediction", "")
        .expect_code(1)
        .expect_text("opened by entry 3: but in name only: its body ")
        .expect_text("next: the predictor runs `client open` again, which sends the body of entry 2");
    open(&shop, &log, "--key predictor.key").expect_code(0).expect_text("was open already, by entry 3");
    status(&shop, &log, "run/prediction", "")
        .expect_code(0)
        .expect_text("opened by entry 3: its body is the one");
    log.stop();

    // Another salt, in a log that has the body: nothing mends that, since a key has one opening of a prediction.
    std::fs::rename(shop.path("log"), shop.path("log-before")).unwrap();
    std::fs::rename(shop.path("log.lock"), shop.path("lock-before")).unwrap();
    let log = shop.ledger();
    shop.predict("run", Some(&log)).expect_code(0);
    let name = AttachmentName::of(&std::fs::read(shop.path("run/prediction/body.cbor")).unwrap());
    write_opening(&shop, "other.cose", &"7".repeat(64));
    submit("other.cose", &log);
    open(&shop, &log, "--key predictor.key --without-receipts")
        .expect_code(2)
        .expect_text("is already opened by this key");
    assert!(!log.get(&format!("/attachments/{}", name.sha256)).is_empty(), "the body goes first");
    status(&shop, &log, "run/prediction", "")
        .expect_code(1)
        .expect_text("opened by entry 3: but in name only: salt and body have seal ")
        .expect_text("next: nothing mends the opening of entry 2");
}

/// Anybody may predict anybody's run; whose deadline counts is for the reader to say.
#[test]
fn a_strangers_overdue_prediction_counts_only_for_who_asks_about_it() {
    let (shop, log) = committed();
    let run = shop.run_id("run").to_string();
    let stranger = format!(
        "predict --run run.toml --steps 0..3 --out strange --key stranger.key --commit --ledger {} \
         --log-key log/log.pub --reveal-days 0",
        log.url
    );
    shop.run("oracle", &stranger).expect_code(0);
    status(&shop, &log, "run/prediction", "")
        .expect_code(0)
        .expect_text("note: 1 prediction by another key is left out");
    let soon = deadline(&shop, "strange") + 1;
    status(&shop, &log, &run, &format!("--at {soon}"))
        .expect_code(1)
        .expect_text("unopened: it had to be opened by ");
    let asked = format!("--at {soon} --predictor-key predictor.pub");
    status(&shop, &log, &run, &asked).expect_code(0).expect_text(" left to open it, by ");
    status(&shop, &log, &run, &format!("--at {soon} --predictor-key stranger.pub")).expect_code(1);
    // Nor does a stranger's opening open it.
    std::fs::rename(shop.path("predictor.key"), shop.path("kept.key")).unwrap();
    std::fs::rename(shop.path("stranger.key"), shop.path("predictor.key")).unwrap();
    write_opening(&shop, "opening.cose", &"7".repeat(64));
    let submit = format!("submit opening.cose --ledger {} --log-key log/log.pub", log.url);
    shop.run("client", &submit).expect_code(0);
    status(&shop, &log, &run, &asked).expect_code(0).expect_text(" left to open it, by ");
    assert!(log.page(&format!("/runs/{run}")).contains(">sealed<"));
}

/// By when the prediction of a folder has to be opened.
fn deadline(shop: &Workshop, name: &str) -> u64 {
    let bytes = std::fs::read(shop.path(&format!("{name}/prediction/prediction.cose"))).unwrap();
    let Payload::Prediction(prediction) = Statement::open(&bytes).unwrap().payload else {
        panic!("a prediction")
    };
    prediction.reveal_by
}
