//! A log written by our server, read whole by programs on packages that others keep: Go's `sumdb/tlog` and
//! `sumdb/note` (`tlog/tests/go/tlog.go`), and Python's tlog-scales (`independent/read_log.py`). Each reads it over
//! HTTP and from the folder, and finds what is changed in it.

mod support;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use support::{Process, run_statement, submit};

/// Programs that read a log given its verifier key, as far as this machine can run them; `tools/setup.sh test` sees to
/// both.
fn readers(folder: &Path) -> Vec<(&'static str, Vec<PathBuf>, PathBuf)> {
    let mut found = Vec::new();
    let built = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = folder.join("tlog-go");
    let mut go = Command::new("go");
    go.env("GO111MODULE", "off").env("GOPATH", "/usr/share/gocode").env("GOCACHE", built.join("go-cache"));
    go.arg("build").arg("-o").arg(&program).arg(here.join("../tlog/tests/go/tlog.go"));
    match go.output() {
        Ok(output) if output.status.success() => {
            found.push(("go", vec![program, "read".into()], PathBuf::new()));
        }
        other => missing("Go with golang.org/x/mod", &format!("{other:?}")),
    }
    let packages = built.with_file_name("python");
    match std::fs::read_to_string(packages.join("installed")) {
        Ok(installed) => {
            let interpreter = installed.lines().next().unwrap().into();
            let script = here.join("tests/independent/read_log.py");
            found.push(("python", vec![interpreter, "-B".into(), script], packages));
        }
        Err(error) => missing("tlog-scales for Python", &error.to_string()),
    }
    found
}

fn missing(what: &str, why: &str) {
    assert!(std::env::var("CI").as_deref() != Ok("true"), "{what} is missing: {why}");
    println!("skipped: no {what}: {why}");
}

fn read(reader: &(&str, Vec<PathBuf>, PathBuf), log: &str, key: &str) -> Output {
    let (_, command, packages) = reader;
    let mut process = Command::new(&command[0]);
    process.args(&command[1..]).arg(log).arg(key).env("PYTHONPATH", packages);
    process.output().unwrap()
}

/// Statements `numbers`, by eight submitters at once, so that commits have different sizes.
fn submit_all(server: &Process, numbers: std::ops::Range<u64>) {
    std::thread::scope(|threads| {
        for first in 0..8 {
            let numbers = numbers.clone();
            threads.spawn(move || {
                for number in numbers.skip(first).step_by(8) {
                    assert_eq!(submit(server.address, &run_statement(number)).status, 201);
                }
            });
        }
    });
}

#[test]
fn a_log_written_by_our_server_is_read_whole_by_go_and_by_python() {
    let folder = tempfile::tempdir().unwrap();
    let readers = readers(folder.path());
    let data = folder.path().join("log");
    let log = format!("{}/", data.display());
    let mut submitted = 0;
    // With the genesis entry: 1, 2, 70 (every index and older size is looked at), a full tile, more than one.
    for size in [1, 2, 70, 256, 300] {
        let server = Process::start(&data);
        submit_all(&server, submitted..size - 1);
        submitted = size - 1;
        let key = server.verifier_key.clone();
        for reader in &readers {
            let output = read(reader, &format!("http://{}", server.address), &key);
            assert_said(reader.0, &output, &format!("size {size} root "));
            if reader.0 == "go" && size > 2 {
                assert!(!String::from_utf8_lossy(&output.stdout).contains(" 0 older checkpoints"));
            }
        }
        assert_eq!(server.terminate(), Some(0));
        for reader in &readers {
            assert_said(reader.0, &read(reader, &log, &key), &format!("size {size} root "));
            for name in ["tile/0/000", "tile/entries/000", "checkpoint"] {
                let path = data.join(name);
                let Ok(mut bytes) = std::fs::read(&path) else { continue };
                let at = bytes.len() / 2;
                bytes[at] ^= 1;
                std::fs::write(&path, &bytes).unwrap();
                let output = read(reader, &log, &key);
                assert!(
                    !output.status.success(),
                    "{} did not see that {name} was changed: {output:?}",
                    reader.0
                );
                bytes[at] ^= 1;
                std::fs::write(&path, &bytes).unwrap();
            }
        }
    }
}

fn assert_said(name: &str, output: &Output, what: &str) {
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.starts_with(what), "{name}: {output:?}, expected {what:?}");
}
