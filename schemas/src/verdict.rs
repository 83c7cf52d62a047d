//! The `verdict` statement: what the comparison of a prediction with its receipts says (docs/spec/verdict.md).

use crate::attachment::AttachmentName;
use crate::cbor::Value;
use crate::digest::{EntryDigest, RunId};
use crate::key::PublicKey;
use crate::object::{Fields, Object, ObjectError};
use crate::receipt::Answer;
use crate::run::{LEAVES_MAX, STEPS_MAX, Steps};

/// Most findings in a verdict: one per device.
pub const FINDINGS_MAX: usize = LEAVES_MAX as usize;
const NAME_CHARS_MAX: usize = 200;

/// What was compared, and what came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The run.
    pub run: RunId,
    /// The prediction's entry.
    pub prediction: EntryDigest,
    /// The opening's entry; absent if the prediction was made openly.
    pub opening: Option<EntryDigest>,
    /// The receipts' entries, in rank order.
    pub receipts: Vec<EntryDigest>,
    /// The steps the prediction covers.
    pub steps: Steps,
    /// The result in one word.
    pub outcome: Outcome,
    /// The first step that differs or is invalid.
    pub step: Option<u64>,
    /// Which devices departed in that step, and how; in rank order.
    pub findings: Vec<Finding>,
    /// What an `incomplete` verdict lacks, in words.
    pub missing: Vec<String>,
    /// Whether any receipt is of a simulated device.
    pub simulated: bool,
    /// The answer the challenge called for, if the signer replayed that step; absent if that check was skipped.
    pub answer: Option<Answer>,
    /// Traces and meetings that the findings were located with, as attachments.
    pub evidence: Vec<AttachmentName>,
}

/// The result in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Every value equals the prediction.
    Agree,
    /// Some value does not.
    Diverge,
    /// Prediction and receipts agree that the run met a NaN or an infinity.
    Invalid,
    /// Something needed is missing.
    Incomplete,
}

impl Outcome {
    const ALL: [Outcome; 4] = [Outcome::Agree, Outcome::Diverge, Outcome::Invalid, Outcome::Incomplete];

    /// The word.
    pub fn word(self) -> &'static str {
        match self {
            Outcome::Agree => "agree",
            Outcome::Diverge => "diverge",
            Outcome::Invalid => "invalid",
            Outcome::Incomplete => "incomplete",
        }
    }
}

/// Where in a step a device departed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// In computing a leaf.
    Leaf,
    /// In adding its own leaves' gradients.
    Partial,
    /// Between a peer's digest before sending and its own on receipt.
    Link,
    /// In adding what it received, or in the multiply by 1/leaves.
    Reduce,
    /// In the norm, the clipping or the optimizer.
    Update,
    /// In answering the challenge.
    Answer,
    /// In what it reports: its receipt contradicts what a peer says it received from it.
    Receipt,
}

impl Phase {
    const ALL: [Phase; 7] = [
        Phase::Leaf,
        Phase::Partial,
        Phase::Link,
        Phase::Reduce,
        Phase::Update,
        Phase::Answer,
        Phase::Receipt,
    ];

    /// The word.
    pub fn word(self) -> &'static str {
        match self {
            Phase::Leaf => "leaf",
            Phase::Partial => "partial",
            Phase::Link => "link",
            Phase::Reduce => "reduce",
            Phase::Update => "update",
            Phase::Answer => "answer",
            Phase::Receipt => "receipt",
        }
    }
}

/// Why, as far as the evidence goes. A configuration is one of docs/spec/variants.md, or several that give the same
/// bits: `split-k-4 or split-k-8`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// One wrong word explains it exactly, or every known configuration was tried and none explains it.
    Fault,
    /// The values are those of this configuration.
    Configuration(String),
    /// The evidence at hand does not decide.
    Undetermined,
}

impl Cause {
    fn text(&self) -> String {
        match self {
            Cause::Fault => "fault".into(),
            Cause::Configuration(name) => format!("configuration: {name}"),
            Cause::Undetermined => "undetermined".into(),
        }
    }
}

impl std::fmt::Display for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text())
    }
}

/// One device's departure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The device.
    pub device: PublicKey,
    /// Its rank.
    pub rank: u64,
    /// Where in the step.
    pub phase: Phase,
    /// The peer at the other end of a link.
    pub peer: Option<u64>,
    /// The leaf, in the leaf phase.
    pub leaf: Option<u64>,
    /// The operation's name in the plan, or the step's own `tree`, `scale`, `norm`, `adamw`.
    pub operation: Option<String>,
    /// The tensor's name.
    pub tensor: Option<String>,
    /// The wrong word, if exactly one explains the difference.
    pub word: Option<WrongWord>,
    /// Why.
    pub cause: Cause,
    /// One sentence for people.
    pub note: String,
}

/// A single wrong word, solved for from two folds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongWord {
    /// Index within the tensor, row-major. Its 4 KiB block is `element / 1024`.
    pub element: u64,
    /// The predicted bits.
    pub expected: u32,
    /// The device's bits.
    pub found: u32,
}

impl WrongWord {
    /// The bits that differ, lowest first.
    pub fn flipped_bits(&self) -> Vec<u32> {
        (0..32).filter(|bit| (self.expected ^ self.found) >> bit & 1 == 1).collect()
    }

    /// How many f32 lie between the two values, one of them counted: units in the last place. Both zeros are one value;
    /// none if one of the two is a NaN.
    pub fn units_apart(&self) -> Option<u64> {
        let nan = |bits: u32| f32::from_bits(bits).is_nan();
        let place = |bits: u32| {
            let magnitude = i64::from(bits & 0x7fff_ffff);
            if bits >> 31 == 1 { -magnitude } else { magnitude }
        };
        let distance = place(self.expected).abs_diff(place(self.found));
        (!nan(self.expected) && !nan(self.found)).then_some(distance)
    }
}

impl Object for Verdict {
    const STEM: &'static str = "verdict";
    const BYTES_MAX: usize = 59 << 10;

    fn to_value(&self) -> Value {
        let mut pairs = vec![
            (Value::text("run"), Value::bytes(self.run.0)),
            (Value::text("prediction"), Value::bytes(self.prediction.0)),
            (Value::text("receipts"), Value::Bytes(self.receipts.iter().flat_map(|entry| entry.0).collect())),
            (Value::text("steps"), self.steps.to_value()),
            (Value::text("outcome"), Value::text(self.outcome.word())),
            (Value::text("findings"), Value::Array(self.findings.iter().map(finding_value).collect())),
            (Value::text("missing"), Value::Array(self.missing.iter().map(Value::text).collect())),
            (Value::text("simulated"), Value::Bool(self.simulated)),
            (
                Value::text("evidence"),
                Value::Array(self.evidence.iter().map(|name| name.to_value()).collect()),
            ),
        ];
        pairs.extend(self.opening.map(|entry| (Value::text("opening"), Value::bytes(entry.0))));
        pairs.extend(self.step.map(|step| (Value::text("step"), Value::Uint(step))));
        pairs.extend(self.answer.map(|answer| (Value::text("answer"), answer.to_value())));
        Value::Map(pairs)
    }

    fn from_value(value: Value) -> Result<Verdict, ObjectError> {
        let mut fields = Fields::open(Self::STEM, value)?;
        let word = fields.text("outcome", 20)?;
        let outcome = Outcome::ALL.into_iter().find(|outcome| outcome.word() == word);
        let opening = match fields.take_optional("opening") {
            Some(value) => Some(EntryDigest(fields.as_bytes("opening", value)?)),
            None => None,
        };
        let answer =
            fields.take_optional("answer").map(|value| Answer::from_value(Self::STEM, value)).transpose()?;
        let mut findings = Vec::new();
        for item in fields.array("findings", FINDINGS_MAX)? {
            findings.push(finding_from(item)?);
        }
        let mut missing = Vec::new();
        for item in fields.array("missing", FINDINGS_MAX)? {
            missing.push(fields.as_text("missing", item, NAME_CHARS_MAX)?);
        }
        let mut evidence = Vec::new();
        for item in fields.array("evidence", 4 * FINDINGS_MAX)? {
            evidence.push(AttachmentName::read(&fields, "evidence", item)?);
        }
        let verdict = Verdict {
            run: RunId(fields.bytes("run")?),
            prediction: EntryDigest(fields.bytes("prediction")?),
            opening,
            receipts: fields.row("receipts", 0..=LEAVES_MAX as usize)?.into_iter().map(EntryDigest).collect(),
            steps: fields.steps("steps")?,
            outcome: outcome
                .ok_or_else(|| fields.wrong("outcome", "agree, diverge, invalid or incomplete", word))?,
            step: fields.uint_optional("step", STEPS_MAX)?,
            findings,
            missing,
            simulated: fields.truth("simulated")?,
            answer,
            evidence,
        };
        fields.close()?;
        Ok(verdict)
    }
}

fn finding_value(finding: &Finding) -> Value {
    let mut pairs = vec![
        (Value::text("device"), Value::bytes(finding.device.to_bytes())),
        (Value::text("rank"), Value::Uint(finding.rank)),
        (Value::text("phase"), Value::text(finding.phase.word())),
        (Value::text("cause"), Value::text(finding.cause.text())),
        (Value::text("note"), Value::text(&finding.note)),
    ];
    pairs.extend(finding.peer.map(|peer| (Value::text("peer"), Value::Uint(peer))));
    pairs.extend(finding.leaf.map(|leaf| (Value::text("leaf"), Value::Uint(leaf))));
    pairs.extend(finding.operation.iter().map(|name| (Value::text("operation"), Value::text(name))));
    pairs.extend(finding.tensor.iter().map(|name| (Value::text("tensor"), Value::text(name))));
    if let Some(word) = finding.word {
        let numbers = [word.element, word.expected.into(), word.found.into()];
        pairs.push((Value::text("word"), Value::Array(numbers.map(Value::Uint).to_vec())));
    }
    Value::Map(pairs)
}

fn finding_from(value: Value) -> Result<Finding, ObjectError> {
    let mut fields = Fields::open(Verdict::STEM, value)?;
    let key = fields.bytes("device")?;
    let device =
        PublicKey::from_bytes(key).map_err(|e| fields.wrong("device", "a public key", e.to_string()))?;
    let word = fields.text("phase", 20)?;
    let phase = Phase::ALL.into_iter().find(|phase| phase.word() == word);
    let phase = phase.ok_or_else(|| fields.wrong("phase", "a phase of docs/spec/verdict.md", word))?;
    let text = fields.text("cause", NAME_CHARS_MAX)?;
    let cause = match (text.as_str(), text.strip_prefix("configuration: ")) {
        ("fault", _) => Cause::Fault,
        ("undetermined", _) => Cause::Undetermined,
        (_, Some(name)) => Cause::Configuration(name.into()),
        _ => return Err(fields.wrong("cause", "fault, undetermined or configuration: <name>", text)),
    };
    let mut optional_text = |field| match fields.take_optional(field) {
        Some(value) => fields.as_text(field, value, NAME_CHARS_MAX).map(Some),
        None => Ok(None),
    };
    let operation = optional_text("operation")?;
    let tensor = optional_text("tensor")?;
    let word = match fields.take_optional("word") {
        Some(value) => Some(wrong_word(&fields, value)?),
        None => None,
    };
    let finding = Finding {
        device,
        rank: fields.uint("rank", LEAVES_MAX)?,
        phase,
        peer: fields.uint_optional("peer", LEAVES_MAX)?,
        leaf: fields.uint_optional("leaf", LEAVES_MAX)?,
        operation,
        tensor,
        word,
        cause,
        note: fields.text("note", 400)?,
    };
    fields.close()?;
    Ok(finding)
}

fn wrong_word(fields: &Fields, value: Value) -> Result<WrongWord, ObjectError> {
    let mut numbers = Vec::new();
    for (item, max) in
        fields.as_array("word", value, 3)?.into_iter().zip([1 << 40, u32::MAX.into(), u32::MAX.into()])
    {
        numbers.push(fields.as_uint("word", item, max)?);
    }
    match numbers[..] {
        [element, expected, found] => {
            Ok(WrongWord { element, expected: expected as u32, found: found as u32 })
        }
        _ => Err(fields.wrong(
            "word",
            "[element, expected bits, found bits]",
            format!("{} items", numbers.len()),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_distance_of_two_words_counts_the_numbers_between() {
        let word = |expected, found| WrongWord { element: 0, expected, found };
        for (expected, found, units) in [
            (0x3f80_0000, 0x3f80_0001, Some(1)),
            (0x3f80_0001, 0x3f7f_ffff, Some(2)),
            (0x0000_0000, 0x8000_0000, Some(0)),
            (0x0000_0001, 0x8000_0001, Some(2)),
            (0x7f7f_ffff, 0x7f80_0000, Some(1)),
            (0xff80_0000, 0x7f80_0000, Some(0xff00_0000)),
            (0x7fc0_0000, 0x3f80_0000, None),
            (0x3f80_0000, 0xffff_ffff, None),
        ] {
            assert_eq!(word(expected, found).units_apart(), units, "{expected:08x} {found:08x}");
            assert_eq!(word(found, expected).units_apart(), units);
        }
        assert_eq!(word(0x8000_0001, 2).flipped_bits(), [0, 1, 31]);
        assert!(word(7, 7).flipped_bits().is_empty());
    }
}
