//! Damage that a start does not refuse: whatever is derived or kept is looked at by fsck, a proof is checked before it
//! is sent, and a damaged index is not acted on.

mod support;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use ledger::disk::durable::Files;
use ledger::log::open_log;
use schemas::digest::EntryDigest;
use support::{
    Folder, Process, folder, get, opening_statement, prediction_statement, run, run_statement, served,
    submit, submit_for_receipt,
};

fn flip(path: &Path, at: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[at] ^= 4;
    std::fs::write(path, bytes).unwrap();
}

fn fsck(data: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ledger")).arg("fsck").arg(data).output().unwrap()
}

/// A small log with cosigned notes.
fn small_log() -> Folder {
    let folder = folder();
    fill(&folder);
    folder
}

fn fill(folder: &Folder) {
    let server = served(folder.path());
    let prediction = prediction_statement(run(0).id(), 0, 50, 2);
    let opening = opening_statement(run(0).id(), EntryDigest::of(&prediction), b"body", 2);
    for statement in [run_statement(0), prediction, opening, run_statement(1)] {
        assert_eq!(submit(server.address(), &statement).status, 201);
    }
    let notes = [2, 3].map(|size| get(server.address(), &format!("/checkpoint/{size}")).text().to_owned());
    server.stop().unwrap();
    let history = ledger::disk::history::History::open(folder.path(), Default::default()).unwrap();
    for (size, note) in (2..).zip(notes) {
        history.add_cosigned(tlog::tree::TreeSize(size), &note).unwrap();
    }
}

#[test]
fn a_proof_that_does_not_lead_to_the_signed_root_is_not_sent() {
    let folder = folder();
    let server = served(folder.path());
    for number in 0..270 {
        assert_eq!(submit(server.address(), &run_statement(number)).status, 201);
    }
    let size = 271;
    server.stop().unwrap();
    let tile = folder.path().join("tile/0/000");
    let server = served(folder.path());
    let address = server.address();
    let digest = EntryDigest::of(&run_statement(6));
    let paths = ["/proof/7.tlog-proof", "/proof/7.cose", &format!("/entries/{digest}")];
    let consistency = [format!("/consistency/7/{size}"), "/consistency/7/200".to_owned()];
    for path in paths.iter().copied().chain(consistency.iter().map(String::as_str)) {
        assert_eq!(get(address, path).status, 200, "{path}");
    }
    server.stop().unwrap();
    // Leaf 7 is number 6 of the runs; its proof has the hash of leaf 6.
    flip(&tile, 6 * 32);
    let server = served(folder.path());
    let address = server.address();
    for path in paths.iter().copied().chain(consistency.iter().map(String::as_str)) {
        let answer = get(address, path);
        assert_eq!(answer.status, 500, "{path}: {answer:?}");
        assert!(answer.text().contains("tile/0/000"), "{path}: {}", answer.text());
    }
    assert_eq!(submit(address, &run_statement(6)).status, 500);
    assert_eq!(submit_for_receipt(address, &run_statement(6)).status, 500);
    assert_eq!(get(address, "/proof/6.tlog-proof").status, 200);
    assert_eq!(get(address, &format!("/consistency/256/{size}")).status, 200);
    assert_eq!(submit(address, &run_statement(2000)).status, 201);
    server.stop().unwrap();
}

const KEPT: [&str; 5] = [
    "index.redb",
    "history/published",
    "history/cosigned",
    "history/published.sizes",
    "history/cosigned.sizes",
];

#[test]
fn fsck_names_each_file_that_is_kept_or_derived_when_it_is_damaged() {
    let folder = small_log();
    let output = fsck(folder.path());
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    for name in KEPT {
        let path = folder.path().join(name);
        let good = std::fs::read(&path).unwrap();
        let mut bad: Vec<(String, Option<Vec<u8>>)> =
            vec![("removed".to_owned(), None), ("emptied".to_owned(), Some(Vec::new()))];
        if name != "index.redb" {
            bad.push(("cut".to_owned(), Some(good[..good.len() - 1].to_vec())));
            bad.push(("longer".to_owned(), Some([&good[..], b"x"].concat())));
            for at in (0..good.len()).step_by(101) {
                let mut bytes = good.clone();
                bytes[at] ^= 4;
                bad.push((format!("byte {at}"), Some(bytes)));
            }
        }
        for (what, bytes) in bad {
            match bytes {
                None => std::fs::remove_file(&path).unwrap(),
                Some(bytes) => std::fs::write(&path, bytes).unwrap(),
            }
            let output = fsck(folder.path());
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(1), "{name} {what}: {output:?}");
            assert!(said.contains(&format!("ledger: error: {name}")), "{name} {what}: {said}");
        }
        std::fs::write(&path, good).unwrap();
    }
    assert!(fsck(folder.path()).status.success());
}

#[test]
fn an_index_of_other_entries_is_told_row_by_row() {
    let (folder, other) = (small_log(), folder());
    // The key is the same one, and so are the genesis entry and the run: one entry less, and another signer.
    std::fs::copy(folder.path().join("log.key"), other.path().join("log.key")).unwrap();
    let server = served(other.path());
    for statement in [run_statement(0), prediction_statement(run(0).id(), 0, 50, 3)] {
        assert_eq!(submit(server.address(), &statement).status, 201);
    }
    server.stop().unwrap();
    std::fs::copy(other.path().join("index.redb"), folder.path().join("index.redb")).unwrap();
    let output = fsck(folder.path());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let expected = "ledger: error: index.redb: wrong: table Facts, row 0000000000000002: ";
    assert!(said.starts_with(expected), "{said}");
    assert!(said.contains("ledger: hint: `ledger reindex`"), "{said}");
}

#[test]
fn a_damaged_index_is_made_anew_before_anything_is_admitted() {
    let folder = small_log();
    let path = folder.path().join("index.redb");
    let good = std::fs::read(&path).unwrap();
    let index = |data: &Path| open_log(data, None, None, Files::default()).unwrap().log.index.clone();
    // With the same key the log's own registers are the same.
    let right = self::folder();
    std::fs::copy(folder.path().join("log.key"), right.path().join("log.key")).unwrap();
    fill(&right);
    let used: Vec<usize> = (0..good.len()).filter(|at| good[*at] != 0).collect();
    // Copies of the rows that decide, wherever the file has them, and bytes from all over it.
    let run = run(0).id();
    let rows = good.windows(32).enumerate().filter(|(_, bytes)| *bytes == run.0).map(|(at, _)| at + 1);
    let places: Vec<usize> = rows.chain(used.iter().copied().step_by(used.len() / 120)).collect();
    let expected = index(right.path());
    for at in places {
        std::fs::write(&path, &good).unwrap();
        flip(&path, at);
        let found = index(folder.path());
        let difference = found.difference(&expected).unwrap();
        assert_eq!(difference, None, "byte {at}");
    }
}

/// What `ledger serve` warns of.
fn warnings(data: &Path) -> Vec<String> {
    let mut server = Process::start_with(data, Stdio::piped());
    let mut stderr = server.child.stderr.take().unwrap();
    assert_eq!(server.terminate(), Some(0));
    let mut said = String::new();
    std::io::Read::read_to_string(&mut stderr, &mut said).unwrap();
    said.lines().filter(|line| line.contains("WARN")).map(str::to_owned).collect()
}

#[test]
fn lost_notes_are_said_at_the_start_and_the_last_one_comes_back() {
    let folder = small_log();
    assert_eq!(warnings(folder.path()), Vec::<String>::new());
    let history: PathBuf = folder.path().join("history");
    let good = std::fs::read(history.join("published")).unwrap();
    let restore = || std::fs::write(history.join("published"), &good).unwrap();
    let sizes = std::fs::read(history.join("published.sizes")).unwrap();
    let warned = |expected: &str| {
        let said = warnings(folder.path());
        assert!(said.len() == 1 && said[0].contains(expected), "{said:?}, expected {expected:?}");
        let server = served(folder.path());
        let notes: Vec<u16> =
            (1..=6).map(|size| get(server.address(), &format!("/checkpoint/{size}")).status).collect();
        server.stop().unwrap();
        notes
    };
    std::fs::remove_file(history.join("published")).unwrap();
    assert_eq!(warned("5 notes of sizes 1 to 6 are lost"), [404, 404, 404, 404, 404, 200]);
    std::fs::remove_file(history.join("published")).unwrap();
    std::fs::remove_file(history.join("published.sizes")).unwrap();
    assert_eq!(warned("every note of a size below 6 is lost"), [404, 404, 404, 404, 404, 200]);
    // One damaged note costs no other, be it the first.
    restore();
    std::fs::write(history.join("published.sizes"), &sizes).unwrap();
    flip(&history.join("published"), 60);
    let server = served(folder.path());
    assert_eq!(get(server.address(), "/checkpoint/1").status, 500);
    assert_eq!(get(server.address(), "/checkpoint/2").status, 200);
    server.stop().unwrap();
    assert_eq!(std::fs::read(history.join("published")).unwrap().len(), good.len());
}
