//! The order `warp32` in registers: lane l of the order is one lane of one register.

use super::vector::Vector;
use crate::number::elementary::fma;
use crate::reference::reduce::{LANES, max};

/// Registers that the 32 lanes take at most.
const REGISTERS_MAX: usize = 4;

/// The 32 lanes in registers.
struct Lanes<V>([V; REGISTERS_MAX]);

impl<V: Vector> Lanes<V> {
    const REGISTERS: usize = LANES / V::LANES;

    #[inline(always)]
    fn new(start: f32) -> Self {
        const { assert!(Self::REGISTERS <= REGISTERS_MAX && Self::REGISTERS * V::LANES == LANES) }
        Lanes([V::splat(start); REGISTERS_MAX])
    }

    /// One element to each lane: `step` takes a register of lanes and the place of its first element.
    #[inline(always)]
    fn block(&mut self, step: impl Fn(V, usize) -> V) {
        for r in 0..Self::REGISTERS {
            self.0[r] = step(self.0[r], r * V::LANES);
        }
    }

    /// Joins all lanes, after `rest` has changed the first of them for what is less than a block: the butterfly of the
    /// reference, in registers as long as both sides fill some.
    #[inline(always)]
    fn join(
        self,
        rest: impl FnOnce(&mut [f32; LANES]),
        registers: impl Fn(V, V) -> V,
        lanes: impl Fn(f32, f32) -> f32,
    ) -> f32 {
        let mut words = [0.0; LANES];
        for r in 0..Self::REGISTERS {
            self.0[r].store(&mut words[r * V::LANES..]);
        }
        rest(&mut words);
        let mut s = LANES / 2;
        while s > 0 {
            if s >= V::LANES {
                for i in (0..s).step_by(V::LANES) {
                    registers(V::load(&words[i..]), V::load(&words[i + s..])).store(&mut words[i..]);
                }
            } else {
                for i in 0..s {
                    words[i] = lanes(words[i], words[i + s]);
                }
            }
            s /= 2;
        }
        words[0]
    }
}

/// See `reference::reduce::warp32_sum`.
#[inline(always)]
pub fn warp32_sum<V: Vector>(x: &[f32]) -> f32 {
    let mut lanes = Lanes::<V>::new(0.0);
    let (blocks, rest) = x.as_chunks::<LANES>();
    for block in blocks {
        lanes.block(|lane, at| lane.add(V::load(&block[at..])));
    }
    let last = |lane: &mut [f32; LANES]| rest.iter().enumerate().for_each(|(l, value)| lane[l] += value);
    lanes.join(last, V::add, |a, b| a + b)
}

/// See `reference::reduce::warp32_dot`.
#[inline(always)]
pub fn warp32_dot<V: Vector>(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len(), "warp32_dot: rows of unequal length");
    let mut lanes = Lanes::<V>::new(0.0);
    let ((a_blocks, a_rest), (b_blocks, b_rest)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    for (a, b) in a_blocks.iter().zip(b_blocks) {
        lanes.block(|lane, at| V::load(&a[at..]).fma(V::load(&b[at..]), lane));
    }
    let last = |lane: &mut [f32; LANES]| {
        for (l, (a, b)) in a_rest.iter().zip(b_rest).enumerate() {
            lane[l] = fma(*a, *b, lane[l]);
        }
    };
    lanes.join(last, V::add, |a, b| a + b)
}

/// See `reference::reduce::warp32_max`.
#[inline(always)]
pub fn warp32_max<V: Vector>(x: &[f32]) -> f32 {
    let mut lanes = Lanes::<V>::new(f32::NEG_INFINITY);
    let (blocks, rest) = x.as_chunks::<LANES>();
    for block in blocks {
        lanes.block(|lane, at| lane.larger(V::load(&block[at..])));
    }
    let last = |lane: &mut [f32; LANES]| {
        rest.iter().enumerate().for_each(|(l, value)| lane[l] = max(lane[l], *value));
    };
    lanes.join(last, V::larger, max)
}
