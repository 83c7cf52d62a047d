//! Checks a bundle from scratch, offline (docs/spec/bundle.md). The steps have the numbers of that page.

use crate::answered::{self, Answered, AnsweredError};
use crate::attached::{self, Named};
use crate::case::{Case, Decision, Replayed};
use crate::covers::{self, CoversError, NoQuorum};
use crate::entries::{self, Entries, EntriesError};
use crate::evidence::EvidenceError;
use crate::policy::Policy;
use crate::prediction::{PredictionError, read_body, read_plan};
use crate::receipt::{Refusal, Terms, check_rule};
use crate::reconcile::{reconcile, refused_of};
use crate::report::{Class, Report, TITLE_OPENLY, counted};
use crate::times::{Times, names};
use schemas::attachment::AttachmentName;
use schemas::bundle::stored::{StoredBundle, unread};
use schemas::digest::{AttachmentDigest, EntryDigest};
use schemas::object::ObjectError;
use schemas::plan::Plan;
use schemas::prediction::{OpenBody, PredictionBody};
use schemas::source::{Source, SourceError};
use schemas::verdict::{Outcome, Verdict};
use std::collections::BTreeMap;
use tlog::checkpoint::CheckpointError;
use tlog::cosignature::Cosignature;
use tlog::note::{Verifier as _, VerifierKey};
use tlog::tree::TreeHead;

/// Why a check of a bundle failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Failure {
    #[error(transparent)]
    Decode(#[from] ObjectError),
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    #[error(transparent)]
    Entries(#[from] EntriesError),
    #[error(transparent)]
    Prediction(#[from] PredictionError),
    #[error("the opening opens prediction {found}, expected {expected}")]
    OtherPrediction { expected: EntryDigest, found: EntryDigest },
    #[error("entry {index}: {source}")]
    Receipt { index: u64, source: Refusal },
    #[error(
        "expected {first} before {second}, found it at index {first_index} and the other at {second_index}"
    )]
    Order { first: &'static str, second: &'static str, first_index: u64, second_index: u64 },
    #[error("expected receipts by ascending rank, found device {found} after device {after}")]
    Ranks { found: u64, after: u64 },
    #[error(transparent)]
    Covers(#[from] CoversError),
    #[error(transparent)]
    Quorum(#[from] NoQuorum),
    #[error(transparent)]
    Answered(#[from] AnsweredError),
    #[error("the run's profile is {found:?}, the policy accepts {expected}")]
    Profile { expected: String, found: String },
    #[error("the {what} is not among the attachments: expected {expected} of {bytes} bytes")]
    NoAttachment { what: String, expected: AttachmentDigest, bytes: u64 },
    #[error("expected folds of the receipts' bodies that are left out, and zeros, found others")]
    Folds,
    #[error("attachment {0} is named by no entry")]
    Unnamed(AttachmentDigest),
    #[error("attachment {name}: {source}")]
    Evidence { name: AttachmentDigest, source: EvidenceError },
    #[error("{0}")]
    Case(#[from] crate::case::CaseError),
    #[error("the logged verdict's {field} is {found}, the comparison gives {expected}")]
    Verdict { field: &'static str, expected: String, found: String },
    #[error("{0}")]
    Outcome(String),
    /// Nothing about the bundle: it ends the checks.
    #[error(transparent)]
    Source(#[from] SourceError),
}

/// Checks a bundle in memory against a policy.
pub fn check(bytes: &[u8], policy: &Policy) -> Report {
    check_stored(&bytes, policy).expect("bundle: memory can be read, and does not change")
}

/// Checks a bundle where it is, and holds what it needs of it. An error says that the bytes could not be had, or were
/// others when they were read again: nothing is then known of the bundle.
pub fn check_stored(source: &dyn Source, policy: &Policy) -> Result<Report, SourceError> {
    let mut report = Report::new();
    match walk(source, policy, &mut report) {
        // The checks end at the first that fails; the report has it.
        Ok(()) | Err(Stop::Failed) => Ok(report),
        Err(Stop::Unread(error)) => Err(error),
    }
}

/// Why the checks end.
enum Stop {
    /// One of them does not hold.
    Failed,
    /// One of them could not be carried out.
    Unread(SourceError),
}

/// Records how a check went.
fn record<T>(report: &mut Report, number: usize, step: Step<T>) -> Result<T, Stop> {
    match step {
        Err(Failure::Source(error)) => Err(Stop::Unread(error)),
        step => report.record(number, step).ok_or(Stop::Failed),
    }
}

fn walk(source: &dyn Source, policy: &Policy, report: &mut Report) -> Result<(), Stop> {
    let mut bundle = record(report, 1, decode(source))?;
    let log = policy.log_of(&bundle.checkpoint);
    let trust = Trust { policy, log };
    let (head, last) = record(report, 2, checkpoint(&bundle, trust))?;
    record(report, 3, inclusions(&bundle, head))?;
    let entries = record(report, 4, statements(&bundle, policy))?;
    // What has been read and is not looked at again is let go, here and below: the next parts need the room.
    bundle.entries = Vec::new();
    let opened = record(report, 5, opened(&bundle, &entries, policy))?;
    if entries.prediction.object.open.is_some() {
        // There is no opening to come after, and so no order that would rule out copying.
        report.retitle(6, TITLE_OPENLY);
    }
    let Placed { covering, register, answered } = record(report, 6, order(&bundle, &entries, trust, head))?;
    (bundle.covers, bundle.completeness) = (Vec::new(), None);
    let named = record(report, 7, attached::named(&bundle, &entries, &opened, log))?;
    let decision = record(report, 8, compare(&entries, &opened, &named))?;
    report.caveats = caveats(&entries, policy, &decision, register);
    let notes: Vec<&[u8]> =
        entries.receipts.iter().map(|receipt| receipt.object.checkpoint.as_slice()).collect();
    report.times = Some(Times::of(policy, log, covering, &last, &notes));
    report.register = register;
    report.answered = Some(answered);
    report.verdict = Some(entries.verdict.object.clone());
    record(report, 9, outcome(&decision, &entries, policy))?;
    report.class = Class::Agreeing;
    Ok(())
}

/// The policy, and the log of it that the bundle is of.
#[derive(Clone, Copy)]
struct Trust<'a> {
    policy: &'a Policy,
    log: &'a VerifierKey,
}

/// What a check that holds gives to later ones, and what it covered, in words.
pub(crate) type Step<T> = Result<(T, String), Failure>;

/// Step 1: the bytes are a bundle of this version.
fn decode(source: &dyn Source) -> Step<StoredBundle<'_>> {
    let bundle = StoredBundle::read(source).map_err(|error| match unread(&error) {
        Some(error) => Failure::Source(error.clone()),
        None => error.into(),
    })?;
    let what = format!(
        "{}: {}, {}, a plan, {}",
        counted(bundle.bytes() as usize, "byte"),
        counted(bundle.entries.len(), "statement"),
        counted(bundle.covers.len(), "cover"),
        counted(bundle.attachments.len(), "attachment")
    );
    Ok((bundle, what))
}

/// Step 2: the checkpoint is the log's, by the policy's key, and cosigned by a quorum.
fn checkpoint(bundle: &StoredBundle, Trust { policy, log }: Trust) -> Step<(TreeHead, Vec<Cosignature>)> {
    let (head, cosignatures) = covers::open(&bundle.checkpoint, policy, log)?;
    covers::quorum(policy, head, &cosignatures)?;
    let mut what = format!("{}, tree size {}, root {}", log.name(), head.size, head.root);
    if policy.witnesses().is_some() {
        what.push_str(&format!(", cosigned by {}", names(policy, &cosignatures).0));
    }
    Ok(((head, cosignatures), what))
}

/// Step 3: each entry is in that tree, at its index.
fn inclusions(bundle: &StoredBundle, head: TreeHead) -> Step<()> {
    entries::check_inclusions(bundle, head)?;
    Ok(((), counted(bundle.entries.len(), "inclusion proof")))
}

/// Step 4: each entry is a statement with a valid signature, in its role, by a key trusted in that role.
fn statements(bundle: &StoredBundle, policy: &Policy) -> Step<Entries> {
    let entries = entries::open(bundle, policy)?;
    let what = format!("{} signatures, {} of them devices'", bundle.entries.len(), entries.receipts.len());
    Ok((entries, what))
}

/// The prediction, opened.
pub(crate) struct Opened {
    pub(crate) plan: Plan,
    pub(crate) body: PredictionBody,
    pub(crate) name: AttachmentName,
}

/// Step 5: the plan is the run's; salt and body are what was sealed, and fit run and plan.
fn opened(bundle: &StoredBundle, entries: &Entries, policy: &Policy) -> Step<Opened> {
    let run = &entries.run.object;
    if !policy.profiles().is_empty() && !policy.profiles().contains(&run.profile) {
        let found = run.profile.clone();
        return Err(Failure::Profile { expected: policy.profiles().join(", "), found });
    }
    let plan = read_plan(run, &bundle.plan()?)?;
    let prediction = &entries.prediction;
    if let Some(opening) = &entries.opening
        && opening.object.prediction != prediction.digest
    {
        let found = opening.object.prediction;
        return Err(Failure::OtherPrediction { expected: prediction.digest, found });
    }
    let OpenBody { salt, body: name } = open_body(entries);
    let bytes = attached::find(bundle, "prediction's body", name)?;
    let body = read_body(entries.id, run, &prediction.object, salt, &bytes)?;
    let what = format!(
        "plan {}, {} under seal {}",
        run.plan,
        counted(body.records.len(), "step record"),
        prediction.object.seal
    );
    Ok((Opened { plan, body, name }, what))
}

fn open_body(entries: &Entries) -> OpenBody {
    let openly = entries.prediction.object.open.as_ref();
    let later = entries.opening.as_ref().map(|opening| &opening.object.open);
    openly.or(later).expect("bundle: step 4 saw to it that the prediction is opened").clone()
}

/// What the places in the log show beside the order.
struct Placed {
    /// Cosignatures on checkpoints that hold the prediction.
    covering: Vec<Cosignature>,
    /// The register by which the prediction is the only one.
    register: Option<u64>,
    /// Which trees the receipts answer.
    answered: Answered,
}

/// Step 6: run, prediction, receipts, opening and verdict came in this order, and each receipt's challenge is of a
/// checkpoint that already covered the prediction and is part of the same history. The prediction is the only one.
fn order(bundle: &StoredBundle, entries: &Entries, trust: Trust, head: TreeHead) -> Step<Placed> {
    let (prediction, verdict) = (entries.prediction.index, entries.verdict.index);
    before("run", entries.run.index, "prediction", prediction)?;
    if let Some(opening) = &entries.opening {
        before("prediction", prediction, "opening", opening.index)?;
        before("opening", opening.index, "verdict", verdict)?;
    }
    before("prediction", prediction, "verdict", verdict)?;
    for pair in entries.receipts.windows(2) {
        let key = |at: usize| (pair[at].object.rank, pair[at].digest);
        if key(0) >= key(1) {
            return Err(Failure::Ranks { found: pair[1].object.rank, after: pair[0].object.rank });
        }
    }
    let terms = terms(entries, trust.log);
    let mut of_receipts = Vec::new();
    for receipt in &entries.receipts {
        let index = receipt.index;
        let of = check_rule(&receipt.object, index, &terms)
            .map_err(|source| Failure::Receipt { index, source })?;
        before("receipt", index, "verdict", verdict)?;
        of_receipts.push(of);
    }
    let mut heads = BTreeMap::new();
    for of in &of_receipts {
        // Two checkpoints of one size and different roots cannot both be consistent with the bundle's.
        let size = of.size.0;
        if heads.insert(size, *of).is_some_and(|other| other != *of) {
            return Err(CoversError::Root { size }.into());
        }
    }
    let trust = (trust.policy, trust.log);
    let covering = covers::check(bundle, entries, trust, &heads, head)?;
    let answered = answered::check(&bundle.covers, entries, trust, &of_receipts)?;
    let register = covers::only_prediction(bundle, entries, trust, head)?;
    let receipts = counted(entries.receipts.len(), "receipt");
    let checkpoints = counted(bundle.covers.len(), "checkpoint");
    let mut what = match entries.opening {
        Some(_) => {
            format!("{receipts} after entry {prediction}, answering {checkpoints} of the same history")
        }
        None => format!(
            "made openly: receipts could have been copied; {receipts} answering {checkpoints} of the same history"
        ),
    };
    if let Some(register) = register {
        what.push_str(&format!(
            "; its signer's only prediction of these steps, by the register of entry {register}"
        ));
    }
    Ok((Placed { covering, register, answered }, what))
}

fn before(
    first: &'static str,
    first_index: u64,
    second: &'static str,
    second_index: u64,
) -> Result<(), Failure> {
    match first_index < second_index {
        true => Ok(()),
        false => Err(Failure::Order { first, second, first_index, second_index }),
    }
}

pub(crate) fn terms<'a>(entries: &'a Entries, log: &'a VerifierKey) -> Terms<'a> {
    Terms {
        run: &entries.run.object,
        id: entries.id,
        log,
        prediction_index: entries.prediction.index,
        opening_index: entries.opening.as_ref().map(|opening| opening.index),
    }
}

/// Step 8: comparing prediction and receipts from scratch gives the logged verdict, field by field.
fn compare(entries: &Entries, opened: &Opened, named: &Named) -> Step<Decision> {
    let logged = &entries.verdict.object;
    let refused = refused_of(&logged.missing);
    let replayed: Vec<Replayed> = logged.findings.iter().map(Replayed::of).collect();
    let case = Case {
        run: &entries.run.object,
        plan: &opened.plan,
        plan_digest: entries.run.object.plan,
        steps: entries.prediction.object.steps,
        body: &opened.body,
        receipts: &named.receipts,
        refused: &refused,
        evidence: &named.evidence,
        answer: logged.answer,
        replayed: &replayed,
    };
    let decision = reconcile(&case)?;
    if let Some(error) = named.evidence.unread() {
        return Err(error.clone().into());
    }
    let expected = Verdict {
        run: entries.id,
        prediction: entries.prediction.digest,
        opening: entries.opening.as_ref().map(|opening| opening.digest),
        receipts: entries.receipts.iter().map(|receipt| receipt.digest).collect(),
        steps: case.steps,
        outcome: decision.outcome,
        step: decision.step,
        findings: decision.findings.clone(),
        missing: decision.missing.clone(),
        simulated: decision.simulated,
        // These two are what the comparison was given, as causes that rest on a replay are.
        answer: logged.answer,
        evidence: logged.evidence.clone(),
    };
    check_fields(&expected, logged)?;
    let what = format!(
        "{} and {} compared again",
        counted(named.receipts.len(), "receipt"),
        counted(opened.body.records.len(), "step")
    );
    Ok((decision, what))
}

fn check_fields(expected: &Verdict, logged: &Verdict) -> Result<(), Failure> {
    macro_rules! same {
        ($($field:ident),*) => {
            // All fields are named, so that a new one cannot be forgotten.
            let Verdict { $($field),* } = expected;
            $(if *$field != logged.$field {
                return Err(Failure::Verdict {
                    field: stringify!($field),
                    expected: show($field),
                    found: show(&logged.$field),
                });
            })*
        };
    }
    same!(
        run, prediction, opening, receipts, steps, outcome, step, findings, missing, simulated, answer,
        evidence
    );
    Ok(())
}

fn show(value: &impl std::fmt::Debug) -> String {
    let text = format!("{value:?}");
    match text.chars().count() {
        0..=600 => text,
        _ => text.chars().take(600).chain("...".chars()).collect(),
    }
}

/// Step 9: the verdict is `agree`, rests on receipts that count, and on a replay if the policy asks for one.
fn outcome(decision: &Decision, entries: &Entries, policy: &Policy) -> Step<()> {
    let at = decision.step.map(|step| format!(" at step {step}")).unwrap_or_default();
    match decision.outcome {
        Outcome::Agree if decision.simulated && !policy.simulated() => Err(Failure::Outcome(
            "verdict is agree by receipts of a simulated device, which the policy does not accept".into(),
        )),
        Outcome::Agree if policy.sealed() && entries.prediction.object.open.is_some() => Err(Failure::Outcome(
            "the prediction was made openly, which the policy does not accept".into(),
        )),
        Outcome::Agree if policy.replayed() && entries.verdict.object.answer.is_none() => Err(Failure::Outcome(
            "verdict is agree, but the answers to the challenge were not held against a replay, which the policy asks \
             for: `client reconcile --replay run.toml` does it"
                .into(),
        )),
        Outcome::Agree => Ok(((), "every compared value equals its prediction".into())),
        Outcome::Diverge => {
            let devices: Vec<String> = decision
                .findings
                .iter()
                .map(|finding| format!("device {} in phase {}", finding.rank, finding.phase.word()))
                .collect();
            Err(Failure::Outcome(format!("verdict is diverge{at}: {}", devices.join(", "))))
        }
        Outcome::Invalid => {
            let place = decision.invalid_at.as_deref().unwrap_or("an unnamed place");
            Err(Failure::Outcome(format!("verdict is invalid{at}: a NaN or an infinity, {place}")))
        }
        Outcome::Incomplete => {
            Err(Failure::Outcome(format!("verdict is incomplete: missing {}", decision.missing.join("; "))))
        }
    }
}

/// What holds only on somebody's word, or not at all.
fn caveats(entries: &Entries, policy: &Policy, decision: &Decision, register: Option<u64>) -> Vec<String> {
    let verdict = &entries.verdict.object;
    let mut caveats = Vec::new();
    let mut say = |applies: bool, what: &str| {
        if applies {
            caveats.push(what.to_owned());
        }
    };
    say(policy.devices().is_empty(), "no device keys were given: receipts were taken from any key");
    say(verdict.simulated, "some receipts are of a simulated device, which runs the oracle's own arithmetic");
    say(
        entries.prediction.object.open.is_some(),
        "the prediction was made openly: receipts could have been copied from it",
    );
    let (replayed, judged) = (verdict.answer.is_some(), decision.answers_judged);
    say(judged && !replayed, "the answers to the challenge were not held against a replay");
    say(
        judged && replayed,
        "the expected answer to the challenge is the verdict signer's: nothing here recomputes it",
    );
    say(
        decision.causes_replayed,
        "that a configuration is the cause, or that no known one is, is the verdict signer's word: nothing here \
         computes the operation again",
    );
    say(
        register.is_none(),
        "that the predictor made no other prediction of these steps is not shown: the bundle holds no completeness",
    );
    say(
        register.is_some(),
        "that the log's register leaves no prediction out is the log's word, signed; whoever reads the log can check \
         it; predictions under another key or in another log are not seen",
    );
    say(
        !refused_of(&verdict.missing).is_empty(),
        "that receipts were refused, and why, is the verdict signer's word: they are not in the bundle",
    );
    caveats
}
