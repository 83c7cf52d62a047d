//! Kernels written for vector registers, once for every instruction set.
//!
//! A kernel here is generic over [`vector::Vector`] and gives the bits of its namesake in
//! [`reference`](mod@crate::reference), which is the definition: lanes are independent outputs (or the lanes that
//! `warp32` itself names), never parts of one sum. Operations on single elements have no order to keep and no file
//! here, but for AdamW, which is the speed of memory: `dispatch` compiles the reference's own loop for each
//! instruction set.

// Loops count with the letters of the Order lines of the reference, so that the two can be read side by side.
#![allow(clippy::needless_range_loop)]

pub mod vector;

#[cfg(target_arch = "x86_64")]
pub mod avx2;
#[cfg(target_arch = "x86_64")]
pub mod avx512;
#[cfg(target_arch = "aarch64")]
pub mod neon;
pub mod scalar;

pub mod adamw;
pub mod attention;
pub mod clip;
pub mod fold;
pub mod matmul;
pub mod pack;
pub mod peak;
pub mod reduce;
pub mod tile;
