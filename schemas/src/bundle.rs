//! A `bundle` (`run.tally`): everything needed to check a verdict offline (docs/spec/bundle.md). [`stored`] reads it.

pub mod stored;

use self::stored::StoredBundle;
use crate::cbor::Value;
use crate::completeness::Completeness;
use crate::fold::Fold;
use crate::object::{Fields, Object, ObjectError};
use crate::run::LEAVES_MAX;
use crate::statement::STATEMENT_BYTES_MAX;

/// The version that is written.
pub const BUNDLE_VERSION: u64 = 2;
/// The first version. Its bundles have no cosigned covers and no completeness, and are read for ever.
pub const BUNDLE_VERSION_1: u64 = 1;
/// Most hashes in one proof: a tree of 2^63 entries has 63 levels.
pub const PROOF_HASHES_MAX: usize = 64;
/// Most entries: run, prediction, opening, a receipt per device, verdict.
pub const ENTRIES_MAX: usize = LEAVES_MAX as usize + 4;
/// Most covers: one for each checkpoint that a receipt answers, and one that witnesses have cosigned.
pub const COVERS_MAX: usize = LEAVES_MAX as usize + 1;

/// Most folds: 64 MiB of them.
pub const FOLDS_MAX: usize = 1 << 22;

/// A bundle, all of it in memory: how one is made. The checkpoint is kept as bytes: what it says is for `tlog` to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bundle {
    /// 1 or 2.
    pub version: u64,
    /// The signed checkpoint that all entries are proven in.
    pub checkpoint: Vec<u8>,
    /// Run, prediction, opening (unless the prediction is open), receipts in rank order, verdict.
    pub entries: Vec<ProvenEntry>,
    /// One for each different checkpoint that a receipt answers, and the first that witnesses have cosigned and that
    /// holds the prediction; by ascending tree size.
    pub covers: Vec<Cover>,
    /// The encoded plan.
    pub plan: Vec<u8>,
    /// Attachments named in the entries, by ascending SHA-256.
    pub attachments: Vec<Vec<u8>>,
    /// Folds by which bodies of receipts follow from the prediction, and are not among the attachments; from version 2
    /// on.
    pub folds: Vec<Fold>,
    /// The run's predictions, all of them, by the log's word; from version 2 on, where the log gives it.
    pub completeness: Option<Completeness>,
}

/// A log entry with its inclusion proof in the bundle's checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProvenEntry {
    /// Leaf index.
    pub index: u64,
    /// The statement.
    pub bytes: Vec<u8>,
    /// Sibling hashes, leaf to root.
    pub proof: Vec<[u8; 32]>,
}

/// The proof that a checkpoint already covered the prediction, and is part of the same history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cover {
    /// Tree size of that checkpoint.
    pub tree_size: u64,
    /// Inclusion of the prediction in that tree.
    pub inclusion: Vec<[u8; 32]>,
    /// Consistency of that tree with the bundle's checkpoint.
    pub consistency: Vec<[u8; 32]>,
    /// The cosigned checkpoint itself, if it is there for its cosignatures; from version 2 on.
    pub checkpoint: Option<Vec<u8>>,
}

impl Object for Bundle {
    const STEM: &'static str = "bundle";
    const BYTES_MAX: usize = 1 << 30;

    fn to_value(&self) -> Value {
        let mut pairs = vec![
            (Value::text("tallystick_bundle"), Value::Uint(self.version)),
            (Value::text("checkpoint"), Value::bytes(&self.checkpoint)),
            (Value::text("entries"), Value::Array(self.entries.iter().map(ProvenEntry::to_value).collect())),
            (Value::text("covers"), Value::Array(self.covers.iter().map(Cover::to_value).collect())),
            (Value::text("plan"), Value::bytes(&self.plan)),
            (Value::text("attachments"), Value::Array(self.attachments.iter().map(Value::bytes).collect())),
        ];
        if self.version != BUNDLE_VERSION_1 {
            // A list of one or none, and never absent: so neither version's bytes are the other's but for the number.
            let completeness = self.completeness.iter().map(Completeness::to_value).collect();
            pairs.push((Value::text("completeness"), Value::Array(completeness)));
            let folds = self.folds.iter().flat_map(|fold| fold.to_bytes()).collect();
            pairs.push((Value::text("folds"), Value::Bytes(folds)));
        }
        Value::Map(pairs)
    }

    fn decode(bytes: &[u8]) -> Result<Bundle, ObjectError> {
        StoredBundle::read(&bytes)?.whole()
    }
}

/// Takes a byte string of at most `bytes_max` bytes.
pub(crate) fn limited(
    fields: &mut Fields,
    field: &'static str,
    bytes_max: usize,
) -> Result<Vec<u8>, ObjectError> {
    let blob = fields.blob(field)?;
    match blob.len() {
        found if found > bytes_max => {
            Err(fields.wrong(field, format!("at most {bytes_max} bytes"), format!("{found} bytes")))
        }
        _ => Ok(blob),
    }
}

impl ProvenEntry {
    pub(crate) fn to_value(&self) -> Value {
        Value::map([
            ("index", Value::Uint(self.index)),
            ("bytes", Value::bytes(&self.bytes)),
            ("proof", Value::Bytes(self.proof.concat())),
        ])
    }
}

impl Cover {
    fn to_value(&self) -> Value {
        let mut pairs = vec![
            (Value::text("tree_size"), Value::Uint(self.tree_size)),
            (Value::text("inclusion"), Value::Bytes(self.inclusion.concat())),
            (Value::text("consistency"), Value::Bytes(self.consistency.concat())),
        ];
        pairs.extend(self.checkpoint.iter().map(|note| (Value::text("checkpoint"), Value::bytes(note))));
        Value::Map(pairs)
    }
}

/// Reads a proven entry that stands in an object.
pub(crate) fn proven_entry(object: &'static str, value: Value) -> Result<ProvenEntry, ObjectError> {
    let mut fields = Fields::open(object, value)?;
    let entry = ProvenEntry {
        index: fields.uint("index", i64::MAX as u64)?,
        bytes: limited(&mut fields, "bytes", STATEMENT_BYTES_MAX)?,
        proof: fields.row("proof", 0..=PROOF_HASHES_MAX)?,
    };
    fields.close()?;
    Ok(entry)
}
