//! The activation of the feed-forward part: GELU in its tanh form.

use crate::number::elementary::{gelu, gelu_backward};

/// GELU, forward.
///
/// Shapes    x: [n] (read); y: [n] (written)
/// Order     y[i] = gelu(x[i]), the sequence of `number::elementary::gelu`
/// Rounding  as there
/// Special   as there
/// Aliasing  none
/// Source    docs/spec/profile.md#gelu
#[inline(always)]
pub fn gelu_forward(x: &[f32], y: &mut [f32]) {
    for (y, x) in y.iter_mut().zip(x) {
        *y = gelu(*x);
    }
}

/// GELU, backward.
///
/// Shapes    x, d_y: [n] (read); d_x: [n] (written)
/// Order     d_x[i] = gelu_backward(x[i], d_y[i]), the sequence of `number::elementary::gelu_backward`
/// Rounding  as there
/// Special   as there
/// Aliasing  none
/// Source    docs/spec/profile.md#gelu
#[inline(always)]
pub fn gelu_backward_input(x: &[f32], d_y: &[f32], d_x: &mut [f32]) {
    for ((d_x, x), d_y) in d_x.iter_mut().zip(x).zip(d_y) {
        *d_x = gelu_backward(*x, *d_y);
    }
}
