//! SwiGLU: one half of a widened row gates the other.

use crate::number::elementary::{exp, fma};

/// 1 / (1 + exp(-x)).
#[inline(always)]
fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// SwiGLU, forward.
///
/// Shapes    gate, up: [n] (read); y: [n] (written)
/// Order     s = 1 / (1 + exp(-gate)); a = gate * s; y = a * up
/// Rounding  f32 nearest-even after every operation
/// Special   exp takes -gate above 88 as 88, so s is at least a subnormal number and never +0
/// Aliasing  none
/// Source    docs/spec/profile.md#silu
#[inline(always)]
pub fn swiglu_forward(gate: &[f32], up: &[f32], y: &mut [f32]) {
    for ((y, gate), up) in y.iter_mut().zip(gate).zip(up) {
        *y = (gate * sigmoid(*gate)) * up;
    }
}

/// SwiGLU, backward.
///
/// Shapes    d_y, gate, up: [n] (read); d_gate, d_up: [n] (written)
/// Order     s = 1 / (1 + exp(-gate)); a = gate * s; d_up = d_y * a; t = fma(gate, 1 - s, 1);
///           d_gate = (d_y * up) * (s * t)
/// Rounding  f32 nearest-even after every operation; fma where written
/// Special   as forward
/// Aliasing  none
/// Source    docs/spec/profile.md#silu
#[inline(always)]
pub fn swiglu_backward(d_y: &[f32], gate: &[f32], up: &[f32], d_gate: &mut [f32], d_up: &mut [f32]) {
    let outputs = d_gate.iter_mut().zip(d_up);
    for ((d_y, (gate, up)), (d_gate, d_up)) in d_y.iter().zip(gate.iter().zip(up)).zip(outputs) {
        let s = sigmoid(*gate);
        *d_up = d_y * (gate * s);
        let t = fma(*gate, 1.0 - s, 1.0);
        *d_gate = (d_y * up) * (s * t);
    }
}
