//! All that is derived can be lost or damaged and is made again from the tiles and the notes that were kept.

mod support;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;

use ledger::disk::durable::Files;
use ledger::disk::history::History;
use ledger::reindex::DERIVED;
use schemas::digest::EntryDigest;
use support::{
    folder, get, opening_statement, prediction_statement, receipt_statement, run, run_statement, served,
    submit, verdict_statement,
};
use tlog::cosignature::CosigningKey;
use tlog::note::{KeyName, SignedNote};
use tlog::tree::TreeSize;

/// A log of some runs with entries of every kind; `third` is its third run. How many entries.
fn log_of(data: &Path, third: u64) -> u64 {
    let server = served(data);
    let address = server.address();
    // Not a checkpoint of this log, so that logs made alike have entries alike.
    let note = b"a checkpoint";
    for number in [0, 1, third, 3] {
        let id = run(number).id();
        let prediction = prediction_statement(id, 0, 50, 2);
        let digest = EntryDigest::of(&prediction);
        let receipts: Vec<_> = (0..2).map(|rank| receipt_statement(id, rank, note)).collect();
        let names = receipts.iter().map(|receipt| EntryDigest::of(receipt)).collect();
        let mut statements = vec![run_statement(number), prediction, prediction_statement(id, 50, 60, 2)];
        statements.extend(receipts);
        statements.extend([opening_statement(id, digest, b"body", 2), verdict_statement(id, digest, names)]);
        for statement in statements {
            assert_eq!(submit(address, &statement).status, 201);
        }
    }
    let size = size_of(address);
    server.stop().unwrap();
    size
}

/// Has a witness cosign the checkpoints of some sizes.
fn cosign(data: &Path, sizes: &[u64]) {
    let server = served(data);
    let note = |size| get(server.address(), &format!("/checkpoint/{size}")).text().to_owned();
    let notes: Vec<_> = sizes.iter().map(|size| (*size, note(*size))).collect();
    server.stop().unwrap();
    let history = History::open(data, Arc::new(Files::default())).unwrap();
    for (size, note) in notes {
        let text = SignedNote::parse(note.as_bytes()).unwrap().text().to_owned();
        let name = KeyName::new("witness.example/w").unwrap();
        let line = CosigningKey::from_seed(name, &[5; 32]).cosign(&text, 1_700_000_000 + size);
        history.add_cosigned(TreeSize(size), &format!("{note}{line}")).unwrap();
    }
}

fn size_of(address: SocketAddr) -> u64 {
    let facts: serde_json::Value = serde_json::from_slice(&get(address, "/log.json").body).unwrap();
    facts["size"].as_u64().unwrap()
}

/// Every derived answer of a log, by address. COSE receipts are left out: they state when they were made.
fn answers(address: SocketAddr, size: u64) -> BTreeMap<String, (u16, String, Vec<u8>)> {
    let mut paths: Vec<String> =
        ["/", "/runs?before=9", "/entries", "/entries?before=11", "/log.json", "/checkpoint"]
            .map(str::to_owned)
            .to_vec();
    paths.push("/checkpoint/witnessed".to_owned());
    for index in 0..size + 1 {
        paths.extend([format!("/bracket/{index}"), format!("/proof/{index}.tlog-proof")]);
        paths.push(format!("/checkpoint/{index}"));
        paths.push(format!("/proof/1.tlog-proof?size={index}"));
        paths.push(format!("/consistency/1/{index}"));
    }
    let ask = |path: String| {
        let answer = get(address, &path);
        let kind = answer.header("content-type").unwrap_or_default().to_owned();
        (path, (answer.status, kind, answer.body))
    };
    let mut found: BTreeMap<_, _> = paths.into_iter().map(ask).collect();
    let digests = (0..size).filter_map(|index| {
        let bracket: serde_json::Value =
            serde_json::from_slice(&found[&format!("/bracket/{index}")].2).unwrap();
        bracket["sha256"].as_str().map(str::to_owned)
    });
    let mut paths = Vec::new();
    for digest in digests {
        paths.extend(["", ".json"].map(|suffix| format!("/by-hash/{digest}{suffix}")));
        paths.push(format!("/entries/{digest}.html"));
    }
    for number in 0..5 {
        let id = run(number).id();
        paths.extend([
            format!("/run/{id}"),
            format!("/run/{id}/completeness?entries=1"),
            format!("/runs/{id}"),
        ]);
    }
    found.extend(paths.into_iter().map(ask));
    found
}

fn reindex(data: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ledger")).args(["reindex", "--data"]).arg(data).output().unwrap()
}

#[test]
fn every_derived_answer_is_the_same_after_what_is_derived_was_lost_or_damaged() {
    let (folder, other) = (folder(), folder());
    let size = log_of(folder.path(), 2);
    cosign(folder.path(), &[5, 12, size - 4]);
    let server = served(folder.path());
    let before = answers(server.address(), size);
    assert!(before.len() > 200 && before.values().filter(|answer| answer.0 == 200).count() > 150);
    server.stop().unwrap();
    // Another run in the middle, and all else alike: a start looks at the last entry and sees nothing wrong.
    // The key is the same one, so that the registers at the end are.
    std::fs::copy(folder.path().join("log.key"), other.path().join("log.key")).unwrap();
    assert_eq!(log_of(other.path(), 50), size);

    type Damage = fn(&Path, &Path);
    let damages: [(&str, Damage); 5] = [
        ("removed", |data, _| DERIVED.iter().for_each(|name| std::fs::remove_file(data.join(name)).unwrap())),
        ("emptied", |data, _| DERIVED.iter().for_each(|name| std::fs::write(data.join(name), b"").unwrap())),
        ("cut", |data, _| {
            for file in DERIVED.map(|name| data.join(name)) {
                let bytes = std::fs::read(&file).unwrap();
                std::fs::write(&file, &bytes[..bytes.len() / 2]).unwrap();
            }
        }),
        ("overwritten", |data, _| {
            for file in DERIVED.map(|name| data.join(name)) {
                let length = std::fs::read(&file).unwrap().len();
                std::fs::write(&file, vec![0xa5; length]).unwrap();
            }
        }),
        ("plausible", |data, other| {
            std::fs::copy(other.join(DERIVED[0]), data.join(DERIVED[0])).unwrap();
            // The second note's size: 12 becomes 13.
            let file = data.join("history/cosigned.sizes");
            let mut rows = std::fs::read(&file).unwrap();
            assert_eq!(rows[16..24], 12_u64.to_be_bytes());
            rows[23] += 1;
            std::fs::write(&file, rows).unwrap();
        }),
    ];
    for (what, damage) in damages {
        damage(folder.path(), other.path());
        if what == "plausible" {
            let server = served(folder.path());
            let wrong = answers(server.address(), size);
            server.stop().unwrap();
            let differing: Vec<&String> =
                before.keys().filter(|path| wrong.get(*path) != Some(&before[*path])).collect();
            for part in ["/run/", "/by-hash/", "/bracket/", ".tlog-proof"] {
                assert!(differing.iter().any(|path| path.contains(part)), "{part}: {differing:?}");
            }
        }
        let output = reindex(folder.path());
        assert!(output.status.success(), "{what}: {output:?}");
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(said.starts_with(&format!("size: {size}\n")), "{said}");
        let server = served(folder.path());
        let after = answers(server.address(), size);
        for (path, answer) in &before {
            assert!(after.get(path) == Some(answer), "{what}: {path}: {:?}", after.get(path));
        }
        // It goes on: what was admitted counts, and there is a next place.
        assert_eq!(submit(server.address(), &run_statement(3)).status, 200);
        assert_eq!(submit(server.address(), &prediction_statement(run(0).id(), 49, 51, 2)).status, 409);
        server.stop().unwrap();
    }
}

/// Every tile of hashes, by its path.
fn hash_tiles(data: &Path) -> BTreeMap<std::path::PathBuf, Vec<u8>> {
    let (mut found, mut folders) = (BTreeMap::new(), vec![data.join("tile")]);
    while let Some(next) = folders.pop() {
        for item in std::fs::read_dir(next).unwrap() {
            let path = item.unwrap().path();
            match path.is_dir() {
                true if path.ends_with("entries") => {}
                true => folders.push(path),
                false => {
                    found.insert(path.clone(), std::fs::read(path).unwrap());
                }
            }
        }
    }
    found
}

#[test]
fn lost_and_damaged_tiles_of_hashes_are_made_anew_from_the_entries() {
    let folder = folder();
    let server = served(folder.path());
    // A last bundle that is partial and two tiles of level 1's row above it.
    let address = server.address();
    for first in (0..599).step_by(30) {
        std::thread::scope(|scope| {
            for number in first..599.min(first + 30) {
                scope.spawn(move || assert_eq!(submit(address, &run_statement(number)).status, 201));
            }
        });
    }
    server.stop().unwrap();
    let data = folder.path();
    let whole = hash_tiles(data);
    assert_eq!(whole.len(), 4, "{:?}", whole.keys());
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ledger"));
        command.args(arguments).arg("--data").arg(data).output().unwrap()
    };
    type Damage<'a> = (u64, &'a dyn Fn(&Path));
    let damages: [Damage; 5] = [
        (0, &|_| ()),
        (4, &|data| {
            for path in whole.keys() {
                std::fs::remove_file(path).unwrap();
            }
            std::fs::remove_dir_all(data.join("tile/1")).unwrap();
        }),
        (4, &|_| whole.keys().for_each(|path| std::fs::write(path, b"").unwrap())),
        (4, &|_| {
            for (path, bytes) in &whole {
                std::fs::write(path, [bytes.as_slice(), b"more"].concat()).unwrap();
            }
        }),
        (2, &|data| {
            for name in ["tile/0/001", "tile/1/000.p/2"] {
                let mut bytes = whole[&data.join(name)].clone();
                bytes[40] ^= 1;
                std::fs::write(data.join(name), bytes).unwrap();
            }
        }),
    ];
    for (remade, damage) in damages {
        damage(data);
        let output = run(&["reindex", "--tiles"]);
        assert!(output.status.success(), "{output:?}");
        let expected = format!(
            "size: 600\ntiles of hashes made anew from the entries: {remade}; all lead to the signed root\n"
        );
        assert!(String::from_utf8_lossy(&output.stdout).starts_with(&expected), "{output:?}");
        assert!(hash_tiles(data) == whole);
        assert!(run(&["fsck"]).status.success());
    }
    // Entries that do not lead to the signed root are no ground to build on.
    std::fs::remove_file(data.join("tile/0/001")).unwrap();
    let damaged = hash_tiles(data);
    let bundle = data.join("tile/entries/000");
    let mut entries = std::fs::read(&bundle).unwrap();
    entries[100] ^= 1;
    std::fs::write(&bundle, entries).unwrap();
    let output = run(&["reindex", "--tiles"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.starts_with("ledger: error: the entries of size 600 hash to "), "{said}");
    assert!(said.contains("; nothing was changed\nledger: hint: `ledger fsck --data "), "{said}");
    assert!(hash_tiles(data) == damaged);
    assert!(data.join(DERIVED[0]).is_file());
}

#[test]
fn a_running_server_and_a_folder_without_a_log_are_refused() {
    let folder = folder();
    let output = reindex(folder.path());
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("holds no log"), "{output:?}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is made");
    let server = served(folder.path());
    let output = reindex(folder.path());
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("is in use by another ledger"), "{output:?}");
    assert!(folder.path().join(DERIVED[0]).is_file());
    server.stop().unwrap();
}
