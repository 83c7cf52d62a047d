//! Copies a factor of a matrix product so that the lines of one k lie side by side.
//!
//! A line is a row of the left factor or a column of the right one. Nothing is computed here.

use super::vector::Vector;

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

/// to[k * stride + l] = from[l * line_stride + k * k_stride] for l < lines and k < depth.
///
/// `lines` is at most `LANES`. Whole registers are written: lanes from `lines` on hold any value, and where `stride`
/// is smaller than a register the next k writes over them. `to` holds a whole register from its last k on.
#[inline(always)]
pub fn pack<V: Vector>(
    from: &[f32],
    line_stride: usize,
    k_stride: usize,
    lines: usize,
    depth: usize,
    to: &mut [f32],
    stride: usize,
) {
    if line_stride == 1 {
        for k in 0..depth {
            let words = &from[k * k_stride..];
            let value = if words.len() < V::LANES { V::load_part(words) } else { V::load(words) };
            value.store(&mut to[k * stride..]);
        }
        return;
    }
    let squares = if k_stride == 1 { depth / V::LANES } else { 0 };
    for square in 0..squares {
        let k = square * V::LANES;
        V::transpose(&from[k..], line_stride, lines, &mut to[k * stride..], stride);
    }
    for k in squares * V::LANES..depth {
        for l in 0..lines {
            to[k * stride + l] = from[l * line_stride + k * k_stride];
        }
    }
}
