//! Why another implementation may answer a question differently. Nearly always ours refuses what it accepts.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{GeneralPurpose, GeneralPurposeConfig};
use tlog::note::{KEY_NAME_BYTES_MAX, NOTE_BYTES_MAX, SIGNATURES_MAX, SignedNote, VerifierKey};

use super::Question;

/// Ours takes the empty tree for a beginning of every tree, as RFC 9162's readers need it; others refuse to be asked.
pub const EMPTY_OLDER_TREE: &str = "the older tree is empty";
/// The crate ends the program on tile paths of width 0 and of levels beyond 63, which no tree has.
pub const PANICS: &str = "the other panics";
/// Go's numbers are signed.
pub const SIGNED: &str = "a number beyond 2^63";
/// C2SP ends at level 63; others do not look.
pub const LEVEL: &str = "a tile level beyond 63";
/// One key has one text: the ID's digits are lower case.
pub const UPPER_CASE: &str = "a key ID in upper case";
/// Base64 of other bits than zero behind the last byte is a second text of the same bytes.
pub const SPARE_BITS: &str = "base64 with spare bits set";
/// Go's base64 passes over line feeds.
pub const LINE_FEED: &str = "base64 with a line feed in it";
/// A terminal acts on U+007F to U+009F, and names are printed. And names have a limit.
pub const NAME: &str = "a key name with a control character, or too long";
/// Nearly anything verifies under such a key.
pub const SMALL_ORDER: &str = "a key of small order";
/// C2SP advises against extension lines, and some cosignatures do not cover them.
pub const EXTENSION: &str = "extension lines";
/// The empty tree has one root.
pub const EMPTY_ROOT: &str = "a tree of size 0 with another root";
/// Ours has the lower limits on the length of a note and on its signatures.
pub const LIMIT: &str = "a long note, or one with many signatures";
/// Others look at a known key's first signature only. Ours has every one of them verify.
pub const SECOND_SIGNATURE: &str = "a second signature of a known key, which fails";

/// The reason for a difference, if there is one.
pub fn reason(question: &Question, ours: &str, theirs: &str) -> Option<&'static str> {
    match question {
        Question::Consistency { old: 0, .. } | Question::CheckConsistency { old: 0, .. } => {
            (theirs == "no").then_some(EMPTY_OLDER_TREE)
        }
        // A tile's index and a tree's size are both the second part of our answer.
        Question::Tile { .. } | Question::Checkpoint { .. } if theirs == "no" => {
            let number: Option<u64> = ours.split(' ').nth(1).and_then(|number| number.parse().ok());
            number.is_some_and(|number| number > i64::MAX as u64).then_some(SIGNED)
        }
        _ if ours != "no" => None,
        _ if theirs == "panics" => Some(PANICS),
        Question::Tile { path } => {
            let level: Option<u32> = path.split('/').nth(1).and_then(|level| level.parse().ok());
            level.is_some_and(|level| level > 63).then_some(LEVEL)
        }
        Question::Key { vkey } => key_reason(vkey),
        Question::Note { note, .. } => note_reason(note),
        Question::Checkpoint { text } => {
            let lines: Vec<&str> = text.split_terminator('\n').collect();
            match lines[..] {
                [_, "0", _] => Some(EMPTY_ROOT),
                [_, _, root] => has_spare_bits(root).then_some(SPARE_BITS),
                _ => (lines.len() > 3).then_some(EXTENSION),
            }
        }
        _ => None,
    }
}

fn key_reason(vkey: &str) -> Option<&'static str> {
    let mut parts = vkey.splitn(3, '+');
    let (name, id, encoded) = (parts.next()?, parts.next()?, parts.next()?);
    if bad_name(name) {
        return Some(NAME);
    }
    if VerifierKey::parse(&format!("{name}+{}+{encoded}", id.to_lowercase())).is_ok() {
        return Some(UPPER_CASE);
    }
    if encoded.contains('\n') && STRICT.decode(encoded.replace('\n', "")).is_ok() {
        return Some(LINE_FEED);
    }
    if has_spare_bits(encoded) {
        return Some(SPARE_BITS);
    }
    (name == "weak").then_some(SMALL_ORDER)
}

fn note_reason(note: &[u8]) -> Option<&'static str> {
    let text = std::str::from_utf8(note).ok()?;
    let lines: Vec<&str> = text.rsplit_once("\n\n")?.1.split_terminator('\n').collect();
    if note.len() > NOTE_BYTES_MAX || lines.len() > SIGNATURES_MAX {
        return Some(LIMIT);
    }
    let parts: Vec<(&str, &str)> =
        lines.into_iter().filter_map(|line| line.strip_prefix("\u{2014} ")?.split_once(' ')).collect();
    if parts.iter().any(|(name, _)| bad_name(name)) {
        return Some(NAME);
    }
    if parts.iter().any(|(_, encoded)| has_spare_bits(encoded)) {
        return Some(SPARE_BITS);
    }
    let note = SignedNote::parse(note).ok()?;
    let again = |at: usize| {
        let same = |other: usize| {
            let (one, other) = (&note.signatures()[at], &note.signatures()[other]);
            (&one.name, one.id) == (&other.name, other.id)
        };
        (0..at).any(same)
    };
    (0..note.signatures().len()).any(again).then_some(SECOND_SIGNATURE)
}

fn bad_name(name: &str) -> bool {
    name.len() > KEY_NAME_BYTES_MAX || name.chars().any(|c| ('\u{7f}'..='\u{9f}').contains(&c))
}

const STRICT: GeneralPurpose = GeneralPurpose::new(&STANDARD, GeneralPurposeConfig::new());
const LENIENT: GeneralPurpose =
    GeneralPurpose::new(&STANDARD, GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true));

/// Whether base64 is refused only for the bits behind its last byte.
fn has_spare_bits(encoded: &str) -> bool {
    LENIENT.decode(encoded).is_ok() && STRICT.decode(encoded).is_err()
}
