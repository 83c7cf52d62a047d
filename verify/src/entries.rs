//! The entries of a bundle: proven to be in the log, opened as statements, each in its role.

use crate::policy::Policy;
use crate::receipt::inclusion;
use schemas::bundle::ProvenEntry;
use schemas::bundle::stored::StoredBundle;
use schemas::digest::{EntryDigest, RunId};
use schemas::key::PublicKey;
use schemas::opening::Opening;
use schemas::prediction::Prediction;
use schemas::receipt::Receipt;
use schemas::run::Run;
use schemas::statement::{Payload, Statement, StatementError};
use schemas::verdict::Verdict;
use tlog::hash::leaf_hash;
use tlog::proof::{Leaf, ProofError, check_inclusion};
use tlog::tree::{LeafIndex, TreeHead};

/// Why the entries of a bundle do not stand.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EntriesError {
    #[error("entry {index}: {source}")]
    Inclusion { index: u64, source: ProofError },
    #[error("entry {index}: {source}")]
    Statement { index: u64, source: StatementError },
    #[error("expected entries run, prediction, opening if sealed, receipts, verdict; found {found}")]
    Kinds { found: String },
    #[error("entry {index}: the {kind} is signed by {found}, expected one of {expected}")]
    Signer { index: u64, kind: &'static str, expected: String, found: PublicKey },
    #[error("entry {index}: the {kind} belongs to run {found}, expected run {expected}")]
    Run { index: u64, kind: &'static str, expected: RunId, found: RunId },
    #[error("the prediction is {state}, expected {expected} among the entries")]
    Opening { state: &'static str, expected: &'static str },
    #[error("the opening is signed by {found}, expected the prediction's signer {expected}")]
    OpenedByAnother { expected: PublicKey, found: PublicKey },
}

/// A statement in its role.
#[derive(Clone, Debug)]
pub(crate) struct Entry<T> {
    pub(crate) index: u64,
    pub(crate) digest: EntryDigest,
    pub(crate) signer: PublicKey,
    pub(crate) object: T,
}

/// All entries in their roles.
pub(crate) struct Entries {
    pub(crate) id: RunId,
    pub(crate) run: Entry<Run>,
    pub(crate) prediction: Entry<Prediction>,
    /// The prediction's place in the tree.
    pub(crate) prediction_leaf: Leaf,
    pub(crate) opening: Option<Entry<Opening>>,
    pub(crate) receipts: Vec<Entry<Receipt>>,
    pub(crate) verdict: Entry<Verdict>,
}

/// Step 3: every entry is in the tree.
pub(crate) fn check_inclusions(bundle: &StoredBundle, head: TreeHead) -> Result<(), EntriesError> {
    for entry in &bundle.entries {
        check_inclusion(&inclusion(&entry.proof), leaf(entry), head)
            .map_err(|source| EntriesError::Inclusion { index: entry.index, source })?;
    }
    Ok(())
}

pub(crate) fn leaf(entry: &ProvenEntry) -> Leaf {
    Leaf { index: LeafIndex(entry.index), hash: leaf_hash(&entry.bytes) }
}

/// Step 4: every entry is a statement, in its role, signed by a key of that role.
pub(crate) fn open(bundle: &StoredBundle, policy: &Policy) -> Result<Entries, EntriesError> {
    let mut statements = Vec::new();
    for entry in &bundle.entries {
        let index = entry.index;
        let statement =
            Statement::open(&entry.bytes).map_err(|source| EntriesError::Statement { index, source })?;
        statements.push((index, statement));
    }
    let entries = assign(bundle, statements)?;
    check_runs(&entries)?;
    check_signers(&entries, policy)?;
    match (&entries.prediction.object.open, &entries.opening) {
        (None, None) => return Err(EntriesError::Opening { state: "sealed", expected: "an opening" }),
        (Some(_), Some(_)) => return Err(EntriesError::Opening { state: "open", expected: "no opening" }),
        _ => {}
    }
    let predictor = entries.prediction.signer;
    match entries.opening.as_ref().map(|opening| opening.signer) {
        Some(found) if found != predictor => {
            Err(EntriesError::OpenedByAnother { expected: predictor, found })
        }
        _ => Ok(entries),
    }
}

/// Gives each statement its role by kind and position.
fn assign(bundle: &StoredBundle, statements: Vec<(u64, Statement)>) -> Result<Entries, EntriesError> {
    let kinds: Vec<&str> = statements.iter().map(|(_, statement)| statement.payload.stem()).collect();
    let wrong = || EntriesError::Kinds { found: kinds.join(", ") };
    let mut rest = statements.into_iter().peekable();
    let Some((index, Statement { digest, signer, payload: Payload::Run(object) })) = rest.next() else {
        return Err(wrong());
    };
    let run = Entry { index, digest, signer, object };
    let Some((index, Statement { digest, signer, payload: Payload::Prediction(object) })) = rest.next()
    else {
        return Err(wrong());
    };
    let prediction = Entry { index, digest, signer, object };
    let mut opening = None;
    let mut receipts = Vec::new();
    let mut verdict = None;
    for (index, Statement { digest, signer, payload }) in rest {
        match payload {
            Payload::Opening(object) if opening.is_none() && receipts.is_empty() && verdict.is_none() => {
                opening = Some(Entry { index, digest, signer, object });
            }
            Payload::Receipt(object) if verdict.is_none() => {
                receipts.push(Entry { index, digest, signer, object: *object });
            }
            Payload::Verdict(object) if verdict.is_none() => {
                verdict = Some(Entry { index, digest, signer, object: *object });
            }
            _ => return Err(wrong()),
        }
    }
    let verdict = verdict.ok_or_else(wrong)?;
    let prediction_leaf = leaf(&bundle.entries[1]);
    Ok(Entries { id: run.object.id(), run, prediction, prediction_leaf, opening, receipts, verdict })
}

fn check_runs(entries: &Entries) -> Result<(), EntriesError> {
    let mut named = vec![(entries.prediction.index, "prediction", entries.prediction.object.run)];
    named.extend(entries.opening.iter().map(|entry| (entry.index, "opening", entry.object.run)));
    named.extend(entries.receipts.iter().map(|entry| (entry.index, "receipt", entry.object.run)));
    named.push((entries.verdict.index, "verdict", entries.verdict.object.run));
    match named.into_iter().find(|(_, _, found)| *found != entries.id) {
        Some((index, kind, found)) => Err(EntriesError::Run { index, kind, expected: entries.id, found }),
        None => Ok(()),
    }
}

fn check_signers(entries: &Entries, policy: &Policy) -> Result<(), EntriesError> {
    let predictors = policy.predictors();
    let mut signed = vec![
        (entries.run.index, "run", predictors, entries.run.signer),
        (entries.prediction.index, "prediction", predictors, entries.prediction.signer),
    ];
    signed.extend(entries.opening.iter().map(|entry| (entry.index, "opening", predictors, entry.signer)));
    if !policy.devices().is_empty() {
        let receipts = entries.receipts.iter();
        signed.extend(receipts.map(|entry| (entry.index, "receipt", policy.devices(), entry.signer)));
    }
    signed.push((entries.verdict.index, "verdict", policy.verdict_signers(), entries.verdict.signer));
    for (index, kind, trusted, found) in signed {
        if !trusted.contains(&found) {
            let expected = trusted.iter().map(PublicKey::to_string).collect::<Vec<_>>().join(", ");
            return Err(EntriesError::Signer { index, kind, expected, found });
        }
    }
    Ok(())
}
