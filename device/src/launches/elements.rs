//! Operations whose elements do not depend on each other.

use super::{Context, Draft, number_of, tensor};
use crate::machine::Argument;
use schemas::fold::BLOCK_WORDS;
use schemas::plan::Operation;

impl Context<'_> {
    /// A kernel that takes its operands, the number of elements and the blocks of a group.
    pub(super) fn elementwise(&self, operation: &Operation, kernel: &'static str) -> Draft {
        let operands = operation.inputs.iter().chain(&operation.outputs);
        let mut arguments: Vec<Argument> = operands.map(|&operand| tensor(self.places.of(operand))).collect();
        let n = self.plan.elements(operation.outputs[0]);
        arguments.extend([Argument::U64(n), Argument::U32(self.shapes.blocks)]);
        self.over_elements(kernel, n, arguments, operation.outputs.len())
    }

    pub(super) fn window(&self, operation: &Operation) -> Draft {
        let memories = &self.places.memories;
        let n = self.plan.dimensions.rows();
        let arguments = vec![
            Argument::Tensor(memories.stream, 0),
            Argument::Tensor(memories.starts, 0),
            self.output(operation, 0),
            self.output(operation, 1),
            Argument::U64(n),
            Argument::U32(self.shapes.blocks),
            number_of(self.plan.dimensions.time),
        ];
        self.over_elements("window", n, arguments, 2)
    }

    fn over_elements(&self, kernel: &'static str, n: u64, arguments: Vec<Argument>, outputs: usize) -> Draft {
        let groups = n.div_ceil(u64::from(self.shapes.blocks) * BLOCK_WORDS as u64);
        // A shape has at most 2^38 elements, so these are at most 2^28.
        let groups = [super::count(groups), 1];
        let outputs = Some((0..outputs).map(Some).collect());
        Draft { kernel, groups, items: self.shapes.items, arguments, outputs }
    }
}
