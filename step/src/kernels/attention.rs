//! Attention of every head.
//!
//! Tasks are independent outputs: forward, a query head of a sequence or some of its queries; backward, a key/value
//! head of a sequence with the query heads it serves, whose gradients are one chain.

use crate::dispatch::{self, Backend};
use crate::reference::attention::{Head, Rows};
use rayon::prelude::*;

/// Shape of an attention operation.
#[derive(Clone, Copy, Debug)]
pub struct AttentionShape {
    /// B: sequences.
    pub batches: usize,
    /// T: positions of each.
    pub times: usize,
    /// NH: query heads.
    pub heads: usize,
    /// KVH: key/value heads; divides NH. Head g serves query heads g * (NH / KVH) up to the next one's first.
    pub kv_heads: usize,
    /// HS; A = NH * HS.
    pub head_size: usize,
    /// The committed bits of 1 / sqrt(HS).
    pub scale: f32,
}

/// Queries that a forward task has at least: enough to pay for copying their keys and values.
const TASK_QUERIES: usize = 64;

/// A matrix of heads side by side, [N, stride].
#[derive(Clone, Copy)]
struct Heads<'a> {
    words: &'a [f32],
    stride: usize,
}

impl<'a> Heads<'a> {
    /// The rows of one head in one sequence.
    fn of(self, shape: AttentionShape, batch: usize, head: usize) -> Rows<'a> {
        let first = batch * shape.times * self.stride + head * shape.head_size;
        Rows { words: &self.words[first..], stride: self.stride, width: shape.head_size }
    }
}

/// Queries, keys and values of every head.
#[derive(Clone, Copy)]
struct Inputs<'a> {
    q: Heads<'a>,
    k: Heads<'a>,
    v: Heads<'a>,
}

impl<'a> Inputs<'a> {
    /// From rows [q | k | v].
    fn packed(shape: AttentionShape, qkv: &'a [f32]) -> Self {
        assert_eq!(shape.heads, shape.kv_heads, "attention: packed rows have as many keys as queries");
        let width = shape.heads * shape.head_size;
        let [q, k, v] = [0, 1, 2].map(|part| &qkv[(part * width).min(qkv.len())..]);
        let heads = |words| Heads { words, stride: 3 * width };
        Inputs { q: heads(q), k: heads(k), v: heads(v) }
    }

    /// From three matrices.
    fn grouped(shape: AttentionShape, q: &'a [f32], k: &'a [f32], v: &'a [f32]) -> Self {
        let heads = |words, heads: usize| Heads { words, stride: heads * shape.head_size };
        Inputs { q: heads(q, shape.heads), k: heads(k, shape.kv_heads), v: heads(v, shape.kv_heads) }
    }

    /// One query head and the keys and values it looks at.
    fn head(self, shape: AttentionShape, batch: usize, head: usize) -> Head<'a> {
        let group = head / (shape.heads / shape.kv_heads);
        Head {
            q: self.q.of(shape, batch, head),
            k: self.k.of(shape, batch, group),
            v: self.v.of(shape, batch, group),
            scale: shape.scale,
        }
    }
}

/// The rows of one head, apart from each other.
type HeadRows<'a> = Vec<&'a mut [f32]>;

/// Cuts a matrix of `heads` heads side by side: the rows of head h in sequence b stand at b * heads + h.
fn cut(shape: AttentionShape, heads: usize, x: &mut [f32]) -> Vec<HeadRows<'_>> {
    let mut parts: Vec<HeadRows> = Vec::new();
    parts.resize_with(shape.batches * heads, || Vec::with_capacity(shape.times));
    for (i, part) in x.chunks_exact_mut(shape.head_size).enumerate() {
        parts[i / heads / shape.times * heads + i % heads].push(part);
    }
    parts
}

/// Attention of every head. qkv: [N, 3A] (read); o: [N, A], max, sum: [B, NH, T] (written).
pub fn attention_forward(
    backend: Backend,
    shape: AttentionShape,
    qkv: &[f32],
    o: &mut [f32],
    max: &mut [f32],
    sum: &mut [f32],
) {
    forward(backend, shape, Inputs::packed(shape, qkv), o, max, sum);
}

/// Attention of every head, with grouped queries. q: [N, A], k, v: [N, KVH * HS] (read); o: [N, A], max,
/// sum: [B, NH, T] (written).
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
    forward(backend, shape, Inputs::grouped(shape, q, k, v), o, max, sum);
}

fn forward(
    backend: Backend,
    shape: AttentionShape,
    inputs: Inputs,
    o: &mut [f32],
    max: &mut [f32],
    sum: &mut [f32],
) {
    let (times, heads) = (shape.times, shape.batches * shape.heads);
    // Later queries look at more keys, so that equal numbers of queries are unequal work: several tasks a thread.
    let pieces = (4 * rayon::current_num_threads()).div_ceil(heads);
    let queries = times.div_ceil(pieces).next_multiple_of(TASK_QUERIES);
    let o = cut(shape, shape.heads, o);
    let tasks = o.into_par_iter().zip(max.par_chunks_mut(times)).zip(sum.par_chunks_mut(times)).enumerate();
    tasks.for_each(|(at, ((mut o, max), sum))| {
        let head = inputs.head(shape, at / shape.heads, at % shape.heads);
        let pieces =
            o.par_chunks_mut(queries).zip(max.par_chunks_mut(queries)).zip(sum.par_chunks_mut(queries));
        pieces.enumerate().for_each(|(piece, ((o, max), sum))| {
            dispatch::attention_forward(backend, head, piece * queries, o, max, sum);
        });
    });
}

/// Gradient of attention. qkv: [N, 3A]; o, d_o: [N, A]; max, sum: [B, NH, T] (read); d_qkv: [N, 3A] (written).
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
    let inputs = Inputs::packed(shape, qkv);
    let mut d = cut(shape, 3 * shape.heads, d_qkv).into_iter();
    let [mut d_q, mut d_k, mut d_v] = [(); 3].map(|_| Vec::new());
    for _ in 0..shape.batches {
        for part in [&mut d_q, &mut d_k, &mut d_v] {
            part.extend(d.by_ref().take(shape.heads));
        }
    }
    backward(backend, shape, inputs, [o, d_o], [max, sum], [d_q, d_k, d_v]);
}

/// Gradient of attention with grouped queries. q, o, d_o: [N, A], k, v: [N, KVH * HS], max, sum: [B, NH, T]
/// (read); d_q: [N, A], d_k, d_v: [N, KVH * HS] (written).
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
    let inputs = Inputs::grouped(shape, q, k, v);
    let d_q = cut(shape, shape.heads, d_q);
    let [d_k, d_v] = [d_k, d_v].map(|d| cut(shape, shape.kv_heads, d));
    backward(backend, shape, inputs, [o, d_o], [max, sum], [d_q, d_k, d_v]);
}

fn backward(
    backend: Backend,
    shape: AttentionShape,
    inputs: Inputs,
    [o, d_o]: [&[f32]; 2],
    [max, sum]: [&[f32]; 2],
    [mut d_q, d_k, d_v]: [Vec<HeadRows>; 3],
) {
    let group = shape.heads / shape.kv_heads;
    let [o, d_o] = [o, d_o].map(|words| Heads { words, stride: shape.heads * shape.head_size });
    let tasks = d_q.par_chunks_mut(group).zip(d_k).zip(d_v).enumerate();
    tasks.for_each(|(at, ((d_q, mut d_k), mut d_v))| {
        for row in d_k.iter_mut().chain(d_v.iter_mut()) {
            row.fill(0.0);
        }
        // Ascending, for the chains of d_k and d_v go on from one query head to the next.
        for (i, d_q) in d_q.iter_mut().enumerate() {
            let query_head = at * group + i;
            let (batch, head) = (query_head / shape.heads, query_head % shape.heads);
            let row = query_head * shape.times..(query_head + 1) * shape.times;
            let (max, sum) = (&max[row.clone()], &sum[row]);
            let (o, d_o) = (o.of(shape, batch, head), d_o.of(shape, batch, head));
            let head = inputs.head(shape, batch, head);
            dispatch::attention_backward(backend, head, o, d_o, max, sum, d_q, &mut d_k, &mut d_v);
        }
    });
}
