//! One connection to the server under load: of HTTP/1.1 only as much as a load needs, for little processor time, since
//! that is taken from the server's.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;

use tlog::tlog_proof::PROOF_BYTES_MAX;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Longest head of an answer that is read.
const HEAD_BYTES_MAX: usize = 16 << 10;

/// A connection that is made when it is first needed and kept alive.
#[derive(Debug)]
pub struct Connection {
    address: SocketAddr,
    stream: Option<TcpStream>,
    request: Vec<u8>,
    answer: Vec<u8>,
    /// Bytes sent so far.
    pub sent_bytes: u64,
    /// Bytes received so far.
    pub received_bytes: u64,
}

/// An answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer<'a> {
    /// HTTP status.
    pub status: u16,
    /// The body.
    pub body: &'a [u8],
}

/// What of a head matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Head {
    status: u16,
    head_bytes: usize,
    body_bytes: usize,
    closes: bool,
}

impl Connection {
    /// A connection to be.
    pub fn new(address: SocketAddr) -> Connection {
        Connection {
            address,
            stream: None,
            request: Vec::new(),
            answer: Vec::new(),
            sent_bytes: 0,
            received_bytes: 0,
        }
    }

    /// Submits an entry. After an error the next request makes a new connection.
    pub async fn submit(&mut self, entry: &[u8]) -> io::Result<Answer<'_>> {
        let (address, length) = (self.address, entry.len());
        self.request.clear();
        self.request.extend_from_slice(
            format!(
                "POST /entries HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/cose\r\n\
                 Content-Length: {length}\r\n\r\n"
            )
            .as_bytes(),
        );
        self.request.extend_from_slice(entry);
        self.exchange().await
    }

    /// Asks for an address.
    pub async fn read(&mut self, path: &str) -> io::Result<Answer<'_>> {
        self.request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", self.address).into_bytes();
        self.exchange().await
    }

    /// Sends the request and reads its answer.
    async fn exchange(&mut self) -> io::Result<Answer<'_>> {
        // Taken, so that whatever ends this early leaves no stream in the middle of an answer behind.
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => {
                let stream = TcpStream::connect(self.address).await?;
                stream.set_nodelay(true)?;
                stream
            }
        };
        stream.write_all(&self.request).await?;
        self.sent_bytes += self.request.len() as u64;
        self.answer.clear();
        let head = loop {
            if stream.read_buf(&mut self.answer).await? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            let head = parse_head(&self.answer)?;
            if let Some(head) = head.filter(|head| self.answer.len() >= head.head_bytes + head.body_bytes) {
                break head;
            }
        };
        self.received_bytes += self.answer.len() as u64;
        if self.answer.len() != head.head_bytes + head.body_bytes {
            return Err(wrong("bytes after an answer's end"));
        }
        if !head.closes {
            self.stream = Some(stream);
        }
        Ok(Answer { status: head.status, body: &self.answer[head.head_bytes..] })
    }
}

fn wrong(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what)
}

/// The head, once all of it is there.
fn parse_head(bytes: &[u8]) -> io::Result<Option<Head>> {
    let within = &bytes[..bytes.len().min(HEAD_BYTES_MAX)];
    let Some(end) = within.windows(4).position(|window| window == b"\r\n\r\n") else {
        return if bytes.len() < HEAD_BYTES_MAX { Ok(None) } else { Err(wrong("a head without an end")) };
    };
    let text = std::str::from_utf8(&bytes[..end]).map_err(|_| wrong("a head that is not text"))?;
    let mut lines = text.split("\r\n");
    let status = lines.next().and_then(|line| line.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok());
    let status = status.ok_or_else(|| wrong("no status line of HTTP/1.1"))?;
    let mut head = Head { status, head_bytes: end + 4, body_bytes: 0, closes: false };
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        if name.eq_ignore_ascii_case("content-length") {
            let length = value.trim().parse().ok().filter(|length| *length <= PROOF_BYTES_MAX);
            head.body_bytes = length.ok_or_else(|| wrong("a body of no or too great length"))?;
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            return Err(wrong("a body in chunks"));
        } else if name.eq_ignore_ascii_case("connection") {
            head.closes = value.trim().eq_ignore_ascii_case("close");
        }
    }
    Ok(Some(head))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_once_it_is_whole_and_a_strange_one_refused() {
        let head = b"HTTP/1.1 201 Created\r\ncontent-LENGTH: 5\r\nConnection: close\r\n\r\nproof";
        for cut in 0..head.len() - 5 {
            assert_eq!(parse_head(&head[..cut]).unwrap(), None, "cut at {cut}");
        }
        let expected = Head { status: 201, head_bytes: head.len() - 5, body_bytes: 5, closes: true };
        assert_eq!(parse_head(head).unwrap(), Some(expected));
        for strange in [
            "HTTP/1.0 200 OK\r\n\r\n",
            "HTTP/1.1 2x0 OK\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        ] {
            assert!(parse_head(strange.as_bytes()).is_err(), "{strange:?}");
        }
        assert!(parse_head(&[b'a'; HEAD_BYTES_MAX]).is_err());
    }
}
