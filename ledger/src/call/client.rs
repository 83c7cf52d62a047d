//! One server over HTTP: one connection, kept open, and answers within limits.

use std::io;

use axum::body::Bytes;
use axum::http::{Request, Response, StatusCode, header, request};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper_util::rt::TokioIo;
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use crate::call::url::HttpUrl;

/// Most bytes of an answer's head.
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// A server's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// HTTP status.
    pub status: StatusCode,
    /// Its content type, if it is text.
    pub content_type: Option<String>,
    /// Its body; of an answer that is no success and too long, nothing.
    pub body: Vec<u8>,
}

/// Why there was no answer.
#[derive(Debug, Error)]
pub enum CallError {
    /// No connection.
    #[error("cannot connect: {0}")]
    Connect(#[source] io::Error),
    /// The connection ended, or what came was no HTTP.
    #[error("no answer: {0}")]
    Http(#[from] hyper::Error),
    /// The body is longer than the caller wants to know.
    #[error("it is longer than {bytes_max} bytes")]
    TooLong {
        /// The limit.
        bytes_max: usize,
    },
    /// The body was promised as it is.
    #[error("the content is encoded as {found:?}, expected as it is")]
    Encoded {
        /// The encoding.
        found: String,
    },
}

/// The way to one server.
pub struct Client {
    url: HttpUrl,
    open: Option<Open>,
}

/// An open connection, closed when dropped.
struct Open {
    sender: SendRequest<Full<Bytes>>,
    task: JoinHandle<()>,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Client {
    /// No connection yet.
    pub fn new(url: HttpUrl) -> Client {
        Client { url, open: None }
    }

    /// The server's address.
    pub fn url(&self) -> &HttpUrl {
        &self.url
    }

    /// Asks for what is at a path below the server's address.
    pub async fn get(&mut self, path: &str, bytes_max: usize) -> Result<Answer, CallError> {
        self.call(Request::get(self.uri(path)), Bytes::new(), bytes_max).await
    }

    /// Sends a text, which must be one that does no harm if it comes twice.
    pub async fn post(&mut self, path: &str, body: String, bytes_max: usize) -> Result<Answer, CallError> {
        let request = Request::post(self.uri(path)).header(header::CONTENT_TYPE, "text/plain; charset=utf-8");
        self.call(request, Bytes::from(body), bytes_max).await
    }

    fn uri(&self, path: &str) -> String {
        format!("{}{path}", self.url.prefix)
    }

    /// One request. The caller limits its time; a call that is dropped closes the connection.
    async fn call(
        &mut self,
        request: request::Builder,
        body: Bytes,
        bytes_max: usize,
    ) -> Result<Answer, CallError> {
        let request = request
            .header(header::HOST, &self.url.authority)
            .header(header::ACCEPT_ENCODING, "identity")
            .body(Full::new(body))
            .expect("ledger: an address that was parsed makes a request");
        // A connection that was kept may have been closed by the server meanwhile.
        let kept = self.open.take().filter(|open| open.sender.is_ready());
        if let Some(mut open) = kept
            && let Ok(response) = open.sender.send_request(request.clone()).await
        {
            return self.finish(open, response, bytes_max).await;
        }
        let mut open = connect(&self.url).await?;
        let response = open.sender.send_request(request).await?;
        self.finish(open, response, bytes_max).await
    }

    /// Reads the body, and keeps the connection for the next call.
    async fn finish(
        &mut self,
        open: Open,
        response: Response<Incoming>,
        bytes_max: usize,
    ) -> Result<Answer, CallError> {
        let (head, body) = response.into_parts();
        let text = |name| head.headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()));
        if let Some(found) = text(header::CONTENT_ENCODING).filter(|encoding| encoding != "identity") {
            return Err(CallError::Encoded { found: found.into_owned() });
        }
        let content_type = text(header::CONTENT_TYPE).map(|text| text.into_owned());
        let answer = |body| Answer { status: head.status, content_type, body };
        match Limited::new(body, bytes_max).collect().await {
            Ok(body) => {
                self.open = Some(open);
                Ok(answer(body.to_bytes().to_vec()))
            }
            Err(error) => match error.downcast::<hyper::Error>() {
                Ok(error) => Err(CallError::Http(*error)),
                Err(_) if !head.status.is_success() => Ok(answer(Vec::new())),
                Err(_) => Err(CallError::TooLong { bytes_max }),
            },
        }
    }
}

async fn connect(url: &HttpUrl) -> Result<Open, CallError> {
    let stream = TcpStream::connect(&url.authority).await.map_err(CallError::Connect)?;
    let (sender, connection) =
        Builder::new().max_buf_size(HEAD_BYTES_MAX).handshake(TokioIo::new(stream)).await?;
    let task = tokio::spawn(async move {
        // How it ended is seen by whoever waits for an answer.
        let _ = connection.await;
    });
    Ok(Open { sender, task })
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use super::*;

    const ANSWER_BYTES_MAX: usize = 64 * 1024;

    /// A server that answers each connection in turn with these bytes, as many times as it is asked on it, then closes.
    fn served(connections: Vec<Vec<Vec<u8>>>) -> HttpUrl {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let authority = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            for answers in connections {
                let (mut stream, _) = listener.accept().unwrap();
                for answer in answers {
                    // Requests of these tests come in one piece.
                    if !matches!(stream.read(&mut [0; 4096]), Ok(0) | Err(_)) {
                        let _ = stream.write_all(&answer);
                    }
                }
            }
        });
        HttpUrl { authority, prefix: "/w".to_owned() }
    }

    fn call(client: &mut Client, runtime: &tokio::runtime::Runtime) -> Result<Answer, CallError> {
        runtime.block_on(client.post("/add-checkpoint", "old 0\n".to_owned(), ANSWER_BYTES_MAX))
    }

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
    }

    #[test]
    fn a_connection_is_kept_and_replaced_when_it_was_closed() {
        let answer = |status| format!("HTTP/1.1 {status} x\r\nContent-Length: 2\r\n\r\nok").into_bytes();
        let first: Vec<Vec<u8>> = [200, 201, 202].map(answer).to_vec();
        let (mut client, runtime) = (Client::new(served(vec![first, vec![answer(203)]])), runtime());
        for expected in 200..=203 {
            let found = call(&mut client, &runtime).unwrap();
            assert_eq!((found.status.as_u16(), found.body), (expected, b"ok".to_vec()));
        }
    }

    #[test]
    fn a_body_or_head_beyond_its_limit_is_not_read_to_its_end() {
        let body = |status: u16, length: usize, said: bool| {
            let said = if said { format!("Content-Length: {length}\r\n") } else { String::new() };
            let mut answer = format!("HTTP/1.1 {status} x\r\n{said}\r\n").into_bytes();
            answer.resize(answer.len() + length, b'x');
            answer
        };
        let mut head = b"HTTP/1.1 200 x\r\nX: ".to_vec();
        head.resize(head.len() + 2 * HEAD_BYTES_MAX, b'x');
        let runtime = runtime();
        let ask = |answer: Vec<u8>| call(&mut Client::new(served(vec![vec![answer, Vec::new()]])), &runtime);
        assert_eq!(ask(body(200, ANSWER_BYTES_MAX, true)).unwrap().body.len(), ANSWER_BYTES_MAX);
        // The server does not close these connections: they end because enough has been read.
        let longer = ask(body(200, ANSWER_BYTES_MAX + 1, false));
        assert!(matches!(longer, Err(CallError::TooLong { bytes_max: ANSWER_BYTES_MAX })));
        assert!(matches!(ask(head), Err(CallError::Http(_))));
        // Of a refusal the status says enough.
        let refused = ask(body(404, ANSWER_BYTES_MAX + 1, false)).unwrap();
        assert_eq!((refused.status, refused.body), (StatusCode::NOT_FOUND, Vec::new()));
    }

    #[test]
    fn a_body_that_ends_early_or_is_encoded_is_no_answer() {
        let short = b"HTTP/1.1 200 x\r\nContent-Length: 3\r\n\r\nok".to_vec();
        let encoded = b"HTTP/1.1 200 x\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\nok".to_vec();
        let ask = |answer: Vec<u8>| call(&mut Client::new(served(vec![vec![answer]])), &runtime());
        assert!(matches!(ask(short), Err(CallError::Http(_))));
        let Err(CallError::Encoded { found }) = ask(encoded) else { panic!("an encoded body was taken") };
        assert_eq!(found, "gzip");
    }
}
