//! `oracle`: see `oracle --help`. Results go to stdout, everything else to stderr; exit 0 when done, 1 when a proof
//! does not hold, 2 on any other error.

use clap::Parser;
use client::output::{COULD_NOT, NOT_SO, hint_of, message_of, result};
use oracle::cli::Cli;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        // Help and version are results; the rest is an error that begins with `error:` already.
        Err(error) if !error.use_stderr() => {
            result(&error.render().to_string());
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprint!("oracle: {}", error.render());
            return ExitCode::from(2);
        }
    };
    match oracle::cli::run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("oracle: error: {}", message_of(&error));
            if let Some(hint) = hint_of(&error) {
                eprintln!("oracle: hint: {hint}");
            }
            ExitCode::from(if oracle::data::is_not_so(&error) { NOT_SO } else { COULD_NOT })
        }
    }
}
