//! The list of entries, newest first.

use maud::html;

use crate::layout::{Standing, page, paging_links};
use crate::view::{EntryRow, LogView, Paging};
use crate::words::{entry_link, key_short, run_link};

/// The page at `/entries`.
pub fn entries_page(log: &LogView, rows: &[EntryRow], paging: Paging) -> String {
    let standing = Standing {
        proven: html! {
            "Each entry has a proof that it stands at its index in the tree that the log's checkpoint commits to. "
            "The proof is linked from the entry's page and can be checked with the log's verifier key alone."
        },
        not_proven: html! {
            "That a statement is true. The list itself is drawn by this server; a monitor that reads the tiles sees "
            "whether it leaves anything out."
        },
    };
    let body = html! {
        p class="soft" { "Newest first." }
        table {
            thead {
                tr {
                    th class="number" { "Index" }
                    th { "Kind" }
                    th { "Entry" }
                    th { "Run" }
                    th class="wide" { "Signer" }
                }
            }
            tbody {
                @for row in rows {
                    tr {
                        td class="number" { (row.index) }
                        td { (row.kind) }
                        td { (entry_link(row.digest)) }
                        td { @if let Some(run) = row.run { (run_link(run)) } }
                        td class="wide" { @if let Some(signer) = row.signer { (key_short(signer)) } }
                    }
                }
            }
        }
        (paging_links("/entries", paging))
    };
    page(log, "Entries", &standing, body)
}
