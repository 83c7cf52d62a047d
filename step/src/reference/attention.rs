//! Causal self-attention of one query head over one sequence.

use super::reduce::{warp32_dot, warp32_max, warp32_sum};
use crate::number::elementary::{exp, fma};

/// The columns of one head in a matrix that holds more: row t starts at word t * stride and is `width` words wide.
#[derive(Clone, Copy)]
pub struct Rows<'a> {
    /// From the head's first word on.
    pub words: &'a [f32],
    /// Distance of two rows, in words.
    pub stride: usize,
    /// HS.
    pub width: usize,
}

impl<'a> Rows<'a> {
    /// Row t.
    #[inline(always)]
    pub fn row(self, t: usize) -> &'a [f32] {
        &self.words[t * self.stride..][..self.width]
    }
}

/// One query head's inputs. With grouped queries several heads have the same keys and values.
#[derive(Clone, Copy)]
pub struct Head<'a> {
    /// Queries, [T, HS].
    pub q: Rows<'a>,
    /// Keys, [T, HS].
    pub k: Rows<'a>,
    /// Values, [T, HS].
    pub v: Rows<'a>,
    /// The committed bits of 1 / sqrt(HS).
    pub scale: f32,
}

/// Chain over c ascending, from +0, of fma(a[c], b[c], acc).
#[inline(always)]
fn chain(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).fold(0.0, |acc, (a, b)| fma(*a, *b, acc))
}

/// acc[c] = fma(factor, row[c], acc[c]): one link of HS chains.
#[inline(always)]
fn link(factor: f32, row: &[f32], acc: &mut [f32]) {
    for (acc, value) in acc.iter_mut().zip(row) {
        *acc = fma(factor, *value, *acc);
    }
}

/// Attention, forward, of the queries t = first, first + 1, ... : as many as `max` has elements.
///
/// Shapes    q, k, v: [T, HS] (read); o: [queries, HS], a slice for each row, max, sum: [queries] (written)
/// Order     per query t, for u <= t only: s[u] = (chain over c ascending fma(q[t][c], k[u][c], acc)), then
///           s[u] = s[u] * scale; m = warp32_max(s); e[u] = exp(s[u] - m); z = warp32_sum(e); p[u] = e[u] / z;
///           o[c] = chain over u ascending fma(p[u], v[u][c], acc)
/// Rounding  one rounding per fma; f32 nearest-even after every other operation
/// Special   keys after t are skipped, not filled with zeros
/// Aliasing  none
/// Source    docs/spec/profile.md#attention
pub fn attention_forward(head: Head, first: usize, o: &mut [&mut [f32]], max: &mut [f32], sum: &mut [f32]) {
    for i in 0..max.len() {
        let t = first + i;
        let mut s: Vec<f32> = (0..=t).map(|u| chain(head.q.row(t), head.k.row(u)) * head.scale).collect();
        let m = warp32_max(&s);
        for u in 0..=t {
            s[u] = exp(s[u] - m);
        }
        let z = warp32_sum(&s);
        o[i].fill(0.0);
        for u in 0..=t {
            let p = s[u] / z;
            link(p, head.v.row(u), o[i]);
        }
        (max[i], sum[i]) = (m, z);
    }
}

/// Attention, backward. It continues d_k and d_v: the caller fills them with +0 before the first query head that
/// these keys and values serve, and takes those heads in ascending order.
///
/// Shapes    q, k, v, o, d_o: [T, HS], max, sum: [T] (read); d_q: [T, HS] (written), d_k, d_v: [T, HS] (read and
///           written); a slice for each row of a gradient
/// Order     per query t, for u <= t only: s[u], p[u] = exp(s[u] - m) / z as forward; D = warp32_dot(d_o, o);
///           dp[u] = chain over c ascending fma(d_o[t][c], v[u][c], acc);
///           ds[u] = (p[u] * (dp[u] - D)) * scale;
///           d_q[t][c] = chain over u ascending fma(ds[u], k[u][c], acc);
///           d_k[u][c] = chain over t ascending (t >= u) fma(ds[t][u], q[t][c], acc), from d_k[u][c];
///           d_v[u][c] = chain over t ascending (t >= u) fma(p[t][u], d_o[t][c], acc), from d_v[u][c]
/// Rounding  one rounding per fma; f32 nearest-even after every other operation
/// Special   pairs with u > t are skipped, not filled with zeros
/// Aliasing  none
/// Source    docs/spec/profile.md#attention
pub fn attention_backward(
    head: Head,
    o: Rows,
    d_o: Rows,
    max: &[f32],
    sum: &[f32],
    d_q: &mut [&mut [f32]],
    d_k: &mut [&mut [f32]],
    d_v: &mut [&mut [f32]],
) {
    for t in 0..max.len() {
        let (q, d_o) = (head.q.row(t), d_o.row(t));
        let d = warp32_dot(d_o, o.row(t));
        d_q[t].fill(0.0);
        for u in 0..=t {
            let s = chain(q, head.k.row(u)) * head.scale;
            let p = exp(s - max[t]) / sum[t];
            let dp = chain(d_o, head.v.row(u));
            let ds = (p * (dp - d)) * head.scale;
            link(ds, head.k.row(u), d_q[t]);
            link(ds, q, d_k[u]);
            link(p, d_o, d_v[u]);
        }
    }
}
