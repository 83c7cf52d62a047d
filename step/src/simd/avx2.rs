//! AVX2 with FMA: sixteen registers of eight lanes.

#![allow(unsafe_code)]

use super::vector::Vector;
use std::arch::x86_64::*;

/// 8 f32 in one register.
#[derive(Clone, Copy)]
pub struct Avx2(__m256);

// SAFETY, of every block here: the intrinsics need an instruction set that `dispatch` has detected before it picks
// this type (see `Vector`), and pointers come from slices of the length that is checked beside them.
impl Vector for Avx2 {
    const LANES: usize = 8;
    const TILE_ROWS: usize = 6;

    #[inline(always)]
    fn splat(value: f32) -> Self {
        unsafe { Avx2(_mm256_set1_ps(value)) }
    }

    #[inline(always)]
    fn load(words: &[f32]) -> Self {
        let words: &[f32; 8] = words.first_chunk().expect("vector: a load of whole registers");
        unsafe { Avx2(_mm256_loadu_ps(words.as_ptr())) }
    }

    #[inline(always)]
    fn store(self, words: &mut [f32]) {
        let words: &mut [f32; 8] = words.first_chunk_mut().expect("vector: a store of whole registers");
        unsafe { _mm256_storeu_ps(words.as_mut_ptr(), self.0) }
    }

    // Within each four lines first, by pairs of words and then of pairs; a column is then a half of two registers.
    #[inline(always)]
    fn transpose(from: &[f32], from_stride: usize, lines: usize, to: &mut [f32], to_stride: usize) {
        let mut x = [Self::splat(0.0); 8];
        for l in 0..8 {
            x[l] = Self::load(&from[l.min(lines - 1) * from_stride..]);
        }
        let mut fours = [[x[0].0; 2]; 4];
        for g in 0..2 {
            let [a, b, c, d] = [x[4 * g].0, x[4 * g + 1].0, x[4 * g + 2].0, x[4 * g + 3].0];
            unsafe {
                let (ab, cd) = (_mm256_unpacklo_ps(a, b), _mm256_unpacklo_ps(c, d));
                fours[0][g] = _mm256_shuffle_ps::<0x44>(ab, cd);
                fours[1][g] = _mm256_shuffle_ps::<0xee>(ab, cd);
                let (ab, cd) = (_mm256_unpackhi_ps(a, b), _mm256_unpackhi_ps(c, d));
                fours[2][g] = _mm256_shuffle_ps::<0x44>(ab, cd);
                fours[3][g] = _mm256_shuffle_ps::<0xee>(ab, cd);
            }
        }
        for c in 0..4 {
            let [p, q] = fours[c];
            unsafe {
                x[c] = Avx2(_mm256_permute2f128_ps::<0x20>(p, q));
                x[4 + c] = Avx2(_mm256_permute2f128_ps::<0x31>(p, q));
            }
        }
        for k in 0..8 {
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
        unsafe { Avx2(_mm256_add_ps(self.0, other.0)) }
    }

    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        unsafe { Avx2(_mm256_mul_ps(self.0, other.0)) }
    }

    #[inline(always)]
    fn div(self, other: Self) -> Self {
        unsafe { Avx2(_mm256_div_ps(self.0, other.0)) }
    }

    #[inline(always)]
    fn fma(self, factor: Self, addend: Self) -> Self {
        unsafe { Avx2(_mm256_fmadd_ps(self.0, factor.0, addend.0)) }
    }

    // MAXPS gives its second operand unless the first is greater: of two zeros, and beside a NaN, that is `self`.
    #[inline(always)]
    fn larger(self, other: Self) -> Self {
        unsafe { Avx2(_mm256_max_ps(other.0, self.0)) }
    }
}
