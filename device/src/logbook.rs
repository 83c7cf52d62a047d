//! What a run leaves for people: a line of JSON for each finished step, and a picture of the loss
//! (docs/spec/work.md#log). Both are made again from the records when a run goes on.

use crate::plot;
use crate::progress::mean;
use crate::rank::Progress;
use crate::staging::{parent_of, write_atomic};
use serde_json::json;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// The log and the picture of one process.
pub struct Logbook {
    log: PathBuf,
    picture: PathBuf,
    title: String,
    file: Option<File>,
    /// Reports of a step that some device of this process has yet to finish.
    waiting: BTreeMap<u64, Vec<Progress>>,
    devices: usize,
    step_tokens: u64,
    picture_every: u64,
    losses: Vec<(u64, f32)>,
    /// The first thing that could not be written. The run goes on: receipts do not need it.
    pub failure: Option<String>,
}

impl Logbook {
    /// The log in `out` of a process with `devices` devices, of which `rank` is the first.
    pub fn new(
        out: &Path,
        title: &str,
        rank: u64,
        devices: usize,
        step_tokens: u64,
        picture_every: u64,
    ) -> Logbook {
        let suffix = if rank == 0 { String::new() } else { format!("-{rank}") };
        Logbook {
            log: out.join(format!("log{suffix}.jsonl")),
            picture: out.join(format!("loss{suffix}.svg")),
            title: title.to_owned(),
            file: None,
            waiting: BTreeMap::new(),
            devices,
            step_tokens,
            picture_every,
            losses: Vec::new(),
            failure: None,
        }
    }

    /// Begins the log with the steps that were finished before this process started.
    pub fn begin(&mut self, earlier: &[Progress]) {
        let mut lines = String::new();
        for progress in earlier {
            lines.extend(self.line(progress));
        }
        let begun = fs::create_dir_all(parent_of(&self.log))
            .and_then(|()| write_atomic(&self.log, lines.as_bytes(), 0o644))
            .and_then(|()| OpenOptions::new().append(true).open(&self.log));
        self.file = begun.map_err(|error| self.note(error)).ok();
    }

    /// Adds a line once all devices of this process have finished a step.
    pub fn see(&mut self, progress: &Progress) {
        if let Some(line) = self.line(progress)
            && let Some(file) = &mut self.file
            && let Err(error) = file.write_all(line.as_bytes())
        {
            self.note(error);
            self.file = None;
        }
        if self.waiting.is_empty()
            && self.picture_every > 0
            && (progress.step + 1).is_multiple_of(self.picture_every)
        {
            self.draw();
        }
    }

    /// Writes the picture and waits until the log is on disk.
    pub fn finish(&mut self) {
        self.draw();
        if let Some(Err(error)) = self.file.as_ref().map(File::sync_all) {
            self.note(error);
        }
    }

    fn draw(&mut self) {
        let picture = plot::draw(&self.title, &self.losses);
        if let Err(error) = write_atomic(&self.picture, picture.as_bytes(), 0o644) {
            self.note(error);
        }
    }

    fn note(&mut self, error: io::Error) {
        self.failure.get_or_insert(format!("{}: {error}", self.log.display()));
    }

    /// The line of a step, once all have reported it.
    fn line(&mut self, progress: &Progress) -> Option<String> {
        let reports = self.waiting.entry(progress.step).or_default();
        reports.push(progress.clone());
        if reports.len() < self.devices {
            return None;
        }
        let reports = self.waiting.remove(&progress.step)?;
        let loss = reports.iter().find_map(|report| report.losses.as_deref()).map(mean);
        let norm = reports.iter().find_map(|report| report.norm).map(f32::from_bits);
        let slowest = reports.iter().max_by_key(|report| report.micros)?;
        let seconds = slowest.micros as f64 / 1e6;
        self.losses.extend(loss.map(|loss| (progress.step, loss)));
        let line = json!({
            "step": progress.step,
            "loss": loss,
            "norm": norm,
            "tokens": self.step_tokens,
            "seconds": seconds,
            "tokens_per_s": self.step_tokens as f64 / seconds.max(1e-6),
            "unix_ms": slowest.unix_ms,
        });
        Some(format!("{line}\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn progress(rank: u64, step: u64, micros: u64) -> Progress {
        let losses = Some(vec![1.0_f32.to_bits(), 3.0_f32.to_bits()]);
        Progress { rank, step, losses, norm: Some(0.5_f32.to_bits()), micros, unix_ms: 7, earlier: false }
    }

    fn lines(path: &Path) -> Vec<Value> {
        let text = fs::read_to_string(path).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn a_step_has_one_line_once_all_devices_have_finished_it() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("out");
        let mut log = Logbook::new(&out, "title", 0, 2, 100, 2);
        log.begin(&[progress(0, 0, 500_000), progress(1, 0, 400_000)]);
        assert_eq!(lines(&out.join("log.jsonl")).len(), 1);
        for rank in [1, 0] {
            assert_eq!(lines(&out.join("log.jsonl")).len(), 1);
            log.see(&progress(rank, 1, 250_000 * (rank + 1)));
        }
        let all = lines(&out.join("log.jsonl"));
        assert_eq!(all.len(), 2);
        let expected = json!({
            "step": 1, "loss": 2.0, "norm": 0.5, "tokens": 100, "seconds": 0.5, "tokens_per_s": 200.0, "unix_ms": 7
        });
        assert_eq!(all[1], expected);
        assert!(out.join("loss.svg").exists(), "a picture every two steps");
        assert_eq!(log.failure, None);
    }

    #[test]
    fn a_log_is_begun_again_from_the_records() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log-3.jsonl");
        fs::write(&path, "{\"step\":0}\n{\"step\":1}\n{\"ste").unwrap();
        let mut log = Logbook::new(folder.path(), "title", 3, 1, 100, 0);
        log.begin(&[progress(3, 0, 1)]);
        log.see(&Progress { losses: None, norm: None, ..progress(3, 1, 1) });
        log.finish();
        let steps: Vec<Value> = lines(&path).into_iter().map(|line| line["step"].clone()).collect();
        assert_eq!(steps, [0, 1]);
        assert_eq!(lines(&path)[1]["loss"], Value::Null);
        assert!(folder.path().join("loss-3.svg").exists());
    }

    #[test]
    fn a_log_that_cannot_be_written_is_noted_and_stops_nothing() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("log.jsonl")).unwrap();
        let mut log = Logbook::new(folder.path(), "title", 0, 1, 100, 1);
        log.begin(&[]);
        log.see(&progress(0, 0, 1));
        assert!(log.failure.unwrap().contains("log.jsonl"));
    }
}
