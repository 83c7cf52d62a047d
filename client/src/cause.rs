//! Why a device departed: the operation at which it did, computed again under every known configuration
//! (docs/spec/variants.md). Its inputs still agreed, so the device's tensors are not needed.

use crate::output;
use crate::replay::Replay;
use schemas::digest::TraceRoot;
use schemas::receipt::DeviceRecord;
use schemas::record::Outcome;
use schemas::trace::Trace;
use schemas::verdict::{Cause, Finding, Phase};
use step::variants::explain::{self, Vector};
use verify::case::{Case, Decision, Replayed};
use verify::evidence::Evidence;
use verify::pinpoint::first_difference;
use verify::reconcile::can_be_replayed;

/// Most names of configurations that a cause tells; more give the same bits only where there is next to nothing to
/// compute.
const NAMES_MAX: usize = 6;

/// Replays what the findings of a decision name, with the evidence they were located with.
pub fn replay(
    decision: &Decision,
    case: &Case,
    evidence: &[Vec<u8>],
    replay: &Replay,
) -> anyhow::Result<Vec<Replayed>> {
    let mut located = Evidence::none();
    for bytes in evidence {
        located.add(bytes)?;
    }
    let Some(step) = decision.step else { return Ok(vec![]) };
    let mut replayed = Vec::new();
    for finding in decision.findings.iter().filter(|finding| can_be_replayed(finding)) {
        let of = case.receipts.iter().find(|admitted| admitted.receipt().rank == finding.rank);
        let Some(record) = of.and_then(|admitted| admitted.record(step)) else { continue };
        let names = match finding.phase {
            Phase::Leaf => leaf(finding, case, record, &located, replay)?,
            _ => update(finding, case, record, replay)?,
        };
        if let Some(names) = names {
            replayed.push(Replayed { rank: finding.rank, cause: cause_of(&names) });
        }
    }
    Ok(replayed)
}

/// `configuration` with every name, or `fault`: every known one was tried.
pub fn cause_of(names: &[String]) -> Cause {
    match names {
        [] => Cause::Fault,
        _ => {
            let more = names.len().saturating_sub(NAMES_MAX);
            let mut text = names[..names.len() - more].join(" or ");
            if more > 0 {
                text.push_str(&format!(" or {more} more"));
            }
            Cause::Configuration(text)
        }
    }
}

/// A leaf's first differing operation. None if there is nothing to compare a replay with.
fn leaf(
    finding: &Finding,
    case: &Case,
    record: &DeviceRecord,
    evidence: &Evidence,
    replay: &Replay,
) -> anyhow::Result<Option<Vec<String>>> {
    let (Some(leaf), Some(predicted)) = (finding.leaf, case.body.record(record.step)) else {
        return Ok(None);
    };
    let first = finding.rank * record.traces.len() as u64;
    let trace = |root: &TraceRoot| evidence.trace(*root, record.step, leaf);
    let Some(expected) = predicted.traces.get(leaf as usize).and_then(trace) else { return Ok(None) };
    let own = leaf.checked_sub(first).and_then(|own| record.traces.get(own as usize));
    let Some(found) = own.and_then(trace) else { return Ok(None) };
    let difference = first_difference(case.plan, case.plan_digest, &expected, &found);
    let Some((tap, folds)) = difference.and_then(|one| Some((one.tap, one.folds?))) else { return Ok(None) };
    configurations(record.step, leaf, (tap, folds.1), replay).map(Some)
}

/// The configurations in which the operation of a tap has the fold found.
pub fn configurations(
    step: u64,
    leaf: u64,
    (tap, found): (usize, schemas::fold::Fold),
    replay: &Replay,
) -> anyhow::Result<Vec<String>> {
    let plan = replay.session().plan();
    let at = plan.taps().nth(tap).map(|tap| plan.operations[tap.operation].name.clone()).unwrap_or_default();
    output::note(&format!(
        "computing {at} of step {step}, leaf {leaf} again under every known configuration"
    ));
    let state = replay.state_before(step)?;
    let explained = explain::tap(replay.session(), step, leaf, &state.parameters, tap, found);
    replay.check_trace(&Trace { step, leaf, folds: explained.leaf.folds })?;
    Ok(explained.names)
}

/// Norm or optimizer, whose gradient was as predicted.
fn update(
    finding: &Finding,
    case: &Case,
    record: &DeviceRecord,
    replay: &Replay,
) -> anyhow::Result<Option<Vec<String>>> {
    let predicted = case.body.record(record.step).and_then(|predicted| predicted.outcome.as_ref());
    let (Some(expected), Some(found)) = (predicted, record.outcome.as_ref()) else { return Ok(None) };
    let operation = finding.operation.as_deref().unwrap_or_default();
    output::note(&format!(
        "computing {operation} of step {} again under every known configuration",
        record.step
    ));
    let (step, _) = replay.step(record.step)?;
    let Some(gradient) = step.reduced else { return Ok(None) };
    if found.norm != expected.norm {
        return Ok(Some(explain::norm(replay.session(), &gradient, found.norm)));
    }
    let vector = differing(expected, found);
    let (before, norm) = (replay.state_before(record.step)?, f32::from_bits(expected.norm));
    Ok(vector.map(|vector| explain::update(replay.session(), &before, &gradient, norm, vector)))
}

/// What differs first of an update, in the order of the decision table.
fn differing(
    expected: &Outcome,
    found: &schemas::receipt::DeviceOutcome,
) -> Option<(Vector, schemas::fold::Fold)> {
    if found.first_moment != expected.first_moment {
        return Some((Vector::First, found.first_moment));
    }
    if found.second_moment != expected.second_moment {
        return Some((Vector::Second, found.second_moment));
    }
    let parameters = &found.parameters;
    (parameters.checksum != expected.parameters).then_some((Vector::Parameters, parameters.fold))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_up_to_a_number_that_a_verdict_holds() {
        let names = |count: usize| -> Vec<String> {
            step::variants::VARIANTS.iter().take(count).map(|variant| variant.name.to_owned()).collect()
        };
        assert_eq!(cause_of(&[]), Cause::Fault);
        assert_eq!(cause_of(&names(1)), Cause::Configuration("uncontracted".into()));
        assert_eq!(cause_of(&names(2)), Cause::Configuration("uncontracted or contracted".into()));
        let Cause::Configuration(text) = cause_of(&names(16)) else { panic!("sixteen names are a cause") };
        assert!(text.ends_with(" or 10 more") && text.len() <= 185, "{text}");
    }
}
