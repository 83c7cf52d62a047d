//! Traces and meetings: folds that name the operation, given only where something differs.
//!
//! Nothing rests on them but names: each is matched to a root that stands in a sealed record or a signed receipt.

use schemas::digest::{MeetingRoot, TraceRoot};
use schemas::object::{Object, ObjectError};
use schemas::trace::{Meeting, Trace};
use std::collections::BTreeMap;

/// Traces and meetings by root.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    traces: BTreeMap<TraceRoot, Trace>,
    meetings: BTreeMap<MeetingRoot, Meeting>,
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

impl Evidence {
    /// No evidence.
    pub fn none() -> Evidence {
        Evidence::default()
    }

    /// Adds an encoded trace or meeting.
    pub fn add(&mut self, bytes: &[u8]) -> Result<(), EvidenceError> {
        // Their fields differ, so that no bytes are both.
        match (Trace::decode(bytes), Meeting::decode(bytes)) {
            (Ok(trace), _) => drop(self.traces.insert(trace.root(), trace)),
            (_, Ok(meeting)) => drop(self.meetings.insert(meeting.root(), meeting)),
            (Err(trace), Err(meeting)) => {
                return Err(EvidenceError { trace: trace.into(), meeting: meeting.into() });
            }
        }
        Ok(())
    }

    /// The trace with this root.
    pub fn trace(&self, root: TraceRoot) -> Option<&Trace> {
        self.traces.get(&root)
    }

    /// The meeting with this root.
    pub fn meeting(&self, root: MeetingRoot) -> Option<&Meeting> {
        self.meetings.get(&root)
    }

    /// Whether some trace of this leaf has a root other than these two: given for it, but not what was signed.
    pub(crate) fn strays(&self, step: u64, leaf: u64, roots: [TraceRoot; 2]) -> bool {
        self.traces
            .iter()
            .any(|(root, trace)| trace.step == step && trace.leaf == leaf && !roots.contains(root))
    }
}
