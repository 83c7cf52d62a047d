//! What a server tells about itself: metrics, and messages on stderr.

mod support;

use std::io::Read as _;
use std::process::{Command, Stdio};

use support::{
    Process, folder, get, prediction_statement, python, request, run, run_statement, served, submit,
};

#[test]
fn metrics_count_what_was_done_and_refused_and_are_read_by_prometheus_parser() {
    let folder = folder();
    let server = served(folder.path());
    let address = server.address();
    assert_eq!(submit(address, &run_statement(0)).status, 201);
    assert_eq!(submit(address, &run_statement(1)).status, 201);
    assert_eq!(submit(address, &run_statement(1)).status, 200);
    assert_eq!(submit(address, &prediction_statement(run(9).id(), 0, 1, 2)).status, 409);
    assert_eq!(
        request(address, "POST", "/entries", "Accept: application/cose\r\n", b"x").unwrap().status,
        415
    );
    let checkpoint = get(address, "/checkpoint").body.len();
    for path in ["/checkpoint", "/nowhere", "/nowhere/else", "/tile/0/000"] {
        get(address, path);
    }
    let path = format!("/attachments/{}", "00".repeat(32));
    assert_eq!(request(address, "PUT", &path, "", b"x").unwrap().status, 422);
    let bytes: usize = (0..2).map(|number| run_statement(number).len()).sum();
    let answer = get(address, "/metrics");
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert_eq!(answer.header("content-type"), Some(kind));
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    let file = folder.path().join("metrics");
    std::fs::write(&file, &answer.body).unwrap();
    let (read, samples) = python("metrics.py", &file);
    assert!(read, "{samples}\n{}", answer.text());
    let expected = [
        r#"requests_total{route="/entries",status="201"} 2"#.to_owned(),
        r#"requests_total{route="/entries",status="200"} 1"#.to_owned(),
        r#"requests_total{route="/entries",status="409"} 1"#.to_owned(),
        r#"requests_total{route="/entries",status="415"} 1"#.to_owned(),
        r#"requests_total{route="none",status="404"} 2"#.to_owned(),
        r#"requests_total{route="/tile/{*path}",status="404"} 1"#.to_owned(),
        format!(r#"sent_total{{route="/checkpoint"}} {}"#, 2 * checkpoint),
        r#"refusals_total{reason="unknown run"} 1"#.to_owned(),
        r#"refusals_total{reason="unsupported media type"} 1"#.to_owned(),
        r#"refusals_total{reason="not found"} 3"#.to_owned(),
        r#"refusals_total{reason="digest mismatch"} 1"#.to_owned(),
        "entries_total{} 2".to_owned(),
        format!("entry_bytes_total{{}} {bytes}"),
        "commit_seconds_count{} 2".to_owned(),
        "size{} 3".to_owned(),
        "pool_entries{} 0".to_owned(),
        "pool_bytes{} 0".to_owned(),
        "attachment_bytes{} 0".to_owned(),
    ];
    for line in expected {
        assert!(samples.lines().any(|found| found == format!("tallystick_{line}")), "{line}\n{samples}");
    }
    assert!(!samples.contains("nowhere"), "a peer's words are no label: {samples}");
    server.stop().unwrap();
}

#[test]
fn messages_are_json_where_asked_for_and_hold_no_key_and_no_content() {
    let folder = folder();
    let mut command = Command::new(env!("CARGO_BIN_EXE_ledger"));
    command.args(["serve", "--listen", "0", "--log-format", "json", "--log-level", "debug", "--data"]);
    let mut server = Process::of(command.arg(folder.path()).stderr(Stdio::piped()));
    let statement = run_statement(7);
    assert_eq!(submit(server.address, &statement).status, 201);
    assert_eq!(submit(server.address, &statement[1..]).status, 400);
    let mut stderr = server.child.stderr.take().unwrap();
    assert_eq!(server.terminate(), Some(0));
    let mut said = String::new();
    stderr.read_to_string(&mut said).unwrap();
    let lines: Vec<serde_json::Value> =
        said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |message: &str| lines.iter().find(|line| line["fields"]["message"] == message);
    assert_eq!(of("serving").unwrap()["fields"]["size"], 1);
    let committed = of("committed").unwrap();
    assert_eq!((&committed["level"], &committed["fields"]["entries"]), (&"DEBUG".into(), &1.into()));
    assert_eq!(committed["fields"]["bytes"], statement.len());
    assert!(of("stopping on SIGTERM").is_some());
    let key = std::fs::read_to_string(folder.path().join("log.key")).unwrap();
    let secret = key.trim().splitn(5, '+').nth(4).unwrap();
    assert!(secret.len() > 40 && !said.contains(secret));
    // The name of the run stands in the statement.
    assert!(!said.contains("run 7") && !said.contains("PRIVATE"), "{said}");
}
