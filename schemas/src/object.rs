//! What every object has in common: a stem, a size limit, an encoding, and field-by-field reading.

use crate::cbor::{self, CborError, Value};
use std::collections::BTreeMap;

/// Why some bytes are not an object.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ObjectError {
    /// Not deterministic CBOR within the limit.
    #[error("{object}: {source}")]
    Cbor {
        /// Which object was expected.
        object: &'static str,
        /// What is wrong with the bytes.
        source: CborError,
    },
    /// A field that must be there is not.
    #[error("{object}: field {field:?} is missing")]
    Missing {
        /// Which object.
        object: &'static str,
        /// Which field.
        field: &'static str,
    },
    /// A field that must not be there is.
    #[error("{object}: unknown field {field:?}")]
    Unknown {
        /// Which object.
        object: &'static str,
        /// Which field.
        field: String,
    },
    /// A value of the wrong type, length or range.
    #[error("{object}: {}expected {expected}, found {found}", in_field(field))]
    Field {
        /// Which object.
        object: &'static str,
        /// Which field.
        field: String,
        /// What was expected.
        expected: String,
        /// What was found.
        found: String,
    },
}

/// Which field an error is of, unless it is of the object itself.
fn in_field(field: &str) -> String {
    if field.is_empty() { String::new() } else { format!("field {field:?}: ") }
}

/// An object with exactly one encoding.
pub trait Object: Sized {
    /// The stem: names the object in messages, files and content types.
    const STEM: &'static str;
    /// Longest encoding accepted, in bytes; checked before anything is read.
    const BYTES_MAX: usize;

    /// The object as a CBOR value.
    fn to_value(&self) -> Value;

    /// The object from a CBOR value; every rule of the specification page is checked here, or else, for objects that
    /// can be large, in [`Object::decode`]. Each calls the other: an object has one of them.
    fn from_value(value: Value) -> Result<Self, ObjectError> {
        Self::decode(&cbor::encode(&value))
    }

    /// The one encoding.
    fn encode(&self) -> Vec<u8> {
        cbor::encode(&self.to_value())
    }

    /// Reads the one encoding.
    fn decode(bytes: &[u8]) -> Result<Self, ObjectError> {
        let value = cbor::decode(bytes, Self::BYTES_MAX)
            .map_err(|source| ObjectError::Cbor { object: Self::STEM, source })?;
        Self::from_value(value)
    }
}

/// The fields of a map, taken one by one; what is left at the end is an error.
pub struct Fields {
    object: &'static str,
    fields: BTreeMap<String, Value>,
}

impl Fields {
    /// Opens a map with text keys.
    pub fn open(object: &'static str, value: Value) -> Result<Fields, ObjectError> {
        let wrong = |found: &str| ObjectError::Field {
            object,
            field: String::new(),
            expected: "a map with text keys".into(),
            found: found.into(),
        };
        let Value::Map(pairs) = value else { return Err(wrong(value.kind())) };
        let mut fields = BTreeMap::new();
        for (key, item) in pairs {
            let Value::Text(name) = key else { return Err(wrong(key.kind())) };
            fields.insert(name, item);
        }
        Ok(Fields { object, fields })
    }

    /// Fields that were read one by one.
    pub(crate) fn of(object: &'static str, fields: BTreeMap<String, Value>) -> Fields {
        Fields { object, fields }
    }

    /// Names the items of an array, so that it is read like a map: for objects of which there are many, where names
    /// would be a good part of the bytes. As many names as items.
    pub fn named(object: &'static str, names: &[&str], items: Vec<Value>) -> Fields {
        assert_eq!(names.len(), items.len(), "object: a name for each item");
        Fields { object, fields: names.iter().map(|name| (*name).to_owned()).zip(items).collect() }
    }

    /// A wrong value of `field`.
    pub fn wrong(&self, field: &str, expected: impl Into<String>, found: impl Into<String>) -> ObjectError {
        ObjectError::Field {
            object: self.object,
            field: field.into(),
            expected: expected.into(),
            found: found.into(),
        }
    }

    /// Takes a field that must be there.
    pub fn take(&mut self, field: &'static str) -> Result<Value, ObjectError> {
        self.fields.remove(field).ok_or(ObjectError::Missing { object: self.object, field })
    }

    /// Takes a field that may be absent (absence, never `null`, says so: one value, one encoding).
    pub fn take_optional(&mut self, field: &'static str) -> Option<Value> {
        self.fields.remove(field)
    }

    /// Takes an unsigned integer of at most `max`.
    pub fn uint(&mut self, field: &'static str, max: u64) -> Result<u64, ObjectError> {
        let value = self.take(field)?;
        self.as_uint(field, value, max)
    }

    /// Takes an unsigned integer of at most `max`, if there is one.
    pub fn uint_optional(&mut self, field: &'static str, max: u64) -> Result<Option<u64>, ObjectError> {
        self.take_optional(field).map(|value| self.as_uint(field, value, max)).transpose()
    }

    /// Takes the bits of an f32.
    pub fn bits(&mut self, field: &'static str) -> Result<u32, ObjectError> {
        Ok(self.uint(field, u32::MAX.into())? as u32)
    }

    /// Takes a truth value.
    pub fn truth(&mut self, field: &'static str) -> Result<bool, ObjectError> {
        match self.take(field)? {
            Value::Bool(truth) => Ok(truth),
            other => Err(self.wrong(field, "a bool", other.kind())),
        }
    }

    /// Takes a text of at most `chars_max` characters without control characters.
    pub fn text(&mut self, field: &'static str, chars_max: usize) -> Result<String, ObjectError> {
        let value = self.take(field)?;
        self.as_text(field, value, chars_max)
    }

    /// Takes a byte string of exactly `N` bytes.
    pub fn bytes<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], ObjectError> {
        let value = self.take(field)?;
        self.as_bytes(field, value)
    }

    /// Takes a byte string of any length.
    pub fn blob(&mut self, field: &'static str) -> Result<Vec<u8>, ObjectError> {
        match self.take(field)? {
            Value::Bytes(bytes) => Ok(bytes),
            other => Err(self.wrong(field, "a byte string", other.kind())),
        }
    }

    /// Takes a byte string that is a row of items of `N` bytes, with a count in `counts`.
    pub fn row<const N: usize>(
        &mut self,
        field: &'static str,
        counts: std::ops::RangeInclusive<usize>,
    ) -> Result<Vec<[u8; N]>, ObjectError> {
        let bytes = self.blob(field)?;
        let (items, rest) = bytes.as_chunks::<N>();
        if !rest.is_empty() || !counts.contains(&items.len()) {
            let expected = format!("{}..={} items of {N} bytes", counts.start(), counts.end());
            return Err(self.wrong(field, expected, format!("{} bytes", bytes.len())));
        }
        Ok(items.to_vec())
    }

    /// Takes an array of at most `count_max` items.
    pub fn array(&mut self, field: &'static str, count_max: usize) -> Result<Vec<Value>, ObjectError> {
        let value = self.take(field)?;
        self.as_array(field, value, count_max)
    }

    /// Takes a step range `[first, end)`: two integers, first < end.
    pub fn steps(&mut self, field: &'static str) -> Result<crate::run::Steps, ObjectError> {
        let items = self.array(field, 2)?;
        let mut numbers = Vec::new();
        for item in items {
            numbers.push(self.as_uint(field, item, crate::run::STEPS_MAX)?);
        }
        match numbers[..] {
            [first, end] if first < end => Ok(crate::run::Steps { first, end }),
            _ => Err(self.wrong(field, "[first, end] with first < end", format!("{numbers:?}"))),
        }
    }

    /// Reads `value` as an unsigned integer of at most `max`.
    pub fn as_uint(&self, field: &str, value: Value, max: u64) -> Result<u64, ObjectError> {
        match value {
            Value::Uint(n) if n <= max => Ok(n),
            Value::Uint(n) => Err(self.wrong(field, format!("at most {max}"), n.to_string())),
            other => Err(self.wrong(field, "an unsigned integer", other.kind())),
        }
    }

    /// Reads `value` as a text of at most `chars_max` characters without control characters.
    pub fn as_text(&self, field: &str, value: Value, chars_max: usize) -> Result<String, ObjectError> {
        match value {
            Value::Text(text) if text.chars().count() > chars_max => Err(self.wrong(
                field,
                format!("at most {chars_max} characters"),
                text.chars().count().to_string(),
            )),
            Value::Text(text) if text.chars().any(char::is_control) => {
                Err(self.wrong(field, "no control characters", format!("{text:?}")))
            }
            Value::Text(text) => Ok(text),
            other => Err(self.wrong(field, "a text", other.kind())),
        }
    }

    /// Reads `value` as exactly `N` bytes.
    pub fn as_bytes<const N: usize>(&self, field: &str, value: Value) -> Result<[u8; N], ObjectError> {
        match value {
            Value::Bytes(bytes) => <[u8; N]>::try_from(&bytes[..])
                .map_err(|_| self.wrong(field, format!("{N} bytes"), format!("{} bytes", bytes.len()))),
            other => Err(self.wrong(field, format!("a byte string of {N} bytes"), other.kind())),
        }
    }

    /// Reads `value` as an array of at most `count_max` items.
    pub fn as_array(&self, field: &str, value: Value, count_max: usize) -> Result<Vec<Value>, ObjectError> {
        match value {
            Value::Array(items) if items.len() <= count_max => Ok(items),
            Value::Array(items) => {
                Err(self.wrong(field, format!("at most {count_max} items"), items.len().to_string()))
            }
            other => Err(self.wrong(field, "an array", other.kind())),
        }
    }

    /// Ends the reading: no field may be left.
    pub fn close(self) -> Result<(), ObjectError> {
        match self.fields.into_keys().next() {
            None => Ok(()),
            Some(field) => {
                Err(ObjectError::Unknown { object: self.object, field: field.chars().take(80).collect() })
            }
        }
    }
}
