//! What the tests of the server share: statements to submit, a plain HTTP client, and the server as a process.
#![allow(dead_code, missing_docs)] // Each test file uses its own part of it.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use ledger::http::app::Limits;
use ledger::http::server::{Options, Running, start};
use ledger::http::submitters::Rules;
use schemas::attachment::AttachmentName;
use schemas::digest::{EntryDigest, RunId, Salt, Seal};
use schemas::key::SecretKey;
use schemas::object::Object as _;
use schemas::opening::Opening;
use schemas::prediction::{OpenBody, Prediction};
use schemas::receipt::{DeviceFacts, Receipt};
use schemas::run::{Run, Steps};
use schemas::statement::{Payload, Statement};
use schemas::verdict::{Cause, Finding, Outcome, Phase, Verdict, WrongWord};
use tempfile::TempDir;

pub mod witness;

pub fn key(seed: u8) -> SecretKey {
    SecretKey::from_seed([seed; 32])
}

pub fn run(number: u64) -> Run {
    let run = Run::decode(include_bytes!("../../../fixtures/run/run.cbor")).unwrap();
    Run { name: format!("run {number}"), steps: 100, ..run }
}

pub fn run_statement(number: u64) -> Vec<u8> {
    Statement::sign(&Payload::Run(run(number)), &key(1)).unwrap()
}

pub fn prediction(run: RunId, first: u64, end: u64) -> Prediction {
    Prediction {
        run,
        steps: Steps { first, end },
        seal: Seal([first as u8; 32]),
        reveal_by: 4_000_000_000,
        by: None,
        open: None,
    }
}

pub fn prediction_statement(run: RunId, first: u64, end: u64, signer: u8) -> Vec<u8> {
    Statement::sign(&Payload::Prediction(prediction(run, first, end)), &key(signer)).unwrap()
}

pub fn opening_statement(run: RunId, prediction: EntryDigest, body: &[u8], signer: u8) -> Vec<u8> {
    let open = OpenBody { salt: Salt([9; 32]), body: AttachmentName::of(body) };
    Statement::sign(&Payload::Opening(Opening { run, prediction, open }), &key(signer)).unwrap()
}

pub fn receipt_statement(run: RunId, rank: u64, checkpoint: &[u8]) -> Vec<u8> {
    let receipt = Receipt {
        run,
        steps: Steps { first: 0, end: 100 },
        devices: 4,
        rank,
        simulated: true,
        facts: DeviceFacts {
            name: "<b>card & co</b>".to_owned(),
            architecture: "x86_64".to_owned(),
            driver: "none".to_owned(),
            units: 2,
            kernels: "1".to_owned(),
        },
        checkpoint: checkpoint.to_vec(),
        answer: None,
        body: AttachmentName::of(b"receipt body"),
    };
    Statement::sign(&Payload::Receipt(Box::new(receipt)), &key(10 + rank as u8)).unwrap()
}

pub fn verdict_statement(run: RunId, prediction: EntryDigest, receipts: Vec<EntryDigest>) -> Vec<u8> {
    let finding = Finding {
        device: key(11).public(),
        rank: 1,
        phase: Phase::Leaf,
        peer: None,
        leaf: Some(1),
        operation: Some("h.0.mlp.up".to_owned()),
        tensor: Some("activation".to_owned()),
        word: Some(WrongWord { element: 77, expected: 1.0_f32.to_bits(), found: 1.5_f32.to_bits() }),
        cause: Cause::Fault,
        note: "one bit".to_owned(),
    };
    let verdict = Verdict {
        run,
        prediction,
        opening: None,
        receipts,
        steps: Steps { first: 0, end: 100 },
        outcome: Outcome::Diverge,
        step: Some(17),
        findings: vec![finding],
        missing: vec![],
        simulated: true,
        answer: None,
        evidence: vec![],
    };
    Statement::sign(&Payload::Verdict(Box::new(verdict)), &key(1)).unwrap()
}

/// An HTTP answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (found, value) = line.split_once(": ")?;
            found.eq_ignore_ascii_case(name).then_some(value)
        })
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

/// One request on a connection of its own.
pub fn request(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &str,
    body: &[u8],
) -> io::Result<Answer> {
    let mut stream = TcpStream::connect(address)?;
    // Head and body are two writes; the second must not wait for the first one's acknowledgement.
    stream.set_nodelay(true)?;
    let length = body.len();
    let head = format!("{method} {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n{headers}");
    stream.write_all(format!("{head}Content-Length: {length}\r\n\r\n").as_bytes())?;
    // A server that refuses a body may close before all of it is sent; its answer still counts.
    let sent = stream.write_all(body);
    let answer = read_answer_to(method, &mut stream);
    if answer.is_err() {
        sent?;
    }
    answer
}

pub fn read_answer(stream: &mut TcpStream) -> io::Result<Answer> {
    read_answer_to("GET", stream)
}

fn read_answer_to(method: &str, stream: &mut TcpStream) -> io::Result<Answer> {
    let mut bytes = Vec::new();
    let read = stream.read_to_end(&mut bytes);
    let split = bytes.windows(4).position(|window| window == b"\r\n\r\n");
    let Some(split) = split else {
        read?;
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "no answer"));
    };
    let head = String::from_utf8_lossy(&bytes[..split]).into_owned();
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.ok_or_else(|| io::Error::other("no status"))?;
    let answer = Answer { status, head, body: bytes[split + 4..].to_vec() };
    let length: Option<usize> = answer.header("content-length").and_then(|length| length.parse().ok());
    if method != "HEAD" && length.is_some_and(|length| length > answer.body.len()) {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the answer was cut short"));
    }
    Ok(answer)
}

pub fn get(address: SocketAddr, path: &str) -> Answer {
    request(address, "GET", path, "", b"").unwrap()
}

pub fn submit(address: SocketAddr, statement: &[u8]) -> Answer {
    request(address, "POST", "/entries", "Content-Type: application/cose\r\n", statement).unwrap()
}

/// A folder for a log, in a temporary one that its lock lies in too.
pub struct Folder {
    temporary: TempDir,
    path: PathBuf,
}

impl Folder {
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The folder of the lock.
    pub fn lock(&self) -> PathBuf {
        self.temporary.path().join("log.lock")
    }
}

pub fn folder() -> Folder {
    let temporary = tempfile::tempdir().unwrap();
    let path = temporary.path().join("log");
    std::fs::create_dir(&path).unwrap();
    Folder { temporary, path }
}

/// A program of tests/independent, under the interpreter that its packages were installed for.
pub fn python(program: &str, argument: &Path) -> (bool, String) {
    let packages = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("python");
    let installed = std::fs::read_to_string(packages.join("installed"));
    let installed = installed.expect("verifiers in Python are missing: run tools/setup.sh test");
    let interpreter = installed.lines().next().unwrap();
    let program = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/independent").join(program);
    let mut command = Command::new(interpreter);
    let output = command.arg(program).arg(argument).env("PYTHONPATH", packages).output().unwrap();
    (output.status.success(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

pub fn submit_for_receipt(address: SocketAddr, statement: &[u8]) -> Answer {
    let headers = "Content-Type: application/cose\r\nAccept: application/cose\r\n";
    request(address, "POST", "/entries", headers, statement).unwrap()
}

pub fn copy_folder(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap();
    assert!(copied.success());
}

pub const ORIGIN: &str = "example.com/ledger-test";

pub fn options(data: &Path) -> Options {
    let listen = "127.0.0.1:0".parse().unwrap();
    Options {
        data: data.to_owned(),
        lock: None,
        listen,
        origin: Some(ORIGIN.to_owned()),
        limits: Limits::default(),
        rules: Rules::default(),
        witnesses: None,
    }
}

pub fn served(data: &Path) -> Running {
    start(options(data)).unwrap()
}

/// The server as a process of its own.
pub struct Process {
    pub child: Child,
    pub address: SocketAddr,
    pub verifier_key: String,
}

impl Process {
    pub fn start(data: &Path) -> Process {
        Process::start_with(data, Stdio::null())
    }

    pub fn start_with(data: &Path, stderr: Stdio) -> Process {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ledger"));
        command.args(["serve", "--listen", "0", "--origin", ORIGIN, "--data"]).arg(data);
        Process::of(command.stderr(stderr))
    }

    /// Starts a command that serves, and waits until it does.
    pub fn of(command: &mut Command) -> Process {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut value = |name: &str| {
            let line = lines.next().expect("the server did not start").unwrap();
            line.strip_prefix(name).unwrap_or_else(|| panic!("{line:?}, expected {name:?}")).to_owned()
        };
        let address = value("address: ").parse().unwrap();
        let verifier_key = value("verifier key: ");
        value("browse at ");
        Process { child, address, verifier_key }
    }

    /// SIGKILL: the process gets no chance to do anything.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// SIGTERM, and the exit status.
    pub fn terminate(mut self) -> Option<i32> {
        self.signal("-TERM");
        self.child.wait().unwrap().code()
    }

    /// Sends a signal by its option of `kill`.
    pub fn signal(&self, option: &str) {
        let sent = Command::new("kill").arg(option).arg(self.child.id().to_string()).status().unwrap();
        assert!(sent.success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // No test leaves a server behind, whatever became of it. One that has ended already is not signalled.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
