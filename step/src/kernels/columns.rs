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

/// table[v] = table[v] + the gradient of the embedding by row v of its table, for the rows of tokens that occur; the
/// others are passed over. A row's gradient is added up beside the table first, as in `reference::embedding`.
pub fn embedding_backward_onto(
    backend: Backend,
    tokens: &[u32],
    d_out: &[f32],
    channels: usize,
    table: &mut [f32],
) {
    let mut order: Vec<usize> = (0..tokens.len()).collect();
    // Stable: the rows of one token stay ascending.
    order.sort_by_key(|n| tokens[*n]);
    let mut sum = vec![0.0; channels];
    for same in order.chunk_by(|one, other| tokens[*one] == tokens[*other]) {
        sum.fill(0.0);
        for n in same {
            dispatch::add_in_place(backend, &mut sum, &d_out[n * channels..][..channels]);
        }
        let row = tokens[same[0]] as usize * channels;
        dispatch::add_in_place(backend, &mut table[row..][..channels], &sum);
    }
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
