//! What a witness decides: every combination of what it has and what it is asked, over small trees.

use tlog::checkpoint::Checkpoint;
use tlog::cosignature::CosigningKey;
use tlog::hash::{EMPTY_ROOT, Hash, HashError, leaf_hash};
use tlog::note::{KeyName, NOTE_BYTES_MAX, SignedNote, SigningKey, Verifier as _};
use tlog::proof::{ConsistencyProof, prove_consistency};
use tlog::tree::{StoredHashes, TreeHead, TreeSize};
use tlog::witness::{
    ADD_CHECKPOINT_BYTES_MAX, AddCheckpoint, AddCheckpointError, CONSISTENCY_LINES_MAX, Refusal, decide,
    format_size, parse_size,
};

const ORIGIN: &str = "example.com/log";
const SIZES: u64 = 9;

fn log() -> SigningKey {
    SigningKey::from_seed(KeyName::new(ORIGIN).unwrap(), &[7; 32])
}

/// A tree whose leaf `other`, if there is one, is not the usual one.
fn tree(other: Option<u64>) -> StoredHashes {
    let mut tree = StoredHashes::new();
    for index in 0..=SIZES {
        let entry = if other == Some(index) { "another".to_owned() } else { format!("entry {index}") };
        tree.push(leaf_hash(entry.as_bytes()));
    }
    tree
}

fn head(tree: &StoredHashes, size: u64) -> TreeHead {
    TreeHead { size: TreeSize(size), root: tree.root(TreeSize(size)) }
}

fn signed(head: TreeHead) -> String {
    Checkpoint { origin: ORIGIN.to_owned(), head }.sign(&log())
}

fn status(request: &AddCheckpoint, last: Option<TreeHead>) -> u16 {
    match decide(request, &[log().verifier().clone()], last) {
        Ok(accepted) => {
            assert_eq!(accepted.checkpoint.sign(&log()), request.checkpoint);
            200
        }
        Err(refusal) => {
            if let Refusal::Conflict { expected, .. } = refusal {
                assert_eq!(Some(expected), last.map(|last| last.size).or(Some(TreeSize(0))));
            }
            refusal.status()
        }
    }
}

/// The right proof, and others: none, one hash less, one more, each hash changed.
fn proofs(right: &ConsistencyProof) -> Vec<ConsistencyProof> {
    let mut found = vec![right.clone(), ConsistencyProof(Vec::new())];
    let mut more = right.clone();
    more.0.push(leaf_hash(b"more"));
    found.push(more);
    for at in 0..right.0.len() {
        let mut changed = right.clone();
        changed.0[at] = leaf_hash(b"changed");
        found.push(changed);
        let mut fewer = right.clone();
        fewer.0.remove(at);
        found.push(fewer);
    }
    found
}

#[test]
fn every_request_over_small_trees_is_answered_as_the_page_says() {
    let ours = tree(None);
    let (mut accepted, mut cases) = (0, 0);
    for last in (0..=SIZES).map(Some).chain([None]) {
        // What was never cosigned counts as size zero.
        let last_size = last.unwrap_or(0);
        for size in 0..=SIZES {
            for old in 0..=SIZES {
                let right = match old <= size {
                    true => prove_consistency(TreeSize(old), TreeSize(size), &ours).unwrap(),
                    false => ConsistencyProof(Vec::new()),
                };
                for proof in proofs(&right) {
                    let expected = match () {
                        () if old > size => 400,
                        () if old != last_size => 409,
                        () if proof == right => 200,
                        () => 422,
                    };
                    let request =
                        AddCheckpoint { old: TreeSize(old), proof, checkpoint: signed(head(&ours, size)) };
                    let last = last.map(|last| head(&ours, last));
                    assert_eq!(status(&request, last), expected, "{last_size} {size} {request:?}");
                    accepted += usize::from(expected == 200);
                    cases += 1;
                }
            }
        }
    }
    assert!(accepted > 50 && cases > 5000, "{accepted} of {cases}");
}

#[test]
fn no_fork_is_cosigned_whatever_its_proof() {
    let ours = tree(None);
    for other in 0..SIZES {
        let fork = tree(Some(other));
        for last in 1..=SIZES {
            for size in last..=SIZES {
                for proof in
                    [&ours, &fork].map(|tree| prove_consistency(TreeSize(last), TreeSize(size), tree))
                {
                    let proof = proof.unwrap();
                    let checkpoint = signed(head(&fork, size));
                    let request = AddCheckpoint { old: TreeSize(last), proof, checkpoint };
                    // The trees part after leaf `other`: one that grew from before it is no fork.
                    let honest = last <= other
                        && request.proof == prove_consistency(TreeSize(last), TreeSize(size), &fork).unwrap();
                    let expected = if honest { 200 } else { 422 };
                    assert_eq!(status(&request, Some(head(&ours, last))), expected, "{other} {last} {size}");
                }
            }
        }
    }
}

#[test]
fn an_empty_tree_has_one_root_and_is_extended_without_a_proof() {
    let ours = tree(None);
    let none = ConsistencyProof(Vec::new());
    let empty = TreeHead { size: TreeSize(0), root: EMPTY_ROOT };
    let wrong = TreeHead { size: TreeSize(0), root: leaf_hash(b"x") };
    let request =
        |old, head| AddCheckpoint { old: TreeSize(old), proof: none.clone(), checkpoint: signed(head) };
    for last in [None, Some(empty)] {
        assert_eq!(status(&request(0, empty), last), 200);
        assert_eq!(status(&request(0, wrong), last), 422);
        assert_eq!(status(&request(0, head(&ours, 5)), last), 200);
    }
    // In the order of the page: sizes first.
    assert_eq!(status(&request(1, wrong), Some(head(&ours, 1))), 400);
    assert_eq!(status(&request(0, wrong), Some(head(&ours, 1))), 409);
}

#[test]
fn keys_and_signatures_are_looked_at_before_sizes() {
    let ours = tree(None);
    let none = ConsistencyProof(Vec::new());
    let known = log().verifier().clone();
    let namesake = SigningKey::from_seed(KeyName::new(ORIGIN).unwrap(), &[8; 32]);
    let head = head(&ours, 3);
    let checkpoint = Checkpoint { origin: ORIGIN.to_owned(), head };
    let ask = |note: String, keys: &[&SigningKey]| {
        let keys: Vec<_> = keys.iter().map(|key| key.verifier().clone()).collect();
        let request = AddCheckpoint { old: TreeSize(9), proof: none.clone(), checkpoint: note };
        decide(&request, &keys, None).map_err(|refusal| refusal.status())
    };
    assert_eq!(ask(checkpoint.sign(&log()), &[]).unwrap_err(), 404);
    assert_eq!(ask(checkpoint.sign(&namesake), &[&log()]).unwrap_err(), 403);
    let broken = checkpoint.sign(&log()).replace("\n3\n", "\n4\n");
    assert_eq!(ask(broken, &[&log()]).unwrap_err(), 403);
    let lines = |note: &str| note.rsplit_once("\n\n").unwrap().1.to_owned();
    let another = Checkpoint { origin: ORIGIN.to_owned(), head: self::head(&ours, 4) };
    let mixed = format!("{}{}", checkpoint.sign(&log()), lines(&another.sign(&namesake)));
    assert_eq!(ask(mixed, &[&log(), &namesake]).unwrap_err(), 403, "a known key's line fails");
    assert_eq!(ask(checkpoint.sign(&log()), &[&log()]).unwrap_err(), 400, "9 is greater than 3");
    for malformed in ["", "example.com/log\n", "example.com/log\n3\n\n"] {
        assert_eq!(ask(malformed.to_owned(), &[&log()]).unwrap_err(), 400);
    }
    let extended = log().sign(&format!("{}extension\n", checkpoint.text()));
    assert_eq!(ask(extended, &[&log()]).unwrap_err(), 400);

    // What is kept of an accepted note: one verified line for each known key, and no stranger's.
    let stranger = CosigningKey::from_seed(KeyName::new("w").unwrap(), &[1; 32]);
    let crowded = format!(
        "{}{}{}{}",
        checkpoint.sign(&namesake),
        stranger.cosign(&checkpoint.text(), 1),
        lines(&checkpoint.sign(&log())),
        lines(&checkpoint.sign(&log())),
    );
    let request = AddCheckpoint { old: TreeSize(0), proof: none.clone(), checkpoint: crowded };
    let accepted = decide(&request, &[known], None).unwrap();
    assert_eq!(
        accepted.signatures,
        SignedNote::parse(checkpoint.sign(&log()).as_bytes()).unwrap().signatures()
    );
    assert!(accepted.signatures[0].is_of(log().verifier()) && log().verifier().name().as_str() == ORIGIN);
}

#[test]
fn the_example_request_of_the_specification_is_read() {
    let text = "old 20852014\nPlRNCrwHpqhGrupue0L7gxbjbMiKA9temvuZZDDpkaw=\n\
                jrJZDmY8Y7SyJE0MWLpLozkIVMSMZcD5kvuKxPC3swk=\n5+pKlUdi2LeF/BcMHBn+Ku6yhPGNCswZZD1X/6QgPd8=\n\
                /6WVhPs2CwSsb5rYBH5cjHV/wSmA79abXAwhXw3Kj/0=\n\n\
                example.com/behind-the-sofa\n20852163\nCsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n\n\
                \u{2014} example.com/behind-the-sofa Az3grlgtzPICa5OS8npVmf1Myq/5IZniMp+ZJurmRDeOoRDe4URYN7u5/Zhcyv2q1\
                gGzGku9nTo+zyWE+xeMcTOAYQ8=\n";
    let request = AddCheckpoint::parse(text.as_bytes()).unwrap();
    assert_eq!((request.old, request.proof.0.len()), (TreeSize(20_852_014), 4));
    assert_eq!(request.origin(), "example.com/behind-the-sofa");
    assert_eq!(request.format(), text);
}

#[test]
fn requests_and_sizes_of_another_form_are_rejected() {
    let hash = leaf_hash(b"x").to_string();
    let parse = |text: &str| AddCheckpoint::parse(text.as_bytes()).unwrap_err();
    let bad_old = |found: &str| AddCheckpointError::BadOldSize { found: found.to_owned() };
    for first in [
        "",
        "old",
        "old ",
        "old 01",
        "old +1",
        "old -1",
        "old  1",
        "Old 1",
        "old 1 ",
        "old 18446744073709551616",
    ] {
        assert_eq!(parse(&format!("{first}\n{hash}\n\nnote\n")), bad_old(first));
    }
    assert_eq!(parse("old 1\n"), AddCheckpointError::NoCheckpoint);
    assert_eq!(parse("old 1\r\n\r\nnote\n"), AddCheckpointError::NoCheckpoint);
    let bad = |line, source| AddCheckpointError::BadHash { line, source };
    assert_eq!(parse(&format!("old 1\n{hash}\n{hash} \n\nnote\n")), bad(2, HashError::NotBase64));
    assert_eq!(parse("old 1\nAAAA\n\nnote\n"), bad(1, HashError::WrongLength { found: 3 }));
    let lines = |count: usize| format!("old 1\n{}\nnote\n", format!("{hash}\n").repeat(count));
    let most = AddCheckpoint::parse(lines(CONSISTENCY_LINES_MAX).as_bytes()).unwrap();
    assert_eq!(most.proof, ConsistencyProof(vec![Hash::from_base64(&hash).unwrap(); CONSISTENCY_LINES_MAX]));
    assert_eq!(parse(&lines(CONSISTENCY_LINES_MAX + 1)), AddCheckpointError::TooManyHashes);
    assert_eq!(AddCheckpoint::parse(b"old 1\n\n\xff"), Err(AddCheckpointError::NotText));
    let long = |length: usize| format!("old 1\n\n{}", "x".repeat(length - "old 1\n\n".len()));
    AddCheckpoint::parse(long(ADD_CHECKPOINT_BYTES_MAX).as_bytes()).unwrap();
    let found = ADD_CHECKPOINT_BYTES_MAX + 1;
    assert_eq!(parse(&long(found)), AddCheckpointError::TooLong { found });
    const { assert!(ADD_CHECKPOINT_BYTES_MAX < NOTE_BYTES_MAX) };

    for size in [0, 1, 20_852_014, u64::MAX] {
        assert_eq!(parse_size(format_size(TreeSize(size)).as_bytes()), Some(TreeSize(size)));
    }
    for text in ["", "\n", "1", "01\n", "1\n\n", " 1\n", "1\r\n", "-1\n", "+1\n", "18446744073709551616\n"] {
        assert_eq!(parse_size(text.as_bytes()), None, "{text:?}");
    }
}
