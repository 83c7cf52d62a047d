//! Public test data of other projects: RFC 6962 proof probes, and a small tlog-tiles log made by another program.

use std::path::{Path, PathBuf};

use serde_json::Value;
use tlog::checkpoint::Checkpoint;
use tlog::entries::decode_bundle_of;
use tlog::hash::{Hash, leaf_hash};
use tlog::note::VerifierKey;
use tlog::proof::{
    ConsistencyProof, InclusionProof, Leaf, check_consistency, check_inclusion, prove_consistency,
    prove_inclusion,
};
use tlog::tile::{Tile, TileKind, TileReader, TileSource, new_tiles};
use tlog::tlog_proof::TlogProof;
use tlog::tree::{LeafIndex, TreeHead, TreeSize, root_hash};

const TESSERA_VKEY: &str = "example.com/log/testdata+33d7b496+AeHTu4Q3hEIMHNqc6fASMsq3rKNx280NI+oO5xCFkkSx";
const TESSERA_ORIGIN: &str = "example.com/log/testdata";

/// The folder of public test data beside the workspace, or none (with a message) where it has not been laid out.
fn vectors(folder: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/vectors/tlog").join(folder);
    if path.is_dir() {
        return Some(path);
    }
    assert!(std::env::var("CI").as_deref() != Ok("true"), "test data is missing: {}", path.display());
    eprintln!("skipped: no test data at {}", path.display());
    None
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(files_below(&path));
        } else {
            files.push(path);
        }
    }
    files.sort();
    files
}

/// Hashes as our own types take them: what cannot be one is rejected before any proof is looked at.
fn hash(value: &Value) -> Option<Hash> {
    Hash::from_base64(value.as_str().unwrap()).ok()
}

fn hashes(value: &Value) -> Option<Vec<Hash>> {
    // JSON null is a proof of no hashes; an empty text inside is not an absent hash but a bad one.
    value.as_array().map_or(Some(Vec::new()), |all| all.iter().map(hash).collect())
}

fn probe(folder: &str, check: fn(&Value) -> bool) {
    let Some(folder) = vectors(folder) else { return };
    let mut counts = [0, 0];
    for path in files_below(&folder) {
        let case: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let want_error = case["wantErr"].as_bool().unwrap();
        assert_eq!(check(&case), !want_error, "{}: {}", path.display(), case["desc"]);
        counts[usize::from(want_error)] += 1;
    }
    assert!(counts[0] >= 3 && counts[1] >= 30, "too few cases: {counts:?}");
}

#[test]
fn inclusion_probes_are_accepted_and_rejected_as_they_say() {
    probe("inclusion", |case| {
        let parts = (hash(&case["leafHash"]), hash(&case["root"]), hashes(&case["proof"]));
        let (Some(leaf), Some(root), Some(proof)) = parts else { return false };
        let leaf = Leaf { index: LeafIndex(case["leafIdx"].as_u64().unwrap()), hash: leaf };
        let head = TreeHead { size: TreeSize(case["treeSize"].as_u64().unwrap()), root };
        check_inclusion(&InclusionProof(proof), leaf, head).is_ok()
    });
}

#[test]
fn consistency_probes_are_accepted_and_rejected_as_they_say() {
    probe("consistency", |case| {
        let parts = (hash(&case["root1"]), hash(&case["root2"]), hashes(&case["proof"]));
        let (Some(old), Some(new), Some(proof)) = parts else { return false };
        let old = TreeHead { size: TreeSize(case["size1"].as_u64().unwrap()), root: old };
        let new = TreeHead { size: TreeSize(case["size2"].as_u64().unwrap()), root: new };
        check_consistency(&ConsistencyProof(proof), old, new).is_ok()
    });
}

struct Folder(PathBuf);

impl TileSource for Folder {
    type Error = std::io::Error;

    fn read_tile(&self, tile: Tile) -> Result<Vec<u8>, std::io::Error> {
        std::fs::read(self.0.join(tile.path()))
    }
}

#[test]
fn a_log_written_by_tessera_is_read_whole() {
    let Some(folder) = vectors("tessera-log") else { return };
    let source = Folder(folder.clone());
    let log = VerifierKey::parse(TESSERA_VKEY).unwrap();
    assert_eq!(log.to_string(), TESSERA_VKEY);
    let mut heads = Vec::new();
    for size in 0..=15 {
        let note = std::fs::read(folder.join(format!("checkpoint.{size}"))).unwrap();
        let checkpoint = Checkpoint::open(&note, TESSERA_ORIGIN, &log).unwrap();
        assert_eq!(checkpoint.head.size, TreeSize(size));
        heads.push((checkpoint.head, String::from_utf8(note).unwrap()));
    }
    assert_eq!(std::fs::read_to_string(folder.join("checkpoint")).unwrap(), heads[15].1);
    for (head, note) in &heads[1..] {
        let reader = TileReader { size: head.size, source: &source };
        assert_eq!(root_hash(head.size, &reader).unwrap(), head.root);
        let bundle = Tile { kind: TileKind::Entries, index: 0, width: head.size.0 as u16 };
        let bytes = source.read_tile(bundle).unwrap();
        let entries = decode_bundle_of(&bytes, bundle.width).unwrap();
        assert_eq!(entries[0], b"one");
        for (index, entry) in (0..).zip(&entries) {
            let index = LeafIndex(index);
            let inclusion = prove_inclusion(index, head.size, &reader).unwrap();
            let proof = TlogProof { extra: None, index, inclusion, checkpoint: note.clone() };
            let parsed = TlogProof::parse(proof.format().as_bytes()).unwrap();
            assert_eq!(parsed, proof);
            assert_eq!(parsed.check(leaf_hash(entry), TESSERA_ORIGIN, &log).unwrap().head, *head);
        }
        for (old, _) in &heads[..=head.size.0 as usize] {
            let proof = prove_consistency(old.size, head.size, &reader).unwrap();
            assert_eq!(check_consistency(&proof, *old, *head), Ok(()));
        }
        for tile in new_tiles(TreeSize(0), head.size) {
            assert!(folder.join(tile.path()).is_file(), "{} is not where we look for it", tile.path());
        }
    }
}
