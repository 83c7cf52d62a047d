//! One witness over HTTP: one connection, kept open, and answers within limits.

use std::io;

use axum::body::Bytes;
use axum::http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper_util::rt::TokioIo;
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use crate::witness::url::WitnessUrl;

/// Longest answer that is read: a witness answers one signature line or a size.
pub const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// Most bytes of an answer's head.
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// A witness's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// HTTP status.
    pub status: StatusCode,
    /// Its content type, if it is text.
    pub content_type: Option<String>,
    /// Its body.
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
    /// The body is too long or ended early.
    #[error("the answer's body is longer than {ANSWER_BYTES_MAX} bytes or was cut short")]
    Body,
}

/// The way to one witness.
pub struct Client {
    url: WitnessUrl,
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
    pub fn new(url: WitnessUrl) -> Client {
        Client { url, open: None }
    }

    /// One request. The caller limits its time; a call that is dropped closes the connection.
    pub async fn call(&mut self, method: Method, path: &str, body: String) -> Result<Answer, CallError> {
        let request = || {
            Request::builder()
                .method(method.clone())
                .uri(format!("{}{path}", self.url.prefix))
                .header(header::HOST, &self.url.authority)
                .header(header::CONTENT_TYPE, "text/plain; charset=utf-8")
                .body(Full::new(Bytes::from(body.clone())))
                .expect("ledger: an address that was parsed makes a request")
        };
        // A connection that was kept may have been closed by the witness meanwhile; asking twice does no harm.
        let kept = self.open.take().filter(|open| open.sender.is_ready());
        if let Some(mut open) = kept
            && let Ok(response) = open.sender.send_request(request()).await
        {
            return self.finish(open, response).await;
        }
        let mut open = connect(&self.url).await?;
        let response = open.sender.send_request(request()).await?;
        self.finish(open, response).await
    }

    /// Reads the body, and keeps the connection for the next call.
    async fn finish(&mut self, open: Open, response: Response<Incoming>) -> Result<Answer, CallError> {
        let (head, body) = response.into_parts();
        let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await.map_err(|_| CallError::Body)?;
        let content_type = head.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        self.open = Some(open);
        Ok(Answer {
            status: head.status,
            content_type: content_type.map(str::to_owned),
            body: body.to_bytes().to_vec(),
        })
    }
}

async fn connect(url: &WitnessUrl) -> Result<Open, CallError> {
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

    /// A server that answers each connection in turn with these bytes, as many times as it is asked on it, then closes.
    fn served(connections: Vec<Vec<Vec<u8>>>) -> WitnessUrl {
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
        WitnessUrl { authority, prefix: "/w".to_owned() }
    }

    fn call(client: &mut Client, runtime: &tokio::runtime::Runtime) -> Result<Answer, CallError> {
        runtime.block_on(client.call(Method::POST, "/add-checkpoint", "old 0\n".to_owned()))
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
        let mut longest =
            format!("HTTP/1.1 200 x\r\nContent-Length: {ANSWER_BYTES_MAX}\r\n\r\n").into_bytes();
        longest.resize(longest.len() + ANSWER_BYTES_MAX, b'x');
        let mut longer = b"HTTP/1.1 200 x\r\n\r\n".to_vec();
        longer.resize(longer.len() + ANSWER_BYTES_MAX + 1, b'x');
        let mut head = b"HTTP/1.1 200 x\r\nX: ".to_vec();
        head.resize(head.len() + 2 * HEAD_BYTES_MAX, b'x');
        let runtime = runtime();
        let ask = |answer: Vec<u8>| call(&mut Client::new(served(vec![vec![answer, Vec::new()]])), &runtime);
        assert_eq!(ask(longest).unwrap().body.len(), ANSWER_BYTES_MAX);
        // The server does not close these connections: they end because enough has been read.
        assert!(matches!(ask(longer), Err(CallError::Body)));
        assert!(matches!(ask(head), Err(CallError::Http(_))));
    }
}
