//! The two sums of a fold over blocks of words: integers modulo 2^64, which have no order.

use crate::number::elementary::NAN_BITS;

/// Words of a block.
pub const BLOCK_WORDS: usize = 1024;

/// What words add up to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sums {
    /// Sum of word x k.
    pub a: u64,
    /// Sum of word^2 x k'.
    pub b: u64,
    /// False if a word was a NaN or an infinity.
    pub finite: bool,
}

/// Folds f32 words.
///
/// Shapes    words: [n], t, t_square: [1024], factors: [ceil(n / 1024)] of (f, f') (all read); returns the sums
/// Order     none; the factor is common to a block's words, so it multiplies their sum
/// Rounding  none: modulo 2^64
/// Special   the word of a NaN is 0x7fc00000
/// Aliasing  none
/// Source    docs/spec/checksum.md#folds
#[inline(always)]
pub fn fold_f32(words: &[f32], t: &[u64], t_square: &[u64], factors: &[(u64, u64)]) -> Sums {
    let word_of = |value: f32| if value.is_nan() { NAN_BITS } else { value.to_bits() };
    // The exponent of what is not finite is all ones.
    let exponent = |value: &f32| value.to_bits() & 0x7f80_0000;
    let finite = |block: &[f32]| block.iter().fold(0, |most, value| most.max(exponent(value))) != 0x7f80_0000;
    fold(words, t, t_square, factors, word_of, finite)
}

/// Folds u32 words, such as tokens: as `fold_f32`, each word taken as it is.
///
/// Shapes    as `fold_f32`
/// Order     none
/// Rounding  none: modulo 2^64
/// Special   none; always finite
/// Aliasing  none
/// Source    docs/spec/checksum.md#folds
#[inline(always)]
pub fn fold_u32(words: &[u32], t: &[u64], t_square: &[u64], factors: &[(u64, u64)]) -> Sums {
    fold(words, t, t_square, factors, |word| word, |_| true)
}

#[inline(always)]
fn fold<W: Copy>(
    words: &[W],
    t: &[u64],
    t_square: &[u64],
    factors: &[(u64, u64)],
    word_of: impl Fn(W) -> u32,
    finite: impl Fn(&[W]) -> bool,
) -> Sums {
    let mut sums = Sums { a: 0, b: 0, finite: true };
    for (block, (f, f_square)) in words.chunks(BLOCK_WORDS).zip(factors) {
        let (mut a, mut b) = (0_u64, 0_u64);
        for ((value, t), t_square) in block.iter().zip(t).zip(t_square) {
            let word = u64::from(word_of(*value));
            a = a.wrapping_add(word.wrapping_mul(*t));
            // A 32-bit word's square fits 64 bits.
            b = b.wrapping_add((word * word).wrapping_mul(*t_square));
        }
        sums.finite &= finite(block);
        sums.a = sums.a.wrapping_add(a.wrapping_mul(*f));
        sums.b = sums.b.wrapping_add(b.wrapping_mul(*f_square));
    }
    sums
}
