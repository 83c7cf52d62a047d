//! Do prediction and receipts agree (docs/spec/verdict.md). A pure function, given here as a decision table.
//!
//! # Before any step
//!
//! | what | outcome |
//! | --- | --- |
//! | no receipt at all | `incomplete` |
//! | receipts name different numbers of devices, or steps other than the prediction's | `incomplete` |
//! | one rank twice, or one key under two ranks | `incomplete` |
//! | a rank without a receipt | missing; the others are judged |
//!
//! # Step by step
//!
//! From the first predicted step on, until a step in which a device with a receipt has no record (missing), or
//! something differs, or the prediction is invalid. Only that step is judged. In it, for each device in rank order,
//! the first row that applies:
//!
//! | row | what differs | finding |
//! | --- | --- | --- |
//! | 1 | trace root or loss bits of an own leaf (the lowest) | `leaf`, with the first differing tap |
//! | 2 | where leaves stopped being finite, an own leaf concerned | `leaf` |
//! | 3 | the same, a peer's leaf concerned, and the peer's record is right | `link`, that peer |
//! | 4 | the same, and the peer's record is wrong or missing | inherited |
//! | 5 | the partial | `partial`, operation `tree` |
//! | 6 | level l: what was received; the partner reports sending what was predicted | `link`, that partner |
//! | 7 | level l: what was received; the partner reports something else, or nothing | inherited |
//! | 8 | level l: the partner reports another sending than the right one received | on the partner, alone: `receipt` |
//! | 9 | level l: the sum, both addends being right | `reduce`, operation `tree` |
//! | 10 | the reduced gradient | `reduce`, operation `scale` |
//! | 11 | the norm | `update`, operation `norm` |
//! | 12 | first moment, else second moment, else parameters | `update`, operation `adamw` |
//! | 13 | where the update stopped being finite | `update` |
//!
//! Rows 6 to 9 are gone through for level 0, then level 1 and so on. A device whose difference is inherited has no
//! finding: its source has. Sums compare by checksum, moments by fold, losses and norm by bits.
//!
//! # Outcome
//!
//! | findings in that step | missing | the step | outcome |
//! | --- | --- | --- | --- |
//! | some | any | any | `diverge`, with the step; missing things are listed too |
//! | none, but something inherited | any | any | `incomplete`, with the step: the source is missing |
//! | none | some | any | `incomplete` |
//! | none | none | predicted invalid | `invalid`, with the step |
//! | none in any step | none | | the answers decide |
//!
//! # Answers
//!
//! | what | outcome |
//! | --- | --- |
//! | no answer in a receipt, or one for a step not chosen | `diverge`, phase `answer`, with the chosen step |
//! | an expected answer is given and a receipt's differs | the same |
//! | receipts answer different challenges, with or without an expected answer | `incomplete` |
//! | the expected answer is for another step | `incomplete` |
//! | no expected answer, and two receipts of one challenge answer differently | `incomplete` |
//! | none of these | `agree` |
//!
//! # Cause
//!
//! `fault` where exactly one word, of a tensor of more than one, explains both differences of the folds;
//! `undetermined` otherwise. A replay of the operation, which is the word of whoever made it, stands above both:
//! `configuration` if one gives the device's bits, `fault` if every known one was tried and none does.
//!
//! No record shows the state before the first predicted step, unless that is step 0. A finding in it that rests on that
//! state (of an operation that reads parameters, or of the optimizer) is `undetermined` unless a configuration explains
//! it, and says so.

use crate::answer;
use crate::case::{
    Case, CaseError, Decision, Departure, LISTED_MAX, Scene, begins_unrecorded, missing_line, note,
};
use crate::leaf;
use crate::meet;
use crate::pinpoint::reads_parameters;
use crate::prediction::{check_body, check_plan};
use crate::receipt::{Admitted, check_shape};
use crate::update;
use schemas::counted::counted;
use schemas::plan::Operation;
use schemas::record::NonFinite;
use schemas::verdict::{Cause, Finding, Outcome, Phase, Verdict};

const REFUSED_PREFIX: &str = "refused: ";
/// Most refusals listed.
const REFUSED_MAX: usize = 8;

/// Compares a prediction with its receipts.
///
/// Errs only if the parts of the case do not belong together; see the module's tables for the rest.
pub fn reconcile(case: &Case) -> Result<Decision, CaseError> {
    check_plan(case.run, case.plan)?;
    check_body(case.run, case.steps, case.body)?;
    for admitted in case.receipts {
        check_shape(admitted.receipt(), admitted.body(), case.run)
            .map_err(|source| CaseError::Receipt { rank: admitted.receipt().rank, source })?;
    }
    let mut decision = Decision {
        outcome: Outcome::Agree,
        step: None,
        findings: Vec::new(),
        missing: Vec::new(),
        simulated: case.receipts.iter().any(|admitted| admitted.receipt().simulated),
        needed: Vec::new(),
        answers_judged: false,
        invalid_at: None,
        causes_replayed: false,
    };
    decision.missing = unfit(case);
    if decision.missing.is_empty() {
        let by_rank = by_rank(case, &mut decision);
        judge_steps(case, &by_rank, &mut decision);
    } else {
        decision.outcome = Outcome::Incomplete;
    }
    apply_replays(case, &mut decision);
    finish(case, &mut decision);
    Ok(decision)
}

/// Whether a finding names an operation that can be computed again.
pub fn can_be_replayed(finding: &Finding) -> bool {
    finding.operation.is_some() && matches!(finding.phase, Phase::Leaf | Phase::Update)
}

/// Puts what replays came to into the findings they are about.
fn apply_replays(case: &Case, decision: &mut Decision) {
    for finding in decision.findings.iter_mut().filter(|finding| can_be_replayed(finding)) {
        let Some(replayed) = case.replayed.iter().find(|replayed| replayed.rank == finding.rank) else {
            continue;
        };
        let words = match (&replayed.cause, &finding.cause) {
            (Cause::Configuration(_), _) => "computed again in this configuration it has the device's bits",
            // Not from the predicted state, maybe: then no configuration is ruled out.
            (Cause::Fault, _) if may_be_inherited(case, decision.step, finding) => continue,
            // Where one word explains it, nothing more is said.
            (Cause::Fault, Cause::Undetermined) => "computed again, no known configuration gives these bits",
            _ => continue,
        };
        finding.note = note(format!("{}; {words}", finding.note));
        finding.cause = replayed.cause.clone();
        decision.causes_replayed = true;
    }
}

/// Whether a finding that can be replayed is of a step before which no record shows the state, and rests on that state.
fn may_be_inherited(case: &Case, step: Option<u64>, finding: &Finding) -> bool {
    let named = |operation: &&Operation| Some(&operation.name) == finding.operation.as_ref();
    let on_state = match finding.phase {
        Phase::Leaf => case.plan.operations.iter().find(named).is_some_and(reads_parameters),
        _ => finding.operation.as_deref() != Some("norm"),
    };
    on_state && step.is_some_and(|step| begins_unrecorded(case, step))
}

/// What keeps receipts from being judged together at all.
fn unfit(case: &Case) -> Vec<String> {
    let mut receipts: Vec<&Admitted> = case.receipts.iter().collect();
    receipts.sort_by_key(|admitted| (admitted.receipt().rank, admitted.entry()));
    let Some(first) = receipts.first() else { return vec!["any receipt".into()] };
    let mut missing = Vec::new();
    // What is beyond the list is only counted: of 1024 receipts there are half a million pairs.
    let mut tell = |line: &dyn Fn() -> String| {
        missing.push(if missing.len() < LISTED_MAX { line() } else { String::new() });
    };
    for admitted in &receipts {
        let (receipt, rank) = (admitted.receipt(), admitted.receipt().rank);
        if receipt.devices != first.receipt().devices {
            tell(&|| {
                format!(
                    "one number of devices: device {} says {}, device {rank} says {}",
                    first.receipt().rank,
                    first.receipt().devices,
                    receipt.devices
                )
            });
        }
        if receipt.steps != case.steps {
            tell(&|| {
                format!(
                    "a receipt of device {rank} for the predicted steps {}: found steps {}",
                    case.steps, receipt.steps
                )
            });
        }
    }
    for (at, one) in receipts.iter().enumerate() {
        for other in &receipts[at + 1..] {
            let (rank, other_rank) = (one.receipt().rank, other.receipt().rank);
            if rank == other_rank {
                let (entry, second) = (one.entry(), other.entry());
                tell(&|| format!("one receipt of device {rank}: found entries {entry} and {second}"));
            } else if one.device() == other.device() {
                let key = one.device();
                tell(&|| format!("a key for each device: devices {rank} and {other_rank} have one, {key}"));
            }
        }
    }
    missing
}

fn by_rank<'a>(case: &'a Case, decision: &mut Decision) -> Vec<Option<&'a Admitted>> {
    let devices = case.receipts[0].receipt().devices;
    let mut by_rank = vec![None; devices as usize];
    for admitted in case.receipts {
        by_rank[admitted.receipt().rank as usize] = Some(admitted);
    }
    for (rank, slot) in by_rank.iter().enumerate() {
        if slot.is_none() {
            decision.missing.push(format!("device {rank} of {devices}: no receipt"));
        }
    }
    by_rank
}

fn judge_steps<'a>(case: &'a Case, by_rank: &'a [Option<&'a Admitted>], decision: &mut Decision) {
    let devices = by_rank.len() as u64;
    for (step, predicted) in (case.steps.first..).zip(&case.body.records) {
        let settled = by_rank.iter().flatten().all(|admitted| admitted.is_settled(step));
        if settled && predicted.non_finite.is_none() {
            continue;
        }
        let record = |slot: &Option<&'a Admitted>| (*slot)?.record_of(case.run, step, predicted);
        let records = by_rank.iter().map(record).collect();
        let scene = Scene { case, step, predicted, devices, by_rank, records };
        let lacking = lacking(&scene);
        let departures = judge_step(&scene, decision);
        decision.missing.extend(lacking.iter().cloned());
        let mut inherited = Vec::new();
        for (rank, departure) in departures.into_iter().enumerate() {
            match departure {
                Some(Departure::Found(finding)) => decision.findings.push(*finding),
                Some(Departure::Inherited(from)) => inherited.push(format!(
                    "device {from}: its part in step {step}, from which device {rank} differs by inheritance"
                )),
                None => {}
            }
        }
        if !decision.findings.is_empty() {
            (decision.outcome, decision.step) = (Outcome::Diverge, Some(step));
            return;
        }
        if !inherited.is_empty() {
            decision.missing.append(&mut inherited);
            (decision.outcome, decision.step) = (Outcome::Incomplete, Some(step));
            return;
        }
        if !lacking.is_empty() {
            decision.outcome = Outcome::Incomplete;
            return;
        }
        if let Some(at) = predicted.non_finite.filter(|_| decision.missing.is_empty()) {
            (decision.outcome, decision.step) = (Outcome::Invalid, Some(step));
            decision.invalid_at = Some(invalid_in_words(&scene, at));
            return;
        }
    }
    if !decision.missing.is_empty() {
        decision.outcome = Outcome::Incomplete;
        return;
    }
    judge_answers(case, by_rank, decision);
}

/// Devices with a receipt and no record of this step.
fn lacking(scene: &Scene) -> Vec<String> {
    let lacks = |(rank, slot): (usize, &Option<&Admitted>)| {
        let admitted = (*slot)?;
        let none = scene.record(rank as u64).is_none();
        none.then(|| format!("device {rank} ({}): no record of step {}", admitted.device(), scene.step))
    };
    scene.by_rank.iter().enumerate().filter_map(lacks).collect()
}

/// The departure of each rank in one step.
fn judge_step(scene: &Scene, decision: &mut Decision) -> Vec<Option<Departure>> {
    let mut departures: Vec<Option<Departure>> = vec![None; scene.by_rank.len()];
    let mut contradicted: Vec<Option<Finding>> = vec![None; scene.by_rank.len()];
    for rank in 0..scene.devices {
        let Some(record) = scene.record(rank) else { continue };
        let needed = &mut decision.needed;
        let mut departure = leaf::judge(scene, rank, record, needed);
        let outcomes = (&scene.predicted.outcome, &record.outcome);
        if let (None, (Some(expected), Some(found))) = (&departure, outcomes) {
            let meetings = meet::judge(scene, rank, expected, found, needed);
            for (peer, level) in meetings.contradicted {
                let slot = &mut contradicted[peer as usize];
                slot.get_or_insert_with(|| meet::contradicted(scene, peer, rank, level));
            }
            departure =
                meetings.departure.or_else(|| update::judge(scene, rank, record, expected, found, needed));
        }
        departures[rank as usize] = departure;
    }
    // Whoever received the right thing from a device knows better than its own receipt what it had.
    for (departure, contradicted) in departures.iter_mut().zip(contradicted) {
        if let Some(finding) = contradicted {
            *departure = Some(Departure::Found(Box::new(finding)));
        }
    }
    departures
}

fn invalid_in_words(scene: &Scene, at: NonFinite) -> String {
    match at {
        NonFinite::Tap { leaf, tap } => format!("leaf {leaf}, {}", leaf::tap_name(scene, tap)),
        NonFinite::Update { .. } => update::in_words(Some(at)),
    }
}

fn judge_answers(case: &Case, by_rank: &[Option<&Admitted>], decision: &mut Decision) {
    let receipts: Vec<&Admitted> = by_rank.iter().flatten().copied().collect();
    let answers = answer::judge(case, &receipts);
    decision.answers_judged = true;
    decision.missing.extend(answers.missing);
    if !answers.findings.is_empty() {
        (decision.outcome, decision.step) = (Outcome::Diverge, answers.step);
        decision.findings = answers.findings;
    } else if !decision.missing.is_empty() {
        decision.outcome = Outcome::Incomplete;
    }
}

/// Cuts lists to what a verdict may hold, and lists refusals where something is missing.
fn finish(case: &Case, decision: &mut Decision) {
    let findings = decision.findings.len();
    if findings > LISTED_MAX {
        decision.findings.truncate(LISTED_MAX);
        let more = counted((findings - LISTED_MAX) as u64, "more finding");
        decision.missing.insert(0, format!("room for {more} in this step"));
    }
    let missing = decision.missing.len();
    if missing > LISTED_MAX {
        decision.missing.truncate(LISTED_MAX - 1);
        decision.missing.push(format!("{} more things", missing - LISTED_MAX + 1));
    }
    // Refusals are cut apart from the rest and without a count, so that a verdict's own list, read back as a case's
    // refusals, gives the same list again.
    if !decision.missing.is_empty() {
        decision.missing.extend(case.refused.iter().take(REFUSED_MAX).map(|why| refused_line(why)));
    }
    for line in &mut decision.missing {
        *line = missing_line(std::mem::take(line));
    }
    decision.needed.sort();
    decision.needed.dedup();
}

/// A refusal as it stands among the missing things.
fn refused_line(why: &str) -> String {
    format!("{REFUSED_PREFIX}{why}")
}

/// The refusals in a verdict's list of missing things: they are its signer's word, since what was refused is not in
/// a bundle.
pub fn refused_of(missing: &[String]) -> Vec<String> {
    missing.iter().filter_map(|line| line.strip_prefix(REFUSED_PREFIX)).map(str::to_owned).collect()
}

/// Whether a verdict was decided before the answers to the challenge were looked at.
pub fn decided_before_answers(verdict: &Verdict) -> bool {
    match verdict.outcome {
        Outcome::Agree => false,
        Outcome::Invalid => true,
        Outcome::Diverge => verdict.findings.iter().all(|finding| finding.phase != Phase::Answer),
        Outcome::Incomplete => {
            let about_answers = verdict.missing.iter().any(|line| answer::is_about_answers(line));
            !about_answers && verdict.answer.is_none()
        }
    }
}
