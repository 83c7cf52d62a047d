//! The operations of a Llama (docs/spec/plan.md#a-llama), one function per part of the network.

use super::{Builder, Lists};
use crate::number::rotary;
use schemas::plan::{Dimensions, Kind, Operand};

/// An RMS normalisation and what its backward pass reads.
#[derive(Clone, Copy)]
struct Norm {
    gain: usize,
    input: Operand,
    out: Operand,
    rstd: Operand,
}

/// A linear layer without bias and what its backward pass reads.
#[derive(Clone, Copy)]
struct Projection {
    weight: usize,
    input: Operand,
    out: Operand,
}

/// A block's forward pass, as its backward pass needs it.
struct Block {
    norm1: Norm,
    query: Projection,
    key: Projection,
    value: Projection,
    /// Queries and keys, turned.
    turned: [Operand; 2],
    attention: [Operand; 3],
    output: Projection,
    norm2: Norm,
    gate: Projection,
    up: Projection,
    down: Projection,
}

/// The tables of rotary positions.
type Tables = [Operand; 2];

/// The lists of a Llama; `theta` is the base of its frequencies, `tied` says that the head is the token table.
pub fn build(dimensions: Dimensions, norm_epsilon: u32, theta: f64, tied: bool) -> Lists {
    let mut builder = Builder::new(dimensions, norm_epsilon);
    let d = dimensions;
    let (n, c, v) = (d.rows(), d.channels, d.vocabulary);
    let [cos, sin] = rotary::tables(theta, d.time, d.head_size);
    let shape = [d.time, d.head_size / 2];
    let tables =
        [("rope.cos", cos), ("rope.sin", sin)].map(|(name, words)| builder.table(name, &shape, words));

    let embedding = builder.parameter("model.embed_tokens.weight", &[v, c]);
    let [tokens, targets] = builder.window();
    let mut stream = builder.activation("embedding.out", &[n, c]);
    let inputs = [tokens, Operand::Parameter(embedding)];
    builder.operation("forward.embedding", Kind::TokenEmbedding, &inputs, &[stream], &[]);
    let mut blocks = Vec::new();
    for layer in 0..d.layers {
        let block = builder.llama_forward(layer, tables, stream);
        stream = builder.last_output();
        blocks.push(block);
    }
    let norm = builder.rms_forward("norm_final", "model.norm.weight", stream);
    let (d_norm, head) = builder.head(tied, embedding, norm.out, targets);
    let mut d_stream = builder.rms_backward("norm_final", norm, d_norm);
    for (layer, block) in blocks.iter().enumerate().rev() {
        d_stream = builder.llama_backward(layer, tables, block, d_stream);
    }
    builder.embedding_backward(Kind::TokenEmbeddingBackward, [tokens, d_stream], embedding, &[], head);
    builder.lists
}

impl Builder {
    fn llama_forward(&mut self, layer: u64, tables: Tables, stream: Operand) -> Block {
        let d = self.dimensions;
        let (n, a, k) = (d.rows(), d.query_width(), d.kv_width());
        let parameter = |part: &str| format!("model.layers.{layer}.{part}.weight");
        let name = |part: &str| format!("layer{layer}.{part}");

        let norm1 = self.rms_forward(&name("norm1"), &parameter("input_layernorm"), stream);
        let mut project = |part: &str, weight: &str, width| {
            self.project_forward(&name(part), &parameter(weight), norm1.out, width)
        };
        let query = project("attention.query", "self_attn.q_proj", a);
        let key = project("attention.key", "self_attn.k_proj", k);
        let value = project("attention.value", "self_attn.v_proj", k);
        let turned =
            [("attention.query", query.out, a), ("attention.key", key.out, k)].map(|(part, input, width)| {
                let out = self.activation(&name(&format!("{part}.turned")), &[n, width]);
                let operation = format!("forward.{}", name(&format!("{part}.rope")));
                self.operation(&operation, Kind::Rope, &[input, tables[0], tables[1]], &[out], &[]);
                out
            });
        let heads = [d.batch, d.heads, d.time];
        let attention = [
            self.activation(&name("attention.out"), &[n, a]),
            self.activation(&name("attention.max"), &heads),
            self.activation(&name("attention.sum"), &heads),
        ];
        let inputs = [turned[0], turned[1], value.out];
        let scale = [self.attention_scale()];
        let operation = format!("forward.{}", name("attention"));
        self.operation(&operation, Kind::GroupedAttention, &inputs, &attention, &scale);
        let weight = parameter("self_attn.o_proj");
        let output = self.project_forward(&name("attention.output"), &weight, attention[0], d.channels);
        let operation = format!("forward.{}", name("residual1"));
        let middle = self.add(&operation, &name("residual1.out"), stream, output.out);

        let norm2 = self.rms_forward(&name("norm2"), &parameter("post_attention_layernorm"), middle);
        let gate = self.project_forward(&name("mlp.gate"), &parameter("mlp.gate_proj"), norm2.out, d.inner);
        let up = self.project_forward(&name("mlp.up"), &parameter("mlp.up_proj"), norm2.out, d.inner);
        let gated = self.activation(&name("mlp.swiglu.out"), &[n, d.inner]);
        let operation = format!("forward.{}", name("mlp.swiglu"));
        self.operation(&operation, Kind::Swiglu, &[gate.out, up.out], &[gated], &[]);
        let down = self.project_forward(&name("mlp.down"), &parameter("mlp.down_proj"), gated, d.channels);
        self.add(&format!("forward.{}", name("residual2")), &name("residual2.out"), middle, down.out);
        Block { norm1, query, key, value, turned, attention, output, norm2, gate, up, down }
    }

    /// The gradient of a block's input from that of its output.
    fn llama_backward(&mut self, layer: usize, tables: Tables, block: &Block, d_out: Operand) -> Operand {
        let d = self.dimensions;
        let (n, a, k) = (d.rows(), d.query_width(), d.kv_width());
        let name = |part: &str| format!("layer{layer}.{part}");
        let backward = |part: &str| format!("backward.layer{layer}.{part}");
        let of = |part: &str| format!("d_layer{layer}.{part}");

        let d_gated = self.project_backward(&name("mlp.down"), block.down, d_out);
        let inner = [n, d.inner];
        let gates = ["mlp.gate.out", "mlp.up.out"].map(|part| self.activation(&of(part), &inner));
        let inputs = [d_gated, block.gate.out, block.up.out];
        self.operation(&backward("mlp.swiglu"), Kind::SwigluBackward, &inputs, &gates, &[]);
        let left = self.project_backward(&name("mlp.gate"), block.gate, gates[0]);
        let right = self.project_backward(&name("mlp.up"), block.up, gates[1]);
        let d_norm2 = self.add(&backward("mlp.sum"), &of("norm2.out"), left, right);
        let branch = self.rms_backward(&name("norm2"), block.norm2, d_norm2);
        let d_middle = self.add(&backward("residual2"), &of("residual2.in"), d_out, branch);

        let d_attention = self.project_backward(&name("attention.output"), block.output, d_middle);
        let d_query = self.activation(&of("attention.query.turned"), &[n, a]);
        let d_key = self.activation(&of("attention.key.turned"), &[n, k]);
        let d_value = self.activation(&of("attention.value.out"), &[n, k]);
        let ([query, key], [out, max, sum]) = (block.turned, block.attention);
        let inputs = [d_attention, query, key, block.value.out, out, max, sum];
        let (outputs, scale) = ([d_query, d_key, d_value], [self.attention_scale()]);
        self.operation(&backward("attention"), Kind::GroupedAttentionBackward, &inputs, &outputs, &scale);
        let [d_query, d_key] =
            [("attention.query", d_query, a), ("attention.key", d_key, k)].map(|(part, input, width)| {
                let out = self.activation(&of(&format!("{part}.out")), &[n, width]);
                let operation = backward(&format!("{part}.rope"));
                self.operation(&operation, Kind::RopeBackward, &[input, tables[0], tables[1]], &[out], &[]);
                out
            });
        let query = self.project_backward(&name("attention.query"), block.query, d_query);
        let key = self.project_backward(&name("attention.key"), block.key, d_key);
        let value = self.project_backward(&name("attention.value"), block.value, d_value);
        let both = self.add(&backward("attention.sum1"), &of("attention.query_key.in"), query, key);
        let d_norm1 = self.add(&backward("attention.sum2"), &of("norm1.out"), both, value);
        let branch = self.rms_backward(&name("norm1"), block.norm1, d_norm1);
        self.add(&backward("residual1"), &of("residual1.in"), d_middle, branch)
    }

    fn rms_forward(&mut self, name: &str, gain: &str, input: Operand) -> Norm {
        let (n, c) = (self.dimensions.rows(), self.dimensions.channels);
        let gain = self.parameter(gain, &[c]);
        let out = self.activation(&format!("{name}.out"), &[n, c]);
        let rstd = self.activation(&format!("{name}.rstd"), &[n]);
        let (inputs, constants) =
            ([input, Operand::Parameter(gain)], [self.inverse_channels(), self.norm_epsilon]);
        self.operation(&format!("forward.{name}"), Kind::Rmsnorm, &inputs, &[out, rstd], &constants);
        Norm { gain, input, out, rstd }
    }

    fn rms_backward(&mut self, name: &str, norm: Norm, d_out: Operand) -> Operand {
        let (n, c) = (self.dimensions.rows(), self.dimensions.channels);
        let d_in = self.activation(&format!("d_{name}.in"), &[n, c]);
        let inputs = [d_out, norm.input, norm.rstd, Operand::Parameter(norm.gain)];
        let (outputs, constants) = ([d_in, Operand::Gradient(norm.gain)], [self.inverse_channels()]);
        self.operation(&format!("backward.{name}"), Kind::RmsnormBackward, &inputs, &outputs, &constants);
        d_in
    }

    /// Registers a weight of `outputs` rows and applies it.
    fn project_forward(&mut self, name: &str, weight: &str, input: Operand, outputs: u64) -> Projection {
        let inputs = self.width(input);
        let weight = self.parameter(weight, &[outputs, inputs]);
        let out = self.activation(&format!("{name}.out"), &[self.dimensions.rows(), outputs]);
        let operands = [input, Operand::Parameter(weight)];
        self.operation(&format!("forward.{name}"), Kind::Project, &operands, &[out], &[]);
        Projection { weight, input, out }
    }

    /// Two operations; the gradient of the layer's input is returned.
    fn project_backward(&mut self, name: &str, projection: Projection, d_out: Operand) -> Operand {
        let inputs = self.lists.parameters[projection.weight].shape[1];
        let d_in = self.activation(&format!("d_{name}.in"), &[self.dimensions.rows(), inputs]);
        let operands = [d_out, Operand::Parameter(projection.weight)];
        let operation = format!("backward.{name}.input");
        self.operation(&operation, Kind::ProjectBackwardInput, &operands, &[d_in], &[]);
        let (operands, d_weight) = ([d_out, projection.input], [Operand::Gradient(projection.weight)]);
        let operation = format!("backward.{name}.weight");
        self.operation(&operation, Kind::ProjectBackwardWeight, &operands, &d_weight, &[]);
        d_in
    }

    /// The last dimension of a tensor.
    fn width(&self, operand: Operand) -> u64 {
        let Operand::Tensor(index) = operand else { panic!("layers: {operand:?} is not a tensor of a leaf") };
        *self.lists.tensors[index].shape.last().expect("layers: a tensor has dimensions")
    }
}
