//! What follows the leaves, as launches: sums of the tree, the reduced gradient, its norm, clipping and the optimizer.

use crate::backend::BackendError;
use crate::launches::Shapes;
use crate::machine::{Argument, Buffer, Launch, Machine};
use schemas::fold::BLOCK_WORDS;
use schemas::plan::{Plan, Rule};

/// Rows of a chunk of the norm (docs/spec/profile.md#global-norm).
const CHUNK_ROWS: u64 = 1024;
/// Most rows that a group of `square_sums` takes: `CLIP_ROWS` in clip.cl.
const GROUP_ROWS_MAX: u32 = 32;

/// A parameter tensor in the flat vector.
struct Tensor {
    /// Elements before it.
    at: u64,
    rows: u64,
    columns: u64,
    /// Whose learning rate and decay it has.
    group: usize,
}

impl Tensor {
    fn elements(&self) -> u64 {
        self.rows * self.columns
    }
}

/// The flat vectors of a device's state.
#[derive(Clone, Copy, Debug)]
pub struct State {
    /// Parameters.
    pub parameters: Buffer,
    /// First moment.
    pub first_moment: Buffer,
    /// Second moment.
    pub second_moment: Buffer,
}

/// Norm and optimizer of a plan in device memory.
pub struct Update<'a> {
    plan: &'a Plan,
    shapes: Shapes,
    tensors: Vec<Tensor>,
    /// Square sums of all rows.
    rows: Buffer,
    /// First row and rows of each chunk.
    chunks: Buffer,
    chunk_count: u64,
    /// Sums of chunks.
    sums: Buffer,
    /// Chunks of each tensor.
    counts: Buffer,
    /// The norm and the factor that clips.
    norm: Buffer,
}

/// Parameter tensors in registered order.
fn tensors(plan: &Plan) -> Vec<Tensor> {
    let mut at = 0;
    let one = |parameter: &schemas::plan::Parameter| {
        let columns = *parameter.shape.last().expect("update: a parameter has dimensions");
        let elements: u64 = parameter.shape.iter().product();
        let tensor = Tensor { at, rows: elements / columns, columns, group: parameter.group };
        at += elements;
        tensor
    };
    plan.parameters.iter().map(one).collect()
}

fn bytes_of(words: impl IntoIterator<Item = u64>) -> Vec<u8> {
    words.into_iter().flat_map(u64::to_le_bytes).collect()
}

impl<'a> Update<'a> {
    /// Memory for a plan's norm.
    pub fn new(
        machine: &mut dyn Machine,
        plan: &'a Plan,
        shapes: &Shapes,
    ) -> Result<Update<'a>, BackendError> {
        let tensors = tensors(plan);
        let (mut chunks, mut counts, mut row) = (Vec::new(), Vec::new(), 0);
        for tensor in &tensors {
            let before = chunks.len();
            chunks.extend(
                (0..tensor.rows)
                    .step_by(CHUNK_ROWS as usize)
                    .map(|first| [row + first, CHUNK_ROWS.min(tensor.rows - first)]),
            );
            counts.push((chunks.len() - before) as u64);
            row += tensor.rows;
        }
        let chunk_count = chunks.len() as u64;
        let mut filled = |words: Vec<u64>| {
            let buffer = machine.allocate(8 * words.len() as u64)?;
            machine.write(buffer, 0, &bytes_of(words))?;
            Ok::<_, BackendError>(buffer)
        };
        let (chunks, counts) = (filled(chunks.into_iter().flatten().collect())?, filled(counts)?);
        Ok(Update {
            plan,
            shapes: *shapes,
            tensors,
            rows: machine.allocate(4 * row)?,
            chunks,
            chunk_count,
            sums: machine.allocate(4 * chunk_count)?,
            counts,
            norm: machine.allocate(8)?,
        })
    }

    /// Elements that a group takes, and the groups for so many.
    fn spans(&self, elements: u64) -> (Argument, [u32; 2]) {
        let span = BLOCK_WORDS as u64 * u64::from(self.shapes.blocks);
        (Argument::U64(span), [elements.div_ceil(span) as u32, 1])
    }

    /// The node becomes the sum of itself and the other.
    pub fn add(&self, node: Buffer, other: Buffer, node_is_left: bool) -> Launch {
        let elements = self.plan.parameter_count();
        let (span, groups) = self.spans(elements);
        let arguments = vec![
            Argument::Tensor(node, 0),
            Argument::Tensor(other, 0),
            Argument::U64(elements),
            span,
            Argument::U32(node_is_left.into()),
        ];
        Launch { kernel: "tree_add", groups, items: self.shapes.items, arguments }
    }

    /// The root becomes the reduced gradient.
    pub fn reduce(&self, node: Buffer) -> Launch {
        let elements = self.plan.parameter_count();
        let (span, groups) = self.spans(elements);
        let factor = Argument::F32(self.plan.update.inverse_leaves);
        let arguments = vec![Argument::Tensor(node, 0), Argument::U64(elements), span, factor];
        Launch { kernel: "scale", groups, items: self.shapes.items, arguments }
    }

    /// Norm and clipping factor of the reduced gradient; the norm is also told.
    pub fn norm(&self, machine: &mut dyn Machine, gradient: Buffer) -> Result<f32, BackendError> {
        let Shapes { items, rows: rows_each, .. } = self.shapes;
        let rows_each = rows_each.clamp(1, GROUP_ROWS_MAX);
        let mut row = 0;
        for tensor in &self.tensors {
            let arguments = vec![
                Argument::Tensor(gradient, tensor.at),
                Argument::Tensor(self.rows, row),
                Argument::U64(tensor.rows),
                Argument::U64(tensor.columns),
                Argument::U32(rows_each),
            ];
            let groups = [tensor.rows.div_ceil(rows_each.into()) as u32, 1];
            machine.launch(&Launch { kernel: "square_sums", groups, items, arguments })?;
            row += tensor.rows;
        }
        let groups = [self.chunk_count.div_ceil(items.into()) as u32, 1];
        let arguments = vec![
            Argument::Tensor(self.rows, 0),
            Argument::Tensor(self.chunks, 0),
            Argument::Tensor(self.sums, 0),
            Argument::U64(self.chunk_count),
        ];
        machine.launch(&Launch { kernel: "chunk_sums", groups, items, arguments })?;
        let update = &self.plan.update;
        let arguments = vec![
            Argument::Tensor(self.sums, 0),
            Argument::Tensor(self.counts, 0),
            Argument::Tensor(self.norm, 0),
            Argument::U64(self.tensors.len() as u64),
            Argument::F32(update.clip),
            Argument::F32(update.clip_epsilon),
        ];
        machine.launch(&Launch { kernel: "global_norm", groups: [1, 1], items: 1, arguments })?;
        let mut bytes = [0; 4];
        machine.read(self.norm, 0, &mut bytes)?;
        Ok(f32::from_le_bytes(bytes))
    }

    /// The optimizer over every parameter tensor, with the clipping factor that `norm` left.
    pub fn optimize(
        &self,
        machine: &mut dyn Machine,
        step: u64,
        gradient: Buffer,
        state: &State,
    ) -> Result<(), BackendError> {
        self.tensors
            .iter()
            .try_for_each(|tensor| machine.launch(&self.optimized(tensor, step, gradient, state)))
    }

    fn optimized(&self, tensor: &Tensor, step: u64, gradient: Buffer, state: &State) -> Launch {
        let update = &self.plan.update;
        let step = step as usize;
        let constants = update.groups[tensor.group][step];
        let (span, groups) = self.spans(tensor.elements());
        let at = |buffer| Argument::Tensor(buffer, tensor.at);
        let mut arguments = vec![at(state.parameters), at(state.first_moment)];
        if let Rule::Adamw { .. } = update.rule {
            arguments.push(at(state.second_moment));
        }
        arguments.extend([
            at(gradient),
            Argument::Tensor(self.norm, 0),
            Argument::U64(tensor.elements()),
            span,
        ]);
        let kernel = match &update.rule {
            Rule::Adamw { beta1, one_minus_beta1, beta2, one_minus_beta2, epsilon, corrections } => {
                let correction = corrections[step];
                let numbers = [*beta1, *one_minus_beta1, *beta2, *one_minus_beta2, *epsilon];
                arguments.extend(numbers.map(Argument::F32));
                arguments.extend([correction.first, correction.second].map(Argument::F32));
                "adamw"
            }
            Rule::Sgd { momentum, nesterov } => {
                arguments.extend([Argument::F32(*momentum), Argument::U32((*nesterov).into())]);
                "sgd"
            }
        };
        arguments.extend([constants.learning_rate, constants.decay].map(Argument::F32));
        Launch { kernel, groups, items: self.shapes.items, arguments }
    }
}
