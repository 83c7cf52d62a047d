//! Entry bundles: up to 256 entries, each behind its length as a big-endian u16 (C2SP tlog-tiles).

use thiserror::Error;

use crate::tile::TILE_WIDTH;

/// Longest entry that an entry bundle can carry.
pub const ENTRY_BYTES_MAX: usize = u16::MAX as usize;

/// Why bytes are not an entry bundle, or entries do not fit in one.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum EntriesError {
    /// An entry is longer than its length field can say.
    #[error("entry is {found} bytes, expected at most {ENTRY_BYTES_MAX}")]
    EntryTooLong {
        /// Bytes found.
        found: usize,
    },
    /// A bundle holds at most 256 entries.
    #[error("entry bundle has more than {TILE_WIDTH} entries")]
    TooMany,
    /// The bytes end inside an entry or its length.
    #[error("entry bundle ends inside entry {at}")]
    Truncated {
        /// Number of whole entries before it.
        at: usize,
    },
    /// The bundle has not as many entries as its tile is wide.
    #[error("entry bundle has {found} entries, expected {expected}")]
    WrongCount {
        /// Entries called for.
        expected: usize,
        /// Entries found.
        found: usize,
    },
}

/// Appends one entry to a bundle.
pub fn push_entry(bundle: &mut Vec<u8>, entry: &[u8]) -> Result<(), EntriesError> {
    let length = u16::try_from(entry.len()).map_err(|_| EntriesError::EntryTooLong { found: entry.len() })?;
    bundle.extend_from_slice(&length.to_be_bytes());
    bundle.extend_from_slice(entry);
    Ok(())
}

/// The entries of a bundle, in order; at most 256, and nothing after the last.
pub fn decode_bundle(bytes: &[u8]) -> Result<Vec<&[u8]>, EntriesError> {
    let mut entries = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        if entries.len() == usize::from(TILE_WIDTH) {
            return Err(EntriesError::TooMany);
        }
        let truncated = EntriesError::Truncated { at: entries.len() };
        let (length, after) = rest.split_first_chunk::<2>().ok_or(truncated.clone())?;
        let (entry, after) =
            after.split_at_checked(usize::from(u16::from_be_bytes(*length))).ok_or(truncated)?;
        entries.push(entry);
        rest = after;
    }
    Ok(entries)
}

/// The entries of a bundle that must have exactly `width` of them.
pub fn decode_bundle_of(bytes: &[u8], width: u16) -> Result<Vec<&[u8]>, EntriesError> {
    let entries = decode_bundle(bytes)?;
    if entries.len() != usize::from(width) {
        return Err(EntriesError::WrongCount { expected: usize::from(width), found: entries.len() });
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_back_as_they_went_in() {
        let entries: [&[u8]; 3] = [b"", b"one", &[0xff; ENTRY_BYTES_MAX]];
        let mut bundle = Vec::new();
        for entry in entries {
            push_entry(&mut bundle, entry).unwrap();
        }
        assert_eq!(decode_bundle_of(&bundle, 3).unwrap(), entries);
        assert_eq!(decode_bundle_of(&bundle, 2), Err(EntriesError::WrongCount { expected: 2, found: 3 }));
    }

    #[test]
    fn every_truncation_inside_an_entry_is_rejected() {
        let bundle = b"\x00\x03one\x00\x03two";
        for length in 1..bundle.len() {
            let whole = length == 5;
            assert_eq!(decode_bundle(&bundle[..length]).is_ok(), whole, "length {length}");
        }
    }

    #[test]
    fn limits_are_held() {
        let too_long = vec![0; ENTRY_BYTES_MAX + 1];
        assert_eq!(push_entry(&mut Vec::new(), &too_long), Err(EntriesError::EntryTooLong { found: 65_536 }));
        assert_eq!(decode_bundle(&[0; 2 * 256]).map(|entries| entries.len()), Ok(256));
        assert_eq!(decode_bundle(&[0; 2 * 257]), Err(EntriesError::TooMany));
    }
}
