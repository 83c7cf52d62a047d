//! What cosigned checkpoints say about an entry, and proofs under them.

mod support;

use std::net::SocketAddr;
use std::sync::Arc;

use ledger::disk::durable::Files;
use ledger::disk::history::History;
use serde_json::Value;
use support::{ORIGIN, folder, get, run_statement, served, submit};
use tlog::checkpoint::Checkpoint;
use tlog::cosignature::CosigningKey;
use tlog::hash::leaf_hash;
use tlog::note::{KeyName, SignedNote, VerifierKey};
use tlog::tlog_proof::TlogProof;
use tlog::tree::TreeSize;

/// The note with the lines of two witnesses, at two times.
fn cosigned(note: &str, time_s: u64) -> String {
    let text = SignedNote::parse(note.as_bytes()).unwrap().text().to_owned();
    let lines = [b'a', b'b'].map(|letter| {
        let name = KeyName::new(&format!("witness.example/{}", char::from(letter))).unwrap();
        CosigningKey::from_seed(name, &[letter; 32]).cosign(&text, time_s + u64::from(letter)).to_string()
    });
    format!("{note}{}", lines.concat())
}

fn json(address: SocketAddr, path: &str) -> Value {
    let answer = get(address, path);
    assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    assert_eq!(answer.header("cache-control"), Some("no-cache"));
    serde_json::from_slice(&answer.body).unwrap()
}

#[test]
fn a_bracket_is_the_two_cosigned_checkpoints_around_an_entry() {
    let folder = folder();
    let server = served(folder.path());
    let log = VerifierKey::parse(server.verifier_key()).unwrap();
    let none = json(server.address(), "/bracket/0");
    assert_eq!((&none["below"], &none["above"]), (&Value::Null, &Value::Null));
    for number in 0..9 {
        assert_eq!(submit(server.address(), &run_statement(number)).status, 201);
    }
    let notes = [4, 8].map(|size| {
        let note = get(server.address(), &format!("/checkpoint/{size}")).text().to_owned();
        (size, cosigned(&note, size * 1000))
    });
    server.stop().unwrap();
    let history = History::open(folder.path(), Arc::new(Files::default())).unwrap();
    for (size, note) in &notes {
        history.add_cosigned(TreeSize(*size), note).unwrap();
    }
    drop(history);
    let server = served(folder.path());
    let address = server.address();
    for index in 0..10 {
        let found = json(address, &format!("/bracket/{index}"));
        let size = |bound: &str| found[bound]["size"].as_u64();
        let (below, above) = match index {
            0..4 => (None, Some(4)),
            4..8 => (Some(4), Some(8)),
            _ => (Some(8), None),
        };
        assert_eq!((size("below"), size("above")), (below, above), "entry {index}");
        for bound in ["below", "above"] {
            let Some(size) = size(bound) else { continue };
            let note = &notes.iter().find(|(found, _)| *found == size).unwrap().1;
            assert_eq!(found[bound]["checkpoint"], *note);
            assert_eq!(found[bound]["cosignatures"][1]["name"], "witness.example/b");
            assert_eq!(found[bound]["cosignatures"][1]["time_unix_s"], size * 1000 + u64::from(b'b'));
            assert_eq!(found[bound]["cosignatures"].as_array().unwrap().len(), 2, "the log's own is none");
        }
        assert_eq!(found["index"], index);
        let both = below.is_some() && above.is_some();
        assert_eq!(found["links"]["consistency"].as_str(), both.then_some("/consistency/4/8"));

        // Without a size a proof is under the first cosigned checkpoint that covers the entry.
        let proof = get(address, &format!("/proof/{index}.tlog-proof"));
        let proof = TlogProof::parse(&proof.body).unwrap();
        let genesis = format!("tallystick log v1\norigin {ORIGIN}\n").into_bytes();
        let entry = if index == 0 { genesis } else { run_statement(index - 1) };
        let checked = proof.check(leaf_hash(&entry), ORIGIN, &log).unwrap();
        assert_eq!(checked.head.size.0, above.unwrap_or(10));
        assert_eq!(proof.checkpoint.contains("witness.example/a"), above.is_some());
    }
    let named = get(address, "/proof/1.tlog-proof?size=8");
    assert!(named.text().ends_with(&notes[1].1), "{}", named.text());
    // What may be kept for ever has no cosignatures, which came later.
    let bare = get(address, "/checkpoint/8");
    assert!(!bare.text().contains("witness.example"));
    assert_eq!(Checkpoint::open(&bare.body, ORIGIN, &log).unwrap().head.size, TreeSize(8));
    for (path, status) in [("/bracket/10", 404), ("/bracket/01", 400), ("/bracket/x", 400)] {
        assert_eq!(get(address, path).status, status, "{path}");
    }
    server.stop().unwrap();
}
