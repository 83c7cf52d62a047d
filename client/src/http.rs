//! Requests to a log server: with timeouts, limits on what is read, and a bounded number of tries.

use reqwest::StatusCode;
use reqwest::blocking::{Client, Request, Response};
use reqwest::header::RETRY_AFTER;
use std::error::Error as _;
use std::io::{self, Read as _};
use std::time::Duration;

/// Tries of one request, while the server is busy or not up yet.
const ATTEMPTS_MAX: u32 = 6;
/// Pause after the first failed try; doubled after each further one.
const PAUSE_MS: u64 = 100;
/// Longest pause between tries, whatever the server asks for.
const PAUSE_MS_MAX: u64 = 5_000;
const CONNECT_TIMEOUT_MS: u64 = 5_000;
/// Longest error answer that is looked at.
const PROBLEM_BYTES_MAX: u64 = 16 << 10;

/// Why a request was not answered as hoped.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// The address is not one of ours.
    #[error("address {found:?}: expected http://HOST[:PORT]")]
    Address {
        /// What was given.
        found: String,
    },
    /// No answer.
    #[error("cannot reach {url}: {why}")]
    Unreachable {
        /// What was asked for.
        url: String,
        /// The innermost reason.
        why: String,
    },
    /// The server says no; its reason, if it gave one.
    #[error("{url} answered {status}{}{detail}", if detail.is_empty() { "" } else { ": " })]
    Status {
        /// What was asked for.
        url: String,
        /// The status.
        status: u16,
        /// The problem's detail.
        detail: String,
    },
    /// More than such an answer may have.
    #[error("{url} answered more than {bytes_max} bytes")]
    TooLong {
        /// What was asked for.
        url: String,
        /// The limit.
        bytes_max: u64,
    },
}

impl HttpError {
    /// The status, if there was an answer.
    pub fn status(&self) -> Option<u16> {
        match self {
            HttpError::Status { status, .. } => Some(*status),
            _ => None,
        }
    }
}

/// A server.
pub(crate) struct Server {
    client: Client,
    base: String,
}

impl Server {
    /// A server at `http://host[:port]`. Nothing is sent yet.
    pub(crate) fn at(address: &str) -> Result<Server, HttpError> {
        let bad = || HttpError::Address { found: address.chars().take(200).collect() };
        let url = reqwest::Url::parse(address).map_err(|_| bad())?;
        let plain = url.scheme() == "http" && url.query().is_none() && url.fragment().is_none();
        let host = url.host_str().filter(|_| plain && url.username().is_empty()).ok_or_else(bad)?;
        let mut builder = Client::builder()
            .connect_timeout(Duration::from_millis(CONNECT_TIMEOUT_MS))
            // What is signed is checked whoever sends it; still, nobody is followed elsewhere unasked.
            .redirect(reqwest::redirect::Policy::none());
        if matches!(host, "localhost" | "127.0.0.1" | "[::1]") {
            builder = builder.no_proxy();
        }
        let client = builder.build().map_err(|error| unreachable_at(address, &error))?;
        Ok(Server { client, base: url.as_str().trim_end_matches('/').to_owned() })
    }

    /// Where it is.
    pub(crate) fn base(&self) -> &str {
        &self.base
    }

    /// GET, of at most `bytes_max` bytes.
    pub(crate) fn fetch(&self, path: &str, bytes_max: u64, timeout_ms: u64) -> Result<Vec<u8>, HttpError> {
        let url = format!("{}{path}", self.base);
        let request = self.client.get(&url).timeout(Duration::from_millis(timeout_ms));
        let request = request.build().map_err(|error| unreachable_at(&url, &error))?;
        self.send(&url, request, bytes_max).map(|(_, bytes)| bytes)
    }

    /// POST or PUT of bytes, with an answer of at most `bytes_max` bytes.
    pub(crate) fn post(
        &self,
        path: &str,
        content_type: &str,
        body: Vec<u8>,
        bytes_max: u64,
        timeout_ms: u64,
    ) -> Result<(StatusCode, Vec<u8>), HttpError> {
        let url = format!("{}{path}", self.base);
        let request = self.client.post(&url).header(reqwest::header::CONTENT_TYPE, content_type);
        let request = request.timeout(Duration::from_millis(timeout_ms)).body(body).build();
        let request = request.map_err(|error| unreachable_at(&url, &error))?;
        self.send(&url, request, bytes_max)
    }

    /// Sends a request, again while the server is busy (503) or refuses connections, since it may be starting.
    /// Every request here may be sent twice: what is submitted again keeps its first place.
    fn send(&self, url: &str, request: Request, bytes_max: u64) -> Result<(StatusCode, Vec<u8>), HttpError> {
        let mut attempt = 1;
        loop {
            let again = request.try_clone().expect("http: bodies are bytes, which can be sent again");
            let last = attempt == ATTEMPTS_MAX;
            let asked_ms = match self.client.execute(again) {
                Ok(response) if response.status() == StatusCode::SERVICE_UNAVAILABLE && !last => {
                    retry_after_ms(&response)
                }
                Ok(response) => return read(url, response, bytes_max),
                Err(error) if refused(&error) && !last => None,
                Err(error) => return Err(unreachable_at(url, &error)),
            };
            let pause_ms = asked_ms.unwrap_or(PAUSE_MS << (attempt - 1)).min(PAUSE_MS_MAX);
            std::thread::sleep(Duration::from_millis(pause_ms));
            attempt += 1;
        }
    }
}

fn retry_after_ms(response: &Response) -> Option<u64> {
    let seconds: u64 = response.headers().get(RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    seconds.checked_mul(1000)
}

fn read(url: &str, response: Response, bytes_max: u64) -> Result<(StatusCode, Vec<u8>), HttpError> {
    let status = response.status();
    let limit = if status.is_success() { bytes_max } else { PROBLEM_BYTES_MAX };
    let mut bytes = Vec::new();
    let reading = response.take(limit + 1).read_to_end(&mut bytes);
    if !status.is_success() {
        let detail = if bytes.len() as u64 > limit { String::new() } else { detail(&bytes) };
        return Err(HttpError::Status { url: url.to_owned(), status: status.as_u16(), detail });
    }
    reading.map_err(|error| unreachable_at(url, &error))?;
    match bytes.len() as u64 {
        found if found > limit => Err(HttpError::TooLong { url: url.to_owned(), bytes_max }),
        _ => Ok((status, bytes)),
    }
}

/// The detail of a problem document (RFC 9457), fit to be printed.
fn detail(bytes: &[u8]) -> String {
    let problem: Option<serde_json::Value> = serde_json::from_slice(bytes).ok();
    let detail = problem.as_ref().and_then(|problem| problem["detail"].as_str()).unwrap_or_default();
    detail.chars().filter(|c| !c.is_control()).take(500).collect()
}

/// Whether nobody listens there (yet).
fn refused(error: &reqwest::Error) -> bool {
    let mut source = error.source();
    while let Some(inner) = source {
        if inner.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::ConnectionRefused) {
            return true;
        }
        source = inner.source();
    }
    false
}

/// The innermost reason is the one that people can act on.
fn unreachable_at(url: &str, error: &(dyn std::error::Error + 'static)) -> HttpError {
    let mut innermost: &dyn std::error::Error = error;
    while let Some(inner) = innermost.source() {
        innermost = inner;
    }
    HttpError::Unreachable { url: url.to_owned(), why: innermost.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::net::TcpListener;
    use std::time::Instant;

    #[test]
    fn an_answer_that_drips_is_given_up_in_its_time() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let _ = write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: 400\r\n\r\n");
            while stream.write_all(b"a").is_ok() {
                std::thread::sleep(Duration::from_millis(25));
            }
        });
        let started = Instant::now();
        let error = Server::at(&address).unwrap().fetch("/x", 1 << 20, 200).unwrap_err();
        assert!(error.to_string().ends_with("/x: operation timed out"), "{error}");
        assert!(started.elapsed() < Duration::from_secs(5), "the whole would take ten");
    }
}
