//! One register tile of a matrix product.
//!
//! Accumulators are outputs, a lane each. Where rows end within a register, a tile beside the matrix takes their place.

use super::pack::{line_at, pack_pair};
use super::vector::Vector;
use crate::reference::matmul::View;
use std::ops::Range;

/// k between two rounds of requests to the caches.
const ROUND: usize = 16;
/// Outputs of the largest tile of any instruction set.
pub const TILE: usize = 14 * 32;

/// What is done beside a tile, a little in each round: the next panel is packed, or the caches are asked for what it is
/// packed from; and they are asked for the next tile's outputs.
pub struct Ahead<'a> {
    /// What the next panel is packed from, or no words.
    pub right: View<'a>,
    /// Where it is packed to, if this is to be done here; or no words.
    pub packed: &'a mut [f32],
    /// This tile's part of it: k to be packed, or lines to be asked for (`pack::line_at`).
    pub part: Range<usize>,
    /// The next tile's rows.
    pub rows: Range<usize>,
    /// The next tile's first column.
    pub column: usize,
    /// How much of the part, and of the rows, a round takes: all is done by the last one.
    pub pace: [usize; 2],
}

impl Ahead<'_> {
    /// What a round takes of parts of `part` and of a tile's rows, in tiles of `depth` k.
    #[inline(always)]
    pub fn pace<V: Vector>(part: usize, depth: usize) -> [usize; 2] {
        let rounds = depth.div_ceil(ROUND).max(1);
        [part.div_ceil(rounds), V::TILE_ROWS.div_ceil(rounds)]
    }

    /// A round's share.
    #[inline(always)]
    fn work<V: Vector>(&mut self, out: &[&mut [f32]]) {
        let [part, rows] = self.pace;
        let rows = self.rows.start..self.rows.end.min(self.rows.start + rows);
        self.rows.start = rows.end;
        for row in rows {
            let row = &*out[row];
            V::prefetch(row.get(self.column + V::LANES - 1));
            V::prefetch(row.get(self.column + 2 * V::LANES - 1));
        }
        let part = self.part.start..self.part.end.min(self.part.start + part);
        self.part.start = part.end;
        if self.packed.is_empty() {
            for line in part {
                V::prefetch(self.right.words.get(line_at::<V>(self.right, line)));
            }
        } else {
            for k in part {
                pack_pair::<V>(self.right, k, self.packed);
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
        let width = W * V::LANES;
        let narrow = out[self.rows.start].len() - self.column < width;
        if narrow && !self.first {
            for (row, edge) in out[self.rows.clone()].iter().zip(edge.chunks_exact_mut(width)) {
                let row = &row[self.column..];
                edge[..row.len()].copy_from_slice(row);
            }
        }
        let mut acc = [[V::splat(0.0); W]; R];
        if !self.first {
            for r in 0..R {
                let row = if narrow { &edge[r * width..] } else { &out[self.rows.start + r][self.column..] };
                for w in 0..W {
                    acc[r][w] = V::load(&row[w * V::LANES..]);
                }
            }
        }
        acc = chains(left, right, acc, ahead, out);
        if let Some(bias) = self.bias {
            add_bias(&bias[self.column..], &mut acc);
        }
        for r in 0..R {
            let row =
                if narrow { &mut edge[r * width..] } else { &mut out[self.rows.start + r][self.column..] };
            for w in 0..W {
                acc[r][w].store(&mut row[w * V::LANES..]);
            }
        }
        if narrow {
            for (row, edge) in out[self.rows.clone()].iter_mut().zip(edge.chunks_exact(width)) {
                let row = &mut row[self.column..];
                row.copy_from_slice(&edge[..row.len()]);
            }
        }
    }
}

/// The bias of each column to its outputs.
#[inline(always)]
fn add_bias<V: Vector, const R: usize, const W: usize>(bias: &[f32], acc: &mut [[V; W]; R]) {
    for w in 0..W {
        let bias = &bias[w * V::LANES..];
        let bias = if bias.len() < V::LANES { V::load_part(bias) } else { V::load(bias) };
        for r in 0..R {
            acc[r][w] = acc[r][w].add(bias);
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
    mut ahead: Ahead,
    out: &[&mut [f32]],
) -> [[V; W]; R] {
    let mut acc = start;
    let (depth, width) = (left.len() / R, W * V::LANES);
    let mut first = 0;
    while first < depth {
        ahead.work::<V>(out);
        let last = depth.min(first + ROUND);
        let (left, right) = (&left[first * R..last * R], &right[first * width..last * width]);
        for (a, b) in left.as_chunks::<R>().0.iter().zip(right.chunks_exact(width)) {
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
        first = last;
    }
    acc
}
