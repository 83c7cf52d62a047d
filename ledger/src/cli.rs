//! The command line: every subcommand and its options.

use std::ffi::OsString;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use ledger::argument::verifier_key;
use ledger::bench::run;
use ledger::disk::durable::read_limited;
use ledger::fsck::command::Ask;
use ledger::hint::Place;
use ledger::http::app::Limits;
use ledger::http::buckets::Rate;
use ledger::http::server::Options;
use ledger::http::submitters::{Rules, read_list};
use ledger::witness::plan::{Pace, Plan};
use ledger::witness::records::system_clock;
use ledger::witness::server::Options as WitnessOptions;
use schemas::statement::STATEMENT_BYTES_MAX;
use tlog::policy::{POLICY_BYTES_MAX, Policy};
use tracing::level_filters::LevelFilter;

/// A transparency log of signed statements.
#[derive(Parser)]
#[command(name = "ledger", version, after_help = "Example:\n  ledger serve --data ./log --listen 7180")]
pub struct Cli {
    /// How messages on stderr are written.
    #[arg(long, global = true, value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
    /// The least important messages that are written: error, warn, info or debug. Debug tells every commit.
    #[arg(long, global = true, value_name = "LEVEL", default_value = "info")]
    pub log_level: LevelFilter,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// How messages are written.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// A line for people.
    Text,
    /// A JSON object on a line.
    Json,
}

/// What to do.
#[derive(Subcommand)]
pub enum Command {
    /// Serve the log in a folder; the first start makes the log and its key.
    #[command(
        after_help = "Example:\n  ledger serve --data ./log --listen 7180 --origin log.example.com/runs"
    )]
    Serve(Serve),
    /// Hash a whole log again, compare it with what was last signed, and name the bytes that are wrong.
    #[command(after_help = FSCK_HELP)]
    Fsck(Fsck),
    /// Throw away the index of a log and make it again from its tiles; no server may be running on it.
    #[command(after_help = "Examples:\n  ledger reindex --data ./log\n  ledger reindex --tiles --data ./log")]
    Reindex(Reindex),
    /// Cosign the checkpoints of other people's logs, as a C2SP witness; the first start makes the witness's key.
    #[command(after_help = "Example:\n  ledger witness --data ./witness --listen 7181 --log ./log.pub")]
    Witness(Witness),
    /// Measure how fast this machine's server takes in entries: start one, load it over loopback, and remove it again.
    #[command(after_help = BENCH_HELP)]
    Bench(Bench),
}

impl Command {
    /// The log that it is about.
    pub fn place(&self) -> Place {
        match self {
            Command::Serve(Serve { data, lock, .. }) | Command::Reindex(Reindex { data, lock, .. }) => {
                Place { data: Some(data.clone()), lock: lock.clone(), checked: false }
            }
            Command::Fsck(Fsck { log, data, lock, .. }) => {
                let data = log.as_ref().or(data.as_ref()).map(PathBuf::from);
                Place { data, lock: lock.clone(), checked: true }
            }
            Command::Witness(_) | Command::Bench(_) => Place::default(),
        }
    }
}

const FSCK_HELP: &str = "\
Exit status: 0 all is what was signed, 1 checked and not so, 2 could not be checked.

Examples:
  ledger fsck ./log
  ledger fsck http://127.0.0.1:7180 --log-key ./log/log.pub";

const BENCH_HELP: &str = "\
What is counted: a server is started as a process of its own, on loopback, and loaded with different valid `run`
statements of 64 keys, signed beforehand, over HTTP/1.1 connections that stay open. An entry counts once it is answered
with status 201 and a proof that it stands under a checkpoint, and proof and checkpoint's signature have been checked:
so its signature was checked, it is durable, and it is covered by a published checkpoint.

Two loads: all writers as fast as they are answered (entries/s, and waits at full load); then a fixed rate that does not
wait for answers, each entry's time running from when it was due (p50, p99). Load generator, server and disk share the
machine. Other logs' figures: Tessera's are of a load generator on the same machine, time to integration; Sunlight's are
its pool's limit. With --grow-to the log then grows, the server is killed under load and started again.

Examples:
  ledger bench
  ledger bench --data /mnt/disk/bench --grow-to 1000000 --json";

/// Options of `ledger serve`.
#[derive(Args)]
pub struct Serve {
    /// The log's folder.
    #[arg(long, value_name = "DIR")]
    pub data: PathBuf,
    /// The folder of the lock, which tells what was promised; on another disk it outlives this one [default: DIR.lock
    /// beside the log's folder].
    #[arg(long, value_name = "DIR")]
    pub lock: Option<PathBuf>,
    /// Where to listen: a port of this machine only, or address:port. Port 0 takes any free one.
    #[arg(long, value_name = "PORT or ADDRESS:PORT", default_value = "7180", value_parser = parse_listen)]
    pub listen: SocketAddr,
    /// The log's name, a URL without a scheme; fixed by the first start.
    #[arg(long, value_name = "NAME")]
    pub origin: Option<String>,
    /// Most connections at once from one address (IPv6: from one /64); behind a proxy all come from the proxy's.
    #[arg(long, value_name = "N", value_parser = parse_connections,
        default_value_t = Limits::default().connections_per_peer_max)]
    pub connections_per_peer: usize,
    /// Most requests a second from one address, on the whole (IPv6: from one /64); 0 is no limit. Behind a proxy all
    /// come from the proxy's: give 0 and let the proxy limit.
    #[arg(long, value_name = "N", default_value_t = Limits::default().requests_per_peer_per_s)]
    pub rate_per_address: u64,
    /// Take statements only of the keys in this file: one `ed25519:...` to a line, # for comments.
    #[arg(long, value_name = "FILE")]
    pub allow_submitters: Option<PathBuf>,
    /// Most new entries of one key in a time, such as 1000/1h (s, m, h, d); as many at once, then evenly.
    #[arg(long, value_name = "N/PERIOD", value_parser = parse_rate)]
    pub quota_per_key: Option<Rate>,
    /// Most bytes of new entries of one key in a time, such as 10000000/1d.
    #[arg(long, value_name = "N/PERIOD", value_parser = parse_bytes_rate)]
    pub quota_bytes_per_key: Option<Rate>,
    /// Most bytes of attachments in all.
    #[arg(long, value_name = "BYTES", default_value_t = Limits::default().attachments_bytes_max)]
    pub attachments_bytes_max: u64,
    /// Ask the witnesses of this C2SP tlog-policy for cosignatures, and publish what its quorum has cosigned.
    #[arg(long, value_name = "FILE")]
    pub witness_policy: Option<PathBuf>,
    /// Least time between two checkpoints that witnesses are asked for, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 1)]
    pub witness_interval: u64,
    /// Write the server's URL to this file once it accepts connections.
    #[arg(long, value_name = "FILE")]
    pub address_file: Option<PathBuf>,
}

impl Serve {
    /// What the server is started with.
    pub fn options(&self) -> anyhow::Result<Options> {
        let limits = Limits {
            connections_per_peer_max: self.connections_per_peer,
            requests_per_peer_per_s: self.rate_per_address,
            attachments_bytes_max: self.attachments_bytes_max,
            ..Limits::default()
        };
        let allowed = self.allow_submitters.as_deref().map(read_list).transpose()?;
        let rules = Rules { allowed, entries: self.quota_per_key, bytes: self.quota_bytes_per_key };
        let witnesses = self.witness_policy.as_deref().map(|file| self.plan(file)).transpose()?;
        Ok(Options {
            data: self.data.clone(),
            lock: self.lock.clone(),
            listen: self.listen,
            origin: self.origin.clone(),
            limits,
            rules,
            witnesses,
        })
    }

    fn plan(&self, file: &Path) -> anyhow::Result<Plan> {
        let pace = Pace { interval: Duration::from_secs(self.witness_interval), ..Pace::default() };
        let plan = Plan::new(read_policy(file)?, pace, system_clock);
        plan.map_err(|error| anyhow::anyhow!("{}: {error}", file.display()))
    }
}

/// Options of `ledger witness`.
#[derive(Args)]
pub struct Witness {
    /// The witness's folder.
    #[arg(long, value_name = "DIR")]
    pub data: PathBuf,
    /// Where to listen: a port of this machine only, or address:port. Port 0 takes any free one.
    #[arg(long, value_name = "PORT or ADDRESS:PORT", default_value = "7181", value_parser = parse_listen)]
    pub listen: SocketAddr,
    /// The witness's name, a URL without a scheme; fixed by the first start.
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Cosign for the logs of this C2SP tlog-policy; its other lines do not matter here.
    #[arg(long, value_name = "FILE")]
    pub policy: Option<PathBuf>,
    /// Cosign for the log with this verifier key, or with the one in this file; may be given several times.
    #[arg(long, value_name = "KEY or FILE", required_unless_present = "policy")]
    pub log: Vec<String>,
    /// Most connections at once from one address (IPv6: from one /64); behind a proxy all come from the proxy's.
    #[arg(long, value_name = "N", value_parser = parse_connections,
        default_value_t = Limits::default().connections_per_peer_max)]
    pub connections_per_peer: usize,
    /// Write the witness's URL to this file once it accepts connections.
    #[arg(long, value_name = "FILE")]
    pub address_file: Option<PathBuf>,
}

impl Witness {
    /// What the witness is started with.
    pub fn options(&self) -> anyhow::Result<WitnessOptions> {
        let mut logs = Vec::new();
        for text in &self.log {
            logs.push(verifier_key(text).map_err(|error| anyhow::anyhow!("--log: {error}"))?);
        }
        if let Some(file) = &self.policy {
            logs.extend(read_policy(file)?.logs().iter().map(|log| log.key.clone()));
        }
        anyhow::ensure!(
            !logs.is_empty(),
            "the policy has no log line; expected at least one log to cosign for"
        );
        Ok(WitnessOptions {
            data: self.data.clone(),
            listen: self.listen,
            name: self.name.clone(),
            logs,
            limits: Limits { connections_per_peer_max: self.connections_per_peer, ..Limits::default() },
            clock: system_clock,
        })
    }
}

fn read_policy(file: &Path) -> anyhow::Result<Policy> {
    // A byte more than may be: what is too long is for the parser to tell.
    let bytes = read_limited(file, POLICY_BYTES_MAX as u64 + 1);
    let bytes = bytes.map_err(|error| anyhow::anyhow!("{}: {error}", file.display()))?;
    Policy::parse(&bytes).map_err(|error| anyhow::anyhow!("{}: {error}", file.display()))
}

/// Options of `ledger reindex`.
#[derive(Args)]
pub struct Reindex {
    /// The log's folder.
    #[arg(long, value_name = "DIR")]
    pub data: PathBuf,
    /// The folder of the log's lock, if it is not beside the log's.
    #[arg(long, value_name = "DIR")]
    pub lock: Option<PathBuf>,
    /// First make lost or damaged tiles of hashes again from the entries; nothing is changed if these do not lead to
    /// the signed root.
    #[arg(long)]
    pub tiles: bool,
}

/// Options of `ledger fsck`.
#[derive(Args)]
pub struct Fsck {
    /// The log's folder, which no server may be running on, or the address of any C2SP tlog-tiles server.
    #[arg(value_name = "DIR or URL", required_unless_present = "data")]
    pub log: Option<String>,
    /// The log's folder.
    #[arg(long, value_name = "DIR", conflicts_with = "log")]
    pub data: Option<String>,
    /// The folder of its lock [default: DIR.lock beside the log's folder].
    #[arg(long, value_name = "DIR")]
    pub lock: Option<PathBuf>,
    /// The log's verifier key, or a file that holds it; in a ledger's folder its own is taken.
    #[arg(long, value_name = "KEY or FILE")]
    pub log_key: Option<String>,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

impl Fsck {
    /// What is to be checked.
    pub fn ask(self) -> Ask {
        let log = self.log.or(self.data).expect("ledger: the command line has one of the two");
        Ask { log, lock: self.lock, key: self.log_key, json: self.json }
    }
}

/// Options of `ledger bench`.
#[derive(Args)]
pub struct Bench {
    /// Writers at once, each with a connection of its own.
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u16).range(1..=500))]
    pub writers: u16,
    /// How long each of the two loads lasts.
    #[arg(long, value_name = "S", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub seconds: u64,
    /// Most entries of each load; 20,000 for each second unless given. Signing one takes some 50 microseconds.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub entries_max: Option<u64>,
    /// Entries a second of the second load.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub rate: u64,
    /// Then let the log grow to so many entries, kill the server under load and start it again.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub grow_to: Option<u64>,
    /// A folder for the log, which is kept; a temporary one otherwise. What is measured is this folder's disk.
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

impl Bench {
    /// What is measured, until `stop` is set.
    pub fn options(&self, stop: Arc<AtomicBool>) -> io::Result<run::Options> {
        Ok(run::Options {
            program: std::env::current_exe()?,
            data: self.data.clone(),
            writers: self.writers.into(),
            time: Duration::from_secs(self.seconds),
            entries_max: self.entries_max.unwrap_or(self.seconds * 20_000),
            paced_per_s: self.rate,
            grow_to: self.grow_to,
            stop,
        })
    }
}

/// With none nobody would be answered.
fn parse_connections(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|count| *count > 0).ok_or_else(|| "expected a number from 1 on".to_owned())
}

/// Whether messages are asked for as JSON, by a command line that cannot be read as a whole.
pub fn asks_for_json(arguments: impl Iterator<Item = OsString>) -> bool {
    let mut before = OsString::new();
    for argument in arguments {
        if argument == "--log-format=json" || (before == "--log-format" && argument == "json") {
            return true;
        }
        before = argument;
    }
    false
}

fn parse_listen(text: &str) -> Result<SocketAddr, String> {
    if let Ok(port) = text.parse::<u16>() {
        return Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
    }
    text.parse().map_err(|_| "expected a port or address:port".to_owned())
}

/// An amount and a time: `1000/1h`, or `1000/h`.
fn parse_rate(text: &str) -> Result<Rate, String> {
    let rate = text.split_once('/').and_then(|(amount, period)| {
        let unit = period.trim_start_matches(|digit: char| digit.is_ascii_digit());
        let seconds: u64 = match unit {
            "s" => 1,
            "m" => 60,
            "h" => 3600,
            "d" => 86_400,
            _ => return None,
        };
        let count = &period[..period.len() - unit.len()];
        let count: u64 = if count.is_empty() { 1 } else { count.parse().ok()? };
        let amount: u64 = amount.parse().ok()?;
        let period = Duration::from_secs(count.checked_mul(seconds)?);
        (amount > 0 && count > 0 && count <= 100_000).then_some(Rate { amount, period, burst: amount })
    });
    rate.ok_or_else(|| "expected a number and a time, such as 1000/1h (s, m, h, d)".to_owned())
}

/// A quota of bytes that is less than the longest statement would refuse some statements for ever.
fn parse_bytes_rate(text: &str) -> Result<Rate, String> {
    let rate = parse_rate(text)?;
    match rate.amount >= STATEMENT_BYTES_MAX as u64 {
        true => Ok(rate),
        false => Err(format!("expected at least {STATEMENT_BYTES_MAX} bytes, the longest statement")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_a_number_and_a_time() {
        let rate = |amount, seconds| Ok(Rate { amount, period: Duration::from_secs(seconds), burst: amount });
        assert_eq!(parse_rate("1000/1h"), rate(1000, 3600));
        assert_eq!(parse_rate("5/s"), rate(5, 1));
        assert_eq!(parse_rate("7/30m"), rate(7, 1800));
        assert_eq!(parse_rate("1/2d"), rate(1, 172_800));
        for wrong in ["", "5", "5/", "/s", "0/s", "5/0s", "5/1", "5/1w", "-5/s", "5/s/s", "5/100001s", "5 /s"]
        {
            assert!(parse_rate(wrong).is_err(), "{wrong}");
        }
        assert_eq!(parse_bytes_rate("61440/s"), rate(61_440, 1));
        assert!(parse_bytes_rate("61439/s").unwrap_err().contains("at least 61440 bytes"));
    }
}
