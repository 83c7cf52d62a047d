//! Small runs to test with.

// Each test file uses a part of it.
#![allow(dead_code)]

use schemas::config::Config;
use schemas::plan::Plan;
use step::checksum::checksum_u32;
use step::execute::no_hook;
use step::init::initial_parameters;
use step::plan::derive;
use step::session::Session;
use step::state::{State, spans};

/// What a test varies.
#[derive(Clone, Copy)]
pub struct Size {
    pub layers: u64,
    pub heads: u64,
    pub channels: u64,
    pub length: u64,
    pub sequences: u64,
    pub leaves: u64,
    pub devices_max: u64,
}

/// Two layers, odd sizes, four leaves.
pub const SMALL: Size =
    Size { layers: 2, heads: 3, channels: 36, length: 11, sequences: 2, leaves: 4, devices_max: 4 };

/// A run.toml of that size, eight steps long.
pub fn config(size: Size) -> Config {
    let Size { layers, heads, channels, length, sequences, leaves, devices_max } = size;
    let text = format!(
        r#"
name = "small"
profile = "f32-fma"
steps = 8
leaves = {leaves}
devices_max = {devices_max}

[model]
model_type = "gpt2"
vocab_size = 67
n_positions = {}
n_embd = {channels}
n_layer = {layers}
n_head = {heads}
layer_norm_epsilon = 1e-5
activation_function = "gelu_new"
initializer_range = 0.05

[state]
seed = 5

[data]
format = "text"
tokenizer = "bytes"
files = ["none"]
sequences = {sequences}
length = {length}
seed = 6

[optimizer]
kind = "adamw"
learning_rate = 1e-2
beta1 = 0.9
beta2 = 0.95
epsilon = 1e-8
weight_decay = 0.1
clip = 1.0
schedule = "cosine"
warmup_steps = 2
final_fraction = 0.1
"#,
        length + 5
    );
    Config::from_toml(&text).expect("runs: the config is right")
}

/// A Llama with the same leaves, data and length: grouped heads of a size of their own.
pub fn llama_toml() -> String {
    let optimizer = "kind = \"adamw\"\nlearning_rate = 1e-2\nbeta1 = 0.9\nbeta2 = 0.95\nepsilon = 1e-8\n\
                     weight_decay = 0.1\nclip = 1.0\nschedule = \"cosine\"\nwarmup_steps = 2\nfinal_fraction = 0.1";
    format!(
        r#"
name = "small llama"
profile = "f32-fma"
steps = 60
leaves = 4
devices_max = 4

[model]
model_type = "llama"
vocab_size = 67
hidden_size = 36
intermediate_size = 50
num_hidden_layers = 2
num_attention_heads = 4
num_key_value_heads = 2
head_dim = 10
max_position_embeddings = 16
rms_norm_eps = 1e-5
hidden_act = "silu"
initializer_range = 0.05

[state]
seed = 5

[data]
format = "text"
tokenizer = "bytes"
files = ["none"]
sequences = 2
length = 11
seed = 6

[optimizer]
{optimizer}
"#
    )
}

/// Plan and data of a run.toml.
pub fn run_of(toml: &str) -> (Plan, Vec<u32>) {
    let tokens = stream();
    let dataset = checksum_u32(&[tokens.len() as u64], &tokens);
    let config = Config::from_toml(toml).expect("runs: the config is right");
    (derive(&config, tokens.len() as u64, dataset).expect("runs: the config has a plan"), tokens)
}

/// A stream with something to learn: a pattern that repeats and drifts.
pub fn stream() -> Vec<u32> {
    (0..2000_u32).map(|i| i % 5 * 13 + i / 50 % 3).collect()
}

/// Plan and data of a run.
pub fn run(size: Size) -> (Plan, Vec<u32>) {
    let tokens = stream();
    let dataset = checksum_u32(&[tokens.len() as u64], &tokens);
    (derive(&config(size), tokens.len() as u64, dataset).expect("runs: the config has a plan"), tokens)
}

/// The state before step 0.
pub fn first_state(plan: &Plan) -> State {
    State::fresh(initial_parameters(plan, 5, 0.05))
}

/// The gradient of leaf 0 is, for every parameter tensor, the slope of its loss along that gradient: `way` gives how
/// far to go, as a multiple of the gradient, from the gradient's square.
pub fn assert_slopes(
    plan: &Plan,
    session: &Session,
    parameters: &[f32],
    gradient: &[f32],
    way: impl Fn(f64) -> f64,
) {
    for (span, parameter) in spans(&plan.parameters).into_iter().zip(&plan.parameters) {
        let square: f64 = gradient[span.clone()].iter().map(|g| f64::from(*g).powi(2)).sum();
        let step = way(square) as f32;
        let loss = |sign: f32| {
            let mut moved = parameters.to_vec();
            for i in span.clone() {
                moved[i] += sign * step * gradient[i];
            }
            f64::from(session.leaf(0, 0, &moved, &mut no_hook()).loss)
        };
        let name = &parameter.name;
        // The bias of a GPT-2's keys has no slope: a constant added to every score changes no softmax. It shares a
        // tensor with those of queries and values, which have one.
        assert!(square > 0.0, "{name}: no gradient");
        let slope = (loss(1.0) - loss(-1.0)) / (2.0 * f64::from(step));
        assert!((slope / square - 1.0).abs() < 0.05, "{name}: slope {slope:e}, gradient {square:e}");
    }
}
