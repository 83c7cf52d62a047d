//! The gradient tree: a balanced binary tree over leaf numbers, lower index left (docs/spec/plan.md#tree).
//!
//! The node over [lo, hi) splits at lo + ceil((hi - lo) / 2). A device that owns an aligned range of leaves
//! computes a subtree of it, so the step's gradient has the same bits on 1, 2, 4, ... devices.

use crate::buffer::Flat;
use crate::dispatch::Backend;
use crate::kernels;
use std::ops::Range;

/// Adds leaf gradients that arrive in ascending order into the tree over their range.
///
/// At most one buffer per level is held: those of finished left halves.
pub struct Accumulator {
    backend: Backend,
    range: Range<u64>,
    /// Finished nodes that wait for their right neighbour, left to right.
    waiting: Vec<(Range<u64>, Flat)>,
    next: u64,
}

/// Where a node over `range` splits.
fn split(range: &Range<u64>) -> u64 {
    range.start + (range.end - range.start).div_ceil(2)
}

impl Accumulator {
    /// The tree over the leaves of `range`, which is not empty.
    pub fn new(backend: Backend, range: Range<u64>) -> Accumulator {
        assert!(range.start < range.end, "tree: a tree has leaves");
        Accumulator { backend, next: range.start, range, waiting: vec![] }
    }

    /// Takes the gradient of the next leaf and adds up every node it completes. `on_node` sees each finished
    /// node with its range, leaves included, lower ones first.
    pub fn push(&mut self, gradient: impl Into<Flat>, mut on_node: impl FnMut(Range<u64>, &[f32])) {
        let gradient = gradient.into();
        assert!(self.next < self.range.end, "tree: more leaves than the tree has");
        let leaf = self.next..self.next + 1;
        self.next += 1;
        on_node(leaf.clone(), &gradient);
        self.waiting.push((leaf, gradient));
        while let Some(node) = self.completed() {
            let (_, right) = self.waiting.pop().expect("tree: a completed node has a right half");
            let (_, left) = self.waiting.last_mut().expect("tree: a completed node has a left half");
            kernels::add_in_place(self.backend, left, &right);
            on_node(node.clone(), left);
            let top = self.waiting.len() - 1;
            self.waiting[top].0 = node;
        }
    }

    /// The node whose two halves are the last two waiting, if there is one.
    fn completed(&self) -> Option<Range<u64>> {
        let [.., (left, _), (right, _)] = &self.waiting[..] else { return None };
        let mut node = self.range.clone();
        // Down from the root to the node that ends here and is not yet whole.
        while node.end - node.start > 1 {
            let middle = split(&node);
            if left.start == node.start
                && left.end == middle
                && right.end == node.end
                && right.start == middle
            {
                return Some(node);
            }
            node = if left.start < middle { node.start..middle } else { middle..node.end };
        }
        None
    }

    /// How many gradients it holds.
    pub fn held(&self) -> usize {
        self.waiting.len()
    }

    /// The root, once every leaf was pushed.
    pub fn finish(mut self) -> Flat {
        assert!(self.next == self.range.end && self.waiting.len() == 1, "tree: not every leaf was pushed");
        self.waiting.pop().expect("tree: one node waits").1
    }
}

/// The place of a node in a step record, if devices may meet there: the level of `devices_max` nodes first,
/// the root last.
pub fn meeting_index(node: &Range<u64>, leaves: u64, devices_max: u64) -> Option<usize> {
    let size = node.end - node.start;
    if size == 0 || !leaves.is_multiple_of(size) || !node.start.is_multiple_of(size) {
        return None;
    }
    let nodes = leaves / size;
    if nodes > devices_max || !nodes.is_power_of_two() {
        return None;
    }
    // devices_max + devices_max/2 + ... + 2 nodes stand before the level of one, and so on: 2 devices_max - 2
    // nodes.
    Some((2 * devices_max - 2 * nodes + node.start / size) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tree by recursion, as the text says it.
    fn plain(leaves: &[Vec<f32>]) -> Vec<f32> {
        match leaves {
            [one] => one.clone(),
            _ => {
                let (left, right) = leaves.split_at(leaves.len().div_ceil(2));
                plain(left).iter().zip(plain(right)).map(|(left, right)| left + right).collect()
            }
        }
    }

    /// Sixteen values of either sign and magnitude 1/8 to 4.
    fn leaf(i: u64) -> Vec<f32> {
        let word = |j: u32| (i as u32 * 16 + j + 1).wrapping_mul(2_654_435_761);
        (0..16)
            .map(|j| f32::from_bits(word(j) & 0x807f_ffff | (124 + (word(j) >> 23 & 0xff) % 5) << 23))
            .collect()
    }

    fn bits(x: &[f32]) -> Vec<u32> {
        x.iter().map(|x| x.to_bits()).collect()
    }

    #[test]
    fn the_root_is_the_recursive_sum_for_every_number_of_leaves() {
        for count in 1..=40_u64 {
            let leaves: Vec<Vec<f32>> = (0..count).map(leaf).collect();
            let mut tree = Accumulator::new(Backend::SCALAR, 0..count);
            let (mut nodes, mut most) = (vec![], 0);
            for gradient in &leaves {
                tree.push(gradient.clone(), |node, _| nodes.push(node));
                most = most.max(tree.held());
            }
            assert_eq!(nodes.len() as u64, 2 * count - 1, "{count} leaves have that many nodes");
            assert!(
                most as u32 <= count.next_power_of_two().ilog2() + 1,
                "{most} buffers for {count} leaves"
            );
            assert_eq!(bits(&tree.finish()), bits(&plain(&leaves)), "{count} leaves");
        }
    }

    #[test]
    fn a_sequential_sum_is_another_sum() {
        let leaves: Vec<Vec<f32>> = (0..16).map(leaf).collect();
        let mut sum = leaves[0].clone();
        leaves[1..].iter().for_each(|leaf| kernels::add_in_place(Backend::SCALAR, &mut sum, leaf));
        assert_ne!(bits(&sum), bits(&plain(&leaves)));
    }

    #[test]
    fn devices_on_aligned_ranges_meet_at_the_nodes_of_the_whole_tree() {
        for (leaves, devices_max) in [(8_u64, 8_u64), (12, 4), (20, 4), (6, 2), (5, 1)] {
            let mut whole = Accumulator::new(Backend::SCALAR, 0..leaves);
            let mut nodes: Vec<Option<Vec<u32>>> = vec![None; 2 * devices_max as usize - 1];
            for i in 0..leaves {
                whole.push(leaf(i), |node, words| {
                    if let Some(index) = meeting_index(&node, leaves, devices_max) {
                        assert!(nodes[index].replace(bits(words)).is_none(), "index {index} twice");
                    }
                });
            }
            assert!(nodes.iter().all(Option::is_some), "{leaves} leaves, {devices_max} devices");
            assert_eq!(nodes.last().unwrap().as_ref().unwrap(), &bits(&whole.finish()));
            for devices in (0..=devices_max.ilog2()).map(|log| 1_u64 << log) {
                for rank in 0..devices {
                    let range = rank * leaves / devices..(rank + 1) * leaves / devices;
                    let index = meeting_index(&range, leaves, devices_max).unwrap();
                    let mut own = Accumulator::new(Backend::SCALAR, range.clone());
                    range.for_each(|i| own.push(leaf(i), |_, _| ()));
                    assert_eq!(Some(bits(&own.finish())), nodes[index], "rank {rank} of {devices}");
                }
            }
        }
    }
}
