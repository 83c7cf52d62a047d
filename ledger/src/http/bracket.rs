//! Between which cosigned checkpoints an entry came into the log, and what their times say.

use axum::extract::{Path, State};
use axum::response::Response;
use serde_json::{Value, json};
use tlog::note::SignedNote;
use tlog::tree::TreeSize;

use crate::error::LogError;
use crate::http::app::App;
use crate::http::problem::Problem;
use crate::http::proof::not_in_tree;
use crate::http::read::{CHANGING, answer, blocking, decimal};
use crate::log::Log;

/// What a checkpoint without the entry says.
const BELOW: &str = "at the time beside its name each of these witnesses cosigned the tree of this size as the largest it had \
                     seen of this log: it had then seen no tree with the entry. that the entry did not exist yet is not \
                     proven by this: it may have been kept back";
/// What a checkpoint with the entry says.
const ABOVE: &str = "at the time beside its name each of these witnesses cosigned a tree that holds the entry: if at most f \
                     of them are dishonest, the entry existed by the (f+1)-th smallest of these times";

/// GET /bracket/{index}
pub async fn bracket(State(app): State<App>, Path(index): Path<String>) -> Result<Response, Problem> {
    let index = decimal(&index)?;
    let body = blocking(move || {
        let log = &app.log;
        let size = log.published.latest().head.size;
        let missing = || not_in_tree(tlog::tree::LeafIndex(index), size);
        let entry = log.index.facts(index)?.filter(|_| index < size.0).ok_or_else(missing)?.digest;
        // A tree of this size or a larger one holds the entry, a smaller one does not.
        let with_entry = TreeSize(index + 1);
        let below = log.history.cosigned_below(with_entry)?;
        let above = log.history.cosigned_from(with_entry)?.filter(|(found, _)| *found <= size);
        let consistency = match (&below, &above) {
            (Some((old, _)), Some((new, _))) => Some(format!("/consistency/{old}/{new}")),
            _ => None,
        };
        Ok(json!({
            "index": index,
            "sha256": entry.to_string(),
            "below": below.map(|found| bound(log, &found, BELOW)).transpose()?,
            "above": above.map(|found| bound(log, &found, ABOVE)).transpose()?,
            "links": {
                "tlog_proof": format!("/proof/{index}.tlog-proof"),
                "consistency": consistency,
            },
        }))
    })
    .await?;
    Ok(answer("application/json", CHANGING, format!("{body}\n")))
}

/// One end of a bracket. The note is all that a reader needs to check it; the rest only reads it out.
fn bound(log: &Log, (size, note): &(TreeSize, String), says: &str) -> Result<Value, LogError> {
    // What is kept as cosigned had every line verified.
    let path = log.store.path("history/cosigned");
    let signed = SignedNote::parse(note.as_bytes()).map_err(|source| LogError::Note { path, source })?;
    let cosignatures: Vec<Value> = signed
        .signatures()
        .iter()
        .filter_map(|line| Some(json!({ "name": line.name.as_str(), "time_unix_s": line.stated_time_s()? })))
        .collect();
    Ok(json!({ "size": size.0, "cosignatures": cosignatures, "says": says, "checkpoint": note }))
}
