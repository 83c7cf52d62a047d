//! Normalisation of rows.

use super::rows_per_task;
use crate::dispatch::{self, Backend};
use rayon::prelude::*;

/// Layer normalisation of every row; see `reference::norm`.
pub fn layernorm_forward(
    backend: Backend,
    x: &[f32],
    gain: &[f32],
    bias: &[f32],
    inv_c: f32,
    eps: f32,
    y: &mut [f32],
    mean: &mut [f32],
    rstd: &mut [f32],
) {
    let rows = rows_per_task(gain.len());
    let words = rows * gain.len();
    let inputs = x.par_chunks(words).zip(y.par_chunks_mut(words));
    let outputs = mean.par_chunks_mut(rows).zip(rstd.par_chunks_mut(rows));
    inputs.zip(outputs).for_each(|((x, y), (mean, rstd))| {
        dispatch::layernorm_forward(backend, x, gain, bias, inv_c, eps, y, mean, rstd);
    });
}

/// Gradient of layer normalisation by its input; see `reference::norm`.
pub fn layernorm_backward_input(
    backend: Backend,
    d_y: &[f32],
    x: &[f32],
    gain: &[f32],
    mean: &[f32],
    rstd: &[f32],
    inv_c: f32,
    d_x: &mut [f32],
) {
    let rows = rows_per_task(gain.len());
    let words = rows * gain.len();
    let inputs = d_y.par_chunks(words).zip(x.par_chunks(words)).zip(d_x.par_chunks_mut(words));
    inputs.zip(mean.par_chunks(rows).zip(rstd.par_chunks(rows))).for_each(
        |(((d_y, x), d_x), (mean, rstd))| {
            dispatch::layernorm_backward_input(backend, d_y, x, gain, mean, rstd, inv_c, d_x);
        },
    );
}

/// RMS normalisation of every row; see `reference::rmsnorm`.
pub fn rmsnorm_forward(
    backend: Backend,
    x: &[f32],
    gain: &[f32],
    inv_c: f32,
    eps: f32,
    y: &mut [f32],
    rstd: &mut [f32],
) {
    let rows = rows_per_task(gain.len());
    let words = rows * gain.len();
    let tasks = x.par_chunks(words).zip(y.par_chunks_mut(words)).zip(rstd.par_chunks_mut(rows));
    tasks.for_each(|((x, y), rstd)| dispatch::rmsnorm_forward(backend, x, gain, inv_c, eps, y, rstd));
}

/// Gradient of RMS normalisation by its input; see `reference::rmsnorm`.
pub fn rmsnorm_backward_input(
    backend: Backend,
    d_y: &[f32],
    x: &[f32],
    gain: &[f32],
    rstd: &[f32],
    inv_c: f32,
    d_x: &mut [f32],
) {
    let rows = rows_per_task(gain.len());
    let words = rows * gain.len();
    let inputs = d_y.par_chunks(words).zip(x.par_chunks(words)).zip(rstd.par_chunks(rows));
    inputs.zip(d_x.par_chunks_mut(words)).for_each(|(((d_y, x), rstd), d_x)| {
        dispatch::rmsnorm_backward_input(backend, d_y, x, gain, rstd, inv_c, d_x);
    });
}
