//! Snapshots: a training state as one safetensors file (docs/spec/snapshot.md).
//!
//! Tensors stand in the plan's order: parameters by their Hugging Face names, then `adamw.m.<name>`, then
//! `adamw.v.<name>`; the metadata is `format` and `step`. The same state always gives the same bytes. Reading
//! is strict: a file that differs in anything but values from what would be written is rejected.

use crate::state::State;
use schemas::plan::Parameter;
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use std::fmt::{self, Write as _};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

/// Longest header read, in bytes: twenty times that of the largest GPT-2.
const HEADER_BYTES_MAX: u64 = 8 << 20;
/// Bytes of the header length before the header.
const LENGTH_BYTES: u64 = 8;
/// The key of the metadata in a header.
const METADATA: &str = "__metadata__";

/// Why a file is not the snapshot it should be, or was not written.
#[derive(Debug, thiserror::Error)]
#[error("{}: {source}", path.display())]
pub struct SnapshotError {
    /// Which file.
    pub path: PathBuf,
    /// What is wrong.
    pub source: WrongSnapshot,
}

/// What is wrong with a snapshot.
#[derive(Debug, thiserror::Error)]
pub enum WrongSnapshot {
    /// Whole, but not the state that was saved under this name.
    #[error("expected the state {expected:?} that was saved, found {found}")]
    NotTheOneSaved {
        /// The digest noted when it was saved; empty if none is there.
        expected: String,
        /// The digest of what was read.
        found: String,
    },
    /// The system refused.
    #[error("{0}")]
    System(#[from] std::io::Error),
    /// Too short for a header, or the header is longer than the file or the limit.
    #[error("expected a header of at most {limit} bytes, found a length of {found}")]
    HeaderLength {
        /// The smaller of the limit and what the file holds.
        limit: u64,
        /// What the file's first eight bytes say.
        found: u64,
    },
    /// The header is not the JSON of safetensors.
    #[error("expected a safetensors header, found one that does not parse: {0}")]
    Json(#[from] serde_json::Error),
    /// A tensor that must be there is not.
    #[error("expected tensor {0:?}, found none of that name")]
    Missing(String),
    /// A tensor (or header entry) that must not be there is.
    #[error("expected no tensor {0:?}")]
    Extra(String),
    /// A tensor with another dtype.
    #[error("tensor {name:?}: expected dtype F32, found {found}")]
    Dtype {
        /// Which tensor.
        name: String,
        /// What the header says.
        found: String,
    },
    /// A tensor with another shape.
    #[error("tensor {name:?}: expected shape {expected:?}, found {found:?}")]
    Shape {
        /// Which tensor.
        name: String,
        /// The plan's shape.
        expected: Vec<u64>,
        /// The header's shape.
        found: Vec<u64>,
    },
    /// A tensor that lies elsewhere than where it would be written.
    #[error("tensor {name:?}: expected bytes {expected:?}, found {found:?}")]
    Place {
        /// Which tensor.
        name: String,
        /// First byte and byte after the last, from the end of the header.
        expected: [u64; 2],
        /// What the header says.
        found: [u64; 2],
    },
    /// A file cut short, or with something after the last tensor.
    #[error("expected {expected} bytes after the header, found {found}")]
    Length {
        /// What the tensors need.
        expected: u64,
        /// What the file holds.
        found: u64,
    },
    /// No step, or not a number.
    #[error("expected a step number in the metadata, found {0:?}")]
    Step(Option<String>),
}

/// What a header says of one tensor.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: [u64; 2],
}

/// A header's entries in file order, a name met twice included: a map would keep the last and hide the first.
struct Header {
    metadata: Vec<(String, String)>,
    tensors: Vec<(String, Entry)>,
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

/// How many words a parameter holds.
fn words_of(parameter: &Parameter) -> usize {
    parameter.shape.iter().product::<u64>() as usize
}

/// Every tensor of a snapshot in file order.
fn tensors(layout: &[Parameter]) -> impl Iterator<Item = (String, &Parameter)> {
    ["", "adamw.m.", "adamw.v."]
        .into_iter()
        .flat_map(move |prefix| layout.iter().map(move |tensor| (format!("{prefix}{}", tensor.name), tensor)))
}

/// The header of a snapshot, padded with spaces to a multiple of eight bytes as safetensors does.
fn header(layout: &[Parameter], step: u64) -> Vec<u8> {
    let text = |name: &str| serde_json::to_string(name).expect("snapshot: a string is JSON");
    let mut json = format!(r#"{{"{METADATA}":{{"format":"pt","step":"{step}"}}"#);
    let mut at = 0;
    for (name, tensor) in tensors(layout) {
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

/// Writes a state to `path`: to a file beside it, synced, then renamed, so that `path` is whole or absent.
pub fn write(path: &Path, layout: &[Parameter], state: &State) -> Result<(), SnapshotError> {
    write_whole(path, layout, state).map_err(|source| SnapshotError { path: path.to_owned(), source })
}

fn write_whole(path: &Path, layout: &[Parameter], state: &State) -> Result<(), WrongSnapshot> {
    replace(path, |file| write_to(file, layout, state))
}

/// Replaces the file at `path` by what `write` puts into one beside it, once that is durable.
fn replace(
    path: &Path,
    write: impl FnOnce(&mut std::fs::File) -> Result<(), WrongSnapshot>,
) -> Result<(), WrongSnapshot> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".part");
    let beside = PathBuf::from(beside);
    let whole = || {
        let mut file = std::fs::File::create(&beside)?;
        write(&mut file)?;
        file.sync_all()?;
        Ok(std::fs::rename(&beside, path)?)
    };
    let written = whole();
    if written.is_err() {
        // What failed is reported; a left-over part that cannot be removed either would say the same.
        let _ = std::fs::remove_file(&beside);
        return written;
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Ok(std::fs::File::open(folder)?.sync_all()?)
}

fn write_to(file: &mut std::fs::File, layout: &[Parameter], state: &State) -> Result<(), WrongSnapshot> {
    let header = header(layout, state.step);
    let words = layout.iter().map(words_of).sum::<usize>();
    let mut file = std::io::BufWriter::with_capacity(1 << 20, file);
    file.write_all(&(header.len() as u64).to_le_bytes())?;
    file.write_all(&header)?;
    for part in [&state.parameters, &state.first_moment, &state.second_moment] {
        assert_eq!(part.len(), words, "snapshot: a state's buffers hold its layout");
        for word in part {
            file.write_all(&word.to_le_bytes())?;
        }
    }
    Ok(file.flush()?)
}

/// The name of the snapshot before `step`, in a folder of them.
fn file_name(step: u64) -> String {
    format!("step-{step:06}.safetensors")
}

/// Saves the state before its next step into a folder of snapshots, and beside it its digest.
pub fn keep(folder: &Path, layout: &[Parameter], state: &State) -> Result<(), SnapshotError> {
    let path = folder.join(file_name(state.step));
    write(&path, layout, state)?;
    let digest = path.with_extension("digest");
    let text = format!("{}\n", state.digest());
    let write = |file: &mut std::fs::File| Ok(file.write_all(text.as_bytes())?);
    replace(&digest, write).map_err(|source| SnapshotError { path: digest, source })
}

/// Reads the snapshot before `step` from such a folder, if it is whole and the one that was saved: what is damaged
/// and gone on from would give a false prediction, and honest devices would be blamed for it.
pub fn kept(folder: &Path, layout: &[Parameter], step: u64) -> Result<State, SnapshotError> {
    let path = folder.join(file_name(step));
    let state = read(&path, layout)?;
    let noted = std::fs::read_to_string(path.with_extension("digest")).unwrap_or_default();
    let found = state.digest().to_string();
    match noted.trim_end() == found && state.step == step {
        true => Ok(state),
        false => {
            let source = WrongSnapshot::NotTheOneSaved { expected: noted.trim_end().to_owned(), found };
            Err(SnapshotError { path, source })
        }
    }
}

/// The steps that a folder holds snapshots of, ascending; none if it cannot be read.
pub fn saved_steps(folder: &Path) -> Vec<u64> {
    let names = std::fs::read_dir(folder).into_iter().flatten();
    let mut steps: Vec<u64> = names
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter_map(|name| name.strip_prefix("step-")?.strip_suffix(".safetensors")?.parse().ok())
        .collect();
    steps.sort_unstable();
    steps
}

/// Reads the state of `layout` from `path`.
pub fn read(path: &Path, layout: &[Parameter]) -> Result<State, SnapshotError> {
    read_whole(path, layout).map_err(|source| SnapshotError { path: path.to_owned(), source })
}

fn read_whole(path: &Path, layout: &[Parameter]) -> Result<State, WrongSnapshot> {
    let mut file = std::fs::File::open(path)?;
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
    let step = check_header(serde_json::from_slice(&text)?, layout)?;

    let words = layout.iter().map(words_of).sum::<usize>();
    let (expected, found) = (3 * 4 * words as u64, file_bytes - LENGTH_BYTES - header_bytes);
    if expected != found {
        return Err(WrongSnapshot::Length { expected, found });
    }
    let mut file = std::io::BufReader::with_capacity(1 << 20, file);
    let mut part = || read_words(&mut file, words);
    Ok(State { step, parameters: part()?, first_moment: part()?, second_moment: part()? })
}

/// The step, if the header says exactly what `header` would have written, spaces and order of names aside.
fn check_header(header: Header, layout: &[Parameter]) -> Result<u64, WrongSnapshot> {
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
    let mut step = None;
    for (key, value) in header.metadata {
        match key.as_str() {
            "step" if step.is_none() => step = Some(value),
            "format" => {}
            _ => return Err(WrongSnapshot::Extra(format!("{METADATA}.{key}"))),
        }
    }
    // Only the text that would be written: "007" and "+7" are other files.
    let number = step.as_ref().and_then(|text| text.parse::<u64>().ok());
    number.filter(|number| Some(number.to_string()) == step).ok_or(WrongSnapshot::Step(step))
}

fn read_words(file: &mut impl Read, words: usize) -> Result<Vec<f32>, WrongSnapshot> {
    let mut out = Vec::with_capacity(words);
    let mut buffer = [0_u8; 1 << 16];
    while out.len() < words {
        let bytes = buffer.len().min(4 * (words - out.len()));
        file.read_exact(&mut buffer[..bytes])?;
        out.extend(buffer[..bytes].as_chunks::<4>().0.iter().map(|word| f32::from_le_bytes(*word)));
    }
    Ok(out)
}
