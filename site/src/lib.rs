//! The pages of a log, as functions from plain views to HTML. No I/O, no clock, no state.
//!
//! In scope: what a page says and how it looks. Out of scope: where the facts come from (the ledger fills the views
//! in) and checking them. Pages work without scripts, load nothing from elsewhere, and each says what it does and
//! does not prove: a log lists statements, and only whoever checks them knows whether they hold.

pub mod view;
pub mod layout;
pub mod words;
pub mod entries;
pub mod entry;
pub mod runs;
pub mod run;
pub mod device_tree;
