//! The whole of `ledger bench`: start a server, load it, let the log grow, kill it, start it again.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use thiserror::Error;
use tokio::runtime::Runtime;
use tokio::task::LocalSet;

use crate::bench::connection::Connection;
use crate::bench::entries::{LoadId, sign};
use crate::bench::folder::Folder;
use crate::bench::load::{Figures, Pace, Phase, load};
use crate::bench::report::{Growth, Report};
use crate::bench::server::{Server, ServerError, processor_s};

/// Connections beside the writers': whoever looks on.
const CONNECTIONS_BESIDE: usize = 8;
/// The log grows in steps of this size.
const GROWTH_ENTRIES: u64 = 100_000;
/// Longest that one step may take.
const GROWTH_TIME_MAX: Duration = Duration::from_secs(120);
/// How long the load goes on before the server is killed under it.
const KILL_AFTER: Duration = Duration::from_millis(500);
/// Entries for that.
const KILL_ENTRIES: u64 = 15_000;
/// How long a killed server's successor may take to answer.
const START_TIME_MAX: Duration = Duration::from_secs(600);
/// Between two reports of progress.
const PROGRESS: Duration = Duration::from_secs(2);

/// What to do.
#[derive(Debug, Clone)]
pub struct Options {
    /// The program that is the server: this one.
    pub program: PathBuf,
    /// The folder for the log's; none for a temporary one.
    pub data: Option<PathBuf>,
    /// Writers at once.
    pub writers: usize,
    /// How long each of the two loads lasts.
    pub time: Duration,
    /// Most entries of each of the two loads.
    pub entries_max: u64,
    /// Entries a second of the open loop.
    pub paced_per_s: u64,
    /// The size that the log is made to grow to, before the server is killed.
    pub grow_to: Option<u64>,
    /// Ends everything early when set.
    pub stop: Arc<AtomicBool>,
}

/// Why there are no figures.
#[derive(Debug, Error)]
pub enum BenchError {
    /// The server did not start or end.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// A file or thread of the load generator's own.
    #[error("{what}: {source}")]
    Io {
        /// What was done.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// A load ended with fewer acknowledgements than it must have.
    #[error("the log grew to {found} entries, expected {expected}: {reason}")]
    NotGrown {
        /// Wanted.
        expected: u64,
        /// Reached.
        found: u64,
        /// Why, as far as it is known.
        reason: String,
    },
    /// The server did not answer after a kill.
    #[error("no answer within {} s of the start after a kill: {reason}", START_TIME_MAX.as_secs())]
    NoAnswer {
        /// What was answered last.
        reason: String,
    },
    /// The log is shorter than what was acknowledged.
    #[error("after a kill the log has {found} entries, expected {expected} or more, which were acknowledged")]
    Lost {
        /// Acknowledged.
        expected: u64,
        /// Found.
        found: u64,
    },
    /// It was told to stop.
    #[error("interrupted")]
    Interrupted,
}

fn io_error(what: &'static str) -> impl FnOnce(io::Error) -> BenchError {
    move |source| BenchError::Io { what, source }
}

/// Measures, and tells `say` how far it is.
pub fn bench(options: &Options, say: &dyn Fn(String)) -> Result<Report, BenchError> {
    let folder = Folder::open(options.data.as_deref()).map_err(io_error("cannot make the log's folder"))?;
    let mut id = LoadId([0; 8]);
    getrandom::fill(&mut id.0).map_err(io::Error::other).map_err(io_error("no random digits"))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(io_error("cannot start the load"))?;
    let mut bench = Bench { options, say, runtime, id, signed: 0, size: 0 };

    let full_entries = options.entries_max;
    let paced_entries = options.entries_max.min(options.paced_per_s * options.time.as_secs().max(1));
    let full = bench.sign(full_entries)?;
    let paced = bench.sign(paced_entries)?;
    let mut report = Report {
        writers: options.writers,
        paced_per_s: options.paced_per_s,
        entry_bytes: full.first().map_or(0, |entry| entry.len() as u64),
        file_system: folder.file_system(),
        ..Report::default()
    };

    let mut server = bench.start(&folder)?;
    report.memory_start = server.memory();
    let before = (server.processor_s(), processor_s("self"));
    say(format!("{} writers, as fast as they are answered", options.writers));
    report.full = bench.load(&server, Pace::Full, options.time, full)?;
    if let (Some(server_before), Some(client_before)) = before {
        let per_entry = |before: f64, after: Option<f64>| {
            let entries = (report.full.acknowledged + report.full.late).max(1) as f64;
            after.map(|after| (after - before) * 1e6 / entries)
        };
        let server_us = per_entry(server_before, server.processor_s());
        report.processor_us = server_us.zip(per_entry(client_before, processor_s("self")));
    }
    say(format!("{} entries a second, whether they are answered or not", options.paced_per_s));
    report.paced = bench.load(&server, Pace::PerSecond(options.paced_per_s), options.time, paced)?;
    report.memory_end = server.memory();
    if let Some(size) = options.grow_to {
        report.growth = bench.grow(&server, size)?;
        report.memory_end = server.memory();
        bench.kill_under_load(&mut server)?;
        drop(server);
        let (started_again, took) = bench.start_again(&folder)?;
        report.start_after_kill_ms = Some(took.as_secs_f64() * 1000.0);
        server = started_again;
    }
    report.entries = bench.size;
    server.stop()?;
    report.folder_bytes = folder.bytes().map_err(io_error("cannot measure the log's folder"))?;
    Ok(report)
}

struct Bench<'a> {
    options: &'a Options,
    say: &'a dyn Fn(String),
    runtime: Runtime,
    id: LoadId,
    /// Entries signed so far, which numbers them.
    signed: u64,
    /// The log's size, as far as acknowledgements tell.
    size: u64,
}

impl Bench<'_> {
    fn stopped(&self) -> Result<(), BenchError> {
        if self.options.stop.load(Ordering::Relaxed) { Err(BenchError::Interrupted) } else { Ok(()) }
    }

    fn sign(&mut self, count: u64) -> Result<Vec<Vec<u8>>, BenchError> {
        self.stopped()?;
        let mut told = Instant::now();
        let entries = sign(self.id, self.signed, self.signed + count, |done| {
            if told.elapsed() >= PROGRESS {
                (self.say)(format!("signed {done} of {count} entries"));
                told = Instant::now();
            }
        });
        self.signed += count;
        Ok(entries)
    }

    fn start(&self, folder: &Folder) -> Result<Server, BenchError> {
        self.stopped()?;
        let connections = self.options.writers + CONNECTIONS_BESIDE;
        Ok(Server::start(&self.options.program, &folder.log(), connections)?)
    }

    fn load(
        &mut self,
        server: &Server,
        pace: Pace,
        time_max: Duration,
        entries: Vec<Vec<u8>>,
    ) -> Result<Figures, BenchError> {
        self.stopped()?;
        let phase = self.phase(server, pace, time_max);
        let figures = LocalSet::new().block_on(&self.runtime, load(phase, entries));
        self.size = self.size.max(figures.size);
        self.stopped()?;
        Ok(figures)
    }

    fn phase(&self, server: &Server, pace: Pace, time_max: Duration) -> Phase {
        let (address, verifier) = (server.address, server.verifier.clone());
        Phase {
            address,
            verifier,
            writers: self.options.writers,
            pace,
            time_max,
            stop: self.options.stop.clone(),
        }
    }

    /// Loads the log until it has so many entries.
    fn grow(&mut self, server: &Server, size: u64) -> Result<Vec<Growth>, BenchError> {
        let mut growth = Vec::new();
        while self.size < size {
            let next = size.min((self.size / GROWTH_ENTRIES + 1) * GROWTH_ENTRIES);
            let entries = self.sign(next - self.size)?;
            let figures = self.load(server, Pace::Full, GROWTH_TIME_MAX, entries)?;
            if self.size < next {
                let reason = figures.first_not_counted.or(figures.first_failed);
                let reason = reason.unwrap_or_else(|| "the time was over".to_owned());
                return Err(BenchError::NotGrown { expected: next, found: self.size, reason });
            }
            let memory = server.memory();
            let step = Growth { entries: self.size, entries_per_s: figures.entries_per_s(), memory };
            let megabytes = |bytes: u64| bytes / 1_000_000;
            (self.say)(format!(
                "{} entries: {:.0} entries/s, the server's memory {} MB, at most {} MB",
                step.entries,
                step.entries_per_s,
                memory.map_or(0, |memory| megabytes(memory.resident_bytes)),
                memory.map_or(0, |memory| megabytes(memory.peak_bytes)),
            ));
            growth.push(step);
        }
        Ok(growth)
    }

    fn kill_under_load(&mut self, server: &mut Server) -> Result<(), BenchError> {
        let entries = self.sign(KILL_ENTRIES)?;
        (self.say)("killing the server under load".to_owned());
        let stop = Arc::new(AtomicBool::new(false));
        let phase = Phase { stop: stop.clone(), ..self.phase(server, Pace::Full, 4 * KILL_AFTER) };
        let both = async {
            let kill = async {
                tokio::time::sleep(KILL_AFTER).await;
                let killed = server.kill();
                stop.store(true, Ordering::Relaxed);
                killed
            };
            tokio::join!(load(phase, entries), kill)
        };
        let (figures, killed) = LocalSet::new().block_on(&self.runtime, both);
        killed?;
        self.size = self.size.max(figures.size);
        Ok(())
    }

    /// Starts a server on the log of the killed one, and measures until it has answered a request.
    fn start_again(&mut self, folder: &Folder) -> Result<(Server, Duration), BenchError> {
        let started = Instant::now();
        let server = self.start(folder)?;
        let mut connection = Connection::new(server.address);
        let mut reason = "nothing was answered".to_owned();
        while started.elapsed() < START_TIME_MAX {
            self.stopped()?;
            match self.runtime.block_on(connection.read("/checkpoint")) {
                Ok(answer) if answer.status == 200 => {
                    let took = started.elapsed();
                    let found = tree_size(answer.body);
                    if found < self.size {
                        return Err(BenchError::Lost { expected: self.size, found });
                    }
                    self.size = found;
                    return Ok((server, took));
                }
                Ok(answer) => reason = format!("status {}", answer.status),
                Err(error) => reason = error.to_string(),
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Err(BenchError::NoAnswer { reason })
    }
}

/// The second line of a checkpoint; 0 if there is none.
fn tree_size(note: &[u8]) -> u64 {
    let line = note.split(|byte| *byte == b'\n').nth(1).and_then(|line| std::str::from_utf8(line).ok());
    line.and_then(|line| line.parse().ok()).unwrap_or(0)
}
