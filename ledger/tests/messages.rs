//! Under `--log-format json` every line on stderr is a JSON object; arguments that are refused; and hints.

mod support;

use std::process::{Command, Output};

use ledger::say;
use serde_json::Value;
use support::{folder, run_statement, served, submit};
use tracing::level_filters::LevelFilter;

fn ledger(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ledger")).args(arguments).output().unwrap()
}

/// The lines of stderr, each of which has to be a JSON object with a level and a message.
fn lines(output: &Output) -> Vec<Value> {
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    let lines: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line:?}"))).collect();
    assert!(!lines.is_empty() && lines.iter().all(|line| line["level"].is_string()), "{text}");
    assert!(lines.iter().all(|line| line["fields"]["message"].is_string()), "{text}");
    lines
}

#[test]
fn errors_hints_and_findings_are_json_where_that_is_asked_for() {
    let folder = folder();
    let server = served(folder.path());
    assert_eq!(submit(server.address(), &run_statement(0)).status, 201);
    server.stop().unwrap();
    let data = folder.path().to_str().unwrap();
    std::fs::write(folder.path().join("tile/0/000.p/2"), b"short").unwrap();
    for command in [&["serve", "--listen", "0"][..], &["fsck"], &["reindex"]] {
        let output = ledger(&[command, &["--log-format", "json", "--data", data]].concat());
        assert!(!output.status.success(), "{command:?}");
        let lines = lines(&output);
        let error = lines.iter().find(|line| line["level"] == "ERROR").unwrap();
        let message = error["fields"]["message"].as_str().unwrap();
        assert!(message.contains("tile/0/000.p/2"), "{message}");
        // What is found is listed, and the hint follows; what ends a command has its hint with it.
        if command != ["fsck"] {
            let hint = error["fields"]["hint"].as_str().unwrap();
            assert!(hint.starts_with(&format!("`ledger fsck --data {data}` names the bytes")), "{hint}");
        }
        assert!(error.get("backtrace").is_none() && error["fields"].get("backtrace").is_none());
    }
}

#[test]
fn a_command_line_that_cannot_be_read_is_told_in_json_too() {
    for format in [&["--log-format", "json"][..], &["--log-format=json"]] {
        let output = ledger(&[&["serve", "--data", "x", "--listen", "nowhere"], format].concat());
        assert_eq!(output.status.code(), Some(2));
        let [line] = &lines(&output)[..] else { panic!("{output:?}") };
        let message = line["fields"]["message"].as_str().unwrap();
        assert!(message.contains("expected a port or address:port"), "{message}");
    }
    let output = ledger(&["serve", "--log-format", "json", "--help"]);
    assert!(output.status.success() && output.stderr.is_empty());
}

/// Names the run of this test within itself: a process that panics as a server's thread would.
const PANICS: &str = "TALLYSTICK_TEST_PANICS";

#[test]
fn a_panic_is_one_line_of_json_without_a_backtrace_unless_it_is_asked_for() {
    if std::env::var_os(PANICS).is_some() {
        say::begin(true, LevelFilter::INFO);
        let thread = std::thread::Builder::new().name("sequencer".to_owned());
        let ended = thread.spawn(|| panic!("two\nlines")).unwrap().join();
        assert!(ended.is_err());
        return;
    }
    for asked in [false, true] {
        let name = "a_panic_is_one_line_of_json_without_a_backtrace_unless_it_is_asked_for";
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", name, "--nocapture"]).env(PANICS, "1");
        let output = command.env("RUST_BACKTRACE", if asked { "1" } else { "0" }).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let [line] = &lines(&output)[..] else { panic!("{output:?}") };
        assert_eq!((&line["level"], &line["target"]), (&Value::from("ERROR"), &Value::from("ledger")));
        let message = line["fields"]["message"].as_str().unwrap();
        assert!(message.starts_with("thread sequencer panicked at ledger/tests/messages.rs:"), "{message}");
        assert!(message.ends_with(": two\nlines"), "{message}");
        assert_eq!(line["fields"]["backtrace"].is_string(), asked, "{line}");
    }
}

#[test]
fn no_connections_at_all_are_refused() {
    for command in [&["serve"][..], &["witness", "--log", "x"]] {
        // Should it be taken after all, there is no such address to listen on.
        let more = ["--data", "/dev/null/x", "--listen", "192.0.2.1:1", "--connections-per-peer", "0"];
        let output = ledger(&[command, &more].concat());
        assert_eq!(output.status.code(), Some(2));
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("expected a number from 1 on"), "{said}");
    }
}

#[test]
fn a_logs_key_is_given_as_it_is_or_as_a_file() {
    let folder = folder();
    let server = served(folder.path());
    assert_eq!(submit(server.address(), &run_statement(0)).status, 201);
    let (url, key) = (format!("http://{}", server.address()), server.verifier_key().to_owned());
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    for given in [&key, &path("log.pub")] {
        let output = ledger(&["fsck", &url, "--log-key", given]);
        assert!(output.status.success(), "{output:?}");
    }
    let witness = path("witness");
    for (given, says) in [
        (path("nothing"), "error: --log-key: expected a verifier key or a file that holds one, found "),
        (path("log.key"), "error: --log-key: expected a verifier key, found a secret key"),
    ] {
        let output = ledger(&["fsck", &url, "--log-key", &given]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains(says) && !said.contains("PRIVATE"), "{said}");
        let output = ledger(&["witness", "--data", &witness, "--listen", "0", "--log", &given]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains(&says.replace("--log-key", "--log")) && !said.contains("PRIVATE"), "{said}");
    }
    server.stop().unwrap();
}

#[test]
fn exit_statuses_of_fsck_are_in_its_help() {
    let help = String::from_utf8(ledger(&["fsck", "--help"]).stdout).unwrap();
    assert!(help.contains("Exit status: 0 all is what was signed, 1 checked and not so, 2 "), "{help}");
}
