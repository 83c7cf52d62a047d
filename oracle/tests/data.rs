//! What a run reads: `oracle data`, and a proof of it that stands by itself.

use oracle::data::prove::prove;
use schemas::object::Object as _;
use schemas::plan::Plan;
use schemas::window::WindowProof;
use std::path::PathBuf;
use std::process::Command;
use step::order::{Order, inputs_and_targets};
use step::setup::Data;
use verify::window::{Sequence, WindowError, check, chunks_of};

/// A folder that the command runs in.
struct Shop(tempfile::TempDir);

/// What a command said.
struct Ended {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Shop {
    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn run(&self, arguments: &str) -> Ended {
        let mut command = Command::new(env!("CARGO_BIN_EXE_oracle"));
        let output = command.args(arguments.split(' ').filter(|part| !part.is_empty()));
        let output = output.current_dir(self.0.path()).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Ended { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }
}

impl Ended {
    fn expect_code(self, code: i32) -> Ended {
        assert_eq!(self.code, Some(code), "{}{}", self.stdout, self.stderr);
        self
    }

    fn expect_text(self, text: &str) -> Ended {
        assert!(
            self.stdout.contains(text) || self.stderr.contains(text),
            "{text}\n{}{}",
            self.stdout,
            self.stderr
        );
        self
    }
}

/// A run of two leaves of two sequences of 16 tokens over three shards of `lengths` tokens, each token below 256.
fn shop(lengths: [usize; 3]) -> (Shop, Data) {
    let shop = Shop(tempfile::tempdir().unwrap());
    let mut token = 7_u32;
    for (name, length) in ["b.txt", "a-1.txt", "a-2.txt"].iter().zip(lengths) {
        let mut bytes = Vec::new();
        for _ in 0..length {
            token = token.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            bytes.push((token >> 24) as u8);
        }
        std::fs::write(shop.path(name), bytes).unwrap();
    }
    std::fs::write(shop.path("run.toml"), RUN).unwrap();
    let data = Data::load(&shop.path("run.toml"), &mut |_, _| ()).unwrap();
    std::fs::write(shop.path("plan.cbor"), data.plan.encode()).unwrap();
    (shop, data)
}

const RUN: &str = r#"
name = "shards"
profile = "f32-fma"
steps = 200
leaves = 2
devices_max = 1
[model]
model_type = "gpt2"
vocab_size = 256
n_positions = 16
n_embd = 8
n_layer = 1
n_head = 2
layer_norm_epsilon = 1e-5
activation_function = "gelu_new"
initializer_range = 0.02
[state]
seed = 1
[data]
format = "text"
tokenizer = "bytes"
files = ["b.txt", "a-*.txt"]
sequences = 2
length = 16
seed = 5
[optimizer]
kind = "adamw"
learning_rate = 1e-3
beta1 = 0.9
beta2 = 0.95
epsilon = 1e-8
weight_decay = 0.1
schedule = "constant"
warmup_steps = 0
final_fraction = 1.0
"#;

fn windows_of(plan: &Plan, step: u64, leaf: u64) -> Vec<u64> {
    let order = Order::new(plan.data.tokens, plan.dimensions.time, plan.data.seed).unwrap();
    order.leaf_windows(step, leaf, plan.leaves, plan.dimensions.batch)
}

fn checked(proof: &WindowProof, plan: &Plan) -> Result<Vec<Sequence>, WindowError> {
    check(proof, plan, || windows_of(plan, proof.step, proof.leaf))
}

/// The step and leaf whose windows satisfy `wanted`.
fn find(data: &Data, wanted: impl Fn(u64) -> bool) -> (u64, u64) {
    let all = (0..data.config.steps).flat_map(|step| (0..2).map(move |leaf| (step, leaf)));
    let mut found = all.filter(|(step, leaf)| windows_of(&data.plan, *step, *leaf).into_iter().any(&wanted));
    found.next().expect("some leaf of two hundred steps reads it")
}

fn inspect(shop: &Shop, rest: &str) -> serde_json::Value {
    let run = shop.run(&format!("data inspect --run run.toml --json {rest}")).expect_code(0);
    serde_json::from_str(&run.stdout).unwrap()
}

#[test]
fn a_window_over_the_end_of_a_shard_is_shown_with_both_files() {
    let (shop, data) = shop([1000, 700, 3001]);
    assert_eq!(data.plan.data.tokens, 4701);
    // Token 1000 is the first of a-1.txt; window 62 holds the tokens 992 to 1008.
    let (step, leaf) = find(&data, |window| window == 62);
    let shown = inspect(&shop, &format!("--step {step} --leaf {leaf}"));
    let sequences = shown["sequences"].as_array().unwrap();
    let crossing = sequences.iter().find(|sequence| sequence["window"] == 62).unwrap();
    let from = serde_json::json!([
        {"file": "b.txt", "first": 992, "last": 999}, {"file": "a-1.txt", "first": 0, "last": 8}
    ]);
    assert_eq!(crossing["from"], from);
    let bytes =
        [std::fs::read(shop.path("b.txt")).unwrap(), std::fs::read(shop.path("a-1.txt")).unwrap()].concat();
    assert_eq!(crossing["inputs"], serde_json::json!(bytes[992..1008]));
    assert_eq!(crossing["targets"], serde_json::json!(bytes[993..1009]));
    // Over the epochs: a leaf of a later one says so, and reads what the session reads.
    let windows = (data.plan.data.tokens - 1) / 16;
    let late = inspect(&shop, "--step 199 --leaf 1");
    let last = &late["sequences"][1];
    assert_eq!((&last["sequence"], &last["epoch"]), (&799.into(), &(799 / windows).into()));
    let (inputs, _) = inputs_and_targets(&data.stream.tokens, &windows_of(&data.plan, 199, 1), 16);
    assert_eq!(last["inputs"], serde_json::json!(inputs[16..]));
    let text = shop.run(&format!("data inspect --run run.toml --step {step} --leaf {leaf}"));
    let text =
        text.expect_code(0).expect_text("a-1.txt, tokens 0 to 8").expect_text("b.txt, tokens 992 to 999");
    assert!(text.stdout.chars().all(|c| c == '\n' || !c.is_control()), "{}", text.stdout);

    let whole = inspect(&shop, "");
    assert_eq!((&whole["tokens"], &whole["windows"]), (&4701.into(), &293.into()));
    assert_eq!(whole["dataset"], data.plan.data.dataset.to_string());
    assert_eq!(whole["shards"][2], serde_json::json!({"file": "a-2.txt", "first": 1700, "tokens": 3001}));
    shop.run("data inspect --run run.toml").expect_code(0).expect_text("the last 12 tokens are in none");
    shop.run("data inspect --run run.toml --step 200 --leaf 0").expect_code(2).expect_text("0 to 199");
    shop.run("data inspect --run run.toml --step 0 --leaf 2").expect_code(2).expect_text("0 to 1");
}

/// The last chunk holds 605 tokens: its proof is opened and checked like any other.
#[test]
fn a_proof_is_checked_with_the_plan_alone_and_no_flip_passes() {
    let (shop, data) = shop([1000, 700, 3001]);
    let (step, leaf) = find(&data, |window| window * 16 >= 4096);
    let shown = inspect(&shop, &format!("--step {step} --leaf {leaf} --proof window.cbor"));
    // Neither run.toml nor the data is needed any more.
    for file in ["run.toml", "a-1.txt", "a-2.txt", "b.txt"] {
        std::fs::remove_file(shop.path(file)).unwrap();
    }
    let verify = shop.run("data verify --plan plan.cbor --proof window.cbor --json").expect_code(0);
    let verified: serde_json::Value = serde_json::from_str(&verify.stdout).unwrap();
    for sequence in 0..2 {
        for field in ["sequence", "epoch", "window", "inputs", "targets"] {
            assert_eq!(
                verified["sequences"][sequence][field], shown["sequences"][sequence][field],
                "{field}"
            );
        }
    }
    shop.run("data verify --plan plan.cbor --proof window.cbor --decode bytes")
        .expect_code(0)
        .expect_text("verified     these are the windows that the plan gives step");

    let bytes = std::fs::read(shop.path("window.cbor")).unwrap();
    let proof = WindowProof::decode(&bytes).unwrap();
    assert_eq!(proof.chunks.last().unwrap().bytes.len(), 605 * 4, "the last chunk is among those opened");
    assert_eq!(proof.chunks.last().unwrap().path.len(), 1);
    assert!(checked(&proof, &data.plan).is_ok());
    for index in 0..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[index] ^= 1 << (index % 8);
        let passes = WindowProof::decode(&flipped).is_ok_and(|proof| checked(&proof, &data.plan).is_ok());
        assert!(!passes, "byte {index} of {} was flipped and nobody noticed", bytes.len());
    }
    let mut wrong = proof.clone();
    wrong.chunks[0].bytes[0] ^= 1;
    std::fs::write(shop.path("wrong.cbor"), wrong.encode()).unwrap();
    shop.run("data verify --plan plan.cbor --proof wrong.cbor").expect_code(1).expect_text("leads to root");
    std::fs::write(shop.path("cut.cbor"), &bytes[..100]).unwrap();
    shop.run("data verify --plan plan.cbor --proof cut.cbor").expect_code(2).expect_text("window");
    shop.run("data verify --plan none.cbor --proof cut.cbor").expect_code(2).expect_text("none.cbor");
}

/// The last target of such a window is the first token of the next chunk.
#[test]
fn a_window_that_ends_with_its_chunk_needs_the_next_one() {
    assert_eq!(chunks_of(&[62], 16).into_iter().collect::<Vec<_>>(), [0]);
    assert_eq!(chunks_of(&[63], 16).into_iter().collect::<Vec<_>>(), [0, 1]);
    let (_shop, data) = shop([1000, 700, 3001]);
    let (step, leaf) = find(&data, |window| (window + 1) * 16 % 1024 == 0);
    let windows = windows_of(&data.plan, step, leaf);
    let proof = prove(&data.plan, &data.stream.tokens, step, leaf, windows.clone()).unwrap();
    for (sequence, window) in checked(&proof, &data.plan).unwrap().into_iter().zip(windows) {
        let first = window as usize * 16;
        assert_eq!(sequence.targets, data.stream.tokens[first + 1..=first + 16]);
    }
}

/// Each check of docs/spec/window.md, failing alone.
#[test]
fn every_check_of_a_proof_can_fail() {
    let (_shop, data) = shop([1000, 700, 3001]);
    let plan = &data.plan;
    let (step, leaf) = find(&data, |window| window * 16 >= 4096);
    let windows = windows_of(plan, step, leaf);
    let tokens = &data.stream.tokens;
    let good = prove(plan, tokens, step, leaf, windows.clone()).unwrap();
    assert!(checked(&good, plan).is_ok());
    let refused = |change: &dyn Fn(&mut WindowProof)| {
        let mut proof = good.clone();
        change(&mut proof);
        checked(&proof, plan).unwrap_err()
    };
    assert!(matches!(refused(&|proof| proof.plan.0[0] ^= 1), WindowError::Plan { .. }));
    assert!(matches!(refused(&|proof| proof.step = 200), WindowError::Outside { .. }));
    assert!(matches!(refused(&|proof| proof.leaf = 2), WindowError::Outside { .. }));
    assert!(matches!(refused(&|proof| proof.leaf ^= 1), WindowError::Window { sequence: 0, .. }));
    assert!(matches!(refused(&|proof| proof.windows.push(1)), WindowError::Window { sequence: 2, .. }));
    assert!(matches!(refused(&|proof| proof.windows.truncate(1)), WindowError::Window { sequence: 1, .. }));
    assert!(matches!(refused(&|proof| proof.root[31] ^= 1), WindowError::Root { .. }));
    assert!(matches!(refused(&|proof| drop(proof.chunks.remove(0))), WindowError::Chunks { .. }));
    let more = refused(&|proof| proof.chunks.push(proof.chunks[0].clone()));
    assert!(matches!(more, WindowError::Chunks { .. }));
    let last = |proof: &mut WindowProof, change: &dyn Fn(&mut Vec<u8>)| {
        change(&mut proof.chunks.last_mut().unwrap().bytes);
    };
    let shorter = refused(&|proof| last(proof, &|bytes| bytes.truncate(4)));
    assert!(matches!(shorter, WindowError::Length { index: 4, expected: 2420, found: 4 }));
    let longer = refused(&|proof| last(proof, &|bytes| bytes.resize(4096, 0)));
    assert!(matches!(longer, WindowError::Length { found: 4096, .. }));
    assert!(matches!(
        refused(&|proof| last(proof, &|bytes| bytes[0] ^= 1)),
        WindowError::Path { index: 4, .. }
    ));
    assert!(matches!(refused(&|proof| proof.chunks[0].path.push([0; 32])), WindowError::Path { .. }));
    assert!(matches!(refused(&|proof| proof.chunks[0].path.truncate(1)), WindowError::Path { .. }));
    // The same data under another seed is another order.
    let mut other = plan.clone();
    other.data.seed += 1;
    let moved = WindowProof { plan: other.digest(), ..good.clone() };
    assert!(matches!(checked(&moved, &other), Err(WindowError::Window { .. })));
}

/// As many chunks as a proof holds, and one more: told before a byte of the data is looked at.
#[test]
fn a_leaf_over_too_many_chunks_has_no_proof() {
    let (_shop, data) = shop([1000, 700, 3001]);
    let apart = |chunks: u64| (0..chunks).map(|chunk| chunk * 64).collect::<Vec<_>>();
    assert_eq!(chunks_of(&apart(8193), 16).len(), 8193);
    let refused = prove(&data.plan, &[], 0, 0, apart(8193)).unwrap_err().to_string();
    assert!(refused.ends_with("lie in 8193 chunks of 1024 tokens, a proof holds at most 8192"), "{refused}");
}

#[test]
fn data_that_is_wrong_stops_every_command_with_the_file_and_the_place() {
    let (shop, _) = shop([100, 100, 100]);
    let with = |from: &str, to: &str| std::fs::write(shop.path("run.toml"), RUN.replace(from, to)).unwrap();
    with("vocab_size = 256", "vocab_size = 100");
    for command in ["plan --run run.toml", "data inspect --run run.toml"] {
        shop.run(command).expect_code(2).expect_text("b.txt: expected tokens below model.vocab_size = 100");
    }
    with("tokenizer = \"bytes\"", "tokenizer = \"gpt2\"");
    shop.run("data inspect --run run.toml").expect_code(2).expect_text("expected UTF-8");
    with("tokenizer = \"bytes\"", "tokenizer = \"t.json\"");
    shop.run("data inspect --run run.toml").expect_code(2).expect_text("t.json: could not read it");
    with("\"a-*.txt\"", "\"c-*.txt\"");
    shop.run("data inspect --run run.toml").expect_code(2).expect_text("\"c-*.txt\": expected at least");
}
