//! A run: one thread for each device of this process, then a signed receipt from each. What is finished is kept while
//! the run goes, so that it goes on from there if it is interrupted.

use crate::backend::{Backend, BackendError, Given};
use crate::checkpoint::{self, NoteError};
use crate::fault::Faults;
use crate::job::{Job, JobError, read_limited};
use crate::journal::identity::Identity;
use crate::journal::{self, Journal, JournalError};
use crate::keyfile::{self, KeyFileError};
use crate::link::frame::Limits;
use crate::link::handshake::{self, Hello, MeetError, Peers};
use crate::link::{self, Links, Lost};
use crate::logbook::Logbook;
use crate::rank::{Account, Progress, Rank, RankError, Shared};
use crate::snapshot::State;
use crate::staging::{StagingError, check_place, parent_of, sync, system, write_atomic};
use schemas::attachment::{ATTACHMENT_BYTES_MAX, AttachmentName};
use schemas::challenge::challenge;
use schemas::digest::{Challenge, EntryDigest};
use schemas::key::{PublicKey, SecretKey};
use schemas::object::Object as _;
use schemas::prediction::PREDICTION_STEPS_MAX;
use schemas::receipt::{Receipt, ReceiptBody};
use schemas::record::NonFinite;
use schemas::run::Steps;
use schemas::statement::{Payload, STATEMENT_BYTES_MAX, Statement, StatementError};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
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
    /// A folder that is new or empty, or that an interrupted run of the same request has begun.
    pub out: PathBuf,
    /// Of how many of the last steps traces are kept, if they are.
    pub traces: Option<u64>,
    /// `--fault` values.
    pub faults: Vec<String>,
    /// The one device that this process runs, and where the others are; if absent, it runs all of them.
    pub alone: Option<(u64, Peers)>,
    /// Whether a device that has finished all steps hands in its receipt without having met the others again.
    pub hand_in: bool,
    /// After how many steps a snapshot is written; 0 for never.
    pub snapshot_every: u64,
    /// The step before which the run is to stop; `usize::MAX` for none. Set to 0 from outside, it is the next one.
    pub stop: Arc<AtomicUsize>,
}

impl Request {
    /// The devices that this process runs.
    pub fn ranks(&self) -> Vec<u64> {
        match &self.alone {
            Some((rank, _)) => vec![*rank],
            None => (0..self.devices).collect(),
        }
    }

    /// What a device is asked for: what has to be the same when its run goes on.
    fn identity(
        &self,
        job: &Job,
        backend: &dyn Backend,
        challenge: Challenge,
        rank: u64,
        key: &SecretKey,
    ) -> Identity {
        let traces = match self.traces {
            None => "none".to_owned(),
            Some(u64::MAX) => "all".to_owned(),
            Some(steps) => format!("of the last {steps} steps"),
        };
        Identity(vec![
            ("run", job.run_id.to_string()),
            ("challenge", challenge.to_string()),
            ("devices", self.devices.to_string()),
            ("steps", self.steps.to_string()),
            ("rank", rank.to_string()),
            ("key", key.public().to_string()),
            ("backend", backend.name().to_owned()),
            // One receipt names one set of kernels, and so one has to have made all of it.
            ("kernels", backend.facts(rank).kernels),
            ("traces", traces),
            ("faults", self.faults.join(" ")),
        ])
    }
}

/// How often a snapshot is written unless somebody says otherwise: twenty times a run, and at least every 100 steps.
pub fn snapshot_every(steps: Steps) -> u64 {
    steps.end.div_ceil(20).min(100)
}

/// What came of a run.
#[derive(Debug)]
pub struct Summary {
    /// One for each device of this process, in rank order.
    pub devices: Vec<Handed>,
    /// The first step in which a device met a NaN or an infinity.
    pub invalid: Option<Invalid>,
    /// The step that this process went on from, if an earlier one had begun.
    pub resumed: Option<u64>,
    /// What was not as it should be, and did no harm.
    pub notes: Vec<String>,
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
    /// Work that cannot be gone on with.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A number of addresses that is not that of the devices, or a rank that is none of them.
    #[error("expected {expected}, found {found}")]
    Peers {
        /// What there should be.
        expected: String,
        /// What was given.
        found: String,
    },
    /// The other devices were not found.
    #[error(transparent)]
    Meet(#[from] MeetError),
    /// The other devices were found, and lost before the first step.
    #[error("device {} was lost before the first step{}", .0.partner, .0.why)]
    Agree(Lost),
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
/// device of this process as it is finished, and those that an earlier process had finished.
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
    check_peers(request)?;
    checkpoint::check_form(&request.checkpoint)?;
    let faults = Faults::read(&request.faults, &job.plan, devices, steps)?;
    let ranks = request.ranks();
    let replayed = ranks.iter().map(|&rank| faults.replayed(rank).map(read_old).transpose());
    let replayed = replayed.collect::<Result<Vec<_>, _>>()?;
    journal::clear_remains(&request.out);
    check_place(&request.out, &ranks)?;
    let keys = ranks.iter().map(|&rank| keyfile::load_or_create(&request.keys, rank));
    let keys = keys.collect::<Result<Vec<_>, _>>()?;
    let begun = journal::begun(&request.out, &ranks);
    let ended = finish(job, request, backend, &faults, &keys, replayed, watch);
    if ended.is_err() {
        let refused = ranks.into_iter().filter(|rank| !begun.contains(rank));
        journal::clear_empty(&request.out, refused);
    }
    ended
}

/// Finishes the steps and hands in, in work folders that are gone on with or made.
fn finish(
    job: &Job,
    request: &Request,
    backend: &dyn Backend,
    faults: &Faults,
    keys: &[SecretKey],
    replayed: Vec<Option<Files>>,
    watch: &mut dyn FnMut(Progress),
) -> Result<Summary, RunError> {
    let Request { devices, steps, .. } = *request;
    let ranks = request.ranks();
    let challenge = challenge(job.run_id, &request.checkpoint);
    let open = |(&rank, key): (&u64, &SecretKey)| {
        let identity = request.identity(job, backend, challenge, rank, key);
        let mut journal = Journal::open(&request.out, rank, job.run_id, &job.plan, &identity)?;
        if let Some(kept) = request.traces.filter(|_| !faults.without_files(rank)) {
            journal.look_for_traces(&request.out, kept, steps);
        }
        Ok::<_, JournalError>(journal)
    };
    let journals = ranks.iter().zip(keys).map(open).collect::<Result<Vec<_>, _>>()?;
    let shared = Shared {
        job,
        devices,
        steps,
        challenge,
        faults,
        traces: request.traces,
        snapshot_every: request.snapshot_every,
        stop: &request.stop,
    };
    let mut notes: Vec<String> = journals.iter().flat_map(|journal| journal.damage.clone()).collect();
    let title = format!("{} ({})", job.run.name, &job.run_id.to_string()[..16]);
    let tokens = job.plan.leaves * job.plan.dimensions.rows();
    let every = request.snapshot_every;
    let mut logbook = Logbook::new(&request.out, &title, ranks[0], ranks.len(), tokens, every);
    let (journals, resumed) = work(&shared, request, backend, journals, &mut logbook, watch)?;
    notes.extend(logbook.failure.take());

    let accounts: Vec<Account> = ranks
        .iter()
        .zip(&journals)
        .map(|(&rank, journal)| Account::of(journal, rank, steps, faults))
        .collect();
    let mut summary =
        Summary { devices: Vec::new(), invalid: first_invalid(&ranks, &accounts), resumed, notes };
    let mut files = Vec::new();
    for ((rank, account), (key, old)) in ranks.iter().zip(accounts).zip(keys.iter().zip(replayed)) {
        let records = account.records.len();
        let own = receipt(job, request, backend, *rank, account, key)?;
        let handed = Some(old.unwrap_or(own)).filter(|_| !faults.silent(*rank));
        let entry = handed.as_ref().map(|files| EntryDigest::of(&files.statement));
        files.push(handed);
        summary.devices.push(Handed { rank: *rank, key: key.public(), entry, records });
    }
    publish(&request.out, &ranks, files, journals, ranks.len() as u64 == devices)?;
    Ok(summary)
}

fn check_peers(request: &Request) -> Result<(), RunError> {
    let Some((rank, peers)) = &request.alone else { return Ok(()) };
    let (devices, count) = (request.devices, peers.addresses.len());
    if count as u64 != devices {
        let expected = format!("an address for each of the {devices} devices in --peers");
        return Err(RunError::Peers { expected, found: format!("{count} addresses") });
    }
    if *rank >= devices {
        let expected = format!("a --rank below the number of devices, {devices}");
        return Err(RunError::Peers { expected, found: rank.to_string() });
    }
    Ok(())
}

/// Hands in what the devices of this process have to say, and takes their work folders away. Ended anywhere in here, it
/// is done again from the work folders, to the same bytes.
fn publish(
    out: &Path,
    ranks: &[u64],
    files: Vec<Option<Files>>,
    journals: Vec<Journal>,
    all: bool,
) -> Result<(), RunError> {
    for (rank, (journal, files)) in ranks.iter().zip(journals.iter().zip(&files)) {
        // Records and traces first: a receipt that is there has all that belongs to it.
        if let Some(files) = files {
            let path = out.join(format!("receipt-{rank}.body.cbor"));
            write_atomic(&path, &files.body, 0o644).map_err(system(&path))?;
        }
        let (from, to) = (journal.traces(), journal::traces_of(out, *rank));
        if from.exists() {
            fs::create_dir_all(parent_of(&to)).map_err(system(&to))?;
            fs::rename(&from, &to).map_err(system(&to))?;
            sync(parent_of(&to)).map_err(system(&to))?;
        }
    }
    for (rank, files) in ranks.iter().zip(&files) {
        // Point of no return, for each device: its receipt is there, and a second one is never made.
        if let Some(files) = files {
            let path = out.join(format!("receipt-{rank}.cose"));
            write_atomic(&path, &files.statement, 0o644).map_err(system(&path))?;
        }
    }
    Ok(journal::clear(out, journals, all)?)
}

/// Stands for a run that is over, among the steps that it could go on from.
const OVER: u64 = u64::MAX;

/// Finishes all steps of the devices of this process, and says from which step it went on.
fn work(
    shared: &Shared<'_>,
    request: &Request,
    backend: &dyn Backend,
    mut journals: Vec<Journal>,
    logbook: &mut Logbook,
    watch: &mut dyn FnMut(Progress),
) -> Result<(Vec<Journal>, Option<u64>), RunError> {
    let job = shared.job;
    let ranks = request.ranks();
    let begun = journals.iter().any(|journal| !journal.entries().is_empty());
    let ended = journals.iter().all(Journal::ended);
    let mut links = Vec::new();
    let mut starts = starts(&journals[0]);
    journals[1..].iter().for_each(|journal| starts.retain(|step| self::starts(journal).contains(step)));
    // A receipt of another device is only there if all had ended; that one is not coming any more.
    let handed_in =
        || (0..shared.devices).any(|rank| request.out.join(format!("receipt-{rank}.cose")).exists());
    match &request.alone {
        Some((rank, peers)) if !(ended && (request.hand_in || handed_in())) => {
            let Shared { devices, steps, challenge, .. } = *shared;
            let hello = Hello { run: job.run_id, challenge, devices, steps, from: *rank, to: *rank };
            let taps = job.plan.taps().count() as u64;
            let limits = Limits { words: job.plan.parameter_count(), leaves: job.plan.leaves, taps };
            let own = handshake::meet(hello, peers, limits, &request.stop)?;
            starts = own.agree(&starts).map_err(RunError::Agree)?;
            links.push(own);
        }
        // As it is: nobody is left to compute anything with again.
        Some(_) => starts = vec![OVER],
        None => links = link::connect(shared.devices),
    }
    let start = starts.into_iter().max().unwrap_or(0);
    let mut states = Vec::new();
    if start != OVER {
        for journal in &mut journals {
            states.push(journal.go_on(start, &job.plan)?);
        }
    }
    let mut earlier = Vec::new();
    for step in 0..journals.iter().map(|journal| journal.entries().len()).min().unwrap_or(0) {
        let each = ranks.iter().zip(&journals);
        earlier.extend(each.map(|(&rank, journal)| Progress::of(rank, &journal.entries()[step], true)));
    }
    logbook.begin(&earlier);
    earlier.into_iter().for_each(&mut *watch);
    if start != OVER {
        let ready = ranks.iter().zip(links).zip(journals.into_iter().zip(&states));
        let ready = ready.map(|((rank, links), (journal, state))| Ready { rank, links, journal, state });
        let mut see = |progress: Progress| {
            logbook.see(&progress);
            watch(progress);
        };
        journals = run_all(shared, backend, ready.collect(), &mut see)?;
    }
    logbook.finish();
    Ok((journals, begun.then_some(start.min(shared.steps.end))))
}

fn starts(journal: &Journal) -> Vec<u64> {
    let mut starts = journal.starts();
    starts.extend(journal.complete().then_some(OVER));
    starts
}

/// A device that is about to start.
struct Ready<'a> {
    rank: &'a u64,
    links: Links,
    journal: Journal,
    /// Absent if it starts from the job's.
    state: &'a Option<State>,
}

/// One thread for each device of this process; what they finish is watched from this one.
fn run_all(
    shared: &Shared<'_>,
    backend: &dyn Backend,
    ready: Vec<Ready<'_>>,
    watch: &mut dyn FnMut(Progress),
) -> Result<Vec<Journal>, RunError> {
    let job = shared.job;
    let mut ranks = Vec::new();
    for Ready { rank, links, journal, state } in ready {
        let rank = *rank;
        let state = state.as_ref().unwrap_or(&job.state);
        let given = Given { rank, plan: &job.plan, tokens: &job.tokens, state };
        let device = backend.open(given).map_err(|source| RunError::Start { rank, source })?;
        ranks.push(Rank { shared, rank, links, device, journal });
    }
    let (progress, watched) = mpsc::channel();
    let ended: Vec<Result<Journal, RunError>> = std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for rank in ranks {
            let progress = progress.clone();
            threads.push((rank.rank, scope.spawn(move || rank.run(&progress))));
        }
        drop(progress);
        watched.iter().for_each(watch);
        threads.into_iter().map(|(rank, thread)| account_of(rank, thread.join())).collect()
    });
    root_cause(ended)
}

fn account_of(
    rank: u64,
    ended: std::thread::Result<Result<Journal, RankError>>,
) -> Result<Journal, RunError> {
    match ended {
        Ok(journal) => Ok(journal?),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let message = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
            Err(RunError::Panic { rank, message: message.to_owned() })
        }
    }
}

/// All journals, or the error that the others follow from: a lost peer is never the first thing to go wrong.
fn root_cause(ended: Vec<Result<Journal, RunError>>) -> Result<Vec<Journal>, RunError> {
    let follows = |error: &RunError| matches!(error, RunError::Rank(RankError::Lost { .. }));
    let (journals, mut errors): (Vec<_>, Vec<_>) = ended.into_iter().partition(Result::is_ok);
    errors.sort_by_key(|error| error.as_ref().is_err_and(follows));
    match errors.into_iter().next() {
        Some(error) => error.map(|journal| vec![journal]),
        None => journals.into_iter().collect(),
    }
}

fn first_invalid(ranks: &[u64], accounts: &[Account]) -> Option<Invalid> {
    let each = ranks.iter().copied().zip(accounts);
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
