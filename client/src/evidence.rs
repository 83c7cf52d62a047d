//! Traces and meetings, fetched from the folders where a comparison asks for them.

use crate::folder::{Secrets, read_file, trace_name};
use crate::output;
use crate::receipts::Judged;
use schemas::object::Object as _;
use schemas::trace::{Meeting, Trace};
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

/// Compares, fetches what would name more, and compares again, until nothing more is found.
pub fn locate(case: &Case, prediction: &Path, judged: &[Judged]) -> anyhow::Result<Located> {
    let mut evidence = Evidence::none();
    let mut found: Vec<Vec<u8>> = Vec::new();
    loop {
        let decision = reconcile(&Case { evidence: &evidence, ..*case })?;
        let mut more = false;
        for need in &decision.needed {
            let Some(bytes) = fetch(*need, prediction, judged) else { continue };
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

/// The file that a need names, if it is there and is of that step and leaf.
fn fetch(need: Need, prediction: &Path, judged: &[Judged]) -> Option<Vec<u8>> {
    let path = path_of(need, prediction, judged)?;
    if !path.exists() {
        return None;
    }
    let bytes_max = Trace::BYTES_MAX.max(Meeting::BYTES_MAX) as u64;
    let fits = |bytes: &[u8]| match need {
        Need::PredictedTrace { step, leaf } | Need::DeviceTrace { step, leaf, .. } => {
            Trace::decode(bytes).is_ok_and(|trace| (trace.step, trace.leaf) == (step, leaf))
        }
        Need::Meeting { step } => Meeting::decode(bytes).is_ok_and(|meeting| meeting.step == step),
    };
    match read_file(&path, bytes_max) {
        Ok(bytes) if fits(&bytes) => Some(bytes),
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

fn path_of(need: Need, prediction: &Path, judged: &[Judged]) -> Option<PathBuf> {
    Some(match need {
        Need::PredictedTrace { step, leaf } => prediction.join("traces").join(trace_name(step, leaf)),
        Need::Meeting { step } => prediction.join(format!("meetings/step-{step:06}.cbor")),
        Need::DeviceTrace { step, leaf, rank } => {
            let of = judged.iter().find(|judged| judged.admitted.receipt().rank == rank)?;
            of.folder.join(format!("traces/rank-{rank}")).join(trace_name(step, leaf))
        }
    })
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
    }
}
