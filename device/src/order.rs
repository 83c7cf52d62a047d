//! Which tokens a leaf reads (docs/spec/plan.md#order), and its positions sorted by token.
//!
//! Written from the specification, apart from the oracle.

use schemas::plan::Plan;

/// Where in the token stream each of the leaf's B sequences begins.
pub fn starts(plan: &Plan, step: u64, leaf: u64) -> Vec<u64> {
    let (d, windows) = (plan.dimensions, plan.windows());
    let first = (u128::from(step) * u128::from(plan.leaves) + u128::from(leaf)) * u128::from(d.batch);
    let sequences = (first..).take(d.batch as usize);
    let window = |number: u128| {
        let epoch = (number / u128::from(windows)) as u64;
        shuffled((number % u128::from(windows)) as u64, windows, plan.data.seed, epoch)
    };
    sequences.map(|number| window(number) * d.time).collect()
}

/// A leaf's tokens from the whole stream, sequence after sequence.
pub fn tokens(starts: &[u64], time: u64, stream: &[u32]) -> Vec<u32> {
    starts.iter().flat_map(|&start| &stream[start as usize..(start + time) as usize]).copied().collect()
}

/// Positions grouped by token, ascending within each: V + 1 ends of groups before, then the positions. Group v is
/// the positions from entry v to entry v + 1 of the list that follows.
pub fn sorted(tokens: &[u32], vocabulary: u64) -> Vec<u32> {
    let firsts = vocabulary as usize + 1;
    let mut list = vec![0_u32; firsts + tokens.len()];
    for &token in tokens {
        list[token as usize + 1] += 1;
    }
    for token in 1..firsts {
        list[token] += list[token - 1];
    }
    let mut next = list[..firsts].to_vec();
    for (position, &token) in (0..).zip(tokens) {
        let at = &mut next[token as usize];
        list[firsts + *at as usize] = position;
        *at += 1;
    }
    list
}

/// The window in a slot of an epoch.
fn shuffled(slot: u64, windows: u64, seed: u64, epoch: u64) -> u64 {
    let half = (u64::BITS - (windows - 1).leading_zeros()).div_ceil(2);
    let mask = (1_u64 << half) - 1;
    let mut slot = slot;
    loop {
        let (mut left, mut right) = (slot >> half, slot & mask);
        for round in 0..8 {
            let counter = [right as u32, round, epoch as u32, (epoch >> 32) as u32];
            let word = philox(counter, [seed as u32, (seed >> 32) as u32]);
            (left, right) = (right, left ^ (u64::from(word) & mask));
        }
        slot = left << half | right;
        if slot < windows {
            return slot;
        }
    }
}

/// The first word of Philox4x32-10 (docs/spec/profile.md#init).
fn philox(mut c: [u32; 4], mut key: [u32; 2]) -> u32 {
    let product = |a: u32, b: u32| {
        let wide = u64::from(a) * u64::from(b);
        ((wide >> 32) as u32, wide as u32)
    };
    for _ in 0..10 {
        let (high0, low0) = product(0xd251_1f53, c[0]);
        let (high1, low1) = product(0xcd9e_8d57, c[2]);
        c = [high1 ^ c[1] ^ key[0], low1, high0 ^ c[3] ^ key[1], low0];
        key = [key[0].wrapping_add(0x9e37_79b9), key[1].wrapping_add(0xbb67_ae85)];
    }
    c[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn philox_of_zeros_begins_with_the_word_of_the_page() {
        assert_eq!(philox([0; 4], [0; 2]), 0x6627_e8d5);
    }

    #[test]
    fn the_windows_of_two_epochs_are_those_of_the_page() {
        let epoch = |epoch| (0..10).map(|slot| shuffled(slot, 10, 42, epoch)).collect::<Vec<_>>();
        assert_eq!(epoch(0), [0, 5, 4, 9, 1, 2, 6, 3, 7, 8]);
        assert_eq!(epoch(1), [1, 5, 7, 6, 4, 8, 2, 9, 3, 0]);
        assert_eq!(shuffled(0, 1, 42, 7), 0, "one window");
    }

    #[test]
    fn positions_are_sorted_by_token_and_ascend_within_one() {
        assert_eq!(sorted(&[2, 0, 2, 3, 0], 5), [0, 2, 2, 4, 5, 5, 1, 4, 0, 2, 3]);
    }
}
