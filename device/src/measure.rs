//! How fast a device is, from one leaf of the run itself: what the time that a run would take is estimated from.

use crate::backend::{Backend, BackendError, Given, Honest, Which};
use crate::job::Job;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// How long a dry run measures at most.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// A leaf that takes less than this is measured once more: the first one also warms up.
const SHORT: Duration = Duration::from_secs(5);

/// What was measured.
#[derive(Clone, Debug, PartialEq)]
pub enum Pace {
    /// Times of the parts of a step.
    Measured {
        /// Of one leaf.
        leaf_s: f64,
        /// Of what a device does once in a step: digests, norm, update.
        rest_s: f64,
    },
    /// A leaf takes longer than this.
    Longer {
        /// How long was waited for it.
        leaf_s: f64,
    },
    /// Nothing, and why.
    Unknown(String),
}

impl Pace {
    /// The time of `steps` steps of a process that runs `devices` devices of so many leaves each, one after the other: devices
    /// of one process share what runs them. The second is false if it will take longer.
    pub fn time_s(&self, steps: u64, devices: u64, leaves_per_device: u64) -> Option<(f64, bool)> {
        let (leaf, rest, is_all) = match self {
            Pace::Measured { leaf_s, rest_s } => (*leaf_s, *rest_s, true),
            Pace::Longer { leaf_s } => (*leaf_s, 0.0, false),
            Pace::Unknown(_) => return None,
        };
        Some((steps as f64 * devices as f64 * (leaves_per_device as f64 * leaf + rest), is_all))
    }
}

/// Measures one leaf, and what follows the leaves, on a device of a backend. A leaf that takes too long goes on in a
/// thread that ends with the process: nothing can interrupt it.
pub fn measure(job: &'static Job, backend: &'static dyn Backend, patience: Duration) -> Pace {
    let (said, heard) = channel();
    std::thread::spawn(move || said.send(try_measure(job, backend)));
    match heard.recv_timeout(patience) {
        Ok(Ok(pace)) => pace,
        Ok(Err(error)) => Pace::Unknown(error.to_string()),
        Err(RecvTimeoutError::Timeout) => Pace::Longer { leaf_s: patience.as_secs_f64() },
        Err(RecvTimeoutError::Disconnected) => {
            Pace::Unknown("the device stopped by a fault of this program".into())
        }
    }
}

fn try_measure(job: &Job, backend: &dyn Backend) -> Result<Pace, BackendError> {
    let given = Given { rank: 0, plan: &job.plan, tokens: &job.tokens, state: &job.state };
    let mut device = backend.open(given)?;
    let mut finite = true;
    let mut leaf = || {
        let began = Instant::now();
        let leaves = device.leaves(0, 0..1, &Honest)?;
        finite &= leaves.iter().all(|leaf| leaf.finite);
        Ok(began.elapsed())
    };
    let mut leaf_time = leaf()?;
    if leaf_time < SHORT {
        leaf_time = leaf()?;
    }
    let began = Instant::now();
    if finite {
        device.digest(Which::Node)?;
        device.reduce()?;
        device.digest(Which::Reduced)?;
        device.norm()?;
        device.update(0)?;
        device.digest(Which::Parameters)?;
        device.moments()?;
    }
    Ok(Pace::Measured { leaf_s: leaf_time.as_secs_f64(), rest_s: began.elapsed().as_secs_f64() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_run_is_that_of_its_parts() {
        let pace = Pace::Measured { leaf_s: 2.0, rest_s: 1.0 };
        assert_eq!(pace.time_s(10, 1, 4), Some((90.0, true)));
        assert_eq!(pace.time_s(10, 4, 1), Some((120.0, true)));
        assert_eq!(Pace::Longer { leaf_s: 30.0 }.time_s(10, 1, 4), Some((1200.0, false)));
        assert_eq!(Pace::Unknown("no device".into()).time_s(10, 1, 4), None);
    }
}
