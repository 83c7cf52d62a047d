//! One operation of a plan: from its kind and operands to a kernel.
//!
//! Operands stand in the order of `schemas::plan::Kind`. A plan was checked when it was decoded or derived,
//! so what does not fit here is a fault of this program and not of its input.

use crate::dispatch::{self, Backend};
use crate::kernels::{self, AttentionShape};
use crate::reference::matmul::View;
use schemas::plan::{Dimensions, Kind};

/// An input of an operation.
#[derive(Clone, Copy)]
pub enum Input<'a> {
    /// f32.
    F32(&'a [f32]),
    /// u32.
    U32(&'a [u32]),
}

/// How an operation writes its outputs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Manner {
    /// Every word, whatever was there.
    #[default]
    Whole,
    /// Every word, and +0 added to it.
    PlusZero,
    /// The first output is added to what is there; the others are written.
    Onto,
    /// Not at all: what is there is the output.
    There,
}

/// Inputs, constants and dimensions of one operation.
pub struct Call<'a> {
    /// What runs it.
    pub backend: Backend,
    /// The plan's dimensions.
    pub dimensions: Dimensions,
    /// In the order of the kind.
    pub inputs: Vec<Input<'a>>,
    /// f32 bits, in the order of the kind.
    pub constants: &'a [u32],
}

impl<'a> Call<'a> {
    pub(crate) fn f32(&self, index: usize) -> &'a [f32] {
        match self.inputs[index] {
            Input::F32(words) => words,
            Input::U32(_) => panic!("operation: input {index} is not f32"),
        }
    }

    pub(crate) fn u32(&self, index: usize) -> &'a [u32] {
        match self.inputs[index] {
            Input::U32(words) => words,
            Input::F32(_) => panic!("operation: input {index} is not u32"),
        }
    }

    pub(crate) fn constant(&self, index: usize) -> f32 {
        f32::from_bits(self.constants[index])
    }

    /// Packed rows have as many heads of keys as of queries, whatever `kv_heads` says of other operations.
    pub(crate) fn attention(&self, kv_heads: u64) -> AttentionShape {
        let d = self.dimensions;
        AttentionShape {
            batches: d.batch as usize,
            times: d.time as usize,
            heads: d.heads as usize,
            kv_heads: kv_heads as usize,
            head_size: d.head_size as usize,
            scale: self.constant(0),
        }
    }

    /// Runs an operation of `kind` in the manner given; `outputs` are of the right lengths.
    pub fn run_as(&self, manner: Manner, kind: Kind, outputs: &mut [&mut [f32]]) {
        match (manner, kind, outputs) {
            (Manner::Whole, kind, outputs) => self.run(kind, outputs),
            (Manner::There, ..) => {}
            (Manner::PlusZero, Kind::ProjectBackwardWeight, [out]) => self.project_weight(true, out),
            (Manner::Onto, Kind::TokenEmbeddingBackward, [table]) => self.embedding_onto(table),
            (Manner::Onto, Kind::EmbeddingBackward, [table, d_wpe]) => {
                self.embedding_onto(table);
                self.embedding_positions(d_wpe);
            }
            (manner, kind, _) => panic!("operation: {kind:?} has no manner {manner:?}"),
        }
    }

    /// Runs an operation of `kind`; `outputs` are of the right lengths.
    pub fn run(&self, kind: Kind, outputs: &mut [&mut [f32]]) {
        match kind {
            Kind::Window => panic!("operation: a window is read, not computed"),
            Kind::Add => kernels::add(self.backend, self.f32(0), self.f32(1), one(outputs)),
            Kind::Embedding
            | Kind::TokenEmbedding
            | Kind::Layernorm
            | Kind::Rmsnorm
            | Kind::Linear
            | Kind::Project
            | Kind::Rope
            | Kind::Attention
            | Kind::GroupedAttention
            | Kind::Gelu
            | Kind::Swiglu
            | Kind::CrossEntropy => self.forward(kind, outputs),
            Kind::ProjectBackwardInput | Kind::ProjectBackwardWeight => self.project(kind, one(outputs)),
            Kind::LinearBackwardInput | Kind::LinearBackwardWeight | Kind::LinearBackwardBias => {
                self.linear(kind, one(outputs));
            }
            _ => self.backward(kind, outputs),
        }
    }

    fn forward(&self, kind: Kind, outputs: &mut [&mut [f32]]) {
        let (backend, d) = (self.backend, self.dimensions);
        let (channels, vocabulary) = (d.channels as usize, d.vocabulary as usize);
        match (kind, outputs) {
            (Kind::Embedding, [out]) => {
                let (tokens, wte, wpe) = (self.u32(0), self.f32(1), self.f32(2));
                dispatch::embedding_forward(backend, tokens, wte, wpe, d.time as usize, channels, out);
            }
            (Kind::TokenEmbedding, [out]) => {
                dispatch::token_embedding_forward(backend, self.u32(0), self.f32(1), channels, out);
            }
            (Kind::Rmsnorm, [y, rstd]) => {
                let (x, gain) = (self.f32(0), self.f32(1));
                kernels::rmsnorm_forward(backend, x, gain, self.constant(0), self.constant(1), y, rstd);
            }
            (Kind::Rope, [y]) => {
                let (half, width) = (d.head_size as usize / 2, y.len() / d.rows() as usize);
                kernels::rope_forward(backend, self.f32(0), self.f32(1), self.f32(2), half, width, y);
            }
            (Kind::Layernorm, [y, mean, rstd]) => {
                let (x, gain, bias) = (self.f32(0), self.f32(1), self.f32(2));
                let (inv_c, eps) = (self.constant(0), self.constant(1));
                kernels::layernorm_forward(backend, x, gain, bias, inv_c, eps, y, mean, rstd);
            }
            (Kind::Linear, [out]) => {
                let (x, weight, bias) = (self.f32(0), self.f32(1), self.f32(2));
                let inputs = weight.len() / bias.len();
                let view = View::rows(weight, bias.len());
                kernels::linear(backend, x, view, inputs, Some(bias), bias.len(), out);
            }
            (Kind::Attention, [out, max, sum]) => {
                kernels::attention_forward(backend, self.attention(d.heads), self.f32(0), out, max, sum);
            }
            (Kind::GroupedAttention, [out, max, sum]) => {
                let [q, k, v] = [0, 1, 2].map(|index| self.f32(index));
                let shape = self.attention(d.kv_heads);
                kernels::grouped_attention_forward(backend, shape, q, k, v, out, max, sum);
            }
            (Kind::Gelu, [y]) => kernels::gelu_forward(backend, self.f32(0), y),
            (Kind::Swiglu, [y]) => kernels::swiglu_forward(backend, self.f32(0), self.f32(1), y),
            (Kind::Project, [out]) => {
                let (x, weight) = (self.f32(0), self.f32(1));
                let (inputs, width) = (x.len() / d.rows() as usize, out.len() / d.rows() as usize);
                kernels::linear(backend, x, View::transposed(weight, inputs), inputs, None, width, out);
            }
            (Kind::CrossEntropy, [loss, max, sum]) => {
                kernels::cross_entropy_forward(backend, self.f32(0), self.u32(1), vocabulary, loss, max, sum);
            }
            (kind, outputs) => panic!("operation: {kind:?} does not have {} outputs", outputs.len()),
        }
    }

    fn backward(&self, kind: Kind, outputs: &mut [&mut [f32]]) {
        let (backend, d) = (self.backend, self.dimensions);
        let (channels, vocabulary, rows) = (d.channels as usize, d.vocabulary as usize, d.rows() as usize);
        match (kind, outputs) {
            (Kind::CrossEntropyBackward, [out]) => {
                let (logits, targets, max, sum) = (self.f32(0), self.u32(1), self.f32(2), self.f32(3));
                let inv_n = self.constant(0);
                kernels::cross_entropy_backward(backend, logits, targets, max, sum, vocabulary, inv_n, out);
            }
            (Kind::LayernormBackward, [d_x, d_gain, d_bias]) => {
                let [d_y, x, mean, rstd, gain] = [0, 1, 2, 3, 4].map(|index| self.f32(index));
                kernels::layernorm_backward_input(backend, d_y, x, gain, mean, rstd, self.constant(0), d_x);
                kernels::layernorm_backward_parameters(backend, d_y, x, mean, rstd, d_gain, d_bias);
            }
            (Kind::RmsnormBackward, [d_x, d_gain]) => {
                let [d_y, x, rstd, gain] = [0, 1, 2, 3].map(|index| self.f32(index));
                kernels::rmsnorm_backward_input(backend, d_y, x, gain, rstd, self.constant(0), d_x);
                kernels::rmsnorm_backward_gain(backend, d_y, x, rstd, d_gain);
            }
            (Kind::RopeBackward, [d_x]) => {
                let (half, width) = (d.head_size as usize / 2, d_x.len() / rows);
                kernels::rope_backward(backend, self.f32(0), self.f32(1), self.f32(2), half, width, d_x);
            }
            (Kind::SwigluBackward, [d_gate, d_up]) => {
                let [d_y, gate, up] = [0, 1, 2].map(|index| self.f32(index));
                kernels::swiglu_backward(backend, d_y, gate, up, d_gate, d_up);
            }
            (Kind::GeluBackward, [out]) => {
                kernels::gelu_backward_input(backend, self.f32(1), self.f32(0), out);
            }
            (Kind::AttentionBackward, [out]) => {
                let [d_o, qkv, o, max, sum] = [0, 1, 2, 3, 4].map(|index| self.f32(index));
                kernels::attention_backward(backend, self.attention(d.heads), qkv, o, d_o, max, sum, out);
            }
            (Kind::GroupedAttentionBackward, [d_q, d_k, d_v]) => {
                let [d_o, q, k, v, o, max, sum] = [0, 1, 2, 3, 4, 5, 6].map(|index| self.f32(index));
                let shape = self.attention(d.kv_heads);
                kernels::grouped_attention_backward(backend, shape, q, k, v, o, d_o, max, sum, d_q, d_k, d_v);
            }
            (Kind::TokenEmbeddingBackward, [d_table]) => {
                let (tokens, d_x) = (self.u32(0), self.f32(1));
                kernels::embedding_backward_tokens(backend, tokens, d_x, channels, d_table);
            }
            (Kind::EmbeddingBackward, [d_wte, d_wpe]) => {
                let (tokens, d_x) = (self.u32(0), self.f32(1));
                kernels::embedding_backward_tokens(backend, tokens, d_x, channels, d_wte);
                self.embedding_positions(d_wpe);
            }
            (kind, outputs) => panic!("operation: {kind:?} does not have {} outputs", outputs.len()),
        }
    }

    fn embedding_onto(&self, table: &mut [f32]) {
        let channels = self.dimensions.channels as usize;
        kernels::embedding_backward_onto(self.backend, self.u32(0), self.f32(1), channels, table);
    }

    fn embedding_positions(&self, d_wpe: &mut [f32]) {
        let (times, channels) = (self.dimensions.time as usize, self.dimensions.channels as usize);
        dispatch::embedding_backward_positions(self.backend, self.f32(1), times, channels, d_wpe);
    }

    /// Gradients of x . w^T, with w [O, I].
    fn project(&self, kind: Kind, out: &mut [f32]) {
        if kind == Kind::ProjectBackwardWeight {
            return self.project_weight(false, out);
        }
        let (rows, d_y) = (self.dimensions.rows() as usize, self.f32(0));
        let (inputs, outputs) = (out.len() / rows, d_y.len() / rows);
        let weight = View::rows(self.f32(1), inputs);
        kernels::matmul(self.backend, View::rows(d_y, outputs), weight, outputs, inputs, out);
    }

    /// Gradient by the weight of x . w^T, with +0 added or not.
    fn project_weight(&self, plus_zero: bool, out: &mut [f32]) {
        let (backend, rows, d_y, x) =
            (self.backend, self.dimensions.rows() as usize, self.f32(0), self.f32(1));
        let (inputs, outputs) = (x.len() / rows, d_y.len() / rows);
        let (d_y, x) = (View::transposed(d_y, outputs), View::rows(x, inputs));
        match plus_zero {
            true => kernels::matmul_with_bias(backend, d_y, x, rows, &vec![0.0; inputs], out),
            false => kernels::matmul(backend, d_y, x, rows, inputs, out),
        }
    }

    /// Gradients of x . w + bias, with w [I, O].
    fn linear(&self, kind: Kind, out: &mut [f32]) {
        let (backend, rows) = (self.backend, self.dimensions.rows() as usize);
        match kind {
            Kind::LinearBackwardInput => {
                let (d_y, weight) = (self.f32(0), self.f32(1));
                let (inputs, width) = (out.len() / rows, d_y.len() / rows);
                let weight = View::transposed(weight, width);
                kernels::matmul(backend, View::rows(d_y, width), weight, width, inputs, out);
            }
            Kind::LinearBackwardWeight => {
                let (x, d_y) = (self.f32(0), self.f32(1));
                let (inputs, width) = (x.len() / rows, d_y.len() / rows);
                let x = View::transposed(x, inputs);
                kernels::matmul(backend, x, View::rows(d_y, width), rows, width, out);
            }
            _ => kernels::column_sums(backend, self.f32(0), out),
        }
    }
}

fn one<'o>(outputs: &'o mut [&mut [f32]]) -> &'o mut [f32] {
    let [out] = outputs else { panic!("operation: expected one output, found {}", outputs.len()) };
    out
}
