//! A run: one thread for each device, then a signed receipt from each; all of its output or none.

use crate::backend::{Backend, BackendError, Given};
use crate::checkpoint::{self, NoteError};
use crate::fault::Faults;
use crate::job::{Job, JobError, read_limited};
use crate::keyfile::{self, KeyFileError};
use crate::link;
use crate::rank::{Account, Progress, Rank, RankError, Shared};
use crate::staging::{Staging, StagingError};
use schemas::attachment::{ATTACHMENT_BYTES_MAX, AttachmentName};
use schemas::challenge::challenge;
use schemas::digest::EntryDigest;
use schemas::key::{PublicKey, SecretKey};
use schemas::object::Object as _;
use schemas::prediction::PREDICTION_STEPS_MAX;
use schemas::receipt::{Receipt, ReceiptBody};
use schemas::record::NonFinite;
use schemas::run::Steps;
use schemas::statement::{Payload, STATEMENT_BYTES_MAX, Statement, StatementError};
use std::path::{Path, PathBuf};
use std::sync::mpsc;

/// What to run, and where its output goes.
pub struct Request {
    /// The exact bytes of the log checkpoint that the receipts answer.
    pub checkpoint: Vec<u8>,
    /// How many devices share each step.
    pub devices: u64,
    /// Which steps the receipts are about.
    pub steps: Steps,
    /// Where the devices' keys are, or are to be made.
    pub keys: PathBuf,
    /// A folder that is new or empty.
    pub out: PathBuf,
    /// Whether traces are kept.
    pub traces: bool,
    /// `--fault` values.
    pub faults: Vec<String>,
}

/// What came of a run.
#[derive(Debug)]
pub struct Summary {
    /// One for each device, in rank order.
    pub devices: Vec<Handed>,
    /// The first step in which a device met a NaN or an infinity.
    pub invalid: Option<Invalid>,
}

/// A step that was invalid for a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Invalid {
    /// Which step.
    pub step: u64,
    /// The lowest such rank.
    pub rank: u64,
    /// Where in the step.
    pub at: NonFinite,
}

/// What a device handed in.
#[derive(Debug)]
pub struct Handed {
    /// Its rank.
    pub rank: u64,
    /// Its key.
    pub key: PublicKey,
    /// Its receipt's name in the log; absent if it is silent.
    pub entry: Option<EntryDigest>,
    /// How many steps its own receipt has records of.
    pub records: usize,
}

/// Why a run gave no receipts.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The job does not have what was asked for.
    #[error(transparent)]
    Job(#[from] JobError),
    /// A `--fault` that cannot be.
    #[error(transparent)]
    Fault(#[from] crate::fault::FaultError),
    /// A key that cannot be used.
    #[error(transparent)]
    Key(#[from] KeyFileError),
    /// Output that cannot be written.
    #[error(transparent)]
    Staging(#[from] StagingError),
    /// A challenge that is no checkpoint note.
    #[error(transparent)]
    Note(#[from] NoteError),
    /// More steps than one receipt covers.
    #[error("steps {found}: expected at most {PREDICTION_STEPS_MAX} steps in one receipt")]
    TooManySteps {
        /// Steps asked for.
        found: Steps,
    },
    /// A device that did not start.
    #[error("device {rank} did not start: {source}")]
    Start {
        /// Which device.
        rank: u64,
        /// Why.
        source: BackendError,
    },
    /// A device that stopped.
    #[error(transparent)]
    Rank(#[from] RankError),
    /// A device's thread that ended in a panic.
    #[error("device {rank} stopped by a fault of this program: {message}")]
    Panic {
        /// Which device.
        rank: u64,
        /// What it said.
        message: String,
    },
    /// A receipt that is too long or not one.
    #[error("{what}: {source}")]
    Receipt {
        /// Which receipt.
        what: String,
        /// What is wrong.
        source: StatementError,
    },
    /// Records longer than an attachment may be.
    #[error("device {rank}: records of {found} bytes, expected at most {ATTACHMENT_BYTES_MAX}")]
    Body {
        /// Which device.
        rank: u64,
        /// Their length.
        found: usize,
    },
    /// Old records that are not the old receipt's.
    #[error("{}: expected the {expected} bytes that the receipt names, found others", path.display())]
    OldBody {
        /// Which file.
        path: PathBuf,
        /// Bytes by the receipt.
        expected: u64,
    },
}

/// The two files of a receipt.
struct Files {
    statement: Vec<u8>,
    body: Vec<u8>,
}

/// Runs a job. Everything that can be refused is refused before anything is computed; `watch` sees each step of each
/// device as it is finished.
pub fn run(
    job: &Job,
    request: &Request,
    backend: &dyn Backend,
    watch: &mut dyn FnMut(Progress),
) -> Result<Summary, RunError> {
    let Request { devices, steps, .. } = *request;
    job.check(steps, devices)?;
    if steps.count() > PREDICTION_STEPS_MAX as u64 {
        return Err(RunError::TooManySteps { found: steps });
    }
    checkpoint::check_form(&request.checkpoint)?;
    let faults = Faults::read(&request.faults, &job.plan, devices, steps)?;
    let replayed = (0..devices).map(|rank| faults.replayed(rank).map(read_old).transpose());
    let replayed = replayed.collect::<Result<Vec<_>, _>>()?;
    let staging = Staging::start(&request.out)?;
    let keys = (0..devices).map(|rank| keyfile::load_or_create(&request.keys, rank));
    let keys = keys.collect::<Result<Vec<_>, _>>()?;

    let challenge = challenge(job.run_id, &request.checkpoint);
    let shared = Shared {
        job,
        devices,
        steps,
        challenge,
        faults: &faults,
        traces: request.traces.then_some(&staging),
    };
    let accounts = run_all(&shared, backend, watch)?;
    let mut summary = Summary { devices: Vec::new(), invalid: first_invalid(&accounts) };
    for ((rank, account), (key, old)) in (0..).zip(accounts).zip(keys.iter().zip(replayed)) {
        let records = account.records.len();
        let own = receipt(job, request, backend, rank, account, key)?;
        let files = Some(old.unwrap_or(own)).filter(|_| !faults.silent(rank));
        let entry = files.as_ref().map(|files| EntryDigest::of(&files.statement));
        if let Some(files) = files {
            staging.write(&format!("receipt-{rank}.cose"), &files.statement)?;
            staging.write(&format!("receipt-{rank}.body.cbor"), &files.body)?;
        }
        summary.devices.push(Handed { rank, key: key.public(), entry, records });
    }
    staging.publish()?;
    Ok(summary)
}

/// One thread for each device; what they finish is watched from this one.
fn run_all(
    shared: &Shared<'_>,
    backend: &dyn Backend,
    watch: &mut dyn FnMut(Progress),
) -> Result<Vec<Account>, RunError> {
    let job = shared.job;
    let mut ranks = Vec::new();
    for (rank, links) in (0..).zip(link::connect(shared.devices)) {
        let given = Given { rank, plan: &job.plan, tokens: &job.tokens, state: &job.state };
        let device = backend.open(given).map_err(|source| RunError::Start { rank, source })?;
        ranks.push(Rank { shared, rank, links, device });
    }
    let (progress, watched) = mpsc::channel();
    let ended: Vec<Result<Account, RunError>> = std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for rank in ranks {
            let progress = progress.clone();
            threads.push(scope.spawn(move || rank.run(&progress)));
        }
        drop(progress);
        watched.iter().for_each(watch);
        (0..).zip(threads).map(|(rank, thread)| account_of(rank, thread.join())).collect()
    });
    root_cause(ended)
}

fn account_of(
    rank: u64,
    ended: std::thread::Result<Result<Account, RankError>>,
) -> Result<Account, RunError> {
    match ended {
        Ok(account) => Ok(account?),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let message = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
            Err(RunError::Panic { rank, message: message.to_owned() })
        }
    }
}

/// All accounts, or the error that the others follow from: a lost peer is never the first thing to go wrong.
fn root_cause(ended: Vec<Result<Account, RunError>>) -> Result<Vec<Account>, RunError> {
    let follows = |error: &RunError| matches!(error, RunError::Rank(RankError::Lost { .. }));
    let (accounts, mut errors): (Vec<_>, Vec<_>) = ended.into_iter().partition(Result::is_ok);
    errors.sort_by_key(|error| error.as_ref().is_err_and(follows));
    match errors.into_iter().next() {
        Some(error) => error.map(|account| vec![account]),
        None => accounts.into_iter().collect(),
    }
}

fn first_invalid(accounts: &[Account]) -> Option<Invalid> {
    let each = (0..).zip(accounts);
    let invalid =
        each.filter_map(|(rank, account)| account.invalid.map(|(step, at)| Invalid { step, rank, at }));
    invalid.min_by_key(|invalid| (invalid.step, invalid.rank))
}

/// The signed receipt of a device and its records.
fn receipt(
    job: &Job,
    request: &Request,
    backend: &dyn Backend,
    rank: u64,
    account: Account,
    key: &SecretKey,
) -> Result<Files, RunError> {
    let body = ReceiptBody { run: job.run_id, rank, records: account.records }.encode();
    if body.len() as u64 > ATTACHMENT_BYTES_MAX {
        return Err(RunError::Body { rank, found: body.len() });
    }
    let receipt = Receipt {
        run: job.run_id,
        steps: request.steps,
        devices: request.devices,
        rank,
        simulated: backend.simulated(),
        facts: backend.facts(rank),
        checkpoint: request.checkpoint.clone(),
        answer: account.answer,
        body: AttachmentName::of(&body),
    };
    let statement = Statement::sign(&Payload::Receipt(Box::new(receipt)), key);
    let what = format!("receipt of device {rank}");
    Ok(Files { statement: statement.map_err(|source| RunError::Receipt { what, source })?, body })
}

/// An old receipt and its records, exactly as they are. That they belong together is checked, so that a mistyped
/// path is not taken for a fault; everything else about them is for the reconciliation to find.
fn read_old(path: &Path) -> Result<Files, RunError> {
    let statement = read_limited(path, STATEMENT_BYTES_MAX as u64)?;
    let wrong = |source| RunError::Receipt { what: path.display().to_string(), source };
    let opened = Statement::open(&statement).map_err(wrong)?;
    let Payload::Receipt(receipt) = opened.payload else {
        return Err(wrong(StatementError::Kind { expected: "receipt", found: opened.payload.stem() }));
    };
    let path = path.with_extension("body.cbor");
    let body = read_limited(&path, ATTACHMENT_BYTES_MAX)?;
    match receipt.body.names(&body) {
        true => Ok(Files { statement, body }),
        false => Err(RunError::OldBody { path, expected: receipt.body.bytes }),
    }
}
