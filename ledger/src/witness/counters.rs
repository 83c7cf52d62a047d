//! What became of asking witnesses, counted since the start, for `/metrics`.

use std::sync::atomic::{AtomicU64, Ordering};

/// All witnesses of a policy, and the quorum.
#[derive(Debug, Default)]
pub struct Counters {
    /// Each witness that is asked.
    pub witnesses: Vec<WitnessCounters>,
    /// Checkpoints that a quorum has cosigned.
    pub quorums: Counter,
    /// Size of the latest of them; 0 if there is none.
    pub witnessed_size: Counter,
    /// Whether it is proven that this log's key has signed what this log does not hold: 1 if so.
    pub forked: Counter,
}

/// One witness.
#[derive(Debug, Default)]
pub struct WitnessCounters {
    /// Its name in the policy.
    pub name: String,
    /// Cosignatures that were verified.
    pub cosigned: Counter,
    /// Times it could not be reached, was too slow, or its answer was cut short or too long.
    pub unreachable: Counter,
    /// Times it answered with a refusal other than those below.
    pub refused: Counter,
    /// Times it answered what cannot be: garbage, a signature that does not verify, a wrong time.
    pub lied: Counter,
    /// Times it said that this log's checkpoint does not follow from what it has seen.
    pub inconsistent: Counter,
    /// Size of the checkpoint it cosigned last; 0 if there is none.
    pub size: Counter,
}

/// A number that others read at any time.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// What it says.
    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// One more.
    pub fn count(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Another value.
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }
}
