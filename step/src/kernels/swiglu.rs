//! SwiGLU of every element.

use super::elements::ELEMENT_WORDS;
use crate::dispatch::{self, Backend};
use rayon::prelude::*;

/// SwiGLU of every pair; see `reference::swiglu`.
pub fn swiglu_forward(backend: Backend, gate: &[f32], up: &[f32], y: &mut [f32]) {
    let inputs = gate.par_chunks(ELEMENT_WORDS).zip(up.par_chunks(ELEMENT_WORDS));
    inputs
        .zip(y.par_chunks_mut(ELEMENT_WORDS))
        .for_each(|((gate, up), y)| dispatch::swiglu_forward(backend, gate, up, y));
}

/// Gradients of SwiGLU; see `reference::swiglu`.
pub fn swiglu_backward(
    backend: Backend,
    d_y: &[f32],
    gate: &[f32],
    up: &[f32],
    d_gate: &mut [f32],
    d_up: &mut [f32],
) {
    let inputs = gate.par_chunks(ELEMENT_WORDS).zip(up.par_chunks(ELEMENT_WORDS));
    let outputs = d_gate.par_chunks_mut(ELEMENT_WORDS).zip(d_up.par_chunks_mut(ELEMENT_WORDS));
    d_y.par_chunks(ELEMENT_WORDS).zip(inputs).zip(outputs).for_each(|((d_y, (gate, up)), (d_gate, d_up))| {
        dispatch::swiglu_backward(backend, d_y, gate, up, d_gate, d_up);
    });
}
