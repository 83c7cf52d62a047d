//! Cosignatures: the examples of others are verified, and whatever was changed is not.

use ed25519_dalek::Signer as _;
use tlog::checkpoint::{Checkpoint, CheckpointError};
use tlog::cosignature::{COSIGNATURE_V1, Cosignature, CosignerKey, CosigningKey, TIME_S_MAX};
use tlog::hash::leaf_hash;
use tlog::note::{
    KeyError, KeyId, KeyName, NoteError, NoteSignature, SignedNote, SigningKey, Verifier as _, VerifierKey,
};
use tlog::tree::{TreeHead, TreeSize};

const ORIGIN: &str = "example.com/log";

fn log() -> SigningKey {
    SigningKey::from_seed(KeyName::new(ORIGIN).unwrap(), &[7; 32])
}

fn witness(number: u8) -> CosigningKey {
    CosigningKey::from_seed(KeyName::new(&format!("witness.example/w{number}")).unwrap(), &[number; 32])
}

fn note() -> String {
    let head = TreeHead { size: TreeSize(3), root: leaf_hash(b"x") };
    Checkpoint { origin: ORIGIN.to_owned(), head }.sign(&log())
}

fn open(note: &str, known: &[&CosigningKey]) -> Result<Vec<Cosignature>, CheckpointError> {
    let known: Vec<CosignerKey> = known.iter().map(|key| key.verifier().clone()).collect();
    let opened = Checkpoint::open_cosigned(note.as_bytes(), ORIGIN, log().verifier(), &known);
    opened.map(|(_, cosignatures)| cosignatures)
}

fn text(note: &str) -> &str {
    note.rsplit_once("\n\n").map(|(text, _)| &note[..=text.len()]).unwrap()
}

/// Made by other programs: Go's `sumdb/note` for the log, transparency-dev's `formats/note` for the witness.
#[test]
fn a_checkpoint_that_others_signed_and_cosigned_is_verified_and_made_again() {
    let log = "example.com/vector-log+4516a1da+ARGkVJ4QEa2MOOLGBO6i7NVSJ1FQ97tIX+w+Ku0RZ6Em";
    let witness = "witness.example.com/vector+416f103d+BK/QmJFVP3SKJOqAMhFxBQPtylo3sjwWibyFDAlZKK8B";
    let secret =
        "PRIVATE+KEY+witness.example.com/vector+416f103d+BJEX3xv88eoQIKT4E+GkxZcXaJCYlQfi/GJ3NDFmZIW8";
    let text = "example.com/vector-log\n1234\nSBNJTRN+FjG7owHVrKtue7eqdM4RhdRWVl71HXN2d7I=\n";
    let lines = "\u{2014} example.com/vector-log RRah2qlLrSlk6J8DA1HmNewppUM15Quhs5cAIb1KjBsV3otVirJTW8AFVsQtJkTW\
                 1Zny7GuoAxZpI6bUPcpM68QOIgE=\n\
                 \u{2014} witness.example.com/vector QW8QPQAAAABqwLUbDdj7sDNRIVjmjYgqFI6y4UJhPg/UAA8J8wAdqSd3q4Pe\
                 dRhkgXA4xFN/Jg5uWn7ZkBA+H/UHQs5d9hITdXmQAA==\n";
    let log = VerifierKey::parse(log).unwrap();
    let key = CosignerKey::parse(witness).unwrap();
    assert_eq!(key.to_string(), witness);
    let note = format!("{text}\n{lines}");
    let known = [key.clone()];
    let opened = Checkpoint::open_cosigned(note.as_bytes(), "example.com/vector-log", &log, &known).unwrap();
    assert_eq!(opened.0.head.size, TreeSize(1234));
    assert_eq!(opened.1, [Cosignature { witness: key, time_s: 1_791_014_171 }]);
    let secret = CosigningKey::parse_secret_text(secret).unwrap();
    assert_eq!(secret.cosign(text, 1_791_014_171).to_string(), lines.split_inclusive('\n').nth(1).unwrap());
}

#[test]
fn the_example_of_the_specification_has_the_parts_that_it_states() {
    let note = "example.com/behind-the-sofa\n20852163\nCsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n\n\
                \u{2014} example.com/behind-the-sofa Az3grlgtzPICa5OS8npVmf1Myq/5IZniMp+ZJurmRDeOoRDe4URYN7u5/Zhcyv2q1\
                gGzGku9nTo+zyWE+xeMcTOAYQ8=\n\
                \u{2014} witness.example.com/w1 jWbPPwAAAABkGFDLEZMHwSRaJNiIDoe9DYn/zXcrtPHeolMI5OWXEhZCB9dlrDJsX3b2\
                oyin1nPZqhf5nNo0xUe+mbIUBkBIfZ+qnA==\n";
    let parsed = SignedNote::parse(note.as_bytes()).unwrap();
    let line = &parsed.signatures()[1];
    assert_eq!((line.name.as_str(), line.id), ("witness.example.com/w1", KeyId(0x8d66_cf3f)));
    assert_eq!(line.stated_time_s(), Some(1_679_315_147));
    assert_eq!(parsed.signatures()[0].stated_time_s(), None, "the log's own");
    assert!(note.ends_with(&line.to_string()));
    assert_eq!(Checkpoint::parse_text(parsed.text()).unwrap().head.size, TreeSize(20_852_163));
}

#[test]
fn a_cosignature_with_any_bit_changed_is_rejected() {
    let (note, key) = (note(), witness(1));
    let line = key.cosign(text(&note), 1000);
    assert_eq!(key.verifier().time_of(text(&note), &line.bytes), Some(1000));
    for at in 0..line.bytes.len() {
        for bit in 0..8 {
            let mut damaged = line.clone();
            damaged.bytes[at] ^= 1 << bit;
            assert_eq!(key.verifier().time_of(text(&note), &damaged.bytes), None, "byte {at} bit {bit}");
            let error = open(&format!("{note}{damaged}"), &[&key]).unwrap_err();
            assert_eq!(error, NoteError::BadSignature { name: "witness.example/w1".to_owned() }.into());
        }
        assert_eq!(key.verifier().time_of(text(&note), &line.bytes[..at]), None, "cut at {at}");
    }
    let longer = [&line.bytes[..], &[0]].concat();
    assert_eq!(key.verifier().time_of(text(&note), &longer), None);
    let another = text(&note).replace("\n3\n", "\n4\n");
    assert_eq!(key.verifier().time_of(&another, &line.bytes), None);
}

#[test]
fn strangers_are_ignored_and_a_known_witness_that_fails_rejects_the_note() {
    let (note, first, second) = (note(), witness(1), witness(2));
    let lines = format!("{}{}", first.cosign(text(&note), 20), second.cosign(text(&note), 10));
    let both = format!("{note}{lines}");
    let times = |found: &[Cosignature]| found.iter().map(|one| one.time_s).collect::<Vec<_>>();
    assert_eq!(times(&open(&both, &[]).unwrap()), [0; 0]);
    assert_eq!(times(&open(&both, &[&first]).unwrap()), [20]);
    assert_eq!(times(&open(&both, &[&second, &first]).unwrap()), [10, 20]);
    assert_eq!(times(&open(&note, &[&second, &first]).unwrap()), [0; 0]);

    // Of one witness's lines the earliest counts, wherever it stands.
    for order in [[5, 7, 6], [7, 6, 5], [6, 5, 7]] {
        let lines: String = order.iter().map(|time| first.cosign(text(&note), *time).to_string()).collect();
        assert_eq!(times(&open(&format!("{note}{lines}"), &[&first]).unwrap()), [5]);
    }

    let wrong = first.cosign("another text\n", 20);
    let mixed = format!("{both}{wrong}");
    assert!(open(&mixed, &[&second]).is_ok());
    let rejected = Err(NoteError::BadSignature { name: "witness.example/w1".to_owned() }.into());
    assert_eq!(open(&mixed, &[&second, &first]), rejected);

    // Witnesses do not stand in for the log.
    let without_log = format!("{}\n{lines}", text(&note));
    let error = open(&without_log, &[&first, &second]).unwrap_err();
    assert_eq!(error, NoteError::NoKnownKey { found: 2 }.into());
}

#[test]
fn a_log_key_and_a_witness_key_of_the_same_bytes_do_not_pass_for_each_other() {
    let name = KeyName::new(ORIGIN).unwrap();
    let (log, twin) = (log(), CosigningKey::from_seed(name.clone(), &[7; 32]));
    assert_eq!(log.verifier().public_key(), twin.verifier().public_key());
    assert_ne!(log.verifier().id(), twin.verifier().id());
    let vkey = twin.verifier().to_string();
    let unsupported = |expected, found| KeyError::UnsupportedType { expected, found };
    assert_eq!(VerifierKey::parse(&vkey), Err(unsupported(1, 4)));
    assert_eq!(CosignerKey::parse(&log.verifier().to_string()), Err(unsupported(4, 1)));
    assert_eq!(CosigningKey::parse_secret_text(&log.to_secret_text()).err(), Some(unsupported(4, 1)));
    assert_eq!(SigningKey::parse_secret_text(&twin.to_secret_text()).err(), Some(unsupported(1, 4)));

    // Even with its ID put in, a cosignature is no signature of the log, and the other way round.
    let note = note();
    let forged = NoteSignature { id: log.verifier().id(), ..twin.cosign(text(&note), 1) };
    assert!(!log.verifier().verify(text(&note), &forged.bytes));
    let plain = &SignedNote::parse(note.as_bytes()).unwrap().signatures()[0].bytes.clone();
    let timed = [&1_u64.to_be_bytes()[..], plain].concat();
    assert_eq!(twin.verifier().time_of(text(&note), &timed), None);
}

#[test]
fn keys_are_read_in_one_form_only_and_the_secret_is_not_shown() {
    let key = witness(3);
    let vkey = key.verifier().to_string();
    assert_eq!(CosignerKey::parse(&vkey).as_ref(), Ok(key.verifier()));
    let secret = key.to_secret_text();
    let again = CosigningKey::parse_secret_text(&format!(" {secret}\n")).unwrap();
    assert_eq!(again.verifier(), key.verifier());
    assert_eq!(format!("{key:?}"), format!("CosigningKey({vkey})"));
    let renamed = vkey.replace("w3", "w4");
    assert!(matches!(CosignerKey::parse(&renamed), Err(KeyError::WrongId { .. })));
    assert!(matches!(
        CosigningKey::parse_secret_text(&secret.replace("w3", "w4")),
        Err(KeyError::WrongId { .. })
    ));
    assert_eq!(CosigningKey::parse_secret_text(&vkey).err(), Some(KeyError::BadForm));
    for length in 0..vkey.len() {
        assert!(CosignerKey::parse(&vkey[..length]).is_err());
    }
    // The point 0: almost anything verifies under it.
    let name = KeyName::new("weak").unwrap();
    let mut weak = [0; 32];
    weak[0] = 1;
    let id = KeyId::of(&name, COSIGNATURE_V1, &weak).0;
    let text = format!("weak+{id:08x}+BAEAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA");
    assert_eq!(CosignerKey::parse(&text), Err(KeyError::BadPublicKey));
}

#[test]
fn times_up_to_the_limit_are_accepted_and_none_above() {
    let (note, key) = (note(), witness(1));
    let secret = ed25519_dalek::SigningKey::from_bytes(&[1; 32]);
    for time_s in [0, 1, TIME_S_MAX, TIME_S_MAX + 1, u64::MAX] {
        let message = format!("cosignature/v1\ntime {time_s}\n{}", text(&note));
        let signature = secret.sign(message.as_bytes()).to_bytes();
        let bytes = [&time_s.to_be_bytes()[..], &signature].concat();
        // Above the limit the signature is right and the time cannot be; our own code does not make such a line.
        let possible = time_s <= TIME_S_MAX;
        assert_eq!(key.verifier().time_of(text(&note), &bytes), possible.then_some(time_s));
        if possible {
            assert_eq!(key.cosign(text(&note), time_s).bytes, bytes);
        }
    }
}

#[test]
fn signature_lines_alone_are_read_strictly() {
    let key = witness(1);
    let lines: String = (0..3).map(|time_s| key.cosign("text\n", time_s).to_string()).collect();
    let parsed = NoteSignature::parse_lines(lines.as_bytes()).unwrap();
    assert_eq!(parsed.iter().map(|line| line.to_string()).collect::<String>(), lines);
    assert!(parsed.iter().all(|line| line.is_of(key.verifier()) && !line.is_of(log().verifier())));
    let wrong = |text: &str| NoteSignature::parse_lines(text.as_bytes()).unwrap_err();
    assert_eq!(wrong(""), NoteError::NoSignatures);
    assert_eq!(wrong(lines.trim_end()), NoteError::NoSignatures);
    assert_eq!(wrong("\n"), NoteError::BadSignatureLine { line: 1 });
    assert_eq!(wrong(&format!("{lines}\n")), NoteError::BadSignatureLine { line: 4 });
    assert_eq!(wrong(&format!("text\n\n{lines}")), NoteError::BadSignatureLine { line: 1 });
    assert_eq!(wrong(&lines.replace('\n', "\r\n")), NoteError::NotText);
    assert_eq!(wrong(&lines.repeat(30)), NoteError::TooManySignatures);
    assert_eq!(NoteSignature::parse_lines(&[0xff; 8]), Err(NoteError::NotText));
    let long = vec![b'x'; 256 * 1024 + 1];
    assert_eq!(NoteSignature::parse_lines(&long), Err(NoteError::TooLong { found: long.len() }));
}
