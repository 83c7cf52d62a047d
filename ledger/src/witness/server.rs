//! The witness server (C2SP tlog-witness): `POST /add-checkpoint`, and what was cosigned last for monitors.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::map_response;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use tlog::note::VerifierKey;
use tlog::witness::{ADD_CHECKPOINT_BYTES_MAX, AddCheckpoint, Refusal, SIZE_TYPE, format_size};
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::disk::durable::{Files, ensure_folder};
use crate::disk::lock::lock_file;
use crate::error::LogError;
use crate::http::app::Limits;
use crate::http::body::LimitedBody;
use crate::http::descriptors::within_open_files;
use crate::http::problem::Problem;
use crate::http::read::{CHANGING, TEXT, blocking};
use crate::http::server::{Listening, ServeError, accept, listen, told_to_stop};
use crate::http::signals::Signals;
use crate::witness::error::WitnessError;
use crate::witness::key::{check_folder, open_key};
use crate::witness::records::{Clock, NotCosigned, Records};

/// How a witness is started.
pub struct Options {
    /// The witness's folder; made if it is not there.
    pub data: PathBuf,
    /// Where to listen; port 0 takes any free port.
    pub listen: SocketAddr,
    /// The witness's name; for an existing witness it must be the one it has.
    pub name: Option<String>,
    /// The logs whose checkpoints it cosigns. A key's name is its log's origin.
    pub logs: Vec<VerifierKey>,
    /// Limits on peers.
    pub limits: Limits,
    /// What time it is.
    pub clock: Clock,
}

/// A witness that accepts connections.
pub struct Running {
    address: SocketAddr,
    verifier_key: String,
    stop: watch::Sender<bool>,
    accepting: JoinHandle<()>,
    runtime: Runtime,
    // Released when dropped, after everything else.
    _lock: std::fs::File,
}

/// What handlers share.
#[derive(Clone)]
struct Witness {
    records: Arc<Records>,
    limits: Limits,
}

/// Opens the folder and starts answering on threads of its own.
pub fn start(mut options: Options) -> Result<Running, ServeError> {
    options.limits = within_open_files(options.limits)?;
    let Listening { runtime, listener, address } = listen(options.listen)?;
    let base = &options.data;
    check_folder(base)?;
    ensure_folder(base).map_err(LogError::io(base)).map_err(WitnessError::from)?;
    let lock = lock_file(&base.join("server.lock"), base).map_err(WitnessError::from)?;
    let files = Files::default();
    let key = open_key(base, options.name.as_deref(), &files)?;
    let verifier_key = key.verifier().to_string();
    let records = Arc::new(Records::open(base, key, &options.logs, files, options.clock)?);

    let (stop, stopping) = watch::channel(false);
    let witness = Witness { records, limits: options.limits };
    let accepting = runtime.spawn(accept(listener, router(witness), options.limits, stopping));
    Ok(Running { address, verifier_key, stop, accepting, runtime, _lock: lock })
}

impl Running {
    /// The address listened on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The witness's C2SP verifier key, for policies.
    pub fn verifier_key(&self) -> &str {
        &self.verifier_key
    }

    /// Catches signals from now on, for [`Running::run_until_signal`].
    pub fn catch_signals(&self) -> Result<Signals, ServeError> {
        Signals::catch(&self.runtime).map_err(ServeError::Threads)
    }

    /// Waits for a signal, and then stops.
    pub fn run_until_signal(self, mut signals: Signals) {
        let mut stopping = self.stop.subscribe();
        self.runtime.block_on(async {
            tokio::select! {
                () = signals.arrive() => {}
                () = told_to_stop(&mut stopping) => {}
            }
        });
        self.stop();
    }

    /// Stops: no new connections, requests under way are finished.
    pub fn stop(self) {
        self.stop.send_replace(true);
        let _ = self.runtime.block_on(self.accepting);
        self.runtime.shutdown_timeout(Duration::from_secs(1));
    }
}

fn router(witness: Witness) -> Router {
    Router::new()
        .route("/add-checkpoint", post(add_checkpoint))
        .route("/{name}/checkpoint", get(checkpoint))
        .fallback(async || Problem::not_found("there is nothing at this address"))
        .layer(map_response(finish))
        .with_state(witness)
}

/// What holds for every answer: types are not guessed, and errors are not cached.
async fn finish(mut response: Response) -> Response {
    let status = response.status();
    if status == StatusCode::METHOD_NOT_ALLOWED {
        // The framework's own answer.
        response = Problem::new(status, "method not allowed", "this address does not take that method")
            .into_response();
    }
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if !status.is_success() {
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    response
}

/// POST /add-checkpoint
async fn add_checkpoint(
    State(witness): State<Witness>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let body = LimitedBody::short(body, &headers, ADD_CHECKPOINT_BYTES_MAX, &witness.limits)?;
    let request = AddCheckpoint::parse(&body.all().await?);
    let request = request.map_err(|error| Problem::bad_request(error.to_string()))?;
    // Storing waits for the disk, and for others of the same origin.
    blocking(move || match witness.records.cosign(&request) {
        Ok(record) => {
            let headers = [(header::CONTENT_TYPE, TEXT), (header::CACHE_CONTROL, "no-store")];
            Ok((headers, record.cosignature_line().to_owned()).into_response())
        }
        Err(NotCosigned::Refused(refusal)) => refused(refusal),
        Err(NotCosigned::Failed(error)) => Err(failed(&error)),
    })
    .await
}

fn refused(refusal: Refusal) -> Result<Response, Problem> {
    if let Refusal::Conflict { expected, .. } = refusal {
        let headers = [(header::CONTENT_TYPE, SIZE_TYPE), (header::CACHE_CONTROL, "no-store")];
        return Ok((StatusCode::CONFLICT, headers, format_size(expected)).into_response());
    }
    let status = StatusCode::from_u16(refusal.status()).expect("ledger: a refusal has a status");
    let title = match status {
        StatusCode::FORBIDDEN => "not signed",
        StatusCode::NOT_FOUND => "unknown log",
        StatusCode::UNPROCESSABLE_ENTITY => "inconsistent",
        _ => "bad request",
    };
    Err(Problem::new(status, title, refusal.to_string()))
}

fn failed(error: &WitnessError) -> Problem {
    tracing::error!("{error}");
    if let WitnessError::ClockBehind { .. } = error {
        return Problem::busy(
            "this witness's clock has gone back; nothing is cosigned until it has caught up",
        );
    }
    let detail = "this witness's records are not in order; this has been reported to its operator";
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal error", detail)
}

/// GET /{sha256 of the origin}/checkpoint
async fn checkpoint(State(witness): State<Witness>, Path(name): Path<String>) -> Result<Response, Problem> {
    match witness.records.latest(&name) {
        Ok(Some(record)) => {
            let headers = [(header::CONTENT_TYPE, TEXT), (header::CACHE_CONTROL, CHANGING)];
            Ok((headers, record.note.clone()).into_response())
        }
        Ok(None) => Err(Problem::not_found("this witness has cosigned no checkpoint of such an origin")),
        Err(error) => Err(failed(&error)),
    }
}
