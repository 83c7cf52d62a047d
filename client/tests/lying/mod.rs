//! A log in memory with a server of its tiles, honest until told otherwise: the log's real key, and every way to lie.

#![allow(dead_code, reason = "each test file uses another part")]

use schemas::bundle::ProvenEntry;
use schemas::completeness::Completeness;
use schemas::digest::{
    Checksum, ConfigDigest, EntryDigest, PlanDigest, ProfileDigest, RunId, Salt, Seal, StateDigest,
};
use schemas::key::{PublicKey, SecretKey};
use schemas::opening::Opening;
use schemas::prediction::{OpenBody, Prediction};
use schemas::register::{EntryLeaf, ListRoot, PredictionLeaf, Register};
use schemas::run::{Run, Steps};
use schemas::statement::{Payload, Statement};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use tlog::checkpoint::Checkpoint;
use tlog::compact::CompactTree;
use tlog::entries::push_entry;
use tlog::hash::{Hash, leaf_hash};
use tlog::note::{KeyName, SigningKey, Verifier as _};
use tlog::proof::{prove_consistency, prove_inclusion};
use tlog::tile::{Tile, TileKind, encode_hashes, tile_in_tree};
use tlog::tree::{HashReader as _, LeafIndex, NodeId, StoredHashes, TreeHead, TreeSize};

pub const ORIGIN: &str = "log.example/test";

pub fn key(number: u8) -> SecretKey {
    SecretKey::from_seed([number; 32])
}

/// A run by number.
pub fn run(number: u64) -> Run {
    Run {
        name: format!("run {number}"),
        profile: "f32-fma".into(),
        profile_digest: ProfileDigest([0; 32]),
        config: ConfigDigest([0; 32]),
        plan: PlanDigest([0; 32]),
        state: StateDigest([0; 32]),
        dataset: Checksum([0; 32]),
        steps: 1000,
        leaves: 1,
        devices_max: 1,
    }
}

pub fn prediction(run: RunId, first: u64, end: u64, reveal_by: u64) -> Payload {
    let (steps, seal) = (Steps { first, end }, Seal([1; 32]));
    Payload::Prediction(Prediction { run, steps, seal, reveal_by, by: None, open: None })
}

pub fn opening(run: RunId, prediction: EntryDigest, salt: u8) -> Payload {
    let body = schemas::attachment::AttachmentName::of(b"body");
    Payload::Opening(Opening { run, prediction, open: OpenBody { salt: Salt([salt; 32]), body } })
}

pub fn signed(payload: &Payload, signer: u8) -> Vec<u8> {
    Statement::sign(payload, &key(signer)).unwrap()
}

/// A log, as its key holder has it.
#[derive(Clone)]
pub struct Log {
    pub entries: Vec<Vec<u8>>,
    key: Arc<SigningKey>,
}

impl Log {
    pub fn new() -> Log {
        let key = SigningKey::from_seed(KeyName::new(ORIGIN).unwrap(), &[1; 32]);
        Log::of(vec![format!("tallystick log v1\norigin {ORIGIN}\n").into_bytes()], key)
    }

    /// A log that is there already.
    pub fn of(entries: Vec<Vec<u8>>, key: SigningKey) -> Log {
        Log { entries, key: Arc::new(key) }
    }

    /// The same entries in a log of the same name that another key signs.
    pub fn of_another_key(&self) -> Log {
        let name = self.key.verifier().name().clone();
        Log::of(self.entries.clone(), SigningKey::from_seed(name, &[2; 32]))
    }

    pub fn key(&self) -> &SigningKey {
        &self.key
    }

    pub fn size(&self) -> u64 {
        self.entries.len() as u64
    }

    /// Appends anything.
    pub fn append(&mut self, entry: Vec<u8>) -> EntryDigest {
        let digest = EntryDigest::of(&entry);
        self.entries.push(entry);
        digest
    }

    /// Appends a run statement.
    pub fn add_run(&mut self, number: u64) -> RunId {
        self.append(signed(&Payload::Run(run(number)), 1));
        run(number).id()
    }

    /// The register of a run that is right at the end of the log.
    pub fn register(&self, run: RunId) -> Register {
        let (mut entries, mut predictions) = (CompactTree::new(), CompactTree::new());
        for (index, entry) in (0..).zip(&self.entries) {
            let Ok(statement) = Statement::open(entry) else { continue };
            if statement.payload.run() == run {
                entries.push(leaf_hash(&EntryLeaf::of(index, &statement).encode()));
                if let Some(leaf) = PredictionLeaf::of(index, &statement) {
                    predictions.push(leaf_hash(&leaf.encode()));
                }
            }
        }
        let root = |tree: CompactTree| ListRoot { count: tree.size().0, root: *tree.head().root.as_bytes() };
        Register { run, size: self.size(), entries: root(entries), predictions: root(predictions) }
    }

    /// Appends a register, signed by the log.
    pub fn append_register(&mut self, register: Register) {
        let key = self.key();
        let signer = PublicKey::from_bytes(*key.verifier().public_key()).unwrap();
        let sign = |message: &[u8]| key.sign_bytes(message);
        self.entries.push(Statement::sign_by(&Payload::Register(register), signer, sign).unwrap());
    }

    /// Appends the right register.
    pub fn add_register(&mut self, run: RunId) {
        self.append_register(self.register(run));
    }

    /// A run with a prediction of 0..3 by key 2, opened, and its register: an honest story. The prediction's entry.
    pub fn add_story(&mut self, number: u64) -> (RunId, EntryDigest) {
        let id = self.add_run(number);
        let predicted = self.append(signed(&prediction(id, 0, 3, 1), 2));
        self.append(signed(&opening(id, predicted, 1), 2));
        self.add_register(id);
        (id, predicted)
    }

    /// The completeness file over the log's last entry, a register of `run`.
    pub fn completeness(&self, run: RunId) -> Completeness {
        let (size, index) = (self.size(), self.size() - 1);
        let statements = (0..).zip(&self.entries[..index as usize]);
        let statements = statements.filter_map(|(index, entry)| Some((index, Statement::open(entry).ok()?)));
        let of_run: Vec<_> = statements.filter(|(_, statement)| statement.payload.run() == run).collect();
        let predictions = of_run.iter().filter_map(|(index, other)| PredictionLeaf::of(*index, other));
        Completeness {
            checkpoint: self.checkpoint(size).into_bytes(),
            register: self.proven(index),
            predictions: predictions.collect(),
            entries: Some(of_run.iter().map(|(index, other)| EntryLeaf::of(*index, other)).collect()),
        }
    }

    /// An entry with its proof in the whole tree.
    pub fn proven(&self, index: u64) -> ProvenEntry {
        let proof = self.inclusion(index, self.size());
        ProvenEntry { index, bytes: self.entries[index as usize].clone(), proof }
    }

    pub fn inclusion(&self, index: u64, size: u64) -> Vec<[u8; 32]> {
        raw(&prove_inclusion(LeafIndex(index), TreeSize(size), &self.hashes()).unwrap().0)
    }

    pub fn consistency(&self, old: u64, new: u64) -> Vec<[u8; 32]> {
        raw(&prove_consistency(TreeSize(old), TreeSize(new), &self.hashes()).unwrap().0)
    }

    pub fn hashes(&self) -> StoredHashes {
        let mut hashes = StoredHashes::new();
        self.entries.iter().for_each(|entry| hashes.push(leaf_hash(entry)));
        hashes
    }

    /// The signed checkpoint of the first `size` entries.
    pub fn checkpoint(&self, size: u64) -> String {
        let head = TreeHead { size: TreeSize(size), root: self.hashes().root(TreeSize(size)) };
        let origin = self.key.verifier().name().as_str().to_owned();
        Checkpoint { origin, head }.sign(&self.key)
    }

    /// Every file of the log's static side, with the partial tiles of its size alone.
    pub fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let (size, hashes) = (TreeSize(self.size()), self.hashes());
        let mut files = BTreeMap::from([("/checkpoint".to_owned(), self.checkpoint(size.0).into_bytes())]);
        for kind in std::iter::once(TileKind::Entries).chain((0..8).map(TileKind::Hashes)) {
            for index in 0.. {
                let Some(tile) = tile_in_tree(kind, index, size) else { break };
                files.insert(format!("/{}", tile.path()), self.tile(tile, &hashes));
            }
        }
        files
    }

    fn tile(&self, tile: Tile, hashes: &StoredHashes) -> Vec<u8> {
        let items = tile.index * 256..tile.index * 256 + u64::from(tile.width);
        match tile.kind {
            TileKind::Entries => {
                let mut bundle = Vec::new();
                items.for_each(|at| push_entry(&mut bundle, &self.entries[at as usize]).unwrap());
                bundle
            }
            TileKind::Hashes(level) => {
                let nodes: Vec<NodeId> = items.map(|index| NodeId { level: 8 * level, index }).collect();
                encode_hashes(&hashes.read_hashes(&nodes).unwrap())
            }
        }
    }
}

fn raw(hashes: &[Hash]) -> Vec<[u8; 32]> {
    hashes.iter().map(|hash| *hash.as_bytes()).collect()
}

/// How an address is answered, where it is not a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Bytes(Vec<u8>),
    Status(u16),
    /// With a body, which a reader may tell.
    Refusal(u16, Vec<u8>),
    /// Never ends.
    Endless,
    /// Never begins.
    Nothing,
    /// Ends before it said it would.
    Short(Vec<u8>),
}

/// A server of files, and what it was asked.
#[derive(Clone, Default)]
pub struct Files {
    files: Arc<Mutex<BTreeMap<String, Answer>>>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Files {
    pub fn start(&self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let server = self.clone();
        // The threads end with the test's process.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let server = server.clone();
                std::thread::spawn(move || server.answer(stream.unwrap()));
            }
        });
        address
    }

    /// Shows a log, and nothing else any more.
    pub fn show(&self, log: &Log) {
        let files = log.files().into_iter().map(|(path, bytes)| (path, Answer::Bytes(bytes)));
        *self.files.lock().unwrap() = files.collect();
    }

    pub fn set(&self, path: &str, answer: Answer) {
        self.files.lock().unwrap().insert(path.to_owned(), answer);
    }

    pub fn remove(&self, path: &str) {
        assert!(self.files.lock().unwrap().remove(path).is_some(), "{path}");
    }

    /// Changes the bytes of a file.
    pub fn change(&self, path: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let mut files = self.files.lock().unwrap();
        let Some(Answer::Bytes(bytes)) = files.get_mut(path) else { panic!("{path}") };
        change(bytes);
    }

    /// What was asked since the last call.
    pub fn asked(&self) -> BTreeSet<String> {
        std::mem::take(&mut *self.asked.lock().unwrap()).into_iter().collect()
    }

    fn answer(&self, mut stream: TcpStream) {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
            while line.len() > 2 {
                line.clear();
                reader.read_line(&mut line).unwrap();
            }
            self.asked.lock().unwrap().push(path.clone());
            let answer = self.files.lock().unwrap().get(&path).cloned();
            let (status, bytes, promised) = match answer {
                None => (404, vec![], 0),
                Some(Answer::Status(status)) => (status, vec![], 0),
                Some(Answer::Refusal(status, bytes)) => (status, bytes.clone(), bytes.len() as u64),
                Some(Answer::Bytes(bytes)) => (200, bytes.clone(), bytes.len() as u64),
                Some(Answer::Short(bytes)) => (200, bytes.clone(), bytes.len() as u64 + 1),
                Some(Answer::Endless) => (200, vec![b'x'; 1 << 16], 1 << 40),
                Some(Answer::Nothing) => loop {
                    std::thread::park();
                },
            };
            let head = format!("HTTP/1.1 {status} X\r\nContent-Length: {promised}\r\n\r\n");
            let mut sent = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&bytes));
            while promised == 1 << 40 && sent.is_ok() {
                sent = stream.write_all(&bytes);
            }
            if sent.is_err() || promised != bytes.len() as u64 {
                return;
            }
        }
    }
}
