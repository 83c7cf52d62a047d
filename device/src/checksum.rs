//! Checksums and folds of flat f32 vectors, in one walk over their 4 KiB blocks (docs/spec/checksum.md).
//!
//! This is the device's own code, written from the specification: a mistake shared with the oracle would be a
//! mistake that nobody sees. A block of a fold and a chunk of a checksum are the same 1024 words.

use schemas::checksum::{CHUNK_BYTES, Dtype, bind};
use schemas::digest::Checksum;
use schemas::fold::{BLOCK_WORDS, Fold, FoldKey, NAN_WORD};
use schemas::receipt::Sum;
use sha2::{Digest as _, Sha256};

const _: () = assert!(CHUNK_BYTES == 4 * BLOCK_WORDS, "a chunk is a block");

/// The coefficients of one fold key, for vectors up to some length.
pub struct Coefficients {
    table: Vec<(u64, u64)>,
    factors: Vec<(u64, u64)>,
}

/// A vector's checksum and fold, and whether all its words are finite numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digested {
    /// What a record holds.
    pub sum: Sum,
    /// False if some word is a NaN or an infinity.
    pub finite: bool,
}

impl Coefficients {
    /// The coefficients of `key` for vectors of at most `words_max` words.
    pub fn new(key: FoldKey, words_max: u64) -> Coefficients {
        let blocks = words_max.div_ceil(BLOCK_WORDS as u64);
        Coefficients {
            table: (0..BLOCK_WORDS as u64).map(|j| key.table(j)).collect(),
            factors: (0..blocks).map(|block| key.factor(block)).collect(),
        }
    }

    /// Checksum (of shape `[P]`) and fold of a vector.
    ///
    /// Panics if `words` is longer than these coefficients reach: every vector of a run has the plan's length.
    pub fn digest(&self, words: &[f32]) -> Digested {
        let mut root = MerkleRoot::default();
        let mut fold = Fold::default();
        let mut finite = true;
        let mut bytes = [0_u8; CHUNK_BYTES];
        for (block, part) in words.chunks(BLOCK_WORDS).enumerate() {
            for (place, word) in bytes.chunks_exact_mut(4).zip(part) {
                place.copy_from_slice(&bits_of(*word).to_le_bytes());
                finite &= word.is_finite();
            }
            root.push(&bytes[..4 * part.len()]);
            fold = add(fold, self.fold_block(block, part));
        }
        let checksum = bind(Dtype::F32, &[words.len() as u64], &root.finish());
        Digested { sum: Sum { checksum, fold }, finite }
    }

    /// The fold of a vector alone.
    pub fn fold(&self, words: &[f32]) -> Fold {
        let blocks = words.chunks(BLOCK_WORDS).enumerate();
        blocks.fold(Fold::default(), |sum, (block, part)| add(sum, self.fold_block(block, part)))
    }

    /// One block's share. Its factor is common to all its words, so it multiplies their sums once.
    fn fold_block(&self, block: usize, part: &[f32]) -> Fold {
        let (factor_a, factor_b) = self.factors[block];
        let (mut a, mut b) = (0_u64, 0_u64);
        for (word, (table_a, table_b)) in part.iter().zip(&self.table) {
            let bits = u64::from(bits_of(*word));
            a = a.wrapping_add(table_a.wrapping_mul(bits));
            b = b.wrapping_add(table_b.wrapping_mul(bits * bits));
        }
        Fold { a: a.wrapping_mul(factor_a), b: b.wrapping_mul(factor_b) }
    }
}

/// A word's bits, every NaN being one word: which NaN an operation gives differs between architectures, and the
/// record of an invalid step must still be the same on all.
fn bits_of(word: f32) -> u32 {
    if word.is_nan() { NAN_WORD } else { word.to_bits() }
}

fn add(one: Fold, other: Fold) -> Fold {
    Fold { a: one.a.wrapping_add(other.a), b: one.b.wrapping_add(other.b) }
}

/// Whether every word is a finite number.
pub fn all_finite(words: &[f32]) -> bool {
    words.iter().all(|word| word.is_finite())
}

/// Checksum of a flat f32 vector, shape `[words]`.
pub fn checksum_f32(words: &[f32]) -> Checksum {
    checksum(Dtype::F32, words.len(), words.iter().map(|word| bits_of(*word).to_le_bytes()))
}

/// Checksum of a flat u32 vector, shape `[words]`.
pub fn checksum_u32(words: &[u32]) -> Checksum {
    checksum(Dtype::U32, words.len(), words.iter().map(|word| word.to_le_bytes()))
}

fn checksum(dtype: Dtype, words: usize, bytes: impl Iterator<Item = [u8; 4]>) -> Checksum {
    let mut root = MerkleRoot::default();
    let mut chunk = Vec::with_capacity(CHUNK_BYTES);
    for word in bytes {
        chunk.extend_from_slice(&word);
        if chunk.len() == CHUNK_BYTES {
            root.push(&chunk);
            chunk.clear();
        }
    }
    if !chunk.is_empty() {
        root.push(&chunk);
    }
    bind(dtype, &[words as u64], &root.finish())
}

/// RFC 6962 section 2.1, chunk by chunk: the roots of full subtrees, largest first, each with its height.
#[derive(Default)]
struct MerkleRoot {
    subtrees: Vec<(u32, [u8; 32])>,
}

impl MerkleRoot {
    fn push(&mut self, chunk: &[u8]) {
        let mut hash: [u8; 32] = Sha256::new().chain_update([0]).chain_update(chunk).finalize().into();
        let mut height = 0;
        // Two full subtrees of one height are the halves of the next: heights stay strictly descending.
        while let Some((_, left)) = self.subtrees.pop_if(|(top, _)| *top == height) {
            hash = node(&left, &hash);
            height += 1;
        }
        self.subtrees.push((height, hash));
    }

    fn finish(mut self) -> [u8; 32] {
        // The split is at the largest power of two below the size, so the smaller subtrees join first.
        let Some((_, mut hash)) = self.subtrees.pop() else { return Sha256::digest([]).into() };
        while let Some((_, left)) = self.subtrees.pop() {
            hash = node(&left, &hash);
        }
        hash
    }
}

fn node(left: &[u8; 32], right: &[u8; 32]) -> [u8; 32] {
    Sha256::new().chain_update([1]).chain_update(left).chain_update(right).finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn painted(count: usize) -> Vec<f32> {
        (0..count as u32).map(|i| f32::from_bits(i.wrapping_mul(2_246_822_519) & 0x7f7f_ffff)).collect()
    }

    /// RFC 6962's recursion, word for word.
    fn plain_root(chunks: &[&[u8]]) -> [u8; 32] {
        match chunks.len() {
            0 => Sha256::digest([]).into(),
            1 => Sha256::new().chain_update([0]).chain_update(chunks[0]).finalize().into(),
            n => {
                let (left, right) = chunks.split_at(n.next_power_of_two() / 2);
                node(&plain_root(left), &plain_root(right))
            }
        }
    }

    #[test]
    fn the_root_is_the_one_of_rfc_6962_at_every_number_of_chunks() {
        let bytes = [7_u8; 70];
        for count in 0..70 {
            let chunks: Vec<&[u8]> = (0..count).map(|i| &bytes[..i + 1]).collect();
            let mut root = MerkleRoot::default();
            chunks.iter().for_each(|chunk| root.push(chunk));
            assert_eq!(root.finish(), plain_root(&chunks), "{count} chunks");
        }
    }

    #[test]
    fn a_digest_is_the_checksum_and_the_fold_of_the_specification() {
        let key = FoldKey([9; 32]);
        let coefficients = Coefficients::new(key, 5000);
        for count in [0, 1, 1023, 1024, 1025, 2048, 2049, 5000] {
            let words = painted(count);
            let (mut a, mut b) = (0_u64, 0_u64);
            for (i, word) in words.iter().enumerate() {
                let ((t, t2), (f, f2)) = (key.table(i as u64 % 1024), key.factor(i as u64 / 1024));
                let bits = u64::from(word.to_bits());
                a = a.wrapping_add(bits.wrapping_mul(t.wrapping_mul(f)));
                b = b.wrapping_add(bits.wrapping_mul(bits).wrapping_mul(t2.wrapping_mul(f2)));
            }
            let sum = Sum { checksum: checksum_f32(&words), fold: Fold { a, b } };
            assert_eq!(coefficients.digest(&words), Digested { sum, finite: true }, "{count} words");
            assert_eq!(coefficients.fold(&words), sum.fold, "{count} words");
        }
    }

    #[test]
    fn every_nan_counts_as_one_word_and_nothing_else_does() {
        let coefficients = Coefficients::new(FoldKey([1; 32]), 2);
        let digest = |bits| coefficients.digest(&[1.0, f32::from_bits(bits)]);
        assert_eq!(digest(0xffc1_2345), digest(0x7fc0_0000));
        assert_eq!(checksum_f32(&[f32::from_bits(0xffc1_2345)]), checksum_f32(&[f32::NAN]));
        assert_ne!(checksum_u32(&[0xffc1_2345]), checksum_u32(&[NAN_WORD]));
        assert_ne!(digest(0x7f80_0000).sum.fold, digest(0x7fc0_0000).sum.fold);
        assert!(!digest(0x7f80_0000).finite && !digest(0xff80_0001).finite && digest(0x8000_0000).finite);
        assert!(all_finite(&[0.0, -0.0]) && !all_finite(&[f32::NAN]) && !all_finite(&[f32::NEG_INFINITY]));
    }

    #[test]
    fn dtype_length_and_the_sign_of_zero_are_part_of_a_checksum() {
        assert_ne!(checksum_f32(&[0.0]), checksum_f32(&[-0.0]));
        assert_ne!(checksum_f32(&[0.0]), checksum_f32(&[0.0, 0.0]));
        assert_ne!(checksum_f32(&[1.0]), checksum_u32(&[1.0_f32.to_bits()]));
    }
}
