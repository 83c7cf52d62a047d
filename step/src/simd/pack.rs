//! Copies a factor of a matrix product so that the lines of one k lie side by side.
//!
//! A line is a row of the left factor or a column of the right one. Nothing is computed here.

use super::vector::Vector;
use crate::reference::matmul::View;

/// Words of a cache line.
const LINE: usize = 16;
/// Strips of a block of the left factor: more than one has with any instruction set.
pub const STRIPS: usize = 64;
/// k that rows of the left factor are asked for ahead where they lie side by side.
const AHEAD: usize = 4;
/// The same of rows of the right factor, which are packed by pairs of registers.
const PAIRS_AHEAD: usize = 8;
/// The same where the k of a row lie side by side.
const WORDS_AHEAD: usize = 128;

/// Words at an address that registers like: a multiple of 64 bytes.
pub struct Packed(Vec<f32>);

impl Packed {
    const ALIGNMENT: usize = 64;

    /// None yet.
    pub const fn new() -> Self {
        Packed(Vec::new())
    }

    /// `words` words, of any values.
    pub fn sized(&mut self, words: usize) -> &mut [f32] {
        let slack = Self::ALIGNMENT / size_of::<f32>();
        if self.0.len() < words + slack {
            self.0.clear();
            self.0.resize(words + slack, 0.0);
        }
        let first = self.0.as_ptr().align_offset(Self::ALIGNMENT);
        &mut self.0[first..][..words]
    }
}

impl Default for Packed {
    fn default() -> Self {
        Self::new()
    }
}

/// to[k * stride + l] = the element (l, k) of `from`, for l < lines and k < depth.
///
/// `lines` is at most `LANES`. Whole registers are written: lanes from `lines` on hold any value, and where `stride`
/// is smaller than a register the next k writes over them. `to` holds a whole register from its last k on. If told what
/// is packed after this, the caches are asked for words of it and of `from` some time before they are packed.
#[inline(always)]
pub fn pack<V: Vector>(
    from: View,
    lines: usize,
    depth: usize,
    to: &mut [f32],
    stride: usize,
    after: Option<View>,
) {
    if from.row_stride == 1 {
        for k in 0..depth {
            let words = &from.words[k * from.column_stride..];
            let value = if words.len() < V::LANES { V::load_part(words) } else { V::load(words) };
            value.store(&mut to[k * stride..]);
        }
        return;
    }
    let squares = if from.column_stride == 1 { depth / V::LANES } else { 0 };
    for square in 0..squares {
        let k = square * V::LANES;
        if let Some(after) = after {
            let later = k + WORDS_AHEAD;
            let (from, k) = if later < depth { (from, later) } else { (after, later - depth) };
            for l in 0..lines {
                V::prefetch(from.words.get(l * from.row_stride + k));
            }
        }
        V::transpose(&from.words[k..], from.row_stride, lines, &mut to[k * stride..], stride);
    }
    for k in squares * V::LANES..depth {
        for l in 0..lines {
            to[k * stride + l] = from.at(l, k);
        }
    }
}

/// to[k * 2 * LANES + l] = the word l of row k of `from`, whose columns lie side by side, for l < 2 * LANES.
///
/// Both registers of a row at once: rows lie in pages of their own, and a page is looked up once. The caches are asked
/// for a later row; after the last one, for the first ones of the columns that follow.
#[inline(always)]
pub fn pack_pair<V: Vector>(from: View, k: usize, to: &mut [f32]) {
    let depth = to.len() / (2 * V::LANES);
    let mut later = (k + PAIRS_AHEAD) * from.row_stride + V::LANES - 1;
    if k + PAIRS_AHEAD >= depth {
        later -= depth * from.row_stride;
        later += 2 * V::LANES;
    }
    V::prefetch(from.words.get(later));
    V::prefetch(from.words.get(later + V::LANES));
    let (row, to) = (&from.words[k * from.row_stride..][..2 * V::LANES], &mut to[k * 2 * V::LANES..]);
    let pair = [V::load(row), V::load(&row[V::LANES..])];
    pair[0].store(to);
    pair[1].store(&mut to[V::LANES..]);
}

/// Words of a packed strip of rows: what is left of the last register has room after it.
pub fn strip_size<V: Vector>(depth: usize) -> usize {
    V::TILE_ROWS * depth + V::LANES
}

/// Strips of rows, each as `pack` does: `starts` has the first row of each, and the row behind the last one.
#[inline(always)]
pub fn pack_strips<V: Vector>(from: View, starts: &[usize], depth: usize, to: &mut [f32]) {
    if from.row_stride == 1 {
        return pack_side_by_side::<V>(from, starts, depth, to);
    }
    for (ends, to) in starts.windows(2).zip(to.chunks_exact_mut(strip_size::<V>(depth))) {
        let (lines, after) = (ends[1] - ends[0], from.from(ends[1], 0));
        pack::<V>(from.from(ends[0], 0), lines, depth, to, lines, Some(after));
    }
}

/// Strips whose rows lie side by side, all of them k by k: memory gives one long run of words faster than short ones.
#[inline(always)]
fn pack_side_by_side<V: Vector>(from: View, starts: &[usize], depth: usize, to: &mut [f32]) {
    // Where each strip starts among the rows, where in `to`, and how many words of a k it has.
    let mut places = [[0; 3]; STRIPS];
    let places = &mut places[..starts.len() - 1];
    for (strip, (place, ends)) in places.iter_mut().zip(starts.windows(2)).enumerate() {
        *place = [ends[0], strip * strip_size::<V>(depth), ends[1] - ends[0]];
    }
    let rows = starts[0]..starts[starts.len() - 1];
    for k in 0..depth {
        let row = &from.words[k * from.column_stride..];
        let later = (k + AHEAD) * from.column_stride;
        for word in (later + rows.start..later + rows.end).step_by(LINE) {
            V::prefetch(from.words.get(word));
        }
        for [first, at, lines] in places.iter_mut() {
            let words = &row[*first..];
            let value = if words.len() < V::LANES { V::load_part(words) } else { V::load(words) };
            value.store(&mut to[*at..]);
            *at += *lines;
        }
    }
}

/// Cache lines that two registers of columns and `depth` of k are packed from, where whole lines are.
pub fn lines_of<V: Vector>(right: View, depth: usize) -> usize {
    if right.words.is_empty() { 0 } else { 2 * V::LANES * depth.div_ceil(LINE) }
}

/// A word of line `line` of these: the last word of its part, which lies in the later one of the two lines that a
/// part may lie across. The other one is the part's before.
#[inline(always)]
pub fn line_at<V: Vector>(right: View, line: usize) -> usize {
    if right.column_stride == 1 {
        let parts = 2 * V::LANES / LINE;
        line / parts * right.row_stride + line % parts * LINE + LINE - 1
    } else {
        line % (2 * V::LANES) * right.column_stride + line / (2 * V::LANES) * LINE + LINE - 1
    }
}
