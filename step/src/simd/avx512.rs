//! AVX-512F: thirty-two registers of sixteen lanes.

#![allow(unsafe_code)]

use super::vector::Vector;
use std::arch::x86_64::*;

/// 16 f32 in one register.
#[derive(Clone, Copy)]
pub struct Avx512(__m512);

// SAFETY, of every block here: the intrinsics need an instruction set that `dispatch` has detected before it picks
// this type (see `Vector`), and pointers come from slices of the length that is checked beside them.
impl Vector for Avx512 {
    const LANES: usize = 16;
    const TILE_ROWS: usize = 14;

    #[inline(always)]
    fn splat(value: f32) -> Self {
        unsafe { Avx512(_mm512_set1_ps(value)) }
    }

    #[inline(always)]
    fn load(words: &[f32]) -> Self {
        let words: &[f32; 16] = words.first_chunk().expect("vector: a load of whole registers");
        unsafe { Avx512(_mm512_loadu_ps(words.as_ptr())) }
    }

    #[inline(always)]
    fn store(self, words: &mut [f32]) {
        let words: &mut [f32; 16] = words.first_chunk_mut().expect("vector: a store of whole registers");
        unsafe { _mm512_storeu_ps(words.as_mut_ptr(), self.0) }
    }

    #[inline(always)]
    fn load_part(words: &[f32]) -> Self {
        assert!(words.len() < 16, "vector: a load of part of a register");
        unsafe { Avx512(_mm512_maskz_loadu_ps((1 << words.len()) - 1, words.as_ptr())) }
    }

    // Within each four lines first, by pairs of words and then of pairs; a column is then a quarter of four registers.
    #[inline(always)]
    fn transpose(from: &[f32], from_stride: usize, lines: usize, to: &mut [f32], to_stride: usize) {
        let mut x = [Self::splat(0.0); 16];
        for l in 0..16 {
            x[l] = Self::load(&from[l.min(lines - 1) * from_stride..]);
        }
        let mut fours = [[x[0].0; 4]; 4];
        for g in 0..4 {
            let [a, b, c, d] = [x[4 * g].0, x[4 * g + 1].0, x[4 * g + 2].0, x[4 * g + 3].0];
            unsafe {
                let (ab, cd) = (_mm512_unpacklo_ps(a, b), _mm512_unpacklo_ps(c, d));
                fours[0][g] = _mm512_shuffle_ps::<0x44>(ab, cd);
                fours[1][g] = _mm512_shuffle_ps::<0xee>(ab, cd);
                let (ab, cd) = (_mm512_unpackhi_ps(a, b), _mm512_unpackhi_ps(c, d));
                fours[2][g] = _mm512_shuffle_ps::<0x44>(ab, cd);
                fours[3][g] = _mm512_shuffle_ps::<0xee>(ab, cd);
            }
        }
        for c in 0..4 {
            let [p, q, r, s] = fours[c];
            unsafe {
                let (even, odd) = (_mm512_shuffle_f32x4::<0x88>(p, q), _mm512_shuffle_f32x4::<0xdd>(p, q));
                let (even2, odd2) = (_mm512_shuffle_f32x4::<0x88>(r, s), _mm512_shuffle_f32x4::<0xdd>(r, s));
                x[c] = Avx512(_mm512_shuffle_f32x4::<0x88>(even, even2));
                x[4 + c] = Avx512(_mm512_shuffle_f32x4::<0x88>(odd, odd2));
                x[8 + c] = Avx512(_mm512_shuffle_f32x4::<0xdd>(even, even2));
                x[12 + c] = Avx512(_mm512_shuffle_f32x4::<0xdd>(odd, odd2));
            }
        }
        for k in 0..16 {
            x[k].store(&mut to[k * to_stride..]);
        }
    }

    #[inline(always)]
    fn prefetch(word: Option<&f32>) {
        if let Some(word) = word {
            unsafe { _mm_prefetch::<_MM_HINT_T0>((&raw const *word).cast()) }
        }
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        unsafe { Avx512(_mm512_add_ps(self.0, other.0)) }
    }

    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        unsafe { Avx512(_mm512_mul_ps(self.0, other.0)) }
    }

    #[inline(always)]
    fn div(self, other: Self) -> Self {
        unsafe { Avx512(_mm512_div_ps(self.0, other.0)) }
    }

    #[inline(always)]
    fn fma(self, factor: Self, addend: Self) -> Self {
        unsafe { Avx512(_mm512_fmadd_ps(self.0, factor.0, addend.0)) }
    }

    // MAXPS gives its second operand unless the first is greater: of two zeros, and beside a NaN, that is `self`.
    #[inline(always)]
    fn larger(self, other: Self) -> Self {
        unsafe { Avx512(_mm512_max_ps(other.0, self.0)) }
    }
}
