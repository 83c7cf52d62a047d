//! The command `ledger`: what each subcommand does is in the library; here are arguments and exit codes.

mod cli;

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser as _;
use ledger::bench::run::bench;
use ledger::disk::durable::Files;
use ledger::fsck::{FsckError, command};
use ledger::hint::hint;
use ledger::http::server::{ServeError, start};
use ledger::reindex::reindex;
use ledger::{say, witness};
use tracing::level_filters::LevelFilter;

use crate::cli::{Bench, Cli, Command, Fsck, LogFormat, Reindex, Serve, Witness, asks_for_json};

fn main() -> ExitCode {
    // A limit on a file's size (`ulimit -f`) would end the command without a word; caught, the write fails and is told.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default());
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) if error.use_stderr() && asks_for_json(std::env::args_os()) => {
            say::begin(true, LevelFilter::INFO);
            say::error(error.to_string().trim_end(), None);
            return ExitCode::from(2);
        }
        Err(error) => error.exit(),
    };
    say::begin(cli.log_format == LogFormat::Json, cli.log_level);
    let place = cli.command.place();
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
            say::error(&error.to_string(), hint(&error, &place).as_deref());
            // 1: checked, and it is not so. 2: could not be checked, or anything else.
            let disproved = error.downcast_ref::<FsckError>().is_some_and(FsckError::disproves);
            ExitCode::from(if disproved { 1 } else { 2 })
        }
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

fn run_reindex(arguments: &Reindex) -> anyhow::Result<()> {
    let Reindex { data, lock, tiles } = arguments;
    // The same error as a server's has the same hint.
    let done = reindex(data, lock.as_deref(), *tiles).map_err(ServeError::Log)?;
    println!("size: {}", done.size);
    if let Some(tiles) = done.tiles {
        println!("tiles of hashes made anew from the entries: {tiles}; all lead to the signed root");
    }
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
    let report = bench(&arguments.options(stop)?, &|line| say::progress(&line))?;
    let mut out = std::io::stdout().lock();
    match arguments.json {
        true => writeln!(out, "{}", report.json())?,
        false => write!(out, "{}", report.text())?,
    }
    for reason in [&report.full, &report.paced].into_iter().filter_map(|load| load.first_not_counted.as_ref())
    {
        say::error(&format!("an answer that is no acknowledgement: {reason}"), None);
    }
    for reason in [&report.full, &report.paced].into_iter().filter_map(|load| load.first_failed.as_ref()) {
        say::error(&format!("a request without an answer: {reason}"), None);
    }
    Ok(report.holds())
}
