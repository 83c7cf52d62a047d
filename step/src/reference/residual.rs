//! The residual stream: one add, forward and backward, and one multiply by a constant.

/// Sum of two tensors.
///
/// Shapes    left, right: [n] (read); out: [n] (written)
/// Order     out[i] = left[i] + right[i]; which input is left is the plan's
/// Rounding  f32 nearest-even, one add
/// Special   none
/// Aliasing  none
/// Source    docs/spec/profile.md#residual
#[inline(always)]
pub fn add(left: &[f32], right: &[f32], out: &mut [f32]) {
    for ((out, left), right) in out.iter_mut().zip(left).zip(right) {
        *out = left + right;
    }
}

/// Adds a tensor to another in place: one join of the gradient tree.
///
/// Shapes    left: [n] (read and written); right: [n] (read)
/// Order     left[i] = left[i] + right[i]
/// Rounding  f32 nearest-even, one add
/// Special   none
/// Aliasing  in place
/// Source    docs/spec/profile.md#tree
#[inline(always)]
pub fn add_in_place(left: &mut [f32], right: &[f32]) {
    for (left, right) in left.iter_mut().zip(right) {
        *left += right;
    }
}

/// Multiplies a tensor by one value in place.
///
/// Shapes    x: [n] (read and written)
/// Order     x[i] = x[i] * factor
/// Rounding  f32 nearest-even, one mul
/// Special   none
/// Aliasing  in place
/// Source    docs/spec/profile.md#tree
#[inline(always)]
pub fn scale_in_place(x: &mut [f32], factor: f32) {
    for x in x {
        *x *= factor;
    }
}
