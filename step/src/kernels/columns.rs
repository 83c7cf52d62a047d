//! Sums over rows, which the profile orders ascending: the columns, or the rows of a table, are split.

use crate::dispatch::{self, Backend};
use rayon::prelude::*;

/// Columns of one task: a few cache lines of every row.
const COLUMNS: usize = 256;
/// Words of a table's rows that one task owns.
const TABLE_WORDS: usize = 1 << 20;

/// Sum of each column of [rows, out.len()].
pub fn column_sums(backend: Backend, x: &[f32], out: &mut [f32]) {
    let width = out.len();
    let parts = out.par_chunks_mut(COLUMNS).enumerate();
    parts.for_each(|(part, out)| dispatch::column_sums(backend, x, width, part * COLUMNS, out));
}

/// Gradient of layer normalisation by its gain and bias; see `reference::norm`.
pub fn layernorm_backward_parameters(
    backend: Backend,
    d_y: &[f32],
    x: &[f32],
    mean: &[f32],
    rstd: &[f32],
    d_gain: &mut [f32],
    d_bias: &mut [f32],
) {
    let width = d_gain.len();
    let parts = d_gain.par_chunks_mut(COLUMNS).zip(d_bias.par_chunks_mut(COLUMNS)).enumerate();
    parts.for_each(|(part, (d_gain, d_bias))| {
        let first = part * COLUMNS;
        dispatch::layernorm_backward_parameters(backend, d_y, x, mean, rstd, width, first, d_gain, d_bias);
    });
}

/// Gradient of RMS normalisation by its gain; see `reference::rmsnorm`.
pub fn rmsnorm_backward_gain(backend: Backend, d_y: &[f32], x: &[f32], rstd: &[f32], d_gain: &mut [f32]) {
    let width = d_gain.len();
    let parts = d_gain.par_chunks_mut(COLUMNS).enumerate();
    parts.for_each(|(part, d_gain)| {
        dispatch::rmsnorm_backward_gain(backend, d_y, x, rstd, width, part * COLUMNS, d_gain);
    });
}

/// Gradient of the embedding by its table; see `reference::embedding`. Every task looks through all tokens.
pub fn embedding_backward_tokens(
    backend: Backend,
    tokens: &[u32],
    d_out: &[f32],
    channels: usize,
    d_wte: &mut [f32],
) {
    let rows = (TABLE_WORDS / channels).max(1);
    let parts = d_wte.par_chunks_mut(rows * channels).enumerate();
    parts.for_each(|(part, d_wte)| {
        dispatch::embedding_backward_tokens(backend, tokens, d_out, channels, part * rows, d_wte);
    });
}
