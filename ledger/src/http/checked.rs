//! Proofs from the tiles, each checked before anybody is answered with it.
//!
//! A start looks at the right edge alone, so a tile to the left may be damaged. A proof with one of its hashes leads
//! nowhere, and whoever got it would have to take the log for a liar.

use tlog::hash::{Hash, leaf_hash};
use tlog::proof::{
    ConsistencyProof, InclusionProof, Leaf, ProveError, check_consistency, check_inclusion,
    prove_consistency, prove_inclusion,
};
use tlog::tile::{TILE_WIDTH, Tile, TileKind, TileReader, perfect_root, tile_in_tree};
use tlog::tree::{LeafIndex, TreeHead, TreeSize, root_hash};

use crate::disk::store::Store;
use crate::error::LogError;
use crate::http::problem::Problem;
use crate::http::proof::{checkpoint_of, not_in_tree};
use crate::log::Log;
use crate::order::commit::{Committed, SignedHead};

/// The inclusion proof of an entry in the tree of a published checkpoint, from the tiles. It leads from the leaf hash
/// that is given, or else from that of the entry in the tiles, to the signed root.
pub fn prove(
    log: &Log,
    index: LeafIndex,
    signed: &SignedHead,
    leaf: Option<Hash>,
) -> Result<InclusionProof, Problem> {
    let head = signed.head;
    // The tiles are read as they are in the latest tree: the older one's may have been replaced by wider ones.
    let reader = reader(log);
    let proof = prove_inclusion(index, head.size, &reader).map_err(|error| match error {
        ProveError::Read(error) => LogError::from(error).into(),
        _ => not_in_tree(index, head.size),
    })?;
    let leads = |hash: Hash| check_inclusion(&proof, Leaf { index, hash }, head).is_ok();
    let right = match leaf {
        Some(hash) => leads(hash),
        None => {
            // Either of the two hashes being right shows that the proof is: nobody finds a second one that leads up.
            stated_leaf(&reader, index)?.is_some_and(leads)
                || log.store.read_entry(index, reader.size)?.is_some_and(|entry| leads(leaf_hash(&entry)))
        }
    };
    if right { Ok(proof) } else { Err(wrong(log, index, head.size)) }
}

/// The proof of an entry that was just added, which needs no tile.
pub fn prove_committed(
    log: &Log,
    committed: &Committed,
    index: LeafIndex,
    leaf: Hash,
) -> Result<InclusionProof, Problem> {
    let proof = committed.prove(index).expect("ledger: a commit proves its own entries");
    match check_inclusion(&proof, Leaf { index, hash: leaf }, committed.signed.head) {
        Ok(()) => Ok(proof),
        Err(_) => Err(wrong(log, index, committed.signed.head.size)),
    }
}

/// The proof that one tree of the log goes on another, both at most as large as the latest.
pub fn prove_consistent(log: &Log, old: TreeSize, new: TreeSize) -> Result<ConsistencyProof, Problem> {
    let proof = consistency(log, old, new)?;
    // Of no tree there is nothing to prove, and of the same tree neither.
    if old.0 > 0 && old < new {
        let (old_head, new_head) = (head_of(log, old)?, head_of(log, new)?);
        if check_consistency(&proof, old_head, new_head).is_err() {
            return Err(wrong(log, LeafIndex(old.0 - 1), new));
        }
    }
    Ok(proof)
}

fn consistency(log: &Log, old: TreeSize, new: TreeSize) -> Result<ConsistencyProof, Problem> {
    prove_consistency(old, new, &reader(log)).map_err(|error| match error {
        ProveError::Read(error) => LogError::from(error).into(),
        other => Problem::bad_request(other.to_string()),
    })
}

/// The head of the log's tree of a size: as it was signed, or computed, and then the latest signed one goes on it.
fn head_of(log: &Log, size: TreeSize) -> Result<TreeHead, Problem> {
    let latest = log.published.latest().head;
    if size == latest.size {
        return Ok(latest);
    }
    if log.history.of_size(size)?.is_some() {
        return Ok(checkpoint_of(log, size)?.head);
    }
    let root = root_hash(size, &reader(log)).map_err(LogError::from)?;
    let head = TreeHead { size, root };
    let proof = consistency(log, size, latest.size)?;
    match check_consistency(&proof, head, latest) {
        Ok(()) => Ok(head),
        Err(_) => Err(wrong(log, LeafIndex(size.0 - 1), latest.size)),
    }
}

fn reader(log: &Log) -> TileReader<'_, Store> {
    TileReader { size: log.published.latest().head.size, source: log.store.as_ref() }
}

/// The leaf hash that the tiles have at a place.
fn stated_leaf(reader: &TileReader<'_, Store>, index: LeafIndex) -> Result<Option<Hash>, LogError> {
    let width = u64::from(TILE_WIDTH);
    let tile = tile_in_tree(TileKind::Hashes(0), index.0 / width, reader.size);
    let Some(tile) = tile else { return Ok(None) };
    Ok(reader.read_hashes_of(tile)?.get((index.0 % width) as usize).copied())
}

fn wrong(log: &Log, index: LeafIndex, size: TreeSize) -> Problem {
    LogError::ProofMismatch { index, size, suspect: suspect(log, index) }.into()
}

/// Which tile may be what is wrong on the way from a leaf up: the first that does not agree with what is beside it.
fn suspect(log: &Log, index: LeafIndex) -> String {
    let reader = reader(log);
    let width = u64::from(TILE_WIDTH);
    let mut at = index.0 / width;
    let mut below: Option<(Tile, Vec<Hash>)> = None;
    for level in 0.. {
        let Some(tile) = tile_in_tree(TileKind::Hashes(level), at, reader.size) else { break };
        let Ok(row) = reader.read_hashes_of(tile) else { return tile.path() };
        match &below {
            None => {
                let bundle = Tile { kind: TileKind::Entries, ..tile };
                let Ok(entries) = log.store.read_entries(bundle) else { return bundle.path() };
                if entries.iter().map(|entry| leaf_hash(entry)).ne(row.iter().copied()) {
                    return format!("{} or {}", tile.path(), bundle.path());
                }
            }
            Some((child, hashes)) => {
                let stated = row.get((child.index % width) as usize);
                if child.is_full() && stated != Some(&perfect_root(hashes)) {
                    return format!("{} or {}", child.path(), tile.path());
                }
            }
        }
        if !tile.is_full() {
            break;
        }
        at /= width;
        below = Some((tile, row));
    }
    "a tile beside the way up".to_owned()
}
