//! What is asked: at the boundaries, and at places from a generator with a fixed seed.

use tlog::checkpoint::Checkpoint;
use tlog::hash::{EMPTY_ROOT, Hash, leaf_hash};
use tlog::note::{KeyName, SigningKey};
use tlog::proof::{prove_consistency, prove_inclusion};
use tlog::tile::{Tile, TileKind};
use tlog::tree::{LeafIndex, NodeId, TreeHead, TreeSize, root_hash};

use super::{LEVEL_MAX, OddLeaf, Question};

/// Largest tree that is asked for.
const SIZE_MAX: u64 = 1 << 60;
/// The origin of the one kind of tree note that Go's package reads.
pub const GO_ORIGIN: &str = "go.sum database tree";

/// A generator of numbers that are the same in every run.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice(seed)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        let mut value = 0;
        for _ in 0..2 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            value = value << 32 | self.0 >> 32;
        }
        value % bound
    }

    pub fn one_of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len() as u64) as usize]
    }

    /// A tree size of any magnitude, often near a power of two.
    fn size(&mut self) -> u64 {
        let power = 1u64 << self.below(60);
        let size = match self.below(4) {
            0 => power - 1,
            1 => power,
            2 => power + 1,
            _ => power + self.below(power),
        };
        size.clamp(1, SIZE_MAX)
    }

    fn hash(&mut self) -> Hash {
        leaf_hash(&self.below(u64::MAX).to_be_bytes())
    }
}

/// Hashes and places of stored hashes.
pub fn hashes_and_positions() -> Vec<Question> {
    let mut dice = Dice::new(1);
    let mut asked = Vec::new();
    for length in (0..70).chain([127, 128, 255, 256, 4096, 65_535]) {
        asked.push(Question::Leaf { entry: (0..length).map(|_| dice.below(256) as u8).collect() });
        asked.push(Question::Node { left: dice.hash(), right: dice.hash() });
    }
    for number in 0..1000 {
        asked.push(Question::Split { position: number });
        asked.push(Question::Count { size: number });
        asked.push(Question::Split { position: dice.size() });
        asked.push(Question::Count { size: dice.size() });
    }
    for level in 0..LEVEL_MAX {
        let last = (1u64 << (LEVEL_MAX - 1 - level)) - 1;
        for index in [0, 1, last / 2, last.saturating_sub(1), last, dice.below(last + 1)] {
            asked.push(Question::Position { node: NodeId { level, index: index.min(last) } });
        }
    }
    asked
}

/// Proofs in every tree of up to 70 leaves, and in large ones.
pub fn proofs() -> Vec<Question> {
    let mut dice = Dice::new(2);
    let mut asked = Vec::new();
    for size in 1..=70 {
        asked.push(Question::Root { size, odd: size / 2 });
        for index in 0..=size {
            asked.push(Question::Inclusion { index, size, odd: index / 2 });
            asked.push(Question::Consistency { old: index, new: size, odd: index / 2 });
        }
    }
    asked.push(Question::Root { size: 0, odd: 0 });
    asked.push(Question::Consistency { old: 71, new: 70, odd: 0 });
    for _ in 0..600 {
        let size = dice.size();
        let (index, old, odd) = (dice.below(size), 1 + dice.below(size), dice.below(size));
        asked.push(Question::Root { size, odd });
        asked.push(Question::Inclusion { index, size, odd });
        asked.push(Question::Consistency { old, new: size, odd });
        let power = 1 << dice.below(60);
        let edge = *dice.one_of(&[0, size - 1, size, old - 1, power]);
        asked.push(Question::Inclusion { index: edge, size, odd });
        asked.push(Question::Consistency { old: edge, new: size, odd });
    }
    asked
}

/// Proofs to be checked: right ones, and ones with one thing wrong.
pub fn checks() -> Vec<Question> {
    let mut dice = Dice::new(3);
    let mut asked = Vec::new();
    for round in 0..700 {
        let new = if round < 70 { round + 1 } else { dice.size() };
        let (index, old) = (dice.below(new), dice.below(new + 1));
        // The odd leaf is mostly the one that is proven, or next to where the older tree ends.
        let anywhere = dice.below(new);
        let odd = *dice.one_of(&[index, old.min(new - 1), anywhere]);
        let tree = OddLeaf { odd };
        let root = |size: u64| root_hash(TreeSize(size), &tree).unwrap();
        let proof = prove_inclusion(LeafIndex(index), TreeSize(new), &tree).unwrap().0;
        let (leaf, new_root) = (tree.leaf(index), root(new));
        asked.push(Question::CheckInclusion { index, size: new, leaf, root: new_root, proof: proof.clone() });
        for _ in 0..6 {
            let (mut index, mut size, mut leaf, mut root) = (index, new, leaf, new_root);
            let mut proof = proof.clone();
            match dice.below(5) {
                0 => index = near(&mut dice, index),
                1 => size = near(&mut dice, size),
                2 => leaf = dice.hash(),
                3 => root = dice.hash(),
                _ => spoil(&mut dice, &mut proof),
            }
            asked.push(Question::CheckInclusion { index, size, leaf, root, proof });
        }
        let proof = prove_consistency(TreeSize(old), TreeSize(new), &tree).unwrap().0;
        let old_root = root(old);
        let right = proof.clone();
        asked.push(Question::CheckConsistency { old, new, old_root, new_root, proof: right });
        for _ in 0..6 {
            let (mut old, mut new, mut old_root, mut new_root) = (old, new, old_root, new_root);
            let mut proof = proof.clone();
            match dice.below(5) {
                0 => old = near(&mut dice, old),
                1 => new = near(&mut dice, new),
                2 => old_root = dice.hash(),
                3 => new_root = dice.hash(),
                _ => spoil(&mut dice, &mut proof),
            }
            asked.push(Question::CheckConsistency { old, new, old_root, new_root, proof });
        }
    }
    asked
}

/// Another number nearby.
fn near(dice: &mut Dice, number: u64) -> u64 {
    let others = [number.saturating_sub(1), number + 1, number ^ 1 << dice.below(10), number / 2, 0];
    (*dice.one_of(&others)).min(SIZE_MAX)
}

/// One hash more, fewer, another, or two in each other's place.
fn spoil(dice: &mut Dice, proof: &mut Vec<Hash>) {
    let at = dice.below(proof.len().max(1) as u64) as usize;
    match dice.below(5) {
        0 if !proof.is_empty() => drop(proof.remove(at)),
        1 if !proof.is_empty() => proof[at] = dice.hash(),
        2 if proof.len() > 1 => proof.swap(0, at),
        3 if !proof.is_empty() => proof.insert(at, proof[at]),
        _ => proof.push(dice.hash()),
    }
}

/// Paths of tiles, and texts that are nearly such.
pub fn tiles() -> Vec<Question> {
    let mut dice = Dice::new(4);
    let mut asked = Vec::new();
    for _ in 0..3000 {
        // Go's indexes are signed.
        let index = *dice.one_of(&[0, 1, 255, 999, 1000, 1_234_067, 999_999_999, i64::MAX as u64]);
        let index = if dice.below(2) == 0 { index } else { dice.size() };
        let width = *dice.one_of(&[1, 2, 10, 100, 255, 256, 256, 256]);
        let kind = match dice.below(3) {
            0 => TileKind::Entries,
            _ => TileKind::Hashes(dice.below(64) as u8),
        };
        let tile = Tile { kind, index, width };
        asked.push(Question::Path { tile });
        asked.push(Question::Tile { path: tile.path() });
        for _ in 0..4 {
            let path = altered(&mut dice, &tile.path(), "0019x.p/+- e");
            // The others' paths have the tile's height in this place, and "data" for entries.
            if path.starts_with("tile/") && !path.contains("data") {
                asked.push(Question::Tile { path });
            }
        }
    }
    for level in 0..80 {
        asked.push(Question::Tile { path: format!("tile/{level}/000") });
    }
    for _ in 0..2000 {
        let old = dice.size();
        asked.push(Question::NewTiles { old, new: old + dice.below(70_000) });
    }
    asked
}

/// Verifier keys, and texts that are nearly such.
pub fn keys() -> Vec<Question> {
    let mut dice = Dice::new(5);
    let mut asked = Vec::new();
    for seed in 0..100 {
        let name = ["log.example/a", "n", "a-b_c/\u{e9}"][dice.below(3) as usize];
        let vkey = key(name, seed).verifier().to_string();
        asked.push(Question::Key { vkey: vkey.clone() });
        for _ in 0..20 {
            asked.push(Question::Key { vkey: altered(&mut dice, &vkey, "+ aAF0=/\n\u{a0}\u{7f}") });
        }
    }
    for name in ["log\u{7f}name", "two words", "a\u{85}b", &"n".repeat(255), &"n".repeat(256), ""] {
        asked.push(Question::Key { vkey: vkey_of(name, &[1; 32]) });
        asked.push(Question::Key { vkey: vkey_of(name, key("n", 3).verifier().public_key()) });
    }
    // Points of small order: the neutral one, and one of order two.
    let mut neutral = [0; 32];
    neutral[0] = 1;
    asked.push(Question::Key { vkey: vkey_of("weak", &neutral) });
    let mut order_two = [0xff; 32];
    (order_two[0], order_two[31]) = (0xec, 0x7f);
    asked.push(Question::Key { vkey: vkey_of("weak", &order_two) });
    asked
}

/// Notes, and texts that are nearly such, by one or several keys of which one or two are known.
pub fn notes() -> Vec<Question> {
    let mut dice = Dice::new(6);
    let (log, witness, stranger) = (key("log.example/a", 1), key("witness.example", 2), key("stranger", 3));
    let namesake = key("log.example/a", 4);
    let known = [log.verifier().to_string(), witness.verifier().to_string()];
    let mut asked = Vec::new();
    let mut ask = |vkeys: &[String], note: String| {
        asked.push(Question::Note { vkeys: vkeys.to_vec(), note: note.into_bytes() });
    };
    for round in 0..400 {
        let text = *dice.one_of(&["log.example/a\n3\nroot\n", "text\n\nmore\n", "\n", "\u{e9}\u{2014} x\n"]);
        let mut note = log.sign(text);
        for other in [&witness, &stranger, &namesake, &log] {
            let other_text = *dice.one_of(&[text, text, "another text\n"]);
            if dice.below(2) == 0 {
                note.push_str(&line_of(&other.sign(other_text)));
            }
        }
        let vkeys = &known[..=(round % 2)];
        ask(vkeys, note.clone());
        for _ in 0..20 {
            ask(vkeys, altered(&mut dice, &note, "\n \u{2014}+=A/\u{1f}\u{7f}\u{a0}\u{85}\u{2003}a"));
        }
    }
    let line = line_of(&stranger.sign("text\n"));
    for strangers in [15, 16, 63, 64, 99, 100] {
        ask(&known[..1], format!("{}{}", log.sign("text\n"), line.repeat(strangers)));
    }
    for length in [256 * 1024 - 200, 256 * 1024, 999_000, 1_000_001] {
        ask(&known[..1], log.sign(&format!("{}\n", "x".repeat(length))));
    }
    let other_line = line_of(&log.sign("another text\n"));
    ask(&known[..1], format!("{}{other_line}", log.sign("text\n")));
    ask(&known[..1], format!("text\n\n{other_line}{}", line_of(&log.sign("text\n"))));
    asked
}

/// Checkpoint texts, and texts that are nearly such, with the origin of Go's trees.
pub fn checkpoints() -> Vec<Question> {
    let mut dice = Dice::new(7);
    let mut asked = Vec::new();
    let mut ask = |text: String| asked.push(Question::Checkpoint { text });
    for _ in 0..400 {
        let size = *dice.one_of(&[1, 9, 10, 1 << 40, i64::MAX as u64]);
        let head = TreeHead { size: TreeSize(size), root: dice.hash() };
        let text = Checkpoint { origin: GO_ORIGIN.to_owned(), head }.text();
        ask(text.clone());
        for _ in 0..10 {
            let body = altered(&mut dice, &text[GO_ORIGIN.len() + 1..], "0123+- =/A\n\u{e9}");
            ask(format!("{GO_ORIGIN}\n{body}"));
        }
    }
    let root = EMPTY_ROOT;
    ask(format!("{GO_ORIGIN}\n0\n{root}\n"));
    ask(format!("{GO_ORIGIN}\n0\n{}\n", leaf_hash(b"x")));
    for extension in ["extension\n", "\n", "extension", "one\ntwo\n", "one\n\ntwo\n"] {
        ask(format!("{GO_ORIGIN}\n3\n{root}\n{extension}"));
    }
    for size in ["18446744073709551616", "-1", "00", "1e3", "\u{663}"] {
        ask(format!("{GO_ORIGIN}\n{size}\n{root}\n"));
    }
    asked
}

pub fn key(name: &str, seed: u8) -> SigningKey {
    SigningKey::from_seed(KeyName::new(name).unwrap(), &[seed; 32])
}

/// A verifier key of any name and bytes, with the ID that they have.
fn vkey_of(name: &str, public_key: &[u8; 32]) -> String {
    use base64::Engine as _;
    use sha2::Digest as _;
    let typed = [&[1][..], public_key].concat();
    let digest = sha2::Sha256::new().chain_update(name).chain_update(b"\n").chain_update(&typed).finalize();
    format!("{name}+{}+{}", super::hex(&digest[..4]), base64::engine::general_purpose::STANDARD.encode(typed))
}

fn line_of(note: &str) -> String {
    note.rsplit_once("\n\n").unwrap().1.to_owned()
}

/// A text with one or two characters replaced, removed, doubled or put in, or cut off somewhere.
pub fn altered(dice: &mut Dice, text: &str, alphabet: &str) -> String {
    let alphabet: Vec<char> = alphabet.chars().collect();
    let mut chars: Vec<char> = text.chars().collect();
    for _ in 0..1 + dice.below(2) {
        let at = dice.below(chars.len().max(1) as u64) as usize;
        match dice.below(8) {
            0..=2 if !chars.is_empty() => chars[at] = *dice.one_of(&alphabet),
            3 if !chars.is_empty() => drop(chars.remove(at)),
            4 if !chars.is_empty() => chars.insert(at, chars[at]),
            5 => chars.truncate(at),
            // A line once more, here or at the end.
            6 => {
                let start = chars[..at].iter().rposition(|c| *c == '\n').map_or(0, |newline| newline + 1);
                let length = chars[start..].iter().position(|c| *c == '\n').map_or(0, |newline| newline + 1);
                let line = chars[start..start + length].to_vec();
                let place = if dice.below(2) == 0 { start } else { chars.len() };
                chars.splice(place..place, line);
            }
            _ => chars.insert(at, *dice.one_of(&alphabet)),
        }
    }
    chars.into_iter().collect()
}
