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
    /// NH: heads of queries.
    pub heads: usize,
    /// KVH: heads of keys and values; each serves NH / KVH heads of queries, next to each other.
    pub kv_heads: usize,
    /// HS.
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

/// Attention with grouped heads. q: [N, NH * HS], k, v: [N, KVH * HS] (read); o: [N, NH * HS], max, sum: [B, NH, T]
/// (written).
pub fn grouped_attention_forward(
    backend: Backend,
    shape: AttentionShape,
    q: &[f32],
    k: &[f32],
    v: &[f32],
    o: &mut [f32],
    max: &mut [f32],
    sum: &mut [f32],
) {
    let (times, size, width) = (shape.times, shape.head_size, shape.channels());
    let (kv_width, each) = (shape.kv_heads * size, shape.heads / shape.kv_heads);
    let tasks = max.par_chunks_mut(times).zip(sum.par_chunks_mut(times)).enumerate();
    let parts: Vec<Vec<f32>> = tasks
        .map(|(task, (max, sum))| {
            let (batch, head) = (task / shape.heads, task % shape.heads);
            let q = shape.take(q, width, batch, head * size);
            let [k, v] = [k, v].map(|x| shape.take(x, kv_width, batch, head / each * size));
            let mut o = vec![0.0; times * size];
            let head = Head { q: &q, k: &k, v: &v, head_size: size, scale: shape.scale };
            dispatch::attention_forward(backend, head, &mut o, max, sum);
            o
        })
        .collect();
    for (task, part) in parts.iter().enumerate() {
        shape.put(part, o, width, task / shape.heads, task % shape.heads * size);
    }
}

/// Gradient of attention with grouped heads, in the shapes of the forward pass. Heads of queries that share a head of
/// keys go one after the other, ascending: the chains of d_k and d_v run through all of them.
pub fn grouped_attention_backward(
    backend: Backend,
    shape: AttentionShape,
    q: &[f32],
    k: &[f32],
    v: &[f32],
    o: &[f32],
    d_o: &[f32],
    max: &[f32],
    sum: &[f32],
    d_q: &mut [f32],
    d_k: &mut [f32],
    d_v: &mut [f32],
) {
    let (times, size, width) = (shape.times, shape.head_size, shape.channels());
    let (kv_width, each) = (shape.kv_heads * size, shape.heads / shape.kv_heads);
    let tasks = (0..shape.batches * shape.kv_heads).into_par_iter();
    let parts: Vec<(Vec<Vec<f32>>, [Vec<f32>; 2])> = tasks
        .map(|task| {
            let (batch, group) = (task / shape.kv_heads, task % shape.kv_heads);
            let [k, v] = [k, v].map(|x| shape.take(x, kv_width, batch, group * size));
            let [mut d_k, mut d_v] = [(); 2].map(|_| vec![0.0; times * size]);
            let of_head = |head: usize| {
                let [q, o, d_o] = [q, o, d_o].map(|x| shape.take(x, width, batch, head * size));
                let rows = (batch * shape.heads + head) * times..(batch * shape.heads + head + 1) * times;
                let mut d_q = vec![0.0; times * size];
                let head = Head { q: &q, k: &k, v: &v, head_size: size, scale: shape.scale };
                let (max, sum) = (&max[rows.clone()], &sum[rows]);
                dispatch::attention_backward(backend, head, &o, &d_o, max, sum, &mut d_q, &mut d_k, &mut d_v);
                d_q
            };
            let d_q = (group * each..(group + 1) * each).map(of_head).collect();
            (d_q, [d_k, d_v])
        })
        .collect();
    for (task, (heads, [part_k, part_v])) in parts.iter().enumerate() {
        let (batch, group) = (task / shape.kv_heads, task % shape.kv_heads);
        shape.put(part_k, d_k, kv_width, batch, group * size);
        shape.put(part_v, d_v, kv_width, batch, group * size);
        for (i, part) in heads.iter().enumerate() {
            shape.put(part, d_q, width, batch, (group * each + i) * size);
        }
    }
}
