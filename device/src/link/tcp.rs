//! A link over a TCP connection. Both ends send and receive at once, and everything has to be over in time.

use super::frame::{self, HEADER_BYTES, Limits};
use super::{Message, Why};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

/// A message up to this length goes out without a thread of its own: the system's buffers hold it in any case.
const SMALL_BYTES: usize = 4096;
/// How long a link that is closed listens on, so that its last word is not lost with what nobody reads any more.
const FAREWELL: Duration = Duration::from_secs(2);

/// One end of a connection.
pub struct Wire {
    stream: TcpStream,
    limits: Limits,
    patience: Duration,
}

impl Wire {
    /// A wire over a connection that has been through its handshake.
    pub fn new(stream: TcpStream, limits: Limits, patience: Duration) -> Wire {
        Wire { stream, limits, patience }
    }

    /// Sends a message and waits for one.
    pub fn exchange(&self, message: &Message) -> Result<Message, Why> {
        let deadline = Instant::now() + self.patience;
        if frame::body(message).len() <= SMALL_BYTES {
            // A partner that has ended is not listening, and what it said at its end may still be waiting here.
            let _ = self.send(message, deadline);
            return self.receive(deadline);
        }
        std::thread::scope(|scope| {
            let sender = scope.spawn(|| self.send(message, deadline));
            let received = self.receive(deadline);
            if received.is_err() {
                // Nothing more can come of this connection; whoever still sends is not to wait for it.
                let _ = self.stream.shutdown(Shutdown::Both);
            }
            match (received, sender.join().expect("tcp: sending does not panic")) {
                // What did not get out whole is half a frame to the partner.
                (Ok(_), Err(error)) if error.kind() == ErrorKind::TimedOut => Err(self.silent()),
                (received, _) => received,
            }
        })
    }

    /// Sends a last message and gives the partner time to read it.
    pub fn say(&self, message: &Message) {
        let deadline = Instant::now() + FAREWELL;
        // To close with bytes unread would make the system throw away what was sent.
        let said = self.send(message, deadline).and_then(|()| self.stream.shutdown(Shutdown::Write));
        let mut unread = [0; 1 << 16];
        while said.is_ok() && matches!(read_within(&self.stream, &mut unread, deadline), Ok(1..)) {}
    }

    fn send(&self, message: &Message, deadline: Instant) -> io::Result<()> {
        let (header, body) = (frame::header(message), frame::body(message));
        if body.len() <= SMALL_BYTES {
            return write_all_within(&self.stream, &[&header[..], &body].concat(), deadline);
        }
        write_all_within(&self.stream, &header, deadline)?;
        write_all_within(&self.stream, &body, deadline)
    }

    fn receive(&self, deadline: Instant) -> Result<Message, Why> {
        let failed = |error: io::Error| match error.kind() {
            ErrorKind::TimedOut => self.silent(),
            _ => Why::Gone,
        };
        let mut header = [0; HEADER_BYTES];
        read_exact_within(&self.stream, &mut header, deadline).map_err(failed)?;
        let header = frame::read_header(&header, &self.limits).map_err(Why::Strange)?;
        let mut body = vec![0; header.length as usize];
        read_exact_within(&self.stream, &mut body, deadline).map_err(failed)?;
        frame::message(header, body, &self.limits).map_err(Why::Strange)
    }

    fn silent(&self) -> Why {
        Why::Silent(self.patience.as_secs())
    }
}

/// The time left, for the system's own limits: it takes none for no limit at all.
fn left(deadline: Instant) -> io::Result<Duration> {
    match deadline.checked_duration_since(Instant::now()) {
        Some(left) if !left.is_zero() => Ok(left.max(Duration::from_millis(1))),
        _ => Err(ErrorKind::TimedOut.into()),
    }
}

/// Whether the system only says that its limit has passed, or that it was interrupted.
fn is_pause(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

fn read_within(mut stream: &TcpStream, bytes: &mut [u8], deadline: Instant) -> io::Result<usize> {
    loop {
        stream.set_read_timeout(Some(left(deadline)?))?;
        match stream.read(bytes) {
            Err(error) if is_pause(&error) => continue,
            other => return other,
        }
    }
}

/// Fills `bytes` before the deadline, however slowly they come.
pub fn read_exact_within(stream: &TcpStream, mut bytes: &mut [u8], deadline: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        match read_within(stream, bytes, deadline)? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            count => bytes = &mut bytes[count..],
        }
    }
    Ok(())
}

/// Sends `bytes` before the deadline, however slowly they are taken.
pub fn write_all_within(mut stream: &TcpStream, mut bytes: &[u8], deadline: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.set_write_timeout(Some(left(deadline)?))?;
        match stream.write(bytes) {
            Err(error) if is_pause(&error) => continue,
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            other => bytes = &bytes[other?..],
        }
    }
    Ok(())
}
