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
    /// By step and then by rank.
    waiting: BTreeMap<u64, BTreeMap<u64, Vec<u32>>>,
    finished: Vec<Loss>,
}

/// A step that all devices have finished.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Loss {
    /// Which step.
    pub step: u64,
    /// The f32 sum of its leaves' losses in ascending order, divided by their number: the very value that the
    /// oracle shows. It is for people; receipts hold the bits of each leaf.
    pub mean: f32,
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
        reports.insert(progress.rank, progress.losses);
        if (reports.len() as u64) < self.devices {
            return;
        }
        // Ranks own ascending ranges of leaves.
        let reports = self.waiting.remove(&progress.step).into_iter().flatten();
        let losses: Vec<f32> = reports.flat_map(|(_, losses)| losses).map(f32::from_bits).collect();
        let mean = losses.iter().sum::<f32>() / losses.len() as f32;
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

    #[test]
    fn the_mean_is_summed_in_the_order_of_the_leaves_whichever_device_is_first() {
        // In f32, (2^24 + 1) + 1 is 2^24, but (1 + 1) + 2^24 is 2^24 + 2.
        let losses = [[1.0_f32, 1.0], [16_777_216.0, 0.0]];
        for order in [[0, 1], [1, 0]] {
            let steps = Steps { first: 0, end: 1 };
            let mut watch = Watch::start(steps, 2, 10);
            for rank in order {
                let losses = losses[rank].map(f32::to_bits).to_vec();
                watch.see(Progress { rank: rank as u64, step: 0, losses });
            }
            assert_eq!(watch.stop(steps).last, Some(Loss { step: 0, mean: 16_777_218.0 / 4.0 }));
        }
    }
}
