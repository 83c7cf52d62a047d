//! Traces and meetings: folds that name the operation, given only where something differs.
//!
//! Nothing rests on them but names: each is matched to a root that stands in a sealed record or a signed receipt.
//!
//! A long list of evidence need not be in memory: of a piece that lies on a [`Shelf`] only its root is kept, and it is
//! fetched where it is looked at.

use schemas::attachment::AttachmentName;
use schemas::digest::{MeetingRoot, TraceRoot};
use schemas::object::{Object, ObjectError};
use schemas::source::SourceError;
use schemas::trace::{Meeting, Trace};
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// Where evidence lies that is not in memory.
pub trait Shelf {
    /// The attachment of this name, which was there before.
    fn fetch(&self, name: AttachmentName) -> Result<Vec<u8>, SourceError>;
}

/// Traces and meetings by root.
#[derive(Clone, Default)]
pub struct Evidence<'a> {
    traces: BTreeMap<TraceRoot, Piece<Trace>>,
    meetings: BTreeMap<MeetingRoot, Piece<Meeting>>,
    shelf: Option<&'a dyn Shelf>,
    unread: OnceLock<SourceError>,
}

/// A trace or a meeting: which step it is of, and, of a trace, which leaf; and itself, or where it is.
#[derive(Clone, Debug)]
struct Piece<T> {
    step: u64,
    leaf: Option<u64>,
    at: At<T>,
}

#[derive(Clone, Debug)]
enum At<T> {
    Here(T),
    Shelved(AttachmentName),
}

/// An attachment that is neither a trace nor a meeting.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("neither a trace ({trace}) nor a meeting ({meeting})")]
pub struct EvidenceError {
    /// Why it is no trace.
    pub trace: Box<ObjectError>,
    /// Why it is no meeting.
    pub meeting: Box<ObjectError>,
}

/// What an attachment is.
enum Read {
    Trace(Trace),
    Meeting(Meeting),
}

fn read(bytes: &[u8]) -> Result<Read, EvidenceError> {
    // Their fields differ, so that no bytes are both.
    let trace = match Trace::decode(bytes) {
        Ok(trace) => return Ok(Read::Trace(trace)),
        Err(error) => error.into(),
    };
    match Meeting::decode(bytes) {
        Ok(meeting) => Ok(Read::Meeting(meeting)),
        Err(error) => Err(EvidenceError { trace, meeting: error.into() }),
    }
}

impl<'a> Evidence<'a> {
    /// No evidence.
    pub fn none() -> Evidence<'a> {
        Evidence::default()
    }

    /// No evidence yet, with a shelf for [`Evidence::add_shelved`].
    pub fn on(shelf: &'a dyn Shelf) -> Evidence<'a> {
        Evidence { shelf: Some(shelf), ..Evidence::default() }
    }

    /// Adds an encoded trace or meeting.
    pub fn add(&mut self, bytes: &[u8]) -> Result<(), EvidenceError> {
        self.insert(bytes, None)
    }

    /// Adds an encoded trace or meeting that lies on the shelf under this name: it is not kept here.
    pub fn add_shelved(&mut self, bytes: &[u8], name: AttachmentName) -> Result<(), EvidenceError> {
        self.insert(bytes, Some(name))
    }

    fn insert(&mut self, bytes: &[u8], shelved: Option<AttachmentName>) -> Result<(), EvidenceError> {
        match read(bytes)? {
            Read::Trace(trace) => {
                let (root, step, leaf) = (trace.root(), trace.step, Some(trace.leaf));
                let at = shelved.map_or(At::Here(trace), At::Shelved);
                self.traces.insert(root, Piece { step, leaf, at });
            }
            Read::Meeting(meeting) => {
                let (root, step) = (meeting.root(), meeting.step);
                let at = shelved.map_or(At::Here(meeting), At::Shelved);
                self.meetings.insert(root, Piece { step, leaf: None, at });
            }
        }
        Ok(())
    }

    /// The trace with this root, if it is of this leaf.
    pub fn trace(&self, root: TraceRoot, step: u64, leaf: u64) -> Option<Trace> {
        let piece = self.traces.get(&root).filter(|piece| (piece.step, piece.leaf) == (step, Some(leaf)))?;
        self.get(piece)
    }

    /// The meeting with this root, if it is of this step.
    pub fn meeting(&self, root: MeetingRoot, step: u64) -> Option<Meeting> {
        self.get(self.meetings.get(&root).filter(|piece| piece.step == step)?)
    }

    /// A piece that cannot be fetched is remembered as unread: whatever is concluded without it is of no account.
    fn get<T: Object + Clone>(&self, piece: &Piece<T>) -> Option<T> {
        let name = match &piece.at {
            At::Here(it) => return Some(it.clone()),
            At::Shelved(name) => *name,
        };
        let bytes = match self.shelf?.fetch(name) {
            Ok(bytes) => bytes,
            Err(error) => {
                self.unread.get_or_init(|| error);
                return None;
            }
        };
        T::decode(&bytes).ok()
    }

    /// Why a piece could not be fetched, if one could not.
    pub fn unread(&self) -> Option<&SourceError> {
        self.unread.get()
    }

    /// Whether some trace of this leaf has a root other than these two: given for it, but not what was signed.
    pub(crate) fn strays(&self, step: u64, leaf: u64, roots: [TraceRoot; 2]) -> bool {
        self.traces
            .iter()
            .any(|(root, piece)| (piece.step, piece.leaf) == (step, Some(leaf)) && !roots.contains(root))
    }
}

impl std::fmt::Debug for Evidence<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Evidence({} traces, {} meetings)", self.traces.len(), self.meetings.len())
    }
}
