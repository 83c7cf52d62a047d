//! Derives the plan of a run: a GPT-2 or a Llama of any size, forward and backward, as a list of operations.
//!
//! Source: docs/spec/plan.md. Same config and same data give the same plan, byte for byte: what is not f32
//! arithmetic of the profile is computed here in f64 with add, mul, div and sqrt alone, whose results IEEE
//! 754 fixes.

use crate::layers::{Lists, gpt2, llama};
use crate::schedule::{Settings, corrections, group_steps};
use schemas::config::Config;
use schemas::config::model::Model;
use schemas::config::optimizer::Optimizer;
use schemas::digest::Checksum;
use schemas::plan::{
    DataOrder, Dimensions, ELEMENTS_MAX, PLAN_STEPS_MAX, Parameter, Plan, ROWS_BYTES_MAX, Rule, Update,
};

/// 1e-6, added to the norm before the division that clips.
const CLIP_EPSILON: f32 = 1e-6;

/// Why a config has no plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// Less data than one window.
    #[error("data: expected more than {length} tokens (one window and its targets), found {found}")]
    TooFewTokens {
        /// T.
        length: u64,
        /// Tokens in the data set.
        found: u64,
    },
    /// More steps than a plan lists.
    #[error("steps: expected at most {PLAN_STEPS_MAX}, found {found}")]
    TooManySteps {
        /// Steps of the config.
        found: u64,
    },
    /// A tensor, or all parameters together, larger than any machine holds.
    #[error("model: expected tensors of at most {ELEMENTS_MAX} elements, found {name} with {found}")]
    TooLarge {
        /// Which tensor.
        name: String,
        /// Its elements.
        found: u128,
    },
    /// More bytes of constants than a plan holds.
    #[error(
        "plan: expected at most {ROWS_BYTES_MAX} bytes for rotary tables and the constants of all steps together, \
         found {found}; shorten data.length or the run, or use fewer optimizer.groups"
    )]
    TooManyConstants {
        /// Bytes needed.
        found: u128,
    },
    /// A group of the optimizer that holds nothing.
    #[error(
        "optimizer.groups: expected groups that match a parameter not matched before, found {patterns:?} with none; \
         `oracle plan --run FILE --operations` lists the names"
    )]
    EmptyGroup {
        /// Its patterns.
        patterns: Vec<String>,
    },
}

/// The plan of `config` over a data set of `tokens` tokens with checksum `dataset`.
pub fn derive(config: &Config, tokens: u64, dataset: Checksum) -> Result<Plan, PlanError> {
    if tokens <= config.data.length {
        return Err(PlanError::TooFewTokens { length: config.data.length, found: tokens });
    }
    if config.steps > PLAN_STEPS_MAX as u64 {
        return Err(PlanError::TooManySteps { found: config.steps });
    }
    let dimensions = dimensions_of(config);
    check_sizes(&dimensions)?;
    check_constants(config, &dimensions)?;
    let epsilon = bits(config.model.norm_epsilon());
    let Lists { mut parameters, tables, tensors, operations } = match &config.model {
        Model::Gpt2(_) => gpt2::build(dimensions, epsilon, config.model.tied()),
        Model::Llama(model) => llama::build(dimensions, epsilon, model.theta(), config.model.tied()),
    };
    assign_groups(&config.optimizer, &mut parameters)?;
    let plan = Plan {
        profile: config.profile.clone(),
        config: config.digest(),
        dimensions,
        parameters,
        tables,
        tensors,
        operations,
        leaves: config.leaves,
        devices_max: config.devices_max,
        data: DataOrder { tokens, dataset, seed: config.data.seed },
        update: update_of(&config.optimizer, config.steps, config.leaves, dimensions.rows()),
    };
    let well_formed = schemas::plan_shapes::check(&plan);
    assert!(well_formed.is_ok(), "plan: derived a plan that breaks a rule: {well_formed:?}");
    Ok(plan)
}

/// The bits of a constant: rounded once, from f64.
fn bits(value: f64) -> u32 {
    (value as f32).to_bits()
}

fn dimensions_of(config: &Config) -> Dimensions {
    let Config { model, data, .. } = config;
    Dimensions {
        batch: data.sequences,
        time: data.length,
        channels: model.channels(),
        vocabulary: model.vocabulary(),
        layers: model.layers(),
        heads: model.heads(),
        positions: model.positions(),
        inner: model.inner(),
        kv_heads: model.kv_heads(),
        head_size: model.head_size(),
    }
}

/// The largest tensor of each kind, and the parameters together, in numbers that cannot overflow.
fn check_sizes(d: &Dimensions) -> Result<(), PlanError> {
    let wide = |n: u64| u128::from(n);
    let (n, c) = (wide(d.batch) * wide(d.time), wide(d.channels));
    let (a, k) = (wide(d.query_width()), wide(d.kv_width()));
    // No model has more than this: three matrices in the MLP, a head of its own, and a bias everywhere.
    let layer = 2 * c * (a + k) + 3 * c * wide(d.inner) + 10 * c + wide(d.inner);
    let all = (2 * wide(d.vocabulary) + wide(d.positions)) * c + wide(d.layers) * layer;
    let sizes = [
        ("logits", n * wide(d.vocabulary)),
        ("qkv", n * 3 * a),
        ("mlp", n * wide(d.inner)),
        ("all parameters", all),
    ];
    match sizes.into_iter().find(|(_, elements)| *elements > wide(ELEMENTS_MAX)) {
        Some((name, found)) => Err(PlanError::TooLarge { name: name.into(), found }),
        None => Ok(()),
    }
}

/// Tables and steps have to leave room for the plan's lists.
fn check_constants(config: &Config, d: &Dimensions) -> Result<(), PlanError> {
    let wide = |n: u64| u128::from(n);
    let tables = match &config.model {
        Model::Gpt2(_) => 0,
        Model::Llama(_) => 4 * wide(d.time) * wide(d.head_size),
    };
    let rows = config.optimizer.groups.len() as u128 + 3;
    match tables + 8 * rows * wide(config.steps) {
        found if found > wide(ROWS_BYTES_MAX) => Err(PlanError::TooManyConstants { found }),
        _ => Ok(()),
    }
}

/// The first group that matches a name is the parameter's. Of the others, those with two dimensions are in the last
/// group but one, and the rest in the last, which has no decay.
fn assign_groups(optimizer: &Optimizer, parameters: &mut [Parameter]) -> Result<(), PlanError> {
    let count = optimizer.groups.len();
    for parameter in parameters.iter_mut() {
        let own = optimizer.groups.iter().position(|group| group.matches(&parameter.name));
        parameter.group = own.unwrap_or(if parameter.shape.len() == 2 { count } else { count + 1 });
    }
    let is_empty = |index: &usize| parameters.iter().all(|parameter| parameter.group != *index);
    match (0..count).find(is_empty) {
        Some(index) => Err(PlanError::EmptyGroup { patterns: optimizer.groups[index].patterns.clone() }),
        None => Ok(()),
    }
}

fn update_of(optimizer: &Optimizer, steps: u64, leaves: u64, rows: u64) -> Update {
    let own = optimizer.groups.iter().map(|group| Settings {
        factor: group.learning_rate_factor.unwrap_or(1.0),
        weight_decay: group.weight_decay.unwrap_or(optimizer.weight_decay),
    });
    let others = [optimizer.weight_decay, 0.0].map(|weight_decay| Settings { factor: 1.0, weight_decay });
    let number = |value: Option<f64>| value.expect("plan: a checked optimizer has its numbers");
    let rule = match optimizer.kind.as_str() {
        "sgd" => Rule::Sgd {
            momentum: bits(number(optimizer.momentum)),
            nesterov: optimizer.nesterov.unwrap_or(false),
        },
        _ => {
            let (beta1, beta2) = (number(optimizer.beta1), number(optimizer.beta2));
            Rule::Adamw {
                beta1: bits(beta1),
                one_minus_beta1: bits(1.0 - beta1),
                beta2: bits(beta2),
                one_minus_beta2: bits(1.0 - beta2),
                epsilon: bits(number(optimizer.epsilon)),
                corrections: corrections(beta1, beta2, steps),
            }
        }
    };
    Update {
        inverse_leaves: bits(1.0 / leaves as f64),
        inverse_rows: bits(1.0 / rows as f64),
        clip: bits(optimizer.clip.unwrap_or(f64::INFINITY)),
        clip_epsilon: CLIP_EPSILON.to_bits(),
        rule,
        groups: own.chain(others).map(|group| group_steps(optimizer, group, steps)).collect(),
    }
}
