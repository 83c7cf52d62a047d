//! One entry bundle, held against the leaf hashes of the tree.

use tlog::hash::{Hash, leaf_hash};
use tlog::tile::{TILE_WIDTH, Tile};

use crate::fsck::finding::{Finding, Kind};
use crate::fsck::source::Found;

/// Most findings of one bundle: behind a length that is wrong, everything is.
const FINDINGS_MAX: usize = 4;
const LENGTH_BYTES: usize = 2;

/// The leaf hashes of a bundle's entries, as far as they can be told apart; the tile says how many there should be.
pub fn leaves(found: &Found, width: u16) -> Vec<Hash> {
    let mut rest = found.bytes.as_slice();
    let mut leaves = Vec::with_capacity(usize::from(width));
    while leaves.len() < usize::from(width) {
        let Some((entry, after)) = split_entry(rest) else { break };
        leaves.push(leaf_hash(entry));
        rest = after;
    }
    leaves
}

/// Where the bundle's last entry ends and something follows that should not.
pub fn extra(found: &Found, tile: Tile) -> Option<Finding> {
    let mut rest = found.bytes.as_slice();
    for _ in 0..found.tile.width {
        (_, rest) = split_entry(rest)?;
    }
    let (end, length) = ((found.bytes.len() - rest.len()) as u64, found.bytes.len() as u64);
    let what = format!("{} bytes behind the last of {} entries", length - end, found.tile.width);
    debug_assert_eq!((tile.kind, tile.index), (found.tile.kind, found.tile.index));
    (end < length).then(|| Finding::at(Kind::Extra, &found.tile.path(), end..length, what))
}

/// Compares a bundle's entries with the leaf hashes that they must have. Without `trusted` hashes it cannot be told
/// which of the two is right.
pub fn compare(found: &Found, tile: Tile, row: &[Hash], trusted: bool) -> Vec<Finding> {
    let path = found.tile.path();
    let bytes = found.bytes.as_slice();
    let first = tile.index * u64::from(TILE_WIDTH);
    let mut findings = Vec::new();
    let mut at = 0;
    for (index, expected) in (first..).zip(row) {
        if findings.len() == FINDINGS_MAX {
            return findings;
        }
        let rest = &bytes[at..];
        if let Some((entry, after)) = split_entry(rest)
            && leaf_hash(entry) == *expected
        {
            at = bytes.len() - after.len();
            continue;
        }
        // Perhaps the entry is whole and its length is not.
        if let Some(length) = right_length(rest, expected) {
            let said = u16::from_be_bytes([rest[0], rest[1]]);
            let place = at as u64..(at + LENGTH_BYTES) as u64;
            let what =
                format!("the length says {said}, the entry with the tree's leaf hash has {length} bytes");
            findings.push(Finding { entry: Some(index), ..Finding::at(Kind::Wrong, &path, place, what) });
            at += LENGTH_BYTES + length;
            continue;
        }
        let Some((entry, after)) = split_entry(rest) else {
            let place = at as u64..bytes.len() as u64;
            let count = index - first;
            let what = format!("it ends inside this entry, behind {count} of {} entries", row.len());
            findings.push(Finding { entry: Some(index), ..Finding::at(Kind::Truncated, &path, place, what) });
            return findings;
        };
        let end = bytes.len() - after.len();
        let kind = if trusted { Kind::Wrong } else { Kind::Undecided };
        let what = format!("the leaf hash is {}, the tree has {expected}", leaf_hash(entry));
        let place = (at + LENGTH_BYTES) as u64..end as u64;
        findings.push(Finding { entry: Some(index), ..Finding::at(kind, &path, place, what) });
        at = end;
    }
    if findings.is_empty() {
        findings.extend(extra(found, tile));
    }
    findings
}

fn split_entry(rest: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, after) = rest.split_first_chunk::<LENGTH_BYTES>()?;
    after.split_at_checked(usize::from(u16::from_be_bytes(*length)))
}

/// The length, different in one byte from the one that stands there, with which the entry has the expected hash.
fn right_length(rest: &[u8], expected: &Hash) -> Option<usize> {
    let (said, after) = rest.split_first_chunk::<LENGTH_BYTES>()?;
    let one_byte_off = (0..=255).flat_map(|byte| [[byte, said[1]], [said[0], byte]]);
    let mut lengths = one_byte_off.map(|length| usize::from(u16::from_be_bytes(length)));
    lengths.find(|length| after.get(..*length).is_some_and(|entry| leaf_hash(entry) == *expected))
}
