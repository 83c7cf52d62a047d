//! The log's folder: tiles, checkpoints and the staging file.
//!
//! ```text
//! tile/...            tiles and entry bundles, at their C2SP paths
//! checkpoint          the latest published checkpoint note
//! checkpoints/<size>  every published checkpoint note
//! stage               the tiles of the last commit (see stage.rs)
//! attachments/        see attachments.rs
//! lock/               see lock.rs
//! index.redb          derived; see index.rs
//! log.key, log.pub    the log's signing key and its public half; see key.rs
//! ```
//!
//! Of a partial tile only the widest is kept: the narrower ones are its beginnings, and are served from it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tlog::entries::{decode_bundle, decode_bundle_of, push_entry};
use tlog::hash::HASH_BYTES;
use tlog::tile::{TILE_WIDTH, Tile, TileKind, TileSource, tile_in_tree};
use tlog::tree::{LeafIndex, TreeSize};

use crate::disk::durable::{Files, read_optional, sync_folders_up_to};
use crate::disk::stage::{StageError, Staged};
use crate::error::LogError;

/// The folder of one log.
pub struct Store {
    base: PathBuf,
    /// The file operations of the log.
    pub files: Arc<Files>,
}

impl Store {
    /// A log's folder.
    pub fn new(base: &Path, files: Files) -> Store {
        Store { base: base.to_owned(), files: Arc::new(files) }
    }

    /// The folder.
    pub fn base(&self) -> &Path {
        &self.base
    }

    /// A path within the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.base.join(name)
    }

    /// Makes the folders that lead to a tile survive a crash, whoever made them.
    pub fn sync_folders(&self, tile: Tile) -> Result<(), LogError> {
        let path = self.path(&tile.path());
        sync_folders_up_to(&self.base, &path).map_err(LogError::io(path))
    }

    /// Writes the staging file durably.
    pub fn write_stage(&self, staged: &Staged) -> Result<(), LogError> {
        let path = self.path("stage");
        self.files.replace(&path, &staged.encode()).map_err(LogError::io(path))
    }

    /// Reads the staging file.
    pub fn read_stage(&self) -> Result<Staged, LogError> {
        let path = self.path("stage");
        let bytes = read_optional(&path).map_err(LogError::io(path))?.ok_or(StageError::Missing)?;
        Ok(Staged::decode(&bytes)?)
    }

    /// Writes a tile durably.
    pub fn write_tile(&self, tile: Tile, bytes: &[u8]) -> Result<(), LogError> {
        let path = self.path(&tile.path());
        self.files.replace(&path, bytes).map_err(LogError::io(path))
    }

    /// Removes partial tiles at the same place that are narrower than this one, which holds all of them.
    pub fn remove_narrower(&self, tile: Tile) -> Result<(), LogError> {
        for width in self.partial_widths(tile).map_err(LogError::io(self.path(&tile.path())))? {
            if width < tile.width {
                let path = self.path(&Tile { width, ..tile }.path());
                self.files.remove(&path).map_err(LogError::io(path))?;
            }
        }
        Ok(())
    }

    /// Writes the checkpoint note of a size, and then as the latest.
    pub fn write_checkpoint(&self, size: TreeSize, note: &str) -> Result<(), LogError> {
        for path in [self.path(&format!("checkpoints/{size}")), self.path("checkpoint")] {
            self.files.replace(&path, note.as_bytes()).map_err(LogError::io(path))?;
        }
        Ok(())
    }

    /// The checkpoint note published for a size, if there was one.
    pub fn read_checkpoint(&self, size: TreeSize) -> Result<Option<Vec<u8>>, LogError> {
        let path = self.path(&format!("checkpoints/{size}"));
        read_optional(&path).map_err(LogError::io(path))
    }

    /// The latest published checkpoint note.
    pub fn read_published(&self) -> Result<Option<Vec<u8>>, LogError> {
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

impl TileSource for Store {
    type Error = io::Error;

    /// The tile as stored, or the beginning of a wider one at the same place.
    fn read_tile(&self, tile: Tile) -> io::Result<Vec<u8>> {
        // A wider tile may replace a narrower one between looking and reading; then looking again finds it.
        for _ in 0..4 {
            if let Some(bytes) = read_optional(&self.path(&tile.path()))? {
                return Ok(bytes);
            }
            if let Some(bytes) = read_optional(&self.path(&tile.full().path()))? {
                return beginning(tile, &bytes);
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
    let mut bytes = Vec::new();
    for entry in entries.get(..width).ok_or_else(short)? {
        push_entry(&mut bytes, entry).expect("ledger: an entry that was in a bundle fits in one");
    }
    Ok(bytes)
}
