//! How a run stands, told to people and to machines.

use crate::deadline;
use crate::status::gather::Seen;
use crate::status::judge::{Body, Placed, Standing, State};
use schemas::prediction::Prediction;
use schemas::time::utc;
use schemas::verdict::Verdict;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// Most lines of one kind.
const LINES_MAX: usize = 100;
/// Most predictions that a receipt's line names.
const NAMED_MAX: usize = 4;

/// How a run stands, in words.
pub(super) fn tell(standing: &Standing) -> String {
    let mut text = String::new();
    let Standing { run, signed, now_unix_s, .. } = standing;
    let object = &run.object;
    let _ = writeln!(text, "run {} ({:?}), entry {} by {}", standing.id, object.name, run.index, run.signer);
    let (steps, leaves, most) = (object.steps, object.leaves, object.devices_max);
    let _ = writeln!(
        text,
        "  steps 0..{steps} of {leaves} leaves, devices at most {most}, profile {}",
        object.profile
    );
    let _ =
        writeln!(text, "log {}, tree size {}; time {}", standing.origin, signed.head.size, utc(*now_unix_s));
    let predictions = standing.predictions.iter();
    list(&mut text, predictions.map(|(own, state)| prediction(own, state, *now_unix_s)));
    if standing.predictions.is_empty() {
        text.push_str("no prediction\n");
    }
    list(&mut text, standing.receipts.iter().map(receipt));
    if standing.receipts.is_empty() {
        text.push_str("no receipt\n");
    }
    list(&mut text, standing.verdicts.iter().map(|(own, of)| verdict(own, *of)));
    if standing.verdicts.is_empty() {
        text.push_str("no verdict\n");
    }
    if let Some(why) = &standing.register_fails {
        let _ = writeln!(text, "wrong: {why}");
    }
    for note in notes(standing) {
        let _ = writeln!(text, "note: {note}");
    }
    text
}

fn list(text: &mut String, lines: impl ExactSizeIterator<Item = String>) {
    let all = lines.len();
    lines.take(LINES_MAX).for_each(|line| text.push_str(&line));
    if all > LINES_MAX {
        let _ = writeln!(text, "  and {} more", all - LINES_MAX);
    }
}

fn notes(standing: &Standing) -> Vec<String> {
    let mut notes = standing.notes.clone();
    match standing.others.len() {
        0 => {}
        1 => notes.push("1 prediction by another key is left out".into()),
        more => notes.push(format!("{more} predictions by other keys are left out")),
    }
    if standing.predictions.iter().any(|(_, state)| matches!(state, State::Opened(..))) {
        notes.push("whether an opening came in time is not shown: the log has no clock".into());
    }
    notes
}

fn prediction(own: &Seen<Prediction>, state: &State, now_unix_s: u64) -> String {
    let mut text =
        format!("prediction, entry {}, of steps {} by {}\n", own.index, own.object.steps, own.signer);
    let by = match state {
        State::Opened(index, _) => format!(" by entry {index}"),
        _ => String::new(),
    };
    let more = match (state, state.body()) {
        (State::Sealed | State::Unopened, _) => deadline::tell(own.object.reveal_by, now_unix_s),
        (_, Some(Body::NotThere(why) | Body::Other(why))) => format!("but in name only: {why}"),
        (_, Some(Body::NotLookedAt)) => "its body was not looked at".into(),
        _ => "its body is the one sealed".into(),
    };
    let _ = writeln!(text, "  {}{by}: {more}", state.word());
    text
}

fn receipt(placed: &Placed) -> String {
    let own = &placed.receipt;
    let object = &own.object;
    let simulated = if object.simulated { ", simulated" } else { "" };
    let (rank, devices, steps) = (object.rank, object.devices, object.steps);
    let mut text = format!(
        "receipt, entry {}, of device {rank} of {devices}, steps {steps}{simulated}, by {}\n",
        own.index, own.signer
    );
    match placed.came[..] {
        [] => text.push_str("  of no prediction here\n"),
        [(_, came)] => {
            let _ = writeln!(text, "  {}", came.words());
        }
        _ => {
            for (of, came) in placed.came.iter().take(NAMED_MAX) {
                let _ = writeln!(text, "  entry {of}: {}", came.words());
            }
            if placed.came.len() > NAMED_MAX {
                let _ = writeln!(text, "  and {} more predictions", placed.came.len() - NAMED_MAX);
            }
        }
    }
    text
}

fn verdict(own: &Seen<Verdict>, of: u64) -> String {
    let object = &own.object;
    let at = object.step.map(|step| format!(" at step {step}")).unwrap_or_default();
    let simulated = if object.simulated { ", simulated" } else { "" };
    let receipts = object.receipts.len();
    let s = if receipts == 1 { "" } else { "s" };
    format!(
        "verdict, entry {}, of prediction {of} by {}\n  {}{at}, {receipts} receipt{s}{simulated}\n",
        own.index,
        own.signer,
        object.outcome.word()
    )
}

/// The same as JSON.
pub(super) fn to_json(standing: &Standing) -> Value {
    let predictions = standing.predictions.iter().map(|(own, state)| {
        let (opening, body) = match state {
            State::Opened(index, body) => (Some(*index), Some(body)),
            State::Openly(body) => (None, Some(body)),
            _ => (None, None),
        };
        json!({
            "index": own.index,
            "sha256": own.digest.to_string(),
            "signer": own.signer.to_string(),
            "steps": [own.object.steps.first, own.object.steps.end],
            "state": state.word(),
            "reveal_by_unix_s": own.object.reveal_by,
            "opening_index": opening,
            "body": body.map(|body| match body {
                Body::Sealed => "as sealed".to_owned(),
                Body::NotLookedAt => "not looked at".to_owned(),
                Body::NotThere(why) | Body::Other(why) => why.clone(),
            }),
        })
    });
    let receipts = standing.receipts.iter().map(|Placed { receipt, came }| {
        let object = &receipt.object;
        json!({
            "index": receipt.index,
            "sha256": receipt.digest.to_string(),
            "signer": receipt.signer.to_string(),
            "rank": object.rank,
            "devices": object.devices,
            "steps": [object.steps.first, object.steps.end],
            "simulated": object.simulated,
            "came": came
                .iter()
                .map(|(of, came)| json!({ "prediction": of, "when": came.words() }))
                .collect::<Vec<_>>(),
        })
    });
    let verdicts = standing.verdicts.iter().map(|(own, of)| {
        json!({
            "index": own.index,
            "sha256": own.digest.to_string(),
            "signer": own.signer.to_string(),
            "prediction": of,
            "outcome": own.object.outcome.word(),
            "step": own.object.step,
            "simulated": own.object.simulated,
        })
    });
    json!({
        "status": u8::from(standing.is_wrong()),
        "run": standing.id.to_string(),
        "name": standing.run.object.name,
        "run_index": standing.run.index,
        "run_signer": standing.run.signer.to_string(),
        "origin": standing.origin,
        "size": standing.signed.head.size.0,
        "at_unix_s": standing.now_unix_s,
        "predictions": predictions.collect::<Vec<_>>(),
        "other_predictions": standing.others,
        "receipts": receipts.collect::<Vec<_>>(),
        "verdicts": verdicts.collect::<Vec<_>>(),
        "wrong": standing.register_fails,
        "notes": notes(standing),
        "next": standing.next,
    })
}
