//! COSE receipts, checked by a verifier that others wrote (scitt-cose, which tools/setup.sh puts under target/).

mod support;

use std::path::Path;
use std::sync::Arc;

use ledger::http::cose_receipt::{Place, ReceiptSigner};
use schemas::cbor::{self, Value};
use schemas::digest::EntryDigest;
use serde_json::json;
use support::{ORIGIN, get, python, request, run_statement, served, submit, submit_for_receipt};
use tlog::checkpoint::Checkpoint;
use tlog::hash::Hash;
use tlog::note::{SigningKey, Verifier as _, VerifierKey};
use tlog::proof::InclusionProof;
use tlog::tree::LeafIndex;

#[test]
fn receipts_of_several_sizes_are_verified_by_scitt_cose_and_changed_ones_are_refused() {
    let folder = support::folder();
    let server = served(&folder.path().join("log"));
    let address = server.address();
    let mut cases = Vec::new();
    let mut keep = |receipt: &[u8], entry: &[u8], size: u64, index: u64| {
        let number = cases.len();
        let (receipt_file, entry_file) = (format!("{number}.receipt"), format!("{number}.entry"));
        std::fs::write(folder.path().join(&receipt_file), receipt).unwrap();
        std::fs::write(folder.path().join(&entry_file), entry).unwrap();
        let every_byte = [2, 7, 9].contains(&size);
        cases.push(json!({
            "receipt": receipt_file, "entry": entry_file, "size": size, "index": index,
            "origin": ORIGIN, "every_byte": every_byte,
        }));
    };
    let statements: Vec<Vec<u8>> = (0..9).map(run_statement).collect();
    for (at, statement) in statements.iter().enumerate() {
        let index = at as u64 + 1;
        let answer = submit_for_receipt(address, statement);
        assert_eq!((answer.status, answer.header("content-type")), (201, Some("application/cose")));
        keep(&answer.body, statement, index + 1, index);
    }
    // The same place in a later tree, by each of the ways to ask for it; and the genesis entry.
    let repeat = submit_for_receipt(address, &statements[0]);
    assert_eq!(repeat.status, 200);
    keep(&repeat.body, &statements[0], 10, 1);
    let digest = EntryDigest::of(&statements[3]);
    keep(&get(address, &format!("/entries/{digest}")).body, &statements[3], 10, 4);
    keep(&get(address, "/proof/4.cose").body, &statements[3], 10, 4);
    keep(&get(address, "/proof/2.cose?size=7").body, &statements[1], 7, 2);
    let genesis = format!("tallystick log v1\norigin {ORIGIN}\n");
    keep(&get(address, "/proof/0.cose").body, genesis.as_bytes(), 10, 0);
    std::fs::write(folder.path().join("cases.json"), serde_json::to_vec(&cases).unwrap()).unwrap();
    let keys = get(address, "/.well-known/scitt-keys").body;
    std::fs::write(folder.path().join("keys.cbor"), keys).unwrap();
    let other = served(&folder.path().join("other"));
    let keys = get(other.address(), "/.well-known/scitt-keys").body;
    std::fs::write(folder.path().join("other.cbor"), keys).unwrap();
    let (right, said) = python("receipts.py", folder.path());
    assert!(right, "{said}");
    // The size that is signed is what tells a forged place: without it some would pass.
    assert!(said.contains(" changed receipts, of which ") && !said.contains("of which 0 "), "{said}");
    server.stop().unwrap();
    other.stop().unwrap();
}

/// The items of a COSE structure that the server answered.
fn decoded(bytes: &[u8]) -> Value {
    cbor::decode(bytes, 1 << 16).unwrap()
}

/// docs/spec/ledger.md, "COSE receipts": made by the fixtures' own code, and again by the server's.
#[test]
fn a_receipt_is_byte_for_byte_the_one_that_the_page_shows() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("fixtures");
    let text = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    let vkey = VerifierKey::parse(text("checkpoint/log.vkey").trim()).unwrap();
    let mut seed = [0; 32];
    seed[..3].copy_from_slice(b"log");
    let signer = ReceiptSigner::new(Arc::new(SigningKey::from_seed(vkey.name().clone(), &seed)));
    let note = text("checkpoint/size-9.txt");
    let head = Checkpoint::open(note.as_bytes(), vkey.name().as_str(), &vkey).unwrap().head;
    let entries = text("ledger/entries.txt");
    let line = entries.lines().find(|line| line.starts_with("3; ")).unwrap();
    let entry = line.rsplit(' ').next().unwrap().parse().unwrap();

    let shown = std::fs::read(folder.join("ledger/receipt.cbor")).unwrap();
    let Value::Tag(18, parts) = decoded(&shown) else { panic!() };
    let Value::Array(parts) = *parts else { panic!() };
    let Value::Map(proofs) = &parts[1] else { panic!() };
    let Value::Map(proofs) = &proofs[0].1 else { panic!() };
    let Value::Array(proofs) = &proofs[0].1 else { panic!() };
    let Value::Bytes(proof) = &proofs[0] else { panic!() };
    let Value::Array(proof) = decoded(proof) else { panic!() };
    let Value::Array(path) = &proof[2] else { panic!() };
    let hash = |item: &Value| match item {
        Value::Bytes(bytes) => Hash::from_slice(bytes).unwrap(),
        other => panic!("{other:?}"),
    };
    let inclusion = InclusionProof(path.iter().map(hash).collect());
    let place = Place { entry, index: LeafIndex(3), inclusion: &inclusion, head };
    assert_eq!(signer.receipt(place, 1_800_000_000), Some(shown));
}

#[test]
fn the_key_of_receipts_is_found_by_the_kid_that_they_name() {
    let folder = support::folder();
    let server = served(folder.path());
    let address = server.address();
    let set = get(address, "/.well-known/scitt-keys");
    assert_eq!((set.status, set.header("content-type")), (200, Some("application/cbor")));
    let Value::Array(keys) = decoded(&set.body) else { panic!("no key set") };
    let [Value::Map(fields)] = &keys[..] else { panic!("not one key") };
    let kid = fields.iter().find(|(name, _)| *name == Value::Uint(2)).map(|(_, kid)| kid.clone()).unwrap();
    let Value::Bytes(kid_bytes) = &kid else { panic!("no kid") };
    use base64::Engine as _;
    let name = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(kid_bytes);
    let key = get(address, &format!("/.well-known/scitt-keys/{name}"));
    assert_eq!((key.status, key.header("content-type")), (200, Some("application/cbor")));
    assert_eq!(decoded(&key.body), Value::Map(fields.clone()));

    let Value::Tag(18, parts) = decoded(&submit_for_receipt(address, &run_statement(0)).body) else {
        panic!()
    };
    let Value::Array(parts) = *parts else { panic!() };
    let Value::Bytes(protected) = &parts[0] else { panic!() };
    let Value::Map(header) = decoded(protected) else { panic!() };
    assert!(header.contains(&(Value::Uint(4), kid)));
    assert_eq!(parts[2], Value::Null, "the root is for the reader to compute");

    let accept = "Accept: application/cbor\r\n";
    let other = format!("/.well-known/scitt-keys/{}", "A".repeat(43));
    let missing = request(address, "GET", &other, accept, b"").unwrap();
    assert_eq!(missing.status, 404);
    assert_eq!(missing.header("content-type"), Some("application/concise-problem-details+cbor"));
    server.stop().unwrap();
}

#[test]
fn there_is_no_receipt_in_a_tree_of_one_entry() {
    let folder = support::folder();
    let server = served(folder.path());
    let address = server.address();
    let genesis = EntryDigest::of(format!("tallystick log v1\norigin {ORIGIN}\n").as_bytes());
    for path in [format!("/entries/{genesis}"), "/proof/0.cose".to_owned()] {
        let answer = get(address, &path);
        assert_eq!(answer.status, 404, "{path}");
        assert!(answer.text().contains("when the log has two"), "{}", answer.text());
    }
    assert_eq!(submit(address, &run_statement(0)).status, 201);
    assert_eq!(get(address, &format!("/entries/{genesis}")).status, 200);
    assert_eq!(get(address, "/proof/0.cose?size=1").status, 404);
    server.stop().unwrap();
}

#[test]
fn errors_are_cbor_for_whoever_asks_for_cose_and_json_for_others() {
    let folder = support::folder();
    let server = served(folder.path());
    let address = server.address();
    let missing = format!("/entries/{}", "00".repeat(32));
    let long = vec![0; 61_441];
    for (method, path, headers, body, status, detail) in [
        ("GET", missing.as_str(), "", &b""[..], 404, "is not in this log"),
        ("GET", "/entries/xyz", "", b"", 400, "64 lower-case hexadecimal digits"),
        ("GET", "/nothing", "", b"", 404, "nothing at this address"),
        ("DELETE", "/entries", "", b"", 405, "does not take that method"),
        ("POST", "/entries", "Content-Type: text/plain\r\n", b"x", 415, "expected \"application/cose\""),
        ("POST", "/entries", "Content-Type: application/cose\r\n", b"x", 400, "statement"),
        (
            "POST",
            "/entries",
            "Content-Type: application/cose\r\n",
            &long,
            413,
            "at most 61440 bytes (60 KiB)",
        ),
    ] {
        let cose = format!("{headers}Accept: application/cose\r\n");
        let answer = request(address, method, path, &cose, body).unwrap();
        assert_eq!(answer.status, status, "{method} {path}");
        assert_eq!(answer.header("content-type"), Some("application/concise-problem-details+cbor"));
        assert_eq!(answer.header("cache-control"), Some("no-store"));
        let Value::Map(fields) = decoded(&answer.body) else { panic!("{method} {path}") };
        // -1 is the title, -2 the detail, -4 the status.
        let field = |at| fields.iter().find(|(name, _)| *name == Value::Nint(at)).map(|(_, value)| value);
        assert!(matches!(field(0), Some(Value::Text(title)) if !title.is_empty()));
        assert!(matches!(field(1), Some(Value::Text(found)) if found.contains(detail)), "{fields:?}");
        assert_eq!(field(3), Some(&Value::Uint(status.into())));
        let answer = request(address, method, path, &format!("{headers}Accept: */*\r\n"), body).unwrap();
        assert_eq!(answer.header("content-type"), Some("application/problem+json"), "{method} {path}");
        assert!(answer.text().contains(&detail.replace('"', "\\\"")), "{}", answer.text());
    }
    server.stop().unwrap();
}
