//! One phase of load: so many writers, each with one connection and one entry under way.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tlog::note::VerifierKey;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use crate::bench::acknowledged::{Checker, Outcome};
use crate::bench::connection::{Answer, Connection};

/// How long answers are waited for after the end of a phase.
const GRACE: Duration = Duration::from_secs(10);
/// How long a writer waits when the server is busy or a connection has failed.
const AGAIN: Duration = Duration::from_millis(10);

/// When entries are submitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// Each writer's next one as soon as its last one is answered: a closed loop.
    Full,
    /// So many a second, on a schedule that does not wait for answers: an open loop. An entry's time runs from when it
    /// was due, so that an entry that found no free writer has waited.
    PerSecond(u64),
}

/// A phase.
#[derive(Debug, Clone)]
pub struct Phase {
    /// The server.
    pub address: SocketAddr,
    /// Its log's key.
    pub verifier: VerifierKey,
    /// Writers at once.
    pub writers: usize,
    /// When entries are submitted.
    pub pace: Pace,
    /// How long.
    pub time_max: Duration,
    /// Ends it early.
    pub stop: Arc<AtomicBool>,
}

/// What came of a phase.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Figures {
    /// Entries acknowledged within the time.
    pub acknowledged: u64,
    /// Entries acknowledged after it: in the log, and not in the rate.
    pub late: u64,
    /// How long it took: the time given, or less if the entries ran out.
    pub seconds: f64,
    /// Acknowledgements in each whole second.
    pub by_second: Vec<u64>,
    /// Time to acknowledgement of each entry in microseconds, ascending.
    pub waits_us: Vec<u64>,
    /// Answers that asked to come again.
    pub busy: u64,
    /// Answers that are no acknowledgement.
    pub not_counted: u64,
    /// Why the first of them is none.
    pub first_not_counted: Option<String>,
    /// Requests without an answer.
    pub failed: u64,
    /// Why the first of them has none.
    pub first_failed: Option<String>,
    /// Size of the log that acknowledgements speak of: the highest leaf index, and one.
    pub size: u64,
    /// Bytes sent and received, without the headers of TCP and IP.
    pub network_bytes: u64,
}

impl Figures {
    /// Acknowledged entries a second.
    pub fn entries_per_s(&self) -> f64 {
        if self.seconds > 0.0 { self.acknowledged as f64 / self.seconds } else { 0.0 }
    }

    /// The time in milliseconds in which this share of the entries was acknowledged.
    pub fn wait_ms(&self, share: f64) -> f64 {
        let rank = (self.waits_us.len() as f64 * share).ceil() as usize;
        let wait = self.waits_us.get(rank.saturating_sub(1)).or(self.waits_us.last());
        wait.map_or(0.0, |wait| *wait as f64 / 1000.0)
    }

    /// Fewest acknowledgements in any whole second.
    pub fn slowest_second(&self) -> u64 {
        self.by_second.iter().take(self.seconds as usize).min().copied().unwrap_or(0)
    }
}

/// What the writers of one thread share.
struct Shared {
    phase: Phase,
    started: Instant,
    entries: RefCell<Waiting>,
    checker: RefCell<Checker>,
    figures: RefCell<Figures>,
}

struct Waiting {
    entries: VecDeque<Vec<u8>>,
    taken: u64,
}

/// Submits entries until they run out or the time has passed; what is under way then is awaited for a while.
pub async fn load(phase: Phase, entries: Vec<Vec<u8>>) -> Figures {
    let shared = Rc::new(Shared {
        started: Instant::now(),
        entries: RefCell::new(Waiting { entries: entries.into(), taken: 0 }),
        checker: RefCell::new(Checker::new(phase.verifier.clone())),
        figures: RefCell::default(),
        phase,
    });
    let mut writers = JoinSet::new();
    for _ in 0..shared.phase.writers {
        writers.spawn_local(write(shared.clone()));
    }
    let last = shared.started + shared.phase.time_max + GRACE;
    while let Ok(Some(_)) = timeout_at(last, writers.join_next()).await {}
    let cut_off = writers.len() as u64;
    writers.shutdown().await;

    let mut figures = shared.figures.take();
    figures.failed += cut_off;
    figures.waits_us.sort_unstable();
    if !shared.entries.borrow().entries.is_empty() || figures.late > 0 {
        figures.seconds = shared.phase.time_max.as_secs_f64();
    }
    figures
}

async fn write(shared: Rc<Shared>) {
    let mut connection = Connection::new(shared.phase.address);
    while let Some((entry, due)) = shared.next() {
        sleep_until(due).await;
        loop {
            let answered = connection.submit(&entry).await;
            let pause = shared.count(&entry, due, answered);
            if pause.is_none() {
                break;
            }
            sleep(AGAIN).await;
            if pause == Some(Pause::Next) || shared.over() {
                break;
            }
        }
    }
    shared.figures.borrow_mut().network_bytes += connection.sent_bytes + connection.received_bytes;
}

impl Shared {
    fn over(&self) -> bool {
        self.phase.stop.load(Ordering::Relaxed) || self.started.elapsed() >= self.phase.time_max
    }

    /// The next entry and when it is due.
    fn next(&self) -> Option<(Vec<u8>, Instant)> {
        let mut waiting = self.entries.borrow_mut();
        let due = match self.phase.pace {
            Pace::Full => Instant::now(),
            Pace::PerSecond(rate) => {
                self.started + Duration::from_nanos(waiting.taken.saturating_mul(1_000_000_000) / rate.max(1))
            }
        };
        // An entry that was due within the time is submitted, however late a writer is free for it.
        if due >= self.started + self.phase.time_max || self.phase.stop.load(Ordering::Relaxed) {
            return None;
        }
        let entry = waiting.entries.pop_front()?;
        waiting.taken += 1;
        Some((entry, due))
    }

    /// Counts an answer, and says whether to pause after it.
    fn count(&self, entry: &[u8], due: Instant, answered: io::Result<Answer<'_>>) -> Option<Pause> {
        let mut figures = self.figures.borrow_mut();
        match answered.map(|answer| self.checker.borrow_mut().check(entry, answer)) {
            Ok(Outcome::Acknowledged(index)) => {
                figures.acknowledge(self.started.elapsed(), self.phase.time_max, due.elapsed());
                figures.size = figures.size.max(index.0 + 1);
                None
            }
            Ok(Outcome::Busy) => {
                figures.busy += 1;
                Some(Pause::Again)
            }
            Ok(Outcome::NotCounted(reason)) => {
                figures.not_counted += 1;
                figures.first_not_counted.get_or_insert(reason);
                None
            }
            // Whether it is in the log is not known, and an entry that is there already is not counted.
            Err(error) => {
                figures.failed += 1;
                figures.first_failed.get_or_insert(error.to_string());
                Some(Pause::Next)
            }
        }
    }
}

/// What follows after a pause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pause {
    /// The same entry.
    Again,
    /// The next one.
    Next,
}

impl Figures {
    fn acknowledge(&mut self, at: Duration, time_max: Duration, wait: Duration) {
        self.waits_us.push(wait.as_micros() as u64);
        if at > time_max {
            self.late += 1;
            return;
        }
        self.acknowledged += 1;
        self.seconds = at.as_secs_f64();
        let second = at.as_secs() as usize;
        if self.by_second.len() <= second {
            self.by_second.resize(second + 1, 0);
        }
        self.by_second[second] += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_waits_are_what_was_acknowledged_in_time() {
        let mut figures = Figures::default();
        let second = Duration::from_secs(1);
        for (at_ms, wait_ms) in [(100, 1), (200, 2), (1100, 3), (1900, 4), (2100, 500)] {
            let (at, wait) = (Duration::from_millis(at_ms), Duration::from_millis(wait_ms));
            figures.acknowledge(at, 2 * second, wait);
        }
        figures.seconds = 2.0;
        assert_eq!((figures.acknowledged, figures.late), (4, 1));
        assert_eq!(figures.entries_per_s(), 2.0);
        assert_eq!(figures.by_second, [2, 2]);
        assert_eq!(figures.slowest_second(), 2);
        assert_eq!((figures.wait_ms(0.5), figures.wait_ms(0.99)), (3.0, 500.0));
        assert_eq!(Figures::default().wait_ms(0.5), 0.0);
    }
}
