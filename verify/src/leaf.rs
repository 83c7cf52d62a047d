//! Phase `leaf`: what a device computed for its own micro-batches, and where a step stopped being finite.

use crate::case::{Departure, Need, Scene, note};
use crate::pinpoint::{first_difference, reads_parameters};
use schemas::plan::{Kind, Tap};
use schemas::receipt::DeviceRecord;
use schemas::record::NonFinite;
use schemas::trace::Trace;
use schemas::verdict::{Cause, Finding, Phase, WrongWord};

/// Judges the leaves of `rank`, lowest first, then what it says of leaves that were not finite.
pub(crate) fn judge(
    scene: &Scene,
    rank: u64,
    record: &DeviceRecord,
    needed: &mut Vec<Need>,
) -> Option<Departure> {
    if let Some(leaf) = first_wrong_leaf(scene, rank, record) {
        let finding = wrong_leaf(scene, rank, leaf, record, needed);
        return Some(Departure::Found(Box::new(finding)));
    }
    judge_non_finite(scene, rank, record)
}

/// The lowest own leaf whose trace root or loss differs.
fn first_wrong_leaf(scene: &Scene, rank: u64, record: &DeviceRecord) -> Option<u64> {
    let first = rank * scene.leaves_each();
    (first..).zip(record.traces.iter().zip(&record.losses)).find_map(|(leaf, (root, loss))| {
        let at = leaf as usize;
        (*root != scene.predicted.traces[at] || *loss != scene.predicted.losses[at]).then_some(leaf)
    })
}

fn wrong_leaf(scene: &Scene, rank: u64, leaf: u64, record: &DeviceRecord, needed: &mut Vec<Need>) -> Finding {
    let own = (leaf - rank * scene.leaves_each()) as usize;
    let mut finding = scene.finding(rank, Phase::Leaf);
    finding.leaf = Some(leaf);
    if record.traces[own] == scene.predicted.traces[leaf as usize] {
        wrong_loss(scene, &mut finding, leaf, record.losses[own]);
    } else {
        wrong_trace(scene, &mut finding, leaf, record, needed);
    }
    let partial_right = match (&record.outcome, &scene.predicted.outcome) {
        (Some(found), Some(expected)) => {
            found.partial.checksum == expected.nodes[scene.node(scene.devices, rank)]
        }
        _ => false,
    };
    if partial_right {
        finding.note = note(format!("{}; yet the sum of its leaves is as predicted", finding.note));
    }
    finding
}

/// The traces agree, and still the loss does not.
fn wrong_loss(scene: &Scene, finding: &mut Finding, leaf: u64, found: u32) {
    let expected = scene.predicted.losses[leaf as usize];
    let operation = scene.case.plan.operations.iter().find(|operation| operation.kind == Kind::CrossEntropy);
    finding.operation = operation.map(|operation| operation.name.clone());
    finding.tensor = Some("loss".into());
    finding.word = Some(WrongWord { element: 0, expected, found });
    finding.note = note(format!("leaf {leaf} differs in its mean loss only"));
}

/// The trace differs: the first tap that does names the operation, if both traces are at hand.
fn wrong_trace(
    scene: &Scene,
    finding: &mut Finding,
    leaf: u64,
    record: &DeviceRecord,
    needed: &mut Vec<Need>,
) {
    let (case, step, rank) = (scene.case, scene.step, finding.rank);
    let found_root = record.traces[(leaf - rank * scene.leaves_each()) as usize];
    let expected_root = scene.predicted.traces[leaf as usize];
    // A root binds step and leaf; one that names others was never a trace of this leaf.
    let expected = case.evidence.trace(expected_root, step, leaf);
    let found = case.evidence.trace(found_root, step, leaf);
    if expected.is_none() {
        needed.push(Need::PredictedTrace { step, leaf });
    }
    if found.is_none() {
        needed.push(Need::DeviceTrace { step, leaf, rank });
    }
    let (Some(expected), Some(found)) = (&expected, &found) else {
        let why = match (&expected, &found) {
            _ if case.evidence.strays(step, leaf, [expected_root, found_root]) => {
                "a trace was given for it that has another root than the one signed"
            }
            (None, None) => "neither its predicted trace nor the device's is at hand",
            (None, _) => "its predicted trace is not at hand",
            _ => "the device's trace of it is not at hand",
        };
        finding.note = note(format!("leaf {leaf} differs; {why}"));
        scene.doubt(finding);
        return;
    };
    first_wrong_tap(scene, finding, leaf, expected, found);
}

fn first_wrong_tap(scene: &Scene, finding: &mut Finding, leaf: u64, expected: &Trace, found: &Trace) {
    let (plan, digest) = (scene.case.plan, scene.case.plan_digest);
    let difference = first_difference(plan, digest, expected, found);
    let difference = difference.expect("leaf: traces with different roots differ");
    if let Some(tap) = difference.at {
        finding.operation = Some(plan.operations[tap.operation].name.clone());
        finding.tensor = Some(plan.operand_name(tap.operand));
    }
    finding.word = difference.word;
    finding.cause = difference.cause;
    finding.note = note(format!("leaf {leaf} {}", difference.words));
    // What reads taps alone had the right inputs.
    if difference.at.is_none_or(|tap| reads_parameters(&plan.operations[tap.operation])) {
        scene.doubt(finding);
    }
}

/// Compares where a step stopped being finite within leaves. What a device says of its own leaf is its own; what it
/// says of a peer's leaf it had from that peer.
fn judge_non_finite(scene: &Scene, rank: u64, record: &DeviceRecord) -> Option<Departure> {
    let (expected, found) = (in_leaf(scene.predicted.non_finite), in_leaf(record.non_finite));
    if expected == found {
        return None;
    }
    let leaf =
        [expected, found].into_iter().flatten().map(|(leaf, _)| leaf).min().expect("leaf: one is there");
    let owner = scene.owner(leaf);
    let what = format!("expected {}, found {}", in_words(scene, expected), in_words(scene, found));
    if owner == rank {
        let mut finding = scene.finding(rank, Phase::Leaf);
        finding.leaf = Some(leaf);
        finding.note = note(format!("its trace and loss are as predicted, yet it reports otherwise: {what}"));
        return Some(Departure::Found(Box::new(finding)));
    }
    let owner_right = scene.record(owner).is_some_and(|peer| {
        first_wrong_leaf(scene, owner, peer).is_none() && in_leaf(peer.non_finite) == expected
    });
    if !owner_right {
        return Some(Departure::Inherited(owner));
    }
    let mut finding = scene.finding(rank, Phase::Link);
    finding.peer = Some(owner);
    finding.note =
        note(format!("it and device {owner}, whose leaf {leaf} is, report different things: {what}"));
    finding.cause = Cause::Undetermined;
    Some(Departure::Found(Box::new(finding)))
}

fn in_leaf(at: Option<NonFinite>) -> Option<(u64, u64)> {
    match at {
        Some(NonFinite::Tap { leaf, tap }) => Some((leaf, tap)),
        Some(NonFinite::Update { .. }) | None => None,
    }
}

fn in_words(scene: &Scene, at: Option<(u64, u64)>) -> String {
    match at {
        None => "all leaves finite".into(),
        Some((leaf, tap)) => format!("leaf {leaf} not finite at {}", tap_name(scene, tap)),
    }
}

/// The name of a tap, for people.
pub(crate) fn tap_name(scene: &Scene, tap: u64) -> String {
    let plan = scene.case.plan;
    let found: Option<Tap> = usize::try_from(tap).ok().and_then(|tap| plan.taps().nth(tap));
    match found {
        Some(found) => {
            format!("{} ({})", plan.operations[found.operation].name, plan.operand_name(found.operand))
        }
        None => format!("tap {tap}, which the plan has not"),
    }
}
