//! Copies a factor of a matrix product so that the lines of one k lie side by side.
//!
//! A line is a row of the left factor or a column of the right one. Nothing is computed here.

use super::vector::Vector;
use crate::reference::matmul::View;

/// Words of a cache line.
const LINE: usize = 16;

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
/// is smaller than a register the next k writes over them. `to` holds a whole register from its last k on.
#[inline(always)]
pub fn pack<V: Vector>(from: View, lines: usize, depth: usize, to: &mut [f32], stride: usize) {
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
        V::transpose(&from.words[k..], from.row_stride, lines, &mut to[k * stride..], stride);
    }
    for k in squares * V::LANES..depth {
        for l in 0..lines {
            to[k * stride + l] = from.at(l, k);
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
