//! Bodies judged with everything the prediction's maker holds as evidence.

use super::World;
use super::story::{Story, device_key};
use schemas::object::Object as _;
use schemas::receipt::ReceiptBody;
use schemas::verdict::{Finding, Outcome};
use verify::case::Decision;

/// Judges bodies of all ranks but `absent`.
pub fn judge_without(
    world: &World,
    bodies: &[ReceiptBody],
    absent: &[u64],
    evidence: &[Vec<u8>],
) -> Decision {
    let mut story = Story::new();
    story.log_run(world);
    story.log_prediction(world, false);
    let note = story.log.checkpoint(story.log.size());
    // Highest rank first: the order of receipts must not matter.
    for body in bodies.iter().rev().filter(|body| !absent.contains(&body.rank)) {
        let receipt = story.receipt(world, bodies.len() as u64, body, &note);
        story.log_receipt(receipt, body, device_key(body.rank));
    }
    story.evidence = evidence.to_vec();
    story.evidence.extend(world.meetings.iter().map(|meeting| meeting.encode()));
    story.evidence.extend(world.traces.iter().flatten().map(|trace| trace.encode()));
    story.decision(world, None)
}

pub fn judge(world: &World, bodies: &[ReceiptBody]) -> Decision {
    judge_without(world, bodies, &[], &[])
}

/// The only finding of a diverging decision at step 1.
pub fn only(decision: Decision) -> Finding {
    assert_eq!((decision.outcome, decision.step), (Outcome::Diverge, Some(1)), "{decision:?}");
    assert_eq!(decision.findings.len(), 1, "{:?}", decision.findings);
    decision.findings.into_iter().next().unwrap()
}
