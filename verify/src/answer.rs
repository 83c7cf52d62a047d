//! Phase `answer`: the keyed folds of the step that the challenge chose.
//!
//! Looked at only when everything else agrees. That an answer is for the chosen step, and that devices with one
//! challenge give one answer, needs no replay; that it is the right one does.

use crate::case::{Case, missing_line, note};
use crate::receipt::Admitted;
use schemas::challenge::chosen_step;
use schemas::receipt::Answer;
use schemas::verdict::{Cause, Finding, Phase};

/// What a missing thing says of two answers to one challenge.
const UNEQUAL: &str = "answer one challenge differently";
/// What a missing thing says of two challenges.
const DIFFERENT: &str = "one challenge for all receipts";

/// Whether a missing thing is about the answers, and so was found only when they were looked at.
pub(crate) fn is_about_answers(missing: &str) -> bool {
    missing.contains(UNEQUAL) || missing.contains(DIFFERENT)
}

/// Findings and missing things about the answers of receipts in rank order, and the step they are about.
#[derive(Default)]
pub(crate) struct Answers {
    pub(crate) findings: Vec<Finding>,
    pub(crate) missing: Vec<String>,
    pub(crate) step: Option<u64>,
}

pub(crate) fn judge(case: &Case, receipts: &[&Admitted]) -> Answers {
    let mut answers = Answers::default();
    // One verdict holds one expected answer. Devices that were given different challenges cannot all be held against
    // it, and a check that devices can switch off by answering another challenge would be none.
    if let Some(line) = different(receipts) {
        answers.missing.push(line);
        return answers;
    }
    let expected = case.answer.filter(|expected| {
        let unusable = unusable(case, receipts, *expected);
        let usable = unusable.is_none();
        answers.missing.extend(unusable);
        usable
    });
    for admitted in receipts {
        let step = chosen_step(admitted.receipt().challenge(), case.steps);
        if let Some(what) = wrong(expected, admitted, step) {
            answers.findings.push(finding(admitted, what));
            answers.step = Some(answers.step.map_or(step, |earlier| earlier.min(step)));
        }
    }
    if answers.findings.is_empty() && case.answer.is_none() {
        answers.missing.extend(unequal(receipts));
    }
    answers
}

/// Whose challenge differs from the first device's, in words.
fn different(receipts: &[&Admitted]) -> Option<String> {
    let first = receipts.first()?.receipt();
    let other = receipts.iter().find(|other| other.receipt().challenge() != first.challenge())?;
    let (one, two) = (first.rank, other.receipt().rank);
    Some(missing_line(format!("{DIFFERENT}: devices {one} and {two} answer different ones")))
}

/// Why the expected answer cannot be held against the receipts: it would accuse devices of its own mistake.
fn unusable(case: &Case, receipts: &[&Admitted], expected: Answer) -> Option<String> {
    let first = receipts.first()?.receipt().challenge();
    let step = chosen_step(first, case.steps);
    (expected.step != step).then(|| {
        format!("the replayed answer of step {step}, which the challenge chose; found step {}", expected.step)
    })
}

fn wrong(expected: Option<Answer>, admitted: &Admitted, step: u64) -> Option<String> {
    let Some(answer) = admitted.receipt().answer else {
        return Some(format!("it does not answer the challenge, which chose step {step}"));
    };
    if answer.step != step {
        return Some(format!("it answers for step {}, the challenge chose step {step}", answer.step));
    }
    expected.filter(|expected| *expected != answer).map(|expected| describe(expected, answer))
}

fn describe(expected: Answer, found: Answer) -> String {
    let show = |answer: Answer| format!("step {} {:?} {:?}", answer.step, answer.reduced, answer.parameters);
    format!("its answer is not the replayed one: expected {}, found {}", show(expected), show(found))
}

/// Receipts of one challenge must give one answer; without a replay it is open which of them is right.
fn unequal(receipts: &[&Admitted]) -> Option<String> {
    let first = receipts.first()?.receipt();
    let other = receipts.iter().find(|other| other.receipt().answer != first.answer)?;
    let (one, two) = (first.rank, other.receipt().rank);
    Some(missing_line(format!("devices {one} and {two} {UNEQUAL}: a replay of its step")))
}

fn finding(admitted: &Admitted, what: String) -> Finding {
    Finding {
        device: admitted.device(),
        rank: admitted.receipt().rank,
        phase: Phase::Answer,
        peer: None,
        leaf: None,
        operation: None,
        tensor: None,
        word: None,
        cause: Cause::Undetermined,
        note: note(what),
    }
}
