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
    fn add(self, other: Self) -> Self {
        unsafe { Avx512(_mm512_add_ps(self.0, other.0)) }
    }

    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        unsafe { Avx512(_mm512_sub_ps(self.0, other.0)) }
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
