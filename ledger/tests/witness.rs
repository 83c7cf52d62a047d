//! The witness server: what it answers, and that nothing it has cosigned is ever taken back.

mod support;

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use ledger::disk::durable::{Fault, Files};
use ledger::error::LogError;
use ledger::http::server::ServeError;
use ledger::witness::error::WitnessError;
use ledger::witness::key::open_key;
use ledger::witness::records::{Clock, NotCosigned, Records, name_of, system_clock};
use ledger::witness::server::{Options, start};
use sha2::{Digest as _, Sha256};
use support::witness::{LEAVES, Tree, WitnessProcess, add, options, path_of, until, witness};
use support::{Answer, get, request};
use tlog::checkpoint::Checkpoint;
use tlog::cosignature::{CosignerKey, CosigningKey};
use tlog::note::{KeyName, Verifier as _};
use tlog::tree::TreeSize;
use tlog::witness::AddCheckpoint;

const ORIGIN: &str = "example.com/log";

fn log() -> Tree {
    Tree::new(ORIGIN, "entry")
}

/// Another history under the same key.
fn fork() -> Tree {
    Tree::new(ORIGIN, "other")
}

fn problem(answer: &Answer, status: u16) -> String {
    assert_eq!(answer.status, status, "{}", answer.text());
    assert_eq!(answer.header("content-type"), Some("application/problem+json"));
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    let body: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(body["status"], status);
    body["detail"].as_str().unwrap().to_owned()
}

/// The size last cosigned, from the note shown to monitors, whose signatures are both verified.
fn shown(address: std::net::SocketAddr, log: &Tree, key: &CosignerKey) -> Option<u64> {
    let answer = get(address, &path_of(log.origin()));
    if answer.status == 404 {
        return None;
    }
    assert_eq!(answer.status, 200, "{}", answer.text());
    let known = [key.clone()];
    let opened = Checkpoint::open_cosigned(&answer.body, log.origin(), log.key.verifier(), &known).unwrap();
    assert_eq!(opened.1.len(), 1, "cosigned");
    assert_eq!(opened.0.head, log.head(opened.0.head.size.0));
    Some(opened.0.head.size.0)
}

#[test]
fn a_checkpoint_is_cosigned_shown_and_followed_by_consistent_ones_only() {
    let (folder, log) = (tempfile::tempdir().unwrap(), log());
    let server = witness(folder.path(), &[log.key.verifier()]);
    let (address, key) = (server.address(), CosignerKey::parse(server.verifier_key()).unwrap());
    assert!(problem(&get(address, &path_of(ORIGIN)), 404).contains("no checkpoint"));

    let first = add(address, &log.ask(0, 3));
    assert_eq!((first.status, first.header("content-type")), (200, Some("text/plain; charset=utf-8")));
    assert_eq!(first.header("cache-control"), Some("no-store"));
    let note = format!("{}{}", log.checkpoint(3), first.text());
    let known = [key.clone()];
    let (_, cosignatures) =
        Checkpoint::open_cosigned(note.as_bytes(), ORIGIN, log.key.verifier(), &known).unwrap();
    assert!(cosignatures[0].time_s.abs_diff(system_clock()) < 60);
    assert_eq!(get(address, &path_of(ORIGIN)).text(), note);
    assert_eq!(get(address, &path_of(ORIGIN)).header("cache-control"), Some("no-cache"));

    let conflict = add(address, &log.ask(2, 5));
    assert_eq!((conflict.status, conflict.text()), (409, "3\n"));
    assert_eq!(conflict.header("content-type"), Some("text/x.tlog.size"));
    assert_eq!(conflict.header("cache-control"), Some("no-store"));
    assert_eq!(add(address, &log.ask(0, 5)).text(), "3\n");
    assert!(problem(&add(address, &log.ask(5, 3)), 400).contains("greater"));
    assert!(problem(&add(address, &fork().ask(3, 3)), 422).contains("size 3"));
    assert!(problem(&add(address, &fork().ask(3, 5)), 422).contains("size 5"));
    let unsigned = Tree::new("example.com/other", "entry").checkpoint(5).replace("example.com/other", ORIGIN);
    let unsigned = AddCheckpoint { checkpoint: unsigned, ..log.ask(3, 5) };
    assert!(problem(&add(address, &unsigned), 403).contains("known key"));
    let stranger = Tree::new("example.com/other", "entry");
    assert!(problem(&add(address, &stranger.ask(0, 3)), 404).contains("example.com/other"));
    assert_eq!(shown(address, &log, &key), Some(3), "none of them changed anything");

    assert_eq!(add(address, &log.ask(3, 3)).status, 200, "a refresh");
    assert_eq!(add(address, &log.ask(3, 20)).status, 200);
    assert_eq!(shown(address, &log, &key), Some(20));
    server.stop();
}

#[test]
fn requests_that_are_none_are_told_so() {
    let (folder, log) = (tempfile::tempdir().unwrap(), log());
    let server = witness(folder.path(), &[log.key.verifier()]);
    let address = server.address();
    let post = |body: &[u8]| request(address, "POST", "/add-checkpoint", "", body).unwrap();
    assert!(problem(&post(b""), 400).contains("empty line"));
    assert!(problem(&post(b"old 01\n\nx\n"), 400).contains("old 01"));
    assert!(problem(&post(format!("old 0\n\n{ORIGIN}\n").as_bytes()), 400).contains("note"));
    assert!(problem(&post(&[b'x'; 65 * 1024]), 413).contains("65536 bytes"));
    assert!(problem(&get(address, "/add-checkpoint"), 405).contains("method"));
    for path in ["/", "/checkpoint", "/x/y", "/../checkpoint", &path_of("nobody"), "/x/checkpoint"] {
        problem(&get(address, path), 404);
    }
    server.stop();
}

#[test]
fn strangers_lines_are_not_stored_and_logs_do_not_mix() {
    let (folder, log, second) = (tempfile::tempdir().unwrap(), log(), Tree::new("example.com/second", "x"));
    let server = witness(folder.path(), &[log.key.verifier(), second.key.verifier()]);
    let (address, key) = (server.address(), CosignerKey::parse(server.verifier_key()).unwrap());
    let stranger = CosigningKey::from_seed(KeyName::new("stranger").unwrap(), &[1; 32]);
    // A forged line of the witness itself, too: were it kept, the record could never be opened again.
    let text = log.checkpoint(3).split("\n\n").next().unwrap().to_owned() + "\n";
    let mut forged = stranger.cosign(&text, 1);
    (forged.name, forged.id) = (key.name().clone(), key.id());
    let crowded = format!("{}{}{forged}", log.checkpoint(3), stranger.cosign(&text, 1));
    assert_eq!(add(address, &AddCheckpoint { checkpoint: crowded, ..log.ask(0, 3) }).status, 200);
    let kept = get(address, &path_of(ORIGIN));
    assert_eq!(kept.text().lines().filter(|line| line.starts_with('\u{2014}')).count(), 2);
    assert_eq!(add(address, &second.ask(0, 5)).status, 200);
    assert_eq!((shown(address, &log, &key), shown(address, &second, &key)), (Some(3), Some(5)));
    server.stop();
    let again = witness(folder.path(), &[log.key.verifier()]);
    assert_eq!(add(again.address(), &log.ask(3, 4)).status, 200);
    assert_eq!(shown(again.address(), &second, &key), Some(5), "shown although no longer cosigned for");
    problem(&add(again.address(), &second.ask(5, 6)), 404);
    again.stop();
}

#[test]
fn what_was_cosigned_survives_sigkill() {
    let (folder, log) = (tempfile::tempdir().unwrap(), log());
    let vkey = log.key.verifier().to_string();
    let mut last = 0;
    for size in [1, 2, 5, 6, 30] {
        let mut process =
            WitnessProcess::start(folder.path(), &["--log", &vkey, "--name", "witness.example/k"]);
        let key = CosignerKey::parse(&process.verifier_key).unwrap();
        assert_eq!(key.name().as_str(), "witness.example/k");
        assert_eq!(shown(process.address, &log, &key).unwrap_or(0), last);
        if last > 0 {
            assert_eq!(add(process.address, &fork().ask(last, size)).status, 422);
        }
        assert_eq!(add(process.address, &log.ask(last, size)).status, 200);
        process.child.kill().unwrap();
        process.child.wait().unwrap();
        last = size;
    }
    let policy = folder.path().join("policy");
    std::fs::write(&policy, format!("log {vkey}\nquorum none\n")).unwrap();
    let mut process = WitnessProcess::start(folder.path(), &["--policy", policy.to_str().unwrap()]);
    assert_eq!(add(process.address, &log.ask(0, 40)).text(), "30\n");
    let id = process.child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    assert_eq!(process.child.wait().unwrap().code(), Some(0));
}

/// Cosigns by three threads until the witness is gone; the largest size that anybody was answered.
fn cosign_until_killed(process: &mut WitnessProcess, log: &Tree, answers: usize) -> u64 {
    let (address, largest, count) = (process.address, AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|threads| {
        for step in 1..=3 {
            let (largest, count) = (&largest, &count);
            threads.spawn(move || {
                let mut old = 0;
                while old + step <= LEAVES {
                    let request = log.ask(old, old + step);
                    let body = request.format();
                    match support::request(address, "POST", "/add-checkpoint", "", body.as_bytes()) {
                        Ok(answer) if answer.status == 200 => {
                            old += step;
                            largest.fetch_max(old, Ordering::SeqCst);
                            count.fetch_add(1, Ordering::SeqCst);
                        }
                        Ok(answer) if answer.status == 409 => old = answer.text().trim_end().parse().unwrap(),
                        Ok(answer) => panic!("{}: {}", answer.status, answer.text()),
                        // It has been killed.
                        Err(_) => return,
                    }
                }
            });
        }
        until("so many are answered", || (count.load(Ordering::SeqCst) >= answers as u64).then_some(()));
        process.child.kill().unwrap();
        process.child.wait().unwrap();
    });
    largest.into_inner()
}

#[test]
fn nothing_that_was_answered_is_taken_back_by_sigkill_under_load() {
    let (folder, log) = (tempfile::tempdir().unwrap(), log());
    let vkey = log.key.verifier().to_string();
    let mut answered = 0;
    for answers in [1, 2, 3, 5, 8, 13, 4, 7, 9, 6] {
        let mut process = WitnessProcess::start(folder.path(), &["--log", &vkey]);
        let key = CosignerKey::parse(&process.verifier_key).unwrap();
        let size = shown(process.address, &log, &key).unwrap_or(0);
        assert!(size >= answered, "{size} is stored, and {answered} was answered");
        answered = cosign_until_killed(&mut process, &log, answers).max(answered);
    }
    assert!(answered >= 58, "{answered}");
}

#[test]
fn of_requests_at_once_those_that_are_cosigned_form_one_chain() {
    let (folder, log) = (tempfile::tempdir().unwrap(), log());
    let server = witness(folder.path(), &[log.key.verifier()]);
    let (address, key) = (server.address(), CosignerKey::parse(server.verifier_key()).unwrap());
    let steps: Mutex<BTreeMap<u64, Vec<u64>>> = Mutex::default();
    std::thread::scope(|threads| {
        for thread in 1..=6 {
            let (log, steps) = (&log, &steps);
            threads.spawn(move || {
                let mut old = 0;
                while old + thread <= 60 {
                    let answer = add(address, &log.ask(old, old + thread));
                    match answer.status {
                        200 => {
                            steps.lock().unwrap().entry(old).or_default().push(old + thread);
                            old += thread;
                        }
                        409 => old = answer.text().trim_end().parse().unwrap(),
                        status => panic!("{status}: {}", answer.text()),
                    }
                }
            });
        }
    });
    let steps = steps.into_inner().unwrap();
    let mut at = 0;
    for (old, new) in &steps {
        assert_eq!((*old, new.len()), (at, 1), "{steps:?}");
        at = new[0];
    }
    assert_eq!(shown(address, &log, &key), Some(at));
    server.stop();
}

#[test]
fn a_damaged_record_is_told_kept_and_in_nobody_elses_way() {
    let (folder, log, second) = (tempfile::tempdir().unwrap(), log(), Tree::new("example.com/second", "x"));
    let logs = [log.key.verifier(), second.key.verifier()];
    let server = witness(folder.path(), &logs);
    assert_eq!(add(server.address(), &log.ask(0, 3)).status, 200);
    server.stop();
    let path = folder.path().join("logs").join(name_of(ORIGIN));
    let good = std::fs::read(&path).unwrap();
    let mut damaged: Vec<Vec<u8>> = vec![Vec::new(), good[..good.len() / 2].to_vec()];
    // Whole, but without the witness's own cosignature: somebody else's.
    let others = log.checkpoint(3);
    damaged.push(
        format!(
            "sha256 {}
{others}",
            hex::encode(Sha256::digest(&others))
        )
        .into_bytes(),
    );
    for at in (0..good.len()).step_by(37) {
        let mut flipped = good.clone();
        flipped[at] ^= 1;
        damaged.push(flipped);
    }
    // The record of another origin is none of this one.
    let server = witness(folder.path(), &logs);
    assert_eq!(add(server.address(), &second.ask(0, 3)).status, 200);
    server.stop();
    damaged.push(std::fs::read(folder.path().join("logs").join(name_of("example.com/second"))).unwrap());
    for (number, bytes) in damaged.iter().enumerate() {
        std::fs::write(&path, bytes).unwrap();
        let server = witness(folder.path(), &logs);
        for old in [0, 3] {
            problem(&add(server.address(), &log.ask(old, 5)), 500);
        }
        problem(&get(server.address(), &path_of(ORIGIN)), 500);
        assert_eq!(add(server.address(), &second.ask(3, 3)).status, 200);
        server.stop();
        assert_eq!(&std::fs::read(&path).unwrap(), bytes, "case {number}");
    }
    std::fs::write(&path, good).unwrap();
    let server = witness(folder.path(), &logs);
    assert_eq!(add(server.address(), &log.ask(3, 5)).status, 200);
    server.stop();
}

#[test]
fn a_record_that_is_gone_is_not_taken_for_one_never_made() {
    let (folder, log, second) = (tempfile::tempdir().unwrap(), log(), Tree::new("example.com/second", "x"));
    let logs = [log.key.verifier(), second.key.verifier()];
    let server = witness(folder.path(), &logs);
    assert_eq!(add(server.address(), &log.ask(0, 3)).status, 200);
    assert_eq!(add(server.address(), &second.ask(0, 3)).status, 200);
    server.stop();
    let path = folder.path().join("logs").join(name_of(ORIGIN));
    let record = std::fs::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    // A start without that log in the policy makes no difference.
    witness(folder.path(), &logs[1..]).stop();
    let server = witness(folder.path(), &logs);
    for request in [log.ask(0, 5), fork().ask(0, 5), log.ask(3, 5)] {
        problem(&add(server.address(), &request), 500);
    }
    problem(&get(server.address(), &path_of(ORIGIN)), 500);
    assert_eq!(add(server.address(), &second.ask(3, 5)).status, 200, "the other goes on");
    server.stop();
    assert!(!path.exists());
    let key = open_key(folder.path(), None, &Files::default()).unwrap();
    let opened = Records::open(folder.path(), key, &[], Files::default(), system_clock).unwrap();
    let error = opened.latest(&name_of(ORIGIN)).unwrap_err().to_string();
    let expected = "is missing although this witness has cosigned for its origin; restore the current record";
    assert!(error.contains(expected), "{error}");
    drop(opened);
    std::fs::write(&path, record).unwrap();
    let server = witness(folder.path(), &logs);
    assert_eq!(add(server.address(), &log.ask(3, 5)).status, 200);
    server.stop();
}

#[test]
fn a_list_of_origins_that_is_gone_or_damaged_is_refused() {
    let (folder, log) = (tempfile::tempdir().unwrap(), log());
    let server = witness(folder.path(), &[log.key.verifier()]);
    assert_eq!(add(server.address(), &log.ask(0, 3)).status, 200);
    server.stop();
    let path = folder.path().join("origins");
    let good = std::fs::read(&path).unwrap();
    for at in 0..good.len() {
        let mut flipped = good.clone();
        flipped[at] ^= 1;
        std::fs::write(&path, flipped).unwrap();
        assert!(matches!(refused(folder.path(), None), WitnessError::OriginsDamaged { .. }), "byte {at}");
    }
    std::fs::remove_file(&path).unwrap();
    assert!(matches!(refused(folder.path(), None), WitnessError::RecordsMissing { .. }));
    assert!(!path.exists());

    // A list with a name in it belongs to a key, even where the records are gone.
    std::fs::write(&path, good).unwrap();
    std::fs::remove_file(folder.path().join("logs").join(name_of(ORIGIN))).unwrap();
    std::fs::remove_file(folder.path().join("witness.pub")).unwrap();
    std::fs::remove_file(folder.path().join("witness.key")).unwrap();
    assert!(matches!(refused(folder.path(), None), WitnessError::KeyMissing { .. }));
}

#[test]
fn a_record_whose_origin_could_not_be_entered_is_entered_by_the_next_start() {
    let log = log();
    for fault in [Fault::Before, Fault::Full, Fault::After] {
        let folder = tempfile::tempdir().unwrap();
        let faults = move |_, path: &Path| match path.ends_with("origins") {
            true => fault,
            false => Fault::None,
        };
        let failing = records(folder.path(), Files::with_faults(Box::new(faults)), system_clock);
        let error = failing.cosign(&log.ask(0, 3)).unwrap_err();
        assert!(matches!(error, NotCosigned::Failed(WitnessError::Folder(LogError::Io { .. }))), "{error:?}");
        // Neither shown nor gone on from: it could still go missing unseen.
        let unknown = failing.latest(&name_of(ORIGIN)).unwrap_err();
        assert!(matches!(unknown, WitnessError::RecordUnknown { .. }), "{unknown:?}");
        drop(failing);
        let again = records(folder.path(), Files::default(), system_clock);
        assert_eq!(again.latest(&name_of(ORIGIN)).unwrap().unwrap().head().size, TreeSize(3));
        drop(again);
        std::fs::remove_file(folder.path().join("logs").join(name_of(ORIGIN))).unwrap();
        let again = records(folder.path(), Files::default(), system_clock);
        let error = again.cosign(&fork().ask(0, 3)).unwrap_err();
        assert!(matches!(error, NotCosigned::Failed(WitnessError::RecordGone { .. })), "{error:?}");
    }
}

fn records(folder: &Path, files: Files, clock: Clock) -> Records {
    let key = open_key(folder, Some("witness.example/r"), &Files::default()).unwrap();
    Records::open(folder, key, &[log().key.verifier().clone()], files, clock).unwrap()
}

#[test]
fn a_record_that_could_not_be_stored_is_not_given_out() {
    let log = log();
    for (fault, goes_on) in [(Fault::Before, true), (Fault::Full, true), (Fault::After, false)] {
        let folder = tempfile::tempdir().unwrap();
        records(folder.path(), Files::default(), system_clock).cosign(&log.ask(0, 3)).unwrap();
        static FAILING: AtomicU64 = AtomicU64::new(0);
        FAILING.store(1, Ordering::SeqCst);
        let faults = move |_, _: &Path| match FAILING.load(Ordering::SeqCst) {
            1 => fault,
            _ => Fault::None,
        };
        let failing = records(folder.path(), Files::with_faults(Box::new(faults)), system_clock);
        let error = failing.cosign(&log.ask(3, 5)).unwrap_err();
        assert!(matches!(error, NotCosigned::Failed(WitnessError::Folder(LogError::Io { .. }))), "{error:?}");
        FAILING.store(0, Ordering::SeqCst);
        // With the old record untouched, the next request may be granted. Else nobody knows, until a start looks.
        match failing.cosign(&log.ask(3, 6)) {
            Ok(record) => assert!(goes_on && record.head().size == TreeSize(6)),
            Err(error) => {
                assert!(!goes_on);
                assert!(
                    matches!(error, NotCosigned::Failed(WitnessError::RecordUnknown { .. })),
                    "{error:?}"
                );
            }
        }
        let again = records(folder.path(), Files::default(), system_clock);
        let size = again.latest(&name_of(ORIGIN)).unwrap().unwrap().head().size.0;
        assert_eq!(size, if goes_on { 6 } else { 5 });
        again.cosign(&log.ask(size, 9)).unwrap();
    }
}

#[test]
fn no_cosignature_states_an_earlier_time_than_the_one_before() {
    static NOW: AtomicU64 = AtomicU64::new(1000);
    let (folder, log) = (tempfile::tempdir().unwrap(), log());
    let records = records(folder.path(), Files::default(), || NOW.load(Ordering::SeqCst));
    assert_eq!(records.cosign(&log.ask(0, 3)).unwrap().time_s, 1000);
    assert_eq!(records.cosign(&log.ask(3, 4)).unwrap().time_s, 1000);
    NOW.store(999, Ordering::SeqCst);
    let error = records.cosign(&log.ask(4, 5)).unwrap_err();
    let behind = NotCosigned::Failed(WitnessError::ClockBehind { now_s: 999, last_s: 1000 });
    assert_eq!(format!("{error:?}"), format!("{behind:?}"));
    NOW.store(1001, Ordering::SeqCst);
    assert_eq!(records.cosign(&log.ask(4, 5)).unwrap().time_s, 1001);
}

#[test]
fn a_witness_whose_clock_has_gone_back_asks_to_be_asked_later() {
    static NOW: AtomicU64 = AtomicU64::new(1000);
    let (folder, log) = (tempfile::tempdir().unwrap(), log());
    let options =
        Options { clock: || NOW.load(Ordering::SeqCst), ..options(folder.path(), &[log.key.verifier()]) };
    let server = start(options).unwrap();
    assert_eq!(add(server.address(), &log.ask(0, 3)).status, 200);
    NOW.store(999, Ordering::SeqCst);
    let answer = add(server.address(), &log.ask(3, 4));
    assert!(problem(&answer, 503).contains("clock has gone back"));
    assert_eq!(answer.header("retry-after"), Some("1"));
    NOW.store(1000, Ordering::SeqCst);
    assert_eq!(add(server.address(), &log.ask(3, 4)).status, 200);
    server.stop();
}

fn refused(folder: &Path, name: Option<&str>) -> WitnessError {
    let (log, name) = (log(), name.map(str::to_owned));
    let options = ledger::witness::server::Options { name, ..options(folder, &[log.key.verifier()]) };
    match start(options) {
        Err(ServeError::Witness(error)) => error,
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it started"),
    }
}

#[test]
fn folders_that_are_in_use_lost_or_foreign_are_refused() {
    let (folder, log) = (tempfile::tempdir().unwrap(), log());
    let data = folder.path().join("witness");
    let server = witness(&data, &[log.key.verifier()]);
    assert!(matches!(refused(&data, None), WitnessError::Folder(LogError::InUse { .. })));
    assert_eq!(add(server.address(), &log.ask(0, 3)).status, 200);
    server.stop();
    let mode = std::fs::metadata(data.join("witness.key")).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
    assert!(matches!(refused(&data, Some("another")), WitnessError::NameMismatch { .. }));
    std::fs::set_permissions(data.join("witness.key"), std::fs::Permissions::from_mode(0o640)).unwrap();
    assert!(matches!(refused(&data, None), WitnessError::Folder(LogError::KeyExposed { .. })));
    std::fs::set_permissions(data.join("witness.key"), std::fs::Permissions::from_mode(0o600)).unwrap();

    let aside = folder.path().join("aside");
    std::fs::rename(data.join("logs"), &aside).unwrap();
    assert!(matches!(refused(&data, None), WitnessError::RecordsMissing { .. }));
    std::fs::rename(&aside, data.join("logs")).unwrap();
    std::fs::rename(data.join("witness.key"), &aside).unwrap();
    assert!(matches!(refused(&data, None), WitnessError::KeyMissing { .. }));
    std::fs::remove_file(data.join("witness.pub")).unwrap();
    assert!(matches!(refused(&data, None), WitnessError::KeyMissing { .. }), "the records are there");
    std::fs::rename(&aside, data.join("witness.key")).unwrap();
    witness(&data, &[log.key.verifier()]).stop();

    // Nothing was cosigned yet, but policies may name the key.
    let unused = folder.path().join("unused");
    witness(&unused, &[log.key.verifier()]).stop();
    std::fs::remove_file(unused.join("witness.key")).unwrap();
    assert!(matches!(refused(&unused, None), WitnessError::KeyMissing { .. }));

    let foreign = folder.path().join("foreign");
    std::fs::create_dir(&foreign).unwrap();
    std::fs::write(foreign.join("log.key"), "x").unwrap();
    let error = refused(&foreign, None).to_string();
    assert!(error.contains("holds no witness") && error.contains("log.key"), "{error}");

    // A first start that was interrupted anywhere is gone on with.
    let origins = format!("sha256 {}\n", hex::encode(Sha256::digest("")));
    for made in [
        &["logs"][..],
        &["logs", "server.lock", ".origins.new"],
        &["logs", "server.lock", "origins", ".witness.key.new"],
    ] {
        let fresh = tempfile::tempdir().unwrap();
        for name in made {
            match *name {
                "logs" => std::fs::create_dir(fresh.path().join(name)).unwrap(),
                "origins" => std::fs::write(fresh.path().join(name), &origins).unwrap(),
                name => std::fs::write(fresh.path().join(name), "").unwrap(),
            }
        }
        witness(fresh.path(), &[log.key.verifier()]).stop();
    }
}

#[test]
fn the_command_says_what_is_wrong_with_its_options() {
    let folder = tempfile::tempdir().unwrap();
    let policy = folder.path().join("policy");
    std::fs::write(&policy, "quorum none\nlog x\n").unwrap();
    let run = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_ledger"))
            .args(["witness", "--listen", "0", "--data"])
            .arg(folder.path().join("w"))
            .args(arguments)
            .output()
            .unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let policy = policy.to_str().unwrap();
    let (code, text) = run(&["--policy", policy]);
    assert_eq!(code, Some(2));
    assert!(text.contains("ledger: error: ") && text.contains("policy: line 2: verifier key"), "{text}");
    std::fs::write(policy, "quorum none\n").unwrap();
    assert!(run(&["--policy", policy]).1.contains("no log line"));
    let text = run(&["--log", "x"]).1;
    assert!(
        text.contains("--log: expected a verifier key or a file that holds one, found \"x\": verifier key"),
        "{text}"
    );
    assert!(run(&[]).1.contains("--log"));
    assert!(!folder.path().join("w").exists(), "a start that fails leaves nothing behind");
}
