//! Witnesses, honest and not, and who counts on them.

use crate::forge::{bundle, copy_folder};
use schemas::bundle::Bundle;
use schemas::object::Object as _;
use std::time::{Duration, Instant};
use tests::workshop::{Ended, Workshop};
use tlog::cosignature::CosigningKey;
use tlog::note::KeyName;

fn read(shop: &Workshop, name: &str) -> String {
    std::fs::read_to_string(shop.path(name)).unwrap().trim().to_owned()
}

/// A witness's key, for whoever has it.
fn witness(number: u8) -> CosigningKey {
    CosigningKey::from_seed(KeyName::new(&format!("witness.example/{number}")).unwrap(), &[number; 32])
}

/// A bundle of an honest run, and its policy's first lines.
fn reconciled() -> (Workshop, String) {
    let (shop, log) = Workshop::ready();
    shop.reconcile("run", &log, "--no-replay").expect_code(0);
    let trust = format!("log {}\npredictor {}\n", read(&shop, "log/log.pub"), read(&shop, "predictor.pub"));
    (shop, trust)
}

/// The bundle with these witnesses' lines, each with its time, under a policy.
fn verify(shop: &Workshop, cosigned: &[(u8, u64)], policy: &str) -> Ended {
    let told = bundle(shop, "run.tally");
    let mut note = String::from_utf8(told.checkpoint.clone()).unwrap();
    let text = note.split_once("\n\n").unwrap().0.to_owned() + "\n";
    for (number, time_s) in cosigned {
        note += &witness(*number).cosign(&text, *time_s).to_string();
    }
    let completeness = told.completeness.map(|object| schemas::completeness::Completeness {
        checkpoint: note.clone().into_bytes(),
        ..object
    });
    let told = Bundle { checkpoint: note.into_bytes(), completeness, ..told };
    std::fs::write(shop.path("cosigned.tally"), told.encode()).unwrap();
    std::fs::write(shop.path("policy.txt"), policy).unwrap();
    shop.run("client", "verify cosigned.tally --policy policy.txt")
}

/// Three witnesses and how many of them may be wrong.
fn three(trust: &str, faulty: u8) -> String {
    let witnesses: String =
        (1..4).map(|number| format!("witness w{number} {}\n", witness(number).verifier())).collect();
    format!("{trust}{witnesses}group most 2 w1 w2 w3\nquorum most\nfaulty {faulty}\n")
}

/// A witness that states a time long ago. As many as the reader allows for move nothing; one more does.
#[test]
fn a_time_long_ago() {
    let (shop, trust) = reconciled();
    let (honest, long_ago) = (1_800_000_000, 1_000_000_000);
    let by = |time: &str, faulty: u8| {
        format!("the prediction was in the log by {time}, if at most {faulty} of 3 witnesses are wrong")
    };
    let times = |lies: u8| [1, 2, 3].map(|number| (number, if number <= lies { long_ago } else { honest }));
    let right = "2027-01-15T08:00:00Z";
    verify(&shop, &times(0), &three(&trust, 1)).expect_code(0).expect_text(&by(right, 1));
    verify(&shop, &times(1), &three(&trust, 1)).expect_code(0).expect_text(&by(right, 1));
    verify(&shop, &times(2), &three(&trust, 2)).expect_code(0).expect_text(&by(right, 2));
    // The limit: more liars than were allowed for.
    let wrong = "2001-09-09T01:46:40Z";
    verify(&shop, &times(1), &three(&trust, 0)).expect_code(0).expect_text(&by(wrong, 0));
    verify(&shop, &times(2), &three(&trust, 1)).expect_code(0).expect_text(&by(wrong, 1));
}

/// Witnesses of the maker's own, and one that is counted twice.
#[test]
fn a_key_that_the_policy_does_not_name() {
    let (shop, trust) = reconciled();
    let strangers = [(7, 1_800_000_000), (8, 1_800_000_000), (9, 1_800_000_000)];
    let ended = verify(&shop, &strangers, &three(&trust, 1)).expect_code(1);
    let ended = ended.expect_text("is cosigned by nobody, and not by w1, w2, w3: no quorum of the policy");
    ended.expect_text("not verified: check 2");
    let twice = [(1, 1_800_000_000), (1, 1_800_000_001)];
    verify(&shop, &twice, &three(&trust, 1))
        .expect_code(1)
        .expect_text("is cosigned by w1, and not by w2, w3");
    let again = three(&trust, 1).replace("group", &format!("witness again {}\ngroup", witness(1).verifier()));
    verify(&shop, &twice, &again).expect_code(2).expect_text("policy.txt: line ");
    // A line that is not its witness's spoils the checkpoint: it is not passed over.
    let mut told = bundle(&shop, "cosigned.tally");
    let note = String::from_utf8(told.checkpoint.clone()).unwrap();
    let line = note.lines().last().unwrap();
    let other = witness(1).cosign("another text\n", 1_800_000_000).to_string();
    told.checkpoint = note.replace(&format!("{line}\n"), &other).into_bytes();
    told.completeness = None;
    std::fs::write(shop.path("cosigned.tally"), told.encode()).unwrap();
    std::fs::write(shop.path("policy.txt"), three(&trust, 1)).unwrap();
    let ended = shop.run("client", "verify cosigned.tally --policy policy.txt").expect_code(1);
    ended.expect_text("not verified: check 2");
}

/// A log shows an honest witness a second history.
#[test]
fn a_second_history_for_a_witness() {
    let shop = Workshop::open();
    shop.write_run("run", 1);
    drop(shop.ledger());
    let key = read(&shop, "log/log.pub");
    let arguments = ["witness", "--data", "witness", "--name", "witness.example/w", "--log", &key];
    let witness = shop.server(&arguments);
    let trust = format!("log {key}\nwitness w {} {}/\n", read(&shop, "witness/witness.pub"), witness.url);
    std::fs::write(shop.path("witnesses.txt"), format!("{trust}quorum w\n")).unwrap();
    for folder in ["log", "log.lock"] {
        copy_folder(&shop.path(folder), &shop.path(&folder.replacen("log", "other", 1)));
    }
    let serve = |data| shop.server(&["serve", "--data", data, "--witness-policy", "witnesses.txt"]);
    let until = |what: &str, log: &tests::workshop::Log, done: &dyn Fn(&str, &str) -> bool| {
        let started = Instant::now();
        loop {
            let (head, body) = log.answer("/checkpoint/witnessed");
            let body = String::from_utf8_lossy(&body).into_owned();
            if done(&head, &body) {
                return body;
            }
            assert!(started.elapsed() < Duration::from_secs(60), "{what}: {head}\n{body}");
            std::thread::yield_now();
        }
    };
    let log = serve("log");
    shop.predict("run", Some(&log)).expect_code(0);
    until("the honest log", &log, &|_, body| body.contains("\n3\n") && body.contains("witness.example/w"));
    drop(log);

    let log = serve("other");
    shop.write_run("second", 3);
    shop.predict("second", Some(&log)).expect_code(0);
    let told = until("the fork", &log, &|head, _| head.starts_with("HTTP/1.1 500"));
    assert!(told.contains("forked"), "{told}");
    // What it goes on to say has no cosignatures, so a reader who asks for them takes nothing of it.
    assert!(!log.page("/checkpoint").contains("witness.example/w"));
    let prediction = "--log-key log/log.pub --prediction second/prediction --out second/job/challenge.note";
    let ended = shop.run("client", &format!("challenge --ledger {} {prediction}", log.url)).expect_code(2);
    ended.expect_text("a witness holds another history signed by this log's key");
}
