//! `--commit`: puts a run and its prediction into the log.

use crate::cli::PredictArgs;
use crate::predict::Predicted;
use anyhow::Context;
use client::keyfile;
use client::ledger::Ledger;

/// Where the two entries stand.
pub struct Committed {
    /// Leaf index of the run.
    pub run_index: u64,
    /// Leaf index of the prediction.
    pub prediction_index: u64,
}

/// Submits run and prediction; both calls are answered when the entry is durable and covered by a checkpoint, and both
/// are safe to repeat. The body goes up only with an open prediction.
pub fn commit(predicted: &Predicted, args: &PredictArgs) -> anyhow::Result<Committed> {
    let address = args.ledger.as_deref().context("--commit needs --ledger")?;
    let key = args.log_key.as_deref().map(keyfile::log_key).transpose()?;
    let ledger = Ledger::connect(address, key.as_ref())?;
    if key.is_none() {
        eprintln!("oracle: no --log-key given, taking the key that {address} names: {}", ledger.key());
    }
    let run = ledger.submit(&predicted.run_entry)?;
    if args.open {
        ledger.attach(&predicted.body)?;
    }
    let prediction = ledger.submit(&predicted.prediction_entry)?;
    Ok(Committed { run_index: run.index, prediction_index: prediction.index })
}
