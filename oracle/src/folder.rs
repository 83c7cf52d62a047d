//! The folder a prediction is kept in. One place says what stands where.
//!
//! ```text
//! OUT/job/         run.cose plan.cbor initial.safetensors tokens.bin      for the operator of the devices
//! OUT/prediction/  run.cose plan.cbor prediction.cose body.cbor salt      secret until the devices have answered
//!                  records/ traces/ meetings/ snapshots/
//! ```

use anyhow::Context;
use client::atomic;
use schemas::digest::AttachmentDigest;
use schemas::object::Object;
use schemas::record::StepRecord;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use step::session::Step;
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
        for part in ["records", "traces", "meetings", "snapshots"] {
            let path = folder.prediction(part);
            std::fs::create_dir_all(&path).with_context(|| format!("could not create {}", path.display()))?;
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

    /// Keeps what a step produced. The record is written last: where it is, the rest is too.
    pub fn keep_step(&self, number: u64, step: &Step, traces: bool) -> anyhow::Result<()> {
        if traces {
            for trace in &step.traces {
                let name = format!("traces/step-{number:06}-leaf-{:04}.cbor", trace.leaf);
                atomic::write(&self.prediction(&name), &trace.encode(), atomic::PUBLIC)?;
            }
        }
        if let Some(meeting) = &step.meeting {
            atomic::write(
                &self.prediction(&format!("meetings/step-{number:06}.cbor")),
                &meeting.encode(),
                atomic::PUBLIC,
            )?;
        }
        let record = schemas::cbor::encode(&step.record.to_value());
        let bytes = [&AttachmentDigest::of(&record).0[..], &record].concat();
        Ok(atomic::write(&self.record_path(number), &bytes, atomic::PUBLIC)?)
    }

    /// The record of a step, if it is here and whole: the file begins with its SHA-256, since a damaged record would be
    /// sealed as it is and honest devices blamed for it.
    pub fn record(&self, number: u64) -> Option<StepRecord> {
        let bytes = std::fs::read(self.record_path(number)).ok()?;
        let (digest, record) = bytes.split_at_checked(32)?;
        let value = schemas::cbor::decode(record, 1 << 20).ok()?;
        if AttachmentDigest::of(record).0 != digest {
            eprintln!("oracle: note: {} is damaged, not used", self.record_path(number).display());
            return None;
        }
        StepRecord::from_value(value).ok()
    }

    fn record_path(&self, number: u64) -> PathBuf {
        self.prediction(&format!("records/step-{number:06}.cbor"))
    }

    /// Saves the state before its next step.
    pub fn keep_snapshot(&self, setup: &Setup, state: &State) -> anyhow::Result<()> {
        Ok(snapshot::keep(&self.prediction("snapshots"), &setup.plan.parameters, state)?)
    }

    /// The latest saved state from which the records `first..` already here go on without a gap, at most at `end`.
    pub fn resume(&self, setup: &Setup, first: u64, end: u64) -> Option<State> {
        let folder = self.prediction("snapshots");
        let gapless = |step: u64| (first..step).all(|number| self.record(number).is_some());
        let steps = snapshot::saved_steps(&folder).into_iter().rev();
        for step in steps.filter(|step| *step <= end && gapless(*step)) {
            match snapshot::kept(&folder, &setup.plan.parameters, step) {
                Ok(state) => return Some(state),
                Err(error) => eprintln!("oracle: note: not used: {error}"),
            }
        }
        None
    }
}
