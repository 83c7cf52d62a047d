//! The operations of a GPT-2 (docs/spec/plan.md#a-gpt-2), one function per part of the network.

use super::{Builder, Lists};
use schemas::plan::{Dimensions, Kind, Operand};

/// A weight with its bias, or a gain with its bias: the bias is registered right after.
#[derive(Clone, Copy)]
struct Pair(usize);

impl Pair {
    fn parameters(self) -> [Operand; 2] {
        [Operand::Parameter(self.0), Operand::Parameter(self.0 + 1)]
    }

    fn gradients(self) -> [Operand; 2] {
        [Operand::Gradient(self.0), Operand::Gradient(self.0 + 1)]
    }
}

/// A layer normalisation and what its backward pass reads.
#[derive(Clone, Copy)]
struct Norm {
    pair: Pair,
    input: Operand,
    out: Operand,
    mean: Operand,
    rstd: Operand,
}

/// A linear layer and what its backward pass reads.
#[derive(Clone, Copy)]
struct Linear {
    pair: Pair,
    input: Operand,
    out: Operand,
}

/// A block's forward pass, as its backward pass needs it.
struct Block {
    norm1: Norm,
    qkv: Linear,
    attention: [Operand; 3],
    projection: Linear,
    norm2: Norm,
    expand: Linear,
    contract: Linear,
}

/// The lists of a GPT-2; `tied` says that the head is the token table.
pub fn build(dimensions: Dimensions, norm_epsilon: u32, tied: bool) -> Lists {
    let mut builder = Builder::new(dimensions, norm_epsilon);
    let d = dimensions;
    let (n, c, v) = (d.rows(), d.channels, d.vocabulary);
    let wte = builder.parameter("transformer.wte.weight", &[v, c]);
    let wpe = builder.parameter("transformer.wpe.weight", &[d.positions, c]);

    let [tokens, targets] = builder.window();
    let mut stream = builder.activation("embedding.out", &[n, c]);
    let tables = [tokens, Operand::Parameter(wte), Operand::Parameter(wpe)];
    builder.operation("forward.embedding", Kind::Embedding, &tables, &[stream], &[]);
    let mut blocks = Vec::new();
    for layer in 0..d.layers {
        let block = builder.block_forward(layer, stream);
        stream = builder.last_output();
        blocks.push(block);
    }
    let pair = builder.pair("transformer.ln_f", &[c]);
    let norm = builder.norm_forward("norm_final", pair, stream);
    let (d_norm, head) = builder.head(tied, wte, norm.out, targets);
    let mut d_stream = builder.norm_backward("norm_final", norm, d_norm);
    for (layer, block) in blocks.iter().enumerate().rev() {
        d_stream = builder.block_backward(layer, block, d_stream);
    }
    builder.embedding_backward(
        Kind::EmbeddingBackward,
        [tokens, d_stream],
        wte,
        &[Operand::Gradient(wpe)],
        head,
    );
    builder.lists
}

impl Builder {
    fn block_forward(&mut self, layer: u64, stream: Operand) -> Block {
        let Dimensions { channels: c, inner, .. } = self.dimensions;
        let (d, h) = (self.dimensions, format!("transformer.h.{layer}"));
        let name = |part: &str| format!("layer{layer}.{part}");

        let pair = self.pair(&format!("{h}.ln_1"), &[c]);
        let norm1 = self.norm_forward(&name("norm1"), pair, stream);
        let pair = self.pair(&format!("{h}.attn.c_attn"), &[c, 3 * c]);
        let qkv = self.linear_forward(&name("attention.qkv"), pair, norm1.out);
        let heads = [d.batch, d.heads, d.time];
        let attention = [
            self.activation(&name("attention.out"), &[d.rows(), c]),
            self.activation(&name("attention.max"), &heads),
            self.activation(&name("attention.sum"), &heads),
        ];
        let scale = [self.attention_scale()];
        let operation = format!("forward.{}", name("attention"));
        self.operation(&operation, Kind::Attention, &[qkv.out], &attention, &scale);
        let pair = self.pair(&format!("{h}.attn.c_proj"), &[c, c]);
        let projection = self.linear_forward(&name("attention.projection"), pair, attention[0]);
        let middle = self.add(
            &format!("forward.{}", name("residual1")),
            &name("residual1.out"),
            stream,
            projection.out,
        );

        let pair = self.pair(&format!("{h}.ln_2"), &[c]);
        let norm2 = self.norm_forward(&name("norm2"), pair, middle);
        let pair = self.pair(&format!("{h}.mlp.c_fc"), &[c, inner]);
        let expand = self.linear_forward(&name("mlp.expand"), pair, norm2.out);
        let gelu = self.activation(&name("mlp.gelu.out"), &[d.rows(), inner]);
        let operation = format!("forward.{}", name("mlp.gelu"));
        self.operation(&operation, Kind::Gelu, &[expand.out], &[gelu], &[]);
        let pair = self.pair(&format!("{h}.mlp.c_proj"), &[inner, c]);
        let contract = self.linear_forward(&name("mlp.contract"), pair, gelu);
        self.add(&format!("forward.{}", name("residual2")), &name("residual2.out"), middle, contract.out);
        Block { norm1, qkv, attention, projection, norm2, expand, contract }
    }

    /// The gradient of a block's input from that of its output.
    fn block_backward(&mut self, layer: usize, block: &Block, d_out: Operand) -> Operand {
        let d = self.dimensions;
        let name = |part: &str| format!("layer{layer}.{part}");

        let d_gelu = self.linear_backward(&name("mlp.contract"), block.contract, d_out);
        let d_expand = self.activation(&format!("d_{}", name("mlp.expand.out")), &[d.rows(), d.inner]);
        let operation = format!("backward.{}", name("mlp.gelu"));
        self.operation(&operation, Kind::GeluBackward, &[d_gelu, block.expand.out], &[d_expand], &[]);
        let d_norm2 = self.linear_backward(&name("mlp.expand"), block.expand, d_expand);
        let branch = self.norm_backward(&name("norm2"), block.norm2, d_norm2);
        let d_middle = self.add(
            &format!("backward.{}", name("residual2")),
            &format!("d_{}", name("residual2.in")),
            d_out,
            branch,
        );

        let d_attention = self.linear_backward(&name("attention.projection"), block.projection, d_middle);
        let d_qkv = self.activation(&format!("d_{}", name("attention.qkv.out")), &[d.rows(), 3 * d.channels]);
        let [out, max, sum] = block.attention;
        let inputs = [d_attention, block.qkv.out, out, max, sum];
        let scale = [self.attention_scale()];
        let operation = format!("backward.{}", name("attention"));
        self.operation(&operation, Kind::AttentionBackward, &inputs, &[d_qkv], &scale);
        let d_norm1 = self.linear_backward(&name("attention.qkv"), block.qkv, d_qkv);
        let branch = self.norm_backward(&name("norm1"), block.norm1, d_norm1);
        self.add(
            &format!("backward.{}", name("residual1")),
            &format!("d_{}", name("residual1.in")),
            d_middle,
            branch,
        )
    }

    fn norm_forward(&mut self, name: &str, pair: Pair, input: Operand) -> Norm {
        let (n, c) = (self.dimensions.rows(), self.dimensions.channels);
        let out = self.activation(&format!("{name}.out"), &[n, c]);
        let mean = self.activation(&format!("{name}.mean"), &[n]);
        let rstd = self.activation(&format!("{name}.rstd"), &[n]);
        let [gain, bias] = pair.parameters();
        let constants = [self.inverse_channels(), self.norm_epsilon];
        let operation = format!("forward.{name}");
        self.operation(&operation, Kind::Layernorm, &[input, gain, bias], &[out, mean, rstd], &constants);
        Norm { pair, input, out, mean, rstd }
    }

    fn norm_backward(&mut self, name: &str, norm: Norm, d_out: Operand) -> Operand {
        let (n, c) = (self.dimensions.rows(), self.dimensions.channels);
        let d_in = self.activation(&format!("d_{name}.in"), &[n, c]);
        let [gain, _] = norm.pair.parameters();
        let [d_gain, d_bias] = norm.pair.gradients();
        let inputs = [d_out, norm.input, norm.mean, norm.rstd, gain];
        let constants = [self.inverse_channels()];
        let operation = format!("backward.{name}");
        self.operation(&operation, Kind::LayernormBackward, &inputs, &[d_in, d_gain, d_bias], &constants);
        d_in
    }

    fn linear_forward(&mut self, name: &str, pair: Pair, input: Operand) -> Linear {
        let outputs =
            *self.lists.parameters[pair.0].shape.last().expect("layers: a weight has two dimensions");
        let out = self.activation(&format!("{name}.out"), &[self.dimensions.rows(), outputs]);
        let [weight, bias] = pair.parameters();
        self.operation(&format!("forward.{name}"), Kind::Linear, &[input, weight, bias], &[out], &[]);
        Linear { pair, input, out }
    }

    /// Three operations; the gradient of the layer's input is returned.
    fn linear_backward(&mut self, name: &str, linear: Linear, d_out: Operand) -> Operand {
        let inputs = self.lists.parameters[linear.pair.0].shape[0];
        let d_in = self.activation(&format!("d_{name}.in"), &[self.dimensions.rows(), inputs]);
        let [weight, _] = linear.pair.parameters();
        let [d_weight, d_bias] = linear.pair.gradients();
        let name = format!("backward.{name}");
        self.operation(&format!("{name}.input"), Kind::LinearBackwardInput, &[d_out, weight], &[d_in], &[]);
        let operands = [linear.input, d_out];
        self.operation(&format!("{name}.weight"), Kind::LinearBackwardWeight, &operands, &[d_weight], &[]);
        self.operation(&format!("{name}.bias"), Kind::LinearBackwardBias, &[d_out], &[d_bias], &[]);
        d_in
    }

    /// Registers `<name>.weight` and `<name>.bias`.
    fn pair(&mut self, name: &str, shape: &[u64]) -> Pair {
        let weight = self.parameter(&format!("{name}.weight"), shape);
        self.parameter(&format!("{name}.bias"), &shape[shape.len() - 1..]);
        Pair(weight)
    }
}
