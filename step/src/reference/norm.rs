//! Layer normalisation.

use super::reduce::{warp32_dot, warp32_sum};
use crate::number::elementary::fma;

/// Layer normalisation, forward.
///
/// Shapes    x: [rows, C] (read); gain, bias: [C] (read); y: [rows, C], mean, rstd: [rows] (written)
/// Order     mean = warp32_sum(x) * inv_c; d = x - mean; var = warp32_dot(d, d) * inv_c;
///           rstd = 1 / sqrt(var + eps); y = fma(d * rstd, gain, bias)
/// Rounding  f32 nearest-even after every operation; fma where written
/// Special   none
/// Aliasing  none
/// Source    docs/spec/profile.md#layernorm
#[inline(always)]
pub fn layernorm_forward(
    x: &[f32],
    gain: &[f32],
    bias: &[f32],
    inv_c: f32,
    eps: f32,
    y: &mut [f32],
    mean: &mut [f32],
    rstd: &mut [f32],
) {
    let channels = gain.len();
    let rows = x.chunks_exact(channels).zip(y.chunks_exact_mut(channels));
    for ((x, y), (mean, rstd)) in rows.zip(mean.iter_mut().zip(rstd)) {
        *mean = warp32_sum(x) * inv_c;
        for (d, x) in y.iter_mut().zip(x) {
            *d = x - *mean;
        }
        let var = warp32_dot(y, y) * inv_c;
        *rstd = 1.0 / (var + eps).sqrt();
        for ((y, gain), bias) in y.iter_mut().zip(gain).zip(bias) {
            *y = fma(*y * *rstd, *gain, *bias);
        }
    }
}

/// Layer normalisation, backward into its input.
///
/// Shapes    d_y, x: [rows, C], gain: [C], mean, rstd: [rows] (read); d_x: [rows, C] (written)
/// Order     xhat = (x - mean) * rstd; dyg = d_y * gain; m1 = warp32_sum(dyg) * inv_c;
///           m2 = warp32_dot(dyg, xhat) * inv_c; d_x = rstd * ((dyg - m1) - xhat * m2)
/// Rounding  f32 nearest-even after every operation; the last product is a mul and then a sub, not an fma
/// Special   none
/// Aliasing  none
/// Source    docs/spec/profile.md#layernorm
#[inline(always)]
pub fn layernorm_backward_input(
    d_y: &[f32],
    x: &[f32],
    gain: &[f32],
    mean: &[f32],
    rstd: &[f32],
    inv_c: f32,
    d_x: &mut [f32],
) {
    let channels = gain.len();
    let mut xhat = vec![0.0_f32; channels];
    let rows = d_y.chunks_exact(channels).zip(x.chunks_exact(channels)).zip(d_x.chunks_exact_mut(channels));
    for (((d_y, x), d_x), (mean, rstd)) in rows.zip(mean.iter().zip(rstd)) {
        for c in 0..channels {
            xhat[c] = (x[c] - mean) * rstd;
            d_x[c] = d_y[c] * gain[c];
        }
        let m1 = warp32_sum(d_x) * inv_c;
        let m2 = warp32_dot(d_x, &xhat) * inv_c;
        for c in 0..channels {
            d_x[c] = rstd * ((d_x[c] - m1) - xhat[c] * m2);
        }
    }
}

/// Layer normalisation, backward into its gain and bias.
///
/// Shapes    d_y, x: [rows, width], mean, rstd: [rows] (read); d_gain, d_bias: [C], those of the columns from `first`
///           on (written)
/// Order     both start at +0; rows ascending: xhat = (x - mean) * rstd;
///           d_gain[c] = fma(d_y, xhat, d_gain[c]); d_bias[c] = d_bias[c] + d_y
/// Rounding  f32 nearest-even after every operation; fma where written
/// Special   none
/// Aliasing  none
/// Source    docs/spec/profile.md#layernorm
#[inline(always)]
pub fn layernorm_backward_parameters(
    d_y: &[f32],
    x: &[f32],
    mean: &[f32],
    rstd: &[f32],
    width: usize,
    first: usize,
    d_gain: &mut [f32],
    d_bias: &mut [f32],
) {
    let channels = d_gain.len();
    d_gain.fill(0.0);
    d_bias.fill(0.0);
    let rows = d_y.chunks_exact(width).zip(x.chunks_exact(width));
    for ((d_y, x), (mean, rstd)) in rows.zip(mean.iter().zip(rstd)) {
        let (d_y, x) = (&d_y[first..][..channels], &x[first..][..channels]);
        for c in 0..channels {
            let xhat = (x[c] - mean) * rstd;
            d_gain[c] = fma(d_y[c], xhat, d_gain[c]);
            d_bias[c] += d_y[c];
        }
    }
}
