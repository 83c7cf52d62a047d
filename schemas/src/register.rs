//! The `register` statement: what a log says it holds of a run (docs/spec/register.md).
//!
//! Two lists, each as the root of an RFC 6962 tree over leaves that carry what a check needs. Only the log's key signs
//! registers; hashing and comparing are `tlog`'s and `verify`'s.

use crate::cbor::{self, Value};
use crate::digest::{EntryDigest, RunId};
use crate::key::PublicKey;
use crate::object::{Fields, Object, ObjectError};
use crate::run::{STEPS_MAX, Steps};
use crate::statement::{KINDS, Payload, Statement};

/// Highest leaf index that objects carry.
pub const INDEX_MAX: u64 = i64::MAX as u64;

/// What the log holds of a run below its own place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Register {
    /// The run.
    pub run: RunId,
    /// Its own leaf index: the lists hold exactly the run's entries below it.
    pub size: u64,
    /// Every entry of the run.
    pub entries: ListRoot,
    /// Every prediction of the run.
    pub predictions: ListRoot,
}

/// A list, by its length and the root of the tree over its leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListRoot {
    /// How many leaves.
    pub count: u64,
    /// Root hash; of no leaves, SHA-256 of nothing.
    pub root: [u8; 32],
}

impl ListRoot {
    fn to_value(self) -> Value {
        Value::map([("count", Value::Uint(self.count)), ("root", Value::bytes(self.root))])
    }

    fn take(fields: &mut Fields, field: &'static str) -> Result<ListRoot, ObjectError> {
        let mut inner = Fields::open(Register::STEM, fields.take(field)?)?;
        let list = ListRoot { count: inner.uint("count", INDEX_MAX)?, root: inner.bytes("root")? };
        inner.close()?;
        Ok(list)
    }
}

impl Object for Register {
    const STEM: &'static str = "register";
    const BYTES_MAX: usize = 1024;

    fn to_value(&self) -> Value {
        Value::map([
            ("run", Value::bytes(self.run.0)),
            ("size", Value::Uint(self.size)),
            ("entries", self.entries.to_value()),
            ("predictions", self.predictions.to_value()),
        ])
    }

    fn from_value(value: Value) -> Result<Register, ObjectError> {
        let mut fields = Fields::open(Self::STEM, value)?;
        let register = Register {
            run: RunId(fields.bytes("run")?),
            size: fields.uint("size", INDEX_MAX)?,
            entries: ListRoot::take(&mut fields, "entries")?,
            predictions: ListRoot::take(&mut fields, "predictions")?,
        };
        let (entries, predictions) = (register.entries.count, register.predictions.count);
        if entries > register.size {
            let expected = format!("a count of at most the size {}", register.size);
            return Err(fields.wrong("entries", expected, entries.to_string()));
        }
        if predictions > entries {
            let expected = format!("a count of at most the {entries} entries");
            return Err(fields.wrong("predictions", expected, predictions.to_string()));
        }
        fields.close()?;
        Ok(register)
    }
}

/// A leaf of the list of entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryLeaf {
    /// Leaf index in the log.
    pub index: u64,
    /// The statement's kind, one of [`KINDS`].
    pub kind: &'static str,
    /// Who signed it.
    pub signer: PublicKey,
    /// The entry's name.
    pub entry: EntryDigest,
}

impl EntryLeaf {
    /// The leaf of a statement that stands at `index`.
    pub fn of(index: u64, statement: &Statement) -> EntryLeaf {
        let Statement { digest, signer, payload } = statement;
        EntryLeaf { index, kind: payload.stem(), signer: *signer, entry: *digest }
    }

    /// `[index, kind, signer, entry]`.
    pub fn to_value(&self) -> Value {
        Value::Array(vec![
            Value::Uint(self.index),
            Value::text(self.kind),
            Value::bytes(self.signer.to_bytes()),
            Value::bytes(self.entry.0),
        ])
    }

    /// The bytes that the leaf hash is over.
    pub fn encode(&self) -> Vec<u8> {
        cbor::encode(&self.to_value())
    }

    /// Reads a leaf that stands in an object.
    pub fn read(object: &'static str, value: Value) -> Result<EntryLeaf, ObjectError> {
        let mut fields = leaf_fields(object, &["index", "kind", "signer", "entry"], value)?;
        let index = fields.uint("index", INDEX_MAX)?;
        let kind = fields.text("kind", 20)?;
        let known = KINDS.into_iter().find(|known| *known == kind);
        let kind = known.ok_or_else(|| fields.wrong("kind", "a statement's kind", kind))?;
        Ok(EntryLeaf {
            index,
            kind,
            signer: signer(&mut fields)?,
            entry: EntryDigest(fields.bytes("entry")?),
        })
    }
}

/// A leaf of the list of predictions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PredictionLeaf {
    /// Leaf index in the log.
    pub index: u64,
    /// Who predicted.
    pub signer: PublicKey,
    /// Which steps.
    pub steps: Steps,
    /// The entry's name.
    pub entry: EntryDigest,
}

impl PredictionLeaf {
    /// The leaf of a statement that stands at `index`, if it is a prediction.
    pub fn of(index: u64, statement: &Statement) -> Option<PredictionLeaf> {
        let Payload::Prediction(prediction) = &statement.payload else { return None };
        let (signer, entry) = (statement.signer, statement.digest);
        Some(PredictionLeaf { index, signer, steps: prediction.steps, entry })
    }

    /// `[index, signer, first, end, entry]`.
    pub fn to_value(&self) -> Value {
        Value::Array(vec![
            Value::Uint(self.index),
            Value::bytes(self.signer.to_bytes()),
            Value::Uint(self.steps.first),
            Value::Uint(self.steps.end),
            Value::bytes(self.entry.0),
        ])
    }

    /// The bytes that the leaf hash is over.
    pub fn encode(&self) -> Vec<u8> {
        cbor::encode(&self.to_value())
    }

    /// Reads a leaf that stands in an object.
    pub fn read(object: &'static str, value: Value) -> Result<PredictionLeaf, ObjectError> {
        let mut fields = leaf_fields(object, &["index", "signer", "first", "end", "entry"], value)?;
        let index = fields.uint("index", INDEX_MAX)?;
        let steps = Steps { first: fields.uint("first", STEPS_MAX)?, end: fields.uint("end", STEPS_MAX)? };
        if steps.first >= steps.end {
            return Err(fields.wrong("end", "more than the first step", steps.to_string()));
        }
        Ok(PredictionLeaf {
            index,
            signer: signer(&mut fields)?,
            steps,
            entry: EntryDigest(fields.bytes("entry")?),
        })
    }
}

fn leaf_fields(object: &'static str, names: &[&str], value: Value) -> Result<Fields, ObjectError> {
    let wrong = |found: String| ObjectError::Field {
        object,
        field: "leaf".into(),
        expected: format!("[{}]", names.join(", ")),
        found,
    };
    match value {
        Value::Array(items) if items.len() == names.len() => Ok(Fields::named(object, names, items)),
        Value::Array(items) => Err(wrong(format!("{} items", items.len()))),
        other => Err(wrong(other.kind().into())),
    }
}

fn signer(fields: &mut Fields) -> Result<PublicKey, ObjectError> {
    let bytes = fields.bytes("signer")?;
    PublicKey::from_bytes(bytes).map_err(|error| fields.wrong("signer", "a public key", error.to_string()))
}
