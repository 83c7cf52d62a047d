//! Whoever holds everything but the tensors: the leaked prediction, every root and ordinary fold, receipts of honest
//! runs of the same job under other challenges, and the challenge itself. What they can sign, and what becomes of it.

use client::folder::{Entries, read_entries};
use client::{keyfile, replay};
use schemas::challenge::{challenge, chosen_step};
use schemas::digest::{Challenge, digest};
use schemas::fold::{BLOCK_WORDS, Fold, FoldKey};
use schemas::object::Object as _;
use schemas::receipt::{Answer, Receipt, ReceiptBody};
use schemas::statement::{Payload, Statement};
use serde_json::Value;
use std::path::Path;
use step::dispatch::Backend;
use step::session::Session;
use tests::workshop::{Log, Workshop};

/// The coefficients of words under a key: of the words, and of their squares.
fn coefficients(key: FoldKey, words: usize) -> [Vec<u64>; 2] {
    let of = |i: usize| {
        let (table, factor) = (key.table((i % BLOCK_WORDS) as u64), key.factor((i / BLOCK_WORDS) as u64));
        (table.0.wrapping_mul(factor.0), table.1.wrapping_mul(factor.1))
    };
    let (of_words, of_squares) = (0..words).map(of).unzip();
    [of_words, of_squares]
}

/// A fold by its definition.
fn fold(key: FoldKey, words: &[u32]) -> Fold {
    let [of_words, of_squares] = coefficients(key, words.len());
    let mut fold = Fold::default();
    for ((word, k), k2) in words.iter().map(|word| u64::from(*word)).zip(of_words).zip(of_squares) {
        fold.a = fold.a.wrapping_add(word.wrapping_mul(k));
        fold.b = fold.b.wrapping_add(word.wrapping_mul(word).wrapping_mul(k2));
    }
    fold
}

/// Of how many words combinations are scored.
const ROWS: usize = 128;

/// The multiples of known coefficients whose sum is the wanted ones for the most of the first words, modulo 4, of all
/// combinations there are modulo 4; and for how many.
///
/// A sum that is right modulo 2^64 is right modulo 4. So if no combination is right for all words modulo 4, none is
/// modulo 2^64, and what is known of a tensor's sums gives the wanted one but by chance. Coefficients are odd, so twice
/// any is 2 modulo 4: what there is to choose is which are taken once, and whether 2 is added.
fn best_combination(known: &[&[u64]], wanted: &[u64]) -> (Vec<u64>, usize) {
    let multiples = |number: usize| -> Vec<u64> {
        let once = (0..known.len()).map(|at| (number >> at & 1) as u64);
        let added = 2 * (number >> known.len()) as u64;
        once.enumerate().map(|(at, once)| if at == 0 { once + added } else { once }).collect()
    };
    let score = |number: usize| {
        let multiples = multiples(number);
        let sum = |row: usize| -> u64 {
            multiples.iter().zip(known).map(|(multiple, one)| multiple * (one[row] % 4)).sum()
        };
        (0..ROWS).filter(|row| sum(*row) % 4 == wanted[*row] % 4).count()
    };
    let all = 0..2 << known.len();
    let best = all.max_by_key(|number| score(*number)).expect("adversary: there is a combination");
    (multiples(best), score(best))
}

/// The best linear answer for one tensor, from folds of it with their keys, to the wanted key; and for how many of the
/// first words it is right, in each sum.
fn combined(known: &[(FoldKey, Fold)], wanted: FoldKey) -> (Fold, [usize; 2]) {
    let each: Vec<[Vec<u64>; 2]> = known.iter().map(|(key, _)| coefficients(*key, ROWS)).collect();
    let of = |which: usize| {
        let known: Vec<&[u64]> = each.iter().map(|one| one[which].as_slice()).collect();
        best_combination(&known, &coefficients(wanted, ROWS)[which])
    };
    let sum = |multiples: &[u64], of: fn(Fold) -> u64| {
        let terms = multiples.iter().zip(known).map(|(multiple, (_, fold))| multiple.wrapping_mul(of(*fold)));
        terms.fold(0, u64::wrapping_add)
    };
    let ((a, rows_a), (b, rows_b)) = (of(0), of(1));
    (Fold { a: sum(&a, |fold| fold.a), b: sum(&b, |fold| fold.b) }, [rows_a, rows_b])
}

fn key(number: u8) -> FoldKey {
    FoldKey(digest("test/key", &[&[number]]))
}

fn made_up_words(count: u64) -> Vec<u32> {
    let word = |at: u64| digest("test/word", &[&at.to_le_bytes()]);
    (0..count).map(|at| u32::from_le_bytes(*word(at).first_chunk().unwrap())).collect()
}

#[test]
fn no_combination_of_known_folds_is_the_fold_under_a_new_key() {
    let words = made_up_words(3000);
    let known: Vec<(FoldKey, Fold)> = (0..7).map(|number| (key(number), fold(key(number), &words))).collect();
    for wanted in (100..104).map(key) {
        let right = fold(wanted, &words);
        let (found, rows) = combined(&known, wanted);
        // Each word is right with an even chance, of 256 combinations.
        assert!(rows.iter().all(|rows| (ROWS / 2..ROWS).contains(rows)), "{rows:?}");
        assert!(found.a != right.a && found.b != right.b, "{found:?} {right:?}");
        // All coefficients are odd: of each sum one bit is the same under every key, the lowest.
        assert_eq!((found.a & 1, found.b & 1), (right.a & 1, right.b & 1));
        assert_eq!((known[0].1.a & 1, known[0].1.b & 1), (right.a & 1, right.b & 1));
    }
    // The search is sound: where the wanted coefficients are in the span, it finds them. Whoever has the answer has it.
    let (found, rows) = combined(&known, key(3));
    assert_eq!((found, rows), (known[3].1, [ROWS; 2]));
}

#[test]
fn as_many_folds_as_words_would_be_the_tensor() {
    // Of one word one fold is enough; the smallest model here has thousands, and one fold of each for a challenge.
    let words = made_up_words(1);
    let ([k, _], known) = (coefficients(key(0), 1), fold(key(0), &words));
    let inverse = (0..6).fold(1u64, |x, _| x.wrapping_mul(2u64.wrapping_sub(k[0].wrapping_mul(x))));
    assert_eq!(known.a.wrapping_mul(inverse), u64::from(words[0]));
}

/// The reduced gradient and the new parameters of a step.
type Tensors = [Vec<u32>; 2];

/// A predicted run that honest devices ran under another challenge, and the challenge that is to be answered.
struct Scene {
    shop: Workshop,
    log: Log,
    entries: Entries,
    /// The exact bytes of the checkpoint to answer.
    note: Vec<u8>,
    /// What only whoever computes has.
    tensors: Vec<Tensors>,
}

impl Scene {
    fn open(devices: u64) -> Scene {
        let shop = Workshop::open();
        shop.write_run("run", 1);
        let log = shop.ledger();
        shop.predict("run", Some(&log)).expect_code(0);
        let path = shop.path("run/job/challenge.note");
        std::fs::write(&path, note(0)).unwrap();
        shop.devices("run", devices, "other", "").expect_code(0);
        std::fs::remove_file(&path).unwrap();
        shop.challenge("run", &log).expect_code(0);
        std::fs::create_dir(shop.path("run/receipts")).unwrap();
        let entries = read_entries(&shop.path("run/prediction")).unwrap();
        let tensors = compute(&entries, &shop.path("run.toml"));
        let scene = Scene { note: std::fs::read(path).unwrap(), shop, log, entries, tensors };
        // The tensors here are those that the devices had.
        let theirs = scene.receipt(0).answer.unwrap();
        assert_eq!(theirs, scene.honest(challenge(scene.entries.id, &note(0))));
        scene
    }

    fn challenge(&self) -> Challenge {
        challenge(self.entries.id, &self.note)
    }

    fn chosen(&self) -> u64 {
        chosen_step(self.challenge(), self.entries.prediction.steps)
    }

    /// A step that was not chosen.
    fn not_chosen(&self) -> u64 {
        (self.chosen() + 1) % self.entries.prediction.steps.end
    }

    /// An answer of whoever holds all tensors.
    fn honest(&self, challenge: Challenge) -> Answer {
        let step = chosen_step(challenge, self.entries.prediction.steps);
        self.answer(challenge.into(), step, step)
    }

    /// Folds of the tensors of a step, said to be of a step.
    fn answer(&self, key: FoldKey, of: u64, step: u64) -> Answer {
        let [reduced, parameters] = &self.tensors[of as usize];
        Answer { step, reduced: fold(key, reduced), parameters: fold(key, parameters) }
    }

    /// Answers of honest runs under other challenges that chose this step.
    fn others(&self, step: u64) -> impl Iterator<Item = (Challenge, Answer)> {
        let challenges = (0..).map(|number| challenge(self.entries.id, &note(number)));
        let chose = move |other: &Challenge| chosen_step(*other, self.entries.prediction.steps) == step;
        challenges.filter(chose).map(|other| (other, self.honest(other)))
    }

    /// The ordinary folds of the chosen step: they stand in every receipt's body, under the plan's key.
    fn ordinary(&self) -> Answer {
        let bytes = std::fs::read(self.shop.path("run/other/receipt-0.body.cbor")).unwrap();
        let body = ReceiptBody::decode(&bytes).unwrap();
        let record = body.records.iter().find(|record| record.step == self.chosen()).unwrap();
        let sums = record.outcome.as_ref().unwrap();
        Answer { step: self.chosen(), reduced: sums.reduced.fold, parameters: sums.parameters.fold }
    }

    /// The best linear combination of the ordinary folds and of six other challenges' answers.
    fn linear(&self) -> Answer {
        let plan = FoldKey::from(self.entries.run.plan);
        let mut known = vec![(plan, self.ordinary())];
        known.extend(self.others(self.chosen()).take(6).map(|(key, answer)| (key.into(), answer)));
        let of = |which: fn(Answer) -> Fold| {
            let known: Vec<_> = known.iter().map(|(key, answer)| (*key, which(*answer))).collect();
            let (fold, rows) = combined(&known, self.challenge().into());
            assert!(rows.iter().all(|rows| *rows < ROWS), "not in the span: {rows:?}");
            fold
        };
        let (reduced, parameters) = (of(|answer| answer.reduced), of(|answer| answer.parameters));
        Answer { step: self.chosen(), reduced, parameters }
    }

    /// The receipt of an honest device, under another challenge.
    fn receipt(&self, rank: u64) -> Receipt {
        let bytes = std::fs::read(self.shop.path(&format!("run/other/receipt-{rank}.cose"))).unwrap();
        let Payload::Receipt(receipt) = Statement::open(&bytes).unwrap().payload else { panic!("a receipt") };
        *receipt
    }

    /// Signs perfect records with an answer of one's own making.
    fn forge(&self, rank: u64, answer: Option<Answer>) {
        let receipt = Receipt { checkpoint: self.note.clone(), answer, ..self.receipt(rank) };
        let key = keyfile::load(&self.shop.path(&format!("keys/device-{rank}.key"))).unwrap();
        let bytes = Statement::sign(&Payload::Receipt(Box::new(receipt)), &key).unwrap();
        std::fs::write(self.shop.path(&format!("run/receipts/receipt-{rank}.cose")), bytes).unwrap();
        let body = format!("receipt-{rank}.body.cbor");
        std::fs::copy(self.shop.path("run/other").join(&body), self.shop.path("run/receipts").join(&body))
            .unwrap();
    }

    /// Reconciles with a replay: all departures, as ranks and what is said of each, in phase `answer`.
    fn findings(&self) -> Vec<(u64, String)> {
        let json = self.shop.reconcile("run", &self.log, "--replay run.toml --json").expect_code(1).stdout;
        let value: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(
            (&value["outcome"], &value["step"]),
            (&"diverge".into(), &self.chosen().into()),
            "{value}"
        );
        let findings = value["findings"].as_array().unwrap();
        assert!(findings.iter().all(|finding| finding["phase"] == "answer"), "{value}");
        let told = |finding: &Value| {
            let note = finding["note"].as_str().unwrap().to_owned();
            (finding["rank"].as_u64().unwrap(), note)
        };
        let told: Vec<(u64, String)> = findings.iter().map(told).collect();
        // A stranger who verifies is told the same.
        let named: Vec<String> =
            told.iter().map(|(rank, _)| format!("device {rank} in phase answer")).collect();
        let genuine =
            format!("genuine, but verdict is diverge at step {}: {}", self.chosen(), named.join(", "));
        self.shop.verify("run.tally").expect_code(1).expect_text(&genuine);
        told
    }

    /// What is said of an answer for the right step that is not the right one.
    fn not_the_replayed(&self, found: Answer) -> String {
        let show =
            |answer: Answer| format!("step {} {:?} {:?}", answer.step, answer.reduced, answer.parameters);
        let (expected, found) = (show(self.honest(self.challenge())), show(found));
        format!("its answer is not the replayed one: expected {expected}, found {found}")
    }
}

/// A checkpoint that some honest run answered: of other logs, or of other sizes of this one.
fn note(number: u64) -> Vec<u8> {
    let line = "A".repeat(43);
    format!("other.example/log\n{}\n{line}=\n\n\u{2014} other.example/log {line}\n", 1 + number).into_bytes()
}

/// The tensors of all steps.
fn compute(entries: &Entries, run_toml: &Path) -> Vec<Tensors> {
    let setup = replay::load(entries, run_toml).unwrap();
    let session = Session::new(&setup.plan, &setup.tokens, Backend::detect()).unwrap();
    let mut state = setup.state.clone();
    let bits = |words: &[f32]| words.iter().map(|word| word.to_bits()).collect::<Vec<u32>>();
    let mut step = || {
        let reduced = session.step(&mut state).unwrap().reduced.unwrap();
        [bits(&reduced), bits(&state.parameters)]
    };
    (0..setup.run.steps).map(|_| step()).collect()
}

#[test]
fn answers_that_need_no_tensors_are_found_by_a_replay() {
    let scene = Scene::open(4);
    let (chosen, other) = (scene.chosen(), scene.not_chosen());
    let (_, of_another_challenge) = scene.others(chosen).next().unwrap();
    let (_, of_another_step) = scene.others(other).next().unwrap();
    scene.forge(0, None);
    scene.forge(1, Some(scene.ordinary()));
    scene.forge(2, Some(of_another_challenge));
    scene.forge(3, Some(of_another_step));
    let expected = [
        format!("it does not answer the challenge, which chose step {chosen}"),
        scene.not_the_replayed(scene.ordinary()),
        scene.not_the_replayed(of_another_challenge),
        format!("it answers for step {other}, the challenge chose step {chosen}"),
    ];
    assert_eq!(scene.findings(), (0..4).zip(expected).collect::<Vec<_>>());
}

#[test]
fn the_best_that_linear_sums_allow_is_found_by_a_replay_and_honest_devices_are_not_named() {
    let scene = Scene::open(4);
    let random = digest("test/random", &[b"answer"]);
    let half = |half: &[u8]| Fold::from_bytes(half.try_into().unwrap());
    let random =
        Answer { step: scene.chosen(), reduced: half(&random[..16]), parameters: half(&random[16..]) };
    let (linear, honest) = (scene.linear(), scene.honest(scene.challenge()));
    for (found, right) in [(linear.reduced, honest.reduced), (linear.parameters, honest.parameters)] {
        assert!(found.a != right.a && found.b != right.b, "{found:?} {right:?}");
        assert_eq!((found.a & 1, found.b & 1), (right.a & 1, right.b & 1), "the lowest bits are known");
    }
    scene.forge(0, Some(random));
    scene.forge(1, Some(linear));
    scene.forge(2, Some(honest));
    scene.forge(3, Some(honest));
    let expected = [(0, scene.not_the_replayed(random)), (1, scene.not_the_replayed(linear))];
    assert_eq!(scene.findings(), expected);
}

#[test]
fn tensors_of_every_step_but_the_chosen_one_do_not_answer_it() {
    let scene = Scene::open(2);
    let key = scene.challenge().into();
    let neighbour = scene.answer(key, scene.not_chosen(), scene.chosen());
    // A leaked snapshot has the parameters after a step, and not the gradient.
    let half = Answer { parameters: scene.honest(scene.challenge()).parameters, ..neighbour };
    scene.forge(0, Some(neighbour));
    scene.forge(1, Some(half));
    let expected = [(0, scene.not_the_replayed(neighbour)), (1, scene.not_the_replayed(half))];
    assert_eq!(scene.findings(), expected);
}

/// The limit that docs/VERIFY.md states: one step is asked for, and a replay of that step is all that is compared.
#[test]
fn tensors_of_the_chosen_step_alone_answer_it() {
    let scene = Scene::open(2);
    let answer = scene.honest(scene.challenge());
    (0..2).for_each(|rank| scene.forge(rank, Some(answer)));
    let ended = scene.shop.reconcile("run", &scene.log, "--replay run.toml").expect_code(0);
    ended.expect_text(&format!("answers to the challenge: held against a replay of step {}", scene.chosen()));
    let policy = policy(&scene, "replayed yes\nchallenge smallest\n");
    scene.shop.run("client", &policy).expect_code(0).expect_text("verified: ");
}

/// Writes a policy file, and gives the command that verifies by it.
fn policy(scene: &Scene, lines: &str) -> String {
    let read = |name: &str| std::fs::read_to_string(scene.shop.path(name)).unwrap().trim().to_owned();
    let (log, predictor) = (read("log/log.pub"), read("predictor.pub"));
    let text = format!("log {log}\nquorum none\npredictor {predictor}\n{lines}");
    std::fs::write(scene.shop.path("policy.txt"), text).unwrap();
    "verify run.tally --policy policy.txt".into()
}

#[test]
fn without_a_replay_devices_that_collude_agree_and_a_policy_can_refuse_that() {
    let scene = Scene::open(2);
    let made_up = scene.linear();
    (0..2).for_each(|rank| scene.forge(rank, Some(made_up)));
    let ended = scene.shop.reconcile("run", &scene.log, "--no-replay").expect_code(0);
    ended
        .expect_text("agree: every compared value equals its prediction")
        .expect_text("answers to the challenge: not held against a replay");
    let open = "note: the answers to the challenge were not held against a replay";
    scene.shop.verify("run.tally").expect_code(0).expect_text(open);
    scene.shop.run("client", &policy(&scene, "")).expect_code(0).expect_text(open);
    let refused = scene.shop.run("client", &policy(&scene, "replayed yes\n")).expect_code(1);
    refused.expect_text(
        "genuine, but verdict is agree, but the answers to the challenge were not held against a replay, which the \
         policy asks for: `client reconcile --replay run.toml` does it",
    );
}
