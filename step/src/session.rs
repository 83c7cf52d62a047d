//! One training step, from state and tokens to the record of everything it must produce.
//!
//! This is the file to read first: leaves, the tree over them, the reduced gradient, the update, the record.

use crate::buffer::Flat;
use crate::checksum::{FoldTables, Folded, checksum_f32, checksum_u32};
use crate::dispatch::Backend;
use crate::execute::{Executor, Hook, Leaf, Recording};
use crate::memory::{self, Layout};
use crate::number::elementary::NAN_BITS;
use crate::order::{Order, OrderError, inputs_and_targets};
use crate::state::State;
use crate::tree::{Accumulator, meeting_index};
use crate::update;
use rayon::prelude::*;
use schemas::digest::Checksum;
use schemas::fold::FoldKey;
use schemas::plan::Plan;
use schemas::record::{NonFinite, Outcome, StepRecord};
use schemas::trace::{Meeting, Trace};
use std::ops::Range;

/// Why a session cannot start or a step cannot run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// Other data than the plan's.
    #[error(
        "data: expected {expected} tokens with checksum {expected_checksum}, found {found} with {found_checksum}"
    )]
    Dataset {
        /// Tokens of the plan.
        expected: u64,
        /// Their checksum.
        expected_checksum: Checksum,
        /// Tokens given.
        found: u64,
        /// Their checksum.
        found_checksum: Checksum,
    },
    /// Data with a token that the model has no row for.
    #[error("data: expected tokens below the vocabulary of {vocabulary}, found {token} at token {index}")]
    Vocabulary {
        /// V.
        vocabulary: u64,
        /// The first such token.
        token: u32,
        /// Its place.
        index: usize,
    },
    /// No order over the data.
    #[error("data: {0}")]
    Order(#[from] OrderError),
    /// A state of another size.
    #[error("state: expected {expected} parameters and as many of each moment, found {found:?}")]
    StateSize {
        /// P.
        expected: u64,
        /// Parameters, first and second moments.
        found: [usize; 3],
    },
    /// A state after the last step of the plan.
    #[error("state: expected a step below {steps}, found {found}")]
    PastEnd {
        /// Steps of the plan.
        steps: usize,
        /// The state's step.
        found: u64,
    },
}

/// A tensor as records speak of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summed {
    /// Its checksum, shape [P].
    pub checksum: Checksum,
    /// Its fold under the plan's key, and whether it is finite.
    pub folded: Folded,
}

/// Everything one step produced.
#[derive(Clone, Debug)]
pub struct Step {
    /// What is predicted.
    pub record: StepRecord,
    /// The folds behind each leaf's trace root.
    pub traces: Vec<Trace>,
    /// The folds behind the meeting root; none if a leaf was not finite.
    pub meeting: Option<Meeting>,
    /// The reduced gradient, [P]; none if a leaf was not finite.
    pub reduced: Option<Flat>,
}

/// What a step that is not recorded says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unrecorded {
    /// Bits of each leaf's mean loss.
    pub losses: Vec<u32>,
    /// Bits of the global norm before clipping.
    pub norm: u32,
}

/// A plan with its data, ready to run any step.
pub struct Session<'a> {
    plan: &'a Plan,
    tokens: &'a [u32],
    order: Order,
    backend: Backend,
    tables: FoldTables,
    executor: Executor<'a>,
    /// Leaves that run side by side.
    side_by_side: u64,
}

/// A hook over all leaves: (leaf, tap, words).
type StepHook<'h> = &'h (dyn Fn(u64, usize, &mut [f32]) + Sync);

impl<'a> Session<'a> {
    /// A session of `plan` over `tokens`, which must be the data set the plan names. The plan is one that was
    /// derived or decoded here, and so well-formed.
    pub fn new(plan: &'a Plan, tokens: &'a [u32], backend: Backend) -> Result<Session<'a>, SessionError> {
        check_tokens(plan, tokens)?;
        let order = Order::new(plan.data.tokens, plan.dimensions.time, plan.data.seed)?;
        let largest = plan.taps().map(|tap| plan.elements(tap.operand)).max().unwrap_or(0);
        let words_max = largest.max(plan.parameter_count());
        let tables = FoldTables::new(backend, FoldKey::from(plan.digest()), words_max as usize);
        let layout = Layout::of(plan);
        let executor = Executor::new(plan, backend, &layout);
        let side_by_side = memory::side_by_side(plan, rayon::current_num_threads() as u64, &layout);
        Ok(Session { plan, tokens, order, backend, tables, executor, side_by_side })
    }

    /// Runs the state's next step and moves the state on. An invalid step (`record.non_finite`) ends a run:
    /// the state stays as it was if a leaf was not finite, and is of no more use otherwise.
    pub fn step(&self, state: &mut State) -> Result<Step, SessionError> {
        self.step_with(state, &|_, _, _| ())
    }

    /// As `step`, with a hook on every f32 output: (leaf, tap, words).
    pub fn step_with(&self, state: &mut State, hook: StepHook) -> Result<Step, SessionError> {
        self.check_state(state)?;
        // In a thread of the pool from the first operation to the last: coming in from outside costs a wake-up each
        // time.
        Ok(rayon::scope(|_| self.recorded(state, hook)))
    }

    /// Runs the state's next step as `step` does, bit for bit, and records nothing: no folds, no checksums, and no look
    /// for what is not finite. For telling what recording costs.
    pub fn step_unrecorded(&self, state: &mut State) -> Result<Unrecorded, SessionError> {
        self.step_unrecorded_with(state, &|_, _| ())
    }

    /// As `step_unrecorded`, and tells of each f32 output that is done: (leaf, tap).
    pub fn step_unrecorded_with(
        &self,
        state: &mut State,
        done: &(dyn Fn(u64, usize) + Sync),
    ) -> Result<Unrecorded, SessionError> {
        self.check_state(state)?;
        Ok(rayon::scope(|_| {
            let (mut losses, mut square_sums) = (Vec::new(), Vec::new());
            let mut tree = Accumulator::new(self.backend, 0..self.plan.leaves);
            for group in self.groups() {
                let run = |leaf: u64| {
                    let mut done = |tap| done(leaf, tap);
                    self.run(state.step, leaf, &state.parameters, Recording::Nothing(&mut done))
                };
                for leaf in side_by_side(group, run) {
                    losses.push(leaf.loss.to_bits());
                    square_sums = leaf.square_sums;
                    tree.push(leaf.gradient.expect("session: unrecorded leaves run to the end"), |_, _| ());
                }
            }
            let mut gradient = tree.finish();
            let norm = match self.plan.leaves == 1 && update::root_is_reduced(self.plan) {
                true => update::norm_of(&square_sums),
                false => update::reduce(self.backend, self.plan, &mut gradient),
            };
            update::apply_with_norm(self.backend, self.plan, &gradient, norm, state);
            Unrecorded { losses, norm: norm.to_bits() }
        }))
    }

    fn recorded(&self, state: &mut State, hook: StepHook) -> Step {
        let (number, leaves) = (state.step, self.plan.leaves);
        let mut traces = Vec::new();
        let mut losses = Vec::new();
        let mut non_finite = None;
        let mut tree = Some(Accumulator::new(self.backend, 0..leaves));
        let mut nodes = vec![None; 2 * self.plan.devices_max as usize - 1];
        for group in self.groups() {
            let run = |leaf: u64| {
                self.leaf(number, leaf, &state.parameters, &mut |tap, words| hook(leaf, tap, words))
            };
            for (leaf, done) in group.clone().zip(side_by_side(group, run)) {
                traces.push(Trace { step: number, leaf, folds: done.folds });
                losses.push(done.loss.to_bits());
                match (done.gradient, &mut tree) {
                    (Some(gradient), Some(tree)) => tree.push(gradient, |node, words| {
                        if let Some(index) = meeting_index(&node, leaves, self.plan.devices_max) {
                            nodes[index] = Some(self.sum(words));
                        }
                    }),
                    // A leaf that is not finite ends the step: the rest of the leaves only add their traces.
                    _ => tree = None,
                }
                let tap = done.non_finite.map(|tap| NonFinite::Tap { leaf, tap: tap as u64 });
                non_finite = non_finite.or(tap);
            }
        }
        let roots = traces.iter().map(Trace::root).collect();
        let Some(tree) = tree else {
            let record = StepRecord { traces: roots, losses, outcome: None, non_finite };
            return Step { record, traces, meeting: None, reduced: None };
        };
        let nodes: Vec<Summed> =
            nodes.into_iter().map(|node| node.expect("session: every meeting node is in the tree")).collect();
        let (outcome, meeting, reduced, non_finite) = self.finish(tree.finish(), &nodes, state);
        let record = StepRecord { traces: roots, losses, outcome: Some(outcome), non_finite };
        Step { record, traces, meeting: Some(meeting), reduced: Some(reduced) }
    }

    /// From the root of the tree to the end of the step.
    fn finish(
        &self,
        mut gradient: Flat,
        nodes: &[Summed],
        state: &mut State,
    ) -> (Outcome, Meeting, Flat, Option<NonFinite>) {
        let number = state.step;
        let root = nodes.last().expect("session: the root is a meeting node");
        let norm = update::reduce(self.backend, self.plan, &mut gradient);
        let reduced = match update::root_is_reduced(self.plan) {
            true => *root,
            false => self.sum(&gradient),
        };
        update::apply_with_norm(self.backend, self.plan, &gradient, norm, state);
        let parameters = self.sum(&state.parameters);
        let first = self.tables.fold(&state.first_moment);
        let second = self.tables.fold(&state.second_moment);

        let finite = [
            root.folded.finite && reduced.folded.finite,
            norm.is_finite(),
            parameters.folded.finite && first.finite && second.finite,
        ];
        let stage = finite.iter().position(|finite| !finite);
        let meeting = Meeting {
            step: number,
            nodes: nodes.iter().map(|node| node.folded.fold).collect(),
            reduced: reduced.folded.fold,
            parameters: parameters.folded.fold,
        };
        let outcome = Outcome {
            nodes: nodes.iter().map(|node| node.checksum).collect(),
            reduced: reduced.checksum,
            norm: if norm.is_nan() { NAN_BITS } else { norm.to_bits() },
            parameters: parameters.checksum,
            first_moment: first.fold,
            second_moment: second.fold,
            meeting: meeting.root(),
        };
        (outcome, meeting, gradient, stage.map(|stage| NonFinite::Update { stage: stage as u64 }))
    }

    /// Ranges of leaves that run side by side. Each group is added into the tree before the next starts, so that no
    /// more gradients are held than `memory::gradients_held` says.
    fn groups(&self) -> impl Iterator<Item = Range<u64>> {
        let (leaves, at_once) = (self.plan.leaves, self.side_by_side);
        (0..leaves).step_by(at_once as usize).map(move |first| first..leaves.min(first + at_once))
    }

    fn run(&self, step: u64, leaf: u64, parameters: &[f32], recording: Recording) -> Leaf {
        let (tokens, targets) = self.window(step, leaf);
        self.executor.leaf(parameters, &tokens, &targets, recording)
    }

    /// Tokens and targets of a leaf, [N] each.
    pub fn window(&self, step: u64, leaf: u64) -> (Vec<u32>, Vec<u32>) {
        let d = self.plan.dimensions;
        let windows = self.order.leaf_windows(step, leaf, self.plan.leaves, d.batch);
        inputs_and_targets(self.tokens, &windows, d.time as usize)
    }

    /// Tokens and targets of a leaf if the windows were read as they lie in the data, without the permutation.
    pub fn window_in_file_order(&self, step: u64, leaf: u64) -> (Vec<u32>, Vec<u32>) {
        let d = self.plan.dimensions;
        let first = (step * self.plan.leaves + leaf) * d.batch;
        let windows: Vec<u64> = (first..first + d.batch).map(|q| q % self.order.windows()).collect();
        inputs_and_targets(self.tokens, &windows, d.time as usize)
    }

    /// Fills every output with a NaN before it is computed (`Executor::poison`): for tests.
    pub fn poison(&mut self) {
        self.executor.poison();
    }

    /// Runs one leaf of `step` on `parameters`, [P].
    pub fn leaf(&self, step: u64, leaf: u64, parameters: &[f32], hook: Hook) -> Leaf {
        self.run(step, leaf, parameters, Recording::Taps(&self.tables, hook))
    }

    /// Runs one leaf on other tokens and targets than its own.
    pub fn leaf_on(&self, (tokens, targets): (&[u32], &[u32]), parameters: &[f32], hook: Hook) -> Leaf {
        self.executor.leaf(parameters, tokens, targets, Recording::Taps(&self.tables, hook))
    }

    /// The coefficients of the plan's folds.
    pub fn folds(&self) -> &FoldTables {
        &self.tables
    }

    /// Checksum and fold of a flat buffer, [P].
    pub fn sum(&self, words: &[f32]) -> Summed {
        Summed { checksum: checksum_f32(&[words.len() as u64], words), folded: self.tables.fold(words) }
    }

    /// The plan.
    pub fn plan(&self) -> &'a Plan {
        self.plan
    }

    /// What runs the kernels.
    pub fn backend(&self) -> Backend {
        self.backend
    }

    fn check_state(&self, state: &State) -> Result<(), SessionError> {
        let expected = self.plan.parameter_count();
        let found = [&state.parameters, &state.first_moment, &state.second_moment].map(|part| part.len());
        if found.iter().any(|found| *found as u64 != expected) {
            return Err(SessionError::StateSize { expected, found });
        }
        let steps = self.plan.update.steps();
        if state.step >= steps as u64 {
            return Err(SessionError::PastEnd { steps, found: state.step });
        }
        Ok(())
    }
}

/// Runs a group of leaves; results in ascending order.
fn side_by_side(group: Range<u64>, run: impl Fn(u64) -> Leaf + Sync + Send) -> Vec<Leaf> {
    group.into_par_iter().map(run).collect()
}

fn check_tokens(plan: &Plan, tokens: &[u32]) -> Result<(), SessionError> {
    let vocabulary = plan.dimensions.vocabulary;
    if let Some(index) = tokens.iter().position(|token| u64::from(*token) >= vocabulary) {
        return Err(SessionError::Vocabulary { vocabulary, token: tokens[index], index });
    }
    let (expected, found) = (plan.data.tokens, tokens.len() as u64);
    let found_checksum = checksum_u32(&[found], tokens);
    if (expected, plan.data.dataset) != (found, found_checksum) {
        let expected_checksum = plan.data.dataset;
        return Err(SessionError::Dataset { expected, expected_checksum, found, found_checksum });
    }
    Ok(())
}
