//! The files of a log over HTTP, from any server of C2SP tlog-tiles.

use std::cell::RefCell;
use std::time::Duration;

use axum::body::Bytes;
use axum::http::{Request, StatusCode, header};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tlog::note::NOTE_BYTES_MAX;
use tlog::tile::Tile;
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};

use crate::fsck::folder::TILE_BYTES_MAX;
use crate::fsck::source::{Found, Source, SourceError};
use crate::witness::url::WitnessUrl;

/// For one file.
const TIMEOUT_MS: u64 = 60_000;
/// Tries of one request: a server may close a connection between two of them, or be busy.
const ATTEMPTS_MAX: u32 = 4;
/// Pause after the first try; doubled after each further one.
const PAUSE_MS: u64 = 250;

type Sender = SendRequest<Empty<Bytes>>;

/// A log's prefix, `http://host[:port][/path]`.
pub struct Remote {
    url: WitnessUrl,
    runtime: Runtime,
    /// A connection that is kept from one request to the next.
    kept: RefCell<Option<Sender>>,
}

impl Remote {
    /// Reads an address; nothing is sent yet.
    pub fn at(address: &str) -> Result<Remote, SourceError> {
        let wrong = |why: String| SourceError { place: address.to_owned(), why };
        let url = WitnessUrl::parse(address).map_err(|error| wrong(error.to_string()))?;
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| wrong(error.to_string()))?;
        Ok(Remote { url, runtime, kept: RefCell::new(None) })
    }

    /// A file of the log; none if the server says that it has none.
    fn fetch(&self, path: &str, bytes_max: usize) -> Result<Option<Vec<u8>>, SourceError> {
        let mut attempt = 1;
        loop {
            let limit = Duration::from_millis(TIMEOUT_MS);
            // A time limit is made where the runtime is.
            let once = async { tokio::time::timeout(limit, self.fetch_once(path, bytes_max)).await };
            let why = match self.runtime.block_on(once) {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(why)) => why,
                Err(_) => Failure::Passing(format!("no whole answer within {} s", TIMEOUT_MS / 1000)),
            };
            match why {
                Failure::Passing(_) if attempt < ATTEMPTS_MAX => {
                    std::thread::sleep(Duration::from_millis(PAUSE_MS << (attempt - 1)));
                    attempt += 1;
                }
                Failure::Passing(why) | Failure::Lasting(why) => {
                    return Err(SourceError {
                        place: format!("http://{}{}/{path}", self.url.authority, self.url.prefix),
                        why,
                    });
                }
            }
        }
    }

    async fn fetch_once(&self, path: &str, bytes_max: usize) -> Result<Option<Vec<u8>>, Failure> {
        let passing = |error: &dyn std::fmt::Display| Failure::Passing(error.to_string());
        let kept = self.kept.take().filter(|kept| kept.is_ready());
        let mut sender = match kept {
            Some(kept) => kept,
            None => {
                let stream =
                    TcpStream::connect(&self.url.authority).await.map_err(|error| passing(&error))?;
                let (sender, connection) =
                    handshake(TokioIo::new(stream)).await.map_err(|error| passing(&error))?;
                // How it ends is seen by whoever waits for an answer.
                tokio::spawn(connection);
                sender
            }
        };
        let request = Request::get(format!("{}/{path}", self.url.prefix))
            .header(header::HOST, &self.url.authority)
            .header(header::ACCEPT_ENCODING, "identity")
            .body(Empty::new())
            .map_err(|error| Failure::Lasting(error.to_string()))?;
        let answer = sender.send_request(request).await.map_err(|error| passing(&error))?;
        let (head, body) = answer.into_parts();
        let body = Limited::new(body, bytes_max).collect().await;
        match head.status {
            StatusCode::OK => {}
            StatusCode::NOT_FOUND | StatusCode::GONE => {
                self.kept.replace(Some(sender));
                return Ok(None);
            }
            status if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS => {
                return Err(Failure::Passing(format!("it answered {status}")));
            }
            status => return Err(Failure::Lasting(format!("it answered {status}"))),
        }
        if let Some(encoding) = head.headers.get(header::CONTENT_ENCODING)
            && encoding != "identity"
        {
            return Err(Failure::Lasting(format!(
                "the content is encoded as {encoding:?}, expected as it is"
            )));
        }
        let body = body.map_err(|error| match error.downcast::<hyper::Error>() {
            Ok(error) => passing(&error),
            Err(_) => Failure::Lasting(format!("it is longer than {bytes_max} bytes")),
        })?;
        self.kept.replace(Some(sender));
        Ok(Some(body.to_bytes().to_vec()))
    }
}

/// Why a request failed.
enum Failure {
    /// Another try may do.
    Passing(String),
    /// Another try would not.
    Lasting(String),
}

impl Source for Remote {
    fn checkpoint(&self) -> Result<Option<Vec<u8>>, SourceError> {
        self.fetch("checkpoint", NOTE_BYTES_MAX)
    }

    fn tile(&self, tile: Tile) -> Result<Option<Found>, SourceError> {
        // A partial tile may be gone where the full one is there.
        for tile in [tile, tile.full()] {
            if let Some(bytes) = self.fetch(&tile.path(), TILE_BYTES_MAX)? {
                return Ok(Some(Found { tile, bytes }));
            }
            if tile.is_full() {
                break;
            }
        }
        Ok(None)
    }
}
