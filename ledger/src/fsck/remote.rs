//! The files of a log over HTTP, from any server of C2SP tlog-tiles.

use std::cell::RefCell;
use std::time::Duration;

use axum::http::StatusCode;
use tlog::note::NOTE_BYTES_MAX;
use tlog::tile::Tile;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use crate::call::client::{CallError, Client};
use crate::call::url::HttpUrl;
use crate::fsck::folder::TILE_BYTES_MAX;
use crate::fsck::source::{Found, Source, SourceError};

/// For one file.
const TIMEOUT_MS: u64 = 60_000;
/// Tries of one request: a server may close a connection between two of them, or be busy.
const ATTEMPTS_MAX: u32 = 4;
/// Pause after the first try; doubled after each further one.
const PAUSE_MS: u64 = 250;

/// A log's prefix, `http://host[:port][/path]`.
pub struct Remote {
    runtime: Runtime,
    client: RefCell<Client>,
}

impl Remote {
    /// Reads an address; nothing is sent yet.
    pub fn at(address: &str) -> Result<Remote, SourceError> {
        let wrong = |why: String| SourceError { place: address.to_owned(), why };
        let url = HttpUrl::parse(address).map_err(|error| wrong(error.to_string()))?;
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| wrong(error.to_string()))?;
        Ok(Remote { runtime, client: RefCell::new(Client::new(url)) })
    }

    /// A file of the log; none if the server says that it has none.
    fn fetch(&self, path: &str, bytes_max: usize) -> Result<Option<Vec<u8>>, SourceError> {
        let mut client = self.client.borrow_mut();
        let mut attempt = 1;
        loop {
            let limit = Duration::from_millis(TIMEOUT_MS);
            // A time limit is made where the runtime is.
            let once = async { timeout(limit, fetch_once(&mut client, path, bytes_max)).await };
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
                    let HttpUrl { authority, prefix } = client.url().clone();
                    return Err(SourceError { place: format!("http://{authority}{prefix}/{path}"), why });
                }
            }
        }
    }
}

async fn fetch_once(client: &mut Client, path: &str, bytes_max: usize) -> Result<Option<Vec<u8>>, Failure> {
    let answer = client.get(&format!("/{path}"), bytes_max).await.map_err(|error| match error {
        CallError::Connect(_) | CallError::Http(_) => Failure::Passing(error.to_string()),
        CallError::TooLong { .. } | CallError::Encoded { .. } => Failure::Lasting(error.to_string()),
    })?;
    match answer.status {
        StatusCode::OK => Ok(Some(answer.body)),
        StatusCode::NOT_FOUND | StatusCode::GONE => Ok(None),
        status if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS => {
            Err(Failure::Passing(format!("it answered {status}")))
        }
        status => Err(Failure::Lasting(format!("it answered {status}"))),
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
