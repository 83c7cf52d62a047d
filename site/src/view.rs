//! What the pages are made from.

use std::collections::BTreeSet;

use schemas::digest::{AttachmentDigest, EntryDigest, RunId};
use schemas::key::PublicKey;
use schemas::run::Run;
use schemas::statement::Statement;
use schemas::verdict::Outcome;

/// The log at the moment of the request.
#[derive(Debug, Clone)]
pub struct LogView {
    /// Its identity line.
    pub origin: String,
    /// Its C2SP verifier key.
    pub verifier_key: String,
    /// Its size.
    pub size: u64,
    /// Its root hash, base64.
    pub root: String,
}

/// One row of the list of entries.
#[derive(Debug, Clone)]
pub struct EntryRow {
    /// Leaf index.
    pub index: u64,
    /// A statement's stem, `genesis` or `unknown`.
    pub kind: &'static str,
    /// The entry's name.
    pub digest: EntryDigest,
    /// The run it belongs to.
    pub run: Option<RunId>,
    /// Who signed it.
    pub signer: Option<PublicKey>,
}

/// A page of the list of entries or runs: what to ask for to get the next older and the newest ones.
#[derive(Debug, Clone, Copy, Default)]
pub struct Paging {
    /// Whether this is not the first page.
    pub newer: bool,
    /// Show what lies below this index on the next page; none on the last.
    pub older_before: Option<u64>,
}

/// One entry.
#[derive(Debug, Clone)]
pub struct EntryView {
    /// Leaf index.
    pub index: u64,
    /// The entry's name.
    pub digest: EntryDigest,
    /// Its length in bytes.
    pub bytes: usize,
    /// What it says.
    pub content: EntryContent,
    /// Attachments that this server holds, of those the entry names.
    pub held: BTreeSet<AttachmentDigest>,
}

/// What an entry says.
#[derive(Debug, Clone)]
pub enum EntryContent {
    /// A statement whose signature is its signer's.
    Statement(Box<Statement>),
    /// The log's first entry, a text.
    Genesis(String),
    /// Bytes that this version cannot read.
    Unreadable,
}

/// One row of the list of runs.
#[derive(Debug, Clone)]
pub struct RunRow {
    /// The run.
    pub id: RunId,
    /// What its first statement says.
    pub run: Run,
    /// That statement's leaf index.
    pub index: u64,
    /// Number of predictions.
    pub predictions: usize,
    /// Number of receipts.
    pub receipts: usize,
    /// Outcomes of its verdicts, in log order.
    pub outcomes: Vec<Outcome>,
}

/// One entry of a run.
#[derive(Debug, Clone)]
pub struct RunEntry {
    /// Leaf index.
    pub index: u64,
    /// What it says.
    pub statement: Statement,
}

/// One run with all its entries.
#[derive(Debug, Clone)]
pub struct RunView {
    /// The run.
    pub id: RunId,
    /// What its first statement says.
    pub run: Run,
    /// Its entries in log order.
    pub entries: Vec<RunEntry>,
    /// Whether there are more entries than are shown.
    pub truncated: bool,
    /// Attachments that this server holds, of those the entries name.
    pub held: BTreeSet<AttachmentDigest>,
    /// POSIX seconds by the server's clock; only for saying whether a reveal deadline has passed.
    pub now_unix_s: u64,
}
