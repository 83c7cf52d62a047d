//! What `oracle predict` keeps to: its steps, its folder, its salt, and what an earlier call left behind.

use schemas::object::Object as _;
use schemas::prediction::PredictionBody;
use std::os::unix::fs::PermissionsExt as _;
use tests::workshop::{Ended, Workshop};

fn predict(shop: &Workshop, run: &str, steps: &str, out: &str, more: &str) -> Ended {
    let arguments =
        format!("predict --run {run}.toml --steps {steps} --out {out} --key predictor.key {more}");
    shop.run("oracle", &arguments)
}

fn read(shop: &Workshop, path: &str) -> Vec<u8> {
    std::fs::read(shop.path(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[test]
fn steps_that_begin_later_are_the_same_steps_and_go_the_whole_way() {
    let shop = Workshop::open();
    shop.write_run("run", 1);
    let log = shop.ledger();
    predict(&shop, "run", "0..3", "whole", "").expect_code(0);
    let commit = format!("--commit --ledger {} --log-key log/log.pub", log.url);
    predict(&shop, "run", "1..3", "run", &commit).expect_code(0);
    let body =
        |out: &str| PredictionBody::decode(&read(&shop, &format!("{out}/prediction/body.cbor"))).unwrap();
    let (whole, later) = (body("whole"), body("run"));
    assert_eq!((whole.first, later.first), (0, 1));
    assert_eq!(later.records, whole.records[1..]);

    shop.challenge("run", &log).expect_code(0);
    let device = "run --job run/job --challenge run/job/challenge.note --devices 2 --steps 1..3 --keys keys \
                  --out run/receipts";
    shop.run("device", device).expect_code(0);
    let ended = shop.reconcile("run", &log, "--replay run.toml").expect_code(0);
    ended.expect_text("steps 1..3, 2 receipts").expect_text("held against a replay of step");
    shop.verify("run.tally").expect_code(0).expect_text("verified: steps 1..3");
}

#[test]
fn steps_that_the_run_has_not_are_refused() {
    let shop = Workshop::open();
    shop.write_run("run", 1);
    for (steps, message) in [
        ("0..4", "the run has 3 steps"),
        ("3..4", "the run has 3 steps"),
        ("2..2", "first < end"),
        ("2", "first..end"),
    ] {
        predict(&shop, "run", steps, "out", "").expect_code(2).expect_text(message);
        assert!(!shop.path("out").exists() && !shop.path("predictor.key").exists(), "{steps}");
    }
}

#[test]
fn the_same_command_again_gives_the_same_entries_and_another_one_is_refused() {
    let shop = Workshop::open();
    shop.write_run("run", 1);
    shop.write_run("other", 2);
    let files = ["salt", "run.cose", "prediction.cose", "body.cbor"];
    let all = |out: &str| files.map(|name| read(&shop, &format!("{out}/prediction/{name}")));
    predict(&shop, "run", "0..3", "out", "").expect_code(0);
    let before = all("out");
    predict(&shop, "run", "0..3", "out", "").expect_code(0);
    assert_eq!(all("out"), before);
    predict(&shop, "run", "0..2", "out", "")
        .expect_code(2)
        .expect_text("asked for is a sealed prediction of steps 0..2");
    predict(&shop, "run", "0..3", "out", "--open")
        .expect_code(2)
        .expect_text("asked for is an open prediction");
    predict(&shop, "other", "0..3", "out", "").expect_code(2).expect_text("this one is");
    assert_eq!(all("out"), before);
}

/// Whoever knows the salt can try records against the seal before it is opened.
#[test]
fn every_folder_has_a_salt_of_its_own_that_nobody_else_can_read() {
    let shop = Workshop::open();
    shop.write_run("run", 1);
    for out in ["one", "two"] {
        predict(&shop, "run", "0..1", out, "").expect_code(0);
    }
    assert_eq!(read(&shop, "one/prediction/body.cbor"), read(&shop, "two/prediction/body.cbor"));
    assert_ne!(read(&shop, "one/prediction/salt"), read(&shop, "two/prediction/salt"));
    let mode = |path: &str| shop.path(path).metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("one/prediction"), mode("one/prediction/salt")), (0o700, 0o600));
}

/// Two steps with a snapshot each are there; then something is missing or not what its name says.
#[test]
fn only_a_snapshot_that_the_records_lead_up_to_is_gone_on_from() {
    let shop = Workshop::open();
    shop.write_run("run", 1);
    predict(&shop, "run", "0..3", "whole", "").expect_code(0);
    let record = |step: u64| format!("steps/steps-{step:06}-{:06}.cbor", step + 1);
    let snapshot = |step: u64| format!("snapshots/step-{step:06}.safetensors");
    /// What is wrong, how it comes about, the snapshot that is gone on from all the same.
    type Case<'a> = (&'a str, &'a dyn Fn(&str), Option<u64>);
    let cases: [Case; 4] = [
        (
            "a record missing",
            &|at| std::fs::remove_file(shop.path(&format!("{at}/{}", record(0)))).unwrap(),
            None,
        ),
        (
            "a record cut short",
            &|at| std::fs::write(shop.path(&format!("{at}/{}", record(1))), b"\x83").unwrap(),
            Some(1),
        ),
        (
            "a snapshot with one bit flipped",
            &|at| {
                let path = shop.path(&format!("{at}/{}", snapshot(2)));
                let mut bytes = std::fs::read(&path).unwrap();
                let middle = bytes.len() / 2;
                bytes[middle] ^= 1;
                std::fs::write(&path, bytes).unwrap();
            },
            Some(1),
        ),
        (
            "a snapshot under another's name",
            &|at| {
                let of = |step| shop.path(&format!("{at}/{}", snapshot(step)));
                std::fs::rename(of(2), of(1)).unwrap();
                std::fs::remove_file(shop.path(&format!("{at}/{}", record(1)))).unwrap();
            },
            None,
        ),
    ];
    for (number, (what, damage, from)) in cases.into_iter().enumerate() {
        let out = format!("case-{number}");
        predict(&shop, "run", "0..2", &out, "--snapshot-every 1").expect_code(0);
        let folder = format!("{out}/prediction");
        std::fs::remove_file(shop.path(&format!("{folder}/prediction.cose"))).unwrap();
        damage(&folder);
        let ended = predict(&shop, "run", "0..3", &out, "").expect_code(0);
        let said = ended.stderr.lines().find_map(|line| line.split_once("snapshot before step "));
        assert_eq!(said.map(|(_, step)| step.parse().unwrap()), from, "{what}: {}", ended.stderr);
        let body = |out: &str| read(&shop, &format!("{out}/prediction/body.cbor"));
        assert_eq!(body(&out), body("whole"), "{what}");
    }
}
