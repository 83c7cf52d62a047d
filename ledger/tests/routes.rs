//! Every route, through a real listener.

mod support;

use std::net::SocketAddr;

use schemas::attachment::AttachmentName;
use schemas::digest::EntryDigest;
use support::{
    Answer, ORIGIN, get, opening_statement, options, prediction_statement, receipt_statement, request, run,
    run_statement, served, submit, verdict_statement,
};
use tlog::checkpoint::Checkpoint;
use tlog::entries::decode_bundle_of;
use tlog::hash::{Hash, leaf_hash};
use tlog::note::VerifierKey;
use tlog::proof::{ConsistencyProof, check_consistency};
use tlog::tile::{Tile, TileKind, TileReader, TileSource};
use tlog::tlog_proof::TlogProof;
use tlog::tree::{TreeHead, TreeSize, root_hash};

const IMMUTABLE: &str = "public, max-age=31536000, immutable";

fn problem(answer: &Answer, status: u16, contains: &str) {
    assert_eq!(answer.status, status, "{}", answer.text());
    assert_eq!(answer.header("content-type"), Some("application/problem+json"));
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    let body: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(body["status"], status);
    assert!(!body["title"].as_str().unwrap().is_empty());
    let detail = body["detail"].as_str().unwrap();
    assert!(detail.contains(contains), "{detail:?}, expected {contains:?}");
}

#[test]
fn a_submission_is_answered_with_its_proof_and_a_repeat_with_the_same_index() {
    let folder = support::folder();
    let server = served(folder.path());
    let log = VerifierKey::parse(server.verifier_key()).unwrap();
    let statement = run_statement(1);
    let digest = EntryDigest::of(&statement);
    let first = submit(server.address(), &statement);
    assert_eq!(first.status, 201);
    assert_eq!(first.header("location"), Some(format!("/entries/{digest}").as_str()));
    assert_eq!(first.header("content-type"), Some("text/plain; charset=utf-8"));
    let proof = TlogProof::parse(&first.body).unwrap();
    assert_eq!(proof.check(leaf_hash(&statement), ORIGIN, &log).unwrap().head.size, TreeSize(2));
    assert_eq!(submit(server.address(), &run_statement(2)).status, 201);

    let repeat = submit(server.address(), &statement);
    assert_eq!(repeat.status, 200);
    let again = TlogProof::parse(&repeat.body).unwrap();
    assert_eq!(again.index, proof.index);
    assert_eq!(again.check(leaf_hash(&statement), ORIGIN, &log).unwrap().head.size, TreeSize(3));

    let entry = get(server.address(), &format!("/by-hash/{digest}"));
    assert_eq!(entry.body, statement);
    assert_eq!(entry.header("content-type"), Some("application/cose"));
    assert_eq!(entry.header("cache-control"), Some(IMMUTABLE));
    let facts = get(server.address(), &format!("/by-hash/{digest}.json"));
    assert_eq!(facts.header("content-type"), Some("application/json"));
    assert_eq!(facts.header("cache-control"), Some("no-cache"));
    let facts: serde_json::Value = serde_json::from_slice(&facts.body).unwrap();
    assert_eq!((&facts["index"], &facts["kind"]), (&1.into(), &"run".into()));
    assert_eq!(facts["run"], run(1).id().to_string());
    assert_eq!(facts["signer"], support::key(1).public().to_string());
    for (name, link) in facts["links"].as_object().unwrap() {
        // Brackets are another test's.
        if name != "bracket" {
            assert_eq!(get(server.address(), link.as_str().unwrap()).status, 200, "{name}: {link}");
        }
    }
    server.stop().unwrap();
}

fn submitted_head(address: SocketAddr, number: u64, log: &VerifierKey) -> TreeHead {
    let statement = run_statement(number);
    let proof = TlogProof::parse(&submit(address, &statement).body).unwrap();
    proof.check(leaf_hash(&statement), ORIGIN, log).unwrap().head
}

struct Remote(SocketAddr);

#[derive(Debug, thiserror::Error)]
#[error("status {0}")]
struct Status(u16);

impl TileSource for Remote {
    type Error = Status;

    fn read_tile(&self, tile: Tile) -> Result<Vec<u8>, Status> {
        let answer = get(self.0, &format!("/{}", tile.path()));
        if answer.status != 200 {
            return Err(Status(answer.status));
        }
        assert_eq!(answer.header("content-type"), Some("application/octet-stream"));
        assert_eq!(answer.header("cache-control"), Some(IMMUTABLE));
        Ok(answer.body)
    }
}

#[test]
fn the_log_can_be_read_from_its_tiles_at_every_published_size() {
    let folder = support::folder();
    let server = served(folder.path());
    let log = VerifierKey::parse(server.verifier_key()).unwrap();
    let mut heads =
        vec![Checkpoint::open(&get(server.address(), "/checkpoint").body, ORIGIN, &log).unwrap().head];
    // Past a full tile, so that partial tiles of older sizes are served from it.
    let address = server.address();
    std::thread::scope(|threads| {
        let workers: Vec<_> = (0..4)
            .map(|worker| {
                let log = &log;
                threads.spawn(move || {
                    (worker * 65..worker * 65 + 65)
                        .map(|number| submitted_head(address, number, log))
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        heads.extend(workers.into_iter().flat_map(|worker| worker.join().unwrap()));
    });
    heads.sort_by_key(|head| head.size);
    heads.dedup();
    let remote = Remote(server.address());
    let last = *heads.last().unwrap();
    for head in heads.iter().rev().step_by(heads.len() / 20) {
        let reader = TileReader { size: head.size, source: &remote };
        assert_eq!(root_hash(head.size, &reader).unwrap(), head.root);
        let width = (head.size.0 % 256) as u16;
        if width > 0 {
            let tile = Tile { kind: TileKind::Entries, index: head.size.0 / 256, width };
            let bundle = remote.read_tile(tile).unwrap();
            assert_eq!(decode_bundle_of(&bundle, width).unwrap().len(), usize::from(width));
        }
        let lines = get(server.address(), &format!("/consistency/{}/{}", head.size, last.size));
        let hashes = lines.text().lines().map(|line| Hash::from_base64(line).unwrap()).collect();
        assert_eq!(check_consistency(&ConsistencyProof(hashes), *head, last), Ok(()));
        let older = get(server.address(), &format!("/checkpoint/{}", head.size));
        assert_eq!(older.header("cache-control"), Some(IMMUTABLE));
        assert_eq!(Checkpoint::open(&older.body, ORIGIN, &log).unwrap().head, *head);
        let proof = get(server.address(), &format!("/proof/0.tlog-proof?size={}", head.size));
        assert!(proof.text().contains(older.text()), "{}", proof.text());
    }
    for beyond in
        ["/tile/0/001.p/6", "/tile/0/002", "/tile/1/000.p/2", "/tile/2/000.p/1", "/tile/entries/001"]
    {
        problem(&get(server.address(), beyond), 404, "has no tile");
    }
    server.stop().unwrap();
    // Of a partial tile only the widest is kept on disk.
    assert_eq!(std::fs::read_dir(folder.path().join("tile/0/001.p")).unwrap().count(), 1);
}

#[test]
fn bytes_that_have_changed_on_disk_are_not_handed_out_under_their_name() {
    let folder = support::folder();
    let server = served(folder.path());
    let address = server.address();
    std::thread::scope(|threads| {
        for worker in 0..5 {
            threads.spawn(move || {
                for number in (0..255).filter(|number| number % 5 == worker) {
                    assert_eq!(submit(address, &run_statement(number)).status, 201);
                }
            });
        }
    });
    // A sync would notice the change; after a start there is none to come.
    server.stop().unwrap();
    let server = served(folder.path());
    let address = server.address();
    let path = folder.path().join("tile/entries/000");
    let mut bundle = std::fs::read(&path).unwrap();
    let last = EntryDigest::of(decode_bundle_of(&bundle, 256).unwrap()[255]);
    assert_eq!(get(address, &format!("/by-hash/{last}")).status, 200);
    *bundle.last_mut().unwrap() ^= 1;
    std::fs::write(&path, bundle).unwrap();
    problem(&get(address, &format!("/by-hash/{last}")), 500, "");
    server.stop().unwrap();
}

#[test]
fn an_answer_says_how_long_it_may_be_kept() {
    let folder = support::folder();
    let server = served(folder.path());
    let address = server.address();
    for number in 0..2 {
        assert_eq!(submit(address, &run_statement(number)).status, 201);
    }
    let id = run(0).id();
    for (path, caching) in [
        ("/checkpoint", "public, max-age=1"),
        ("/checkpoint/2", IMMUTABLE),
        ("/tile/0/000.p/3", IMMUTABLE),
        ("/tile/entries/000.p/1", IMMUTABLE),
        ("/consistency/1/3", IMMUTABLE),
        ("/proof/1.tlog-proof", "no-cache"),
        ("/proof/1.cose", "no-cache"),
        ("/bracket/1", "no-cache"),
        (&format!("/run/{id}"), "no-cache"),
        (&format!("/runs/{id}"), "no-cache"),
        ("/log.json", "no-cache"),
        ("/entries", "no-cache"),
        ("/", "no-cache"),
        ("/metrics", "no-store"),
        ("/.well-known/scitt-keys", "public, max-age=3600"),
    ] {
        let answer = get(address, path);
        assert_eq!((answer.status, answer.header("cache-control")), (200, Some(caching)), "{path}");
    }
    server.stop().unwrap();
}

#[test]
fn what_is_not_there_or_malformed_is_a_problem_and_not_cached() {
    let folder = support::folder();
    let server = served(folder.path());
    let address = server.address();
    let digest = "00".repeat(32);
    problem(&get(address, "/nothing"), 404, "nothing at this address");
    problem(&get(address, &format!("/entries/{digest}")), 404, "not in this log");
    problem(&get(address, &format!("/by-hash/{digest}")), 404, "not in this log");
    problem(&get(address, &format!("/by-hash/{digest}.json")), 404, "not in this log");
    problem(&get(address, &format!("/by-hash/{}", "AB".repeat(32))), 400, "64 lower-case hexadecimal digits");
    problem(&get(address, "/proof/0.txt"), 404, "expected /proof/<index>.tlog-proof or /proof/<index>.cose");
    problem(&get(address, "/proof/1.cose"), 404, "leaf index 1 is not in a tree of 1 leaf");
    problem(&get(address, "/entries/xyz"), 400, "64 lower-case hexadecimal digits");
    problem(&get(address, &format!("/run/{digest}")), 404, "not in this log");
    problem(&get(address, &format!("/attachments/{digest}")), 404, "not on this server");
    problem(&get(address, "/attachments/..%2f..%2fkey"), 400, "64 lower-case");
    problem(&get(address, "/tile/../log.key"), 404, "");
    problem(&get(address, "/tile/0/000"), 404, "has no tile");
    problem(&get(address, "/tile/0/00"), 404, "not of the form");
    problem(&get(address, "/tile/0/000.p/300"), 404, "not of the form");
    problem(&get(address, "/proof/1.tlog-proof"), 404, "leaf index 1 is not in a tree of 1 leaf");
    problem(&get(address, "/proof/01.tlog-proof"), 400, "not a canonical decimal");
    problem(&get(address, "/proof/0.tlog-proof?size=9"), 404, "no checkpoint of size 9");
    problem(&get(address, "/proof/0.tlog-proof?siz=1"), 400, "expected no query or size=");
    problem(&get(address, "/checkpoint/2"), 404, "no checkpoint of size 2");
    problem(&get(address, "/consistency/2/1"), 400, "greater than newer");
    problem(&get(address, "/consistency/1/2"), 404, "not yet 2");
    problem(&request(address, "DELETE", "/checkpoint", "", b"").unwrap(), 405, "does not take that method");
    problem(&request(address, "POST", "/entries", "", b"x").unwrap(), 415, "expected \"application/cose\"");
    server.stop().unwrap();
}

#[test]
fn what_is_not_a_signed_statement_within_the_limit_is_refused() {
    let folder = support::folder();
    let server = served(folder.path());
    let good = run_statement(1);
    problem(&submit(server.address(), b""), 400, "statement");
    problem(&submit(server.address(), &good[..good.len() - 1]), 400, "statement");
    let mut bad_signature = good.clone();
    *bad_signature.last_mut().unwrap() ^= 1;
    problem(&submit(server.address(), &bad_signature), 400, "signature");
    problem(&submit(server.address(), &vec![0; 61_441]), 413, "at most 61440 bytes (60 KiB)");
    // A body that does not announce its length is stopped at the limit too.
    let chunk = format!("{:x}\r\n{}\r\n", 70_000, "x".repeat(70_000));
    let head =
        "POST /entries HTTP/1.1\r\nHost: test\r\nConnection: close\r\nContent-Type: application/cose\r\n";
    let text = format!("{head}Transfer-Encoding: chunked\r\n\r\n{chunk}0\r\n\r\n");
    let mut stream = std::net::TcpStream::connect(server.address()).unwrap();
    // The server may answer and close before it has read all of it.
    let _ = std::io::Write::write_all(&mut stream, text.as_bytes());
    problem(&support::read_answer(&mut stream).unwrap(), 413, "at most 61440 bytes");
    assert!(get(server.address(), "/log.json").text().contains("\"size\":1"));
    server.stop().unwrap();
}

#[test]
fn statements_of_unknown_runs_and_second_predictions_are_refused() {
    let folder = support::folder();
    let server = served(folder.path());
    let address = server.address();
    let id = run(1).id();
    let first = prediction_statement(id, 0, 50, 2);
    problem(
        &submit(address, &first),
        409,
        "is not in this log; expected its run statement before any prediction",
    );
    problem(&submit(address, &receipt_statement(id, 0, b"note")), 409, "before any receipt");
    assert_eq!(submit(address, &run_statement(1)).status, 201);
    assert_eq!(submit(address, &first).status, 201);
    assert_eq!(submit(address, &first).status, 200, "the same bytes are no second prediction");
    for (from, end) in [(0, 50), (49, 60), (0, 1), (10, 20), (0, 100)] {
        let mut second = support::prediction(id, from, end);
        second.seal.0[31] ^= 1;
        let payload = schemas::statement::Payload::Prediction(second);
        let second = schemas::statement::Statement::sign(&payload, &support::key(2)).unwrap();
        problem(&submit(address, &second), 409, "entry 2 predicts steps 0..50");
    }
    assert_eq!(
        submit(address, &prediction_statement(id, 50, 100, 2)).status,
        201,
        "steps that follow are free"
    );
    assert_eq!(submit(address, &prediction_statement(id, 0, 50, 3)).status, 201, "another predictor is free");
    assert_eq!(submit(address, &run_statement(2)).status, 201);
    assert_eq!(
        submit(address, &prediction_statement(run(2).id(), 0, 50, 2)).status,
        201,
        "another run is free"
    );
    problem(&submit(address, &prediction_statement(id, 99, 101, 2)), 409, "entry 3 predicts steps 50..100");
    server.stop().unwrap();
}

#[test]
fn a_second_opening_by_the_same_key_is_refused_also_after_the_index_is_made_anew() {
    let folder = support::folder();
    let server = served(folder.path());
    let id = run(1).id();
    let prediction = prediction_statement(id, 0, 50, 2);
    let (digest, other) = (EntryDigest::of(&prediction), EntryDigest([7; 32]));
    let (first, second) = (opening_statement(id, digest, b"a", 2), opening_statement(id, digest, b"b", 2));
    for statement in [&run_statement(1), &prediction, &first] {
        assert_eq!(submit(server.address(), statement).status, 201);
    }
    let refused = |address| {
        problem(&submit(address, &second), 409, "is already opened by this key: entry 3");
        assert_eq!(submit(address, &first).status, 200, "the same bytes are no second opening");
    };
    refused(server.address());
    assert_eq!(submit(server.address(), &opening_statement(id, digest, b"b", 3)).status, 201, "another key");
    assert_eq!(
        submit(server.address(), &opening_statement(id, other, b"b", 2)).status,
        201,
        "another prediction"
    );
    server.stop().unwrap();
    std::fs::remove_file(folder.path().join("index.redb")).unwrap();
    let server = served(folder.path());
    refused(server.address());
    server.stop().unwrap();
}

#[test]
fn a_damaged_attachment_is_replaced_by_the_next_upload_and_found_by_fsck() {
    let folder = support::folder();
    let server = served(folder.path());
    let address = server.address();
    let digest = AttachmentName::of(b"bytes").sha256;
    let path = format!("/attachments/{digest}");
    let file = folder.path().join(format!("attachments/{}/{digest}", &digest.to_string()[..2]));
    let put = || request(address, "PUT", &path, "", b"bytes").unwrap().status;
    assert_eq!((put(), put()), (201, 200));
    for damaged in [b"".as_slice(), b"bytez", b"bytes and more"] {
        std::fs::write(&file, damaged).unwrap();
        assert_eq!((put(), put()), (201, 200));
        assert_eq!(get(address, &path).body, b"bytes");
    }
    server.stop().unwrap();
    let fsck = || {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_ledger"));
        let output = command.args(["fsck", "--data"]).arg(folder.path()).output().unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stdout).unwrap(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    let (status, stdout, _) = fsck();
    assert!(status == Some(0) && stdout.contains("attachments: 1, each"), "{stdout}");
    std::fs::write(&file, b"bytez").unwrap();
    let (status, _, stderr) = fsck();
    assert_eq!(status, Some(1), "{stderr}");
    assert!(
        stderr.contains(&format!("{digest}: wrong: it has SHA-256 ")) && stderr.contains("upload"),
        "{stderr}"
    );
}

#[test]
fn attachments_are_kept_under_their_digest_only() {
    let folder = support::folder();
    let server = served(folder.path());
    let address = server.address();
    let bytes: Vec<u8> = (0..300_000u32).map(|i| (i * 7 + i / 251) as u8).collect();
    let digest = AttachmentName::of(&bytes).sha256;
    let path = format!("/attachments/{digest}");
    problem(&request(address, "PUT", &path, "", &bytes[1..]).unwrap(), 422, &format!("expected {digest}"));
    problem(&get(address, &path), 404, "not on this server");
    assert_eq!(request(address, "PUT", &path, "", &bytes).unwrap().status, 201);
    assert_eq!(request(address, "POST", &path, "", &bytes).unwrap().status, 200);
    let found = get(address, &path);
    assert_eq!(found.body, bytes);
    assert_eq!(found.header("cache-control"), Some(IMMUTABLE));
    let announced =
        format!("PUT {path} HTTP/1.1\r\nHost: t\r\nConnection: close\r\nContent-Length: 67108865\r\n\r\n");
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    std::io::Write::write_all(&mut stream, announced.as_bytes()).unwrap();
    problem(&support::read_answer(&mut stream).unwrap(), 413, "at most 67108864 bytes");
    assert_eq!(std::fs::read_dir(folder.path().join("attachments/incoming")).unwrap().count(), 0);
    server.stop().unwrap();
}

#[test]
fn slow_and_crowding_peers_are_turned_away() {
    let folder = support::folder();
    let mut options = options(folder.path());
    options.limits.head_timeout_ms = 100;
    options.limits.body_pause_ms = 100;
    options.limits.uploads_max = 0;
    let server = ledger::http::server::start(options).unwrap();
    let connect = |text: &str| {
        let mut stream = std::net::TcpStream::connect(server.address()).unwrap();
        std::io::Write::write_all(&mut stream, text.as_bytes()).unwrap();
        stream
    };
    // A head that never ends: the connection is closed with or without an answer, and does not stay.
    let mut slow_head = connect("GET /checkpoint HTTP/1.1\r\nHost: t\r\n");
    let mut rest = Vec::new();
    let _ = std::io::Read::read_to_end(&mut slow_head, &mut rest);
    // A body that never comes.
    let head = "POST /entries HTTP/1.1\r\nHost: t\r\nConnection: close\r\nContent-Type: application/cose\r\n";
    let mut slow_body = connect(&format!("{head}Content-Length: 100\r\n\r\nx"));
    problem(&support::read_answer(&mut slow_body).unwrap(), 408, "too slowly");
    // No upload is allowed at all here, so every one finds the server busy.
    let busy =
        request(server.address(), "PUT", &format!("/attachments/{}", "00".repeat(32)), "", b"x").unwrap();
    problem(&busy, 503, "upload again");
    assert_eq!(busy.header("retry-after"), Some("1"));
    server.stop().unwrap();
}

#[test]
fn a_peer_has_only_so_many_connections_and_a_further_one_is_closed_at_once() {
    let folder = support::folder();
    let mut options = options(folder.path());
    options.limits.connections_per_peer_max = 1;
    let server = ledger::http::server::start(options).unwrap();
    let connect = || std::net::TcpStream::connect(server.address()).unwrap();
    let keep = "GET /checkpoint HTTP/1.1\r\nHost: t\r\n\r\n";
    let mut first = connect();
    std::io::Write::write_all(&mut first, keep.as_bytes()).unwrap();
    let mut byte = [0];
    std::io::Read::read_exact(&mut first, &mut byte).unwrap();
    // The first is open and answered, so the second finds no place: it ends without a byte.
    let mut second = connect();
    assert!(!matches!(std::io::Read::read(&mut second, &mut byte), Ok(1..)));
    // It is told to close, and when it is seen closed its place is free or about to be.
    std::io::Write::write_all(
        &mut first,
        keep.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n").as_bytes(),
    )
    .unwrap();
    std::io::Read::read_to_end(&mut first, &mut Vec::new()).unwrap();
    drop(first);
    while request(server.address(), "GET", "/checkpoint", "", b"").is_err() {}
    server.stop().unwrap();
}

#[test]
fn a_peer_that_does_not_read_its_answer_gives_its_place_back() {
    let folder = support::folder();
    let mut options = options(folder.path());
    // One place, which the silent peer has; the next connection waits until that is closed.
    options.limits.connections_max = 1;
    options.limits.write_pause_ms = 100;
    let server = ledger::http::server::start(options).unwrap();
    // More than the system's own buffers take.
    let bytes = vec![7; 32 << 20];
    let path = format!("/attachments/{}", AttachmentName::of(&bytes).sha256);
    assert_eq!(request(server.address(), "PUT", &path, "", &bytes).unwrap().status, 201);
    let mut silent = std::net::TcpStream::connect(server.address()).unwrap();
    std::io::Write::write_all(&mut silent, format!("GET {path} HTTP/1.1\r\nHost: t\r\n\r\n").as_bytes())
        .unwrap();
    let mut next = std::net::TcpStream::connect(server.address()).unwrap();
    next.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
    let head = "GET /checkpoint HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n";
    std::io::Write::write_all(&mut next, head.as_bytes()).unwrap();
    assert_eq!(support::read_answer(&mut next).unwrap().status, 200);
    drop(silent);
    server.stop().unwrap();
}

#[test]
fn a_body_that_comes_steadily_but_too_slowly_is_turned_away() {
    let folder = support::folder();
    let mut options = options(folder.path());
    options.limits.entry_timeout_ms = 100;
    options.limits.upload_grace_ms = 100;
    let server = ledger::http::server::start(options).unwrap();
    let attachment = format!("PUT /attachments/{}", "00".repeat(32));
    for (line, kind) in [("POST /entries", "application/cose"), (attachment.as_str(), "any")] {
        let mut stream = std::net::TcpStream::connect(server.address()).unwrap();
        let head = format!("{line} HTTP/1.1\r\nHost: t\r\nConnection: close\r\nContent-Type: {kind}\r\n");
        std::io::Write::write_all(&mut stream, format!("{head}Content-Length: 1000\r\n\r\n").as_bytes())
            .unwrap();
        // Nothing more comes within the time, although a pause of this length would be allowed.
        problem(&support::read_answer(&mut stream).unwrap(), 408, "too slowly");
    }
    server.stop().unwrap();
}

#[test]
fn a_run_is_listed_and_shown_on_pages_that_escape_what_others_wrote() {
    let folder = support::folder();
    let server = served(folder.path());
    let address = server.address();
    let id = run(1).id();
    assert_eq!(submit(address, &run_statement(1)).status, 201);
    let prediction = prediction_statement(id, 0, 100, 2);
    assert_eq!(submit(address, &prediction).status, 201);
    let page = |path: &str| {
        let answer = get(address, path);
        assert_eq!(answer.status, 200, "{path}");
        assert_eq!(answer.header("content-type"), Some("text/html; charset=utf-8"));
        assert!(answer.header("content-security-policy").unwrap().starts_with("default-src 'none'"));
        let text = answer.text().to_owned();
        assert!(text.contains("What it does not"), "{path} says what it does not prove");
        assert!(!text.contains("<script") && !text.contains("style=") && !text.contains("http"), "{path}");
        text
    };
    assert!(page(&format!("/runs/{id}")).contains("sealed"));
    let note = get(address, "/checkpoint").body;
    let receipts: Vec<Vec<u8>> = (0..3).map(|rank| receipt_statement(id, rank, &note)).collect();
    let digest = EntryDigest::of(&prediction);
    let opening = opening_statement(id, digest, b"body", 2);
    let names = receipts.iter().map(|receipt| EntryDigest::of(receipt)).collect();
    let verdict = verdict_statement(id, digest, names);
    for statement in receipts.iter().chain([&opening, &verdict]) {
        assert_eq!(submit(address, statement).status, 201);
    }
    let run_page = page(&format!("/runs/{id}"));
    for words in [
        "opened",
        "diverge",
        "step 17",
        "Device 1 departed",
        "the latest verdict (diverge, steps 0..100, entry 8)",
        "element 77",
        "3fc00000",
        "simulated",
        "device 3: no",
    ] {
        assert!(run_page.contains(words), "{words:?} in {run_page}");
    }
    assert!(run_page.contains("&lt;b&gt;card &amp; co&lt;/b&gt;") && !run_page.contains("<b>card"));
    for path in ["/", "/runs"] {
        let runs = page(path);
        assert!(runs.contains("run 1") && runs.contains("compared") && runs.contains("diverge"), "{runs}");
        assert!(runs.contains("Tallystick"), "{runs}");
    }
    assert!(page("/entries").contains("verdict"));
    assert!(page("/entries?before=2").contains("genesis"));
    for statement in receipts.iter().chain([&opening, &verdict, &prediction]) {
        let digest = EntryDigest::of(statement);
        assert!(page(&format!("/entries/{digest}.html")).contains(&format!("/entries/{digest}")));
    }
    let missing = get(address, &format!("/runs/{}", "00".repeat(32)));
    assert_eq!((missing.status, missing.header("cache-control")), (404, Some("no-store")));

    let listed: serde_json::Value =
        serde_json::from_slice(&get(address, &format!("/run/{id}")).body).unwrap();
    let kinds: Vec<&str> =
        listed["entries"].as_array().unwrap().iter().map(|e| e["kind"].as_str().unwrap()).collect();
    assert_eq!(
        kinds,
        ["run", "prediction", "receipt", "receipt", "receipt", "opening", "register", "verdict", "register"]
    );
    assert_eq!(listed["entries"][1]["sha256"], digest.to_string());
    assert_eq!(listed["entries"][1]["signer"], support::key(2).public().to_string());
    assert_eq!(listed["entries"][1]["index"], 2);
    let log: serde_json::Value = serde_json::from_slice(&get(address, "/log.json").body).unwrap();
    assert_eq!(log["origin"], ORIGIN);
    assert_eq!(log["key"], server.verifier_key());
    assert_eq!(log["size"], 10);
    assert!(get(address, "/style.css").text().contains("prefers-color-scheme"));
    server.stop().unwrap();
}

#[test]
fn many_submissions_at_once_each_get_one_place() {
    let folder = support::folder();
    let server = served(folder.path());
    let address = server.address();
    let mut indexes: Vec<u64> = std::thread::scope(|threads| {
        let workers: Vec<_> = (0..8)
            .map(|worker| {
                threads.spawn(move || {
                    // Two workers at a time submit the same statements.
                    (0..30)
                        .map(|number| submit(address, &run_statement(worker / 2 * 30 + number)))
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        let answers = workers.into_iter().flat_map(|worker| worker.join().unwrap());
        answers
            .map(|answer| {
                assert!(answer.status == 200 || answer.status == 201, "{}", answer.text());
                TlogProof::parse(&answer.body).unwrap().index.0
            })
            .collect()
    });
    indexes.sort_unstable();
    indexes.dedup();
    assert_eq!(indexes, (1..=120).collect::<Vec<u64>>());
    server.stop().unwrap();
}
