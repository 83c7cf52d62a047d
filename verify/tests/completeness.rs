//! A completeness file holds as it is and not otherwise: each way in which it can be wrong fails at its own check.

mod support;

use schemas::completeness::Completeness;
use schemas::digest::{RunId, Seal};
use schemas::key::{PublicKey, SecretKey};
use schemas::object::Object as _;
use schemas::prediction::Prediction;
use schemas::register::{EntryLeaf, ListRoot, PredictionLeaf, Register};
use schemas::run::Steps;
use schemas::statement::{Payload, Statement};
use support::log::Log;
use tlog::compact::CompactTree;
use tlog::hash::leaf_hash;
use tlog::note::{KeyName, SigningKey, VerifierKey};
use verify::completeness::{Report, check};
use verify::report::{Class, State};

const RUN: RunId = RunId([7; 32]);

fn key(number: u8) -> SecretKey {
    SecretKey::from_seed([number; 32])
}

fn prediction(first: u64, end: u64) -> Payload {
    let (steps, seal) = (Steps { first, end }, Seal([1; 32]));
    Payload::Prediction(Prediction { run: RUN, steps, seal, reveal_by: 1, by: None, open: None })
}

fn root_of(leaves: impl Iterator<Item = Vec<u8>>) -> ListRoot {
    let mut tree = CompactTree::new();
    leaves.for_each(|leaf| tree.push(leaf_hash(&leaf)));
    ListRoot { count: tree.head().size.0, root: *tree.head().root.as_bytes() }
}

/// A log with predictions of one run, and the lists of it.
struct Story {
    log: Log,
    entries: Vec<EntryLeaf>,
    predictions: Vec<PredictionLeaf>,
}

impl Story {
    /// Predictions by (key, first, end), in this order.
    fn of(predictions: impl IntoIterator<Item = (u8, u64, u64)>) -> Story {
        let log = Log::new("log.example/test", 1);
        let mut story = Story { log, entries: vec![], predictions: vec![] };
        for (signer, first, end) in predictions {
            let bytes = Statement::sign(&prediction(first, end), &key(signer)).unwrap();
            let index = story.log.append(bytes.clone());
            let statement = Statement::open(&bytes).unwrap();
            story.entries.push(EntryLeaf::of(index, &statement));
            story.predictions.extend(PredictionLeaf::of(index, &statement));
        }
        story
    }

    fn register(&self) -> Register {
        Register {
            run: RUN,
            size: self.log.size(),
            entries: root_of(self.entries.iter().map(EntryLeaf::encode)),
            predictions: root_of(self.predictions.iter().map(PredictionLeaf::encode)),
        }
    }

    /// The file over `register` at the end of the log.
    fn file(&mut self, register: Register) -> Completeness {
        let index = self.log.append_register(register);
        self.file_at(index)
    }

    fn file_at(&self, index: u64) -> Completeness {
        let size = self.log.size();
        Completeness {
            checkpoint: self.log.checkpoint(size),
            register: self.log.proven(index, size),
            predictions: self.predictions.clone(),
            entries: Some(self.entries.clone()),
        }
    }

    fn check(&self, file: &Completeness, asked: &[u8]) -> Report {
        let asked: Vec<PublicKey> = asked.iter().map(|number| key(*number).public()).collect();
        check(&file.encode(), self.log.key(), &asked)
    }

    /// The number of the check that fails and what it says.
    fn failure(&self, file: &Completeness, asked: &[u8]) -> (usize, String) {
        failure(&self.check(file, asked))
    }
}

fn failure(report: &Report) -> (usize, String) {
    assert_eq!(report.class, Class::NotSo, "{report}");
    let failed = report.failure().unwrap_or_else(|| panic!("{report}"));
    let State::Fails(why) = &failed.state else { unreachable!() };
    assert!(report.complete.is_none());
    (failed.number, why.clone())
}

fn fixture(path: &str) -> Vec<u8> {
    std::fs::read(format!("{}/../fixtures/{path}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

fn fixtures_key() -> VerifierKey {
    VerifierKey::parse(String::from_utf8(fixture("checkpoint/log.vkey")).unwrap().trim()).unwrap()
}

#[test]
fn the_fixtures_hold_with_and_without_the_list_of_entries() {
    for (name, listed) in [("run", true), ("short", false)] {
        let file = fixture(&format!("completeness/{name}.cbor"));
        let predictor = Completeness::decode(&file).unwrap().predictions[0].signer;
        let report = check(&file, &fixtures_key(), &[predictor]);
        assert_eq!(report.class, Class::Agreeing, "{report}");
        let complete = report.complete.as_ref().unwrap();
        assert_eq!((complete.size, complete.entries_count, complete.head.size.0), (8, 7, 9));
        assert_eq!(complete.entries.is_some(), listed);
        let [only] = complete.by(predictor).collect::<Vec<_>>()[..] else { panic!("{report}") };
        assert_eq!((only.index, only.steps), (2, Steps { first: 0, end: 3 }));
        assert_eq!(report.caveats.len(), 3);
        let beyond = "entries of the run at index 8 or above are not covered: the log had 9 entries at this checkpoint";
        assert_eq!(report.caveats[2], beyond);
        assert!(report.summary().starts_with("complete: below entry 8 the log holds 7 statements of run "));
    }
}

#[test]
fn no_bit_of_a_file_can_be_changed() {
    let file = fixture("completeness/short.cbor");
    for at in 0..file.len() {
        for bit in 0..8 {
            let mut changed = file.clone();
            changed[at] ^= 1 << bit;
            let report = check(&changed, &fixtures_key(), &[]);
            assert_ne!(report.class, Class::Agreeing, "byte {at}, bit {bit}");
        }
    }
}

#[test]
fn an_honest_log_is_complete_for_each_of_its_predictors() {
    let mut story = Story::of([(2, 0, 10), (3, 0, 10), (2, 10, 20), (2, 30, 31), (3, 5_000, 9_000)]);
    let file = story.file(story.register());
    let report = story.check(&file, &[2, 3]);
    assert_eq!(report.class, Class::Agreeing, "{report}");
    assert!(report.to_string().contains("steps 0..10 in entry 1, steps 10..20 in entry 3, "), "{report}");
    // Another key has none.
    let (number, why) = story.failure(&file, &[2, 4]);
    assert_eq!((number, why), (7, format!("expected a prediction by {}, found none", key(4).public())));
    // An empty list is a list.
    let mut story = Story::of([]);
    let file = story.file(story.register());
    assert_eq!(story.check(&file, &[]).class, Class::Agreeing);
}

/// The claimant who commits to many predictions and shows the one that fits.
#[test]
fn a_prediction_cannot_be_left_out_added_or_changed() {
    let mut story = Story::of((0..100).map(|i| (2, i * 3, i * 3 + 3)));
    let register = story.register();
    let file = story.file(register);
    for at in 0..100 {
        let changes: [fn(&mut PredictionLeaf); 3] =
            [|leaf| leaf.steps.end += 1, |leaf| leaf.signer = key(3).public(), |leaf| leaf.entry.0[0] ^= 1];
        let mut changed = vec![file.clone()];
        changed[0].predictions.remove(at);
        for change in changes {
            changed.push(file.clone());
            change(&mut changed.last_mut().unwrap().predictions[at]);
        }
        for file in changed {
            let (number, why) = story.failure(&file, &[2]);
            assert_eq!((number, why.contains("expected 100 with root ")), (5, true), "{why}");
        }
    }
    let mut file = file;
    file.entries.as_mut().unwrap().pop();
    let (number, why) = story.failure(&file, &[2]);
    assert_eq!((number, why.starts_with("99 entries with root ")), (5, true), "{why}");
}

#[test]
fn a_log_that_registers_two_predictions_of_one_step_is_told_on() {
    for (second, overlaps) in [((0, 1), true), ((9, 10), true), ((0, 20), true), ((10, 11), false)] {
        let mut story = Story::of([(2, 0, 10), (3, 0, 10), (2, second.0, second.1)]);
        let file = story.file(story.register());
        let report = story.check(&file, &[]);
        if overlaps {
            let (number, why) = failure(&report);
            assert_eq!((number, why.ends_with("and steps 0..10 in entry 1")), (6, true), "{why}");
        } else {
            assert_eq!(report.class, Class::Agreeing, "{report}");
        }
    }
}

#[test]
fn the_entry_that_predicts_a_step_again_is_told_with_the_one_before_it() {
    // A prediction between them that begins where the last one ends hides nothing.
    let mut story = Story::of([(2, 0, 10), (2, 10, 20), (2, 5, 10)]);
    let file = story.file(story.register());
    let signer = key(2).public();
    let why = format!("key {signer} predicts steps 5..10 in entry 3 and steps 0..10 in entry 1");
    assert_eq!(story.failure(&file, &[]), (6, why));
}

#[test]
fn a_long_list_of_predictions_is_cut_and_counted() {
    let mut story = Story::of((0..102).map(|i| (2, i, i + 1)));
    let file = story.file(story.register());
    let text = story.check(&file, &[2]).to_string();
    assert!(text.contains("steps 99..100 in entry 100 and 2 more, and nothing else"), "{text}");
}

#[test]
fn only_a_register_of_the_log_about_its_own_place_will_do() {
    let good = || Story::of([(2, 0, 10)]);
    // Signed by a predictor.
    let mut story = good();
    let bytes = Statement::sign(&Payload::Register(story.register()), &key(2)).unwrap();
    let index = story.log.append(bytes);
    let (number, why) = story.failure(&story.file_at(index), &[]);
    assert_eq!((number, why.contains("expected the log's key")), (4, true), "{why}");
    // Of another place: an older register, logged again.
    let mut story = good();
    let register = story.register();
    story.log.append(b"between".to_vec());
    let file = story.file(register);
    let expected = "the register is of size 2, expected its own index 3";
    assert_eq!(story.failure(&file, &[]), (4, expected.to_owned()));
    // Another statement, and no statement.
    let story = good();
    let expected = "entry 1 is a prediction, expected a register";
    assert_eq!(story.failure(&story.file_at(1), &[]), (4, expected.to_owned()));
    assert_eq!(story.failure(&story.file_at(0), &[]).0, 4);
}

#[test]
fn the_register_has_to_be_in_the_tree_that_the_log_signed() {
    let mut story = Story::of([(2, 0, 10)]);
    let file = story.file(story.register());
    let moved = Completeness {
        register: schemas::bundle::ProvenEntry { index: 1, ..file.register.clone() },
        ..file.clone()
    };
    assert_eq!(story.failure(&moved, &[]).0, 3);
    // The same log under another key, and another log.
    for other in [Log::new("log.example/test", 2), Log::new("log.example/other", 1)] {
        let (number, _) = failure(&check(&file.encode(), other.key(), &[]));
        assert_eq!(number, 2);
    }
    // The log's key signs a checkpoint of another origin.
    let text = String::from_utf8(file.checkpoint.clone()).unwrap();
    let text = text.split_once("\n\n").unwrap().0.replace("log.example/test", "log.example/other") + "\n";
    let signing = SigningKey::from_seed(KeyName::new("log.example/test").unwrap(), &[1; 32]);
    let misnamed = Completeness { checkpoint: signing.sign(&text).into_bytes(), ..file };
    let (number, why) = story.failure(&misnamed, &[]);
    assert_eq!((number, why.contains("log.example/other")), (2, true), "{why}");
    assert_eq!(check(b"no file", story.log.key(), &[]).class, Class::CouldNot);
}

#[test]
fn lists_that_the_log_made_up_are_held_against_each_other() {
    // A leaf that lies beyond the register: the log says it knows the future.
    let mut story = Story::of([(2, 0, 10)]);
    story.predictions[0].index = 2;
    let file = story.file(story.register());
    let expected = "the list of predictions has entry 2, expected only entries below 2";
    assert_eq!(story.failure(&file, &[]), (5, expected.to_owned()));
    // Nor may the register stand in its own list.
    let mut story = Story::of([(2, 0, 10)]);
    story.entries[0].index = 2;
    let file = story.file(story.register());
    let expected = "the list of entries has entry 2, expected only entries below 2";
    assert_eq!(story.failure(&file, &[]), (5, expected.to_owned()));
    // The right root under another count.
    let mut story = Story::of([(2, 0, 10)]);
    let mut register = story.register();
    register.entries.count += 1;
    let file = story.file(register);
    let (number, why) = story.failure(&file, &[]);
    assert!(number == 5 && why.contains("entries"), "{number}: {why}");
    // As many predictions, and one of them another's.
    let mut story = Story::of([(2, 0, 10), (2, 10, 20)]);
    story.predictions[1].signer = key(3).public();
    let file = story.file(story.register());
    let expected = "the lists do not agree: expected predictions [1, 2] of the entries, found [1, 2]";
    assert_eq!(story.failure(&file, &[]), (5, expected.to_owned()));
    // A prediction that is among the entries and not among the predictions.
    let mut story = Story::of([(2, 0, 10), (2, 10, 20)]);
    story.predictions.pop();
    let file = story.file(story.register());
    let expected = "the lists do not agree: expected predictions [1, 2] of the entries, found [1]";
    assert_eq!(story.failure(&file, &[]), (5, expected.to_owned()));
}

/// docs/spec/completeness.md, "Size".
#[test]
fn a_file_is_as_large_as_its_page_says() {
    let page = include_str!("../../docs/spec/completeness.md");
    for count in [1, 100, 10_000] {
        let mut story = Story::of([(2, 0, 300)]);
        let mut file = story.file(story.register());
        // In a log of a million entries a proof has 20 hashes.
        file.register.proof = vec![[0; 32]; 20];
        let indexes = 1_000_000..1_000_000 + count;
        let leaf = |index| EntryLeaf { index, ..story.entries[0].clone() };
        file.entries = Some(indexes.clone().map(leaf).collect());
        file.predictions =
            indexes.map(|index| PredictionLeaf { index, ..story.predictions[0].clone() }).collect();
        let whole = file.encode().len();
        let short = Completeness { entries: None, ..file }.encode().len();
        let size = |bytes: usize| match bytes {
            0..1_000_000 => format!("{}.{} kB", bytes / 1000, bytes % 1000 / 100),
            _ => format!("{}.{} MB", bytes / 1_000_000, bytes % 1_000_000 / 100_000),
        };
        let line = format!("| {count} | {} | {} |", size(short), size(whole));
        assert!(page.contains(&line), "missing: {line}");
    }
}
