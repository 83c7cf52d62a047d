//! The list of runs, newest first.

use maud::html;

use crate::layout::{Standing, page, paging_links};
use crate::view::{LogView, Paging, RunRow};
use crate::words::outcome;

/// The page at `/runs`.
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
        @if rows.is_empty() {
            p { "No run has been stated yet." }
        } @else {
            table {
                thead {
                    tr {
                        th { "Run" }
                        th class="wide" { "Profile" }
                        th class="number wide" { "Steps" }
                        th class="number" { "Predictions" }
                        th class="number" { "Receipts" }
                        th { "Verdict" }
                    }
                }
                tbody {
                    @for row in rows {
                        tr {
                            td { a href={ "/runs/" (row.id) } { (row.run.name) } }
                            td class="wide" { (row.run.profile) }
                            td class="number wide" { (row.run.steps) }
                            td class="number" { (row.predictions) }
                            td class="number" { (row.receipts) }
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
