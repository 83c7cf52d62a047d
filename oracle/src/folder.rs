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
use std::ffi::OsStr;
use std::fs::{File, TryLockError};
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
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let message = format!("expected {} free, found another call at work in it", secret.display());
                anyhow::bail!(Hinted::new(message, "let that call end, or choose another --out"))
            }
            // Some network file systems have no locks; a prediction can be made there all the same.
            Err(TryLockError::Error(error)) => {
                let folder = secret.display();
                eprintln!("oracle: note: {folder} cannot be locked ({error}): let no other call work there");
            }
        }
        Ok(Folder { root: root.to_owned(), _lock: lock })
    }

    /// Takes the folder for this run: nobody else may read the prediction, and what an earlier call was writing when
    /// it was ended is removed. Only files whose names are this program's own are touched.
    pub fn take(&self) -> anyhow::Result<()> {
        let secret = self.prediction("");
        // Whoever reads this folder before the devices have answered can copy the answers.
        std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o700))
            .with_context(|| format!("could not make {} private", secret.display()))?;
        let folders = [self.prediction("steps"), self.prediction("snapshots"), self.job(""), secret];
        for entry in folders.iter().flat_map(|folder| std::fs::read_dir(folder).into_iter().flatten()) {
            let path = entry.with_context(|| format!("could not read {}", self.root.display()))?.path();
            if path.file_name().and_then(OsStr::to_str).is_some_and(is_left_over) {
                let named = || format!("could not remove {}", path.display());
                std::fs::remove_file(&path).with_context(named)?;
            }
        }
        Ok(())
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
        let folder = self.prediction("snapshots");
        Ok(snapshot::keep(&folder, &setup.plan.parameters, setup.run.id(), state)?)
    }

    /// Steps with a saved state before them from which the records `first..` already here go on without a gap, at most
    /// at `end`, latest first.
    pub fn resumable(&self, run: RunId, first: u64, end: u64) -> Vec<u64> {
        let known = first + self.records(run, first, end).len() as u64;
        let steps = snapshot::saved_steps(&self.prediction("snapshots")).into_iter().rev();
        steps.filter(|step| *step <= known).collect()
    }

    /// The saved state before `step`, if it is the one that was saved for this run, with the parameters that the record
    /// of the step before, where that is here, ends with: a snapshot from elsewhere would give a false prediction.
    pub fn snapshot(&self, setup: &Setup, step: u64) -> Option<State> {
        let (folder, run) = (self.prediction("snapshots"), setup.run.id());
        let state = match snapshot::kept(&folder, &setup.plan.parameters, run, step) {
            Ok(state) => state,
            Err(error) => {
                eprintln!("oracle: note: not used: {error}");
                return None;
            }
        };
        let before = step.checked_sub(1).and_then(|before| self.records(run, before, step).pop());
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

/// Whether a name is one that this program gives to a file while it writes it, beside the file's own place.
fn is_left_over(name: &str) -> bool {
    let own = |name: &str| {
        let numbered = ["steps-", "step-"].iter().any(|start| name.starts_with(start));
        let names = [
            "run.cose",
            "plan.cbor",
            "tokens.bin",
            "initial.safetensors",
            "salt",
            "body.cbor",
            "prediction.cose",
        ];
        numbered || names.contains(&name)
    };
    // `client::atomic` writes `.NAME.<16 digits>.partial`, `step::snapshot` writes `NAME.part`.
    let staged = name.strip_prefix('.').and_then(|name| name.strip_suffix(".partial"));
    let staged = staged.and_then(|name| name.rsplit_once('.')).map(|(name, _)| name);
    staged.or(name.strip_suffix(".part")).is_some_and(own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_that_this_program_was_writing_are_left_over() {
        for name in [
            ".run.cose.0123456789abcdef.partial",
            ".steps-000000-000005.cbor.0123456789abcdef.partial",
            ".salt.0123456789abcdef.partial",
            "initial.safetensors.part",
            "step-000005.safetensors.part",
            "step-000005.digest.part",
        ] {
            assert!(is_left_over(name), "{name}");
        }
        for name in [
            "run.cose",
            "steps-000000-000005.cbor",
            "step-000005.digest",
            // `client challenge` may be writing just now.
            ".challenge.note.0123456789abcdef.partial",
            "corpus.part",
            "notes.partial",
            ".partial",
            ".part",
        ] {
            assert!(!is_left_over(name), "{name}");
        }
    }
}
