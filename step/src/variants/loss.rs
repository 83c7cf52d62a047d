//! Cross entropy, over an arithmetic.

use super::arithmetic::Arithmetic;
use super::elementary::{exp, log};
use super::rows::warp32_sum;
use crate::reference::reduce::warp32_max;

/// Forward.
pub fn cross_entropy<A: Arithmetic>(
    logits: &[f32],
    targets: &[u32],
    vocabulary: usize,
    [loss, max, sum]: [&mut [f32]; 3],
) {
    for (n, x) in logits.chunks_exact(vocabulary).enumerate() {
        let m = warp32_max(x);
        let e: Vec<f32> = x.iter().map(|x| exp::<A>(A::sub(*x, m))).collect();
        let z = warp32_sum::<A>(&e);
        loss[n] = A::sub(A::add(log::<A>(z), m), x[targets[n] as usize]);
        (max[n], sum[n]) = (m, z);
    }
}

/// Backward.
pub fn cross_entropy_backward<A: Arithmetic>(
    logits: &[f32],
    targets: &[u32],
    [max, sum]: [&[f32]; 2],
    vocabulary: usize,
    inv_n: f32,
    d_logits: &mut [f32],
) {
    for (n, d) in d_logits.chunks_exact_mut(vocabulary).enumerate() {
        for v in 0..vocabulary {
            let p = A::div(exp::<A>(A::sub(logits[n * vocabulary + v], max[n])), sum[n]);
            let one = if v == targets[n] as usize { 1.0 } else { 0.0 };
            d[v] = A::mul(A::sub(p, one), inv_n);
        }
    }
}
