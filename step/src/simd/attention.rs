//! Causal self-attention without a matrix of T x T.
//!
//! What changes against `reference`: queries are taken in blocks, and a block's scores lie with a key's row after the
//! other, one lane for each query. A lane is then a query of its own in every step of the softmax, and all of its
//! keys pass through it in the reference's order; the lanes that `warp32` names are rows of their own. Backward goes
//! over the keys in panels, since max and sum are known: the chain of d_q stops at a panel's end and goes on with the
//! next, those of d_k and d_v with the next block of queries. That stores and reloads an accumulator, which is exact.
//!
//! Pairs u > t in the corner of a block: their scores are computed or stale, and set to -infinity before the row
//! maximum, which -infinity does not change. Their exponentials are +0 (or NaN, where the query's maximum is
//! -infinity and its sum NaN in any case); adding +0 to a lane of the row sum changes nothing, since such a lane
//! starts at +0 and cannot be -0. No product sees them (`tile`).

pub mod tile;

use super::pack::Packed;
use super::vector::Vector;
use crate::number::elementary::exp;
use crate::reference::attention::{Head, Rows};
use crate::reference::reduce::{LANES as WARP, warp32_dot};
use std::cell::Cell;
use std::ops::Range;
use tile::{Corner, QUERIES, Scores};

/// Keys of a panel: as many as a block has queries, so that keys and queries meet in whole panels and one triangle.
const KEYS: usize = QUERIES;
/// Words that are worked on together where every element is on its own.
const CHUNK: usize = 16;

thread_local! {
    /// Room for one head, kept for the next.
    static SPARE: Cell<Packed> = const { Cell::new(Packed::new()) };
}

/// Cuts `words` into parts of these sizes, each beginning at a whole register.
fn split<const N: usize>(mut words: &mut [f32], sizes: [usize; N]) -> [&mut [f32]; N] {
    sizes.map(|size| {
        let (part, rest) = std::mem::take(&mut words).split_at_mut(size.next_multiple_of(CHUNK));
        words = rest;
        &mut part[..size]
    })
}

/// Words that `split` needs.
fn room(sizes: &[usize]) -> usize {
    sizes.iter().map(|size| size.next_multiple_of(CHUNK)).sum()
}

/// Copies a row, with +0 after it: in registers, for rows are short.
#[inline(always)]
fn copy_row<V: Vector>(row: &[f32], to: &mut [f32]) {
    for (to, row) in to.chunks_exact_mut(V::LANES).zip(row.chunks(V::LANES)) {
        let words = if row.len() < V::LANES { V::load_part(row) } else { V::load(row) };
        words.store(to);
    }
}

/// Copies rows to lie `pitch` apart, with +0 after each.
#[inline(always)]
fn copy_rows<V: Vector>(from: Rows, range: Range<usize>, pitch: usize, to: &mut [f32]) {
    for (t, to) in range.zip(to.chunks_exact_mut(pitch)) {
        copy_row::<V>(from.row(t), to);
    }
}

/// As `copy_rows`, from rows that are written later.
#[inline(always)]
fn load_rows<V: Vector>(from: &[&mut [f32]], pitch: usize, to: &mut [f32]) {
    for (row, to) in from.iter().zip(to.chunks_exact_mut(pitch)) {
        copy_row::<V>(row, to);
    }
}

/// Copies rows that lie `pitch` apart.
#[inline(always)]
fn store_rows<V: Vector>(from: &[f32], pitch: usize, to: &mut [&mut [f32]]) {
    for (row, from) in to.iter_mut().zip(from.chunks_exact(pitch)) {
        let (from, rest) = from[..row.len()].split_at(row.len() / V::LANES * V::LANES);
        for (row, from) in row.chunks_exact_mut(V::LANES).zip(from.chunks_exact(V::LANES)) {
            V::load(from).store(row);
        }
        if !rest.is_empty() {
            row[from.len()..].copy_from_slice(rest);
        }
    }
}

/// Copies a block of queries so that one column's words lie side by side.
#[inline(always)]
fn turn_rows<V: Vector>(from: Rows, range: Range<usize>, to: &mut [Scores]) {
    for (at, t) in range.clone().step_by(V::LANES).enumerate() {
        let (lane, lines) = (at * V::LANES, V::LANES.min(range.end - t));
        let whole = from.width / V::LANES * V::LANES;
        for c in (0..whole).step_by(V::LANES) {
            let words = &from.words[t * from.stride + c..];
            V::transpose(words, from.stride, lines, &mut to[c..].as_flattened_mut()[lane..], QUERIES);
        }
        for c in whole..from.width {
            for line in 0..lines {
                to[c][lane + line] = from.row(t + line)[c];
            }
        }
    }
}

/// `reference::attention::attention_forward`.
#[inline(always)]
pub fn attention_forward<V: Vector>(
    head: Head,
    first: usize,
    o: &mut [&mut [f32]],
    max: &mut [f32],
    sum: &mut [f32],
) {
    let (size, end) = (head.q.width, first + max.len());
    let pitch = size.next_multiple_of(V::LANES);
    let mut spare = SPARE.take();
    let sizes = [
        end * pitch,
        end * pitch,
        size * QUERIES,
        end.next_multiple_of(KEYS) * QUERIES,
        WARP * QUERIES,
        QUERIES * pitch,
    ];
    let [k, v, q, scores, lanes, out] = split(spare.sized(room(&sizes)), sizes);
    let [q, scores, lanes] = [q, scores, lanes].map(|part| part.as_chunks_mut::<QUERIES>().0);
    copy_rows::<V>(head.k, 0..end, pitch, k);
    copy_rows::<V>(head.v, 0..end, pitch, v);
    let mut query = first;
    while query < end {
        let query_end = end.min((query + 1).next_multiple_of(QUERIES));
        let block = Corner { key: 0, key_end: query_end, query, query_end };
        turn_rows::<V>(head.q, query..query_end, q);
        lanes.fill([f32::NEG_INFINITY; QUERIES]);
        for key in (0..query_end).step_by(KEYS) {
            let panel = Corner { key, key_end: query_end.min(key + KEYS), ..block };
            let scores = &mut scores[key..panel.key_end];
            tile::scores::<V>(panel, &k[key * pitch..], pitch, size, q, scores);
            scale_and_max::<V>(panel, head.scale, scores, lanes);
        }
        join::<V>(lanes, |a, b| a.larger(b));
        let scores = &mut scores[..query_end];
        let m = lanes[0];
        lanes.fill([0.0; QUERIES]);
        exponentials(block, &m, scores, lanes);
        join::<V>(lanes, |a, b| a.add(b));
        let z = lanes[0];
        divide::<V>(block, &z, scores);
        out.fill(0.0);
        tile::over_keys::<V>(block, scores, v, pitch, out);
        let (at, rows) = (query - first, query_end - query);
        max[at..at + rows].copy_from_slice(&m[..rows]);
        sum[at..at + rows].copy_from_slice(&z[..rows]);
        store_rows::<V>(out, pitch, &mut o[at..at + rows]);
        query = query_end;
    }
    SPARE.set(spare);
}

/// s = s * scale, then lane u % 32 = the larger of itself and s: `warp32_max` up to its joining steps, of every query.
#[inline(always)]
fn scale_and_max<V: Vector>(panel: Corner, scale: f32, scores: &mut [Scores], lanes: &mut [Scores]) {
    let scale = V::splat(scale);
    for (u, row) in (panel.key..panel.key_end).zip(scores) {
        for s in row.chunks_exact_mut(V::LANES) {
            V::load(s).mul(scale).store(s);
        }
        row[..u.saturating_sub(panel.query)].fill(f32::NEG_INFINITY);
        let lane = &mut lanes[u % WARP];
        for (lane, s) in lane.chunks_exact_mut(V::LANES).zip(row.chunks_exact(V::LANES)) {
            V::load(lane).larger(V::load(s)).store(lane);
        }
    }
}

/// The joining steps of `warp32`, of every query; the result is lane 0.
#[inline(always)]
fn join<V: Vector>(lanes: &mut [Scores], one: impl Fn(V, V) -> V) {
    let mut s = WARP / 2;
    while s > 0 {
        let (left, right) = lanes[..2 * s].split_at_mut(s);
        let (left, right) = (left.as_flattened_mut(), right.as_flattened());
        for (left, right) in left.chunks_exact_mut(V::LANES).zip(right.chunks_exact(V::LANES)) {
            one(V::load(left), V::load(right)).store(left);
        }
        s /= 2;
    }
}

/// Whole chunks that hold no query of key u or later.
#[inline(always)]
fn chunks_before(block: Corner, u: usize) -> usize {
    u.saturating_sub(block.query) / CHUNK
}

/// e = exp(s - m), and lane u % 32 = itself + e: `warp32_sum` up to its joining steps, of every query.
#[inline(always)]
fn exponentials(block: Corner, m: &Scores, scores: &mut [Scores], lanes: &mut [Scores]) {
    for (u, row) in (block.key..block.key_end).zip(scores) {
        let lane = &mut lanes[u % WARP];
        for i in chunks_before(block, u)..QUERIES / CHUNK {
            let (s, lane) = (&mut row.as_chunks_mut::<CHUNK>().0[i], &mut lane.as_chunks_mut::<CHUNK>().0[i]);
            let m = &m.as_chunks::<CHUNK>().0[i];
            for l in 0..CHUNK {
                s[l] = exp(s[l] - m[l]);
                lane[l] += s[l];
            }
        }
    }
}

/// p = e / z.
#[inline(always)]
fn divide<V: Vector>(block: Corner, z: &Scores, scores: &mut [Scores]) {
    for (u, row) in (block.key..block.key_end).zip(scores) {
        for i in (chunks_before(block, u) * CHUNK..QUERIES).step_by(V::LANES) {
            V::load(&row[i..]).div(V::load(&z[i..])).store(&mut row[i..]);
        }
    }
}

/// What backward knows of each query of a block.
struct Queries {
    m: Scores,
    z: Scores,
    /// D.
    d: Scores,
}

/// `reference::attention::attention_backward`.
#[inline(always)]
pub fn attention_backward<V: Vector>(
    head: Head,
    o: Rows,
    d_o: Rows,
    max: &[f32],
    sum: &[f32],
    d_q: &mut [&mut [f32]],
    d_k: &mut [&mut [f32]],
    d_v: &mut [&mut [f32]],
) {
    let (size, end) = (head.q.width, max.len());
    let pitch = size.next_multiple_of(V::LANES);
    let mut spare = SPARE.take();
    let (matrix, square, turned) = (end * pitch, KEYS * QUERIES, size * QUERIES);
    let rows = QUERIES * pitch;
    let sizes = [matrix, matrix, matrix, matrix, square, square, turned, turned, rows, rows, rows];
    let [k, v, sum_k, sum_v, p, ds, q_turned, d_o_turned, q_rows, d_o_rows, sum_q] =
        split(spare.sized(room(&sizes)), sizes);
    let [p, ds, q_turned, d_o_turned] =
        [p, ds, q_turned, d_o_turned].map(|part| part.as_chunks_mut::<QUERIES>().0);
    copy_rows::<V>(head.k, 0..end, pitch, k);
    copy_rows::<V>(head.v, 0..end, pitch, v);
    load_rows::<V>(d_k, pitch, sum_k);
    load_rows::<V>(d_v, pitch, sum_v);
    for query in (0..end).step_by(QUERIES) {
        let query_end = end.min(query + QUERIES);
        let range = query..query_end;
        turn_rows::<V>(head.q, range.clone(), q_turned);
        turn_rows::<V>(d_o, range.clone(), d_o_turned);
        copy_rows::<V>(head.q, range.clone(), pitch, q_rows);
        copy_rows::<V>(d_o, range.clone(), pitch, d_o_rows);
        let mut queries = Queries { m: [0.0; QUERIES], z: [1.0; QUERIES], d: [0.0; QUERIES] };
        queries.m[..range.len()].copy_from_slice(&max[range.clone()]);
        queries.z[..range.len()].copy_from_slice(&sum[range.clone()]);
        for (t, d) in range.clone().zip(&mut queries.d) {
            *d = warp32_dot(d_o.row(t), o.row(t));
        }
        sum_q.fill(0.0);
        for key in (0..query_end).step_by(KEYS) {
            let panel = Corner { key, key_end: query_end.min(key + KEYS), query, query_end };
            let (k, v) = (&k[key * pitch..], &v[key * pitch..]);
            tile::scores::<V>(panel, k, pitch, size, q_turned, p);
            tile::scores::<V>(panel, v, pitch, size, d_o_turned, ds);
            slopes(panel, head.scale, &queries, p, ds);
            tile::over_queries::<V>(panel, p, d_o_rows, pitch, &mut sum_v[key * pitch..]);
            tile::over_queries::<V>(panel, ds, q_rows, pitch, &mut sum_k[key * pitch..]);
            tile::over_keys::<V>(panel, ds, k, pitch, sum_q);
        }
        store_rows::<V>(sum_q, pitch, &mut d_q[range]);
    }
    store_rows::<V>(sum_k, pitch, d_k);
    store_rows::<V>(sum_v, pitch, d_v);
    SPARE.set(spare);
}

/// From the products q . k in `p` and d_o . v in `ds`: p = exp(s - m) / z with s = p * scale, then
/// ds = (p * (ds - D)) * scale.
#[inline(always)]
fn slopes(panel: Corner, scale: f32, queries: &Queries, p: &mut [Scores], ds: &mut [Scores]) {
    for (u, (p, ds)) in (panel.key..panel.key_end).zip(p.iter_mut().zip(ds)) {
        for i in chunks_before(panel, u)..QUERIES / CHUNK {
            let (p, ds) = (&mut p.as_chunks_mut::<CHUNK>().0[i], &mut ds.as_chunks_mut::<CHUNK>().0[i]);
            let [m, z, d] = [&queries.m, &queries.z, &queries.d].map(|x| &x.as_chunks::<CHUNK>().0[i]);
            for l in 0..CHUNK {
                p[l] = exp(p[l] * scale - m[l]) / z[l];
                ds[l] = (p[l] * (ds[l] - d[l])) * scale;
            }
        }
    }
}
