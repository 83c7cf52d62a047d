//! Weights in and out: the parameters of a model as one safetensors file with Hugging Face names
//! (docs/spec/snapshot.md#weights). No moments, no step: training starts from them at step 0.
//!
//! What comes in was written by another program, so names may lack the model's prefix, values may have 16 bits
//! (widened, which is exact), and buffers that hold no weights are passed over. Everything else that is not as the
//! model has it is refused by name: half of a model's weights, or another's, would train into something nobody asked
//! for.

use crate::file::open_file;
use crate::snapshot::header::{self, Entry};
use crate::snapshot::words::{self, Source};
use crate::snapshot::{self, WrongSnapshot};
use crate::state::{spans, words_of};
use schemas::plan::Parameter;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Prefixes of a model's own tensors, which a file may leave out.
const PREFIXES: [&str; 2] = ["transformer.", "model."];
/// The output table; a model whose output is tied to its token table has none of its own.
const HEAD: &str = "lm_head.weight";
/// Token tables, without prefix.
const TABLES: [&str; 2] = ["wte.weight", "embed_tokens.weight"];

/// Why a file is not the weights it should be.
#[derive(Debug, thiserror::Error)]
#[error("{}: {source}", path.display())]
pub struct WeightsError {
    /// Which file.
    pub path: PathBuf,
    /// What is wrong.
    pub source: WrongWeights,
}

/// What is wrong with a file of weights.
#[derive(Debug, thiserror::Error)]
pub enum WrongWeights {
    /// A list of several files.
    #[error("expected one safetensors file, found the index of several; join them into one file first")]
    Sharded,
    /// Not a safetensors file, or tensors that are missing, too many or misshaped.
    #[error(transparent)]
    File(#[from] WrongSnapshot),
    /// A tensor under two names.
    #[error("expected tensor {0:?} once, found it twice (with and without its prefix is twice)")]
    Twice(String),
    /// A tensor with another dtype.
    #[error("tensor {name:?}: expected dtype F32, F16 or BF16, found {found}")]
    Dtype {
        /// Which tensor.
        name: String,
        /// What the header says.
        found: String,
    },
    /// An output table that differs from the token table it is tied to.
    #[error("expected tensor {HEAD:?} equal to {table:?}, to which it is tied in this model, found another")]
    Untied {
        /// The token table.
        table: String,
    },
    /// A NaN or an infinity.
    #[error("tensor {name:?}: expected finite values, found {value} at element {element}")]
    NotFinite {
        /// Which tensor.
        name: String,
        /// Its first such element.
        element: usize,
        /// What it is.
        value: f32,
    },
}

impl From<std::io::Error> for WrongWeights {
    fn from(error: std::io::Error) -> WrongWeights {
        WrongWeights::File(error.into())
    }
}

/// Reads the flat parameters of `layout` from `path`.
pub fn read(path: &Path, layout: &[Parameter]) -> Result<Vec<f32>, WeightsError> {
    read_whole(path, layout).map_err(|source| WeightsError { path: path.to_owned(), source })
}

/// Writes flat parameters to `path`, whole or not at all.
pub fn write(path: &Path, layout: &[Parameter], parameters: &[f32]) -> Result<(), WeightsError> {
    let written = snapshot::replace(path, |file| {
        assert_eq!(parameters.len(), layout.iter().map(words_of).sum::<usize>(), "weights: flat parameters");
        snapshot::write_header(file, &header::of_weights(layout))?;
        Ok(words::write(file, parameters)?)
    });
    written.map_err(|source| WeightsError { path: path.to_owned(), source: source.into() })
}

/// The first NaN or infinity of flat parameters.
pub fn first_not_finite(layout: &[Parameter], flat: &[f32]) -> Option<WrongWeights> {
    let at = flat.iter().position(|value| !value.is_finite())?;
    let (parameter, span) = layout.iter().zip(spans(layout)).find(|(_, span)| span.contains(&at))?;
    let name = parameter.name.clone();
    Some(WrongWeights::NotFinite { name, element: at - span.start, value: flat[at] })
}

fn read_whole(path: &Path, layout: &[Parameter]) -> Result<Vec<f32>, WrongWeights> {
    if path.extension().is_some_and(|ending| ending == "json") {
        return Err(WrongWeights::Sharded);
    }
    let mut file = open_file(path)?;
    let (header, body) = header::read(&mut file)?;
    check_places(&header.tensors, body.bytes)?;
    let mut tensors: BTreeMap<String, Entry> = BTreeMap::new();
    for (name, entry) in header.tensors {
        if tensors.insert(name.clone(), entry).is_some() {
            return Err(WrongWeights::Twice(name));
        }
    }
    // Before the first value is read, so that a wrong file is told at once.
    let mut found = Vec::with_capacity(layout.len());
    for parameter in layout {
        found.push(take(&mut tensors, parameter)?);
    }
    let head = tensors.remove(HEAD);
    if let Some(name) = tensors.into_keys().find(|name| !is_passed_over(name)) {
        return Err(WrongSnapshot::Extra(name).into());
    }
    let source = Source::Read(file);
    let mut flat = Vec::with_capacity(layout.iter().map(words_of).sum());
    for entry in &found {
        widen(&source, body.start, entry, &mut flat)?;
    }
    if let Some(wrong) = first_not_finite(layout, &flat) {
        return Err(wrong);
    }
    if let Some(entry) = head {
        check_tied(&source, body.start, layout, &flat, &entry)?;
    }
    Ok(flat)
}

/// Every byte after the header belongs to one tensor, as the format wants it.
fn check_places(tensors: &[(String, Entry)], bytes: u64) -> Result<(), WrongWeights> {
    let mut places: Vec<&(String, Entry)> = tensors.iter().collect();
    places.sort_by_key(|(_, entry)| entry.data_offsets);
    let mut at = 0;
    for (name, entry) in places {
        let [first, end] = entry.data_offsets;
        let elements =
            entry.shape.iter().try_fold(1_u64, |product, dimension| product.checked_mul(*dimension));
        let expected = width(&entry.dtype).and_then(|width| elements?.checked_mul(width)?.checked_add(at));
        // Of a dtype that is not known here the length cannot be told; if it holds weights it is refused later.
        let expected = if width(&entry.dtype).is_some() { expected.unwrap_or(u64::MAX) } else { end.max(at) };
        if first != at || end != expected {
            let (name, found) = (name.clone(), entry.data_offsets);
            return Err(WrongSnapshot::Place { name, expected: [at, expected], found }.into());
        }
        at = end;
    }
    match at == bytes {
        true => Ok(()),
        false => Err(WrongSnapshot::Length { expected: at, found: bytes }.into()),
    }
}

/// Bytes of an element of the dtypes that weights may have.
fn width(dtype: &str) -> Option<u64> {
    match dtype {
        "F32" => Some(4),
        "F16" | "BF16" => Some(2),
        _ => None,
    }
}

/// A name without a model's prefix, if it has one.
fn short(name: &str) -> Option<&str> {
    PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix))
}

/// The entry of a parameter, under its name with or without prefix, if it is as the model has it.
fn take(tensors: &mut BTreeMap<String, Entry>, parameter: &Parameter) -> Result<Entry, WrongWeights> {
    let name = &parameter.name;
    let (long, short) = (tensors.remove(name), short(name).and_then(|short| tensors.remove(short)));
    let entry = match (long, short) {
        (Some(_), Some(_)) => return Err(WrongWeights::Twice(name.clone())),
        (Some(entry), None) | (None, Some(entry)) => entry,
        (None, None) => return Err(WrongSnapshot::Missing(name.clone()).into()),
    };
    if entry.shape != parameter.shape {
        let (name, expected) = (name.clone(), parameter.shape.clone());
        return Err(WrongSnapshot::Shape { name, expected, found: entry.shape }.into());
    }
    if width(&entry.dtype).is_none() {
        return Err(WrongWeights::Dtype { name: name.clone(), found: entry.dtype });
    }
    Ok(entry)
}

/// Buffers that older versions of `transformers` saved beside the weights: attention masks and rotation frequencies.
fn is_passed_over(name: &str) -> bool {
    let name = short(name).unwrap_or(name);
    let layer = ["h.", "layers."].iter().find_map(|prefix| name.strip_prefix(prefix));
    let Some((number, rest)) = layer.and_then(|rest| rest.split_once('.')) else { return false };
    number.parse::<u32>().is_ok()
        && ["attn.bias", "attn.masked_bias", "self_attn.rotary_emb.inv_freq"].contains(&rest)
}

/// Appends a tensor's values as f32. Every value of F16 and of BF16 is one of F32.
fn widen(source: &Source, start: u64, entry: &Entry, flat: &mut Vec<f32>) -> Result<(), WrongWeights> {
    let [first, end] = entry.data_offsets;
    if entry.dtype == "F32" {
        flat.extend(source.words(start + first, ((end - first) / 4) as usize)?);
        return Ok(());
    }
    let bytes = source.bytes(start + first, (end - first) as usize)?;
    let halves = bytes.as_chunks::<2>().0.iter().map(|half| u16::from_le_bytes(*half));
    match entry.dtype.as_str() {
        "F16" => flat.extend(halves.map(from_f16)),
        _ => flat.extend(halves.map(|half| f32::from_bits(u32::from(half) << 16))),
    }
    Ok(())
}

/// The f32 of an IEEE binary16.
fn from_f16(half: u16) -> f32 {
    let (sign, exponent, fraction) =
        (u32::from(half >> 15) << 31, u32::from(half >> 10 & 31), u32::from(half & 1023));
    let bits = match exponent {
        // A subnormal is a whole number of 2^-24, which f32 holds exactly.
        0 => (fraction as f32 * f32::from_bits(0x3380_0000)).to_bits(),
        31 => 0x7f80_0000 | fraction << 13,
        _ => (exponent + 112) << 23 | fraction << 13,
    };
    f32::from_bits(sign | bits)
}

/// An output table beside tied weights holds the token table's bits, or it is another model.
fn check_tied(
    source: &Source,
    start: u64,
    layout: &[Parameter],
    flat: &[f32],
    entry: &Entry,
) -> Result<(), WrongWeights> {
    let is_table = |name: &str| TABLES.contains(&short(name).unwrap_or(name));
    let Some((table, span)) =
        layout.iter().zip(spans(layout)).find(|(parameter, _)| is_table(&parameter.name))
    else {
        return Err(WrongSnapshot::Extra(HEAD.into()).into());
    };
    let untied = || WrongWeights::Untied { table: table.name.clone() };
    if entry.shape != table.shape || width(&entry.dtype).is_none() {
        return Err(untied());
    }
    let mut own = Vec::with_capacity(span.len());
    widen(source, start, entry, &mut own)?;
    let same = own.iter().zip(&flat[span]).all(|(own, table)| own.to_bits() == table.to_bits());
    if same { Ok(()) } else { Err(untied()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_widens_to_its_value() {
        for half in 0..=u16::MAX {
            let (exponent, fraction) = (i32::from(half >> 10 & 31), f64::from(half & 1023));
            let magnitude = match exponent {
                0 => fraction * 2.0_f64.powi(-24),
                31 if fraction == 0.0 => f64::INFINITY,
                31 => f64::NAN,
                _ => (1024.0 + fraction) * 2.0_f64.powi(exponent - 25),
            };
            let value = if half >> 15 == 1 { -magnitude } else { magnitude };
            let found = from_f16(half);
            assert!(
                value.is_nan() && found.is_nan() || found.to_bits() == (value as f32).to_bits(),
                "{half:#06x}"
            );
        }
    }

    #[test]
    fn only_known_buffers_are_passed_over() {
        for name in [
            "h.0.attn.bias",
            "transformer.h.11.attn.masked_bias",
            "model.layers.3.self_attn.rotary_emb.inv_freq",
        ] {
            assert!(is_passed_over(name), "{name}");
        }
        for name in ["h.x.attn.bias", "h.0.attn.c_attn.bias", "attn.bias", "h.0.attn.bias2", "lm_head.weight"]
        {
            assert!(!is_passed_over(name), "{name}");
        }
    }
}
