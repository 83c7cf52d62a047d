//! Operations on single elements.

use crate::dispatch::{self, Backend};
use crate::reference::adamw::AdamwConstants;
use crate::reference::sgd::SgdConstants;
use rayon::prelude::*;

/// Words of an element-wise operation done by one task.
pub(super) const ELEMENT_WORDS: usize = 1 << 15;

/// GELU of every element.
pub fn gelu_forward(backend: Backend, x: &[f32], y: &mut [f32]) {
    let tasks = x.par_chunks(ELEMENT_WORDS).zip(y.par_chunks_mut(ELEMENT_WORDS));
    tasks.for_each(|(x, y)| dispatch::gelu_forward(backend, x, y));
}

/// Gradient of GELU of every element.
pub fn gelu_backward_input(backend: Backend, x: &[f32], d_y: &[f32], d_x: &mut [f32]) {
    let inputs = x.par_chunks(ELEMENT_WORDS).zip(d_y.par_chunks(ELEMENT_WORDS));
    inputs
        .zip(d_x.par_chunks_mut(ELEMENT_WORDS))
        .for_each(|((x, d_y), d_x)| dispatch::gelu_backward_input(backend, x, d_y, d_x));
}

/// out[i] = left[i] + right[i].
pub fn add(backend: Backend, left: &[f32], right: &[f32], out: &mut [f32]) {
    let inputs = left.par_chunks(ELEMENT_WORDS).zip(right.par_chunks(ELEMENT_WORDS));
    inputs
        .zip(out.par_chunks_mut(ELEMENT_WORDS))
        .for_each(|((left, right), out)| dispatch::add(backend, left, right, out));
}

/// left[i] = left[i] + right[i].
pub fn add_in_place(backend: Backend, left: &mut [f32], right: &[f32]) {
    let tasks = left.par_chunks_mut(ELEMENT_WORDS).zip(right.par_chunks(ELEMENT_WORDS));
    tasks.for_each(|(left, right)| dispatch::add_in_place(backend, left, right));
}

/// x[i] = x[i] * factor.
pub fn scale_in_place(backend: Backend, x: &mut [f32], factor: f32) {
    x.par_chunks_mut(ELEMENT_WORDS).for_each(|x| dispatch::scale_in_place(backend, x, factor));
}

/// AdamW of every element of one tensor.
pub fn adamw(
    backend: Backend,
    constants: AdamwConstants,
    scale: f32,
    gradient: &[f32],
    p: &mut [f32],
    m: &mut [f32],
    v: &mut [f32],
) {
    let state = p
        .par_chunks_mut(ELEMENT_WORDS)
        .zip(m.par_chunks_mut(ELEMENT_WORDS))
        .zip(v.par_chunks_mut(ELEMENT_WORDS));
    gradient.par_chunks(ELEMENT_WORDS).zip(state).for_each(|(gradient, ((p, m), v))| {
        dispatch::adamw(backend, constants, scale, gradient, p, m, v);
    });
}

/// SGD of every element of one tensor.
pub fn sgd(
    backend: Backend,
    constants: SgdConstants,
    scale: f32,
    gradient: &[f32],
    p: &mut [f32],
    m: &mut [f32],
) {
    let state = p.par_chunks_mut(ELEMENT_WORDS).zip(m.par_chunks_mut(ELEMENT_WORDS));
    gradient.par_chunks(ELEMENT_WORDS).zip(state).for_each(|(gradient, (p, m))| {
        dispatch::sgd(backend, constants, scale, gradient, p, m);
    });
}
