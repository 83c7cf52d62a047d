//! `client monitor`: follows a log, hashes everything in it, derives again what it admits and registers, and tells what
//! is wrong. It trusts the log's key and nothing that the server says.

mod finding;
mod follow;
mod lists;
mod rules;
mod seen;
mod state;
mod tiles;

use crate::atomic;
use crate::cli::MonitorArgs;
use crate::http::Server;
use crate::keyfile;
use crate::output;
use anyhow::Context as _;
use follow::Follower;
use state::State;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tlog::note::Verifier as _;
use tlog::tree::TreeSize;

pub use follow::FollowError;
pub use state::StateError;

/// Entry bundles between two changes of the state: 4096 entries, so that a kill costs little.
const BUNDLES_PER_CHANGE: u64 = 16;
/// How often a waiting monitor looks whether it is told to stop.
const NAP_MS: u64 = 100;

/// Runs the command. Its status is 0 if nothing was ever found, 1 if something was, 2 if the log could not be checked.
pub fn run(args: &MonitorArgs) -> anyhow::Result<u8> {
    let log = keyfile::log_key(&args.log_key)?;
    let server = Server::at(&args.ledger)?;
    if let Some(folder) = &args.state {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    let state = State::open(args.state.as_deref(), &log)?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
        signal_hook::flag::register(signal, stop.clone()).context("cannot catch signals")?;
    }
    let bundles_per_change = BUNDLES_PER_CHANGE;
    let looked_at = std::cell::Cell::new(TreeSize(0));
    let follower =
        Follower { server: &server, log: &log, state: &state, bundles_per_change, stop: &stop, looked_at };
    let mut said = String::new();
    loop {
        let now_unix_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let looked = follower.look(now_unix_s);
        if let Some(folder) = &args.state {
            seen::keep(folder, &state)?;
        }
        // What was found is told even if the rest could not be checked.
        tell(&state, args.state.as_deref(), args.json)?;
        if args.once {
            return conclude(&state, log.name().as_str(), looked);
        }
        say(&mut said, &looked);
        if nap(&stop, args.interval) {
            return conclude(&state, log.name().as_str(), looked);
        }
    }
}

/// Says once that the log cannot be checked, and once that it can again.
fn say(said: &mut String, looked: &Result<(), FollowError>) {
    let now = looked.as_ref().err().map(FollowError::to_string).unwrap_or_default();
    if *said != now {
        match now.is_empty() {
            true => output::note("the log can be checked again"),
            false => output::error(&now),
        }
        *said = now;
    }
}

/// Waits; true if told to stop.
fn nap(stop: &AtomicBool, interval_s: u64) -> bool {
    let mut left_ms = interval_s.saturating_mul(1000);
    while left_ms > 0 && !stop.load(Ordering::Relaxed) {
        let nap_ms = left_ms.min(NAP_MS);
        std::thread::sleep(Duration::from_millis(nap_ms));
        left_ms -= nap_ms;
    }
    stop.load(Ordering::Relaxed)
}

/// Prints each finding that has not been told yet, and keeps all in `findings.jsonl`.
///
/// They are in the state already. A crash between printing and noting that tells the last ones again, never too few.
fn tell(state: &State, folder: Option<&Path>, json: bool) -> anyhow::Result<()> {
    let (findings, told) = (state.findings()?, state.told()?);
    if findings.len() as u64 == told {
        return Ok(());
    }
    let mut text = String::new();
    for line in findings.iter().skip(told as usize) {
        match json {
            true => text += line,
            false => text += &readable(line),
        }
        text.push('\n');
    }
    if let Some(folder) = folder {
        let whole: String = findings.iter().map(|line| format!("{line}\n")).collect();
        atomic::write(&folder.join("findings.jsonl"), whole.as_bytes(), atomic::PUBLIC)?;
    }
    output::result(&output::printable(&text));
    let change = state.begin()?;
    change.keep_told(findings.len() as u64)?;
    Ok(change.finish()?)
}

fn readable(line: &str) -> String {
    let finding: serde_json::Value = serde_json::from_str(line).unwrap_or_default();
    let text = |field: &str| finding[field].as_str().unwrap_or_default().to_owned();
    format!("{}: {}", text("finding"), text("message"))
}

/// The last words and the status.
fn conclude(state: &State, log: &str, looked: Result<(), FollowError>) -> anyhow::Result<u8> {
    let (known, findings) = (state.known()?, state.findings()?.len());
    let size = known.head.size;
    let root = known.head.root;
    match (looked, findings) {
        (Err(error), _) => Err(error.into()),
        (Ok(()), 0) => {
            output::note(&format!("followed {log} to size {size}, root {root}: nothing found"));
            Ok(output::YES)
        }
        (Ok(()), found) => {
            output::note(&format!("followed {log} to size {size}, root {root}: {found} found so far"));
            Ok(output::NOT_SO)
        }
    }
}
