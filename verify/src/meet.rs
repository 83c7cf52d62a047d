//! Phases `partial`, `link`, `receipt` and `reduce`: how devices add up their gradients.
//!
//! Devices combine by recursive doubling: at level l the partner of rank r is r xor 2^l, and what a device sends is
//! its partial (l = 0) or its sum of level l - 1. Its node at that point covers W / 2^l of the tree's width.

use crate::case::{Departure, Need, Scene, note};
use schemas::digest::Checksum;
use schemas::fold::Fold;
use schemas::receipt::{DeviceOutcome, Sum};
use schemas::record::Outcome;
use schemas::verdict::{Finding, Phase};

/// What the levels of one device say.
#[derive(Default)]
pub(crate) struct Meetings {
    /// Its own departure.
    pub(crate) departure: Option<Departure>,
    /// Peers whose receipts contradict what this device received from them, with the level.
    pub(crate) contradicted: Vec<(u64, u32)>,
}

/// Judges partial, exchanges and the final multiply of `rank`, in this order.
pub(crate) fn judge(
    scene: &Scene,
    rank: u64,
    expected: &Outcome,
    found: &DeviceOutcome,
    needed: &mut Vec<Need>,
) -> Meetings {
    let mut meetings = Meetings::default();
    let own = scene.node(scene.devices, rank);
    if found.partial.checksum != expected.nodes[own] {
        let mut finding = scene.finding(rank, Phase::Partial);
        finding.operation = Some("tree".into());
        let what = "its leaves are as predicted, their sum is not";
        let place = scene.place_flat(node_fold(scene, own, needed), found.partial.fold, "d_");
        meetings.departure = Some(place.into_finding(finding, what));
        return meetings;
    }
    for level in 0..scene.devices.ilog2() {
        if let Some(departure) = judge_level(scene, rank, level, expected, found, &mut meetings, needed) {
            meetings.departure = Some(departure);
            return meetings;
        }
    }
    meetings.departure = judge_scale(scene, rank, expected, found, needed);
    meetings
}

fn judge_level(
    scene: &Scene,
    rank: u64,
    level: u32,
    expected: &Outcome,
    found: &DeviceOutcome,
    meetings: &mut Meetings,
    needed: &mut Vec<Need>,
) -> Option<Departure> {
    let partner = rank ^ (1 << level);
    let sibling = scene.node(scene.devices >> level, partner >> level);
    let predicted = expected.nodes[sibling];
    let exchange = found.exchanges[level as usize];
    let claim = sent(scene, partner, level).map(|sum| sum.checksum);
    if exchange.received.checksum != predicted {
        if claim != Some(predicted) {
            return Some(Departure::Inherited(partner));
        }
        return Some(wrong_link(scene, rank, level, partner, sibling, exchange.received, needed));
    }
    if contradicts(claim, predicted) {
        meetings.contradicted.push((partner, level));
    }
    let parent = scene.node(scene.devices >> (level + 1), rank >> (level + 1));
    if exchange.sum.checksum == expected.nodes[parent] {
        return None;
    }
    let mut finding = scene.finding(rank, Phase::Reduce);
    finding.peer = Some(partner);
    finding.operation = Some("tree".into());
    let what = format!("both addends of level {level} are as predicted, their sum is not");
    let place = scene.place_flat(node_fold(scene, parent, needed), exchange.sum.fold, "d_");
    Some(place.into_finding(finding, &what))
}

/// What `rank` says it sent at `level`, if it has a record of the step with an outcome.
fn sent(scene: &Scene, rank: u64, level: u32) -> Option<Sum> {
    let outcome = scene.record(rank)?.outcome.as_ref()?;
    Some(match level {
        0 => outcome.partial,
        _ => outcome.exchanges[level as usize - 1].sum,
    })
}

fn contradicts(claim: Option<Checksum>, predicted: Checksum) -> bool {
    claim.is_some_and(|claim| claim != predicted)
}

fn wrong_link(
    scene: &Scene,
    rank: u64,
    level: u32,
    partner: u64,
    sibling: usize,
    received: Sum,
    needed: &mut Vec<Need>,
) -> Departure {
    let mut finding = scene.finding(rank, Phase::Link);
    finding.peer = Some(partner);
    let what =
        format!("device {partner} reports sending what was predicted at level {level}; it arrived otherwise");
    scene.place_flat(node_fold(scene, sibling, needed), received.fold, "d_").into_finding(finding, &what)
}

fn judge_scale(
    scene: &Scene,
    rank: u64,
    expected: &Outcome,
    found: &DeviceOutcome,
    needed: &mut Vec<Need>,
) -> Option<Departure> {
    if found.reduced.checksum == expected.reduced {
        return None;
    }
    let mut finding = scene.finding(rank, Phase::Reduce);
    finding.operation = Some("scale".into());
    let predicted = meeting_fold(scene, needed, |meeting| meeting.reduced);
    let what = "the tree's root is as predicted, its multiple by 1/leaves is not";
    Some(scene.place_flat(predicted, found.reduced.fold, "d_").into_finding(finding, what))
}

fn node_fold(scene: &Scene, node: usize, needed: &mut Vec<Need>) -> Option<Fold> {
    meeting_fold(scene, needed, |meeting| meeting.nodes[node])
}

/// A predicted fold of the step; if it is not at hand, it is asked for.
pub(crate) fn meeting_fold(
    scene: &Scene,
    needed: &mut Vec<Need>,
    pick: impl Fn(&schemas::trace::Meeting) -> Fold,
) -> Option<Fold> {
    let meeting = scene.meeting();
    if meeting.is_none() {
        needed.push(Need::Meeting { step: scene.step });
    }
    meeting.as_ref().map(pick)
}

/// The finding on a device whose receipt contradicts what `witness` says it received from it at `level`. A witness that
/// lies can bring it on an honest device whose sum is wrong by what it received: so the note accuses neither.
pub(crate) fn contradicted(scene: &Scene, rank: u64, witness: u64, level: u32) -> Finding {
    let mut finding = scene.finding(rank, Phase::Receipt);
    finding.peer = Some(witness);
    finding.note = note(format!(
        "its receipt contradicts what device {witness} says it received from it at level {level}, which is as \
         predicted: one of the two receipts is untrue"
    ));
    finding
}
