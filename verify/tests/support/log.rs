//! A log in memory.

use schemas::bundle::ProvenEntry;
use schemas::key::PublicKey;
use schemas::register::Register;
use schemas::statement::{Payload, Statement};
use tlog::checkpoint::Checkpoint;
use tlog::hash::{Hash, leaf_hash};
use tlog::note::{KeyName, SigningKey, VerifierKey};
use tlog::proof::{prove_consistency, prove_inclusion};
use tlog::tree::{LeafIndex, StoredHashes, TreeHead, TreeSize};

pub struct Log {
    pub entries: Vec<Vec<u8>>,
    hashes: StoredHashes,
    key: SigningKey,
}

impl Log {
    /// A log with one entry of nobody's.
    pub fn new(origin: &str, seed: u8) -> Log {
        let key = SigningKey::from_seed(KeyName::new(origin).unwrap(), &[seed; 32]);
        let mut log = Log { entries: vec![], hashes: StoredHashes::new(), key };
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
        self.hashes.push(leaf_hash(&entry));
        self.entries.push(entry);
        self.entries.len() as u64 - 1
    }

    pub fn size(&self) -> u64 {
        self.entries.len() as u64
    }

    /// The signed checkpoint of the first `size` entries.
    pub fn checkpoint(&self, size: u64) -> Vec<u8> {
        let size = TreeSize(size);
        let origin = tlog::note::Verifier::name(self.key()).as_str().to_owned();
        let checkpoint = Checkpoint { origin, head: TreeHead { size, root: self.hashes.root(size) } };
        checkpoint.sign(&self.key).into_bytes()
    }

    pub fn inclusion(&self, index: u64, size: u64) -> Vec<[u8; 32]> {
        raw(&prove_inclusion(LeafIndex(index), TreeSize(size), &self.hashes).unwrap().0)
    }

    pub fn consistency(&self, old: u64, new: u64) -> Vec<[u8; 32]> {
        raw(&prove_consistency(TreeSize(old), TreeSize(new), &self.hashes).unwrap().0)
    }

    pub fn proven(&self, index: u64, size: u64) -> ProvenEntry {
        let bytes = self.entries[index as usize].clone();
        ProvenEntry { index, bytes, proof: self.inclusion(index, size) }
    }
}

fn raw(hashes: &[Hash]) -> Vec<[u8; 32]> {
    hashes.iter().map(|hash| *hash.as_bytes()).collect()
}
