//! A `fold` locates: two integer sums over a tensor's 32-bit words (docs/spec/checksum.md, "Folds").
//!
//! With words w_i and odd coefficients k_i, k'_i below 2^64: `a = sum w_i k_i` and `b = sum w_i^2 k'_i`, modulo 2^64.
//! Integer sums have no order. If one word is wrong, the two differences give its place and both values
//! (`verify::locate`). A fold is no defence against a forger.

use crate::digest::{Challenge, PlanDigest, digest};

/// Words in a block: 4 KiB, the chunk of a checksum.
pub const BLOCK_WORDS: usize = 1024;
/// The word that stands for every NaN, whose bits differ between architectures.
pub const NAN_WORD: u32 = 0x7fc0_0000;

/// The two sums.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Fold {
    /// Sum of word x coefficient, modulo 2^64.
    pub a: u64,
    /// Sum of squared word x second coefficient, modulo 2^64.
    pub b: u64,
}

impl Fold {
    /// 16 bytes: both sums, little-endian.
    pub fn to_bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.a.to_le_bytes());
        bytes[8..].copy_from_slice(&self.b.to_le_bytes());
        bytes
    }

    /// The fold of 16 bytes.
    pub fn from_bytes(bytes: [u8; 16]) -> Fold {
        let (a, b) = bytes.split_at(8);
        let word = |half: &[u8]| u64::from_le_bytes(half.try_into().expect("fold: half of 16 bytes is 8"));
        Fold { a: word(a), b: word(b) }
    }
}

impl std::fmt::Debug for Fold {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", hex::encode(self.to_bytes()))
    }
}

/// What the coefficients are derived from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FoldKey(pub [u8; 32]);

impl From<PlanDigest> for FoldKey {
    fn from(plan: PlanDigest) -> FoldKey {
        FoldKey(plan.0)
    }
}

impl From<Challenge> for FoldKey {
    fn from(challenge: Challenge) -> FoldKey {
        FoldKey(challenge.0)
    }
}

impl FoldKey {
    /// Table entry `j < 1024`: the odd numbers t_j and t'_j.
    pub fn table(&self, j: u64) -> (u64, u64) {
        self.pair("fold/table", j)
    }

    /// Factor of a block: the odd numbers f and f'. The coefficients of word `1024 block + j` are `t_j f` and
    /// `t'_j f'`.
    pub fn factor(&self, block: u64) -> (u64, u64) {
        self.pair("fold/factor", block)
    }

    fn pair(&self, domain: &str, index: u64) -> (u64, u64) {
        let bytes = digest(domain, &[&self.0, &index.to_le_bytes()]);
        let word =
            |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("fold: 8 of 32 bytes")) | 1;
        (word(0), word(8))
    }
}
