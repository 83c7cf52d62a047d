//! Operations over whole rows, and over whole columns.

use super::{Context, Draft, count, number_of, tensor};
use crate::machine::{Argument, Launch};
use schemas::plan::{Kind, Operation};

impl Context<'_> {
    /// A kernel over rows, a group taking as many as the shapes say.
    pub(super) fn over_rows(
        &self,
        kernel: &'static str,
        rows: u64,
        arguments: Vec<Argument>,
        outputs: Option<Vec<Option<usize>>>,
    ) -> Draft {
        let groups = [count(rows.div_ceil(u64::from(self.shapes.rows))), 1];
        Draft { kernel, groups, items: self.shapes.items, arguments, outputs }
    }

    /// A kernel over columns: an item takes one if staged, else 32.
    fn over_columns(
        &self,
        kernel: &'static str,
        columns: u64,
        arguments: Vec<Argument>,
        outputs: &[usize],
    ) -> Draft {
        // Few columns, each with much to do: small groups reach more of the device.
        let (items, each) = if self.staged { (32, 1) } else { (self.shapes.items, 32) };
        let groups = [count(columns.div_ceil(u64::from(items) * each)), 1];
        let outputs = Some(outputs.iter().copied().map(Some).collect());
        Draft { kernel, groups, items, arguments, outputs }
    }

    fn each(&self) -> Argument {
        Argument::U32(self.shapes.rows)
    }

    pub(super) fn embedding(&self, operation: &Operation) -> Draft {
        let (d, out) = (self.plan.dimensions, operation.outputs[0]);
        let positions = u32::from(operation.kind == Kind::Embedding);
        let arguments = vec![
            self.input(operation, 0),
            self.input(operation, 1),
            // Without positions the kernel looks at no such table.
            self.input(operation, 1 + positions as usize),
            self.output(operation, 0),
            number_of(d.rows()),
            number_of(self.columns(out)),
            number_of(d.time),
            Argument::U32(positions),
            self.each(),
        ];
        self.over_rows("embedding", d.rows(), arguments, Some(vec![Some(0)]))
    }

    pub(super) fn embedding_backward(&self, operation: &Operation) -> Vec<Draft> {
        let d = self.plan.dimensions;
        let tokens = vec![
            Argument::Tensor(self.places.memories.sorted, 0),
            self.input(operation, 1),
            self.output(operation, 0),
            number_of(d.vocabulary),
            number_of(d.channels),
            self.each(),
        ];
        let mut drafts =
            vec![self.over_rows("embedding_backward_tokens", d.vocabulary, tokens, Some(vec![Some(0)]))];
        if operation.kind == Kind::EmbeddingBackward {
            let positions = vec![
                self.input(operation, 1),
                self.output(operation, 1),
                number_of(d.positions),
                number_of(d.channels),
                number_of(d.time),
                number_of(d.batch),
                self.each(),
            ];
            let kernel = "embedding_backward_positions";
            drafts.push(self.over_rows(kernel, d.positions, positions, Some(vec![Some(1)])));
        }
        drafts
    }

    pub(super) fn norm(&self, operation: &Operation) -> Draft {
        let kernel = if operation.kind == Kind::Layernorm { "layernorm" } else { "rmsnorm" };
        let (rows, width) = (self.plan.dimensions.rows(), self.columns(operation.outputs[0]));
        let operands = operation.inputs.iter().chain(&operation.outputs);
        let mut arguments: Vec<Argument> = operands.map(|&operand| tensor(self.places.of(operand))).collect();
        arguments.extend([number_of(rows), number_of(width), self.each()]);
        arguments.extend(operation.constants.iter().map(|&bits| Argument::F32(bits)));
        let outputs = (0..operation.outputs.len()).map(Some).collect();
        self.over_rows(kernel, rows, arguments, Some(outputs))
    }

    pub(super) fn norm_backward(&self, operation: &Operation) -> Vec<Draft> {
        let layernorm = operation.kind == Kind::LayernormBackward;
        let (rows, width) = (self.plan.dimensions.rows(), self.columns(operation.outputs[0]));
        let inputs = (0..operation.inputs.len()).map(|index| self.input(operation, index));
        let mut arguments: Vec<Argument> = inputs.clone().collect();
        arguments.push(self.output(operation, 0));
        arguments.extend([number_of(rows), number_of(width), self.each()]);
        arguments.push(Argument::F32(operation.constants[0]));
        let kernel = if layernorm { "layernorm_backward" } else { "rmsnorm_backward" };
        let input = self.over_rows(kernel, rows, arguments, Some(vec![Some(0)]));

        // The gain, the last input, is not needed for its own gradient.
        let mut arguments: Vec<Argument> = inputs.take(operation.inputs.len() - 1).collect();
        arguments.extend((1..operation.outputs.len()).map(|index| self.output(operation, index)));
        arguments.extend([number_of(rows), number_of(width)]);
        let (kernel, outputs): (_, &[usize]) = match layernorm {
            true => ("layernorm_backward_parameters", &[1, 2]),
            false => ("rmsnorm_backward_gain", &[1]),
        };
        vec![input, self.over_columns(kernel, width, arguments, outputs)]
    }

    pub(super) fn bias_gradient(&self, operation: &Operation) -> Draft {
        let width = self.columns(operation.outputs[0]);
        let arguments = vec![
            self.input(operation, 0),
            self.output(operation, 0),
            number_of(self.plan.dimensions.rows()),
            number_of(width),
        ];
        self.over_columns("linear_backward_bias", width, arguments, &[0])
    }

    pub(super) fn rope(&self, operation: &Operation, kernel: &'static str) -> Draft {
        let d = self.plan.dimensions;
        let heads = self.columns(operation.outputs[0]) / d.head_size;
        let mut arguments: Vec<Argument> = (0..3).map(|index| self.input(operation, index)).collect();
        arguments.push(self.output(operation, 0));
        arguments.extend([d.rows(), heads, d.head_size / 2, d.time].map(number_of));
        arguments.push(self.each());
        self.over_rows(kernel, d.rows(), arguments, Some(vec![Some(0)]))
    }

    pub(super) fn cross_entropy(&self, operation: &Operation) -> Draft {
        let d = self.plan.dimensions;
        let mut arguments: Vec<Argument> = (0..2).map(|index| self.input(operation, index)).collect();
        arguments.extend((0..3).map(|index| self.output(operation, index)));
        arguments.extend([number_of(d.rows()), number_of(d.vocabulary), self.each()]);
        self.over_rows("cross_entropy", d.rows(), arguments, Some(vec![Some(0), Some(1), Some(2)]))
    }

    pub(super) fn cross_entropy_backward(&self, operation: &Operation) -> Draft {
        let d = self.plan.dimensions;
        let mut arguments: Vec<Argument> = (0..4).map(|index| self.input(operation, index)).collect();
        arguments.push(self.output(operation, 0));
        arguments.extend([number_of(d.rows()), number_of(d.vocabulary), self.each()]);
        arguments.push(Argument::F32(operation.constants[0]));
        self.over_rows("cross_entropy_backward", d.rows(), arguments, Some(vec![Some(0)]))
    }

    pub(super) fn mean_loss(&self, operation: &Operation) -> Launch {
        let arguments = vec![
            self.output(operation, 0),
            Argument::Tensor(self.places.memories.loss, 0),
            number_of(self.plan.dimensions.rows()),
            Argument::F32(self.plan.update.inverse_rows),
        ];
        Launch { kernel: "mean_loss", groups: [1, 1], items: 1, arguments }
    }
}
