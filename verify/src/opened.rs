//! Checks one opened step from scratch, offline (docs/spec/opened.md); steps have the numbers of that page.

use crate::covers::{self, NoQuorum};
use crate::entries::leaf;
use crate::policy::Policy;
use crate::prediction::{PredictionError, check_record};
use crate::receipt;
use crate::report::{self, Check, Class, State, counted, write_checks};
use crate::times::names;
use schemas::digest::{EntryDigest, RunId, Seal};
use schemas::key::PublicKey;
use schemas::object::{Object, ObjectError};
use schemas::opened::OpenedStep;
use schemas::prediction::Prediction;
use schemas::record::{NonFinite, StepRecord};
use schemas::run::{Run, Steps};
use schemas::statement::{Payload, Statement, StatementError};
use schemas::time::utc;
use std::fmt::Write as _;
use tlog::checkpoint::CheckpointError;
use tlog::cosignature::Cosignature;
use tlog::note::Verifier as _;
use tlog::proof::{ProofError, check_inclusion};
use tlog::tree::TreeHead;

/// Titles of the checks, in the order and with the numbers of docs/spec/opened.md.
pub const TITLES: [&str; 7] = [
    "opened step can be read",
    "checkpoint is signed by the log",
    "prediction is in the log",
    "prediction is signed by a predictor's key",
    "run is the one predicted",
    "record is the one sealed",
    "record is of this run",
];

/// What the checks leave open, whatever they come to.
const CAVEATS: [&str; 2] = [
    "no order is proven: who has this record can copy it into a receipt that is made later",
    "that this is its signer's only prediction of the step is not shown here (client completeness shows it)",
];

/// Why a check failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Decode(#[from] ObjectError),
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    #[error(transparent)]
    Quorum(#[from] NoQuorum),
    #[error("entry {index}: {source}")]
    Inclusion { index: u64, source: ProofError },
    #[error("entry {index}: {source}")]
    Statement { index: u64, source: StatementError },
    #[error("entry {index} is a {found}, expected a prediction")]
    Kind { index: u64, found: &'static str },
    #[error("entry {index}: the prediction is signed by {found}, expected {expected}")]
    Signer { index: u64, expected: String, found: PublicKey },
    #[error("the run has id {found}, the prediction is of run {expected}")]
    Run { expected: RunId, found: RunId },
    #[error("the run's profile is {found:?}, the policy accepts {expected}")]
    Profile { expected: String, found: String },
    #[error("the run has {expected} steps, the prediction is of steps {found}")]
    Steps { expected: u64, found: Steps },
    #[error("step {found}, expected one of the steps {expected} of the prediction")]
    Step { expected: Steps, found: u64 },
    #[error("{found} records are sealed, expected at most {expected}, one for each step of the prediction")]
    Records { expected: u64, found: u64 },
    #[error(
        "salt, record and the others' seals have seal {found}, the prediction was sealed with {expected}"
    )]
    Seal { expected: Seal, found: Seal },
    #[error(transparent)]
    Record(#[from] PredictionError),
    #[error("the record says that step {step} is invalid, expected no record after it, found {found}")]
    GoesOn { step: u64, found: u64 },
    #[error(
        "step {step} has the last record, expected one that says that the step is invalid, or the step {last}"
    )]
    EndsEarly { step: u64, last: u64 },
}

/// One step of a prediction, once every check holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// The run.
    pub run: Run,
    /// Its id.
    pub id: RunId,
    /// Who predicted.
    pub signer: PublicKey,
    /// The prediction's leaf index.
    pub index: u64,
    /// The prediction's entry.
    pub entry: EntryDigest,
    /// What the log shows of the prediction.
    pub prediction: Prediction,
    /// The step.
    pub step: u64,
    /// What it must produce.
    pub record: StepRecord,
    /// How many records are sealed, this one among them.
    pub records: u64,
    /// By then the prediction was in the log, in POSIX seconds, as far as the policy's witnesses prove it.
    pub by_s: Option<u64>,
}

/// The checks of an opened step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// In order; after one that fails, none is reached.
    pub checks: Vec<Check>,
    /// What it all comes to.
    pub class: Class,
    /// The step, if every check holds.
    pub opened: Option<Opened>,
    /// What the checks leave open, in words.
    pub caveats: Vec<String>,
}

/// Whether some bytes begin as an opened step does and no bundle: by the name of their first field.
pub fn begins(bytes: &[u8]) -> bool {
    bytes.get(1..).is_some_and(|rest| rest.starts_with(b"crun"))
}

/// Checks an opened step against a policy.
pub fn check(bytes: &[u8], policy: &Policy) -> Report {
    let checks = report::unreached(&TITLES);
    let mut report = Report { checks, class: Class::CouldNot, opened: None, caveats: Vec::new() };
    if let Some(opened) = walk(bytes, policy, &mut report) {
        report.caveats = caveats(&opened);
        report.opened = Some(opened);
        report.class = Class::Agreeing;
    }
    report
}

fn walk(bytes: &[u8], policy: &Policy, report: &mut Report) -> Option<Opened> {
    let object = report.record(1, read(bytes))?;
    let (head, cosignatures) = report.record(2, checkpoint(&object, policy))?;
    report.record(3, inclusion(&object, head))?;
    let (entry, signer, prediction) = report.record(4, prediction(&object, policy))?;
    let id = report.record(5, run(&object, &prediction, policy))?;
    report.record(6, sealed(&object, &prediction))?;
    report.record(7, record(&object, &prediction))?;
    let by_s = policy.witnesses().and_then(|trust| trust.proven_by(&cosignatures, policy.faulty()));
    Some(Opened {
        id,
        signer,
        index: object.prediction.index,
        entry,
        prediction,
        step: object.step,
        records: object.seals.len() as u64 + 1,
        record: object.record,
        run: object.run,
        by_s,
    })
}

/// What a check that holds gives to later ones, and what it covered, in words.
type Step<T> = Result<(T, String), Failure>;

/// Step 1: the bytes are an opened step of this version.
fn read(bytes: &[u8]) -> Step<OpenedStep> {
    let object = OpenedStep::decode(bytes)?;
    let others = counted(object.seals.len(), "other record");
    let what = format!("{}: step {}, and the seals of {others}", counted(bytes.len(), "byte"), object.step);
    Ok((object, what))
}

/// Step 2: the checkpoint is the log's, by the policy's key, and cosigned by a quorum.
fn checkpoint(object: &OpenedStep, policy: &Policy) -> Step<(TreeHead, Vec<Cosignature>)> {
    let log = policy.log_of(&object.checkpoint);
    let (head, cosignatures) = covers::open(&object.checkpoint, policy, log)?;
    covers::quorum(policy, head, &cosignatures)?;
    let mut what = format!("{}, tree size {}, root {}", log.name(), head.size, head.root);
    if policy.witnesses().is_some() {
        what.push_str(&format!(", cosigned by {}", names(policy, &cosignatures).0));
    }
    Ok(((head, cosignatures), what))
}

/// Step 3: the prediction is in that tree, at its index.
fn inclusion(object: &OpenedStep, head: TreeHead) -> Step<()> {
    let entry = &object.prediction;
    check_inclusion(&receipt::inclusion(&entry.proof), leaf(entry), head)
        .map_err(|source| Failure::Inclusion { index: entry.index, source })?;
    Ok(((), format!("entry {}", entry.index)))
}

/// Step 4: it is a prediction, by one of the predictors.
fn prediction(object: &OpenedStep, policy: &Policy) -> Step<(EntryDigest, PublicKey, Prediction)> {
    let index = object.prediction.index;
    let Statement { digest, signer, payload } =
        Statement::open(&object.prediction.bytes).map_err(|source| Failure::Statement { index, source })?;
    let found = payload.stem();
    let Payload::Prediction(prediction) = payload else { return Err(Failure::Kind { index, found }) };
    let predictors = policy.predictors();
    if !predictors.contains(&signer) {
        let expected = predictors.iter().map(PublicKey::to_string).collect::<Vec<_>>().join(", ");
        return Err(Failure::Signer { index, expected, found: signer });
    }
    let what = format!("steps {} by {signer}", prediction.steps);
    Ok(((digest, signer, prediction), what))
}

/// Step 5: the run is the one that the prediction names, and has its steps.
fn run(object: &OpenedStep, prediction: &Prediction, policy: &Policy) -> Step<RunId> {
    let (run, found) = (&object.run, object.run.id());
    if found != prediction.run {
        return Err(Failure::Run { expected: prediction.run, found });
    }
    if !policy.profiles().is_empty() && !policy.profiles().contains(&run.profile) {
        let (expected, found) = (policy.profiles().join(", "), run.profile.clone());
        return Err(Failure::Profile { expected, found });
    }
    if prediction.steps.end > run.steps {
        return Err(Failure::Steps { expected: run.steps, found: prediction.steps });
    }
    Ok((found, format!("{found} ({:?}), profile {}", run.name, run.profile)))
}

/// Step 6: salt, record and the seals of the others make up the prediction's seal.
fn sealed(object: &OpenedStep, prediction: &Prediction) -> Step<()> {
    let (steps, step) = (prediction.steps, object.step);
    if !(steps.first..steps.end).contains(&step) {
        return Err(Failure::Step { expected: steps, found: step });
    }
    let records = object.seals.len() as u64 + 1;
    if records > steps.count() {
        return Err(Failure::Records { expected: steps.count(), found: records });
    }
    let Some(found) = object.seal(steps.first) else {
        return Err(Failure::Step {
            expected: Steps { first: steps.first, end: steps.first + records },
            found: step,
        });
    };
    if found != prediction.seal {
        return Err(Failure::Seal { expected: prediction.seal, found });
    }
    Ok(((), format!("step {step}, record {} of {records}, seal {found}", step - steps.first + 1)))
}

/// Step 7: the record has the run's leaves and tree, and stands where such a record may stand.
fn record(object: &OpenedStep, prediction: &Prediction) -> Step<()> {
    let (step, record) = (object.step, &object.record);
    check_record(&object.run, step, record)?;
    let after = prediction.steps.first + object.seals.len() as u64 - step;
    let last = prediction.steps.end - 1;
    match record.non_finite {
        Some(_) if after > 0 => return Err(Failure::GoesOn { step, found: after }),
        None if after == 0 && step != last => return Err(Failure::EndsEarly { step, last }),
        _ => {}
    }
    let nodes = record.outcome.as_ref().map_or(0, |outcome| outcome.nodes.len());
    Ok(((), format!("{}, {}", leaves(record.traces.len()), counted(nodes, "tree node"))))
}

fn leaves(count: usize) -> String {
    if count == 1 { "1 leaf".into() } else { format!("{count} leaves") }
}

fn caveats(opened: &Opened) -> Vec<String> {
    let mut caveats: Vec<String> = CAVEATS.into_iter().map(str::to_owned).collect();
    let steps = opened.prediction.steps;
    if opened.records < steps.count() && opened.record.non_finite.is_none() {
        caveats.push(format!(
            "the sealed records end at step {}, of steps {steps}: that this step is invalid, as it has to be, is not \
             shown here",
            steps.first + opened.records - 1
        ));
    }
    caveats
}

impl Report {
    /// Records how check `number` went; `None` ends the checking.
    fn record<T>(&mut self, number: usize, result: Step<T>) -> Option<T> {
        report::record(&mut self.checks, &mut self.class, number, result)
    }

    /// The first check that fails.
    pub fn failure(&self) -> Option<&Check> {
        report::failure(&self.checks)
    }

    /// One line for the whole: `verified: ...` or `not verified: ...`.
    pub fn summary(&self) -> String {
        match (&self.opened, self.failure()) {
            (Some(opened), _) => format!(
                "verified: this is step {} of run {} as sealed by {} in entry {}",
                opened.step, opened.id, opened.signer, opened.index
            ),
            (None, Some(Check { number, state: State::Fails(why), .. })) => {
                format!("not verified: check {number}: {why}")
            }
            _ => panic!("opened: neither verified nor failing"),
        }
    }
}

impl std::fmt::Display for Report {
    /// The numbered checks, what they leave open, the record and the summary; each on lines of its own.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write_checks(f, &self.checks, &self.caveats)?;
        if let Some(opened) = &self.opened {
            if let Some(by_s) = opened.by_s {
                writeln!(f, "time: the prediction was in the log by {}", utc(by_s))?;
            }
            f.write_str(&tell(opened.step, &opened.record))?;
        }
        writeln!(f, "{}", self.summary())
    }
}

/// Bits of an f32 as the number they are.
pub fn number(bits: u32) -> String {
    let number = f32::from_bits(bits);
    let plain = number == 0.0 || (1e-4..1e7).contains(&number.abs());
    if plain { number.to_string() } else { format!("{number:e}") }
}

/// What the tree's nodes are called, in their order: by how many devices share a step, and which of them meet there.
pub fn node_names(count: usize) -> Vec<String> {
    let mut names = Vec::with_capacity(count);
    let mut width = count.div_ceil(2);
    while width > 0 {
        names.extend(
            (0..width).map(|place| if width == 1 { "root".into() } else { format!("{place} of {width}") }),
        );
        width /= 2;
    }
    names
}

/// Where a step stopped being finite, in words.
pub fn place(at: NonFinite) -> String {
    match at {
        NonFinite::Tap { leaf, tap } => format!("tap {tap} of leaf {leaf}"),
        NonFinite::Update { stage: 0 } => "the reduced gradient".into(),
        NonFinite::Update { stage: 1 } => "the gradient's norm".into(),
        NonFinite::Update { .. } => "the new parameters or moments".into(),
    }
}

/// A record in words, a value on each line.
fn tell(step: u64, record: &StepRecord) -> String {
    let mut text = format!("step {step}\n");
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "  {name:<13} {value}");
    };
    for (leaf, (loss, trace)) in record.losses.iter().zip(&record.traces).enumerate() {
        line(&format!("leaf {leaf}"), format!("loss {} ({loss:#010x}), trace {trace}", number(*loss)));
    }
    if let Some(outcome) = &record.outcome {
        for (name, node) in node_names(outcome.nodes.len()).iter().zip(&outcome.nodes) {
            line(&format!("node {name}"), node.to_string());
        }
        line("reduced", outcome.reduced.to_string());
        line("norm", format!("{} ({:#010x})", number(outcome.norm), outcome.norm));
        line("parameters", outcome.parameters.to_string());
        let fold = |fold: schemas::fold::Fold| format!("{:016x} {:016x}", fold.a, fold.b);
        line("first moment", fold(outcome.first_moment));
        line("second moment", fold(outcome.second_moment));
        line("meeting", outcome.meeting.to_string());
    }
    if let Some(at) = record.non_finite {
        line("not finite", place(at));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_told_shortly_and_lose_no_bit() {
        for (value, text) in [
            (2.25, "2.25"),
            (0.0, "0"),
            (-0.0, "-0"),
            (1e-4, "0.0001"),
            (9.9e-5, "9.9e-5"),
            (9_999_999.0, "9999999"),
            (1e7, "1e7"),
            (f32::NAN, "NaN"),
            (f32::NEG_INFINITY, "-inf"),
        ] {
            assert_eq!(number(f32::to_bits(value)), text);
        }
    }

    #[test]
    fn nodes_are_named_level_by_level_down_to_the_root() {
        assert_eq!(node_names(1), ["root"]);
        assert_eq!(node_names(7), ["0 of 4", "1 of 4", "2 of 4", "3 of 4", "0 of 2", "1 of 2", "root"]);
    }
}
