//! The same questions to the crates `tlog_tiles` and `signed_note`, which others keep: each answer is ours, or the
//! difference has a reason that is written down here.

mod questions;

use std::collections::{BTreeSet, HashMap};
use std::panic::catch_unwind;

use questions::{Question, asked, compare, hex, listed, reasons};
use signed_note::{Note, StandardVerifier, Verifier as _, VerifierList};
use tlog::edge::RightEdge;
use tlog::hash::leaf_hash;
use tlog::tile::{TILE_HEIGHT, TileKind, tile_in_tree};
use tlog::tree::NodeId;
use tlog_tiles::{Checkpoint, Error, Hash, HashReader, Tile, TileHashReader, TileReader};

struct OddLeaf(questions::OddLeaf);

impl HashReader for OddLeaf {
    fn read_hashes(&self, positions: &[u64]) -> Result<Vec<Hash>, Error> {
        let node = |position: &u64| {
            let (level, index) = tlog_tiles::split_stored_hash_index(*position);
            theirs(&self.0.node(NodeId { level, index }))
        };
        Ok(positions.iter().map(node).collect())
    }
}

fn theirs(hash: &tlog::hash::Hash) -> Hash {
    Hash(*hash.as_bytes())
}

fn all(hashes: &[tlog::hash::Hash]) -> Vec<Hash> {
    hashes.iter().map(theirs).collect()
}

fn listed_theirs(hashes: &[Hash]) -> String {
    listed(&hashes.iter().map(|hash| tlog::hash::Hash::new(hash.0)).collect::<Vec<_>>())
}

/// Their path has the height before the level, and "data" for entries.
fn path_as_ours(path: &str) -> String {
    path.replacen("tile/8/", "tile/", 1).replacen("/data/", "/entries/", 1)
}

fn answer(question: &Question) -> String {
    let asked = question.clone();
    // The library panics on some paths.
    match catch_unwind(move || answered(asked)) {
        Ok(answer) => answer.unwrap_or_else(|| "no".to_owned()),
        Err(_) => "panics".to_owned(),
    }
}

fn answered(question: Question) -> Option<String> {
    let tree = |odd| OddLeaf(questions::OddLeaf { odd });
    Some(match question {
        Question::Leaf { entry } => tlog_tiles::record_hash(&entry).to_string(),
        Question::Node { left, right } => tlog_tiles::node_hash(theirs(&left), theirs(&right)).to_string(),
        Question::Position { node } => tlog_tiles::stored_hash_index(node.level, node.index).to_string(),
        Question::Split { position } => {
            let (level, index) = tlog_tiles::split_stored_hash_index(position);
            format!("{level} {index}")
        }
        Question::Count { size } => tlog_tiles::stored_hash_count(size).to_string(),
        Question::Root { size, odd } => tlog_tiles::tree_hash(size, &tree(odd)).ok()?.to_string(),
        Question::Inclusion { index, size, odd } => {
            listed_theirs(&tlog_tiles::prove_record(size, index, &tree(odd)).ok()?)
        }
        Question::Consistency { old, new, odd } => {
            listed_theirs(&tlog_tiles::prove_tree(new, old, &tree(odd)).ok()?)
        }
        Question::CheckInclusion { index, size, leaf, root, proof } => {
            tlog_tiles::check_record(&all(&proof), size, theirs(&root), index, theirs(&leaf)).ok()?;
            "yes".to_owned()
        }
        Question::CheckConsistency { old, new, old_root, new_root, proof } => {
            tlog_tiles::check_tree(&all(&proof), new, theirs(&new_root), old, theirs(&old_root)).ok()?;
            "yes".to_owned()
        }
        Question::Path { tile } => {
            let (level, data) = match tile.kind {
                TileKind::Entries => (0, true),
                TileKind::Hashes(level) => (level, false),
            };
            let tile = Tile::new(TILE_HEIGHT, level, tile.index, u32::from(tile.width), data);
            path_as_ours(&tile.path())
        }
        Question::Tile { path } => {
            let path = path.replacen("tile/", "tile/8/", 1).replacen("/entries/", "/data/", 1);
            let tile = Tile::from_path(&path).ok()?;
            let kind = if tile.is_data() { "entries".to_owned() } else { tile.level().to_string() };
            format!("{kind} {} {}", tile.level_index(), tile.width())
        }
        Question::NewTiles { old, new } => {
            let tiles = Tile::new_tiles(TILE_HEIGHT, old, new);
            tiles.iter().map(|tile| path_as_ours(&tile.path())).collect::<Vec<_>>().join(" ")
        }
        Question::Key { vkey } => {
            let key = StandardVerifier::new(&vkey).ok()?;
            format!("{:08x} {}", key.key_id(), hex(key.name().as_bytes()))
        }
        Question::Note { vkeys, note } => {
            let key = |vkey: &String| -> Box<dyn signed_note::Verifier> {
                Box::new(StandardVerifier::new(vkey).unwrap())
            };
            let note = Note::from_bytes(&note).ok()?;
            note.verify(&VerifierList::new(vkeys.iter().map(key).collect())).ok()?;
            hex(note.text())
        }
        Question::Checkpoint { text } => {
            let checkpoint = Checkpoint::from_bytes(text.as_bytes()).ok()?;
            format!("{} {} {}", hex(checkpoint.origin().as_bytes()), checkpoint.size(), checkpoint.hash())
        }
    })
}

fn compared(questions: Vec<Question>) -> BTreeSet<&'static str> {
    let answers: Vec<String> = questions.iter().map(answer).collect();
    compare(&questions, &answers)
}

#[test]
fn hashes_and_positions_are_theirs() {
    assert_eq!(compared(asked::hashes_and_positions()), BTreeSet::new());
}

#[test]
fn proofs_are_theirs() {
    assert_eq!(compared(asked::proofs()), BTreeSet::from([reasons::EMPTY_OLDER_TREE]));
}

#[test]
fn proofs_are_accepted_and_refused_as_by_them() {
    assert_eq!(compared(asked::checks()), BTreeSet::from([reasons::EMPTY_OLDER_TREE]));
}

#[test]
fn tiles_are_theirs() {
    // From 2^56 leaves on, the crate shifts too far and panics.
    let narrow = |question: &Question| !matches!(question, Question::NewTiles { new, .. } if *new >= 1 << 56);
    let questions = asked::tiles().into_iter().filter(narrow).collect();
    assert_eq!(compared(questions), BTreeSet::from([reasons::PANICS]));
}

#[test]
fn keys_are_accepted_and_refused_as_by_them() {
    let expected = BTreeSet::from([reasons::NAME, reasons::UPPER_CASE, reasons::SMALL_ORDER]);
    assert_eq!(compared(asked::keys()), expected);
}

#[test]
fn notes_are_accepted_and_refused_as_by_them() {
    assert_eq!(
        compared(asked::notes()),
        BTreeSet::from([reasons::LIMIT, reasons::NAME, reasons::SECOND_SIGNATURE])
    );
}

#[test]
fn checkpoints_are_accepted_and_refused_as_by_them() {
    assert_eq!(compared(asked::checkpoints()), BTreeSet::from([reasons::EMPTY_ROOT, reasons::EXTENSION]));
}

/// Tiles as our right edge makes them, read and verified by their reader.
struct Tiles(HashMap<String, Vec<u8>>);

impl TileReader for Tiles {
    fn height(&self) -> u8 {
        TILE_HEIGHT
    }

    fn read_tiles(&self, tiles: &[Tile]) -> Result<Vec<Vec<u8>>, Error> {
        let read = |tile: &Tile| self.0.get(&path_as_ours(&tile.path())).cloned().ok_or(Error::InvalidTile);
        tiles.iter().map(read).collect()
    }

    fn save_tiles(&self, _: &[Tile], _: &[Vec<u8>]) {}
}

#[test]
fn tiles_of_ours_are_read_and_verified_by_them() {
    let leaf = |index: u64| leaf_hash(&index.to_be_bytes());
    let mut edge = RightEdge::empty();
    let mut tiles = Tiles(HashMap::new());
    for grown_by in [1, 2, 252, 1, 1, 65_300] {
        let from = edge.size().0;
        let leaves: Vec<_> = (from..from + grown_by).map(leaf).collect();
        tiles.0.extend(edge.append(&leaves).into_iter().map(|made| (made.tile.path(), made.bytes)));
        let head = edge.head();
        let reader = TileHashReader::new(head.size.0, theirs(&head.root), &tiles);
        for index in (0..head.size.0).step_by(if head.size.0 > 300 { 997 } else { 1 }) {
            let position = tlog_tiles::stored_hash_index(0, index);
            assert_eq!(reader.read_hashes(&[position]).unwrap()[0], theirs(&leaf(index)));
            let proof = tlog_tiles::prove_record(head.size.0, index, &reader).unwrap();
            tlog_tiles::check_record(&proof, head.size.0, theirs(&head.root), index, theirs(&leaf(index)))
                .unwrap();
        }
        // Their reader believes no tile that does not lead to the root. In larger trees it leaves some tiles unchecked:
        // it begins its comparison with the parents behind as many tiles as the root has subtrees, which may share one.
        if head.size.0 < 300 {
            let first = tile_in_tree(TileKind::Hashes(0), 0, head.size).unwrap().path();
            tiles.0.get_mut(&first).unwrap()[31] ^= 1;
            assert!(TileHashReader::new(head.size.0, theirs(&head.root), &tiles).read_hashes(&[0]).is_err());
            tiles.0.get_mut(&first).unwrap()[31] ^= 1;
        }
    }
    assert!(edge.size().0 > 65_536, "level 2 is in use");
}
