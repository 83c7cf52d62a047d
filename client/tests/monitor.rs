//! `client monitor` against a log that lies with its own key: each lie is told, once, and an honest log is not
//! slandered.

mod lying;

use lying::{Answer, Files, Log, opening, prediction, signed};
use schemas::register::Register;
use schemas::statement::Payload;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A monitor with its state, and the server it looks at.
struct Monitor {
    folder: tempfile::TempDir,
    files: Files,
    address: String,
    log_key: String,
}

impl Monitor {
    fn new() -> Monitor {
        let files = Files::default();
        let (address, log_key) = (files.start(), Log::new().key().verifier().to_string());
        Monitor { folder: tempfile::tempdir().unwrap(), files, address, log_key }
    }

    fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_client"));
        command.args(["monitor", "--ledger", &self.address, "--log-key", &self.log_key, "--once", "--json"]);
        command.arg("--state").arg(self.state());
        command
    }

    /// Looks once; the status and the findings told.
    fn look(&self) -> (i32, Vec<Value>) {
        let output = self.command().output().unwrap();
        (output.status.code().unwrap(), lines(&output.stdout))
    }

    /// Shows a log and looks.
    fn see(&self, log: &Log) -> (i32, Vec<Value>) {
        self.files.show(log);
        self.look()
    }

    /// Looks and finds exactly one thing, of this kind; what is said of it.
    fn finds(&self, kind: &str) -> Value {
        let (status, findings) = self.look();
        let [finding] = &findings[..] else { panic!("{kind}: {findings:#?}") };
        assert_eq!((status, finding["finding"].as_str()), (1, Some(kind)), "{finding}");
        assert_eq!(self.kept().last(), Some(finding));
        // It is told once; the status stays.
        assert_eq!(self.look(), (1, vec![]), "{kind}");
        finding.clone()
    }

    /// Shows a log and finds exactly one thing.
    fn sees(&self, log: &Log, kind: &str) -> Value {
        self.files.show(log);
        self.finds(kind)
    }

    fn kept(&self) -> Vec<Value> {
        lines(&std::fs::read(self.state().join("findings.jsonl")).unwrap())
    }
}

fn lines(bytes: &[u8]) -> Vec<Value> {
    let text = std::str::from_utf8(bytes).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// A log of `count` entries, none of them wrong.
fn honest(count: u64) -> Log {
    let mut log = Log::new();
    log.add_story(0);
    for number in 1.. {
        if log.size() >= count {
            return log;
        }
        log.add_run(number);
    }
    unreachable!()
}

#[test]
fn an_honest_log_is_followed_in_silence() {
    let monitor = Monitor::new();
    let mut log = Log::new();
    // Sizes within a bundle, at its end, beyond it, and the same again.
    for count in [1, 5, 5, 255, 256, 257, 600] {
        if log.size() < count && count > 1 {
            log.add_story(count);
        }
        while log.size() < count {
            log.add_run(10_000 + log.size());
        }
        assert_eq!(monitor.see(&log), (0, vec![]), "size {count}");
    }
    let asked = monitor.files.asked();
    assert!(asked.contains("/tile/1/000.p/2"), "tiles above the entries are looked at: {asked:?}");
    monitor.look();
    assert_eq!(
        monitor.files.asked(),
        ["/checkpoint".to_owned()].into(),
        "what is known is not asked for again"
    );
    assert!(!monitor.state().join("findings.jsonl").exists());
    // Another monitor that comes late sees the same.
    assert_eq!(Monitor::new().see(&log), (0, vec![]));
}

#[test]
fn without_a_state_everything_is_looked_at_and_forgotten() {
    let monitor = Monitor::new();
    let mut log = honest(300);
    log.append(b"no statement".to_vec());
    monitor.files.show(&log);
    for _ in 0..2 {
        let mut command = Command::new(env!("CARGO_BIN_EXE_client"));
        let output = command
            .args(["monitor", "--ledger", &monitor.address, "--log-key", &monitor.log_key, "--once"])
            .output()
            .unwrap();
        let told = String::from_utf8(output.stdout).unwrap();
        assert!(told.starts_with("invalid: entry 300 is no valid statement: "), "{told}");
        assert_eq!(output.status.code(), Some(1));
    }
}

#[test]
fn two_trees_of_one_size_are_a_fork_and_both_notes_are_kept() {
    let monitor = Monitor::new();
    let log = honest(300);
    monitor.see(&log);
    let mut other = log.clone();
    other.entries[7] = signed(&Payload::Run(lying::run(999)), 1);
    let finding = monitor.sees(&other, "fork");
    let notes = [log.checkpoint(300), other.checkpoint(300)];
    assert_eq!(finding["evidence"]["notes"], serde_json::json!(notes));
    // A fork of an earlier size, which only the tiles kept here can tell.
    other.entries.truncate(100);
    let finding = monitor.sees(&other, "fork");
    assert_eq!(finding["evidence"]["notes"], serde_json::json!([log.checkpoint(300), other.checkpoint(100)]));
    assert_eq!(finding["evidence"]["size"], 100);
}

#[test]
fn a_history_that_goes_on_from_another_past_is_a_fork() {
    for size in [255, 256, 300] {
        let monitor = Monitor::new();
        let log = honest(size);
        monitor.see(&log);
        let mut other = log.clone();
        other.entries[7] = signed(&Payload::Run(lying::run(999)), 1);
        other.add_run(1000);
        let finding = monitor.sees(&other, "fork");
        let evidence = &finding["evidence"];
        assert_eq!(evidence["notes"], serde_json::json!([log.checkpoint(size), other.checkpoint(size + 1)]));
        assert_eq!(evidence["roots"][1], other.hashes().root(tlog::tree::TreeSize(size)).to_base64());
        assert!(!evidence["consistency_of_the_second"].as_array().unwrap().is_empty());
        // The honest log is still followed.
        let mut log = log;
        log.add_run(1001);
        assert_eq!(monitor.see(&log), (1, vec![]));
        log.append(b"nothing".to_vec());
        monitor.sees(&log, "invalid");
    }
}

#[test]
fn an_older_tree_is_told_even_if_it_is_the_same_history() {
    let monitor = Monitor::new();
    let log = honest(20);
    monitor.see(&log);
    let mut older = log.clone();
    older.entries.truncate(12);
    let finding = monitor.sees(&older, "shrunken");
    assert_eq!(finding["subject"], "12 after 20");
}

#[test]
fn each_breach_of_the_rules_of_admission_is_told() {
    // Made on top of an honest story of run `id` whose prediction by key 2 of steps 0..3 is opened.
    type Breach = fn(&mut Log, schemas::digest::RunId, schemas::digest::EntryDigest);
    let breaches: [(&str, &str, Breach); 7] = [
        ("invalid", "entry 5 is no valid statement", |log, _, _| {
            log.append(b"none".to_vec());
        }),
        ("invalid", "entry 5 is no valid statement: statement: the signature", |log, id, _| {
            let mut entry = signed(&prediction(id, 7, 8, u64::MAX >> 1), 2);
            *entry.last_mut().unwrap() ^= 1;
            log.append(entry);
        }),
        ("unknown run", "entry 5, a prediction, is of run ", |log, _, _| {
            log.append(signed(&prediction(lying::run(77).id(), 0, 1, u64::MAX >> 1), 2));
        }),
        ("second prediction", "entry 5 predicts steps 2..4 of run ", |log, id, _| {
            log.append(signed(&prediction(id, 2, 4, u64::MAX >> 1), 2));
        }),
        ("second prediction", "who predicts steps 0..3 of it in entry 2", |log, id, _| {
            log.append(signed(&prediction(id, 0, 3, u64::MAX >> 1), 2));
        }),
        ("second opening", " as entry 3 does", |log, id, predicted| {
            log.append(signed(&opening(id, predicted, 9), 2));
            log.add_register(id);
        }),
        ("genesis", "entry 0 does not name the log", |log, _, _| {
            log.entries[0] = b"tallystick log v1\norigin else\n".to_vec();
        }),
    ];
    for (kind, message, breach) in breaches {
        let mut log = Log::new();
        let (id, predicted) = log.add_story(0);
        breach(&mut log, id, predicted);
        let finding = Monitor::new().sees(&log, kind);
        assert!(finding["message"].as_str().unwrap().contains(message), "{finding}");
    }
    // What is admitted: other steps, another key, another run, another signer's opening.
    let mut log = Log::new();
    let (id, predicted) = log.add_story(0);
    log.append(signed(&prediction(id, 3, 4, u64::MAX >> 1), 2));
    log.append(signed(&prediction(id, 0, 3, u64::MAX >> 1), 3));
    log.append(signed(&opening(id, predicted, 9), 3));
    log.add_register(id);
    log.add_story(1);
    assert_eq!(Monitor::new().see(&log), (0, vec![]));
}

/// The claimant who commits to a hundred predictions, with the log's help.
#[test]
fn every_further_prediction_of_a_step_is_told() {
    let mut log = Log::new();
    let id = log.add_run(0);
    for salt in 0..100u8 {
        let Payload::Prediction(mut prediction) = prediction(id, 0, 300, u64::MAX >> 1) else {
            unreachable!()
        };
        prediction.seal.0 = [salt; 32];
        log.append(signed(&Payload::Prediction(prediction), 2));
    }
    let (status, findings) = Monitor::new().see(&log);
    assert_eq!((status, findings.len()), (1, 99));
    assert!(findings.iter().all(|finding| finding["finding"] == "second prediction"));
}

#[test]
fn each_wrong_missing_or_needless_register_is_told() {
    type Lie = fn(&mut Log, schemas::digest::RunId);
    fn changed(log: &mut Log, id: schemas::digest::RunId, change: fn(&mut Register)) {
        let mut register = log.register(id);
        change(&mut register);
        log.append_register(register);
    }
    let lies: [(&str, &str, Lie); 8] = [
        ("register missing", "entry 3 of run ", |_, _| ()),
        ("register wrong", "says 2 entries with root ", |log, id| changed(log, id, |r| r.entries.count = 2)),
        ("register wrong", "says 0 predictions with root ", |log, id| {
            changed(log, id, |register| register.predictions.count = 0);
        }),
        ("register wrong", "says 1 predictions with root ", |log, id| {
            changed(log, id, |register| register.predictions.root[0] ^= 1);
        }),
        ("register wrong", "says 3 entries with root ", |log, id| {
            changed(log, id, |register| register.entries.root[0] ^= 1);
        }),
        ("register wrong", "is of size 3, expected its own index", |log, id| {
            changed(log, id, |register| register.size = 3);
        }),
        ("register extra", "entry 5 is a register of run ", |log, id| {
            log.add_register(id);
            log.add_register(id);
        }),
        ("register wrong", "is signed by ed25519:", |log, id| {
            log.add_register(id);
            let register = Payload::Register(log.register(id));
            log.append(signed(&register, 2));
        }),
    ];
    for (kind, message, lie) in lies {
        let mut log = Log::new();
        let id = log.add_run(0);
        let predicted = log.append(signed(&prediction(id, 0, 3, 1), 2));
        log.append(signed(&opening(id, predicted, 1), 2));
        lie(&mut log, id);
        let finding = Monitor::new().sees(&log, kind);
        assert!(finding["message"].as_str().unwrap().contains(message), "{finding}");
    }
    // A register that comes after the checkpoint comes too late.
    let monitor = Monitor::new();
    let mut log = Log::new();
    let id = log.add_run(0);
    let predicted = log.append(signed(&prediction(id, 0, 3, 1), 2));
    log.append(signed(&opening(id, predicted, 1), 2));
    monitor.sees(&log, "register missing");
    log.add_register(id);
    assert_eq!(monitor.see(&log), (1, vec![]));
    // A stranger's is none: the log's own is missing all the same.
    let mut log = Log::new();
    let id = log.add_run(0);
    let predicted = log.append(signed(&prediction(id, 0, 3, 1), 2));
    log.append(signed(&opening(id, predicted, 1), 2));
    let register = Payload::Register(log.register(id));
    log.append(signed(&register, 3));
    let (status, findings) = Monitor::new().see(&log);
    let kinds: Vec<_> = findings.iter().map(|finding| finding["finding"].as_str().unwrap()).collect();
    assert_eq!((status, &kinds[..]), (1, &["register wrong", "register missing"][..]), "{findings:#?}");
}

#[test]
fn a_prediction_that_is_not_opened_in_time_is_told() {
    let monitor = Monitor::new();
    let mut log = Log::new();
    let id = log.add_run(0);
    let opened = log.append(signed(&prediction(id, 0, 3, 1), 2));
    log.append(signed(&opening(id, opened, 1), 2));
    log.add_register(id);
    let never = log.append(signed(&prediction(id, 3, 6, 1_000_000), 2));
    log.append(signed(&prediction(id, 6, 9, u64::MAX >> 1), 2));
    // Opened by somebody else is not opened.
    log.append(signed(&opening(id, never, 1), 3));
    log.add_register(id);
    let finding = monitor.sees(&log, "overdue");
    assert!(finding["message"].as_str().unwrap().contains(&never.to_string()), "{finding}");
    log.append(signed(&opening(id, never, 1), 2));
    log.add_register(id);
    assert_eq!(monitor.see(&log), (1, vec![]));
}

/// A verdict on a prediction of a run.
fn verdict(run: schemas::digest::RunId, prediction: schemas::digest::EntryDigest) -> Payload {
    Payload::Verdict(Box::new(schemas::verdict::Verdict {
        run,
        prediction,
        opening: None,
        receipts: vec![],
        steps: schemas::run::Steps { first: 0, end: 3 },
        outcome: schemas::verdict::Outcome::Incomplete,
        step: None,
        findings: vec![],
        missing: vec!["any receipt".into()],
        simulated: false,
        answer: None,
        evidence: vec![],
    }))
}

#[test]
fn an_opening_and_a_verdict_each_call_for_a_register_and_the_first_that_waits_is_named() {
    let mut log = Log::new();
    let id = log.add_run(0);
    let predicted = log.append(signed(&prediction(id, 0, 3, u64::MAX >> 1), 2));
    let mut judged = log.clone();
    judged.append(signed(&verdict(id, predicted), 2));
    let finding = Monitor::new().sees(&judged, "register missing");
    assert!(finding["message"].as_str().unwrap().starts_with("entry 3 of run "), "{finding}");
    // An opening and a verdict wait for the same one.
    log.append(signed(&opening(id, predicted, 1), 2));
    log.append(signed(&verdict(id, predicted), 2));
    let finding = Monitor::new().sees(&log, "register missing");
    assert!(finding["message"].as_str().unwrap().starts_with("entry 3 of run "), "{finding}");
    log.add_register(id);
    assert_eq!(Monitor::new().see(&log), (0, vec![]));
}

#[test]
fn only_a_sealed_prediction_can_be_overdue_and_is_so_at_once() {
    let now_s = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let mut log = Log::new();
    let id = log.add_run(0);
    let Payload::Prediction(mut openly) = prediction(id, 0, 3, 1) else { unreachable!() };
    let body = schemas::attachment::AttachmentName::of(b"body");
    openly.open = Some(schemas::prediction::OpenBody { salt: schemas::digest::Salt([1; 32]), body });
    log.append(signed(&Payload::Prediction(openly), 2));
    log.append(signed(&prediction(id, 3, 6, now_s + 600), 2));
    let monitor = Monitor::new();
    assert_eq!(monitor.see(&log), (0, vec![]));
    log.append(signed(&prediction(id, 6, 9, now_s - 60), 2));
    let finding = monitor.sees(&log, "overdue");
    assert_eq!(finding["subject"], "4");
    assert!(finding["found_unix_s"].as_u64().unwrap() >= now_s, "{finding}");
}

#[test]
fn a_run_that_was_not_there_is_missed_again_at_the_next_look() {
    let monitor = Monitor::new();
    let mut log = Log::new();
    let id = lying::run(77).id();
    log.append(signed(&prediction(id, 0, 1, u64::MAX >> 1), 2));
    monitor.sees(&log, "unknown run");
    log.append(signed(&prediction(id, 1, 2, u64::MAX >> 1), 2));
    let finding = monitor.sees(&log, "unknown run");
    assert_eq!(finding["subject"], "2");
}

#[test]
fn what_does_not_hash_to_the_signed_tree_is_told_with_its_place() {
    let log = honest(600);
    type Damage = fn(&Files);
    let damages: [(&str, &str, Damage); 6] = [
        ("entry", "tile/entries/001 holds another entry 256 than", |files| {
            files.change("/tile/entries/001", |bytes| bytes[2 + 100] ^= 1);
        }),
        ("entry", "tile/entries/002.p/88 holds another entry 599 than", |files| {
            files.change("/tile/entries/002.p/88", |bytes| *bytes.last_mut().unwrap() ^= 1);
        }),
        ("tile", "tile/0/001 does not hash to the signed root", |files| {
            files.change("/tile/0/001", |bytes| bytes[0] ^= 1);
        }),
        ("tile", "tile/1/000.p/2 is not what the entries hash to", |files| {
            // The second hash of level 1, which a proof of the whole has no need of.
            files.change("/tile/1/000.p/2", |bytes| bytes[32] ^= 1);
        }),
        ("tile", "tile/entries/001 is no such bundle", |files| {
            files.change("/tile/entries/001", |bytes| bytes.truncate(bytes.len() - 1));
        }),
        ("tile", "tile tile/0/002.p/88 is 2815 bytes, expected 2816", |files| {
            files.change("/tile/0/002.p/88", |bytes| bytes.truncate(bytes.len() - 1));
        }),
    ];
    for (kind, message, damage) in damages {
        let monitor = Monitor::new();
        monitor.files.show(&log);
        damage(&monitor.files);
        let finding = monitor.finds(kind);
        assert!(finding["message"].as_str().unwrap().contains(message), "{finding}");
        // Once it is repaired, the log is followed to its end.
        assert_eq!(monitor.see(&log), (1, vec![]));
        let mut further = log.clone();
        further.append(b"none".to_vec());
        monitor.sees(&further, "invalid");
    }
}

#[test]
fn an_entry_that_was_rewritten_after_it_was_read_is_told() {
    let monitor = Monitor::new();
    let mut log = honest(300);
    monitor.see(&log);
    log.add_run(1000);
    monitor.files.show(&log);
    monitor.files.change("/tile/entries/001.p/45", |bytes| bytes[2 + 100] ^= 1);
    let finding = monitor.finds("entry");
    assert!(finding["message"].as_str().unwrap().contains("another entry 256 than"), "{finding}");
}

#[test]
fn a_tile_that_is_withheld_is_told() {
    let log = honest(600);
    for path in ["/tile/entries/001", "/tile/0/001", "/tile/entries/002.p/88", "/tile/1/000.p/2"] {
        let monitor = Monitor::new();
        monitor.files.show(&log);
        monitor.files.remove(path);
        let finding = monitor.finds("withheld");
        assert_eq!(finding["subject"], path[1..]);
    }
    // A partial tile that is gone because the full one is there is not withheld.
    let monitor = Monitor::new();
    monitor.files.show(&honest(768));
    monitor.files.set("/checkpoint", Answer::Bytes(log.checkpoint(600).into_bytes()));
    monitor.files.set("/tile/1/000.p/2", Answer::Bytes(log.files()["/tile/1/000.p/2"].clone()));
    assert_eq!(monitor.look(), (0, vec![]));
    assert!(monitor.files.asked().contains("/tile/entries/002"));
}

#[test]
fn a_server_that_does_not_answer_as_it_should_could_not_be_checked() {
    let log = honest(300);
    let other = log.of_another_key();
    let answers = [
        ("/checkpoint", Answer::Status(500), "answered 500"),
        ("/checkpoint", Answer::Status(404), "answered 404"),
        ("/checkpoint", Answer::Endless, "answered more than 16384 bytes"),
        ("/checkpoint", Answer::Short(b"origin".to_vec()), "cannot reach"),
        ("/checkpoint", Answer::Bytes(b"no note".to_vec()), "note has no text followed by"),
        (
            "/checkpoint",
            Answer::Bytes(other.checkpoint(300).into_bytes()),
            "note has no signature of a known key",
        ),
        ("/tile/0/000", Answer::Status(500), "answered 500"),
        ("/tile/0/000", Answer::Endless, "answered more than 8192 bytes"),
        ("/tile/entries/000", Answer::Endless, "answered more than 16777472 bytes"),
        ("/tile/entries/000", Answer::Short(vec![0; 10]), "cannot reach"),
    ];
    let monitor = Monitor::new();
    for (path, answer, why) in answers {
        monitor.files.show(&log);
        monitor.files.set(path, answer.clone());
        let output = monitor.command().output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{path} {answer:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(why), "{path}: {}", stderr(&output));
        assert!(output.stdout.is_empty());
    }
    assert_eq!(monitor.see(&log), (0, vec![]));
}

#[test]
fn a_state_is_of_one_log_and_has_one_monitor() {
    let monitor = Monitor::new();
    let log = honest(20);
    monitor.see(&log);
    let mut other = Monitor { address: monitor.address.clone(), ..Monitor::new() };
    let impostor = log.of_another_key();
    other.log_key = impostor.key().verifier().to_string();
    let output = other.command().args(["--state"]).arg(monitor.state()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("cannot be used multiple times"), "{}", stderr(&output));
    let state = monitor.state();
    let output = Command::new(env!("CARGO_BIN_EXE_client"))
        .args(["monitor", "--ledger", &other.address, "--log-key", &other.log_key, "--once", "--state"])
        .arg(&state)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let told = stderr(&output);
    assert!(told.contains("is the state of log log.example/test+"), "{told}");
    assert!(told.contains("client: hint: one folder for each log"), "{told}");
    // While one is at work, another cannot be.
    monitor.files.set("/checkpoint", Answer::Nothing);
    monitor.files.asked();
    let mut first = monitor.command().stdout(Stdio::null()).spawn().unwrap();
    wait_until(|| monitor.files.asked().contains("/checkpoint"));
    let output = monitor.command().output().unwrap();
    assert!(
        stderr(&output).contains("client: hint: another monitor uses that folder"),
        "{}",
        stderr(&output)
    );
    first.kill().unwrap();
    first.wait().unwrap();
}

fn wait_until(mut done: impl FnMut() -> bool) {
    let started = Instant::now();
    while !done() {
        assert!(started.elapsed() < Duration::from_secs(60), "waited too long");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_monitor_that_is_killed_goes_on_where_it_was() {
    let monitor = Monitor::new();
    let mut log = honest(5000);
    log.entries[100] = b"none".to_vec();
    log.append(b"neither".to_vec());
    monitor.files.show(&log);
    // It hangs in the second change of its state, and is killed there.
    monitor.files.set("/tile/entries/017", Answer::Nothing);
    let mut first = monitor.command().stdout(Stdio::piped()).spawn().unwrap();
    let mut asked = std::collections::BTreeSet::new();
    wait_until(|| {
        asked.extend(monitor.files.asked());
        asked.contains("/tile/entries/017")
    });
    first.kill().unwrap();
    assert!(first.wait_with_output().unwrap().stdout.is_empty(), "it had told nothing yet");
    assert!(asked.contains("/tile/entries/000"));
    let (status, findings) = monitor.see(&log);
    let subjects: Vec<_> = findings.iter().map(|finding| finding["subject"].as_str().unwrap()).collect();
    assert_eq!((status, subjects), (1, vec!["100", "5000"]));
    let again = monitor.files.asked();
    assert!(again.contains("/tile/entries/017"));
    assert!(!again.contains("/tile/entries/015"), "what was kept is not read again");
    assert_eq!(monitor.kept(), findings);
}

/// Runs until told to stop, and says once what it cannot do.
#[test]
fn a_monitor_that_goes_on_ends_when_it_is_told_to() {
    let monitor = Monitor::new();
    let mut log = honest(20);
    monitor.files.show(&log);
    let arguments = ["monitor", "--ledger", &monitor.address, "--log-key", &monitor.log_key];
    let mut command = Command::new(env!("CARGO_BIN_EXE_client"));
    command.args(arguments).args(["--interval", "1", "--state"]).arg(monitor.state());
    let running = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until(|| monitor.files.asked().contains("/tile/entries/000.p/20"));
    log.append(b"none".to_vec());
    monitor.files.show(&log);
    let kept: &Path = &monitor.state().join("findings.jsonl");
    wait_until(|| kept.exists());
    let status = Command::new("kill").args(["-TERM", &running.id().to_string()]).status().unwrap();
    assert!(status.success());
    let output = running.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let told = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(told.starts_with("invalid: entry 20 is no valid statement"), "{told}");
    assert_eq!(told.lines().count(), 1);
    assert!(stderr(&output).contains("followed log.example/test to size 21, root "), "{}", stderr(&output));
}

/// What the monitor says of a state that was changed; and it never panics.
fn told_of(monitor: &Monitor) -> (i32, String) {
    let output = monitor.command().output().unwrap();
    (output.status.code().unwrap(), stderr(&output))
}

#[test]
fn a_damaged_state_is_refused_and_a_lost_one_is_not_begun_anew() {
    let monitor = Monitor::new();
    let log = honest(600);
    assert_eq!(monitor.see(&log), (0, vec![]));
    let (state, file) = (monitor.state(), monitor.state().join("monitor.redb"));
    let good = std::fs::read(&file).unwrap();
    let checkpoint = std::fs::read(state.join("checkpoint")).unwrap();
    let refused = |what: &str| {
        let (status, told) = told_of(&monitor);
        assert_eq!(status, 2, "{what}: {told}");
        assert!(told.contains("the monitor's state is damaged: "), "{what}: {told}");
        assert!(told.contains("client: hint: keep checkpoint and findings.jsonl"), "{what}: {told}");
        assert!(!told.contains("panicked"), "{what}: {told}");
    };
    let shorter = honest(300);
    let mut caught = 0;
    for at in (0..good.len()).step_by(good.len() / 40) {
        let mut flipped = good.clone();
        flipped[at..].iter_mut().take(4096).for_each(|byte| *byte ^= 1);
        std::fs::write(&file, &flipped).unwrap();
        if told_of(&monitor).0 == 0 {
            // It hit nothing that is in use, so nothing is forgotten either.
            monitor.files.show(&shorter);
            let (status, told) = told_of(&monitor);
            assert_eq!(status, 1, "{at}: {told}");
            monitor.files.show(&log);
            std::fs::remove_file(state.join("findings.jsonl")).unwrap();
        } else {
            refused(&format!("flipped at {at}"));
            caught += 1;
        }
        std::fs::write(state.join("checkpoint"), &checkpoint).unwrap();
    }
    assert!(caught > 3, "{caught}");
    // A byte of something that is only remembered, in every page that has it: nothing else would notice.
    let mut flipped = good.clone();
    let remembered = checkpoint.as_slice();
    let places: Vec<usize> = (0..good.len()).filter(|&at| good[at..].starts_with(remembered)).collect();
    assert!(!places.is_empty());
    places.iter().for_each(|&at| flipped[at] ^= 1);
    std::fs::write(&file, &flipped).unwrap();
    refused("a flipped byte of the note");
    for (what, bytes) in [("empty", &good[..0]), ("half", &good[..good.len() / 2])] {
        std::fs::write(&file, bytes).unwrap();
        refused(what);
        refused(what);
    }
    std::fs::remove_file(&file).unwrap();
    refused("removed");
    assert!(!file.exists());

    // Set back to what it was long ago, or another's checkpoint beside it.
    let young = Monitor { folder: tempfile::tempdir().unwrap(), ..Monitor::new() };
    assert_eq!(young.see(&shorter), (0, vec![]));
    std::fs::copy(young.state().join("monitor.redb"), &file).unwrap();
    refused("an old state");
    std::fs::write(&file, &good).unwrap();
    std::fs::write(state.join("checkpoint"), &checkpoint[..checkpoint.len() - 9]).unwrap();
    refused("a damaged checkpoint");
    std::fs::write(state.join("checkpoint"), &checkpoint).unwrap();
    assert_eq!(monitor.look(), (0, vec![]));
}
