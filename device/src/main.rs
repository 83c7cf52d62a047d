//! The command `device`. Results go to stdout, everything else to stderr; exit 0 when done, 2 on any error.

use clap::Parser as _;
use device::backend::{self, Backend};
use device::cli::{Cli, Command, Run};
use device::estimate::estimate;
use device::job::{Job, JobError, read_limited};
use device::progress::Watch;
use device::run::{Request, RunError, run};
use device::staging::StagingError;
use device::{keyfile::KeyFileError, report};
use schemas::challenge::CHECKPOINT_BYTES_MAX;
use std::io::{ErrorKind, Write as _};
use std::process::ExitCode;
use std::sync::Arc;

/// Why nothing was done.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Job(#[from] JobError),
    #[error("challenge: {0}")]
    Challenge(JobError),
    #[error(transparent)]
    Run(#[from] RunError),
    #[error("backend {found:?} is not in this build, expected {expected}")]
    Backend { found: String, expected: String },
    #[error("stdout: {0}")]
    Output(std::io::Error),
}

impl Failure {
    /// What to try, where there is something.
    fn hint(&self) -> Option<&'static str> {
        match self {
            Failure::Run(RunError::Staging(StagingError::NotEmpty { .. })) => {
                Some("receipts are never overwritten; choose another --out")
            }
            Failure::Run(RunError::Key(KeyFileError::Mode { .. })) => {
                Some("run `chmod 600` on it if nobody else can have read it")
            }
            Failure::Job(JobError::Read { source, .. }) if is_elsewhere(source) => {
                Some("give OUT/job, as `oracle predict` writes it")
            }
            Failure::Job(JobError::NotTheRuns { .. }) => {
                Some("the job folder does not belong together; get it again from whoever made the prediction")
            }
            Failure::Job(JobError::Steps { .. }) => {
                Some("give --steps A..B within them, or leave it out for all of them")
            }
            Failure::Run(RunError::TooManySteps { .. }) => {
                Some("give fewer with --steps A..B, and the rest to another run")
            }
            Failure::Challenge(_) | Failure::Run(RunError::Note(_)) => Some("`client challenge` writes it"),
            Failure::Run(RunError::Fault(_)) => {
                Some("`device faults` explains every fault, `device faults --job DIR` lists the operations")
            }
            Failure::Backend { .. } => Some("`device list` shows the backends"),
            _ => None,
        }
    }
}

/// Whether the system says that nothing stands at a path.
fn is_elsewhere(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

fn main() -> ExitCode {
    // A limit on a file's size (`ulimit -f`) would end the command without a word; caught, the write fails and is told.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default());
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        // Help and version are results; the rest is an error that begins with `error:` already.
        Err(error) if !error.use_stderr() => return exit(print(&error.render().to_string())),
        Err(error) => {
            eprint!("device: {}", error.render());
            return ExitCode::from(2);
        }
    };
    exit(match cli.command {
        Command::Run(flags) => run_job(flags),
        Command::List(flags) => {
            let backends = backend::all();
            let text = match flags.json {
                true => format!("{:#}\n", report::backends_json(&backends)),
                false => report::backends_text(&backends),
            };
            print(&text)
        }
        Command::Faults(flags) => explain_faults(flags.job.as_deref(), flags.json),
    })
}

fn exit(result: Result<(), Failure>) -> ExitCode {
    let Err(failure) = result else { return ExitCode::SUCCESS };
    eprintln!("device: error: {failure}");
    if let Some(hint) = failure.hint() {
        eprintln!("device: hint: {hint}");
    }
    ExitCode::from(2)
}

fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Failure::Output)
}

fn explain_faults(job: Option<&std::path::Path>, json: bool) -> Result<(), Failure> {
    let job = job.map(Job::read).transpose()?;
    let plan = job.as_ref().map(|job| &job.plan);
    match json {
        true => print(&format!("{:#}\n", report::faults_json(plan))),
        false => print(&report::faults_text(plan)),
    }
}

fn run_job(flags: Run) -> Result<(), Failure> {
    let backend = named_backend(&flags.backend)?;
    let job = Job::read(&flags.job)?;
    let steps = flags.steps.unwrap_or(job.steps());
    job.check(steps, flags.devices)?;
    let (Some(challenge), Some(keys), Some(out), false) =
        (flags.challenge, flags.keys, flags.out, flags.dry_run)
    else {
        let needs = estimate(&job.plan, flags.devices, steps);
        return print(&match flags.json {
            true => format!("{:#}\n", report::estimate_json(&job, flags.devices, steps, &needs)),
            false => report::estimate_text(&job, flags.devices, steps, &needs),
        });
    };
    let checkpoint = read_limited(&challenge, CHECKPOINT_BYTES_MAX as u64).map_err(Failure::Challenge)?;
    let (devices, traces, faults) = (flags.devices, flags.traces, flags.faults);
    let request = Request { checkpoint, devices, steps, keys, out, traces, faults };
    let mut watch = Watch::start(steps, devices, job.plan.leaves * job.plan.dimensions.rows());
    let summary = run(&job, &request, &*backend, &mut |progress| watch.see(progress))?;
    let seen = watch.stop(steps);
    if !request.traces {
        eprintln!("device: note: no traces kept: a divergence can be located only to the leaf");
        eprintln!("device: hint: `device run --traces` keeps them");
    }
    print(&match flags.json {
        true => format!("{:#}\n", report::summary_json(&job, &request, &*backend, &summary, &seen)),
        false => report::summary_text(&job, &request, &*backend, &summary, &seen),
    })
}

fn named_backend(name: &str) -> Result<Box<dyn Backend>, Failure> {
    backend::named(name).ok_or_else(|| {
        let names: Vec<_> = backend::all().iter().map(|backend| backend.name()).collect();
        Failure::Backend { found: name.to_owned(), expected: names.join(" or ") }
    })
}
