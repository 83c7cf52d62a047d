//! Rotary positions of every row.

use super::rows_per_task;
use crate::dispatch::{self, Backend};
use rayon::prelude::*;

/// The rotation of every row of `width` words; see `reference::rope`. `half` is HS/2.
pub fn rope_forward(
    backend: Backend,
    x: &[f32],
    cos: &[f32],
    sin: &[f32],
    half: usize,
    width: usize,
    y: &mut [f32],
) {
    // A task is whole sequences: a row's position follows from its place in them.
    let words = sequences_per_task(cos.len() / half, width);
    let tasks = x.par_chunks(words).zip(y.par_chunks_mut(words));
    tasks.for_each(|(x, y)| dispatch::rope_forward(backend, x, cos, sin, half, width, y));
}

/// Gradient of the rotation; see `reference::rope`.
pub fn rope_backward(
    backend: Backend,
    d_y: &[f32],
    cos: &[f32],
    sin: &[f32],
    half: usize,
    width: usize,
    d_x: &mut [f32],
) {
    let words = sequences_per_task(cos.len() / half, width);
    let tasks = d_y.par_chunks(words).zip(d_x.par_chunks_mut(words));
    tasks.for_each(|(d_y, d_x)| dispatch::rope_backward(backend, d_y, cos, sin, half, width, d_x));
}

/// Words of whole sequences of `times` rows that make one task.
fn sequences_per_task(times: usize, width: usize) -> usize {
    rows_per_task(width).div_ceil(times) * times * width
}
