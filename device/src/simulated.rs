//! The simulated backend: the oracle's own arithmetic, so that a run can be rehearsed on any machine.
//!
//! The one file of this crate that names `step`. Two executions by one code prove nothing to each other, which is why
//! every receipt and every verdict over such receipts says `simulated`.

use crate::backend::{Backend, BackendError, Device, Given, Leaf, Subtree, TapHook};
use schemas::receipt::DeviceFacts;
use std::ops::Range;
use step::buffer::Flat;
use step::dispatch;
use step::session::Session;
use step::state::State;
use step::tree::Accumulator;
use step::update;

/// Runs plans on this machine's processor.
pub struct Simulated {
    kernels: dispatch::Backend,
}

impl Simulated {
    /// With the fastest kernels this machine can run; all give the same bits.
    pub fn detect() -> Simulated {
        Simulated { kernels: dispatch::Backend::detect() }
    }
}

impl Backend for Simulated {
    fn name(&self) -> &'static str {
        "simulated"
    }

    fn description(&self) -> String {
        format!("the oracle's own arithmetic on this processor ({} kernels)", self.kernels.name())
    }

    fn simulated(&self) -> bool {
        true
    }

    fn facts(&self) -> DeviceFacts {
        DeviceFacts {
            name: "simulated device".into(),
            architecture: std::env::consts::ARCH.into(),
            driver: format!("{} kernels", self.kernels.name()),
            units: std::thread::available_parallelism().map_or(1, |threads| threads.get() as u64),
            kernels: concat!("simulated ", env!("CARGO_PKG_VERSION")).into(),
        }
    }

    fn open<'a>(&self, given: Given<'a>) -> Result<Box<dyn Device + 'a>, BackendError> {
        let session = Session::new(given.plan, given.tokens, self.kernels);
        let session = session.map_err(|error| BackendError(error.to_string()))?;
        let state = State {
            step: 0,
            parameters: Flat::copied(&given.state.parameters),
            first_moment: Flat::copied(&given.state.first_moment),
            second_moment: Flat::copied(&given.state.second_moment),
        };
        Ok(Box::new(SimulatedDevice { session, state }))
    }
}

struct SimulatedDevice<'a> {
    session: Session<'a>,
    state: State,
}

impl Device for SimulatedDevice<'_> {
    fn leaves(
        &mut self,
        step: u64,
        leaves: Range<u64>,
        hook: &mut TapHook<'_>,
    ) -> Result<Subtree, BackendError> {
        let mut reports = Vec::new();
        let mut tree = Some(Accumulator::new(self.session.backend(), leaves.clone()));
        for leaf in leaves {
            let mut on_tap = |tap: usize, words: &mut [f32]| hook(leaf, tap, words);
            let done = self.session.leaf(step, leaf, &self.state.parameters, &mut on_tap);
            match (done.gradient, &mut tree) {
                (Some(gradient), Some(tree)) => tree.push(gradient, |_, _| ()),
                // There is no sum any more; the leaves that follow only leave their traces.
                _ => tree = None,
            }
            let finite = done.non_finite.is_none();
            reports.push(Leaf { folds: done.folds, finite, loss: done.loss.to_bits() });
        }
        Ok(Subtree { leaves: reports, gradient: tree.map(|tree| tree.finish().into_vec()) })
    }

    fn norm(&mut self, reduced: &[f32]) -> Result<f32, BackendError> {
        Ok(update::global_norm(self.session.backend(), self.session.plan(), reduced))
    }

    fn update(&mut self, step: u64, reduced: &[f32]) -> Result<(), BackendError> {
        // A skipped update leaves the state's own count behind; the constants are those of the step that runs.
        self.state.step = step;
        update::apply(self.session.backend(), self.session.plan(), reduced, &mut self.state);
        Ok(())
    }

    fn state(&self) -> [&[f32]; 3] {
        [&self.state.parameters, &self.state.first_moment, &self.state.second_moment]
    }

    fn parameters_mut(&mut self) -> &mut [f32] {
        &mut self.state.parameters
    }
}
