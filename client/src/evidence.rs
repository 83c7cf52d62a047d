//! Traces and meetings, fetched from the folders where a comparison asks for them.

use crate::folder::{Secrets, read_file, trace_name};
use crate::output;
use crate::steps;
use schemas::digest::RunId;
use schemas::object::Object as _;
use schemas::trace::{Meeting, Trace};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use verify::case::{Case, Decision, Need};
use verify::evidence::Evidence;
use verify::reconcile::reconcile;

/// A decision with the evidence it was reached with.
pub struct Located {
    /// The decision.
    pub decision: Decision,
    /// The encoded traces and meetings, in the order they were asked for.
    pub evidence: Vec<Vec<u8>>,
}

/// The folder of each device's receipt, in which its traces are too, by rank.
pub type Folders = BTreeMap<u64, PathBuf>;

/// Compares, fetches what would name more, and compares again, until nothing more is found. `prediction` is the
/// prediction's folder.
pub fn locate(case: &Case, prediction: &Path, folders: &Folders) -> anyhow::Result<Located> {
    locate_or(case, prediction, folders, &|_| Ok(None))
}

/// As `locate`; what no folder has is asked of `recompute`.
pub fn locate_or(
    case: &Case,
    prediction: &Path,
    folders: &Folders,
    recompute: &dyn Fn(Need) -> anyhow::Result<Option<Vec<u8>>>,
) -> anyhow::Result<Located> {
    let mut evidence = Evidence::none();
    let mut found: Vec<Vec<u8>> = Vec::new();
    loop {
        let decision = reconcile(&Case { evidence: &evidence, ..*case })?;
        let mut more = false;
        for need in &decision.needed {
            let bytes = match fetch(*need, case.run.id(), prediction, folders) {
                Some(bytes) => Some(bytes),
                None => recompute(*need)?,
            };
            let Some(bytes) = bytes else { continue };
            if found.contains(&bytes) {
                continue;
            }
            evidence.add(&bytes)?;
            found.push(bytes);
            more = true;
        }
        if !more {
            return Ok(Located { decision, evidence: found });
        }
    }
}

/// What a need names, if it is there and is of that step and leaf.
fn fetch(need: Need, run: RunId, prediction: &Path, folders: &Folders) -> Option<Vec<u8>> {
    let kept = |step: u64| steps::find(&prediction.join("steps"), run, step);
    match need {
        Need::PredictedTrace { step, leaf } => {
            let trace = kept(step)?.traces.into_iter().nth(usize::try_from(leaf).ok()?);
            trace.filter(|bytes| is_trace(bytes, step, leaf))
        }
        Need::Meeting { step } => {
            let is_meeting =
                |bytes: &Vec<u8>| Meeting::decode(bytes).is_ok_and(|meeting| meeting.step == step);
            kept(step)?.meeting.filter(is_meeting)
        }
        Need::DeviceTrace { step, leaf, rank } => {
            device_trace(&folders.get(&rank)?.join(format!("traces/rank-{rank}")), step, leaf)
        }
    }
}

fn is_trace(bytes: &[u8], step: u64, leaf: u64) -> bool {
    Trace::decode(bytes).is_ok_and(|trace| (trace.step, trace.leaf) == (step, leaf))
}

/// The trace that a device kept of a leaf.
fn device_trace(folder: &Path, step: u64, leaf: u64) -> Option<Vec<u8>> {
    let path = folder.join(trace_name(step, leaf));
    if !path.exists() {
        return None;
    }
    match read_file(&path, Trace::BYTES_MAX as u64) {
        Ok(bytes) if is_trace(&bytes, step, leaf) => Some(bytes),
        Ok(_) => {
            output::note(&format!("{} is not what its name says; it is left out", path.display()));
            None
        }
        Err(error) => {
            output::note(&output::message_of(&error));
            None
        }
    }
}

/// The prediction's parts of a case.
pub fn case_of<'a>(
    entries: &'a crate::folder::Entries,
    secrets: &'a Secrets,
    receipts: &'a [verify::receipt::Admitted],
    refused: &'a [String],
    evidence: &'a Evidence,
    answer: Option<schemas::receipt::Answer>,
) -> Case<'a> {
    Case {
        run: &entries.run,
        plan: &secrets.plan,
        plan_digest: entries.run.plan,
        steps: entries.prediction.steps,
        body: &secrets.body,
        receipts,
        refused,
        evidence,
        answer,
        replayed: &[],
    }
}
