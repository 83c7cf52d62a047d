//! AdamW.

use crate::number::elementary::fma;

/// The constants of one update, each as the plan's committed bits.
#[derive(Clone, Copy, Debug)]
pub struct AdamwConstants {
    /// Decay of the first moment.
    pub beta1: f32,
    /// 1 - beta1.
    pub one_minus_beta1: f32,
    /// Decay of the second moment.
    pub beta2: f32,
    /// 1 - beta2.
    pub one_minus_beta2: f32,
    /// Added to the root of the second moment.
    pub eps: f32,
    /// 1 / (1 - beta1^t).
    pub correction1: f32,
    /// 1 / (1 - beta2^t).
    pub correction2: f32,
    /// Learning rate of this step.
    pub rate: f32,
    /// 1 - rate * weight decay, or 1 for a tensor without decay.
    pub decay: f32,
}

/// One AdamW update.
///
/// Shapes    gradient: [n] (read); p, m, v: [n] (read and written)
/// Order     g = gradient * scale; m = fma(b1, m, omb1 * g); v = fma(b2, v, omb2 * (g * g)); mh = m * k1;
///           vh = v * k2; den = sqrt(vh) + eps; upd = mh / den; p = fma(-rate, upd, p * decay)
/// Rounding  f32 nearest-even after every operation; fma where written
/// Special   none
/// Aliasing  p, m, v in place
/// Source    docs/spec/profile.md#adamw
#[inline(always)]
pub fn adamw(
    constants: AdamwConstants,
    scale: f32,
    gradient: &[f32],
    p: &mut [f32],
    m: &mut [f32],
    v: &mut [f32],
) {
    let c = constants;
    for (((gradient, p), m), v) in gradient.iter().zip(p).zip(m).zip(v) {
        let g = gradient * scale;
        *m = fma(c.beta1, *m, c.one_minus_beta1 * g);
        *v = fma(c.beta2, *v, c.one_minus_beta2 * (g * g));
        let mh = *m * c.correction1;
        let vh = *v * c.correction2;
        let den = vh.sqrt() + c.eps;
        let upd = mh / den;
        *p = fma(-c.rate, upd, *p * c.decay);
    }
}
