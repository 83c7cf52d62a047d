//! Derives the plan of a run: GPT-2 of any size, forward and backward, as a list of operations.
//!
//! Source: docs/spec/plan.md. Same config and same data give the same plan, byte for byte: what is not f32
//! arithmetic of the profile is computed here in f64 with add, mul, div and sqrt alone, whose results IEEE
//! 754 fixes.

use crate::layers::Builder;
use crate::schedule::step_constants;
use schemas::config::{Config, Optimizer};
use schemas::digest::Checksum;
use schemas::plan::{DataOrder, Dimensions, ELEMENTS_MAX, PLAN_STEPS_MAX, Plan, Update};

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
    let (parameters, tensors, operations) =
        Builder::new(dimensions, bits(config.model.layer_norm_epsilon)).build();
    let plan = Plan {
        profile: config.profile.clone(),
        config: config.digest(),
        dimensions,
        parameters,
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
    Dimensions {
        batch: config.data.sequences,
        time: config.data.length,
        channels: config.model.n_embd,
        vocabulary: config.model.vocab_size,
        layers: config.model.n_layer,
        heads: config.model.n_head,
        positions: config.model.n_positions,
        inner: config.model.inner(),
    }
}

/// The largest tensor of each kind, and the parameters together, in numbers that cannot overflow.
fn check_sizes(d: &Dimensions) -> Result<(), PlanError> {
    let wide = |n: u64| u128::from(n);
    let (n, c) = (wide(d.batch) * wide(d.time), wide(d.channels));
    let layer = 4 * c * c + 2 * c * wide(d.inner) + 10 * c + wide(d.inner);
    let all = (wide(d.vocabulary) + wide(d.positions)) * c + wide(d.layers) * layer;
    let sizes = [
        ("logits", n * wide(d.vocabulary)),
        ("qkv", n * 3 * c),
        ("mlp", n * wide(d.inner)),
        ("attention.max", n * wide(d.heads)),
        ("all parameters", all),
    ];
    match sizes.into_iter().find(|(_, elements)| *elements > wide(ELEMENTS_MAX)) {
        Some((name, found)) => Err(PlanError::TooLarge { name: name.into(), found }),
        None => Ok(()),
    }
}

fn update_of(optimizer: &Optimizer, steps: u64, leaves: u64, rows: u64) -> Update {
    Update {
        inverse_leaves: bits(1.0 / leaves as f64),
        inverse_rows: bits(1.0 / rows as f64),
        clip: bits(optimizer.clip.unwrap_or(f64::INFINITY)),
        clip_epsilon: CLIP_EPSILON.to_bits(),
        beta1: bits(optimizer.beta1),
        one_minus_beta1: bits(1.0 - optimizer.beta1),
        beta2: bits(optimizer.beta2),
        one_minus_beta2: bits(1.0 - optimizer.beta2),
        epsilon: bits(optimizer.epsilon),
        steps: step_constants(optimizer, steps),
    }
}
