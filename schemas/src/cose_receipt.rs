//! A COSE receipt (RFC 9942): that an entry is in the log, in the form that the tools of SCITT read
//! (docs/spec/ledger.md, "COSE receipts"). The log makes them; here is how they are written and read, nothing else.

use crate::cbor::{self, CborError, Value};
use crate::digest::EntryDigest;
use sha2::{Digest as _, Sha256};

/// Longest receipt: of a path of 64 hashes, and an origin of some length.
pub const COSE_RECEIPT_BYTES_MAX: usize = 4096;
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
pub const EDDSA: Value = Value::Nint(7);
/// An RFC 9162 tree with SHA-256.
const RFC9162_SHA256: Value = Value::Uint(1);
/// Key -1 of the proofs.
const INCLUSION: Value = Value::Nint(0);
// CWT claims (RFC 8392), and one of private use: the size of the tree whose root is signed, -65537.
const ISS: Value = Value::Uint(1);
const SUB: Value = Value::Uint(2);
const IAT: Value = Value::Uint(6);
const TREE_SIZE: Value = Value::Nint(65_536);

/// A receipt. Whether its signature is the log's, and over which root, is for `verify` to tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoseReceipt {
    /// The thumbprint of the log's key.
    pub kid: [u8; 32],
    /// The log's origin.
    pub origin: String,
    /// The entry.
    pub entry: EntryDigest,
    /// When it was made, by the log's clock.
    pub issued_at_s: u64,
    /// Size of the tree whose root is signed.
    pub size: u64,
    /// The entry's place.
    pub index: u64,
    /// Sibling hashes, leaf to root; at least one.
    pub path: Vec<[u8; 32]>,
    /// The log's.
    pub signature: [u8; 64],
}

/// Why some bytes are not a receipt.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CoseReceiptError {
    /// Not deterministic CBOR within the limit.
    #[error("COSE receipt: {0}")]
    Cbor(#[from] CborError),
    /// Deterministic CBOR, but not of this form.
    #[error("COSE receipt: {part}: expected {expected}")]
    Form {
        /// Which part.
        part: &'static str,
        /// What was expected.
        expected: &'static str,
    },
    /// The size of the proof, which is not signed, is not the one that is.
    #[error(
        "COSE receipt: expected a proof in the tree of size {expected} that is signed, found one of size {found}"
    )]
    Size {
        /// By the claims.
        expected: u64,
        /// By the proof.
        found: u64,
    },
}

impl CoseReceipt {
    /// The one encoding.
    pub fn encode(&self) -> Vec<u8> {
        let path = self.path.iter().map(Value::bytes).collect();
        let proof = vec![Value::Uint(self.size), Value::Uint(self.index), Value::Array(path)];
        let proof = Value::Bytes(cbor::encode(&Value::Array(proof)));
        let proofs = Value::Map(vec![(INCLUSION, Value::Array(vec![proof]))]);
        let parts = vec![
            Value::Bytes(self.protected()),
            Value::Map(vec![(VDP, proofs)]),
            Value::Null,
            Value::bytes(self.signature),
        ];
        cbor::encode(&Value::Tag(COSE_SIGN1, Box::new(Value::Array(parts))))
    }

    /// Reads the one encoding.
    pub fn decode(bytes: &[u8]) -> Result<CoseReceipt, CoseReceiptError> {
        let value = cbor::decode(bytes, COSE_RECEIPT_BYTES_MAX)?;
        let form = |part, expected| CoseReceiptError::Form { part, expected };
        let parts = "tag 18 over [protected, {396: {-1: [proof]}}, null, signature of 64 bytes]";
        let (protected, proof, signature) = parts_of(value).ok_or(form("envelope", parts))?;
        let claims =
            "{1: -8, 4: kid of 32 bytes, 15: {1: origin, 2: SHA-256, 6: time, -65537: size}, 395: 1}";
        let (kid, origin, entry, issued_at_s, size) =
            claims_of(cbor::decode(&protected, bytes.len())?).ok_or(form("protected header", claims))?;
        let place = "[size, index, [hash, ...]]";
        let (found, index, path) =
            place_of(cbor::decode(&proof, bytes.len())?).ok_or(form("proof", place))?;
        if found != size {
            return Err(CoseReceiptError::Size { expected: size, found });
        }
        let receipt = CoseReceipt { kid, origin, entry, issued_at_s, size, index, path, signature };
        // Rebuilt and compared whole: what was not looked at above is as it has to be.
        if receipt.path.is_empty() || receipt.encode() != bytes {
            return Err(form("receipt", "the form of docs/spec/ledger.md and nothing besides"));
        }
        Ok(receipt)
    }

    /// What the signature is over (RFC 9052, section 4.4). The payload is the root, detached: whoever checks has to
    /// come to it.
    pub fn to_be_signed(&self, root: &[u8; 32]) -> Vec<u8> {
        cbor::encode(&Value::Array(vec![
            Value::text("Signature1"),
            Value::Bytes(self.protected()),
            Value::bytes([]),
            Value::bytes(root),
        ]))
    }

    fn protected(&self) -> Vec<u8> {
        let claims = vec![
            (ISS, Value::text(&self.origin)),
            (SUB, Value::text(self.entry.to_string())),
            (IAT, Value::Uint(self.issued_at_s)),
            (TREE_SIZE, Value::Uint(self.size)),
        ];
        cbor::encode(&Value::Map(vec![
            (ALG, EDDSA),
            (KID, Value::bytes(self.kid)),
            (CWT_CLAIMS, Value::Map(claims)),
            (VDS, RFC9162_SHA256),
        ]))
    }
}

/// Protected header, proof and signature.
fn parts_of(value: Value) -> Option<(Vec<u8>, Vec<u8>, [u8; 64])> {
    let Value::Tag(COSE_SIGN1, inner) = value else { return None };
    let Value::Array(parts) = *inner else { return None };
    let [Value::Bytes(protected), unprotected, Value::Null, Value::Bytes(signature)] =
        <[Value; 4]>::try_from(parts).ok()?
    else {
        return None;
    };
    let mut proofs = list(only(only(unprotected, VDP)?, INCLUSION)?)?;
    let Some(Value::Bytes(proof)) = proofs.pop().filter(|_| proofs.is_empty()) else { return None };
    Some((protected, proof, signature.try_into().ok()?))
}

type Claims = ([u8; 32], String, EntryDigest, u64, u64);

fn claims_of(value: Value) -> Option<Claims> {
    let Value::Map(header) = value else { return None };
    let claims = field(&header, CWT_CLAIMS)?;
    let (Value::Bytes(kid), Value::Map(claims)) = (field(&header, KID)?, claims) else { return None };
    let (Value::Text(origin), Value::Text(entry)) = (field(claims, ISS)?, field(claims, SUB)?) else {
        return None;
    };
    let (Value::Uint(time), Value::Uint(size)) = (field(claims, IAT)?, field(claims, TREE_SIZE)?) else {
        return None;
    };
    Some((kid[..].try_into().ok()?, origin.clone(), entry.parse().ok()?, *time, *size))
}

fn place_of(value: Value) -> Option<(u64, u64, Vec<[u8; 32]>)> {
    let [Value::Uint(size), Value::Uint(index), path] = <[Value; 3]>::try_from(list(value)?).ok()? else {
        return None;
    };
    let hash = |item: Value| match item {
        Value::Bytes(bytes) => <[u8; 32]>::try_from(bytes).ok(),
        _ => None,
    };
    Some((size, index, list(path)?.into_iter().map(hash).collect::<Option<_>>()?))
}

/// The value of a map's only key.
fn only(map: Value, key: Value) -> Option<Value> {
    let Value::Map(mut pairs) = map else { return None };
    let (found, value) = pairs.pop().filter(|_| pairs.is_empty())?;
    (found == key).then_some(value)
}

fn list(value: Value) -> Option<Vec<Value>> {
    match value {
        Value::Array(items) => Some(items),
        _ => None,
    }
}

fn field(pairs: &[(Value, Value)], key: Value) -> Option<&Value> {
    pairs.iter().find(|(found, _)| *found == key).map(|(_, value)| value)
}

/// The parts of an Ed25519 COSE_Key that its thumbprint is over: kty OKP, crv Ed25519, x.
pub fn required_of(public_key: &[u8; 32]) -> Vec<(Value, Value)> {
    vec![
        (Value::Uint(1), Value::Uint(1)),
        (Value::Nint(0), Value::Uint(6)),
        (Value::Nint(1), Value::bytes(public_key)),
    ]
}

/// A key's name in receipts: its thumbprint (RFC 9679).
pub fn kid_of(public_key: &[u8; 32]) -> [u8; 32] {
    Sha256::digest(cbor::encode(&Value::Map(required_of(public_key)))).into()
}
