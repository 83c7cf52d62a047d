//! `oracle`: see `oracle --help`. Results go to stdout, everything else to stderr; exit 0 when done, 1 when a proof
//! does not hold, 2 on any other error.

use clap::Parser;
use client::output::{self, COULD_NOT, NOT_SO, hint_of, message_of, result};
use oracle::cli::Cli;
use std::process::ExitCode;
use std::sync::Arc;

fn main() -> ExitCode {
    output::speak_as("oracle");
    // A limit on a file's size (`ulimit -f`) would end the command without a word; caught, the write fails and is told.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default());
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
            output::error(&message_of(&error));
            if let Some(hint) = hint_of(&error) {
                output::hint(&hint);
            }
            ExitCode::from(if oracle::data::is_not_so(&error) { NOT_SO } else { COULD_NOT })
        }
    }
}
