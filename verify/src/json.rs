//! A report, an opened step and a verdict as JSON: one text for whoever asks, the command or a page.

use crate::answered::Answered;
use crate::opened::{self, node_names, number};
use crate::report::{Check, Class, Report, State};
use crate::times::Times;
use schemas::digest::{Checksum, EntryDigest};
use schemas::fold::Fold;
use schemas::record::{NonFinite, Outcome, StepRecord};
use schemas::verdict::{Finding, Verdict, WrongWord};
use serde_json::{Value, json};

/// One check of a report.
pub fn check(check: &Check) -> Value {
    let (state, what) = match &check.state {
        State::Holds(what) => ("ok", Some(what)),
        State::Fails(why) => ("failed", Some(why)),
        State::NotReached => ("not reached", None),
    };
    json!({ "number": check.number, "title": check.title, "state": state, "what": what })
}

/// A report, with the verdict in it once that is known to be what the comparison gives.
pub fn report(report: &Report) -> Value {
    json!({
        "verified": report.class == Class::Agreeing,
        "status": report.class as u8,
        "summary": report.summary(),
        "checks": report.checks.iter().map(check).collect::<Vec<_>>(),
        "caveats": report.caveats,
        "register": report.register,
        "challenge": report.answered.as_ref().map(answered),
        "times": report.times.as_ref().map(times),
        "verdict": report.verdict.as_ref().map(verdict),
    })
}

/// The report of an opened step, with the record in it once every check holds.
pub fn opened(report: &opened::Report) -> Value {
    json!({
        "verified": report.class == Class::Agreeing,
        "status": report.class as u8,
        "summary": report.summary(),
        "checks": report.checks.iter().map(check).collect::<Vec<_>>(),
        "caveats": report.caveats,
        "opened": report.opened.as_ref().map(|opened| json!({
            "run": opened.id.to_string(),
            "name": opened.run.name,
            "profile": opened.run.profile,
            "prediction": opened.entry.to_string(),
            "index": opened.index,
            "signer": opened.signer.to_string(),
            "steps": [opened.prediction.steps.first, opened.prediction.steps.end],
            "reveal_by_unix_s": opened.prediction.reveal_by,
            "prediction_by_unix_s": opened.by_s,
            "step": opened.step,
            "records": opened.records,
            "record": record(&opened.record),
        })),
    })
}

/// A step record.
fn record(record: &StepRecord) -> Value {
    let leaves = record.losses.iter().zip(&record.traces);
    let leaves: Vec<Value> =
        leaves.map(|(loss, trace)| json!({ "loss": value(*loss), "trace": trace.to_string() })).collect();
    let non_finite = record.non_finite.map(|at| match at {
        NonFinite::Tap { leaf, tap } => json!({ "leaf": leaf, "tap": tap }),
        NonFinite::Update { stage } => json!({ "stage": stage }),
    });
    json!({ "leaves": leaves, "outcome": record.outcome.as_ref().map(outcome), "non_finite": non_finite })
}

fn outcome(outcome: &Outcome) -> Value {
    let names = node_names(outcome.nodes.len());
    let node = |(name, node): (&String, &Checksum)| json!({ "name": name, "checksum": node.to_string() });
    let fold = |fold: Fold| json!([format!("{:016x}", fold.a), format!("{:016x}", fold.b)]);
    json!({
        "nodes": names.iter().zip(&outcome.nodes).map(node).collect::<Vec<_>>(),
        "reduced": outcome.reduced.to_string(),
        "norm": value(outcome.norm),
        "parameters": outcome.parameters.to_string(),
        "first_moment": fold(outcome.first_moment),
        "second_moment": fold(outcome.second_moment),
        "meeting": outcome.meeting.to_string(),
    })
}

/// An f32, as its bits and as the number they are.
fn value(bits: u32) -> Value {
    json!({ "bits": format!("{bits:#010x}"), "value": number(bits) })
}

/// Which checkpoints were answered.
pub fn answered(answered: &Answered) -> Value {
    json!({
        "sizes": answered.sizes,
        "smallest": answered.smallest,
        "first_cosigned": answered.first_cosigned,
        "step": answered.step,
        "says": answered.lines(),
    })
}

/// What is proven of times, in POSIX seconds.
pub fn times(times: &Times) -> Value {
    json!({
        "witnesses": times.witnesses,
        "faulty": times.faulty,
        "prediction_by_unix_s": times.prediction_by_s,
        "receipts_after_unix_s": times.receipts_after_s,
        "lead_s": times.lead_s(),
        "verdict_by_unix_s": times.verdict_by_s,
        "says": times.lines(),
    })
}

/// A verdict. Bits are texts: a number of JSON may lose some.
pub fn verdict(verdict: &Verdict) -> Value {
    let texts = |items: &[EntryDigest]| items.iter().map(|e| e.to_string()).collect::<Vec<_>>();
    json!({
        "run": verdict.run.to_string(),
        "prediction": verdict.prediction.to_string(),
        "opening": verdict.opening.map(|entry| entry.to_string()),
        "receipts": texts(&verdict.receipts),
        "steps": [verdict.steps.first, verdict.steps.end],
        "outcome": verdict.outcome.word(),
        "step": verdict.step,
        "findings": verdict.findings.iter().map(finding_json).collect::<Vec<_>>(),
        "missing": verdict.missing,
        "simulated": verdict.simulated,
        "answer_step": verdict.answer.map(|answer| answer.step),
        "evidence": verdict.evidence.iter().map(|name| name.sha256.to_string()).collect::<Vec<_>>(),
    })
}

/// Whether an operation writes tokens and no f32: the plan's one `window` does.
pub fn is_tokens(operation: Option<&str>) -> bool {
    operation == Some("window")
}

/// A wrong word: both values as bits, and as the numbers they are.
pub fn word(word: WrongWord, tokens: bool) -> Value {
    let number = |bits: u32| if tokens { bits.to_string() } else { format!("{:e}", f32::from_bits(bits)) };
    json!({
        "element": word.element,
        "expected_bits": format!("{:#010x}", word.expected),
        "found_bits": format!("{:#010x}", word.found),
        "expected": number(word.expected),
        "found": number(word.found),
        "flipped_bits": word.flipped_bits(),
        "units_apart": word.units_apart().filter(|_| !tokens),
    })
}

fn finding_json(finding: &Finding) -> Value {
    let word = finding.word.map(|found| word(found, is_tokens(finding.operation.as_deref())));
    json!({
        "device": finding.device.to_string(),
        "rank": finding.rank,
        "phase": finding.phase.word(),
        "peer": finding.peer,
        "leaf": finding.leaf,
        "operation": finding.operation,
        "tensor": finding.tensor,
        "word": word,
        "cause": finding.cause.to_string(),
        "note": finding.note,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use schemas::object::Object as _;

    #[test]
    fn a_verdict_as_json_keeps_bits_as_text() {
        let fixture = Verdict::decode(include_bytes!("../../fixtures/verdict/diverge.cbor")).unwrap();
        let value = verdict(&fixture);
        let found = &value["findings"][1]["word"];
        assert_eq!(value["outcome"], "diverge");
        assert_eq!(found["expected_bits"], "0x3f8ccccd");
        assert_eq!(found["found"], "1.225e0");
        assert_eq!(found["flipped_bits"], json!([20]));
        assert_eq!(found["units_apart"], 1 << 20);
        assert_eq!(value["findings"][0]["word"], Value::Null);
        let token = word(WrongWord { element: 3, expected: 65, found: 66 }, true);
        assert_eq!((&token["found"], &token["units_apart"]), (&json!("66"), &Value::Null));
        assert_eq!(value["step"], 1);
        assert_eq!(value["opening"], fixture.opening.unwrap().to_string());
        assert_eq!(verdict(&Verdict { opening: None, ..fixture })["opening"], Value::Null);
    }
}
