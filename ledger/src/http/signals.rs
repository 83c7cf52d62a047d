//! Signals to stop: SIGTERM, SIGINT, and SIGHUP, unless whoever started the server wanted it to outlive the terminal.

use std::io;

use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Signals to stop, caught since this was made.
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
    outlives: bool,
}

impl Signals {
    /// Catches them from now on.
    pub(crate) fn catch(runtime: &Runtime) -> io::Result<Signals> {
        // Asked first: a signal that is caught is not ignored any more.
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let outlives = is_ignored(&status, SignalKind::hangup());
        let _within = runtime.enter();
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
            outlives,
        })
    }

    /// Waits for the first of them.
    pub(crate) async fn arrive(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => tracing::info!("stopping on SIGTERM"),
            _ = self.interrupt.recv() => tracing::info!("stopping on SIGINT"),
            _ = self.hangup.recv(), if !self.outlives => tracing::info!("stopping on SIGHUP"),
        }
    }
}

/// Whether a signal is ignored, by a text like Linux's /proc/self/status; as under nohup.
fn is_ignored(status: &str, signal: SignalKind) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask >> (signal.as_raw_value() - 1) & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ignored_signal_is_told_by_its_bit() {
        let ignored = |mask: &str| is_ignored(&format!("Name:\tx\nSigIgn:\t{mask}\n"), SignalKind::hangup());
        assert!(ignored("0000000000000001") && ignored("0000000000001001"));
        assert!(!ignored("0000000000001000") && !ignored("none") && !is_ignored("", SignalKind::hangup()));
    }
}
