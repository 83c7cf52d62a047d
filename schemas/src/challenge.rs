//! The challenge a receipt answers: derived from the text of a log checkpoint that covers the prediction, so
//! that the order "prediction, then receipt" is proven by hashes and not by clocks (docs/spec/receipt.md).

use crate::digest::{Challenge, RunId, digest};
use crate::run::Steps;

/// Longest checkpoint note accepted in a receipt, in bytes.
pub const CHECKPOINT_BYTES_MAX: usize = 16 << 10;

/// The challenge of a run under a checkpoint note: over the note's text alone (origin, tree size, root hash).
///
/// Signature lines are left out. A reader ignores lines of keys it does not know, so whoever answers could add such
/// lines until the challenge chooses a step to their liking; and a signer could vary its own.
pub fn challenge(run: RunId, checkpoint: &[u8]) -> Challenge {
    Challenge(digest("challenge", &[&run.0, note_text(checkpoint)]))
}

/// The text of a signed note: up to and with the line feed before its last empty line. Bytes that are no note are taken
/// whole; no receipt with such a checkpoint is admitted.
fn note_text(note: &[u8]) -> &[u8] {
    match note.windows(2).rposition(|pair| pair == b"\n\n") {
        Some(end) => &note[..=end],
        None => note,
    }
}

/// The step whose tensors the challenge asks for, within `steps`.
///
/// A 64-bit number from the challenge, modulo the number of steps: the bias is below 2^-31.
pub fn chosen_step(challenge: Challenge, steps: Steps) -> u64 {
    let bytes = digest("challenge/step", &[&challenge.0]);
    let number = u64::from_le_bytes(bytes[..8].try_into().expect("challenge: 8 of 32 bytes"));
    steps.first + number % steps.count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signature_lines_do_not_change_a_challenge_and_the_text_does() {
        let run = RunId([1; 32]);
        let text = "example.org/log\n7\nAAAA\n";
        let base = challenge(run, format!("{text}\n\u{2014} example.org/log BBBB\n").as_bytes());
        let more = format!("{text}\n\u{2014} example.org/log BBBB\n\u{2014} x CCCC\n");
        assert_eq!(challenge(run, more.as_bytes()), base);
        assert_eq!(base.0, digest("challenge", &[&run.0, text.as_bytes()]));
        let other = "example.org/log\n8\nAAAA\n\n\u{2014} example.org/log BBBB\n";
        assert_ne!(challenge(run, other.as_bytes()), base);
        assert_ne!(challenge(RunId([2; 32]), more.as_bytes()), base);
    }
}
