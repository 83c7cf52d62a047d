//! A server that lies: what it says is held against keys, proofs and digests.

use client::http::HttpError;
use client::ledger::{Ledger, LedgerError};
use schemas::attachment::AttachmentName;
use schemas::digest::{EntryDigest, RunId};
use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use tlog::checkpoint::Checkpoint;
use tlog::hash::leaf_hash;
use tlog::note::{KeyName, SigningKey};
use tlog::proof::prove_inclusion;
use tlog::tlog_proof::TlogProof;
use tlog::tree::{LeafIndex, StoredHashes, TreeHead, TreeSize};

const ORIGIN: &str = "log.example/test";

/// Status and body.
type Answers = Vec<(u16, Vec<u8>)>;

/// Answers each address with the answers it was given, the last one for ever.
#[derive(Clone, Default)]
struct Server {
    answers: Arc<Mutex<HashMap<String, Answers>>>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn start(&self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let server = self.clone();
        // The thread ends with the test's process.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                server.answer(stream.unwrap());
            }
        });
        address
    }

    fn say(&self, path: &str, status: u16, body: impl AsRef<[u8]>) {
        let mut answers = self.answers.lock().unwrap();
        answers.entry(path.to_owned()).or_default().push((status, body.as_ref().to_vec()));
    }

    fn say_instead(&self, path: &str, status: u16, body: impl AsRef<[u8]>) {
        self.answers.lock().unwrap().remove(path);
        self.say(path, status, body);
    }

    fn answer(&self, mut stream: TcpStream) {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
        let mut length = 0;
        loop {
            let mut header = String::new();
            if reader.read_line(&mut header).unwrap() <= 2 {
                break;
            }
            if let Some(value) = header.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
        }
        std::io::copy(&mut reader.take(length), &mut std::io::sink()).unwrap();
        self.asked.lock().unwrap().push(path.clone());
        let (status, body) = {
            let mut answers = self.answers.lock().unwrap();
            match answers.get_mut(&path) {
                None => (404, Vec::new()),
                Some(list) if list.len() > 1 => list.remove(0),
                Some(list) => list[0].clone(),
            }
        };
        let head = format!(
            "HTTP/1.1 {status} X\r\nContent-Length: {}\r\nRetry-After: 0\r\nLocation: /elsewhere\r\n\
             Connection: close\r\n\r\n",
            body.len()
        );
        let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body));
    }
}

/// A log of three entries and the server of it.
struct Log {
    server: Server,
    address: String,
    key: SigningKey,
    hashes: StoredHashes,
}

fn log() -> Log {
    let key = SigningKey::from_seed(KeyName::new(ORIGIN).unwrap(), &[1; 32]);
    let mut hashes = StoredHashes::new();
    for entry in [b"zero", b"one.", b"two."] {
        hashes.push(leaf_hash(entry));
    }
    let server = Server::default();
    let address = server.start();
    let facts = serde_json::json!({ "key": key.verifier().to_string(), "origin": ORIGIN, "size": 3 });
    server.say("/log.json", 200, facts.to_string());
    let log = Log { server, address, key, hashes };
    log.server.say("/checkpoint", 200, log.checkpoint(3, &log.key));
    log
}

impl Log {
    fn head(&self, size: u64) -> TreeHead {
        TreeHead { size: TreeSize(size), root: self.hashes.root(TreeSize(size)) }
    }

    fn checkpoint(&self, size: u64, key: &SigningKey) -> String {
        Checkpoint { origin: ORIGIN.into(), head: self.head(size) }.sign(key)
    }

    fn proof(&self, index: u64, size: u64) -> TlogProof {
        let inclusion = prove_inclusion(LeafIndex(index), TreeSize(size), &self.hashes).unwrap();
        TlogProof {
            extra: None,
            index: LeafIndex(index),
            inclusion,
            checkpoint: self.checkpoint(size, &self.key),
        }
    }

    fn connect(&self) -> Result<Ledger, LedgerError> {
        Ledger::connect(&self.address, Some(self.key.verifier()))
    }
}

/// The error of a call that must not succeed.
fn error<T>(result: Result<T, LedgerError>) -> LedgerError {
    match result {
        Ok(_) => panic!("a lie was believed"),
        Err(error) => error,
    }
}

#[test]
fn an_honest_server_is_believed() {
    let log = log();
    let ledger = log.connect().unwrap();
    assert_eq!(ledger.checkpoint().unwrap().head, log.head(3));
    log.server.say("/entries", 201, log.proof(2, 3).format());
    let logged = ledger.submit(b"two.").unwrap();
    assert_eq!((logged.index, logged.repeated, logged.signed.head), (2, false, log.head(3)));
    log.server.say("/proof/1.tlog-proof?size=2", 200, log.proof(1, 2).format());
    assert_eq!(ledger.proof(b"one.", 1, 2).unwrap().signed.head, log.head(2));
    assert_eq!(ledger.run_entries(RunId([0; 32])).unwrap(), []);
}

#[test]
fn another_log_and_a_log_that_cannot_sign_are_refused() {
    let log = log();
    let other = SigningKey::from_seed(KeyName::new(ORIGIN).unwrap(), &[2; 32]);
    let refused = error(Ledger::connect(&log.address, Some(other.verifier())));
    assert!(matches!(refused, LedgerError::OtherLog { .. }), "{refused}");
    assert!(refused.hint().unwrap().contains("operator"));
    log.server.say_instead("/checkpoint", 200, log.checkpoint(3, &other));
    assert!(matches!(error(log.connect()), LedgerError::Checkpoint(_)));
    let facts = serde_json::json!({ "key": log.key.verifier().to_string(), "origin": "else", "size": 3 });
    log.server.say_instead("/log.json", 200, facts.to_string());
    assert!(matches!(error(log.connect()), LedgerError::Form { .. }));
    log.server.say_instead("/log.json", 200, "no json");
    assert!(matches!(error(log.connect()), LedgerError::Form { .. }));
}

#[test]
fn a_place_that_is_not_proven_is_not_believed() {
    let log = log();
    let ledger = log.connect().unwrap();
    log.server.say("/entries", 201, log.proof(1, 3).format());
    assert!(matches!(error(ledger.submit(b"two.")), LedgerError::Proof { .. }), "another entry's proof");
    let mut forged = log.proof(2, 3);
    let other = SigningKey::from_seed(KeyName::new(ORIGIN).unwrap(), &[2; 32]);
    forged.checkpoint = log.checkpoint(3, &other);
    log.server.say_instead("/entries", 201, forged.format());
    assert!(matches!(error(ledger.submit(b"two.")), LedgerError::Proof { .. }), "another key's checkpoint");
    // A right proof, of another size than the one asked for.
    log.server.say("/proof/1.tlog-proof?size=2", 200, log.proof(1, 3).format());
    assert!(matches!(error(ledger.proof(b"one.", 1, 2)), LedgerError::Form { .. }));
}

#[test]
fn bytes_are_held_against_their_names() {
    let log = log();
    let ledger = log.connect().unwrap();
    let (entry, attachment) = (EntryDigest::of(b"right"), AttachmentName::of(b"right"));
    log.server.say(&format!("/by-hash/{entry}"), 200, b"wrong");
    log.server.say(&format!("/attachments/{}", attachment.sha256), 200, b"wrong");
    assert!(matches!(error(ledger.entry(entry)), LedgerError::OtherBytes(_)));
    assert!(matches!(error(ledger.attachment(attachment)), LedgerError::OtherBytes(_)));
    log.server.say_instead(&format!("/attachments/{}", attachment.sha256), 200, b"right!");
    let longer = error(ledger.attachment(attachment));
    assert!(matches!(longer, LedgerError::Http(HttpError::TooLong { bytes_max: 5, .. })), "{longer}");
    log.server.say_instead(&format!("/attachments/{}", attachment.sha256), 200, b"right");
    assert_eq!(ledger.attachment(attachment).unwrap(), b"right");
}

#[test]
fn a_history_that_does_not_fit_is_not_believed() {
    let log = log();
    let ledger = log.connect().unwrap();
    let line = |entry: &[u8]| format!("{}\n", leaf_hash(entry));
    log.server.say("/consistency/2/3", 200, line(b"two."));
    assert_eq!(ledger.consistency(log.head(2), log.head(3)).unwrap().0.len(), 1);
    log.server.say_instead("/consistency/2/3", 200, line(b"2"));
    let lie = error(ledger.consistency(log.head(2), log.head(3)));
    assert!(matches!(lie, LedgerError::Inconsistent(_)));
    assert!(lie.hint().unwrap().contains("evidence against its operator"));
    log.server.say_instead("/consistency/2/3", 200, "no hash\n");
    assert!(matches!(error(ledger.consistency(log.head(2), log.head(3))), LedgerError::Hash(_)));
}

#[test]
fn a_busy_server_is_asked_again_a_bounded_number_of_times() {
    let log = log();
    let ledger = log.connect().unwrap();
    log.server.say("/entries", 503, b"");
    log.server.say("/entries", 503, b"");
    log.server.say("/entries", 200, log.proof(2, 3).format());
    assert!(ledger.submit(b"two.").unwrap().repeated);
    let problem = serde_json::json!({ "title": "busy", "detail": "too many\nsubmissions are waiting" });
    log.server.say_instead("/entries", 503, problem.to_string());
    log.server.asked.lock().unwrap().clear();
    let busy = error(ledger.submit(b"two."));
    assert!(busy.to_string().ends_with("/entries answered 503: too manysubmissions are waiting"), "{busy}");
    assert_eq!(log.server.asked.lock().unwrap().len(), 6);
}

#[test]
fn a_no_is_told_with_its_reason_and_redirects_are_not_followed() {
    let log = log();
    let ledger = log.connect().unwrap();
    let problem = serde_json::json!({ "detail": "run 00 is not in this log" });
    log.server.say("/entries", 409, problem.to_string());
    let no = error(ledger.submit(b"two."));
    assert!(no.to_string().ends_with("answered 409: run 00 is not in this log"), "{no}");
    assert!(no.hint().unwrap().contains("client submit run.cose"));
    log.server.say_instead("/entries", 302, b"");
    assert!(error(ledger.submit(b"two.")).to_string().ends_with("answered 302"));
    assert!(!log.server.asked.lock().unwrap().contains(&"/elsewhere".to_owned()));
    let long = vec![0; 61 << 10];
    assert!(matches!(error(ledger.submit(&long)), LedgerError::TooLong { what: "the entry", .. }));
}
