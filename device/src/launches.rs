//! From the operations of a plan to launches of kernels.
//!
//! Everything here is known before a run: shapes, places and the order follow from the plan. What a launch's shape is
//! (groups, items, tiles) changes no bit.

mod attention;
mod elements;
mod matmul;
mod rows;

use crate::machine::{Argument, Build, Launch};
use crate::places::{Place, Places};
use schemas::checksum::Dtype;
use schemas::plan::{Kind, Operand, Operation, Plan};

/// The shapes of launches. None of them changes a bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shapes {
    /// Work-items in a group: 1 to 256; a multiple of 32 where [`Build::staged`].
    pub items: u32,
    /// Blocks of 1024 elements that a group of an elementwise kernel takes.
    pub blocks: u32,
    /// Rows that a group of a kernel over rows takes.
    pub rows: u32,
    /// Staged: the largest side of a matrix product's tile, 32, 64 or 128. Otherwise the blocks of rows that an item
    /// takes.
    pub tile: u32,
    /// Staged: groups below which a smaller tile is taken.
    pub busy: u32,
    /// Words that the T x T matrices of attention may take at one time; one group of heads is always taken.
    pub heads_words: u64,
}

impl Shapes {
    /// What does well with a build.
    pub fn of(build: &Build) -> Shapes {
        match build.staged {
            true => Shapes { items: 256, blocks: 2, rows: 8, tile: 128, busy: 160, heads_words: 1 << 28 },
            false => Shapes { items: 1, blocks: 16, rows: 16, tile: 16, busy: 0, heads_words: 1 << 22 },
        }
    }
}

/// One operation of the plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Its index in the plan.
    pub operation: usize,
    /// What computes it, in order.
    pub launches: Vec<Launch>,
    /// What it writes, in the order of its outputs.
    pub taps: Vec<Tap>,
    /// What is launched once the taps are recorded (and faults are in place): the mean loss.
    pub after: Vec<Launch>,
}

/// An output of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tap {
    /// Its number in the leaf.
    pub tap: usize,
    /// Where it lies.
    pub place: Place,
    /// How many elements it has.
    pub elements: u64,
    /// Their type.
    pub dtype: Dtype,
    /// Where its sums begin in the memory of sums, in words of 64 bits.
    pub sums_at: u64,
    /// How many triples lie there.
    pub sums: u64,
}

/// The launches of every operation of a plan, in order. The plan's shapes are those of a [`crate::places::Layout`].
pub fn launches(plan: &Plan, places: &Places<'_>, shapes: &Shapes, build: &Build) -> Vec<Step> {
    let context = Context { plan, places: *places, shapes: *shapes, staged: build.staged };
    let (mut steps, mut tap, mut sums_at) = (Vec::with_capacity(plan.operations.len()), 0, 0);
    for (index, operation) in plan.operations.iter().enumerate() {
        let (launches, sums) =
            number(&context, context.drafts(operation), operation.outputs.len(), &mut sums_at);
        let outputs = operation.outputs.iter().zip(sums).map(|(&operand, (sums_at, sums))| {
            tap += 1;
            Tap {
                tap: tap - 1,
                place: places.of(operand),
                elements: plan.elements(operand),
                dtype: plan.dtype(operand),
                sums_at,
                sums,
            }
        });
        let taps = outputs.collect();
        let after = match operation.kind {
            Kind::CrossEntropy => vec![context.mean_loss(operation)],
            _ => vec![],
        };
        steps.push(Step { operation: index, launches, taps, after });
    }
    steps
}

/// Words of scratch that the launches of a plan need.
pub fn scratch_words(plan: &Plan, shapes: &Shapes, build: &Build) -> u64 {
    let needed = plan.operations.iter().map(|operation| match operation.kind {
        Kind::Attention
        | Kind::GroupedAttention
        | Kind::AttentionBackward
        | Kind::GroupedAttentionBackward => attention::scratch_words(plan, operation, shapes),
        _ => matmul::scratch_words(plan, operation, build.staged),
    });
    needed.max().unwrap_or(0)
}

/// What every operation's launches are made of.
struct Context<'a> {
    plan: &'a Plan,
    places: Places<'a>,
    shapes: Shapes,
    staged: bool,
}

/// A launch without what records its outputs.
struct Draft {
    kernel: &'static str,
    groups: [u32; 2],
    items: u32,
    arguments: Vec<Argument>,
    /// For each `SUMS` of the kernel the output that it belongs to, if it belongs to one; none at all if the kernel
    /// takes no `KEY`.
    outputs: Option<Vec<Option<usize>>>,
}

/// Gives every launch its places for sums: those of one output lie side by side, whichever launches write it. Returns
/// the launches, and where each output's triples begin and how many they are.
fn number(
    context: &Context<'_>,
    drafts: Vec<Draft>,
    outputs: usize,
    sums_at: &mut u64,
) -> (Vec<Launch>, Vec<(u64, u64)>) {
    let mut counts = vec![0; outputs];
    for draft in &drafts {
        for output in draft.outputs.iter().flatten().flatten() {
            counts[*output] += draft.triples();
        }
    }
    let mut places = Vec::with_capacity(outputs);
    for count in counts {
        places.push((*sums_at, count));
        *sums_at += 3 * count;
    }
    let mut next: Vec<u64> = places.iter().map(|(at, _)| *at).collect();
    let memories = &context.places.memories;
    let launches = drafts.into_iter().map(|draft| {
        let triples = draft.triples();
        let Draft { kernel, groups, items, mut arguments, outputs } = draft;
        if let Some(outputs) = outputs {
            arguments.push(Argument::Tensor(memories.coefficients, 0));
            for output in outputs {
                // What is no output is not recorded, and nothing is written there.
                let at = output.map_or(0, |output| {
                    next[output] += 3 * triples;
                    next[output] - 3 * triples
                });
                arguments.push(Argument::Tensor(memories.sums, at));
            }
        }
        Launch { kernel, groups, items, arguments }
    });
    (launches.collect(), places)
}

impl Draft {
    fn triples(&self) -> u64 {
        u64::from(self.groups[0]) * u64::from(self.groups[1])
    }
}

/// A memory and a place in it as an argument.
fn tensor(place: Place) -> Argument {
    Argument::Tensor(place.buffer, place.at)
}

/// A number of rows or columns. [`crate::places::Layout::of`] has seen that they are below 2^31.
fn count(number: u64) -> u32 {
    u32::try_from(number).expect("launches: the layout was made for shapes below 2^31")
}

/// A number of rows or columns as an argument.
fn number_of(number: u64) -> Argument {
    Argument::U32(count(number))
}

impl Context<'_> {
    fn input(&self, operation: &Operation, index: usize) -> Argument {
        tensor(self.places.of(operation.inputs[index]))
    }

    fn output(&self, operation: &Operation, index: usize) -> Argument {
        tensor(self.places.of(operation.outputs[index]))
    }

    /// The columns of an operand seen as rows: its last dimension.
    fn columns(&self, operand: Operand) -> u64 {
        self.plan.shape(operand).last().copied().unwrap_or(1)
    }

    fn drafts(&self, operation: &Operation) -> Vec<Draft> {
        match operation.kind {
            Kind::Window => vec![self.window(operation)],
            Kind::Add => vec![self.elementwise(operation, "add")],
            Kind::Gelu => vec![self.elementwise(operation, "gelu")],
            Kind::GeluBackward => vec![self.elementwise(operation, "gelu_backward")],
            Kind::Swiglu => vec![self.elementwise(operation, "swiglu")],
            Kind::SwigluBackward => vec![self.elementwise(operation, "swiglu_backward")],
            Kind::Embedding | Kind::TokenEmbedding => vec![self.embedding(operation)],
            Kind::EmbeddingBackward | Kind::TokenEmbeddingBackward => self.embedding_backward(operation),
            Kind::Layernorm | Kind::Rmsnorm => vec![self.norm(operation)],
            Kind::LayernormBackward | Kind::RmsnormBackward => self.norm_backward(operation),
            Kind::Rope => vec![self.rope(operation, "rope")],
            Kind::RopeBackward => vec![self.rope(operation, "rope_backward")],
            Kind::CrossEntropy => vec![self.cross_entropy(operation)],
            Kind::CrossEntropyBackward => vec![self.cross_entropy_backward(operation)],
            Kind::LinearBackwardBias => vec![self.bias_gradient(operation)],
            Kind::Linear
            | Kind::Project
            | Kind::ProjectBackwardInput
            | Kind::ProjectBackwardWeight
            | Kind::LinearBackwardInput
            | Kind::LinearBackwardWeight => self.product_of(operation),
            Kind::Attention | Kind::GroupedAttention => self.attention(operation),
            Kind::AttentionBackward | Kind::GroupedAttentionBackward => self.attention_backward(operation),
        }
    }
}
