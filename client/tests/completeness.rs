//! `client completeness`: fetched from a server that may lie, and checked offline.

mod lying;

use lying::{Answer, Files, Log, prediction, signed};
use schemas::completeness::Completeness;
use schemas::digest::{EntryDigest, RunId};
use schemas::object::Object as _;
use schemas::register::PredictionLeaf;
use schemas::statement::{Payload, Statement};
use std::path::Path;
use std::process::{Command, Output};

fn client(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_client"));
    command.current_dir(folder).arg("completeness").args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// Shows a log, its file of a run, and each of its entries by name.
fn show(files: &Files, log: &Log, run: RunId, file: &Completeness) {
    files.show(log);
    let facts = serde_json::json!({ "key": log.key().verifier().to_string(), "origin": lying::ORIGIN });
    files.set("/log.json", Answer::Bytes(facts.to_string().into_bytes()));
    files.set(&format!("/run/{run}/completeness"), Answer::Bytes(file.encode()));
    for entry in &log.entries {
        files.set(&format!("/by-hash/{}", EntryDigest::of(entry)), Answer::Bytes(entry.clone()));
    }
}

#[test]
fn what_was_fetched_is_checked_offline_for_each_predictor() {
    let folder = tempfile::tempdir().unwrap();
    let (mut log, files) = (Log::new(), Files::default());
    let (id, _) = log.add_story(0);
    let (address, key) = (files.start(), log.key().verifier().to_string());
    show(&files, &log, id, &log.completeness(id));
    let arguments = [&id.to_string(), "--ledger", &address, "--log-key", &key, "--out", "a.completeness"];
    let fetched = client(folder.path(), &arguments);
    assert_eq!(fetched.status.code(), Some(0), "{}", text(&fetched.stderr));
    assert!(text(&fetched.stderr).contains("client: note: the one prediction was read and is as listed"));
    let (predictor, other) = (lying::key(2).public().to_string(), lying::key(3).public().to_string());
    let offline = |key: &str| {
        let arguments =
            ["a.completeness", "--log-key", &log.key().verifier().to_string(), "--predictor-key", key];
        client(folder.path(), &arguments)
    };
    let held = offline(&predictor);
    assert_eq!((held.status.code(), &held.stderr[..]), (Some(0), &b""[..]), "{}", text(&held.stderr));
    let told = text(&held.stdout);
    assert!(
        told.contains("7. the predictor predicted [ok]: steps 0..3 in entry 2, and nothing else"),
        "{told}"
    );
    assert!(told.contains("note: that the register leaves nothing out is the log's word"), "{told}");
    assert!(told.contains("complete: below entry 4 the log holds 3 statements of run "), "{told}");
    let none = offline(&other);
    assert_eq!(none.status.code(), Some(1));
    assert!(text(&none.stdout).contains("not shown to be complete: check 7: expected a prediction by"));
    let json = client(folder.path(), &["a.completeness", "--log-key", &key, "--json"]);
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!((json["complete"].as_bool(), json["size"].as_u64()), (Some(true), Some(4)));
    assert_eq!(json["predictions"][0]["steps"], serde_json::json!([0, 3]));
    std::fs::write(folder.path().join("b"), b"no such file").unwrap();
    let broken = client(folder.path(), &["b", "--log-key", &key]);
    assert_eq!(broken.status.code(), Some(2));
    assert!(text(&broken.stderr).contains("client: hint: cut short, or no completeness file?"));
}

#[test]
fn a_server_that_gives_another_run_or_lists_what_is_not_so_is_not_believed() {
    let folder = tempfile::tempdir().unwrap();
    let files = Files::default();
    let address = files.start();
    let refused = |log: &Log, id: RunId, file: &Completeness, why: &str| {
        show(&files, log, id, file);
        let key = log.key().verifier().to_string();
        let arguments = [&id.to_string(), "--ledger", &address, "--log-key", &key, "--out", "out"];
        let output = client(folder.path(), &arguments);
        assert_ne!(output.status.code(), Some(0));
        let told = format!("{}{}", text(&output.stdout), text(&output.stderr));
        assert!(told.contains(why), "{why}: {told}");
        assert!(!folder.path().join("out").exists(), "{why}");
    };
    let mut log = Log::new();
    let (first, _) = log.add_story(0);
    let (second, _) = log.add_story(1);
    let of_second = log.completeness(second);
    refused(&log, first, &of_second, &format!("the server gave the completeness of run {second}"));
    let cut = Completeness { predictions: vec![], ..of_second.clone() };
    refused(&log, second, &cut, "check 5: 0 predictions with root ");
    // The log registers a leaf that its entry does not bear out, and leaves a prediction out: it signs both.
    let mut lying = Log::new();
    let id = lying.add_run(0);
    lying.append(signed(&prediction(id, 0, 3, 1), 2));
    let mut register = lying.register(id);
    let statement = Statement::open(&lying.entries[2]).unwrap();
    let mut leaf = PredictionLeaf::of(2, &statement).unwrap();
    leaf.steps.end = 2;
    let mut tree = tlog::compact::CompactTree::new();
    tree.push(tlog::hash::leaf_hash(&leaf.encode()));
    register.predictions.root = *tree.head().root.as_bytes();
    lying.append_register(register);
    let listed = Completeness { predictions: vec![leaf], entries: None, ..lying.completeness(id) };
    let why = "entry 2 is listed as a prediction of steps 0..2 by ";
    refused(&lying, id, &listed, why);
    // A run statement in place of a prediction.
    let mut lying = Log::new();
    let id = lying.add_run(0);
    let run = Statement::open(&lying.entries[1]).unwrap();
    assert!(matches!(run.payload, Payload::Run(_)));
    let mut register = lying.register(id);
    let steps = schemas::run::Steps { first: 0, end: 3 };
    let leaf = PredictionLeaf { index: 1, signer: run.signer, steps, entry: run.digest };
    let mut tree = tlog::compact::CompactTree::new();
    tree.push(tlog::hash::leaf_hash(&leaf.encode()));
    register.predictions = schemas::register::ListRoot { count: 1, root: *tree.head().root.as_bytes() };
    lying.append_register(register);
    let listed = Completeness { predictions: vec![leaf], entries: None, ..lying.completeness(id) };
    refused(&lying, id, &listed, "; it is a run");
}
