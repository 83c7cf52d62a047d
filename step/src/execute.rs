//! Walks a plan's operations for one leaf: run, fold every output as a tap.
//!
//! Every output is written straight into its place: a tensor into the leaf's buffer at the offset that `memory` planned
//! for it, a parameter's gradient into the flat gradient. The places hold what the operation before left there; a
//! kernel writes every word of its outputs and reads none before.

use crate::buffer::{Flat, Pool};
use crate::checksum::{FoldTables, Folded};
use crate::dispatch::Backend;
use crate::kernels;
use crate::memory::Layout;
use crate::number::elementary::NAN_BITS;
use crate::operation::{Call, Input, Manner};
use crate::reference::loss::mean_loss;
use crate::state::{columns, spans};
use crate::tied;
use schemas::checksum::Dtype;
use schemas::fold::Fold;
use schemas::plan::{Kind, Operand, Operation, Plan, Table};
use std::ops::Range;
use std::sync::Arc;

/// Sees every f32 output of a leaf before its fold, by tap index. A simulated device changes a word here to
/// stand for a fault; an honest executor does nothing.
pub type Hook<'h> = &'h mut dyn FnMut(usize, &mut [f32]);

/// What is recorded of a leaf as it runs.
pub enum Recording<'r> {
    /// A fold of every tap, after the hook has seen it.
    Taps(&'r FoldTables, Hook<'r>),
    /// Nothing: only loss and gradient stay, as in a program that trains. Told the index of each tap when it is done.
    Nothing(&'r mut dyn FnMut(usize)),
}

/// What one leaf computed.
#[derive(Clone, Debug)]
pub struct Leaf {
    /// One fold per tap, ending with that of the first tap that was not finite; none if nothing is recorded.
    pub folds: Vec<Fold>,
    /// Taps that were written.
    pub taps: usize,
    /// The mean loss, or the NaN 0x7fc00000 if the leaf was not finite.
    pub loss: f32,
    /// The flat gradient, [P]; none if the leaf was not finite.
    pub gradient: Option<Flat>,
    /// The sum of squares of each parameter's gradient, taken while it was near: only of a leaf that
    /// is a whole step, where nothing is recorded.
    pub square_sums: Vec<f32>,
    /// The first tap with a NaN or an infinity; what is not recorded is not looked at.
    pub non_finite: Option<usize>,
}

/// Where an operand lies.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// In the flat parameters: first word and word after the last.
    Parameter(usize, usize),
    /// One of the plan's constant tables.
    Table(usize),
    /// The tokens.
    Tokens,
    /// The targets.
    Targets,
    /// One of the operation's `tensors`.
    Tensor(usize),
    /// One of the operation's `gradients`.
    Gradient(usize),
}

/// The operands of an operation, placed.
#[derive(Debug, Default)]
struct Placed {
    /// Places in the leaf's buffer, ascending, each once.
    tensors: Vec<Range<usize>>,
    /// Places in the flat gradient, ascending, each once.
    gradients: Vec<Range<usize>>,
    inputs: Vec<Place>,
    outputs: Vec<Place>,
    manner: Manner,
    /// Outputs that are a parameter's gradient, whole once this operation is done: which output, which parameter.
    finished: Vec<(usize, usize)>,
}

/// A plan made ready to walk, with the buffers to walk it in.
pub struct Executor<'a> {
    plan: &'a Plan,
    backend: Backend,
    recorded: Vec<Placed>,
    /// The same where nothing is recorded.
    unrecorded: Vec<Placed>,
    /// The plan's constant tensors.
    tables: Vec<Vec<f32>>,
    tensors: Arc<Pool>,
    gradients: Arc<Pool>,
    poisoned: bool,
}

impl<'a> Executor<'a> {
    /// Ready to walk `plan`, whose layout is given.
    pub fn new(plan: &'a Plan, backend: Backend, layout: &Layout) -> Executor<'a> {
        let spans = spans(&plan.parameters);
        let windows: Vec<usize> =
            (0..plan.tensors.len()).filter(|tensor| plan.tensors[*tensor].dtype == Dtype::U32).collect();
        let placed = |(operation, manner): (Operation, Manner)| {
            let placed = place(&operation, layout, &spans, &windows);
            Placed { manner, finished: finished(&operation, manner), ..placed }
        };
        let whole = plan.operations.iter().map(|operation| (operation.clone(), Manner::Whole));
        let values = |table: &Table| table.words.iter().map(|word| f32::from_bits(*word)).collect();
        Executor {
            plan,
            backend,
            recorded: whole.map(placed).collect(),
            unrecorded: tied::unrecorded(plan).into_iter().map(placed).collect(),
            tables: plan.tables.iter().map(values).collect(),
            tensors: Pool::new(layout.words),
            gradients: Pool::new(plan.parameter_count() as usize),
            poisoned: false,
        }
    }

    /// From now on every output is filled with a NaN before it is computed. Changes no bit, or a kernel reads what it
    /// did not write: for tests.
    pub fn poison(&mut self) {
        self.poisoned = true;
    }

    /// Runs one leaf on its tokens and targets, [N] each.
    pub fn leaf(
        &self,
        parameters: &[f32],
        tokens: &[u32],
        targets: &[u32],
        mut recording: Recording,
    ) -> Leaf {
        let (mut tensors, mut gradient) = (self.tensors.take(), self.gradients.take());
        let mut leaf =
            Leaf { folds: vec![], taps: 0, loss: 0.0, gradient: None, square_sums: vec![], non_finite: None };
        let walk = match recording {
            Recording::Taps(..) => &self.recorded,
            Recording::Nothing(_) => {
                if self.plan.leaves == 1 {
                    leaf.square_sums.resize(self.plan.parameters.len(), 0.0);
                }
                &self.unrecorded
            }
        };
        for (operation, placed) in self.plan.operations.iter().zip(walk) {
            let mut tensors = cells(&mut tensors, &placed.tensors);
            let mut gradients = cells(&mut gradient, &placed.gradients);
            let mut outputs: Vec<&mut [f32]> = Vec::with_capacity(placed.outputs.len());
            for place in &placed.outputs {
                outputs.extend(match place {
                    Place::Tensor(cell) => tensors[*cell].take(),
                    Place::Gradient(cell) => gradients[*cell].take(),
                    Place::Parameter(..) | Place::Table(_) => {
                        panic!("execute: {} writes a constant", operation.name)
                    }
                    Place::Tokens | Place::Targets => None,
                });
            }
            if self.poisoned {
                let kept = usize::from(matches!(placed.manner, Manner::Onto | Manner::There));
                outputs.iter_mut().skip(kept).for_each(|output| output.fill(f32::from_bits(0xffff_dead)));
            }
            if operation.kind != Kind::Window {
                let input = |place: &Place| match place {
                    Place::Parameter(first, end) => Input::F32(&parameters[*first..*end]),
                    Place::Table(index) => Input::F32(&self.tables[*index]),
                    Place::Tokens => Input::U32(tokens),
                    Place::Targets => Input::U32(targets),
                    Place::Tensor(cell) => Input::F32(tensors[*cell].as_deref().expect(READS_OUTPUT)),
                    Place::Gradient(cell) => Input::F32(gradients[*cell].as_deref().expect(READS_OUTPUT)),
                };
                let call = Call {
                    backend: self.backend,
                    dimensions: self.plan.dimensions,
                    inputs: placed.inputs.iter().map(input).collect(),
                    constants: &operation.constants,
                };
                call.run_as(placed.manner, operation.kind, &mut outputs);
            }
            if let Some(tap) =
                record(&mut recording, &placed.outputs, [tokens, targets], &mut outputs, &mut leaf)
            {
                leaf.loss = f32::from_bits(NAN_BITS);
                leaf.non_finite = Some(tap);
                return leaf;
            }
            if !leaf.square_sums.is_empty() {
                for (output, parameter) in &placed.finished {
                    let columns = columns(&self.plan.parameters[*parameter]);
                    leaf.square_sums[*parameter] =
                        kernels::square_sum(self.backend, outputs[*output], columns);
                }
            }
            if operation.kind == Kind::CrossEntropy {
                leaf.loss = mean_loss(outputs[0], f32::from_bits(self.plan.update.inverse_rows));
            }
        }
        // Finite losses can still add up to an infinity; it is committed as it is, with every NaN one word.
        if leaf.loss.is_nan() {
            leaf.loss = f32::from_bits(NAN_BITS);
        }
        leaf.gradient = Some(gradient);
        leaf
    }
}

/// Shows an operation's outputs to the hook and folds them. Returns the tap that was not finite, if one was.
fn record(
    recording: &mut Recording,
    places: &[Place],
    [tokens, targets]: [&[u32]; 2],
    outputs: &mut [&mut [f32]],
    leaf: &mut Leaf,
) -> Option<usize> {
    let mut computed = outputs.iter_mut();
    for place in places {
        let tap = leaf.taps;
        leaf.taps += 1;
        let integers = match place {
            Place::Tokens => Some(tokens),
            Place::Targets => Some(targets),
            _ => None,
        };
        let folded = match (&mut *recording, integers) {
            (Recording::Nothing(_), Some(_)) => continue,
            (Recording::Nothing(hook), None) => {
                hook(tap);
                continue;
            }
            (Recording::Taps(tables, _), Some(words)) => {
                Folded { fold: tables.fold_u32(words), finite: true }
            }
            (Recording::Taps(tables, hook), None) => {
                let words = computed.next().expect(ONE_BUFFER);
                hook(tap, words);
                tables.fold(words)
            }
        };
        leaf.folds.push(folded.fold);
        if !folded.finite {
            return Some(tap);
        }
    }
    None
}

/// The gradients that are whole once `operation` is done in the manner given.
fn finished(operation: &Operation, manner: Manner) -> Vec<(usize, usize)> {
    let unfinished = usize::from(matches!(manner, Manner::PlusZero | Manner::Onto));
    let gradient = |(output, operand): (usize, &Operand)| match operand {
        Operand::Gradient(parameter) => Some((output, *parameter)),
        _ => None,
    };
    operation.outputs.iter().enumerate().skip(unfinished).filter_map(gradient).collect()
}

const ONE_BUFFER: &str = "execute: one buffer for each f32 output";
const READS_OUTPUT: &str = "execute: no operation reads what it writes";

/// The places of an operation's operands.
fn place(operation: &Operation, layout: &Layout, spans: &[Range<usize>], windows: &[usize]) -> Placed {
    let mut placed = Placed::default();
    for operand in operation.inputs.iter().chain(&operation.outputs) {
        match operand {
            Operand::Tensor(tensor) if !windows.contains(tensor) => {
                placed.tensors.push(layout.places[*tensor].clone());
            }
            Operand::Gradient(parameter) => placed.gradients.push(spans[*parameter].clone()),
            _ => {}
        }
    }
    for places in [&mut placed.tensors, &mut placed.gradients] {
        places.sort_by_key(|place| place.start);
        places.dedup();
    }
    let cell = |places: &[Range<usize>], place: &Range<usize>| {
        places.iter().position(|other| other == place).expect("execute: every operand was placed")
    };
    let find = |operand: &Operand| match operand {
        Operand::Parameter(index) => Place::Parameter(spans[*index].start, spans[*index].end),
        Operand::Table(index) => Place::Table(*index),
        Operand::Gradient(index) => Place::Gradient(cell(&placed.gradients, &spans[*index])),
        // A plan's only u32 tensors are the window's two outputs.
        Operand::Tensor(index) if windows.first() == Some(index) => Place::Tokens,
        Operand::Tensor(index) if windows.contains(index) => Place::Targets,
        Operand::Tensor(index) => Place::Tensor(cell(&placed.tensors, &layout.places[*index])),
    };
    let inputs = operation.inputs.iter().map(find).collect();
    let outputs = operation.outputs.iter().map(find).collect();
    Placed { inputs, outputs, ..placed }
}

/// The parts of `words` at `places`, which ascend and do not overlap.
fn cells<'w>(mut words: &'w mut [f32], places: &[Range<usize>]) -> Vec<Option<&'w mut [f32]>> {
    let mut at = 0;
    let mut cells = Vec::with_capacity(places.len());
    for place in places {
        let (cell, rest) =
            std::mem::take(&mut words).split_at_mut(place.start - at).1.split_at_mut(place.len());
        cells.push(Some(cell));
        (words, at) = (rest, place.end);
    }
    cells
}

/// The hook of an honest executor.
pub fn no_hook() -> impl FnMut(usize, &mut [f32]) {
    |_, _| ()
}
