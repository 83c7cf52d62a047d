//! COSE Receipts (RFC 9942): the proof that an entry is in the log, in the form that the tools of SCITT read, signed
//! over the root by the log's own key.
//!
//! A receipt's signature covers the root and the protected header. Size and index of a proof stand outside of both, so
//! the size stands in the header once more: see docs/spec/ledger.md.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use schemas::cbor::{self, Value};
use schemas::digest::EntryDigest;
use sha2::{Digest, Sha256};
use tlog::note::{SigningKey, Verifier as _};
use tlog::proof::InclusionProof;
use tlog::tree::{LeafIndex, TreeHead};

/// Tag of a COSE_Sign1 (RFC 9052).
const COSE_SIGN1: u64 = 18;
// Header parameters.
const ALG: Value = Value::Uint(1);
const KID: Value = Value::Uint(4);
const CWT_CLAIMS: Value = Value::Uint(15);
/// Which structure the proof is of; RFC 9942.
const VDS: Value = Value::Uint(395);
/// The proofs; RFC 9942.
const VDP: Value = Value::Uint(396);
/// EdDSA is -8, and -n is written `-1 - (n - 1)`.
const EDDSA: Value = Value::Nint(7);
/// An RFC 9162 tree with SHA-256.
const RFC9162_SHA256: Value = Value::Uint(1);
/// Key -1 of the proofs.
const INCLUSION: Value = Value::Nint(0);
// CWT claims (RFC 8392), and one of private use: the size of the tree whose root is signed, -65537.
const ISS: Value = Value::Uint(1);
const SUB: Value = Value::Uint(2);
const IAT: Value = Value::Uint(6);
const TREE_SIZE: Value = Value::Nint(65_536);

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
        let kid = Sha256::digest(cbor::encode(&Value::Map(required(key.verifier().public_key())))).into();
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
        let mut key = required(self.key.verifier().public_key());
        // 2: kid. 3: the only algorithm it is for.
        key.extend([(Value::Uint(2), Value::bytes(self.kid)), (Value::Uint(3), EDDSA)]);
        Value::Map(key)
    }

    /// A receipt, issued now; none for the only entry of a tree, whose empty path the form cannot express.
    pub fn receipt(&self, place: Place<'_>, now_unix_s: u64) -> Option<Vec<u8>> {
        if place.inclusion.0.is_empty() {
            return None;
        }
        let size = place.head.size.0;
        let claims = vec![
            (ISS, Value::text(self.key.verifier().name().as_str())),
            (SUB, Value::text(place.entry.to_string())),
            (IAT, Value::Uint(now_unix_s)),
            (TREE_SIZE, Value::Uint(size)),
        ];
        let protected = cbor::encode(&Value::Map(vec![
            (ALG, EDDSA),
            (KID, Value::bytes(self.kid)),
            (CWT_CLAIMS, Value::Map(claims)),
            (VDS, RFC9162_SHA256),
        ]));
        let path = place.inclusion.0.iter().map(|hash| Value::bytes(hash.as_bytes())).collect();
        let proof = cbor::encode(&Value::Array(vec![
            Value::Uint(size),
            Value::Uint(place.index.0),
            Value::Array(path),
        ]));
        let proofs = Value::Map(vec![(INCLUSION, Value::Array(vec![Value::Bytes(proof)]))]);
        // RFC 9052, section 4.4. The payload is the root, detached: whoever checks has to come to it.
        let signature = self.key.sign_bytes(&cbor::encode(&Value::Array(vec![
            Value::text("Signature1"),
            Value::bytes(&protected),
            Value::bytes([]),
            Value::bytes(place.head.root.as_bytes()),
        ])));
        let parts = vec![
            Value::Bytes(protected),
            Value::Map(vec![(VDP, proofs)]),
            Value::Null,
            Value::bytes(signature),
        ];
        Some(cbor::encode(&Value::Tag(COSE_SIGN1, Box::new(Value::Array(parts)))))
    }
}

/// The parts of an Ed25519 COSE_Key that its thumbprint is over: kty OKP, crv Ed25519, x.
fn required(public_key: &[u8; 32]) -> Vec<(Value, Value)> {
    vec![
        (Value::Uint(1), Value::Uint(1)),
        (Value::Nint(0), Value::Uint(6)),
        (Value::Nint(1), Value::bytes(public_key)),
    ]
}
