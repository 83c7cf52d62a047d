//! Sums of squares of tensors, for the global norm.

use super::rows_per_task;
use crate::dispatch::{self, Backend};
use crate::reference::clip::{CHUNK_ROWS, ascending_sum};
use rayon::prelude::*;

/// Sum of squares of one tensor, as `square_sums`. Rows go to threads by themselves, since the tensor may be one chunk;
/// they are added up after that.
pub fn square_sum(backend: Backend, x: &[f32], columns: usize) -> f32 {
    let rows = rows_per_task(columns);
    let mut sums = vec![0.0; x.len() / columns];
    x.par_chunks(rows * columns).zip(sums.par_chunks_mut(rows)).for_each(|(x, sums)| {
        for (row, sum) in x.chunks_exact(columns).zip(sums) {
            *sum = dispatch::warp32_dot(backend, row, row);
        }
    });
    let chunks: Vec<f32> = sums.chunks(CHUNK_ROWS).map(ascending_sum).collect();
    ascending_sum(&chunks)
}

/// Sum of squares of every tensor: rows of so many columns, in chunks of 1024 rows (`reference::clip`). Chunks of all
/// tensors go to threads together, since most tensors have one.
pub fn square_sums(backend: Backend, tensors: &[(&[f32], usize)]) -> Vec<f32> {
    let chunks: Vec<(usize, usize, &[f32])> = tensors
        .iter()
        .enumerate()
        .flat_map(|(tensor, (x, columns))| {
            x.chunks(CHUNK_ROWS * columns).map(move |chunk| (tensor, *columns, chunk))
        })
        .collect();
    let sum = |(tensor, columns, chunk)| (tensor, dispatch::square_sum_chunk(backend, chunk, columns));
    total(tensors.len(), chunks.into_par_iter().map(sum).collect())
}

/// Multiplies every tensor by one value in place and sums its squares, as `square_sums`, in one pass over memory.
pub fn scaled_square_sums(backend: Backend, tensors: Vec<(&mut [f32], usize)>, factor: f32) -> Vec<f32> {
    let count = tensors.len();
    let chunks: Vec<(usize, usize, &mut [f32])> = tensors
        .into_iter()
        .enumerate()
        .flat_map(|(tensor, (x, columns))| {
            x.chunks_mut(CHUNK_ROWS * columns).map(move |chunk| (tensor, columns, chunk))
        })
        .collect();
    let sum = |(tensor, columns, chunk)| {
        (tensor, dispatch::scaled_square_sum_chunk(backend, chunk, columns, factor))
    };
    total(count, chunks.into_par_iter().map(sum).collect())
}

/// Adds up the sums of chunks, ascending, for each tensor.
fn total(tensors: usize, chunks: Vec<(usize, f32)>) -> Vec<f32> {
    let mut sums = vec![0.0; tensors];
    chunks.into_iter().for_each(|(tensor, sum)| sums[tensor] += sum);
    sums
}
