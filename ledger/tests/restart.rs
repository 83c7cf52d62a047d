//! Stopping, starting again, and folders that must be refused.

mod support;

use std::path::Path;
use std::process::{Command, Stdio};

use ledger::disk::durable::Files;
use ledger::error::LogError;
use ledger::hint::{Place, hint};
use ledger::http::server::{ServeError, start};
use support::{ORIGIN, Process, copy_folder, folder, get, options, run_statement, served, submit};

fn refusal(folder: &Path) -> LogError {
    let Err(error) = start(options(folder)) else { panic!("the folder was accepted") };
    let error = anyhow::Error::from(error);
    assert!(hint(&error, &Place::default()).is_some(), "every refusal names a next step: {error}");
    match error.downcast() {
        Ok(ServeError::Log(error)) => error,
        other => panic!("{other:?}"),
    }
}

fn log_of(folder: &Path, numbers: std::ops::Range<u64>) {
    let server = served(folder);
    for number in numbers {
        assert_eq!(submit(server.address(), &run_statement(number)).status, 201);
    }
    server.stop().unwrap();
}

#[test]
fn a_restarted_server_continues_where_it_stopped() {
    let folder = folder();
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
    let folder = folder();
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
    let folder = folder();
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

/// `ledger serve` that is refused: what it says, word for word.
fn refused(data: &Path, listen: &str, more: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ledger"));
    let output = command.args(["serve", "--listen", listen, "--data"]).arg(data).args(more).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn an_address_in_use_is_said_once_and_nothing_is_made() {
    let folder = folder();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let data = folder.path().join("log");
    let message = refused(&data, &taken.local_addr().unwrap().to_string(), &[]);
    assert!(message.starts_with("ledger: error: cannot listen on 127.0.0.1:"), "{message}");
    assert_eq!(message.matches("Address already in use").count(), 1, "{message}");
    assert!(message.contains("\nledger: hint: "), "{message}");
    assert!(!data.exists());
}

#[test]
fn every_cause_is_said_once() {
    let folder = folder();
    let said_once = |message: &str, cause: &str| {
        assert_eq!(message.matches(cause).count(), 1, "{cause:?} in {message}");
    };
    let file = folder.path().join("file");
    std::fs::write(&file, b"").unwrap();
    said_once(&refused(&file, "0", &[]), "Not a directory");
    let (log, place) = (folder.path().join("log"), folder.path().join("place"));
    std::fs::create_dir(&place).unwrap();
    let message = refused(&log, "0", &["--address-file", place.to_str().unwrap()]);
    said_once(&message, "ledger: error: cannot write ");
    said_once(&message, "Is a directory");
    std::fs::write(log.join("log.key"), "no key\n").unwrap();
    let message = refused(&log, "0", &[]);
    let (_, cause) = message.trim_end().rsplit_once("log.key: ").unwrap();
    said_once(&message, cause);
}

#[test]
fn a_folder_of_something_else_is_refused_and_left_as_it_is() {
    let folder = folder();
    std::fs::write(folder.path().join("run.toml"), b"mine").unwrap();
    assert!(matches!(refusal(folder.path()), LogError::NotALog { found, .. } if found == "run.toml"));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    let message = refused(folder.path(), "0", &[]);
    assert!(
        message.contains("holds no log: expected log.key or an empty folder, found \"run.toml\""),
        "{message}"
    );
    assert!(message.contains("\nledger: hint: give --data a new or empty folder"), "{message}");
}

#[test]
fn a_first_start_that_was_interrupted_before_there_was_a_key_can_be_repeated() {
    let folder = folder();
    std::fs::create_dir(folder.lock()).unwrap();
    std::fs::write(folder.lock().join("in-use"), b"").unwrap();
    std::fs::write(folder.path().join("in-use"), b"").unwrap();
    std::fs::write(folder.path().join(".log.key.new"), b"half").unwrap();
    log_of(folder.path(), 0..1);
    assert!(folder.path().join("log.key").is_file());
}

#[test]
fn another_origin_is_refused() {
    let folder = folder();
    log_of(folder.path(), 0..1);
    let other = ledger::http::server::Options {
        origin: Some("example.com/other".to_owned()),
        ..options(folder.path())
    };
    assert!(matches!(start(other), Err(ServeError::Log(LogError::OriginMismatch { .. }))));
}

#[test]
fn a_missing_stale_or_foreign_index_is_made_anew() {
    let folder = folder();
    log_of(folder.path(), 0..4);
    let stale = std::fs::read(folder.path().join("index.redb")).unwrap();
    log_of(folder.path(), 4..8);
    let foreign = |numbers| {
        let other = support::folder();
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
fn an_index_damaged_anywhere_is_made_anew_or_does_not_matter() {
    let folder = folder();
    log_of(folder.path(), 0..4);
    let path = folder.path().join("index.redb");
    let good = std::fs::read(&path).unwrap();
    let mut state: u64 = 0x7461_6c6c;
    let mut next = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    // Pages in use differ from zero; damage elsewhere would not be seen.
    let used: Vec<usize> =
        (0..good.len()).step_by(512).filter(|at| good[*at..*at + 512] != [0; 512]).collect();
    for round in 0..64 {
        let mut bytes = good.clone();
        let at = used[next(used.len())];
        match round % 4 {
            0 => bytes[at..at + 512].fill(0xff),
            1 => bytes[at..at + 512].fill(0),
            2 => bytes[at + next(512)] ^= 1 << next(8),
            _ => bytes.truncate(at),
        }
        std::fs::write(&path, bytes).unwrap();
        drop(
            ledger::log::open_log(folder.path(), None, None, Files::default())
                .unwrap_or_else(|error| panic!("round {round}, byte {at}: {error}")),
        );
    }
}

/// Copies of a log and its lock, without some of their files.
fn copy_without(from: &support::Folder, removed: &[&str]) -> support::Folder {
    let copy = folder();
    std::fs::remove_dir(copy.path()).unwrap();
    copy_folder(from.path(), copy.path());
    copy_folder(&from.lock(), &copy.lock());
    for name in removed {
        let path = if *name == "lock" { copy.lock() } else { copy.path().join(name) };
        if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) }.unwrap();
    }
    copy
}

#[test]
fn a_log_without_its_lock_record_or_its_key_is_not_taken_for_a_new_one() {
    let folder = folder();
    log_of(folder.path(), 0..2);
    let with = |removed: &[&str]| copy_without(&folder, removed);
    for rest in [&["checkpoint", "tile"][..], &["history", "tile"], &["checkpoint", "history"], &[]] {
        let copy = with(&[&["lock"], rest].concat());
        let error = refusal(copy.path());
        assert!(matches!(error, LogError::LockMissing { .. }), "without {rest:?}: {error}");
    }
    let derived = ["log.key", "index.redb", "history", "journal"];
    for rest in [
        &["lock", "tile", "checkpoint"][..],
        &["log.pub", "tile", "checkpoint"],
        &["log.pub", "lock", "checkpoint"],
        &["log.pub", "lock", "tile"],
    ] {
        let copy = with(&[&derived, rest].concat());
        let error = refusal(copy.path());
        assert!(matches!(error, LogError::KeyMissing { .. }), "without {rest:?}: {error}");
        assert!(!copy.path().join("log.key").exists());
    }
    assert!(refused(with(&["lock"]).path(), "0", &[]).contains("\nledger: hint: restore the lock's folder"));
    assert!(refused(with(&["log.key"]).path(), "0", &[]).contains("\nledger: hint: restore log.key"));
    // A lock that is left over shows that there was a log here.
    let copy = with(&[]);
    std::fs::remove_dir_all(copy.path()).unwrap();
    assert!(matches!(refusal(copy.path()), LogError::KeyMissing { .. }));
}

#[test]
fn a_key_that_others_can_read_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let folder = folder();
    log_of(folder.path(), 0..1);
    for mode in [0o640, 0o604, 0o660] {
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(folder.path().join("log.key"), permissions).unwrap();
        assert!(matches!(refusal(folder.path()), LogError::KeyExposed { mode: found, .. } if found == mode));
    }
    let message = refused(folder.path(), "0", &[]);
    assert!(message.contains("its mode is 660, expected 600") && message.contains("chmod 600"), "{message}");
}

#[test]
fn fsck_makes_nothing_in_a_folder_without_a_log() {
    let folder = folder();
    let log = folder.path().join("log");
    log_of(&log, 0..1);
    let data = folder.path().join("data");
    std::fs::create_dir(&data).unwrap();
    let fsck = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ledger"));
        let output = command.args(["fsck", "--data"]).arg(&data).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        std::fs::read_dir(&data).unwrap().count()
    };
    assert_eq!(fsck(), 0);
    std::fs::copy(log.join("log.key"), data.join("log.key")).unwrap();
    assert_eq!(fsck(), 1);
}

#[test]
fn a_sigterm_as_soon_as_the_address_is_known_stops_the_server_in_order() {
    for _ in 0..5 {
        let folder = folder();
        let mut child = Command::new(env!("CARGO_BIN_EXE_ledger"))
            .args(["serve", "--listen", "0", "--data"])
            .arg(folder.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        std::io::BufRead::read_line(&mut out, &mut line).unwrap();
        let sent = Command::new("kill").arg("-TERM").arg(child.id().to_string()).status().unwrap();
        assert!(line.starts_with("address: ") && sent.success());
        assert_eq!(child.wait().unwrap().code(), Some(0));
    }
}

#[test]
fn a_changed_tile_or_entry_is_refused() {
    for name in ["tile/0/000.p/4", "tile/entries/000.p/4"] {
        let folder = folder();
        log_of(folder.path(), 0..3);
        let path = folder.path().join(name);
        let mut bytes = std::fs::read(&path).unwrap();
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        let error = refusal(folder.path());
        let told = matches!(error, LogError::TileMismatch { .. } | LogError::RootMismatch { .. });
        assert!(told, "{name}: {error}");
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
    let folder = folder();
    log_of(folder.path(), 0..2);
    let old = folder.path().with_file_name("old");
    copy_folder(folder.path(), &old);
    log_of(folder.path(), 2..4);
    let lock = folder.lock();
    let message = refused(&old, "0", &["--lock", lock.to_str().unwrap()]);
    assert!(message.contains("holds a log of size 3, expected size 5 as recorded in the lock"), "{message}");
    assert!(message.contains("\nledger: hint: this is an old copy: restore the newer folder"), "{message}");
    // Put back in its place, which is how it is usually done.
    std::fs::remove_dir_all(folder.path()).unwrap();
    copy_folder(&old, folder.path());
    assert!(matches!(refusal(folder.path()), LogError::DataOlderThanLock { .. }));
}

#[test]
fn an_old_copy_that_brings_its_old_lock_along_goes_on_from_there() {
    // Nobody who has only these two folders can know better: that is for witnesses, monitors and clients to see.
    let folder = folder();
    log_of(folder.path(), 0..2);
    let copy = copy_without(&folder, &[]);
    log_of(folder.path(), 2..4);
    log_of(copy.path(), 10..11);
}

#[test]
fn an_old_lock_beside_the_current_folder_is_refused() {
    let folder = folder();
    log_of(folder.path(), 0..2);
    let old = std::fs::read(folder.lock().join("head")).unwrap();
    log_of(folder.path(), 2..4);
    std::fs::write(folder.lock().join("head"), old).unwrap();
    assert!(matches!(refusal(folder.path()), LogError::LockOlderThanData { .. }));
    std::fs::remove_file(folder.lock().join("head")).unwrap();
    assert!(matches!(refusal(folder.path()), LogError::LockMissing { .. }));
}

#[test]
fn an_old_lock_beside_a_folder_that_was_not_synced_since_is_refused() {
    let folder = folder();
    log_of(folder.path(), 0..2);
    let old = std::fs::read(folder.lock().join("head")).unwrap();
    let mut server = Process::start(folder.path());
    for number in 2..4 {
        assert_eq!(submit(server.address, &run_statement(number)).status, 201);
    }
    server.kill();
    std::fs::write(folder.lock().join("head"), old).unwrap();
    assert!(matches!(refusal(folder.path()), LogError::LockOlderThanData { .. }));
    // The history tells it too; without it the journal has to.
    std::fs::remove_dir_all(folder.path().join("history")).unwrap();
    assert!(matches!(refusal(folder.path()), LogError::LockOlderThanData { .. }));
}

#[test]
fn the_lock_of_another_log_or_key_is_refused() {
    let (folder, other) = (folder(), support::folder());
    log_of(folder.path(), 0..2);
    log_of(other.path(), 0..2);
    std::fs::copy(other.lock().join("head"), folder.lock().join("head")).unwrap();
    let error = refusal(folder.path());
    assert!(
        matches!(&error, LogError::LockOfAnother { found, .. } if found.ends_with("another key")),
        "{error}"
    );
    let another = ledger::http::server::Options {
        origin: Some("example.com/another".to_owned()),
        lock: Some(other.lock()),
        ..options(&folder.path().with_file_name("another"))
    };
    assert!(matches!(start(another), Err(ServeError::Log(LogError::KeyMissing { .. }))));
}

#[test]
fn a_lock_where_it_must_not_be_or_cannot_be_is_refused() {
    let folder = folder();
    let inside = folder.path().join("lock");
    let message = refused(folder.path(), "0", &["--lock", inside.to_str().unwrap()]);
    assert!(message.contains("is inside the log's folder"), "{message}");
    std::fs::write(folder.path().with_file_name("file"), b"").unwrap();
    let message =
        refused(folder.path(), "0", &["--lock", folder.path().with_file_name("file").to_str().unwrap()]);
    assert!(message.contains("Not a directory") || message.contains("exists"), "{message}");

    // As the first version had it: it says where to move it, and goes on from there.
    let folder = support::folder();
    log_of(folder.path(), 0..2);
    std::fs::rename(folder.lock(), folder.path().join("lock")).unwrap();
    let message = refused(folder.path(), "0", &[]);
    assert!(message.contains("log/lock, expected it beside the folder, in "), "{message}");
    assert!(message.contains("\nledger: hint: move it: mv DIR/lock DIR.lock"), "{message}");
    std::fs::rename(folder.path().join("lock"), folder.lock()).unwrap();
    log_of(folder.path(), 2..3);
}

#[test]
fn two_servers_with_different_locks_cannot_have_one_folder() {
    let folder = folder();
    let server = served(folder.path());
    let another = folder.path().with_file_name("another.lock");
    // Its record is good, so that only the folder itself can tell.
    copy_folder(&folder.lock(), &another);
    let message = refused(folder.path(), "0", &["--lock", another.to_str().unwrap()]);
    assert!(message.contains("/log is in use by another ledger"), "{message}");
    server.stop().unwrap();
    std::fs::remove_dir_all(&another).unwrap();
    let message = refused(folder.path(), "0", &["--lock", another.to_str().unwrap()]);
    assert!(message.contains("another.lock/head is missing although the folder holds a log"), "{message}");
}

#[test]
fn tiles_that_agree_with_one_another_but_not_with_what_was_signed_are_refused() {
    let (log, other) = (folder(), folder());
    log_of(log.path(), 0..3);
    // Another log of the same key and length, whole in itself.
    std::fs::copy(log.path().join("log.key"), other.path().join("log.key")).unwrap();
    log_of(other.path(), 10..13);
    std::fs::remove_dir_all(log.path().join("tile")).unwrap();
    copy_folder(&other.path().join("tile"), &log.path().join("tile"));
    let error = refusal(log.path());
    assert!(matches!(error, LogError::RootMismatch { .. }), "{error}");
}
