//! Do the specification's pages say enough? Two steps of tiny runs, every record byte for byte, against an executor in
//! numpy that was written from `docs/spec` alone (`tests/independent/executor.py`).
//!
//! What it gives is no fixture: it is compared with `step` and that with `fixtures/step`, on machines without numpy
//! too.

use schemas::object::Object;
use schemas::plan::Plan;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};
use step::dispatch::Backend;
use step::session::Session;
use step::setup::Setup;
use tests::workshop::workspace;

/// A run.toml of a few channels: numpy goes through every chain one element at a time.
fn write_run(folder: &Path, model: &str, optimizer: &str) {
    let text = format!(
        r#"
name = "tiny"
profile = "f32-fma"
steps = 5
leaves = 3
devices_max = 1

[model]
{model}
initializer_range = 0.3

[state]
seed = 9000000000

[data]
format = "text"
tokenizer = "bytes"
files = ["corpus.txt"]
sequences = 2
length = 35
seed = 77

[optimizer]
{optimizer}
"#
    );
    std::fs::write(folder.join("run.toml"), text).unwrap();
    let corpus: String = (0..30).map(|i| format!("{i} notches, {} marks; ", i * i)).collect();
    std::fs::write(folder.join("corpus.txt"), corpus).unwrap();
}

const GPT2: &str = r#"
model_type = "gpt2"
vocab_size = 1030
n_positions = 36
n_embd = 6
n_layer = 2
n_head = 2
n_inner = 10
layer_norm_epsilon = 1e-5
activation_function = "gelu_new"
"#;

const ADAMW: &str = r#"
kind = "adamw"
learning_rate = 1e-2
beta1 = 0.9
beta2 = 0.95
epsilon = 1e-8
weight_decay = 0.1
clip = 0.5
"#;

const LLAMA: &str = r#"
model_type = "llama"
vocab_size = 131
hidden_size = 10
intermediate_size = 6
num_hidden_layers = 2
num_attention_heads = 3
num_key_value_heads = 1
head_dim = 4
max_position_embeddings = 35
rms_norm_eps = 1e-6
rope_theta = 10000.0
hidden_act = "silu"
tie_word_embeddings = false
"#;

const SGD: &str = r#"
kind = "sgd"
learning_rate = 0.3
momentum = 0.9
nesterov = true
weight_decay = 0.001
clip = 0.5
"#;

const SCHEDULE: &str = r#"
schedule = "cosine"
warmup_steps = 1
final_fraction = 0.1
"#;

/// Runs `steps` steps with `step` and with numpy and compares everything both say.
fn assert_equal_records(model: &str, optimizer: &str, steps: usize) -> Vec<step::session::Step> {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    write_run(folder.path(), model, optimizer);
    let setup = Setup::load(&at("run.toml")).unwrap();
    std::fs::write(at("config.cbor"), setup.config.encode()).unwrap();
    std::fs::write(at("plan.cbor"), setup.plan.encode()).unwrap();
    let words: Vec<u8> = setup.tokens.iter().flat_map(|token| token.to_le_bytes()).collect();
    std::fs::write(at("tokens.u32"), words).unwrap();

    let session = Session::new(&setup.plan, &setup.tokens, Backend::detect()).unwrap();
    let mut state = setup.state.clone();
    let first = state.digest();
    let mut done = Vec::new();
    while done.len() < steps
        && done.last().is_none_or(|step: &step::session::Step| step.record.non_finite.is_none())
    {
        done.push(session.step(&mut state).unwrap());
    }
    let Some(python) = python_with_numpy() else {
        println!("no python with numpy: nothing compared");
        return done;
    };
    let program = workspace().join("tests/independent/executor.py");
    let status = Command::new(python)
        .arg("-B")
        .arg(program)
        .arg("steps")
        .arg(folder.path())
        .arg(steps.to_string())
        .status();
    assert!(status.unwrap().success());
    let theirs: Value = serde_json::from_slice(&std::fs::read(at("executor.json")).unwrap()).unwrap();
    assert_eq!(theirs["first_state"], first.to_string());
    assert_eq!(theirs["steps"].as_array().unwrap().len(), done.len());
    for (number, (ours, theirs)) in done.iter().zip(theirs["steps"].as_array().unwrap()).enumerate() {
        for (leaf, trace) in ours.traces.iter().enumerate() {
            let folds: String = trace.folds.iter().map(|fold| hex::encode(fold.to_bytes())).collect();
            assert_same_taps(&setup.plan, &folds, theirs["folds"][leaf].as_str().unwrap(), number, leaf);
        }
        let record = hex::encode(schemas::cbor::encode(&ours.record.to_value()));
        assert_eq!(theirs["record"], record, "record of step {number}: {:?}", ours.record);
    }
    if done.last().is_some_and(|step| step.record.non_finite.is_none()) {
        assert_eq!(theirs["last_state"], state.digest().to_string());
    }
    done
}

/// Names the first tap that differs.
fn assert_same_taps(plan: &Plan, ours: &str, theirs: &str, step: usize, leaf: usize) {
    let (ours, theirs) = (ours.as_bytes().chunks(32), theirs.as_bytes().chunks(32));
    assert_eq!(ours.len(), theirs.len(), "step {step}, leaf {leaf}: number of taps");
    if let Some(tap) = ours.zip(theirs).position(|(ours, theirs)| ours != theirs) {
        let tap = plan.taps().nth(tap).unwrap();
        panic!("step {step}, leaf {leaf}: {} differs", plan.operand_name(tap.operand));
    }
}

fn python_with_numpy() -> Option<&'static str> {
    let has_numpy = |python: &&str| {
        let asked = Command::new(python).args(["-c", "import numpy"]).stderr(Stdio::null()).status();
        asked.is_ok_and(|status| status.success())
    };
    ["python3", "/usr/bin/python3"].into_iter().find(has_numpy)
}

#[test]
fn an_executor_written_from_the_pages_gives_the_worked_examples() {
    let Some(python) = python_with_numpy() else { return println!("no python with numpy: nothing compared") };
    let [program, examples] =
        ["tests/independent/executor.py", "fixtures/step/operations.json"].map(|path| workspace().join(path));
    let output = Command::new(python).arg("-B").arg(program).arg("examples").arg(examples).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn an_executor_written_from_the_pages_gives_the_same_records_of_a_gpt2() {
    let steps = assert_equal_records(GPT2, &format!("{SCHEDULE}{ADAMW}"), 2);
    assert!(steps.iter().all(|step| step.record.non_finite.is_none()));
}

/// A head of its own, three heads of queries to one of keys, two groups of parameters.
#[test]
fn an_executor_written_from_the_pages_gives_the_same_records_of_a_llama() {
    let groups =
        "[[optimizer.groups]]\nmatch = [\"*.mlp.*\", \"lm_head.weight\"]\nlearning_rate_factor = 0.5";
    assert_equal_records(LLAMA, &format!("{SCHEDULE}{ADAMW}{groups}"), 2);
}

#[test]
fn an_executor_written_from_the_pages_gives_the_same_records_with_sgd() {
    let tied = LLAMA.replace("false", "true");
    assert_equal_records(&tied, &format!("{SCHEDULE}{SGD}"), 2);
    assert_equal_records(GPT2, &format!("{SCHEDULE}{SGD}").replace("true", "false"), 2);
}

/// An invalid step's record is a record too.
#[test]
fn an_executor_written_from_the_pages_gives_the_same_records_of_a_run_that_diverges() {
    let wild = SGD.replace("0.3", "100.0").replace("clip = 0.5\n", "");
    let steps = assert_equal_records(GPT2, &format!("{SCHEDULE}{wild}"), 5);
    println!("{:?}", steps.last().unwrap().record.non_finite);
    assert!(steps.last().unwrap().record.non_finite.is_some());
}
