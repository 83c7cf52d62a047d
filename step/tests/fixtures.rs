//! A hundred whole steps of small models, every record equal to the recorded one on every backend of this machine.
//!
//! The records are the reference's. What is recorded is the same for every machine, so that the test, run on another
//! one (`tools/aarch64.sh`), compares machines. `UPDATE_FIXTURES=1 cargo nextest run -p step --test fixtures` writes
//! them anew.

use schemas::cbor;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use step::dispatch::Backend;
use step::session::Session;
use step::setup::Setup;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/step").join(name)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Every step of the run, as the fixture has it: SHA-256 of each encoded step record, and the state at both ends.
fn steps(setup: &Setup, backend: Backend) -> Value {
    let session = Session::new(&setup.plan, &setup.tokens, backend).expect("a session");
    let mut state = setup.state.clone();
    let first = state.digest().to_string();
    let mut clipped = 0;
    let records: Vec<String> = (0..setup.config.steps)
        .map(|number| {
            let record = session.step(&mut state).expect("a step").record;
            assert_eq!(record.non_finite, None, "step {number}");
            let norm = record.outcome.as_ref().map_or(f32::NAN, |outcome| f32::from_bits(outcome.norm));
            clipped += usize::from(norm > f32::from_bits(setup.plan.update.clip));
            hex(&Sha256::digest(cbor::encode(&record.to_value())))
        })
        .collect();
    json!({
        "plan": setup.plan.digest().to_string(),
        "first_state": first,
        "last_state": state.digest().to_string(),
        "steps_clipped": clipped,
        "records": records,
    })
}

/// Says where two runs part, rather than show two lists of a hundred digests.
fn assert_same(found: &Value, recorded: &Value, what: &str) {
    for field in ["plan", "first_state"] {
        assert_eq!(
            found[field], recorded[field],
            "{what}: {field}; run with UPDATE_FIXTURES=1 if that is meant"
        );
    }
    let list = |value: &Value| value["records"].as_array().expect("a list of records").clone();
    let (ours, theirs) = (list(found), list(recorded));
    assert_eq!(ours.len(), theirs.len(), "{what}: number of steps");
    let first = ours.iter().zip(&theirs).position(|(ours, theirs)| ours != theirs);
    assert_eq!(first, None, "{what}: the first step whose record differs");
    assert_eq!(found, recorded, "{what}");
}

fn every_backend_gives_the_recorded_steps(model: &str) {
    let setup = Setup::load(&fixture(&format!("{model}.toml"))).expect("a run");
    let path = fixture(&format!("{model}.json"));
    if std::env::var_os("UPDATE_FIXTURES").is_some() {
        let records = steps(&setup, Backend::REFERENCE);
        let text = serde_json::to_string_pretty(&records).expect("JSON") + "\n";
        std::fs::write(&path, text).expect("the fixture is written");
    }
    let text = std::fs::read(&path).expect("the fixture is there; UPDATE_FIXTURES=1 writes it");
    let recorded: Value = serde_json::from_slice(&text).expect("the fixture is JSON");
    for backend in Backend::all() {
        let found = steps(&setup, backend);
        assert_same(&found, &recorded, &format!("{model} on {backend}"));
        // tools/aarch64.sh counts these lines.
        println!("{model} on {backend}: {} records equal", setup.config.steps);
    }
}

#[test]
fn a_hundred_steps_of_gpt2_are_the_recorded_ones() {
    every_backend_gives_the_recorded_steps("gpt2");
}

#[test]
fn a_hundred_steps_of_gpt2_with_long_sequences_are_the_recorded_ones() {
    every_backend_gives_the_recorded_steps("gpt2-long");
}

#[test]
fn a_hundred_steps_of_llama_are_the_recorded_ones() {
    every_backend_gives_the_recorded_steps("llama");
}

#[test]
fn a_hundred_steps_of_llama_with_long_sequences_and_sgd_are_the_recorded_ones() {
    every_backend_gives_the_recorded_steps("llama-long");
}
