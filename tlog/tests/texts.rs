//! Notes, checkpoints and proof files: what is written is read back, and every other text is rejected.

use tlog::checkpoint::{Checkpoint, CheckpointError};
use tlog::hash::{EMPTY_ROOT, Hash, leaf_hash};
use tlog::note::{
    KeyError, KeyName, NOTE_BYTES_MAX, NoteError, SignedNote, SigningKey, Verifier, VerifierKey,
};
use tlog::proof::prove_inclusion;
use tlog::tlog_proof::{TlogProof, TlogProofError};
use tlog::tree::{LeafIndex, StoredHashes, TreeHead, TreeSize};

const ORIGIN: &str = "example.com/log";

fn key(name: &str, seed: u8) -> SigningKey {
    SigningKey::from_seed(KeyName::new(name).unwrap(), &[seed; 32])
}

fn log() -> SigningKey {
    key(ORIGIN, 7)
}

fn lines_of(note: &str) -> String {
    note.rsplit_once("\n\n").unwrap().1.to_owned()
}

#[test]
fn the_example_note_of_the_specification_is_verified() {
    // C2SP signed-note, and the same key in Go's note package.
    let vkey = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW";
    let note = "If you think cryptography is the answer to your problem,\nthen you don't know what your problem is.\n\n\
                \u{2014} PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6K\
                E6RyyBwJnAM=\n";
    let key = VerifierKey::parse(vkey).unwrap();
    assert_eq!(key.to_string(), vkey);
    let note = SignedNote::parse(note.as_bytes()).unwrap();
    assert!(note.open(&[&key]).unwrap().starts_with("If you think"));
}

#[test]
fn a_flipped_bit_anywhere_in_a_checkpoint_is_rejected() {
    let tree = TreeHead { size: TreeSize(3), root: leaf_hash(b"x") };
    let note = Checkpoint { origin: ORIGIN.to_owned(), head: tree }.sign(&log());
    assert!(Checkpoint::open(note.as_bytes(), ORIGIN, log().verifier()).is_ok());
    for at in 0..note.len() {
        for bit in 0..8 {
            let mut damaged = note.clone().into_bytes();
            damaged[at] ^= 1 << bit;
            assert!(Checkpoint::open(&damaged, ORIGIN, log().verifier()).is_err(), "byte {at} bit {bit}");
        }
    }
    for length in 0..note.len() {
        assert!(Checkpoint::open(&note.as_bytes()[..length], ORIGIN, log().verifier()).is_err());
    }
}

#[test]
fn signatures_of_unknown_keys_are_ignored_and_a_failing_known_one_rejects_the_note() {
    let text = "some text\n\nwith an empty line\n";
    let (ours, stranger, namesake) = (log(), key("stranger", 1), key(ORIGIN, 2));
    let note = ours.sign(text);
    let with_strangers = format!(
        "{}{}{note_lines}",
        stranger.sign(text),
        lines_of(&namesake.sign(text)),
        note_lines = lines_of(&note)
    );
    let opened = SignedNote::parse(with_strangers.as_bytes()).unwrap();
    assert_eq!(opened.signatures().len(), 3);
    assert_eq!(opened.open(&[ours.verifier()]), Ok(text));

    let only_strangers = SignedNote::parse(stranger.sign(text).as_bytes()).unwrap();
    assert_eq!(only_strangers.open(&[ours.verifier()]), Err(NoteError::NoKnownKey { found: 1 }));

    // A good signature of one known key does not make up for a bad one of another.
    let bad = lines_of(&stranger.sign("another text\n"));
    let mixed = SignedNote::parse(format!("{note}{bad}").as_bytes()).unwrap();
    assert_eq!(mixed.open(&[ours.verifier()]), Ok(text));
    let both: [&dyn Verifier; 2] = [ours.verifier(), stranger.verifier()];
    assert_eq!(mixed.open(&both), Err(NoteError::BadSignature { name: "stranger".to_owned() }));
}

#[test]
fn notes_of_another_form_are_rejected() {
    let good = log().sign("text\n");
    let line = lines_of(&good);
    let parse = |note: &str| SignedNote::parse(note.as_bytes());
    assert!(parse(&good).is_ok());
    assert_eq!(parse("text\n"), Err(NoteError::NoSignatures));
    assert_eq!(parse("text\n\n"), Err(NoteError::NoSignatures));
    assert_eq!(parse(good.trim_end()), Err(NoteError::NoSignatures));
    assert_eq!(parse(&good.replace("\u{2014}", "-")), Err(NoteError::BadSignatureLine { line: 1 }));
    assert_eq!(
        parse(&good.replace("\n\u{2014} ", "\n\u{2014}  ")),
        Err(NoteError::BadSignatureLine { line: 1 })
    );
    assert_eq!(parse(&format!("{good}not a signature\n")), Err(NoteError::BadSignatureLine { line: 2 }));
    assert_eq!(parse("text\n\n\u{2014} name AAAAAA==\n"), Err(NoteError::BadSignatureLine { line: 1 }));
    assert_eq!(parse(&good.replace("text", "te\txt")), Err(NoteError::NotText));
    assert_eq!(parse(&good.replace('\n', "\r\n")), Err(NoteError::NotText));
    assert_eq!(SignedNote::parse(b"te\xffxt\n\n"), Err(NoteError::NotText));
    assert!(parse(&format!("text\n\n{}", line.repeat(64))).is_ok());
    assert_eq!(parse(&format!("text\n\n{}", line.repeat(65))), Err(NoteError::TooManySignatures));
    let long = format!("{}{good}", "x".repeat(NOTE_BYTES_MAX));
    assert_eq!(parse(&long), Err(NoteError::TooLong { found: long.len() }));
}

#[test]
fn keys_are_read_in_one_form_only_and_their_secret_is_not_shown() {
    let key = log();
    let vkey = key.verifier().to_string();
    assert_eq!(VerifierKey::parse(&vkey).as_ref(), Ok(key.verifier()));
    assert_eq!(format!("{key:?}"), format!("SigningKey({vkey})"));
    let secret = key.to_secret_text();
    assert_eq!(SigningKey::parse_secret_text(&format!("{secret}\n")).unwrap().verifier(), key.verifier());
    assert!(!format!("{key:?}").contains(secret.rsplit('+').next().unwrap()));

    let id = vkey.split('+').nth(1).unwrap();
    assert!(matches!(
        VerifierKey::parse(&vkey.replace(id, "00000000")),
        Err(KeyError::WrongId { found: 0, .. })
    ));
    assert!(matches!(VerifierKey::parse(&vkey.replace(ORIGIN, "other")), Err(KeyError::WrongId { .. })));
    assert_eq!(VerifierKey::parse(&vkey.replace(id, &id[1..])), Err(KeyError::BadForm));
    assert_eq!(VerifierKey::parse(&vkey[..vkey.len() - 4]), Err(KeyError::BadForm));
    assert_eq!(VerifierKey::parse(&format!("{vkey}AAAA")), Err(KeyError::BadForm));
    assert_eq!(
        VerifierKey::parse(&format!("name+{id}+BA==")),
        Err(KeyError::UnsupportedType { expected: 1, found: 4 })
    );
    assert_eq!(VerifierKey::parse(ORIGIN), Err(KeyError::BadForm));
    for name in ["", "a b", "a+b", "a\u{2003}b", "a\nb", "\u{0}", &"n".repeat(256)] {
        assert!(matches!(KeyName::new(name), Err(KeyError::BadName { .. })), "{name:?}");
    }
}

#[test]
fn a_checkpoint_has_exactly_three_strict_lines() {
    let root = leaf_hash(b"x");
    let text = |size: &str, root: &str| format!("{ORIGIN}\n{size}\n{root}\n");
    let root_text = root.to_base64();
    let parsed = Checkpoint::parse_text(&text("3", &root_text)).unwrap();
    assert_eq!(parsed.head, TreeHead { size: TreeSize(3), root });
    assert_eq!(parsed.text(), text("3", &root_text));
    for size in ["03", "+3", "-3", " 3", "3 ", "", "x", "18446744073709551616"] {
        let error = Checkpoint::parse_text(&text(size, &root_text)).unwrap_err();
        assert_eq!(error, CheckpointError::BadSize { found: size.to_owned() });
    }
    assert!(matches!(Checkpoint::parse_text(&text("3", "AAAA")), Err(CheckpointError::BadRoot(_))));
    let with_extension = format!("{}extension\n", text("3", &root_text));
    assert_eq!(Checkpoint::parse_text(&with_extension), Err(CheckpointError::WrongLineCount { found: 4 }));
    let unfinished = text("3", &root_text).trim_end().to_owned();
    assert!(Checkpoint::parse_text(&unfinished).is_err());
    assert_eq!(Checkpoint::parse_text(&format!("\n3\n{root_text}\n")), Err(CheckpointError::EmptyOrigin));
    assert_eq!(
        Checkpoint::parse_text(&text("0", &root_text)),
        Err(CheckpointError::BadEmptyRoot { found: root })
    );
    assert!(Checkpoint::parse_text(&text("0", &EMPTY_ROOT.to_base64())).is_ok());
}

#[test]
fn another_logs_checkpoint_is_rejected_even_under_the_same_key() {
    // A key may sign for another origin by mistake; the reader asked for one log and gets no other.
    let text = format!("example.com/other\n0\n{EMPTY_ROOT}\n");
    let error = Checkpoint::open(log().sign(&text).as_bytes(), ORIGIN, log().verifier()).unwrap_err();
    assert!(matches!(error, CheckpointError::OriginMismatch { .. }));
}

fn proof_file() -> (TlogProof, Hash) {
    let mut tree = StoredHashes::new();
    for index in 0..13u8 {
        tree.push(leaf_hash(&[index]));
    }
    let head = TreeHead { size: tree.size(), root: tree.root(tree.size()) };
    let checkpoint = Checkpoint { origin: ORIGIN.to_owned(), head }.sign(&log());
    let inclusion = prove_inclusion(LeafIndex(6), head.size, &tree).unwrap();
    let proof = TlogProof { extra: Some(b"extra".to_vec()), index: LeafIndex(6), inclusion, checkpoint };
    (proof, leaf_hash(&[6]))
}

#[test]
fn a_proof_file_is_read_back_and_checked() {
    let (proof, leaf) = proof_file();
    let parsed = TlogProof::parse(proof.format().as_bytes()).unwrap();
    assert_eq!(parsed, proof);
    assert_eq!(parsed.check(leaf, ORIGIN, log().verifier()).unwrap().head.size, TreeSize(13));
    assert!(matches!(parsed.check(leaf_hash(&[7]), ORIGIN, log().verifier()), Err(TlogProofError::Proof(_))));
    let stranger = key(ORIGIN, 8);
    assert!(matches!(parsed.check(leaf, ORIGIN, stranger.verifier()), Err(TlogProofError::Checkpoint(_))));
    assert!(matches!(parsed.check(leaf, "other", log().verifier()), Err(TlogProofError::Checkpoint(_))));
}

#[test]
fn a_flipped_bit_in_a_proof_file_is_rejected_or_was_only_in_the_extra_line() {
    let (proof, leaf) = proof_file();
    let text = proof.format();
    let extra = text.find("extra ").unwrap();
    let extra_end = extra + text[extra..].find('\n').unwrap();
    for at in (0..text.len()).filter(|at| !(extra..extra_end).contains(at)) {
        for bit in 0..8 {
            let mut damaged = text.clone().into_bytes();
            damaged[at] ^= 1 << bit;
            let checked =
                TlogProof::parse(&damaged).and_then(|proof| proof.check(leaf, ORIGIN, log().verifier()));
            assert!(checked.is_err(), "byte {at} bit {bit}");
        }
    }
}

#[test]
fn proof_files_of_another_form_are_rejected() {
    let (proof, _) = proof_file();
    let text = proof.format();
    let parse = |text: String| TlogProof::parse(text.as_bytes());
    assert!(matches!(parse(text.replace("@v1", "@v2")), Err(TlogProofError::BadHeader { .. })));
    assert!(matches!(parse(text.replace("index 6", "index 06")), Err(TlogProofError::BadIndex { .. })));
    assert!(matches!(parse(text.replace("index 6\n", "")), Err(TlogProofError::BadIndex { .. })));
    assert!(matches!(parse(text.replace("extra ZX", "extra *")), Err(TlogProofError::BadExtra)));
    assert!(matches!(
        parse(text.replace("index 6\n", "index 6\nAAAA\n")),
        Err(TlogProofError::BadHash { line: 1, .. })
    ));
    let many = format!("index 6\n{}", format!("{EMPTY_ROOT}\n").repeat(65));
    assert!(matches!(parse(text.replace("index 6\n", &many)), Err(TlogProofError::TooManyHashes)));
    let head_only = text.split("\n\n").next().unwrap().to_owned();
    assert!(matches!(parse(head_only), Err(TlogProofError::NoCheckpoint)));
    assert!(matches!(parse("x".repeat(1 << 20)), Err(TlogProofError::TooLong { .. })));
}
