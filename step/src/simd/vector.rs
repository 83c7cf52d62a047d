//! One register of f32 lanes.

/// A register of f32 lanes. Every operation is the IEEE 754 one in each lane, rounded to nearest even.
///
/// An implementation with intrinsics is sound only where its instruction set is there: `dispatch` is the one place
/// that picks a `Vector` type, behind a detection, and compiles the kernels with that instruction set switched on.
/// That is why the trait and its types do not leave this crate.
pub trait Vector: Copy {
    /// Lanes in a register; divides 32, the lanes of `warp32`.
    const LANES: usize;
    /// Rows of a matrix product's register tile: with two registers of columns, as many as the register file holds.
    const TILE_ROWS: usize;

    /// Every lane `value`.
    fn splat(value: f32) -> Self;
    /// The first `LANES` words.
    fn load(words: &[f32]) -> Self;
    /// Writes the first `LANES` words.
    fn store(self, words: &mut [f32]);
    /// All of `words`, fewer than `LANES`; +0 in the lanes after them.
    #[inline(always)]
    fn load_part(words: &[f32]) -> Self {
        let mut lanes = [0.0; 16];
        lanes[..words.len()].copy_from_slice(words);
        Self::load(&lanes)
    }
    /// to[k * to_stride + l] = from[l * from_stride + k] for l < `lines` <= `LANES` and k < `LANES`, k ascending and
    /// whole registers at a time: lanes from `lines` on hold any value.
    #[inline(always)]
    fn transpose(from: &[f32], from_stride: usize, lines: usize, to: &mut [f32], to_stride: usize) {
        for k in 0..Self::LANES {
            for l in 0..Self::LANES {
                to[k * to_stride + l] = from[l.min(lines - 1) * from_stride + k];
            }
        }
    }
    /// Asks the caches for a word that is soon needed, if it is there at all.
    #[inline(always)]
    fn prefetch(_word: Option<&f32>) {}
    /// self + other.
    fn add(self, other: Self) -> Self;
    /// self * other.
    fn mul(self, other: Self) -> Self;
    /// self / other.
    fn div(self, other: Self) -> Self;
    /// self * factor + addend, one rounding.
    fn fma(self, factor: Self, addend: Self) -> Self;
    /// other if other > self, else self: the `max` of `warp32`.
    fn larger(self, other: Self) -> Self;
}
