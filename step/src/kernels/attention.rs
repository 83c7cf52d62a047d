//! Attention of every head.

use crate::dispatch::{self, Backend};
use crate::reference::attention::Head;
use rayon::prelude::*;

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
