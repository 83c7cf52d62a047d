//! What a run needs of memory: where a leaf's tensors lie, how many leaves run side by side, and the sum of it all.
//!
//! All of it follows from the plan and the number of threads, so that it can be told before anything runs; none of it
//! changes a bit.

use schemas::checksum::Dtype;
use schemas::plan::{Operand, Plan};
use std::ops::{Range, RangeInclusive};

/// Tensors start at multiples of this many words: a cache line, and the longest vector.
const ALIGNMENT_WORDS: usize = 16;
/// Leaves run side by side as long as their tensors and gradients together stay below this. A leaf that is larger keeps
/// all threads busy alone.
const SIDE_BY_SIDE_BYTES: u64 = 512 << 20;
/// What the program needs before it holds any tensor: code, allocator, plan.
const PROGRAM_BYTES: u64 = 12 << 20;
/// What the kernels of one thread need beside their tensors: packed panels and the heads of an attention.
const SCRATCH_BYTES: u64 = 4 << 20;

/// The operations during which each tensor is needed: from the one that writes it to the last that reads it.
pub fn lives(plan: &Plan) -> Vec<RangeInclusive<usize>> {
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

/// Where a leaf's f32 tensors lie in one buffer. Tensors that are never needed at the same time share words.
#[derive(Clone, Debug)]
pub struct Layout {
    /// The place of each tensor; of u32 tensors (tokens and targets, which are read, not computed) it is empty.
    pub places: Vec<Range<usize>>,
    /// Words of the buffer.
    pub words: usize,
}

impl Layout {
    /// Largest first, each at the lowest place where no tensor lies that is needed at the same time.
    pub fn of(plan: &Plan) -> Layout {
        let lives = lives(plan);
        let words = |tensor: usize| match plan.tensors[tensor].dtype {
            Dtype::U32 => 0,
            Dtype::F32 => plan.elements(Operand::Tensor(tensor)) as usize,
        };
        let mut order: Vec<usize> = (0..plan.tensors.len()).filter(|tensor| words(*tensor) > 0).collect();
        order.sort_by_key(|tensor| (std::cmp::Reverse(words(*tensor)), *tensor));
        let mut layout = Layout { places: vec![0..0; plan.tensors.len()], words: 0 };
        let mut placed: Vec<usize> = Vec::with_capacity(order.len());
        for tensor in order {
            let life = &lives[tensor];
            let together =
                |other: &&usize| lives[**other].start() <= life.end() && life.start() <= lives[**other].end();
            let first = placed.iter().filter(together).fold(0, |first, other| {
                let taken = &layout.places[*other];
                // `placed` is in order of place, so the first gap met is the lowest.
                if first + words(tensor) <= taken.start { first } else { first.max(taken.end) }
            });
            let first = first.next_multiple_of(ALIGNMENT_WORDS);
            let place = first..first + words(tensor).next_multiple_of(ALIGNMENT_WORDS);
            layout.words = layout.words.max(place.end);
            let at = placed.partition_point(|other| layout.places[*other].start <= place.start);
            placed.insert(at, tensor);
            layout.places[tensor] = place;
        }
        layout
            .places
            .iter_mut()
            .enumerate()
            .for_each(|(tensor, place)| place.end = place.start + words(tensor));
        layout
    }
}

/// How many leaves run side by side on `threads` threads.
pub fn side_by_side(plan: &Plan, threads: u64, layout: &Layout) -> u64 {
    let leaf = 4 * (layout.words as u64 + plan.parameter_count());
    (SIDE_BY_SIDE_BYTES / leaf.max(1)).clamp(1, threads.min(plan.leaves).max(1))
}

/// Most flat gradients held at one time: those of the leaves that run, and the tree's finished left halves.
pub fn gradients_held(leaves: u64, side_by_side: u64) -> u64 {
    let firsts = (0..leaves).step_by(side_by_side as usize);
    firsts.map(|first| waiting(leaves, first) + side_by_side.min(leaves - first)).max().unwrap_or(0)
}

/// Nodes that wait in the tree over `leaves` once `done` of them were pushed (see `tree`).
fn waiting(leaves: u64, done: u64) -> u64 {
    let left = leaves.div_ceil(2);
    match done {
        0 => 0,
        _ if done == leaves => 1,
        _ if done <= left => waiting(left, done),
        _ => 1 + waiting(leaves - left, done - left),
    }
}

/// What a run needs, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs {
    /// Parameters and moments.
    pub state: u64,
    /// The token stream.
    pub data: u64,
    /// Leaves that run side by side.
    pub side_by_side: u64,
    /// Their tensors.
    pub tensors: u64,
    /// Flat gradients.
    pub gradients: u64,
    /// Code, allocator, and what the kernels of each thread need beside their tensors.
    pub program: u64,
}

impl Needs {
    /// The needs of a session of `plan` on `threads` threads.
    pub fn of(plan: &Plan, threads: u64) -> Needs {
        let layout = Layout::of(plan);
        let side_by_side = side_by_side(plan, threads, &layout);
        let parameters = plan.parameter_count();
        // A checksum holds one digest for each chunk, a fold table one pair of factors for each block.
        let sums = 2 * 48 * parameters / 1024;
        Needs {
            state: 12 * parameters,
            data: 4 * plan.data.tokens,
            side_by_side,
            tensors: side_by_side * 4 * layout.words as u64,
            gradients: gradients_held(plan.leaves, side_by_side) * 4 * parameters,
            program: PROGRAM_BYTES + threads * SCRATCH_BYTES + sums,
        }
    }

    /// The peak.
    pub fn total(&self) -> u64 {
        self.state + self.data + self.tensors + self.gradients + self.program
    }
}

/// The most memory this process ever held, as the system counted it; none where it does not say.
pub fn peak() -> Option<u64> {
    kilobytes("/proc/self/status", "VmHWM:")
}

/// Bytes that the system can give without swapping; no limit where it does not say.
pub fn available() -> u64 {
    kilobytes("/proc/meminfo", "MemAvailable:").unwrap_or(u64::MAX)
}

/// Bytes of memory that this machine has; no limit where the system does not say.
pub fn installed() -> u64 {
    kilobytes("/proc/meminfo", "MemTotal:").unwrap_or(u64::MAX)
}

/// The bytes of a line such as `VmHWM:  1024 kB`.
fn kilobytes(file: &str, key: &str) -> Option<u64> {
    let text = std::fs::read_to_string(file).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    Some(line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()?.saturating_mul(1024))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dispatch::Backend;
    use crate::tree::Accumulator;

    #[test]
    fn the_gradients_counted_are_those_the_tree_holds() {
        for leaves in 1..=40_u64 {
            for group in 1..=7_u64 {
                let mut tree = Accumulator::new(Backend::SCALAR, 0..leaves);
                let mut most = 0;
                for first in (0..leaves).step_by(group as usize) {
                    let last = leaves.min(first + group);
                    assert_eq!(tree.held() as u64, waiting(leaves, first), "{first} of {leaves}");
                    most = most.max(tree.held() as u64 + last - first);
                    (first..last).for_each(|_| tree.push(vec![1.0], |_, _| ()));
                }
                assert_eq!(gradients_held(leaves, group), most, "{leaves} leaves, {group} side by side");
            }
        }
    }
}
