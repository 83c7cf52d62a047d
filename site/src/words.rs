//! How digests, keys, bits and findings are put into words.

use maud::{Markup, html};
use schemas::attachment::AttachmentName;
use schemas::digest::{AttachmentDigest, EntryDigest, RunId};
use schemas::key::PublicKey;
use schemas::time;
use schemas::verdict::{Cause, Finding, Outcome, Phase, Verdict, WrongWord};
use std::collections::BTreeSet;

/// The first digits of a long hexadecimal text, for tables.
pub(crate) fn short(text: &str) -> String {
    text.chars().take(12).collect()
}

/// A link to a run's page.
pub(crate) fn run_link(run: RunId) -> Markup {
    html! { a class="hex" href={ "/runs/" (run) } { (short(&run.to_string())) } }
}

/// A link to an entry's page, by its name.
pub(crate) fn entry_link(entry: EntryDigest) -> Markup {
    html! { a class="hex" href={ "/entries/" (entry) ".html" } { (short(&entry.to_string())) } }
}

/// A key, short, with the whole of it on hover.
pub(crate) fn key_short(key: PublicKey) -> Markup {
    let text = key.to_string();
    let digits = text.strip_prefix("ed25519:").unwrap_or(&text);
    html! { span class="hex" title=(text) { (short(digits)) } }
}

/// A link to an attachment and whether this server has it.
pub(crate) fn attachment(name: AttachmentName, held: &BTreeSet<AttachmentDigest>) -> Markup {
    html! {
        @if held.contains(&name.sha256) {
            a class="hex" href={ "/attachments/" (name.sha256) } { (short(&name.sha256.to_string())) }
            " (" (name.bytes) " bytes)"
        } @else {
            span class="hex" title=(name.sha256) { (short(&name.sha256.to_string())) }
            " (" (name.bytes) " bytes, not on this server)"
        }
    }
}

/// POSIX seconds as a UTC date and time, to the minute.
pub(crate) fn utc(unix_s: u64) -> String {
    let text = time::utc(unix_s);
    match text.split_once('T') {
        Some((date, time)) => format!("{date} {} UTC", time.get(..5).unwrap_or(time)),
        // Beyond the years that have four digits.
        None => format!("{text} UTC"),
    }
}

/// An outcome with its colour.
pub(crate) fn outcome(outcome: Outcome) -> Markup {
    let class = match outcome {
        Outcome::Agree => "good",
        Outcome::Diverge => "bad",
        Outcome::Invalid | Outcome::Incomplete => "wait",
    };
    html! { span class={ "word " (class) } { (outcome.word()) } }
}

/// What an outcome means, in a sentence.
pub(crate) fn outcome_sentence(verdict: &Verdict) -> String {
    match (verdict.outcome, verdict.step) {
        (Outcome::Agree, _) => {
            format!("Every value that the receipts report for steps {} equals the prediction.", verdict.steps)
        }
        (Outcome::Diverge, Some(step)) => format!("The receipts depart from the prediction at step {step}."),
        (Outcome::Diverge, None) => "The receipts depart from the prediction.".to_owned(),
        (Outcome::Invalid, Some(step)) => {
            format!(
                "Prediction and receipts agree that step {step} met a NaN or an infinity; the run ends there."
            )
        }
        (Outcome::Invalid, None) => {
            "Prediction and receipts agree that the run met a NaN or an infinity.".to_owned()
        }
        (Outcome::Incomplete, _) => "Something that the comparison needs is missing.".to_owned(),
    }
}

/// Where and how a device departed, in a sentence.
pub(crate) fn finding_sentence(finding: &Finding) -> String {
    let place = match finding.phase {
        Phase::Leaf => "in computing its micro-batch",
        Phase::Partial => "in adding its own leaves' gradients",
        Phase::Link => "on the link to its peer: what arrived is not what was sent",
        Phase::Reduce => "in adding what it received, or in the multiply by 1/leaves",
        Phase::Update => "in the norm, the clipping or the optimizer",
        Phase::Answer => "in answering the challenge",
        Phase::Receipt => "in what it reports: its receipt contradicts what a peer says it received from it",
    };
    let mut text = format!("Device {} departed {place}", finding.rank);
    if let Some(leaf) = finding.leaf {
        text.push_str(&format!(", leaf {leaf}"));
    }
    if let Some(peer) = finding.peer {
        text.push_str(&format!(", peer device {peer}"));
    }
    if let Some(operation) = &finding.operation {
        text.push_str(&format!(", first in operation {operation}"));
    }
    if let Some(tensor) = &finding.tensor {
        text.push_str(&format!(", tensor {tensor}"));
    }
    text.push('.');
    text
}

/// What is known of the cause, in a sentence.
pub(crate) fn cause_sentence(cause: &Cause) -> String {
    match cause {
        Cause::Fault => {
            "Cause: fault. One wrong word explains the difference exactly; no other configuration was tried."
                .to_owned()
        }
        Cause::Configuration(profile) => {
            format!("Cause: configuration. The values are those of profile {profile}.")
        }
        Cause::Undetermined => "Cause: not determined by the evidence at hand.".to_owned(),
    }
}

/// A single wrong word, in a sentence.
pub(crate) fn wrong_word_sentence(word: WrongWord) -> String {
    format!(
        "Exactly one word explains the difference: element {} is {:08x} ({}), predicted {:08x} ({}).",
        word.element,
        word.found,
        f32::from_bits(word.found),
        word.expected,
        f32::from_bits(word.expected),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_to_the_minute() {
        assert_eq!(utc(0), "1970-01-01 00:00 UTC");
        assert_eq!(utc(4_107_542_399), "2100-02-28 23:59 UTC");
    }

    #[test]
    fn the_latest_deadline_that_a_prediction_may_name_is_printed_and_does_not_overflow() {
        assert_eq!(utc(i64::MAX as u64), "second 9223372036854775807 UTC");
    }
}
