//! Causal attention, over an arithmetic.

use super::arithmetic::Arithmetic;
use super::elementary::exp;
use super::rows::{warp32_dot, warp32_sum};
use crate::kernels::AttentionShape;
use crate::reference::reduce::warp32_max;

/// Heads side by side: head h of row n starts at word n * stride + first + h * HS.
#[derive(Clone, Copy)]
pub struct Heads<'a> {
    /// The words of all rows.
    pub words: &'a [f32],
    /// Words of a row.
    pub stride: usize,
    /// Where head 0 starts in a row.
    pub first: usize,
}

impl<'a> Heads<'a> {
    /// Of a tensor that holds nothing else.
    pub fn of(words: &'a [f32], heads: usize, size: usize) -> Heads<'a> {
        Heads { words, stride: heads * size, first: 0 }
    }

    fn row(self, n: usize, head: usize, size: usize) -> &'a [f32] {
        &self.words[n * self.stride + self.first + head * size..][..size]
    }
}

/// Queries, keys and values.
#[derive(Clone, Copy)]
pub struct Inputs<'a> {
    /// NH heads.
    pub q: Heads<'a>,
    /// KVH heads.
    pub k: Heads<'a>,
    /// KVH heads.
    pub v: Heads<'a>,
}

/// One query head of one sequence.
#[derive(Clone, Copy)]
struct Head<'a> {
    shape: AttentionShape,
    inputs: Inputs<'a>,
    batch: usize,
    head: usize,
}

impl<'a> Head<'a> {
    fn q(self, t: usize) -> &'a [f32] {
        self.inputs.q.row(self.batch * self.shape.times + t, self.head, self.shape.head_size)
    }

    fn served(self, of: Heads<'a>, u: usize) -> &'a [f32] {
        let group = self.shape.heads / self.shape.kv_heads;
        of.row(self.batch * self.shape.times + u, self.head / group, self.shape.head_size)
    }

    fn k(self, u: usize) -> &'a [f32] {
        self.served(self.inputs.k, u)
    }

    fn v(self, u: usize) -> &'a [f32] {
        self.served(self.inputs.v, u)
    }

    /// Place of a query in max and sum.
    fn statistic(self, t: usize) -> usize {
        (self.batch * self.shape.heads + self.head) * self.shape.times + t
    }

    /// Products of query t with the keys up to t, not scaled yet.
    fn products<A: Arithmetic>(self, t: usize) -> Vec<f32> {
        (0..=t).map(|u| dot::<A>(self.q(t), self.k(u))).collect()
    }
}

/// A chain over two rows.
fn dot<A: Arithmetic>(a: &[f32], b: &[f32]) -> f32 {
    A::chain(a.len(), |c| (a[c], b[c]))
}

/// Every query head of every sequence.
fn heads<'a>(shape: AttentionShape, inputs: Inputs<'a>) -> impl Iterator<Item = Head<'a>> {
    let all = (0..shape.batches).flat_map(move |batch| (0..shape.heads).map(move |head| (batch, head)));
    all.map(move |(batch, head)| Head { shape, inputs, batch, head })
}

/// Forward.
pub fn forward<A: Arithmetic>(shape: AttentionShape, inputs: Inputs, [out, max, sum]: [&mut [f32]; 3]) {
    let size = shape.head_size;
    for head in heads(shape, inputs) {
        for t in 0..shape.times {
            let products = head.products::<A>(t);
            let s: Vec<f32> = products.iter().map(|product| A::mul(*product, shape.scale)).collect();
            let m = warp32_max(&s);
            let e: Vec<f32> =
                products.iter().map(|product| exp::<A>(A::product_add(*product, shape.scale, -m))).collect();
            let z = warp32_sum::<A>(&e);
            let p: Vec<f32> = e.iter().map(|e| A::div(*e, z)).collect();
            let at = (head.batch * shape.times + t) * shape.heads * size + head.head * size;
            for c in 0..size {
                out[at + c] = A::chain(t + 1, |u| (p[u], head.v(u)[c]));
            }
            (max[head.statistic(t)], sum[head.statistic(t)]) = (m, z);
        }
    }
}

/// What the gradients of a query head are chains of, [T, T] each, row t up to column t.
struct Weights {
    p: Vec<f32>,
    ds: Vec<f32>,
}

/// Backward. `write` takes which of d_q, d_k, d_v, the row, the head, the channel, and the value.
pub fn backward<A: Arithmetic>(
    shape: AttentionShape,
    inputs: Inputs,
    [d_out, out, max, sum]: [&[f32]; 4],
    mut write: impl FnMut(usize, usize, usize, usize, f32),
) {
    let (times, size, group) = (shape.times, shape.head_size, shape.heads / shape.kv_heads);
    let [d_out, out] = [d_out, out].map(|words| Heads::of(words, shape.heads, size));
    for batch in 0..shape.batches {
        for served in 0..shape.kv_heads {
            let queries: Vec<Head> = (served * group..(served + 1) * group)
                .map(|head| Head { shape, inputs, batch, head })
                .collect();
            let row = |t: usize| batch * times + t;
            let weights: Vec<Weights> = queries
                .iter()
                .map(|head| {
                    let [d_out, out] = [d_out, out].map(|of| move |t: usize| of.row(row(t), head.head, size));
                    weights::<A>(*head, d_out, out, max, sum)
                })
                .collect();
            for (head, weights) in queries.iter().zip(&weights) {
                for t in 0..times {
                    for c in 0..size {
                        let d_q = A::chain(t + 1, |u| (weights.ds[t * times + u], head.k(u)[c]));
                        write(0, row(t), head.head, c, d_q);
                    }
                }
            }
            for u in 0..times {
                // The k-th link: query heads ascending, and within each t >= u ascending.
                let (n, each) = (group * (times - u), times - u);
                let link = |k: usize| (k / each, u + k % each);
                for c in 0..size {
                    let d_k = A::chain(n, |k| {
                        let (h, t) = link(k);
                        (weights[h].ds[t * times + u], queries[h].q(t)[c])
                    });
                    let d_v = A::chain(n, |k| {
                        let (h, t) = link(k);
                        (weights[h].p[t * times + u], d_out.row(row(t), queries[h].head, size)[c])
                    });
                    write(1, row(u), served, c, d_k);
                    write(2, row(u), served, c, d_v);
                }
            }
        }
    }
}

fn weights<'a, A: Arithmetic>(
    head: Head,
    d_out: impl Fn(usize) -> &'a [f32],
    out: impl Fn(usize) -> &'a [f32],
    max: &[f32],
    sum: &[f32],
) -> Weights {
    let (times, scale) = (head.shape.times, head.shape.scale);
    let mut weights = Weights { p: vec![0.0; times * times], ds: vec![0.0; times * times] };
    for t in 0..times {
        let (m, z) = (max[head.statistic(t)], sum[head.statistic(t)]);
        let d = warp32_dot::<A>(d_out(t), out(t));
        for (u, product) in head.products::<A>(t).into_iter().enumerate() {
            let p = A::div(exp::<A>(A::product_add(product, scale, -m)), z);
            let dp = dot::<A>(d_out(t), head.v(u));
            weights.p[t * times + u] = p;
            weights.ds[t * times + u] = A::mul(A::mul(p, A::sub(dp, d)), scale);
        }
    }
    weights
}
