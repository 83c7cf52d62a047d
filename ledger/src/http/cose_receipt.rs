//! COSE Receipts (RFC 9942): the proof that an entry is in the log, in the form that the tools of SCITT read, signed
//! over the root by the log's own key.
//!
//! A receipt's signature covers the root and the protected header. Size and index of a proof stand outside of both, so
//! the size stands in the header once more: see docs/spec/ledger.md.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use schemas::cbor::Value;
use schemas::cose_receipt::{CoseReceipt, EDDSA, kid_of, required_of};
use schemas::digest::EntryDigest;
use tlog::note::{SigningKey, Verifier as _};
use tlog::proof::InclusionProof;
use tlog::tree::{LeafIndex, TreeHead};

/// What a receipt is made of.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// The entry.
    pub entry: EntryDigest,
    /// Its position.
    pub index: LeafIndex,
    /// The proof of it.
    pub inclusion: &'a InclusionProof,
    /// The tree that the proof leads to.
    pub head: TreeHead,
}

/// Signs receipts with the log's key.
#[derive(Debug, Clone)]
pub struct ReceiptSigner {
    key: Arc<SigningKey>,
    kid: [u8; 32],
}

impl ReceiptSigner {
    /// Signs with this key.
    pub fn new(key: Arc<SigningKey>) -> ReceiptSigner {
        let kid = kid_of(key.verifier().public_key());
        ReceiptSigner { key, kid }
    }

    /// The key's name in receipts: its thumbprint (RFC 9679).
    pub fn kid(&self) -> [u8; 32] {
        self.kid
    }

    /// The key's name in addresses.
    pub fn kid_text(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.kid)
    }

    /// The public key as a COSE_Key (RFC 9052, section 7).
    pub fn cose_key(&self) -> Value {
        let mut key = required_of(self.key.verifier().public_key());
        // 2: kid. 3: the only algorithm it is for.
        key.extend([(Value::Uint(2), Value::bytes(self.kid)), (Value::Uint(3), EDDSA)]);
        Value::Map(key)
    }

    /// A receipt, issued now; none for the only entry of a tree, whose empty path the form cannot express.
    pub fn receipt(&self, place: Place<'_>, now_unix_s: u64) -> Option<Vec<u8>> {
        if place.inclusion.0.is_empty() {
            return None;
        }
        let mut receipt = CoseReceipt {
            kid: self.kid,
            origin: self.key.verifier().name().as_str().to_owned(),
            entry: place.entry,
            issued_at_s: now_unix_s,
            size: place.head.size.0,
            index: place.index.0,
            path: place.inclusion.0.iter().map(|hash| *hash.as_bytes()).collect(),
            signature: [0; 64],
        };
        receipt.signature = self.key.sign_bytes(&receipt.to_be_signed(place.head.root.as_bytes()));
        Some(receipt.encode())
    }
}
