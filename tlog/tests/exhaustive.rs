//! Every tree of up to 130 leaves: every leaf, every older size, every proof hash flipped, and the same from tiles.

use std::collections::HashMap;

use tlog::edge::RightEdge;
use tlog::hash::{HASH_BYTES, Hash, leaf_hash};
use tlog::proof::{
    ConsistencyProof, InclusionProof, Leaf, ProofError, ProveError, check_consistency, check_inclusion,
    prove_consistency, prove_inclusion,
};
use tlog::tile::{Tile, TileReader, TileSource, new_tiles};
use tlog::tree::{LeafIndex, StoredHashes, TreeHead, TreeSize, root_hash};

const LEAVES: u64 = 130;

fn entry(index: u64) -> Vec<u8> {
    format!("entry {index}").into_bytes()
}

fn tree(leaves: u64) -> StoredHashes {
    let mut tree = StoredHashes::new();
    for index in 0..leaves {
        tree.push(leaf_hash(&entry(index)));
    }
    tree
}

fn head(tree: &StoredHashes, size: u64) -> TreeHead {
    TreeHead { size: TreeSize(size), root: tree.root(TreeSize(size)) }
}

fn flipped(hash: Hash, bit: usize) -> Hash {
    let mut bytes = *hash.as_bytes();
    bytes[bit / 8] ^= 1 << (bit % 8);
    Hash::new(bytes)
}

#[test]
fn every_leaf_of_every_tree_is_proven_and_no_damaged_proof_is() {
    let tree = tree(LEAVES);
    for size in 1..=LEAVES {
        let head = head(&tree, size);
        for index in 0..size {
            let leaf = Leaf { index: LeafIndex(index), hash: leaf_hash(&entry(index)) };
            let proof = prove_inclusion(leaf.index, head.size, &tree).unwrap();
            assert_eq!(check_inclusion(&proof, leaf, head), Ok(()), "leaf {index} of {size}");
            damaged_inclusion_fails(&proof, leaf, head);
        }
    }
}

fn damaged_inclusion_fails(proof: &InclusionProof, leaf: Leaf, head: TreeHead) {
    let what = format!("leaf {} of {}", leaf.index, head.size);
    for at in 0..proof.0.len() {
        let mut damaged = proof.clone();
        damaged.0[at] = flipped(proof.0[at], at % (8 * HASH_BYTES));
        assert!(check_inclusion(&damaged, leaf, head).is_err(), "{what}: hash {at} flipped");
        damaged.0.remove(at);
        assert!(check_inclusion(&damaged, leaf, head).is_err(), "{what}: hash {at} removed");
        damaged = proof.clone();
        damaged.0.insert(at, proof.0[at]);
        assert!(check_inclusion(&damaged, leaf, head).is_err(), "{what}: hash {at} doubled");
    }
    let mut longer = proof.clone();
    longer.0.push(head.root);
    assert!(check_inclusion(&longer, leaf, head).is_err(), "{what}: hash appended");
    let other_leaf = Leaf { hash: flipped(leaf.hash, 255), ..leaf };
    assert!(check_inclusion(proof, other_leaf, head).is_err(), "{what}: leaf flipped");
    let other_root = TreeHead { root: flipped(head.root, 0), ..head };
    assert!(check_inclusion(proof, leaf, other_root).is_err(), "{what}: root flipped");
    for index in (0..head.size.0).filter(|index| *index != leaf.index.0) {
        let elsewhere = Leaf { index: LeafIndex(index), ..leaf };
        assert!(check_inclusion(proof, elsewhere, head).is_err(), "{what}: claimed at {index}");
    }
}

#[test]
fn every_older_tree_is_consistent_with_every_newer_one_and_no_damaged_proof_shows_it() {
    let tree = tree(LEAVES);
    for new_size in 0..=LEAVES {
        let new = head(&tree, new_size);
        for old_size in 0..=new_size {
            let old = head(&tree, old_size);
            let proof = prove_consistency(old.size, new.size, &tree).unwrap();
            assert_eq!(check_consistency(&proof, old, new), Ok(()), "{old_size} to {new_size}");
            damaged_consistency_fails(&proof, old, new);
        }
    }
}

fn damaged_consistency_fails(proof: &ConsistencyProof, old: TreeHead, new: TreeHead) {
    let what = format!("{} to {}", old.size, new.size);
    for at in 0..proof.0.len() {
        let mut damaged = proof.clone();
        damaged.0[at] = flipped(proof.0[at], at % (8 * HASH_BYTES));
        assert!(check_consistency(&damaged, old, new).is_err(), "{what}: hash {at} flipped");
        damaged.0.remove(at);
        assert!(check_consistency(&damaged, old, new).is_err(), "{what}: hash {at} removed");
    }
    let mut longer = proof.clone();
    longer.0.push(new.root);
    assert!(check_consistency(&longer, old, new).is_err(), "{what}: hash appended");
    let other_old = TreeHead { root: flipped(old.root, 7), ..old };
    assert!(check_consistency(proof, other_old, new).is_err(), "{what}: older root flipped");
    // The empty tree is a prefix of any tree, so there its proof says nothing about the newer root.
    if old.size.0 > 0 || new.size.0 == 0 {
        let other_new = TreeHead { root: flipped(new.root, 9), ..new };
        assert!(check_consistency(proof, old, other_new).is_err(), "{what}: newer root flipped");
    }
}

#[test]
fn what_lies_outside_a_tree_is_an_error_and_not_a_panic() {
    let tree = tree(8);
    let root = tree.root(TreeSize(8));
    let outside = prove_inclusion(LeafIndex(8), TreeSize(8), &tree);
    assert_eq!(outside, Err(ProveError::OutsideTree { index: LeafIndex(8), size: TreeSize(8) }));
    let backwards = prove_consistency(TreeSize(8), TreeSize(7), &tree);
    assert_eq!(backwards, Err(ProveError::OldIsNewer { old: TreeSize(8), new: TreeSize(7) }));
    for index in [8, u64::MAX] {
        let leaf = Leaf { index: LeafIndex(index), hash: root };
        let head = TreeHead { size: TreeSize(8), root };
        let expected = Err(ProofError::OutsideTree { index: LeafIndex(index), size: TreeSize(8) });
        assert_eq!(check_inclusion(&InclusionProof(vec![]), leaf, head), expected);
    }
    // The greatest size there is has proofs of up to 64 hashes, and checking them must not overflow.
    let head = TreeHead { size: TreeSize(u64::MAX), root };
    for index in [0, u64::MAX - 1] {
        let leaf = Leaf { index: LeafIndex(index), hash: root };
        for length in 0..=65 {
            assert!(check_inclusion(&InclusionProof(vec![root; length]), leaf, head).is_err());
        }
    }
    for old in [1, 3, 1 << 63, u64::MAX - 1] {
        let old = TreeHead { size: TreeSize(old), root };
        for length in 0..=65 {
            assert!(check_consistency(&ConsistencyProof(vec![root; length]), old, head).is_err());
        }
    }
}

/// Tiles in memory that forgets partial tiles when told to.
#[derive(Default)]
struct MemoryTiles(HashMap<Tile, Vec<u8>>);

#[derive(Debug, thiserror::Error)]
#[error("no such tile")]
struct NoTile;

impl TileSource for MemoryTiles {
    type Error = NoTile;

    fn read_tile(&self, tile: Tile) -> Result<Vec<u8>, NoTile> {
        self.0.get(&tile).or_else(|| self.0.get(&tile.full())).cloned().ok_or(NoTile)
    }
}

#[test]
fn a_tree_grown_by_its_right_edge_has_the_same_roots_and_proofs_from_tiles() {
    // 700 leaves: two full tiles, and level 1 in use. The pool sizes differ so that tiles fill at odd moments.
    let all = tree(700);
    let mut edge = RightEdge::empty();
    let mut tiles = MemoryTiles::default();
    let mut at = 0;
    for pool in [1, 2, 1, 100, 151, 1, 1, 254, 1, 1, 187].into_iter() {
        let before = edge.size();
        let leaves: Vec<Hash> = (at..at + pool).map(|index| leaf_hash(&entry(index))).collect();
        let written = edge.append(&leaves);
        at += pool;
        let mut expected = new_tiles(before, edge.size());
        expected.retain(|tile| tile.kind != tlog::tile::TileKind::Entries);
        let mut coordinates: Vec<Tile> = written.iter().map(|written| written.tile).collect();
        coordinates.sort();
        expected.sort();
        assert_eq!(coordinates, expected, "tiles from {before} to {}", edge.size());
        tiles.0.extend(written.into_iter().map(|written| (written.tile, written.bytes)));

        assert_eq!(edge.head(), head(&all, at));
        let reader = TileReader { size: edge.size(), source: &tiles };
        assert_eq!(root_hash(edge.size(), &reader).unwrap(), edge.head().root);
        assert_eq!(RightEdge::read(edge.size(), &tiles).unwrap(), edge);
    }
    assert_eq!(at, 700);
    let reader = TileReader { size: TreeSize(700), source: &tiles };
    for index in 0..700 {
        let from_tiles = prove_inclusion(LeafIndex(index), TreeSize(700), &reader).unwrap();
        assert_eq!(from_tiles, prove_inclusion(LeafIndex(index), TreeSize(700), &all).unwrap());
        let from_tiles = prove_consistency(TreeSize(index), TreeSize(700), &reader).unwrap();
        assert_eq!(from_tiles, prove_consistency(TreeSize(index), TreeSize(700), &all).unwrap());
    }
}

#[test]
fn a_tile_of_the_wrong_length_and_a_missing_one_are_errors() {
    let mut tiles = MemoryTiles::default();
    let mut edge = RightEdge::empty();
    for written in edge.append(&[leaf_hash(b"a"), leaf_hash(b"b"), leaf_hash(b"c")]) {
        tiles.0.insert(written.tile, written.bytes);
    }
    let reader = TileReader { size: TreeSize(3), source: &tiles };
    assert!(root_hash(TreeSize(3), &reader).is_ok());
    // A larger tree has hashes that this reader's tree has not.
    assert!(root_hash(TreeSize(4), &reader).unwrap_err().to_string().contains("is not complete"));
    let missing = TileReader { size: TreeSize(4), source: &tiles };
    assert!(root_hash(TreeSize(4), &missing).unwrap_err().to_string().contains("could not be read"));
    tiles.0.values_mut().for_each(|bytes| bytes.truncate(95));
    let reader = TileReader { size: TreeSize(3), source: &tiles };
    assert!(root_hash(TreeSize(3), &reader).unwrap_err().to_string().contains("is 95 bytes, expected 96"));
}
