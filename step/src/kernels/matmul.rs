//! Matrix products.

use crate::dispatch::{self, Backend};
use crate::reference::matmul::View;
use crate::simd::matmul::share;
use rayon::prelude::*;
use std::ops::Range;

/// Columns are cut at multiples of this: what no instruction set's tile or cache line lies across.
const LINE: usize = 32;
/// Multiply-adds that are worth a task of their own.
const TASK_PRODUCTS: usize = 1 << 20;

/// out[rows, columns] = a[rows, inner] . b[inner, columns].
pub fn matmul(backend: Backend, a: View, b: View, inner: usize, columns: usize, out: &mut [f32]) {
    product(backend, a, b, inner, None, columns, out);
}

/// out[rows, columns] = a[rows, inner] . b[inner, columns], and one bias more for each column.
pub fn matmul_with_bias(backend: Backend, a: View, b: View, inner: usize, bias: &[f32], out: &mut [f32]) {
    product(backend, a, b, inner, Some(bias), bias.len(), out);
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
    product(backend, View::rows(x, inputs), w, inputs, bias, outputs, out);
}

fn product(
    backend: Backend,
    a: View,
    b: View,
    inner: usize,
    bias: Option<&[f32]>,
    columns: usize,
    out: &mut [f32],
) {
    if out.is_empty() {
        return;
    }
    let rows = out.len() / columns;
    assert_eq!(rows * columns, out.len(), "matmul: output is not whole rows");
    let [down, across] = grid([rows, inner, columns], rayon::current_num_threads());
    let mut bands = Vec::with_capacity(down);
    let mut rest = out;
    for band in 0..down {
        let (words, after) = rest.split_at_mut(share(rows, down, band).len() * columns);
        bands.push((share(rows, down, band), words));
        rest = after;
    }
    bands.into_par_iter().with_max_len(1).for_each(|(rows, out)| {
        let a = a.from(rows.start, 0);
        parts(out, columns, across).into_par_iter().with_max_len(1).for_each(|(columns, mut out)| {
            let (b, bias) = (b.from(0, columns.start), bias.map(|bias| &bias[columns]));
            dispatch::matmul(backend, a, b, inner, bias, &mut out);
        });
    });
}

/// Whole rows of `columns` words cut into `across` parts: the columns of each part, and its piece of every row.
fn parts(out: &mut [f32], columns: usize, across: usize) -> Vec<(Range<usize>, Vec<&mut [f32]>)> {
    let lines = columns.div_ceil(LINE);
    let columns_of = |part: usize| {
        let lines = share(lines, across, part);
        lines.start * LINE..columns.min(lines.end * LINE)
    };
    let room = |part: usize| (columns_of(part), Vec::with_capacity(out.len() / columns));
    let mut parts: Vec<(Range<usize>, Vec<&mut [f32]>)> = (0..across).map(room).collect();
    for mut row in out.chunks_exact_mut(columns) {
        for (columns, rows) in &mut parts {
            let (piece, rest) = row.split_at_mut(columns.len());
            rows.push(piece);
            row = rest;
        }
    }
    parts
}

/// Into how many parts rows and columns are cut: of all ways to give each thread one part, the one that packs least;
/// of two that pack the same, the one with fewer rows a part, since panels of columns are packed beside the tiles.
fn grid([rows, inner, columns]: [usize; 3], threads: usize) -> [usize; 2] {
    let worth = rows * columns * inner.max(1) / TASK_PRODUCTS;
    let tasks = threads.min(worth).max(1);
    let ways = (1..=tasks).rev().filter(|down| tasks.is_multiple_of(*down)).map(|down| [down, tasks / down]);
    let ways = ways.filter(|[down, across]| *down <= rows && *across <= columns.div_ceil(LINE));
    ways.min_by_key(|[down, across]| rows / down + columns / across).unwrap_or([1, 1])
}
