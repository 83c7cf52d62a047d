//! Sums and maxima along a row (`warp32`) and down the columns of a matrix.

use crate::number::elementary::fma;

/// Lanes of the order `warp32`: one warp of a GPU, four AVX2 registers.
pub const LANES: usize = 32;

/// Joins 32 lanes into one: for s in 16, 8, 4, 2, 1, lane i takes lanes i and i + s, the lower index left.
#[inline(always)]
fn butterfly(mut lane: [f32; LANES], join: impl Fn(f32, f32) -> f32) -> f32 {
    let mut s = LANES / 2;
    while s > 0 {
        for i in 0..s {
            lane[i] = join(lane[i], lane[i + s]);
        }
        s /= 2;
    }
    lane[0]
}

/// The larger of two: b if b > a, else a (so a NaN on the right is passed over, one on the left stays).
#[inline(always)]
pub fn max(a: f32, b: f32) -> f32 {
    if b > a { b } else { a }
}

/// Sum of a row in order `warp32`.
///
/// Shapes    x: [n] (read); returns one value
/// Order     lane l starts at +0 and adds x[l], x[l+32], x[l+64], ... ascending (absent ones are skipped);
///           then for s in 16, 8, 4, 2, 1: lane[i] = lane[i] + lane[i+s] for i < s; lane[0] is the sum
/// Rounding  f32 nearest-even after every add
/// Special   an empty row gives +0
/// Aliasing  none
/// Source    docs/spec/profile.md#warp32
#[inline(always)]
pub fn warp32_sum(x: &[f32]) -> f32 {
    let mut lane = [0.0_f32; LANES];
    let mut blocks = x.chunks_exact(LANES);
    for block in &mut blocks {
        for l in 0..LANES {
            lane[l] += block[l];
        }
    }
    for (l, value) in blocks.remainder().iter().enumerate() {
        lane[l] += value;
    }
    butterfly(lane, |a, b| a + b)
}

/// Sum of products of two rows in order `warp32`.
///
/// Shapes    a, b: [n] (read, equal lengths); returns one value
/// Order     as `warp32_sum`, with lane[l] = fma(a[i], b[i], lane[l]) in place of the add
/// Rounding  one rounding per fma, then f32 nearest-even per add
/// Special   an empty row gives +0
/// Aliasing  a and b may be the same row
/// Source    docs/spec/profile.md#warp32
#[inline(always)]
pub fn warp32_dot(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len(), "warp32_dot: rows of unequal length");
    let mut lane = [0.0_f32; LANES];
    let (mut a_blocks, mut b_blocks) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    for (a_block, b_block) in (&mut a_blocks).zip(&mut b_blocks) {
        for l in 0..LANES {
            lane[l] = fma(a_block[l], b_block[l], lane[l]);
        }
    }
    for (l, (a, b)) in a_blocks.remainder().iter().zip(b_blocks.remainder()).enumerate() {
        lane[l] = fma(*a, *b, lane[l]);
    }
    butterfly(lane, |a, b| a + b)
}

/// Largest value of a row in order `warp32`.
///
/// Shapes    x: [n] (read); returns one value
/// Order     lane l starts at -infinity and takes max(lane, x[i]) for i = l, l+32, ...; then the butterfly of
///           `warp32_sum` with max in place of the add; max(a, b) = if b > a { b } else { a }
/// Rounding  none
/// Special   a NaN in x is passed over (the exponential of the same element brings it back); of +0 and -0 the
///           first met stays
/// Aliasing  none
/// Source    docs/spec/profile.md#warp32
#[inline(always)]
pub fn warp32_max(x: &[f32]) -> f32 {
    let mut lane = [f32::NEG_INFINITY; LANES];
    let mut blocks = x.chunks_exact(LANES);
    for block in &mut blocks {
        for l in 0..LANES {
            lane[l] = max(lane[l], block[l]);
        }
    }
    for (l, value) in blocks.remainder().iter().enumerate() {
        lane[l] = max(lane[l], *value);
    }
    butterfly(lane, max)
}

/// Sum of each column of a matrix: the gradient of a bias.
///
/// Shapes    x: [rows, width] (read); out: [columns], those from column `first` on (written)
/// Order     out[c] starts at +0 and adds x[0][first + c], x[1][first + c], ... rows ascending
/// Rounding  f32 nearest-even after every add
/// Special   no rows give +0
/// Aliasing  none
/// Source    docs/spec/profile.md#linear
#[inline(always)]
pub fn column_sums(x: &[f32], width: usize, first: usize, out: &mut [f32]) {
    out.fill(0.0);
    for row in x.chunks_exact(width) {
        for (sum, value) in out.iter_mut().zip(&row[first..]) {
            *sum += value;
        }
    }
}
