//! The fault table: every file operation of a commit and of a sync fails once, before or after it has done its work, or
//! for want of room; and what was written and not synced is lost.

mod support;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ledger::disk::durable::{Fault, Files, Operation};
use ledger::disk::journal::Record;
use ledger::disk::store::Store;
use ledger::error::LogError;
use ledger::fsck::command::check_folder;
use ledger::order::commit::{CommitError, Committer, SignedHead};
use tlog::note::{KeyName, SigningKey};
use tlog::tile::TileReader;
use tlog::tree::{TreeHead, root_hash};

const COMMIT_MAX: u64 = 256;
/// Number of the first operation of those that are never reached by counting.
const UNCOUNTED: usize = 1_000_000;

fn key() -> Arc<SigningKey> {
    Arc::new(SigningKey::from_seed(KeyName::new(support::ORIGIN).unwrap(), &[7; 32]))
}

fn entries(from: u64, count: u64) -> Vec<Vec<u8>> {
    (from..from + count).map(|number| format!("entry {number}").into_bytes()).collect()
}

fn open(folder: &Path, files: Files) -> Result<Committer, LogError> {
    Committer::open(Arc::new(Store::new(&folder.join("log"), files)), key(), &folder.join("log.lock"))
}

/// A log of so many entries, whole on disk.
fn log_of(folder: &Path, size: u64) -> Option<Arc<SignedHead>> {
    let mut committer = open(folder, Files::default()).unwrap();
    for start in (0..size).step_by(COMMIT_MAX as usize) {
        committer.commit(entries(start, COMMIT_MAX.min(size - start))).unwrap();
    }
    committer.sync().unwrap();
    committer.signed().cloned()
}

/// The whole log is in order, is that of so many entries, and contains what was published before.
fn whole_log(folder: &Path, size: u64, before: &[Arc<SignedHead>], what: &str) -> TreeHead {
    let store = Store::new(&folder.join("log"), Files::default());
    let lock = folder.join("log.lock");
    let checked = check_folder(store.base(), Some(&lock), Some(key().verifier().clone()));
    let checked = checked.unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(checked.findings.is_empty(), "{what}: {:?}", checked.findings);
    let head = checked.head;
    assert_eq!(head.size.0, size, "{what}");
    let committer = open(folder, Files::default()).unwrap();
    let reader = TileReader { size: head.size, source: &store };
    for old in before {
        assert_eq!(root_hash(old.head.size, &reader).unwrap(), old.head.root, "{what}");
        let note = committer.history().of_size(old.head.size).unwrap();
        assert_eq!(note.as_ref(), Some(&old.note), "{what}: note of {}", old.head.size);
    }
    head
}

/// Files whose operation number `at` fails, counted from when `count` is set to 0; after a crash all that follow do.
/// Where room has run out only what needs room counts.
fn failing_at(at: usize, fault: Fault, crash: bool, count: Arc<AtomicUsize>) -> Files {
    Files::with_faults(Box::new(move |operation, _| {
        let needs_room = matches!(operation, Operation::Open | Operation::Write | Operation::Replace);
        if fault == Fault::Full && !needs_room {
            return Fault::None;
        }
        match count.fetch_add(1, Ordering::Relaxed) {
            number if number == at => fault,
            number if number > at && number < UNCOUNTED && crash => Fault::Before,
            _ => Fault::None,
        }
    }))
}

/// One row: a log of `before` entries, a fault at operation `at` of a commit of `more` and the sync after it. Whether
/// the fault struck.
fn row(before: u64, more: u64, at: usize, fault: Fault, crash: bool) -> bool {
    let what = format!("{before} entries and {more} more, operation {at} fails {fault:?}, crash {crash}");
    let folder = tempfile::tempdir().unwrap();
    let mut published: Vec<Arc<SignedHead>> = log_of(folder.path(), before).into_iter().collect();

    let count = Arc::new(AtomicUsize::new(UNCOUNTED));
    let mut committer = open(folder.path(), failing_at(at, fault, crash, count.clone())).unwrap();
    count.store(0, Ordering::Relaxed);
    let result = committer.commit(entries(before, more));
    let mut acknowledged = before;
    let mut goes_on = true;
    match &result {
        Ok(committed) => {
            acknowledged = before + more;
            published.push(committed.signed.clone());
        }
        Err(CommitError::NotCommitted(_)) if !crash => {
            // The same server goes on, as if nothing had been submitted.
            assert_eq!(committer.size().0, before, "{what}");
            let committed = committer.commit(entries(before, more)).unwrap();
            assert_eq!(committed.signed.head.size.0, before + more, "{what}");
            acknowledged = before + more;
            published.push(committed.signed);
        }
        Err(_) => goes_on = false,
    }
    // A failed sync stops the server, and costs nothing: the journal still has it all.
    let synced = goes_on.then(|| committer.sync());
    let struck = count.load(Ordering::Relaxed) > at;
    assert_eq!(result.is_err() || matches!(synced, Some(Err(_))), struck, "{what}");
    drop(committer);

    // The next start finds the old log or the new one, whole, and can go on from there.
    let mut committer =
        open(folder.path(), Files::default()).unwrap_or_else(|error| panic!("{what}: {error}"));
    let size = committer.size().0;
    let unknown = acknowledged == before && size == before + more;
    assert!(size == acknowledged || unknown, "{what}: {size}, acknowledged {acknowledged}");
    published.extend(committer.signed().cloned());
    published.push(committer.commit(entries(size, 5)).unwrap().signed);
    committer.sync().unwrap();
    drop(committer);
    whole_log(folder.path(), size + 5, &published, &what);
    struck
}

fn table(before: u64, more: u64) {
    for (fault, crash) in
        [(Fault::Before, false), (Fault::After, false), (Fault::Full, false), (Fault::After, true)]
    {
        let mut struck = 0;
        while row(before, more, struck, fault, crash) {
            struck += 1;
        }
        // Journal, lock, history, tiles, checkpoint: fewer would mean that the table is not reached.
        let expected = if fault == Fault::Full { 8 } else { 15 };
        assert!(struck >= expected, "only {struck} operations");
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

/// Everything below a folder, links not followed.
fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files_below(&path)) } else { found.push(path) }
    }
    found
}

fn copy(from: &Path, to: &Path) {
    let copied = std::process::Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap();
    assert!(copied.success());
}

#[test]
fn what_a_power_cut_takes_of_the_files_written_since_the_last_sync_comes_back_from_the_journal() {
    let made = tempfile::tempdir().unwrap();
    let made = made.path().join("made");
    std::fs::create_dir(&made).unwrap();
    let mut published: Vec<Arc<SignedHead>> = log_of(&made, 250).into_iter().collect();
    let before = files_below(&made.join("log"));
    let mut committer = open(&made, Files::default()).unwrap();
    for (from, count) in [(250, 3), (253, 300), (553, 1), (554, 250)] {
        published.push(committer.commit(entries(from, count)).unwrap().signed);
    }
    drop(committer);
    let history = |path: &Path| path.parent().unwrap().ends_with("history");
    let synced = |path: &Path| {
        before.contains(&path.to_owned()) && !history(path) || path.parent().unwrap().ends_with("journal")
    };
    let lost: Vec<PathBuf> =
        files_below(&made.join("log")).into_iter().filter(|path| !synced(path)).collect();
    assert!(lost.len() >= 8, "{lost:?}");
    for what in ["missing", "empty", "cut", "zeros", "longer"] {
        let folder = tempfile::tempdir().unwrap();
        let case = folder.path().join("case");
        copy(&made, &case);
        for path in &lost {
            let path = case.join(path.strip_prefix(&made).unwrap());
            let bytes = std::fs::read(&path).unwrap();
            // What the last sync made durable of a file that is appended to is not lost.
            let kept = if history(&path) { 20.min(bytes.len()) } else { 0 };
            let changed = match what {
                "empty" => bytes[..kept].to_vec(),
                "cut" => bytes[..kept + (bytes.len() - kept) / 2].to_vec(),
                "zeros" => [&bytes[..kept], &vec![0; bytes.len() - kept]].concat(),
                _ => [&bytes[..], b"garbage"].concat(),
            };
            match what {
                "missing" if kept == 0 => std::fs::remove_file(&path).unwrap(),
                _ => std::fs::write(&path, changed).unwrap(),
            }
        }
        let mut committer = open(&case, Files::default()).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(committer.signed(), published.last(), "{what}");
        let mut published = published.clone();
        if what != "longer" {
            // The history of the first sync is cut here, which a power cut cannot do.
            published.remove(0);
        }
        published.push(committer.commit(entries(804, 1)).unwrap().signed);
        committer.sync().unwrap();
        drop(committer);
        whole_log(&case, 805, &published, what);
    }
}

#[test]
fn a_published_note_that_was_lost_between_others_comes_back_from_the_journal() {
    let folder = tempfile::tempdir().unwrap();
    let mut published: Vec<Arc<SignedHead>> = log_of(folder.path(), 4).into_iter().collect();
    let path = folder.path().join("log/history/published");
    let mut committer = open(folder.path(), Files::default()).unwrap();
    let mut ends = Vec::new();
    for number in 4..7 {
        published.push(committer.commit(entries(number, 1)).unwrap().signed);
        ends.push(std::fs::metadata(&path).unwrap().len());
    }
    drop(committer);
    // Its rows, and the notes on both sides of it, have reached the disk.
    let mut notes = std::fs::read(&path).unwrap();
    notes[ends[0] as usize..ends[1] as usize].fill(0);
    std::fs::write(&path, notes).unwrap();
    drop(open(folder.path(), Files::default()).unwrap());
    whole_log(folder.path(), 7, &published, "size 6 lost");
}

#[test]
fn a_journal_that_leads_to_another_tree_than_was_promised_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let before = log_of(folder.path(), 4).unwrap();
    let mut committer = open(folder.path(), Files::default()).unwrap();
    let promised = committer.commit(entries(4, 2)).unwrap().signed;
    drop(committer);
    // A record that is whole in itself, and built on what was promised before.
    let record = |entries| Record { old: before.head.size, previous: before.note.clone(), entries };
    let path = folder.path().join("log/journal/00000000000000000004");
    let good = std::fs::read(&path).unwrap();
    assert_eq!(good, record(entries(4, 2)).encode());
    std::fs::write(&path, record(entries(5, 2)).encode()).unwrap();
    let error = open(folder.path(), Files::default()).err().unwrap();
    let expected = promised.head.root;
    assert!(matches!(error, LogError::RootMismatch { expected: found, .. } if found == expected), "{error}");
    std::fs::write(&path, good).unwrap();
    assert_eq!(open(folder.path(), Files::default()).unwrap().signed(), Some(&promised));
}

#[test]
fn a_commit_touches_the_disk_in_the_order_that_makes_it_safe() {
    use Operation::{Open, Remove, Rename, Replace, Sync, Write};
    let folder = tempfile::tempdir().unwrap();
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let (noted, base) = (seen.clone(), folder.path().to_owned());
    let files = Files::with_faults(Box::new(move |operation, path| {
        let name = path.strip_prefix(&base).unwrap().to_str().unwrap().to_owned();
        noted.lock().unwrap().push((operation, name));
        Fault::None
    }));
    log_of(folder.path(), 255);
    let mut committer = open(folder.path(), files).unwrap();
    // What was promised is written down once more: the last time may have failed, and be in memory only.
    let of_the_start = std::mem::take(&mut *seen.lock().unwrap());
    let lock = [Write, Sync].map(|operation| (operation, "log.lock/head".to_owned()));
    assert!(of_the_start.ends_with(&lock), "{of_the_start:?}");
    committer.commit(entries(255, 2)).unwrap();
    let of_the_commit = std::mem::take(&mut *seen.lock().unwrap());
    committer.sync().unwrap();
    let of_the_sync = std::mem::take(&mut *seen.lock().unwrap());
    let expected = [
        (Open, "log/journal/00000000000000000255"),
        (Sync, "log/journal"),
        (Write, "log/journal/00000000000000000255"),
        (Sync, "log/journal/00000000000000000255"),
        (Write, "log/tile/0/000"),
        (Write, "log/tile/entries/000"),
        (Write, "log.lock/head"),
        (Sync, "log.lock/head"),
        (Rename, "log/tile/0/000"),
        (Rename, "log/tile/entries/000"),
        (Write, "log/history/published"),
        (Write, "log/history/published.sizes"),
    ];
    assert_eq!(of_the_commit, expected.map(|(operation, name)| (operation, name.to_owned())));
    let expected = [
        (Write, "log/tile/entries/001.p/1"),
        (Rename, "log/tile/entries/001.p/1"),
        (Write, "log/tile/0/001.p/1"),
        (Rename, "log/tile/0/001.p/1"),
        (Write, "log/tile/1/000.p/1"),
        (Rename, "log/tile/1/000.p/1"),
        (Sync, "log/tile/0/000"),
        (Sync, "log/tile/entries/000"),
        (Sync, "log/tile/entries/001.p/1"),
        (Sync, "log/tile/0/001.p/1"),
        (Sync, "log/tile/1/000.p/1"),
        (Sync, "log/history/published"),
        (Sync, "log/history/published.sizes"),
        (Replace, "log/checkpoint"),
        (Remove, "log/journal/00000000000000000255"),
        (Remove, "log/tile/entries/000.p/255"),
        (Remove, "log/tile/0/000.p/255"),
    ];
    assert_eq!(of_the_sync, expected.map(|(operation, name)| (operation, name.to_owned())));
}
