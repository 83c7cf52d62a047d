//! `ledger bench`: its figures, that it stops by itself, and that it counts nothing that is not proven.

mod support;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use ledger::bench::entries::{LoadId, sign};
use ledger::bench::load::{Figures, Pace, Phase, load};
use ledger::bench::run::{Options, bench};
use tlog::checkpoint::Checkpoint;
use tlog::edge::RightEdge;
use tlog::hash::leaf_hash;
use tlog::note::{KeyName, SigningKey, VerifierKey};
use tlog::proof::InclusionProof;
use tlog::tlog_proof::TlogProof;
use tlog::tree::LeafIndex;
use tokio::task::LocalSet;

/// The figures that others read.
const FIELDS: [&str; 5] = ["entries_per_s", "p50_ms", "p99_ms", "bytes_per_entry", "rss_mb"];

#[test]
fn the_command_stops_by_itself_and_prints_one_object() {
    let output = Command::new(env!("CARGO_BIN_EXE_ledger"))
        .args(["bench", "--writers", "4", "--entries-max", "50", "--seconds", "1", "--rate", "50", "--json"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let printed = std::str::from_utf8(&output.stdout).unwrap();
    assert_eq!(printed.lines().count(), 1, "{printed}");
    let figures: serde_json::Value = serde_json::from_str(printed).unwrap();
    for field in FIELDS {
        assert!(figures[field].as_f64().is_some_and(|value| value > 0.0), "{field}: {printed}");
    }
    assert_eq!(figures["not_counted"], 0);
    assert_eq!(figures["failed"], 0);
    // The genesis entry, and both loads: as many as may be, or as were due in a second.
    assert_eq!(figures["entries"], 101, "{printed}");
    assert_eq!(figures["paced_acknowledged"], 50);
}

#[test]
fn a_log_that_grows_survives_the_kill_with_all_that_was_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options {
        program: env!("CARGO_BIN_EXE_ledger").into(),
        data: Some(folder.path().to_owned()),
        writers: 4,
        time: Duration::from_secs(1),
        entries_max: 5,
        paced_per_s: 5,
        grow_to: Some(40),
        stop: Arc::default(),
    };
    let report = bench(&options, &|_| ()).unwrap();
    assert!(report.holds());
    assert_eq!(report.growth.last().unwrap().entries, 40);
    assert!(report.start_after_kill_ms.is_some_and(|took| took > 0.0));
    assert!(report.entries > 40, "the load went on when the server was killed: {}", report.entries);
    assert!(report.folder_bytes > 0);
}

/// A server that answers every entry with what `answer` makes of it, and the load that it was put under.
fn loaded(answer: impl Fn(&[u8]) -> Vec<u8> + Send + 'static, verifier: VerifierKey) -> Figures {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // Ends with the test: it waits for connections, and nobody waits for it.
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            serve(stream.unwrap(), &answer);
        }
    });
    let entries = sign(LoadId([1; 8]), 0, 3, |_| ());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, load(phase(address, verifier), entries))
}

fn phase(address: SocketAddr, verifier: VerifierKey) -> Phase {
    let time_max = Duration::from_secs(5);
    Phase { address, verifier, writers: 1, pace: Pace::Full, time_max, stop: Arc::default() }
}

/// Answers requests of one connection until it is closed.
fn serve(mut stream: TcpStream, answer: &impl Fn(&[u8]) -> Vec<u8>) {
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let head = bytes.windows(4).position(|window| window == b"\r\n\r\n").map(|at| at + 4);
        let length = head.map(|head| {
            let text = std::str::from_utf8(&bytes[..head]).unwrap();
            let line = text.lines().find_map(|line| line.strip_prefix("Content-Length: ")).unwrap();
            head + line.parse::<usize>().unwrap()
        });
        if let (Some(head), Some(length)) = (head, length.filter(|length| bytes.len() >= *length)) {
            let said = answer(&bytes[head..length]);
            bytes.drain(..length);
            stream.write_all(&said).unwrap();
            continue;
        }
        match stream.read(&mut piece) {
            Ok(0) | Err(_) => return,
            Ok(count) => bytes.extend_from_slice(&piece[..count]),
        }
    }
}

fn log_key() -> SigningKey {
    SigningKey::from_seed(KeyName::new("example.com/log").unwrap(), &[7; 32])
}

fn created(body: &str) -> Vec<u8> {
    format!("HTTP/1.1 201 Created\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

/// The proof that an entry stands in a log of it and another one.
fn proof(entry: &[u8], key: &SigningKey) -> String {
    let leaves = [leaf_hash(entry), leaf_hash(b"another")];
    let mut edge = RightEdge::empty();
    edge.append(&leaves);
    let checkpoint = Checkpoint { origin: "example.com/log".to_owned(), head: edge.head() }.sign(key);
    let inclusion = InclusionProof(vec![leaves[1]]);
    TlogProof { extra: None, index: LeafIndex(0), inclusion, checkpoint }.format()
}

#[test]
fn a_lying_server_is_not_counted() {
    let verifier = log_key().verifier().clone();
    let honest = loaded(|entry| created(&proof(entry, &log_key())), verifier.clone());
    assert_eq!((honest.acknowledged, honest.not_counted, honest.failed), (3, 0, 0), "{honest:?}");

    let other_key = || SigningKey::from_seed(KeyName::new("example.com/log").unwrap(), &[8; 32]);
    let of_another_entry = loaded(|_| created(&proof(b"else", &log_key())), verifier.clone());
    let of_another_key = loaded(move |entry| created(&proof(entry, &other_key())), verifier.clone());
    let without_proof = loaded(|_| created("well received"), verifier.clone());
    for (figures, reason) in [
        (of_another_entry, "proof leads to root"),
        (of_another_key, "note has no signature of a known key"),
        (without_proof, "proof file has no blank line"),
    ] {
        assert_eq!((figures.acknowledged, figures.not_counted), (0, 3), "{figures:?}");
        let first = figures.first_not_counted.unwrap();
        assert!(first.contains(reason), "{first:?}, expected {reason:?}");
    }
    let garbage = loaded(|_| b"SSH-2.0-none\r\n\r\n".to_vec(), verifier);
    assert_eq!((garbage.acknowledged, garbage.failed), (0, 3), "{garbage:?}");
}

#[test]
fn a_busy_server_is_asked_again_and_the_entry_has_waited() {
    let asked = std::sync::atomic::AtomicU64::new(0);
    let busy_at_first = move |entry: &[u8]| match asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
        0 => b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n".to_vec(),
        _ => created(&proof(entry, &log_key())),
    };
    let figures = loaded(busy_at_first, log_key().verifier().clone());
    assert_eq!((figures.acknowledged, figures.busy, figures.not_counted), (3, 1, 0));
    assert!(figures.wait_ms(1.0) >= 10.0, "the time before the second asking counts: {figures:?}");
}
