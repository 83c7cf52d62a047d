//! Matrix products.

use super::{Context, Draft, count, number_of, tensor};
use crate::machine::Argument;
use crate::places::Place;
use schemas::plan::{Kind, Operation, Plan};

/// Rows and columns of a block of an item that is not staged (`BLOCK_ROWS` and `BLOCK_COLUMNS` of matmul.cl).
const BLOCK: [u64; 2] = [8, 32];
/// Columns that an item of `turn` takes.
const TURNED_COLUMNS: u64 = 16;

/// A matrix of each unit: of the heads of sequences, `share` of which have one, or one for all.
#[derive(Clone, Copy, Debug)]
pub(super) struct Matrix {
    pub place: Place,
    /// Words from row to row.
    pub row: u64,
    /// The unit of the launch's first.
    pub first: u64,
    /// Units in a sequence.
    pub heads: u64,
    /// Units that share one matrix.
    pub share: u64,
    /// Words from sequence to sequence.
    pub batch: u64,
    /// Words from matrix to matrix within a sequence.
    pub head: u64,
    /// Words before all of them, in the tensor that begins at the place.
    pub shift: u64,
}

impl Matrix {
    /// One matrix.
    pub fn one(place: Place, row: u64) -> Matrix {
        Matrix { place, row, first: 0, heads: 1, share: 1, batch: 0, head: 0, shift: 0 }
    }

    /// One for each `share` units, `words` apart.
    pub fn each(place: Place, row: u64, words: u64, share: u64) -> Matrix {
        Matrix { place, row, first: 0, heads: 1 << 31, share, batch: 0, head: words, shift: 0 }
    }

    fn arguments(&self) -> [Argument; 8] {
        [
            tensor(self.place),
            number_of(self.row),
            number_of(self.first),
            number_of(self.heads),
            number_of(self.share),
            Argument::U64(self.batch),
            Argument::U64(self.head),
            Argument::U64(self.shift),
        ]
    }
}

/// Which of a chain's k are taken (`ALL`, `UPTO`, `FROM` and `LOWER` of matmul.cl).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limit {
    All = 0,
    UpTo = 1,
    From = 2,
    Lower = 3,
}

/// How a factor stands in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turned {
    /// Left [rows, inner], right [inner, columns].
    Neither,
    /// Left [inner, rows].
    Left,
    /// Right [columns, inner].
    Right,
}

/// A product of each unit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Product {
    pub a: Matrix,
    pub b: Matrix,
    pub out: Matrix,
    pub turned: Turned,
    pub rows: u64,
    pub inner: u64,
    pub columns: u64,
    pub units: u64,
    pub limit: Limit,
    /// Pairs of matrices in one chain, and the words from one to the next.
    pub repeats: [u64; 3],
    pub bias: Option<Place>,
    /// The output that it writes; none for scratch.
    pub output: Option<usize>,
}

/// Rows, inner and columns of a product, the row lengths of its factors, and how they stand.
fn form(plan: &Plan, operation: &Operation) -> Option<([u64; 3], Turned)> {
    let columns = |operand| plan.shape(operand).last().copied().unwrap_or(1);
    let (n, out) = (plan.dimensions.rows(), columns(*operation.outputs.first()?));
    let first = operation.inputs.first().map_or(1, |&operand| columns(operand));
    match operation.kind {
        Kind::Linear | Kind::ProjectBackwardInput => Some(([n, first, out], Turned::Neither)),
        Kind::Project | Kind::LinearBackwardInput => Some(([n, first, out], Turned::Right)),
        Kind::LinearBackwardWeight | Kind::ProjectBackwardWeight => Some(([first, n, out], Turned::Left)),
        _ => None,
    }
}

/// Words of scratch that a product needs: its right factor the other way.
pub(super) fn scratch_words(plan: &Plan, operation: &Operation, staged: bool) -> u64 {
    match form(plan, operation) {
        Some(([_, inner, columns], Turned::Right)) if !staged => inner * columns,
        _ => 0,
    }
}

impl Context<'_> {
    pub(super) fn product_of(&self, operation: &Operation) -> Vec<Draft> {
        let ([rows, inner, columns], turned) =
            form(self.plan, operation).expect("launches: this is asked of products alone");
        let place = |index: usize| self.places.of(operation.inputs[index]);
        let (a_row, b_row) = match turned {
            Turned::Neither => (inner, columns),
            Turned::Left => (rows, columns),
            Turned::Right => (inner, inner),
        };
        let product = Product {
            a: Matrix::one(place(0), a_row),
            b: Matrix::one(place(1), b_row),
            out: Matrix::one(self.places.of(operation.outputs[0]), columns),
            turned,
            rows,
            inner,
            columns,
            units: 1,
            limit: Limit::All,
            repeats: [1, 0, 0],
            bias: (operation.kind == Kind::Linear).then(|| place(2)),
            output: Some(0),
        };
        self.product(product, 0)
    }

    /// The launches of a product. Scratch is free from word `scratch_at` on.
    pub(super) fn product(&self, mut product: Product, scratch_at: u64) -> Vec<Draft> {
        let mut drafts = Vec::new();
        if !self.staged && product.turned == Turned::Right {
            let to = Place { buffer: self.places.memories.scratch, at: scratch_at };
            let (share, words) = (product.b.share, product.inner * product.columns);
            let from = Matrix {
                first: product.b.first / share,
                heads: product.b.heads / share,
                share: 1,
                ..product.b
            };
            drafts.push(self.turn(from, to, product.columns, product.inner, product.units.div_ceil(share)));
            product.b = Matrix::each(to, product.columns, words, share);
            product.turned = Turned::Neither;
        }
        let Product { rows, inner, columns, units, limit, repeats, .. } = product;
        let tiles = |side: [u64; 2]| rows.div_ceil(side[0]) * columns.div_ceil(side[1]);
        let (kernel, groups, items) = if self.staged {
            let tile = u64::from(self.shapes.tile);
            let busy = |side: &u64| *side <= tile && tiles([*side; 2]) * units >= self.shapes.busy.into();
            let side = [128, 64].into_iter().find(busy).unwrap_or(tile.min(64));
            (staged_kernel(product.turned, side), tiles([side; 2]), count(side * side / 64))
        } else {
            let kernel = if product.turned == Turned::Left { "product_turned_left" } else { "product" };
            let tasks = tiles([BLOCK[0] * u64::from(self.shapes.tile), BLOCK[1]]);
            (kernel, tasks.div_ceil(self.shapes.items.into()), self.shapes.items)
        };
        let mut arguments = Vec::new();
        arguments.extend(product.a.arguments());
        arguments.extend(product.b.arguments());
        // Where there is no bias the kernel looks at none.
        arguments.push(tensor(product.bias.unwrap_or(product.b.place)));
        arguments.extend(product.out.arguments());
        arguments.extend([rows, inner, columns].map(number_of));
        arguments.extend([Argument::U32(limit as u32), number_of(repeats[0])]);
        arguments.extend([Argument::U64(repeats[1]), Argument::U64(repeats[2])]);
        arguments.push(Argument::U32(product.bias.is_some().into()));
        arguments.push(Argument::U32(product.output.is_some().into()));
        if !self.staged {
            arguments.push(Argument::U32(self.shapes.tile));
        }
        let outputs = Some(vec![product.output]);
        drafts.push(Draft { kernel, groups: [count(groups), count(units)], items, arguments, outputs });
        drafts
    }

    fn turn(&self, from: Matrix, to: Place, rows: u64, columns: u64, units: u64) -> Draft {
        let mut arguments = from.arguments().to_vec();
        arguments.extend([tensor(to), number_of(rows), number_of(columns)]);
        let groups = columns.div_ceil(TURNED_COLUMNS * u64::from(self.shapes.items));
        let groups = [count(groups), count(units)];
        Draft { kernel: "turn", groups, items: self.shapes.items, arguments, outputs: None }
    }
}

fn staged_kernel(turned: Turned, side: u64) -> &'static str {
    match (turned, side) {
        (Turned::Neither, 128) => "product_128",
        (Turned::Left, 128) => "product_turned_left_128",
        (Turned::Right, 128) => "product_turned_right_128",
        (Turned::Neither, 64) => "product_64",
        (Turned::Left, 64) => "product_turned_left_64",
        (Turned::Right, 64) => "product_turned_right_64",
        (Turned::Neither, _) => "product_32",
        (Turned::Left, _) => "product_turned_left_32",
        (Turned::Right, _) => "product_turned_right_32",
    }
}
