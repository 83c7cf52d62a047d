//! Every route on one screen.

use std::sync::Arc;

use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use hyper::body::Body as _;
use tokio::sync::Semaphore;

use super::{attachments, bracket, completeness, entry, pages, proof, read, submit};
use crate::http::accept::asks_for_cbor;
use crate::http::attachments::Space;
use crate::http::buckets::Buckets;
use crate::http::peers::Peer;
use crate::http::problem::Problem;
use crate::http::submitters::Submitters;
use crate::log::Log;
use crate::order::sequencer::Pool;
use crate::order::verifiers::Verifiers;
use crate::witness::counters::Counters;

/// Limits on peers. All are generous for an honest one.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Most connections at once; further ones wait to be accepted.
    pub connections_max: usize,
    /// Most connections at once from one peer address; further ones are closed at once.
    pub connections_per_peer_max: usize,
    /// Most requests a second from one peer address, on the whole; ten seconds' worth at once. Zero: no limit.
    pub requests_per_peer_per_s: u64,
    /// Most attachments being uploaded at once.
    pub uploads_max: usize,
    /// Most bytes of attachments in all.
    pub attachments_bytes_max: u64,
    /// How long a request's head may take, and an idle connection may stay.
    pub head_timeout_ms: u64,
    /// How long a body may pause.
    pub body_pause_ms: u64,
    /// How long a whole statement may take.
    pub entry_timeout_ms: u64,
    /// How long a whole attachment may take.
    pub upload_timeout_ms: u64,
    /// How long an attachment may take before its rate counts.
    pub upload_grace_ms: u64,
    /// How fast an attachment must come on the whole, the grace not counted.
    pub upload_rate_min_bytes_per_s: u64,
    /// How long a peer may leave an answer unread.
    pub write_pause_ms: u64,
    /// How long a connection may live.
    pub connection_timeout_ms: u64,
    /// How long requests under way may take to finish when the server stops.
    pub stop_timeout_ms: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections_max: 512,
            connections_per_peer_max: 32,
            requests_per_peer_per_s: 1000,
            uploads_max: 8,
            attachments_bytes_max: 64 << 30,
            head_timeout_ms: 15_000,
            body_pause_ms: 15_000,
            entry_timeout_ms: 30_000,
            upload_timeout_ms: 600_000,
            upload_grace_ms: 30_000,
            upload_rate_min_bytes_per_s: 16_384,
            write_pause_ms: 15_000,
            connection_timeout_ms: 1_800_000,
            stop_timeout_ms: 10_000,
        }
    }
}

/// What handlers share.
#[derive(Clone)]
pub struct App {
    /// The log, for reading.
    pub log: Arc<Log>,
    /// Who checks statements before they go in.
    pub verifiers: Verifiers,
    /// The way in.
    pub pool: Pool,
    /// Limits on peers.
    pub limits: Limits,
    /// One permit for each attachment being uploaded.
    pub uploads: Arc<Semaphore>,
    /// Room for attachments.
    pub space: Arc<Space>,
    /// Who may submit, and how much.
    pub submitters: Arc<Submitters>,
    /// Requests of each peer; none if they are not limited.
    pub requests: Option<Arc<Buckets<Peer>>>,
    /// What became of asking witnesses, if there are any.
    pub witnesses: Option<Arc<Counters>>,
}

/// The server's routes.
pub fn router(app: App) -> Router {
    Router::new()
        // C2SP tlog-tiles.
        .route("/checkpoint", get(read::checkpoint))
        .route("/checkpoint/witnessed", get(read::witnessed_checkpoint))
        .route("/tile/{*path}", get(read::tile))
        // Submitting and taking away.
        .route("/entries", post(submit::entry).get(pages::entries))
        .route("/entries/{name}", get(entry::entry))
        .route("/by-hash/{name}", get(entry::by_hash))
        .route("/.well-known/scitt-keys", get(entry::keys))
        .route("/.well-known/scitt-keys/{kid}", get(entry::key))
        .route(
            "/attachments/{name}",
            get(attachments::download).put(attachments::upload).post(attachments::upload),
        )
        // Derived: anyone could compute these from the tiles.
        .route("/checkpoint/{size}", get(read::older_checkpoint))
        .route("/proof/{name}", get(proof::proof))
        .route("/consistency/{old}/{new}", get(proof::consistency))
        .route("/bracket/{index}", get(bracket::bracket))
        .route("/run/{id}", get(read::run))
        .route("/run/{id}/completeness", get(completeness::completeness))
        .route("/log.json", get(read::log))
        // For machines that watch.
        .route("/metrics", get(read::metrics))
        // For people.
        .route("/", get(pages::runs))
        .route("/runs", get(pages::runs))
        .route("/runs/{id}", get(pages::run))
        .route("/style.css", get(pages::style))
        .fallback(async || Problem::not_found("there is nothing at this address"))
        .layer(from_fn_with_state(app.clone(), around))
        .with_state(app)
}

/// What holds for every request: each peer's are limited.
async fn around(State(app): State<App>, request: Request, next: Next) -> Response {
    let cbor = asks_for_cbor(request.headers());
    let route = request.extensions().get::<MatchedPath>().cloned();
    let refused = app.requests.as_ref().and_then(|requests| {
        let peer = *request.extensions().get::<Peer>()?;
        let wait = requests.fill(peer, 1).err()?;
        let limit =
            format!("one address (IPv6: one /64) may make {} requests a second", requests.rate().amount);
        Some(Problem::too_many(limit, wait))
    });
    let response = match refused {
        Some(problem) => problem.into_response(),
        None => next.run(request).await,
    };
    let response = finish(response, cbor);
    let metrics = &app.log.metrics;
    let bytes = response.body().size_hint().exact().or_else(|| announced(response.headers())).unwrap_or(0);
    // An address of no route is counted under one name: there is no end of such addresses.
    metrics.answered(route.as_ref().map_or("none", MatchedPath::as_str), response.status().as_u16(), bytes);
    if let Some(problem) = response.extensions().get::<Problem>() {
        metrics.refused(problem.title);
    }
    response
}

/// The length that an answer states, if it is streamed.
fn announced(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// What holds for every answer: types are not guessed, and errors are problems and are not cached.
fn finish(response: Response, cbor: bool) -> Response {
    let status = response.status();
    let is = |response: &Response, kind: &str| {
        let found = response.headers().get(header::CONTENT_TYPE);
        found.is_some_and(|found| found.as_bytes().starts_with(kind.as_bytes()))
    };
    let failed = status.is_client_error() || status.is_server_error();
    let mut response = match response.extensions().get::<Problem>().cloned() {
        Some(problem) if cbor => problem.into_cbor(),
        Some(_) => response,
        None if !failed || is(&response, "text/html") => response,
        // The framework's own answers, such as those to a wrong method.
        None => {
            let (title, detail) = match status {
                StatusCode::METHOD_NOT_ALLOWED => {
                    ("method not allowed", "this address does not take that method")
                }
                _ => ("bad request", "the request cannot be understood"),
            };
            let problem = Problem::new(status, title, detail);
            if cbor { problem.into_cbor() } else { problem.into_response() }
        }
    };
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    if failed {
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    response
}
