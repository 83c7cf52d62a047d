//! Rotary positions: channel i of a head is turned against channel i + HS/2, as in Hugging Face's Llama.

use crate::number::elementary::fma;

/// Rotation, forward.
///
/// Shapes    x: [rows, H * HS] (read); cos, sin: [T, HS/2] (read); y: [rows, H * HS] (written); row n has
///           position n mod T; HS/2 is `half`
/// Order     per row and head, for i below HS/2, with x1 = x[i], x2 = x[i + HS/2], c = cos[t][i], s = sin[t][i]:
///           y[i] = fma(x1, c, -(x2 * s)); y[i + HS/2] = fma(x2, c, x1 * s)
/// Rounding  the inner product is rounded, then one rounding for the fma
/// Special   none
/// Aliasing  none
/// Source    docs/spec/profile.md#rope
#[inline(always)]
pub fn rope_forward(x: &[f32], cos: &[f32], sin: &[f32], half: usize, width: usize, y: &mut [f32]) {
    let times = cos.len() / half;
    for (n, (x, y)) in x.chunks_exact(width).zip(y.chunks_exact_mut(width)).enumerate() {
        let at = n % times * half;
        let (c, s) = (&cos[at..at + half], &sin[at..at + half]);
        for (x, y) in x.chunks_exact(2 * half).zip(y.chunks_exact_mut(2 * half)) {
            let ((x1, x2), (y1, y2)) = (x.split_at(half), y.split_at_mut(half));
            for i in 0..half {
                y1[i] = fma(x1[i], c[i], -(x2[i] * s[i]));
                y2[i] = fma(x2[i], c[i], x1[i] * s[i]);
            }
        }
    }
}

/// Rotation, backward: the turn the other way.
///
/// Shapes    d_y: [rows, H * HS] (read); cos, sin: [T, HS/2] (read); d_x: [rows, H * HS] (written)
/// Order     per row and head, for i below HS/2, with d1 = d_y[i], d2 = d_y[i + HS/2], c and s as forward:
///           d_x[i] = fma(d1, c, d2 * s); d_x[i + HS/2] = fma(d2, c, -(d1 * s))
/// Rounding  the inner product is rounded, then one rounding for the fma
/// Special   none
/// Aliasing  none
/// Source    docs/spec/profile.md#rope
#[inline(always)]
pub fn rope_backward(d_y: &[f32], cos: &[f32], sin: &[f32], half: usize, width: usize, d_x: &mut [f32]) {
    let times = cos.len() / half;
    for (n, (d_y, d_x)) in d_y.chunks_exact(width).zip(d_x.chunks_exact_mut(width)).enumerate() {
        let at = n % times * half;
        let (c, s) = (&cos[at..at + half], &sin[at..at + half]);
        for (d_y, d_x) in d_y.chunks_exact(2 * half).zip(d_x.chunks_exact_mut(2 * half)) {
            let ((d1, d2), (x1, x2)) = (d_y.split_at(half), d_x.split_at_mut(half));
            for i in 0..half {
                x1[i] = fma(d1[i], c[i], d2[i] * s[i]);
                x2[i] = fma(d2[i], c[i], -(d1[i] * s[i]));
            }
        }
    }
}
