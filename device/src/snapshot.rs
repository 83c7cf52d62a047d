//! Training states as files: safetensors with Hugging Face names, moments as `adamw.m.<name>`, `adamw.v.<name>`.

use crate::checksum::checksum_f32;
use safetensors::{Dtype, SafeTensors};
use schemas::checksum::state_digest;
use schemas::digest::StateDigest;
use schemas::plan::{Parameter, Plan};
use std::collections::BTreeSet;
use std::io::{self, Write};

/// Longest safetensors header read, in bytes.
pub const HEADER_BYTES_MAX: u64 = 8 << 20;

/// Why bytes are not the state a plan starts from.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// Not safetensors, or cut short.
    #[error("not a safetensors file: {0}")]
    Format(#[from] safetensors::SafeTensorError),
    /// A tensor that must be there is not.
    #[error("expected tensor {0:?}, found none of that name")]
    Missing(String),
    /// A tensor that must not be there is.
    #[error("expected no tensor {0:?}")]
    Extra(String),
    /// A tensor of another type or shape.
    #[error("tensor {name:?}: expected F32 {expected:?}, found {found}")]
    Shape {
        /// Which tensor.
        name: String,
        /// The plan's shape.
        expected: Vec<u64>,
        /// What the file has.
        found: String,
    },
    /// Not the state before that step.
    #[error("expected step \"{expected}\" in the metadata, found {found:?}")]
    Step {
        /// The step that should come next.
        expected: u64,
        /// What the file says.
        found: Option<String>,
    },
}

/// Parameters and moments, each flat in the plan's order: `[P]`.
#[derive(Clone, Debug)]
pub struct State {
    /// Parameters.
    pub parameters: Vec<f32>,
    /// AdamW's first moment.
    pub first_moment: Vec<f32>,
    /// AdamW's second moment.
    pub second_moment: Vec<f32>,
}

impl State {
    /// The identity of this state as the one before `step`.
    pub fn digest(&self, step: u64) -> StateDigest {
        let [p, m, v] = [&self.parameters, &self.first_moment, &self.second_moment].map(|x| checksum_f32(x));
        state_digest(step, p, m, v)
    }
}

/// Reads the state of `plan` before `step`. Every tensor of the plan must be there, and no other.
pub fn read(bytes: &[u8], plan: &Plan, step: u64) -> Result<State, SnapshotError> {
    let (_, header) = SafeTensors::read_metadata(bytes)?;
    let found = header.metadata().as_ref().and_then(|metadata| metadata.get("step"));
    if found != Some(&step.to_string()) {
        return Err(SnapshotError::Step { expected: step, found: found.cloned() });
    }
    let file = SafeTensors::deserialize(bytes)?;
    let mut unread: BTreeSet<&str> = file.names().into_iter().collect();
    let mut part = |prefix: &str| {
        let mut flat = Vec::new();
        for parameter in &plan.parameters {
            let name = format!("{prefix}{}", parameter.name);
            unread.remove(name.as_str());
            append(&file, name, parameter, &mut flat)?;
        }
        Ok::<_, SnapshotError>(flat)
    };
    let state =
        State { parameters: part("")?, first_moment: part("adamw.m.")?, second_moment: part("adamw.v.")? };
    match unread.first() {
        Some(name) => Err(SnapshotError::Extra((*name).to_owned())),
        None => Ok(state),
    }
}

fn append(
    file: &SafeTensors,
    name: String,
    parameter: &Parameter,
    flat: &mut Vec<f32>,
) -> Result<(), SnapshotError> {
    let Ok(tensor) = file.tensor(&name) else { return Err(SnapshotError::Missing(name)) };
    let shape: Vec<u64> = tensor.shape().iter().map(|&dimension| dimension as u64).collect();
    if tensor.dtype() != Dtype::F32 || shape != parameter.shape {
        let found = format!("{:?} {shape:?}", tensor.dtype());
        return Err(SnapshotError::Shape { name, expected: parameter.shape.clone(), found });
    }
    flat.extend(tensor.data().as_chunks::<4>().0.iter().map(|word| f32::from_le_bytes(*word)));
    Ok(())
}

/// Writes the state of `plan` before `step`: parameters and moments, each flat. One state has one file.
pub fn write(out: &mut impl Write, plan: &Plan, step: u64, state: &State) -> io::Result<()> {
    let mut header = format!("{{\"__metadata__\":{{\"format\":\"pt\",\"step\":\"{step}\"}}");
    let mut at = 0;
    for prefix in ["", "adamw.m.", "adamw.v."] {
        for parameter in &plan.parameters {
            let name = serde_json::Value::String(format!("{prefix}{}", parameter.name));
            let dimensions: Vec<String> = parameter.shape.iter().map(u64::to_string).collect();
            let dimensions = dimensions.join(",");
            let end = at + 4 * parameter.shape.iter().product::<u64>();
            header += &format!(
                ",{name}:{{\"dtype\":\"F32\",\"shape\":[{dimensions}],\"data_offsets\":[{at},{end}]}}"
            );
            at = end;
        }
    }
    header.push('}');
    let length = header.len().next_multiple_of(8);
    out.write_all(&(length as u64).to_le_bytes())?;
    write!(out, "{header:<length$}")?;
    let parts = [&state.parameters, &state.first_moment, &state.second_moment];
    for words in parts.iter().flat_map(|words| words.chunks(1024)) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        out.write_all(&bytes)?;
    }
    Ok(())
}

/// Bytes of a snapshot of `plan`, its header taken for as long as headers may be.
pub fn bytes_max(plan: &Plan) -> u64 {
    12 * plan.parameter_count() + HEADER_BYTES_MAX + 8
}
