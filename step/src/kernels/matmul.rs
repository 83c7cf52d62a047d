//! Matrix products.

use super::rows_per_task;
use crate::dispatch::{self, Backend};
use crate::reference::matmul::View;
use rayon::prelude::*;

/// Rows of a matrix product done by one task: enough to pay for packing the right-hand side again.
const MATMUL_ROWS: usize = 96;

/// out[rows, columns] = a[rows, inner] . b[inner, columns].
pub fn matmul(backend: Backend, a: View, b: View, inner: usize, columns: usize, out: &mut [f32]) {
    out.par_chunks_mut(MATMUL_ROWS * columns).enumerate().for_each(|(task, out)| {
        dispatch::matmul(backend, a.from_row(task * MATMUL_ROWS), b, inner, columns, out);
    });
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
    matmul(backend, View::rows(x, inputs), w, inputs, outputs, out);
    if let Some(bias) = bias {
        out.par_chunks_mut(rows_per_task(outputs) * outputs)
            .for_each(|out| dispatch::add_bias(backend, bias, out));
    }
}
