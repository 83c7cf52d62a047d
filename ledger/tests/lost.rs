//! A lost checkpoint and a lost slot of the lock are told as that, or made good where what is left bears them out.

mod support;

use std::path::Path;
use std::process::{Command, Output};

use ledger::error::LogError;
use ledger::http::server::{ServeError, start};
use support::{Folder, Process, folder, get, options, run_statement, served, submit};
use tlog::tree::TreeSize;

const SLOT_BYTES: usize = 4096;

fn refusal(folder: &Folder) -> LogError {
    match start(options(folder.path())) {
        Err(ServeError::Log(error)) => error,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("the folder was accepted"),
    }
}

fn ledger(command: &str, data: &Path) -> Output {
    let mut ledger = Command::new(env!("CARGO_BIN_EXE_ledger"));
    if command == "serve" {
        ledger.args(["serve", "--listen", "0"]);
    } else {
        ledger.arg(command);
    }
    ledger.arg("--data").arg(data).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8([output.stderr.as_slice(), &output.stdout].concat()).unwrap()
}

/// A log of a server that ended in order.
fn log_of(numbers: std::ops::Range<u64>) -> Folder {
    let folder = folder();
    grow(&folder, numbers);
    folder
}

fn grow(folder: &Folder, numbers: std::ops::Range<u64>) {
    let server = served(folder.path());
    let address = server.address();
    // Several at once share a commit.
    for number in numbers.clone().step_by(30) {
        std::thread::scope(|scope| {
            for number in number..numbers.end.min(number + 30) {
                scope.spawn(move || assert_eq!(submit(address, &run_statement(number)).status, 201));
            }
        });
    }
    server.stop().unwrap();
}

/// A log of a server that was killed with commits that only the journal has.
fn killed_log() -> Folder {
    let folder = log_of(0..300);
    let mut server = Process::start(folder.path());
    for number in 300..303 {
        assert_eq!(submit(server.address, &run_statement(number)).status, 201);
    }
    server.kill();
    folder
}

#[test]
fn a_lost_checkpoint_is_made_anew_from_what_bears_it_out() {
    for (folder, size) in [(log_of(0..300), 301), (killed_log(), 304)] {
        let checkpoint = folder.path().join("checkpoint");
        let before = std::fs::read(&checkpoint).unwrap();
        std::fs::remove_file(&checkpoint).unwrap();
        let server = served(folder.path());
        let latest = get(server.address(), "/checkpoint").text().to_owned();
        assert_eq!(latest.lines().nth(1), Some(size.to_string().as_str()));
        // A commit that was acknowledged is still there, and the log goes on.
        assert_eq!(submit(server.address(), &run_statement(size - 2)).status, 200);
        server.stop().unwrap();
        let after = std::fs::read(&checkpoint).unwrap();
        assert_eq!(after, latest.into_bytes());
        assert_eq!(after == before, size == 301);
        grow(&folder, 400..401);
        assert!(ledger("fsck", folder.path()).status.success());
    }
}

#[test]
fn a_checkpoint_that_nothing_bears_out_is_said_to_be_missing() {
    for lost in ["tile", "tile/0", "tile/entries"] {
        let folder = log_of(0..3);
        std::fs::remove_file(folder.path().join("checkpoint")).unwrap();
        std::fs::remove_dir_all(folder.path().join(lost)).unwrap();
        let error = refusal(&folder);
        assert!(matches!(&error, LogError::CheckpointMissing { lock: TreeSize(4), .. }), "{lost}: {error}");
        assert!(!folder.path().join("checkpoint").exists());
    }
    let folder = log_of(0..3);
    std::fs::remove_file(folder.path().join("checkpoint")).unwrap();
    std::fs::remove_dir_all(folder.path().join("tile/0")).unwrap();
    let (output, place) = (ledger("serve", folder.path()), folder.path().display());
    assert_eq!(output.status.code(), Some(2));
    let expected = format!(
        "ledger: error: {place}/checkpoint is missing, and neither the tiles nor the journal lead to size 4 as \
         recorded in the lock\nledger: hint: `ledger fsck --data {place}` names the bytes that are wrong; "
    );
    assert!(said(&output).starts_with(&expected), "{}", said(&output));
    // That command then does, and so does the next one that the hint names.
    let output = ledger("fsck", folder.path());
    assert_eq!(output.status.code(), Some(1));
    for line in ["ledger: error: tile/0/000.p/4: missing", "ledger: error: checkpoint: missing"] {
        assert!(said(&output).contains(line), "{}", said(&output));
    }
    let mut reindex = Command::new(env!("CARGO_BIN_EXE_ledger"));
    let output = reindex.args(["reindex", "--tiles", "--data"]).arg(folder.path()).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    assert!(ledger("fsck", folder.path()).status.success());
}

#[test]
fn fsck_tells_a_lost_checkpoint_from_an_old_copy() {
    let folder = log_of(0..3);
    std::fs::remove_file(folder.path().join("checkpoint")).unwrap();
    let output = ledger("fsck", folder.path());
    assert_eq!(output.status.code(), Some(1));
    let expected = "ledger: error: checkpoint: missing: the file is not there; the tree looked at is the one that the \
                    lock records\nledger: hint: a start of `ledger serve` makes the checkpoint anew";
    assert!(said(&output).starts_with(expected), "{}", said(&output));
    assert!(said(&output).contains("\n1 finding\n"), "{}", said(&output));
    let folder = killed_log();
    std::fs::remove_file(folder.path().join("checkpoint")).unwrap();
    let output = ledger("fsck", folder.path());
    assert_eq!(output.status.code(), Some(2));
    let expected = "ledger: error: the checkpoint is missing and the lock records size 304: its server did not end in \
                    order\nledger: hint: the journal has the rest: run `ledger serve --data ";
    assert!(said(&output).starts_with(expected), "{}", said(&output));
}

#[test]
fn a_lost_slot_of_the_lock_is_said_to_be_lost() {
    let folder = log_of(0..1);
    grow(&folder, 1..2);
    let head = folder.lock().join("head");
    let whole = std::fs::read(&head).unwrap();
    let (left, right) = whole.split_at(SLOT_BYTES);
    let number = |slot: &[u8]| u64::from_be_bytes(*slot.first_chunk().unwrap());
    // The slot that counts is emptied, changed or cut off; the other one has the promise before it.
    let newest = if number(left) > number(right) { 0 } else { SLOT_BYTES };
    let mut damages = Vec::new();
    for byte in [0, 9, 20, 100] {
        let mut changed = whole.clone();
        changed[newest + byte] ^= 1;
        damages.push(changed);
    }
    let mut emptied = whole.clone();
    emptied[newest..newest + SLOT_BYTES].fill(0);
    damages.push(emptied);
    if newest == SLOT_BYTES {
        damages.push(left.to_vec());
    }
    for damaged in damages {
        std::fs::write(&head, damaged).unwrap();
        let output = ledger("serve", folder.path());
        assert_eq!(output.status.code(), Some(2));
        let expected = format!(
            "ledger: error: {}: one of its two slots is damaged; the other records size 2, and the folder has \
             published size 3\nledger: hint: restore the lock's folder as it was when the server last ran",
            head.display()
        );
        assert!(said(&output).starts_with(&expected), "{}", said(&output));
        let output = ledger("fsck", folder.path());
        assert_eq!(output.status.code(), Some(1));
        assert!(said(&output).starts_with(&expected), "{}", said(&output));
    }
    std::fs::write(&head, whole).unwrap();
    grow(&folder, 2..3);
}

#[test]
fn a_lost_slot_is_told_after_a_kill_too() {
    let folder = killed_log();
    let head = folder.lock().join("head");
    let mut bytes = std::fs::read(&head).unwrap();
    let number = |slot: usize| u64::from_be_bytes(*bytes[slot..].first_chunk().unwrap());
    let newest = if number(0) > number(SLOT_BYTES) { 0 } else { SLOT_BYTES };
    bytes[newest + 30] ^= 1;
    std::fs::write(&head, bytes).unwrap();
    let error = refusal(&folder);
    let told = matches!(&error, LogError::LockSlotDamaged { lock: TreeSize(303), data: TreeSize(304), .. });
    assert!(told, "{error}");
}
