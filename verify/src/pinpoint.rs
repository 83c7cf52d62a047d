//! From two traces of one leaf to the first tensor that differs, and from its two folds to the wrong word.

use crate::locate::locate;
use schemas::digest::PlanDigest;
use schemas::fold::Fold;
use schemas::plan::{Operand, Operation, Plan, Tap};
use schemas::trace::Trace;
use schemas::verdict::{Cause, WrongWord};

/// Where two traces of one leaf first differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The tap, in plan order.
    pub tap: usize,
    /// What it is; absent if the plan has not so many.
    pub at: Option<Tap>,
    /// The expected and the found fold of it, unless a trace ends before it.
    pub folds: Option<(Fold, Fold)>,
    /// The wrong word, if exactly one explains the difference.
    pub word: Option<WrongWord>,
    /// What the folds say of the cause.
    pub cause: Cause,
    /// One sentence for people, without the leaf.
    pub words: String,
}

/// The first tap whose folds differ, or at which the shorter trace ends; none if the traces are equal.
pub fn first_difference(
    plan: &Plan,
    digest: PlanDigest,
    expected: &Trace,
    found: &Trace,
) -> Option<Difference> {
    let shorter = expected.folds.len().min(found.folds.len());
    let differs = expected.folds.iter().zip(&found.folds).position(|(expected, found)| expected != found);
    if differs.is_none() && expected.folds.len() == found.folds.len() {
        return None;
    }
    let tap = differs.unwrap_or(shorter);
    let undetermined = |at, words| {
        let cause = Cause::Undetermined;
        Some(Difference { tap, at, folds: None, word: None, cause, words })
    };
    let Some(at) = plan.taps().nth(tap) else {
        return undetermined(None, format!("differs in tap {tap}, which the plan has not"));
    };
    let first = format!("differs first in tap {tap} of {}", plan.taps().count());
    if differs.is_none() {
        let which = if found.folds.len() == shorter { "the device's" } else { "the predicted" };
        let words = format!("{first}, before which {which} trace ends at a NaN or an infinity");
        return undetermined(Some(at), words);
    }
    let folds = (expected.folds[tap], found.folds[tap]);
    let Place { word, cause, words, .. } = place(Some(folds.0), folds.1, digest, plan.elements(at.operand));
    Some(Difference {
        tap,
        at: Some(at),
        folds: Some(folds),
        word,
        cause,
        words: format!("{first}; {words}"),
    })
}

/// Whether an operation reads parameters: these are what earlier steps left, and no tap shows them.
pub fn reads_parameters(operation: &Operation) -> bool {
    operation.inputs.iter().any(|input| matches!(input, Operand::Parameter(_)))
}

/// What to say of a difference in the first recorded step, if it may come of the state that step began with.
pub fn unrecorded_before(step: u64) -> String {
    format!(
        "no record shows the state before step {step}: this may come of an earlier step, and of any device"
    )
}

/// What is known of a wrong tensor.
pub(crate) struct Place {
    pub(crate) tensor: Option<String>,
    pub(crate) word: Option<WrongWord>,
    pub(crate) cause: Cause,
    pub(crate) words: String,
}

/// Looks for one wrong word in a tensor of `words` words.
pub(crate) fn place(predicted: Option<Fold>, found: Fold, digest: PlanDigest, words: u64) -> Place {
    let unknown = |words: &str| Place {
        tensor: None,
        word: None,
        cause: Cause::Undetermined,
        words: words.to_string(),
    };
    let Some(predicted) = predicted else { return unknown("the predicted folds are not at hand") };
    if predicted == found {
        return unknown("its fold equals the prediction although its checksum does not");
    }
    match locate(predicted, found, digest.into(), words) {
        // One word always explains a tensor of one word: that says nothing about the cause.
        Some(word) if words == 1 => {
            Place { tensor: None, word: Some(word), cause: Cause::Undetermined, words: "its one word".into() }
        }
        Some(word) => Place {
            tensor: None,
            word: Some(word),
            cause: Cause::Fault,
            words: "one wrong word explains it exactly".into(),
        },
        None => unknown("more than one word differs"),
    }
}
