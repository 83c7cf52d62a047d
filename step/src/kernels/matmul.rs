//! Matrix products.

use crate::dispatch::{self, Backend};
use crate::reference::matmul::View;
use crate::simd::matmul::share;
use rayon::prelude::*;

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
    let lines = columns.div_ceil(LINE);
    let [down, across] = grid([rows, inner, columns], rayon::current_num_threads());
    let rows_of = |task: usize| share(rows, down, task / across);
    let columns_of = |task: usize| {
        let lines = share(lines, across, task % across);
        lines.start * LINE..columns.min(lines.end * LINE)
    };
    let mut tasks: Vec<Vec<&mut [f32]>> = Vec::new();
    tasks.resize_with(down * across, Vec::new);
    let mut all = out.chunks_exact_mut(columns);
    for first in (0..down * across).step_by(across) {
        for mut row in all.by_ref().take(rows_of(first).len()) {
            for (across, task) in tasks[first..first + across].iter_mut().enumerate() {
                let (part, rest) = row.split_at_mut(columns_of(across).len());
                task.push(part);
                row = rest;
            }
        }
    }
    tasks.into_par_iter().enumerate().with_max_len(1).for_each(|(task, mut out)| {
        let (rows, columns) = (rows_of(task), columns_of(task));
        let (a, b, bias) = (a.from(rows.start, 0), b.from(0, columns.start), bias.map(|bias| &bias[columns]));
        dispatch::matmul(backend, a, b, inner, bias, &mut out);
    });
}

/// Into how many parts rows and columns are cut: of all ways to give each thread one part, the one that packs least.
fn grid([rows, inner, columns]: [usize; 3], threads: usize) -> [usize; 2] {
    let worth = rows * columns * inner.max(1) / TASK_PRODUCTS;
    let tasks = threads.min(worth).max(1);
    let ways = (1..=tasks).filter(|down| tasks.is_multiple_of(*down)).map(|down| [down, tasks / down]);
    let ways = ways.filter(|[down, across]| *down <= rows && *across <= columns.div_ceil(LINE));
    ways.min_by_key(|[down, across]| rows / down + columns / across).unwrap_or([1, 1])
}
