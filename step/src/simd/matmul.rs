//! Matrix product in register tiles over packed blocks.
//!
//! What changes against `reference`: the order in which outputs are worked on, and where the factors lie. Each output
//! keeps its one chain over k: a tile holds the accumulators of its outputs in registers, one lane each, and a block
//! of k ends by storing them and the next begins by loading them again, which is exact. The first block starts from
//! +0 rather than from what `out` held. Rows and columns that a tile lacks are lanes of their own and are thrown
//! away; k is never padded.
//!
//! From the outside in: blocks of columns, of k, of rows; in each, panels of the right factor's columns; in each,
//! strips of the left factor's rows, a tile each. Panels are packed for the first block of rows: while one is at work,
//! the next one is packed beside its tiles if its columns lie side by side; if not, the caches are asked for what it is
//! packed from. Strips are as even as whole rows allow, since a tile of few rows waits for its own chains.

use super::pack::{Packed, STRIPS, lines_of, pack, pack_pair, pack_strips, strip_size};
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

/// How a product is cut: into tiles' strips of rows, panels of columns and registers of k, and into blocks of these.
struct Cut {
    rows: usize,
    inner: usize,
    strips: usize,
    panels: usize,
    steps: usize,
    row_blocks: usize,
    column_blocks: usize,
    k_blocks: usize,
}

impl Cut {
    #[inline(always)]
    fn new<V: Vector>([rows, columns, inner]: [usize; 3]) -> Self {
        let strips = rows.div_ceil(V::TILE_ROWS);
        let panels = columns.div_ceil(2 * V::LANES);
        let steps = inner.div_ceil(V::LANES);
        let row_blocks = strips.div_ceil(BLOCK_ROWS / V::TILE_ROWS);
        let column_blocks = panels.div_ceil(BLOCK_COLUMNS / (2 * V::LANES));
        let k_blocks = steps.div_ceil(BLOCK_K / V::LANES).max(1);
        Cut { rows, inner, strips, panels, steps, row_blocks, column_blocks, k_blocks }
    }

    /// A block of rows.
    fn rows(&self, block: usize) -> Block {
        let strips = share(self.strips, self.row_blocks, block);
        let mut starts = [0; STRIPS + 1];
        for (start, strip) in starts.iter_mut().zip(strips.start..=strips.end) {
            *start = share(self.rows, self.strips, strip).start;
        }
        Block { starts, strips: strips.len(), first: block == 0, last: block + 1 == self.row_blocks }
    }

    fn k<V: Vector>(&self, block: usize) -> Range<usize> {
        let steps = share(self.steps, self.k_blocks, block);
        steps.start * V::LANES..self.inner.min(steps.end * V::LANES)
    }

    fn panels(&self, block: usize) -> Range<usize> {
        share(self.panels, self.column_blocks, block)
    }
}

/// A block of k and of columns, of all rows.
struct Stretch<'a> {
    a: View<'a>,
    b: View<'a>,
    k: Range<usize>,
    panels: Range<usize>,
    /// Accumulators start from +0.
    first: bool,
    /// To be added, which ends the chains.
    bias: Option<&'a [f32]>,
    /// What the first panel of the next stretch is packed from, or no words.
    after: View<'a>,
}

/// A block of rows in a stretch.
struct Block {
    /// The first row of each strip, and after the last strip the row behind it. Known beforehand: a tile takes hardly
    /// longer than some divisions.
    starts: [usize; STRIPS + 1],
    /// Strips that the rows are cut into.
    strips: usize,
    /// The first one, which packs the panels.
    first: bool,
    /// The last one, which the next stretch follows.
    last: bool,
}

impl Block {
    /// The rows of a strip.
    #[inline(always)]
    fn rows(&self, strip: usize) -> Range<usize> {
        self.starts[strip]..self.starts[strip + 1]
    }

    /// The first row of each strip, and the row behind the last one.
    fn starts(&self) -> &[usize] {
        &self.starts[..=self.strips]
    }
}

/// No words.
const NOTHING: View = View { words: &[], row_stride: 1, column_stride: 1 };

/// `reference::matmul::matmul`.
#[inline(always)]
pub fn matmul<V: Vector>(a: View, b: View, inner: usize, bias: Option<&[f32]>, out: &mut [&mut [f32]]) {
    let (rows, columns) = (out.len(), out.first().map_or(0, |row| row.len()));
    if rows == 0 || columns == 0 {
        return;
    }
    let cut = Cut::new::<V>([rows, columns, inner]);
    let stretches = cut.column_blocks * cut.k_blocks;
    let place = |at: usize| (cut.panels(at / cut.k_blocks), cut.k::<V>(at % cut.k_blocks));
    let mut room = SPARE.take();
    for at in 0..stretches {
        let (panels, k) = place(at);
        let after = if at + 1 < stretches {
            let (panels, k) = place(at + 1);
            b.from(k.start, panels.start * 2 * V::LANES)
        } else {
            NOTHING
        };
        let bias = bias.filter(|_| k.end == inner);
        let stretch = Stretch { a, b, first: k.start == 0, k, panels, bias, after };
        stretch.all_rows::<V>(&cut, &mut room, out);
    }
    SPARE.set(room);
}

impl Stretch<'_> {
    #[inline(always)]
    fn all_rows<V: Vector>(&self, cut: &Cut, [left, right]: &mut [Packed; 2], out: &mut [&mut [f32]]) {
        // Without a second block of rows there is no use for a panel once the next one is at work.
        let kept = if cut.row_blocks > 1 { self.panels.len().max(2) } else { 2 };
        let right = right.sized(kept * 2 * V::LANES * self.k.len());
        for at in 0..cut.row_blocks {
            let block = cut.rows(at);
            let left = left.sized(block.strips * strip_size::<V>(self.k.len()));
            pack_strips::<V>(self.a.from(0, self.k.start), block.starts(), self.k.len(), left);
            self.block::<V>(&block, left, right, kept, out);
        }
    }

    /// The outputs of a block; `right` is room for `kept` packed panels, at least the one at work and the next.
    #[inline(always)]
    fn block<V: Vector>(
        &self,
        block: &Block,
        left: &[f32],
        right: &mut [f32],
        kept: usize,
        out: &mut [&mut [f32]],
    ) {
        let (size, mut edge) = (2 * V::LANES * self.k.len(), [0.0; TILE]);
        let place = |panel: usize| {
            let at = (panel - self.panels.start) % kept * size;
            at..at + size
        };
        let mut packed = !block.first || self.k.is_empty();
        for panel in self.panels.clone() {
            let places = [place(panel), place(panel + 1)];
            let [right, room] = right.get_disjoint_mut(places).expect("matmul: room for two panels");
            let column = panel * 2 * V::LANES;
            if !packed {
                self.pack_panel::<V>(column, (out[0].len() - column).min(2 * V::LANES), right);
            }
            let next = self.next::<V>(block, panel);
            let more = block.first && panel + 1 < self.panels.end && !self.k.is_empty();
            let beside = more && self.b.column_stride == 1 && out[0].len() - column >= 4 * V::LANES;
            packed = beside || !block.first || self.k.is_empty();
            let room = if beside { room } else { &mut [] };
            self.panel::<V>(block, column, [left, right], next, room, out, &mut edge);
        }
    }

    /// What the panel to be packed after this one is packed from, or no words.
    #[inline(always)]
    fn next<V: Vector>(&self, block: &Block, panel: usize) -> View<'_> {
        if panel + 1 == self.panels.end {
            return if block.last { self.after } else { NOTHING };
        }
        if block.first { self.b.from(self.k.start, (panel + 1) * 2 * V::LANES) } else { NOTHING }
    }

    /// The outputs of a block in one panel of columns; `left` and `right` are packed, and `next` is packed into `room`
    /// if there is any.
    #[inline(always)]
    fn panel<V: Vector>(
        &self,
        block: &Block,
        column: usize,
        [left, right]: [&[f32]; 2],
        next: View,
        room: &mut [f32],
        out: &mut [&mut [f32]],
        edge: &mut [f32],
    ) {
        let depth = self.k.len();
        let parts = if room.is_empty() { lines_of::<V>(next, depth) } else { depth };
        let each = parts.div_ceil(block.strips);
        let pace = Ahead::pace::<V>(each, depth);
        for strip in 0..block.strips {
            let here = block.rows(strip);
            let left = &left[strip * strip_size::<V>(depth)..][..here.len() * depth];
            // After the last strip comes the first one of the next panel.
            let last = strip + 1 == block.strips;
            let then = block.rows(if last { 0 } else { strip + 1 });
            let at = if last { column + 2 * V::LANES } else { column };
            let part = parts.min(strip * each)..parts.min((strip + 1) * each);
            let ahead = Ahead { right: next, packed: room, part, rows: then, column: at, pace };
            let target = Target { rows: here, column, first: self.first, bias: self.bias };
            if out[0].len() - column > V::LANES {
                target.any_tile::<V, 2>(left, right, ahead, out, edge);
            } else {
                target.any_tile::<V, 1>(left, right, ahead, out, edge);
            }
        }
    }

    /// One or two registers of columns for each k.
    #[inline(always)]
    fn pack_panel<V: Vector>(&self, column: usize, width: usize, to: &mut [f32]) {
        let depth = self.k.len();
        if self.b.column_stride == 1 && width == 2 * V::LANES {
            let from = self.b.from(self.k.start, column);
            return (0..depth).for_each(|k| pack_pair::<V>(from, k, to));
        }
        let stride = width.next_multiple_of(V::LANES);
        for half in (0..width).step_by(V::LANES) {
            let from = self.b.from(self.k.start, column + half).transpose();
            pack::<V>(from, V::LANES.min(width - half), depth, &mut to[half..], stride, None);
        }
    }
}
