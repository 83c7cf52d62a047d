//! What is timed: a GPT-2 of a size people know, one leaf, over tokens drawn from a counter.

use super::kernels;
use crate::explain::bytes;
use anyhow::Context;
use clap::ValueEnum;
use client::output::Hinted;
use schemas::config::Config;
use schemas::digest::Checksum;
use schemas::plan::Plan;
use step::checksum::checksum_u32;
use step::memory::{self, Needs};
use step::number::philox::philox4x32_10;
use step::plan::derive;

/// The models to choose from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Model {
    /// GPT-2: 12 layers of 768 channels, 50,257 tokens.
    #[value(name = "124M")]
    Gpt2,
    /// 6 layers of 384 channels, 65 tokens.
    #[value(name = "10M")]
    Small,
}

/// Sizes of a leaf and of the model.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// L.
    pub layers: u64,
    /// C.
    pub channels: u64,
    /// NH.
    pub heads: u64,
    /// V.
    pub vocabulary: u64,
    /// Rows of the position table.
    pub positions: u64,
    /// B.
    pub sequences: u64,
    /// T.
    pub length: u64,
}

impl Shape {
    /// `model` with leaves of `sequences` of `length`.
    pub fn new(model: Model, sequences: u64, length: u64) -> Shape {
        let (layers, channels, heads, vocabulary) = match model {
            Model::Gpt2 => (12, 768, 12, 50_257),
            Model::Small => (6, 384, 6, 65),
        };
        Shape { layers, channels, heads, vocabulary, positions: 1024, sequences, length }
    }

    /// Tokens of a leaf.
    pub fn rows(&self) -> u64 {
        self.sequences * self.length
    }
}

/// A plan and its data.
pub struct Workload {
    /// One leaf a step.
    pub plan: Plan,
    /// The token stream.
    pub tokens: Vec<u32>,
    /// Standard deviation of the initial weights.
    pub initializer_range: f64,
}

/// A run of `steps` steps of `shape`; refused if the machine has not the memory for it.
pub fn workload(shape: &Shape, steps: u64) -> anyhow::Result<Workload> {
    let Shape { layers, channels, heads, vocabulary, positions, sequences, length } = shape;
    let text = format!(
        r#"
name = "bench"
profile = "f32-fma"
steps = {steps}
leaves = 1
devices_max = 1
[model]
model_type = "gpt2"
vocab_size = {vocabulary}
n_positions = {positions}
n_embd = {channels}
n_layer = {layers}
n_head = {heads}
layer_norm_epsilon = 1e-5
activation_function = "gelu_new"
initializer_range = 0.02
[state]
seed = 0
[data]
format = "nanogpt"
files = ["none"]
sequences = {sequences}
length = {length}
seed = 0
[optimizer]
kind = "adamw"
learning_rate = 3e-4
beta1 = 0.9
beta2 = 0.999
epsilon = 1e-8
weight_decay = 0.01
schedule = "constant"
warmup_steps = 0
final_fraction = 1.0
"#
    );
    let config = Config::from_toml(&text)
        .with_context(|| format!("--length {length}, --sequences {sequences}: the model cannot take that"))?;
    let count = (steps + 1) * shape.rows() + 1;
    // The sizes do not depend on the tokens.
    check_memory(&derive(&config, count, Checksum([0; 32]))?, shape)?;
    let drawn = |index: u64| philox4x32_10([index as u32, (index >> 32) as u32, 0, 0], [0, 0])[0];
    let tokens: Vec<u32> = (0..count).map(|index| drawn(index) % *vocabulary as u32).collect();
    let plan = derive(&config, count, checksum_u32(&[count], &tokens))?;
    Ok(Workload { plan, tokens, initializer_range: config.model.initializer_range() })
}

/// Refuses what does not fit, before any of it is allocated. PyTorch's memory is its own.
fn check_memory(plan: &Plan, shape: &Shape) -> anyhow::Result<()> {
    let needs = Needs::of(plan, rayon::current_num_threads() as u64);
    // Products and sums are measured with nothing but the tokens beside them.
    let needed = needs.total().max(needs.data + kernels::bytes_held(shape));
    let available = memory::available();
    let message = format!("expected {} of memory, found {} free", bytes(needed), bytes(available));
    let hint = "fewer --sequences, a shorter --length and --model 10M need less";
    anyhow::ensure!(needed <= available, Hinted::new(message, hint));
    Ok(())
}
