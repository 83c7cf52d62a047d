//! The notes that were kept: each is whole, opens under the log's key, and has the root that the tree has at its size.

use std::fs;
use std::path::Path;

use tlog::checkpoint::Checkpoint;
use tlog::compact::CompactTree;
use tlog::note::{Verifier as _, VerifierKey};
use tlog::tile::{TILE_WIDTH, TileKind, TileReader, tile_in_tree};
use tlog::tree::TreeHead;

use crate::disk::durable::read_optional;
use crate::disk::history::{next_note, row_of};
use crate::disk::store::Store;
use crate::error::LogError;
use crate::fsck::finding::{Finding, Findings, Kind};

/// Bytes of a row that finds a note.
const ROW_BYTES: usize = 16;

/// A log's kept notes, and what they are held against.
pub struct Kept<'a> {
    /// The log's folder.
    pub store: &'a Store,
    /// Its key.
    pub key: &'a VerifierKey,
    /// The tree of its checkpoint.
    pub head: TreeHead,
    /// The note that its lock holds, if that is of the same tree.
    pub last: Option<&'a str>,
    /// Whether the tiles are known to be right, so that roots can be computed from them.
    pub tiles_right: bool,
}

impl Kept<'_> {
    /// Looks at both files of notes, and at the rows by which notes are found.
    pub fn check(&self, findings: &mut Findings) -> Result<(), LogError> {
        let published = self.file("history/published", findings)?;
        let cosigned = self.file("history/cosigned", findings)?;
        // The genesis entry is a commit of its own, so the first note is of size 1.
        if let Some(first) = published.first().filter(|head| head.size.0 > 1) {
            let what = format!("no note of a size below {}, the log began with size 1", first.size);
            findings.add(Finding::of_file(Kind::Missing, "history/published", what));
        }
        let last = published.iter().rev().find(|head| head.size <= self.head.size);
        if last.map(|head| head.size) != Some(self.head.size) {
            let last = last.map_or(0, |head| head.size.0);
            let what =
                format!("the last note is of size {last}, that of size {} was published", self.head.size);
            findings.add(Finding::of_file(Kind::Missing, "history/published", what));
        }
        for head in cosigned.iter().filter(|head| head.size <= self.head.size) {
            if published.binary_search_by_key(&head.size, |head| head.size).is_err() {
                let what = format!("the note of size {} is cosigned and was published", head.size);
                findings.add(Finding::of_file(Kind::Missing, "history/published", what));
            }
        }
        if self.tiles_right {
            let notes = [("history/published", published), ("history/cosigned", cosigned)];
            self.roots(&notes, findings)?;
        }
        Ok(())
    }

    /// The heads of a file's notes, in ascending order.
    fn file(&self, name: &str, findings: &mut Findings) -> Result<Vec<TreeHead>, LogError> {
        let path = self.store.path(name);
        let rows = read_file(&path.with_extension("sizes"))?;
        let Some(bytes) = read_file(&path)? else {
            findings.add(Finding::of_file(Kind::Missing, name, "the file is not there"));
            return Ok(Vec::new());
        };
        let mut heads: Vec<TreeHead> = Vec::new();
        let mut expected_rows = Vec::new();
        let mut at = 0;
        while at < bytes.len() {
            let Some((note, end)) = next_note(&bytes, at) else {
                // Behind what is damaged there may be whole notes again.
                let whole = (at + 1..bytes.len()).find(|at| next_note(&bytes, *at).is_some());
                let end = whole.unwrap_or(bytes.len());
                let what = format!("no whole note, behind {} of them", heads.len());
                findings.add(Finding::at(Kind::Wrong, name, at as u64..end as u64, what));
                at = end;
                continue;
            };
            let place = at as u64..end as u64;
            at = end;
            let opened = Checkpoint::open(note.as_bytes(), self.key.name().as_str(), self.key);
            let head = match opened {
                Ok(checkpoint) => checkpoint.head,
                Err(error) => {
                    findings.add(Finding::at(Kind::Wrong, name, place, error.to_string()));
                    continue;
                }
            };
            if heads.last().is_some_and(|last| head.size <= last.size) {
                let what = format!("a note of size {}, expected a larger one than before it", head.size);
                findings.add(Finding::at(Kind::Wrong, name, place, what));
                continue;
            }
            if name.ends_with("published")
                && head.size == self.head.size
                && self.last.is_some_and(|last| last != note)
            {
                let what = "the note of the latest size is not the one in the lock";
                findings.add(Finding::at(Kind::Wrong, name, place, what));
            }
            expected_rows.extend_from_slice(&row_of((head.size, end as u64)));
            heads.push(head);
        }
        self.rows(name, rows, &expected_rows, findings);
        Ok(heads)
    }

    /// Rows that know of more notes tell what is lost; others are only to be made anew.
    fn rows(&self, name: &str, rows: Option<Vec<u8>>, expected: &[u8], findings: &mut Findings) {
        let path = format!("{name}.sizes");
        let hint = "`ledger reindex` makes it anew";
        let Some(rows) = rows else {
            return findings.add(Finding::of_file(Kind::Missing, &path, format!("no such file; {hint}")));
        };
        if rows == expected {
            return;
        }
        let sizes = |rows: &[u8]| -> Vec<u64> {
            let rows = rows.as_chunks::<ROW_BYTES>().0.iter();
            rows.map(|row| u64::from_be_bytes(*row.first_chunk().expect("ledger: 8 of 16 bytes"))).collect()
        };
        let (known, there) = (sizes(&rows), sizes(expected));
        if known.len() > there.len() && known.is_sorted_by(|one, other| one < other) {
            let lost: Vec<u64> =
                known.into_iter().filter(|size| there.binary_search(size).is_err()).collect();
            if let (Some(first), Some(last)) = (lost.first(), lost.last()) {
                let what = format!(
                    "{} notes of sizes {first} to {last} are not there whole, {path} knows of them",
                    lost.len()
                );
                return findings.add(Finding::of_file(Kind::Missing, name, what));
            }
        }
        let at = rows.iter().zip(expected).take_while(|(found, expected)| found == expected).count();
        let kind = match rows.len() {
            length if length == at => Kind::Truncated,
            _ if expected.len() == at => Kind::Extra,
            _ => Kind::Wrong,
        };
        let place = at as u64..(at + 1).max(rows.len().min(at + ROW_BYTES)) as u64;
        findings.add(Finding::at(kind, &path, place, format!("it does not fit the notes; {hint}")));
    }

    /// Holds the notes' roots against those of the tree, in one pass over its leaf hashes.
    fn roots(&self, notes: &[(&str, Vec<TreeHead>); 2], findings: &mut Findings) -> Result<(), LogError> {
        let reader = TileReader { size: self.head.size, source: self.store };
        let mut tree = CompactTree::new();
        let mut next = [0, 0];
        for index in 0..self.head.size.0.div_ceil(u64::from(TILE_WIDTH)) {
            let Some(tile) = tile_in_tree(TileKind::Hashes(0), index, self.head.size) else { break };
            for leaf in reader.read_hashes_of(tile)? {
                tree.push(leaf);
                for (at, (name, heads)) in next.iter_mut().zip(notes) {
                    let Some(head) = heads.get(*at).filter(|head| head.size == tree.size()) else { continue };
                    *at += 1;
                    let root = tree.head().root;
                    if head.root != root {
                        let what = format!(
                            "the note of size {} has root {}, the tree has {root}",
                            head.size, head.root
                        );
                        findings.add(Finding::of_file(Kind::Wrong, name, what));
                    }
                }
            }
        }
        Ok(())
    }
}

fn read_file(path: &Path) -> Result<Option<Vec<u8>>, LogError> {
    if fs::metadata(path).is_ok_and(|found| found.len() > FILE_BYTES_MAX) {
        let source = std::io::Error::other(format!("longer than {FILE_BYTES_MAX} bytes"));
        return Err(LogError::Io { path: path.to_owned(), source });
    }
    read_optional(path).map_err(LogError::io(path))
}

/// Most bytes of a file of notes that are read: some ten million of them.
const FILE_BYTES_MAX: u64 = 4 << 30;
