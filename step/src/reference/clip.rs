//! The global norm of the gradient and the factor that clips it.

use super::reduce::warp32_dot;
use super::residual::scale_in_place;

/// Rows added into one partial sum before it joins the tensor's sum.
pub const CHUNK_ROWS: usize = 1024;

/// Sum of squares of one chunk of rows.
///
/// Shapes    x: [rows, columns] (read), at most 1024 rows; returns one value
/// Order     acc = +0; rows ascending acc = acc + warp32_dot(row, row)
/// Rounding  one rounding per fma, then f32 nearest-even per add
/// Special   none
/// Aliasing  none
/// Source    docs/spec/profile.md#global-norm
#[inline(always)]
pub fn square_sum_chunk(x: &[f32], columns: usize) -> f32 {
    let mut acc = 0.0_f32;
    for row in x.chunks_exact(columns) {
        acc += warp32_dot(row, row);
    }
    acc
}

/// Multiplies one chunk of rows by one value in place, and sums the squares of what that gives.
///
/// Shapes    x: [rows, columns] (read and written), at most 1024 rows; returns one value
/// Order     x[i] = x[i] * factor; then as `square_sum_chunk`
/// Rounding  f32 nearest-even after the mul, then as there
/// Special   none
/// Aliasing  in place
/// Source    docs/spec/profile.md#global-norm
#[inline(always)]
pub fn scaled_square_sum_chunk(x: &mut [f32], columns: usize, factor: f32) -> f32 {
    scale_in_place(x, factor);
    square_sum_chunk(x, columns)
}

/// Sum of sums, ascending: of chunks within a tensor, and of tensors within the gradient.
///
/// Shapes    sums: [n] (read); returns one value
/// Order     acc = +0; ascending acc = acc + sums[i]
/// Rounding  f32 nearest-even after every add
/// Special   none
/// Aliasing  none
/// Source    docs/spec/profile.md#global-norm
#[inline(always)]
pub fn ascending_sum(sums: &[f32]) -> f32 {
    let mut acc = 0.0_f32;
    for sum in sums {
        acc += sum;
    }
    acc
}

/// The factor that clips a gradient of norm `norm`.
///
/// Shapes    one value each
/// Order     if norm > clip { clip / (norm + epsilon) } else { 1 }
/// Rounding  f32 nearest-even after every operation
/// Special   a NaN norm gives 1 (such a step is invalid)
/// Aliasing  none
/// Source    docs/spec/profile.md#global-norm
#[inline(always)]
pub fn clip_scale(norm: f32, clip: f32, epsilon: f32) -> f32 {
    if norm > clip { clip / (norm + epsilon) } else { 1.0 }
}
