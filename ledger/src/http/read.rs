//! Reading the log: checkpoints, tiles, entries, proofs, and what is known of a run.

use axum::extract::{Path, RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use schemas::attachment::ATTACHMENT_BYTES_MAX;
use schemas::digest::{DigestTextError, EntryDigest, RunId};
use schemas::statement::STATEMENT_BYTES_MAX;
use serde_json::json;
use tlog::checkpoint::Checkpoint;
use tlog::proof::{ProveError, prove_consistency, prove_inclusion};
use tlog::tile::{Tile, TileReader, TileSource, tile_in_tree};
use tlog::tlog_proof::TlogProof;
use tlog::tree::{LeafIndex, TreeSize};

use crate::error::LogError;
use crate::http::app::App;
use crate::http::pages;
use crate::http::problem::Problem;
use crate::log::Log;
use crate::order::commit::SignedHead;
use crate::order::index::Kind;
use crate::witness::witnessed::Standing;

/// Content type of texts.
pub const TEXT: &str = "text/plain; charset=utf-8";
/// What has this never changes.
pub const IMMUTABLE: &str = "public, max-age=31536000, immutable";
/// What has this may change at any moment.
pub const CHANGING: &str = "no-cache";
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

fn answer(content_type: &'static str, caching: &'static str, body: impl IntoResponse) -> Response {
    ([(header::CONTENT_TYPE, content_type), (header::CACHE_CONTROL, caching)], body).into_response()
}

/// GET /checkpoint
pub async fn checkpoint(State(app): State<App>) -> Response {
    // With cosignatures if this very checkpoint has them.
    let signed = app.log.published.latest();
    let cosigned = app.log.witnessed.of_size(signed.head.size);
    answer(TEXT, CHANGING, cosigned.map_or_else(|| signed.note.clone(), |note| note.to_string()))
}

/// GET /checkpoint/witnessed
pub async fn witnessed_checkpoint(State(app): State<App>) -> Result<Response, Problem> {
    match app.log.witnessed.standing() {
        Standing::Note(_, note) => Ok(answer(TEXT, CHANGING, note.to_string())),
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

/// GET /entries/{sha256} for the bytes, or /entries/{sha256}.html for the page
pub async fn entry(State(app): State<App>, Path(name): Path<String>) -> Result<Response, Problem> {
    if let Some(digest) = name.strip_suffix(".html") {
        let digest = digest.to_owned();
        return Ok(pages::entry(app, digest).await);
    }
    let digest: EntryDigest = name.parse().map_err(bad_name)?;
    let (kind, bytes) = blocking(move || {
        let log = &app.log;
        let missing = || Problem::not_found(format!("entry {digest} is not in this log"));
        let index = log.index.find(digest)?.ok_or_else(missing)?;
        let kind = log.index.facts(index)?.ok_or_else(missing)?.kind;
        let size = log.published.latest().head.size;
        Ok((kind, log.store.read_entry(LeafIndex(index), size)?.ok_or_else(missing)?))
    })
    .await?;
    let content_type = match kind {
        Kind::Genesis => TEXT,
        Kind::Unknown => "application/octet-stream",
        _ => "application/cose",
    };
    Ok(answer(content_type, IMMUTABLE, bytes))
}

/// GET /proof/{index}.tlog-proof[?size={size}]
pub async fn proof(
    State(app): State<App>,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let index = name.strip_suffix(".tlog-proof");
    let index = index.ok_or_else(|| Problem::not_found("expected /proof/<index>.tlog-proof"))?;
    let index = LeafIndex(decimal(index)?);
    let size = query_decimal(query.as_deref(), "size")?;
    let text = blocking(move || match size {
        None => prove(&app.log, index, &app.log.published.latest()),
        Some(size) => prove(&app.log, index, &checkpoint_of(&app.log, TreeSize(size))?),
    })
    .await?;
    Ok(answer(TEXT, CHANGING, text))
}

/// GET /consistency/{old}/{new}
pub async fn consistency(
    State(app): State<App>,
    Path((old, new)): Path<(String, String)>,
) -> Result<Response, Problem> {
    let (old, new) = (TreeSize(decimal(&old)?), TreeSize(decimal(&new)?));
    let size = app.log.published.latest().head.size;
    if new > size {
        return Err(Problem::not_found(format!("this log has size {size}, not yet {new}")));
    }
    let text = blocking(move || {
        let reader = TileReader { size, source: app.log.store.as_ref() };
        let proof = prove_consistency(old, new, &reader).map_err(|error| match error {
            ProveError::Read(error) => LogError::from(error).into(),
            other => Problem::bad_request(other.to_string()),
        })?;
        Ok(proof.0.iter().map(|hash| format!("{hash}\n")).collect::<String>())
    })
    .await?;
    Ok(answer(TEXT, IMMUTABLE, text))
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

/// The proof file of an entry in the tree of a published checkpoint.
pub fn prove(log: &Log, index: LeafIndex, signed: &SignedHead) -> Result<String, Problem> {
    // The tiles are read as they are in the latest tree: the older one's may have been replaced by wider ones.
    let reader = TileReader { size: log.published.latest().head.size, source: log.store.as_ref() };
    let inclusion = prove_inclusion(index, signed.head.size, &reader).map_err(|error| match error {
        ProveError::Read(error) => LogError::from(error).into(),
        other => Problem::not_found(other.to_string()),
    })?;
    Ok(TlogProof { extra: None, index, inclusion, checkpoint: signed.note.clone() }.format())
}

fn checkpoint_of(log: &Log, size: TreeSize) -> Result<SignedHead, Problem> {
    // A checkpoint on disk beyond the published one is not yet for anyone's eyes.
    let published = log.published.latest();
    let missing = || Problem::not_found(format!("no checkpoint of size {size} was published"));
    if size > published.head.size {
        return Err(missing());
    }
    let note = log.store.read_checkpoint(size)?.ok_or_else(missing)?;
    let path = log.store.path(&format!("checkpoints/{size}"));
    let opened = Checkpoint::open(&note, log.origin(), &log.verifier);
    let opened = opened.map_err(|source| LogError::Checkpoint { path, source })?;
    Ok(SignedHead { head: opened.head, note: String::from_utf8_lossy(&note).into_owned() })
}

fn decimal(text: &str) -> Result<u64, Problem> {
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
