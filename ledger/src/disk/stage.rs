//! The staging file: all tiles of one commit in one durable file.
//!
//! `tallystick stage v1` LF, then big-endian: old size u64, new size u64, count u32, and per tile the path's length
//! u16, the path, the length u32 and the bytes; then SHA-256 over everything before.

use sha2::{Digest, Sha256};
use thiserror::Error;
use tlog::entries::ENTRY_BYTES_MAX;
use tlog::tile::{TILE_WIDTH, Tile, TilePathError, TileSource};
use tlog::tree::TreeSize;

use crate::disk::store::Store;

const HEADER: &[u8] = b"tallystick stage v1\n";
const DIGEST_BYTES: usize = 32;
/// A full entry bundle of the longest entries.
const TILE_BYTES_MAX: usize = TILE_WIDTH as usize * (ENTRY_BYTES_MAX + 2);

/// The tiles by which a tree grows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Staged {
    /// Size before.
    pub old: TreeSize,
    /// Size after.
    pub new: TreeSize,
    /// Every tile that the grown tree has and the old one had not.
    pub tiles: Vec<(Tile, Vec<u8>)>,
}

/// Why some bytes are not a staging file.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum StageError {
    /// The first line is another one.
    #[error("unknown header")]
    BadHeader,
    /// The digest at the end is not that of the content.
    #[error("digest does not match")]
    BadDigest,
    /// The content ends early or late.
    #[error("content is cut short or has bytes left over")]
    BadLength,
    /// A tile path is malformed.
    #[error(transparent)]
    BadPath(#[from] TilePathError),
    /// There is no staging file.
    #[error("missing")]
    Missing,
}

impl Staged {
    /// The file's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = HEADER.to_vec();
        bytes.extend_from_slice(&self.old.0.to_be_bytes());
        bytes.extend_from_slice(&self.new.0.to_be_bytes());
        bytes.extend_from_slice(&(self.tiles.len() as u32).to_be_bytes());
        for (tile, content) in &self.tiles {
            assert!(content.len() <= TILE_BYTES_MAX, "ledger: a tile of {} bytes", content.len());
            let path = tile.path();
            bytes.extend_from_slice(&(path.len() as u16).to_be_bytes());
            bytes.extend_from_slice(path.as_bytes());
            bytes.extend_from_slice(&(content.len() as u32).to_be_bytes());
            bytes.extend_from_slice(content);
        }
        let digest = Sha256::digest(&bytes);
        bytes.extend_from_slice(&digest);
        bytes
    }

    /// Reads the file's bytes.
    pub fn decode(bytes: &[u8]) -> Result<Staged, StageError> {
        let split = bytes.len().checked_sub(DIGEST_BYTES).ok_or(StageError::BadLength)?;
        let (content, digest) = bytes.split_at(split);
        let rest = content.strip_prefix(HEADER).ok_or(StageError::BadHeader)?;
        if Sha256::digest(content).as_slice() != digest {
            return Err(StageError::BadDigest);
        }
        let mut rest = rest;
        let old = TreeSize(u64::from_be_bytes(take(&mut rest)?));
        let new = TreeSize(u64::from_be_bytes(take(&mut rest)?));
        let count = u32::from_be_bytes(take(&mut rest)?);
        let mut tiles = Vec::new();
        for _ in 0..count {
            let path_bytes = usize::from(u16::from_be_bytes(take(&mut rest)?));
            let path =
                std::str::from_utf8(take_slice(&mut rest, path_bytes)?).map_err(|_| StageError::BadLength)?;
            let tile = Tile::parse(path)?;
            let content_bytes = u32::from_be_bytes(take(&mut rest)?) as usize;
            tiles.push((tile, take_slice(&mut rest, content_bytes)?.to_vec()));
        }
        if !rest.is_empty() {
            return Err(StageError::BadLength);
        }
        Ok(Staged { old, new, tiles })
    }

    /// The bytes of a staged tile.
    pub fn tile(&self, tile: Tile) -> Option<&[u8]> {
        self.tiles.iter().find(|(staged, _)| *staged == tile).map(|(_, bytes)| bytes.as_slice())
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], StageError> {
    let (head, after) = rest.split_first_chunk::<N>().ok_or(StageError::BadLength)?;
    *rest = after;
    Ok(*head)
}

fn take_slice<'a>(rest: &mut &'a [u8], length: usize) -> Result<&'a [u8], StageError> {
    let (head, after) = rest.split_at_checked(length).ok_or(StageError::BadLength)?;
    *rest = after;
    Ok(head)
}

/// The tree as it will be: staged tiles where there are any, stored ones elsewhere.
#[derive(Clone, Copy)]
pub struct Overlay<'a> {
    /// The staged tiles.
    pub staged: &'a Staged,
    /// The stored ones.
    pub store: &'a Store,
}

impl TileSource for Overlay<'_> {
    type Error = std::io::Error;

    fn read_tile(&self, tile: Tile) -> Result<Vec<u8>, std::io::Error> {
        match self.staged.tile(tile) {
            Some(bytes) => Ok(bytes.to_vec()),
            None => self.store.read_tile(tile),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tlog::tile::TileKind;

    #[test]
    fn a_staging_file_is_read_back_and_every_damage_is_seen() {
        let entries = Tile { kind: TileKind::Entries, index: 1234, width: 5 };
        let hashes = Tile { kind: TileKind::Hashes(0), index: 0, width: 256 };
        let tiles = vec![(entries, b"entries".to_vec()), (hashes, vec![])];
        let staged = Staged { old: TreeSize(3), new: TreeSize(5), tiles };
        let bytes = staged.encode();
        assert_eq!(Staged::decode(&bytes), Ok(staged));
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(Staged::decode(&damaged).is_err(), "byte {at}");
            assert!(Staged::decode(&bytes[..at]).is_err(), "cut at {at}");
        }
    }
}
