//! The files of a log in a folder. Nothing in it is changed.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use tlog::entries::ENTRY_BYTES_MAX;
use tlog::hash::HASH_BYTES;
use tlog::note::NOTE_BYTES_MAX;
use tlog::tile::{TILE_WIDTH, Tile, TileKind, tile_in_tree};
use tlog::tree::TreeSize;

use crate::disk::durable::open_file;
use crate::fsck::bundle;
use crate::fsck::finding::{Finding, Kind};
use crate::fsck::source::{Found, Source, SourceError};

/// Most bytes of a tile's file that are read: a full bundle of the longest entries, and a little more to see that there
/// is more.
pub const TILE_BYTES_MAX: usize = TILE_WIDTH as usize * (ENTRY_BYTES_MAX + 2) + 1024;

/// A log's folder, or a copy of its static files.
pub struct Folder(pub PathBuf);

impl Folder {
    fn read(&self, path: &str, bytes_max: usize) -> Result<Option<Vec<u8>>, SourceError> {
        let place = self.0.join(path);
        let wrong =
            |error: io::Error| SourceError { place: place.display().to_string(), why: error.to_string() };
        let file = match open_file(&place) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file.map_err(wrong)?,
        };
        let mut bytes = Vec::new();
        file.take(bytes_max as u64).read_to_end(&mut bytes).map_err(wrong)?;
        Ok(Some(bytes))
    }

    fn read_tile(&self, tile: Tile) -> Result<Option<Found>, SourceError> {
        Ok(self.read(&tile.path(), TILE_BYTES_MAX)?.map(|bytes| Found { tile, bytes }))
    }

    /// Every file below `tile/`, by its path.
    fn paths(&self) -> Result<Vec<String>, SourceError> {
        let mut waiting = vec!["tile".to_owned()];
        let mut found = Vec::new();
        while let Some(path) = waiting.pop() {
            let place = self.0.join(&path);
            let wrong =
                |error: io::Error| SourceError { place: place.display().to_string(), why: error.to_string() };
            let entries = match std::fs::read_dir(&place) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                entries => entries.map_err(wrong)?,
            };
            for entry in entries {
                let entry = entry.map_err(wrong)?;
                let path = format!("{path}/{}", entry.file_name().to_string_lossy());
                let folder = entry.file_type().map_err(wrong)?.is_dir();
                (if folder { &mut waiting } else { &mut found }).push(path);
            }
        }
        found.sort_unstable();
        Ok(found)
    }

    /// What lies beside the tiles of a tree of `size` leaves: narrower tiles, which must be beginnings of those of the
    /// tree, and how many files there are that do not belong to the tree at all.
    pub fn others(&self, size: TreeSize) -> Result<(Vec<Finding>, u64), SourceError> {
        let (mut findings, mut foreign) = (Vec::new(), 0);
        for path in self.paths()? {
            let tile = Tile::parse(&path).ok();
            let right = tile.and_then(|tile| tile_in_tree(tile.kind, tile.index, size));
            match (tile, right) {
                (Some(tile), Some(right)) if tile == right => {}
                (Some(tile), Some(right)) if tile.width < right.width => {
                    let (narrow, wide) = (self.read_tile(tile)?, self.tile(right)?);
                    let (Some(narrow), Some(wide)) = (narrow, wide) else { continue };
                    if !wide.bytes.starts_with(&narrow.bytes) || !is_whole(&narrow) {
                        let what = format!("it is not the beginning of {}", wide.tile.path());
                        findings.push(Finding::of_file(Kind::Wrong, &path, what));
                    }
                }
                _ => foreign += 1,
            }
        }
        Ok((findings, foreign))
    }
}

/// Whether a tile has the length that its width calls for.
fn is_whole(found: &Found) -> bool {
    let width = found.tile.width;
    match found.tile.kind {
        TileKind::Hashes(_) => found.bytes.len() == usize::from(width) * HASH_BYTES,
        TileKind::Entries => {
            bundle::leaves(found, width).len() == usize::from(width)
                && bundle::extra(found, found.tile).is_none()
        }
    }
}

impl Source for Folder {
    fn checkpoint(&self) -> Result<Option<Vec<u8>>, SourceError> {
        self.read("checkpoint", NOTE_BYTES_MAX + 1)
    }

    fn tile(&self, tile: Tile) -> Result<Option<Found>, SourceError> {
        if let Some(found) = self.read_tile(tile)? {
            return Ok(Some(found));
        }
        if let Some(found) = self.read_tile(tile.full())? {
            return Ok(Some(found));
        }
        // Of partial tiles a log keeps the widest, which may be wider than this tree's: a crash has come between.
        let partial = self.0.join(Tile { width: 1, ..tile }.path());
        let Ok(entries) = std::fs::read_dir(partial.parent().unwrap_or(Path::new("."))) else {
            return Ok(None);
        };
        let widths = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u16>().ok());
        match widths.filter(|width| *width > tile.width && *width < TILE_WIDTH).max() {
            Some(width) => self.read_tile(Tile { width, ..tile }),
            None => Ok(None),
        }
    }
}
