//! The challenge a receipt answers: derived from the exact bytes of a log checkpoint that covers the prediction, so
//! that the order "prediction, then receipt" is proven by hashes and not by clocks (docs/spec/receipt.md).

use crate::digest::{Challenge, RunId, digest};
use crate::run::Steps;

/// Longest checkpoint note accepted in a receipt, in bytes.
pub const CHECKPOINT_BYTES_MAX: usize = 16 << 10;

/// The challenge of a run under a checkpoint note.
pub fn challenge(run: RunId, checkpoint: &[u8]) -> Challenge {
    Challenge(digest("challenge", &[&run.0, checkpoint]))
}

/// The step whose tensors the challenge asks for, within `steps`.
///
/// A 64-bit number from the challenge, modulo the number of steps: the bias is below 2^-31.
pub fn chosen_step(challenge: Challenge, steps: Steps) -> u64 {
    let bytes = digest("challenge/step", &[&challenge.0]);
    let number = u64::from_le_bytes(bytes[..8].try_into().expect("challenge: 8 of 32 bytes"));
    steps.first + number % steps.count()
}
