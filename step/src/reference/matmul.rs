//! Matrix product and the bias added after it.

use crate::number::elementary::fma;

/// Rows of one register tile. Six rows of sixteen columns fill twelve of AVX2's sixteen registers.
const TILE_ROWS: usize = 6;
/// Columns of one register tile.
const TILE_COLUMNS: usize = 16;

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

    /// The same matrix from row `first` on.
    pub fn from_row(self, first: usize) -> Self {
        Self { words: &self.words[first * self.row_stride..], ..self }
    }
}

/// Matrix product.
///
/// Shapes    a: [rows, inner] (read); b: [inner, columns] (read); out: [rows, columns] row-major (written)
/// Order     out[r][c]: acc = +0; for k in 0..inner ascending: acc = fma(a[r][k], b[k][c], acc)
/// Rounding  one rounding per fma
/// Special   inner = 0 gives +0; k is never padded (an fma with zeros could turn -0 into +0); columns beyond
///           the last of a tile are computed from zeros and thrown away
/// Aliasing  none
/// Source    docs/spec/profile.md#matmul
#[inline(always)]
pub fn matmul(a: View, b: View, inner: usize, columns: usize, out: &mut [f32]) {
    if out.is_empty() {
        return;
    }
    let rows = out.len() / columns;
    assert_eq!(rows * columns, out.len(), "matmul: output is not whole rows");
    let mut panel = vec![[0.0_f32; TILE_COLUMNS]; inner];
    for first_column in (0..columns).step_by(TILE_COLUMNS) {
        let width = TILE_COLUMNS.min(columns - first_column);
        pack(b, first_column, width, &mut panel);
        let mut row = 0;
        while row + TILE_ROWS <= rows {
            tile::<TILE_ROWS>(a, row, &panel, first_column, width, columns, out);
            row += TILE_ROWS;
        }
        while row < rows {
            tile::<1>(a, row, &panel, first_column, width, columns, out);
            row += 1;
        }
    }
}

/// Copies `width` columns of b so that the columns of one k lie side by side.
#[inline(always)]
fn pack(b: View, first_column: usize, width: usize, panel: &mut [[f32; TILE_COLUMNS]]) {
    for (k, line) in panel.iter_mut().enumerate() {
        let start = k * b.row_stride + first_column * b.column_stride;
        if b.column_stride == 1 {
            line[..width].copy_from_slice(&b.words[start..start + width]);
        } else {
            for c in 0..width {
                line[c] = b.words[start + c * b.column_stride];
            }
        }
    }
}

/// R rows by sixteen columns of the product: each accumulator is one output's chain over k.
#[inline(always)]
fn tile<const R: usize>(
    a: View,
    first_row: usize,
    panel: &[[f32; TILE_COLUMNS]],
    first_column: usize,
    width: usize,
    columns: usize,
    out: &mut [f32],
) {
    let mut acc = [[0.0_f32; TILE_COLUMNS]; R];
    let start = first_row * a.row_stride;
    for (k, line) in panel.iter().enumerate() {
        for r in 0..R {
            let value = a.words[start + r * a.row_stride + k * a.column_stride];
            for c in 0..TILE_COLUMNS {
                acc[r][c] = fma(value, line[c], acc[r][c]);
            }
        }
    }
    for (r, chain) in acc.iter().enumerate() {
        let at = (first_row + r) * columns + first_column;
        out[at..at + width].copy_from_slice(&chain[..width]);
    }
}

/// Adds one bias per column.
///
/// Shapes    out: [rows, columns] (read and written); bias: [columns] (read)
/// Order     out[r][c] = out[r][c] + bias[c], after the whole product
/// Rounding  f32 nearest-even, one add
/// Special   none
/// Aliasing  in place
/// Source    docs/spec/profile.md#linear
#[inline(always)]
pub fn add_bias(bias: &[f32], out: &mut [f32]) {
    for row in out.chunks_exact_mut(bias.len()) {
        for (value, bias) in row.iter_mut().zip(bias) {
            *value += bias;
        }
    }
}
