//! The list of runs, newest first.

use maud::html;

use crate::layout::{Standing, page, paging_links};
use crate::view::{LogView, Paging, RunRow};
use crate::words::outcome;

/// The page at `/` and `/runs`.
pub fn runs_page(log: &LogView, rows: &[RunRow], paging: Paging) -> String {
    let standing = Standing {
        proven: html! {
            "Every statement counted here is an entry of this log; each run's page links to them and their proofs."
        },
        not_proven: html! {
            "That a verdict is right. A verdict is its signer's word until somebody compares the prediction with the "
            "receipts again, which " code { "client verify" } " does."
        },
    };
    let body = html! {
        p class="soft" { "Newest first. " a href="/entries" { "All entries of the log" } " are listed too." }
        @if rows.is_empty() {
            p { "No run has been stated yet." }
        } @else {
            table {
                thead {
                    tr {
                        th { "Run" }
                        th class="wide" { "Profile" }
                        th class="number wide" { "Steps" }
                        th class="number wide" { "Predictions" }
                        th class="number wide" { "Receipts" }
                        th { "State" }
                        th { "Verdict" }
                    }
                }
                tbody {
                    @for row in rows {
                        tr {
                            td { a href={ "/runs/" (row.id) } { (row.run.name) } }
                            td class="wide" { (row.run.profile) }
                            td class="number wide" { (row.run.steps) }
                            td class="number wide" { (row.predictions) }
                            td class="number wide" { (row.receipts) }
                            td { (state(row)) }
                            td {
                                @if row.outcomes.is_empty() { span class="soft" { "none yet" } }
                                @for found in &row.outcomes { (outcome(*found)) " " }
                            }
                        }
                    }
                }
            }
        }
        (paging_links("/runs", paging))
    };
    page(log, "Runs", &standing, body)
}

/// How far a run has come, by what is in the log.
fn state(row: &RunRow) -> &'static str {
    match (row.predictions, row.receipts) {
        _ if !row.outcomes.is_empty() => "compared",
        (0, 0) => "stated, not predicted",
        (0, _) => "receipts without a prediction",
        (_, 0) => "predicted, no receipts yet",
        _ => "receipts in, not compared",
    }
}
