//! POST /entries: limits, form and signature, then a place in the log.

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use tlog::tree::LeafIndex;

use crate::http::app::App;
use crate::http::body::LimitedBody;
use crate::http::problem::Problem;
use crate::http::read::{TEXT, blocking, prove};

const COSE: &str = "application/cose";

/// Answers 201 with the proof of a new entry, or 200 with a proof of the same bytes at the place they already have.
pub async fn entry(State(app): State<App>, headers: HeaderMap, body: Body) -> Result<Response, Problem> {
    let found = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    // Parameters such as `cose-type` may follow.
    if found.split(';').next().unwrap_or_default().trim() != COSE {
        let detail = format!("content type is {found:?}, expected {COSE:?}");
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported media type", detail));
    }
    let bytes = LimitedBody::entry(body, &headers, &app.limits)?.all().await?;
    let (bytes, statement) = app.verifiers.open(bytes).await?;
    let digest = statement.digest;
    let sequenced = app.pool.submit(bytes, statement).await?;
    let log = app.log.clone();
    let proof = blocking(move || prove(&log, LeafIndex(sequenced.index), &log.published.latest())).await?;
    let status = if sequenced.repeated { StatusCode::OK } else { StatusCode::CREATED };
    let headers = [
        (header::CONTENT_TYPE, TEXT.to_owned()),
        (header::CACHE_CONTROL, "no-store".to_owned()),
        (header::LOCATION, format!("/entries/{digest}")),
    ];
    Ok((status, headers, proof).into_response())
}
