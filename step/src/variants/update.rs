//! Norm, clipping and optimizers, over an arithmetic.

use super::arithmetic::Arithmetic;
use super::rows::warp32_dot;
use crate::reference::adamw::AdamwConstants;
use crate::reference::clip::CHUNK_ROWS;
use crate::reference::sgd::SgdConstants;
use crate::state::{State, columns, spans};
use crate::update::{adamw_constants, sgd_constants};
use schemas::plan::{Plan, Rule};

/// The global norm of a reduced gradient.
pub fn norm<A: Arithmetic>(plan: &Plan, gradient: &[f32]) -> f32 {
    let sum = |values: &mut dyn Iterator<Item = f32>| values.fold(0.0, A::add);
    let tensors = spans(&plan.parameters).into_iter().zip(&plan.parameters);
    let mut squares = tensors.map(|(span, parameter)| {
        let columns = columns(parameter);
        let mut chunks = gradient[span]
            .chunks(CHUNK_ROWS * columns)
            .map(|chunk| sum(&mut chunk.chunks_exact(columns).map(|row| warp32_dot::<A>(row, row))));
        sum(&mut chunks)
    });
    A::sqrt(sum(&mut squares))
}

/// Clips by `norm` and applies a reduced gradient to the state.
pub fn apply<A: Arithmetic>(plan: &Plan, gradient: &[f32], norm: f32, state: &mut State) {
    let update = &plan.update;
    let (clip, epsilon) = (f32::from_bits(update.clip), f32::from_bits(update.clip_epsilon));
    let scale = if norm > clip { A::div(clip, A::add(norm, epsilon)) } else { 1.0 };
    for (span, parameter) in spans(&plan.parameters).into_iter().zip(&plan.parameters) {
        let p = &mut state.parameters[span.clone()];
        let m = &mut state.first_moment[span.clone()];
        match &update.rule {
            Rule::Adamw { .. } => {
                let constants = adamw_constants(update, parameter.group, state.step as usize);
                let v = &mut state.second_moment[span.clone()];
                adamw::<A>(constants, scale, &gradient[span], [p, m, v]);
            }
            Rule::Sgd { .. } => {
                let constants = sgd_constants(update, parameter.group, state.step as usize);
                sgd::<A>(constants, scale, &gradient[span], [p, m]);
            }
        }
    }
    state.step += 1;
}

fn adamw<A: Arithmetic>(c: AdamwConstants, scale: f32, gradient: &[f32], [p, m, v]: [&mut [f32]; 3]) {
    for i in 0..gradient.len() {
        let g = A::mul(gradient[i], scale);
        m[i] = A::fma_product(c.beta1, m[i], c.one_minus_beta1, g);
        v[i] = A::fma_product(c.beta2, v[i], c.one_minus_beta2, A::mul(g, g));
        let mh = A::mul(m[i], c.correction1);
        let vh = A::mul(v[i], c.correction2);
        let den = A::add(A::sqrt(vh), c.eps);
        let upd = A::div(mh, den);
        p[i] = A::fma_product(-c.rate, upd, p[i], c.decay);
    }
}

fn sgd<A: Arithmetic>(c: SgdConstants, scale: f32, gradient: &[f32], [p, m]: [&mut [f32]; 2]) {
    for i in 0..gradient.len() {
        let g = A::fma_product(c.decay, p[i], gradient[i], scale);
        m[i] = A::fma(c.momentum, m[i], g);
        let upd = if c.nesterov { A::fma(c.momentum, m[i], g) } else { m[i] };
        p[i] = A::fma(-c.rate, upd, p[i]);
    }
}
