//! Reading what the oracle and the devices wrote.
//!
//! ```text
//! prediction/  run.cose plan.cbor prediction.cose body.cbor salt
//!              steps/steps-000000-000100.cbor snapshots/step-000100.safetensors
//! receipts/    receipt-0.cose receipt-0.body.cbor traces/rank-0/step-000000-leaf-0000.cbor
//! ```

use crate::output::{self, Hinted};
use anyhow::{Context as _, anyhow, ensure};
use schemas::attachment::ATTACHMENT_BYTES_MAX;
use schemas::digest::{EntryDigest, RunId, Salt};
use schemas::key::PublicKey;
use schemas::object::Object as _;
use schemas::plan::Plan;
use schemas::prediction::{Prediction, PredictionBody};
use schemas::run::Run;
use schemas::statement::{Payload, STATEMENT_BYTES_MAX, Statement};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use step::file::open_file;
use verify::prediction::{PredictionError, read_body, read_plan};

/// Reads a file of at most `bytes_max` bytes.
pub fn read_file(path: &Path, bytes_max: u64) -> anyhow::Result<Vec<u8>> {
    let named = || format!("cannot read {}", path.display());
    let mut bytes = Vec::new();
    open_file(path).with_context(named)?.take(bytes_max + 1).read_to_end(&mut bytes).with_context(named)?;
    // The path stays in the context: a refusal, which is public, tells the innermost message alone.
    if bytes.len() as u64 > bytes_max {
        return Err(anyhow!("expected at most {bytes_max} bytes, found more")).with_context(named);
    }
    Ok(bytes)
}

/// Reads and opens a signed statement.
pub fn read_statement(path: &Path) -> anyhow::Result<(Vec<u8>, Statement)> {
    let bytes = read_file(path, STATEMENT_BYTES_MAX as u64)?;
    let statement = Statement::open(&bytes).with_context(|| path.display().to_string())?;
    Ok((bytes, statement))
}

/// The public part of a prediction's folder: the two entries that are in the log.
pub struct Entries {
    /// The folder.
    pub folder: PathBuf,
    /// The run statement.
    pub run_bytes: Vec<u8>,
    /// What it says.
    pub run: Run,
    /// Who signed it.
    pub run_signer: PublicKey,
    /// Its id.
    pub id: RunId,
    /// The prediction statement.
    pub prediction_bytes: Vec<u8>,
    /// Its name.
    pub prediction_digest: EntryDigest,
    /// What it says.
    pub prediction: Prediction,
    /// Who predicted.
    pub predictor: PublicKey,
}

/// Reads run.cose and prediction.cose.
pub fn read_entries(folder: &Path) -> anyhow::Result<Entries> {
    let advice = |error: anyhow::Error| match folder.join("prediction.cose").exists() {
        true => error,
        false => {
            Hinted::new(output::message_of(&error), "the oracle writes OUT/prediction; give that folder")
                .into()
        }
    };
    let run_path = folder.join("run.cose");
    let prediction_path = folder.join("prediction.cose");
    let (run_bytes, run) = read_statement(&run_path).map_err(advice)?;
    let run_signer = run.signer;
    let (prediction_bytes, predicted) = read_statement(&prediction_path).map_err(advice)?;
    let Payload::Run(run) = run.payload else {
        anyhow::bail!("{}: expected a run statement, found {}", run_path.display(), run.payload.stem());
    };
    let Payload::Prediction(prediction) = predicted.payload else {
        let found = predicted.payload.stem();
        anyhow::bail!("{}: expected a prediction statement, found {found}", prediction_path.display());
    };
    let id = run.id();
    ensure!(
        prediction.run == id,
        "{}: expected a prediction of run {id}, found one of {}",
        prediction_path.display(),
        prediction.run
    );
    Ok(Entries {
        folder: folder.to_owned(),
        run_bytes,
        run,
        run_signer,
        id,
        prediction_bytes,
        prediction_digest: predicted.digest,
        prediction,
        predictor: predicted.signer,
    })
}

/// The secret part of a prediction's folder: what opens it.
pub struct Secrets {
    /// The encoded plan.
    pub plan_bytes: Vec<u8>,
    /// The plan.
    pub plan: Plan,
    /// The salt.
    pub salt: Salt,
    /// The encoded body.
    pub body_bytes: Vec<u8>,
    /// The body.
    pub body: PredictionBody,
}

/// Reads plan.cbor, salt and body.cbor, and checks that they are what run and prediction committed to.
pub fn read_secrets(entries: &Entries) -> anyhow::Result<Secrets> {
    let path = |name: &str| entries.folder.join(name);
    let plan_bytes = read_file(&path("plan.cbor"), Plan::BYTES_MAX as u64)?;
    let plan =
        read_plan(&entries.run, &plan_bytes).with_context(|| path("plan.cbor").display().to_string())?;
    let salt_path = path("salt");
    let text = read_file(&salt_path, 4096)?;
    let text = String::from_utf8(text).with_context(|| salt_path.display().to_string())?;
    // The text is not repeated in a message: until the opening it is a secret.
    let salt: Salt = text
        .trim()
        .parse()
        .map_err(|_| anyhow::anyhow!("{}: expected 64 lower-case hexadecimal digits", salt_path.display()))?;
    let body_bytes = read_file(&path("body.cbor"), ATTACHMENT_BYTES_MAX)?;
    let body = read_body(entries.id, &entries.run, &entries.prediction, salt, &body_bytes)
        .map_err(|error| other_seal(entries, error))?;
    Ok(Secrets { plan_bytes, plan, salt, body_bytes, body })
}

/// What is wrong with a body, and what to do if it is not the one that was sealed, or the salt is not.
fn other_seal(entries: &Entries, error: PredictionError) -> anyhow::Error {
    let message = format!("{}: {error}", entries.folder.join("body.cbor").display());
    match error {
        PredictionError::Seal { .. } => {
            let hint = "one of salt and body.cbor is damaged: `oracle predict` again with the same --out makes the \
                        body anew; the salt has to come from a copy";
            Hinted::new(message, hint).into()
        }
        _ => anyhow!("{message}"),
    }
}

/// Where a device's trace of a step and leaf lies, within `traces/rank-R/`.
pub fn trace_name(step: u64, leaf: u64) -> String {
    format!("step-{step:06}-leaf-{leaf:04}.cbor")
}

/// A receipt's two files.
pub struct ReceiptFiles {
    /// The folder they are in; traces are there too.
    pub folder: PathBuf,
    /// The statement.
    pub statement: PathBuf,
    /// The encoded body.
    pub body: PathBuf,
}

/// Lists the receipts of a folder by name.
pub fn list_receipts(folder: &Path) -> anyhow::Result<Vec<ReceiptFiles>> {
    let named = || format!("cannot read folder {}", folder.display());
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(named)? {
        let name = entry.with_context(named)?.file_name();
        let Some(stem) = name.to_str().and_then(|name| name.strip_suffix(".cose")) else { continue };
        if stem.starts_with("receipt-") {
            files.push(ReceiptFiles {
                folder: folder.to_owned(),
                statement: folder.join(format!("{stem}.cose")),
                body: folder.join(format!("{stem}.body.cbor")),
            });
        }
    }
    files.sort_by(|a, b| a.statement.cmp(&b.statement));
    Ok(files)
}
