//! The log's folder.
//!
//! ```text
//! tile/...            tiles and entry bundles, at their C2SP paths
//! checkpoint          the checkpoint note that the files here bear out
//! history/            published and cosigned checkpoints; see history.rs
//! journal/            commits whose tiles are not on disk for certain; see journal.rs
//! attachments/        see attachments.rs
//! index/              derived; see index.rs
//! log.key, log.pub    the log's signing key and its public half; see key.rs
//! in-use              held by the server
//! ```
//!
//! The lock stands beside this folder; see lock.rs. While a server runs, its partial tiles are in memory, and here only
//! as of the last sync. Of a partial tile only the widest is kept: the narrower ones are its beginnings.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use tlog::edge::RightEdge;
use tlog::entries::{decode_bundle, decode_bundle_of, push_entry};
use tlog::hash::HASH_BYTES;
use tlog::tile::{TILE_WIDTH, Tile, TileKind, TileSource, tile_in_tree};
use tlog::tree::{LeafIndex, TreeSize};

use crate::disk::durable::{Files, read_optional};
use crate::error::LogError;

/// Most full tiles of hashes that are kept in memory in one generation of two: 8 MiB.
const CACHE_TILES_MAX: usize = 512;

/// The partial tiles at the right edge of a tree.
#[derive(Debug, Clone)]
pub struct Edge {
    /// Hashes of every level.
    pub tree: RightEdge,
    /// Entries of the last bundle, if it is not full.
    pub entries: Vec<Arc<[u8]>>,
}

impl Edge {
    /// The edge of the tree with no leaves.
    pub fn empty() -> Edge {
        Edge { tree: RightEdge::empty(), entries: Vec::new() }
    }

    /// The bytes of a partial tile, or of a narrower one at its place; none if it is not at the edge.
    pub fn tile_bytes(&self, tile: Tile) -> Option<Vec<u8>> {
        if tile.kind != TileKind::Entries {
            return self.tree.tile_bytes(tile);
        }
        if tile.index != self.tree.size().0 / u64::from(TILE_WIDTH) {
            return None;
        }
        Some(encode_bundle(self.entries.get(..usize::from(tile.width))?.iter().map(|entry| &**entry)))
    }
}

/// The bytes of an entry bundle.
pub fn encode_bundle<'a>(entries: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for entry in entries {
        push_entry(&mut bytes, entry).expect("ledger: an admitted entry fits in a bundle");
    }
    bytes
}

/// The folder of one log.
pub struct Store {
    base: PathBuf,
    /// The file operations of the log.
    pub files: Arc<Files>,
    edge: RwLock<Arc<Edge>>,
    cache: Mutex<Cache>,
}

/// Full tiles of hashes, which never change: those used of late, and those used before these.
#[derive(Default)]
struct Cache {
    young: HashMap<Tile, Vec<u8>>,
    old: HashMap<Tile, Vec<u8>>,
}

impl Store {
    /// A log's folder.
    pub fn new(base: &Path, files: Files) -> Store {
        let edge = RwLock::new(Arc::new(Edge::empty()));
        Store { base: base.to_owned(), files: Arc::new(files), edge, cache: Mutex::default() }
    }

    /// The folder.
    pub fn base(&self) -> &Path {
        &self.base
    }

    /// A path within the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.base.join(name)
    }

    /// The partial tiles of the published tree.
    pub fn edge(&self) -> Arc<Edge> {
        // A writer only ever swaps the pointer, so a poisoned lock still holds a good one.
        self.edge.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Shows readers the partial tiles of a tree. Its full ones must be in the folder.
    pub fn set_edge(&self, edge: Arc<Edge>) {
        *self.edge.write().unwrap_or_else(PoisonError::into_inner) = edge;
    }

    /// The checkpoint note that the files here bear out.
    pub fn read_checkpoint(&self) -> Result<Option<Vec<u8>>, LogError> {
        let path = self.path("checkpoint");
        read_optional(&path).map_err(LogError::io(path))
    }

    /// The entries of a bundle.
    pub fn read_entries(&self, tile: Tile) -> Result<Vec<Vec<u8>>, LogError> {
        let path = tile.path();
        let bytes = self.read_tile(tile).map_err(LogError::io(self.path(&path)))?;
        let entries = decode_bundle_of(&bytes, tile.width);
        let entries = entries.map_err(|source| LogError::Entries { path, source })?;
        Ok(entries.into_iter().map(<[u8]>::to_vec).collect())
    }

    /// One entry of a tree of `size` leaves; none if it lies outside.
    pub fn read_entry(&self, index: LeafIndex, size: TreeSize) -> Result<Option<Vec<u8>>, LogError> {
        if index.0 >= size.0 {
            return Ok(None);
        }
        let Some(tile) = tile_in_tree(TileKind::Entries, index.0 / u64::from(TILE_WIDTH), size) else {
            return Ok(None);
        };
        Ok(Some(self.read_entries(tile)?.swap_remove((index.0 % u64::from(TILE_WIDTH)) as usize)))
    }

    /// A full tile, if it is in the folder.
    fn read_full(&self, tile: Tile) -> io::Result<Option<Vec<u8>>> {
        let path = self.path(&tile.path());
        if tile.kind == TileKind::Entries {
            return read_optional(&path);
        }
        let cache = || self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bytes) = cache().find(tile) {
            return Ok(Some(bytes));
        }
        let bytes = read_optional(&path)?;
        if let Some(bytes) =
            bytes.as_ref().filter(|bytes| bytes.len() == usize::from(TILE_WIDTH) * HASH_BYTES)
        {
            cache().keep(tile, bytes.clone());
        }
        Ok(bytes)
    }

    /// Widths of the partial tiles stored at a tile's place.
    fn partial_widths(&self, tile: Tile) -> io::Result<Vec<u16>> {
        let some_partial = self.path(&Tile { width: 1, ..tile }.path());
        let folder = some_partial.parent().expect("ledger: a partial tile lies in a folder");
        let entries = match std::fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut widths = Vec::new();
        for entry in entries {
            // Anything else, such as the temporary file of an interrupted write, is no tile.
            widths.extend(entry?.file_name().to_str().and_then(|name| name.parse::<u16>().ok()));
        }
        Ok(widths)
    }
}

impl Cache {
    fn find(&mut self, tile: Tile) -> Option<Vec<u8>> {
        if let Some(bytes) = self.young.get(&tile) {
            return Some(bytes.clone());
        }
        let bytes = self.old.remove(&tile)?;
        self.keep(tile, bytes.clone());
        Some(bytes)
    }

    fn keep(&mut self, tile: Tile, bytes: Vec<u8>) {
        if self.young.len() >= CACHE_TILES_MAX {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(tile, bytes);
    }
}

impl TileSource for Store {
    type Error = io::Error;

    /// The tile from memory if it is at the right edge, as stored, or the beginning of a wider one at the same place.
    fn read_tile(&self, tile: Tile) -> io::Result<Vec<u8>> {
        // A wider tile may replace a narrower one between looking and reading; then looking again finds it.
        for _ in 0..4 {
            if !tile.is_full() {
                if let Some(bytes) = self.edge().tile_bytes(tile) {
                    return Ok(bytes);
                }
                if let Some(bytes) = read_optional(&self.path(&tile.path()))? {
                    return Ok(bytes);
                }
            }
            if let Some(bytes) = self.read_full(tile.full())? {
                return if tile.is_full() { Ok(bytes) } else { beginning(tile, &bytes) };
            }
            let wider = self.partial_widths(tile)?.into_iter().filter(|width| *width > tile.width).max();
            if let Some(width) = wider
                && let Some(bytes) = read_optional(&self.path(&Tile { width, ..tile }.path()))?
            {
                return beginning(tile, &bytes);
            }
        }
        Err(io::Error::new(io::ErrorKind::NotFound, "no such tile"))
    }
}

/// The bytes of a tile from those of a wider one at the same place.
fn beginning(tile: Tile, wider: &[u8]) -> io::Result<Vec<u8>> {
    let width = usize::from(tile.width);
    let short = || io::Error::new(io::ErrorKind::InvalidData, "the wider tile is too short");
    if let TileKind::Hashes(_) = tile.kind {
        return wider.get(..width * HASH_BYTES).map(<[u8]>::to_vec).ok_or_else(short);
    }
    let entries = decode_bundle(wider).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    Ok(encode_bundle(entries.get(..width).ok_or_else(short)?.iter().copied()))
}
