//! One register tile of a matrix product.
//!
//! Accumulators are outputs, a lane each. Where rows end within a register, a tile beside the matrix takes their place.

use super::pack::line_at;
use super::vector::Vector;
use crate::reference::matmul::View;
use std::ops::Range;

/// k between two rounds of requests to the caches, and requests of a round.
const AHEAD: [usize; 2] = [16, 4];
/// Outputs of the largest tile of any instruction set.
pub const TILE: usize = 14 * 32;

/// What to ask the caches for during a tile: the outputs of the next one, and lines that the next panel is packed from.
pub struct Ahead<'a> {
    /// What the next panel is packed from, or no words.
    pub right: View<'a>,
    /// The lines of it that are this tile's to ask for (`pack::line_at`).
    pub lines: Range<usize>,
    /// The next tile's rows.
    pub rows: Range<usize>,
    /// The next tile's first column.
    pub column: usize,
}

impl Ahead<'_> {
    #[inline(always)]
    fn request<V: Vector>(&mut self, out: &[&mut [f32]]) {
        for _ in 0..AHEAD[1] {
            if let Some(row) = self.rows.next() {
                let row = &*out[row];
                V::prefetch(row.get(self.column + V::LANES - 1));
                V::prefetch(row.get(self.column + 2 * V::LANES - 1));
            } else if let Some(line) = self.lines.next() {
                V::prefetch(self.right.words.get(line_at::<V>(self.right, line)));
            }
        }
    }
}

/// Where a tile's outputs are and what is done with them.
pub struct Target<'a> {
    /// Rows, at most `TILE_ROWS`.
    pub rows: Range<usize>,
    /// The first column.
    pub column: usize,
    /// Accumulators start from +0, not from what is there.
    pub first: bool,
    /// To be added, which ends the chains.
    pub bias: Option<&'a [f32]>,
}

impl Target<'_> {
    /// Carries the chains of the tile through the k of `left` and `right`, which are packed. `edge` is room for a tile.
    #[inline(always)]
    pub fn any_tile<V: Vector, const W: usize>(
        &self,
        left: &[f32],
        right: &[f32],
        ahead: Ahead,
        out: &mut [&mut [f32]],
        edge: &mut [f32],
    ) {
        macro_rules! of_rows {
            ($($rows:literal)*) => {
                match self.rows.len() {
                    $($rows if $rows <= V::TILE_ROWS => self.tile::<V, $rows, W>(left, right, ahead, out, edge),)*
                    rows => unreachable!("matmul: a tile of {rows} rows"),
                }
            };
        }
        of_rows!(1 2 3 4 5 6 7 8 9 10 11 12 13 14)
    }

    /// R rows by W registers of columns: each lane is one output's chain.
    #[inline(always)]
    fn tile<V: Vector, const R: usize, const W: usize>(
        &self,
        left: &[f32],
        right: &[f32],
        ahead: Ahead,
        out: &mut [&mut [f32]],
        edge: &mut [f32],
    ) {
        let mut acc = chains(left, right, self.start::<V, R, W>(out, edge), ahead, out);
        if let Some(bias) = self.bias {
            for w in 0..W {
                let bias = &bias[self.column + w * V::LANES..];
                let bias = if bias.len() < V::LANES { V::load_part(bias) } else { V::load(bias) };
                for r in 0..R {
                    acc[r][w] = acc[r][w].add(bias);
                }
            }
        }
        let narrow = self.narrow::<V, W>(out);
        let words: [[&mut V::Words; W]; R] = self.words::<V, R, W>(out, edge);
        for r in 0..R {
            for w in 0..W {
                acc[r][w].store_words(words[r][w]);
            }
        }
        if narrow {
            for (row, edge) in out[self.rows.clone()].iter_mut().zip(edge.chunks_exact(W * V::LANES)) {
                let row = &mut row[self.column..];
                row.copy_from_slice(&edge[..row.len()]);
            }
        }
    }

    /// What the chains start from: +0, or what the stretch before left.
    #[inline(always)]
    fn start<V: Vector, const R: usize, const W: usize>(
        &self,
        out: &mut [&mut [f32]],
        edge: &mut [f32],
    ) -> [[V; W]; R] {
        let mut acc = [[V::splat(0.0); W]; R];
        if self.first {
            return acc;
        }
        if self.narrow::<V, W>(out) {
            for (row, edge) in out[self.rows.clone()].iter().zip(edge.chunks_exact_mut(W * V::LANES)) {
                let row = &row[self.column..];
                edge[..row.len()].copy_from_slice(row);
            }
        }
        let words: [[&mut V::Words; W]; R] = self.words::<V, R, W>(out, edge);
        for r in 0..R {
            for w in 0..W {
                acc[r][w] = V::load_words(words[r][w]);
            }
        }
        acc
    }

    /// Whether the rows end within the tile's registers.
    #[inline(always)]
    fn narrow<V: Vector, const W: usize>(&self, out: &[&mut [f32]]) -> bool {
        out[self.rows.start].len() - self.column < W * V::LANES
    }

    /// The tile's outputs by registers, or `edge` in their place where a row ends within a register.
    #[inline(always)]
    fn words<'w, V: Vector, const R: usize, const W: usize>(
        &self,
        out: &'w mut [&mut [f32]],
        edge: &'w mut [f32],
    ) -> [[&'w mut V::Words; W]; R] {
        if self.narrow::<V, W>(out) {
            let mut rows = edge.chunks_exact_mut(W * V::LANES);
            std::array::from_fn(|_| registers::<V, W>(rows.next().expect("matmul: a tile's edge")))
        } else {
            let mut rows = out[self.rows.clone()].iter_mut();
            std::array::from_fn(|_| {
                registers::<V, W>(&mut rows.next().expect("matmul: a tile's rows")[self.column..])
            })
        }
    }
}

/// The first W registers of a row.
#[inline(always)]
fn registers<V: Vector, const W: usize>(row: &mut [f32]) -> [&mut V::Words; W] {
    let mut words = row.chunks_exact_mut(V::LANES);
    std::array::from_fn(|_| V::words(words.next().expect("matmul: whole registers")))
}

/// Takes every accumulator through this block's k. Apart from what reads and writes memory, so that a compiler sees
/// that they can stay in registers.
#[inline(always)]
fn chains<V: Vector, const R: usize, const W: usize>(
    left: &[f32],
    right: &[f32],
    start: [[V; W]; R],
    mut ahead: Ahead,
    out: &[&mut [f32]],
) -> [[V; W]; R] {
    let mut acc = start;
    let left = left.as_chunks::<R>().0;
    for (left, right) in left.chunks(AHEAD[0]).zip(right.chunks(AHEAD[0] * W * V::LANES)) {
        ahead.request::<V>(out);
        for (a, b) in left.iter().zip(right.chunks_exact(W * V::LANES)) {
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
    }
    acc
}
