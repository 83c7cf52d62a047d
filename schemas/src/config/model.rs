//! The models, by the names of Hugging Face's `config.json`, and the letters that plans take from them.

use super::ConfigError;
use super::check::{ensure, number, one_of, within};
use serde::Deserialize;

/// A model, by the names of its `config.json`.
#[derive(Clone, Debug, PartialEq)]
pub enum Model {
    /// `model_type = "gpt2"`.
    Gpt2(Gpt2),
    /// `model_type = "llama"`.
    Llama(Llama),
}

/// LayerNorm, learned positions, linear layers with bias, GELU.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gpt2 {
    /// `gpt2`.
    pub model_type: String,
    /// V: tokens in the vocabulary.
    pub vocab_size: u64,
    /// Longest sequence.
    pub n_positions: u64,
    /// C: channels.
    pub n_embd: u64,
    /// L: layers.
    pub n_layer: u64,
    /// NH: attention heads; divides `n_embd`.
    pub n_head: u64,
    /// Width inside the MLP; 4 `n_embd` if absent.
    pub n_inner: Option<u64>,
    /// Added to the variance.
    pub layer_norm_epsilon: f64,
    /// `gelu_new`.
    pub activation_function: String,
    /// Whether the head is the token table; true if absent.
    pub tie_word_embeddings: Option<bool>,
    /// Standard deviation of initial weights.
    pub initializer_range: f64,
}

/// RMSNorm, rotary positions, linear layers without bias, SwiGLU, grouped-query attention.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Llama {
    /// `llama`.
    pub model_type: String,
    /// V: tokens in the vocabulary.
    pub vocab_size: u64,
    /// C: channels.
    pub hidden_size: u64,
    /// I: width inside the MLP.
    pub intermediate_size: u64,
    /// L: layers.
    pub num_hidden_layers: u64,
    /// NH: heads of queries.
    pub num_attention_heads: u64,
    /// KVH: heads of keys and values, a divisor of NH; NH if absent.
    pub num_key_value_heads: Option<u64>,
    /// HS; C / NH if absent.
    pub head_dim: Option<u64>,
    /// Longest sequence.
    pub max_position_embeddings: u64,
    /// Added to the mean square.
    pub rms_norm_eps: f64,
    /// Base of the rotary frequencies; 10000 if absent.
    pub rope_theta: Option<f64>,
    /// `silu`.
    pub hidden_act: String,
    /// Whether the head is the token table; false if absent.
    pub tie_word_embeddings: Option<bool>,
    /// Standard deviation of initial weights.
    pub initializer_range: f64,
}

/// Most layers of a Llama: with 40 operations each, a plan holds them.
const LLAMA_LAYERS_MAX: u64 = 1 << 9;

impl Model {
    /// `gpt2` or `llama`.
    pub fn model_type(&self) -> &'static str {
        match self {
            Model::Gpt2(_) => "gpt2",
            Model::Llama(_) => "llama",
        }
    }

    /// V.
    pub fn vocabulary(&self) -> u64 {
        match self {
            Model::Gpt2(model) => model.vocab_size,
            Model::Llama(model) => model.vocab_size,
        }
    }

    /// Longest sequence.
    pub fn positions(&self) -> u64 {
        match self {
            Model::Gpt2(model) => model.n_positions,
            Model::Llama(model) => model.max_position_embeddings,
        }
    }

    /// C.
    pub fn channels(&self) -> u64 {
        match self {
            Model::Gpt2(model) => model.n_embd,
            Model::Llama(model) => model.hidden_size,
        }
    }

    /// L.
    pub fn layers(&self) -> u64 {
        match self {
            Model::Gpt2(model) => model.n_layer,
            Model::Llama(model) => model.num_hidden_layers,
        }
    }

    /// NH.
    pub fn heads(&self) -> u64 {
        match self {
            Model::Gpt2(model) => model.n_head,
            Model::Llama(model) => model.num_attention_heads,
        }
    }

    /// KVH.
    pub fn kv_heads(&self) -> u64 {
        match self {
            Model::Gpt2(model) => model.n_head,
            Model::Llama(model) => model.num_key_value_heads.unwrap_or(model.num_attention_heads),
        }
    }

    /// HS.
    pub fn head_size(&self) -> u64 {
        match self {
            Model::Gpt2(model) => model.n_embd / model.n_head,
            Model::Llama(model) => model.head_dim.unwrap_or(model.hidden_size / model.num_attention_heads),
        }
    }

    /// I.
    pub fn inner(&self) -> u64 {
        match self {
            Model::Gpt2(model) => model.n_inner.unwrap_or(4 * model.n_embd),
            Model::Llama(model) => model.intermediate_size,
        }
    }

    /// Added under the root of a normalisation.
    pub fn norm_epsilon(&self) -> f64 {
        match self {
            Model::Gpt2(model) => model.layer_norm_epsilon,
            Model::Llama(model) => model.rms_norm_eps,
        }
    }

    /// Standard deviation of initial weights.
    pub fn initializer_range(&self) -> f64 {
        match self {
            Model::Gpt2(model) => model.initializer_range,
            Model::Llama(model) => model.initializer_range,
        }
    }

    /// Whether the head is the token table.
    pub fn tied(&self) -> bool {
        match self {
            Model::Gpt2(model) => model.tie_word_embeddings.unwrap_or(true),
            Model::Llama(model) => model.tie_word_embeddings.unwrap_or(false),
        }
    }

    pub(super) fn check(&self) -> Result<(), ConfigError> {
        match self {
            Model::Gpt2(model) => model.check(),
            Model::Llama(model) => model.check(),
        }
    }
}

impl Gpt2 {
    fn check(&self) -> Result<(), ConfigError> {
        one_of("model.model_type", &["gpt2"], &self.model_type)?;
        one_of("model.activation_function", &["gelu_new"], &self.activation_function)?;
        within("model.vocab_size", self.vocab_size, 1, 1 << 24)?;
        within("model.n_positions", self.n_positions, 1, 1 << 20)?;
        within("model.n_embd", self.n_embd, 1, 1 << 16)?;
        within("model.n_layer", self.n_layer, 1, 1 << 10)?;
        within("model.n_head", self.n_head, 1, self.n_embd)?;
        within("model.n_inner", self.n_inner.unwrap_or(4 * self.n_embd), 1, 1 << 20)?;
        let divides = self.n_embd.is_multiple_of(self.n_head);
        ensure("model.n_head", divides, "a divisor of n_embd", &self.n_head.to_string())?;
        number("model.layer_norm_epsilon", self.layer_norm_epsilon, 1e-30, 1.0)?;
        number("model.initializer_range", self.initializer_range, 0.0, 100.0)
    }
}

impl Llama {
    /// The base of the rotary frequencies.
    pub fn theta(&self) -> f64 {
        self.rope_theta.unwrap_or(10_000.0)
    }

    fn check(&self) -> Result<(), ConfigError> {
        one_of("model.model_type", &["llama"], &self.model_type)?;
        one_of("model.hidden_act", &["silu"], &self.hidden_act)?;
        within("model.vocab_size", self.vocab_size, 1, 1 << 24)?;
        within("model.hidden_size", self.hidden_size, 1, 1 << 16)?;
        within("model.intermediate_size", self.intermediate_size, 1, 1 << 20)?;
        within("model.num_hidden_layers", self.num_hidden_layers, 1, LLAMA_LAYERS_MAX)?;
        within("model.num_attention_heads", self.num_attention_heads, 1, 1 << 16)?;
        let heads = self.num_attention_heads;
        let kv_heads = self.num_key_value_heads.unwrap_or(heads);
        let divides = kv_heads > 0 && heads.is_multiple_of(kv_heads);
        let expected = "a divisor of num_attention_heads";
        ensure("model.num_key_value_heads", divides, expected, &kv_heads.to_string())?;
        if self.head_dim.is_none() {
            let divides = self.hidden_size.is_multiple_of(heads);
            let expected = "a divisor of hidden_size, where head_dim is left out";
            ensure("model.num_attention_heads", divides, expected, &heads.to_string())?;
        }
        let size = self.head_dim.unwrap_or(self.hidden_size / heads);
        let even = size.is_multiple_of(2) && (2..=1 << 16).contains(&size);
        ensure(
            "model.head_dim",
            even,
            "an even number from 2 to 65536 (pairs are rotated)",
            &size.to_string(),
        )?;
        let width = heads * size;
        ensure("model.head_dim", width <= 1 << 20, "num_attention_heads x head_dim of at most 1048576", &{
            format!("{heads} x {size}")
        })?;
        within("model.max_position_embeddings", self.max_position_embeddings, 1, 1 << 20)?;
        number("model.rms_norm_eps", self.rms_norm_eps, 1e-30, 1.0)?;
        number("model.rope_theta", self.theta(), 1.0, 1e9)?;
        number("model.initializer_range", self.initializer_range, 0.0, 100.0)
    }
}
