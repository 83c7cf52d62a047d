//! Eight lanes in an array: what every machine can run, and what a compiler may vectorise as it likes.

use super::vector::Vector;
use crate::number::elementary::fma;

const LANES: usize = 8;

/// Eight f32.
#[derive(Clone, Copy)]
pub struct Scalar([f32; LANES]);

impl Scalar {
    #[inline(always)]
    fn each(self, other: Self, one: impl Fn(f32, f32) -> f32) -> Self {
        let mut lanes = self.0;
        for l in 0..LANES {
            lanes[l] = one(lanes[l], other.0[l]);
        }
        Scalar(lanes)
    }
}

impl Vector for Scalar {
    const LANES: usize = LANES;
    const TILE_ROWS: usize = 6;

    #[inline(always)]
    fn splat(value: f32) -> Self {
        Scalar([value; LANES])
    }

    #[inline(always)]
    fn load(words: &[f32]) -> Self {
        Scalar(*words.first_chunk().expect("vector: a load of whole registers"))
    }

    #[inline(always)]
    fn store(self, words: &mut [f32]) {
        *words.first_chunk_mut().expect("vector: a store of whole registers") = self.0;
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        self.each(other, |a, b| a + b)
    }

    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        self.each(other, |a, b| a * b)
    }

    #[inline(always)]
    fn div(self, other: Self) -> Self {
        self.each(other, |a, b| a / b)
    }

    #[inline(always)]
    fn fma(self, factor: Self, addend: Self) -> Self {
        let mut lanes = addend.0;
        for l in 0..LANES {
            lanes[l] = fma(self.0[l], factor.0[l], lanes[l]);
        }
        Scalar(lanes)
    }

    #[inline(always)]
    fn larger(self, other: Self) -> Self {
        self.each(other, |a, b| if b > a { b } else { a })
    }
}
