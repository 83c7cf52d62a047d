//! Sums of squares: rows in the order `warp32`.

use super::reduce::warp32_dot;
use super::vector::Vector;
use crate::reference::residual::scale_in_place;

/// See `reference::clip::square_sum_chunk`.
#[inline(always)]
pub fn square_sum_chunk<V: Vector>(x: &[f32], columns: usize) -> f32 {
    let mut acc = 0.0_f32;
    for row in x.chunks_exact(columns) {
        acc += warp32_dot::<V>(row, row);
    }
    acc
}

/// See `reference::clip::scaled_square_sum_chunk`; a row is read back while it is still near.
#[inline(always)]
pub fn scaled_square_sum_chunk<V: Vector>(x: &mut [f32], columns: usize, factor: f32) -> f32 {
    let mut acc = 0.0_f32;
    for row in x.chunks_exact_mut(columns) {
        scale_in_place(row, factor);
        acc += warp32_dot::<V>(row, row);
    }
    acc
}
