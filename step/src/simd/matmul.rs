//! Matrix product in register tiles over packed blocks.
//!
//! What changes against `reference`: the order in which outputs are worked on, and where the factors lie. Each output
//! keeps its one chain over k: a tile holds the accumulators of its outputs in registers, one lane each, and a block
//! of k ends by storing them and the next begins by loading them again, which is exact. The first block starts from
//! +0 rather than from what `out` held. Rows and columns that a tile lacks are lanes of their own and are thrown
//! away; k is never padded.

use super::pack::{Packed, pack};
use super::vector::Vector;
use crate::reference::matmul::View;
use std::cell::Cell;
use std::ops::Range;

/// k of a block: a panel of the right factor is to stay close while the strips of the left one pass by.
const BLOCK_K: usize = 384;
/// Rows of a block, which is to stay in the second-level cache.
const BLOCK_ROWS: usize = 280;
/// Columns of a block, which is to stay in the third-level cache.
const BLOCK_COLUMNS: usize = 3072;

thread_local! {
    /// Packed blocks of the last product on this thread, kept for the next one.
    static SPARE: Cell<[Packed; 2]> = const { Cell::new([Packed::new(), Packed::new()]) };
}

/// Part `index` of `parts` parts of 0..total, as even as whole numbers allow.
pub fn share(total: usize, parts: usize, index: usize) -> Range<usize> {
    total * index / parts..total * (index + 1) / parts
}

/// `reference::matmul::matmul`.
#[inline(always)]
pub fn matmul<V: Vector>(a: View, b: View, inner: usize, bias: Option<&[f32]>, out: &mut [&mut [f32]]) {
    let (rows, columns) = (out.len(), out.first().map_or(0, |row| row.len()));
    if rows == 0 || columns == 0 {
        return;
    }
    let width = 2 * V::LANES;
    let (strips, panels, steps) =
        (rows.div_ceil(V::TILE_ROWS), columns.div_ceil(width), inner.div_ceil(V::LANES));
    let row_blocks = strips.div_ceil(BLOCK_ROWS / V::TILE_ROWS);
    let column_blocks = panels.div_ceil(BLOCK_COLUMNS / width);
    let k_blocks = steps.div_ceil(BLOCK_K / V::LANES).max(1);
    let [mut left, mut right] = SPARE.take();
    for column_block in 0..column_blocks {
        let panels = share(panels, column_blocks, column_block);
        for k_block in 0..k_blocks {
            let k = share(steps, k_blocks, k_block);
            let (first_k, depth) = (k.start * V::LANES, inner.min(k.end * V::LANES) - k.start * V::LANES);
            let (first, bias) = (k_block == 0, if k_block + 1 == k_blocks { bias } else { None });
            for row_block in 0..row_blocks {
                let strips_here = share(strips, row_blocks, row_block);
                let first_row = share(rows, strips, strips_here.start).start;
                let left = left.sized(V::TILE_ROWS * depth * strips_here.len() + V::LANES);
                for strip in strips_here.clone() {
                    let lines = share(rows, strips, strip);
                    let from = a.from(lines.start, first_k);
                    let to = &mut left[(lines.start - first_row) * depth..];
                    pack::<V>(
                        from.words,
                        from.row_stride,
                        from.column_stride,
                        lines.len(),
                        depth,
                        to,
                        lines.len(),
                    );
                }
                let kept = if row_blocks > 1 { panels.len() } else { 1 };
                let right = right.sized(width * depth * kept);
                for panel in panels.clone() {
                    let column = panel * width;
                    let at = if row_blocks > 1 { panel - panels.start } else { 0 };
                    let right = &mut right[at * width * depth..][..width * depth];
                    let wide = columns - column > V::LANES;
                    let stride = if wide { width } else { V::LANES };
                    if row_block == 0 {
                        for half in (0..stride).step_by(V::LANES) {
                            let from = b.from(first_k, column + half);
                            let lines = V::LANES.min(columns - column - half);
                            pack::<V>(
                                from.words,
                                from.column_stride,
                                from.row_stride,
                                lines,
                                depth,
                                &mut right[half..],
                                stride,
                            );
                        }
                    }
                    for strip in strips_here.clone() {
                        let lines = share(rows, strips, strip);
                        let left = &left[(lines.start - first_row) * depth..][..lines.len() * depth];
                        let out = &mut out[lines];
                        if wide {
                            any_tile::<V, 2>(left, right, first, bias, column, out);
                        } else {
                            any_tile::<V, 1>(left, &right[..depth * stride], first, bias, column, out);
                        }
                    }
                }
            }
        }
    }
    SPARE.set([left, right]);
}

#[inline(always)]
fn any_tile<V: Vector, const W: usize>(
    left: &[f32],
    right: &[f32],
    first: bool,
    bias: Option<&[f32]>,
    column: usize,
    out: &mut [&mut [f32]],
) {
    macro_rules! of_rows {
        ($($rows:literal)*) => {
            match out.len() {
                $($rows if $rows <= V::TILE_ROWS => tile::<V, $rows, W>(left, right, first, bias, column, out),)*
                rows => unreachable!("matmul: a tile of {rows} rows"),
            }
        };
    }
    of_rows!(1 2 3 4 5 6 7 8 9 10 11 12 13 14)
}

/// R rows by W registers of columns: each lane is one output's chain.
#[inline(always)]
fn tile<V: Vector, const R: usize, const W: usize>(
    left: &[f32],
    right: &[f32],
    first: bool,
    bias: Option<&[f32]>,
    column: usize,
    out: &mut [&mut [f32]],
) {
    let mut acc = [[V::splat(0.0); W]; R];
    if !first {
        for r in 0..R {
            let row = &out[r][column..];
            for w in 0..W {
                acc[r][w] = load::<V>(&row[w * V::LANES..]);
            }
        }
    }
    let mut acc = chains(left, right, acc);
    if let Some(bias) = bias {
        for w in 0..W {
            let bias = load::<V>(&bias[column + w * V::LANES..]);
            for r in 0..R {
                acc[r][w] = acc[r][w].add(bias);
            }
        }
    }
    for r in 0..R {
        let row = &mut out[r][column..];
        for w in 0..W {
            store::<V>(acc[r][w], &mut row[w * V::LANES..]);
        }
    }
}

/// Takes every accumulator through this block's k. Apart from what reads and writes memory, so that a compiler sees
/// that they can stay in registers.
#[inline(always)]
fn chains<V: Vector, const R: usize, const W: usize>(
    left: &[f32],
    right: &[f32],
    start: [[V; W]; R],
) -> [[V; W]; R] {
    let mut acc = start;
    for (a, b) in left.as_chunks::<R>().0.iter().zip(right.chunks_exact(W * V::LANES)) {
        let mut line = [V::splat(0.0); W];
        for w in 0..W {
            line[w] = V::load(&b[w * V::LANES..]);
        }
        for r in 0..R {
            let value = V::splat(a[r]);
            for w in 0..W {
                acc[r][w] = value.fma(line[w], acc[r][w]);
            }
        }
    }
    acc
}

/// A register, or what is left of a row and zeros.
#[inline(always)]
fn load<V: Vector>(words: &[f32]) -> V {
    if words.len() < V::LANES { V::load_part(words) } else { V::load(words) }
}

/// Writes a register, or as much of it as is left of a row.
#[inline(always)]
fn store<V: Vector>(value: V, words: &mut [f32]) {
    if words.len() < V::LANES { value.store_part(words) } else { value.store(words) }
}
