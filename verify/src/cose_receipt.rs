//! Checks a COSE receipt (docs/spec/ledger.md, "COSE receipts"): the log signed the root that leads from this entry.

use schemas::cose_receipt::{CoseReceipt, CoseReceiptError, kid_of};
use schemas::digest::EntryDigest;
use tlog::hash::{Hash, leaf_hash};
use tlog::note::{Verifier as _, VerifierKey};
use tlog::proof::{InclusionProof, Leaf, ProofError, root_of};
use tlog::tree::{LeafIndex, TreeHead, TreeSize};

/// What a receipt shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipted {
    /// The entry's place.
    pub index: u64,
    /// The tree that it is in.
    pub head: TreeHead,
    /// When the receipt was made, by the log's word.
    pub issued_at_s: u64,
}

/// Why a receipt shows nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReceiptedError {
    /// It is none.
    #[error(transparent)]
    Form(#[from] CoseReceiptError),
    /// It is of another entry.
    #[error("COSE receipt: expected one of entry {expected}, found one of {found}")]
    Entry {
        /// The entry at hand.
        expected: EntryDigest,
        /// By the claims.
        found: EntryDigest,
    },
    /// It is of another log.
    #[error("COSE receipt: expected one of the log {expected:?} by its key, found {found:?}")]
    Log {
        /// The log's origin.
        expected: String,
        /// By the claims.
        found: String,
    },
    /// Its proof has not the length that such a place has.
    #[error("COSE receipt: {0}")]
    Proof(#[from] ProofError),
    /// What the proof leads to is not what was signed.
    #[error("COSE receipt: the log's key did not sign root {root} of size {size}, to which the proof leads")]
    Signature {
        /// The size.
        size: u64,
        /// The root.
        root: Hash,
    },
}

/// Checks that `receipt` is the log's, of `entry`.
pub fn check(receipt: &[u8], entry: &[u8], log: &VerifierKey) -> Result<Receipted, ReceiptedError> {
    let receipt = CoseReceipt::decode(receipt)?;
    let expected = EntryDigest::of(entry);
    if receipt.entry != expected {
        return Err(ReceiptedError::Entry { expected, found: receipt.entry });
    }
    if receipt.origin != log.name().as_str() || receipt.kid != kid_of(log.public_key()) {
        let expected = log.name().as_str().to_owned();
        return Err(ReceiptedError::Log { expected, found: receipt.origin });
    }
    let leaf = Leaf { index: LeafIndex(receipt.index), hash: leaf_hash(entry) };
    let path = InclusionProof(receipt.path.iter().map(|hash| Hash::new(*hash)).collect());
    let size = TreeSize(receipt.size);
    let root = root_of(&path, leaf, size)?;
    if !log.verify_bytes(&receipt.to_be_signed(root.as_bytes()), &receipt.signature) {
        return Err(ReceiptedError::Signature { size: receipt.size, root });
    }
    let CoseReceipt { index, issued_at_s, .. } = receipt;
    Ok(Receipted { index, head: TreeHead { size, root }, issued_at_s })
}
