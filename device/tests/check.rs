//! `device check` as a person meets it, on the backend that is always there.

use std::path::Path;
use std::process::{Command, Output};

fn check(words: &[&str]) -> Output {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_device"));
    command
        .current_dir(top)
        .args(["check", "--backend", "simulated", "--steps", "2"])
        .args(words)
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn recorded_steps_and_a_run_beside_the_oracle_are_equal() {
    let output = check(&["--run", "fixtures/step/gpt2.toml"]);
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
    let said = text(&output.stdout);
    assert!(said.contains("gpt2: 2 steps equal on 2 devices\n") && said.ends_with("PASS\n"), "{said}");
    assert!(said.contains("fixtures/step/gpt2.toml: 2 steps equal"), "{said}");
}

#[test]
fn a_record_that_differs_is_told_with_its_step() {
    let folder = tempfile::tempdir().unwrap();
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/step");
    for entry in std::fs::read_dir(fixtures).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), folder.path().join(entry.file_name())).unwrap();
    }
    let path = folder.path().join("llama.json");
    let mut value: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    value["records"][1] = "00".into();
    std::fs::write(&path, value.to_string()).unwrap();
    let output = check(&["--fixtures", folder.path().to_str().unwrap()]);
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(1), ""));
    let said = text(&output.stdout);
    assert!(said.contains("llama: DIFFERS: step 1: ") && said.ends_with("FAIL\n"), "{said}");
    assert!(said.contains("gpt2: 2 steps equal on 2 devices\n"), "{said}");
}

#[test]
fn what_cannot_be_checked_is_no_verdict() {
    let output = check(&["--fixtures", "nowhere"]);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(2), ""));
    assert!(text(&output.stderr).starts_with("device: error: "), "{output:?}");
}
