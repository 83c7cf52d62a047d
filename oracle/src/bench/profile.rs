//! Where the time of a step goes, by kind of operation.
//!
//! The hook that sees every output right after it is made notes the time: nothing in `step` knows a clock.

use crate::explain::cost::macs;
use schemas::plan::{Kind, Plan};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Instant;
use step::session::{Session, SessionError};
use step::state::State;

/// What follows the leaf: the reduced gradient, its norm, the optimizer.
const UPDATE: &str = "update";

/// Seconds of one step by kind of operation.
#[derive(Default)]
pub struct Profile {
    /// The whole step.
    pub seconds: f64,
    kinds: BTreeMap<&'static str, f64>,
}

/// Takes a step without recording and notes when each output was there.
pub fn step(session: &Session, plan: &Plan, state: &mut State) -> Result<Profile, SessionError> {
    let taps: Vec<Kind> = plan.taps().map(|tap| plan.operations[tap.operation].kind).collect();
    let start = Instant::now();
    let noted = Mutex::new((start, BTreeMap::new()));
    session.step_unrecorded_with(state, &|_, tap| {
        let mut noted = noted.lock().expect("bench: nothing panics while it notes");
        let now = Instant::now();
        let since = now.duration_since(noted.0).as_secs_f64();
        *noted.1.entry(taps[tap].name()).or_insert(0.0) += since;
        noted.0 = now;
    })?;
    let end = Instant::now();
    let (last, mut kinds) = noted.into_inner().expect("bench: nothing panics while it notes");
    kinds.insert(UPDATE, end.duration_since(last).as_secs_f64());
    Ok(Profile { seconds: end.duration_since(start).as_secs_f64(), kinds })
}

impl Profile {
    /// Keeps the faster of two.
    pub fn keep_faster(&mut self, other: Profile) {
        if self.kinds.is_empty() || other.seconds < self.seconds {
            *self = other;
        }
    }

    /// Shares of the step, largest first.
    pub fn shares(&self) -> Vec<(&'static str, f64)> {
        let mut shares: Vec<_> =
            self.kinds.iter().map(|(kind, seconds)| (*kind, seconds / self.seconds)).collect();
        shares.sort_by(|one, other| other.1.total_cmp(&one.1));
        shares
    }

    /// GFLOP/s of the products, each with all that goes before its output was there.
    pub fn products_gflops(&self, plan: &Plan) -> f64 {
        let products = plan.operations.iter().filter(|operation| is_product(operation.kind.name()));
        let flops: u64 = products.map(|operation| 2 * macs(plan, operation)).sum();
        flops as f64 / self.products() / 1e9
    }

    /// Seconds of the products.
    fn products(&self) -> f64 {
        self.kinds.iter().filter(|(kind, _)| is_product(kind)).map(|(_, seconds)| seconds).sum()
    }

    /// The share outside matrix products, when attention's own products run at `rate` FLOP/s.
    pub fn outside(&self, plan: &Plan, rate: f64) -> f64 {
        let in_attention =
            plan.operations.iter().filter(|operation| operation.kind.name().contains("attention"));
        let attention: u64 = in_attention.map(|operation| 2 * macs(plan, operation)).sum();
        1.0 - (self.products() + attention as f64 / rate) / self.seconds
    }
}

/// Linear layers and the head, forward and backward, but not the sums for their biases.
fn is_product(kind: &str) -> bool {
    (kind.starts_with("linear") || kind.starts_with("project")) && !kind.ends_with("bias")
}
