//! What a log admits (docs/spec/ledger.md#admission) and registers (docs/spec/register.md), derived again from its
//! entries, one after the other.

use crate::monitor::finding::{Finding, Kind};
use crate::monitor::state::{Change, StateError};
use schemas::digest::RunId;
use schemas::statement::{Payload, Statement, StatementError};
use tlog::note::{Verifier as _, VerifierKey};
use tlog::tree::TreeSize;

/// An entry as it was read: a statement, or why it is none.
pub(crate) type Read = Result<Statement, StatementError>;

/// The rules of one log.
pub(crate) struct Rules<'a> {
    pub(crate) log: &'a VerifierKey,
    pub(crate) now_unix_s: u64,
}

impl Rules<'_> {
    /// The log's first entry.
    pub(crate) fn genesis(&self, entry: &[u8], change: &Change) -> Result<(), StateError> {
        let expected = format!("tallystick log v1\norigin {}\n", self.log.name());
        match entry == expected.as_bytes() {
            true => Ok(()),
            false => {
                let message = format!("entry 0 does not name the log, expected {expected:?}");
                self.find(change, Finding::new(Kind::Genesis, "0", message))
            }
        }
    }

    /// Any later entry, in order.
    pub(crate) fn entry(&self, index: u64, entry: &Read, change: &Change) -> Result<(), StateError> {
        let statement = match entry {
            Ok(statement) => statement,
            Err(error) => {
                let message = format!("entry {index} is no valid statement: {error}");
                return self.find(change, Finding::new(Kind::Invalid, index.to_string(), message));
            }
        };
        let Statement { digest, signer, payload } = statement;
        let run = payload.run();
        let mut lists = change.run(run)?;
        if matches!(payload, Payload::Run(_)) {
            lists.known = true;
        } else if !lists.known {
            let kind = payload.stem();
            let message =
                format!("entry {index}, a {kind}, is of run {run}, whose run statement is not below it");
            self.find(change, Finding::new(Kind::UnknownRun, index.to_string(), message))?;
        }
        match payload {
            Payload::Prediction(prediction) => {
                if let Some((steps, first)) = change.predict(run, *signer, prediction.steps, index)? {
                    let message = format!(
                        "entry {index} predicts steps {} of run {run} by {signer}, who predicts steps {steps} of it \
                         in entry {first}",
                        prediction.steps
                    );
                    self.find(change, Finding::new(Kind::SecondPrediction, index.to_string(), message))?;
                }
                if prediction.open.is_none() {
                    change.seal(*digest, *signer, run, (prediction.reveal_by, index))?;
                }
            }
            Payload::Opening(opening) => {
                if let Some(first) = change.open(opening.prediction, *signer, run, index)? {
                    let prediction = opening.prediction;
                    let message = format!(
                        "entry {index} opens prediction {prediction} by {signer}, as entry {first} does"
                    );
                    self.find(change, Finding::new(Kind::SecondOpening, index.to_string(), message))?;
                }
            }
            Payload::Register(register) => {
                let differs = lists.differs(index, register, *signer, self.log.public_key());
                if let Some(what) = &differs {
                    let message = format!("entry {index}, a register of run {run}, {what}");
                    self.find(change, Finding::new(Kind::RegisterWrong, index.to_string(), message))?;
                }
                let by_the_log = signer.to_bytes() == *self.log.public_key();
                match lists.waiting {
                    Some(at) if by_the_log => {
                        lists.waiting = None;
                        change.set_waiting(at, run, false)?;
                    }
                    None if by_the_log => {
                        let message = format!(
                            "entry {index} is a register of run {run}, with no opening or verdict since the last one"
                        );
                        self.find(change, Finding::new(Kind::RegisterExtra, index.to_string(), message))?;
                    }
                    _ => {}
                }
            }
            Payload::Run(_) | Payload::Receipt(_) | Payload::Verdict(_) => {}
        }
        if matches!(payload, Payload::Opening(_) | Payload::Verdict(_)) && lists.waiting.is_none() {
            lists.waiting = Some(index);
            change.set_waiting(index, run, true)?;
        }
        lists.push(index, statement);
        change.keep_run(run, &lists)
    }

    /// A published checkpoint: nothing may wait for a register.
    pub(crate) fn published(&self, size: TreeSize, change: &Change) -> Result<(), StateError> {
        for (index, run) in change.waiting()? {
            let message = missing(index, run, size);
            self.find(change, Finding::new(Kind::RegisterMissing, index.to_string(), message))?;
        }
        Ok(())
    }

    /// The time: sealed predictions that should be open by now.
    pub(crate) fn overdue(&self, change: &Change) -> Result<(), StateError> {
        for (time, index, prediction) in change.take_overdue(self.now_unix_s)? {
            let message = format!(
                "prediction {prediction}, entry {index}, had to be opened by {time} (POSIX seconds) and is not, at {}",
                self.now_unix_s
            );
            self.find(change, Finding::new(Kind::Overdue, index.to_string(), message))?;
        }
        Ok(())
    }

    /// Keeps a finding, with the time.
    pub(crate) fn find(&self, change: &Change, finding: Finding) -> Result<(), StateError> {
        change.find(&finding, self.now_unix_s)
    }
}

fn missing(index: u64, run: RunId, size: TreeSize) -> String {
    format!("entry {index} of run {run} has no register above it at the checkpoint of size {size}")
}
