//! `completeness` (`RUN.completeness`): what a log holds of a run, for checking offline (docs/spec/completeness.md).

use crate::bundle::{ProvenEntry, limited, proven_entry};
use crate::cbor::Value;
use crate::challenge::CHECKPOINT_BYTES_MAX;
use crate::layout::{ITEM_BYTES_MAX, Layout};
use crate::object::{Fields, Object, ObjectError};
use crate::register::{EntryLeaf, PredictionLeaf};
use crate::source::{Place, Source};

/// The only version there is.
pub const COMPLETENESS_VERSION: u64 = 1;
/// Most leaves of a list.
pub const LIST_LEAVES_MAX: usize = 1 << 18;

/// A register with its proof, and the lists it commits to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completeness {
    /// The signed checkpoint that the register is proven in.
    pub checkpoint: Vec<u8>,
    /// The register's entry.
    pub register: ProvenEntry,
    /// Every prediction, by ascending leaf index.
    pub predictions: Vec<PredictionLeaf>,
    /// Every entry, by ascending leaf index, where they are wanted.
    pub entries: Option<Vec<EntryLeaf>>,
}

impl Object for Completeness {
    const STEM: &'static str = "completeness";
    const BYTES_MAX: usize = 64 << 20;

    fn to_value(&self) -> Value {
        let mut pairs = vec![
            (Value::text("tallystick_completeness"), Value::Uint(COMPLETENESS_VERSION)),
            (Value::text("checkpoint"), Value::bytes(&self.checkpoint)),
            (Value::text("register"), self.register.to_value()),
            (
                Value::text("predictions"),
                Value::Array(self.predictions.iter().map(PredictionLeaf::to_value).collect()),
            ),
        ];
        pairs.extend(self.entries.iter().map(|entries| {
            (Value::text("entries"), Value::Array(entries.iter().map(EntryLeaf::to_value).collect()))
        }));
        Value::Map(pairs)
    }

    fn decode(bytes: &[u8]) -> Result<Completeness, ObjectError> {
        Completeness::read(&bytes, Place::whole(&bytes))
    }
}

impl Completeness {
    /// Reads the one encoding from where it is.
    pub(crate) fn read(source: &dyn Source, place: Place) -> Result<Completeness, ObjectError> {
        let small = ["tallystick_completeness", "checkpoint", "register"];
        let names = [&small[..], &["predictions", "entries"]].concat();
        let mut layout = Layout::open(Self::STEM, source, place, Self::BYTES_MAX, &names)?;
        let mut fields = layout.fields(&small, ITEM_BYTES_MAX)?;
        // The version first: everything else is this version's business.
        let version = fields.uint("tallystick_completeness", u64::MAX)?;
        if version != COMPLETENESS_VERSION {
            let expected = format!("version {COMPLETENESS_VERSION}");
            return Err(fields.wrong("tallystick_completeness", expected, version.to_string()));
        }
        let leaf = |item| PredictionLeaf::read(Self::STEM, item);
        let predictions = layout.array("predictions", LIST_LEAVES_MAX)?.read(ITEM_BYTES_MAX, leaf)?;
        ascending(&fields, "predictions", predictions.iter().map(|leaf| leaf.index))?;
        let leaf = |item| EntryLeaf::read(Self::STEM, item);
        let entries = layout.array_optional("entries", LIST_LEAVES_MAX)?;
        let entries = entries.map(|items| items.read(ITEM_BYTES_MAX, leaf)).transpose()?;
        if let Some(entries) = &entries {
            ascending(&fields, "entries", entries.iter().map(|leaf| leaf.index))?;
        }
        let completeness = Completeness {
            checkpoint: limited(&mut fields, "checkpoint", CHECKPOINT_BYTES_MAX)?,
            register: proven_entry(Self::STEM, fields.take("register")?)?,
            predictions,
            entries,
        };
        layout.close()?;
        Ok(completeness)
    }
}

/// One list has one order.
fn ascending(
    fields: &Fields,
    field: &'static str,
    mut indexes: impl Iterator<Item = u64>,
) -> Result<(), ObjectError> {
    let mut last = None;
    match indexes.find(|index| last.replace(*index).is_some_and(|last| last >= *index)) {
        Some(index) => Err(fields.wrong(field, "ascending leaf indexes", index.to_string())),
        None => Ok(()),
    }
}
