//! Phase `update`: norm, clipping and optimizer, on a reduced gradient that is as predicted.

use crate::case::{Departure, Need, Scene, note};
use crate::meet::meeting_fold;
use schemas::receipt::{DeviceOutcome, DeviceRecord};
use schemas::record::{NonFinite, Outcome};
use schemas::verdict::{Phase, WrongWord};

/// Judges norm, first moment, second moment, parameters, and what is said of their finiteness, in this order.
pub(crate) fn judge(
    scene: &Scene,
    rank: u64,
    record: &DeviceRecord,
    expected: &Outcome,
    found: &DeviceOutcome,
    needed: &mut Vec<Need>,
) -> Option<Departure> {
    if found.norm != expected.norm {
        let mut finding = scene.finding(rank, Phase::Update);
        finding.operation = Some("norm".into());
        finding.tensor = Some("norm".into());
        finding.word = Some(WrongWord { element: 0, expected: expected.norm, found: found.norm });
        finding.note = note("the reduced gradient is as predicted, its norm is not".into());
        return Some(Departure::Found(Box::new(finding)));
    }
    let moments = [
        ("first moment", "adamw.m.", expected.first_moment, found.first_moment),
        ("second moment", "adamw.v.", expected.second_moment, found.second_moment),
    ];
    for (name, prefix, expected, found) in moments {
        if expected != found {
            let mut finding = scene.finding(rank, Phase::Update);
            finding.operation = Some(scene.case.plan.update.rule.word().into());
            let what = format!("gradient and norm are as predicted, the {name} after the step is not");
            let place = scene.place_flat(Some(expected), found, prefix);
            return Some(doubted(scene, place.into_finding(finding, &what)));
        }
    }
    if found.parameters.checksum != expected.parameters {
        let mut finding = scene.finding(rank, Phase::Update);
        finding.operation = Some(scene.case.plan.update.rule.word().into());
        let predicted = meeting_fold(scene, needed, |meeting| meeting.parameters);
        let what = "gradient, norm and moments are as predicted, the parameters after the step are not";
        let place = scene.place_flat(predicted, found.parameters.fold, "");
        return Some(doubted(scene, place.into_finding(finding, what)));
    }
    judge_non_finite(scene, rank, record)
}

/// Parameters and moments are made of those before the step.
fn doubted(scene: &Scene, mut departure: Departure) -> Departure {
    if let Departure::Found(finding) = &mut departure {
        scene.doubt(finding);
    }
    departure
}

/// All values are as predicted; what is said of their finiteness has to be, too.
fn judge_non_finite(scene: &Scene, rank: u64, record: &DeviceRecord) -> Option<Departure> {
    if record.non_finite == scene.predicted.non_finite {
        return None;
    }
    let mut finding = scene.finding(rank, Phase::Update);
    let (expected, found) = (in_words(scene.predicted.non_finite), in_words(record.non_finite));
    finding.note = note(format!(
        "all values are as predicted, yet it reports otherwise: expected {expected}, found {found}"
    ));
    Some(Departure::Found(Box::new(finding)))
}

/// Where an update met a NaN or an infinity.
pub(crate) fn in_words(at: Option<NonFinite>) -> String {
    match at {
        None => "all finite".into(),
        Some(NonFinite::Tap { leaf, tap }) => format!("not finite in leaf {leaf}, tap {tap}"),
        Some(NonFinite::Update { stage: 0 }) => "not finite in the reduced gradient".into(),
        Some(NonFinite::Update { stage: 1 }) => "not finite in the norm".into(),
        Some(NonFinite::Update { .. }) => "not finite in the parameters or moments".into(),
    }
}
