//! Philox4x32-10: four words from a counter and a key, with no state in between.
//!
//! Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011), and the
//! known-answer file of Random123. It gives initial values and the data order; training itself is not random.

/// First multiplier of a round.
const MULTIPLIER_0: u32 = 0xD251_1F53;
/// Second multiplier of a round.
const MULTIPLIER_1: u32 = 0xCD9E_8D57;
/// Added to the first key word between rounds (golden ratio).
const WEYL_0: u32 = 0x9E37_79B9;
/// Added to the second key word between rounds (square root of 3, less 1).
const WEYL_1: u32 = 0xBB67_AE85;
/// Number of rounds: the "10" of the name.
const ROUNDS: usize = 10;

/// The high and low words of a 64-bit product.
#[inline(always)]
fn mul_hi_lo(a: u32, b: u32) -> (u32, u32) {
    let product = u64::from(a) * u64::from(b);
    ((product >> 32) as u32, product as u32)
}

/// The block of four words at `counter` under `key`.
#[inline]
pub fn philox4x32_10(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let [mut c0, mut c1, mut c2, mut c3] = counter;
    let [mut k0, mut k1] = key;
    for _ in 0..ROUNDS {
        let (hi0, lo0) = mul_hi_lo(MULTIPLIER_0, c0);
        let (hi1, lo1) = mul_hi_lo(MULTIPLIER_1, c2);
        (c0, c1, c2, c3) = (hi1 ^ c1 ^ k0, lo1, hi0 ^ c3 ^ k1, lo0);
        k0 = k0.wrapping_add(WEYL_0);
        k1 = k1.wrapping_add(WEYL_1);
    }
    [c0, c1, c2, c3]
}

/// The key words of a 64-bit seed: low word first.
#[inline]
pub fn key_of_seed(seed: u64) -> [u32; 2] {
    [seed as u32, (seed >> 32) as u32]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Known answers of Random123 (`kat_vectors`, lines `philox4x32 10`).
    #[test]
    fn known_answers_are_reproduced() {
        let ones = 0xffff_ffff;
        assert_eq!(philox4x32_10([0; 4], [0; 2]), [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8]);
        assert_eq!(philox4x32_10([ones; 4], [ones; 2]), [0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd]);
        assert_eq!(
            philox4x32_10([0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344], [0xa4093822, 0x299f31d0]),
            [0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1]
        );
    }

    #[test]
    fn the_low_word_of_a_seed_is_the_first_key_word() {
        assert_eq!(key_of_seed(0x0123_4567_89ab_cdef), [0x89ab_cdef, 0x0123_4567]);
    }
}
