//! From a model's dimensions to a plan's lists: what every network shares, and one file for each.

pub mod gpt2;
pub mod llama;

use schemas::checksum::Dtype;
use schemas::plan::{Dimensions, Kind, Operand, Operation, Parameter, Table, Tensor};

/// The lists of a plan.
#[derive(Default)]
pub struct Lists {
    /// In registered order.
    pub parameters: Vec<Parameter>,
    /// Constant tensors.
    pub tables: Vec<Table>,
    /// In the order in which operations write them.
    pub tensors: Vec<Tensor>,
    /// In the order in which they run.
    pub operations: Vec<Operation>,
}

/// Collects a plan's lists while the network is walked.
struct Builder {
    dimensions: Dimensions,
    /// The bits added to a variance.
    norm_epsilon: u32,
    lists: Lists,
}

/// Where the head's part of the token table's gradient stands, if the head is the table.
type TiedPart = Option<Operand>;

impl Builder {
    fn new(dimensions: Dimensions, norm_epsilon: u32) -> Builder {
        Builder { dimensions, norm_epsilon, lists: Lists::default() }
    }

    /// The leaf's tokens and targets.
    fn window(&mut self) -> [Operand; 2] {
        let rows = [self.dimensions.rows()];
        let [tokens, targets] = ["tokens", "targets"].map(|name| self.tensor(name, Dtype::U32, &rows));
        self.operation("window", Kind::Window, &[], &[tokens, targets], &[]);
        [tokens, targets]
    }

    /// Logits of `x` by the token table `table` or a weight of its own, the loss of each row, and the way back. The
    /// gradient of `x` is returned, and that of the table where it is the head's.
    fn head(&mut self, tied: bool, table: usize, x: Operand, targets: Operand) -> (Operand, TiedPart) {
        let (n, c, v) = (self.dimensions.rows(), self.dimensions.channels, self.dimensions.vocabulary);
        let weight = if tied { table } else { self.parameter("lm_head.weight", &[v, c]) };
        let logits = self.activation("logits", &[n, v]);
        self.operation("forward.head", Kind::Project, &[x, Operand::Parameter(weight)], &[logits], &[]);
        let [loss, max, sum] = ["loss", "loss.max", "loss.sum"].map(|name| self.activation(name, &[n]));
        self.operation("forward.loss", Kind::CrossEntropy, &[logits, targets], &[loss, max, sum], &[]);

        let d_logits = self.activation("d_logits", &[n, v]);
        let inverse_n = ((1.0 / n as f64) as f32).to_bits();
        let inputs = [logits, targets, max, sum];
        self.operation("backward.loss", Kind::CrossEntropyBackward, &inputs, &[d_logits], &[inverse_n]);
        let d_x = self.activation("d_norm_final.out", &[n, c]);
        let inputs = [d_logits, Operand::Parameter(weight)];
        self.operation("backward.head.input", Kind::ProjectBackwardInput, &inputs, &[d_x], &[]);
        let part = tied.then(|| self.activation("d_table.head", &[v, c]));
        let d_weight = [part.unwrap_or(Operand::Gradient(weight))];
        self.operation("backward.head.weight", Kind::ProjectBackwardWeight, &[d_logits, x], &d_weight, &[]);
        (d_x, part)
    }

    /// The gradient of the token table `table`, and of what else `kind` writes. A table that is also the head's weight
    /// is used twice, so its gradient is a sum: the head's part is the left one.
    fn embedding_backward(
        &mut self,
        kind: Kind,
        inputs: [Operand; 2],
        table: usize,
        others: &[Operand],
        head: TiedPart,
    ) {
        let (v, c) = (self.dimensions.vocabulary, self.dimensions.channels);
        let part = head.map(|_| self.activation("d_table.embedding", &[v, c]));
        let mut outputs = vec![part.unwrap_or(Operand::Gradient(table))];
        outputs.extend(others);
        self.operation("backward.embedding", kind, &inputs, &outputs, &[]);
        if let (Some(head), Some(embedding)) = (head, part) {
            let sum = [Operand::Gradient(table)];
            self.operation("backward.tied", Kind::Add, &[head, embedding], &sum, &[]);
        }
    }

    /// One add of the residual stream, the stream left.
    fn add(&mut self, operation: &str, out: &str, stream: Operand, branch: Operand) -> Operand {
        let out = self.activation(out, &[self.dimensions.rows(), self.dimensions.channels]);
        self.operation(operation, Kind::Add, &[stream, branch], &[out], &[]);
        out
    }

    fn inverse_channels(&self) -> u32 {
        ((1.0 / self.dimensions.channels as f64) as f32).to_bits()
    }

    fn attention_scale(&self) -> u32 {
        ((1.0 / (self.dimensions.head_size as f64).sqrt()) as f32).to_bits()
    }

    fn last_output(&self) -> Operand {
        self.lists.operations.last().expect("layers: an operation was added").outputs[0]
    }

    /// Registers a parameter; its group is found when all are known.
    fn parameter(&mut self, name: &str, shape: &[u64]) -> usize {
        self.lists.parameters.push(Parameter { name: name.into(), shape: shape.into(), group: 0 });
        self.lists.parameters.len() - 1
    }

    fn table(&mut self, name: &str, shape: &[u64], words: Vec<u32>) -> Operand {
        self.lists.tables.push(Table { name: name.into(), shape: shape.into(), words });
        Operand::Table(self.lists.tables.len() - 1)
    }

    fn activation(&mut self, name: &str, shape: &[u64]) -> Operand {
        self.tensor(name, Dtype::F32, shape)
    }

    fn tensor(&mut self, name: &str, dtype: Dtype, shape: &[u64]) -> Operand {
        self.lists.tensors.push(Tensor { name: name.into(), dtype, shape: shape.into() });
        Operand::Tensor(self.lists.tensors.len() - 1)
    }

    fn operation(
        &mut self,
        name: &str,
        kind: Kind,
        inputs: &[Operand],
        outputs: &[Operand],
        constants: &[u32],
    ) {
        self.lists.operations.push(Operation {
            name: name.into(),
            kind,
            inputs: inputs.into(),
            outputs: outputs.into(),
            constants: constants.into(),
        });
    }
}
