//! The `opening` statement: what unseals a prediction (docs/spec/opening.md).

use crate::cbor::Value;
use crate::digest::{EntryDigest, RunId};
use crate::object::{Fields, Object, ObjectError};
use crate::prediction::OpenBody;

/// Opens a whole prediction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opening {
    /// The run.
    pub run: RunId,
    /// The log entry that holds the prediction.
    pub prediction: EntryDigest,
    /// Salt and body.
    pub open: OpenBody,
}

impl Object for Opening {
    const STEM: &'static str = "opening";
    const BYTES_MAX: usize = 4096;

    fn to_value(&self) -> Value {
        Value::map([
            ("run", Value::bytes(self.run.0)),
            ("prediction", Value::bytes(self.prediction.0)),
            ("salt", Value::bytes(self.open.salt.0)),
            ("body", self.open.body.to_value()),
        ])
    }

    fn from_value(value: Value) -> Result<Opening, ObjectError> {
        let mut fields = Fields::open(Self::STEM, value)?;
        let opening = Opening {
            run: RunId(fields.bytes("run")?),
            prediction: EntryDigest(fields.bytes("prediction")?),
            open: OpenBody::take(&mut fields)?,
        };
        fields.close()?;
        Ok(opening)
    }
}
