//! What a run shows while it runs: a bar on stderr, hidden when that is not a terminal.

use crate::rank::Progress;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use schemas::run::Steps;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Gathers what devices report, step by step.
pub struct Watch {
    bar: ProgressBar,
    end: u64,
    devices: usize,
    step_tokens: u64,
    /// When the first step of this process was begun.
    started: Option<Instant>,
    waiting: BTreeMap<u64, Vec<Progress>>,
    finished: Vec<Loss>,
    /// How many of them were finished before this process started.
    earlier: u64,
}

/// A step that all devices of this process have finished.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Loss {
    /// Which step.
    pub step: u64,
    /// The f32 sum of its leaves' losses in ascending order, divided by their number: the very value that the
    /// oracle shows. It is for people; receipts hold the bits of each leaf. A NaN if a partner was lost before it told
    /// its part.
    pub mean: f32,
}

/// The mean of losses, by their bits.
pub fn mean(losses: &[u32]) -> f32 {
    losses.iter().map(|loss| f32::from_bits(*loss)).sum::<f32>() / losses.len() as f32
}

/// What was seen of a run, for its summary.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    /// Steps that this process finished.
    pub steps: u64,
    /// The first step that was asked for.
    pub first: Option<Loss>,
    /// The last one.
    pub last: Option<Loss>,
    /// Tokens in the steps that this process finished.
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
    /// Waits for the reports of `devices` devices. Steps before `steps` are run, and shown, as well.
    pub fn start(steps: Steps, devices: usize, step_tokens: u64) -> Watch {
        // Hidden by itself when stderr is not a terminal.
        let bar = ProgressBar::with_draw_target(Some(steps.end), ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("{elapsed_precise} {wide_bar} step {pos} of {len}, {msg}");
        bar.set_style(style.expect("progress: the template is well-formed"));
        Watch {
            bar,
            end: steps.end,
            devices,
            step_tokens,
            started: None,
            waiting: BTreeMap::new(),
            finished: Vec::new(),
            earlier: 0,
        }
    }

    /// Takes a device's report of a step.
    pub fn see(&mut self, progress: Progress) {
        let (step, earlier) = (progress.step, progress.earlier);
        // Waiting for peers and building kernels is no part of a step's time.
        let began = Instant::now().checked_sub(Duration::from_micros(progress.micros));
        let reports = self.waiting.entry(step).or_default();
        reports.push(progress);
        if reports.len() < self.devices {
            return;
        }
        let reports = self.waiting.remove(&step).unwrap_or_default();
        let losses = reports.iter().find_map(|report| report.losses.as_deref());
        let mean = losses.map_or(f32::NAN, mean);
        self.finished.push(Loss { step, mean });
        self.earlier += u64::from(earlier);
        self.bar.set_position(step + 1);
        if earlier {
            return;
        }
        let spent = self.started.get_or_insert(began.unwrap_or_else(Instant::now)).elapsed();
        let count = self.finished.len() as u64 - self.earlier;
        let speed = per_second(count * self.step_tokens, spent);
        let left = spent.as_secs_f64() / count as f64 * (self.end - step - 1) as f64;
        self.bar.set_message(format!("loss {mean:.4}, {speed:.0} tokens/s, {} left", time_text(left)));
    }

    /// Takes the bar away.
    pub fn stop(self, steps: Steps) -> Seen {
        self.bar.finish_and_clear();
        let count = self.finished.len() as u64 - self.earlier;
        Seen {
            steps: count,
            first: self.finished.iter().find(|loss| steps.first <= loss.step).copied(),
            last: self.finished.last().filter(|loss| steps.first <= loss.step).copied(),
            tokens: count * self.step_tokens,
            spent: self.started.map(|started| started.elapsed()).unwrap_or_default(),
        }
    }
}

/// A time in seconds, in the unit in which people would say it.
pub fn time_text(seconds: f64) -> String {
    match seconds {
        ..120.0 => format!("{seconds:.0} s"),
        ..7200.0 => format!("{:.0} min", seconds / 60.0),
        ..172_800.0 => format!("{:.1} h", seconds / 3600.0),
        _ => format!("{:.1} days", seconds / 86_400.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(rank: u64, step: u64, losses: &[f32]) -> Progress {
        let losses = Some(losses.iter().map(|loss| loss.to_bits()).collect());
        Progress { rank, step, losses, norm: None, micros: 10, unix_ms: 0, earlier: false }
    }

    #[test]
    fn a_step_counts_once_all_devices_have_finished_it() {
        let steps = Steps { first: 1, end: 3 };
        let mut watch = Watch::start(steps, 2, 10);
        for (rank, step, loss) in [(0, 0, 8.0), (0, 1, 2.0), (1, 0, 8.0), (1, 1, 2.0), (0, 2, 1.0)] {
            watch.see(progress(rank, step, &[loss]));
        }
        let seen = watch.stop(steps);
        let loss = Some(Loss { step: 1, mean: 2.0 });
        assert_eq!((seen.steps, seen.first, seen.last, seen.tokens), (2, loss, loss, 20));
    }

    #[test]
    fn steps_of_an_earlier_process_are_shown_and_not_counted() {
        let steps = Steps { first: 0, end: 3 };
        let mut watch = Watch::start(steps, 1, 10);
        watch.see(Progress { earlier: true, ..progress(0, 0, &[3.0]) });
        watch.see(Progress { losses: None, ..progress(0, 1, &[]) });
        watch.see(progress(0, 2, &[1.0]));
        let seen = watch.stop(steps);
        assert_eq!((seen.steps, seen.tokens), (2, 20));
        let loss = |step, mean| Some(Loss { step, mean });
        assert_eq!((seen.first, seen.last), (loss(0, 3.0), loss(2, 1.0)));
    }

    #[test]
    fn the_mean_is_summed_in_the_order_of_the_leaves() {
        // In f32, (2^24 + 1) + 1 is 2^24, but (1 + 1) + 2^24 is 2^24 + 2.
        let losses = [1.0_f32, 1.0, 16_777_216.0, 0.0].map(f32::to_bits);
        assert_eq!(mean(&losses).to_bits(), (16_777_218.0_f32 / 4.0).to_bits());
    }

    #[test]
    fn times_are_said_as_people_say_them() {
        let texts = [0.0, 119.0, 120.0, 7199.0, 7200.0, 200_000.0].map(time_text);
        assert_eq!(texts, ["0 s", "119 s", "2 min", "120 min", "2.0 h", "2.3 days"]);
    }
}
