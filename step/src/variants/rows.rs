//! Sums of rows in order `warp32`, and the normalisations, over an arithmetic.

use super::arithmetic::Arithmetic;
use crate::reference::reduce::LANES;

/// Lanes from +0, a step for each element, then the joins.
#[inline(always)]
fn warp32<A: Arithmetic>(n: usize, mut step: impl FnMut(f32, usize) -> f32) -> f32 {
    let mut lane = [0.0_f32; LANES];
    for i in 0..n {
        lane[i % LANES] = step(lane[i % LANES], i);
    }
    for s in [16, 8, 4, 2, 1] {
        for i in 0..s {
            lane[i] = A::add(lane[i], lane[i + s]);
        }
    }
    lane[0]
}

/// `warp32_sum`.
pub fn warp32_sum<A: Arithmetic>(x: &[f32]) -> f32 {
    warp32::<A>(x.len(), |lane, i| A::add(lane, x[i]))
}

/// `warp32_dot`.
pub fn warp32_dot<A: Arithmetic>(a: &[f32], b: &[f32]) -> f32 {
    warp32::<A>(a.len(), |lane, i| A::fma(a[i], b[i], lane))
}

/// Layer normalisation, forward.
pub fn layernorm<A: Arithmetic>(
    x: &[f32],
    [gain, bias]: [&[f32]; 2],
    [inv_c, eps]: [f32; 2],
    [y, mean, rstd]: [&mut [f32]; 3],
) {
    let channels = gain.len();
    let mut d = vec![0.0; channels];
    for (n, x) in x.chunks_exact(channels).enumerate() {
        let sum = warp32_sum::<A>(x);
        mean[n] = A::mul(sum, inv_c);
        for c in 0..channels {
            d[c] = A::product_add(-sum, inv_c, x[c]);
        }
        let dot = warp32_dot::<A>(&d, &d);
        rstd[n] = A::div(1.0, A::sqrt(A::product_add(dot, inv_c, eps)));
        for c in 0..channels {
            y[n * channels + c] = A::fma(A::mul(d[c], rstd[n]), gain[c], bias[c]);
        }
    }
}

/// Layer normalisation, backward.
pub fn layernorm_backward<A: Arithmetic>(
    [d_y, x, mean, rstd, gain]: [&[f32]; 5],
    inv_c: f32,
    [d_x, d_gain, d_bias]: [&mut [f32]; 3],
) {
    let channels = gain.len();
    let (mut xhat, mut g) = (vec![0.0; channels], vec![0.0; channels]);
    d_gain.fill(0.0);
    d_bias.fill(0.0);
    for n in 0..mean.len() {
        let (x, d_y) = (&x[n * channels..][..channels], &d_y[n * channels..][..channels]);
        for c in 0..channels {
            xhat[c] = A::mul(A::sub(x[c], mean[n]), rstd[n]);
            g[c] = A::mul(d_y[c], gain[c]);
            d_gain[c] = A::fma(d_y[c], xhat[c], d_gain[c]);
            d_bias[c] = A::add(d_bias[c], d_y[c]);
        }
        let sum = warp32::<A>(channels, |lane, c| A::product_add(d_y[c], gain[c], lane));
        let m1 = A::mul(sum, inv_c);
        let m2 = A::mul(warp32_dot::<A>(&g, &xhat), inv_c);
        for c in 0..channels {
            let difference = A::product_add(d_y[c], gain[c], -m1);
            d_x[n * channels + c] = A::mul(rstd[n], A::mul_add(-xhat[c], m2, difference));
        }
    }
}

/// RMS normalisation, forward.
pub fn rmsnorm<A: Arithmetic>(x: &[f32], gain: &[f32], [inv_c, eps]: [f32; 2], [y, rstd]: [&mut [f32]; 2]) {
    let channels = gain.len();
    for (n, x) in x.chunks_exact(channels).enumerate() {
        let dot = warp32_dot::<A>(x, x);
        rstd[n] = A::div(1.0, A::sqrt(A::product_add(dot, inv_c, eps)));
        for c in 0..channels {
            y[n * channels + c] = A::mul(A::mul(x[c], rstd[n]), gain[c]);
        }
    }
}

/// RMS normalisation, backward.
pub fn rmsnorm_backward<A: Arithmetic>(
    [d_y, x, rstd, gain]: [&[f32]; 4],
    inv_c: f32,
    [d_x, d_gain]: [&mut [f32]; 2],
) {
    let channels = gain.len();
    let (mut xhat, mut g) = (vec![0.0; channels], vec![0.0; channels]);
    d_gain.fill(0.0);
    for n in 0..rstd.len() {
        let (x, d_y) = (&x[n * channels..][..channels], &d_y[n * channels..][..channels]);
        for c in 0..channels {
            xhat[c] = A::mul(x[c], rstd[n]);
            g[c] = A::mul(d_y[c], gain[c]);
            d_gain[c] = A::fma(d_y[c], xhat[c], d_gain[c]);
        }
        let m = A::mul(warp32_dot::<A>(&g, &xhat), inv_c);
        for c in 0..channels {
            d_x[n * channels + c] = A::mul(rstd[n], A::mul_add(-xhat[c], m, g[c]));
        }
    }
}
