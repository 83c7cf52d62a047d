//! One run: its facts, predictions, receipts and verdicts.

use maud::{Markup, html};
use schemas::digest::EntryDigest;
use schemas::opening::Opening;
use schemas::prediction::Prediction;
use schemas::receipt::Receipt;
use schemas::statement::{Payload, Statement};
use schemas::verdict::Verdict;

use crate::device_tree::{DEVICES_DRAWN_MAX, DeviceState, device_tree};
use crate::entry::{run_facts, verdict_facts};
use crate::layout::{Standing, page};
use crate::view::{LogView, RunEntry, RunView};
use crate::words::{attachment, entry_link, key_short, utc};

/// The page at `/runs/<run id>`.
pub fn run_page(log: &LogView, view: &RunView) -> String {
    let standing = Standing {
        proven: html! {
            "The order of these entries, and that each is in the log: every row links to its bytes and proof. A "
            "receipt names the checkpoint it was made after, so it is proven that the prediction came first."
        },
        not_proven: html! {
            "That a verdict is right, or that a particular card did the work. A sealed prediction proves nothing "
            "before it is opened. Check the run with " code { "client verify" } ", which trusts nothing shown here."
        },
    };
    let body = html! {
        p class="soft" { "Run " code { (view.id) } }
        @if view.truncated {
            p class="wait" { "This run has more entries than are shown here." }
        }
        (verdicts(view))
        h2 { "Predictions" }
        (predictions(view))
        h2 { "Receipts" }
        (receipts(view))
        h2 { "The run statement" }
        (run_facts(&view.run))
        h2 { "All entries of this run" }
        (all_entries(view))
    };
    page(log, &view.run.name, &standing, body)
}

/// The entries of one kind, with what they say.
fn of_kind<'a, T>(view: &'a RunView, pick: impl Fn(&'a Payload) -> Option<T>) -> Vec<(&'a RunEntry, T)> {
    view.entries.iter().filter_map(|entry| Some((entry, pick(&entry.statement.payload)?))).collect()
}

fn as_prediction(payload: &Payload) -> Option<&Prediction> {
    if let Payload::Prediction(prediction) = payload { Some(prediction) } else { None }
}

fn as_opening(payload: &Payload) -> Option<&Opening> {
    if let Payload::Opening(opening) = payload { Some(opening) } else { None }
}

fn as_receipt(payload: &Payload) -> Option<&Receipt> {
    if let Payload::Receipt(receipt) = payload { Some(receipt) } else { None }
}

fn as_verdict(payload: &Payload) -> Option<&Verdict> {
    if let Payload::Verdict(verdict) = payload { Some(verdict) } else { None }
}

fn verdicts(view: &RunView) -> Markup {
    let verdicts = of_kind(view, as_verdict);
    html! {
        h2 { "Verdicts" }
        @if verdicts.is_empty() { p { "None yet: nobody has compared the receipts with the prediction." } }
        @for (entry, verdict) in &verdicts {
            (verdict_facts(verdict, &view.held))
            p class="soft" {
                "By " (key_short(entry.statement.signer)) ", " (links(entry.index, entry.statement.digest))
            }
        }
        (drawing(view, verdicts.last().copied()))
    }
}

/// The tree of devices, and which verdict it is drawn by.
fn drawing(view: &RunView, verdict: Option<(&RunEntry, &Verdict)>) -> Markup {
    let tree = device_tree(&devices(view, verdict.map(|(_, verdict)| verdict)));
    html! {
        @if !tree.0.is_empty() {
            p class="soft" {
                @match verdict {
                    Some((entry, verdict)) => {
                        "The devices by the receipts returned and the latest verdict ("
                        (verdict.outcome.word()) ", steps " (verdict.steps) ", entry " (entry.index) "):"
                    }
                    None => "The devices by the receipts returned; there is no verdict yet:",
                }
            }
            (tree)
        }
    }
}

/// The state of each device, by the receipts of the widest run of devices and the latest verdict.
fn devices(view: &RunView, verdict: Option<&Verdict>) -> Vec<DeviceState> {
    let receipts = of_kind(view, as_receipt);
    let count = receipts.iter().map(|(_, receipt)| receipt.devices).max().unwrap_or(0);
    if count > DEVICES_DRAWN_MAX {
        return Vec::new();
    }
    let reported =
        |rank| receipts.iter().any(|(_, receipt)| receipt.devices == count && receipt.rank == rank);
    let departed =
        |rank| verdict.is_some_and(|verdict| verdict.findings.iter().any(|finding| finding.rank == rank));
    let state = |rank| match (departed(rank), reported(rank)) {
        (true, _) => DeviceState::Departed,
        (false, true) => DeviceState::Reported,
        (false, false) => DeviceState::Silent,
    };
    (0..count).map(state).collect()
}

fn predictions(view: &RunView) -> Markup {
    let predictions = of_kind(view, as_prediction);
    html! {
        @if predictions.is_empty() { p { "None." } }
        @else {
            table {
                thead {
                    tr {
                        th { "Steps" }
                        th { "State" }
                        th class="wide" { "Predictor" }
                        th { "Entry and proof" }
                    }
                }
                tbody {
                    @for (entry, prediction) in &predictions {
                        tr {
                            td { (prediction.steps) }
                            td { (prediction_state(view, &entry.statement, prediction)) }
                            td class="wide" { (key_short(entry.statement.signer)) }
                            td { (links(entry.index, entry.statement.digest)) }
                        }
                    }
                }
            }
        }
    }
}

/// Sealed, opened (by whom it may be: only an opening of the same signer counts), or unopened past its deadline.
fn prediction_state(view: &RunView, statement: &Statement, prediction: &Prediction) -> Markup {
    if let Some(open) = &prediction.open {
        return html! { span class="word good" { "made openly" } ": " (attachment(open.body, &view.held)) };
    }
    let openings = of_kind(view, as_opening);
    let own = openings.iter().find(|(entry, opening)| {
        opening.prediction == statement.digest && entry.statement.signer == statement.signer
    });
    if let Some((entry, opening)) = own {
        return html! {
            span class="word good" { "opened" }
            " by entry " (entry_link(entry.statement.digest)) ": " (attachment(opening.open.body, &view.held))
        };
    }
    let deadline = utc(prediction.reveal_by);
    if view.truncated {
        return html! {
            span class="word wait" { "opened or not" } " is not shown among so many entries; to be revealed by "
            (deadline)
        };
    }
    if view.now_unix_s > prediction.reveal_by {
        return html! { span class="word bad" { "unopened" } ", to be revealed by " (deadline) };
    }
    html! { span class="word wait" { "sealed" } ", to be revealed by " (deadline) }
}

fn receipts(view: &RunView) -> Markup {
    let receipts = of_kind(view, as_receipt);
    html! {
        @if receipts.is_empty() { p { "None." } }
        @else {
            table {
                thead {
                    tr {
                        th { "Device" }
                        th { "Steps" }
                        th { "Device says it is" }
                        th class="wide" { "Records" }
                        th { "Entry and proof" }
                    }
                }
                tbody {
                    @for (entry, receipt) in &receipts {
                        tr {
                            td { (receipt.rank) " of " (receipt.devices) }
                            td { (receipt.steps) }
                            td {
                                (receipt.facts.name)
                                @if receipt.simulated { " " span class="word wait" { "simulated" } }
                            }
                            td class="wide" { (attachment(receipt.body, &view.held)) }
                            td { (links(entry.index, entry.statement.digest)) }
                        }
                    }
                }
            }
        }
    }
}

fn all_entries(view: &RunView) -> Markup {
    html! {
        table {
            thead {
                tr { th class="number" { "Index" } th { "Kind" } th class="wide" { "Signer" } th { "Entry and proof" } }
            }
            tbody {
                @for entry in &view.entries {
                    tr {
                        td class="number" { (entry.index) }
                        td { (entry.statement.payload.stem()) }
                        td class="wide" { (key_short(entry.statement.signer)) }
                        td { (links(entry.index, entry.statement.digest)) }
                    }
                }
            }
        }
    }
}

fn links(index: u64, digest: EntryDigest) -> Markup {
    html! { (entry_link(digest)) " " a href={ "/proof/" (index) ".tlog-proof" } { "proof" } }
}
