//! The whole path, from a config to a bundle that a stranger verifies offline: the best introduction to the commands.

use tests::workshop::Workshop;

#[test]
fn a_run_that_was_predicted_agrees_and_is_verified_offline() {
    let shop = Workshop::open();
    shop.write_run("small", 1);
    let log = shop.ledger();

    // Before: plan, predict, seal, commit.
    shop.run("oracle", "plan --run small.toml").expect_code(0).expect_text("multiply-accumulates");
    shop.predict("small", Some(&log)).expect_code(0).expect_text("prediction as entry");

    // The run: a challenge that only now exists, two devices, a receipt each.
    shop.challenge("small", &log).expect_code(0);
    shop.devices("small", 2, "receipts", "").expect_code(0);

    // After: compare, open, log, bundle. The step that the challenge chose is computed again.
    let ended = shop.reconcile("small", &log, "--replay small.toml").expect_code(0);
    ended.expect_text("agree").expect_text("held against a replay of step");
    // In a browser: the run with its verdict, in words.
    let run = shop.run_id("small").to_string();
    assert!(log.page("/runs").contains(&run));
    let page = log.page(&format!("/runs/{run}"));
    for word in ["prediction", "receipt", "verdict", "agree"] {
        assert!(page.contains(word), "{word:?} is not on the run's page:\n{page}");
    }
    drop(log);

    // A stranger: one file and two keys; the log is gone.
    let ended = shop.verify("small.tally").expect_code(0);
    ended.expect_text("verified").expect_text("simulated");
    let json =
        shop.run("client", "verify small.tally --log-key log/log.pub --predictor-key predictor.pub --json");
    let report: serde_json::Value = serde_json::from_str(&json.expect_code(0).stdout).unwrap();
    assert_eq!(report["verdict"]["outcome"], "agree", "{report}");
    // The log's register says that there is one prediction; nobody has witnessed when.
    assert!(report["register"].as_u64() > Some(2), "{report}");
    assert_eq!(report["times"]["says"][0], "no time is proven: the policy names no witnesses");
}

/// The devices' own kernels, one process for each device, beside the oracle's prediction; then once more with a bit
/// flipped in the memory of one.
#[test]
fn two_processes_on_opencl_agree_with_the_prediction_and_a_flipped_bit_in_one_is_named() {
    let shop = Workshop::open();
    let log = shop.ledger();
    let fault =
        "--fault bit-flip:device=1,step=1,leaf=3,operation=forward.layer0.attention,element=34,bit=27";
    for (name, seed, fault) in [("honest", 1, ""), ("faulty", 2, fault)] {
        shop.write_run(name, seed);
        shop.predict(name, Some(&log)).expect_code(0);
        shop.challenge(name, &log).expect_code(0);
        for ended in shop.processes(name, 2, &format!("--backend opencl --traces {fault}")) {
            ended.expect_code(0).expect_text("2 devices, opencl");
        }
    }
    let simulated = |ended: &tests::workshop::Ended| ended.stdout.contains("simulated");
    let ended = shop.reconcile("honest", &log, "--replay honest.toml").expect_code(0).expect_text("agree");
    assert!(!simulated(&ended), "{}", ended.stdout);
    let ended = shop.verify("honest.tally").expect_code(0).expect_text("verified");
    assert!(!simulated(&ended), "{}", ended.stdout);

    let ended = shop.reconcile("faulty", &log, "--no-replay").expect_code(1);
    let named =
        ["diverge at step 1", "device 1 (", "leaf 3", "operation forward.layer0.attention", "element 34"];
    let ended = [&named[..], &["bit 27 differs", "cause fault"]]
        .concat()
        .iter()
        .fold(ended, |ended, part| ended.expect_text(part));
    assert!(!simulated(&ended), "{}", ended.stdout);
}

#[test]
fn a_prediction_interrupted_and_resumed_is_the_same_to_the_bit() {
    let shop = Workshop::open();
    shop.write_run("small", 1);
    let whole = "predict --run small.toml --steps 0..3 --out whole --key predictor.key";
    shop.run("oracle", whole).expect_code(0);
    // The first command stands for one that was killed after step 1: it kept a snapshot and a record.
    shop.run(
        "oracle",
        "predict --run small.toml --steps 0..2 --snapshot-every 1 --out parts --key predictor.key",
    )
    .expect_code(0);
    std::fs::remove_file(shop.path("parts/prediction/prediction.cose")).unwrap();
    std::fs::remove_file(shop.path("parts/prediction/snapshots/step-000002.safetensors")).unwrap();
    shop.run("oracle", "predict --run small.toml --steps 0..3 --out parts --key predictor.key --threads 1")
        .expect_code(0)
        .expect_text("going on from the snapshot before step 1");
    let read = |folder: &str| std::fs::read(shop.path(&format!("{folder}/prediction/body.cbor"))).unwrap();
    assert_eq!(read("whole"), read("parts"));

    // What was damaged in between is not used: a false prediction would blame honest devices.
    for damaged in ["snapshots/step-000001.safetensors", "steps/steps-000000-000001.cbor"] {
        std::fs::remove_file(shop.path("parts/prediction/prediction.cose")).unwrap();
        std::fs::remove_file(shop.path("parts/prediction/snapshots/step-000003.safetensors")).unwrap();
        let path = shop.path("parts/prediction").join(damaged);
        let mut bytes = std::fs::read(&path).unwrap();
        let place = bytes.len() - 100;
        bytes[place] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        shop.run("oracle", "predict --run small.toml --steps 0..3 --out parts --key predictor.key")
            .expect_code(0)
            .expect_text("not used");
        assert_eq!(read("whole"), read("parts"), "after damage to {damaged}");
    }
}

#[test]
fn an_open_prediction_goes_the_same_way() {
    let shop = Workshop::open();
    shop.write_run("open", 1);
    let log = shop.ledger();
    let commit = format!("--open --commit --ledger {} --log-key log/log.pub", log.url);
    shop.run(
        "oracle",
        &format!("predict --run open.toml --steps 0..3 --out open --key predictor.key {commit}"),
    )
    .expect_code(0);
    shop.challenge("open", &log).expect_code(0);
    shop.devices("open", 1, "receipts", "").expect_code(0);
    shop.reconcile("open", &log, "--no-replay").expect_code(0).expect_text("agree");
    shop.verify("open.tally").expect_code(0).expect_text("verified");
}

#[test]
fn a_llama_goes_the_same_way_and_one_flipped_bit_is_named() {
    let shop = Workshop::open();
    for name in ["good", "bad"] {
        shop.write_llama(name, 1);
    }
    let log = shop.ledger();
    shop.predict("good", Some(&log)).expect_code(0).expect_text("prediction as entry");
    shop.challenge("good", &log).expect_code(0);
    shop.devices("good", 2, "receipts", "").expect_code(0);
    let ended = shop.reconcile("good", &log, "--replay good.toml").expect_code(0);
    ended.expect_text("agree").expect_text("held against a replay of step");
    shop.verify("good.tally").expect_code(0).expect_text("verified");

    // The same run by another name, and a device that turns a query by a wrong angle once.
    shop.predict("bad", Some(&log)).expect_code(0);
    shop.challenge("bad", &log).expect_code(0);
    let operation = "forward.layer1.attention.query.rope";
    let fault =
        format!("--traces --fault bit-flip:device=1,step=1,leaf=3,operation={operation},element=100,bit=30");
    shop.devices("bad", 2, "receipts", &fault).expect_code(0);
    let ended = shop.reconcile("bad", &log, "--replay bad.toml").expect_code(1);
    ended
        .expect_text("diverge at step 1")
        .expect_text("device 1 (")
        .expect_text("leaf 3")
        .expect_text(&format!("operation {operation}"))
        .expect_text("element 100")
        .expect_text("bit 30 differs")
        .expect_text("cause fault");
    shop.verify("bad.tally")
        .expect_code(1)
        .expect_text("genuine, but verdict is diverge at step 1: device 1 in phase leaf");
}
