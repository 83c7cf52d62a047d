//! Entries by their SHA-256: the bytes, what is known of them, and their COSE receipts; and the keys of receipts.

use axum::extract::{Path, State};
use axum::http::{HeaderValue, header};
use axum::response::Response;
use schemas::cbor::{self, Value};
use schemas::digest::EntryDigest;
use serde_json::json;
use tlog::tree::LeafIndex;

use crate::error::LogError;
use crate::http::accept::{CBOR, COSE};
use crate::http::app::App;
use crate::http::checked::prove;
use crate::http::pages;
use crate::http::problem::Problem;
use crate::http::proof::receipt;
use crate::http::read::{CHANGING, IMMUTABLE, TEXT, answer, bad_name, blocking};
use crate::log::Log;
use crate::order::index::{EntryFacts, Kind};

/// Keys are the same for as long as the log is; this is how soon another log at the address would be noticed.
const KEYS_CACHING: &str = "public, max-age=3600";

/// GET /entries/{sha256} for the COSE receipt, or /entries/{sha256}.html for the page
pub async fn entry(State(app): State<App>, Path(name): Path<String>) -> Result<Response, Problem> {
    if let Some(digest) = name.strip_suffix(".html") {
        let digest = digest.to_owned();
        return Ok(pages::entry(app, digest).await);
    }
    let digest: EntryDigest = name.parse().map_err(bad_name)?;
    let bytes = blocking(move || {
        let (log, signed) = (&app.log, app.log.published.latest());
        let index = LeafIndex(find(log, digest)?.0);
        receipt(log, digest, index, prove(log, index, &signed, None)?, &signed)
    })
    .await?;
    let mut response = answer(COSE, CHANGING, bytes);
    response.headers_mut().insert(header::LOCATION, location(digest));
    Ok(response)
}

/// GET /by-hash/{sha256} for the bytes, or /by-hash/{sha256}.json for what is known of them
pub async fn by_hash(State(app): State<App>, Path(name): Path<String>) -> Result<Response, Problem> {
    if let Some(digest) = name.strip_suffix(".json") {
        let digest: EntryDigest = digest.parse().map_err(bad_name)?;
        let (index, facts) = blocking(move || find(&app.log, digest)).await?;
        return Ok(answer("application/json", CHANGING, format!("{}\n", facts_json(index, &facts))));
    }
    let digest: EntryDigest = name.parse().map_err(bad_name)?;
    let (kind, bytes) = blocking(move || {
        let log = &app.log;
        let (index, facts) = find(log, digest)?;
        let size = log.published.latest().head.size;
        let bytes = log.store.read_entry(LeafIndex(index), size)?.ok_or_else(|| missing(digest))?;
        // What has this address is kept for ever, so it is looked at once more.
        let found = EntryDigest::of(&bytes);
        if found != digest {
            return Err(LogError::IndexMismatch { index, expected: digest, found }.into());
        }
        Ok((facts.kind, bytes))
    })
    .await?;
    let content_type = match kind {
        Kind::Genesis => TEXT,
        Kind::Unknown => "application/octet-stream",
        _ => COSE,
    };
    Ok(answer(content_type, IMMUTABLE, bytes))
}

/// GET /.well-known/scitt-keys
pub async fn keys(State(app): State<App>) -> Response {
    answer(CBOR, KEYS_CACHING, cbor::encode(&Value::Array(vec![app.log.receipts.cose_key()])))
}

/// GET /.well-known/scitt-keys/{kid}
pub async fn key(State(app): State<App>, Path(kid): Path<String>) -> Result<Response, Problem> {
    let receipts = &app.log.receipts;
    let expected = receipts.kid_text();
    if kid != expected {
        return Err(Problem::not_found(format!("this log signs with key {expected} (base64url)")));
    }
    Ok(answer(CBOR, KEYS_CACHING, cbor::encode(&receipts.cose_key())))
}

/// Where the receipt of an entry is.
pub fn location(digest: EntryDigest) -> HeaderValue {
    HeaderValue::try_from(format!("/entries/{digest}")).expect("ledger: hexadecimal digits in an address")
}

fn find(log: &Log, digest: EntryDigest) -> Result<(u64, EntryFacts), Problem> {
    let index = log.index.find(digest)?.ok_or_else(|| missing(digest))?;
    // The index is a moment ahead of what is published.
    if index >= log.published.latest().head.size.0 {
        return Err(missing(digest));
    }
    Ok((index, log.index.facts(index)?.ok_or_else(|| missing(digest))?))
}

fn missing(digest: EntryDigest) -> Problem {
    Problem::not_found(format!("entry {digest} is not in this log"))
}

fn facts_json(index: u64, facts: &EntryFacts) -> serde_json::Value {
    let digest = facts.digest;
    json!({
        "index": index,
        "kind": facts.kind.word(),
        "run": facts.run.map(|run| run.to_string()),
        "signer": facts.signer.map(|signer| signer.to_string()),
        "sha256": digest.to_string(),
        "links": {
            "bytes": format!("/by-hash/{digest}"),
            "page": format!("/entries/{digest}.html"),
            "tlog_proof": format!("/proof/{index}.tlog-proof"),
            "receipt": format!("/entries/{digest}"),
            "bracket": format!("/bracket/{index}"),
            "run": facts.run.map(|run| format!("/run/{run}")),
        },
    })
}
