//! What follows the gradient tree: one multiply by 1/leaves, the global norm, clipping and the optimizer.

use crate::dispatch::Backend;
use crate::kernels;
use crate::reference::adamw::AdamwConstants;
use crate::reference::clip::{ascending_sum, clip_scale};
use crate::reference::sgd::SgdConstants;
use crate::state::{State, columns, spans};
use schemas::plan::{Plan, Rule, Update};
use std::ops::Range;

/// Turns the tree's root into the reduced gradient, in place: times the committed bits of 1/leaves. Returns its global
/// norm, since that needs the same pass over memory.
pub fn reduce(backend: Backend, plan: &Plan, root: &mut [f32]) -> f32 {
    let factor = f32::from_bits(plan.update.inverse_leaves);
    if root_is_reduced(plan) {
        return global_norm(backend, plan, root);
    }
    let mut rest = root;
    let mut tensors = Vec::with_capacity(plan.parameters.len());
    for (index, span) in spans(&plan.parameters).into_iter().enumerate() {
        let (tensor, after) = std::mem::take(&mut rest).split_at_mut(span.len());
        tensors.push((tensor, columns(&plan.parameters[index])));
        rest = after;
    }
    norm_of(&kernels::scaled_square_sums(backend, tensors, factor))
}

/// The global norm of a flat gradient: per tensor in registered order, then over tensors ascending, then the
/// root.
pub fn global_norm(backend: Backend, plan: &Plan, gradient: &[f32]) -> f32 {
    let tensor = |(index, span): (usize, Range<usize>)| (&gradient[span], columns(&plan.parameters[index]));
    let tensors: Vec<(&[f32], usize)> = spans(&plan.parameters).into_iter().enumerate().map(tensor).collect();
    norm_of(&kernels::square_sums(backend, &tensors))
}

/// Whether the tree's root is the reduced gradient, bit for bit: a product with 1 is the other factor, and a NaN stays
/// one.
pub fn root_is_reduced(plan: &Plan) -> bool {
    plan.update.inverse_leaves == 1.0_f32.to_bits()
}

/// The global norm of a gradient from the sums of squares of its tensors.
pub fn norm_of(square_sums: &[f32]) -> f32 {
    ascending_sum(square_sums).sqrt()
}

/// Clips and applies a reduced gradient to the state, which moves to the next step. Returns the norm before
/// clipping.
pub fn apply(backend: Backend, plan: &Plan, gradient: &[f32], state: &mut State) -> f32 {
    let norm = global_norm(backend, plan, gradient);
    apply_with_norm(backend, plan, gradient, norm, state);
    norm
}

/// As `apply`, with the norm that `reduce` gave.
pub fn apply_with_norm(backend: Backend, plan: &Plan, gradient: &[f32], norm: f32, state: &mut State) {
    let update = &plan.update;
    let at = state.step as usize;
    let scale = clip_scale(norm, f32::from_bits(update.clip), f32::from_bits(update.clip_epsilon));
    for (span, parameter) in spans(&plan.parameters).into_iter().zip(&plan.parameters) {
        let p = &mut state.parameters[span.clone()];
        let m = &mut state.first_moment[span.clone()];
        match &update.rule {
            Rule::Adamw { .. } => {
                let constants = adamw_constants(update, parameter.group, at);
                let v = &mut state.second_moment[span.clone()];
                kernels::adamw(backend, constants, scale, &gradient[span], p, m, v);
            }
            // The velocity is the first moment; the second stays as it is, +0 in every run that starts here.
            Rule::Sgd { .. } => {
                let constants = sgd_constants(update, parameter.group, at);
                kernels::sgd(backend, constants, scale, &gradient[span], p, m);
            }
        }
    }
    state.step += 1;
}

/// The constants of AdamW for a group of parameters in step `at`.
pub(crate) fn adamw_constants(update: &Update, group: usize, at: usize) -> AdamwConstants {
    let Rule::Adamw { beta1, one_minus_beta1, beta2, one_minus_beta2, epsilon, corrections } = &update.rule
    else {
        panic!("update: the rule is not AdamW")
    };
    let (value, step) = (f32::from_bits, update.groups[group][at]);
    AdamwConstants {
        beta1: value(*beta1),
        one_minus_beta1: value(*one_minus_beta1),
        beta2: value(*beta2),
        one_minus_beta2: value(*one_minus_beta2),
        eps: value(*epsilon),
        correction1: value(corrections[at].first),
        correction2: value(corrections[at].second),
        rate: value(step.learning_rate),
        decay: value(step.decay),
    }
}

/// The constants of SGD for a group of parameters in step `at`.
pub(crate) fn sgd_constants(update: &Update, group: usize, at: usize) -> SgdConstants {
    let Rule::Sgd { momentum, nesterov } = update.rule else { panic!("update: the rule is not SGD") };
    let step = update.groups[group][at];
    SgdConstants {
        momentum: f32::from_bits(momentum),
        nesterov,
        rate: f32::from_bits(step.learning_rate),
        decay: f32::from_bits(step.decay),
    }
}
