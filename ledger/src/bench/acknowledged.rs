//! What counts: an answer that proves that this very entry is in the log.

use std::collections::VecDeque;

use axum::http::StatusCode;
use tlog::checkpoint::Checkpoint;
use tlog::hash::leaf_hash;
use tlog::note::{Verifier as _, VerifierKey};
use tlog::proof::{Leaf, check_inclusion};
use tlog::tlog_proof::TlogProof;
use tlog::tree::{LeafIndex, TreeHead};

use crate::bench::connection::Answer;

/// Notes kept whose signature has been verified: all entries of one commit are proven under one note.
const NOTES_MAX: usize = 64;

/// What an answer is worth.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The entry is new in the log, at this place, and the proof holds.
    Acknowledged(LeafIndex),
    /// The server asks to come again.
    Busy,
    /// Anything else.
    NotCounted(String),
}

/// Checks answers under the log's key.
#[derive(Debug)]
pub struct Checker {
    verifier: VerifierKey,
    verified: VecDeque<(String, TreeHead)>,
}

impl Checker {
    /// Trusts this key and nothing else.
    pub fn new(verifier: VerifierKey) -> Checker {
        Checker { verifier, verified: VecDeque::new() }
    }

    /// What the answer to an entry is worth.
    pub fn check(&mut self, entry: &[u8], answer: Answer<'_>) -> Outcome {
        match StatusCode::from_u16(answer.status) {
            Ok(StatusCode::CREATED) => {}
            Ok(StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS) => return Outcome::Busy,
            _ => return Outcome::NotCounted(format!("status is {}, expected 201", answer.status)),
        }
        match self.place(entry, answer.body) {
            Ok(index) => Outcome::Acknowledged(index),
            Err(reason) => Outcome::NotCounted(reason),
        }
    }

    fn place(&mut self, entry: &[u8], proof: &[u8]) -> Result<LeafIndex, String> {
        let proof = TlogProof::parse(proof).map_err(|error| error.to_string())?;
        let head = self.head(proof.checkpoint)?;
        let leaf = Leaf { index: proof.index, hash: leaf_hash(entry) };
        check_inclusion(&proof.inclusion, leaf, head).map_err(|error| error.to_string())?;
        Ok(proof.index)
    }

    /// The tree head of a note. A note's signature is verified once: the same text has the same signature.
    fn head(&mut self, note: String) -> Result<TreeHead, String> {
        if let Some((_, head)) = self.verified.iter().rev().find(|(known, _)| *known == note) {
            return Ok(*head);
        }
        let opened = Checkpoint::open(note.as_bytes(), self.verifier.name().as_str(), &self.verifier);
        let head = opened.map_err(|error| error.to_string())?.head;
        if self.verified.len() == NOTES_MAX {
            self.verified.pop_front();
        }
        self.verified.push_back((note, head));
        Ok(head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tlog::edge::RightEdge;
    use tlog::note::{KeyName, SigningKey};
    use tlog::proof::InclusionProof;

    fn key(seed: u8) -> SigningKey {
        SigningKey::from_seed(KeyName::new("example.com/log").unwrap(), &[seed; 32])
    }

    /// The proof of the first of two entries, signed by a key.
    fn proof(signer: &SigningKey) -> TlogProof {
        let leaves = [leaf_hash(b"one"), leaf_hash(b"two")];
        let mut edge = RightEdge::empty();
        edge.append(&leaves);
        let checkpoint = Checkpoint { origin: "example.com/log".to_owned(), head: edge.head() };
        let inclusion = InclusionProof(vec![leaves[1]]);
        TlogProof { extra: None, index: LeafIndex(0), inclusion, checkpoint: checkpoint.sign(signer) }
    }

    fn outcome(checker: &mut Checker, entry: &[u8], status: u16, proof: &TlogProof) -> Outcome {
        checker.check(entry, Answer { status, body: proof.format().as_bytes() })
    }

    #[test]
    fn only_a_new_entry_with_a_proof_that_holds_is_counted() {
        let mut checker = Checker::new(key(1).verifier().clone());
        let good = proof(&key(1));
        // Twice: with the note verified now, and before.
        for _ in 0..2 {
            let first = Outcome::Acknowledged(LeafIndex(0));
            assert_eq!(outcome(&mut checker, b"one", 201, &good), first);
            let not_counted = |outcome| matches!(outcome, Outcome::NotCounted(_));
            assert!(not_counted(outcome(&mut checker, b"two", 201, &good)), "another entry's proof");
            assert!(not_counted(outcome(&mut checker, b"one", 200, &good)), "an entry that was there");
            assert!(not_counted(outcome(&mut checker, b"one", 500, &good)));
            assert!(not_counted(outcome(&mut checker, b"one", 201, &proof(&key(2)))), "another key");
            let mut other = good.clone();
            other.checkpoint = other.checkpoint.replacen("\n2\n", "\n3\n", 1);
            assert!(not_counted(outcome(&mut checker, b"one", 201, &other)), "a changed note");
            let empty = Answer { status: 201, body: b"" };
            assert!(not_counted(checker.check(b"one", empty)));
        }
        assert_eq!(outcome(&mut checker, b"one", 503, &good), Outcome::Busy);
        assert_eq!(checker.verified.len(), 1);
    }

    #[test]
    fn verified_notes_are_bounded() {
        let mut checker = Checker::new(key(1).verifier().clone());
        for size in 0..200 {
            let head = TreeHead { size: tlog::tree::TreeSize(size + 1), root: leaf_hash(b"any") };
            let note = Checkpoint { origin: "example.com/log".to_owned(), head }.sign(&key(1));
            assert_eq!(checker.head(note).unwrap(), head);
        }
        assert_eq!(checker.verified.len(), NOTES_MAX);
    }
}
