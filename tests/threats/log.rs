//! Whoever runs the log, with the log's own key.

use crate::forge::{as_operator, bundle, copy_folder, read, write_bundle};
use crate::lying::{Answer, Files};
use schemas::digest::EntryDigest;
use std::time::{Duration, Instant};
use tests::workshop::{Ended, Log, Workshop};

fn monitor(shop: &Workshop, address: &str) -> Ended {
    shop.run("client", &format!("monitor --ledger {address} --log-key log/log.pub --state seen --once"))
}

/// A new log and a copy of it, lock and all: whoever has both can go on from either.
fn twins(name: &str) -> Workshop {
    let shop = Workshop::open();
    shop.write_run("run", 1);
    drop(shop.ledger());
    for folder in ["log", "log.lock"] {
        copy_folder(&shop.path(folder), &shop.path(&folder.replacen("log", name, 1)));
    }
    shop
}

/// Logs a run of this name: an entry like any other.
fn log_another(shop: &Workshop, name: &str, seed: u64, log: &Log) {
    shop.write_run(name, seed);
    shop.predict(name, None).expect_code(0);
    shop.run("client", &format!("submit {name}/job/run.cose --ledger {}", log.url)).expect_code(0);
}

/// Two histories from one key, each shown to somebody else.
#[test]
fn two_histories() {
    let shop = twins("other");
    let log = shop.ledger();
    log_another(&shop, "first", 2, &log);
    shop.predict("run", Some(&log)).expect_code(0);
    shop.challenge("run", &log).expect_code(0);
    shop.devices("run", 2, "receipts", "").expect_code(0);
    monitor(&shop, &log.url).expect_code(0);
    shop.reconcile("run", &log, "--no-replay").expect_code(0);
    drop(log);

    let log = shop.server(&["serve", "--data", "other"]);
    log_another(&shop, "second", 3, &log);
    for file in ["run", "prediction"] {
        shop.run("client", &format!("submit run/prediction/{file}.cose --ledger {}", log.url)).expect_code(0);
    }
    // Whoever saw the old one: a monitor, and the receipts, which hold a checkpoint.
    monitor(&shop, &log.url).expect_code(1).expect_text("fork: ");
    let ended = shop.reconcile("run", &log, "--no-replay").expect_code(2);
    let ended = ended.expect_text("the log signed two trees of size 4");
    ended.expect_text("together they prove that the log was forked");
    let run = log.page(&format!("/run/{}", shop.run_id("run")));
    assert!(!run.contains("opening"), "the prediction stays sealed: {run}");
    // Whoever has both, and the key, can make a bundle of the receipts of one and the tree of the other.
    let mut own = as_operator(&shop, &log);
    let told = bundle(&shop, "run.tally");
    for entry in &told.entries {
        if !own.entries.contains(&entry.bytes) {
            own.append(entry.bytes.clone());
        }
    }
    write_bundle(&shop, "mixed.tally", schemas::bundle::Bundle { completeness: None, ..told }, &own);
    shop.verify("mixed.tally").expect_code(1).expect_text("not verified: check 6");
}

/// What was acknowledged is taken back, or changed where it stands.
#[test]
fn rewriting_what_is_there() {
    let (shop, log) = Workshop::ready();
    shop.reconcile("run", &log, "--no-replay").expect_code(0);
    monitor(&shop, &log.url).expect_code(0);
    let honest = as_operator(&shop, &log);
    let files = Files::default();
    let address = files.start();
    // An older tree, signed before.
    let mut older = honest.clone();
    older.entries.truncate(5);
    files.show(&older);
    monitor(&shop, &address).expect_code(1).expect_text("shrunken: ");
    // Another entry in its place, and the same root; then another root.
    let _ = std::fs::remove_dir_all(shop.path("seen"));
    let size = honest.size();
    files.show(&honest);
    files.change(&format!("/tile/entries/000.p/{size}"), |bytes| bytes[200] ^= 1);
    monitor(&shop, &address).expect_code(1).expect_text("entry: ");
    // On disk: the operator's own check names the entry.
    log.stop();
    let file = format!("log/tile/entries/000.p/{size}");
    let whole = read(&shop, &file);
    let mut changed = whole.clone();
    changed[200] ^= 1;
    std::fs::write(shop.path(&file), &changed).unwrap();
    shop.run("ledger", "fsck log").expect_code(1).expect_text("entry 1");
    std::fs::write(shop.path(&file), &whole).unwrap();
    shop.run("ledger", "fsck log").expect_code(0);
    // The folder is put back to an earlier copy and the lock is not: the server does not start.
    let young = Workshop::ready().0;
    copy_folder(&young.path("log"), &shop.path("old"));
    copy_folder(&shop.path("log.lock"), &shop.path("old.lock"));
    shop.run("ledger", "serve --data old --listen 0").expect_code(2).expect_text("ledger: error: ");
}

/// Entries that the signed tree holds and nobody is shown.
#[test]
fn withholding_entries() {
    let (shop, log) = Workshop::ready();
    let honest = as_operator(&shop, &log);
    let files = Files::default();
    let address = files.start();
    files.show(&honest);
    files.remove(&format!("/tile/entries/000.p/{}", honest.size()));
    monitor(&shop, &address).expect_code(1).expect_text("withheld: ");
    // What is asked for by name and not given is told as well.
    let key = honest.key().verifier();
    let facts =
        serde_json::json!({ "key": key.to_string(), "origin": tlog::note::Verifier::name(key).as_str() });
    files.set("/log.json", Answer::Bytes(facts.to_string().into_bytes()));
    files.set(
        &format!("/by-hash/{}", EntryDigest::of(&honest.entries[2])),
        Answer::Bytes(honest.entries[1].clone()),
    );
    let arguments = format!(
        "challenge --ledger {address} --log-key log/log.pub --prediction run/prediction --out other.note"
    );
    shop.run("client", &arguments).expect_code(2).expect_text("the server gave other bytes for entry");
    assert!(!shop.path("other.note").exists());
}

/// The log's clock: the same entries an hour, or a second, later are the same log, the same bundle.
#[test]
fn backdating() {
    let shop = twins("later");
    let log = shop.ledger();
    shop.predict("run", Some(&log)).expect_code(0);
    shop.challenge("run", &log).expect_code(0);
    shop.devices("run", 2, "receipts", "").expect_code(0);
    shop.reconcile("run", &log, "--no-replay").expect_code(0).expect_text("time: no time is proven");
    let told = |log: &Log| {
        let receipt = log.get("/proof/2.cose?size=3");
        (log.get("/checkpoint/3"), receipt)
    };
    let (checkpoint, receipt) = told(&log);
    let first = read(&shop, "run.tally");
    drop(log);
    let log = shop.server(&["serve", "--data", "later"]);
    for file in ["run", "prediction"] {
        shop.run("client", &format!("submit run/prediction/{file}.cose --ledger {}", log.url)).expect_code(0);
    }
    // The one thing that states the log's own time is a COSE receipt.
    let started = Instant::now();
    while told(&log).1 == receipt {
        assert!(started.elapsed() < Duration::from_secs(30), "the log's clock stands still");
        std::thread::yield_now();
    }
    assert_eq!(told(&log).0, checkpoint);
    shop.reconcile("run", &log, "--no-replay").expect_code(0);
    assert!(read(&shop, "run.tally") == first, "a bundle holds nothing of the log's clock");
    shop.verify("run.tally").expect_code(0).expect_text("no time is proven: the policy names no witnesses");
}

/// The same name under another key.
#[test]
fn a_log_of_the_same_name() {
    let (shop, log) = Workshop::ready();
    shop.reconcile("run", &log, "--no-replay").expect_code(0);
    let honest = as_operator(&shop, &log);
    let impostor = honest.of_another_key();
    let files = Files::default();
    let address = files.start();
    files.show(&impostor);
    let key = impostor.key().verifier();
    let facts =
        serde_json::json!({ "key": key.to_string(), "origin": tlog::note::Verifier::name(key).as_str() });
    files.set("/log.json", Answer::Bytes(facts.to_string().into_bytes()));
    let submit = format!("submit run/job/run.cose --ledger {address} --log-key log/log.pub");
    let ended = shop.run("client", &submit).expect_code(2).expect_text(" runs log ");
    ended.expect_text("compare both keys with one you have from the log's operator");
    monitor(&shop, &address).expect_code(2).expect_text("checkpoint");
    // A bundle from there, with the right name in every place.
    let mut from_there = bundle(&shop, "run.tally");
    from_there.completeness = None;
    from_there.checkpoint = impostor.checkpoint(impostor.size()).into_bytes();
    std::fs::write(shop.path("there.tally"), schemas::object::Object::encode(&from_there)).unwrap();
    shop.verify("there.tally").expect_code(1).expect_text("not verified: check 2");
}
