//! Holds what a comparison says against what was done.

use crate::draw::{Draw, Expected, Truth, Word};
use crate::scene::Located;
use schemas::fold::NAN_WORD;
use schemas::verdict::{Cause, Finding, Outcome};

/// What was right. `None` where it does not apply.
#[derive(Debug, Default)]
pub struct Marks {
    /// The verdict is not `agree`.
    pub detected: bool,
    /// The device, and the one at the other end of a link.
    pub device: bool,
    /// The step.
    pub step: bool,
    /// The phase.
    pub phase: bool,
    /// The operation.
    pub operation: Option<bool>,
    /// The element and both its values.
    pub element: Option<bool>,
    /// The cause, where a replay can tell it: a fault is no configuration.
    pub cause: Option<bool>,
}

impl Marks {
    /// Whether anything was wrong.
    pub fn missed(&self) -> bool {
        let all = self.detected && self.device && self.step && self.phase;
        !all || [self.operation, self.element, self.cause].contains(&Some(false))
    }
}

/// Judges a run with one fault or two.
pub fn judge(draws: &[Draw], located: &Located) -> Marks {
    let decision = &located.decision;
    let mut marks: Option<Marks> = None;
    for draw in draws {
        let one = match &draw.truth {
            Truth::Missing => missing(draw, located),
            Truth::Finding(expected) => {
                let finding = decision.findings.iter().find(|finding| finding.rank == expected.rank);
                found(draw, expected, located, finding)
            }
        };
        marks = Some(match marks {
            None => one,
            Some(before) => both(before, one),
        });
    }
    let mut marks = marks.unwrap_or_default();
    // Nobody else may be accused.
    let accused: Vec<u64> = decision.findings.iter().map(|finding| finding.rank).collect();
    let guilty =
        |rank: &u64| draws.iter().any(|draw| matches!(&draw.truth, Truth::Finding(e) if e.rank == *rank));
    marks.device &= accused.iter().all(guilty);
    marks
}

fn both(one: Marks, other: Marks) -> Marks {
    let and = |a: Option<bool>, b: Option<bool>| match (a, b) {
        (Some(a), Some(b)) => Some(a && b),
        (a, b) => a.or(b),
    };
    Marks {
        detected: one.detected && other.detected,
        device: one.device && other.device,
        step: one.step && other.step,
        phase: one.phase && other.phase,
        operation: and(one.operation, other.operation),
        element: and(one.element, other.element),
        cause: and(one.cause, other.cause),
    }
}

/// The device is named as missing, and in which step if only its record of one is.
fn missing(draw: &Draw, located: &Located) -> Marks {
    let decision = &located.decision;
    let rank = draw.text.split(['=', ',']).nth(1).unwrap_or_default();
    // Where nobody handed in anything, nobody says how many there were.
    let names = [format!("device {rank} "), format!("device rank {rank}: ")];
    let named = |missing: &String| {
        missing == "any receipt" || names.iter().any(|name| missing.starts_with(name.as_str()))
    };
    let device = decision.missing.iter().any(named);
    let in_step =
        |missing: &String| draw.form != "skipped-step" || missing.contains(&format!("step {}", draw.step));
    let incomplete = decision.outcome == Outcome::Incomplete;
    Marks {
        detected: decision.outcome != Outcome::Agree,
        device,
        step: decision.missing.iter().any(in_step),
        phase: incomplete,
        operation: None,
        element: None,
        cause: None,
    }
}

fn found(draw: &Draw, expected: &Expected, located: &Located, finding: Option<&Finding>) -> Marks {
    let decision = &located.decision;
    let detected = decision.outcome == Outcome::Diverge;
    let step = decision.step == Some(draw.step);
    let Some(finding) = finding else {
        let nothing = |applies: bool| applies.then_some(false);
        let (operation, element) = (nothing(expected.operations.is_some()), nothing(expected.word.is_some()));
        let cause = nothing(draw.in_leaf());
        return Marks { detected, step, operation, element, cause, ..Marks::default() };
    };
    let device = expected.peer.is_none_or(|peer| finding.peer == Some(peer));
    let phase = expected.phases.contains(&finding.phase);
    let operation = expected
        .operations
        .as_ref()
        .map(|operations| finding.operation.as_ref().is_some_and(|operation| operations.contains(operation)));
    let element = expected.word.as_ref().map(|word| word_is(word, finding));
    let cause = draw.in_leaf().then(|| match &finding.cause {
        Cause::Fault => draw.form != "swapped-leaves",
        Cause::Configuration(name) => draw.form == "swapped-leaves" && name.starts_with("data-of-step-"),
        Cause::Undetermined => false,
    });
    Marks { detected, device, step, phase, operation, element, cause }
}

/// Whether a finding names the very word, with both its values. All NaNs are one word in folds.
fn word_is(word: &Word, finding: &Finding) -> bool {
    let Some(found) = &finding.word else { return false };
    let right_place = finding.tensor.as_deref() == Some(&*word.tensor) && found.element == word.element;
    let right_value = word.mask.is_none_or(|mask| {
        let changed = found.expected ^ mask;
        found.found == if f32::from_bits(changed).is_nan() { NAN_WORD } else { changed }
    });
    right_place && right_value && word.honest.is_none_or(|honest| found.expected == honest)
}
