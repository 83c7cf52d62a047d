//! Cross entropy of every row.

use super::rows_per_task;
use crate::dispatch::{self, Backend};
use rayon::prelude::*;

/// Cross entropy of every row; see `reference::loss`.
pub fn cross_entropy_forward(
    backend: Backend,
    logits: &[f32],
    targets: &[u32],
    vocabulary: usize,
    loss: &mut [f32],
    max: &mut [f32],
    sum: &mut [f32],
) {
    let rows = rows_per_task(vocabulary);
    let inputs = logits.par_chunks(rows * vocabulary).zip(targets.par_chunks(rows));
    let outputs = loss.par_chunks_mut(rows).zip(max.par_chunks_mut(rows)).zip(sum.par_chunks_mut(rows));
    inputs.zip(outputs).for_each(|((logits, targets), ((loss, max), sum))| {
        dispatch::cross_entropy_forward(backend, logits, targets, vocabulary, loss, max, sum);
    });
}

/// Gradient of cross entropy of every row; see `reference::loss`.
pub fn cross_entropy_backward(
    backend: Backend,
    logits: &[f32],
    targets: &[u32],
    max: &[f32],
    sum: &[f32],
    vocabulary: usize,
    inv_n: f32,
    d_logits: &mut [f32],
) {
    let rows = rows_per_task(vocabulary);
    let words = rows * vocabulary;
    let matrices = logits.par_chunks(words).zip(d_logits.par_chunks_mut(words));
    let per_row = targets.par_chunks(rows).zip(max.par_chunks(rows)).zip(sum.par_chunks(rows));
    matrices.zip(per_row).for_each(|((logits, d_logits), ((targets, max), sum))| {
        dispatch::cross_entropy_backward(backend, logits, targets, max, sum, vocabulary, inv_n, d_logits);
    });
}
