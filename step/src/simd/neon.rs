//! NEON (AArch64): thirty-two registers of four lanes, two of them taken as one vector of eight.

#![allow(unsafe_code)]

use super::vector::Vector;
use std::arch::aarch64::*;

/// Eight f32 in two registers.
#[derive(Clone, Copy)]
pub struct Neon(float32x4_t, float32x4_t);

// SAFETY, of every block here: NEON is part of AArch64, and pointers come from slices of the length that is checked
// beside them.
impl Vector for Neon {
    const LANES: usize = 8;
    const TILE_ROWS: usize = 6;

    #[inline(always)]
    fn splat(value: f32) -> Self {
        unsafe { Neon(vdupq_n_f32(value), vdupq_n_f32(value)) }
    }

    #[inline(always)]
    fn load(words: &[f32]) -> Self {
        let words: &[f32; 8] = words.first_chunk().expect("vector: a load of whole registers");
        unsafe { Neon(vld1q_f32(words.as_ptr()), vld1q_f32(words[4..].as_ptr())) }
    }

    #[inline(always)]
    fn store(self, words: &mut [f32]) {
        let words: &mut [f32; 8] = words.first_chunk_mut().expect("vector: a store of whole registers");
        unsafe {
            vst1q_f32(words.as_mut_ptr(), self.0);
            vst1q_f32(words[4..].as_mut_ptr(), self.1);
        }
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        unsafe { Neon(vaddq_f32(self.0, other.0), vaddq_f32(self.1, other.1)) }
    }

    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        unsafe { Neon(vmulq_f32(self.0, other.0), vmulq_f32(self.1, other.1)) }
    }

    #[inline(always)]
    fn div(self, other: Self) -> Self {
        unsafe { Neon(vdivq_f32(self.0, other.0), vdivq_f32(self.1, other.1)) }
    }

    #[inline(always)]
    fn fma(self, factor: Self, addend: Self) -> Self {
        unsafe { Neon(vfmaq_f32(addend.0, self.0, factor.0), vfmaq_f32(addend.1, self.1, factor.1)) }
    }

    // The maximum instructions of AArch64 treat NaN and zeros their own way; a comparison and a selection do not.
    #[inline(always)]
    fn larger(self, other: Self) -> Self {
        let pick = |a, b| unsafe { vbslq_f32(vcgtq_f32(b, a), b, a) };
        Neon(pick(self.0, other.0), pick(self.1, other.1))
    }
}
