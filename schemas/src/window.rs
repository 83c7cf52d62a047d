//! A `window` opens the data of one leaf: the chunks of the token stream that hold its windows, each with its path to
//! the root that the plan's `dataset` checksum binds (docs/spec/window.md).

use crate::cbor::Value;
use crate::checksum::CHUNK_BYTES;
use crate::digest::PlanDigest;
use crate::object::{Fields, Object, ObjectError};
use crate::run::{LEAVES_MAX, STEPS_MAX};

/// Most windows of a leaf.
pub const WINDOWS_MAX: usize = 1 << 16;
/// Most chunks that are opened at once.
pub const CHUNKS_MAX: usize = 1 << 13;
/// Most hashes of a path.
const PATH_HASHES_MAX: usize = 64;

/// What one leaf of one step reads, opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WindowProof {
    /// The plan, whose `data` says which windows these are and what commits to them.
    pub plan: PlanDigest,
    /// The step.
    pub step: u64,
    /// The leaf.
    pub leaf: u64,
    /// The windows, in batch order.
    pub windows: Vec<u64>,
    /// Root of the tree over the chunks of the whole stream.
    pub root: [u8; 32],
    /// The chunks that hold the windows, in the order of the stream.
    pub chunks: Vec<Chunk>,
}

/// One chunk of the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Its number.
    pub index: u64,
    /// Its tokens, four little-endian bytes each.
    pub bytes: Vec<u8>,
    /// Sibling hashes, leaf to root.
    pub path: Vec<[u8; 32]>,
}

impl Chunk {
    fn to_value(&self) -> Value {
        Value::map([
            ("index", Value::Uint(self.index)),
            ("bytes", Value::bytes(self.bytes.clone())),
            ("path", Value::bytes(self.path.concat())),
        ])
    }

    fn from_value(value: Value) -> Result<Chunk, ObjectError> {
        let mut fields = Fields::open(WindowProof::STEM, value)?;
        let index = fields.uint("index", u64::MAX >> 1)?;
        let words = fields.row::<4>("bytes", 1..=CHUNK_BYTES / 4)?;
        let path = fields.row("path", 0..=PATH_HASHES_MAX)?;
        fields.close()?;
        Ok(Chunk { index, bytes: words.concat(), path })
    }
}

impl Object for WindowProof {
    const STEM: &'static str = "window";
    const BYTES_MAX: usize = 64 << 20;

    fn to_value(&self) -> Value {
        Value::map([
            ("plan", Value::bytes(self.plan.0)),
            ("step", Value::Uint(self.step)),
            ("leaf", Value::Uint(self.leaf)),
            ("windows", Value::Array(self.windows.iter().map(|window| Value::Uint(*window)).collect())),
            ("root", Value::bytes(self.root)),
            ("chunks", Value::Array(self.chunks.iter().map(Chunk::to_value).collect())),
        ])
    }

    fn from_value(value: Value) -> Result<WindowProof, ObjectError> {
        let mut fields = Fields::open(Self::STEM, value)?;
        let windows = fields.array("windows", WINDOWS_MAX)?;
        let windows = windows.into_iter().map(|window| fields.as_uint("windows", window, u64::MAX >> 1));
        let windows = windows.collect::<Result<Vec<u64>, _>>()?;
        let chunks = fields.array("chunks", CHUNKS_MAX)?;
        let chunks = chunks.into_iter().map(Chunk::from_value).collect::<Result<Vec<Chunk>, _>>()?;
        let proof = WindowProof {
            plan: PlanDigest(fields.bytes("plan")?),
            step: fields.uint("step", STEPS_MAX - 1)?,
            leaf: fields.uint("leaf", LEAVES_MAX - 1)?,
            windows,
            root: fields.bytes("root")?,
            chunks,
        };
        if proof.windows.is_empty() {
            return Err(fields.wrong("windows", "at least one window", "none"));
        }
        if proof.chunks.is_empty() {
            return Err(fields.wrong("chunks", "at least one chunk", "none"));
        }
        if let Some(pair) = proof.chunks.windows(2).find(|pair| pair[0].index >= pair[1].index) {
            let found = format!("chunk {} after chunk {}", pair[1].index, pair[0].index);
            return Err(fields.wrong("chunks", "ascending indexes", found));
        }
        fields.close()?;
        Ok(proof)
    }
}
