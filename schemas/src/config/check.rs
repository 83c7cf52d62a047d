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

/// What serde says of a key that has a wrong type or is missing: the key, what it expected and what it found.
pub(super) fn told(key: &str, message: &str) -> String {
    let said = match message.strip_prefix("invalid type: ").or(message.strip_prefix("invalid value: ")) {
        // What was found may hold any text; what was expected is serde's own.
        Some(rest) => match rest.rsplit_once(", expected ") {
            Some((found, expected)) => {
                format!("expected {}, found {}", in_words(expected), printable(found))
            }
            None => printable(rest),
        },
        // A list of the keys that there are is longer than a value need be.
        None => cut(message, 500),
    };
    // The key of the whole file is `.`; an unknown field is named already.
    match key == "." || message.starts_with("unknown field") {
        true => said,
        false => format!("{}: {said}", printable(key)),
    }
}

/// A type as people call it.
fn in_words(expected: &str) -> &str {
    match expected {
        "u64" => "a whole number",
        "f64" => "a number",
        "a boolean" => "true or false",
        "a sequence" => "a list",
        "a map" => "a table",
        other if other.starts_with("struct ") => "a table",
        other => other,
    }
}

/// The start of a text, fit for a message: control characters would reach a terminal with it.
pub(super) fn printable(text: &str) -> String {
    cut(text, 100)
}

fn cut(text: &str, most: usize) -> String {
    text.chars().take(most).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}
