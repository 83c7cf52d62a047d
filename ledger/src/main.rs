//! `ledger serve` and `ledger fsck`.

use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use clap::{Parser, Subcommand};
use ledger::app::Limits;
use ledger::commit::Committer;
use ledger::durable::Files;
use ledger::error::LogError;
use ledger::key::open_key;
use ledger::lock::FolderLock;
use ledger::server::{Options, start};
use ledger::store::Store;

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
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_max_level(tracing::Level::INFO).init();
    let result = match Cli::parse().command {
        Command::Serve { data, listen, origin, address_file } => {
            serve(Options { data, listen, origin, limits: Limits::default() }, address_file)
        }
        Command::Fsck { data } => fsck(data),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ledger: error: {error:#}");
            // 1: checked, and it is not so. 2: could not be checked, or anything else.
            let disproved = error.downcast_ref::<LogError>().is_some_and(LogError::disproves);
            ExitCode::from(if disproved { 1 } else { 2 })
        }
    }
}

fn serve(options: Options, address_file: Option<PathBuf>) -> anyhow::Result<()> {
    let running = start(options)?;
    let url = format!("http://{}", running.address());
    let mut out = std::io::stdout().lock();
    writeln!(out, "address: {}", running.address())?;
    writeln!(out, "verifier key: {}", running.verifier_key())?;
    writeln!(out, "browse at {url}/")?;
    out.flush()?;
    drop(out);
    if let Some(file) = address_file {
        let written = Files::default().replace(&file, format!("{url}\n").as_bytes());
        written.with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(running.run_until_signal()?)
}

fn fsck(data: PathBuf) -> anyhow::Result<()> {
    anyhow::ensure!(data.join("log.key").is_file(), "{} holds no log", data.display());
    let _lock = FolderLock::take(&data)?;
    let store = Arc::new(Store::new(&data, Files::default()));
    let key = Arc::new(open_key(&store, None)?);
    let committer = Committer::recover(store, key, |_, _| Ok(()))?;
    let signed = committer.signed().context("the log has no entries")?;
    println!("size: {}", signed.head.size);
    println!("root: {}", signed.head.root);
    println!("every tile is what the entries hash to, and the root is the one last signed");
    Ok(())
}
