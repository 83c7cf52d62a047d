//! What one operation of a leaf reads, taken as the leaf runs; and the drill that lets a simulated device compute one
//! operation in a wrong configuration.

use super::Variant;
use crate::execute::Hook;
use crate::operation::{Call, Input};
use crate::session::Session;
use crate::state::spans;
use schemas::plan::{Kind, Operand, Plan, Tap};
use std::collections::BTreeMap;

/// The inputs of one operation of a plan.
pub struct Capture<'a> {
    plan: &'a Plan,
    operation: usize,
    /// The operation's first tap.
    first: usize,
    /// By tap: the f32 tensors it reads that the leaf computes, once they are.
    tensors: BTreeMap<usize, Vec<f32>>,
    tables: BTreeMap<usize, Vec<f32>>,
}

impl<'a> Capture<'a> {
    /// Of the operation with this index, which is not a window.
    pub fn new(plan: &'a Plan, operation: usize) -> Capture<'a> {
        assert!(plan.operations[operation].kind != Kind::Window, "drill: a window computes nothing");
        let (mut tensors, mut tables) = (BTreeMap::new(), BTreeMap::new());
        for input in &plan.operations[operation].inputs {
            match input {
                Operand::Table(index) => {
                    let words = plan.tables[*index].words.iter().map(|word| f32::from_bits(*word));
                    tables.insert(*index, words.collect());
                }
                Operand::Tensor(_) | Operand::Gradient(_) => {
                    tensors.insert(tap_of(plan, *input), Vec::new());
                }
                Operand::Parameter(_) => {}
            }
        }
        let first = plan.taps().take_while(|tap| tap.operation < operation).count();
        Capture { plan, operation, first, tensors, tables }
    }

    /// Looks at a tap as it is computed.
    pub fn see(&mut self, tap: usize, words: &[f32]) {
        if let Some(kept) = self.tensors.get_mut(&tap) {
            words.clone_into(kept);
        }
    }

    /// The operation's call, once its inputs were seen.
    pub fn call<'c>(&'c self, parameters: &'c [f32], window: (&'c [u32], &'c [u32])) -> Call<'c> {
        let spans = spans(&self.plan.parameters);
        let input = |operand: &Operand| match operand {
            Operand::Parameter(index) => Input::F32(&parameters[spans[*index].clone()]),
            Operand::Table(index) => Input::F32(&self.tables[index]),
            Operand::Tensor(_) | Operand::Gradient(_) => match tap_of(self.plan, *operand) {
                // The first two taps are the window's, which is the first operation and the only one that writes u32.
                0 => Input::U32(window.0),
                1 => Input::U32(window.1),
                tap => Input::F32(&self.tensors[&tap]),
            },
        };
        let operation = &self.plan.operations[self.operation];
        Call {
            backend: crate::dispatch::Backend::REFERENCE,
            dimensions: self.plan.dimensions,
            inputs: operation.inputs.iter().map(input).collect(),
            constants: &operation.constants,
        }
    }

    /// What `variant` makes of the call: every output of the operation.
    pub fn outputs(&self, variant: &Variant, call: &Call) -> Vec<Vec<f32>> {
        let operation = &self.plan.operations[self.operation];
        let words = |operand: &Operand| vec![0.0; self.plan.elements(*operand) as usize];
        let mut outputs: Vec<Vec<f32>> = operation.outputs.iter().map(words).collect();
        variant.run(call, operation.kind, &mut outputs.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>());
        outputs
    }
}

/// The tap at which an operand is written.
fn tap_of(plan: &Plan, operand: Operand) -> usize {
    let writes = |tap: Tap| tap.operand == operand;
    plan.taps().position(writes).expect("drill: what is read was written")
}

/// One operation in one wrong configuration.
pub struct Drill {
    /// The operation's index in the plan.
    pub operation: usize,
    /// How it is computed.
    pub variant: Variant,
}

impl Drill {
    /// Runs a leaf as `Session::leaf` does, this operation in its configuration; `hook` sees what comes of it.
    pub fn leaf(
        &self,
        session: &Session,
        step: u64,
        leaf: u64,
        parameters: &[f32],
        hook: Hook,
    ) -> crate::execute::Leaf {
        let window = session.window(step, leaf);
        let window = (&window.0[..], &window.1[..]);
        let mut capture = Capture::new(session.plan(), self.operation);
        let mut computed = Vec::new();
        session.leaf_on(window, parameters, &mut |tap, words| {
            if tap == capture.first {
                computed = capture.outputs(&self.variant, &capture.call(parameters, window));
            }
            if let Some(output) = tap.checked_sub(capture.first).and_then(|at| computed.get(at)) {
                words.copy_from_slice(output);
            }
            hook(tap, words);
            capture.see(tap, words);
        })
    }
}
