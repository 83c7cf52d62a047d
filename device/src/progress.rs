//! What a run shows while it runs: a bar on stderr, hidden when that is not a terminal.

use crate::rank::Progress;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use schemas::run::Steps;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Gathers what devices report, step by step.
pub struct Watch {
    bar: ProgressBar,
    devices: u64,
    step_tokens: u64,
    started: Instant,
    waiting: BTreeMap<u64, Vec<Vec<u32>>>,
    finished: Vec<Loss>,
}

/// A step that all devices have finished.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Loss {
    /// Which step.
    pub step: u64,
    /// Mean over its leaves, for people: receipts hold the bits of each.
    pub mean: f64,
}

/// What was seen of a run, for its summary.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    /// Steps that all devices finished.
    pub steps: u64,
    /// The first of them that was asked for.
    pub first: Option<Loss>,
    /// The last of them.
    pub last: Option<Loss>,
    /// Tokens in them.
    pub tokens: u64,
    /// Time spent.
    pub spent: Duration,
}

impl Seen {
    /// Tokens in a second.
    pub fn tokens_per_s(&self) -> f64 {
        per_second(self.tokens, self.spent)
    }
}

fn per_second(tokens: u64, spent: Duration) -> f64 {
    // A clock too coarse to see the run would divide by nothing.
    tokens as f64 / spent.as_secs_f64().max(1e-9)
}

impl Watch {
    /// Starts the clock. Steps before `steps` are run, and shown, as well.
    pub fn start(steps: Steps, devices: u64, step_tokens: u64) -> Watch {
        // Hidden by itself when stderr is not a terminal.
        let bar = ProgressBar::with_draw_target(Some(steps.end), ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("{elapsed_precise} {wide_bar} step {pos} of {len}, {msg}");
        bar.set_style(style.expect("progress: the template is well-formed"));
        let (waiting, finished) = (BTreeMap::new(), Vec::new());
        Watch { bar, devices, step_tokens, started: Instant::now(), waiting, finished }
    }

    /// Takes a device's report of a step.
    pub fn see(&mut self, progress: Progress) {
        let reports = self.waiting.entry(progress.step).or_default();
        reports.push(progress.losses);
        if (reports.len() as u64) < self.devices {
            return;
        }
        let losses: Vec<u32> = self.waiting.remove(&progress.step).into_iter().flatten().flatten().collect();
        let sum: f64 = losses.iter().map(|&bits| f64::from(f32::from_bits(bits))).sum();
        let mean = sum / losses.len() as f64;
        self.finished.push(Loss { step: progress.step, mean });
        let speed = per_second(self.finished.len() as u64 * self.step_tokens, self.started.elapsed());
        self.bar.set_position(self.finished.len() as u64);
        self.bar.set_message(format!("loss {mean:.4}, {speed:.0} tokens/s"));
    }

    /// Takes the bar away.
    pub fn stop(self, steps: Steps) -> Seen {
        self.bar.finish_and_clear();
        let count = self.finished.len() as u64;
        Seen {
            steps: count,
            first: self.finished.iter().find(|loss| steps.first <= loss.step).copied(),
            last: self.finished.last().filter(|loss| steps.first <= loss.step).copied(),
            tokens: count * self.step_tokens,
            spent: self.started.elapsed(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_counts_once_all_devices_have_finished_it() {
        let steps = Steps { first: 1, end: 3 };
        let mut watch = Watch::start(steps, 2, 10);
        let losses = |loss: f32| vec![loss.to_bits()];
        for (rank, step, loss) in [(0, 0, 9.0), (0, 1, 1.0), (1, 0, 7.0), (1, 1, 3.0), (0, 2, 1.0)] {
            watch.see(Progress { rank, step, losses: losses(loss) });
        }
        let seen = watch.stop(steps);
        let loss = Some(Loss { step: 1, mean: 2.0 });
        assert_eq!((seen.steps, seen.first, seen.last, seen.tokens), (2, loss, loss, 20));
    }
}
