//! The lists of a run's entries and predictions, and the registers that the log makes over them
//! (docs/spec/register.md).
//!
//! Of a list its tree's compact form is kept, so that a register costs the same whatever the run's length.

use schemas::digest::{EntryDigest, RunId};
use schemas::key::PublicKey;
use schemas::register::{EntryLeaf, ListRoot, PredictionLeaf, Register};
use schemas::statement::{Payload, Statement, StatementError};
use tlog::compact::CompactTree;
use tlog::hash::leaf_hash;
use tlog::note::SigningKey;

/// What is kept of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunLists {
    entries: CompactTree,
    predictions: CompactTree,
    /// Leaf index of the newest register.
    newest: Option<u64>,
}

/// Whether a register of the run has to follow an entry, in the same commit.
pub fn calls_for_register(payload: &Payload) -> bool {
    matches!(payload, Payload::Opening(_) | Payload::Verdict(_))
}

impl RunLists {
    /// Adds the run's next entry.
    pub fn push(&mut self, index: u64, entry: EntryDigest, signer: PublicKey, payload: &Payload) {
        let leaf = EntryLeaf { index, kind: payload.stem(), signer, entry };
        self.entries.push(leaf_hash(&leaf.encode()));
        match payload {
            Payload::Prediction(prediction) => {
                let leaf = PredictionLeaf { index, signer, steps: prediction.steps, entry };
                self.predictions.push(leaf_hash(&leaf.encode()));
            }
            Payload::Register(_) => self.newest = Some(index),
            _ => {}
        }
    }

    /// Leaf index of the newest register, if there is one.
    pub fn newest(&self) -> Option<u64> {
        self.newest
    }

    /// The register that comes next, at `index`.
    pub fn register(&self, run: RunId, index: u64) -> Register {
        let root = |list: &CompactTree| {
            let head = list.head();
            ListRoot { count: head.size.0, root: *head.root.as_bytes() }
        };
        Register { run, size: index, entries: root(&self.entries), predictions: root(&self.predictions) }
    }

    /// As bytes: the newest register's index plus one, and both lists.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = self.newest.map_or(0, |index| index + 1).to_le_bytes().to_vec();
        self.entries.encode(&mut bytes);
        self.predictions.encode(&mut bytes);
        bytes
    }

    /// What [`RunLists::encode`] wrote; none if it is anything else.
    pub fn decode(bytes: &[u8]) -> Option<RunLists> {
        let (newest, rest) = bytes.split_first_chunk::<8>()?;
        let (entries, rest) = CompactTree::decode(rest)?;
        let (predictions, rest) = CompactTree::decode(rest)?;
        let newest = u64::from_le_bytes(*newest).checked_sub(1);
        rest.is_empty().then_some(RunLists { entries, predictions, newest })
    }
}

/// The entry of a register, signed by the log.
///
/// A note's text is UTF-8 and what is signed of a statement begins with 0x84, so neither signature passes for the
/// other.
pub fn sign(register: Register, key: &SigningKey) -> Result<(Vec<u8>, Statement), StatementError> {
    let signer = PublicKey::from_bytes(*key.verifier().public_key()).map_err(StatementError::Key)?;
    let payload = Payload::Register(register);
    let bytes = Statement::sign_by(&payload, signer, |message| key.sign_bytes(message))?;
    let statement = Statement { digest: EntryDigest::of(&bytes), signer, payload };
    Ok((bytes, statement))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_come_back_as_they_were_kept() {
        let mut lists = RunLists { newest: Some(0), ..RunLists::default() };
        for count in 0..70u32 {
            assert_eq!(RunLists::decode(&lists.encode()).as_ref(), Some(&lists));
            let mut bytes = lists.encode();
            bytes.pop();
            assert_eq!(RunLists::decode(&bytes), None);
            lists.entries.push(leaf_hash(&count.to_le_bytes()));
            if count % 3 == 0 {
                lists.predictions.push(leaf_hash(&count.to_le_bytes()));
                lists.newest = None;
            }
        }
    }
}
