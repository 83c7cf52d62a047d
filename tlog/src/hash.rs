//! Merkle hashes (RFC 6962 section 2.1): SHA-256 with one prefix byte for leaves and another for nodes.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};
use thiserror::Error;

/// Bytes in a Merkle hash.
pub const HASH_BYTES: usize = 32;

// A leaf and a node can never be mistaken for one another, because their first hashed byte differs.
const LEAF_PREFIX: [u8; 1] = [0x00];
const NODE_PREFIX: [u8; 1] = [0x01];

/// A Merkle hash: a leaf hash, a node hash or a root hash.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hash([u8; HASH_BYTES]);

/// The root hash of the tree with no leaves: SHA-256 of nothing (RFC 6962 section 2.1).
pub const EMPTY_ROOT: Hash = Hash([
    0xe3, 0xb0, 0xc4, 0x42, 0x98, 0xfc, 0x1c, 0x14, 0x9a, 0xfb, 0xf4, 0xc8, 0x99, 0x6f, 0xb9, 0x24, 0x27,
    0xae, 0x41, 0xe4, 0x64, 0x9b, 0x93, 0x4c, 0xa4, 0x95, 0x99, 0x1b, 0x78, 0x52, 0xb8, 0x55,
]);

/// Why some text or bytes are not a hash.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum HashError {
    /// The text is not canonical padded standard base64.
    #[error("hash is not canonical padded base64")]
    NotBase64,
    /// The bytes are too few or too many.
    #[error("hash is {found} bytes, expected {HASH_BYTES}")]
    WrongLength {
        /// Bytes found.
        found: usize,
    },
}

impl Hash {
    /// Wraps 32 bytes.
    pub const fn new(bytes: [u8; HASH_BYTES]) -> Hash {
        Hash(bytes)
    }

    /// The 32 bytes.
    pub const fn as_bytes(&self) -> &[u8; HASH_BYTES] {
        &self.0
    }

    /// Takes exactly 32 bytes.
    pub fn from_slice(bytes: &[u8]) -> Result<Hash, HashError> {
        match bytes.try_into() {
            Ok(bytes) => Ok(Hash(bytes)),
            Err(_) => Err(HashError::WrongLength { found: bytes.len() }),
        }
    }

    /// Parses canonical padded standard base64 of exactly 32 bytes. An empty text is an error, not an absent hash.
    pub fn from_base64(text: &str) -> Result<Hash, HashError> {
        let bytes = STANDARD.decode(text).map_err(|_| HashError::NotBase64)?;
        Hash::from_slice(&bytes)
    }

    /// Padded standard base64, 44 characters.
    pub fn to_base64(&self) -> String {
        STANDARD.encode(self.0)
    }
}

impl std::fmt::Display for Hash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.to_base64())
    }
}

impl std::fmt::Debug for Hash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Hash({self})")
    }
}

/// The leaf hash of an entry: SHA-256(0x00 || entry).
pub fn leaf_hash(entry: &[u8]) -> Hash {
    let mut sha = Sha256::new();
    sha.update(LEAF_PREFIX);
    sha.update(entry);
    Hash(sha.finalize().into())
}

/// The hash of an inner node: SHA-256(0x01 || left || right).
pub fn node_hash(left: &Hash, right: &Hash) -> Hash {
    let mut sha = Sha256::new();
    sha.update(NODE_PREFIX);
    sha.update(left.0);
    sha.update(right.0);
    Hash(sha.finalize().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_empty_root_is_sha256_of_nothing() {
        assert_eq!(EMPTY_ROOT.0, <[u8; 32]>::from(Sha256::digest(b"")));
    }

    #[test]
    fn base64_that_is_not_canonical_is_rejected() {
        let good = EMPTY_ROOT.to_base64();
        assert_eq!(Hash::from_base64(&good), Ok(EMPTY_ROOT));
        // The last character before the padding carries four bits; the two spare bits must be zero.
        let spare_bit_set = good.replace("FU=", "FV=");
        assert_eq!(Hash::from_base64(&spare_bit_set), Err(HashError::NotBase64));
        assert_eq!(Hash::from_base64(good.trim_end_matches('=')), Err(HashError::NotBase64));
        assert_eq!(Hash::from_base64(""), Err(HashError::WrongLength { found: 0 }));
        assert_eq!(Hash::from_base64("AAAA"), Err(HashError::WrongLength { found: 3 }));
    }
}
