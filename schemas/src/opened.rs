//! An `opened` step (`step-N.opened`): one record of a sealed prediction, shown without the others
//! (docs/spec/opened.md).

use crate::bundle::{ProvenEntry, limited, proven_entry};
use crate::cbor::Value;
use crate::challenge::CHECKPOINT_BYTES_MAX;
use crate::digest::{Salt, Seal, StepSeal};
use crate::object::{Fields, Object, ObjectError};
use crate::prediction::{PREDICTION_STEPS_MAX, seal_of, step_seal};
use crate::record::StepRecord;
use crate::run::{Run, STEPS_MAX};

/// The only version there is.
pub const OPENED_VERSION: u64 = 1;

/// One record with its own salt, the seals of the others, and the prediction they make up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenedStep {
    /// The signed checkpoint that the prediction is proven in.
    pub checkpoint: Vec<u8>,
    /// The prediction's entry.
    pub prediction: ProvenEntry,
    /// The run, whose id the prediction names.
    pub run: Run,
    /// Which step.
    pub step: u64,
    /// That step's own salt; the prediction's is not here.
    pub salt: Salt,
    /// What the step must produce.
    pub record: StepRecord,
    /// The seals of the other records, in order.
    pub seals: Vec<StepSeal>,
}

impl OpenedStep {
    /// Where the record stands among those from step `first` on, if there are as many.
    pub fn place(&self, first: u64) -> Option<usize> {
        let place = usize::try_from(self.step.checked_sub(first)?).ok()?;
        (place <= self.seals.len()).then_some(place)
    }

    /// The seal of a prediction that has this record at its place from step `first` on, and the others around it.
    pub fn seal(&self, first: u64) -> Option<Seal> {
        let (id, place) = (self.run.id(), self.place(first)?);
        let mut seals = self.seals.clone();
        seals.insert(place, step_seal(id, self.step, self.salt, &self.record));
        Some(seal_of(id, first, &seals))
    }
}

impl Object for OpenedStep {
    const STEM: &'static str = "opened";
    const BYTES_MAX: usize = 4 << 20;

    fn to_value(&self) -> Value {
        Value::map([
            ("tallystick_opened", Value::Uint(OPENED_VERSION)),
            ("checkpoint", Value::bytes(&self.checkpoint)),
            ("prediction", self.prediction.to_value()),
            ("run", self.run.to_value()),
            ("step", Value::Uint(self.step)),
            ("salt", Value::bytes(self.salt.0)),
            ("record", self.record.to_value()),
            ("seals", Value::Bytes(self.seals.iter().flat_map(|seal| seal.0).collect())),
        ])
    }

    fn from_value(value: Value) -> Result<OpenedStep, ObjectError> {
        let mut fields = Fields::open(Self::STEM, value)?;
        // The version first: everything else is this version's business.
        let version = fields.uint("tallystick_opened", u64::MAX)?;
        if version != OPENED_VERSION {
            let expected = format!("version {OPENED_VERSION}");
            return Err(fields.wrong("tallystick_opened", expected, version.to_string()));
        }
        let opened = OpenedStep {
            checkpoint: limited(&mut fields, "checkpoint", CHECKPOINT_BYTES_MAX)?,
            prediction: proven_entry(Self::STEM, fields.take("prediction")?)?,
            run: Run::from_value(fields.take("run")?)?,
            step: fields.uint("step", STEPS_MAX)?,
            salt: Salt(fields.bytes("salt")?),
            record: StepRecord::from_value(fields.take("record")?)?,
            seals: fields.row("seals", 0..=PREDICTION_STEPS_MAX - 1)?.into_iter().map(StepSeal).collect(),
        };
        fields.close()?;
        Ok(opened)
    }
}
