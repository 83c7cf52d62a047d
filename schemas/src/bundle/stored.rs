//! Reads a bundle where it is, in memory or in a file. Its small parts are decoded; of the plan, the folds and the
//! attachments only the place is kept, so that they are read when they are needed, one at a time.

use super::{
    BUNDLE_VERSION, BUNDLE_VERSION_1, Bundle, COVERS_MAX, Cover, ENTRIES_MAX, FOLDS_MAX, PROOF_HASHES_MAX,
    ProvenEntry, proven_entry,
};
use crate::attachment::{ATTACHMENT_BYTES_MAX, AttachmentName};
use crate::cbor::{CborError, Value};
use crate::challenge::CHECKPOINT_BYTES_MAX;
use crate::completeness::Completeness;
use crate::digest::AttachmentDigest;
use crate::fold::Fold;
use crate::layout::{ITEM_BYTES_MAX, Items, Layout};
use crate::object::{Fields, Object as _, ObjectError};
use crate::run::LEAVES_MAX;
use crate::source::{Place, Source, SourceError};
use sha2::{Digest as _, Sha256};

/// Most attachments.
const ATTACHMENTS_MAX: usize = 8 * LEAVES_MAX as usize;
/// The fields of version 1.
const FIELDS: [&str; 6] = ["tallystick_bundle", "checkpoint", "entries", "covers", "plan", "attachments"];
/// Those that version 2 has besides.
const FIELDS_2: [&str; 2] = ["completeness", "folds"];

/// A bundle that stays where it is.
pub struct StoredBundle<'a> {
    source: &'a dyn Source,
    /// 1 or 2.
    pub version: u64,
    /// The signed checkpoint that all entries are proven in.
    pub checkpoint: Vec<u8>,
    /// Run, prediction, opening (unless the prediction is open), receipts in rank order, verdict.
    pub entries: Vec<ProvenEntry>,
    /// The covers, by ascending tree size.
    pub covers: Vec<Cover>,
    /// The run's predictions, by the log's word.
    pub completeness: Option<Completeness>,
    /// The attachments, by ascending SHA-256.
    pub attachments: Vec<StoredAttachment>,
    plan: Place,
    folds: Place,
}

/// An attachment of a bundle that stays where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredAttachment {
    /// Its name, by the bytes that were there when the bundle was read.
    pub name: AttachmentName,
    place: Place,
}

impl<'a> StoredBundle<'a> {
    /// Reads a bundle once, from end to end, and keeps what is small of it. A source that does not give its bytes, or
    /// not the same twice, is told from a wrong bundle by [`unread`].
    pub fn read(source: &'a dyn Source) -> Result<StoredBundle<'a>, ObjectError> {
        let names = [&FIELDS[..], &FIELDS_2].concat();
        let place = Place::whole(source);
        let mut layout = Layout::open(Bundle::STEM, source, place, Bundle::BYTES_MAX, &names)?;
        let mut fields = layout.fields(&["tallystick_bundle"], ITEM_BYTES_MAX)?;
        // The version first: everything else is this version's business.
        let version = fields.uint("tallystick_bundle", u64::MAX)?;
        if ![BUNDLE_VERSION_1, BUNDLE_VERSION].contains(&version) {
            let expected = format!("version {BUNDLE_VERSION_1} or {BUNDLE_VERSION}");
            return Err(fields.wrong("tallystick_bundle", expected, version.to_string()));
        }
        let newer = version != BUNDLE_VERSION_1;
        let entry = |item| proven_entry(Bundle::STEM, item);
        let entries = layout.array("entries", ENTRIES_MAX)?.read(ITEM_BYTES_MAX, entry)?;
        let covers = covers_from(&mut layout, &fields, newer)?;
        let completeness = if newer { layout.array("completeness", 1)?.next_place()? } else { None };
        let nothing = Place { at: 0, bytes: 0 };
        let folds = if newer { layout.row("folds", 16, FOLDS_MAX as u64)? } else { nothing };
        let checkpoint = layout.string("checkpoint", CHECKPOINT_BYTES_MAX as u64)?;
        let plan = layout.string("plan", ATTACHMENT_BYTES_MAX)?;
        let attachments = attachments_from(source, layout.array("attachments", ATTACHMENTS_MAX)?, &fields)?;
        let completeness = completeness.map(|place| Completeness::read(source, place)).transpose()?;
        layout.close()?;
        let checkpoint = checkpoint.read(source).map_err(unread_at)?;
        Ok(StoredBundle {
            source,
            version,
            checkpoint,
            entries,
            covers,
            completeness,
            attachments,
            plan,
            folds,
        })
    }

    /// How long the bundle is.
    pub fn bytes(&self) -> u64 {
        self.source.bytes()
    }

    /// How long the plan is.
    pub fn plan_bytes(&self) -> u64 {
        self.plan.bytes
    }

    /// The encoded plan.
    pub fn plan(&self) -> Result<Vec<u8>, SourceError> {
        self.plan.read(self.source)
    }

    /// How many folds there are.
    pub fn folds_count(&self) -> usize {
        (self.folds.bytes / 16) as usize
    }

    /// The folds.
    pub fn folds(&self) -> Result<Vec<Fold>, SourceError> {
        let mut folds = Vec::with_capacity(self.folds_count());
        self.folds.read_pieces(self.source, |piece| {
            let (rows, _) = piece.as_chunks::<16>();
            folds.extend(rows.iter().map(|row| Fold::from_bytes(*row)));
        })?;
        Ok(folds)
    }

    /// An attachment's bytes, which have the name that they had before.
    pub fn attachment(&self, attachment: &StoredAttachment) -> Result<Vec<u8>, SourceError> {
        let bytes = attachment.place.read(self.source)?;
        match attachment.name.names(&bytes) {
            true => Ok(bytes),
            false => {
                let what = format!("attachment {}", attachment.name.sha256).into();
                Err(SourceError::Changed { what })
            }
        }
    }

    /// All of it.
    pub fn whole(self) -> Result<Bundle, ObjectError> {
        let attachments = self.attachments.iter().map(|attachment| self.attachment(attachment));
        let attachments = attachments.collect::<Result<_, _>>().map_err(unread_at)?;
        let (plan, folds) = (self.plan().map_err(unread_at)?, self.folds().map_err(unread_at)?);
        let StoredBundle { version, checkpoint, entries, covers, completeness, .. } = self;
        Ok(Bundle { version, checkpoint, entries, covers, plan, attachments, folds, completeness })
    }
}

/// What kept a source from being read, if that is what an error is about, and not what stands there.
pub fn unread(error: &ObjectError) -> Option<&SourceError> {
    match error {
        ObjectError::Cbor { source: CborError::Source(error), .. } => Some(error),
        _ => None,
    }
}

fn unread_at(error: SourceError) -> ObjectError {
    ObjectError::Cbor { object: Bundle::STEM, source: error.into() }
}

fn covers_from(layout: &mut Layout, fields: &Fields, newer: bool) -> Result<Vec<Cover>, ObjectError> {
    let most = if newer { COVERS_MAX } else { LEAVES_MAX as usize };
    let mut last = None;
    layout.array("covers", most)?.read(ITEM_BYTES_MAX, |item| {
        let cover = cover_from(item, newer)?;
        if last.replace(cover.tree_size).is_some_and(|last| last >= cover.tree_size) {
            return Err(fields.wrong("covers", "ascending tree sizes", cover.tree_size.to_string()));
        }
        Ok(cover)
    })
}

fn cover_from(value: Value, newer: bool) -> Result<Cover, ObjectError> {
    let mut fields = Fields::open(Bundle::STEM, value)?;
    let mut cover = Cover {
        tree_size: fields.uint("tree_size", i64::MAX as u64)?,
        inclusion: fields.row("inclusion", 0..=PROOF_HASHES_MAX)?,
        consistency: fields.row("consistency", 0..=2 * PROOF_HASHES_MAX)?,
        checkpoint: None,
    };
    if let Some(note) = newer.then(|| fields.take_optional("checkpoint")).flatten() {
        let Value::Bytes(note) = note else {
            return Err(fields.wrong("checkpoint", "a byte string", note.kind()));
        };
        if note.len() > CHECKPOINT_BYTES_MAX {
            let expected = format!("at most {CHECKPOINT_BYTES_MAX} bytes");
            return Err(fields.wrong("a cover's checkpoint", expected, format!("{} bytes", note.len())));
        }
        cover.checkpoint = Some(note);
    }
    fields.close()?;
    Ok(cover)
}

/// Sorted by digest and without repeats, so that one set of attachments has one encoding.
fn attachments_from(
    source: &dyn Source,
    mut items: Items,
    fields: &Fields,
) -> Result<Vec<StoredAttachment>, ObjectError> {
    let mut attachments: Vec<StoredAttachment> = Vec::new();
    while let Some(place) = items.next_string()? {
        let mut hasher = Sha256::new();
        place.read_pieces(source, |piece| hasher.update(piece)).map_err(unread_at)?;
        let sha256 = AttachmentDigest(hasher.finalize().into());
        if attachments.last().is_some_and(|last| last.name.sha256 >= sha256) {
            return Err(fields.wrong("attachments", "ascending by SHA-256", sha256.to_string()));
        }
        attachments.push(StoredAttachment { name: AttachmentName { sha256, bytes: place.bytes }, place });
    }
    Ok(attachments)
}
