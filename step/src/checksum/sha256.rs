//! SHA-256 of many messages of one length: what a Merkle tree's level is made of.
//!
//! Hashing is not arithmetic of the profile, so it does not follow the backend: the fastest way this machine has is
//! taken. `sha2` hashes what the others leave, everything where they are not available, and is what tests compare
//! them with.

#[cfg(target_arch = "x86_64")]
use super::{sha256_pair, sha256_wide};
use sha2::{Digest as _, Sha256};

/// A digest's 32 bytes as little-endian words, so that two of them side by side are the words of a node.
pub type Digest = [u32; 8];

/// A word of a tensor: four bytes of plain data.
pub trait Word: Copy + Sync {
    /// Whether the words are f32.
    const FLOAT: bool;
    /// The word that counts: that of the value, every NaN being one (its bits differ between machines; a step with a
    /// NaN is invalid, and its record must still be the same everywhere).
    fn word(self) -> u32;
}

impl Word for f32 {
    const FLOAT: bool = true;
    fn word(self) -> u32 {
        if self.is_nan() { schemas::fold::NAN_WORD } else { self.to_bits() }
    }
}

impl Word for u32 {
    const FLOAT: bool = false;
    fn word(self) -> u32 {
        self
    }
}

/// A way to hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// One message after the other, with `sha2`.
    Plain,
    /// Two at a time with the SHA instructions.
    #[cfg(target_arch = "x86_64")]
    Pair,
    /// 32 at a time with AVX-512.
    #[cfg(target_arch = "x86_64")]
    Wide,
}

impl Way {
    /// Every way this machine has, slowest first.
    pub fn all() -> Vec<Way> {
        let mut all = vec![Way::Plain];
        #[cfg(target_arch = "x86_64")]
        {
            all.extend(sha256_pair::available().then_some(Way::Pair));
            all.extend(sha256_wide::available().then_some(Way::Wide));
        }
        all
    }

    /// SHA-256(prefix || message) of every message; the words of the messages, `length` each, lie one after the other.
    pub fn hash<W: Word>(self, prefix: u8, length: usize, words: &[W], digests: &mut [Digest]) {
        assert_eq!(words.len(), length * digests.len(), "sha256: messages of {length} words");
        match self {
            Way::Plain => {
                for (message, digest) in words.chunks_exact(length).zip(digests) {
                    *digest = plain(prefix, message);
                }
            }
            #[cfg(target_arch = "x86_64")]
            Way::Pair => {
                groups(prefix, length, words, digests, 2, |messages| sha256_pair::hash(prefix, messages))
            }
            // A group takes the time of about sixteen messages by themselves.
            #[cfg(target_arch = "x86_64")]
            Way::Wide => {
                groups(prefix, length, words, digests, 16, |messages| sha256_wide::hash(prefix, messages))
            }
        }
    }
}

/// Hashes `LANES` messages at a time. A last group of at least `least` has its last message repeated; a smaller one
/// is hashed another way.
#[cfg(target_arch = "x86_64")]
fn groups<W: Word, const LANES: usize>(
    prefix: u8,
    length: usize,
    words: &[W],
    digests: &mut [Digest],
    least: usize,
    hash: impl Fn([&[W]; LANES]) -> [Digest; LANES],
) {
    let another = if LANES > sha256_pair::LANES && sha256_pair::available() { Way::Pair } else { Way::Plain };
    for (words, digests) in words.chunks(LANES * length).zip(digests.chunks_mut(LANES)) {
        if digests.len() < least {
            return another.hash(prefix, length, words, digests);
        }
        let last = digests.len() - 1;
        let found = hash(std::array::from_fn(|lane| &words[lane.min(last) * length..][..length]));
        digests.copy_from_slice(&found[..=last]);
    }
}

/// SHA-256(prefix || message).
pub fn plain<W: Word>(prefix: u8, message: &[W]) -> Digest {
    let mut hasher = Sha256::new().chain_update([prefix]);
    let mut bytes = [0; 256];
    for part in message.chunks(bytes.len() / 4) {
        for (place, word) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(part) {
            *place = word.word().to_le_bytes();
        }
        hasher.update(&bytes[..4 * part.len()]);
    }
    let digest: [u8; 32] = hasher.finalize().into();
    let mut words = [0; 8];
    for (word, bytes) in words.iter_mut().zip(digest.as_chunks::<4>().0) {
        *word = u32::from_le_bytes(*bytes);
    }
    words
}

/// Initial state (FIPS 180-4 section 5.3.3).
#[cfg(target_arch = "x86_64")]
pub const INITIAL: [u32; 8] =
    [0x6a09_e667, 0xbb67_ae85, 0x3c6e_f372, 0xa54f_f53a, 0x510e_527f, 0x9b05_688c, 0x1f83_d9ab, 0x5be0_cd19];

/// Constants of the rounds (FIPS 180-4 section 4.2.2).
#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
pub const ROUND: [[u32; 16]; 4] = [
    [
        0x428a_2f98, 0x7137_4491, 0xb5c0_fbcf, 0xe9b5_dba5, 0x3956_c25b, 0x59f1_11f1, 0x923f_82a4, 0xab1c_5ed5,
        0xd807_aa98, 0x1283_5b01, 0x2431_85be, 0x550c_7dc3, 0x72be_5d74, 0x80de_b1fe, 0x9bdc_06a7, 0xc19b_f174,
    ],
    [
        0xe49b_69c1, 0xefbe_4786, 0x0fc1_9dc6, 0x240c_a1cc, 0x2de9_2c6f, 0x4a74_84aa, 0x5cb0_a9dc, 0x76f9_88da,
        0x983e_5152, 0xa831_c66d, 0xb003_27c8, 0xbf59_7fc7, 0xc6e0_0bf3, 0xd5a7_9147, 0x06ca_6351, 0x1429_2967,
    ],
    [
        0x27b7_0a85, 0x2e1b_2138, 0x4d2c_6dfc, 0x5338_0d13, 0x650a_7354, 0x766a_0abb, 0x81c2_c92e, 0x9272_2c85,
        0xa2bf_e8a1, 0xa81a_664b, 0xc24b_8b70, 0xc76c_51a3, 0xd192_e819, 0xd699_0624, 0xf40e_3585, 0x106a_a070,
    ],
    [
        0x19a4_c116, 0x1e37_6c08, 0x2748_774c, 0x34b0_bcb5, 0x391c_0cb3, 0x4ed8_aa4a, 0x5b9c_ca4f, 0x682e_6ff3,
        0x748f_82ee, 0x78a5_636f, 0x84c8_7814, 0x8cc7_0208, 0x90be_fffa, 0xa450_6ceb, 0xbef9_a3f7, 0xc671_78f2,
    ],
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Words that hurt among others: NaNs of several bits, infinities, zeros of both signs.
    fn words(count: usize) -> Vec<f32> {
        let nasty = [0x7fc0_0000, 0xffc1_2345, 0x7f80_0001, 0x7f80_0000, 0xff80_0000, 0x8000_0000, 0, 1];
        let word = |i: usize| (i as u32 + 1).wrapping_mul(2_654_435_761);
        let pick = |i: usize| if word(i) >> 28 == 0 { nasty[i % nasty.len()] } else { word(i) };
        (0..count).map(|i| f32::from_bits(pick(i))).collect()
    }

    #[test]
    fn every_way_gives_the_digests_of_sha2() {
        for (length, most) in [(16, 130), (32, 66), (1024, 34)] {
            for count in 0..=most {
                let floats = words(length * count);
                let bits: Vec<u32> = floats.iter().map(|value| value.to_bits()).collect();
                for prefix in [0, 1, 0xff] {
                    let want = |message: &[u32]| plain(prefix, message);
                    let canonical: Vec<u32> = floats.iter().map(|value| value.word()).collect();
                    let of_bits: Vec<Digest> = bits.chunks(length).map(want).collect();
                    let of_floats: Vec<Digest> = canonical.chunks(length).map(want).collect();
                    for way in Way::all() {
                        let mut found = vec![[0; 8]; count];
                        way.hash(prefix, length, &bits, &mut found);
                        assert_eq!(found, of_bits, "{way:?}: {count} messages of {length} u32");
                        way.hash(prefix, length, &floats, &mut found);
                        assert_eq!(found, of_floats, "{way:?}: {count} messages of {length} f32");
                    }
                }
            }
        }
    }

    #[test]
    fn the_plain_digest_is_of_the_prefix_and_the_little_endian_bytes() {
        let message = [0x0403_0201_u32, 0x0807_0605];
        let expected: [u8; 32] = Sha256::digest([9, 1, 2, 3, 4, 5, 6, 7, 8]).into();
        assert_eq!(plain(9, &message).map(u32::to_le_bytes).as_flattened(), expected);
    }
}
