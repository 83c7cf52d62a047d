//! A verdict told to people; `verify::json` tells it to machines.

use schemas::verdict::{Finding, Outcome, Verdict, WrongWord};
use std::fmt::Write as _;
use verify::json::is_tokens;
use verify::reconcile::decided_before_answers;

/// The verdict in words, a few lines.
pub fn tell(verdict: &Verdict) -> String {
    let mut text = String::new();
    let at = verdict.step.map(|step| format!(" at step {step}")).unwrap_or_default();
    let meaning = match verdict.outcome {
        Outcome::Agree => "every compared value equals its prediction",
        Outcome::Diverge => "some value is not as predicted",
        Outcome::Invalid => "prediction and receipts agree that the run met a NaN or an infinity",
        Outcome::Incomplete => "something needed is missing",
    };
    let _ = writeln!(text, "{}{at}: {meaning}", verdict.outcome.word());
    let receipts = verdict.receipts.len();
    let _ = writeln!(
        text,
        "run {}, steps {}, {receipts} receipt{}{}",
        verdict.run,
        verdict.steps,
        if receipts == 1 { "" } else { "s" },
        if verdict.simulated { " (simulated devices)" } else { "" }
    );
    verdict.findings.iter().for_each(|finding| tell_finding(finding, &mut text));
    for missing in &verdict.missing {
        let _ = writeln!(text, "missing: {missing}");
    }
    let answer = match (verdict.answer, verdict.outcome) {
        (Some(answer), _) => format!("held against a replay of step {}", answer.step),
        (None, Outcome::Agree) => {
            "not held against a replay; for the chosen step, and the same from all".into()
        }
        (None, _) if decided_before_answers(verdict) => {
            "not needed, the verdict was decided before them".into()
        }
        (None, _) => "not held against a replay".into(),
    };
    let _ = writeln!(text, "answers to the challenge: {answer}");
    text
}

fn tell_finding(finding: &Finding, text: &mut String) {
    let _ = writeln!(text, "device {} ({})", finding.rank, finding.device);
    let mut line = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            let _ = writeln!(text, "  {name:<10} {value}");
        }
    };
    line("phase", Some(finding.phase.word().into()));
    line("peer", finding.peer.map(|peer| format!("device {peer}")));
    line("leaf", finding.leaf.map(|leaf| leaf.to_string()));
    line("operation", finding.operation.clone());
    line("tensor", finding.tensor.clone());
    line("element", finding.word.map(|word| word.element.to_string()));
    line("bits", finding.word.map(|word| bits(word, finding.operation.as_deref())));
    line("cause", Some(finding.cause.to_string()));
    line("note", Some(finding.note.clone()));
}

/// Expected and found, as bits and as the numbers they are; `operation` tells tokens from f32.
pub fn bits(word: WrongWord, operation: Option<&str>) -> String {
    let tokens = is_tokens(operation);
    let number = |bits: u32| if tokens { bits.to_string() } else { format!("{:e}", f32::from_bits(bits)) };
    let show = |bits: u32| format!("{bits:#010x} ({})", number(bits));
    let flipped = word.flipped_bits();
    let places: Vec<String> = flipped.iter().map(|bit| bit.to_string()).collect();
    let (bits, differ) = if flipped.len() == 1 { ("bit", "differs") } else { ("bits", "differ") };
    let mut text = format!(
        "expected {}, found {}: {bits} {} {differ}",
        show(word.expected),
        show(word.found),
        places.join(" ")
    );
    if let Some(units) = word.units_apart().filter(|_| !tokens) {
        let s = if units == 1 { "" } else { "s" };
        let _ = write!(text, ", {units} unit{s} in the last place apart");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use schemas::object::Object as _;
    use schemas::verdict::Phase;

    /// The fixture's verdict with its second finding alone, and no replay.
    fn diverging() -> Verdict {
        let mut verdict = Verdict::decode(include_bytes!("../../fixtures/verdict/diverge.cbor")).unwrap();
        verdict.findings.remove(0);
        Verdict { answer: None, ..verdict }
    }

    #[test]
    fn a_finding_is_told_with_its_bits_and_numbers() {
        let text = tell(&diverging());
        for line in [
            "diverge at step 1: some value is not as predicted\n",
            "steps 0..3, 2 receipts (simulated devices)\n",
            "  leaf       3\n",
            "  operation  forward.layer1.mlp.gelu\n",
            "  element    57\n",
            "  bits       expected 0x3f8ccccd (1.1e0), found 0x3f9ccccd (1.225e0): bit 20 differs, \
             1048576 units in the last place apart\n",
            "  cause      fault\n",
            "missing: device rank 0: the trace of step 1, leaf 0\n",
            "answers to the challenge: not needed, the verdict was decided before them\n",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
        assert!(!text.contains("peer"), "absent things are not mentioned");
    }

    #[test]
    fn answers_that_were_looked_at_without_a_replay_are_told_as_such() {
        let mut verdict = diverging();
        verdict.findings[0].phase = Phase::Answer;
        let text = tell(&verdict);
        assert!(text.ends_with("answers to the challenge: not held against a replay\n"), "{text}");
    }
}
