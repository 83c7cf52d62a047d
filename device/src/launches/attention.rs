//! Attention: matrix products of heads, and what stands between them. As many heads at one time as the shapes allow.

use super::matmul::{Limit, Matrix, Product, Turned};
use super::{Context, Draft, Shapes, number_of, tensor};
use crate::machine::Argument;
use crate::places::Place;
use schemas::plan::{Kind, Operation, Plan};

/// Most heads at one time: groups along y are no more on some devices.
const HEADS_MAX: u64 = 1 << 15;

/// Heads of queries that share keys and values.
fn share(plan: &Plan, operation: &Operation) -> u64 {
    match operation.kind {
        // Packed rows have as many heads of keys as of queries, whatever the plan has for other operations.
        Kind::Attention | Kind::AttentionBackward => 1,
        _ => plan.dimensions.heads / plan.dimensions.kv_heads,
    }
}

/// Heads that are taken at one time, in whole groups.
fn heads_at_once(plan: &Plan, operation: &Operation, shapes: &Shapes) -> u64 {
    let (d, share) = (plan.dimensions, share(plan, operation));
    let fit = shapes.heads_words / (2 * d.time * d.time).max(1);
    (fit.min(HEADS_MAX) / share * share).clamp(share, d.batch * d.heads)
}

/// Words of scratch: two T x T matrices of each head, and its keys or values the other way.
pub(super) fn scratch_words(plan: &Plan, operation: &Operation, shapes: &Shapes) -> u64 {
    let d = plan.dimensions;
    heads_at_once(plan, operation, shapes) * (2 * d.time * d.time + d.time * d.head_size)
}

/// Queries, keys or values, or their gradients, in the tensor that holds them.
#[derive(Clone, Copy)]
struct Part {
    place: Place,
    /// Words before the first row's.
    shift: u64,
    /// Words from row to row.
    row: u64,
}

/// The heads of an attention that are taken at one time.
struct Heads {
    /// The first, counted over all sequences, and how many.
    first: u64,
    units: u64,
    share: u64,
    scale: u32,
    /// Their two matrices in scratch, and the scratch after them.
    matrices: [Place; 2],
    scratch_at: u64,
}

impl Context<'_> {
    /// q, k and v, from one tensor or from three of `operands` from `index` on.
    fn packed(&self, operation: &Operation, operands: &[schemas::plan::Operand], index: usize) -> [Part; 3] {
        let (query, key) = (self.plan.dimensions.query_width(), self.plan.dimensions.kv_width());
        match operation.kind {
            Kind::Attention | Kind::AttentionBackward => {
                let place = self.places.of(operands[index]);
                [0, 1, 2].map(|part| Part { place, shift: part * query, row: 3 * query })
            }
            _ => {
                let part =
                    |part: usize, row| Part { place: self.places.of(operands[index + part]), shift: 0, row };
                [part(0, query), part(1, key), part(2, key)]
            }
        }
    }

    fn heads(&self, operation: &Operation) -> Vec<Heads> {
        let d = self.plan.dimensions;
        let all = d.batch * d.heads;
        let at_once = heads_at_once(self.plan, operation, &self.shapes);
        let place = |at: u64| Place { buffer: self.places.memories.scratch, at };
        let words = at_once * d.time * d.time;
        let firsts = (0..all).step_by(at_once as usize);
        let heads = firsts.map(|first| Heads {
            first,
            units: at_once.min(all - first),
            share: share(self.plan, operation),
            scale: operation.constants[0],
            matrices: [place(0), place(words)],
            scratch_at: 2 * words,
        });
        heads.collect()
    }

    /// The matrix of each head of queries: [T, HS] in rows of all heads.
    fn of_queries(&self, heads: &Heads, part: Part) -> Matrix {
        let d = self.plan.dimensions;
        let Part { place, shift, row } = part;
        let batch = d.time * row;
        Matrix { place, row, first: heads.first, heads: d.heads, share: 1, batch, head: d.head_size, shift }
    }

    /// The matrix of keys or values that each head of queries goes with.
    fn of_keys(&self, heads: &Heads, part: Part) -> Matrix {
        Matrix { share: heads.share, ..self.of_queries(heads, part) }
    }

    /// The matrix of each head of keys: units are groups of heads.
    fn of_groups(&self, heads: &Heads, part: Part, head: u64) -> Matrix {
        let d = self.plan.dimensions;
        let Part { place, shift, row } = part;
        let (first, kv_heads) = (heads.first / heads.share, d.heads / heads.share);
        Matrix { place, row, first, heads: kv_heads, share: 1, batch: d.time * row, head, shift }
    }

    /// One of the T x T matrices of each head.
    fn of_scratch(&self, heads: &Heads, index: usize) -> Matrix {
        let time = self.plan.dimensions.time;
        Matrix::each(heads.matrices[index], time, time * time, 1)
    }

    /// rows of `a` times rows of `b`, for keys up to each query: queries by keys, or gradients by values.
    fn rows_by_rows(&self, heads: &Heads, a: Matrix, b: Matrix, index: usize) -> Vec<Draft> {
        let d = self.plan.dimensions;
        let product = Product {
            a,
            b,
            out: self.of_scratch(heads, index),
            turned: Turned::Right,
            rows: d.time,
            inner: d.head_size,
            columns: d.time,
            units: heads.units,
            limit: Limit::Lower,
            repeats: [1, 0, 0],
            bias: None,
            output: None,
        };
        self.product(product, heads.scratch_at)
    }

    /// A T x T matrix times keys or values, over keys up to each query.
    fn over_keys(&self, heads: &Heads, index: usize, b: Matrix, out: Matrix, output: usize) -> Vec<Draft> {
        let d = self.plan.dimensions;
        let product = Product {
            a: self.of_scratch(heads, index),
            b,
            out,
            turned: Turned::Neither,
            rows: d.time,
            inner: d.time,
            columns: d.head_size,
            units: heads.units,
            limit: Limit::UpTo,
            repeats: [1, 0, 0],
            bias: None,
            output: Some(output),
        };
        self.product(product, heads.scratch_at)
    }

    /// A T x T matrix turned, times what queries have, over queries from each key on, head after head of a group.
    fn over_queries(&self, heads: &Heads, index: usize, b: Part, out: Part, output: usize) -> Vec<Draft> {
        let d = self.plan.dimensions;
        let square = d.time * d.time;
        let product = Product {
            a: Matrix::each(heads.matrices[index], d.time, heads.share * square, 1),
            b: self.of_groups(heads, b, heads.share * d.head_size),
            out: self.of_groups(heads, out, d.head_size),
            turned: Turned::Left,
            rows: d.time,
            inner: d.time,
            columns: d.head_size,
            units: heads.units / heads.share,
            limit: Limit::From,
            repeats: [heads.share, square, d.head_size],
            bias: None,
            output: Some(output),
        };
        self.product(product, heads.scratch_at)
    }

    pub(super) fn attention(&self, operation: &Operation) -> Vec<Draft> {
        let d = self.plan.dimensions;
        let [q, k, v] = self.packed(operation, &operation.inputs, 0);
        let out = Part { place: self.places.of(operation.outputs[0]), shift: 0, row: d.query_width() };
        let mut drafts = Vec::new();
        for heads in self.heads(operation) {
            drafts.extend(self.rows_by_rows(&heads, self.of_queries(&heads, q), self.of_keys(&heads, k), 0));
            let rows = heads.units * d.time;
            let arguments = vec![
                tensor(heads.matrices[0]),
                self.output(operation, 1),
                self.output(operation, 2),
                number_of(rows),
                number_of(d.time),
                Argument::U64(heads.first * d.time),
                Argument::U32(self.shapes.rows),
                Argument::F32(heads.scale),
            ];
            drafts.push(self.over_rows("attention_softmax", rows, arguments, Some(vec![Some(1), Some(2)])));
            drafts.extend(self.over_keys(
                &heads,
                0,
                self.of_keys(&heads, v),
                self.of_queries(&heads, out),
                0,
            ));
        }
        drafts
    }

    pub(super) fn attention_backward(&self, operation: &Operation) -> Vec<Draft> {
        let d = self.plan.dimensions;
        let packed = operation.kind == Kind::AttentionBackward;
        let [q, k, v] = self.packed(operation, &operation.inputs, 1);
        let [d_q, d_k, d_v] = self.packed(operation, &operation.outputs, 0);
        let d_out = Part { place: self.places.of(operation.inputs[0]), shift: 0, row: d.query_width() };
        // After q, k and v: out, max and sum.
        let saved = if packed { 2 } else { 4 };
        let outputs = if packed { [0, 0, 0] } else { [0, 1, 2] };
        let mut drafts = Vec::new();
        for heads in self.heads(operation) {
            drafts.extend(self.rows_by_rows(&heads, self.of_queries(&heads, q), self.of_keys(&heads, k), 0));
            drafts.extend(self.rows_by_rows(
                &heads,
                self.of_queries(&heads, d_out),
                self.of_keys(&heads, v),
                1,
            ));
            let rows = heads.units * d.time;
            let arguments = vec![
                tensor(heads.matrices[0]),
                tensor(heads.matrices[1]),
                self.input(operation, 0),
                self.input(operation, saved),
                self.input(operation, saved + 1),
                self.input(operation, saved + 2),
                number_of(rows),
                number_of(d.time),
                number_of(d.heads),
                number_of(d.head_size),
                number_of(heads.first),
                Argument::U32(self.shapes.rows),
                Argument::F32(heads.scale),
            ];
            drafts.push(self.over_rows("attention_gradient", rows, arguments, None));
            let d_query = self.of_queries(&heads, d_q);
            drafts.extend(self.over_keys(&heads, 1, self.of_keys(&heads, k), d_query, outputs[0]));
            drafts.extend(self.over_queries(&heads, 1, q, d_k, outputs[1]));
            drafts.extend(self.over_queries(&heads, 0, d_out, d_v, outputs[2]));
        }
        drafts
    }
}
