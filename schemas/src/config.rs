//! The `config` (run.toml): what its author decides (docs/spec/config.md). Names are those of Hugging Face's
//! `config.json` where one exists. What is not supported is refused by name when the file is read.

use crate::cbor::Value;
use crate::digest::{ConfigDigest, digest};
use crate::object::{Fields, Object, ObjectError};
use crate::run::{LEAVES_MAX, STEPS_MAX, check_tree};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

/// Longest run.toml, in bytes.
pub const TOML_BYTES_MAX: usize = 64 << 10;

/// Why a run.toml was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Longer than any honest config.
    #[error("config: {found} bytes, expected at most {TOML_BYTES_MAX}")]
    TooLong {
        /// Bytes found.
        found: usize,
    },
    /// Not TOML, an unknown key, a missing key or a wrong type; the message shows the line.
    #[error("config: {0}")]
    Toml(String),
    /// A value that is out of range or not supported.
    #[error("config: {field}: expected {expected}, found {found}")]
    Value {
        /// Which key.
        field: &'static str,
        /// What is supported.
        expected: String,
        /// What was found.
        found: String,
    },
}

/// A whole run.toml.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// A name for people.
    pub name: String,
    /// Arithmetic profile id.
    pub profile: String,
    /// Steps in the run.
    pub steps: u64,
    /// Leaves (micro-batches) in a step.
    pub leaves: u64,
    /// Most devices that may share a step.
    pub devices_max: u64,
    /// The model.
    pub model: Model,
    /// Where the first state comes from.
    pub state: State,
    /// The data.
    pub data: Data,
    /// The optimizer.
    pub optimizer: Optimizer,
}

/// A GPT-2 model, by the names of its `config.json`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
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
    /// Standard deviation of initial weights.
    pub initializer_range: f64,
}

impl Model {
    /// Width inside the MLP.
    pub fn inner(&self) -> u64 {
        self.n_inner.unwrap_or(4 * self.n_embd)
    }
}

/// The first state: random from a seed, or a snapshot.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// Seed of the initial weights.
    pub seed: Option<u64>,
    /// A safetensors file with Hugging Face names; its path is not part of the config's identity, its content is
    /// (by the state digest in the run statement).
    pub snapshot: Option<String>,
}

/// The data and its order.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Data {
    /// `text`, `llmc` or `nanogpt`.
    pub format: String,
    /// For text `bytes`, `gpt2` or the path of a tokenizer.json; absent for token files. In the encoding a path's
    /// place is taken by [`tokenizer_identity`] of the file.
    pub tokenizer: Option<String>,
    /// Files, read one after the other; relative to run.toml; `*` in a name stands for any characters. Their content
    /// is committed, their paths are not.
    pub files: Vec<String>,
    /// B: sequences in a leaf.
    pub sequences: u64,
    /// T: tokens in a sequence.
    pub length: u64,
    /// Key of the order.
    pub seed: u64,
}

/// What stands for a tokenizer.json in a config's encoding: `sha256:` and the hash of the file.
pub fn tokenizer_identity(file: &[u8]) -> String {
    format!("{TOKENIZER_HASH}{}", hex::encode(Sha256::digest(file)))
}

const TOKENIZER_HASH: &str = "sha256:";

impl Data {
    /// The path of a tokenizer.json, where run.toml names one.
    pub fn tokenizer_file(&self) -> Option<&str> {
        self.tokenizer.as_deref().filter(|name| name.ends_with(".json"))
    }

    /// Whether the tokenizer is one that a config may have: by name, by path, or (once the file has been read) by hash.
    fn check_tokenizer(&self) -> Result<(), ConfigError> {
        let tokenizer = self.tokenizer.as_deref().unwrap_or("none");
        if self.format != "text" {
            return one_of("data.tokenizer", &["none"], tokenizer);
        }
        let hash = tokenizer.strip_prefix(TOKENIZER_HASH);
        let hashed = hash.is_some_and(|digits| digits.parse::<ConfigDigest>().is_ok());
        let known = ["bytes", "gpt2"].contains(&tokenizer) || self.tokenizer_file().is_some() || hashed;
        ensure("data.tokenizer", known, "bytes, gpt2 or the path of a file that ends in .json", tokenizer)
    }
}

/// AdamW with decoupled decay, clipping by global norm, and a schedule.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Optimizer {
    /// `adamw`.
    pub kind: String,
    /// Highest learning rate.
    pub learning_rate: f64,
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to the root of the second moment.
    pub epsilon: f64,
    /// Decoupled weight decay, of tensors with two dimensions.
    pub weight_decay: f64,
    /// Largest global norm; no clipping if absent.
    pub clip: Option<f64>,
    /// `constant`, `linear` or `cosine`.
    pub schedule: String,
    /// Steps over which the rate rises to `learning_rate`: at step s < w it is `(s + 1) / w` of it.
    pub warmup_steps: u64,
    /// Fraction of `learning_rate` that the schedule ends at; ignored by `constant`.
    pub final_fraction: f64,
}

impl Config {
    /// Reads a run.toml and checks every value.
    pub fn from_toml(text: &str) -> Result<Config, ConfigError> {
        if text.len() > TOML_BYTES_MAX {
            return Err(ConfigError::TooLong { found: text.len() });
        }
        let config: Config =
            toml::from_str(text).map_err(|e| ConfigError::Toml(e.to_string().trim_end().into()))?;
        config.check()?;
        // A hash stands for a file that was read; here the file is named.
        let tokenizer = config.data.tokenizer.as_deref().unwrap_or_default();
        let named = !tokenizer.starts_with(TOKENIZER_HASH);
        ensure("data.tokenizer", named, "the path of a tokenizer.json", tokenizer)?;
        Ok(config)
    }

    /// The config's identity: paths are no part of it.
    pub fn digest(&self) -> ConfigDigest {
        ConfigDigest(digest("config", &[&self.encode()]))
    }

    fn check(&self) -> Result<(), ConfigError> {
        let Config { model, data, optimizer, state, .. } = self;
        let in_name = self.name.chars().count() <= 80 && !self.name.chars().any(char::is_control);
        ensure("name", in_name, "at most 80 characters, none of them control characters", &self.name)?;
        one_of("profile", &[crate::profile::F32_FMA.id], &self.profile)?;
        within("steps", self.steps, 1, STEPS_MAX)?;
        within("leaves", self.leaves, 1, LEAVES_MAX)?;
        let aligned = self.devices_max.is_power_of_two() && self.leaves.is_multiple_of(self.devices_max);
        ensure(
            "devices_max",
            aligned,
            "a power of two that divides `leaves`",
            &self.devices_max.to_string(),
        )?;

        one_of("model.model_type", &["gpt2"], &model.model_type)?;
        one_of("model.activation_function", &["gelu_new"], &model.activation_function)?;
        within("model.vocab_size", model.vocab_size, 1, 1 << 24)?;
        within("model.n_positions", model.n_positions, 1, 1 << 20)?;
        within("model.n_embd", model.n_embd, 1, 1 << 16)?;
        within("model.n_layer", model.n_layer, 1, 1 << 10)?;
        within("model.n_head", model.n_head, 1, model.n_embd)?;
        within("model.n_inner", model.inner(), 1, 1 << 20)?;
        let divides = model.n_embd.is_multiple_of(model.n_head);
        ensure("model.n_head", divides, "a divisor of n_embd", &model.n_head.to_string())?;
        number("model.layer_norm_epsilon", model.layer_norm_epsilon, 1e-30, 1.0)?;
        number("model.initializer_range", model.initializer_range, 0.0, 100.0)?;

        let one = state.seed.is_some() != state.snapshot.is_some();
        ensure(
            "state",
            one,
            "either `seed` or `snapshot`",
            if state.seed.is_some() { "both" } else { "neither" },
        )?;

        one_of("data.format", &["text", "llmc", "nanogpt"], &data.format)?;
        data.check_tokenizer()?;
        ensure("data.files", !data.files.is_empty(), "at least one file", "none")?;
        within("data.sequences", data.sequences, 1, 1 << 16)?;
        within("data.length", data.length, 1, model.n_positions)?;

        one_of("optimizer.kind", &["adamw"], &optimizer.kind)?;
        one_of("optimizer.schedule", &["constant", "linear", "cosine"], &optimizer.schedule)?;
        number("optimizer.learning_rate", optimizer.learning_rate, 0.0, 100.0)?;
        number("optimizer.beta1", optimizer.beta1, 0.0, 0.999_999)?;
        number("optimizer.beta2", optimizer.beta2, 0.0, 0.999_999)?;
        number("optimizer.epsilon", optimizer.epsilon, 1e-30, 1.0)?;
        number("optimizer.weight_decay", optimizer.weight_decay, 0.0, 100.0)?;
        number("optimizer.clip", optimizer.clip.unwrap_or(1.0), 1e-12, 1e12)?;
        within("optimizer.warmup_steps", optimizer.warmup_steps, 0, self.steps)?;
        number("optimizer.final_fraction", optimizer.final_fraction, 0.0, 1.0)
    }
}

fn ensure(field: &'static str, holds: bool, expected: &str, found: &str) -> Result<(), ConfigError> {
    if holds {
        return Ok(());
    }
    // Control characters would reach a terminal with the message.
    let found = found.chars().take(100).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    Err(ConfigError::Value { field, expected: expected.into(), found })
}

fn one_of(field: &'static str, supported: &[&str], found: &str) -> Result<(), ConfigError> {
    ensure(field, supported.contains(&found), &supported.join(" or "), found)
}

fn within(field: &'static str, found: u64, min: u64, max: u64) -> Result<(), ConfigError> {
    ensure(field, (min..=max).contains(&found), &format!("{min} to {max}"), &found.to_string())
}

fn number(field: &'static str, found: f64, min: f64, max: f64) -> Result<(), ConfigError> {
    // A NaN is in no range.
    ensure(field, min <= found && found <= max, &format!("{min} to {max}"), &found.to_string())
}

/// Floats are written as the bits of an f64, so that one value has one encoding.
fn float(value: f64) -> Value {
    Value::Uint(value.to_bits())
}

fn take_float(fields: &mut Fields, field: &'static str) -> Result<f64, ObjectError> {
    Ok(f64::from_bits(fields.uint(field, u64::MAX)?))
}

impl Object for Config {
    const STEM: &'static str = "config";
    const BYTES_MAX: usize = 16 << 10;

    fn to_value(&self) -> Value {
        let Model { model_type, activation_function, .. } = &self.model;
        let model = Value::map([
            ("model_type", Value::text(model_type)),
            ("vocab_size", Value::Uint(self.model.vocab_size)),
            ("n_positions", Value::Uint(self.model.n_positions)),
            ("n_embd", Value::Uint(self.model.n_embd)),
            ("n_layer", Value::Uint(self.model.n_layer)),
            ("n_head", Value::Uint(self.model.n_head)),
            ("n_inner", Value::Uint(self.model.inner())),
            ("layer_norm_epsilon", float(self.model.layer_norm_epsilon)),
            ("activation_function", Value::text(activation_function)),
            ("initializer_range", float(self.model.initializer_range)),
        ]);
        let seed = self.state.seed.map(|seed| (Value::text("seed"), Value::Uint(seed)));
        let tokenizer = self.data.tokenizer.as_deref().unwrap_or("none");
        assert!(self.data.tokenizer_file().is_none(), "config: {tokenizer} has to be read before it is encoded");
        let data = Value::map([
            ("format", Value::text(&self.data.format)),
            ("tokenizer", Value::text(tokenizer)),
            ("sequences", Value::Uint(self.data.sequences)),
            ("length", Value::Uint(self.data.length)),
            ("seed", Value::Uint(self.data.seed)),
        ]);
        let mut optimizer = vec![
            (Value::text("kind"), Value::text(&self.optimizer.kind)),
            (Value::text("learning_rate"), float(self.optimizer.learning_rate)),
            (Value::text("beta1"), float(self.optimizer.beta1)),
            (Value::text("beta2"), float(self.optimizer.beta2)),
            (Value::text("epsilon"), float(self.optimizer.epsilon)),
            (Value::text("weight_decay"), float(self.optimizer.weight_decay)),
            (Value::text("schedule"), Value::text(&self.optimizer.schedule)),
            (Value::text("warmup_steps"), Value::Uint(self.optimizer.warmup_steps)),
            (Value::text("final_fraction"), float(self.optimizer.final_fraction)),
        ];
        optimizer.extend(self.optimizer.clip.map(|clip| (Value::text("clip"), float(clip))));
        Value::map([
            ("name", Value::text(&self.name)),
            ("profile", Value::text(&self.profile)),
            ("steps", Value::Uint(self.steps)),
            ("leaves", Value::Uint(self.leaves)),
            ("devices_max", Value::Uint(self.devices_max)),
            ("model", model),
            ("state", Value::Map(seed.into_iter().collect())),
            ("data", data),
            ("optimizer", Value::Map(optimizer)),
        ])
    }

    /// The paths are not in the encoding: what is read has no files, and `snapshot` is empty where there is no seed.
    fn from_value(value: Value) -> Result<Config, ObjectError> {
        let mut fields = Fields::open(Self::STEM, value)?;
        let model = Fields::open(Self::STEM, fields.take("model")?)?;
        let mut state = Fields::open(Self::STEM, fields.take("state")?)?;
        let data = Fields::open(Self::STEM, fields.take("data")?)?;
        let optimizer = Fields::open(Self::STEM, fields.take("optimizer")?)?;
        let seed = state.uint_optional("seed", u64::MAX)?;
        state.close()?;
        let config = Config {
            name: fields.text("name", 80)?,
            profile: fields.text("profile", 40)?,
            steps: fields.uint("steps", STEPS_MAX)?,
            leaves: fields.uint("leaves", LEAVES_MAX)?,
            devices_max: fields.uint("devices_max", LEAVES_MAX)?,
            model: model_from(model)?,
            state: State { seed, snapshot: if seed.is_none() { Some(String::new()) } else { None } },
            data: data_from(data)?,
            optimizer: optimizer_from(optimizer)?,
        };
        check_tree(&fields, config.leaves, config.devices_max)?;
        // The same rules as for a run.toml; only the paths, absent here, are exempt.
        let with_paths =
            Config { data: Data { files: vec![String::new()], ..config.data.clone() }, ..config.clone() };
        with_paths
            .check()
            .map_err(|e| fields.wrong("config", "values that a run.toml may have", e.to_string()))?;
        fields.close()?;
        Ok(config)
    }
}

fn model_from(mut fields: Fields) -> Result<Model, ObjectError> {
    let model = Model {
        model_type: fields.text("model_type", 40)?,
        vocab_size: fields.uint("vocab_size", u64::MAX)?,
        n_positions: fields.uint("n_positions", u64::MAX)?,
        n_embd: fields.uint("n_embd", 1 << 32)?,
        n_layer: fields.uint("n_layer", u64::MAX)?,
        n_head: fields.uint("n_head", u64::MAX)?,
        n_inner: Some(fields.uint("n_inner", u64::MAX)?),
        layer_norm_epsilon: take_float(&mut fields, "layer_norm_epsilon")?,
        activation_function: fields.text("activation_function", 40)?,
        initializer_range: take_float(&mut fields, "initializer_range")?,
    };
    fields.close()?;
    Ok(model)
}

fn data_from(mut fields: Fields) -> Result<Data, ObjectError> {
    let tokenizer = fields.text("tokenizer", 80)?;
    // A path has no place in an encoding.
    if tokenizer.ends_with(".json") {
        return Err(fields.wrong("tokenizer", "bytes, gpt2, none or sha256: and 64 digits", tokenizer));
    }
    let data = Data {
        format: fields.text("format", 40)?,
        tokenizer: (tokenizer != "none").then_some(tokenizer),
        files: vec![],
        sequences: fields.uint("sequences", u64::MAX)?,
        length: fields.uint("length", u64::MAX)?,
        seed: fields.uint("seed", u64::MAX)?,
    };
    fields.close()?;
    Ok(data)
}

fn optimizer_from(mut fields: Fields) -> Result<Optimizer, ObjectError> {
    let optimizer = Optimizer {
        kind: fields.text("kind", 40)?,
        learning_rate: take_float(&mut fields, "learning_rate")?,
        beta1: take_float(&mut fields, "beta1")?,
        beta2: take_float(&mut fields, "beta2")?,
        epsilon: take_float(&mut fields, "epsilon")?,
        weight_decay: take_float(&mut fields, "weight_decay")?,
        clip: fields.uint_optional("clip", u64::MAX)?.map(f64::from_bits),
        schedule: fields.text("schedule", 40)?,
        warmup_steps: fields.uint("warmup_steps", u64::MAX)?,
        final_fraction: take_float(&mut fields, "final_fraction")?,
    };
    fields.close()?;
    Ok(optimizer)
}
