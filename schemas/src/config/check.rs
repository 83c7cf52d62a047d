//! Ranges of values: each refusal names the key, what it expected and what it found.

use super::ConfigError;

pub(super) fn ensure(
    field: &'static str,
    holds: bool,
    expected: &str,
    found: &str,
) -> Result<(), ConfigError> {
    if holds {
        return Ok(());
    }
    Err(ConfigError::Value { field, expected: expected.into(), found: printable(found) })
}

pub(super) fn one_of(field: &'static str, supported: &[&str], found: &str) -> Result<(), ConfigError> {
    ensure(field, supported.contains(&found), &supported.join(" or "), found)
}

pub(super) fn within(field: &'static str, found: u64, min: u64, max: u64) -> Result<(), ConfigError> {
    ensure(field, (min..=max).contains(&found), &format!("{min} to {max}"), &found.to_string())
}

pub(super) fn number(field: &'static str, found: f64, min: f64, max: f64) -> Result<(), ConfigError> {
    // A NaN is in no range.
    ensure(field, min <= found && found <= max, &format!("{min} to {max}"), &found.to_string())
}

/// The start of a text, fit for a message: control characters would reach a terminal with it.
pub(super) fn printable(text: &str) -> String {
    text.chars().take(100).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}
