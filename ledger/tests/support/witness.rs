//! What the tests of witnesses share: a log's checkpoints without a log, witnesses, and servers that pass for them.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ledger::http::app::Limits;
use ledger::witness::records::system_clock;
use ledger::witness::server::{Options, Running, start};
use sha2::{Digest as _, Sha256};
use tlog::checkpoint::Checkpoint;
use tlog::hash::leaf_hash;
use tlog::note::{KeyName, SigningKey, VerifierKey};
use tlog::proof::prove_consistency;
use tlog::tree::{StoredHashes, TreeHead, TreeSize};
use tlog::witness::AddCheckpoint;

use super::{Answer, request};

/// Entries of a [`Tree`].
pub const LEAVES: u64 = 4000;

/// A log without a server: a key, and a tree that has every size at once.
pub struct Tree {
    pub key: SigningKey,
    tree: StoredHashes,
}

impl Tree {
    /// A log of that name whose entries are made of a word; another word is another history.
    pub fn new(origin: &str, word: &str) -> Tree {
        let mut tree = StoredHashes::new();
        for index in 0..LEAVES {
            tree.push(leaf_hash(format!("{word} {index}").as_bytes()));
        }
        let seed = Sha256::digest(origin).into();
        Tree { key: SigningKey::from_seed(KeyName::new(origin).unwrap(), &seed), tree }
    }

    pub fn origin(&self) -> &str {
        use tlog::note::Verifier as _;
        self.key.verifier().name().as_str()
    }

    pub fn head(&self, size: u64) -> TreeHead {
        TreeHead { size: TreeSize(size), root: self.tree.root(TreeSize(size)) }
    }

    pub fn checkpoint(&self, size: u64) -> String {
        Checkpoint { origin: self.origin().to_owned(), head: self.head(size) }.sign(&self.key)
    }

    /// The request to cosign size `new` after size `old`.
    pub fn ask(&self, old: u64, new: u64) -> AddCheckpoint {
        let proof = prove_consistency(TreeSize(old.min(new)), TreeSize(new), &self.tree).unwrap();
        AddCheckpoint { old: TreeSize(old), proof, checkpoint: self.checkpoint(new) }
    }
}

/// Where a witness shows what it cosigned last of an origin.
pub fn path_of(origin: &str) -> String {
    format!("/{}/checkpoint", hex::encode(Sha256::digest(origin)))
}

pub fn add(address: SocketAddr, body: &AddCheckpoint) -> Answer {
    request(address, "POST", "/add-checkpoint", "", body.format().as_bytes()).unwrap()
}

pub fn options(data: &Path, logs: &[&VerifierKey]) -> Options {
    Options {
        data: data.to_owned(),
        listen: "127.0.0.1:0".parse().unwrap(),
        name: None,
        logs: logs.iter().map(|log| (*log).clone()).collect(),
        limits: Limits::default(),
        clock: system_clock,
    }
}

pub fn witness(data: &Path, logs: &[&VerifierKey]) -> Running {
    start(options(data, logs)).unwrap()
}

/// A witness as a process of its own.
pub struct WitnessProcess {
    pub child: Child,
    pub address: SocketAddr,
    pub verifier_key: String,
}

impl WitnessProcess {
    pub fn start(data: &Path, arguments: &[&str]) -> WitnessProcess {
        let mut child = Command::new(env!("CARGO_BIN_EXE_ledger"))
            .args(["witness", "--data"])
            .arg(data)
            .args(arguments)
            .args(if arguments.contains(&"--listen") { &[][..] } else { &["--listen", "0"] })
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
        let mut value = |name: &str| {
            let mut line = String::new();
            std::io::BufRead::read_line(&mut out, &mut line).unwrap();
            line.trim_end()
                .strip_prefix(name)
                .unwrap_or_else(|| panic!("{line:?}, expected {name:?}"))
                .to_owned()
        };
        let address = value("address: ").parse().unwrap();
        let verifier_key = value("verifier key: ");
        WitnessProcess { child, address, verifier_key }
    }
}

impl Drop for WitnessProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A server that reads requests and answers, to each connection anew, what a function makes of them. It is left to
/// itself: its threads end with the test's process.
pub fn pretender(answer: impl Fn(&str, &mut TcpStream) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let answer = Arc::new(answer);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (answer, mut stream) = (answer.clone(), stream.unwrap());
            std::thread::spawn(move || {
                while let Some(request) = read_request(&mut stream) {
                    answer(&request, &mut stream);
                }
            });
        }
    });
    address
}

/// One request's head and body.
fn read_request(stream: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head
                .lines()
                .find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
            if body.len() >= length.unwrap_or(0) {
                return Some(text);
            }
        }
        match stream.read(&mut piece) {
            Ok(0) | Err(_) => return None,
            Ok(length) => bytes.extend_from_slice(&piece[..length]),
        }
    }
}

/// Writes an answer; whether the other side still listens does not matter.
pub fn answer(stream: &mut TcpStream, status: u16, content_type: &str, body: &[u8]) {
    let length = body.len();
    let head =
        format!("HTTP/1.1 {status} x\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n\r\n");
    let _ = stream.write_all(&[head.as_bytes(), body].concat());
}

/// Asks again and again until it is so. The time only ends a test that fails.
pub fn until<T>(what: &str, mut asked: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = asked() {
            return found;
        }
        assert!(started.elapsed() < Duration::from_secs(30), "it never came to it that {what}");
        std::thread::yield_now();
    }
}
