//! Merkle trees of RFC 6962 and a signed checkpoint in their plainest form, for fixtures only: recursion over
//! slices, as the RFC writes it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use schemas::cbor::{self, Value};
use schemas::key::SecretKey;
use sha2::{Digest as _, Sha256};

/// MTH, RFC 6962 section 2.1.
pub fn root(leaves: &[impl AsRef<[u8]>]) -> [u8; 32] {
    match leaves {
        [] => Sha256::digest([]).into(),
        [leaf] => Sha256::new().chain_update([0]).chain_update(leaf.as_ref()).finalize().into(),
        _ => {
            let (left, right) = leaves.split_at(split(leaves.len()));
            Sha256::new()
                .chain_update([1])
                .chain_update(root(left))
                .chain_update(root(right))
                .finalize()
                .into()
        }
    }
}

/// PATH(m, D[n]), RFC 6962 section 2.1.1: sibling hashes, leaf to root.
pub fn inclusion(index: usize, leaves: &[impl AsRef<[u8]>]) -> Vec<[u8; 32]> {
    if leaves.len() == 1 {
        return vec![];
    }
    let k = split(leaves.len());
    let (left, right) = leaves.split_at(k);
    let (mut path, sibling) = match index < k {
        true => (inclusion(index, left), root(right)),
        false => (inclusion(index - k, right), root(left)),
    };
    path.push(sibling);
    path
}

/// PROOF(m, D[n]), RFC 6962 section 2.1.2.
pub fn consistency(old: usize, leaves: &[impl AsRef<[u8]>]) -> Vec<[u8; 32]> {
    sub_proof(old, leaves, true)
}

fn sub_proof(old: usize, leaves: &[impl AsRef<[u8]>], whole: bool) -> Vec<[u8; 32]> {
    if old == leaves.len() {
        return if whole { vec![] } else { vec![root(leaves)] };
    }
    let k = split(leaves.len());
    let (left, right) = leaves.split_at(k);
    let (mut proof, other) = match old <= k {
        true => (sub_proof(old, left, whole), root(right)),
        false => (sub_proof(old - k, right, false), root(left)),
    };
    proof.push(other);
    proof
}

/// The largest power of two below `count`.
fn split(count: usize) -> usize {
    1 << (count - 1).ilog2()
}

/// A checkpoint over `leaves`, signed by `key` under the name `origin` (c2sp.org/tlog-checkpoint).
pub fn checkpoint(origin: &str, key: &SecretKey, leaves: &[impl AsRef<[u8]>]) -> String {
    let text = format!("{origin}\n{}\n{}\n", leaves.len(), STANDARD.encode(root(leaves)));
    let signature = [&key_hash(origin, key)[..], &key.sign(text.as_bytes())].concat();
    format!("{text}\n\u{2014} {origin} {}\n", STANDARD.encode(signature))
}

/// The verifier key of a log (c2sp.org/signed-note): `<name>+<key hash>+<base64 of 0x01 || public key>`.
pub fn vkey(origin: &str, key: &SecretKey) -> String {
    let typed = [&[1][..], &key.public().to_bytes()].concat();
    format!("{origin}+{}+{}", hex::encode(key_hash(origin, key)), STANDARD.encode(typed))
}

fn key_hash(origin: &str, key: &SecretKey) -> [u8; 4] {
    let hash =
        Sha256::new().chain_update(origin).chain_update(b"\n\x01").chain_update(key.public().to_bytes());
    hash.finalize()[..4].try_into().unwrap()
}

/// A COSE receipt (RFC 9942) of a leaf among `leaves`, as docs/spec/ledger.md has it.
pub fn receipt(
    origin: &str,
    key: &SecretKey,
    leaves: &[impl AsRef<[u8]>],
    index: usize,
    iat_unix_s: u64,
) -> Vec<u8> {
    let size = leaves.len() as u64;
    let minus = |n: u64| Value::Nint(n - 1);
    // RFC 9679: the key's required fields alone.
    let public = vec![
        (Value::Uint(1), Value::Uint(1)),
        (minus(1), Value::Uint(6)),
        (minus(2), Value::bytes(key.public().to_bytes())),
    ];
    let kid = Sha256::digest(cbor::encode(&Value::Map(public)));
    let claims = vec![
        (Value::Uint(1), Value::text(origin)),
        (Value::Uint(2), Value::text(hex::encode(Sha256::digest(&leaves[index])))),
        (Value::Uint(6), Value::Uint(iat_unix_s)),
        (minus(65_537), Value::Uint(size)),
    ];
    let protected = cbor::encode(&Value::Map(vec![
        (Value::Uint(1), minus(8)),
        (Value::Uint(4), Value::bytes(kid)),
        (Value::Uint(15), Value::Map(claims)),
        (Value::Uint(395), Value::Uint(1)),
    ]));
    let signed = vec![
        Value::text("Signature1"),
        Value::bytes(&protected),
        Value::bytes([]),
        Value::bytes(root(leaves)),
    ];
    let signature = key.sign(&cbor::encode(&Value::Array(signed)));
    let path = inclusion(index, leaves).into_iter().map(Value::bytes).collect();
    let proof = Value::Array(vec![Value::Uint(size), Value::Uint(index as u64), Value::Array(path)]);
    let proofs = Value::Map(vec![(minus(1), Value::Array(vec![Value::Bytes(cbor::encode(&proof))]))]);
    let parts = vec![
        Value::Bytes(protected),
        Value::Map(vec![(Value::Uint(396), proofs)]),
        Value::Null,
        Value::bytes(signature),
    ];
    cbor::encode(&Value::Tag(18, Box::new(Value::Array(parts))))
}
