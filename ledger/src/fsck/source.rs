//! Where the files of a log come from.

use thiserror::Error;
use tlog::tile::Tile;

/// A tile as it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// What was found: the tile asked for, or a wider one at its place, which begins with it.
    pub tile: Tile,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// Why nobody can tell whether a file is there and what is in it.
#[derive(Debug, Error)]
#[error("{place}: {why}")]
pub struct SourceError {
    /// The file or address.
    pub place: String,
    /// What went wrong.
    pub why: String,
}

/// A log's files by their C2SP paths.
pub trait Source {
    /// The checkpoint note, if there is one.
    fn checkpoint(&self) -> Result<Option<Vec<u8>>, SourceError>;

    /// A tile, or a wider one at the same place; none if neither is there.
    fn tile(&self, tile: Tile) -> Result<Option<Found>, SourceError>;
}
