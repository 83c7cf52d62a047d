//! System calls that fail under the real server: `strace` makes one call of the sequencer's thread fail, at each place in
//! turn, while entries are submitted and the server is stopped. Whatever was acknowledged is there afterwards.

mod support;

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use support::{Folder, ORIGIN, Process, copy_folder, folder, get, request, run_statement, served, submit};
use tlog::checkpoint::Checkpoint;
use tlog::hash::{Hash, leaf_hash};
use tlog::note::VerifierKey;
use tlog::proof::{ConsistencyProof, check_consistency};
use tlog::tlog_proof::TlogProof;
use tlog::tree::TreeHead;

/// Entries there are before, the genesis entry not counted: a tile is filled by those that are submitted.
const BEFORE: u64 = 253;
const SUBMITTED: u64 = 4;
/// Data syncs of the log itself: two for each commit, and two of the history. After them comes the index, which may fail.
const SYNCS: usize = 2 * SUBMITTED as usize + 2;

/// What was acknowledged.
struct Acknowledged {
    number: u64,
    index: u64,
    head: TreeHead,
}

fn template() -> Folder {
    let folder = folder();
    let server = served(folder.path());
    std::thread::scope(|threads| {
        for thread in 0..8 {
            let address = server.address();
            threads.spawn(move || {
                for number in (thread..BEFORE).step_by(8) {
                    assert_eq!(submit(address, &run_statement(number)).status, 201);
                }
            });
        }
    });
    server.stop().unwrap();
    folder
}

/// A tracer of the sequencer's thread, which makes call number `at` fail. Of writes only those to files count: the same call
/// wakes other threads.
fn trace(server: &Process, data: &Path, call: &str, error: &str, at: usize, log: &Path) -> Child {
    let inject = format!("inject={call}:error={error}:when={at}");
    let mut command = Command::new("strace");
    if call == "write" {
        for name in ["tile/0/.000.new", "tile/entries/.000.new", "tile/0/001.p/.2.new", ".checkpoint.new"] {
            command.arg("-P").arg(data.join(name));
        }
    }
    let tracer = command
        .args(["-e", &format!("trace={call}"), "-e", &inject, "-o"])
        .arg(log)
        .arg("-p")
        .arg(sequencer_of(server))
        .stderr(Stdio::piped())
        .spawn();
    let mut tracer =
        tracer.unwrap_or_else(|error| panic!("strace is missing: run tools/setup.sh test: {error}"));
    let mut line = String::new();
    BufReader::new(tracer.stderr.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("attached"), "strace: {line}");
    tracer
}

/// The sequencer's thread, which gives itself its name when it begins.
fn sequencer_of(server: &Process) -> String {
    let named = |task: &std::fs::DirEntry| {
        std::fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name.trim_end() == "sequencer")
    };
    loop {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", server.child.id())).unwrap();
        if let Some(task) = tasks.filter_map(Result::ok).find(named) {
            return task.file_name().into_string().unwrap();
        }
        std::thread::yield_now();
    }
}

/// One place: whether the fault struck.
fn case(template: &Folder, call: &str, error: &str, at: usize) -> bool {
    let what = format!("{call} number {at} fails with {error}");
    let copy = folder();
    std::fs::remove_dir(copy.path()).unwrap();
    copy_folder(template.path(), copy.path());
    copy_folder(&template.lock(), &copy.lock());
    let (messages, traced) = (copy.path().with_file_name("messages"), copy.path().with_file_name("traced"));
    let mut server = Process::start_with(copy.path(), File::create(&messages).unwrap().into());
    let log = VerifierKey::parse(&server.verifier_key).unwrap();
    let mut tracer = trace(&server, copy.path(), call, error, at, &traced);

    let mut acknowledged = Vec::new();
    for number in BEFORE..BEFORE + SUBMITTED {
        let statement = run_statement(number);
        let headers = "Content-Type: application/cose\r\n";
        match request(server.address, "POST", "/entries", headers, &statement) {
            Ok(answer) if answer.status == 201 => {
                let proof = TlogProof::parse(&answer.body).unwrap();
                let head = proof.check(leaf_hash(&statement), ORIGIN, &log).unwrap().head;
                acknowledged.push(Acknowledged { number, index: proof.index.0, head });
            }
            Ok(answer) => assert_eq!(answer.status, 503, "{what}: {}", answer.text()),
            // It has stopped.
            Err(_) => break,
        }
    }
    let _ =
        Command::new("kill").arg("-TERM").arg(server.child.id().to_string()).stderr(Stdio::null()).status();
    let status = server.child.wait().unwrap().code();
    tracer.wait().unwrap();
    let struck = std::fs::read_to_string(&traced).unwrap().contains("INJECTED");
    let messages = std::fs::read_to_string(&messages).unwrap();
    assert!(!messages.contains("panicked"), "{what}: {messages}");
    match status {
        // What could not be synced may be forgotten, and a second try would not tell.
        Some(0) if struck && call.ends_with("sync") && at <= SYNCS => panic!("{what}: the server went on"),
        Some(0) => {}
        Some(2) => assert!(struck && messages.contains("ledger: error: "), "{what}: {messages}"),
        other => panic!("{what}: exit status {other:?}: {messages}"),
    }
    bears_out(&copy, &log, &acknowledged, &what);
    struck
}

/// Without faults the log has every acknowledged entry at its place, and contains every tree that was seen.
fn bears_out(folder: &Folder, log: &VerifierKey, acknowledged: &[Acknowledged], what: &str) {
    let server = served(folder.path());
    let note = get(server.address(), "/checkpoint").body;
    let last = Checkpoint::open(&note, ORIGIN, log).unwrap().head;
    for Acknowledged { number, index, head } in acknowledged {
        let statement = run_statement(*number);
        let again = submit(server.address(), &statement);
        assert_eq!(again.status, 200, "{what}: entry {number} is lost");
        let proof = TlogProof::parse(&again.body).unwrap();
        assert_eq!(proof.index.0, *index, "{what}: entry {number}");
        assert_eq!(proof.check(leaf_hash(&statement), ORIGIN, log).unwrap().head, last, "{what}");
        let path = format!("/consistency/{}/{}", head.size, last.size);
        let lines = get(server.address(), &path);
        let hashes = lines.text().lines().map(|line| Hash::from_base64(line).unwrap()).collect();
        assert_eq!(check_consistency(&ConsistencyProof(hashes), *head, last), Ok(()), "{what}: {path}");
    }
    assert_eq!(submit(server.address(), &run_statement(1000)).status, 201, "{what}");
    server.stop().unwrap();
}

/// Every place of a call, or where there are many, some of them, with one error after the other.
fn every(call: &str, errors: &[&str], expected: usize) {
    let template = template();
    let mut at = 1;
    for error in errors.iter().cycle() {
        if !case(&template, call, error, at) {
            break;
        }
        at += 1 + at / 4;
    }
    assert!(at > expected, "only {at} calls of {call}");
}

#[test]
fn a_write_that_fails_loses_nothing_that_was_acknowledged() {
    every("pwrite64", &["EIO", "ENOSPC"], 12);
}

#[test]
fn a_data_sync_that_fails_loses_nothing_that_was_acknowledged() {
    every("fdatasync", &["EIO"], 8);
}

#[test]
fn a_sync_that_fails_loses_nothing_that_was_acknowledged() {
    every("fsync", &["EIO"], 5);
}

#[test]
fn a_file_that_cannot_be_renamed_opened_or_written_loses_nothing_that_was_acknowledged() {
    every("rename", &["EIO"], 3);
    every("write", &["ENOSPC"], 3);
    every("openat", &["EMFILE"], 12);
}
