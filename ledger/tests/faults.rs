//! The fault table: every file operation of a commit fails once, before or after it has done its work.

mod support;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ledger::disk::durable::{Fault, Files};
use ledger::disk::store::Store;
use ledger::error::LogError;
use ledger::order::commit::{CommitError, Committer, SignedHead};
use tlog::note::{KeyName, SigningKey};
use tlog::tile::TileReader;
use tlog::tree::{TreeHead, root_hash};

fn key() -> Arc<SigningKey> {
    Arc::new(SigningKey::from_seed(KeyName::new(support::ORIGIN).unwrap(), &[7; 32]))
}

fn entries(from: u64, count: u64) -> Vec<Vec<u8>> {
    (from..from + count).map(|number| format!("entry {number}").into_bytes()).collect()
}

fn open(folder: &Path, files: Files) -> Result<Committer, LogError> {
    Committer::recover(Arc::new(Store::new(folder, files)), key(), |_, _| Ok(()))
}

/// Files whose operation number `at` fails; counts the operations.
fn failing_at(at: usize, fault: Fault, count: Arc<AtomicUsize>) -> Files {
    Files::with_faults(Box::new(move |_, _| {
        let number = count.fetch_add(1, Ordering::Relaxed);
        if number == at { fault } else { Fault::None }
    }))
}

/// One row: a log of `before` entries, a fault at operation `at` of the commit of `more`. Whether the fault struck.
fn row(before: u64, more: u64, at: usize, fault: Fault) -> bool {
    let what = format!("{before} entries and {more} more, operation {at} fails {fault:?}");
    let folder = tempfile::tempdir().unwrap();
    let mut committer = open(folder.path(), Files::default()).unwrap();
    let mut old = None;
    for start in (0..before).step_by(256) {
        old = Some(committer.commit(&entries(start, 256.min(before - start))).unwrap());
    }
    let old: Option<SignedHead> = old;
    drop(committer);

    let count = Arc::new(AtomicUsize::new(0));
    let mut committer = open(folder.path(), failing_at(at, fault, count.clone())).unwrap();
    assert_eq!(count.load(Ordering::Relaxed), 0, "{what}: a log in order needs no repair");
    let result = committer.commit(&entries(before, more));
    let struck = count.load(Ordering::Relaxed) > at;
    assert_eq!(result.is_err(), struck, "{what}");
    if let Err(CommitError::NotCommitted(_)) = &result {
        // The same server goes on, as if nothing had been submitted.
        assert_eq!(committer.size().0, before, "{what}");
        let signed = committer.commit(&entries(before, more)).unwrap();
        assert_eq!(signed.head.size.0, before + more, "{what}");
    }
    drop(committer);

    // The next start finds the old log or the new one, whole, and can go on from there.
    let mut committer =
        open(folder.path(), Files::default()).unwrap_or_else(|error| panic!("{what}: {error}"));
    let size = committer.size().0;
    match &result {
        Ok(_) | Err(CommitError::NotCommitted(_)) => assert_eq!(size, before + more, "{what}"),
        Err(CommitError::Unknown(_)) => assert!(size == before || size == before + more, "{what}: {size}"),
    }
    let signed = committer.commit(&entries(size, 5)).unwrap();
    drop(committer);
    let store = Store::new(folder.path(), Files::default());
    let head: TreeHead = ledger::disk::check::check_tiles(&store, signed.head.size, |_, _| Ok(())).unwrap();
    assert_eq!(head, signed.head, "{what}");
    if let Some(old) = old {
        // What was published before is a beginning of what is published now, and its note is still there.
        let reader = TileReader { size: head.size, source: &store };
        assert_eq!(root_hash(old.head.size, &reader).unwrap(), old.head.root, "{what}");
        assert_eq!(store.read_checkpoint(old.head.size).unwrap().unwrap(), old.note.as_bytes(), "{what}");
    }
    struck
}

fn table(before: u64, more: u64) {
    for fault in [Fault::Before, Fault::After] {
        let mut at = 0;
        while row(before, more, at, fault) {
            at += 1;
        }
        // Staging, lock, two tiles or more, two checkpoint files: fewer would mean that the table is not reached.
        assert!(at >= 6, "only {at} operations");
    }
}

#[test]
fn a_first_commit_survives_every_fault() {
    table(0, 1);
}

#[test]
fn a_commit_into_a_partial_tile_survives_every_fault() {
    table(4, 2);
}

#[test]
fn a_commit_across_a_full_tile_survives_every_fault() {
    table(254, 5);
}

#[test]
fn a_commit_that_exactly_fills_a_tile_survives_every_fault() {
    table(255, 1);
}

#[test]
fn a_commit_touches_the_disk_in_the_order_that_makes_it_safe() {
    let folder = tempfile::tempdir().unwrap();
    let paths = Arc::new(std::sync::Mutex::new(Vec::new()));
    let (seen, base) = (paths.clone(), folder.path().to_owned());
    let files = Files::with_faults(Box::new(move |_, path| {
        let name = path.strip_prefix(&base).unwrap().to_str().unwrap().to_owned();
        seen.lock().unwrap().push(name);
        Fault::None
    }));
    let mut committer = open(folder.path(), files).unwrap();
    committer.commit(&entries(0, 1)).unwrap();
    paths.lock().unwrap().clear();
    committer.commit(&entries(1, 1)).unwrap();
    let expected = [
        "stage",
        "lock/head",
        "tile/entries/000.p/2",
        "tile/0/000.p/2",
        "checkpoints/2",
        "checkpoint",
        "tile/entries/000.p/1",
        "tile/0/000.p/1",
    ];
    assert_eq!(*paths.lock().unwrap(), expected);
}
