//! Proof files (C2SP tlog-proof, extension `.tlog-proof`): everything needed to check offline that an entry is in
//! a log, except the entry itself and the log's key.
//!
//! ```text
//! c2sp.org/tlog-proof@v1
//! extra <base64>                     (optional, not authenticated)
//! index <decimal>
//! <base64 sibling hash>              (none or more, from the leaf up)
//!
//! <checkpoint note, verbatim>
//! ```

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use thiserror::Error;

use crate::checkpoint::{Checkpoint, CheckpointError, parse_decimal};
use crate::hash::{Hash, HashError};
use crate::note::{NOTE_BYTES_MAX, Verifier};
use crate::proof::{InclusionProof, Leaf, PROOF_HASHES_MAX, ProofError, check_inclusion};
use crate::tree::LeafIndex;

const HEADER: &str = "c2sp.org/tlog-proof@v1";

/// Longest proof file that is looked at: a note, the hashes, and extra data of up to 64 KiB.
pub const PROOF_BYTES_MAX: usize = NOTE_BYTES_MAX + 128 * 1024;

/// A parsed proof file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlogProof {
    /// Opaque extra data; nothing vouches for it.
    pub extra: Option<Vec<u8>>,
    /// The entry's position.
    pub index: LeafIndex,
    /// The sibling hashes.
    pub inclusion: InclusionProof,
    /// The checkpoint note, exactly as published.
    pub checkpoint: String,
}

/// Why bytes are not a proof file, or not a proof.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TlogProofError {
    /// The file is longer than the limit.
    #[error("proof file is {found} bytes, expected at most {PROOF_BYTES_MAX}")]
    TooLong {
        /// Bytes found.
        found: usize,
    },
    /// The file is not UTF-8.
    #[error("proof file is not utf-8")]
    NotText,
    /// The first line is another one.
    #[error("proof file starts with {found:?}, expected {HEADER:?}")]
    BadHeader {
        /// The line found.
        found: String,
    },
    /// The extra line is not canonical base64.
    #[error("extra line is not canonical base64")]
    BadExtra,
    /// There is no index line where it must be.
    #[error("index line is {found:?}, expected index and a canonical decimal")]
    BadIndex {
        /// The line found.
        found: String,
    },
    /// A line between the index and the blank line is not a hash.
    #[error("proof line {line}: {source}")]
    BadHash {
        /// Its number, from 1.
        line: usize,
        /// What is wrong with it.
        source: HashError,
    },
    /// There are more hashes than any tree needs.
    #[error("proof has more than {PROOF_HASHES_MAX} hashes")]
    TooManyHashes,
    /// There is no blank line before the checkpoint.
    #[error("proof file has no blank line before the checkpoint")]
    NoCheckpoint,
    /// The checkpoint does not stand.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The hashes do not lead to the checkpoint's root.
    #[error(transparent)]
    Proof(#[from] ProofError),
}

impl TlogProof {
    /// The proof file's text.
    pub fn format(&self) -> String {
        let mut text = format!("{HEADER}\n");
        if let Some(extra) = &self.extra {
            text.push_str(&format!("extra {}\n", STANDARD.encode(extra)));
        }
        text.push_str(&format!("index {}\n", self.index));
        for hash in &self.inclusion.0 {
            text.push_str(&format!("{hash}\n"));
        }
        text.push('\n');
        text.push_str(&self.checkpoint);
        text
    }

    /// Parses a proof file strictly. The checkpoint is taken verbatim and looked at only by [`TlogProof::check`].
    pub fn parse(bytes: &[u8]) -> Result<TlogProof, TlogProofError> {
        if bytes.len() > PROOF_BYTES_MAX {
            return Err(TlogProofError::TooLong { found: bytes.len() });
        }
        let text = std::str::from_utf8(bytes).map_err(|_| TlogProofError::NotText)?;
        let (proof, checkpoint) = text.split_once("\n\n").ok_or(TlogProofError::NoCheckpoint)?;
        let mut lines = proof.split('\n');
        let header = lines.next().unwrap_or_default();
        if header != HEADER {
            return Err(TlogProofError::BadHeader { found: header.to_owned() });
        }
        let mut line = lines.next().unwrap_or_default();
        let mut extra = None;
        if let Some(encoded) = line.strip_prefix("extra ") {
            extra = Some(STANDARD.decode(encoded).map_err(|_| TlogProofError::BadExtra)?);
            line = lines.next().unwrap_or_default();
        }
        let index = line.strip_prefix("index ").and_then(parse_decimal);
        let index = index.ok_or_else(|| TlogProofError::BadIndex { found: line.to_owned() })?;
        let mut hashes = Vec::new();
        for (at, line) in lines.enumerate() {
            if at == PROOF_HASHES_MAX {
                return Err(TlogProofError::TooManyHashes);
            }
            let hash = Hash::from_base64(line);
            hashes.push(hash.map_err(|source| TlogProofError::BadHash { line: at + 1, source })?);
        }
        Ok(TlogProof {
            extra,
            index: LeafIndex(index),
            inclusion: InclusionProof(hashes),
            checkpoint: checkpoint.to_owned(),
        })
    }

    /// Checks the proof for the entry with this leaf hash in the log of that origin and key, and returns the
    /// checkpoint it stands on.
    pub fn check(
        &self,
        leaf_hash: Hash,
        origin: &str,
        log: &dyn Verifier,
    ) -> Result<Checkpoint, TlogProofError> {
        let checkpoint = Checkpoint::open(self.checkpoint.as_bytes(), origin, log)?;
        check_inclusion(&self.inclusion, Leaf { index: self.index, hash: leaf_hash }, checkpoint.head)?;
        Ok(checkpoint)
    }
}
