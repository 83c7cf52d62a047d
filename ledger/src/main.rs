//! The command `ledger`: what each subcommand does is in the library; here are messages, hints and exit codes.

mod cli;

use std::io::{ErrorKind, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser as _;
use ledger::bench::run::bench;
use ledger::disk::durable::Files;
use ledger::error::LogError;
use ledger::fsck::{FsckError, command};
use ledger::http::server::{ServeError, start};
use ledger::witness;
use ledger::witness::error::WitnessError;

use crate::cli::{Bench, Cli, Command, Fsck, LogFormat, Reindex, Serve, Witness};

fn main() -> ExitCode {
    // A limit on a file's size (`ulimit -f`) would end the command without a word; caught, the write fails and is told.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default());
    let cli = Cli::parse();
    let messages = tracing_subscriber::fmt().with_writer(std::io::stderr).with_max_level(cli.log_level);
    match cli.log_format {
        LogFormat::Text => messages.init(),
        LogFormat::Json => messages.json().init(),
    }
    let result = match cli.command {
        Command::Serve(serve) => run_server(serve).map(|()| true),
        Command::Fsck(fsck) => run_fsck(fsck),
        Command::Reindex(reindex) => run_reindex(&reindex).map(|()| true),
        Command::Witness(witness) => run_witness(witness).map(|()| true),
        Command::Bench(bench) => run_bench(&bench),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        // What does not hold has been printed.
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            // Every message of ours holds its cause already; the chain would say it again.
            eprintln!("ledger: error: {error}");
            if let Some(hint) = hint(&error) {
                eprintln!("ledger: hint: {hint}");
            }
            // 1: checked, and it is not so. 2: could not be checked, or anything else.
            let disproved = error.downcast_ref::<FsckError>().is_some_and(FsckError::disproves);
            ExitCode::from(if disproved { 1 } else { 2 })
        }
    }
}

/// What to try, where there is something.
fn hint(error: &anyhow::Error) -> Option<&'static str> {
    let serve_error = error.downcast_ref::<ServeError>();
    let fsck_error = error.downcast_ref::<FsckError>();
    if let Some(hint) = fsck_error.and_then(FsckError::hint) {
        return Some(hint);
    }
    let log_error = match serve_error {
        Some(ServeError::Log(error) | ServeError::Witness(WitnessError::Folder(error))) => Some(error),
        Some(ServeError::Witness(error)) => return witness_hint(error),
        _ => match fsck_error {
            Some(FsckError::Log(error)) => Some(error),
            _ => None,
        },
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
                "restore the lock's folder, or say with --lock where it is: it tells what was promised; without it, \
                 start a new log with a new folder and key",
            );
        }
        Some(LogError::LockMoved { .. }) => {
            return Some("move it: mv DIR/lock DIR.lock, or say with --lock where it is to be");
        }
        Some(LogError::LockInside { .. }) => {
            return Some(
                "a copy of the folder must not bring an old lock with it; give --lock another folder",
            );
        }
        Some(LogError::LockOfAnother { .. } | LogError::LockDamaged { .. }) => {
            return Some("give --lock the folder that this log had; a new log needs one of its own");
        }
        Some(LogError::DataOlderThanLock { .. }) => {
            return Some(
                "this is an old copy: restore the newer folder; if it is lost, the log cannot go on without signing a \
                 second tree: start a new one with a new folder, key and origin",
            );
        }
        Some(LogError::LockOlderThanData { .. }) => {
            return Some("this is an old copy of the lock: restore the newer one");
        }
        Some(LogError::IndexDamaged | LogError::Index(_) | LogError::IndexMismatch { .. }) => {
            return Some("run `ledger reindex` with the same --data: the index is made anew from the tiles");
        }
        Some(LogError::KeyExposed { .. }) => {
            return Some(
                "if nobody else has read it, run chmod 600 on it; if somebody has, start anew with another key",
            );
        }
        _ => {}
    }
    match serve_error? {
        ServeError::Listen { source, .. } if source.kind() == ErrorKind::AddrInUse => {
            Some("another server listens there; `--listen 0` takes any free port")
        }
        ServeError::FewFiles { .. } => {
            Some("`ulimit -n 1024` before the start is enough for all connections")
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
        WitnessError::RecordsMissing { .. } | WitnessError::OriginsDamaged { .. } => Some(
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

fn run_reindex(reindex: &Reindex) -> anyhow::Result<()> {
    // The same error as a server's has the same hint.
    let size = ledger::reindex::reindex(&reindex.data, reindex.lock.as_deref()).map_err(ServeError::Log)?;
    println!("size: {size}");
    println!("the index is made anew from the tiles; whether these are right, `ledger fsck` tells");
    Ok(())
}

fn run_fsck(fsck: Fsck) -> anyhow::Result<bool> {
    Ok(command::run(&fsck.ask(), &mut std::io::stdout().lock())?)
}

/// Prints the figures; false if the server said what does not hold.
fn run_bench(arguments: &Bench) -> anyhow::Result<bool> {
    let stop = Arc::default();
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    let report = bench(&arguments.options(stop)?, &|line| eprintln!("ledger: {line}"))?;
    let mut out = std::io::stdout().lock();
    match arguments.json {
        true => writeln!(out, "{}", report.json())?,
        false => write!(out, "{}", report.text())?,
    }
    for reason in [&report.full, &report.paced].into_iter().filter_map(|load| load.first_not_counted.as_ref())
    {
        eprintln!("ledger: error: an answer that is no acknowledgement: {reason}");
    }
    for reason in [&report.full, &report.paced].into_iter().filter_map(|load| load.first_failed.as_ref()) {
        eprintln!("ledger: error: a request without an answer: {reason}");
    }
    Ok(report.holds())
}
