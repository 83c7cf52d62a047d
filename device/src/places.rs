//! Where everything that a leaf reads and writes lies in device memory, and how many bytes that takes.

use crate::backend::BackendError;
use crate::launches::{self, Shapes, Step};
use crate::machine::{Buffer, Build};
use schemas::fold::BLOCK_WORDS;
use schemas::plan::{Operand, Plan};
use std::ops::RangeInclusive;

/// Tensors begin at multiples of this many words.
const ALIGNMENT_WORDS: u64 = 64;

/// Where a tensor begins: a memory and a word in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The memory.
    pub buffer: Buffer,
    /// Words before it.
    pub at: u64,
}

/// The memories that a leaf works in. Sizes of those that only a leaf needs are in [`Bytes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memories {
    /// The plan's tensors.
    pub tensors: Buffer,
    /// The plan's tables, as [`tables`] gives them.
    pub tables: Buffer,
    /// Where each sequence begins in the token stream: B of `ulong` ([`crate::order::starts`]).
    pub starts: Buffer,
    /// The leaf's positions sorted by token ([`crate::order::sorted`]).
    pub sorted: Buffer,
    /// What kernels of one operation leave to each other.
    pub scratch: Buffer,
    /// Triples of `ulong`: each group's sums of what it wrote.
    pub sums: Buffer,
    /// One word: the leaf's mean loss.
    pub loss: Buffer,
    /// The token stream, u32.
    pub stream: Buffer,
    /// The coefficients of folds, as [`crate::places::coefficients_bytes`] says: 1024 of each sum, then the factors.
    pub coefficients: Buffer,
    /// The flat parameters.
    pub parameters: Place,
    /// The leaf's flat gradient.
    pub gradient: Place,
}

/// How many bytes the memories of a leaf need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bytes {
    /// [`Memories::tensors`].
    pub tensors: u64,
    /// [`Memories::tables`].
    pub tables: u64,
    /// [`Memories::starts`].
    pub starts: u64,
    /// [`Memories::sorted`].
    pub sorted: u64,
    /// [`Memories::scratch`].
    pub scratch: u64,
    /// [`Memories::sums`].
    pub sums: u64,
    /// [`Memories::loss`].
    pub loss: u64,
    /// [`Memories::coefficients`], for every tap and for flat vectors.
    pub coefficients: u64,
}

/// Where a plan's operands lie in their memories, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    tensors: Vec<u64>,
    parameters: Vec<u64>,
    tables: Vec<u64>,
    /// What it all needs.
    pub bytes: Bytes,
}

impl Layout {
    /// The layout of a plan, launched so.
    pub fn of(plan: &Plan, shapes: &Shapes, build: &Build) -> Result<Layout, BackendError> {
        check(plan)?;
        let (tensors, tensor_words) = tensors(plan);
        let parameters = ends(plan.parameters.iter().map(|parameter| parameter.shape.iter().product()));
        let tables = ends(plan.tables.iter().map(|table| table.words.len() as u64));
        let d = plan.dimensions;
        let bytes = Bytes {
            tensors: 4 * tensor_words,
            // No memory has no bytes at all.
            tables: 4 * tables.last().copied().unwrap_or(0).max(1),
            starts: 8 * d.batch,
            sorted: 4 * (d.vocabulary + 1 + d.rows()),
            scratch: 4 * launches::scratch_words(plan, shapes, build).max(1),
            sums: 0,
            loss: 4,
            coefficients: coefficients_bytes(plan),
        };
        let mut layout = Layout { tensors, parameters, tables, bytes };
        let steps = launches::launches(plan, &Places::nowhere(&layout), shapes, build);
        layout.bytes.sums = 8 * sums_end(&steps).max(3);
        Ok(layout)
    }
}

/// Kernels count rows and columns, and heads of all sequences, in 32 bits.
fn check(plan: &Plan) -> Result<(), BackendError> {
    let shapes = plan.parameters.iter().map(|parameter| (&parameter.name, &parameter.shape));
    for (name, shape) in shapes.chain(plan.tensors.iter().map(|tensor| (&tensor.name, &tensor.shape))) {
        let columns = shape.last().copied().unwrap_or(1);
        let rows: u64 = shape.iter().rev().skip(1).product();
        if rows.max(columns) >= 1 << 31 {
            let found = format!("{name} with {rows} rows of {columns}");
            return Err(BackendError(format!(
                "plan: expected tensors of less than 2^31 rows and columns, found {found}"
            )));
        }
    }
    Ok(())
}

/// Words of the longest tensor whose fold is taken.
pub fn coefficient_words(plan: &Plan) -> u64 {
    let longest = plan.taps().map(|tap| plan.elements(tap.operand)).max().unwrap_or(0);
    longest.max(plan.parameter_count())
}

/// Bytes of the coefficients of every tensor and flat vector of a plan: 1024 of each sum, and a pair for each block.
pub fn coefficients_bytes(plan: &Plan) -> u64 {
    let blocks = coefficient_words(plan).div_ceil(BLOCK_WORDS as u64);
    16 * (BLOCK_WORDS as u64 + blocks)
}

/// The words of a plan's tables, one after the other.
pub fn tables(plan: &Plan) -> Vec<u32> {
    plan.tables.iter().flat_map(|table| table.words.iter().copied()).collect()
}

/// The operands of a plan in device memory.
#[derive(Clone, Copy, Debug)]
pub struct Places<'a> {
    /// Where in their memories.
    pub layout: &'a Layout,
    /// The memories.
    pub memories: Memories,
}

impl<'a> Places<'a> {
    /// Places in memories that do not exist, to count with.
    fn nowhere(layout: &'a Layout) -> Places<'a> {
        let buffer = Buffer(usize::MAX);
        let place = Place { buffer, at: 0 };
        let memories = Memories {
            tensors: buffer,
            tables: buffer,
            starts: buffer,
            sorted: buffer,
            scratch: buffer,
            sums: buffer,
            loss: buffer,
            stream: buffer,
            coefficients: buffer,
            parameters: place,
            gradient: place,
        };
        Places { layout, memories }
    }

    /// Where an operand lies.
    pub fn of(&self, operand: Operand) -> Place {
        let (memories, layout) = (&self.memories, self.layout);
        let within = |place: Place, at: u64| Place { buffer: place.buffer, at: place.at + at };
        match operand {
            Operand::Parameter(index) => within(memories.parameters, start(&layout.parameters, index)),
            Operand::Gradient(index) => within(memories.gradient, start(&layout.parameters, index)),
            Operand::Table(index) => Place { buffer: memories.tables, at: start(&layout.tables, index) },
            Operand::Tensor(index) => Place { buffer: memories.tensors, at: layout.tensors[index] },
        }
    }
}

/// Words of sums that steps use.
fn sums_end(steps: &[Step]) -> u64 {
    steps.iter().flat_map(|step| &step.taps).map(|tap| tap.sums_at + 3 * tap.sums).max().unwrap_or(0)
}

/// Where each of several neighbours ends.
fn ends(lengths: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut end = 0;
    lengths
        .map(|length| {
            end += length;
            end
        })
        .collect()
}

fn start(ends: &[u64], index: usize) -> u64 {
    if index == 0 { 0 } else { ends[index - 1] }
}

/// The place of each tensor in one memory, and its words. Tensors that are never needed at one time share words.
fn tensors(plan: &Plan) -> (Vec<u64>, u64) {
    let lives = lives(plan);
    let words = |tensor: usize| plan.elements(Operand::Tensor(tensor)).next_multiple_of(ALIGNMENT_WORDS);
    let mut order: Vec<usize> = (0..plan.tensors.len()).collect();
    order.sort_by_key(|tensor| (std::cmp::Reverse(words(*tensor)), *tensor));
    let mut places = vec![0; plan.tensors.len()];
    let mut end = 0;
    // Those that have a place, by their first word.
    let mut placed: Vec<usize> = Vec::with_capacity(order.len());
    for tensor in order {
        let mut at = 0;
        for &other in &placed {
            let together =
                lives[other].start() <= lives[tensor].end() && lives[tensor].start() <= lives[other].end();
            if together && places[other] < at + words(tensor) {
                at = at.max(places[other] + words(other));
            }
        }
        let index = placed.partition_point(|other| places[*other] <= at);
        placed.insert(index, tensor);
        places[tensor] = at;
        end = end.max(at + words(tensor));
    }
    (places, end)
}

/// The operations during which each tensor is needed, from the one that writes it to the last that reads it.
fn lives(plan: &Plan) -> Vec<RangeInclusive<usize>> {
    let mut lives = vec![0..=0; plan.tensors.len()];
    for (index, operation) in plan.operations.iter().enumerate() {
        for operand in &operation.outputs {
            if let Operand::Tensor(tensor) = operand {
                lives[*tensor] = index..=index;
            }
        }
        for operand in &operation.inputs {
            if let Operand::Tensor(tensor) = operand {
                lives[*tensor] = *lives[*tensor].start()..=index;
            }
        }
    }
    lives
}
