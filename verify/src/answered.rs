//! Which trees a bundle's receipts answer, of all that hold the prediction, and what a policy asks of them
//! (docs/spec/bundle.md, "The checkpoint that was answered").
//!
//! A challenge is a function of the run and of a tree. So whoever can choose among trees chooses among challenges, and
//! with them among steps. Only of the smallest tree that holds the prediction can a bundle show that none came before.

use crate::covers::{self, NoQuorum};
use crate::entries::Entries;
use crate::policy::Policy;
use schemas::bundle::Cover;
use schemas::challenge::chosen_step;
use std::cmp::Ordering;
use std::collections::BTreeSet;
use tlog::checkpoint::CheckpointError;
use tlog::note::VerifierKey;
use tlog::tree::TreeHead;

/// Most sizes of trees that are listed in words.
const LISTED_MAX: usize = 8;

/// What a policy may ask of the checkpoints that receipts answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Each receipt's own checkpoint has the policy's quorum.
    Cosigned,
    /// Each receipt answers the tree of the bundle's first cosigned cover.
    First,
    /// Each receipt answers the smallest tree that holds the prediction.
    Smallest,
}

impl Asked {
    /// As a policy file has it.
    pub fn word(self) -> &'static str {
        match self {
            Asked::Cosigned => "cosigned",
            Asked::First => "first",
            Asked::Smallest => "smallest",
        }
    }

    /// Of a policy file's word.
    pub(crate) fn of_word(word: &str) -> Option<Asked> {
        [Asked::Cosigned, Asked::First, Asked::Smallest].into_iter().find(|asked| asked.word() == word)
    }
}

/// Which trees were answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    /// Sizes of the trees that receipts answer, ascending.
    pub sizes: Vec<u64>,
    /// Size of the smallest tree that holds the prediction.
    pub smallest: u64,
    /// Size of the bundle's first cover that a quorum of the policy has cosigned.
    pub first_cosigned: Option<u64>,
    /// Whether the policy asks for a quorum; without one nothing counts as cosigned.
    pub asks: bool,
    /// The step that the challenge chose, if all receipts answer one.
    pub step: Option<u64>,
}

/// Why receipts do not answer what the policy asks for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AnsweredError {
    #[error("the policy asks for cosigned challenges; that of device {rank} is none: {source}")]
    NoQuorum { rank: u64, source: NoQuorum },
    #[error("the policy asks for cosigned challenges; that of device {rank} is none: {source}")]
    Checkpoint { rank: u64, source: CheckpointError },
    #[error("the policy asks for the challenge of {FIRST}, found no cosigned cover")]
    NoCosigned,
    #[error(
        "the policy asks for the challenge of {what}, of size {expected}; device {rank} answers that of size {found}, \
         {far}"
    )]
    Another { what: &'static str, rank: u64, expected: u64, found: u64, far: String },
}

const FIRST: &str = "the first cosigned checkpoint that holds the prediction";
const SMALLEST: &str = "the smallest tree that holds the prediction";

/// Tells which trees were answered, and holds them against the policy. `heads` are the trees of the receipts'
/// checkpoints, in the receipts' order; the covers have been checked.
pub(crate) fn check(
    covers: &[Cover],
    entries: &Entries,
    (policy, log): (&Policy, &VerifierKey),
    heads: &[TreeHead],
) -> Result<Answered, AnsweredError> {
    let asks = policy.asks_for_cosignatures();
    let cosigned = covers.iter().filter(|cover| asks && cover.checkpoint.is_some());
    let challenges: BTreeSet<_> = entries.receipts.iter().map(|receipt| receipt.object.challenge()).collect();
    let only = challenges.first().filter(|_| challenges.len() == 1);
    let sizes: BTreeSet<u64> = heads.iter().map(|head| head.size.0).collect();
    let answered = Answered {
        sizes: sizes.into_iter().collect(),
        smallest: entries.prediction.index + 1,
        first_cosigned: cosigned.map(|cover| cover.tree_size).min(),
        asks,
        step: only.map(|only| chosen_step(*only, entries.prediction.object.steps)),
    };
    for asked in policy.challenge() {
        match asked {
            Asked::Cosigned => all_cosigned(entries, (policy, log))?,
            Asked::First => {
                let first = answered.first_cosigned.ok_or(AnsweredError::NoCosigned)?;
                all_of_size(entries, heads, (FIRST, first))?;
            }
            Asked::Smallest => all_of_size(entries, heads, (SMALLEST, answered.smallest))?,
        }
    }
    Ok(answered)
}

/// Each receipt's own checkpoint has the quorum of the policy.
fn all_cosigned(entries: &Entries, (policy, log): (&Policy, &VerifierKey)) -> Result<(), AnsweredError> {
    for receipt in entries.receipts.iter().map(|receipt| &receipt.object) {
        let rank = receipt.rank;
        let (head, cosignatures) = covers::open(&receipt.checkpoint, policy, log)
            .map_err(|source| AnsweredError::Checkpoint { rank, source })?;
        covers::quorum(policy, head, &cosignatures)
            .map_err(|source| AnsweredError::NoQuorum { rank, source })?;
    }
    Ok(())
}

/// Each receipt answers the tree of this size, of which there is one.
fn all_of_size(
    entries: &Entries,
    heads: &[TreeHead],
    (what, expected): (&'static str, u64),
) -> Result<(), AnsweredError> {
    for (receipt, head) in entries.receipts.iter().zip(heads) {
        let (rank, found) = (receipt.object.rank, head.size.0);
        if found != expected {
            let far = distance(found, expected);
            return Err(AnsweredError::Another { what, rank, expected, found, far });
        }
    }
    Ok(())
}

/// How much later a tree is than another, in entries.
fn distance(found: u64, than: u64) -> String {
    let entries = |count: u64| format!("{count} {}", if count == 1 { "entry" } else { "entries" });
    match found.cmp(&than) {
        Ordering::Less => format!("{} earlier", entries(than - found)),
        Ordering::Equal => "no entry later".into(),
        Ordering::Greater => format!("{} later", entries(found - than)),
    }
}

impl Answered {
    /// In words, a line for each tree; nothing without receipts.
    pub fn lines(&self) -> Vec<String> {
        let step = self.step.map(|step| format!("step {step} was chosen by ")).unwrap_or_default();
        let mut lines: Vec<String> =
            self.sizes.iter().take(LISTED_MAX).map(|size| format!("{step}{}", self.told(*size))).collect();
        if self.sizes.len() > LISTED_MAX {
            lines.push(format!("and {} more trees", self.sizes.len() - LISTED_MAX));
        }
        lines
    }

    /// What a tree of this size is among those that hold the prediction.
    fn told(&self, size: u64) -> String {
        let tree = format!("the tree of size {size}");
        if size == self.smallest {
            return format!("{tree}, {SMALLEST}: by its size alone there is no earlier one");
        }
        let later = distance(size, self.smallest);
        match self.first_cosigned {
            Some(first) if size == first => format!(
                "{tree}, {FIRST} by the word of the log and of whoever made the bundle; {later} than {SMALLEST}"
            ),
            Some(first) if size > first => format!(
                "{tree}, {} than {FIRST}: whoever answers can wait for a step that suits them",
                distance(size, first)
            ),
            Some(first) => {
                format!("{tree}, {later} than {SMALLEST}, and {} than {FIRST}", distance(size, first))
            }
            None if self.asks => format!("{tree}, {later} than {SMALLEST}; no cosigned one is here"),
            None => format!("{tree}, {later} than {SMALLEST}"),
        }
    }
}
