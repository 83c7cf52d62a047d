//! Deterministic CBOR (RFC 8949 section 4.2.1): one value, one encoding.
//!
//! [`decode`] accepts exactly the bytes that [`encode`] would write. It checks the length first and then reads by
//! itself, item by item, under limits on depth and counts: a longer-than-needed integer, an indefinite length, keys
//! out of order or twice, and trailing bytes are refused where they stand. The same reader goes through a bundle that
//! is in no memory ([`crate::layout`]).

pub(crate) mod reader;

use self::reader::Reader;
use crate::source::{Place, SourceError};
use minicbor::Encoder;
use minicbor::data::Int;
use std::cmp::Ordering;

/// Deepest nesting of arrays, maps and tags that is read. The deepest object here (a bundle) needs 6.
pub const DEPTH_MAX: usize = 12;

/// Most items in one input. An item in memory is some thirty times as large as its smallest encoding, so a limit on
/// bytes alone would let a large input of tiny items ask for far more memory than it has bytes. The largest honest
/// object, a plan of 2^15 operations, has well under two million.
pub const ITEMS_MAX: usize = 1 << 22;

/// One CBOR data item of the subset in use: no floats (their bits are carried as integers), no `undefined`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Major type 0.
    Uint(u64),
    /// Major type 1; the value is `-1 - n`.
    Nint(u64),
    /// Major type 2.
    Bytes(Vec<u8>),
    /// Major type 3.
    Text(String),
    /// Major type 4.
    Array(Vec<Value>),
    /// Major type 5, in any order here; written in order of the encoded keys.
    Map(Vec<(Value, Value)>),
    /// Major type 6.
    Tag(u64, Box<Value>),
    /// `true` or `false`.
    Bool(bool),
    /// `null`.
    Null,
}

impl Value {
    /// The name of the item's type, for error messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Value::Uint(_) => "unsigned integer",
            Value::Nint(_) => "negative integer",
            Value::Bytes(_) => "byte string",
            Value::Text(_) => "text string",
            Value::Array(_) => "array",
            Value::Map(_) => "map",
            Value::Tag(..) => "tag",
            Value::Bool(_) => "bool",
            Value::Null => "null",
        }
    }

    /// A map with text keys.
    pub fn map<const N: usize>(fields: [(&str, Value); N]) -> Value {
        Value::Map(fields.into_iter().map(|(name, value)| (Value::Text(name.to_owned()), value)).collect())
    }

    /// A byte string.
    pub fn bytes(bytes: impl AsRef<[u8]>) -> Value {
        Value::Bytes(bytes.as_ref().to_vec())
    }

    /// A text string.
    pub fn text(text: impl Into<String>) -> Value {
        Value::Text(text.into())
    }
}

/// Why some bytes are not the deterministic encoding of a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CborError {
    /// The input is longer than its kind of object may be.
    #[error("{found} bytes, expected at most {max}")]
    TooLong {
        /// Bytes found.
        found: usize,
        /// Bytes allowed.
        max: usize,
    },
    /// Not well-formed CBOR, or cut short.
    #[error("not well-formed CBOR at byte {offset}: {reason}")]
    Malformed {
        /// Where.
        offset: usize,
        /// What the reader said.
        reason: String,
    },
    /// Well-formed, but not the one encoding that is accepted.
    #[error("not deterministic CBOR: differs from the one accepted encoding at byte {offset}")]
    NotDeterministic {
        /// The first byte that differs.
        offset: usize,
    },
    /// A type outside the subset in use.
    #[error("CBOR type {found} at byte {offset} is not used here")]
    Unsupported {
        /// Where.
        offset: usize,
        /// Which type.
        found: String,
    },
    /// More items than are read, of a whole object [`ITEMS_MAX`].
    #[error("more than {max} items at byte {offset}")]
    TooMany {
        /// Where.
        offset: usize,
        /// Items allowed.
        max: usize,
    },
    /// Nested deeper than [`DEPTH_MAX`].
    #[error("nested deeper than {max} levels at byte {offset}")]
    TooDeep {
        /// Where.
        offset: usize,
        /// Levels allowed.
        max: usize,
    },
    /// The bytes could not be had.
    #[error(transparent)]
    Source(#[from] SourceError),
}

/// Writes the one encoding of `value`.
///
/// Panics if a map has one key twice: that is a mistake of the caller, never of an input.
pub fn encode(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    assert!(write(value, &mut out), "cbor: one map key written twice");
    out
}

/// What an array of `count` items begins with.
pub(crate) fn array_head(count: u64) -> Vec<u8> {
    let mut out = Vec::new();
    Encoder::new(&mut out).array(count).expect("cbor: writing to memory cannot fail");
    out
}

/// False if a map has one key twice; what is written then is of no account.
fn write(value: &Value, out: &mut Vec<u8>) -> bool {
    let infallible = "cbor: writing to memory cannot fail";
    match value {
        Value::Uint(n) => drop(Encoder::new(&mut *out).u64(*n).expect(infallible)),
        Value::Nint(n) => {
            let int = Int::try_from(-1 - i128::from(*n)).expect("cbor: -1-u64 is a CBOR integer");
            Encoder::new(&mut *out).int(int).expect(infallible);
        }
        Value::Bytes(bytes) => drop(Encoder::new(&mut *out).bytes(bytes).expect(infallible)),
        Value::Text(text) => drop(Encoder::new(&mut *out).str(text).expect(infallible)),
        Value::Array(items) => {
            Encoder::new(&mut *out).array(items.len() as u64).expect(infallible);
            return items.iter().all(|item| write(item, out));
        }
        Value::Map(pairs) => {
            Encoder::new(&mut *out).map(pairs.len() as u64).expect(infallible);
            return write_pairs(pairs, out);
        }
        Value::Tag(tag, inner) => {
            Encoder::new(&mut *out).tag(minicbor::data::Tag::new(*tag)).expect(infallible);
            return write(inner, out);
        }
        Value::Bool(b) => drop(Encoder::new(&mut *out).bool(*b).expect(infallible)),
        Value::Null => drop(Encoder::new(&mut *out).null().expect(infallible)),
    }
    true
}

/// Writes pairs in order of their encoded keys; false if a key stands there twice, here or further in.
fn write_pairs(pairs: &[(Value, Value)], out: &mut Vec<u8>) -> bool {
    // As they come, first: what was read is in order already, and sorting takes a copy of every pair.
    let start = out.len();
    let mut sorted = true;
    let mut bounds: Vec<(usize, usize, usize)> = Vec::with_capacity(pairs.len());
    for (key, item) in pairs {
        let first = out.len();
        if !write(key, out) {
            return false;
        }
        let middle = out.len();
        if !write(item, out) {
            return false;
        }
        if let Some((before, before_end, _)) = bounds.last() {
            match out[*before..*before_end].cmp(&out[first..middle]) {
                Ordering::Less => {}
                Ordering::Equal => return false,
                Ordering::Greater => sorted = false,
            }
        }
        bounds.push((first, middle, out.len()));
    }
    if sorted {
        return true;
    }
    let unsorted = out.split_off(start);
    let part = |from: usize, to: usize| &unsorted[from - start..to - start];
    bounds.sort_by(|a, b| part(a.0, a.1).cmp(part(b.0, b.1)));
    bounds.iter().for_each(|(first, _, end)| out.extend_from_slice(part(*first, *end)));
    bounds.windows(2).all(|pair| part(pair[0].0, pair[0].1) != part(pair[1].0, pair[1].1))
}

/// Reads the one encoding of a value; anything else is an error. `bytes_max` is checked before any reading, and all of
/// the input is read once before anything is kept of it.
pub fn decode(bytes: &[u8], bytes_max: usize) -> Result<Value, CborError> {
    if bytes.len() > bytes_max {
        return Err(CborError::TooLong { found: bytes.len(), max: bytes_max });
    }
    decode_small(bytes, ITEMS_MAX)
}

/// The same, of at most `items_max` items.
pub(crate) fn decode_small(bytes: &[u8], items_max: usize) -> Result<Value, CborError> {
    let whole = Place::whole(&bytes);
    Reader::scan(&bytes, whole, items_max)?;
    Reader::new(&bytes, whole).value()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(hex_bytes: &str) -> Result<Value, CborError> {
        decode(&hex::decode(hex_bytes).unwrap(), 1000)
    }

    #[test]
    fn every_type_in_use_survives_a_round_trip() {
        let value = Value::Tag(
            18,
            Box::new(Value::Array(vec![
                Value::Uint(0),
                Value::Uint(u64::MAX),
                Value::Nint(7),
                Value::Nint(u64::MAX),
                Value::bytes([0, 255]),
                Value::text("tally é"),
                Value::map([("zz", Value::Bool(true)), ("a", Value::Null), ("b", Value::Map(vec![]))]),
            ])),
        );
        let bytes = encode(&value);
        let again = decode(&bytes, bytes.len()).unwrap();
        assert_eq!(encode(&again), bytes);
        assert_eq!(
            decode(&bytes, bytes.len() - 1),
            Err(CborError::TooLong { found: bytes.len(), max: bytes.len() - 1 })
        );
    }

    #[test]
    fn pairs_are_written_in_order_of_their_keys_however_they_come() {
        let pairs = [
            (Value::Uint(24), Value::text("long")),
            (Value::text("b"), Value::Map(vec![])),
            (Value::Nint(0), Value::Null),
        ];
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let inner = Value::Map(order.iter().map(|at| pairs[*at].clone()).collect());
            let outer = Value::Map(vec![(Value::text("z"), inner), (Value::Uint(0), Value::Bool(true))]);
            assert_eq!(hex::encode(encode(&outer)), "a200f5617aa31818646c6f6e6720f66162a0", "{order:?}");
        }
    }

    #[test]
    fn a_second_encoding_of_a_value_is_rejected() {
        for (what, bytes) in [
            ("1 in two bytes", "1801"),
            ("1 in three bytes", "190001"),
            ("-1 in two bytes", "3800"),
            ("empty text with a long length", "7800"),
            ("keys out of order", "a2616201616101"),
            ("a longer key before a shorter one", "a262616101616201"),
            ("trailing byte", "0000"),
            ("long tag number", "d81200"),
        ] {
            assert!(
                matches!(check(bytes), Err(CborError::NotDeterministic { .. })),
                "{what}: {:?}",
                check(bytes)
            );
        }
        // Of several such places the first is told.
        for (bytes, first) in [("8318011802190003", 1), ("a2616201616100", 2), ("a261621801616100", 2)] {
            assert_eq!(check(bytes), Err(CborError::NotDeterministic { offset: first }), "{bytes}");
        }
        assert!(matches!(check("a2616101616102"), Err(CborError::NotDeterministic { .. })), "repeated key");
        let apart = check("a3616101616201616102");
        assert!(matches!(apart, Err(CborError::NotDeterministic { .. })), "a key repeated out of order");
        // A repeated key inside a map key must not reach the encoder's assert.
        assert!(matches!(
            check("a1a200010001" /* {{0:1,0:1}: ...} cut short */),
            Err(CborError::Malformed { .. })
        ));
        assert!(matches!(check("a1a20001000100"), Err(CborError::NotDeterministic { .. })));
    }

    #[test]
    fn malformed_and_hostile_input_is_an_error() {
        for bytes in [
            "",
            "18",
            "41",
            "61ff",
            "9f00ff",
            "bf00ff",
            "5f4100ff",
            "9bffffffffffffffff",
            "ba7fffffff00",
            "f6f6ff",
        ] {
            assert!(check(bytes).is_err(), "{bytes}");
        }
        for float in ["f93c00", "fa3f800000", "fb3ff0000000000000", "f7"] {
            assert!(
                matches!(check(float), Err(CborError::Unsupported { .. } | CborError::Malformed { .. })),
                "{float}"
            );
        }
        let deep = "81".repeat(DEPTH_MAX + 1) + "00";
        assert!(matches!(check(&deep), Err(CborError::TooDeep { .. })));
        let bearable = "81".repeat(DEPTH_MAX) + "00";
        assert!(check(&bearable).is_ok());
    }

    #[test]
    fn a_flood_of_tiny_items_is_refused_before_it_fills_memory() {
        let mut flood = vec![0x9a];
        flood.extend_from_slice(&(ITEMS_MAX as u32).to_be_bytes());
        flood.resize(5 + ITEMS_MAX, 0);
        let refused = Err(CborError::TooMany { offset: 4 + ITEMS_MAX, max: ITEMS_MAX });
        assert_eq!(decode(&flood, flood.len()), refused);
        flood.truncate(4 + ITEMS_MAX);
        flood[1..5].copy_from_slice(&(ITEMS_MAX as u32 - 1).to_be_bytes());
        assert!(decode(&flood, flood.len()).is_ok());
    }

    #[test]
    fn every_truncation_and_every_flipped_bit_is_told_apart() {
        let value = Value::map([
            ("run", Value::bytes([1; 40])),
            ("steps", Value::Array(vec![Value::Uint(0), Value::Uint(300)])),
        ]);
        let bytes = encode(&value);
        for end in 0..bytes.len() {
            assert!(decode(&bytes[..end], 1000).is_err(), "cut at {end}");
        }
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(
                decode(&flipped, 1000).ok().as_ref() != Some(&decode(&bytes, 1000).unwrap()),
                "bit {bit}"
            );
        }
    }
}
