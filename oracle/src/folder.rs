//! The folder a prediction is kept in. One place says what stands where.
//!
//! ```text
//! OUT/job/         run.cose plan.cbor initial.safetensors tokens.bin      for the operator of the devices
//! OUT/prediction/  run.cose plan.cbor prediction.cose body.cbor salt      secret until the devices have answered
//!                  steps/steps-000000-000100.cbor snapshots/step-000100.safetensors step-000100.digest
//! ```

use anyhow::Context;
use client::steps::{self, Kept};
use schemas::record::StepRecord;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use step::setup::Setup;
use step::snapshot;
use step::state::State;

/// A prediction's folder.
pub struct Folder {
    root: PathBuf,
}

impl Folder {
    /// Opens the folder, creating what is missing.
    pub fn create(root: &Path) -> anyhow::Result<Folder> {
        let folder = Folder { root: root.to_owned() };
        for part in ["steps", "snapshots"] {
            let path = folder.prediction(part);
            std::fs::create_dir_all(&path).with_context(|| format!("could not create {}", path.display()))?;
        }
        // What a call was writing when it was ended.
        for part in ["steps", "snapshots"] {
            let left = std::fs::read_dir(folder.prediction(part)).into_iter().flatten().flatten();
            for path in left.map(|entry| entry.path()) {
                if path.extension().is_some_and(|ending| ending == "partial" || ending == "part") {
                    std::fs::remove_file(&path)
                        .with_context(|| format!("could not remove {}", path.display()))?;
                }
            }
        }
        // Whoever reads this folder before the devices have answered can copy the answers.
        let secret = folder.prediction("");
        std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o700))
            .with_context(|| format!("could not make {} private", secret.display()))?;
        let job = folder.job("");
        std::fs::create_dir_all(&job).with_context(|| format!("could not create {}", job.display()))?;
        Ok(folder)
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
    pub fn keep_steps(&self, first: u64, steps: &[Kept]) -> anyhow::Result<()> {
        Ok(steps::write(&self.prediction("steps"), first, steps)?)
    }

    /// The records of the steps from `first` on that are here, whole and without a gap.
    pub fn records(&self, first: u64, end: u64) -> Vec<StepRecord> {
        let kept = steps::read(&self.prediction("steps"), first..end);
        let gapless = (first..).zip(kept).take_while(|(expected, (step, _))| expected == step);
        gapless.map(|(_, (_, kept))| kept.record).collect()
    }

    /// Saves the state before its next step.
    pub fn keep_snapshot(&self, setup: &Setup, state: &State) -> anyhow::Result<()> {
        Ok(snapshot::keep(&self.prediction("snapshots"), &setup.plan.parameters, state)?)
    }

    /// Steps with a saved state before them from which the records `first..` already here go on without a gap, at most
    /// at `end`, latest first.
    pub fn resumable(&self, first: u64, end: u64) -> Vec<u64> {
        let known = first + self.records(first, end).len() as u64;
        let steps = snapshot::saved_steps(&self.prediction("snapshots")).into_iter().rev();
        steps.filter(|step| *step <= known).collect()
    }

    /// The saved state before `step`, if it is the one that was saved.
    pub fn snapshot(&self, setup: &Setup, step: u64) -> Option<State> {
        match snapshot::kept(&self.prediction("snapshots"), &setup.plan.parameters, step) {
            Ok(state) => Some(state),
            Err(error) => {
                eprintln!("oracle: note: not used: {error}");
                None
            }
        }
    }
}
