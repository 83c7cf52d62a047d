//! Walks a plan's operations for one leaf: run, fold every output as a tap, free what is read no more.

use crate::checksum::{FoldTables, Folded};
use crate::dispatch::Backend;
use crate::number::elementary::NAN_BITS;
use crate::operation::{Call, Input, Words};
use crate::reference::loss::mean_loss;
use crate::update::spans;
use schemas::fold::Fold;
use schemas::plan::{Kind, Operand, Plan, Table};
use std::ops::Range;

/// Sees every f32 output of a leaf before its fold, by tap index. A simulated device changes a word here to
/// stand for a fault; an honest executor does nothing.
pub type Hook<'h> = &'h mut dyn FnMut(usize, &mut [f32]);

/// What one leaf computed.
#[derive(Clone, Debug)]
pub struct Leaf {
    /// One fold per tap, ending with that of the first tap that was not finite.
    pub folds: Vec<Fold>,
    /// The mean loss, or the NaN 0x7fc00000 if the leaf was not finite.
    pub loss: f32,
    /// The flat gradient, [P]; none if the leaf was not finite.
    pub gradient: Option<Vec<f32>>,
    /// The first tap with a NaN or an infinity.
    pub non_finite: Option<usize>,
}

/// A plan made ready to walk.
pub struct Executor<'a> {
    plan: &'a Plan,
    backend: Backend,
    tables: &'a FoldTables,
    /// The plan's constant tensors.
    constants: Vec<Vec<f32>>,
    spans: Vec<Range<usize>>,
    /// Tensors that no operation after this one reads, by operation.
    last_read: Vec<Vec<usize>>,
}

/// The tensors and gradients of a leaf under way.
struct Memory<'a> {
    parameters: &'a [f32],
    tensors: Vec<Option<Words>>,
    gradient: Vec<f32>,
}

impl<'a> Executor<'a> {
    /// Ready to walk `plan`, folding with `tables`.
    pub fn new(plan: &'a Plan, backend: Backend, tables: &'a FoldTables) -> Executor<'a> {
        let mut last = vec![0; plan.tensors.len()];
        for (index, operation) in plan.operations.iter().enumerate() {
            for operand in operation.inputs.iter().chain(&operation.outputs) {
                if let Operand::Tensor(tensor) = operand {
                    last[*tensor] = index;
                }
            }
        }
        let mut last_read = vec![vec![]; plan.operations.len()];
        last.into_iter().enumerate().for_each(|(tensor, index)| last_read[index].push(tensor));
        let values = |table: &Table| table.words.iter().map(|word| f32::from_bits(*word)).collect();
        let constants = plan.tables.iter().map(values).collect();
        Executor { plan, backend, tables, constants, spans: spans(plan), last_read }
    }

    /// Runs one leaf on its tokens and targets, [N] each.
    pub fn leaf(&self, parameters: &[f32], tokens: Vec<u32>, targets: Vec<u32>, hook: Hook) -> Leaf {
        let mut memory = Memory {
            parameters,
            tensors: self.plan.tensors.iter().map(|_| None).collect(),
            gradient: vec![0.0; self.plan.parameter_count() as usize],
        };
        let mut window = vec![Words::U32(tokens), Words::U32(targets)];
        let mut leaf = Leaf { folds: vec![], loss: 0.0, gradient: None, non_finite: None };
        for (index, operation) in self.plan.operations.iter().enumerate() {
            let mut outputs = match operation.kind {
                Kind::Window => std::mem::take(&mut window),
                _ => self.compute(&memory, index),
            };
            for output in &mut outputs {
                let folded = self.tap(leaf.folds.len(), output, hook);
                leaf.folds.push(folded.fold);
                if !folded.finite {
                    leaf.loss = f32::from_bits(NAN_BITS);
                    leaf.non_finite = Some(leaf.folds.len() - 1);
                    return leaf;
                }
            }
            if operation.kind == Kind::CrossEntropy {
                leaf.loss = mean_loss(outputs[0].f32(), f32::from_bits(self.plan.update.inverse_rows));
            }
            for (operand, words) in operation.outputs.iter().zip(outputs) {
                self.store(&mut memory, *operand, words);
            }
            self.last_read[index].iter().for_each(|tensor| memory.tensors[*tensor] = None);
        }
        // Finite losses can still add up to an infinity; it is committed as it is, with every NaN one word.
        if leaf.loss.is_nan() {
            leaf.loss = f32::from_bits(NAN_BITS);
        }
        leaf.gradient = Some(memory.gradient);
        leaf
    }

    /// Runs operation `index` into fresh outputs.
    fn compute(&self, memory: &Memory, index: usize) -> Vec<Words> {
        let operation = &self.plan.operations[index];
        let new = |operand: &Operand| vec![0.0_f32; self.plan.elements(*operand) as usize];
        let mut outputs: Vec<Vec<f32>> = operation.outputs.iter().map(new).collect();
        let call = Call {
            backend: self.backend,
            dimensions: self.plan.dimensions,
            inputs: operation.inputs.iter().map(|operand| self.load(memory, *operand)).collect(),
            constants: &operation.constants,
        };
        call.run(operation.kind, &mut outputs);
        outputs.into_iter().map(Words::F32).collect()
    }

    fn load<'m>(&'m self, memory: &'m Memory, operand: Operand) -> Input<'m> {
        match operand {
            Operand::Parameter(index) => Input::F32(&memory.parameters[self.spans[index].clone()]),
            Operand::Gradient(index) => Input::F32(&memory.gradient[self.spans[index].clone()]),
            Operand::Table(index) => Input::F32(&self.constants[index]),
            Operand::Tensor(index) => match memory.tensors[index].as_ref() {
                Some(Words::F32(words)) => Input::F32(words),
                Some(Words::U32(words)) => Input::U32(words),
                None => panic!("execute: tensor {} is read while not there", self.plan.tensors[index].name),
            },
        }
    }

    fn store(&self, memory: &mut Memory, operand: Operand, words: Words) {
        match operand {
            Operand::Parameter(_) | Operand::Table(_) => panic!("execute: an operation writes a constant"),
            Operand::Gradient(index) => {
                memory.gradient[self.spans[index].clone()].copy_from_slice(words.f32());
            }
            Operand::Tensor(index) => memory.tensors[index] = Some(words),
        }
    }

    fn tap(&self, tap: usize, output: &mut Words, hook: &mut dyn FnMut(usize, &mut [f32])) -> Folded {
        match output {
            Words::F32(words) => {
                hook(tap, words);
                self.tables.fold(words)
            }
            Words::U32(words) => Folded { fold: self.tables.fold_u32(words), finite: true },
        }
    }
}

/// The hook of an honest executor.
pub fn no_hook() -> impl FnMut(usize, &mut [f32]) {
    |_, _| ()
}
