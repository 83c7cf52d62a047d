//! A log in memory.

use schemas::bundle::ProvenEntry;
use schemas::key::PublicKey;
use schemas::register::Register;
use schemas::statement::{Payload, Statement};
use std::convert::Infallible;
use tlog::checkpoint::Checkpoint;
use tlog::hash::{Hash, leaf_hash};
use tlog::note::{KeyName, SigningKey, VerifierKey};
use tlog::proof::{prove_consistency, prove_inclusion};
use tlog::tree::{HashReader, LeafIndex, NodeId, StoredHashes, TreeHead, TreeSize, root_hash};

pub struct Log {
    pub entries: Vec<Vec<u8>>,
    hashes: Hashes,
    key: SigningKey,
}

/// Hashes of a tree whose first leaves are nobody's: only the subtrees that they fill are there, and these are made up.
struct Hashes {
    /// How many, a multiple of a power of two that is above the number of the others.
    before: u64,
    own: StoredHashes,
}

impl HashReader for Hashes {
    type Error = Infallible;

    fn read_hashes(&self, nodes: &[NodeId]) -> Result<Vec<Hash>, Infallible> {
        let read = |node: &NodeId| match node.index << node.level < self.before {
            true => Ok(leaf_hash(format!("nobody's {} {}", node.level, node.index).as_bytes())),
            false => {
                let index = node.index - (self.before >> node.level);
                Ok(self.own.read_hashes(&[NodeId { level: node.level, index }])?[0])
            }
        };
        nodes.iter().map(read).collect()
    }
}

impl Log {
    /// A log with one entry of nobody's.
    pub fn new(origin: &str, seed: u8) -> Log {
        Log::after(0, origin, seed)
    }

    /// The same, and before it as many as this.
    pub fn after(before: u64, origin: &str, seed: u8) -> Log {
        let key = SigningKey::from_seed(KeyName::new(origin).unwrap(), &[seed; 32]);
        let hashes = Hashes { before, own: StoredHashes::new() };
        let mut log = Log { entries: vec![], hashes, key };
        log.append(b"genesis".to_vec());
        log
    }

    pub fn key(&self) -> &VerifierKey {
        self.key.verifier()
    }

    /// Logs a register signed by the log's key.
    pub fn append_register(&mut self, register: Register) -> u64 {
        let signer = PublicKey::from_bytes(*self.key().public_key()).unwrap();
        let payload = Payload::Register(register);
        let bytes = Statement::sign_by(&payload, signer, |message| self.key.sign_bytes(message)).unwrap();
        self.append(bytes)
    }

    pub fn append(&mut self, entry: Vec<u8>) -> u64 {
        self.hashes.own.push(leaf_hash(&entry));
        self.entries.push(entry);
        self.size() - 1
    }

    pub fn size(&self) -> u64 {
        self.hashes.before + self.entries.len() as u64
    }

    pub fn entry(&self, index: u64) -> &[u8] {
        &self.entries[(index - self.hashes.before) as usize]
    }

    /// The signed checkpoint of the first `size` entries.
    pub fn checkpoint(&self, size: u64) -> Vec<u8> {
        let size = TreeSize(size);
        let origin = tlog::note::Verifier::name(self.key()).as_str().to_owned();
        let checkpoint =
            Checkpoint { origin, head: TreeHead { size, root: root_hash(size, &self.hashes).unwrap() } };
        checkpoint.sign(&self.key).into_bytes()
    }

    pub fn inclusion(&self, index: u64, size: u64) -> Vec<[u8; 32]> {
        raw(&prove_inclusion(LeafIndex(index), TreeSize(size), &self.hashes).unwrap().0)
    }

    pub fn consistency(&self, old: u64, new: u64) -> Vec<[u8; 32]> {
        raw(&prove_consistency(TreeSize(old), TreeSize(new), &self.hashes).unwrap().0)
    }

    pub fn proven(&self, index: u64, size: u64) -> ProvenEntry {
        let bytes = self.entry(index).to_vec();
        ProvenEntry { index, bytes, proof: self.inclusion(index, size) }
    }
}

fn raw(hashes: &[Hash]) -> Vec<[u8; 32]> {
    hashes.iter().map(|hash| *hash.as_bytes()).collect()
}
