//! GET /run/{run id}/completeness: the newest register of a run and its lists, for checking offline
//! (docs/spec/completeness.md).

use axum::extract::{Path, RawQuery, State};
use axum::response::Response;
use schemas::bundle::ProvenEntry;
use schemas::completeness::{Completeness, LIST_LEAVES_MAX};
use schemas::counted::counted;
use schemas::digest::RunId;
use schemas::object::Object as _;
use schemas::register::EntryLeaf;
use schemas::statement::{Payload, Statement};
use tlog::hash::leaf_hash;
use tlog::tree::LeafIndex;

use crate::http::app::App;
use crate::http::checked::prove;
use crate::http::problem::Problem;
use crate::http::read::{CHANGING, answer, bad_name, blocking, query_decimal};
use crate::log::Log;
use crate::order::commit::SignedHead;
use crate::order::index::EntryFacts;

/// Answers with the lists of predictions and, if `?entries=1` is asked, of entries.
pub async fn completeness(
    State(app): State<App>,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let run: RunId = id.parse().map_err(bad_name)?;
    let listed = match query_decimal(query.as_deref(), "entries")? {
        None | Some(0) => false,
        Some(1) => true,
        Some(found) => return Err(Problem::bad_request(format!("expected entries=0 or 1, found {found}"))),
    };
    let bytes = blocking(move || {
        let signed = app.log.published.latest();
        completeness_of(&app.log, run, listed, &signed)
    })
    .await?;
    Ok(answer("application/vnd.tallystick.completeness+cbor", CHANGING, bytes))
}

fn completeness_of(log: &Log, run: RunId, listed: bool, signed: &SignedHead) -> Result<Vec<u8>, Problem> {
    let size = signed.head.size;
    let Some(index) = log.index.newest_register(run, size.0)? else {
        let known = !log.index.of_run(run, 1)?.is_empty();
        return Err(Problem::not_found(match known {
            true => format!("run {run} has no register yet: one is made after an opening or a verdict of it"),
            false => format!("run {run} is not in this log"),
        }));
    };
    let missing =
        || Problem::not_found(format!("entry {index} is not in a tree of {}", counted(size.0, "leaf")));
    let bytes = log.store.read_entry(LeafIndex(index), size)?.ok_or_else(missing)?;
    let Ok(Statement { payload: Payload::Register(register), .. }) = Statement::open(&bytes) else {
        return Err(missing());
    };
    let longest = register.predictions.count.max(if listed { register.entries.count } else { 0 });
    if longest > LIST_LEAVES_MAX as u64 {
        let detail = format!("a list of run {run} has {longest} leaves, and a file holds {LIST_LEAVES_MAX}");
        return Err(Problem::not_found(detail));
    }
    let proof = prove(log, LeafIndex(index), signed, Some(leaf_hash(&bytes)))?.0;
    let proof = proof.iter().map(|hash| *hash.as_bytes()).collect();
    let entries = if listed { Some(entries_of(log, run, index)?) } else { None };
    let completeness = Completeness {
        checkpoint: signed.note.clone().into_bytes(),
        register: ProvenEntry { index, bytes, proof },
        predictions: log.index.predictions(run, index, LIST_LEAVES_MAX)?,
        entries,
    };
    Ok(completeness.encode())
}

fn entries_of(log: &Log, run: RunId, before: u64) -> Result<Vec<EntryLeaf>, Problem> {
    let mut leaves = Vec::new();
    log.index.each_of_run(run, before, |entry| {
        let EntryFacts { kind, digest, signer, .. } = entry.facts;
        leaves.extend(signer.map(|signer| EntryLeaf {
            index: entry.index,
            kind: kind.word(),
            signer,
            entry: digest,
        }));
    })?;
    Ok(leaves)
}
