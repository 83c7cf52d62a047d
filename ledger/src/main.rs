//! `ledger serve`, `ledger fsck` and `ledger witness`.

mod cli;

use std::io::{ErrorKind, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use clap::Parser as _;
use ledger::disk::durable::Files;
use ledger::disk::folder::require_log;
use ledger::disk::key::read_key;
use ledger::disk::lock::FolderLock;
use ledger::disk::store::Store;
use ledger::error::LogError;
use ledger::http::attachments::check_attachments;
use ledger::http::server::{ServeError, start};
use ledger::order::commit::Committer;
use ledger::witness;
use ledger::witness::error::WitnessError;

use crate::cli::{Cli, Command, Fsck, Serve, Witness};

fn main() -> ExitCode {
    // A limit on a file's size (`ulimit -f`) would end the command without a word; caught, the write fails and is told.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default());
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_max_level(tracing::Level::INFO).init();
    let result = match Cli::parse().command {
        Command::Serve(serve) => run_server(serve),
        Command::Fsck(Fsck { data }) => fsck(&data),
        Command::Witness(witness) => run_witness(witness),
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
        Some(ServeError::Log(error) | ServeError::Witness(WitnessError::Folder(error))) => Some(error),
        Some(ServeError::Witness(error)) => return witness_hint(error),
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
                "if nobody else has read it, run chmod 600 on it; if somebody has, start anew with another key",
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

fn witness_hint(error: &WitnessError) -> Option<&'static str> {
    match error {
        WitnessError::NotAWitness { .. } => Some("give --data a new or empty folder, or that of a witness"),
        WitnessError::KeyMissing { .. } => Some(
            "restore witness.key; a new witness needs a new or empty folder, and a new name in every policy",
        ),
        WitnessError::RecordsMissing { .. } => Some(
            "with this key a fork could be cosigned unseen; restore the current records, or start a new witness in a \
             new folder",
        ),
        _ => None,
    }
}

fn run_server(serve: Serve) -> anyhow::Result<()> {
    let running = start(serve.options()?)?;
    let signals = running.catch_signals()?;
    let url = format!("http://{}", running.address());
    let mut out = std::io::stdout().lock();
    writeln!(out, "address: {}", running.address())?;
    writeln!(out, "verifier key: {}", running.verifier_key())?;
    writeln!(out, "browse at {url}/")?;
    out.flush()?;
    drop(out);
    write_address(serve.address_file.as_deref(), &url)?;
    Ok(running.run_until_signal(signals)?)
}

fn run_witness(witness: Witness) -> anyhow::Result<()> {
    let running = witness::server::start(witness.options()?)?;
    let signals = running.catch_signals()?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "address: {}", running.address())?;
    writeln!(out, "verifier key: {}", running.verifier_key())?;
    out.flush()?;
    drop(out);
    write_address(witness.address_file.as_deref(), &format!("http://{}", running.address()))?;
    running.run_until_signal(signals);
    Ok(())
}

fn write_address(file: Option<&Path>, url: &str) -> anyhow::Result<()> {
    let Some(file) = file else { return Ok(()) };
    let written = Files::default().replace(file, format!("{url}\n").as_bytes());
    written.map_err(|error| anyhow::anyhow!("cannot write {}: {error}", file.display()))
}

fn fsck(data: &Path) -> anyhow::Result<()> {
    require_log(data)?;
    let store = Arc::new(Store::new(data, Files::default()));
    let key = read_key(&store)?.context("log.key was removed meanwhile")?;
    let _lock = FolderLock::take(data)?;
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
