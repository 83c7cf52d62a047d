//! The folder a prediction is kept in. One place says what stands where.
//!
//! ```text
//! OUT/job/         run.cose plan.cbor initial.safetensors tokens.bin      for the operator of the devices
//! OUT/prediction/  run.cose plan.cbor prediction.cose body.cbor salt      secret until the devices have answered
//!                  steps/steps-000000-000100.cbor snapshots/step-000100.safetensors step-000100.digest
//! ```

use anyhow::Context;
use client::output::Hinted;
use client::steps::{self, Kept};
use schemas::digest::RunId;
use schemas::record::StepRecord;
use std::fs::File;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use step::checksum::checksum_f32;
use step::setup::Setup;
use step::snapshot;
use step::state::State;

/// A prediction's folder, of which one call at a time has the use.
pub struct Folder {
    root: PathBuf,
    /// The lock: the folder `prediction` itself, open.
    _lock: File,
}

impl Folder {
    /// Opens the folder, creating what is missing. Refused while another call has it.
    pub fn create(root: &Path) -> anyhow::Result<Folder> {
        let (secret, job) = (root.join("prediction"), root.join("job"));
        let parts = [secret.join("steps"), secret.join("snapshots"), job.clone()];
        for path in &parts {
            std::fs::create_dir_all(path).map_err(|error| {
                let message = format!("could not create the folder {}: {error}", path.display());
                Hinted::new(message, "choose another --out")
            })?;
        }
        let lock = File::open(&secret).with_context(|| format!("could not open {}", secret.display()))?;
        if let Err(error) = lock.try_lock() {
            let message = format!("could not take the lock of {}: {error}", secret.display());
            anyhow::bail!(Hinted::new(
                message,
                "another call is at work there: let it end, or choose another --out"
            ));
        }
        // Whoever reads this folder before the devices have answered can copy the answers.
        std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o700))
            .with_context(|| format!("could not make {} private", secret.display()))?;
        // What a call was writing when it was ended.
        for folder in parts.iter().chain([&secret]) {
            for path in std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
                if path.extension().is_some_and(|ending| ending == "partial" || ending == "part") {
                    std::fs::remove_file(&path)
                        .with_context(|| format!("could not remove {}", path.display()))?;
                }
            }
        }
        Ok(Folder { root: root.to_owned(), _lock: lock })
    }

    /// A file of the job.
    pub fn job(&self, name: &str) -> PathBuf {
        self.root.join("job").join(name)
    }

    /// A file of the prediction.
    pub fn prediction(&self, name: &str) -> PathBuf {
        self.root.join("prediction").join(name)
    }

    /// Keeps the steps from `first` on.
    pub fn keep_steps(&self, run: RunId, first: u64, steps: &[Kept]) -> anyhow::Result<()> {
        Ok(steps::write(&self.prediction("steps"), run, first, steps)?)
    }

    /// The records of the steps from `first` on that are here, whole and without a gap.
    pub fn records(&self, run: RunId, first: u64, end: u64) -> Vec<StepRecord> {
        let kept = steps::read(&self.prediction("steps"), run, first..end);
        let gapless = (first..).zip(kept).take_while(|(expected, (step, _))| expected == step);
        gapless.map(|(_, (_, kept))| kept.record).collect()
    }

    /// Saves the state before its next step.
    pub fn keep_snapshot(&self, setup: &Setup, state: &State) -> anyhow::Result<()> {
        Ok(snapshot::keep(&self.prediction("snapshots"), &setup.plan.parameters, state)?)
    }

    /// Steps with a saved state before them from which the records `first..` already here go on without a gap, at most
    /// at `end`, latest first.
    pub fn resumable(&self, run: RunId, first: u64, end: u64) -> Vec<u64> {
        let known = first + self.records(run, first, end).len() as u64;
        let steps = snapshot::saved_steps(&self.prediction("snapshots")).into_iter().rev();
        steps.filter(|step| *step <= known).collect()
    }

    /// The saved state before `step`, if it is the one that was saved, and the one that the record before it, if that
    /// is here, ends with: a snapshot from elsewhere would give a false prediction.
    pub fn snapshot(&self, setup: &Setup, step: u64) -> Option<State> {
        let state = match snapshot::kept(&self.prediction("snapshots"), &setup.plan.parameters, step) {
            Ok(state) => state,
            Err(error) => {
                eprintln!("oracle: note: not used: {error}");
                return None;
            }
        };
        let before = step.checked_sub(1).and_then(|before| self.records(setup.run.id(), before, step).pop());
        let expected = before.and_then(|record| record.outcome).map(|outcome| outcome.parameters);
        let found = checksum_f32(&[state.parameters.len() as u64], &state.parameters);
        if expected.is_some_and(|expected| expected != found) {
            eprintln!(
                "oracle: note: not used: the snapshot before step {step} has other parameters than its record"
            );
            return None;
        }
        Some(state)
    }
}
