//! The `config` (run.toml): what its author decides (docs/spec/config.md). Names are those of Hugging Face's
//! `config.json` where one exists. What is not supported is refused by name when the file is read.

mod check;
mod encode;
pub mod huggingface;
pub mod model;
pub mod optimizer;

use crate::digest::{ConfigDigest, digest};
use crate::object::Object;
use crate::run::{LEAVES_MAX, STEPS_MAX};
use check::{ensure, one_of, printable, told, within};
use model::Model;
use optimizer::Optimizer;
use serde::Deserialize;
use serde::de::DeserializeOwned;
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
    /// The config.json that `model.config` names cannot be read, has an unknown key or lacks one.
    #[error("config: model.config: {path}: {reason}")]
    ModelFile {
        /// The file.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
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
#[derive(Clone, Debug, PartialEq)]
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

/// A run.toml whose `[model]` has the keys of `M`: one type for each model, so that a wrong key is shown in its line.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written<M> {
    name: String,
    profile: String,
    steps: u64,
    leaves: u64,
    devices_max: u64,
    model: M,
    state: State,
    data: Data,
    optimizer: Optimizer,
}

impl<M> Written<M> {
    fn with(self, model: impl FnOnce(M) -> Model) -> Config {
        let Written { name, profile, steps, leaves, devices_max, state, data, optimizer, .. } = self;
        Config { name, profile, steps, leaves, devices_max, model: model(self.model), state, data, optimizer }
    }
}

/// A `[model]` that names Hugging Face's own file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ModelFile {
    config: String,
    dropout: Option<String>,
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
    /// A safetensors file of parameters alone, as Hugging Face's libraries write it; treated like `snapshot`.
    pub weights: Option<String>,
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

impl Config {
    /// Reads a run.toml that names no config.json, and checks every value.
    pub fn from_toml(text: &str) -> Result<Config, ConfigError> {
        Self::from_toml_with(text, |_| Err("no file is read here; state its keys in [model]".into()))
    }

    /// Reads a run.toml and checks every value; `read` gives the content of the config.json that it may name.
    pub fn from_toml_with(
        text: &str,
        read: impl FnOnce(&str) -> Result<String, String>,
    ) -> Result<Config, ConfigError> {
        if text.len() > TOML_BYTES_MAX {
            return Err(ConfigError::TooLong { found: text.len() });
        }
        let whole: toml::Table = typed(text)?;
        let model = whole.get("model").and_then(toml::Value::as_table).cloned().unwrap_or_default();
        let config = if model.contains_key("config") {
            let written = typed::<Written<ModelFile>>(text)?;
            let file = &written.model;
            let dropout = file.dropout.as_deref();
            one_of("model.dropout", &["off"], dropout.unwrap_or("off"))?;
            let unreadable = |reason: String| ConfigError::ModelFile {
                path: printable(&file.config),
                reason: printable(&reason),
            };
            let content = read(&file.config).map_err(unreadable)?;
            let model = huggingface::read(&file.config, &content, dropout.is_some())?;
            written.with(|_| model)
        } else {
            huggingface::check_toml(&model)?;
            match model.get("model_type").and_then(toml::Value::as_str) {
                // Without a model_type the message of the first model says what is missing.
                Some("gpt2") | None => typed::<Written<model::Gpt2>>(text)?.with(Model::Gpt2),
                Some("llama") => typed::<Written<model::Llama>>(text)?.with(Model::Llama),
                Some(other) => {
                    one_of("model.model_type", &["gpt2", "llama"], other)?;
                    unreachable!("config: both names were taken")
                }
            }
        };
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
        model.check()?;

        let given = [state.seed.is_some(), state.snapshot.is_some(), state.weights.is_some()];
        let given = given.into_iter().filter(|given| *given).count();
        let found = if given == 0 { "none" } else { "more than one" };
        ensure("state", given == 1, "one of `seed`, `snapshot` and `weights`", found)?;

        one_of("data.format", &["text", "llmc", "nanogpt"], &data.format)?;
        data.check_tokenizer()?;
        ensure("data.files", !data.files.is_empty(), "at least one file", "none")?;
        within("data.sequences", data.sequences, 1, 1 << 16)?;
        within("data.length", data.length, 1, model.positions())?;
        optimizer.check(self.steps)
    }
}

fn typed<T: DeserializeOwned>(text: &str) -> Result<T, ConfigError> {
    let shown = |key: &str, error: &toml::de::Error| {
        let whole = error.to_string();
        // The lines before the message show the place.
        let place = whole.trim_end().strip_suffix(error.message()).unwrap_or_default();
        ConfigError::Toml(format!("{place}{}", told(key, error.message())))
    };
    let parsed = toml::Deserializer::parse(text).map_err(|error| shown(".", &error))?;
    serde_path_to_error::deserialize(parsed).map_err(|error| shown(&error.path().to_string(), error.inner()))
}
