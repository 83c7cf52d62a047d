//! What is compared, and what comes of it: the types around [`crate::reconcile::reconcile`].

use crate::evidence::Evidence;
use crate::pinpoint::{Place, place, unrecorded_before};
use crate::prediction::PredictionError;
use crate::receipt::{Admitted, Refusal};
use schemas::digest::PlanDigest;
use schemas::fold::Fold;
use schemas::plan::Plan;
use schemas::prediction::PredictionBody;
use schemas::receipt::{Answer, DeviceRecord};
use schemas::record::StepRecord;
use schemas::run::{Run, Steps};
use schemas::trace::Meeting;
use schemas::verdict::{Cause, Finding, Outcome, Phase, WrongWord};
use std::borrow::Cow;

/// Most findings, and most missing things, that are listed: a verdict has to fit in a log entry. What is beyond is
/// counted in words.
pub const LISTED_MAX: usize = 32;
/// Most characters of a missing thing (`schemas::verdict`).
const MISSING_CHARS_MAX: usize = 200;
/// Most characters of a finding's note (`schemas::verdict`).
const NOTE_CHARS_MAX: usize = 400;

/// Everything a verdict is a function of.
#[derive(Clone, Copy, Debug)]
pub struct Case<'a> {
    /// The run.
    pub run: &'a Run,
    /// Its plan.
    pub plan: &'a Plan,
    /// The plan's digest, the key of the folds.
    pub plan_digest: PlanDigest,
    /// The predicted steps.
    pub steps: Steps,
    /// The opened prediction.
    pub body: &'a PredictionBody,
    /// Receipts, in any order.
    pub receipts: &'a [Admitted],
    /// Receipts that were not admitted, in words. They decide nothing; an incomplete verdict lists them.
    pub refused: &'a [String],
    /// Traces and meetings at hand.
    pub evidence: &'a Evidence<'a>,
    /// The expected answer to the challenge, if someone replayed its step.
    pub answer: Option<Answer>,
    /// What replays of operations came to, at most one for each rank.
    pub replayed: &'a [Replayed],
}

/// What came of computing an operation again under every known configuration (docs/spec/variants.md), in the step and
/// at the place where a device departed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replayed {
    /// The device.
    pub rank: u64,
    /// `configuration`, or `fault` if none gives its bits. `undetermined` says nothing.
    pub cause: Cause,
}

impl Replayed {
    /// What a finding says of it.
    pub fn of(finding: &Finding) -> Replayed {
        Replayed { rank: finding.rank, cause: finding.cause.clone() }
    }
}

/// What comes of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The result in one word.
    pub outcome: Outcome,
    /// The first step that differs or is invalid.
    pub step: Option<u64>,
    /// Departures in that step, by rank.
    pub findings: Vec<Finding>,
    /// What is missing, in words.
    pub missing: Vec<String>,
    /// Whether any receipt is of a simulated device.
    pub simulated: bool,
    /// Evidence that is not at hand and would name more. Not part of the verdict.
    pub needed: Vec<Need>,
    /// Whether it came to the answers: everything else agreed. Not part of the verdict.
    pub answers_judged: bool,
    /// Where an invalid step met its NaN or infinity, in words. Not part of the verdict.
    pub invalid_at: Option<String>,
    /// Whether some cause rests on a replay of an operation. Not part of the verdict.
    pub causes_replayed: bool,
}

/// Evidence that would name more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// The predicted trace of a leaf.
    PredictedTrace {
        /// Step.
        step: u64,
        /// Leaf.
        leaf: u64,
    },
    /// A device's trace of a leaf.
    DeviceTrace {
        /// Step.
        step: u64,
        /// Leaf.
        leaf: u64,
        /// Rank of the device.
        rank: u64,
    },
    /// The predicted folds of a step.
    Meeting {
        /// Step.
        step: u64,
    },
}

/// Why a case cannot be judged: its parts do not belong together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CaseError {
    /// Run, plan and body do not fit.
    #[error(transparent)]
    Prediction(#[from] PredictionError),
    /// A receipt is not of this run's shape.
    #[error("receipt of device {rank}: {source}")]
    Receipt {
        /// Whose.
        rank: u64,
        /// What does not fit.
        source: Refusal,
    },
}

/// One step of a case with one receipt per rank, as far as there are any.
pub(crate) struct Scene<'a> {
    pub(crate) case: &'a Case<'a>,
    pub(crate) step: u64,
    pub(crate) predicted: &'a StepRecord,
    /// W: how many devices shared the step.
    pub(crate) devices: u64,
    /// By rank.
    pub(crate) by_rank: &'a [Option<&'a Admitted>],
    /// What each did in the step, by rank.
    pub(crate) records: Vec<Option<Cow<'a, DeviceRecord>>>,
}

/// What a device did in a step.
#[derive(Clone, Debug)]
pub(crate) enum Departure {
    /// It departed.
    Found(Box<Finding>),
    /// It differs only by what it had from this rank.
    Inherited(u64),
}

impl<'a> Scene<'a> {
    pub(crate) fn record(&self, rank: u64) -> Option<&DeviceRecord> {
        self.records[rank as usize].as_deref()
    }

    /// Leaves of each device.
    pub(crate) fn leaves_each(&self) -> u64 {
        self.case.run.leaves / self.devices
    }

    /// The rank that owns `leaf`.
    pub(crate) fn owner(&self, leaf: u64) -> u64 {
        leaf / self.leaves_each()
    }

    /// The position of a tree node in a record's list: the level with `width` nodes, from the left.
    pub(crate) fn node(&self, width: u64, index: u64) -> usize {
        // The list starts with the level of devices_max nodes; levels above have half as many each, so those before
        // the level of `width` hold 2 devices_max - 2 width.
        (2 * self.case.run.devices_max - 2 * width + index) as usize
    }

    /// The predicted folds of the step, if they are at hand and of the right form.
    pub(crate) fn meeting(&self) -> Option<Meeting> {
        let outcome = self.predicted.outcome.as_ref()?;
        let meeting = self.case.evidence.meeting(outcome.meeting, self.step)?;
        (meeting.nodes.len() == outcome.nodes.len()).then_some(meeting)
    }

    /// Says of a finding that it may come of the state before the step, where no record shows that state.
    pub(crate) fn doubt(&self, finding: &mut Finding) {
        if begins_unrecorded(self.case, self.step) {
            finding.cause = Cause::Undetermined;
            finding.note = note(format!("{}; {}", finding.note, unrecorded_before(self.step)));
        }
    }

    /// A finding on `rank`; what more is known is filled in by the caller.
    pub(crate) fn finding(&self, rank: u64, phase: Phase) -> Finding {
        let admitted = self.by_rank[rank as usize].expect("case: a finding is about a device with a receipt");
        Finding {
            device: admitted.device(),
            rank,
            phase,
            peer: None,
            leaf: None,
            operation: None,
            tensor: None,
            word: None,
            cause: Cause::Undetermined,
            note: String::new(),
        }
    }

    /// Looks for one wrong word in a flat vector of all parameters' elements, and names the tensor it falls in,
    /// with `prefix` before the parameter's name.
    pub(crate) fn place_flat(&self, predicted: Option<Fold>, found: Fold, prefix: &str) -> Place {
        let plan = self.case.plan;
        let mut place = self.place(predicted, found, plan.parameter_count());
        if let Some(word) = place.word {
            let (index, start) = parameter_of(plan, word.element);
            place.word = Some(WrongWord { element: word.element - start, ..word });
            place.tensor = Some(format!("{prefix}{}", plan.parameters[index].name));
        }
        place
    }

    /// Looks for one wrong word in a tensor of `words` words.
    pub(crate) fn place(&self, predicted: Option<Fold>, found: Fold, words: u64) -> Place {
        place(predicted, found, self.case.plan_digest, words)
    }
}

/// Whether a step is the first predicted one, and not the run's first: no record shows the state before it.
pub(crate) fn begins_unrecorded(case: &Case, step: u64) -> bool {
    step > 0 && step == case.steps.first
}

impl Place {
    /// Puts the place into a finding, with a sentence that starts with `what`.
    pub(crate) fn into_finding(self, mut finding: Finding, what: &str) -> Departure {
        finding.note = note(format!("{what}; {}", self.words));
        finding.tensor = self.tensor;
        finding.word = self.word;
        finding.cause = self.cause;
        Departure::Found(Box::new(finding))
    }
}

/// The parameter whose elements include position `flat`, and where it starts.
fn parameter_of(plan: &Plan, flat: u64) -> (usize, u64) {
    let mut start = 0;
    for (index, parameter) in plan.parameters.iter().enumerate() {
        let elements: u64 = parameter.shape.iter().product();
        if flat < start + elements {
            return (index, start);
        }
        start += elements;
    }
    panic!("case: element {flat} is beyond the parameters, which a search among them cannot return");
}

/// Cuts a sentence to what a verdict may hold.
pub(crate) fn note(text: String) -> String {
    cut(text, NOTE_CHARS_MAX)
}

/// Cuts a missing thing to what a verdict may hold.
pub(crate) fn missing_line(text: String) -> String {
    cut(text, MISSING_CHARS_MAX)
}

fn cut(text: String, chars_max: usize) -> String {
    // Messages quote input, and a verdict's texts have no control characters.
    let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    match text.chars().count() {
        count if count > chars_max => text.chars().take(chars_max - 3).chain("...".chars()).collect(),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_to_what_a_verdict_holds_and_have_no_control_characters() {
        for (cut, chars_max) in [(note as fn(String) -> String, 400), (missing_line, 200)] {
            assert_eq!(cut("\u{e9}".repeat(chars_max)), "\u{e9}".repeat(chars_max));
            assert_eq!(cut("\u{e9}".repeat(chars_max + 1)), "\u{e9}".repeat(chars_max - 3) + "...");
            assert_eq!(cut("a\u{1b}b\nc".into()), "a b c");
        }
    }
}
