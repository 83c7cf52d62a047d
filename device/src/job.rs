//! A job: what an operator is given to run. Everything in it is checked against the run statement before anything
//! is computed.

use crate::checksum::checksum_u32;
use crate::snapshot::{self, SnapshotError, State};
use schemas::digest::{PlanDigest, RunId, digest};
use schemas::key::PublicKey;
use schemas::object::{Object as _, ObjectError};
use schemas::plan::Plan;
use schemas::profile::F32_FMA;
use schemas::run::{Run, Steps};
use schemas::statement::{Payload, STATEMENT_BYTES_MAX, Statement, StatementError};
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// The signed run statement.
pub const RUN_FILE: &str = "run.cose";
/// The encoded plan.
pub const PLAN_FILE: &str = "plan.cbor";
/// The state before step 0.
pub const STATE_FILE: &str = "initial.safetensors";
/// The tokens, u32 little-endian, nothing else.
pub const TOKENS_FILE: &str = "tokens.bin";

/// Why a job cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// A file that cannot be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// A file of a length it cannot have.
    #[error("{}: expected {expected}, found {found} bytes", path.display())]
    Length {
        /// Which file.
        path: PathBuf,
        /// Which lengths are right.
        expected: String,
        /// Its length.
        found: u64,
    },
    /// Not a signed statement.
    #[error("{RUN_FILE}: {0}")]
    Statement(#[from] StatementError),
    /// Not a plan.
    #[error("{PLAN_FILE}: {0}")]
    Plan(#[from] ObjectError),
    /// Not a state of the plan.
    #[error("{STATE_FILE}: {0}")]
    Snapshot(#[from] SnapshotError),
    /// A file that is whole but not the one the run statement names.
    #[error("{file}: {what} is {found}, the run statement says {expected}")]
    NotTheRuns {
        /// Which file.
        file: &'static str,
        /// Which of its properties.
        what: &'static str,
        /// What the run statement says.
        expected: String,
        /// What the file has.
        found: String,
    },
    /// A profile this build does not compute.
    #[error("{RUN_FILE}: profile is {found}, this device computes {expected}")]
    Profile {
        /// What this build computes.
        expected: String,
        /// What the run asks for.
        found: String,
    },
    /// A token outside the vocabulary.
    #[error("{TOKENS_FILE}: token {index} is {token}, expected less than the vocabulary of {vocabulary}")]
    Token {
        /// Its place in the stream.
        index: usize,
        /// The token.
        token: u32,
        /// V.
        vocabulary: u64,
    },
    /// Steps the run does not have.
    #[error("steps {found} are not within the run's steps 0..{end}")]
    Steps {
        /// Steps of the run.
        end: u64,
        /// Steps asked for.
        found: Steps,
    },
    /// A number of devices that cannot share the run's steps.
    #[error("{found} devices cannot share a step of this run, expected a power of two up to {max}")]
    Devices {
        /// The plan's `devices_max`.
        max: u64,
        /// Devices asked for.
        found: u64,
    },
}

/// A job that has been read and checked.
pub struct Job {
    /// What is to be computed.
    pub run: Run,
    /// Its name everywhere.
    pub run_id: RunId,
    /// Who signed the run statement. Whether they are trusted is for the operator to say.
    pub signer: PublicKey,
    /// The step as data.
    pub plan: Plan,
    /// The plan's identity, and the key of its folds.
    pub plan_digest: PlanDigest,
    /// The state before step 0.
    pub state: State,
    /// The token stream.
    pub tokens: Vec<u32>,
}

impl Job {
    /// Reads the four files of a job folder.
    pub fn read(folder: &Path) -> Result<Job, JobError> {
        let statement = Statement::open(&read_file(folder, RUN_FILE, STATEMENT_BYTES_MAX as u64)?)?;
        let signer = statement.signer;
        let Payload::Run(run) = statement.payload else {
            return Err(StatementError::Kind { expected: "run", found: statement.payload.stem() }.into());
        };
        check_profile(&run)?;
        let bytes = read_file(folder, PLAN_FILE, Plan::BYTES_MAX as u64)?;
        // The digest of the bytes, before they are read: what the run does not name is not worth an explanation.
        let plan_digest = PlanDigest(digest("plan", &[&bytes]));
        same(PLAN_FILE, "digest", run.plan, plan_digest)?;
        let plan = Plan::decode(&bytes)?;
        check_plan(&run, &plan)?;
        let tokens = read_tokens(folder, &plan)?;
        let bytes = read_file(folder, STATE_FILE, snapshot::bytes_max(&plan))?;
        let state = snapshot::read(&bytes, &plan, 0)?;
        same(STATE_FILE, "state digest", run.state, state.digest(0))?;
        let run_id = run.id();
        Ok(Job { run, run_id, signer, plan, plan_digest, state, tokens })
    }

    /// All steps of the run.
    pub fn steps(&self) -> Steps {
        Steps { first: 0, end: self.run.steps }
    }

    /// Checks that `devices` can run `steps` of this job.
    pub fn check(&self, steps: Steps, devices: u64) -> Result<(), JobError> {
        if !(steps.first < steps.end && steps.end <= self.run.steps) {
            return Err(JobError::Steps { end: self.run.steps, found: steps });
        }
        if !devices.is_power_of_two() || devices > self.run.devices_max {
            return Err(JobError::Devices { max: self.run.devices_max, found: devices });
        }
        Ok(())
    }
}

fn check_profile(run: &Run) -> Result<(), JobError> {
    let name = |id: &str, digest: schemas::digest::ProfileDigest| format!("{id} ({digest})");
    let (expected, found) = (name(F32_FMA.id, F32_FMA.digest()), name(&run.profile, run.profile_digest));
    if expected == found { Ok(()) } else { Err(JobError::Profile { expected, found }) }
}

/// What stands in both the run statement and the plan must be the same in both.
fn check_plan(run: &Run, plan: &Plan) -> Result<(), JobError> {
    same(PLAN_FILE, "profile", &run.profile, &plan.profile)?;
    same(PLAN_FILE, "config digest", run.config, plan.config)?;
    same(PLAN_FILE, "data set checksum", run.dataset, plan.data.dataset)?;
    same(PLAN_FILE, "number of leaves", run.leaves, plan.leaves)?;
    same(PLAN_FILE, "devices_max", run.devices_max, plan.devices_max)?;
    same(PLAN_FILE, "number of steps", run.steps, plan.update.steps() as u64)
}

fn same<T: PartialEq + std::fmt::Display>(
    file: &'static str,
    what: &'static str,
    expected: T,
    found: T,
) -> Result<(), JobError> {
    if expected == found {
        return Ok(());
    }
    Err(JobError::NotTheRuns { file, what, expected: expected.to_string(), found: found.to_string() })
}

fn read_tokens(folder: &Path, plan: &Plan) -> Result<Vec<u32>, JobError> {
    let (path, bytes_wanted) = (folder.join(TOKENS_FILE), 4 * plan.data.tokens);
    let found = bytes_in(&path)?;
    if found != bytes_wanted {
        let expected = format!("{bytes_wanted} bytes ({} tokens)", plan.data.tokens);
        return Err(JobError::Length { path, expected, found });
    }
    let bytes = read_file(folder, TOKENS_FILE, bytes_wanted)?;
    let tokens: Vec<u32> = bytes.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word)).collect();
    same(TOKENS_FILE, "checksum", plan.data.dataset, checksum_u32(&tokens))?;
    let vocabulary = plan.dimensions.vocabulary;
    match tokens.iter().position(|&token| vocabulary <= token.into()) {
        Some(index) => Err(JobError::Token { index, token: tokens[index], vocabulary }),
        None => Ok(tokens),
    }
}

fn bytes_in(path: &Path) -> Result<u64, JobError> {
    let metadata = std::fs::metadata(path);
    Ok(metadata.map_err(|source| JobError::Read { path: path.to_owned(), source })?.len())
}

/// A whole file of the folder, refused before anything is allocated if it is longer than `bytes_max`.
fn read_file(folder: &Path, name: &str, bytes_max: u64) -> Result<Vec<u8>, JobError> {
    read_limited(&folder.join(name), bytes_max)
}

/// Opens a regular file. Asked before it is opened: a pipe would wait for a writer, a device might never end.
pub fn open_file(path: &Path) -> std::io::Result<std::fs::File> {
    let kind = std::fs::metadata(path)?.file_type();
    let found = match () {
        () if kind.is_file() => return std::fs::File::open(path),
        () if kind.is_dir() => "a folder",
        () => "a pipe, a socket or a device",
    };
    Err(std::io::Error::other(format!("expected a regular file, found {found}")))
}

/// A whole file of at most `bytes_max` bytes.
pub fn read_limited(path: &Path, bytes_max: u64) -> Result<Vec<u8>, JobError> {
    let too_long = |found| JobError::Length {
        path: path.to_owned(),
        expected: format!("at most {bytes_max} bytes"),
        found,
    };
    let failed = |source| JobError::Read { path: path.to_owned(), source };
    let file = open_file(path).map_err(failed)?;
    let found = file.metadata().map_err(failed)?.len();
    if found > bytes_max {
        return Err(too_long(found));
    }
    let mut bytes = Vec::with_capacity(found as usize);
    // One byte more than allowed, so that a file that grows meanwhile is told from one that fits.
    file.take(bytes_max + 1).read_to_end(&mut bytes).map_err(failed)?;
    match bytes.len() as u64 {
        found if found > bytes_max => Err(too_long(found)),
        _ => Ok(bytes),
    }
}
