//! `oracle`: see `oracle --help`.

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    match oracle::cli::run(oracle::cli::Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("oracle: error: {error:#}");
            ExitCode::from(2)
        }
    }
}
