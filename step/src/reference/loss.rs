//! Cross entropy over the vocabulary.

use super::reduce::{warp32_max, warp32_sum};
use crate::number::elementary::{exp, log};

/// Cross entropy, forward, one value per row.
///
/// Shapes    logits: [rows, V], targets: [rows] (read); loss, max, sum: [rows] (written)
/// Order     m = warp32_max(x); z = warp32_sum of exp(x - m); loss = (log(z) + m) - x[target]
/// Rounding  f32 nearest-even after every operation
/// Special   a NaN in a row makes z, and so the loss, NaN
/// Aliasing  none
/// Source    docs/spec/profile.md#cross-entropy
#[inline(always)]
pub fn cross_entropy_forward(
    logits: &[f32],
    targets: &[u32],
    vocabulary: usize,
    loss: &mut [f32],
    max: &mut [f32],
    sum: &mut [f32],
) {
    let mut e = vec![0.0_f32; vocabulary];
    let outputs = loss.iter_mut().zip(max).zip(sum);
    for ((x, &target), ((loss, max), sum)) in logits.chunks_exact(vocabulary).zip(targets).zip(outputs) {
        let m = warp32_max(x);
        for (e, x) in e.iter_mut().zip(x) {
            *e = exp(x - m);
        }
        let z = warp32_sum(&e);
        *loss = (log(z) + m) - x[target as usize];
        (*max, *sum) = (m, z);
    }
}

/// Mean of a leaf's row losses.
///
/// Shapes    loss: [rows] (read); returns one value
/// Order     acc = +0; rows ascending acc = acc + loss[n]; result acc * inv_n
/// Rounding  f32 nearest-even after every operation
/// Special   none
/// Aliasing  none
/// Source    docs/spec/profile.md#cross-entropy
#[inline(always)]
pub fn mean_loss(loss: &[f32], inv_n: f32) -> f32 {
    let mut acc = 0.0_f32;
    for value in loss {
        acc += value;
    }
    acc * inv_n
}

/// Cross entropy, backward.
///
/// Shapes    logits: [rows, V], targets, max, sum: [rows] (read); d_logits: [rows, V] (written)
/// Order     p = exp(x - m) / z; d = (p - (1 if v is the target, else 0)) * inv_n, the sub done for every v
/// Rounding  f32 nearest-even after every operation
/// Special   none
/// Aliasing  none
/// Source    docs/spec/profile.md#cross-entropy
#[inline(always)]
pub fn cross_entropy_backward(
    logits: &[f32],
    targets: &[u32],
    max: &[f32],
    sum: &[f32],
    vocabulary: usize,
    inv_n: f32,
    d_logits: &mut [f32],
) {
    let rows = logits.chunks_exact(vocabulary).zip(d_logits.chunks_exact_mut(vocabulary));
    for ((x, d), (&target, (m, z))) in rows.zip(targets.iter().zip(max.iter().zip(sum))) {
        for (d, x) in d.iter_mut().zip(x) {
            *d = exp(x - m) / z;
        }
        let p_target = d[target as usize];
        for d in d.iter_mut() {
            *d = (*d - 0.0) * inv_n;
        }
        d[target as usize] = (p_target - 1.0) * inv_n;
    }
}
