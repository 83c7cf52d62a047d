//! Checks a bundle from scratch, offline (docs/spec/bundle.md). The steps have the numbers of that page.

use crate::answered::{self, Answered, AnsweredError};
use crate::case::{Case, Decision, Replayed};
use crate::covers::{self, CoversError, NoQuorum};
use crate::entries::{self, Entries, EntriesError};
use crate::evidence::{Evidence, EvidenceError};
use crate::implied;
use crate::policy::Policy;
use crate::prediction::{PredictionError, read_body, read_plan};
use crate::receipt::{Admitted, Refusal, Terms, admit, check_rule};
use crate::reconcile::{reconcile, refused_of};
use crate::report::{Class, Report, TITLE_OPENLY, counted};
use crate::times::{Times, names};
use schemas::attachment::AttachmentName;
use schemas::bundle::{BUNDLE_VERSION_1, Bundle};
use schemas::digest::{AttachmentDigest, EntryDigest};
use schemas::object::{Object, ObjectError};
use schemas::plan::Plan;
use schemas::prediction::{OpenBody, PredictionBody};
use schemas::receipt::Receipt;
use schemas::verdict::{Outcome, Verdict};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use tlog::checkpoint::CheckpointError;
use tlog::cosignature::Cosignature;
use tlog::note::{Verifier as _, VerifierKey};
use tlog::tree::TreeHead;

/// Why a check of a bundle failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum Failure {
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
}

/// Checks a bundle against a policy.
pub fn check(bytes: &[u8], policy: &Policy) -> Report {
    let mut report = Report::new();
    // The checks end at the first that fails; the report has it.
    let _ = walk(decode(bytes), policy, &mut report);
    report
}

/// The same, and gives up the bytes once they are read: so a bundle is not held twice while it is checked.
pub fn check_owned(bytes: Vec<u8>, policy: &Policy) -> Report {
    let mut report = Report::new();
    let decoded = decode(&bytes);
    drop(bytes);
    let _ = walk(decoded, policy, &mut report);
    report
}

fn walk(decoded: Step<Bundle>, policy: &Policy, report: &mut Report) -> Option<()> {
    let bundle = report.record(1, decoded)?;
    let log = policy.log_of(&bundle.checkpoint);
    let trust = Trust { policy, log };
    let (head, last) = report.record(2, checkpoint(&bundle, trust))?;
    report.record(3, inclusions(&bundle, head))?;
    let entries = report.record(4, statements(&bundle, policy))?;
    let attachments = Attachments::of(&bundle);
    let opened = report.record(5, opened(&bundle, &entries, &attachments, policy))?;
    if entries.prediction.object.open.is_some() {
        // There is no opening to come after, and so no order that would rule out copying.
        report.retitle(6, TITLE_OPENLY);
    }
    let Placed { covering, register, answered } = report.record(6, order(&bundle, &entries, trust, head))?;
    let named = report.record(7, named(&bundle, &entries, &opened, &attachments, log))?;
    let decision = report.record(8, compare(&entries, &opened, &named))?;
    report.caveats = caveats(&entries, policy, &decision, register);
    let notes: Vec<&[u8]> =
        entries.receipts.iter().map(|receipt| receipt.object.checkpoint.as_slice()).collect();
    report.times = Some(Times::of(policy, log, covering, &last, &notes));
    report.register = register;
    report.answered = Some(answered);
    report.verdict = Some(entries.verdict.object.clone());
    report.record(9, outcome(&decision, &entries, policy))?;
    report.class = Class::Agreeing;
    Some(())
}

/// The policy, and the log of it that the bundle is of.
#[derive(Clone, Copy)]
struct Trust<'a> {
    policy: &'a Policy,
    log: &'a VerifierKey,
}

/// What a check that holds gives to later ones, and what it covered, in words.
type Step<T> = Result<(T, String), Failure>;

/// Step 1: the bytes are a bundle of this version.
fn decode(bytes: &[u8]) -> Step<Bundle> {
    let bundle = Bundle::decode(bytes)?;
    let what = format!(
        "{}: {}, {}, a plan, {}",
        counted(bytes.len(), "byte"),
        counted(bundle.entries.len(), "statement"),
        counted(bundle.covers.len(), "cover"),
        counted(bundle.attachments.len(), "attachment")
    );
    Ok((bundle, what))
}

/// Step 2: the checkpoint is the log's, by the policy's key, and cosigned by a quorum.
fn checkpoint(bundle: &Bundle, Trust { policy, log }: Trust) -> Step<(TreeHead, Vec<Cosignature>)> {
    let (head, cosignatures) = covers::open(&bundle.checkpoint, policy, log)?;
    covers::quorum(policy, head, &cosignatures)?;
    let mut what = format!("{}, tree size {}, root {}", log.name(), head.size, head.root);
    if policy.witnesses().is_some() {
        what.push_str(&format!(", cosigned by {}", names(policy, &cosignatures).0));
    }
    Ok(((head, cosignatures), what))
}

/// Step 3: each entry is in that tree, at its index.
fn inclusions(bundle: &Bundle, head: TreeHead) -> Step<()> {
    entries::check_inclusions(bundle, head)?;
    Ok(((), counted(bundle.entries.len(), "inclusion proof")))
}

/// Step 4: each entry is a statement with a valid signature, in its role, by a key trusted in that role.
fn statements(bundle: &Bundle, policy: &Policy) -> Step<Entries> {
    let entries = entries::open(bundle, policy)?;
    let what = format!("{} signatures, {} of them devices'", bundle.entries.len(), entries.receipts.len());
    Ok((entries, what))
}

/// Attachments by name.
struct Attachments<'a>(BTreeMap<AttachmentDigest, &'a [u8]>);

impl<'a> Attachments<'a> {
    fn of(bundle: &'a Bundle) -> Attachments<'a> {
        let name = |bytes: &'a Vec<u8>| (AttachmentDigest::of(bytes), bytes.as_slice());
        Attachments(bundle.attachments.iter().map(name).collect())
    }

    fn there(&self, name: AttachmentName) -> Option<&'a [u8]> {
        self.0.get(&name.sha256).copied().filter(|bytes| bytes.len() as u64 == name.bytes)
    }

    fn find(&self, what: impl Into<String>, name: AttachmentName) -> Result<&'a [u8], Failure> {
        match self.there(name) {
            Some(bytes) => Ok(bytes),
            None => {
                Err(Failure::NoAttachment { what: what.into(), expected: name.sha256, bytes: name.bytes })
            }
        }
    }
}

/// The prediction, opened.
struct Opened {
    plan: Plan,
    body: PredictionBody,
    name: AttachmentName,
}

/// Step 5: the plan is the run's; salt and body are what was sealed, and fit run and plan.
fn opened(bundle: &Bundle, entries: &Entries, attachments: &Attachments, policy: &Policy) -> Step<Opened> {
    let run = &entries.run.object;
    if !policy.profiles().is_empty() && !policy.profiles().contains(&run.profile) {
        let found = run.profile.clone();
        return Err(Failure::Profile { expected: policy.profiles().join(", "), found });
    }
    let plan = read_plan(run, &bundle.plan)?;
    let prediction = &entries.prediction;
    if let Some(opening) = &entries.opening
        && opening.object.prediction != prediction.digest
    {
        let found = opening.object.prediction;
        return Err(Failure::OtherPrediction { expected: prediction.digest, found });
    }
    let OpenBody { salt, body: name } = open_body(entries);
    let bytes = attachments.find("prediction's body", name)?;
    let body = read_body(entries.id, run, &prediction.object, salt, bytes)?;
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
fn order(bundle: &Bundle, entries: &Entries, trust: Trust, head: TreeHead) -> Step<Placed> {
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

fn terms<'a>(entries: &'a Entries, log: &'a VerifierKey) -> Terms<'a> {
    Terms {
        run: &entries.run.object,
        id: entries.id,
        log,
        prediction_index: entries.prediction.index,
        opening_index: entries.opening.as_ref().map(|opening| opening.index),
    }
}

/// What receipts and verdict name.
struct Named {
    receipts: Vec<Admitted>,
    evidence: Evidence,
}

/// Step 7: what entries name is there and can be read, and nothing else is there.
fn named(
    bundle: &Bundle,
    entries: &Entries,
    opened: &Opened,
    attachments: &Attachments,
    log: &VerifierKey,
) -> Step<Named> {
    let mut used = BTreeSet::from([opened.name.sha256]);
    let terms = terms(entries, log);
    let (mut receipts, mut folds, mut implied) = (Vec::new(), Vec::new(), 0);
    for entry in &entries.receipts {
        let (index, receipt) = (entry.index, &entry.object);
        let bytes = match attachments.there(receipt.body) {
            Some(bytes) => Cow::Borrowed(bytes),
            None => {
                let (bytes, own) =
                    implied_body(bundle, entries, opened, receipt).ok_or_else(|| Failure::NoAttachment {
                        what: format!("body of the receipt of device {}", receipt.rank),
                        expected: receipt.body.sha256,
                        bytes: receipt.body.bytes,
                    })?;
                folds.extend(own);
                implied += 1;
                Cow::Owned(bytes)
            }
        };
        used.insert(receipt.body.sha256);
        let admitted = admit(entry.digest, entry.signer, receipt, index, &bytes, &terms)
            .map_err(|source| Failure::Receipt { index, source })?;
        receipts.push(admitted);
    }
    if implied::has_unused(&bundle.folds, &folds) {
        return Err(Failure::Folds);
    }
    let mut evidence = Evidence::none();
    for &name in &entries.verdict.object.evidence {
        let bytes = attachments.find("evidence of the verdict", name)?;
        used.insert(name.sha256);
        evidence.add(bytes).map_err(|source| Failure::Evidence { name: name.sha256, source })?;
    }
    match attachments.0.keys().find(|name| !used.contains(name)) {
        Some(name) => Err(Failure::Unnamed(*name)),
        None => {
            let mut what = counted(attachments.0.len(), "attachment");
            if implied > 0 {
                what.push_str(&format!(
                    "; bodies of {} follow from the prediction",
                    counted(implied, "receipt")
                ));
            }
            Ok((Named { receipts, evidence }, what))
        }
    }
}

/// The body that a receipt names, if it follows from the prediction and the bundle's folds, and which folds it has.
fn implied_body(
    bundle: &Bundle,
    entries: &Entries,
    opened: &Opened,
    receipt: &Receipt,
) -> Option<(Vec<u8>, Vec<usize>)> {
    if bundle.version == BUNDLE_VERSION_1 {
        return None;
    }
    let terms = implied::Terms {
        run: &entries.run.object,
        id: entries.id,
        body: &opened.body,
        devices: receipt.devices,
    };
    let (body, folds) = terms.body(receipt.rank, &bundle.folds)?;
    let bytes = body.encode();
    receipt.body.names(&bytes).then_some((bytes, folds))
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
