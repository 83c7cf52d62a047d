//! Questions that every implementation of a log must answer alike: our answers, and what is asked.
//!
//! A question is one line of text, and so is its answer, so that a program in another language can be asked too.
#![allow(dead_code)] // Each test asks its own part.

pub mod asked;
pub mod reasons;

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::fmt::Write as _;

use tlog::checkpoint::Checkpoint;
use tlog::hash::{Hash, leaf_hash, node_hash};
use tlog::note::{SignedNote, Verifier, VerifierKey};
use tlog::proof::{
    ConsistencyProof, InclusionProof, Leaf, check_consistency, check_inclusion, prove_consistency,
    prove_inclusion,
};
use tlog::tile::{Tile, TileKind, new_tiles};
use tlog::tree::{
    HashReader, LeafIndex, NodeId, TreeHead, TreeSize, root_hash, split_stored_hash_index, stored_hash_count,
    stored_hash_index,
};

/// Highest level of a node that is asked for.
pub const LEVEL_MAX: u8 = 61;

/// One question. Trees are those of [`OddLeaf`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Question {
    Leaf { entry: Vec<u8> },
    Node { left: Hash, right: Hash },
    Position { node: NodeId },
    Split { position: u64 },
    Count { size: u64 },
    Root { size: u64, odd: u64 },
    Inclusion { index: u64, size: u64, odd: u64 },
    Consistency { old: u64, new: u64, odd: u64 },
    CheckInclusion { index: u64, size: u64, leaf: Hash, root: Hash, proof: Vec<Hash> },
    CheckConsistency { old: u64, new: u64, old_root: Hash, new_root: Hash, proof: Vec<Hash> },
    Path { tile: Tile },
    Tile { path: String },
    NewTiles { old: u64, new: u64 },
    Key { vkey: String },
    Note { vkeys: Vec<String>, note: Vec<u8> },
    Checkpoint { text: String },
}

impl Question {
    /// The question as a line: a word, then its parts, separated by spaces.
    pub fn line(&self) -> String {
        match self {
            Question::Leaf { entry } => format!("leaf {}", hex(entry)),
            Question::Node { left, right } => format!("node {left} {right}"),
            Question::Position { node } => format!("position {} {}", node.level, node.index),
            Question::Split { position } => format!("split {position}"),
            Question::Count { size } => format!("count {size}"),
            Question::Root { size, odd } => format!("root {size} {odd}"),
            Question::Inclusion { index, size, odd } => format!("inclusion {index} {size} {odd}"),
            Question::Consistency { old, new, odd } => format!("consistency {old} {new} {odd}"),
            Question::CheckInclusion { index, size, leaf, root, proof } => {
                format!("check-inclusion {index} {size} {leaf} {root}{}", spaced(proof))
            }
            Question::CheckConsistency { old, new, old_root, new_root, proof } => {
                format!("check-consistency {old} {new} {old_root} {new_root}{}", spaced(proof))
            }
            Question::Path { tile } => format!("path {}", coordinates(*tile)),
            Question::Tile { path } => format!("tile {}", hex(path.as_bytes())),
            Question::NewTiles { old, new } => format!("new-tiles {old} {new}"),
            Question::Key { vkey } => format!("key {}", hex(vkey.as_bytes())),
            Question::Note { vkeys, note } => {
                let keys: Vec<String> = vkeys.iter().map(|key| hex(key.as_bytes())).collect();
                format!("note {} {}", hex(note), keys.join(" "))
            }
            Question::Checkpoint { text } => format!("checkpoint {}", hex(text.as_bytes())),
        }
    }

    /// What our code answers: `no` for a refusal.
    pub fn ours(&self) -> String {
        self.answered().unwrap_or_else(|| "no".to_owned())
    }

    fn answered(&self) -> Option<String> {
        Some(match self.clone() {
            Question::Leaf { entry } => leaf_hash(&entry).to_string(),
            Question::Node { left, right } => node_hash(&left, &right).to_string(),
            Question::Position { node } => stored_hash_index(node).to_string(),
            Question::Split { position } => {
                let node = split_stored_hash_index(position);
                format!("{} {}", node.level, node.index)
            }
            Question::Count { size } => stored_hash_count(TreeSize(size)).to_string(),
            Question::Root { size, odd } => root_hash(TreeSize(size), &OddLeaf { odd }).unwrap().to_string(),
            Question::Inclusion { index, size, odd } => {
                listed(&prove_inclusion(LeafIndex(index), TreeSize(size), &OddLeaf { odd }).ok()?.0)
            }
            Question::Consistency { old, new, odd } => {
                listed(&prove_consistency(TreeSize(old), TreeSize(new), &OddLeaf { odd }).ok()?.0)
            }
            Question::CheckInclusion { index, size, leaf, root, proof } => {
                let leaf = Leaf { index: LeafIndex(index), hash: leaf };
                let head = TreeHead { size: TreeSize(size), root };
                check_inclusion(&InclusionProof(proof), leaf, head).ok()?;
                "yes".to_owned()
            }
            Question::CheckConsistency { old, new, old_root, new_root, proof } => {
                let old = TreeHead { size: TreeSize(old), root: old_root };
                let new = TreeHead { size: TreeSize(new), root: new_root };
                check_consistency(&ConsistencyProof(proof), old, new).ok()?;
                "yes".to_owned()
            }
            Question::Path { tile } => tile.path(),
            Question::Tile { path } => coordinates(Tile::parse(&path).ok()?),
            Question::NewTiles { old, new } => {
                // Others know no entry bundles; these have the places of level 0.
                let tiles = new_tiles(TreeSize(old), TreeSize(new)).into_iter();
                let hashes = tiles.filter(|tile| tile.kind != TileKind::Entries);
                let paths: Vec<String> = hashes.map(|tile| tile.path()).collect();
                paths.join(" ")
            }
            Question::Key { vkey } => {
                let key = VerifierKey::parse(&vkey).ok()?;
                format!("{:08x} {}", key.id().0, hex(key.name().as_str().as_bytes()))
            }
            Question::Note { vkeys, note } => {
                let keys: Vec<VerifierKey> =
                    vkeys.iter().map(|vkey| VerifierKey::parse(vkey).unwrap()).collect();
                let known: Vec<&dyn Verifier> = keys.iter().map(|key| key as &dyn Verifier).collect();
                let note = SignedNote::parse(&note).ok()?;
                hex(note.open(&known).ok()?.as_bytes())
            }
            Question::Checkpoint { text } => {
                let Checkpoint { origin, head } = Checkpoint::parse_text(&text).ok()?;
                format!("{} {} {}", hex(origin.as_bytes()), head.size, head.root)
            }
        })
    }
}

/// A tree of any size to 2^61 without the work: all its leaves are alike but the one at `odd`, so that the hash of any
/// node is known, and any other place for that leaf gives other roots.
pub struct OddLeaf {
    pub odd: u64,
}

pub const PLAIN: &[u8] = b"plain";
pub const ODD: &[u8] = b"odd";

impl OddLeaf {
    pub fn leaf(&self, index: u64) -> Hash {
        leaf_hash(if index == self.odd { ODD } else { PLAIN })
    }

    pub fn node(&self, node: NodeId) -> Hash {
        let mut plain = leaf_hash(PLAIN);
        let mut odd = leaf_hash(ODD);
        for level in 0..node.level {
            odd = if self.odd >> level & 1 == 1 { node_hash(&plain, &odd) } else { node_hash(&odd, &plain) };
            plain = node_hash(&plain, &plain);
        }
        if self.odd >> node.level == node.index { odd } else { plain }
    }
}

impl HashReader for OddLeaf {
    type Error = Infallible;

    fn read_hashes(&self, nodes: &[NodeId]) -> Result<Vec<Hash>, Infallible> {
        Ok(nodes.iter().map(|node| self.node(*node)).collect())
    }
}

/// Compares our answers with `theirs`: each is the same, or differs for one of [`reasons`]. Returns those needed.
pub fn compare(questions: &[Question], theirs: &[String]) -> BTreeSet<&'static str> {
    assert_eq!(questions.len(), theirs.len(), "an answer for each question");
    let (mut needed, mut unexplained, mut yes, mut no) = (Vec::new(), Vec::new(), 0, 0);
    for (question, theirs) in questions.iter().zip(theirs) {
        let ours = question.ours();
        if ours == *theirs {
            *(if ours == "no" { &mut no } else { &mut yes }) += 1;
            continue;
        }
        match reasons::reason(question, &ours, theirs) {
            Some(reason) => needed.push(reason),
            None => unexplained.push(format!("{}\n  ours {ours:?}, theirs {theirs:?}", question.line())),
        }
    }
    unexplained.truncate(10);
    assert!(unexplained.is_empty(), "\n{}", unexplained.join("\n"));
    println!("{yes} answered alike, {no} refused alike, {} differ for a reason", needed.len());
    needed.into_iter().collect()
}

pub fn hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes {
        write!(text, "{byte:02x}").unwrap();
    }
    // No part of a line is empty.
    if text.is_empty() { "-".to_owned() } else { text }
}

/// A tile's coordinates: level or `entries`, index, width.
pub fn coordinates(tile: Tile) -> String {
    match tile.kind {
        TileKind::Entries => format!("entries {} {}", tile.index, tile.width),
        TileKind::Hashes(level) => format!("{level} {} {}", tile.index, tile.width),
    }
}

/// Hashes, or `none`.
pub fn listed(hashes: &[Hash]) -> String {
    let hashes: Vec<String> = hashes.iter().map(Hash::to_string).collect();
    if hashes.is_empty() { "none".to_owned() } else { hashes.join(" ") }
}

fn spaced(hashes: &[Hash]) -> String {
    hashes.iter().map(|hash| format!(" {hash}")).collect()
}
