//! Tiles and entry bundles of a log, over HTTP. A source may lie: whatever is read here is hashed by whoever reads it.

use crate::http::{HttpError, Server};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;
use tlog::entries::{ENTRY_BYTES_MAX, EntriesError, decode_bundle};
use tlog::hash::HASH_BYTES;
use tlog::tile::{TILE_WIDTH, Tile, TileSource};

const TIMEOUT_MS: u64 = 30_000;
/// Before what is missing is asked for once more: a server may be about to show it.
const PAUSE_MS: u64 = 200;
/// Tiles that are remembered: those above the entries that are read one after the other.
const REMEMBERED_MAX: usize = 64;

/// Why a tile could not be had.
#[derive(Debug, thiserror::Error)]
pub enum TileError {
    /// No answer, or a no.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// The server answers, and says that a tile of a tree it has signed is not there.
    #[error("{path} is not there")]
    Withheld {
        /// Which.
        path: String,
    },
    /// It is no entry bundle.
    #[error("{path}: {source}")]
    Bundle {
        /// Which.
        path: String,
        /// What is wrong with it.
        source: EntriesError,
    },
}

/// A log's tiles.
pub(crate) struct Tiles<'a> {
    server: &'a Server,
    remembered: RefCell<BTreeMap<Tile, Vec<u8>>>,
}

impl<'a> Tiles<'a> {
    /// The tiles at a server.
    pub(crate) fn at(server: &'a Server) -> Tiles<'a> {
        Tiles { server, remembered: RefCell::default() }
    }

    /// The entries of a bundle, as many as it is wide.
    pub(crate) fn entries(&self, tile: Tile) -> Result<Vec<Vec<u8>>, TileError> {
        let bytes = self.fetch(tile, ENTRY_BYTES_MAX + 2)?;
        let wrong = |source| TileError::Bundle { path: tile.path(), source };
        let entries = decode_bundle(&bytes).map_err(wrong)?;
        let (width, found) = (usize::from(tile.width), entries.len());
        // Where a partial bundle is gone, the full one came in its place.
        if found != width && found != usize::from(TILE_WIDTH) {
            return Err(wrong(EntriesError::WrongCount { expected: width, found }));
        }
        Ok(entries.into_iter().take(width).map(<[u8]>::to_vec).collect())
    }

    /// A tile, or the full one where the partial one is gone, of at most `each_max` bytes for each of its items.
    fn fetch(&self, tile: Tile, each_max: usize) -> Result<Vec<u8>, TileError> {
        for again in [true, false] {
            for tile in if tile.is_full() { vec![tile] } else { vec![tile, tile.full()] } {
                let bytes_max = each_max * usize::from(tile.width);
                match self.server.fetch(&format!("/{}", tile.path()), bytes_max as u64, TIMEOUT_MS) {
                    Err(error) if error.status() == Some(404) => {}
                    other => return Ok(other?),
                }
            }
            if again {
                std::thread::sleep(Duration::from_millis(PAUSE_MS));
            }
        }
        Err(TileError::Withheld { path: tile.path() })
    }
}

impl TileSource for Tiles<'_> {
    type Error = TileError;

    fn read_tile(&self, tile: Tile) -> Result<Vec<u8>, TileError> {
        if let Some(bytes) = self.remembered.borrow().get(&tile) {
            return Ok(bytes.clone());
        }
        let bytes = self.fetch(tile, HASH_BYTES)?;
        let mut remembered = self.remembered.borrow_mut();
        if remembered.len() == REMEMBERED_MAX {
            // The one furthest to the left at the lowest level is needed least.
            remembered.pop_first();
        }
        remembered.insert(tile, bytes.clone());
        Ok(bytes)
    }
}
