//! `ledger fsck`: whatever is changed in a log's tiles or entries is found, and the place is named.

mod support;

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use ledger::fsck::check_tree;
use ledger::fsck::finding::{Finding, Kind};
use ledger::fsck::folder::Folder;
use ledger::fsck::remote::Remote;
use serde_json::Value;
use support::{Process, run_statement, served, submit};
use tlog::checkpoint::Checkpoint;
use tlog::edge::RightEdge;
use tlog::entries::push_entry;
use tlog::hash::leaf_hash;
use tlog::note::{KeyName, SigningKey};
use tlog::tile::{Tile, TileKind, new_tiles};
use tlog::tree::{TreeHead, TreeSize};

const HASH_BYTES: u64 = 32;

fn entry(index: u64) -> Vec<u8> {
    // Lengths from 0 on, and some above 255: then both bytes of a length count.
    let length = if index % 7 == 3 { 300 } else { index % 40 };
    (0..length).map(|at| (index * 31 + at * 7) as u8).collect()
}

/// A log's static files, as a server leaves them: of partial tiles the widest.
fn write_log(folder: &Path, size: u64) -> TreeHead {
    let mut edge = RightEdge::empty();
    let leaves: Vec<_> = (0..size).map(|index| leaf_hash(&entry(index))).collect();
    let write = |tile: Tile, bytes: &[u8]| {
        let path = folder.join(tile.path());
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    };
    for made in edge.append(&leaves) {
        write(made.tile, &made.bytes);
    }
    for tile in new_tiles(TreeSize(0), TreeSize(size)) {
        if tile.kind == TileKind::Entries {
            let mut bundle = Vec::new();
            for index in (tile.index * 256..).take(usize::from(tile.width)) {
                push_entry(&mut bundle, &entry(index)).unwrap();
            }
            write(tile, &bundle);
        }
    }
    let key = key();
    let note = Checkpoint { origin: support::ORIGIN.to_owned(), head: edge.head() }.sign(&key);
    std::fs::write(folder.join("checkpoint"), note).unwrap();
    edge.head()
}

fn key() -> SigningKey {
    SigningKey::from_seed(KeyName::new(support::ORIGIN).unwrap(), &[7; 32])
}

fn findings(folder: &Path, head: TreeHead) -> Vec<Finding> {
    check_tree(&Folder(folder.to_owned()), head, &mut |_| {}).unwrap().0.list
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for item in std::fs::read_dir(folder).unwrap() {
        let path = item.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

/// The leaf index of the entry that a byte of a bundle belongs to, its length included.
fn entry_at(tile: Tile, byte: u64) -> u64 {
    let mut end = 0;
    (tile.index * 256..)
        .find(|index| {
            end += 2 + entry(*index).len() as u64;
            byte < end
        })
        .unwrap()
}

/// Whether one finding says that this byte of this file is wrong.
fn names_the_byte(folder: &Path, path: &Path, byte: u64, found: &[Finding]) {
    let name = path.strip_prefix(folder).unwrap().to_str().unwrap();
    let [finding] = found else { panic!("{name} byte {byte}: {found:?}") };
    let tile = Tile::parse(name).unwrap();
    assert_eq!((finding.kind, finding.path.as_str()), (Kind::Wrong, name), "byte {byte}: {finding}");
    let bytes = finding.bytes.clone().unwrap();
    assert!(bytes.contains(&byte), "{name} byte {byte}: {finding}");
    match tile.kind {
        TileKind::Hashes(_) => assert_eq!(bytes.end - bytes.start, HASH_BYTES),
        TileKind::Entries => assert_eq!(finding.entry, Some(entry_at(tile, byte)), "byte {byte}: {finding}"),
    }
}

#[test]
fn a_flipped_byte_anywhere_in_a_small_log_is_found_and_named() {
    let folder = tempfile::tempdir().unwrap();
    for size in [1, 2, 11] {
        let place = folder.path().join(size.to_string());
        let head = write_log(&place, size);
        assert_eq!(findings(&place, head), []);
        for path in files(&place.join("tile")) {
            let good = std::fs::read(&path).unwrap();
            for byte in 0..good.len() {
                for mask in [0x01, 0x80] {
                    let mut bytes = good.clone();
                    bytes[byte] ^= mask;
                    std::fs::write(&path, bytes).unwrap();
                    names_the_byte(&place, &path, byte as u64, &findings(&place, head));
                }
            }
            std::fs::write(&path, good).unwrap();
        }
    }
}

#[test]
fn a_flipped_byte_in_a_log_of_three_levels_is_found_and_named() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path();
    let head = write_log(place, 65_536 + 300);
    assert_eq!(findings(place, head), []);
    let all = files(&place.join("tile"));
    // Every kind of tile: full and partial, of each level, and a few in between.
    let names = [
        "tile/0/000",
        "tile/0/255",
        "tile/0/256",
        "tile/0/257.p/44",
        "tile/1/000",
        "tile/1/001.p/1",
        "tile/2/000.p/1",
        "tile/entries/000",
        "tile/entries/130",
        "tile/entries/257.p/44",
    ];
    for name in names {
        let path = place.join(name);
        assert!(all.contains(&path), "{name}");
        let good = std::fs::read(&path).unwrap();
        for byte in [0, good.len() / 3, good.len() - 1] {
            let mut bytes = good.clone();
            bytes[byte] ^= 0x10;
            std::fs::write(&path, bytes).unwrap();
            names_the_byte(place, &path, byte as u64, &findings(place, head));
        }
        std::fs::write(&path, good).unwrap();
    }
}

#[test]
fn what_is_missing_cut_or_longer_is_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path();
    let head = write_log(place, 520);
    for path in files(&place.join("tile")) {
        let name = path.strip_prefix(place).unwrap().to_str().unwrap().to_owned();
        let good = std::fs::read(&path).unwrap();
        let kinds = |what: &str| {
            let found = findings(place, head);
            assert!(found.iter().all(|finding| finding.path == name), "{name} {what}: {found:?}");
            found.iter().map(|finding| finding.kind).collect::<Vec<_>>()
        };
        std::fs::remove_file(&path).unwrap();
        assert_eq!(kinds("removed"), [Kind::Missing], "{name}");
        for length in [0, 1, good.len() / 2, good.len() - 1] {
            std::fs::write(&path, &good[..length]).unwrap();
            assert_eq!(kinds("cut"), [Kind::Truncated], "{name} cut to {length}");
        }
        for more in [1, 2, 32, 1000] {
            std::fs::write(&path, [&good[..], &vec![0; more]].concat()).unwrap();
            assert_eq!(kinds("longer"), [Kind::Extra], "{name} and {more} more");
        }
        std::fs::write(&path, good).unwrap();
    }
    assert_eq!(findings(place, head), []);
}

#[test]
fn damage_at_several_places_is_told_place_by_place() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path();
    let head = write_log(place, 520);
    let flip = |name: &str, byte: usize| {
        let mut bytes = std::fs::read(place.join(name)).unwrap();
        bytes[byte] ^= 1;
        std::fs::write(place.join(name), bytes).unwrap();
    };
    let said = || -> Vec<String> {
        let found = findings(place, head);
        found.iter().map(|f| format!("{} {} {:?}", f.kind.word(), f.path, f.entry)).collect()
    };
    // An entry, and in the tile above it the hash of another one: each has its own side to blame.
    let bundle = Tile { kind: TileKind::Entries, index: 1, width: 256 };
    let first = std::fs::read(place.join(bundle.path())).unwrap().len() - 1;
    flip("tile/entries/001", first);
    flip("tile/0/001", 32);
    assert_eq!(said(), ["wrong tile/0/001 None", "wrong tile/entries/001 Some(511)"]);
    // And one of the level above.
    flip("tile/1/000.p/2", 0);
    assert_eq!(
        said(),
        ["wrong tile/1/000.p/2 None", "wrong tile/0/001 None", "wrong tile/entries/001 Some(511)"]
    );
    // The entry and its own hash: what the tree has here is nowhere any more.
    flip("tile/0/001", 255 * 32);
    let found = findings(place, head);
    assert!(found.iter().any(|finding| finding.kind == Kind::Undecided), "{found:?}");
    assert!(found.iter().all(|finding| finding.path != "tile/0/000" && finding.path != "tile/entries/000"));
}

#[test]
fn a_tile_of_other_hashes_altogether_is_what_is_wrong_and_not_what_lies_below() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path();
    let head = write_log(place, 65_536 + 300);
    for name in ["tile/0/000", "tile/0/257.p/44", "tile/1/000", "tile/1/001.p/1", "tile/2/000.p/1"] {
        let path = place.join(name);
        let good = std::fs::read(&path).unwrap();
        std::fs::write(&path, good.iter().map(|byte| !byte).collect::<Vec<u8>>()).unwrap();
        let found = findings(place, head);
        let [finding] = &found[..] else { panic!("{name}: {found:?}") };
        assert_eq!((finding.kind, finding.path.as_str()), (Kind::Wrong, name), "{finding}");
        assert_eq!(finding.bytes, Some(0..HASH_BYTES), "the first of them");
        std::fs::write(&path, good).unwrap();
    }
}

/// Serves the files of a folder, as any static server does.
fn serve(folder: PathBuf) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}/some/log", listener.local_addr().unwrap());
    // The thread ends with the test's process.
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let mut line = String::new();
            while reader.read_line(&mut line).is_ok_and(|length| length > 0) {
                let path = line.split(' ').nth(1).unwrap().strip_prefix("/some/log/").unwrap().to_owned();
                let mut rest = String::new();
                while reader.read_line(&mut rest).unwrap() > 2 {
                    rest.clear();
                }
                let (status, body) = match std::fs::read(folder.join(&path)) {
                    Ok(body) => (200, body),
                    Err(_) => (404, Vec::new()),
                };
                let head = format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n", body.len());
                stream.write_all(&[head.as_bytes(), &body].concat()).unwrap();
                line.clear();
            }
        }
    });
    address
}

#[test]
fn a_flipped_byte_is_found_and_named_over_http() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path();
    let head = write_log(place, 300);
    let remote = Remote::at(&serve(place.to_owned())).unwrap();
    let findings = || check_tree(&remote, head, &mut |_| {}).unwrap().0.list;
    assert_eq!(findings(), []);
    for path in files(&place.join("tile")) {
        let good = std::fs::read(&path).unwrap();
        for byte in (0..good.len()).step_by(701) {
            let mut bytes = good.clone();
            bytes[byte] ^= 4;
            std::fs::write(&path, bytes).unwrap();
            names_the_byte(place, &path, byte as u64, &findings());
        }
        std::fs::remove_file(&path).unwrap();
        let found = findings();
        let [Finding { kind: Kind::Missing, .. }] = found[..] else { panic!("{found:?}") };
        std::fs::write(&path, good).unwrap();
    }
}

fn fsck(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ledger")).arg("fsck").args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn the_command_checks_a_running_server_by_its_address_and_a_stopped_ones_folder() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("log");
    let data = data.to_str().unwrap();
    let server = Process::start(Path::new(data));
    for number in 0..5 {
        assert_eq!(submit(server.address, &run_statement(number)).status, 201);
    }
    let url = format!("http://{}", server.address);
    let key = server.verifier_key.clone();
    let output = fsck(&[&url, "--log-key", &key]);
    assert!(output.status.success() && text(&output.stdout).starts_with("size: 6\n"), "{output:?}");
    // A folder in use, an address without a key, another key, no key, nobody there, and TLS.
    for (arguments, status, said) in [
        (&["--data", data][..], 2, "is in use by another ledger"),
        (&[&url], 2, "the log's key is not known, expected --log-key"),
        (&[&url, "--log-key", &key_of_another()], 1, "checkpoint: "),
        (&[&url, "--log-key", "no key"], 2, "--log-key: "),
        (&["http://127.0.0.1:1", "--log-key", &key], 2, "http://127.0.0.1:1/checkpoint: "),
        (&["https://log.example", "--log-key", &key], 2, "is https, expected http"),
    ] {
        let output = fsck(arguments);
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {output:?}");
        assert!(text(&output.stderr).contains(said), "{arguments:?}: {output:?}");
        assert!(text(&output.stdout).is_empty(), "{output:?}");
    }
    assert_eq!(server.terminate(), Some(0));
    for arguments in [&[data][..], &["--data", data], &[data, "--log-key", &key]] {
        let output = fsck(arguments);
        assert!(output.status.success() && output.stderr.is_empty(), "{arguments:?}: {output:?}");
    }
    let output = fsck(&[data, "--json"]);
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&said["ok"], &said["size"], &said["attachments"]), (&true.into(), &6.into(), &0.into()));
    assert_eq!(said["findings"], Value::Array(vec![]));
}

fn key_of_another() -> String {
    SigningKey::from_seed(KeyName::new(support::ORIGIN).unwrap(), &[9; 32]).verifier().to_string()
}

#[test]
fn the_command_names_what_is_wrong_in_lines_and_in_json_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("log");
    let server = served(&data);
    for number in 0..5 {
        assert_eq!(submit(server.address(), &run_statement(number)).status, 201);
    }
    server.stop().unwrap();
    let path = data.join("tile/entries/000.p/6");
    let mut bytes = std::fs::read(&path).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let before: Vec<(PathBuf, Vec<u8>)> =
        files(folder.path()).into_iter().map(|path| (path.clone(), std::fs::read(path).unwrap())).collect();
    let output = fsck(&[data.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let start = last + 1 - run_statement(4).len();
    let expected =
        format!("ledger: error: tile/entries/000.p/6: bytes {start}..{} (entry 5): wrong: ", last + 1);
    assert!(text(&output.stderr).starts_with(&expected), "{output:?}, expected {expected:?}");
    assert!(text(&output.stdout).ends_with("1 finding\nattachments: 0\n"), "{output:?}");
    let output = fsck(&[data.to_str().unwrap(), "--json"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    let finding = &said["findings"][0];
    assert_eq!((&said["ok"], &finding["entry"]), (&false.into(), &5.into()));
    assert_eq!(finding["bytes"], serde_json::json!([start, last + 1]));
    for (path, bytes) in before {
        assert_eq!(std::fs::read(&path).unwrap(), bytes, "{}", path.display());
    }
}

#[test]
fn after_a_crash_the_journal_is_named_and_an_old_copy_is_told_from_it() {
    let folder = tempfile::tempdir().unwrap();
    let (data, old) = (folder.path().join("log"), folder.path().join("old"));
    let mut server = Process::start(&data);
    assert_eq!(submit(server.address, &run_statement(0)).status, 201);
    assert_eq!(server.terminate(), Some(0));
    let copied = Command::new("cp").arg("-a").arg(&data).arg(&old).status().unwrap();
    assert!(copied.success());
    server = Process::start(&data);
    assert_eq!(submit(server.address, &run_statement(1)).status, 201);
    assert_eq!(server.terminate(), Some(0));
    server = Process::start(&data);
    for number in 2..4 {
        assert_eq!(submit(server.address, &run_statement(number)).status, 201);
    }
    server.kill();
    let (data, old) = (data.to_str().unwrap(), old.to_str().unwrap());
    let before = files(folder.path());
    let output = fsck(&[data]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let said = text(&output.stderr);
    assert!(said.contains("the log promised size 5 and the folder is synced to size 3"), "{said}");
    let hint = format!("ledger: hint: the journal has the rest: run `ledger serve --data {data}` once");
    assert!(said.contains(&hint), "{said}");
    assert_eq!(files(folder.path()), before);
    // The old copy has no journal that leads to what was promised.
    let lock = folder.path().join("log.lock");
    let output = fsck(&[old, "--lock", lock.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output.stderr).contains("the folder holds a log of size 2, expected size 5"), "{output:?}");
    // Nor does a journal that begins beyond it.
    std::fs::remove_dir_all(Path::new(old).join("journal")).unwrap();
    support::copy_folder(&Path::new(data).join("journal"), &Path::new(old).join("journal"));
    let output = fsck(&[old, "--lock", lock.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output.stderr).contains("the folder holds a log of size 2, expected size 5"), "{output:?}");
    // What is wrong with what was published comes first.
    let tile = Path::new(data).join("tile/entries/000.p/3");
    let good = std::fs::read(&tile).unwrap();
    let mut flipped = good.clone();
    *flipped.last_mut().unwrap() ^= 1;
    std::fs::write(&tile, flipped).unwrap();
    let output = fsck(&[data]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output.stderr).contains("tile/entries/000.p/3: bytes "), "{output:?}");
    std::fs::write(&tile, good).unwrap();
    assert_eq!(Process::start(Path::new(data)).terminate(), Some(0));
    let output = fsck(&[data]);
    assert!(output.status.success() && text(&output.stdout).starts_with("size: 5\n"), "{output:?}");
}

#[test]
fn a_folder_is_held_against_what_its_lock_promised() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let copy = |from: &str, to: &str| support::copy_folder(Path::new(&path(from)), Path::new(&path(to)));
    let grow = |name: &str, number| {
        let server = Process::start(Path::new(&path(name)));
        assert_eq!(submit(server.address, &run_statement(number)).status, 201);
        assert_eq!(server.terminate(), Some(0));
    };
    grow("log", 0);
    for name in ["log", "log.lock"] {
        copy(name, &name.replace("log", "other"));
    }
    copy("log.lock", "old.lock");
    grow("log", 1);
    grow("other", 2);
    let refused = |lock: &str, says: &str| {
        let output = fsck(&[&path("log"), "--lock", &path(lock)]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(text(&output.stderr).contains(says), "{output:?}");
    };
    refused("old.lock", "size 3");
    refused("other.lock", "the tiles of size 3 hash to");
    assert!(fsck(&[&path("log")]).status.success());
}

#[test]
fn a_copy_of_a_logs_static_files_is_checked_with_its_key() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().to_str().unwrap();
    write_log(folder.path(), 300);
    let vkey = key().verifier().to_string();
    let output = fsck(&[place, "--log-key", &vkey]);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    // Other servers keep narrower tiles too. They must be beginnings of the tree's; what is wider is no part of it.
    let source = Folder(folder.path().to_owned());
    let narrow = folder.path().join("tile/0/001.p/20");
    let wide = std::fs::read(folder.path().join("tile/0/001.p/44")).unwrap();
    std::fs::write(&narrow, &wide[..20 * 32]).unwrap();
    std::fs::write(folder.path().join("tile/0/001.p/45"), b"from another time").unwrap();
    let output = fsck(&[place, "--log-key", &vkey]);
    assert!(
        output.status.success() && text(&output.stderr).contains("1 file below tile/ belongs"),
        "{output:?}"
    );
    std::fs::write(&narrow, &wide[32..21 * 32]).unwrap();
    let (found, foreign) = source.others(TreeSize(300)).unwrap();
    assert_eq!((found.len(), found[0].path.as_str(), foreign), (1, "tile/0/001.p/20", 1));
    assert_eq!(fsck(&[place, "--log-key", &vkey]).status.code(), Some(1));
}
