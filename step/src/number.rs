//! Single operations on numbers: the counter-based generator and the elementary functions.
//!
//! Everything in the kernels is built from IEEE 754 add, sub, mul, div, sqrt and fma of `f32` (round to
//! nearest even, subnormals kept) and from what stands here. No call of a mathematics library decides a bit.

pub mod elementary;
pub mod philox;
pub mod rotary;
