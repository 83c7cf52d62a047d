//! Stopping, starting again, and folders that must be refused.

mod support;

use std::path::Path;
use std::process::{Command, Stdio};

use ledger::error::LogError;
use ledger::server::{ServeError, start};
use support::{ORIGIN, Process, get, options, run_statement, served, submit};

fn refusal(folder: &Path) -> LogError {
    match start(options(folder)) {
        Err(ServeError::Log(error)) => error,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("the folder was accepted"),
    }
}

fn log_of(folder: &Path, numbers: std::ops::Range<u64>) {
    let server = served(folder);
    for number in numbers {
        assert_eq!(submit(server.address(), &run_statement(number)).status, 201);
    }
    server.stop().unwrap();
}

fn copy_folder(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap();
    assert!(copied.success());
}

#[test]
fn a_restarted_server_continues_where_it_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let server = served(folder.path());
    let key = server.verifier_key().to_owned();
    for number in 0..3 {
        assert_eq!(submit(server.address(), &run_statement(number)).status, 201);
    }
    let checkpoint = get(server.address(), "/checkpoint").body;
    server.stop().unwrap();

    let server = served(folder.path());
    assert_eq!(server.verifier_key(), key);
    assert_eq!(get(server.address(), "/checkpoint").body, checkpoint);
    let repeat = submit(server.address(), &run_statement(1));
    assert_eq!(repeat.status, 200);
    assert!(repeat.text().contains("\nindex 2\n"), "{}", repeat.text());
    let next = submit(server.address(), &run_statement(3));
    assert_eq!(next.status, 201);
    assert!(next.text().contains("\nindex 4\n"), "{}", next.text());
    server.stop().unwrap();
}

#[test]
fn the_binary_prints_where_it_is_and_stops_on_sigterm() {
    let folder = tempfile::tempdir().unwrap();
    let server = Process::start(folder.path());
    assert!(server.address.ip().is_loopback());
    assert!(server.verifier_key.starts_with(ORIGIN));
    assert_eq!(submit(server.address, &run_statement(0)).status, 201);
    assert_eq!(server.terminate(), Some(0));
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &folder.path().join("log.key").metadata().unwrap().permissions(),
    );
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_folder_in_use_is_refused_with_status_2_and_nothing_on_stdout() {
    let folder = tempfile::tempdir().unwrap();
    let server = served(folder.path());
    let second = Command::new(env!("CARGO_BIN_EXE_ledger"))
        .args(["serve", "--listen", "0", "--data"])
        .arg(folder.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(second.status.code(), Some(2));
    assert_eq!(second.stdout, b"");
    let message = String::from_utf8(second.stderr).unwrap();
    assert!(
        message.contains("ledger: error: ") && message.contains("is in use by another ledger"),
        "{message}"
    );
    server.stop().unwrap();
}

#[test]
fn another_origin_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    log_of(folder.path(), 0..1);
    let other =
        ledger::server::Options { origin: Some("example.com/other".to_owned()), ..options(folder.path()) };
    assert!(matches!(start(other), Err(ServeError::Log(LogError::OriginMismatch { .. }))));
}

#[test]
fn a_missing_stale_or_foreign_index_is_made_anew() {
    let folder = tempfile::tempdir().unwrap();
    log_of(folder.path(), 0..4);
    let stale = std::fs::read(folder.path().join("index.redb")).unwrap();
    log_of(folder.path(), 4..8);
    let foreign = |numbers| {
        let other = tempfile::tempdir().unwrap();
        log_of(other.path(), numbers);
        Some(std::fs::read(other.path().join("index.redb")).unwrap())
    };
    // A foreign index may be longer or shorter than the log.
    let foreign = [foreign(100..120), foreign(100..103)];
    for index in [None, Some(stale), Some(b"no index at all".to_vec())].into_iter().chain(foreign) {
        let path = folder.path().join("index.redb");
        match &index {
            None => std::fs::remove_file(&path).unwrap(),
            Some(bytes) => std::fs::write(&path, bytes).unwrap(),
        }
        let server = served(folder.path());
        for number in 0..8 {
            let repeat = submit(server.address(), &run_statement(number));
            assert_eq!(repeat.status, 200, "index of {:?} bytes", index.as_ref().map(Vec::len));
            assert!(repeat.text().contains(&format!("\nindex {}\n", number + 1)));
        }
        server.stop().unwrap();
    }
}

#[test]
fn a_changed_tile_or_entry_is_refused() {
    for name in ["tile/0/000.p/4", "tile/entries/000.p/4"] {
        let folder = tempfile::tempdir().unwrap();
        log_of(folder.path(), 0..3);
        let path = folder.path().join(name);
        let mut bytes = std::fs::read(&path).unwrap();
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        let error = refusal(folder.path());
        assert!(matches!(error, LogError::TileMismatch { .. }), "{name}: {error}");
        let fsck = Command::new(env!("CARGO_BIN_EXE_ledger"))
            .args(["fsck", "--data"])
            .arg(folder.path())
            .output()
            .unwrap();
        assert_eq!(fsck.status.code(), Some(1), "{name}");
    }
}

#[test]
fn an_old_copy_of_the_folder_beside_the_current_lock_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    log_of(&log, 0..2);
    copy_folder(&log, &folder.path().join("old"));
    log_of(&log, 2..4);
    let old = folder.path().join("old");
    std::fs::copy(log.join("lock/head"), old.join("lock/head")).unwrap();
    let error = refusal(&old);
    assert!(matches!(error, LogError::DataOlderThanLock { .. }), "{error}");
    assert_eq!(
        error.to_string(),
        "the folder holds a log of size 3, expected size 5 as recorded in the lock"
    );
}

#[test]
fn an_old_lock_beside_the_current_folder_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    log_of(folder.path(), 0..2);
    let old = std::fs::read(folder.path().join("lock/head")).unwrap();
    log_of(folder.path(), 2..4);
    std::fs::write(folder.path().join("lock/head"), old).unwrap();
    assert!(matches!(refusal(folder.path()), LogError::LockOlderThanData { .. }));
    std::fs::remove_file(folder.path().join("lock/head")).unwrap();
    assert!(matches!(refusal(folder.path()), LogError::LockMissing { .. }));
}

#[test]
fn a_checkpoint_signed_by_another_key_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    log_of(folder.path(), 0..2);
    let other = tempfile::tempdir().unwrap();
    log_of(other.path(), 0..2);
    std::fs::copy(other.path().join("lock/head"), folder.path().join("lock/head")).unwrap();
    assert!(matches!(refusal(folder.path()), LogError::Checkpoint { .. }));
}

#[test]
fn tiles_that_agree_with_one_another_but_not_with_what_was_signed_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (log, other) = (folder.path().join("log"), folder.path().join("other"));
    log_of(&log, 0..3);
    // Another log of the same key and length, whole in itself.
    std::fs::create_dir(&other).unwrap();
    std::fs::copy(log.join("log.key"), other.join("log.key")).unwrap();
    log_of(&other, 10..13);
    std::fs::remove_dir_all(log.join("tile")).unwrap();
    copy_folder(&other.join("tile"), &log.join("tile"));
    let error = refusal(&log);
    assert!(matches!(error, LogError::RootMismatch { .. }), "{error}");
}
