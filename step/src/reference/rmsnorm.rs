//! Root mean square normalisation.

use super::reduce::warp32_dot;
use crate::number::elementary::fma;

/// RMS normalisation, forward.
///
/// Shapes    x: [rows, C] (read); gain: [C] (read); y: [rows, C], rstd: [rows] (written)
/// Order     ms = warp32_dot(x, x) * inv_c; rstd = 1 / sqrt(ms + eps); y = (x * rstd) * gain
/// Rounding  f32 nearest-even after every operation; fma in the dot
/// Special   none
/// Aliasing  none
/// Source    docs/spec/profile.md#rmsnorm
#[inline(always)]
pub fn rmsnorm_forward(x: &[f32], gain: &[f32], inv_c: f32, eps: f32, y: &mut [f32], rstd: &mut [f32]) {
    let channels = gain.len();
    let rows = x.chunks_exact(channels).zip(y.chunks_exact_mut(channels));
    for ((x, y), rstd) in rows.zip(rstd) {
        let ms = warp32_dot(x, x) * inv_c;
        *rstd = 1.0 / (ms + eps).sqrt();
        for c in 0..channels {
            y[c] = (x[c] * *rstd) * gain[c];
        }
    }
}

/// RMS normalisation, backward into its input.
///
/// Shapes    d_y, x: [rows, C], gain: [C], rstd: [rows] (read); d_x: [rows, C] (written)
/// Order     xhat = x * rstd; g = d_y * gain; m = warp32_dot(g, xhat) * inv_c; d_x = rstd * (g - xhat * m)
/// Rounding  f32 nearest-even after every operation; the last product is a mul and then a sub, not an fma
/// Special   none
/// Aliasing  none
/// Source    docs/spec/profile.md#rmsnorm
#[inline(always)]
pub fn rmsnorm_backward_input(
    d_y: &[f32],
    x: &[f32],
    gain: &[f32],
    rstd: &[f32],
    inv_c: f32,
    d_x: &mut [f32],
) {
    let channels = gain.len();
    let mut xhat = vec![0.0_f32; channels];
    let rows = d_y.chunks_exact(channels).zip(x.chunks_exact(channels)).zip(d_x.chunks_exact_mut(channels));
    for (((d_y, x), d_x), rstd) in rows.zip(rstd) {
        for c in 0..channels {
            xhat[c] = x[c] * rstd;
            d_x[c] = d_y[c] * gain[c];
        }
        let m = warp32_dot(d_x, &xhat) * inv_c;
        for c in 0..channels {
            d_x[c] = rstd * (d_x[c] - xhat[c] * m);
        }
    }
}

/// RMS normalisation, backward into its gain.
///
/// Shapes    d_y, x: [rows, width], rstd: [rows] (read); d_gain: [C], that of the columns from `first` on (written)
/// Order     starts at +0; rows ascending: xhat = x * rstd; d_gain[c] = fma(d_y, xhat, d_gain[c])
/// Rounding  f32 nearest-even after every operation; fma where written
/// Special   none
/// Aliasing  none
/// Source    docs/spec/profile.md#rmsnorm
#[inline(always)]
pub fn rmsnorm_backward_gain(
    d_y: &[f32],
    x: &[f32],
    rstd: &[f32],
    width: usize,
    first: usize,
    d_gain: &mut [f32],
) {
    let channels = d_gain.len();
    d_gain.fill(0.0);
    let rows = d_y.chunks_exact(width).zip(x.chunks_exact(width));
    for ((d_y, x), rstd) in rows.zip(rstd) {
        let (d_y, x) = (&d_y[first..][..channels], &x[first..][..channels]);
        for c in 0..channels {
            d_gain[c] = fma(d_y[c], x[c] * rstd, d_gain[c]);
        }
    }
}
