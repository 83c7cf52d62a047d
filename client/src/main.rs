//! `client`: submits, compares and checks. Exit status: 0 yes, 1 checked and not so, 2 could not check.

use clap::Parser as _;
use clap::error::ErrorKind;
use client::cli::{Cli, Command};
use client::output::{self, hint_of};
use client::{
    bundle, challenge, check, completeness, monitor, open, pinpoint, reconcile, show, status, submit,
};
use std::process::ExitCode;
use std::sync::Arc;

fn main() -> ExitCode {
    // A limit on a file's size (`ulimit -f`) would end the command without a word; caught, the write fails and is told.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default());
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    let result = match cli.command {
        Command::Keygen(args) => submit::keygen(&args),
        Command::Submit(args) => submit::run(&args),
        Command::Challenge(args) => challenge::run(&args),
        Command::Reconcile(args) => reconcile::run(&args),
        Command::Open(args) => open::run(&args),
        Command::Pinpoint(args) => pinpoint::run(&args),
        Command::Verify(args) => check::run(&args),
        Command::Bundle(args) => bundle::run(&args),
        Command::Show(args) => show::run(&args),
        Command::Completeness(args) => completeness::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Monitor(args) => monitor::run(&args),
    };
    match result {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            output::error(&output::message_of(&error));
            if let Some(hint) = hint_of(&error) {
                output::hint(&hint);
            }
            ExitCode::from(output::COULD_NOT)
        }
    }
}

/// Help and version are results; anything else is an error in this command's own form.
fn usage(error: &clap::Error) -> ExitCode {
    let text = error.render().to_string();
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        output::result(&text);
        return ExitCode::SUCCESS;
    }
    let message = text.trim_end().strip_prefix("error: ").unwrap_or(text.trim_end());
    output::error(message);
    ExitCode::from(output::COULD_NOT)
}
