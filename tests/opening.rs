//! When `client reconcile` opens a prediction, and what it puts into the log: opening cannot be taken back.

use tests::workshop::{Log, Workshop};

/// Kinds of the entries that the log lists for the run of `NAME/`, in log order.
fn kinds(shop: &Workshop, log: &Log, name: &str) -> Vec<String> {
    let listed = log.get(&format!("/run/{}", shop.run_id(name)));
    let listed: serde_json::Value = serde_json::from_slice(&listed).unwrap();
    listed["entries"].as_array().unwrap().iter().map(|e| e["kind"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn what_fails_before_the_opening_leaves_the_prediction_sealed() {
    let (shop, log) = Workshop::ready();
    shop.write_run("other", 2);
    shop.run("client", "keygen other.key").expect_code(0);
    let refused = |change: (&str, &str), code: i32, message: &str| {
        let arguments = format!(
            "reconcile --ledger {} --log-key log/log.pub --key predictor.key --prediction run/prediction \
             --receipts run/receipts --out run.tally --replay run.toml",
            log.url
        );
        assert!(arguments.contains(change.0));
        shop.run("client", &arguments.replace(change.0, change.1)).expect_code(code).expect_text(message);
        assert!(!kinds(&shop, &log, "run").contains(&"opening".into()), "{message}");
        assert!(!shop.path("run.tally").exists());
    };
    std::fs::create_dir(shop.path("empty")).unwrap();
    refused(("--key predictor.key", "--key other.key"), 2, "expected the predictor's key");
    refused(("run/receipts", "empty"), 2, "no receipt-RANK.cose");
    refused(("--out run.tally", "--out nowhere/run.tally"), 2, "there is no folder");
    // The replay is the last thing that can fail.
    refused(("run.toml", "other.toml"), 2, "the prediction is of run");
    shop.reconcile("run", &log, "--replay run.toml").expect_code(0);
    let after = ["run", "prediction", "receipt", "receipt", "opening", "register", "verdict", "register"];
    assert_eq!(kinds(&shop, &log, "run"), after);
    // Again: the same entries, and so the same places.
    shop.reconcile("run", &log, "--replay run.toml").expect_code(0);
    assert_eq!(kinds(&shop, &log, "run"), after);
    shop.verify("run.tally").expect_code(0);
}

#[test]
fn a_receipt_that_comes_after_the_opening_is_not_judged() {
    let (shop, log) = Workshop::ready();
    let receipt = shop.path("run/receipts/receipt-1.cose");
    std::fs::rename(&receipt, shop.path("late.cose")).unwrap();
    shop.reconcile("run", &log, "--no-replay --accept-incomplete")
        .expect_code(1)
        .expect_text("1 of 2: no receipt");
    std::fs::rename(shop.path("late.cose"), &receipt).unwrap();
    // First it is not in the log yet, then it is.
    for _ in 0..2 {
        let ended = shop.reconcile("run", &log, "--no-replay --accept-incomplete").expect_code(1);
        ended.expect_text("incomplete").expect_text("receipt logged after the opening");
        shop.verify("run.tally").expect_code(1).expect_text("genuine, but verdict is incomplete");
    }
}

#[test]
fn a_refused_receipt_is_not_put_into_the_log() {
    let (shop, log) = Workshop::ready();
    shop.write_run("old", 2);
    shop.predict("old", Some(&log)).expect_code(0);
    shop.challenge("old", &log).expect_code(0);
    shop.devices("old", 2, "receipts", "").expect_code(0);
    for part in ["cose", "body.cbor"] {
        let of = |name: &str| shop.path(&format!("{name}/receipts/receipt-1.{part}"));
        std::fs::copy(of("old"), of("run")).unwrap();
    }
    shop.reconcile("run", &log, "--no-replay --accept-incomplete")
        .expect_code(1)
        .expect_text("receipt for another run");
    assert_eq!(
        kinds(&shop, &log, "run"),
        ["run", "prediction", "receipt", "opening", "register", "verdict", "register"]
    );
    assert_eq!(kinds(&shop, &log, "old"), ["run", "prediction"]);
}
