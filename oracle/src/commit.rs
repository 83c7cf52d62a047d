//! `--commit`: puts a run and its prediction into the log.

use crate::cli::PredictArgs;
use crate::predict::Predicted;
use anyhow::Context;
use client::keyfile;
use client::ledger::Ledger;
use client::output::Hinted;
use schemas::digest::RunId;
use schemas::key::PublicKey;
use schemas::run::Steps;
use schemas::statement::{Payload, Statement};

/// The log to commit to.
pub struct Log {
    ledger: Ledger,
}

/// Where the two entries stand.
pub struct Committed {
    /// Leaf index of the run.
    pub run_index: u64,
    /// Leaf index of the prediction.
    pub prediction_index: u64,
}

impl Log {
    /// Connects to the log of the arguments.
    pub fn open(args: &PredictArgs) -> anyhow::Result<Log> {
        let address = args.ledger.as_deref().context("--commit needs --ledger")?;
        let key = args.log_key.as_deref().map(keyfile::log_key).transpose()?;
        let ledger = Ledger::connect(address, key.as_ref())?;
        if key.is_none() {
            eprintln!("oracle: no --log-key given, taking the key that {address} names: {}", ledger.key());
        }
        Ok(Log { ledger })
    }

    /// Refuses what the log will refuse: another prediction by the same key for some of the same steps. `own` is the
    /// entry that an earlier call made, if any. This is a courtesy before long work; the log itself decides.
    pub fn check_free(
        &self,
        run: RunId,
        predictor: PublicKey,
        steps: Steps,
        own: Option<&[u8]>,
    ) -> anyhow::Result<()> {
        for entry in self.ledger.run_entries(run)? {
            if entry.kind != "prediction" || entry.signer != predictor {
                continue;
            }
            let bytes = self.ledger.entry(entry.digest)?;
            let Payload::Prediction(earlier) = Statement::open(&bytes)?.payload else { continue };
            anyhow::ensure!(
                own == Some(&bytes[..]) || !earlier.steps.overlaps(steps),
                Hinted::new(
                    format!(
                        "entry {} already predicts steps {} of this run by this key",
                        entry.index, earlier.steps
                    ),
                    "predict again into the folder of that prediction, or make it another run (name or seed)",
                )
            );
        }
        Ok(())
    }

    /// Submits run and prediction; both calls are answered when the entry is durable and covered by a checkpoint, and
    /// both are safe to repeat. The body goes up only with an open prediction.
    pub fn commit(&self, predicted: &Predicted, args: &PredictArgs) -> anyhow::Result<Committed> {
        let run = self.ledger.submit(&predicted.run_entry)?;
        if args.open {
            self.ledger.attach(&predicted.body)?;
        }
        let prediction = self.ledger.submit(&predicted.prediction_entry)?;
        Ok(Committed { run_index: run.index, prediction_index: prediction.index })
    }
}
