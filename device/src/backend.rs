//! What a device must be able to do: leaves, sums, digests, norm and optimizer. Its tensors stay where it works; what
//! leaves it are digests, folds, a node for a peer, and the state for a snapshot. The order of all this (what is
//! digested when, who meets whom, what a record says) is [`crate::rank`]'s and the same for every backend.

use crate::checksum::Digested;
use crate::cuda::CudaDevices;
use crate::devices::Devices;
use crate::opencl::OpenClDevices;
use crate::simulated::Simulated;
use crate::snapshot::State;
use schemas::digest::Challenge;
use schemas::fold::Fold;
use schemas::plan::Plan;
use schemas::receipt::DeviceFacts;
use std::ops::Range;

/// A way to run plans.
pub trait Backend: Sync {
    /// The name given to `--backend`.
    fn name(&self) -> &'static str;

    /// One line for people: what runs the arithmetic.
    fn description(&self) -> String;

    /// Whether the arithmetic is the oracle's own. Stands in every receipt.
    fn simulated(&self) -> bool;

    /// What the device of a rank says of itself in its receipt.
    fn facts(&self, rank: u64) -> DeviceFacts;

    /// The devices of this machine, and whether each can run the profile exactly.
    fn devices(&self) -> Vec<Candidate>;

    /// Gives a device a plan, tokens and a state. It keeps a state of its own from then on.
    fn open<'a>(&self, given: Given<'a>) -> Result<Box<dyn Device + 'a>, BackendError>;
}

/// A device that a backend found, or why it found none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// What it says of itself; absent if there is no device.
    pub facts: Option<DeviceFacts>,
    /// Why it cannot run the profile exactly; absent if it can.
    pub refused: Option<String>,
}

/// What a device works on.
#[derive(Clone, Copy)]
pub struct Given<'a> {
    /// Which device of a run this is.
    pub rank: u64,
    /// The plan, well-formed.
    pub plan: &'a Plan,
    /// `plan.data.tokens` tokens, each below the vocabulary.
    pub tokens: &'a [u32],
    /// The state before the first step that is run.
    pub state: &'a State,
}

/// What is to go wrong in the leaves of a step, for rehearsals.
pub trait Spoil {
    /// Whether anything is done to a tap of a leaf.
    fn wants(&self, leaf: u64, tap: usize) -> bool;

    /// Changes the tap's tensor, after it was computed and before its fold. The rest of the step sees what it leaves.
    fn spoil(&self, leaf: u64, tap: usize, words: &mut [f32]);

    /// The leaf whose windows are read in place of this one's.
    fn data_of(&self, leaf: u64) -> u64 {
        leaf
    }
}

/// Nothing goes wrong.
pub struct Honest;

impl Spoil for Honest {
    fn wants(&self, _: u64, _: usize) -> bool {
        false
    }

    fn spoil(&self, _: u64, _: usize, _: &mut [f32]) {}
}

/// A flat vector `[P]` of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// The device's node of the gradient tree: of its own leaves, later with its peers'.
    Node,
    /// What arrived from a peer.
    Arrived,
    /// The reduced gradient. It takes the node's place.
    Reduced,
    /// The parameters.
    Parameters,
    /// The optimizer's first moment.
    FirstMoment,
    /// The optimizer's second moment; empty if it has none.
    SecondMoment,
}

/// One device at work. Steps are run in order; within one, the calls come in the order in which they stand here.
pub trait Device: Send {
    /// Computes `leaves` of `step`. If all of them are finite, the tree's node over them is the device's node from
    /// then on.
    fn leaves(&mut self, step: u64, leaves: Range<u64>, spoil: &dyn Spoil)
    -> Result<Vec<Leaf>, BackendError>;

    /// Checksum (of shape `[P]`) and fold under the plan's key of a vector, and whether it is finite.
    fn digest(&mut self, which: Which) -> Result<Digested, BackendError>;

    /// The node, as the bytes that cross a link.
    fn node_bytes(&mut self) -> Result<Vec<u8>, BackendError>;

    /// Takes a peer's node.
    fn arrive(&mut self, bytes: &[u8]) -> Result<(), BackendError>;

    /// The node becomes the sum of itself and what arrived, one add for each element.
    fn join(&mut self, mine_is_left: bool) -> Result<(), BackendError>;

    /// The node, the tree's root by now, becomes the reduced gradient: times the bits of 1/leaves.
    fn reduce(&mut self) -> Result<(), BackendError>;

    /// The global norm of the reduced gradient, before clipping.
    fn norm(&mut self) -> Result<f32, BackendError>;

    /// Clips by the norm and runs the optimizer: parameters and moments become those after `step`.
    fn update(&mut self, step: u64) -> Result<(), BackendError>;

    /// Folds of the moments.
    fn moments(&mut self) -> Result<Moments, BackendError>;

    /// Folds of the reduced gradient and of the parameters, keyed by a challenge.
    fn keyed(&mut self, challenge: Challenge) -> Result<[Fold; 2], BackendError>;

    /// Flips one bit of a vector in the device's memory, for rehearsals.
    fn flip(&mut self, which: Which, element: u64, bit: u32) -> Result<(), BackendError>;

    /// Parameters and moments as they are now.
    fn state(&mut self) -> Result<State, BackendError>;
}

/// What a record says of the moments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moments {
    /// Fold of the first under the plan's key.
    pub first: Fold,
    /// Fold of the second.
    pub second: Fold,
    /// Whether both are finite.
    pub finite: bool,
}

/// One leaf.
#[derive(Clone, Debug, PartialEq, Eq)]
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

/// Every backend of this build, the first that is to be taken first. `contracted` builds kernels wrongly on purpose, to
/// see the self-test refuse them.
pub fn all(contracted: bool) -> Vec<Box<dyn Backend>> {
    vec![
        Box::new(Devices::new(CudaDevices, "this program's kernels on a card of NVIDIA", contracted)),
        Box::new(Devices::new(OpenClDevices, "this program's kernels on a device of OpenCL", contracted)),
        Box::new(Simulated::detect()),
    ]
}

/// The backend of a name.
pub fn named(name: &str, contracted: bool) -> Option<Box<dyn Backend>> {
    all(contracted).into_iter().find(|backend| backend.name() == name)
}

/// The first backend that has a device which can run the profile exactly.
pub fn first_fit() -> Box<dyn Backend> {
    let fits = |backend: &dyn Backend| backend.devices().iter().any(|device| device.refused.is_none());
    let fit = all(false).into_iter().find(|backend| fits(&**backend));
    fit.unwrap_or_else(|| Box::new(Simulated::detect()))
}
