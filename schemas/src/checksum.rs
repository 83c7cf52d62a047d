//! A `checksum` commits to a tensor: a Merkle root over 4 KiB chunks, bound to dtype and shape
//! (docs/spec/checksum.md). This module holds the format; each executor computes the root with code of its own.

use crate::digest::{Checksum, StateDigest, digest};

/// Bytes of one chunk: the unit that can be opened.
pub const CHUNK_BYTES: usize = 4096;

/// The element type of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dtype {
    /// IEEE 754 binary32, little-endian.
    F32,
    /// Unsigned 32-bit integers, little-endian.
    U32,
}

impl Dtype {
    /// The code that stands in checksums and plans.
    pub fn code(self) -> u8 {
        match self {
            Dtype::F32 => 1,
            Dtype::U32 => 2,
        }
    }

    /// The dtype of a code.
    pub fn from_code(code: u64) -> Option<Dtype> {
        match code {
            1 => Some(Dtype::F32),
            2 => Some(Dtype::U32),
            _ => None,
        }
    }
}

/// Binds a Merkle root (RFC 6962 leaf prefix 0x00 and node prefix 0x01, over chunks of [`CHUNK_BYTES`]) to what the
/// bytes mean. `shape` has at most 255 dimensions.
pub fn bind(dtype: Dtype, shape: &[u64], merkle_root: &[u8; 32]) -> Checksum {
    let rank = u8::try_from(shape.len()).expect("checksum: shapes have at most 255 dimensions");
    let mut head = vec![dtype.code(), rank];
    shape.iter().for_each(|dimension| head.extend_from_slice(&dimension.to_le_bytes()));
    Checksum(digest("checksum", &[&head, merkle_root]))
}

/// The digest of a training state before `step`: flat parameters and both moments, each by its checksum.
pub fn state_digest(
    step: u64,
    parameters: Checksum,
    first_moment: Checksum,
    second_moment: Checksum,
) -> StateDigest {
    StateDigest(digest("state", &[&step.to_le_bytes(), &parameters.0, &first_moment.0, &second_moment.0]))
}
