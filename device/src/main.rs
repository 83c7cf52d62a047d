//! The command `device`. Results go to stdout, everything else to stderr; exit 0 when done, 2 on any error.

use clap::Parser as _;
use device::backend::{self, Backend};
use device::check::CheckError;
use device::cli::{Cli, Command, Run};
use device::estimate::{disk, estimate};
use device::job::{Job, JobError, read_limited};
use device::journal::JournalError;
use device::link::handshake::{MeetError, Peers};
use device::measure::{PATIENCE, Pace, measure};
use device::progress::Watch;
use device::report::TimePlan;
use device::run::{Request, RunError, run, snapshot_every};
use device::simulated::Simulated;
use device::staging::StagingError;
use device::{bench, check, keyfile::KeyFileError, report};
use schemas::challenge::CHECKPOINT_BYTES_MAX;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::flag;
use std::io::{ErrorKind, Write as _};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::time::Duration;

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
    #[error(transparent)]
    Check(CheckError),
    #[error(transparent)]
    Bench(CheckError),
    #[error("backend {name}: expected a device that runs the profile exactly, found none: {why}")]
    Refused { name: &'static str, why: String },
    #[error("{0}")]
    Drill(String),
    #[error("stdout: {0}")]
    Output(std::io::Error),
    #[error("signals: {0}")]
    Signals(std::io::Error),
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
            Failure::Run(RunError::Journal(JournalError::Differs { .. })) => {
                Some("give the flags of the run that was begun, or another --out")
            }
            Failure::Run(RunError::Journal(JournalError::Unreadable { .. })) => {
                Some("remove the work folder to begin again, or choose another --out")
            }
            Failure::Run(RunError::Journal(JournalError::Busy { .. })) => {
                Some("wait for it to end, or choose another --out")
            }
            Failure::Run(RunError::Meet(MeetError::Differs { .. })) => {
                Some("give all devices of a run the same job, challenge, devices, steps and peers")
            }
            Failure::Run(RunError::Meet(MeetError::Missing { .. })) => Some(
                "start all devices, each with its own --rank; if the others have handed in, add --hand-in",
            ),
            Failure::Run(
                RunError::Rank(_)
                | RunError::Panic { .. }
                | RunError::Agree(_)
                | RunError::Meet(MeetError::Stopped)
                | RunError::Journal(JournalError::System(_)),
            ) => Some(
                "what is finished is kept; the same command goes on from there (with several processes, all of them)",
            ),
            Failure::Challenge(_) | Failure::Run(RunError::Note(_)) => Some("`client challenge` writes it"),
            Failure::Run(RunError::Fault(_)) => {
                Some("`device faults` explains every fault, `device faults --job DIR` lists the operations")
            }
            Failure::Check(CheckError::Read { .. } | CheckError::Run(_)) => {
                Some("run it in the project's folder, or say with --fixtures where fixtures/step is")
            }
            Failure::Bench(CheckError::Read { .. } | CheckError::Run(_)) => {
                Some("run it in the project's folder, or name a run.toml with --run")
            }
            Failure::Backend { .. }
            | Failure::Check(CheckError::Backend { .. })
            | Failure::Bench(CheckError::Backend { .. })
            | Failure::Refused { .. } => Some("`device list` shows the backends"),
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
    let _ = flag::register(SIGXFSZ, Arc::default());
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
        Command::Run(flags) => run_job(*flags),
        Command::List(flags) => {
            let backends = backend::all(flags.contracted);
            let text = match flags.json {
                true => format!("{:#}\n", report::backends_json(&backends)),
                false => report::backends_text(&backends),
            };
            print(&text)
        }
        Command::Check(flags) => return check_device(&flags),
        Command::Bench(flags) => bench::bench(&flags).map_err(Failure::Bench).and_then(|times| {
            print(&if flags.json { format!("{:#}\n", times.json()) } else { times.text() })
        }),
        Command::Faults(flags) => explain_faults(flags.job.as_deref(), flags.json),
    })
}

fn check_device(flags: &check::Flags) -> ExitCode {
    let mut lines = Vec::new();
    let checked = check::check(flags, &mut |line| {
        if !flags.json {
            println!("{}", check::text(line));
        }
        lines.push(line.clone());
    });
    match checked {
        Err(error) => exit(Err(Failure::Check(error))),
        Ok(equal) => {
            match flags.json {
                true => println!("{:#}", check::json(&flags.backend, &lines, equal)),
                false => println!("{}", if equal { "PASS" } else { "FAIL" }),
            }
            ExitCode::from(u8::from(!equal))
        }
    }
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
    let job = Job::read(&flags.job)?;
    let steps = flags.steps.unwrap_or(job.steps());
    job.check(steps, flags.devices)?;
    let traces = flags.keep_traces.or(flags.traces.then_some(u64::MAX));
    let every = flags.snapshot_every.unwrap_or(snapshot_every(steps));
    let (Some(challenge), Some(keys), Some(out), false) =
        (flags.challenge, flags.keys, flags.out, flags.dry_run)
    else {
        let (devices, json) = (flags.devices, flags.json);
        let needs = estimate(&job.plan, devices, steps);
        let disk = disk(&job.plan, devices, steps, traces, every);
        let in_process = if flags.rank.is_some() { 1 } else { devices };
        // Both are needed until the process ends, if a leaf takes longer than anybody waits.
        let job: &'static Job = Box::leak(Box::new(job));
        let (backend, pace) = match chosen_backend(flags.backend.as_deref(), flags.contracted) {
            Ok(backend) => {
                let backend: &'static dyn Backend = Box::leak(backend);
                (backend.name().to_owned(), measure(job, backend, PATIENCE))
            }
            Err(failure) => (String::new(), Pace::Unknown(failure.to_string())),
        };
        let plan = TimePlan { backend, pace, devices: in_process };
        return print(&match json {
            true => format!("{:#}\n", report::estimate_json(job, devices, steps, &needs, &disk, &plan)),
            false => report::estimate_text(job, devices, steps, &needs, &disk, &plan),
        });
    };
    // Before a compiler of kernels comes into the process: some catch these signals, do their own work, and raise them
    // again for whoever was there first, or for nobody.
    let stop = listen_for_signals()?;
    let backend: Box<dyn Backend> = match &flags.misconfigured {
        Some(drill) if flags.backend.as_deref() == Some("simulated") => {
            Box::new(Simulated::misconfigured(drill).map_err(Failure::Drill)?)
        }
        Some(_) => return Err(Failure::Drill("misconfigured: expected --backend simulated".into())),
        None => chosen_backend(flags.backend.as_deref(), flags.contracted)?,
    };
    let checkpoint = read_limited(&challenge, CHECKPOINT_BYTES_MAX as u64).map_err(Failure::Challenge)?;
    let peers = |addresses| Peers {
        addresses,
        listen: flags.listen,
        patience: Duration::from_secs(flags.peer_timeout),
    };
    let request = Request {
        checkpoint,
        devices: flags.devices,
        steps,
        keys,
        out,
        traces,
        faults: flags.faults,
        alone: flags.rank.zip(flags.peers.map(peers)),
        hand_in: flags.hand_in,
        snapshot_every: every,
        stop,
    };
    let mut watch = Watch::start(steps, request.ranks().len(), job.plan.leaves * job.plan.dimensions.rows());
    let ended = run(&job, &request, &*backend, &mut |progress| watch.see(progress));
    let seen = watch.stop(steps);
    let summary = ended?;
    for note in &summary.notes {
        eprintln!("device: note: {note}");
    }
    if request.traces.is_none() {
        eprintln!("device: note: no traces kept: a divergence can be located only to the leaf");
        eprintln!("device: hint: `device run --traces` keeps them");
    }
    print(&match flags.json {
        true => format!("{:#}\n", report::summary_json(&job, &request, &*backend, &summary, &seen)),
        false => report::summary_text(&job, &request, &*backend, &summary, &seen),
    })
}

/// The step before which to stop: the next one, once the system asks this process to end. A second signal ends it at
/// once.
fn listen_for_signals() -> Result<Arc<AtomicUsize>, Failure> {
    let (stop, told) = (Arc::new(AtomicUsize::new(usize::MAX)), Arc::new(AtomicBool::new(false)));
    // Whoever started this under nohup wants it to outlive the terminal.
    let hangup = (!is_ignored(SIGHUP)).then_some(SIGHUP);
    for signal in [SIGTERM, SIGINT].into_iter().chain(hangup) {
        // In the order in which they are called: the first signal finds the flag not set yet.
        flag::register_conditional_shutdown(signal, 2, Arc::clone(&told)).map_err(Failure::Signals)?;
        flag::register(signal, Arc::clone(&told)).map_err(Failure::Signals)?;
        flag::register_usize(signal, Arc::clone(&stop), 0).map_err(Failure::Signals)?;
    }
    Ok(stop)
}

/// Whether this process was started with a signal ignored, as far as the system tells.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    ignored >> (signal - 1) & 1 == 1
}

/// The backend of a name, or else the first that can run the profile exactly. One that cannot is refused here, before
/// anything is written.
fn chosen_backend(name: Option<&str>, contracted: bool) -> Result<Box<dyn Backend>, Failure> {
    let all = || backend::all(contracted);
    let backend = match name {
        Some(name) => backend::named(name, contracted).ok_or_else(|| {
            let names: Vec<_> = all().iter().map(|backend| backend.name()).collect();
            Failure::Backend { found: name.to_owned(), expected: names.join(" or ") }
        })?,
        // The drill is about kernels, which the last of all, the simulated one, does not have.
        None if contracted => {
            let there = |backend: &dyn Backend| {
                !backend.simulated() && backend.devices().iter().any(|device| device.facts.is_some())
            };
            all().into_iter().find(|backend| there(&**backend)).unwrap_or_else(|| all().swap_remove(0))
        }
        None => {
            let fit = backend::first_fit();
            if fit.simulated() {
                tell_passed_over(&all());
            }
            fit
        }
    };
    let refused = backend.devices().into_iter().map(|device| device.refused);
    match refused.collect::<Option<Vec<String>>>() {
        Some(why) => Err(Failure::Refused { name: backend.name(), why: why.join("; ") }),
        None => Ok(backend),
    }
}

/// Says why no device computes: receipts of a rehearsal are not what an operator wants to hand in unawares.
fn tell_passed_over(all: &[Box<dyn Backend>]) {
    eprintln!(
        "device: note: a rehearsal, by the oracle's own arithmetic: no device can run the profile exactly"
    );
    for backend in all.iter().filter(|backend| !backend.simulated()) {
        for why in backend.devices().into_iter().filter_map(|device| device.refused) {
            eprintln!("device: note: {}: {why}", backend.name());
        }
    }
}
