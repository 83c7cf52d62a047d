//! Folds whose words are put side by side first, where registers are short.
//!
//! The sums are integers and have no order; they are the reference's own loops, block by block.

use super::vector::Vector;
use crate::number::elementary::NAN_BITS;
use crate::reference::fold::{self, BLOCK_WORDS, Sums};

/// See `reference::fold::fold_f32`.
#[inline(always)]
pub fn fold_f32<V: Vector>(words: &[f32], t: &[u64], t_square: &[u64], factors: &[(u64, u64)]) -> Sums {
    // Sixteen lanes come with masks, by which a NaN's word is put in its place without a move.
    if V::LANES == 16 {
        return fold::fold_f32(words, t, t_square, factors);
    }
    let mut sums = Sums { a: 0, b: 0, finite: true };
    let mut room = [0; BLOCK_WORDS];
    for (block, factors) in words.chunks(BLOCK_WORDS).zip(factors.chunks(1)) {
        let bits = &mut room[..block.len()];
        let mut exponent = 0;
        for (bits, value) in bits.iter_mut().zip(block) {
            *bits = if value.is_nan() { NAN_BITS } else { value.to_bits() };
            exponent = exponent.max(*bits & 0x7f80_0000);
        }
        let of_block = fold::fold_u32(bits, t, t_square, factors);
        sums.a = sums.a.wrapping_add(of_block.a);
        sums.b = sums.b.wrapping_add(of_block.b);
        // The exponent of what is not finite is all ones.
        sums.finite &= exponent != 0x7f80_0000;
    }
    sums
}
