//! The frame of every page, and the style sheet.

use maud::{DOCTYPE, Markup, html};

use crate::view::{LogView, Paging};

/// The content security policy that pages are served with: nothing but the style sheet is loaded.
pub const CONTENT_SECURITY_POLICY: &str =
    "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The style sheet, served at `/style.css`.
pub const STYLE_CSS: &str = include_str!("style.css");

/// What a page proves and does not prove, in its own words.
pub(crate) struct Standing {
    /// What a reader can take from it, and how to check that.
    pub proven: Markup,
    /// What does not follow.
    pub not_proven: Markup,
}

/// A whole page.
pub(crate) fn page(log: &LogView, title: &str, standing: &Standing, body: Markup) -> String {
    let markup = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) " - " (log.origin) " - Tallystick" }
                link rel="stylesheet" href="/style.css";
            }
            body {
                header {
                    p class="origin" { a href="/" { "Tallystick" } " log " (log.origin) }
                    nav {
                        a href="/" { "Runs" }
                        a href="/entries" { "Entries" }
                        a href="/checkpoint" { "Checkpoint" }
                    }
                }
                main {
                    h1 { (title) }
                    (body)
                    section class="standing" {
                        h2 { "What this page proves" }
                        p { (standing.proven) }
                        h2 { "What it does not" }
                        p { (standing.not_proven) }
                    }
                }
                footer {
                    p { "Tree size " (log.size) ", root " code { (log.root) } }
                    p { "Verifier key " code { (log.verifier_key) } }
                    p {
                        "A log lists statements in an order that cannot be changed unnoticed. It does not judge them: "
                        "only " code { "client verify" } " checks them, offline, without trusting this server."
                    }
                }
            }
        }
    };
    visible(markup.into_string())
}

/// Shows characters that have no shape of their own but change how others look, as in `\u{202e}`. Others choose the
/// names and notes on a page, and with these one text can pass for another. No page has any of its own.
fn visible(page: String) -> String {
    if !page.contains(is_format_character) {
        return page;
    }
    let mut shown = String::with_capacity(page.len());
    for character in page.chars() {
        match is_format_character(character) {
            true => shown.extend(character.escape_unicode()),
            false => shown.push(character),
        }
    }
    shown
}

/// Unicode's format characters that hide, join or turn round what stands beside them, and its separators of lines.
fn is_format_character(character: char) -> bool {
    matches!(character,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// A page that says why there is nothing to show.
pub fn message_page(log: &LogView, title: &str, message: &str) -> String {
    let standing = Standing {
        proven: html! { "Nothing." },
        not_proven: html! {
            "That something is not shown here does not prove that it is not in the log: to know that, read the "
            "whole log against a checkpoint."
        },
    };
    page(log, title, &standing, html! { p { (message) } })
}

/// Links to newer and older rows of a list.
pub(crate) fn paging_links(path: &str, paging: Paging) -> Markup {
    html! {
        @if paging.newer || paging.older_before.is_some() {
            nav class="paging" {
                @if paging.newer { p { a href=(path) { "Newest" } } }
                @if let Some(before) = paging.older_before {
                    p { a href={ (path) "?before=" (before) } { "Older" } }
                }
            }
        }
    }
}
