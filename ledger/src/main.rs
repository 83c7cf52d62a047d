//! `ledger serve` and `ledger fsck`.

use std::io::{ErrorKind, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use clap::{Parser, Subcommand};
use ledger::disk::durable::Files;
use ledger::disk::folder::require_log;
use ledger::disk::key::read_key;
use ledger::disk::lock::FolderLock;
use ledger::disk::store::Store;
use ledger::error::LogError;
use ledger::http::app::Limits;
use ledger::http::attachments::check_attachments;
use ledger::http::server::{Options, ServeError, start};
use ledger::order::commit::Committer;

/// A transparency log of signed statements.
#[derive(Parser)]
#[command(name = "ledger", version, after_help = "Example:\n  ledger serve --data ./log --listen 7180")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve the log in a folder; the first start makes the log and its key.
    #[command(
        after_help = "Example:\n  ledger serve --data ./log --listen 7180 --origin log.example.com/runs"
    )]
    Serve {
        /// The log's folder.
        #[arg(long, value_name = "DIR")]
        data: PathBuf,
        /// Where to listen: a port of this machine only, or address:port. Port 0 takes any free one.
        #[arg(long, value_name = "PORT or ADDRESS:PORT", default_value = "7180", value_parser = parse_listen)]
        listen: SocketAddr,
        /// The log's name, a URL without a scheme; fixed by the first start.
        #[arg(long, value_name = "NAME")]
        origin: Option<String>,
        /// Most connections at once from one address (IPv6: from one /64); behind a proxy all come from the proxy's.
        #[arg(long, value_name = "N", default_value_t = Limits::default().connections_per_peer_max)]
        connections_per_peer: usize,
        /// Write the server's URL to this file once it accepts connections.
        #[arg(long, value_name = "FILE")]
        address_file: Option<PathBuf>,
    },
    /// Hash a whole log again and compare it with what was last signed; no server may be running on it.
    #[command(after_help = "Example:\n  ledger fsck --data ./log")]
    Fsck {
        /// The log's folder.
        #[arg(long, value_name = "DIR")]
        data: PathBuf,
    },
}

fn parse_listen(text: &str) -> Result<SocketAddr, String> {
    if let Ok(port) = text.parse::<u16>() {
        return Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
    }
    text.parse().map_err(|_| "expected a port or address:port".to_owned())
}

fn main() -> ExitCode {
    // A limit on a file's size (`ulimit -f`) would end the command without a word; caught, the write fails and is told.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default());
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_max_level(tracing::Level::INFO).init();
    let result = match Cli::parse().command {
        Command::Serve { data, listen, origin, connections_per_peer, address_file } => {
            let limits = Limits { connections_per_peer_max: connections_per_peer, ..Limits::default() };
            serve(Options { data, listen, origin, limits }, address_file)
        }
        Command::Fsck { data } => fsck(data),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Every message of ours holds its cause already; the chain would say it again.
            eprintln!("ledger: error: {error}");
            if let Some(hint) = hint(&error) {
                eprintln!("ledger: hint: {hint}");
            }
            // 1: checked, and it is not so. 2: could not be checked, or anything else.
            let disproved = error.downcast_ref::<LogError>().is_some_and(LogError::disproves);
            ExitCode::from(if disproved { 1 } else { 2 })
        }
    }
}

/// What to try, where there is something.
fn hint(error: &anyhow::Error) -> Option<&'static str> {
    let serve_error = error.downcast_ref::<ServeError>();
    let log_error = match serve_error {
        Some(ServeError::Log(error)) => Some(error),
        _ => error.downcast_ref::<LogError>(),
    };
    match log_error {
        Some(LogError::NotALog { .. }) => {
            return Some("give --data a new or empty folder, or that of a log with its log.key");
        }
        Some(LogError::KeyMissing { .. }) => {
            return Some("restore log.key; a new log needs a new or empty folder");
        }
        Some(LogError::LockMissing { .. }) => {
            return Some(
                "lock/ tells what was promised and must not be removed; a new log needs a new folder and key",
            );
        }
        Some(LogError::KeyExposed { .. }) => {
            return Some(
                "if nobody else has read it, run chmod 600 on log.key; if somebody has, start a new log",
            );
        }
        Some(LogError::AttachmentMismatch { .. }) => {
            return Some("upload the attachment again: a damaged one is replaced");
        }
        _ => {}
    }
    match serve_error? {
        ServeError::Listen { source, .. } if source.kind() == ErrorKind::AddrInUse => {
            Some("another server listens there; `--listen 0` takes any free port")
        }
        _ => None,
    }
}

fn serve(options: Options, address_file: Option<PathBuf>) -> anyhow::Result<()> {
    let running = start(options)?;
    let signals = running.catch_signals()?;
    let url = format!("http://{}", running.address());
    let mut out = std::io::stdout().lock();
    writeln!(out, "address: {}", running.address())?;
    writeln!(out, "verifier key: {}", running.verifier_key())?;
    writeln!(out, "browse at {url}/")?;
    out.flush()?;
    drop(out);
    if let Some(file) = address_file {
        let written = Files::default().replace(&file, format!("{url}\n").as_bytes());
        written.map_err(|error| anyhow::anyhow!("cannot write {}: {error}", file.display()))?;
    }
    Ok(running.run_until_signal(signals)?)
}

fn fsck(data: PathBuf) -> anyhow::Result<()> {
    require_log(&data)?;
    let store = Arc::new(Store::new(&data, Files::default()));
    let key = read_key(&store)?.context("log.key was removed meanwhile")?;
    let _lock = FolderLock::take(&data)?;
    let committer = Committer::recover(store.clone(), Arc::new(key), |_, _| Ok(()))?;
    let signed = committer.signed().context("the log has no entries")?;
    println!("size: {}", signed.head.size);
    println!("root: {}", signed.head.root);
    println!("every tile is what the entries hash to, and the root is the one last signed");
    let (attachments, mut damaged) = check_attachments(&store)?;
    let last = damaged.pop();
    for error in damaged {
        eprintln!("ledger: error: {error}");
    }
    match last {
        Some(error) => Err(error.into()),
        None => {
            println!("attachments: {attachments}, each with the SHA-256 of its name");
            Ok(())
        }
    }
}
