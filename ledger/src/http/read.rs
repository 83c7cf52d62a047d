//! Reading the log: checkpoints, tiles, what is known of a run and of the log.

use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use schemas::attachment::ATTACHMENT_BYTES_MAX;
use schemas::digest::{DigestTextError, RunId};
use schemas::statement::STATEMENT_BYTES_MAX;
use serde_json::json;
use tlog::tile::{Tile, TileSource, tile_in_tree};
use tlog::tree::TreeSize;

use crate::error::LogError;
use crate::http::app::App;
use crate::http::attachments::length_of;
use crate::http::problem::Problem;
use crate::http::proof::checkpoint_of;
use crate::metrics::{Levels, OPENMETRICS};
use crate::witness::witnessed::Standing;

/// Content type of texts.
pub const TEXT: &str = "text/plain; charset=utf-8";
/// What has this never changes.
pub const IMMUTABLE: &str = "public, max-age=31536000, immutable";
/// What has this may change at any moment.
pub const CHANGING: &str = "no-cache";
/// The latest checkpoint may be as old as this to whoever is behind a cache.
pub const LATEST: &str = "public, max-age=1";
/// Most entries of a run that are listed.
pub const RUN_ENTRIES_MAX: usize = 10_000;

/// Runs what reads files off the threads that serve connections.
pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => {
            tracing::error!("a request failed: {error}");
            Err(Problem::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "internal error",
                "the request could not be answered",
            ))
        }
    }
}

/// An answer with its type and how long it may be kept.
pub fn answer(content_type: &'static str, caching: &'static str, body: impl IntoResponse) -> Response {
    ([(header::CONTENT_TYPE, content_type), (header::CACHE_CONTROL, caching)], body).into_response()
}

/// GET /checkpoint
pub async fn checkpoint(State(app): State<App>) -> Response {
    // With cosignatures if this very checkpoint has them.
    let signed = app.log.published.latest();
    let cosigned = app.log.witnessed.of_size(signed.head.size);
    answer(TEXT, LATEST, cosigned.map_or_else(|| signed.note.clone(), |note| note.to_string()))
}

/// GET /checkpoint/witnessed
pub async fn witnessed_checkpoint(State(app): State<App>) -> Result<Response, Problem> {
    match app.log.witnessed.standing() {
        Standing::Note(_, note) => Ok(answer(TEXT, LATEST, note.to_string())),
        Standing::Nothing => Err(Problem::not_found("no checkpoint of this log is witnessed, or not yet")),
        Standing::Forked => {
            let detail =
                "a witness holds another history signed by this log's key, so nothing is called witnessed";
            Err(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "forked", detail))
        }
    }
}

/// GET /checkpoint/{size}
pub async fn older_checkpoint(State(app): State<App>, Path(size): Path<String>) -> Result<Response, Problem> {
    let size = TreeSize(decimal(&size)?);
    let signed = blocking(move || checkpoint_of(&app.log, size)).await?;
    Ok(answer(TEXT, IMMUTABLE, signed.note))
}

/// GET /tile/{level or entries}/{index}[.p/{width}]
pub async fn tile(State(app): State<App>, Path(path): Path<String>) -> Result<Response, Problem> {
    let tile = Tile::parse(&format!("tile/{path}")).map_err(|error| Problem::not_found(error.to_string()))?;
    let size = app.log.published.latest().head.size;
    // A tile that lies beyond the published tree may be on disk already; nobody may see it before it is promised.
    let there = tile_in_tree(tile.kind, tile.index, size).is_some_and(|widest| tile.width <= widest.width);
    if !there {
        return Err(Problem::not_found(format!("a tree of size {size} has no {}", tile.path())));
    }
    let bytes = blocking(move || {
        let store = &app.log.store;
        Ok(store.read_tile(tile).map_err(LogError::io(store.path(&tile.path())))?)
    })
    .await?;
    Ok(answer("application/octet-stream", IMMUTABLE, bytes))
}

/// GET /run/{run id}
pub async fn run(State(app): State<App>, Path(id): Path<String>) -> Result<Response, Problem> {
    let id: RunId = id.parse().map_err(bad_name)?;
    let body = blocking(move || {
        let entries = app.log.index.of_run(id, RUN_ENTRIES_MAX + 1)?;
        if entries.is_empty() {
            return Err(Problem::not_found(format!("run {id} is not in this log")));
        }
        let rows = entries.iter().take(RUN_ENTRIES_MAX).map(|entry| {
            json!({
                "index": entry.index,
                "kind": entry.facts.kind.word(),
                "signer": entry.facts.signer.map(|signer| signer.to_string()),
                "sha256": entry.facts.digest.to_string(),
            })
        });
        let rows: Vec<_> = rows.collect();
        let complete = entries.len() <= RUN_ENTRIES_MAX;
        Ok(json!({ "run": id.to_string(), "complete": complete, "entries": rows }))
    })
    .await?;
    Ok(answer("application/json", CHANGING, format!("{body}\n")))
}

/// GET /log.json
pub async fn log(State(app): State<App>) -> Response {
    let signed = app.log.published.latest();
    let body = json!({
        "origin": app.log.origin(),
        "key": app.log.verifier.to_string(),
        "size": signed.head.size.0,
        "root": signed.head.root.to_base64(),
        "entry_bytes_max": STATEMENT_BYTES_MAX,
        "attachment_bytes_max": ATTACHMENT_BYTES_MAX,
    });
    answer("application/json", CHANGING, format!("{body}\n"))
}

/// GET /metrics
pub async fn metrics(State(app): State<App>) -> Response {
    let (pool_entries, pool_bytes) = app.pool.held();
    let levels = Levels {
        size: app.log.published.latest().head.size.0,
        pool_entries,
        pool_bytes,
        index_bytes: length_of(&app.log.store.path("index.redb")),
        attachment_bytes: app.space.taken(),
        witnesses: app.witnesses.as_deref(),
    };
    answer(OPENMETRICS, "no-store", app.log.metrics.text(levels))
}

/// The number that an address or a query holds.
pub fn decimal(text: &str) -> Result<u64, Problem> {
    let value: Option<u64> = text.parse().ok();
    // One number, one address: no sign, no leading zeros.
    let canonical = value.filter(|value| value.to_string() == text);
    canonical.ok_or_else(|| Problem::bad_request(format!("{text:?} is not a canonical decimal")))
}

/// The decimal of a query with at most that one parameter.
pub fn query_decimal(query: Option<&str>, name: &str) -> Result<Option<u64>, Problem> {
    let Some(query) = query.filter(|query| !query.is_empty()) else { return Ok(None) };
    match query.split_once('=') {
        Some((found, value)) if found == name => Ok(Some(decimal(value)?)),
        _ => Err(Problem::bad_request(format!("expected no query or {name}=<decimal>, found {query:?}"))),
    }
}

/// What answers an address with something else where a digest belongs.
pub fn bad_name(error: DigestTextError) -> Problem {
    Problem::bad_request(format!("expected 64 lower-case hexadecimal digits, found {:?}", error.found))
}
