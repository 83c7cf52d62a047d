//! Checks a completeness file from scratch, offline (docs/spec/completeness.md); steps have the numbers of that page.

use crate::report::{self, Check, Class, State, counted, write_checks};
use schemas::completeness::Completeness;
use schemas::digest::RunId;
use schemas::key::PublicKey;
use schemas::object::{Object, ObjectError};
use schemas::register::{EntryLeaf, ListRoot, PredictionLeaf, Register};
use schemas::run::Steps;
use schemas::statement::{Payload, Statement, StatementError};
use std::collections::BTreeMap;
use tlog::checkpoint::{Checkpoint, CheckpointError};
use tlog::compact::CompactTree;
use tlog::hash::{Hash, leaf_hash};
use tlog::note::{Verifier as _, VerifierKey};
use tlog::proof::{InclusionProof, Leaf, ProofError, check_inclusion};
use tlog::tree::{LeafIndex, TreeHead};

/// Titles of the checks, in the order and with the numbers of docs/spec/completeness.md.
pub const TITLES: [&str; 7] = [
    "completeness can be read",
    "checkpoint is signed by the log",
    "register is in the log",
    "register is the log's own",
    "lists are those registered",
    "no key predicted a step twice",
    "the predictor predicted",
];

/// What the checks leave open, whatever they come to.
const CAVEATS: [&str; 2] = [
    "that the register leaves nothing out is the log's word, signed; whoever reads the whole log can check it \
     (client monitor does)",
    "predictions under another key or in another log are not seen",
];

/// Why a check failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Decode(#[from] ObjectError),
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    #[error("entry {index}: {source}")]
    Inclusion { index: u64, source: ProofError },
    #[error("entry {index}: {source}")]
    Statement { index: u64, source: StatementError },
    #[error("entry {index} is a {found}, expected a register")]
    Kind { index: u64, found: &'static str },
    #[error("the register is signed by {found}, expected the log's key {expected}")]
    Signer { expected: String, found: PublicKey },
    #[error("the register is of size {found}, expected its own index {index}")]
    Size { index: u64, found: u64 },
    #[error("{found} {list} with root {found_root}, expected {expected} with root {expected_root}")]
    List { list: &'static str, expected: u64, found: u64, expected_root: Hash, found_root: Hash },
    #[error("the list of {list} has entry {found}, expected only entries below {size}")]
    Beyond { list: &'static str, size: u64, found: u64 },
    #[error("the lists do not agree: expected predictions {expected} of the entries, found {found}")]
    Lists { expected: String, found: String },
    #[error(
        "key {signer} predicts steps {second} in entry {second_index} and steps {first} in entry {first_index}"
    )]
    Twice { signer: PublicKey, first: Steps, first_index: u64, second: Steps, second_index: u64 },
    #[error("expected a prediction by {0}, found none")]
    None(PublicKey),
}

/// What a log holds of a run, once every check holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complete {
    /// The run.
    pub run: RunId,
    /// The register's leaf index: the lists hold the run's entries below it.
    pub size: u64,
    /// The tree of the checkpoint that the register was proven in.
    pub head: TreeHead,
    /// Number of entries of the run.
    pub entries_count: u64,
    /// Every prediction, by ascending leaf index.
    pub predictions: Vec<PredictionLeaf>,
    /// Every entry, if they are listed.
    pub entries: Option<Vec<EntryLeaf>>,
}

impl Complete {
    /// The predictions of a key.
    pub fn by(&self, key: PublicKey) -> impl Iterator<Item = &PredictionLeaf> {
        self.predictions.iter().filter(move |leaf| leaf.signer == key)
    }

    /// How many receipts there are, if all entries are listed.
    pub fn receipts(&self) -> Option<usize> {
        let entries = self.entries.as_ref()?;
        Some(entries.iter().filter(|leaf| leaf.kind == "receipt").count())
    }
}

/// The checks of a completeness file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// In order; after one that fails, none is reached.
    pub checks: Vec<Check>,
    /// What it all comes to.
    pub class: Class,
    /// What was found, if every check holds.
    pub complete: Option<Complete>,
    /// What the checks leave open, in words.
    pub caveats: Vec<String>,
}

/// Checks a completeness file under the log's key. `predictors` are asked about: each must have a prediction.
pub fn check(bytes: &[u8], log: &VerifierKey, predictors: &[PublicKey]) -> Report {
    let mut report = Report::new();
    if let Some(complete) = walk(bytes, log, predictors, &mut report) {
        let beyond = format!(
            "entries of the run at index {} or above are not covered: the log had {} entries at this checkpoint",
            complete.size, complete.head.size
        );
        report.caveats = CAVEATS.into_iter().map(str::to_owned).chain([beyond]).collect();
        report.complete = Some(complete);
        report.class = Class::Agreeing;
    }
    report
}

fn walk(bytes: &[u8], log: &VerifierKey, predictors: &[PublicKey], report: &mut Report) -> Option<Complete> {
    let object = report.record(1, read(bytes))?;
    let head = report.record(2, checkpoint(&object, log))?;
    report.record(3, inclusion(&object, head))?;
    let register = report.record(4, register(&object, log))?;
    report.record(5, lists(&object, &register))?;
    report.record(6, twice(&object.predictions))?;
    let complete = Complete {
        run: register.run,
        size: register.size,
        head,
        entries_count: register.entries.count,
        predictions: object.predictions,
        entries: object.entries,
    };
    report.record(7, predicted(&complete, predictors))?;
    Some(complete)
}

/// Steps 3 to 5 for an object that stands in a bundle, whose tree is known: what the log registered, if its lists are
/// those, or why not.
pub(crate) fn registered(
    object: &Completeness,
    head: TreeHead,
    log: &VerifierKey,
) -> Result<Register, String> {
    let walk = || -> Result<Register, Failure> {
        inclusion(object, head)?;
        let (register, _) = register(object, log)?;
        lists(object, &register)?;
        Ok(register)
    };
    walk().map_err(|error| error.to_string())
}

/// What a check that holds gives to later ones, and what it covered, in words.
type Step<T> = Result<(T, String), Failure>;

/// Step 1: the bytes are a completeness file of this version.
fn read(bytes: &[u8]) -> Step<Completeness> {
    let object = Completeness::decode(bytes)?;
    let listed = if object.entries.is_some() { "with" } else { "without" };
    let what = format!("{} bytes, {listed} the list of entries", bytes.len());
    Ok((object, what))
}

/// Step 2: the checkpoint is the log's.
fn checkpoint(object: &Completeness, log: &VerifierKey) -> Step<TreeHead> {
    let checkpoint = Checkpoint::open(&object.checkpoint, log.name().as_str(), log)?;
    let what = format!("{}, tree size {}, root {}", log.name(), checkpoint.head.size, checkpoint.head.root);
    Ok((checkpoint.head, what))
}

/// Step 3: the register is in that tree, at its index.
fn inclusion(object: &Completeness, head: TreeHead) -> Step<()> {
    let entry = &object.register;
    let proof = InclusionProof(entry.proof.iter().map(|hash| Hash::new(*hash)).collect());
    let leaf = Leaf { index: LeafIndex(entry.index), hash: leaf_hash(&entry.bytes) };
    check_inclusion(&proof, leaf, head)
        .map_err(|source| Failure::Inclusion { index: entry.index, source })?;
    Ok(((), format!("entry {}", entry.index)))
}

/// Step 4: it is a register, by the log's own key and of its own place.
fn register(object: &Completeness, log: &VerifierKey) -> Step<Register> {
    let index = object.register.index;
    let statement = Statement::open(&object.register.bytes);
    let statement = statement.map_err(|source| Failure::Statement { index, source })?;
    let found = statement.payload.stem();
    let Payload::Register(register) = statement.payload else { return Err(Failure::Kind { index, found }) };
    if statement.signer.to_bytes() != *log.public_key() {
        let expected = log.public_key().iter().map(|byte| format!("{byte:02x}")).collect();
        return Err(Failure::Signer { expected, found: statement.signer });
    }
    if register.size != index {
        return Err(Failure::Size { index, found: register.size });
    }
    let what = format!("run {}, below entry {index}", register.run);
    Ok((register, what))
}

/// Step 5: the lists have the register's counts and roots, end at the register, and agree with each other.
fn lists(object: &Completeness, register: &Register) -> Step<()> {
    let size = register.size;
    let predictions = object.predictions.iter().map(|leaf| (leaf.index, leaf.encode()));
    list("predictions", predictions, register.predictions, size)?;
    let mut what = format!(
        "{} of {}",
        counted(register.predictions.count as usize, "prediction"),
        counted(register.entries.count as usize, "entry")
    );
    if let Some(entries) = &object.entries {
        list("entries", entries.iter().map(|leaf| (leaf.index, leaf.encode())), register.entries, size)?;
        let expected = entries.iter().filter(|leaf| leaf.kind == "prediction");
        let expected: Vec<_> = expected.map(|leaf| (leaf.index, leaf.signer, leaf.entry)).collect();
        let found: Vec<_> =
            object.predictions.iter().map(|leaf| (leaf.index, leaf.signer, leaf.entry)).collect();
        if expected != found {
            let show = |leaves: &[(u64, PublicKey, schemas::digest::EntryDigest)]| {
                let indexes: Vec<String> = leaves.iter().take(20).map(|leaf| leaf.0.to_string()).collect();
                format!("[{}]", indexes.join(", "))
            };
            return Err(Failure::Lists { expected: show(&expected), found: show(&found) });
        }
        what.push_str(", both lists");
    }
    Ok(((), what))
}

/// A list's leaves lead to its count and root, and all lie below the register.
fn list(
    list: &'static str,
    leaves: impl Iterator<Item = (u64, Vec<u8>)>,
    expected: ListRoot,
    size: u64,
) -> Result<(), Failure> {
    let mut tree = CompactTree::new();
    for (index, leaf) in leaves {
        if index >= size {
            return Err(Failure::Beyond { list, size, found: index });
        }
        tree.push(leaf_hash(&leaf));
    }
    let found = tree.head();
    if (found.size.0, found.root) != (expected.count, Hash::new(expected.root)) {
        return Err(Failure::List {
            list,
            expected: expected.count,
            found: found.size.0,
            expected_root: Hash::new(expected.root),
            found_root: found.root,
        });
    }
    Ok(())
}

/// Step 6: the predictions of one key share no step.
fn twice(predictions: &[PredictionLeaf]) -> Step<()> {
    let mut known: BTreeMap<(PublicKey, u64), &PredictionLeaf> = BTreeMap::new();
    for second in predictions {
        // The known ones of a key share no step, so only the last that starts before this one's end can reach in.
        let before = known.range((second.signer, 0)..(second.signer, second.steps.end)).next_back();
        if let Some((_, first)) = before.filter(|(_, first)| first.steps.overlaps(second.steps)) {
            return Err(Failure::Twice {
                signer: second.signer,
                first: first.steps,
                first_index: first.index,
                second: second.steps,
                second_index: second.index,
            });
        }
        known.insert((second.signer, second.steps.first), second);
    }
    let keys: std::collections::BTreeSet<PublicKey> = predictions.iter().map(|leaf| leaf.signer).collect();
    Ok(((), format!("{} of {}", counted(predictions.len(), "prediction"), counted(keys.len(), "key"))))
}

/// Step 7: whoever was asked about has predicted.
fn predicted(complete: &Complete, predictors: &[PublicKey]) -> Step<()> {
    let mut found = Vec::new();
    for key in predictors {
        let count = found.len();
        found.extend(complete.by(*key).map(|leaf| format!("steps {} in entry {}", leaf.steps, leaf.index)));
        if found.len() == count {
            return Err(Failure::None(*key));
        }
    }
    match predictors.is_empty() {
        true => Ok(((), "no key was asked about".into())),
        false => Ok(((), format!("{}, and nothing else", listed(&found)))),
    }
}

/// Joined by commas, and cut where nobody would read on.
fn listed(texts: &[String]) -> String {
    const SHOWN_MAX: usize = 100;
    let shown = texts.iter().take(SHOWN_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
    match texts.len() {
        0..=SHOWN_MAX => shown,
        more => format!("{shown} and {} more", more - SHOWN_MAX),
    }
}

impl Report {
    fn new() -> Report {
        let checks = report::unreached(&TITLES);
        Report { checks, class: Class::CouldNot, complete: None, caveats: Vec::new() }
    }

    /// Records how check `number` went; `None` ends the checking.
    fn record<T>(&mut self, number: usize, result: Step<T>) -> Option<T> {
        report::record(&mut self.checks, &mut self.class, number, result)
    }

    /// The first check that fails.
    pub fn failure(&self) -> Option<&Check> {
        report::failure(&self.checks)
    }

    /// One line for the whole: `complete: ...` or `not shown to be complete: ...`.
    pub fn summary(&self) -> String {
        match (&self.complete, self.failure()) {
            (Some(complete), _) => format!(
                "complete: below entry {} the log holds {} of run {}, among them {}{}",
                complete.size,
                counted(complete.entries_count as usize, "statement"),
                complete.run,
                counted(complete.predictions.len(), "prediction"),
                complete
                    .receipts()
                    .map_or(String::new(), |count| format!(" and {}", counted(count, "receipt"))),
            ),
            (None, Some(Check { number, state: State::Fails(why), .. })) => {
                format!("not shown to be complete: check {number}: {why}")
            }
            _ => panic!("completeness: neither complete nor failing"),
        }
    }
}

impl std::fmt::Display for Report {
    /// The numbered checks, what they leave open, and the summary; each on a line of its own.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write_checks(f, &self.checks, &self.caveats)?;
        writeln!(f, "{}", self.summary())
    }
}
