//! A `bundle` (`run.tally`): everything needed to check a verdict offline (docs/spec/bundle.md).

use crate::attachment::ATTACHMENT_BYTES_MAX;
use crate::cbor::Value;
use crate::challenge::CHECKPOINT_BYTES_MAX;
use crate::object::{Fields, Object, ObjectError};
use crate::run::LEAVES_MAX;
use crate::statement::STATEMENT_BYTES_MAX;

/// The only version there is.
pub const BUNDLE_VERSION: u64 = 1;
/// Most hashes in one proof: a tree of 2^63 entries has 63 levels.
pub const PROOF_HASHES_MAX: usize = 64;
/// Most entries: run, prediction, opening, a receipt per device, verdict.
pub const ENTRIES_MAX: usize = LEAVES_MAX as usize + 4;

/// A bundle. The checkpoint is kept as bytes: what it says is for `tlog` to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bundle {
    /// The signed checkpoint that all entries are proven in.
    pub checkpoint: Vec<u8>,
    /// Run, prediction, opening (unless the prediction is open), receipts in rank order, verdict.
    pub entries: Vec<ProvenEntry>,
    /// One for each different checkpoint that a receipt answers, by ascending tree size.
    pub covers: Vec<Cover>,
    /// The encoded plan.
    pub plan: Vec<u8>,
    /// Attachments named in the entries, by ascending SHA-256.
    pub attachments: Vec<Vec<u8>>,
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

/// The proof that a challenge's checkpoint already covered the prediction, and is part of the same history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cover {
    /// Tree size of that checkpoint.
    pub tree_size: u64,
    /// Inclusion of the prediction in that tree.
    pub inclusion: Vec<[u8; 32]>,
    /// Consistency of that tree with the bundle's checkpoint.
    pub consistency: Vec<[u8; 32]>,
}

impl Object for Bundle {
    const STEM: &'static str = "bundle";
    const BYTES_MAX: usize = 1 << 30;

    fn to_value(&self) -> Value {
        let cover = |cover: &Cover| {
            Value::map([
                ("tree_size", Value::Uint(cover.tree_size)),
                ("inclusion", Value::Bytes(cover.inclusion.concat())),
                ("consistency", Value::Bytes(cover.consistency.concat())),
            ])
        };
        Value::map([
            ("tallystick_bundle", Value::Uint(BUNDLE_VERSION)),
            ("checkpoint", Value::bytes(&self.checkpoint)),
            ("entries", Value::Array(self.entries.iter().map(ProvenEntry::to_value).collect())),
            ("covers", Value::Array(self.covers.iter().map(cover).collect())),
            ("plan", Value::bytes(&self.plan)),
            ("attachments", Value::Array(self.attachments.iter().map(Value::bytes).collect())),
        ])
    }

    fn from_value(value: Value) -> Result<Bundle, ObjectError> {
        let mut fields = Fields::open(Self::STEM, value)?;
        // The version first: everything else is this version's business.
        let version = fields.uint("tallystick_bundle", u64::MAX)?;
        if version != BUNDLE_VERSION {
            return Err(fields.wrong(
                "tallystick_bundle",
                format!("version {BUNDLE_VERSION}"),
                version.to_string(),
            ));
        }
        let mut entries = Vec::new();
        for item in fields.array("entries", ENTRIES_MAX)? {
            entries.push(proven_entry(Self::STEM, item)?);
        }
        let mut covers: Vec<Cover> = Vec::new();
        for item in fields.array("covers", LEAVES_MAX as usize)? {
            let cover = cover_from(item)?;
            if covers.last().is_some_and(|last| last.tree_size >= cover.tree_size) {
                return Err(fields.wrong("covers", "ascending tree sizes", cover.tree_size.to_string()));
            }
            covers.push(cover);
        }
        let bundle = Bundle {
            checkpoint: limited(&mut fields, "checkpoint", CHECKPOINT_BYTES_MAX)?,
            entries,
            covers,
            plan: limited(&mut fields, "plan", ATTACHMENT_BYTES_MAX as usize)?,
            attachments: attachments_from(&mut fields)?,
        };
        fields.close()?;
        Ok(bundle)
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

fn cover_from(value: Value) -> Result<Cover, ObjectError> {
    let mut fields = Fields::open(Bundle::STEM, value)?;
    let cover = Cover {
        tree_size: fields.uint("tree_size", i64::MAX as u64)?,
        inclusion: fields.row("inclusion", 0..=PROOF_HASHES_MAX)?,
        consistency: fields.row("consistency", 0..=2 * PROOF_HASHES_MAX)?,
    };
    fields.close()?;
    Ok(cover)
}

/// Sorted by digest and without repeats, so that one set of attachments has one encoding.
fn attachments_from(fields: &mut Fields) -> Result<Vec<Vec<u8>>, ObjectError> {
    let mut attachments = Vec::new();
    let mut last = None;
    for item in fields.array("attachments", 8 * LEAVES_MAX as usize)? {
        let Value::Bytes(bytes) = item else {
            return Err(fields.wrong("attachments", "byte strings", item.kind()));
        };
        let digest = crate::digest::AttachmentDigest::of(&bytes);
        if last.is_some_and(|last| last >= digest) {
            return Err(fields.wrong("attachments", "ascending by SHA-256", digest.to_string()));
        }
        last = Some(digest);
        attachments.push(bytes);
    }
    Ok(attachments)
}
