//! Whole-tensor operations: the kernels with independent rows, heads or elements split over threads.
//!
//! A split never cuts a sum: every function here hands whole rows (or heads, or elements) to a kernel, so the
//! number of threads cannot reach a bit. Sums over rows that the profile orders ascending stay on one thread
//! per column.

use crate::dispatch::{self, Backend};
use crate::reference::adamw::AdamwConstants;
use crate::reference::attention::Head;
use crate::reference::clip::{CHUNK_ROWS, ascending_sum};
use crate::reference::matmul::View;
use rayon::prelude::*;

/// Rows of a matrix product done by one task: enough to pay for packing the right-hand side again.
const MATMUL_ROWS: usize = 96;
/// Words of an element-wise operation done by one task.
const ELEMENT_WORDS: usize = 1 << 15;
/// Words of a row-wise operation done by one task, at least one row.
const ROW_WORDS: usize = 1 << 14;

/// Rows of `columns` words that make one task.
fn rows_per_task(columns: usize) -> usize {
    (ROW_WORDS / columns).max(1)
}

/// out[rows, columns] = a[rows, inner] . b[inner, columns].
pub fn matmul(backend: Backend, a: View, b: View, inner: usize, columns: usize, out: &mut [f32]) {
    out.par_chunks_mut(MATMUL_ROWS * columns).enumerate().for_each(|(task, out)| {
        dispatch::matmul(backend, a.from_row(task * MATMUL_ROWS), b, inner, columns, out);
    });
}

/// out[rows, outputs] = x[rows, inputs] . w[inputs, outputs], plus a bias if given.
pub fn linear(
    backend: Backend,
    x: &[f32],
    w: View,
    inputs: usize,
    bias: Option<&[f32]>,
    outputs: usize,
    out: &mut [f32],
) {
    matmul(backend, View::rows(x, inputs), w, inputs, outputs, out);
    if let Some(bias) = bias {
        out.par_chunks_mut(rows_per_task(outputs) * outputs)
            .for_each(|out| dispatch::add_bias(backend, bias, out));
    }
}

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

/// Shape of an attention operation.
#[derive(Clone, Copy, Debug)]
pub struct AttentionShape {
    /// B: sequences.
    pub batches: usize,
    /// T: positions of each.
    pub times: usize,
    /// NH.
    pub heads: usize,
    /// HS; C = NH * HS.
    pub head_size: usize,
    /// The committed bits of 1 / sqrt(HS).
    pub scale: f32,
}

impl AttentionShape {
    fn channels(self) -> usize {
        self.heads * self.head_size
    }

    /// Copies one head out of rows of `width` words: [T, HS] from column `first` of sequence `batch`.
    fn take(self, x: &[f32], width: usize, batch: usize, first: usize) -> Vec<f32> {
        let rows = x[batch * self.times * width..].chunks_exact(width).take(self.times);
        rows.flat_map(|row| &row[first..first + self.head_size]).copied().collect()
    }

    /// Copies one head back; the counterpart of `take`.
    fn put(self, part: &[f32], x: &mut [f32], width: usize, batch: usize, first: usize) {
        let rows = x[batch * self.times * width..].chunks_exact_mut(width);
        for (row, part) in rows.zip(part.chunks_exact(self.head_size)) {
            row[first..first + self.head_size].copy_from_slice(part);
        }
    }
}

/// q, k and v of one head, each [T, HS].
fn take_qkv(shape: AttentionShape, qkv: &[f32], batch: usize, head: usize) -> [Vec<f32>; 3] {
    let channels = shape.channels();
    [0, 1, 2].map(|part| shape.take(qkv, 3 * channels, batch, part * channels + head * shape.head_size))
}

/// Attention of every head. qkv: [B, T, 3C] (read); o: [B, T, C], max, sum: [B, NH, T] (written).
pub fn attention_forward(
    backend: Backend,
    shape: AttentionShape,
    qkv: &[f32],
    o: &mut [f32],
    max: &mut [f32],
    sum: &mut [f32],
) {
    let (times, size) = (shape.times, shape.head_size);
    let tasks = max.par_chunks_mut(times).zip(sum.par_chunks_mut(times)).enumerate();
    let parts: Vec<Vec<f32>> = tasks
        .map(|(task, (max, sum))| {
            let [q, k, v] = take_qkv(shape, qkv, task / shape.heads, task % shape.heads);
            let mut o = vec![0.0; times * size];
            let head = Head { q: &q, k: &k, v: &v, head_size: size, scale: shape.scale };
            dispatch::attention_forward(backend, head, &mut o, max, sum);
            o
        })
        .collect();
    for (task, part) in parts.iter().enumerate() {
        shape.put(part, o, shape.channels(), task / shape.heads, task % shape.heads * size);
    }
}

/// Gradient of attention. qkv, d_qkv: [B, T, 3C]; o, d_o: [B, T, C]; max, sum: [B, NH, T]; d_qkv is written.
pub fn attention_backward(
    backend: Backend,
    shape: AttentionShape,
    qkv: &[f32],
    o: &[f32],
    d_o: &[f32],
    max: &[f32],
    sum: &[f32],
    d_qkv: &mut [f32],
) {
    let (times, size, channels) = (shape.times, shape.head_size, shape.channels());
    let tasks = max.par_chunks(times).zip(sum.par_chunks(times)).enumerate();
    let parts: Vec<[Vec<f32>; 3]> = tasks
        .map(|(task, (max, sum))| {
            let (batch, head) = (task / shape.heads, task % shape.heads);
            let [q, k, v] = take_qkv(shape, qkv, batch, head);
            let o = shape.take(o, channels, batch, head * size);
            let d_o = shape.take(d_o, channels, batch, head * size);
            let [mut d_q, mut d_k, mut d_v] = [0, 1, 2].map(|_| vec![0.0; times * size]);
            let inputs = Head { q: &q, k: &k, v: &v, head_size: size, scale: shape.scale };
            dispatch::attention_backward(backend, inputs, &o, &d_o, max, sum, &mut d_q, &mut d_k, &mut d_v);
            [d_q, d_k, d_v]
        })
        .collect();
    for (task, heads) in parts.iter().enumerate() {
        for (part, d) in heads.iter().enumerate() {
            let first = part * channels + task % shape.heads * size;
            shape.put(d, d_qkv, 3 * channels, task / shape.heads, first);
        }
    }
}

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

/// Sum of squares of one tensor: rows of `columns`, in chunks of 1024 rows (`reference::clip`).
pub fn square_sum(backend: Backend, x: &[f32], columns: usize) -> f32 {
    let chunks = x.par_chunks(CHUNK_ROWS * columns);
    let sums: Vec<f32> = chunks.map(|chunk| dispatch::square_sum_chunk(backend, chunk, columns)).collect();
    ascending_sum(&sums)
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
