//! The kernels: what each operation of a plan computes, one operation per file.
//!
//! These loops are the definition. They are arranged so that output columns are innermost, which lets a
//! compiler use vector registers without touching the order of any single sum: each output keeps its own
//! chain. Nothing in here is `unsafe`, uses threads or looks at the machine; `dispatch` compiles the same
//! bodies again for wider registers and `kernels` splits independent rows over threads. Neither may change a
//! bit.

// Loops count with the letters of the Order lines above them, so that the two can be read side by side.
#![allow(clippy::needless_range_loop)]

pub mod activation;
pub mod adamw;
pub mod attention;
pub mod clip;
pub mod embedding;
pub mod fold;
pub mod loss;
pub mod matmul;
pub mod norm;
pub mod reduce;
pub mod residual;
pub mod rmsnorm;
pub mod rope;
pub mod sgd;
pub mod swiglu;
