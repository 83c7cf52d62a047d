//! The built command: exit statuses, messages, and what is left on disk, as far as no log is needed.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output};

const COMMANDS: [&str; 6] = ["keygen", "submit", "challenge", "reconcile", "verify", "show"];

fn client(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_client")).current_dir(folder).args(arguments).output().unwrap()
}

fn status(output: &Output) -> i32 {
    output.status.code().expect("the command ends by itself")
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn every_command_has_help_with_an_example() {
    let folder = tempfile::tempdir().unwrap();
    for command in COMMANDS {
        let output = client(folder.path(), &[command, "--help"]);
        assert_eq!(status(&output), 0);
        assert!(stdout(&output).contains(&format!("Example:\n  client {command} ")), "{command}");
        assert!(output.stderr.is_empty());
    }
}

#[test]
fn bad_usage_is_status_two_in_the_commands_own_form() {
    let folder = tempfile::tempdir().unwrap();
    for arguments in [&[][..], &["frobnicate"], &["verify"], &["verify", "a", "--log-key", "x"]] {
        let output = client(folder.path(), arguments);
        assert_eq!(status(&output), 2, "{arguments:?}");
        assert!(stderr(&output).starts_with("client: error: "), "{arguments:?}: {}", stderr(&output));
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn keygen_prints_the_public_key_and_never_overwrites() {
    let folder = tempfile::tempdir().unwrap();
    let made = client(folder.path(), &["keygen", "predictor.key"]);
    assert_eq!(status(&made), 0);
    let public = std::fs::read_to_string(folder.path().join("predictor.pub")).unwrap();
    assert_eq!(stdout(&made), public);
    let secret = std::fs::read(folder.path().join("predictor.key")).unwrap();
    let again = client(folder.path(), &["keygen", "predictor.key"]);
    assert_eq!(status(&again), 2);
    assert!(stderr(&again).contains("client: hint: a key file is never overwritten"), "{}", stderr(&again));
    assert_eq!(std::fs::read(folder.path().join("predictor.key")).unwrap(), secret);
}

#[test]
fn what_is_no_bundle_could_not_be_checked() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("run.tally"), b"not a bundle").unwrap();
    let log = "example.com/log+6fa2a6fc+AduMfgFyPLsp+0iRQOhvMKPsP8aKRcZVm8nTvV7I7+pC";
    client(folder.path(), &["keygen", "predictor.key"]);
    let with = |arguments: &[&str]| client(folder.path(), &[&["verify", "run.tally"], arguments].concat());
    // A vkey with a wrong id, then no predictor, then a secret key in place of a public one.
    let bad = with(&["--log-key", log, "--predictor-key", "predictor.pub"]);
    assert_eq!(status(&bad), 2);
    assert!(stderr(&bad).starts_with("client: error: expected a log's vkey"), "{}", stderr(&bad));
    let key =
        tlog::note::SigningKey::from_seed(tlog::note::KeyName::new("example.com/log").unwrap(), &[1; 32]);
    let log = key.verifier().to_string();
    let secret = with(&["--log-key", &log, "--predictor-key", "predictor.key"]);
    assert_eq!(status(&secret), 2);
    assert!(stderr(&secret).contains("expected a public key, found a secret key"), "{}", stderr(&secret));
    let checked = with(&["--log-key", &log, "--predictor-key", "predictor.pub"]);
    assert_eq!(status(&checked), 2);
    let text = stdout(&checked);
    assert!(text.starts_with("1. bundle can be read [failed]: "), "{text}");
    assert!(text.contains("\n2. checkpoint is signed by the log [not reached]\n"), "{text}");
    assert!(text.lines().last().unwrap().starts_with("not verified: check 1: "), "{text}");
    let json = stdout(&with(&["--log-key", &log, "--predictor-key", "predictor.pub", "--json"]));
    let value: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((value["verified"].as_bool(), value["status"].as_u64()), (Some(false), Some(2)));
    assert_eq!(value["checks"].as_array().unwrap().len(), 9);
    let shown = client(folder.path(), &["show", "run.tally"]);
    assert_eq!(status(&shown), 2);
    assert!(stderr(&shown).starts_with("client: error: run.tally: bundle: "), "{}", stderr(&shown));
    let absent = client(folder.path(), &["show", "absent.tally"]);
    assert!(stderr(&absent).starts_with("client: error: cannot read absent.tally: "), "{}", stderr(&absent));
}

#[test]
fn a_log_that_is_not_there_is_an_error_with_a_hint_and_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = |arguments: &[&str]| {
        let output = client(folder.path(), arguments);
        assert_eq!(status(&output), 2);
        stderr(&output)
    };
    let missing = bundle(&[
        "challenge",
        "--ledger",
        "http://127.0.0.1:1",
        "--prediction",
        "absent",
        "--out",
        "challenge.note",
    ]);
    assert!(missing.contains("client: hint: the oracle writes OUT/prediction"), "{missing}");
    // A port that was free a moment ago and that nobody listens on.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let key = schemas::key::SecretKey::from_seed([1; 32]);
    let run = schemas::statement::Payload::Run(some_run());
    let statement = schemas::statement::Statement::sign(&run, &key).unwrap();
    std::fs::write(folder.path().join("run.cose"), statement).unwrap();
    let refused = bundle(&["submit", "run.cose", "--ledger", &format!("http://127.0.0.1:{port}")]);
    assert!(refused.starts_with("client: error: cannot reach http://127.0.0.1:"), "{refused}");
    assert!(refused.contains("client: hint: is the ledger running?"), "{refused}");
    let other = bundle(&["submit", "run.cose", "--ledger", "https://log.example"]);
    assert!(other.contains("expected http://HOST[:PORT]"), "{other}");
    assert!(!folder.path().join("challenge.note").exists());
}

fn some_run() -> schemas::run::Run {
    use schemas::digest::{Checksum, ConfigDigest, PlanDigest, StateDigest};
    schemas::run::Run {
        name: "some".into(),
        profile: "f32-fma".into(),
        profile_digest: schemas::profile::F32_FMA.digest(),
        config: ConfigDigest([2; 32]),
        plan: PlanDigest([3; 32]),
        state: StateDigest([4; 32]),
        dataset: Checksum([5; 32]),
        steps: 1,
        leaves: 1,
        devices_max: 1,
    }
}
