//! The command line: every subcommand and its options.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use ledger::http::app::Limits;
use ledger::http::server::Options;

/// A transparency log of signed statements.
#[derive(Parser)]
#[command(name = "ledger", version, after_help = "Example:\n  ledger serve --data ./log --listen 7180")]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Subcommand)]
pub enum Command {
    /// Serve the log in a folder; the first start makes the log and its key.
    #[command(
        after_help = "Example:\n  ledger serve --data ./log --listen 7180 --origin log.example.com/runs"
    )]
    Serve(Serve),
    /// Hash a whole log again and compare it with what was last signed; no server may be running on it.
    #[command(after_help = "Example:\n  ledger fsck --data ./log")]
    Fsck(Fsck),
}

/// Options of `ledger serve`.
#[derive(Args)]
pub struct Serve {
    /// The log's folder.
    #[arg(long, value_name = "DIR")]
    pub data: PathBuf,
    /// Where to listen: a port of this machine only, or address:port. Port 0 takes any free one.
    #[arg(long, value_name = "PORT or ADDRESS:PORT", default_value = "7180", value_parser = parse_listen)]
    pub listen: SocketAddr,
    /// The log's name, a URL without a scheme; fixed by the first start.
    #[arg(long, value_name = "NAME")]
    pub origin: Option<String>,
    /// Most connections at once from one address (IPv6: from one /64); behind a proxy all come from the proxy's.
    #[arg(long, value_name = "N", default_value_t = Limits::default().connections_per_peer_max)]
    pub connections_per_peer: usize,
    /// Write the server's URL to this file once it accepts connections.
    #[arg(long, value_name = "FILE")]
    pub address_file: Option<PathBuf>,
}

impl Serve {
    /// What the server is started with.
    pub fn options(&self) -> Options {
        let limits = Limits { connections_per_peer_max: self.connections_per_peer, ..Limits::default() };
        Options { data: self.data.clone(), listen: self.listen, origin: self.origin.clone(), limits }
    }
}

/// Options of `ledger fsck`.
#[derive(Args)]
pub struct Fsck {
    /// The log's folder.
    #[arg(long, value_name = "DIR")]
    pub data: PathBuf,
}

fn parse_listen(text: &str) -> Result<SocketAddr, String> {
    if let Ok(port) = text.parse::<u16>() {
        return Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
    }
    text.parse().map_err(|_| "expected a port or address:port".to_owned())
}
