//! The walk over a whole tree, from the signed root down to the entries, one tile of each level in memory.

use std::collections::HashMap;

use tlog::edge::RightEdge;
use tlog::hash::{HASH_BYTES, Hash};
use tlog::tile::{
    TILE_WIDTH, Tile, TileKind, TileSource, decode_hashes, encode_hashes, perfect_root, tile_in_tree,
};
use tlog::tree::{TreeHead, TreeSize};

use crate::fsck::bundle;
use crate::fsck::choice::Sides;
use crate::fsck::finding::{Finding, Findings, Kind};
use crate::fsck::source::{Found, Source, SourceError};

/// A walk over the tree of `head`, which is trusted.
pub struct Walk<'a, S> {
    pub source: &'a S,
    pub head: TreeHead,
    pub findings: Findings,
    /// Tiles of hashes looked at.
    pub tiles: u64,
    /// Told the number of entries that have been looked at, now and then.
    pub progress: &'a mut dyn FnMut(u64),
}

/// A tile of hashes as stored.
struct Stored {
    tile: Tile,
    /// The file it was found in.
    path: String,
    /// Its hashes, as many as there are.
    row: Vec<Hash>,
    /// What can be told from its length alone.
    wrong: Option<Finding>,
}

impl Stored {
    fn whole(&self) -> Option<&[Hash]> {
        (self.row.len() == usize::from(self.tile.width)).then_some(&self.row)
    }
}

/// The partial tiles of a tree, from level 0 up.
type Edge = Vec<(Tile, Vec<Hash>)>;

/// The hash that a full tile must lead to, and whether that is known or only what stands above.
#[derive(Clone, Copy)]
struct Wanted {
    root: Hash,
    trusted: bool,
}

impl<S: Source> Walk<'_, S> {
    /// Looks at every tile and every entry.
    pub fn run(&mut self) -> Result<(), SourceError> {
        let (edge, trusted) = self.edge()?;
        // The highest level covers the beginning of the log.
        for (tile, row) in edge.into_iter().rev() {
            let TileKind::Hashes(level) = tile.kind else { unreachable!("the edge has tiles of hashes") };
            self.below(level, tile, &row, trusted)?;
        }
        Ok(())
    }

    /// The partial tiles of the right edge, which lead to the signed root together; and whether they do.
    fn edge(&mut self) -> Result<(Edge, bool), SourceError> {
        let size = self.head.size;
        let mut stored = Vec::new();
        let mut count = size.0;
        for level in 0.. {
            if count == 0 {
                break;
            }
            let index = count / u64::from(TILE_WIDTH);
            let tile = tile_in_tree(TileKind::Hashes(level), index, size);
            stored.extend(tile.map(|tile| self.stored(tile)).transpose()?);
            count = index;
        }
        let tiles: Vec<Tile> = stored.iter().map(|tile| tile.tile).collect();
        let leads = |rows: &[Vec<Hash>]| root_of(size, &tiles, rows) == self.head.root;
        let rows: Option<Vec<Vec<Hash>>> =
            stored.iter().map(|tile| tile.whole().map(<[_]>::to_vec)).collect();
        if let Some(rows) = rows
            && leads(&rows)
        {
            self.findings_of(&stored);
            return Ok((tiles.into_iter().zip(rows).collect(), true));
        }
        // Some tile is wrong. What lies below each says the same again.
        let mut derived = Vec::new();
        for tile in &tiles {
            derived.push(self.derived(*tile)?);
        }
        let leads = |rows: &[Vec<Hash>]| root_of(size, &tiles, rows) == self.head.root;
        let sides =
            Sides { stored: stored.iter().map(|tile| tile.row.as_slice()).collect(), derived: &derived };
        if let Some(rows) = sides.choose(leads) {
            for (tile, row) in stored.iter().zip(&rows) {
                self.blame_tile(tile, row, true);
            }
            return Ok((tiles.into_iter().zip(rows).collect(), true));
        }
        self.findings_of(&stored);
        let rows = sides.guess();
        let found = match rows.iter().zip(&tiles).all(|(row, tile)| row.len() == usize::from(tile.width)) {
            true => format!("the tiles lead to root {}", root_of(size, &tiles, &rows)),
            false => "the tiles are not whole".to_owned(),
        };
        let what =
            format!("{found}, signed is {}; what lies below does not lead there either", self.head.root);
        self.findings.add(Finding::of_file(Kind::Undecided, "checkpoint", what));
        Ok((tiles.into_iter().zip(rows).collect(), false))
    }

    /// Looks at everything below the hashes of a tile.
    fn below(&mut self, level: u8, tile: Tile, row: &[Hash], trusted: bool) -> Result<(), SourceError> {
        if level == 0 {
            return self.entries(tile, row, trusted);
        }
        for (index, root) in (tile.index * u64::from(TILE_WIDTH)..).zip(row) {
            let child = Tile { kind: TileKind::Hashes(level - 1), index, width: TILE_WIDTH };
            self.full(level - 1, child, Wanted { root: *root, trusted })?;
        }
        Ok(())
    }

    /// Looks at a full tile, and at everything below it.
    fn full(&mut self, level: u8, tile: Tile, wanted: Wanted) -> Result<(), SourceError> {
        let stored = self.stored(tile)?;
        if stored.whole().is_some_and(|row| perfect_root(row) == wanted.root) {
            self.findings_of(std::slice::from_ref(&stored));
            return self.below(level, tile, &stored.row, wanted.trusted);
        }
        let derived = self.derived(tile)?;
        let derived = [derived];
        let sides = Sides { stored: vec![&stored.row], derived: &derived };
        if let Some(row) = sides.choose(|rows| perfect_root(&rows[0]) == wanted.root) {
            self.blame_tile(&stored, &row[0], wanted.trusted);
            return self.below(level, tile, &row[0], wanted.trusted);
        }
        // Neither side leads up. Without a trusted hash above, that one may be what is wrong.
        let row = sides.guess().swap_remove(0);
        match stored.wrong {
            Some(wrong) => self.findings.add(wrong),
            None => {
                let above = if wanted.trusted { "" } else { ", which may be wrong itself" };
                let what = format!(
                    "its hashes lead to {}, the tile above has {}{above}; what lies below does not lead there either",
                    perfect_root(&stored.row),
                    wanted.root
                );
                self.findings.add(Finding::of_file(Kind::Undecided, &stored.path, what));
            }
        }
        self.below(level, tile, &row, false)
    }

    /// Holds the entries of a bundle against the tree's leaf hashes.
    fn entries(&mut self, tile: Tile, row: &[Hash], trusted: bool) -> Result<(), SourceError> {
        let bundle = Tile { kind: TileKind::Entries, ..tile };
        let first = tile.index * u64::from(TILE_WIDTH);
        match self.source.tile(bundle)? {
            Some(found) => {
                for finding in bundle::compare(&found, bundle, row, trusted) {
                    self.findings.add(finding);
                }
            }
            None => {
                let what = format!("entries {first}..{} are not there", first + row.len() as u64);
                self.findings.add(Finding::of_file(Kind::Missing, &bundle.path(), what));
            }
        }
        (self.progress)(first + row.len() as u64);
        Ok(())
    }

    fn stored(&mut self, tile: Tile) -> Result<Stored, SourceError> {
        self.tiles += 1;
        let Some(Found { tile: found, mut bytes }) = self.source.tile(tile)? else {
            let wrong =
                Finding::of_file(Kind::Missing, &tile.path(), format!("{} hashes are not there", tile.width));
            return Ok(Stored { tile, path: tile.path(), row: Vec::new(), wrong: Some(wrong) });
        };
        let (path, length) = (found.path(), bytes.len());
        let (needed, whole) = (usize::from(tile.width) * HASH_BYTES, usize::from(found.width) * HASH_BYTES);
        let range = |from: usize, to: usize| from as u64..to as u64;
        let wrong = if length < whole {
            let what = format!("{length} bytes, expected {whole}");
            Some(Finding::at(Kind::Truncated, &path, range(length, whole), what))
        } else if length > whole {
            let what = format!("{} bytes behind the last of {} hashes", length - whole, found.width);
            Some(Finding::at(Kind::Extra, &path, range(whole, length), what))
        } else {
            None
        };
        bytes.truncate(length.min(needed) / HASH_BYTES * HASH_BYTES);
        let row = decode_hashes(&bytes).expect("ledger: a whole number of hashes");
        Ok(Stored { tile, path, row, wrong })
    }

    /// A tile's hashes, made again from what lies below it, as far as that is there and whole.
    fn derived(&mut self, tile: Tile) -> Result<Vec<Option<Hash>>, SourceError> {
        let width = usize::from(tile.width);
        let TileKind::Hashes(level) = tile.kind else { unreachable!("entries are derived from nothing") };
        let mut row = Vec::with_capacity(width);
        if level == 0 {
            if let Some(found) = self.source.tile(Tile { kind: TileKind::Entries, ..tile })? {
                row.extend(bundle::leaves(&found, tile.width).into_iter().map(Some));
            }
            row.resize(width, None);
            return Ok(row);
        }
        for index in (tile.index * u64::from(TILE_WIDTH)..).take(width) {
            let child = Tile { kind: TileKind::Hashes(level - 1), index, width: TILE_WIDTH };
            row.push(self.stored(child)?.whole().map(perfect_root));
        }
        Ok(row)
    }

    /// Says in which bytes a tile differs from the hashes it must have.
    fn blame_tile(&mut self, stored: &Stored, row: &[Hash], trusted: bool) {
        let kind = if trusted { Kind::Wrong } else { Kind::Undecided };
        let different = |(at, (found, expected)): (usize, (&Hash, &Hash))| (found != expected).then_some(at);
        let mut places = stored.row.iter().zip(row).enumerate().filter_map(different);
        if let Some(at) = places.next() {
            let more = match places.count() {
                0 => String::new(),
                more => format!("; {more} more hashes of it differ"),
            };
            let what = format!("the hash is {}, what lies below has {}{more}", stored.row[at], row[at]);
            let place = (at * HASH_BYTES) as u64..((at + 1) * HASH_BYTES) as u64;
            self.findings.add(Finding::at(kind, &stored.path, place, what));
        }
        if let Some(wrong) = &stored.wrong {
            self.findings.add(wrong.clone());
        }
    }

    fn findings_of(&mut self, stored: &[Stored]) {
        for wrong in stored.iter().filter_map(|tile| tile.wrong.clone()) {
            self.findings.add(wrong);
        }
    }
}

/// The root that the tiles of the right edge lead to.
fn root_of(size: TreeSize, tiles: &[Tile], rows: &[Vec<Hash>]) -> Hash {
    let rows = Rows(tiles.iter().copied().zip(rows.iter().map(Vec::as_slice)).collect());
    RightEdge::read(size, &rows).expect("ledger: the rows of a tree's edge have its widths").head().root
}

/// Tiles in memory.
struct Rows<'a>(HashMap<Tile, &'a [Hash]>);

impl TileSource for Rows<'_> {
    type Error = std::convert::Infallible;

    fn read_tile(&self, tile: Tile) -> Result<Vec<u8>, Self::Error> {
        Ok(encode_hashes(self.0[&tile]))
    }
}
