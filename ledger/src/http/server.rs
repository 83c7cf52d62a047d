//! The running server: the listener, one task for each connection, the sequencer's thread, and stopping in order.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use thiserror::Error;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::disk::durable::Files;
use crate::error::LogError;
use crate::http::app::{App, Limits, router};
use crate::http::attachments::{Space, clear_incoming};
use crate::http::buckets::{Buckets, Rate};
use crate::http::descriptors::within_open_files;
use crate::http::peers::{Peer, Peers, Place};
use crate::http::progress::Progress;
use crate::http::signals::Signals;
use crate::http::submitters::{Rules, Submitters};
use crate::log::{OpenLog, open_log};
use crate::order::verifiers::Verifiers;
use crate::witness::error::WitnessError;
use crate::witness::plan::{Plan, PlanError};
use crate::witness::quorum;

/// How a server is started.
#[derive(Clone)]
pub struct Options {
    /// The log's folder; made if it is not there.
    pub data: PathBuf,
    /// The folder of its lock; none for the one beside the log's folder.
    pub lock: Option<PathBuf>,
    /// Where to listen; port 0 takes any free port.
    pub listen: SocketAddr,
    /// The log's identity line; for an existing log it must be the one it has.
    pub origin: Option<String>,
    /// Limits on peers.
    pub limits: Limits,
    /// Who may submit, and how much.
    pub rules: Rules,
    /// The witnesses to ask, if any.
    pub witnesses: Option<Plan>,
}

/// Why a server could not be started or had to stop.
#[derive(Debug, Error)]
pub enum ServeError {
    /// The log is not in order.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The policy is not one by which this log can ask witnesses.
    #[error("witness policy: {0}")]
    Plan(#[from] PlanError),
    /// The witness is not in order.
    #[error(transparent)]
    Witness(#[from] WitnessError),
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// A mistake in the sequencer. What it acknowledged is on disk.
    #[error(
        "the sequencer stopped by a panic, told above; the next start goes on from what was acknowledged"
    )]
    SequencerPanicked,
    /// Too few files may be open.
    #[error("this process may open {files_max} files, expected {expected} at least")]
    FewFiles {
        /// The process's limit.
        files_max: usize,
        /// What a server needs.
        expected: usize,
    },
    /// No threads.
    #[error("cannot start threads: {0}")]
    Threads(#[source] io::Error),
}

/// A server that accepts connections. Dropping it without [`Running::stop`] is like a crash, which is safe but rude.
pub struct Running {
    address: SocketAddr,
    verifier_key: String,
    stop: watch::Sender<bool>,
    sequencer: JoinHandle<Result<(), LogError>>,
    runtime: Runtime,
}

/// Tells everybody to stop when it is dropped, by a panic too.
struct StopOnDrop(watch::Sender<bool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.send_replace(true);
    }
}

/// An address that is taken, and the threads that will answer there.
pub(crate) struct Listening {
    pub(crate) runtime: Runtime,
    pub(crate) listener: TcpListener,
    pub(crate) address: SocketAddr,
}

/// Takes an address; port 0 takes any free port. Nobody is answered yet.
pub(crate) fn listen(address: SocketAddr) -> Result<Listening, ServeError> {
    let runtime = Builder::new_multi_thread().enable_all().build().map_err(ServeError::Threads)?;
    let wrong = |source| ServeError::Listen { address, source };
    let listener = runtime.block_on(TcpListener::bind(address)).map_err(wrong)?;
    let address = listener.local_addr().map_err(wrong)?;
    Ok(Listening { runtime, listener, address })
}

/// Opens the log and starts serving it on threads of its own.
///
/// The address is taken first: a start that fails for it leaves no log behind. Whoever connects meanwhile waits.
pub fn start(mut options: Options) -> Result<Running, ServeError> {
    options.limits = within_open_files(options.limits)?;
    let Listening { runtime, listener, address } = listen(options.listen)?;
    let OpenLog { log, pool, sequencer, lock } =
        open_log(&options.data, options.lock.as_deref(), options.origin.as_deref(), Files::default())?;
    clear_incoming(&log.store)?;
    let space = Arc::new(Space::of(&log.store, options.limits.attachments_bytes_max)?);
    if let Some(plan) = &options.witnesses {
        plan.check_log(&log.verifier)?;
    }
    let verifier_key = log.verifier.to_string();

    let size = log.published.latest().head.size.0;
    tracing::info!(origin = log.origin(), size, %address, "serving");

    let (stop, stopping) = watch::channel(false);
    let failed = stop.clone();
    let thread = std::thread::Builder::new().name("sequencer".to_owned());
    let sequencer = thread.spawn(move || {
        // Without a sequencer there is nothing to accept submissions for, however it ended.
        let _stop = StopOnDrop(failed);
        let result = sequencer.run();
        if let Err(error) = &result {
            tracing::error!("the sequencer has stopped: {error}");
        }
        drop(lock);
        result
    });
    let limits = options.limits;
    let uploads = Arc::new(Semaphore::new(limits.uploads_max));
    let submitters = Arc::new(Submitters::new(options.rules));
    let requests = requests_of(limits);
    let verifiers = Verifiers::start().map_err(ServeError::Threads)?;
    let witnesses = options.witnesses.as_ref().map(|plan| plan.counters.clone());
    if let Some(plan) = options.witnesses {
        runtime.spawn(quorum::run(plan, log.clone(), stopping.clone()));
    }
    let app = App { log, verifiers, pool, limits, uploads, space, submitters, requests, witnesses };
    runtime.spawn(accept(listener, router(app), limits, stopping));
    let sequencer = sequencer.map_err(ServeError::Threads)?;
    Ok(Running { address, verifier_key, stop, sequencer, runtime })
}

/// Requests of each peer, if they are limited.
fn requests_of(limits: Limits) -> Option<Arc<Buckets<Peer>>> {
    let amount = limits.requests_per_peer_per_s;
    let rate = Rate { amount, period: Duration::from_secs(1), burst: amount.saturating_mul(10) };
    (amount > 0).then(|| Arc::new(Buckets::new(rate)))
}

impl Running {
    /// The address listened on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The log's C2SP verifier key.
    pub fn verifier_key(&self) -> &str {
        &self.verifier_key
    }

    /// Stops: no new connections, requests under way are finished, what was acknowledged is on disk.
    pub fn stop(self) -> Result<(), ServeError> {
        self.stop.send_replace(true);
        self.ended()
    }

    /// Catches SIGTERM, SIGINT and SIGHUP from now on, for [`Running::run_until_signal`]. Whoever learns the address
    /// may send one at once, so call this before telling anybody.
    pub fn catch_signals(&self) -> Result<Signals, ServeError> {
        Signals::catch(&self.runtime).map_err(ServeError::Threads)
    }

    /// Waits until the server is told to stop by a signal, or has to, and then stops.
    pub fn run_until_signal(self, mut signals: Signals) -> Result<(), ServeError> {
        let mut stopping = self.stop.subscribe();
        self.runtime.block_on(async {
            tokio::select! {
                () = signals.arrive() => {}
                () = told_to_stop(&mut stopping) => {}
            }
        });
        self.stop()
    }

    fn ended(self) -> Result<(), ServeError> {
        // The accept task ends first; with it goes the last way into the pool, and so the sequencer ends.
        let result = self.sequencer.join();
        self.runtime.shutdown_timeout(Duration::from_secs(1));
        Ok(result.map_err(|_| ServeError::SequencerPanicked)??)
    }
}

/// Serves a router until told to stop, and then until requests under way are finished.
pub(crate) async fn accept(
    listener: TcpListener,
    router: Router,
    limits: Limits,
    stopping: watch::Receiver<bool>,
) {
    let mut stopped = stopping.clone();
    let mut connections = JoinSet::new();
    let peers = Peers::new(limits.connections_per_peer_max);
    loop {
        tokio::select! {
            biased;
            () = told_to_stop(&mut stopped) => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            accepted = listener.accept(), if connections.len() < limits.connections_max => match accepted {
                Ok((stream, peer)) => {
                    // Without a place the stream is dropped, which closes it.
                    if let Some(place) = peers.enter(peer.ip()) {
                        let peer = Peer::of(peer.ip());
                        let served = connection(stream, peer, place, router.clone(), limits, stopping.clone());
                        connections.spawn(served);
                    }
                }
                // Such as too many open files: it passes, and spinning would not help it to.
                Err(error) => {
                    tracing::warn!("cannot accept a connection: {error}");
                    sleep(Duration::from_millis(50)).await;
                }
            }
        }
    }
    drop(listener);
    drop(router);
    let finished = async { while connections.join_next().await.is_some() {} };
    if timeout(Duration::from_millis(limits.stop_timeout_ms), finished).await.is_err() {
        tracing::warn!("connections were cut off on stopping");
        connections.shutdown().await;
    }
}

async fn connection(
    stream: TcpStream,
    peer: Peer,
    _place: Place,
    router: Router,
    limits: Limits,
    mut stopping: watch::Receiver<bool>,
) {
    // An answer is written at once: held back for the peer's confirmation, a long one's end would come 40 ms later.
    let _ = stream.set_nodelay(true);
    let stream = Progress::new(stream, Duration::from_millis(limits.write_pause_ms));
    let routes = TowerToHyperService::new(router);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer);
        routes.call(request)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(Duration::from_millis(limits.head_timeout_ms))
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    tokio::select! {
        // How a connection ended is the peer's affair.
        _ = connection.as_mut() => return,
        () = told_to_stop(&mut stopping) => {}
        _ = sleep(Duration::from_millis(limits.connection_timeout_ms)) => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = timeout(Duration::from_millis(limits.stop_timeout_ms), connection).await;
}

pub(crate) async fn told_to_stop(stopping: &mut watch::Receiver<bool>) {
    // An error says that the sender is gone, and with it whoever wanted the server to run.
    let _ = stopping.wait_for(|stop| *stop).await;
}
