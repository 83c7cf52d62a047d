//! Proofs: that an entry is in a tree, as a C2SP proof file or as a COSE receipt, and that one tree goes on another.

use axum::extract::{Path, RawQuery, State};
use axum::response::Response;
use schemas::counted::counted;
use schemas::digest::EntryDigest;
use tlog::checkpoint::Checkpoint;
use tlog::proof::InclusionProof;
use tlog::tlog_proof::TlogProof;
use tlog::tree::{LeafIndex, TreeSize};

use crate::error::LogError;
use crate::http::accept::COSE;
use crate::http::app::App;
use crate::http::checked::{prove, prove_consistent};
use crate::http::cose_receipt::Place;
use crate::http::problem::Problem;
use crate::http::read::{CHANGING, IMMUTABLE, TEXT, answer, blocking, decimal, query_decimal};
use crate::log::Log;
use crate::order::commit::SignedHead;

/// GET /proof/{index}.tlog-proof and /proof/{index}.cose, each with an optional ?size={size}
pub async fn proof(
    State(app): State<App>,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let (index, cose) = match (name.strip_suffix(".tlog-proof"), name.strip_suffix(".cose")) {
        (Some(index), _) => (index, false),
        (_, Some(index)) => (index, true),
        _ => return Err(Problem::not_found("expected /proof/<index>.tlog-proof or /proof/<index>.cose")),
    };
    let index = LeafIndex(decimal(index)?);
    let size = query_decimal(query.as_deref(), "size")?.map(TreeSize);
    blocking(move || {
        let log = &app.log;
        if cose {
            let signed = match size {
                None => (*log.published.latest()).clone(),
                Some(size) => checkpoint_of(log, size)?,
            };
            let missing = || not_in_tree(index, signed.head.size);
            let entry = log.index.facts(index.0)?.ok_or_else(missing)?.digest;
            let inclusion = prove(log, index, &signed, None)?;
            return Ok(answer(COSE, CHANGING, receipt(log, entry, index, inclusion, &signed)?));
        }
        let signed = match size {
            None => widely_known(log, index)?,
            Some(size) => with_cosignatures(log, checkpoint_of(log, size)?)?,
        };
        Ok(answer(TEXT, CHANGING, tlog_proof(index, prove(log, index, &signed, None)?, &signed)))
    })
    .await
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
        let proof = prove_consistent(&app.log, old, new)?;
        Ok(proof.0.iter().map(|hash| format!("{hash}\n")).collect::<String>())
    })
    .await?;
    Ok(answer(TEXT, IMMUTABLE, text))
}

/// The proof file of an entry in the tree of a published checkpoint.
pub fn tlog_proof(index: LeafIndex, inclusion: InclusionProof, signed: &SignedHead) -> String {
    TlogProof { extra: None, index, inclusion, checkpoint: signed.note.clone() }.format()
}

/// The COSE receipt of an entry in the tree of a published checkpoint.
pub fn receipt(
    log: &Log,
    entry: EntryDigest,
    index: LeafIndex,
    inclusion: InclusionProof,
    signed: &SignedHead,
) -> Result<Vec<u8>, Problem> {
    let place = Place { entry, index, inclusion: &inclusion, head: signed.head };
    log.receipts.receipt(place, now_unix_s()).ok_or_else(|| {
        Problem::not_found(
            "a COSE receipt cannot express the proof of a tree of one entry; ask again when the log has two",
        )
    })
}

/// What answers an index beyond a tree.
pub fn not_in_tree(index: LeafIndex, size: TreeSize) -> Problem {
    Problem::not_found(format!("leaf index {index} is not in a tree of {}", counted(size.0, "leaf")))
}

/// The checkpoint to prove an entry under, for somebody who named none: the first that witnesses have cosigned, which
/// says the most about when the entry was there, or else the latest.
fn widely_known(log: &Log, index: LeafIndex) -> Result<SignedHead, Problem> {
    let latest = log.published.latest();
    let with_entry = TreeSize(index.0.saturating_add(1));
    match log.history.cosigned_from(with_entry)? {
        Some((size, note)) if size <= latest.head.size => opened(log, note),
        _ => with_cosignatures(log, (*latest).clone()),
    }
}

/// The same checkpoint with the cosignatures it has, if it has any.
fn with_cosignatures(log: &Log, signed: SignedHead) -> Result<SignedHead, Problem> {
    match log.history.cosigned_from(signed.head.size)? {
        Some((size, note)) if size == signed.head.size => opened(log, note),
        _ => Ok(signed),
    }
}

fn opened(log: &Log, note: String) -> Result<SignedHead, Problem> {
    let path = log.store.path("history/cosigned");
    let opened = Checkpoint::open(note.as_bytes(), log.origin(), &log.verifier);
    let opened = opened.map_err(|source| LogError::Checkpoint { path, source })?;
    Ok(SignedHead { head: opened.head, note })
}

/// The published checkpoint of a size.
pub fn checkpoint_of(log: &Log, size: TreeSize) -> Result<SignedHead, Problem> {
    // A checkpoint on disk beyond the published one is not yet for anyone's eyes.
    let published = log.published.latest();
    let missing = || Problem::not_found(format!("no checkpoint of size {size} was published"));
    if size > published.head.size {
        return Err(missing());
    }
    if size == published.head.size {
        return Ok(SignedHead::clone(&published));
    }
    let note = log.history.of_size(size)?.ok_or_else(missing)?;
    let opened = Checkpoint::open(note.as_bytes(), log.origin(), &log.verifier);
    let path = log.store.path("history/published");
    let opened = opened.map_err(|source| LogError::Checkpoint { path, source })?;
    Ok(SignedHead { head: opened.head, note })
}

/// The time of day, which a receipt states and nothing rests on.
pub fn now_unix_s() -> u64 {
    // A clock before 1970 is wrong by more than this makes it.
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
