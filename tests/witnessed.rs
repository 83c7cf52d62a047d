//! The whole path by a log that a witness cosigns: what the bundle then proves of times, and what a policy can ask for.

use schemas::bundle::Bundle;
use schemas::key::SecretKey;
use schemas::object::Object as _;
use schemas::statement::Statement;
use std::time::{Duration, Instant};
use tests::workshop::{Log, Workshop};

/// Two strangers predict the same steps of a run and judge it, so that there are newer registers, with longer lists.
fn strangers_in(shop: &Workshop, name: &str, log: &Log) {
    let bundle = Bundle::decode(&std::fs::read(shop.path(&format!("{name}.tally"))).unwrap()).unwrap();
    let registers = || log.page(&format!("/run/{}", shop.run_id(name))).matches("\"register\"").count();
    for (number, seed) in [(1, 81), (2, 82)] {
        for entry in [&bundle.entries[1], bundle.entries.last().unwrap()] {
            let statement = Statement::open(&entry.bytes).unwrap();
            let bytes = Statement::sign(&statement.payload, &SecretKey::from_seed([seed; 32])).unwrap();
            std::fs::write(shop.path("stranger.cose"), bytes).unwrap();
            let submit = format!("submit stranger.cose --ledger {} --log-key log/log.pub", log.url);
            shop.run("client", &submit).expect_code(0);
        }
        // One came with the opening and one with the predictor's verdict.
        let started = Instant::now();
        while registers() < 2 + number {
            assert!(started.elapsed() < Duration::from_secs(60), "the log adds no register");
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_bundle_of_a_witnessed_log_proves_times_and_meets_a_policy() {
    let shop = Workshop::open();
    shop.write_run("small", 1);
    let read = |name: &str| std::fs::read_to_string(shop.path(name)).unwrap().trim().to_owned();
    // Each needs the other's key: the log's first start makes the log's.
    drop(shop.ledger());
    let key = read("log/log.pub");
    let witness = ["witness", "--data", "witness", "--name", "witness.example/w", "--log", &key];
    let witness = shop.server(&witness);
    let trust = format!("log {key}\nwitness w {} {}/\n", read("witness/witness.pub"), witness.url);
    std::fs::write(shop.path("witnesses.txt"), format!("{trust}quorum w\n")).unwrap();
    let log = shop.server(&["serve", "--data", "log", "--witness-policy", "witnesses.txt"]);

    shop.predict("small", Some(&log)).expect_code(0);
    let started = Instant::now();
    while !log.page("/proof/2.tlog-proof").contains("witness.example/w") {
        assert!(started.elapsed() < Duration::from_secs(60), "the witness does not cosign");
        std::thread::yield_now();
    }
    shop.challenge("small", &log).expect_code(0);
    shop.devices("small", 2, "receipts", "").expect_code(0);
    let predictor = read("predictor.pub");
    let policy = |name: &str, lines: &str| {
        std::fs::write(shop.path(name), format!("{trust}predictor {predictor}\n{lines}")).unwrap();
    };
    let asks = "challenge cosigned\nchallenge first\nchallenge smallest\n";
    policy("policy.txt", &format!("quorum w\ncomplete yes\n{asks}"));
    let ended = shop.reconcile("small", &log, "--no-replay --policy policy.txt").expect_code(0);
    let ended = ended
        .expect_text("was chosen by the tree of size 3, the smallest tree that holds the prediction: by");
    let ended = ended.expect_text("time: the prediction was in the log by 20");
    ended
        .expect_text("time: the receipts were signed at 20")
        .expect_text("time: the verdict was in the log by 20");
    let first = std::fs::read(shop.path("small.tally")).unwrap();
    // A policy that it does not meet is told, and changes nothing of the bundle.
    policy("strict.txt", "quorum w\nsimulated no\n");
    shop.reconcile("small", &log, "--no-replay --policy strict.txt").expect_code(0).expect_text(
        "note: by the policy this bundle is genuine, but verdict is agree by receipts of a simulated",
    );
    assert!(std::fs::read(shop.path("small.tally")).unwrap() == first, "another bundle by another policy");
    // Again, and the log has grown meanwhile: the same bytes.
    shop.write_run("other", 2);
    shop.predict("other", Some(&log)).expect_code(0);
    strangers_in(&shop, "small", &log);
    shop.reconcile("small", &log, "--no-replay").expect_code(0);
    assert!(
        std::fs::read(shop.path("small.tally")).unwrap() == first,
        "the same answers give the same bundle"
    );
    drop((log, witness));

    let verify = |name: &str| shop.run("client", &format!("verify small.tally --policy {name}"));
    let text = "if at most 0 of 1 witnesses are wrong";
    verify("policy.txt").expect_code(0).expect_text("cosigned by w\n").expect_text(text);
    policy("replayed.txt", "quorum w\nreplayed yes\n");
    verify("replayed.txt")
        .expect_code(1)
        .expect_text("were not held against a replay, which the policy asks for");
    verify("strict.txt")
        .expect_code(1)
        .expect_text("genuine, but verdict is agree by receipts of a simulated");
    let stranger = tlog::cosignature::CosigningKey::from_seed(
        tlog::note::KeyName::new("witness.example/stranger").unwrap(),
        &[7; 32],
    );
    policy("both.txt", &format!("witness x {}\ngroup both all w x\nquorum both\n", stranger.verifier()));
    verify("both.txt").expect_code(1).expect_text("is cosigned by w, and not by x: no quorum of the policy");
}
