//! One entry, decoded.

use std::collections::BTreeSet;

use maud::{Markup, html};
use schemas::digest::AttachmentDigest;
use schemas::opening::Opening;
use schemas::prediction::{OpenBody, Prediction};
use schemas::receipt::Receipt;
use schemas::register::Register;
use schemas::run::Run;
use schemas::statement::{Payload, Statement};
use schemas::verdict::Verdict;

use crate::layout::{Standing, page};
use crate::view::{EntryContent, EntryView, LogView};
use crate::words::{
    attachment, cause_sentence, entry_link, finding_sentence, outcome, outcome_sentence, run_link, utc,
    wrong_word_sentence,
};

/// The page at `/entries/<digest>.html`.
pub fn entry_page(log: &LogView, entry: &EntryView) -> String {
    let kind = match &entry.content {
        EntryContent::Statement(statement) => statement.payload.stem(),
        EntryContent::Genesis(_) => "genesis",
        EntryContent::Unreadable => "unknown",
    };
    let standing = Standing {
        proven: html! {
            "With the bytes and the proof linked here and the log's verifier key: that exactly these bytes stand at "
            "index " (entry.index) ". With the bytes alone: that the signer's key signed them."
        },
        not_proven: html! {
            "That what is said here is true, or who holds the signer's key. This server checked form and signature "
            "when it admitted the entry and nothing else; the reading below is its own, so check the bytes."
        },
    };
    let body = html! {
        dl {
            dt { "Index" } dd { (entry.index) }
            dt { "SHA-256" } dd { code { (entry.digest) } }
            dt { "Bytes" } dd { (entry.bytes) }
            @if let EntryContent::Statement(statement) = &entry.content {
                dt { "Signer" } dd { code { (statement.signer) } }
                dt { "Run" } dd { (run_link(statement.payload.run())) }
            }
            dt { "Take away" }
            dd {
                a href={ "/by-hash/" (entry.digest) } { "the bytes" }
                ", "
                a href={ "/proof/" (entry.index) ".tlog-proof" } { "the proof" }
                ", "
                a href={ "/entries/" (entry.digest) } { "the proof as a COSE receipt" }
                ", "
                a href="/checkpoint" { "the checkpoint" }
            }
        }
        @match &entry.content {
            EntryContent::Statement(statement) => (statement_section(statement, &entry.held)),
            EntryContent::Genesis(text) => {
                p { "The log's first entry is a fixed text that names the log." }
                pre { (text) }
            }
            EntryContent::Unreadable => p { "This version of the server cannot read these bytes." },
        }
    };
    page(log, &format!("Entry {}: {kind}", entry.index), &standing, body)
}

fn statement_section(statement: &Statement, held: &BTreeSet<AttachmentDigest>) -> Markup {
    html! {
        h2 { "The statement" }
        @match &statement.payload {
            Payload::Run(run) => (run_facts(run)),
            Payload::Prediction(prediction) => (prediction_facts(prediction, held)),
            Payload::Opening(opening) => (opening_facts(opening, held)),
            Payload::Receipt(receipt) => (receipt_facts(receipt, held)),
            Payload::Verdict(verdict) => (verdict_facts(verdict, held)),
            Payload::Register(register) => (register_facts(register)),
        }
    }
}

/// What a run statement says.
pub(crate) fn run_facts(run: &Run) -> Markup {
    html! {
        dl {
            dt { "Name" } dd { (run.name) }
            dt { "Profile" } dd { (run.profile) }
            dt { "Steps" } dd { (run.steps) }
            dt { "Leaves a step" } dd { (run.leaves) }
            dt { "Devices at most" } dd { (run.devices_max) }
            dt { "Plan" } dd { code { (run.plan) } }
            dt { "Config" } dd { code { (run.config) } }
            dt { "Profile digest" } dd { code { (run.profile_digest) } }
            dt { "Initial state" } dd { code { (run.state) } }
            dt { "Data set" } dd { code { (run.dataset) } }
        }
    }
}

fn register_facts(register: &Register) -> Markup {
    html! {
        p {
            "The log's word on what it holds of the run below this entry. The lists are at "
            code { "/run/" (register.run) "/completeness" } "; " code { "client completeness" } " checks them."
        }
        dl {
            dt { "Covers" } dd { "the run's entries below " (register.size) }
            dt { "Entries" } dd { (register.entries.count) }
            dt { "Predictions" } dd { (register.predictions.count) }
        }
    }
}

fn prediction_facts(prediction: &Prediction, held: &BTreeSet<AttachmentDigest>) -> Markup {
    html! {
        dl {
            dt { "Steps" } dd { (prediction.steps) }
            dt { "Seal" } dd { code { (prediction.seal) } }
            dt { "Reveal by" } dd { (utc(prediction.reveal_by)) }
            @if let Some(open) = &prediction.open {
                dt { "Made" } dd { "openly" }
                (open_body(open, held))
            } @else {
                dt { "Made" } dd { "sealed: what it predicts is not shown until it is opened" }
            }
        }
    }
}

fn opening_facts(opening: &Opening, held: &BTreeSet<AttachmentDigest>) -> Markup {
    html! {
        dl {
            dt { "Opens" } dd { (entry_link(opening.prediction)) }
            (open_body(&opening.open, held))
        }
    }
}

fn open_body(open: &OpenBody, held: &BTreeSet<AttachmentDigest>) -> Markup {
    html! {
        dt { "Salt" } dd { code { (open.salt) } }
        dt { "Records" } dd { (attachment(open.body, held)) }
    }
}

fn receipt_facts(receipt: &Receipt, held: &BTreeSet<AttachmentDigest>) -> Markup {
    html! {
        dl {
            dt { "Steps" } dd { (receipt.steps) }
            dt { "Device" } dd { (receipt.rank) " of " (receipt.devices) }
            @if receipt.simulated {
                dt { "Simulated" } dd class="wait" { "yes: no device did this work" }
            }
            dt { "Device says" }
            dd {
                (receipt.facts.name) ", " (receipt.facts.architecture) ", " (receipt.facts.driver) ", "
                (receipt.facts.units) " units, kernels " code { (receipt.facts.kernels) }
            }
            dt { "Challenge" } dd { code { (receipt.challenge()) } }
            @if let Some(answer) = receipt.answer {
                dt { "Answered for" } dd { "step " (answer.step) }
            } @else {
                dt { "Answered for" } dd { "no step: the run ended before the one that the challenge chose" }
            }
            dt { "Records" } dd { (attachment(receipt.body, held)) }
        }
        p { "The challenge is derived from this checkpoint, so the receipt was made after it:" }
        pre { (String::from_utf8_lossy(&receipt.checkpoint)) }
    }
}

/// What a verdict says, findings in words.
pub(crate) fn verdict_facts(verdict: &Verdict, held: &BTreeSet<AttachmentDigest>) -> Markup {
    html! {
        p { (outcome(verdict.outcome)) ". " (outcome_sentence(verdict)) }
        @if verdict.simulated {
            p class="wait" { "Some receipt is of a simulated device: no device did that work." }
        }
        @for finding in &verdict.findings {
            div class="finding" {
                p { (finding_sentence(finding)) }
                @if let Some(word) = finding.word { p { (wrong_word_sentence(word)) } }
                p { (cause_sentence(&finding.cause)) }
                @if !finding.note.is_empty() { p class="soft" { (finding.note) } }
                p class="soft" { "Its key is " code { (finding.device) } }
            }
        }
        @if !verdict.missing.is_empty() {
            p { "Missing:" }
            ul { @for missing in &verdict.missing { li { (missing) } } }
        }
        dl {
            dt { "Steps" } dd { (verdict.steps) }
            dt { "Prediction" } dd { (entry_link(verdict.prediction)) }
            @if let Some(opening) = verdict.opening { dt { "Opening" } dd { (entry_link(opening)) } }
            dt { "Receipts" }
            dd {
                @if verdict.receipts.is_empty() { "none" }
                @for receipt in &verdict.receipts { (entry_link(*receipt)) " " }
            }
            @if let Some(answer) = verdict.answer {
                dt { "Challenge" } dd { "the signer replayed step " (answer.step) " to check the answers" }
            } @else {
                dt { "Challenge" } dd { "the signer did not replay the step that the challenge chose" }
            }
            @if !verdict.evidence.is_empty() {
                dt { "Evidence" }
                dd { @for name in &verdict.evidence { (attachment(*name, held)) " " } }
            }
        }
    }
}
