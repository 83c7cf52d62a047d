//! Matrix product in register tiles over packed blocks.
//!
//! What changes against `reference`: the order in which outputs are worked on, and where the factors lie. Each output
//! keeps its one chain over k: a tile holds the accumulators of its outputs in registers, one lane each, and a block
//! of k ends by storing them and the next begins by loading them again, which is exact. The first block starts from
//! +0 rather than from what `out` held. Rows and columns that a tile lacks are lanes of their own and are thrown
//! away; k is never padded.
//!
//! From the outside in: blocks of columns, of k, of rows; in each, panels of the right factor's columns; in each,
//! strips of the left factor's rows, a tile each. Panels are packed when the first block of rows comes to them, and
//! while one is at work, the caches are asked for what the next one is packed from.

use super::pack::{Packed, lines_of, pack};
use super::tile::{Ahead, TILE, Target};
use super::vector::Vector;
use crate::reference::matmul::View;
use std::cell::Cell;
use std::ops::Range;

/// k of a block. A tile's loads and stores of accumulators count for less the more k a block has.
const BLOCK_K: usize = 768;
/// Rows of a block: with BLOCK_K, what the second-level cache holds of the left factor.
const BLOCK_ROWS: usize = 280;
/// Columns of a block: with BLOCK_K, what the third-level cache holds of the right factor.
const BLOCK_COLUMNS: usize = 3072;
thread_local! {
    /// Packed blocks of the last product on this thread, kept for the next one.
    static SPARE: Cell<[Packed; 2]> = const { Cell::new([Packed::new(), Packed::new()]) };
}

/// Part `index` of `parts` parts of 0..total, as even as whole numbers allow.
pub fn share(total: usize, parts: usize, index: usize) -> Range<usize> {
    total * index / parts..total * (index + 1) / parts
}

/// A block of k, of every output.
struct Stretch<'a> {
    a: View<'a>,
    b: View<'a>,
    first_k: usize,
    depth: usize,
    /// Accumulators start from +0.
    first: bool,
    /// To be added, which ends the chains.
    bias: Option<&'a [f32]>,
}

/// `reference::matmul::matmul`.
#[inline(always)]
pub fn matmul<V: Vector>(a: View, b: View, inner: usize, bias: Option<&[f32]>, out: &mut [&mut [f32]]) {
    let (rows, columns) = (out.len(), out.first().map_or(0, |row| row.len()));
    if rows == 0 || columns == 0 {
        return;
    }
    let (strips, panels, steps) =
        (rows.div_ceil(V::TILE_ROWS), columns.div_ceil(2 * V::LANES), inner.div_ceil(V::LANES));
    let row_blocks = strips.div_ceil(BLOCK_ROWS / V::TILE_ROWS);
    let column_blocks = panels.div_ceil(BLOCK_COLUMNS / (2 * V::LANES));
    let k_blocks = steps.div_ceil(BLOCK_K / V::LANES).max(1);
    let [mut left, mut right] = SPARE.take();
    for column_block in 0..column_blocks {
        let panels = share(panels, column_blocks, column_block);
        for k_block in 0..k_blocks {
            let k = share(steps, k_blocks, k_block);
            let first_k = k.start * V::LANES;
            let (depth, last) = (inner.min(k.end * V::LANES) - first_k, k_block + 1 == k_blocks);
            let bias = bias.filter(|_| last);
            let stretch = Stretch { a, b, first_k, depth, first: k_block == 0, bias };
            // Without a second block of rows there is no use for a panel once the next one is packed.
            let kept = if row_blocks > 1 { panels.len() } else { 1 };
            let right = right.sized(kept * 2 * V::LANES * depth);
            for row_block in 0..row_blocks {
                let strips: Vec<Range<usize>> =
                    share(strips, row_blocks, row_block).map(|strip| share(rows, strips, strip)).collect();
                let left = left.sized(strips.len() * V::TILE_ROWS * depth + V::LANES);
                stretch.block::<V>(&strips, panels.clone(), row_block == 0, left, right, out);
            }
        }
    }
    SPARE.set([left, right]);
}

impl Stretch<'_> {
    /// The outputs of some strips and panels; `left` and `right` are room for what is packed of them.
    #[inline(always)]
    fn block<V: Vector>(
        &self,
        strips: &[Range<usize>],
        panels: Range<usize>,
        fresh: bool,
        left: &mut [f32],
        right: &mut [f32],
        out: &mut [&mut [f32]],
    ) {
        let (first_row, depth) = (strips[0].start, self.depth);
        for rows in strips {
            let (from, to) =
                (self.a.from(rows.start, self.first_k), &mut left[(rows.start - first_row) * depth..]);
            pack::<V>(from, rows.len(), depth, to, rows.len());
        }
        let (size, mut edge) = (2 * V::LANES * depth, [0.0; TILE]);
        for panel in panels.clone() {
            let column = panel * 2 * V::LANES;
            let width = (out[0].len() - column).min(2 * V::LANES);
            let at = (panel - panels.start) * size % right.len().max(1);
            let right = &mut right[at..at + size];
            if fresh && depth > 0 {
                self.pack_panel::<V>(column, width, right);
            }
            let next = if fresh && panel + 1 < panels.end {
                self.b.from(self.first_k, column + 2 * V::LANES)
            } else {
                View::rows(&[], 1)
            };
            for (strip, rows) in strips.iter().enumerate() {
                let left = &left[(rows.start - first_row) * depth..][..rows.len() * depth];
                let next_rows = strips.get(strip + 1).unwrap_or(rows);
                let lines = share(lines_of::<V>(next, depth), strips.len(), strip);
                let ahead = Ahead { right: next, lines, rows: next_rows.clone(), column };
                let target = Target { rows: rows.clone(), column, first: self.first, bias: self.bias };
                if width > V::LANES {
                    target.any_tile::<V, 2>(left, right, ahead, out, &mut edge);
                } else {
                    target.any_tile::<V, 1>(left, right, ahead, out, &mut edge);
                }
            }
        }
    }

    /// One or two registers of columns for each k.
    #[inline(always)]
    fn pack_panel<V: Vector>(&self, column: usize, width: usize, to: &mut [f32]) {
        let stride = width.next_multiple_of(V::LANES);
        for half in (0..width).step_by(V::LANES) {
            let from = self.b.from(self.first_k, column + half).transpose();
            pack::<V>(from, V::LANES.min(width - half), self.depth, &mut to[half..], stride);
        }
    }
}
