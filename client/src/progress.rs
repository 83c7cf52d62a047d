//! What is said while steps are computed: a bar on a terminal, a line now and then anywhere else.

use crate::output;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

/// Time between two lines where there is no terminal: a night's log stays short.
const LINE_EVERY: Duration = Duration::from_secs(30);

/// Progress of steps, predicted or computed again.
pub struct Progress {
    bar: Option<ProgressBar>,
    pace: Pace,
    started: Instant,
}

impl Progress {
    /// Of the steps `first..end`.
    pub fn start(first: u64, end: u64) -> Progress {
        let style = "step {pos}/{len} {wide_bar} {msg} {elapsed} left {eta}";
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(end).with_position(first);
            bar.reset_eta();
            bar.with_style(ProgressStyle::with_template(style).expect("progress: the template is a constant"))
        });
        Progress { bar, pace: Pace { first, end, told: Duration::ZERO }, started: Instant::now() }
    }

    /// A step is done, of which there is this to say.
    pub fn done(&mut self, step: u64, said: &str) {
        match &self.bar {
            Some(bar) => {
                bar.set_message(said.to_owned());
                bar.set_position(step + 1);
            }
            None => {
                if let Some(line) = self.pace.line(step, said, self.started.elapsed()) {
                    output::progress(&line);
                }
            }
        }
    }

    /// Nothing more is coming.
    pub fn finish(&self) {
        self.bar.iter().for_each(|bar| bar.finish_and_clear());
    }
}

/// When to say a line, and what.
struct Pace {
    first: u64,
    end: u64,
    told: Duration,
}

impl Pace {
    /// The line after `step`, `elapsed` after the start; none if the last one was a moment ago.
    fn line(&mut self, step: u64, said: &str, elapsed: Duration) -> Option<String> {
        if elapsed < self.told + LINE_EVERY {
            return None;
        }
        self.told = elapsed;
        let (done, left) = (step + 1 - self.first, self.end - step - 1);
        let left = elapsed.as_secs_f64() / done as f64 * left as f64;
        Some(format!("step {} of {}, {said}, about {} left", step + 1, self.end, duration(left)))
    }
}

/// A time in words.
pub fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 1.5 => "1 second".into(),
        s if s < 120.0 => format!("{s:.0} seconds"),
        s if s < 7200.0 => format!("{:.0} minutes", s / 60.0),
        s => format!("{:.1} hours", s / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_comes_every_half_minute_and_tells_the_time_left() {
        let mut pace = Pace { first: 10, end: 110, told: Duration::ZERO };
        let line =
            |pace: &mut Pace, step, seconds| pace.line(step, "loss 3.2500", Duration::from_secs(seconds));
        assert_eq!(line(&mut pace, 10, 29), None);
        let want = "step 12 of 110, loss 3.2500, about 24 minutes left";
        assert_eq!(line(&mut pace, 11, 30).as_deref(), Some(want));
        assert_eq!(line(&mut pace, 12, 59), None);
        let want = "step 110 of 110, loss 3.2500, about 1 second left";
        assert_eq!(line(&mut pace, 109, 60).as_deref(), Some(want));
    }
}
