//! The form of the checkpoint note that receipts answer, checked before anything is computed.
//!
//! Written from docs/spec/checkpoint.md. A signature is not checked: a device knows no log's key, and whoever reads
//! its receipts does. The form alone tells a checkpoint from a key, a proof or half a file.

use schemas::challenge::CHECKPOINT_BYTES_MAX;

/// What every signature line begins with: an em dash and a space.
const SIGNATURE_PREFIX: &str = "\u{2014} ";

/// Why bytes are no checkpoint note.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoteError {
    /// Nothing, or more than a receipt can hold.
    #[error("challenge: expected 1 to {CHECKPOINT_BYTES_MAX} bytes of a checkpoint note, found {found}")]
    Length {
        /// Its length in bytes.
        found: usize,
    },
    /// Not UTF-8.
    #[error("challenge: expected the text of a checkpoint note, found bytes that are not UTF-8")]
    NotText,
    /// A text that ends within a line.
    #[error("challenge: expected a line feed at the end of the checkpoint note, found none")]
    CutShort,
    /// A line that is not what stands there in a checkpoint note.
    #[error("challenge: line {line}: expected {expected}, found {found:?}")]
    Line {
        /// Its number, from 1.
        line: usize,
        /// What stands there in a checkpoint note.
        expected: &'static str,
        /// The beginning of what stands there.
        found: String,
    },
}

/// Checks that bytes have the form of a signed checkpoint: origin, tree size, root hash, an empty line, signatures.
pub fn check_form(bytes: &[u8]) -> Result<(), NoteError> {
    if !(1..=CHECKPOINT_BYTES_MAX).contains(&bytes.len()) {
        return Err(NoteError::Length { found: bytes.len() });
    }
    let text = std::str::from_utf8(bytes).map_err(|_| NoteError::NotText)?;
    let mut lines = (1..).zip(text.split('\n'));
    let mut expect = |expected: &'static str, holds: fn(&str) -> bool| {
        let (line, found) = lines.next().unwrap_or((1 + text.split('\n').count(), ""));
        if holds(found) {
            return Ok(());
        }
        Err(NoteError::Line { line, expected, found: found.chars().take(60).collect() })
    };
    expect("the log's origin", |line| !line.is_empty())?;
    expect("the tree size, a decimal without leading zeros", is_size)?;
    expect("the root hash, base64 of 32 bytes", is_hash)?;
    expect("an empty line before the signatures", str::is_empty)?;
    expect("a signature line that begins with an em dash and a space", |line| {
        line.starts_with(SIGNATURE_PREFIX)
    })?;
    if text.ends_with('\n') { Ok(()) } else { Err(NoteError::CutShort) }
}

fn is_size(line: &str) -> bool {
    line.parse::<u64>().is_ok_and(|size| size.to_string() == line)
}

/// Standard base64 of 32 bytes: 43 digits, of which the last carries 4 bits, and one `=`.
fn is_hash(line: &str) -> bool {
    let value = |digit: u8| match digit {
        b'A'..=b'Z' => Some(digit - b'A'),
        b'a'..=b'z' => Some(digit - b'a' + 26),
        b'0'..=b'9' => Some(digit - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let Some([digits @ .., last]) = line.strip_suffix('=').map(str::as_bytes) else { return false };
    digits.len() == 42
        && digits.iter().all(|digit| value(*digit).is_some())
        // Bits beyond the 32 bytes are zero in the one encoding that they have.
        && value(*last).is_some_and(|value| value % 4 == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str =
        "log.example/a\n5\nbV8XiX8eO1f8sk/vGvGrVFfkO2bdJ6PVMKQSuFdU1gM=\n\n\u{2014} log.example/a AAAA\n";

    #[test]
    fn the_notes_of_the_fixtures_are_well_formed() {
        let fixtures = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/checkpoint");
        assert_eq!(check_form(&std::fs::read(fixtures.join("size-3.txt")).unwrap()), Ok(()));
        let key = std::fs::read(fixtures.join("log.vkey")).unwrap();
        assert!(matches!(check_form(&key), Err(NoteError::Line { line: 2, .. })), "a log's key is no note");
    }

    #[test]
    fn a_note_is_accepted_up_to_the_limit_and_with_more_signatures() {
        let more = format!("{GOOD}\u{2014} witness BBBB\n");
        let pad = "w".repeat(CHECKPOINT_BYTES_MAX - GOOD.len());
        for note in [GOOD, &GOOD.replace("\n5\n", "\n0\n"), &more, &format!("{pad}{GOOD}")] {
            assert_eq!(check_form(note.as_bytes()), Ok(()), "{note}");
        }
        let long = format!("w{pad}{GOOD}");
        assert_eq!(check_form(long.as_bytes()), Err(NoteError::Length { found: CHECKPOINT_BYTES_MAX + 1 }));
    }

    #[test]
    fn every_line_of_a_note_is_looked_at() {
        for (from, to, wrong) in [
            ("log.example/a\n5", "\n5", 1),
            ("\n5\n", "\n05\n", 2),
            ("\n5\n", "\n+5\n", 2),
            ("\n5\n", "\n\n", 2),
            ("\n5\n", "\n18446744073709551616\n", 2),
            ("bV8", "bV", 3),
            ("bV8", "bV8A", 3),
            ("bV8", "bV-", 3),
            ("1gM=", "1gN=", 3),
            ("1gM=", "1gM", 3),
            ("=\n\n", "=\nextension\n\n", 4),
            ("=\n\n\u{2014}", "=\n\u{2014}", 4),
            ("\n\u{2014} ", "\n- ", 5),
            ("\n\u{2014} log.example/a AAAA\n", "\n", 5),
        ] {
            let note = GOOD.replacen(from, to, 1);
            assert_ne!(note, GOOD);
            let error = check_form(note.as_bytes()).unwrap_err();
            assert!(matches!(error, NoteError::Line { line, .. } if line == wrong), "{note:?}: {error}");
        }
    }

    #[test]
    fn a_note_cut_anywhere_or_of_other_bytes_is_refused() {
        for end in 0..GOOD.len() {
            assert!(check_form(&GOOD.as_bytes()[..end]).is_err(), "{end} bytes");
        }
        let mut bytes = GOOD.as_bytes().to_vec();
        bytes[2] = 0xff;
        assert_eq!(check_form(&bytes), Err(NoteError::NotText));
    }
}
