//! What a device must be able to do: leaves, norm and optimizer. Everything around these (digests, links, the
//! reduction between devices, records) is this crate's and the same for every backend.

use crate::simulated::Simulated;
use crate::snapshot::State;
use schemas::fold::Fold;
use schemas::plan::Plan;
use schemas::receipt::DeviceFacts;
use std::ops::Range;

/// Called on every f32 tap of every leaf with leaf, tap and the tensor, after it was computed and before its fold:
/// what is changed there is what the rest of the step sees.
pub type TapHook<'a> = dyn FnMut(u64, usize, &mut [f32]) + Send + 'a;

/// A way to run plans.
pub trait Backend: Sync {
    /// The name given to `--backend`.
    fn name(&self) -> &'static str;

    /// One line for people: what runs the arithmetic.
    fn description(&self) -> String;

    /// Whether the arithmetic is the oracle's own. Stands in every receipt.
    fn simulated(&self) -> bool;

    /// What a device says of itself in its receipt.
    fn facts(&self) -> DeviceFacts;

    /// Gives a device a plan, tokens and the state before step 0. It keeps a state of its own from then on.
    fn open<'a>(&self, given: Given<'a>) -> Result<Box<dyn Device + 'a>, BackendError>;
}

/// What a device works on.
#[derive(Clone, Copy)]
pub struct Given<'a> {
    /// The plan, well-formed.
    pub plan: &'a Plan,
    /// `plan.data.tokens` tokens, each below the vocabulary.
    pub tokens: &'a [u32],
    /// The state before step 0.
    pub state: &'a State,
}

/// One device at work. Steps are run in order from 0.
pub trait Device: Send {
    /// Computes `leaves` of `step` and the subtree over them.
    fn leaves(
        &mut self,
        step: u64,
        leaves: Range<u64>,
        hook: &mut TapHook<'_>,
    ) -> Result<Subtree, BackendError>;

    /// The global norm of the reduced gradient `[P]`, before clipping.
    fn norm(&mut self, reduced: &[f32]) -> Result<f32, BackendError>;

    /// Clips by the global norm and runs the optimizer: parameters and moments become those after `step`.
    fn update(&mut self, step: u64, reduced: &[f32]) -> Result<(), BackendError>;

    /// Parameters, first moment and second moment as they are now, each `[P]` in the plan's order.
    fn state(&self) -> [&[f32]; 3];

    /// The parameters, for a rehearsed fault to change.
    fn parameters_mut(&mut self) -> &mut [f32];
}

/// What a device computed of its leaves.
pub struct Subtree {
    /// One for each leaf, in order.
    pub leaves: Vec<Leaf>,
    /// The tree's node over all of them, `[P]`; absent if one of them was not finite.
    pub gradient: Option<Vec<f32>>,
}

/// One leaf.
pub struct Leaf {
    /// The folds of its taps under the plan's key, up to and including the first that is not finite.
    pub folds: Vec<Fold>,
    /// Whether all taps were finite; if not, the last fold is of the first that was not.
    pub finite: bool,
    /// Bits of its mean loss; of a leaf that was not finite, the canonical NaN.
    pub loss: u32,
}

/// Why a device stopped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BackendError(pub String);

/// Every backend of this build.
pub fn all() -> Vec<Box<dyn Backend>> {
    vec![Box::new(Simulated::detect())]
}

/// The backend of a name.
pub fn named(name: &str) -> Option<Box<dyn Backend>> {
    all().into_iter().find(|backend| backend.name() == name)
}
