//! The site's pages: fills its views in from the log.

use std::collections::BTreeSet;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::extract::{Path, RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use schemas::digest::{AttachmentDigest, EntryDigest, RunId};
use schemas::statement::{Payload, Statement};
use site::layout::{CONTENT_SECURITY_POLICY, STYLE_CSS, message_page};
use site::view::{EntryContent, EntryRow, EntryView, LogView, Paging, RunEntry, RunRow, RunView};
use tlog::tree::LeafIndex;

use crate::error::LogError;
use crate::http::app::App;
use crate::http::attachments::path_of;
use crate::http::problem::Problem;
use crate::http::read::{blocking, query_decimal};
use crate::log::Log;
use crate::order::index::{Indexed, Kind};

/// Rows of a list on one page.
const ROWS_PER_PAGE: usize = 50;
/// Most entries of a run that its page shows.
const RUN_PAGE_ENTRIES_MAX: usize = 2000;

/// GET /style.css
pub async fn style() -> Response {
    let headers =
        [(header::CONTENT_TYPE, "text/css; charset=utf-8"), (header::CACHE_CONTROL, "public, max-age=300")];
    (headers, STYLE_CSS).into_response()
}

/// GET /entries
pub async fn entries(State(app): State<App>, RawQuery(query): RawQuery) -> Response {
    respond(app, move |log| {
        let before = query_decimal(query.as_deref(), "before")?;
        let end = before.unwrap_or(u64::MAX).min(log.published.latest().head.size.0);
        let found = log.index.newest(end, ROWS_PER_PAGE)?;
        let oldest = found.last().map_or(0, |entry| entry.index);
        let paging = Paging { newer: before.is_some(), older_before: (oldest > 0).then_some(oldest) };
        let rows: Vec<EntryRow> = found.into_iter().map(entry_row).collect();
        Ok(site::entries::entries_page(&log_view(log), &rows, paging))
    })
    .await
}

/// GET / and GET /runs
pub async fn runs(State(app): State<App>, RawQuery(query): RawQuery) -> Response {
    respond(app, move |log| {
        let before = query_decimal(query.as_deref(), "before")?;
        let mut found = log.index.newest_runs(before.unwrap_or(u64::MAX), ROWS_PER_PAGE + 1)?;
        let more = found.len() > ROWS_PER_PAGE;
        found.truncate(ROWS_PER_PAGE);
        let oldest = found.last().map(|(_, index)| *index);
        let paging = Paging { newer: before.is_some(), older_before: oldest.filter(|_| more) };
        let mut rows = Vec::new();
        for (id, index) in found {
            rows.extend(run_row(log, id, index)?);
        }
        Ok(site::runs::runs_page(&log_view(log), &rows, paging))
    })
    .await
}

/// GET /runs/{run id}
pub async fn run(State(app): State<App>, Path(id): Path<String>) -> Response {
    respond(app, move |log| {
        let missing = || Problem::not_found(format!("There is no run {id} in this log."));
        let id: RunId = id.parse().map_err(|_| missing())?;
        let found = log.index.of_run(id, RUN_PAGE_ENTRIES_MAX + 1)?;
        let truncated = found.len() > RUN_PAGE_ENTRIES_MAX;
        let mut entries = Vec::new();
        let mut held = BTreeSet::new();
        for entry in found.iter().take(RUN_PAGE_ENTRIES_MAX) {
            let Some(statement) = read_statement(log, entry.index)? else { continue };
            held.extend(held_attachments(log, &statement));
            entries.push(RunEntry { index: entry.index, statement });
        }
        let run = entries.iter().find_map(|entry| match &entry.statement.payload {
            Payload::Run(run) => Some(run.clone()),
            _ => None,
        });
        let run = run.ok_or_else(missing)?;
        let view = RunView { id, run, entries, truncated, held, now_unix_s: now_unix_s() };
        Ok(site::run::run_page(&log_view(log), &view))
    })
    .await
}

/// GET /entries/{sha256}.html
pub async fn entry(app: App, name: String) -> Response {
    respond(app, move |log| {
        let missing = || Problem::not_found(format!("There is no entry {name} in this log."));
        let digest: EntryDigest = name.parse().map_err(|_| missing())?;
        let index = log.index.find(digest)?.ok_or_else(missing)?;
        let size = log.published.latest().head.size;
        let bytes = log.store.read_entry(LeafIndex(index), size)?.ok_or_else(missing)?;
        let mut held = BTreeSet::new();
        let content = match Statement::open(&bytes) {
            Ok(statement) => {
                held = held_attachments(log, &statement);
                EntryContent::Statement(Box::new(statement))
            }
            Err(_) if index == 0 => EntryContent::Genesis(String::from_utf8_lossy(&bytes).into_owned()),
            Err(_) => EntryContent::Unreadable,
        };
        let view = EntryView { index, digest, bytes: bytes.len(), content, held };
        Ok(site::entry::entry_page(&log_view(log), &view))
    })
    .await
}

/// Makes a page off the threads that serve connections; a problem becomes a page too.
async fn respond(app: App, make: impl FnOnce(&Log) -> Result<String, Problem> + Send + 'static) -> Response {
    let log = app.log.clone();
    let (status, page) = match blocking(move || make(&app.log)).await {
        Ok(page) => (StatusCode::OK, page),
        Err(problem) => (problem.status, message_page(&log_view(&log), problem.title, &problem.detail)),
    };
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CACHE_CONTROL, "no-cache"),
        (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
    ];
    (status, headers, page).into_response()
}

fn log_view(log: &Log) -> LogView {
    let signed = log.published.latest();
    LogView {
        origin: log.origin().to_owned(),
        verifier_key: log.verifier.to_string(),
        size: signed.head.size.0,
        root: signed.head.root.to_base64(),
    }
}

fn entry_row(entry: Indexed) -> EntryRow {
    let facts = entry.facts;
    EntryRow {
        index: entry.index,
        kind: facts.kind.word(),
        digest: facts.digest,
        run: facts.run,
        signer: facts.signer,
    }
}

fn run_row(log: &Log, id: RunId, index: u64) -> Result<Option<RunRow>, LogError> {
    let Some(Statement { payload: Payload::Run(run), .. }) = read_statement(log, index)? else {
        return Ok(None);
    };
    let entries = log.index.of_run(id, RUN_PAGE_ENTRIES_MAX)?;
    let count = |kind| entries.iter().filter(|entry| entry.facts.kind == kind).count();
    let mut outcomes = Vec::new();
    for entry in entries.iter().filter(|entry| entry.facts.kind == Kind::Verdict) {
        if let Some(Statement { payload: Payload::Verdict(verdict), .. }) = read_statement(log, entry.index)?
        {
            outcomes.push(verdict.outcome);
        }
    }
    let (predictions, receipts) = (count(Kind::Prediction), count(Kind::Receipt));
    Ok(Some(RunRow { id, run, index, predictions, receipts, outcomes }))
}

fn read_statement(log: &Log, index: u64) -> Result<Option<Statement>, LogError> {
    let size = log.published.latest().head.size;
    let bytes = log.store.read_entry(LeafIndex(index), size)?;
    Ok(bytes.and_then(|bytes| Statement::open(&bytes).ok()))
}

/// Of the attachments that a statement names, those that are here.
fn held_attachments(log: &Log, statement: &Statement) -> BTreeSet<AttachmentDigest> {
    let names = match &statement.payload {
        Payload::Run(_) | Payload::Register(_) => Vec::new(),
        Payload::Prediction(prediction) => prediction.open.iter().map(|open| open.body).collect(),
        Payload::Opening(opening) => vec![opening.open.body],
        Payload::Receipt(receipt) => vec![receipt.body],
        Payload::Verdict(verdict) => verdict.evidence.clone(),
    };
    names
        .into_iter()
        .map(|name| name.sha256)
        .filter(|digest| path_of(&log.store, *digest).is_file())
        .collect()
}

fn now_unix_s() -> u64 {
    // A clock before 1970 only means that no deadline has passed yet.
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
