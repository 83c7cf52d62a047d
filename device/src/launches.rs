//! From the operations of a plan to launches of kernels.
//!
//! Everything here is known before a run: shapes, places and the order follow from the plan. What a launch's shape is
//! (groups, items, tiles) changes no bit.

use crate::machine::{Build, Launch};
use crate::places::{Place, Places};
use schemas::checksum::Dtype;
use schemas::plan::Plan;

/// The shapes of launches. None of them changes a bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shapes {
    /// Work-items in a group: 1 to 256; a multiple of 32 where [`Build::staged`].
    pub items: u32,
    /// Blocks of 1024 elements that a group of an elementwise kernel takes.
    pub blocks: u32,
    /// Rows that a group of a kernel over rows takes.
    pub rows: u32,
    /// Staged: the side of a matrix product's tile, 32, 64 or 128. Otherwise the blocks of rows that an item takes.
    pub tile: u32,
    /// Words that the T x T matrices of attention may take at one time; one group of heads is always taken.
    pub heads_words: u64,
}

impl Shapes {
    /// What does well with a build.
    pub fn of(build: &Build) -> Shapes {
        match build.staged {
            true => Shapes { items: 256, blocks: 1, rows: 8, tile: 128, heads_words: 1 << 28 },
            false => Shapes { items: 1, blocks: 16, rows: 16, tile: 16, heads_words: 1 << 22 },
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

/// The launches of every operation of a plan, in order.
pub fn launches(plan: &Plan, places: &Places<'_>, shapes: &Shapes, build: &Build) -> Vec<Step> {
    let _ = (plan, places, shapes, build);
    vec![]
}

/// Words of scratch that the launches of a plan need.
pub fn scratch_words(plan: &Plan, shapes: &Shapes, build: &Build) -> u64 {
    let _ = (plan, shapes, build);
    0
}
