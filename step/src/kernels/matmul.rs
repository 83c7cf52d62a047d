//! Matrix products.

use crate::dispatch::{self, Backend};
use crate::reference::matmul::View;
use crate::simd::matmul::share;
use rayon::prelude::*;

/// Multiply-adds that are worth a task of their own.
const TASK_PRODUCTS: usize = 1 << 20;

/// out[rows, columns] = a[rows, inner] . b[inner, columns].
pub fn matmul(backend: Backend, a: View, b: View, inner: usize, columns: usize, out: &mut [f32]) {
    product(backend, a, b, inner, None, columns, out);
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
    let [down, across] = grid(rows, inner, columns, rayon::current_num_threads());
    let mut blocks: Vec<Vec<&mut [f32]>> = Vec::new();
    let mut lines = out.chunks_exact_mut(columns);
    for i in 0..down {
        let first = blocks.len();
        blocks.resize_with(first + across, Vec::new);
        for mut line in lines.by_ref().take(share(rows, down, i).len()) {
            for j in 0..across {
                let (part, rest) = line.split_at_mut(share(columns, across, j).len());
                blocks[first + j].push(part);
                line = rest;
            }
        }
    }
    blocks.into_par_iter().enumerate().with_max_len(1).for_each(|(at, mut out)| {
        let (row, columns) = (share(rows, down, at / across).start, share(columns, across, at % across));
        let bias = bias.map(|bias| &bias[columns.clone()]);
        dispatch::matmul(backend, a.from(row, 0), b.from(0, columns.start), inner, bias, &mut out);
    });
}

/// Into how many parts rows and columns are cut.
fn grid(rows: usize, inner: usize, columns: usize, threads: usize) -> [usize; 2] {
    let tasks = (rows * columns * inner.max(1) / TASK_PRODUCTS).clamp(1, threads);
    if rows > columns { [tasks.min(rows), 1] } else { [1, tasks.min(columns)] }
}
