//! The first training state: safetensors with Hugging Face names, moments as `adamw.m.<name>`, `adamw.v.<name>`.

use crate::checksum::checksum_f32;
use safetensors::{Dtype, SafeTensors};
use schemas::checksum::state_digest;
use schemas::digest::StateDigest;
use schemas::plan::{Parameter, Plan};
use std::collections::BTreeSet;

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
    /// Not the state before step 0.
    #[error("expected step \"0\" in the metadata, found {0:?}")]
    Step(Option<String>),
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

/// Reads the state of `plan` before step 0. Every tensor of the plan must be there, and no other.
pub fn read(bytes: &[u8], plan: &Plan) -> Result<State, SnapshotError> {
    let (_, header) = SafeTensors::read_metadata(bytes)?;
    let step = header.metadata().as_ref().and_then(|metadata| metadata.get("step"));
    if step.map(String::as_str) != Some("0") {
        return Err(SnapshotError::Step(step.cloned()));
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
