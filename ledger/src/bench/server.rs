//! The server under load: this very program as a process of its own, on loopback.

use std::fs;
use std::io::{self, BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use thiserror::Error;
use tlog::note::VerifierKey;

use crate::say::is_json;

/// Ticks of a second in which the system counts processor time, on every Linux of today.
const TICKS_PER_S: f64 = 100.0;

/// Why there is no server to load.
#[derive(Debug, Error)]
pub enum ServerError {
    /// The program could not be started.
    #[error("cannot start {}: {source}", path.display())]
    Start {
        /// The program.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It did not say what a server says when it is ready.
    #[error("the server said {found:?}, expected its {expected}")]
    NotReady {
        /// What was to be told.
        expected: &'static str,
        /// The line, empty if it ended.
        found: String,
    },
    /// It listens where others could be reached.
    #[error("the server listens on {0}, expected an address of loopback")]
    NotLoopback(SocketAddr),
    /// It could not be told to end, or the end could not be awaited.
    #[error("cannot end the server: {0}")]
    End(#[source] io::Error),
}

/// Memory of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// Resident now, in bytes.
    pub resident_bytes: u64,
    /// Resident at most so far.
    pub peak_bytes: u64,
}

/// A server's process; killed when dropped.
#[derive(Debug)]
pub struct Server {
    child: Child,
    /// Where it listens.
    pub address: SocketAddr,
    /// The log's key, as the server tells it.
    pub verifier: VerifierKey,
}

impl Server {
    /// Starts `program serve` with so many connections allowed, and waits until it is ready.
    pub fn start(program: &Path, data: &Path, connections: usize) -> Result<Server, ServerError> {
        let mut command = Command::new(program);
        command.args([
            "serve",
            "--listen",
            "0",
            "--rate-per-address",
            "0",
            "--connections-per-peer",
            &connections.to_string(),
            "--data",
        ]);
        command.arg(data);
        if is_json() {
            command.args(["--log-format", "json"]);
        }
        let spawned = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let child = spawned.map_err(|source| ServerError::Start { path: program.to_owned(), source })?;
        let mut starting = Starting(Some(child));
        let child = starting.0.as_mut().expect("bench: a child that was just put there");
        let mut lines = BufReader::new(child.stdout.take().expect("bench: stdout is piped")).lines();
        let mut told = |expected: &'static str| {
            let line = lines.next().and_then(Result::ok).unwrap_or_default();
            let value = line.strip_prefix(expected).and_then(|rest| rest.strip_prefix(": "));
            value.map(str::to_owned).ok_or(ServerError::NotReady { expected, found: line })
        };
        let (address, key) = (told("address")?, told("verifier key")?);
        // The last line it prints; with the pipe closed before, it would fail to.
        let _ = lines.next();
        let wrong = |expected, found| ServerError::NotReady { expected, found };
        let verifier = VerifierKey::parse(&key).map_err(|_| wrong("verifier key", key))?;
        let address: SocketAddr = address.parse().map_err(|_| wrong("address", address))?;
        if !address.ip().is_loopback() {
            return Err(ServerError::NotLoopback(address));
        }
        let child = starting.0.take().expect("bench: the child is still there");
        Ok(Server { child, address, verifier })
    }

    /// Its memory, if the system tells.
    pub fn memory(&self) -> Option<Memory> {
        parse_memory(&fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?)
    }

    /// Processor time it has used, in seconds, if the system tells.
    pub fn processor_s(&self) -> Option<f64> {
        processor_s(&self.child.id().to_string())
    }

    /// SIGKILL: it gets no chance to do anything.
    pub fn kill(&mut self) -> Result<(), ServerError> {
        self.child.kill().and_then(|()| self.child.wait()).map(drop).map_err(ServerError::End)
    }

    /// SIGTERM, and waits for the end.
    pub fn stop(mut self) -> Result<(), ServerError> {
        // The standard library sends no signal but SIGKILL; every shell can.
        let script = format!("kill -TERM {}", self.child.id());
        let sent = Command::new("sh").args(["-c", &script]).status().map_err(ServerError::End)?;
        let ended = if sent.success() { self.child.wait() } else { Err(io::Error::other(script)) };
        match ended.map_err(ServerError::End)? {
            status if status.success() => Ok(()),
            status => Err(ServerError::End(io::Error::other(format!("it ended with {status}")))),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // One that has ended already is not signalled.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A child that is ended if it does not become a server.
struct Starting(Option<Child>);

impl Drop for Starting {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Processor time of a process (`self` is this one), in seconds.
pub fn processor_s(process: &str) -> Option<f64> {
    parse_processor_s(&fs::read_to_string(format!("/proc/{process}/stat")).ok()?)
}

fn parse_memory(status: &str) -> Option<Memory> {
    let kilobytes = |name: &str| -> Option<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.trim().strip_suffix(" kB")?.parse().ok()
    };
    Some(Memory { resident_bytes: kilobytes("VmRSS")? << 10, peak_bytes: kilobytes("VmHWM")? << 10 })
}

/// The 14th and 15th word of the line; the second, the program's name, may hold spaces and stands in brackets.
fn parse_processor_s(stat: &str) -> Option<f64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let ticks: Vec<u64> =
        rest.split_whitespace().skip(11).take(2).filter_map(|word| word.parse().ok()).collect();
    (ticks.len() == 2).then(|| (ticks[0] + ticks[1]) as f64 / TICKS_PER_S)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_tells_of_a_process_is_read() {
        let status = "Name:\tledger\nVmHWM:\t   20480 kB\nVmRSS:\t   10240 kB\nThreads:\t4\n";
        let expected = Memory { resident_bytes: 10 << 20, peak_bytes: 20 << 20 };
        assert_eq!(parse_memory(status), Some(expected));
        assert_eq!(parse_memory("Name:\tledger\n"), None);
        let stat = "7 (a ) b) S 1 7 7 0 -1 4194560 1 0 0 0 150 50 0 0 20 0 4 0 9 9 9";
        assert_eq!(parse_processor_s(stat), Some(2.0));
        assert_eq!(parse_processor_s("7 (ledger) S 1"), None);
    }

    #[test]
    fn a_program_that_is_no_server_is_refused() {
        let error = Server::start(Path::new("/bin/echo"), Path::new("nowhere"), 1).unwrap_err();
        let found = "serve --listen 0 --rate-per-address 0 --connections-per-peer 1 --data nowhere";
        assert_eq!(error.to_string(), format!("the server said {found:?}, expected its address"));
        let error = Server::start(Path::new("/nowhere/ledger"), Path::new("nowhere"), 1).unwrap_err();
        assert!(error.to_string().starts_with("cannot start /nowhere/ledger: "), "{error}");
    }
}
