//! One operation of a plan, from its kind and operands, over an arithmetic.

use super::arithmetic::Arithmetic;
use super::attention::{self, Heads, Inputs};
use super::{elements, loss, products, rows};
use crate::operation::Call;
use crate::reference::matmul::View;
use schemas::plan::Kind;

/// Runs an operation of `kind`; `outputs` are of the right lengths.
pub fn run<A: Arithmetic>(call: &Call, kind: Kind, outputs: &mut [&mut [f32]]) {
    let d = call.dimensions;
    let [rows, channels, times] = [d.rows(), d.channels, d.time].map(|size| size as usize);
    let (vocabulary, half) = (d.vocabulary as usize, d.head_size as usize / 2);
    match (kind, outputs) {
        (Kind::Add, [out]) => elements::add::<A>(call.f32(0), call.f32(1), out),
        (Kind::Gelu, [y]) => elements::gelu::<A>(call.f32(0), y),
        (Kind::GeluBackward, [d_x]) => elements::gelu_backward::<A>(call.f32(0), call.f32(1), d_x),
        (Kind::Swiglu, [y]) => elements::swiglu::<A>(call.f32(0), call.f32(1), y),
        (Kind::SwigluBackward, [d_gate, d_up]) => {
            elements::swiglu_backward::<A>(call.f32(0), call.f32(1), call.f32(2), d_gate, d_up);
        }
        (Kind::Rope | Kind::RopeBackward, [y]) => {
            let sign = if kind == Kind::Rope { 1.0 } else { -1.0 };
            let width = y.len() / rows;
            elements::rope::<A>(call.f32(0), [call.f32(1), call.f32(2)], half, width, sign, y);
        }
        (Kind::Embedding, [out]) => {
            let positions = Some(call.f32(2));
            elements::embedding::<A>(call.u32(0), call.f32(1), positions, times, channels, out);
        }
        (Kind::TokenEmbedding, [out]) => {
            elements::embedding::<A>(call.u32(0), call.f32(1), None, times, channels, out);
        }
        (Kind::TokenEmbeddingBackward, [table]) => {
            elements::embedding_backward::<A>(call.u32(0), call.f32(1), channels, table);
        }
        (Kind::EmbeddingBackward, [table, positions]) => {
            elements::embedding_backward::<A>(call.u32(0), call.f32(1), channels, table);
            elements::sums_of_rows::<A>(call.f32(1), times * channels, positions);
        }
        (Kind::LinearBackwardBias, [out]) => elements::sums_of_rows::<A>(call.f32(0), out.len(), out),
        (Kind::CrossEntropy, [a, b, c]) => {
            loss::cross_entropy::<A>(call.f32(0), call.u32(1), vocabulary, [a, b, c]);
        }
        (Kind::CrossEntropyBackward, [out]) => {
            let (statistics, inv_n) = ([call.f32(2), call.f32(3)], call.constant(0));
            loss::cross_entropy_backward::<A>(call.f32(0), call.u32(1), statistics, vocabulary, inv_n, out);
        }
        (Kind::Layernorm, [y, mean, rstd]) => {
            let constants = [call.constant(0), call.constant(1)];
            rows::layernorm::<A>(call.f32(0), [call.f32(1), call.f32(2)], constants, [y, mean, rstd]);
        }
        (Kind::LayernormBackward, [d_x, d_gain, d_bias]) => {
            let inputs = [0, 1, 2, 3, 4].map(|index| call.f32(index));
            rows::layernorm_backward::<A>(inputs, call.constant(0), [d_x, d_gain, d_bias]);
        }
        (Kind::Rmsnorm, [y, rstd]) => {
            let constants = [call.constant(0), call.constant(1)];
            rows::rmsnorm::<A>(call.f32(0), call.f32(1), constants, [y, rstd]);
        }
        (Kind::RmsnormBackward, [d_x, d_gain]) => {
            let inputs = [0, 1, 2, 3].map(|index| call.f32(index));
            rows::rmsnorm_backward::<A>(inputs, call.constant(0), [d_x, d_gain]);
        }
        (Kind::Attention | Kind::GroupedAttention, [out, max, sum]) => {
            let (shape, inputs) = heads(call, kind == Kind::Attention, 0);
            attention::forward::<A>(shape, inputs, [out, max, sum]);
        }
        (Kind::AttentionBackward | Kind::GroupedAttentionBackward, outputs) => {
            attention_backward::<A>(call, kind == Kind::AttentionBackward, outputs);
        }
        (kind, [out]) if products::has_chains(kind) => product::<A>(call, kind, out),
        (kind, outputs) => panic!("variants: {kind:?} does not have {} outputs", outputs.len()),
    }
}

/// The shape and the heads of an attention, whose first input is number `at`: one packed tensor, or three.
fn heads<'a>(call: &Call<'a>, packed: bool, at: usize) -> (crate::kernels::AttentionShape, Inputs<'a>) {
    let d = call.dimensions;
    let shape = call.attention(if packed { d.heads } else { d.kv_heads });
    let (size, width) = (shape.head_size, shape.heads * shape.head_size);
    let inputs = match packed {
        true => {
            let [q, k, v] =
                [0, 1, 2].map(|part| Heads { words: call.f32(at), stride: 3 * width, first: part * width });
            Inputs { q, k, v }
        }
        false => Inputs {
            q: Heads::of(call.f32(at), shape.heads, size),
            k: Heads::of(call.f32(at + 1), shape.kv_heads, size),
            v: Heads::of(call.f32(at + 2), shape.kv_heads, size),
        },
    };
    (shape, inputs)
}

fn attention_backward<A: Arithmetic>(call: &Call, packed: bool, outputs: &mut [&mut [f32]]) {
    let (shape, inputs) = heads(call, packed, 1);
    let after = if packed { 2 } else { 4 };
    let given = [0, after, after + 1, after + 2].map(|index| call.f32(index));
    let (size, width) = (shape.head_size, shape.heads * shape.head_size);
    attention::backward::<A>(shape, inputs, given, |which, row, head, c, value| match packed {
        true => outputs[0][row * 3 * width + which * width + head * size + c] = value,
        false => {
            let heads = if which == 0 { shape.heads } else { shape.kv_heads };
            outputs[which][(row * heads + head) * size + c] = value;
        }
    });
}

fn product<A: Arithmetic>(call: &Call, kind: Kind, out: &mut [f32]) {
    let rows = call.dimensions.rows() as usize;
    let (a, b) = (call.f32(0), call.f32(1));
    let (a_columns, out_columns) = (a.len() / rows, out.len() / rows);
    match kind {
        Kind::Linear => {
            let bias = call.f32(2);
            let (x, w) = (View::rows(a, a_columns), View::rows(b, bias.len()));
            products::matmul::<A>(x, w, a_columns, Some(bias), bias.len(), out);
        }
        Kind::Project => {
            let (x, w) = (View::rows(a, a_columns), View::transposed(b, a_columns));
            products::matmul::<A>(x, w, a_columns, None, out_columns, out);
        }
        Kind::LinearBackwardInput => {
            let (d_y, w) = (View::rows(a, a_columns), View::transposed(b, a_columns));
            products::matmul::<A>(d_y, w, a_columns, None, out_columns, out);
        }
        Kind::ProjectBackwardInput => {
            let (d_y, w) = (View::rows(a, a_columns), View::rows(b, out_columns));
            products::matmul::<A>(d_y, w, a_columns, None, out_columns, out);
        }
        // x and d_y, or d_y and x: a chain over rows, the first one's columns by the second one's.
        _ => {
            let b_columns = b.len() / rows;
            let (a, b) = (View::transposed(a, a_columns), View::rows(b, b_columns));
            products::matmul::<A>(a, b, rows, None, b_columns, out);
        }
    }
}
