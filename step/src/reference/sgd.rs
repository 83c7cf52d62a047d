//! Stochastic gradient descent with momentum.

use crate::number::elementary::fma;

/// The constants of one update, each as the plan's committed bits.
#[derive(Clone, Copy, Debug)]
pub struct SgdConstants {
    /// Decay of the velocity.
    pub momentum: f32,
    /// Whether the step looks ahead.
    pub nesterov: bool,
    /// Learning rate of this step.
    pub rate: f32,
    /// Weight decay, added to the gradient.
    pub decay: f32,
}

/// One SGD update.
///
/// Shapes    gradient: [n] (read); p, m: [n] (read and written)
/// Order     g = gradient * scale; g = fma(decay, p, g); m = fma(momentum, m, g);
///           upd = m, or with nesterov upd = fma(momentum, m, g); p = fma(-rate, upd, p)
/// Rounding  f32 nearest-even after the multiply; one rounding per fma
/// Special   none
/// Aliasing  p, m in place
/// Source    docs/spec/profile.md#sgd
#[inline(always)]
pub fn sgd(constants: SgdConstants, scale: f32, gradient: &[f32], p: &mut [f32], m: &mut [f32]) {
    let c = constants;
    for ((gradient, p), m) in gradient.iter().zip(p).zip(m) {
        let g = gradient * scale;
        let g = fma(c.decay, *p, g);
        *m = fma(c.momentum, *m, g);
        let upd = if c.nesterov { fma(c.momentum, *m, g) } else { *m };
        *p = fma(-c.rate, upd, *p);
    }
}
