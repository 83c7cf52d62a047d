//! Which window of the token stream a sequence reads: a keyed permutation, so that any step's windows are
//! known without walking the steps before it.
//!
//! Source: docs/spec/plan.md#order.
//! A window is T + 1 tokens from w * T on (the last token of one is the first of
//! the next: it is a target there and an input here), w < (tokens - 1) / T. Sequence number s = (step *
//! leaves + leaf) * B + b; epoch = s / windows, slot = s mod windows; the window is a permutation of the slot
//! keyed by seed and epoch: every epoch reads every window once.

use crate::number::philox::{key_of_seed, philox4x32_10};

/// Rounds of the Feistel network.
const ROUNDS: u32 = 8;
/// Most windows: half a slot number must fit one counter word.
const WINDOWS_MAX: u64 = 1 << 62;

/// Why a token stream has no order.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OrderError {
    /// Not one whole window.
    #[error("expected at least {expected} tokens (one window of {times} and its targets), found {found}")]
    TooFewTokens {
        /// T + 1.
        expected: u64,
        /// T.
        times: u64,
        /// Tokens in the stream.
        found: u64,
    },
    /// T = 0.
    #[error("expected windows of at least 1 token, found 0")]
    NoTimes,
}

/// The order of a run's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    windows: u64,
    seed: u64,
    half_bits: u32,
}

impl Order {
    /// The order of `tokens` tokens in windows of `times`, under `seed`.
    pub fn new(tokens: u64, times: u64, seed: u64) -> Result<Order, OrderError> {
        if times == 0 {
            return Err(OrderError::NoTimes);
        }
        let windows = tokens.saturating_sub(1) / times;
        if windows == 0 {
            return Err(OrderError::TooFewTokens { expected: times.saturating_add(1), times, found: tokens });
        }
        assert!(windows <= WINDOWS_MAX, "order: more windows than memory holds tokens");
        // The smallest even number of bits that holds every slot.
        let half_bits = (64 - (windows - 1).leading_zeros()).div_ceil(2);
        Ok(Order { windows, seed, half_bits })
    }

    /// How many windows one epoch reads.
    pub fn windows(&self) -> u64 {
        self.windows
    }

    /// The window that sequence number `sequence` reads.
    pub fn window(&self, sequence: u64) -> u64 {
        let epoch = sequence / self.windows;
        let mut slot = sequence % self.windows;
        // Cycle walking: the network permutes 0..2^bits; stepping on until the value is a window permutes the
        // windows, since the cycle through a window comes back to one.
        loop {
            slot = self.feistel(slot, epoch);
            if slot < self.windows {
                return slot;
            }
        }
    }

    /// The windows of one leaf, in batch order.
    pub fn leaf_windows(&self, step: u64, leaf: u64, leaves: u64, batches: u64) -> Vec<u64> {
        let first = (step * leaves + leaf) * batches;
        (first..first + batches).map(|sequence| self.window(sequence)).collect()
    }

    /// Eight rounds over (left, right): (left, right) = (right, left xor F(right)), F = word 0 of
    /// Philox4x32-10 with counter (right, round, epoch low, epoch high) under the seed, cut to half the bits.
    fn feistel(&self, slot: u64, epoch: u64) -> u64 {
        let mask = (1_u64 << self.half_bits) - 1;
        let (mut left, mut right) = ((slot >> self.half_bits) as u32, (slot & mask) as u32);
        for round in 0..ROUNDS {
            let counter = [right, round, epoch as u32, (epoch >> 32) as u32];
            let word = philox4x32_10(counter, key_of_seed(self.seed))[0];
            (left, right) = (right, left ^ (word & mask as u32));
        }
        u64::from(left) << self.half_bits | u64::from(right)
    }
}

/// Inputs and targets of windows: row b * T + t holds token w_b * T + t, and its target the token after it.
pub fn inputs_and_targets(tokens: &[u32], windows: &[u64], times: usize) -> (Vec<u32>, Vec<u32>) {
    let starts = windows.iter().map(|window| *window as usize * times);
    let inputs = starts.clone().flat_map(|start| &tokens[start..start + times]).copied().collect();
    let targets = starts.flat_map(|start| &tokens[start + 1..start + 1 + times]).copied().collect();
    (inputs, targets)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epoch(order: &Order, epoch: u64) -> Vec<u64> {
        (epoch * order.windows()..(epoch + 1) * order.windows()).map(|s| order.window(s)).collect()
    }

    #[test]
    fn every_epoch_reads_every_window_once() {
        for windows in (1..40).chain([63, 64, 65, 255, 256, 257, 1000, 4097]) {
            let order = Order::new(windows * 8 + 1, 8, 1234).unwrap();
            assert_eq!(order.windows(), windows);
            for number in [0, 1, 1 << 33] {
                let mut seen = epoch(&order, number);
                seen.sort_unstable();
                assert_eq!(seen, (0..windows).collect::<Vec<_>>(), "{windows} windows, epoch {number}");
            }
        }
    }

    #[test]
    fn seed_and_epoch_change_the_order() {
        let order = Order::new(8001, 8, 1).unwrap();
        let other = Order::new(8001, 8, 1 << 32 | 1).unwrap();
        assert_ne!(epoch(&order, 0), epoch(&other, 0));
        assert_ne!(epoch(&order, 0), epoch(&order, 1));
        assert_ne!(epoch(&order, 0), epoch(&order, 1 << 32));
        assert_ne!(epoch(&order, 0), (0..1000).collect::<Vec<_>>());
    }

    #[test]
    fn leaves_take_consecutive_sequence_numbers() {
        let order = Order::new(8001, 8, 5).unwrap();
        let all: Vec<u64> = (0..2 * 4 * 3).map(|s| order.window(s)).collect();
        let leaves = (0..2).flat_map(|step| (0..4).map(move |leaf| (step, leaf)));
        let by_leaf: Vec<u64> =
            leaves.flat_map(|(step, leaf)| order.leaf_windows(step, leaf, 4, 3)).collect();
        assert_eq!(by_leaf, all);
    }

    #[test]
    fn a_stream_shorter_than_one_window_is_rejected() {
        assert_eq!(Order::new(9, 8, 0).unwrap().windows(), 1);
        let error = Order::new(8, 8, 0).unwrap_err();
        assert_eq!(error, OrderError::TooFewTokens { expected: 9, times: 8, found: 8 });
        assert!(Order::new(0, 8, 0).is_err() && Order::new(9, 0, 0).is_err());
    }

    #[test]
    fn targets_are_the_inputs_moved_by_one() {
        let tokens: Vec<u32> = (0..17).collect();
        let (inputs, targets) = inputs_and_targets(&tokens, &[3, 0], 4);
        assert_eq!(inputs, [12, 13, 14, 15, 0, 1, 2, 3]);
        assert_eq!(targets, [13, 14, 15, 16, 1, 2, 3, 4]);
    }

    #[test]
    fn the_order_has_not_moved() {
        let order = Order::new(10 * 4 + 1, 4, 42).unwrap();
        assert_eq!(epoch(&order, 0), [0, 5, 4, 9, 1, 2, 6, 3, 7, 8]);
        assert_eq!(epoch(&order, 1), [1, 5, 7, 6, 4, 8, 2, 9, 3, 0]);
        assert_eq!(epoch(&order, (1 << 33) + 1), [8, 0, 6, 7, 4, 9, 3, 5, 1, 2]);
        // As many windows as four bits number: no bit more.
        let order = Order::new(16 * 4 + 1, 4, 42).unwrap();
        assert_eq!(epoch(&order, 0), [0, 5, 12, 9, 1, 2, 11, 3, 15, 13, 14, 6, 4, 10, 8, 7]);
    }
}
