//! Registers: where the log adds one, what it says, and how it is handed out.

mod support;

use std::net::SocketAddr;

use schemas::completeness::Completeness;
use schemas::digest::{EntryDigest, RunId};
use schemas::object::Object as _;
use schemas::register::{EntryLeaf, ListRoot, PredictionLeaf, Register};
use schemas::statement::{Payload, Statement};
use support::{
    get, key, opening_statement, prediction_statement, receipt_statement, run, run_statement, served, submit,
    verdict_statement,
};
use tlog::checkpoint::Checkpoint;
use tlog::compact::CompactTree;
use tlog::entries::decode_bundle_of;
use tlog::hash::{Hash, leaf_hash};
use tlog::note::VerifierKey;
use tlog::proof::{InclusionProof, Leaf, check_inclusion};
use tlog::tile::{TileKind, tile_in_tree};
use tlog::tree::{LeafIndex, TreeSize};

fn admitted(address: SocketAddr, statement: &[u8]) {
    let answer = submit(address, statement);
    assert_eq!(answer.status, 201, "{}", answer.text());
}

/// Every entry but the first.
fn entries(address: SocketAddr) -> Vec<Statement> {
    let size = get(address, "/checkpoint").text().lines().nth(1).unwrap().parse().unwrap();
    let mut statements = Vec::new();
    for index in 0.. {
        let Some(tile) = tile_in_tree(TileKind::Entries, index, TreeSize(size)) else { break };
        let bundle = get(address, &format!("/{}", tile.path())).body;
        let entries = decode_bundle_of(&bundle, tile.width).unwrap();
        let new = entries.iter().skip(usize::from(index == 0));
        statements.extend(new.map(|entry| Statement::open(entry).unwrap()));
    }
    statements
}

/// What a register at `size` has to say, from the whole log.
fn derived(statements: &[Statement], run: RunId, size: u64) -> Register {
    let (mut entries, mut predictions) = (CompactTree::new(), CompactTree::new());
    for (index, statement) in (1..size).zip(statements).filter(|(_, other)| other.payload.run() == run) {
        entries.push(leaf_hash(&EntryLeaf::of(index, statement).encode()));
        if let Some(leaf) = PredictionLeaf::of(index, statement) {
            predictions.push(leaf_hash(&leaf.encode()));
        }
    }
    let root = |tree: CompactTree| ListRoot { count: tree.size().0, root: *tree.head().root.as_bytes() };
    Register { run, size, entries: root(entries), predictions: root(predictions) }
}

/// Each register is the log's, right, and called for. The runs that wait for one after each entry.
fn check_registers(statements: &[Statement], log: &VerifierKey) -> Vec<usize> {
    let mut waiting = std::collections::BTreeSet::new();
    let mut left = Vec::new();
    for (index, statement) in (1..).zip(statements) {
        let run = statement.payload.run();
        match &statement.payload {
            Payload::Opening(_) | Payload::Verdict(_) => drop(waiting.insert(run)),
            Payload::Register(register) => {
                assert_eq!(statement.signer.to_bytes(), *log.public_key());
                assert_eq!(*register, derived(statements, run, index));
                assert!(waiting.remove(&run), "entry {index} is not called for");
            }
            _ => {}
        }
        left.push(waiting.len());
    }
    left
}

#[test]
fn a_register_follows_each_opening_and_each_verdict_and_nothing_else() {
    let folder = support::folder();
    let server = served(folder.path());
    let (address, log) = (server.address(), VerifierKey::parse(server.verifier_key()).unwrap());
    let id = run(1).id();
    let prediction = prediction_statement(id, 0, 100, 2);
    let named = EntryDigest::of(&prediction);
    admitted(address, &run_statement(1));
    admitted(address, &prediction);
    admitted(address, &receipt_statement(id, 0, b"note"));
    admitted(address, &opening_statement(id, named, b"body", 2));
    admitted(address, &run_statement(2));
    admitted(address, &prediction_statement(id, 100, 200, 2));
    admitted(address, &verdict_statement(id, named, vec![]));
    let statements = entries(address);
    let kinds: Vec<&str> = statements.iter().map(|statement| statement.payload.stem()).collect();
    let expected = "run prediction receipt opening register run prediction verdict register";
    assert_eq!(kinds.join(" "), expected);
    assert_eq!(check_registers(&statements, &log).last(), Some(&0));
    // A refused second opening calls for nothing.
    assert_eq!(submit(address, &opening_statement(id, named, b"other", 2)).status, 409);
    assert_eq!(entries(address).len(), statements.len());
    server.stop().unwrap();
}

/// At no checkpoint that was ever published does an opening or a verdict wait for its register.
#[test]
fn registers_are_in_the_commit_of_what_calls_for_them() {
    let folder = support::folder();
    let server = served(folder.path());
    let (address, log) = (server.address(), VerifierKey::parse(server.verifier_key()).unwrap());
    for number in 0..6 {
        admitted(address, &run_statement(number));
    }
    std::thread::scope(|scope| {
        for signer in 2..14 {
            scope.spawn(move || {
                // Each begins with another run, so that one commit has openings of several.
                for number in (0..6).map(|number| (number + u64::from(signer)) % 6) {
                    let id = run(number).id();
                    let prediction = EntryDigest([signer * 16 + number as u8; 32]);
                    admitted(address, &opening_statement(id, prediction, b"body", signer));
                    admitted(address, &prediction_statement(id, 0, 10, signer));
                }
            });
        }
    });
    let statements = entries(address);
    let waiting = check_registers(&statements, &log);
    let mut published = 0;
    for size in 2..=statements.len() as u64 + 1 {
        if get(address, &format!("/checkpoint/{size}")).status == 200 {
            published += 1;
            assert_eq!(waiting[size as usize - 2], 0, "size {size}");
        }
    }
    let registers = statements.iter().filter(|other| matches!(other.payload, Payload::Register(_))).count();
    assert!(published < statements.len() - registers, "some submissions shared a commit");
    assert!((6..=72).contains(&registers), "{registers} registers");
    server.stop().unwrap();
}

#[test]
fn nobody_can_submit_a_register() {
    let folder = support::folder();
    let server = served(folder.path());
    let address = server.address();
    let id = run(1).id();
    admitted(address, &run_statement(1));
    admitted(address, &opening_statement(id, EntryDigest([1; 32]), b"body", 2));
    let right = derived(&entries(address), id, 4);
    let forged = submit(address, &Statement::sign(&Payload::Register(right), &key(2)).unwrap());
    assert_eq!(forged.status, 403, "{}", forged.text());
    assert!(forged.text().contains("registers are made by the log itself"), "{}", forged.text());
    // The bytes of one that is there give its place, as any bytes do.
    let register = entries(address).pop().unwrap();
    assert!(matches!(register.payload, Payload::Register(_)));
    let bytes = get(address, &format!("/by-hash/{}", register.digest)).body;
    assert_eq!(submit(address, &bytes).status, 200);
    assert_eq!(entries(address).len(), 3);
    server.stop().unwrap();
}

#[test]
fn the_completeness_of_a_run_is_handed_out_and_derived_anew_from_the_entries() {
    let folder = support::folder();
    let server = served(folder.path());
    let address = server.address();
    let (id, other) = (run(1).id(), run(2).id());
    let path = format!("/run/{id}/completeness");
    assert_eq!(get(address, &path).status, 404);
    admitted(address, &run_statement(1));
    admitted(address, &run_statement(2));
    let without = get(address, &path);
    assert!(without.text().contains("has no register yet"), "{}", without.text());
    // More than one part of a list, and predictions of another run between them.
    let predictions: Vec<Vec<u8>> = (0..1100)
        .map(|at| prediction_statement(if at % 10 == 9 { other } else { id }, at, at + 1, at as u8 % 3 + 2))
        .collect();
    let address_of = |part: &[Vec<u8>]| part.iter().for_each(|prediction| admitted(address, prediction));
    std::thread::scope(|scope| {
        for part in predictions.chunks(138) {
            scope.spawn(|| address_of(part));
        }
    });
    admitted(address, &opening_statement(id, EntryDigest::of(&predictions[0]), b"body", 2));
    admitted(address, &prediction_statement(id, 5000, 5001, 2));
    let statements = entries(address);
    let answer = get(address, &format!("{path}?entries=1"));
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.header("content-type"), Some("application/vnd.tallystick.completeness+cbor"));
    let whole = Completeness::decode(&answer.body).unwrap();
    let index = statements.len() as u64 - 1;
    let log = VerifierKey::parse(server.verifier_key()).unwrap();
    let head = Checkpoint::open(&whole.checkpoint, support::ORIGIN, &log).unwrap().head;
    assert_eq!((whole.register.index, head.size.0), (index, index + 2));
    let proof = InclusionProof(whole.register.proof.iter().map(|hash| Hash::new(*hash)).collect());
    let leaf = Leaf { index: LeafIndex(index), hash: leaf_hash(&whole.register.bytes) };
    check_inclusion(&proof, leaf, head).unwrap();
    let of_run = || (1..index).zip(&statements).filter(|(_, statement)| statement.payload.run() == id);
    let leaves: Vec<_> =
        of_run().filter_map(|(index, statement)| PredictionLeaf::of(index, statement)).collect();
    assert_eq!((leaves.len(), &leaves), (990, &whole.predictions));
    let listed: Vec<_> = of_run().map(|(index, statement)| EntryLeaf::of(index, statement)).collect();
    assert_eq!(Some(listed), whole.entries);
    let short = get(address, &path).body;
    assert_eq!(Completeness { entries: None, ..whole }, Completeness::decode(&short).unwrap());
    for (bad, status) in [("?entries=2", 400), ("?entries=x", 400), ("?size=1", 400)] {
        assert_eq!(get(address, &format!("{path}{bad}")).status, status, "{bad}");
    }
    server.stop().unwrap();
    std::fs::remove_file(folder.path().join("index.redb")).unwrap();
    let server = served(folder.path());
    assert_eq!(get(server.address(), &format!("{path}?entries=1")).body, answer.body);
    server.stop().unwrap();
}
