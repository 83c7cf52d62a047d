//! Matrix product and the bias added after it.

use crate::number::elementary::fma;

/// A matrix as it lies in memory: element (row, column) stands at row * row_stride + column * column_stride.
#[derive(Clone, Copy)]
pub struct View<'a> {
    /// The words, shared by every view of the same tensor.
    pub words: &'a [f32],
    /// Distance of two rows, in words.
    pub row_stride: usize,
    /// Distance of two columns, in words.
    pub column_stride: usize,
}

impl<'a> View<'a> {
    /// A row-major matrix with `columns` columns.
    pub fn rows(words: &'a [f32], columns: usize) -> Self {
        Self { words, row_stride: columns, column_stride: 1 }
    }

    /// The transpose of a row-major matrix with `columns` columns.
    pub fn transposed(words: &'a [f32], columns: usize) -> Self {
        Self { words, row_stride: 1, column_stride: columns }
    }

    /// The same matrix with its rows as columns.
    pub fn transpose(self) -> Self {
        Self { words: self.words, row_stride: self.column_stride, column_stride: self.row_stride }
    }

    /// The same matrix from row `row` and column `column` on. A matrix without elements has no first one either.
    pub fn from(self, row: usize, column: usize) -> Self {
        let first = row * self.row_stride + column * self.column_stride;
        Self { words: self.words.get(first..).unwrap_or_default(), ..self }
    }

    /// The element at (row, column).
    #[inline(always)]
    pub fn at(self, row: usize, column: usize) -> f32 {
        self.words[row * self.row_stride + column * self.column_stride]
    }
}

/// The inner step of a chain: what a profile's rule `matmul` does with the accumulator and the next products.
///
/// The loops below know no more of a profile than this. A step that fuses several products into one rounding is
/// another implementation, with the accumulator inside.
pub trait Step {
    /// Products that one step takes; the last step of a chain takes what is left.
    const GROUP: usize;

    /// The accumulator after the next products, given as factors: left, right.
    fn step(acc: f32, products: impl Iterator<Item = (f32, f32)>) -> f32;
}

/// `chain-fma`: one product a step, one rounding a product.
pub struct FmaChain;

impl Step for FmaChain {
    const GROUP: usize = 1;

    #[inline(always)]
    fn step(acc: f32, products: impl Iterator<Item = (f32, f32)>) -> f32 {
        products.fold(acc, |acc, (a, b)| fma(a, b, acc))
    }
}

/// Matrix product, and a bias of each column if given.
///
/// Shapes    a: [rows, inner] (read); b: [inner, columns] (read); bias: [columns] (read); out: [rows, columns], a
///           slice for each row (written)
/// Order     out[r][c]: acc = +0; for k in 0..inner ascending: acc = fma(a[r][k], b[k][c], acc); then, with a bias,
///           acc + bias[c]
/// Rounding  one rounding per fma, one for the add
/// Special   inner = 0 gives +0; k is never padded (an fma with zeros could turn -0 into +0), and no bias is not a
///           bias of +0
/// Aliasing  none
/// Source    docs/spec/profile.md#matmul, docs/spec/profile.md#linear
#[inline(always)]
pub fn matmul(a: View, b: View, inner: usize, bias: Option<&[f32]>, out: &mut [&mut [f32]]) {
    chains::<FmaChain>(a, b, inner, out);
    if let Some(bias) = bias {
        out.iter_mut().for_each(|row| add_bias(bias, row));
    }
}

/// The product alone, with the inner step of a profile.
#[inline(always)]
fn chains<S: Step>(a: View, b: View, inner: usize, out: &mut [&mut [f32]]) {
    for r in 0..out.len() {
        for c in 0..out[r].len() {
            let mut acc = 0.0;
            for k in (0..inner).step_by(S::GROUP) {
                let group = k..inner.min(k + S::GROUP);
                acc = S::step(acc, group.map(|k| (a.at(r, k), b.at(k, c))));
            }
            out[r][c] = acc;
        }
    }
}

/// Adds one bias per column.
///
/// Shapes    row: [columns] (read and written); bias: [columns] (read)
/// Order     row[c] = row[c] + bias[c], after the whole product
/// Rounding  f32 nearest-even, one add
/// Special   none
/// Aliasing  in place
/// Source    docs/spec/profile.md#linear
#[inline(always)]
pub fn add_bias(bias: &[f32], row: &mut [f32]) {
    assert_eq!(bias.len(), row.len(), "matmul: one bias per column");
    for c in 0..row.len() {
        row[c] += bias[c];
    }
}
