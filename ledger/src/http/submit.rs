//! POST /entries: limits, form and signature, then a place in the log.

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use schemas::statement::Statement;
use tlog::hash::leaf_hash;
use tlog::proof::InclusionProof;
use tlog::tree::LeafIndex;

use crate::http::accept::{COSE, asks_for_cose, is_of_type};
use crate::http::app::App;
use crate::http::body::LimitedBody;
use crate::http::checked::{prove, prove_committed};
use crate::http::entry::location;
use crate::http::problem::Problem;
use crate::http::proof::{receipt, tlog_proof};
use crate::http::read::{TEXT, answer, blocking};
use crate::http::submitters::Counted;
use crate::log::Log;
use crate::order::commit::SignedHead;
use crate::order::sequencer::Sequenced;

/// Answers 201 with the proof of a new entry, or 200 with a proof of the same bytes at the place they already have.
pub async fn entry(State(app): State<App>, headers: HeaderMap, body: Body) -> Result<Response, Problem> {
    let found = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if !is_of_type(found, COSE) {
        let detail = format!("content type is {found:?}, expected {COSE:?}");
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported media type", detail));
    }
    let bytes = LimitedBody::entry(body, &headers, &app.limits)?.all().await?;
    let (bytes, statement) = app.verifiers.open(bytes).await?;
    let (digest, leaf) = (statement.digest, leaf_hash(&bytes));
    let counted = count(&app, &statement, bytes.len() as u64).await?;
    let sequenced = app.pool.submit(bytes, statement).await;
    // A client that goes away here has its entry counted all the same: it may well get its place.
    if let Some(counted) = counted
        && !matches!(sequenced, Ok(Sequenced { repeated: false, .. }))
    {
        app.submitters.give_back(counted);
    }
    let sequenced = sequenced?;
    let log = app.log.clone();
    let index = LeafIndex(sequenced.index);
    let cose = asks_for_cose(&headers);
    let answer = move |log: &Log, inclusion: InclusionProof, signed: &SignedHead| match cose {
        true => Ok(answer(COSE, "no-store", receipt(log, digest, index, inclusion, signed)?)),
        false => Ok(answer(TEXT, "no-store", tlog_proof(index, inclusion, signed))),
    };
    let mut response = match sequenced.committed {
        // What was just added is proven from memory.
        Some(committed) => {
            let inclusion = prove_committed(&log, &committed, index, leaf)?;
            answer(&log, inclusion, &committed.signed)?
        }
        None => {
            blocking(move || {
                let signed = log.published.latest();
                answer(&log, prove(&log, index, &signed, Some(leaf))?, &signed)
            })
            .await?
        }
    };
    response.headers_mut().insert(header::LOCATION, location(digest));
    let status = if sequenced.repeated { StatusCode::OK } else { StatusCode::CREATED };
    Ok((status, response).into_response())
}

/// Counts a submission, if there are rules. Bytes that are in the log already go through: a repetition is no error.
async fn count(app: &App, statement: &Statement, bytes: u64) -> Result<Option<Counted>, Problem> {
    if !app.submitters.has_rules() {
        return Ok(None);
    }
    let (log, digest) = (app.log.clone(), statement.digest);
    if blocking(move || Ok(log.index.find(digest)?)).await?.is_some() {
        return Ok(None);
    }
    app.submitters.count(statement.signer, bytes).map(Some)
}
