//! The `prediction` statement and its sealed body (docs/spec/prediction.md).
//!
//! The log shows the run, the predictor, the step range and a seal. The seal is a digest over one salted digest per
//! step, with a salt per step derived from one secret salt: everything can be opened at once, or one step alone.

use crate::attachment::AttachmentName;
use crate::cbor::{self, Value};
use crate::digest::{RunId, Salt, Seal, StepSeal, digest};
use crate::layout::{ITEM_BYTES_MAX, Layout};
use crate::object::{Fields, Object, ObjectError};
use crate::record::StepRecord;
use crate::run::Steps;
use crate::source::Place;

/// Most steps in one prediction; longer runs are predicted in several.
pub const PREDICTION_STEPS_MAX: usize = 1 << 16;

/// What the log shows of a prediction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prediction {
    /// The run.
    pub run: RunId,
    /// Which steps are predicted. A body may be shorter: it ends at an invalid step.
    pub steps: Steps,
    /// Commits to the body.
    pub seal: Seal,
    /// POSIX seconds; a prediction not opened by then counts as `unopened`, a failure in its own right.
    pub reveal_by: u64,
    /// What computed it. It decides nothing: every program and every backend gives the same records.
    pub by: Option<Maker>,
    /// The opening, in a prediction made openly.
    pub open: Option<OpenBody>,
}

/// What computed a prediction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Maker {
    /// Name and version, such as `oracle 0.1.0`.
    pub program: String,
    /// The kernels that ran, such as `avx512`.
    pub backend: String,
}

impl Maker {
    fn take(value: Value) -> Result<Maker, ObjectError> {
        let mut fields = Fields::open(Prediction::STEM, value)?;
        let maker = Maker { program: fields.text("program", 80)?, backend: fields.text("backend", 40)? };
        fields.close()?;
        Ok(maker)
    }
}

/// What opens a seal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenBody {
    /// The salt all step salts come from.
    pub salt: Salt,
    /// The encoded [`PredictionBody`].
    pub body: AttachmentName,
}

impl OpenBody {
    /// `[salt, body]`.
    pub fn to_value(&self) -> Value {
        Value::map([("salt", Value::bytes(self.salt.0)), ("body", self.body.to_value())])
    }

    /// Reads the fields of an opened map.
    pub fn take(fields: &mut Fields) -> Result<OpenBody, ObjectError> {
        Ok(OpenBody { salt: Salt(fields.bytes("salt")?), body: AttachmentName::take(fields, "body")? })
    }
}

impl Object for Prediction {
    const STEM: &'static str = "prediction";
    const BYTES_MAX: usize = 4096;

    fn to_value(&self) -> Value {
        let mut pairs = vec![
            (Value::text("run"), Value::bytes(self.run.0)),
            (Value::text("steps"), self.steps.to_value()),
            (Value::text("seal"), Value::bytes(self.seal.0)),
            (Value::text("reveal_by"), Value::Uint(self.reveal_by)),
        ];
        pairs.extend(self.by.iter().map(|by| {
            let by = [("program", Value::text(&by.program)), ("backend", Value::text(&by.backend))];
            (Value::text("by"), Value::map(by))
        }));
        pairs.extend(self.open.iter().map(|open| (Value::text("open"), open.to_value())));
        Value::Map(pairs)
    }

    fn from_value(value: Value) -> Result<Prediction, ObjectError> {
        let mut fields = Fields::open(Self::STEM, value)?;
        let open = match fields.take_optional("open") {
            None => None,
            Some(value) => {
                let mut inner = Fields::open(Self::STEM, value)?;
                let open = OpenBody::take(&mut inner)?;
                inner.close()?;
                Some(open)
            }
        };
        let prediction = Prediction {
            run: RunId(fields.bytes("run")?),
            steps: fields.steps("steps")?,
            seal: Seal(fields.bytes("seal")?),
            reveal_by: fields.uint("reveal_by", i64::MAX as u64)?,
            by: fields.take_optional("by").map(Maker::take).transpose()?,
            open,
        };
        fields.close()?;
        if prediction.steps.count() > PREDICTION_STEPS_MAX as u64 {
            return Err(ObjectError::Field {
                object: Self::STEM,
                field: "steps".into(),
                expected: format!("at most {PREDICTION_STEPS_MAX} steps"),
                found: prediction.steps.to_string(),
            });
        }
        Ok(prediction)
    }
}

/// The sealed part: one record per step, from `first`; the last may be invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PredictionBody {
    /// The run.
    pub run: RunId,
    /// First step.
    pub first: u64,
    /// Records in step order.
    pub records: Vec<StepRecord>,
}

impl PredictionBody {
    /// The record of `step`, if the body reaches it.
    pub fn record(&self, step: u64) -> Option<&StepRecord> {
        self.records.get(usize::try_from(step.checked_sub(self.first)?).ok()?)
    }

    /// The seal under `salt`.
    pub fn seal(&self, salt: Salt) -> Seal {
        seal_of(self.run, self.first, &self.step_seals(salt))
    }

    /// What the seal is made of: the seal of each record, in order.
    pub fn step_seals(&self, salt: Salt) -> Vec<StepSeal> {
        let seal = |(step, record)| step_seal(self.run, step, step_salt(salt, step), record);
        (self.first..).zip(&self.records).map(seal).collect()
    }
}

/// The seal over the seals of all records from step `first` on.
pub fn seal_of(run: RunId, first: u64, seals: &[StepSeal]) -> Seal {
    let seals: Vec<u8> = seals.iter().flat_map(|seal| seal.0).collect();
    Seal(digest("seal", &[&run.0, &first.to_le_bytes(), &seals]))
}

/// The salt of one step.
pub fn step_salt(salt: Salt, step: u64) -> Salt {
    Salt(digest("salt/step", &[&salt.0, &step.to_le_bytes()]))
}

/// The salted digest of one record.
pub fn step_seal(run: RunId, step: u64, salt: Salt, record: &StepRecord) -> StepSeal {
    StepSeal(digest("seal/step", &[&run.0, &step.to_le_bytes(), &salt.0, &cbor::encode(&record.to_value())]))
}

impl Object for PredictionBody {
    const STEM: &'static str = "prediction";
    const BYTES_MAX: usize = crate::attachment::ATTACHMENT_BYTES_MAX as usize;

    fn to_value(&self) -> Value {
        Value::map([
            ("run", Value::bytes(self.run.0)),
            ("first", Value::Uint(self.first)),
            ("records", Value::Array(self.records.iter().map(StepRecord::to_value).collect())),
        ])
    }

    fn decode(bytes: &[u8]) -> Result<PredictionBody, ObjectError> {
        let names = ["run", "first", "records"];
        let place = Place::whole(&bytes);
        let mut layout = Layout::open(Self::STEM, &bytes, place, Self::BYTES_MAX, &names)?;
        let mut fields = layout.fields(&["run", "first"], ITEM_BYTES_MAX)?;
        let run = RunId(fields.bytes("run")?);
        let first = fields.uint("first", crate::run::STEPS_MAX)?;
        let records = layout.array("records", PREDICTION_STEPS_MAX)?;
        let records = records.read(ITEM_BYTES_MAX, StepRecord::from_value)?;
        let invalid_before_end = records.iter().rev().skip(1).any(|record| record.non_finite.is_some());
        if records.is_empty() || invalid_before_end {
            return Err(fields.wrong(
                "records",
                "at least one, none after an invalid one",
                records.len().to_string(),
            ));
        }
        layout.close()?;
        Ok(PredictionBody { run, first, records })
    }
}
