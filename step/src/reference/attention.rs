//! Causal self-attention of one head over one sequence.
//!
//! A row of `qkv` is [q | k | v], each C wide, and head h stands at columns h * HS of each. The caller copies
//! a head's q, k, v out and its results back; here every matrix is [T, HS] and contiguous.

use super::reduce::{warp32_dot, warp32_max, warp32_sum};
use crate::number::elementary::{exp, fma};

/// One head's inputs.
#[derive(Clone, Copy)]
pub struct Head<'a> {
    /// Queries, [T, HS].
    pub q: &'a [f32],
    /// Keys, [T, HS].
    pub k: &'a [f32],
    /// Values, [T, HS].
    pub v: &'a [f32],
    /// HS.
    pub head_size: usize,
    /// The committed bits of 1 / sqrt(HS).
    pub scale: f32,
}

/// [T, HS] to [HS, T].
#[inline(always)]
fn transpose(x: &[f32], columns: usize) -> Vec<f32> {
    let rows = x.len() / columns;
    let mut out = vec![0.0; x.len()];
    for (r, row) in x.chunks_exact(columns).enumerate() {
        for (c, value) in row.iter().enumerate() {
            out[c * rows + r] = *value;
        }
    }
    out
}

/// out[u] = chain over c ascending, from +0, of fma(row[c], columns_t[c][u], acc), for u below out's length.
#[inline(always)]
fn dot_each(row: &[f32], columns_t: &[f32], out: &mut [f32]) {
    let times = columns_t.len() / row.len();
    out.fill(0.0);
    for (value, line) in row.iter().zip(columns_t.chunks_exact(times)) {
        for (acc, other) in out.iter_mut().zip(line) {
            *acc = fma(*value, *other, *acc);
        }
    }
}

/// acc[c] = fma(factor, row[c], acc[c]): one link of HS chains.
#[inline(always)]
fn link(factor: f32, row: &[f32], acc: &mut [f32]) {
    for (acc, value) in acc.iter_mut().zip(row) {
        *acc = fma(factor, *value, *acc);
    }
}

/// Attention, forward.
///
/// Shapes    q, k, v: [T, HS] (read); o: [T, HS], max, sum: [T] (written)
/// Order     per query t, for u <= t only: s[u] = (chain over c ascending fma(q[t][c], k[u][c], acc)), then
///           s[u] = s[u] * scale; m = warp32_max(s); e[u] = exp(s[u] - m); z = warp32_sum(e); p[u] = e[u] / z;
///           o[c] = chain over u ascending fma(p[u], v[u][c], acc)
/// Rounding  one rounding per fma; f32 nearest-even after every other operation
/// Special   keys after t are skipped, not filled with zeros
/// Aliasing  none
/// Source    docs/spec/profile.md#attention
#[inline(always)]
pub fn attention_forward(head: Head, o: &mut [f32], max: &mut [f32], sum: &mut [f32]) {
    let (size, times) = (head.head_size, max.len());
    let k_t = transpose(head.k, size);
    let mut scores = vec![0.0_f32; times];
    for (t, (q, o)) in head.q.chunks_exact(size).zip(o.chunks_exact_mut(size)).enumerate() {
        let s = &mut scores[..=t];
        dot_each(q, &k_t, s);
        for s in s.iter_mut() {
            *s *= head.scale;
        }
        let m = warp32_max(s);
        for s in s.iter_mut() {
            *s = exp(*s - m);
        }
        let z = warp32_sum(s);
        for s in s.iter_mut() {
            *s /= z;
        }
        o.fill(0.0);
        for (p, v) in s.iter().zip(head.v.chunks_exact(size)) {
            link(*p, v, o);
        }
        (max[t], sum[t]) = (m, z);
    }
}

/// Attention, backward.
///
/// Shapes    q, k, v, o, d_o: [T, HS], max, sum: [T] (read); d_q: [T, HS] (written); d_k, d_v: [T, HS] (read and
///           written: their chains go on, from +0 or from another head of queries over the same keys)
/// Order     per query t, for u <= t only: s[u], p[u] = exp(s[u] - m) / z as forward; D = warp32_dot(d_o, o);
///           dp[u] = chain over c ascending fma(d_o[t][c], v[u][c], acc);
///           ds[u] = (p[u] * (dp[u] - D)) * scale;
///           d_q[t][c] = chain over u ascending fma(ds[u], k[u][c], acc);
///           d_k[u][c] = chain over t ascending (t >= u) fma(ds[t][u], q[t][c], acc);
///           d_v[u][c] = chain over t ascending (t >= u) fma(p[t][u], d_o[t][c], acc)
/// Rounding  one rounding per fma; f32 nearest-even after every other operation
/// Special   pairs with u > t are skipped, not filled with zeros
/// Aliasing  none
/// Source    docs/spec/profile.md#attention
#[inline(always)]
pub fn attention_backward(
    head: Head,
    o: &[f32],
    d_o: &[f32],
    max: &[f32],
    sum: &[f32],
    d_q: &mut [f32],
    d_k: &mut [f32],
    d_v: &mut [f32],
) {
    let (size, times) = (head.head_size, max.len());
    let (k_t, v_t) = (transpose(head.k, size), transpose(head.v, size));
    let (mut p_row, mut ds_row) = (vec![0.0_f32; times], vec![0.0_f32; times]);
    for t in 0..times {
        let row = t * size..(t + 1) * size;
        let (q, o, d_o) = (&head.q[row.clone()], &o[row.clone()], &d_o[row.clone()]);
        let (p, ds) = (&mut p_row[..=t], &mut ds_row[..=t]);
        dot_each(q, &k_t, p);
        for p in p.iter_mut() {
            *p = exp(*p * head.scale - max[t]) / sum[t];
        }
        let d = warp32_dot(d_o, o);
        dot_each(d_o, &v_t, ds);
        for (ds, p) in ds.iter_mut().zip(p.iter()) {
            *ds = (*p * (*ds - d)) * head.scale;
        }
        let d_q = &mut d_q[row];
        d_q.fill(0.0);
        for (u, k) in head.k.chunks_exact(size).take(t + 1).enumerate() {
            link(ds[u], k, d_q);
            link(ds[u], q, &mut d_k[u * size..(u + 1) * size]);
            link(p[u], d_o, &mut d_v[u * size..(u + 1) * size]);
        }
    }
}
