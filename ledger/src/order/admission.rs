//! What may enter the log. The whole policy is in this file.
//!
//! 1. An entry is a well-formed statement of at most 60 KiB whose signature is its signer's.
//! 2. A prediction, opening, receipt or verdict names a run that is already in the log.
//! 3. A predictor has at most one prediction for any step of a run.
//! 4. A signer has at most one opening of a prediction: else it could open early for a few and show a later opening as
//!    the first.
//! 5. Nobody submits a register: the log makes them ([`crate::order::registers`]).
//!
//! The server orders; it judges nothing else. In particular it does not ask who may sign what, whether attachments
//! are there, or whether a prediction, receipt or verdict is right: those are questions for whoever reads the log.

use schemas::digest::{EntryDigest, RunId};
use schemas::run::Steps;
use schemas::statement::{Payload, Statement, StatementError};
use thiserror::Error;

use crate::error::LogError;
use crate::order::index::Change;

/// Why a statement is not admitted.
#[derive(Debug, Error)]
pub enum Refusal {
    /// It is not a statement, or its signature is not its signer's.
    #[error(transparent)]
    NotAStatement(#[from] StatementError),
    /// Its run is not in the log.
    #[error("run {run} is not in this log; expected its run statement before any {kind}")]
    UnknownRun {
        /// The run it names.
        run: RunId,
        /// What kind of statement it is.
        kind: &'static str,
    },
    /// A register that is not in the log: it makes its own.
    #[error(
        "registers are made by the log itself, after an opening or a verdict of a run; expected another kind"
    )]
    Register,
    /// Its signer has already predicted one of these steps, otherwise.
    #[error(
        "steps {steps} of this run are already predicted by this key: entry {index} predicts steps {predicted}"
    )]
    AlreadyPredicted {
        /// Steps of the refused prediction.
        steps: Steps,
        /// Steps of the one in the log.
        predicted: Steps,
        /// Its leaf index.
        index: u64,
    },
    /// Its signer has already opened this prediction, otherwise.
    #[error(
        "prediction {prediction} is already opened by this key: entry {index}, expected no second opening"
    )]
    AlreadyOpened {
        /// The prediction's entry.
        prediction: EntryDigest,
        /// Leaf index of the first opening.
        index: u64,
    },
}

/// Rule 1, which needs no log.
pub fn open(bytes: &[u8]) -> Result<Statement, Refusal> {
    Ok(Statement::open(bytes)?)
}

/// Rules 2 to 5, against all entries before this one. The outer error is the index's, the inner one the refusal.
pub fn admit(statement: &Statement, index: &Change<'_>) -> Result<Result<(), Refusal>, LogError> {
    let run = statement.payload.run();
    if matches!(statement.payload, Payload::Register(_)) {
        return Ok(Err(Refusal::Register));
    }
    if !matches!(statement.payload, Payload::Run(_)) && index.find_run(run)?.is_none() {
        return Ok(Err(Refusal::UnknownRun { run, kind: statement.payload.stem() }));
    }
    if let Payload::Prediction(prediction) = &statement.payload {
        let steps = prediction.steps;
        if let Some((predicted, index)) = index.find_prediction(run, statement.signer, steps)? {
            return Ok(Err(Refusal::AlreadyPredicted { steps, predicted, index }));
        }
    }
    if let Payload::Opening(opening) = &statement.payload {
        let prediction = opening.prediction;
        if let Some(index) = index.find_opening(prediction, statement.signer)? {
            return Ok(Err(Refusal::AlreadyOpened { prediction, index }));
        }
    }
    Ok(Ok(()))
}
