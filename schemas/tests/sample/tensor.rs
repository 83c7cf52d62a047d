//! Checksums and folds in their plainest form, straight from docs/spec/checksum.md: one more implementation to
//! compare with, and the source of the known answers in fixtures/checksum.

use schemas::checksum::{CHUNK_BYTES, Dtype, bind};
use schemas::digest::Checksum;
use schemas::fold::{BLOCK_WORDS, Fold, FoldKey};
use schemas::receipt::Sum;
use sha2::{Digest as _, Sha256};

/// `count` words that a label names: word i is the first four bytes, little-endian, of SHA-256(label || u64le i),
/// with bit 30 cleared, so that as f32 it is finite.
pub fn words(label: &str, count: u64) -> Vec<u32> {
    let word = |i: u64| {
        let hash = Sha256::new().chain_update(label).chain_update(i.to_le_bytes()).finalize();
        u32::from_le_bytes([hash[0], hash[1], hash[2], hash[3]]) & !(1 << 30)
    };
    (0..count).map(word).collect()
}

/// The checksum of a tensor.
pub fn checksum(dtype: Dtype, shape: &[u64], words: &[u32]) -> Checksum {
    assert_eq!(shape.iter().product::<u64>(), words.len() as u64, "shape and words");
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let chunks: Vec<&[u8]> = bytes.chunks(CHUNK_BYTES).collect();
    bind(dtype, shape, &super::tree::root(&chunks))
}

/// The fold of a tensor: two sums, word by word.
pub fn fold(key: FoldKey, words: &[u32]) -> Fold {
    let mut fold = Fold::default();
    for (block, block_words) in words.chunks(BLOCK_WORDS).enumerate() {
        let (f, f2) = key.factor(block as u64);
        for (j, word) in block_words.iter().enumerate() {
            let (t, t2) = key.table(j as u64);
            let w = u64::from(*word);
            fold.a = fold.a.wrapping_add(w.wrapping_mul(t.wrapping_mul(f)));
            fold.b = fold.b.wrapping_add(w.wrapping_mul(w).wrapping_mul(t2.wrapping_mul(f2)));
        }
    }
    fold
}

/// Both, of a flat f32 vector.
pub fn sum(key: FoldKey, words: &[u32]) -> Sum {
    Sum { checksum: checksum(Dtype::F32, &[words.len() as u64], words), fold: fold(key, words) }
}
