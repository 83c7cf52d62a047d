//! The header of a safetensors file: read entry by entry, and, of a snapshot, written and held to what would be
//! written.

use super::WrongSnapshot;
use crate::state::words_of;
use schemas::plan::Parameter;
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use std::fmt::{self, Write as _};
use std::fs::File;
use std::io::Read as _;

/// Longest header read, in bytes: twenty times that of the largest GPT-2.
const HEADER_BYTES_MAX: u64 = 8 << 20;
/// Bytes of the header length before the header.
const LENGTH_BYTES: u64 = 8;
/// The key of the metadata in a header.
const METADATA: &str = "__metadata__";

/// What a header says of one tensor.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Such as `F32`.
    pub dtype: String,
    /// Its dimensions.
    pub shape: Vec<u64>,
    /// First byte and byte after the last, from the end of the header.
    pub data_offsets: [u64; 2],
}

/// A header's entries in file order, a name met twice included: a map would keep the last and hide the first.
pub struct Header {
    /// The pairs under `__metadata__`.
    pub metadata: Vec<(String, String)>,
    /// Names and places of the tensors.
    pub tensors: Vec<(String, Entry)>,
}

/// The pairs of a JSON object, in order.
struct Pairs<T>(Vec<(String, T)>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Pairs<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect<T>(std::marker::PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Collect<T> {
            type Value = Pairs<T>;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a JSON object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs<T>, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }
        deserializer.deserialize_map(Collect(std::marker::PhantomData))
    }
}

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;
        impl<'de> Visitor<'de> for Collect {
            type Value = Header;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a JSON object of tensors")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Header, A::Error> {
                let mut header = Header { metadata: Vec::new(), tensors: Vec::new() };
                while let Some(name) = map.next_key::<String>()? {
                    if name == METADATA {
                        header.metadata.extend(map.next_value::<Pairs<String>>()?.0);
                    } else {
                        header.tensors.push((name, map.next_value()?));
                    }
                }
                Ok(header)
            }
        }
        deserializer.deserialize_map(Collect)
    }
}

/// Where a file's tensors lie.
pub struct Body {
    /// Their first byte in the file.
    pub start: u64,
    /// Bytes from there to the end of the file.
    pub bytes: u64,
}

/// Reads the header of an open file.
pub fn read(file: &mut File) -> Result<(Header, Body), WrongSnapshot> {
    let file_bytes = file.metadata()?.len();
    let limit = HEADER_BYTES_MAX.min(file_bytes.saturating_sub(LENGTH_BYTES));
    let mut length = [0; LENGTH_BYTES as usize];
    if file_bytes >= LENGTH_BYTES {
        file.read_exact(&mut length)?;
    }
    let header_bytes = u64::from_le_bytes(length);
    if header_bytes == 0 || header_bytes > limit {
        return Err(WrongSnapshot::HeaderLength { limit, found: header_bytes });
    }
    let mut text = vec![0; header_bytes as usize];
    file.read_exact(&mut text)?;
    let start = LENGTH_BYTES + header_bytes;
    Ok((serde_json::from_slice(&text)?, Body { start, bytes: file_bytes - start }))
}

/// Every tensor of a snapshot in file order.
fn tensors(layout: &[Parameter]) -> impl Iterator<Item = (String, &Parameter)> {
    ["", "adamw.m.", "adamw.v."]
        .into_iter()
        .flat_map(move |prefix| layout.iter().map(move |tensor| (format!("{prefix}{}", tensor.name), tensor)))
}

/// The header of a snapshot.
pub fn of_snapshot(layout: &[Parameter], step: u64) -> Vec<u8> {
    build(&format!(r#"{{"format":"pt","step":"{step}"}}"#), tensors(layout))
}

/// The header of a file of parameters alone, as `transformers` writes it.
pub fn of_weights(layout: &[Parameter]) -> Vec<u8> {
    build(r#"{"format":"pt"}"#, layout.iter().map(|tensor| (tensor.name.clone(), tensor)))
}

/// A header, padded with spaces to a multiple of eight bytes as safetensors does.
fn build<'p>(metadata: &str, tensors: impl Iterator<Item = (String, &'p Parameter)>) -> Vec<u8> {
    let text = |name: &str| serde_json::to_string(name).expect("snapshot: a string is JSON");
    let mut json = format!(r#"{{"{METADATA}":{metadata}"#);
    let mut at = 0;
    for (name, tensor) in tensors {
        let end = at + 4 * words_of(tensor);
        let (name, shape) = (text(&name), &tensor.shape);
        let dimensions = shape.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
        write!(json, r#",{name}:{{"dtype":"F32","shape":[{dimensions}],"data_offsets":[{at},{end}]}}"#)
            .expect("snapshot: a string takes every write");
        at = end;
    }
    json.push('}');
    while json.len() % 8 != 0 {
        json.push(' ');
    }
    json.into_bytes()
}

/// The step, if the header says exactly what `of_snapshot` would have written, spaces and order of names aside.
pub fn check(header: Header, layout: &[Parameter]) -> Result<u64, WrongSnapshot> {
    let mut found: Vec<Option<(String, Entry)>> = header.tensors.into_iter().map(Some).collect();
    let by_name: std::collections::HashMap<String, usize> =
        found.iter().enumerate().filter_map(|(i, entry)| Some((entry.as_ref()?.0.clone(), i))).collect();
    let mut at = 0;
    for (name, tensor) in tensors(layout) {
        let place = by_name.get(&name).and_then(|i| found[*i].take());
        let Some((_, entry)) = place else { return Err(WrongSnapshot::Missing(name)) };
        if entry.dtype != "F32" {
            return Err(WrongSnapshot::Dtype { name, found: entry.dtype });
        }
        if entry.shape != tensor.shape {
            return Err(WrongSnapshot::Shape { name, expected: tensor.shape.clone(), found: entry.shape });
        }
        let expected = [at, at + 4 * words_of(tensor) as u64];
        if entry.data_offsets != expected {
            return Err(WrongSnapshot::Place { name, expected, found: entry.data_offsets });
        }
        at = expected[1];
    }
    if let Some((name, _)) = found.into_iter().flatten().next() {
        return Err(WrongSnapshot::Extra(name));
    }
    let (mut step, mut format) = (None, None);
    for (key, value) in header.metadata {
        match key.as_str() {
            "step" if step.is_none() => step = Some(value),
            "format" if format.is_none() => format = Some(value),
            _ => return Err(WrongSnapshot::Extra(format!("{METADATA}.{key}"))),
        }
    }
    if format.as_deref() != Some("pt") {
        return Err(WrongSnapshot::Format(format));
    }
    // Only the text that would be written: "007" and "+7" are other files.
    let number = step.as_ref().and_then(|text| text.parse::<u64>().ok());
    number.filter(|number| Some(number.to_string()) == step).ok_or(WrongSnapshot::Step(step))
}
