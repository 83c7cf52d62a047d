//! Checksums and folds of tensors, computed on the CPU (docs/spec/checksum.md).

use rayon::prelude::*;
use schemas::checksum::{CHUNK_BYTES, Dtype, bind};
use schemas::digest::Checksum;
use schemas::fold::{BLOCK_WORDS, Fold, FoldKey, NAN_WORD};
use sha2::{Digest as _, Sha256};

/// Words of a chunk: the unit of both checksums and folds.
const CHUNK_WORDS: usize = CHUNK_BYTES / 4;
const _: () = assert!(CHUNK_WORDS == BLOCK_WORDS);

/// RFC 6962 section 2.1: prefix of a leaf hash.
const LEAF_PREFIX: [u8; 1] = [0];
/// RFC 6962 section 2.1: prefix of a node hash.
const NODE_PREFIX: [u8; 1] = [1];

/// The word of a value: its bits, except that every NaN is one word, since its bits differ between machines.
/// (A step with a NaN is invalid; its record must still be the same everywhere.)
fn word_of(value: f32) -> u32 {
    if value.is_nan() { NAN_WORD } else { value.to_bits() }
}

/// Checksum of an f32 tensor.
pub fn checksum_f32(shape: &[u64], words: &[f32]) -> Checksum {
    assert_words(shape, words.len());
    bind(Dtype::F32, shape, &merkle_root(words, word_of))
}

/// Checksum of a u32 tensor, such as the token stream.
pub fn checksum_u32(shape: &[u64], words: &[u32]) -> Checksum {
    assert_words(shape, words.len());
    bind(Dtype::U32, shape, &merkle_root(words, |word| word))
}

fn assert_words(shape: &[u64], words: usize) {
    assert_eq!(
        shape.iter().product::<u64>(),
        words as u64,
        "checksum: {words} words do not have shape {shape:?}"
    );
}

/// Merkle tree hash (RFC 6962 section 2.1) over chunks of 4096 little-endian bytes.
fn merkle_root<W: Copy + Sync>(words: &[W], bits: impl Fn(W) -> u32 + Sync) -> [u8; 32] {
    let chunks = words.par_chunks(CHUNK_WORDS);
    let mut level: Vec<[u8; 32]> = chunks.map(|chunk| leaf_hash(chunk, &bits)).collect();
    if level.is_empty() {
        return Sha256::digest([]).into();
    }
    // Pairing neighbours level by level, an odd last node moving up as it is, is the split at the largest
    // power of two of RFC 6962.
    while level.len() > 1 {
        level = level.par_chunks(2).map(node_hash).collect();
    }
    level[0]
}

fn leaf_hash<W: Copy>(chunk: &[W], bits: impl Fn(W) -> u32) -> [u8; 32] {
    let mut bytes = [0_u8; CHUNK_BYTES];
    for (place, word) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(chunk) {
        *place = bits(*word).to_le_bytes();
    }
    let hasher = Sha256::new().chain_update(LEAF_PREFIX);
    hasher.chain_update(&bytes[..4 * chunk.len()]).finalize().into()
}

fn node_hash(pair: &[[u8; 32]]) -> [u8; 32] {
    match pair {
        [left, right] => {
            Sha256::new().chain_update(NODE_PREFIX).chain_update(left).chain_update(right).finalize().into()
        }
        [one] => *one,
        _ => unreachable!("checksum: chunks of two hold one or two"),
    }
}

/// The coefficients of one key, up to a number of words.
pub struct FoldTables {
    /// t_j and t'_j of every place in a block.
    places: Vec<(u64, u64)>,
    /// f and f' of every block.
    factors: Vec<(u64, u64)>,
}

/// A fold, and whether every word was a finite number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Folded {
    /// The two sums.
    pub fold: Fold,
    /// False if a word was a NaN or an infinity.
    pub finite: bool,
}

impl FoldTables {
    /// The tables of `key` for tensors of at most `words_max` words.
    pub fn new(key: FoldKey, words_max: usize) -> FoldTables {
        let blocks = words_max.div_ceil(BLOCK_WORDS) as u64;
        FoldTables {
            places: (0..BLOCK_WORDS as u64).map(|j| key.table(j)).collect(),
            factors: (0..blocks).into_par_iter().map(|block| key.factor(block)).collect(),
        }
    }

    /// Folds an f32 tensor.
    pub fn fold(&self, words: &[f32]) -> Folded {
        let finite = |value: f32| value.is_finite();
        self.fold_words(words, word_of, finite)
    }

    /// Folds a u32 tensor, such as the tokens of a leaf.
    pub fn fold_u32(&self, words: &[u32]) -> Fold {
        self.fold_words(words, |word| word, |_| true).fold
    }

    /// The sums are of integers and have no order, so blocks may go to any thread.
    fn fold_words<W: Copy + Sync>(
        &self,
        words: &[W],
        word_of: impl Fn(W) -> u32 + Sync,
        is_finite: impl Fn(W) -> bool + Sync,
    ) -> Folded {
        assert!(words.len() <= self.factors.len() * BLOCK_WORDS, "fold: tensor longer than the tables");
        let nothing = || Folded { fold: Fold::default(), finite: true };
        let blocks = words.par_chunks(BLOCK_WORDS).zip(&self.factors).with_min_len(16);
        blocks.map(|(block, factors)| self.fold_block(block, *factors, &word_of, &is_finite)).reduce(
            nothing,
            |one, other| Folded {
                fold: Fold {
                    a: one.fold.a.wrapping_add(other.fold.a),
                    b: one.fold.b.wrapping_add(other.fold.b),
                },
                finite: one.finite && other.finite,
            },
        )
    }

    /// One block: the factor is common to its words, so it multiplies their sum.
    fn fold_block<W: Copy>(
        &self,
        block: &[W],
        (f, f_square): (u64, u64),
        word_of: impl Fn(W) -> u32,
        is_finite: impl Fn(W) -> bool,
    ) -> Folded {
        let (mut a, mut b, mut finite) = (0_u64, 0_u64, true);
        for (value, (t, t_square)) in block.iter().zip(&self.places) {
            let word = u64::from(word_of(*value));
            a = a.wrapping_add(word.wrapping_mul(*t));
            // A 32-bit word's square fits 64 bits.
            b = b.wrapping_add((word * word).wrapping_mul(*t_square));
            finite &= is_finite(*value);
        }
        Folded { fold: Fold { a: a.wrapping_mul(f), b: b.wrapping_mul(f_square) }, finite }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 6962's recursion, word for word.
    fn plain_root(chunks: &[Vec<u8>]) -> [u8; 32] {
        match chunks {
            [] => Sha256::digest([]).into(),
            [one] => Sha256::new().chain_update([0]).chain_update(one).finalize().into(),
            _ => {
                let split = (chunks.len().next_power_of_two() / 2).max(1);
                let (left, right) = chunks.split_at(split);
                let hasher = Sha256::new().chain_update([1]);
                hasher.chain_update(plain_root(left)).chain_update(plain_root(right)).finalize().into()
            }
        }
    }

    fn painted(count: usize) -> Vec<f32> {
        (0..count as u32).map(|i| f32::from_bits(i.wrapping_mul(2_654_435_761) & 0x7f7f_ffff)).collect()
    }

    #[test]
    fn a_checksum_is_the_tree_of_rfc_6962_over_chunks() {
        for count in [0, 1, 1023, 1024, 1025, 2048, 3000, 5 * 1024, 6 * 1024 + 7, 17 * 1024] {
            let words = painted(count);
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            let chunks: Vec<Vec<u8>> = bytes.chunks(4096).map(<[u8]>::to_vec).collect();
            let shape = [count as u64];
            assert_eq!(
                checksum_f32(&shape, &words),
                bind(Dtype::F32, &shape, &plain_root(&chunks)),
                "{count} words"
            );
        }
    }

    #[test]
    fn shape_dtype_and_the_sign_of_zero_are_part_of_a_checksum() {
        let words = painted(12);
        let bits: Vec<u32> = words.iter().map(|word| word.to_bits()).collect();
        assert_ne!(checksum_f32(&[12], &words), checksum_f32(&[3, 4], &words));
        assert_ne!(checksum_f32(&[12], &words), checksum_u32(&[12], &bits));
        assert_ne!(checksum_f32(&[1], &[0.0]), checksum_f32(&[1], &[-0.0]));
    }

    #[test]
    fn a_fold_is_the_two_sums_of_the_specification() {
        let key = FoldKey([7; 32]);
        for count in [0, 1, 1024, 1025, 3000] {
            let words = painted(count);
            let (mut a, mut b) = (0_u64, 0_u64);
            for (i, word) in words.iter().enumerate() {
                let ((t, t2), (f, f2)) = (key.table(i as u64 % 1024), key.factor(i as u64 / 1024));
                let word = u64::from(word.to_bits());
                a = a.wrapping_add(word.wrapping_mul(t.wrapping_mul(f)));
                b = b.wrapping_add(word.wrapping_mul(word).wrapping_mul(t2.wrapping_mul(f2)));
            }
            let folded = FoldTables::new(key, 3000).fold(&words);
            assert_eq!(folded, Folded { fold: Fold { a, b }, finite: true }, "{count} words");
        }
    }

    #[test]
    fn every_nan_folds_as_one_word_and_is_reported() {
        let tables = FoldTables::new(FoldKey([1; 32]), 3);
        let fold = |word: u32| tables.fold(&[1.0, f32::from_bits(word), 2.0]);
        assert_eq!(fold(0xffc1_2345), fold(0x7f80_0001));
        assert_eq!(fold(0x7fc0_0000), fold(0x7f80_0001));
        assert!(!fold(0x7fc0_0000).finite && !fold(0x7f80_0000).finite && !fold(0xff80_0000).finite);
        assert!(fold(0x7f7f_ffff).finite);
        assert_ne!(fold(0x7f80_0000).fold, fold(0x7fc0_0000).fold, "an infinity is not a NaN");
        let checksum = |word: u32| checksum_f32(&[1], &[f32::from_bits(word)]);
        assert_eq!(checksum(0xffc1_2345), checksum(0x7fc0_0000));
        assert_ne!(checksum(0x7f80_0000), checksum(0x7fc0_0000));
    }

    #[test]
    fn a_fold_of_integers_keeps_words_that_would_be_nan() {
        let tables = FoldTables::new(FoldKey([1; 32]), 2);
        assert_ne!(tables.fold_u32(&[5, 0xffc1_2345]), tables.fold_u32(&[5, NAN_WORD]));
        assert_eq!(tables.fold_u32(&[5, 6]), tables.fold(&[5, 6].map(f32::from_bits)).fold);
    }
}
