//! Checksums and folds of tensors, computed on the CPU (docs/spec/checksum.md).

mod fold;
mod merkle;
mod sha256;
#[cfg(target_arch = "x86_64")]
mod sha256_pair;
#[cfg(target_arch = "x86_64")]
mod sha256_wide;

pub use fold::{FoldTables, Folded};

use schemas::checksum::{Dtype, bind};
use schemas::digest::Checksum;
use sha256::Way;
use std::sync::LazyLock;

/// The fastest way to hash, found once.
static WAY: LazyLock<Way> = LazyLock::new(|| *Way::all().last().expect("checksum: there is the plain way"));

/// Checksum of an f32 tensor.
pub fn checksum_f32(shape: &[u64], words: &[f32]) -> Checksum {
    assert_words(shape, words.len());
    bind(Dtype::F32, shape, &merkle::root(*WAY, words))
}

/// Checksum of a u32 tensor, such as the token stream.
pub fn checksum_u32(shape: &[u64], words: &[u32]) -> Checksum {
    assert_words(shape, words.len());
    bind(Dtype::U32, shape, &merkle::root(*WAY, words))
}

fn assert_words(shape: &[u64], words: usize) {
    assert_eq!(
        shape.iter().product::<u64>(),
        words as u64,
        "checksum: {words} words do not have shape {shape:?}"
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use sha2::{Digest as _, Sha256};

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
        // Around a chunk, and around the groups and tasks of chunks that are hashed together.
        let chunks = [2, 3, 5, 6, 15, 16, 17, 31, 32, 33, 47, 48, 63, 64, 65, 97, 130];
        let counts = [0, 1, 1023, 1024, 1025].into_iter().chain(chunks.map(|chunk| 1024 * chunk));
        for count in counts.flat_map(|count| [count, count + 1, count + 1023]) {
            let words = painted(count);
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            let chunks: Vec<Vec<u8>> = bytes.chunks(4096).map(<[u8]>::to_vec).collect();
            let shape = [count as u64];
            let (root, bits) =
                (plain_root(&chunks), words.iter().map(|word| word.to_bits()).collect::<Vec<_>>());
            assert_eq!(checksum_f32(&shape, &words), bind(Dtype::F32, &shape, &root), "{count} words");
            assert_eq!(checksum_u32(&shape, &bits), bind(Dtype::U32, &shape, &root), "{count} words");
            for way in Way::all() {
                assert_eq!(merkle::root(way, &words), root, "{way:?}: {count} words");
            }
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
    fn every_nan_is_one_word_in_a_checksum() {
        for count in [1, 1024, 70 * 1024] {
            for way in Way::all() {
                let root = |word: u32| merkle::root(way, &vec![f32::from_bits(word); count]);
                assert_eq!(root(0xffc1_2345), root(0x7fc0_0000), "{way:?}");
                assert_eq!(root(0x7f80_0001), root(0x7fc0_0000), "{way:?}");
                assert_ne!(root(0x7f80_0000), root(0x7fc0_0000), "an infinity is not a NaN");
            }
        }
    }
}
