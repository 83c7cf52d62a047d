//! The encoding under a config's digest.

use super::model::{Gpt2, Llama, Model};
use super::optimizer::{GROUPS_MAX, Group, Optimizer, PATTERN_CHARS_MAX, PATTERNS_MAX};
use super::{Config, Data, State};
use crate::cbor::Value;
use crate::object::{Fields, Object, ObjectError};
use crate::run::{LEAVES_MAX, STEPS_MAX, check_tree};

/// Floats are written as the bits of an f64, so that one value has one encoding.
fn float(value: f64) -> Value {
    Value::Uint(value.to_bits())
}

fn take_float(fields: &mut Fields, field: &'static str) -> Result<f64, ObjectError> {
    Ok(f64::from_bits(fields.uint(field, u64::MAX)?))
}

impl Object for Config {
    const STEM: &'static str = "config";
    const BYTES_MAX: usize = 32 << 10;

    fn to_value(&self) -> Value {
        let seed = self.state.seed.map(|seed| (Value::text("seed"), Value::Uint(seed)));
        let tokenizer = self.data.tokenizer.as_deref().unwrap_or("none");
        assert!(
            self.data.tokenizer_file().is_none(),
            "config: {tokenizer} has to be read before it is encoded"
        );
        let data = Value::map([
            ("format", Value::text(&self.data.format)),
            ("tokenizer", Value::text(tokenizer)),
            ("sequences", Value::Uint(self.data.sequences)),
            ("length", Value::Uint(self.data.length)),
            ("seed", Value::Uint(self.data.seed)),
        ]);
        Value::map([
            ("name", Value::text(&self.name)),
            ("profile", Value::text(&self.profile)),
            ("steps", Value::Uint(self.steps)),
            ("leaves", Value::Uint(self.leaves)),
            ("devices_max", Value::Uint(self.devices_max)),
            ("model", model_value(&self.model)),
            ("state", Value::Map(seed.into_iter().collect())),
            ("data", data),
            ("optimizer", optimizer_value(&self.optimizer)),
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
            state: State { seed, snapshot: seed.is_none().then(String::new), weights: None },
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

fn model_value(model: &Model) -> Value {
    let common = |model_type: &str| {
        vec![
            (Value::text("model_type"), Value::text(model_type)),
            (Value::text("vocab_size"), Value::Uint(model.vocabulary())),
            (Value::text("tie_word_embeddings"), Value::Bool(model.tied())),
            (Value::text("initializer_range"), float(model.initializer_range())),
        ]
    };
    let (mut fields, own) = match model {
        Model::Gpt2(own) => (
            common("gpt2"),
            vec![
                ("n_positions", Value::Uint(own.n_positions)),
                ("n_embd", Value::Uint(own.n_embd)),
                ("n_layer", Value::Uint(own.n_layer)),
                ("n_head", Value::Uint(own.n_head)),
                ("n_inner", Value::Uint(model.inner())),
                ("layer_norm_epsilon", float(own.layer_norm_epsilon)),
                ("activation_function", Value::text(&own.activation_function)),
            ],
        ),
        Model::Llama(own) => (
            common("llama"),
            vec![
                ("hidden_size", Value::Uint(own.hidden_size)),
                ("intermediate_size", Value::Uint(own.intermediate_size)),
                ("num_hidden_layers", Value::Uint(own.num_hidden_layers)),
                ("num_attention_heads", Value::Uint(own.num_attention_heads)),
                ("num_key_value_heads", Value::Uint(model.kv_heads())),
                ("head_dim", Value::Uint(model.head_size())),
                ("max_position_embeddings", Value::Uint(own.max_position_embeddings)),
                ("rms_norm_eps", float(own.rms_norm_eps)),
                ("rope_theta", float(own.theta())),
                ("hidden_act", Value::text(&own.hidden_act)),
            ],
        ),
    };
    fields.extend(own.into_iter().map(|(name, value)| (Value::text(name), value)));
    Value::Map(fields)
}

fn model_from(mut fields: Fields) -> Result<Model, ObjectError> {
    let model_type = fields.text("model_type", 40)?;
    let vocab_size = fields.uint("vocab_size", u64::MAX)?;
    let tie_word_embeddings = Some(fields.truth("tie_word_embeddings")?);
    let initializer_range = take_float(&mut fields, "initializer_range")?;
    let model = match model_type.as_str() {
        "gpt2" => Model::Gpt2(Gpt2 {
            model_type,
            vocab_size,
            n_positions: fields.uint("n_positions", u64::MAX)?,
            n_embd: fields.uint("n_embd", 1 << 32)?,
            n_layer: fields.uint("n_layer", u64::MAX)?,
            n_head: fields.uint("n_head", u64::MAX)?,
            n_inner: Some(fields.uint("n_inner", u64::MAX)?),
            layer_norm_epsilon: take_float(&mut fields, "layer_norm_epsilon")?,
            activation_function: fields.text("activation_function", 40)?,
            tie_word_embeddings,
            initializer_range,
        }),
        "llama" => Model::Llama(Llama {
            model_type,
            vocab_size,
            hidden_size: fields.uint("hidden_size", u64::MAX)?,
            intermediate_size: fields.uint("intermediate_size", u64::MAX)?,
            num_hidden_layers: fields.uint("num_hidden_layers", u64::MAX)?,
            num_attention_heads: fields.uint("num_attention_heads", u64::MAX)?,
            num_key_value_heads: Some(fields.uint("num_key_value_heads", u64::MAX)?),
            head_dim: Some(fields.uint("head_dim", u64::MAX)?),
            max_position_embeddings: fields.uint("max_position_embeddings", u64::MAX)?,
            rms_norm_eps: take_float(&mut fields, "rms_norm_eps")?,
            rope_theta: Some(take_float(&mut fields, "rope_theta")?),
            hidden_act: fields.text("hidden_act", 40)?,
            tie_word_embeddings,
            initializer_range,
        }),
        _ => return Err(fields.wrong("model_type", "gpt2 or llama", model_type)),
    };
    fields.close()?;
    Ok(model)
}

fn data_from(mut fields: Fields) -> Result<Data, ObjectError> {
    let tokenizer = fields.text("tokenizer", 80)?;
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

fn optimizer_value(optimizer: &Optimizer) -> Value {
    let group = |group: &Group| {
        Value::map([
            ("match", Value::Array(group.patterns.iter().map(Value::text).collect())),
            ("learning_rate_factor", float(group.learning_rate_factor.unwrap_or(1.0))),
            ("weight_decay", float(group.weight_decay.unwrap_or(optimizer.weight_decay))),
        ])
    };
    let own = [
        ("beta1", optimizer.beta1),
        ("beta2", optimizer.beta2),
        ("epsilon", optimizer.epsilon),
        ("momentum", optimizer.momentum),
        ("clip", optimizer.clip),
    ];
    let mut fields = vec![
        (Value::text("kind"), Value::text(&optimizer.kind)),
        (Value::text("learning_rate"), float(optimizer.learning_rate)),
        (Value::text("weight_decay"), float(optimizer.weight_decay)),
        (Value::text("schedule"), Value::text(&optimizer.schedule)),
        (Value::text("warmup_steps"), Value::Uint(optimizer.warmup_steps)),
        (Value::text("final_fraction"), float(optimizer.final_fraction)),
        (Value::text("groups"), Value::Array(optimizer.groups.iter().map(group).collect())),
    ];
    fields.extend(own.into_iter().filter_map(|(name, value)| Some((Value::text(name), float(value?)))));
    if optimizer.kind == "sgd" {
        fields.push((Value::text("nesterov"), Value::Bool(optimizer.nesterov.unwrap_or(false))));
    }
    Value::Map(fields)
}

fn optimizer_from(mut fields: Fields) -> Result<Optimizer, ObjectError> {
    let kind = fields.text("kind", 40)?;
    let (adamw, sgd) = (kind == "adamw", kind == "sgd");
    let mut own = |needed: bool, field| needed.then(|| take_float(&mut fields, field)).transpose();
    let (beta1, beta2, epsilon) = (own(adamw, "beta1")?, own(adamw, "beta2")?, own(adamw, "epsilon")?);
    let momentum = own(sgd, "momentum")?;
    let mut groups = Vec::new();
    for item in fields.array("groups", GROUPS_MAX)? {
        groups.push(group_from(item)?);
    }
    let optimizer = Optimizer {
        learning_rate: take_float(&mut fields, "learning_rate")?,
        beta1,
        beta2,
        epsilon,
        momentum,
        nesterov: sgd.then(|| fields.truth("nesterov")).transpose()?,
        weight_decay: take_float(&mut fields, "weight_decay")?,
        clip: fields.uint_optional("clip", u64::MAX)?.map(f64::from_bits),
        schedule: fields.text("schedule", 40)?,
        warmup_steps: fields.uint("warmup_steps", u64::MAX)?,
        final_fraction: take_float(&mut fields, "final_fraction")?,
        kind,
        groups,
    };
    fields.close()?;
    Ok(optimizer)
}

fn group_from(value: Value) -> Result<Group, ObjectError> {
    let mut fields = Fields::open(Config::STEM, value)?;
    let mut patterns = Vec::new();
    for item in fields.array("match", PATTERNS_MAX)? {
        patterns.push(fields.as_text("match", item, PATTERN_CHARS_MAX)?);
    }
    let group = Group {
        patterns,
        learning_rate_factor: Some(take_float(&mut fields, "learning_rate_factor")?),
        weight_decay: Some(take_float(&mut fields, "weight_decay")?),
    };
    fields.close()?;
    Ok(group)
}
