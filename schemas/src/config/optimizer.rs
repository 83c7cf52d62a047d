//! The optimizer, its schedule and its groups of parameters.

use super::ConfigError;
use super::check::{ensure, number, one_of, within};
use serde::Deserialize;

/// Most groups of a config; the plan adds two of its own.
pub const GROUPS_MAX: usize = 14;
/// Most patterns of a group.
pub const PATTERNS_MAX: usize = 16;
/// Longest pattern.
pub const PATTERN_CHARS_MAX: usize = 80;

/// AdamW or SGD, clipping by global norm, and a schedule.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Optimizer {
    /// `adamw` or `sgd`.
    pub kind: String,
    /// Highest learning rate.
    pub learning_rate: f64,
    /// AdamW: decay of the first moment.
    pub beta1: Option<f64>,
    /// AdamW: decay of the second moment.
    pub beta2: Option<f64>,
    /// AdamW: added to the root of the second moment.
    pub epsilon: Option<f64>,
    /// SGD: decay of the velocity.
    pub momentum: Option<f64>,
    /// SGD: whether the step looks ahead; false if absent.
    pub nesterov: Option<bool>,
    /// Weight decay of tensors with two dimensions that are in no group: decoupled for AdamW, added to the gradient
    /// for SGD.
    pub weight_decay: f64,
    /// Largest global norm; no clipping if absent.
    pub clip: Option<f64>,
    /// `constant`, `linear` or `cosine`.
    pub schedule: String,
    /// Steps over which the rate rises to `learning_rate`: at step s < w it is `(s + 1) / w` of it.
    pub warmup_steps: u64,
    /// Fraction of `learning_rate` that the schedule ends at; ignored by `constant`.
    pub final_fraction: f64,
    /// Parameters with settings of their own; the first group that matches a name is the parameter's.
    #[serde(default)]
    pub groups: Vec<Group>,
}

/// Parameters with settings of their own.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// Names; `*` stands for any run of characters, also of none.
    #[serde(rename = "match")]
    pub patterns: Vec<String>,
    /// Multiplies the learning rate; 1 if absent.
    pub learning_rate_factor: Option<f64>,
    /// Weight decay of all its tensors; the optimizer's if absent.
    pub weight_decay: Option<f64>,
}

impl Group {
    /// Whether a parameter of this name is in the group.
    pub fn matches(&self, name: &str) -> bool {
        self.patterns.iter().any(|pattern| matches(pattern, name))
    }
}

/// Whether `pattern` matches the whole of `name`: the parts between stars are found from the left, the last at the
/// end.
fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or("");
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        match rest.split_once(part) {
            Some((_, after)) => rest = after,
            None => return false,
        }
    }
    rest.ends_with(last)
}

impl Optimizer {
    pub(super) fn check(&self, steps: u64) -> Result<(), ConfigError> {
        one_of("optimizer.kind", &["adamw", "sgd"], &self.kind)?;
        one_of("optimizer.schedule", &["constant", "linear", "cosine"], &self.schedule)?;
        number("optimizer.learning_rate", self.learning_rate, 0.0, 100.0)?;
        let adamw = self.kind == "adamw";
        own("optimizer.beta1", self.beta1, adamw, "adamw", 0.0, 0.999_999)?;
        own("optimizer.beta2", self.beta2, adamw, "adamw", 0.0, 0.999_999)?;
        own("optimizer.epsilon", self.epsilon, adamw, "adamw", 1e-30, 1.0)?;
        own("optimizer.momentum", self.momentum, !adamw, "sgd", 0.0, 0.999_999)?;
        if let (true, Some(nesterov)) = (adamw, self.nesterov) {
            ensure("optimizer.nesterov", false, "the key only where kind is sgd", &nesterov.to_string())?;
        }
        number("optimizer.weight_decay", self.weight_decay, 0.0, 100.0)?;
        number("optimizer.clip", self.clip.unwrap_or(1.0), 1e-12, 1e12)?;
        within("optimizer.warmup_steps", self.warmup_steps, 0, steps)?;
        number("optimizer.final_fraction", self.final_fraction, 0.0, 1.0)?;
        let count = self.groups.len();
        ensure(
            "optimizer.groups",
            count <= GROUPS_MAX,
            &format!("at most {GROUPS_MAX}"),
            &count.to_string(),
        )?;
        self.groups.iter().try_for_each(Group::check)
    }
}

impl Group {
    fn check(&self) -> Result<(), ConfigError> {
        let count = self.patterns.len();
        let expected = format!("1 to {PATTERNS_MAX} patterns");
        ensure("optimizer.groups.match", (1..=PATTERNS_MAX).contains(&count), &expected, &count.to_string())?;
        for pattern in &self.patterns {
            let plain = (1..=PATTERN_CHARS_MAX).contains(&pattern.len())
                && pattern.chars().all(|c| c.is_ascii_graphic());
            let expected = format!("patterns of 1 to {PATTERN_CHARS_MAX} visible ASCII characters");
            ensure("optimizer.groups.match", plain, &expected, pattern)?;
        }
        let factor = self.learning_rate_factor.unwrap_or(1.0);
        number("optimizer.groups.learning_rate_factor", factor, 0.0, 1e6)?;
        number("optimizer.groups.weight_decay", self.weight_decay.unwrap_or(0.0), 0.0, 100.0)
    }
}

/// A number that one kind of optimizer needs and no other has.
fn own(
    field: &'static str,
    value: Option<f64>,
    needed: bool,
    kind: &str,
    min: f64,
    max: f64,
) -> Result<(), ConfigError> {
    match (value, needed) {
        (Some(value), true) => number(field, value, min, max),
        (None, true) => ensure(field, false, &format!("{min} to {max} ({kind} needs it)"), "nothing"),
        (Some(value), false) => {
            ensure(field, false, &format!("the key only where kind is {kind}"), &value.to_string())
        }
        (None, false) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn a_star_stands_for_any_run_of_characters() {
        for (pattern, name) in [
            ("a.b", "a.b"),
            ("*", ""),
            ("*", "abc"),
            ("a*", "a"),
            ("*.bias", "h.0.bias"),
            ("a*b*c", "aXbYbZc"),
        ] {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in
            [("a.b", "a.bc"), ("a", ""), ("*.bias", "h.bias2"), ("a*ba", "aba2"), ("ab*ba", "aba")]
        {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
    }
}
