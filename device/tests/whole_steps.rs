//! A hundred whole steps on an OpenCL device, on 1, 2 and 4 devices: every value of every record is the oracle's, and
//! the oracle's records are the recorded ones.

mod tiny;

use device::backend;
use device::simulated::Simulated;
use schemas::cbor;
use schemas::plan::Kind;
use sha2::{Digest as _, Sha256};
use std::path::{Path, PathBuf};
use step::dispatch::Backend;
use step::session::{Session, Step};
use step::setup::Setup;
use tiny::Tiny;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/step").join(name)
}

/// The job of a setup, and its oracle's steps.
fn job_and_steps(setup: &Setup) -> (Tiny, Vec<Step>) {
    let tiny = Tiny::of(&setup.config, 5, setup.tokens.to_vec());
    assert_eq!(tiny.state.digest(), setup.state.digest(), "the state is the setup's");
    let session = Session::new(&tiny.plan, &tiny.tokens, Backend::detect()).unwrap();
    let mut state = tiny.state.clone();
    let steps = (0..tiny.run.steps).map(|_| session.step(&mut state).unwrap()).collect();
    (tiny, steps)
}

/// Runs a job on so many devices; every receipt but for who made it is the same on both backends.
fn devices_agree(tiny: &Tiny, steps: &[Step], devices: u64) {
    let opencl = backend::named("opencl", false).unwrap();
    let request = |out: &str| {
        let mut request = tiny.request(&format!("{out}-{devices}"), devices, &[]);
        (request.traces, request.snapshot_every) = (None, 0);
        request
    };
    let output = tiny.run_on(&request("opencl"), &*opencl).unwrap_or_else(|error| panic!("{error}"));
    let simulated = tiny.run_on(&request("simulated"), &Simulated::detect()).unwrap();
    for rank in 0..devices {
        let receipt = output.receipt(rank as usize);
        assert!(!receipt.simulated && receipt.facts == opencl.facts(rank));
        assert!(receipt.facts.kernels.starts_with("opencl "));
        assert_eq!(receipt.answer, simulated.receipt(rank as usize).answer);
        assert_eq!(output.records(rank as usize).len(), steps.len());
        for (record, predicted) in output.records(rank as usize).iter().zip(steps) {
            tiny.assert_record(record, predicted, devices, rank);
        }
    }
}

/// A fixture's run: its records are the recorded ones, and so are the devices'.
fn a_recorded_run(model: &str) {
    let setup = Setup::load(&fixture(&format!("{model}.toml"))).unwrap();
    let (tiny, steps) = job_and_steps(&setup);
    let recorded: serde_json::Value =
        serde_json::from_slice(&std::fs::read(fixture(&format!("{model}.json"))).unwrap()).unwrap();
    let hash = |step: &Step| {
        let digest = Sha256::digest(cbor::encode(&step.record.to_value()));
        digest.iter().map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    let records: Vec<String> = steps.iter().map(hash).collect();
    assert_eq!(serde_json::json!(records), recorded["records"]);
    for devices in [1, 2, 4].into_iter().filter(|devices| *devices <= tiny.plan.devices_max) {
        devices_agree(&tiny, &steps, devices);
    }
}

#[test]
fn every_fault_in_device_memory_gives_the_records_and_traces_of_the_simulated_one() {
    let tiny = Tiny::new();
    let operation = |kind: Kind| &tiny.plan.operations.iter().find(|one| one.kind == kind).unwrap().name;
    let tap = |kind: Kind, rest: &str| format!("device=1,step=1,leaf=2,operation={},{rest}", operation(kind));
    let cases = [
        format!("bit-flip:{}", tap(Kind::Attention, "output=1,element=3,bit=21")),
        format!("bit-flip:{}", tap(Kind::LinearBackwardWeight, "element=17,bit=30")),
        format!("bit-flip:{}", tap(Kind::CrossEntropy, "element=2,bit=3")),
        format!("bit-flip:{}", tap(Kind::EmbeddingBackward, "output=1,element=9,bit=31")),
        format!("poison:{}", tap(Kind::Gelu, "element=5")),
        format!("poison:{}", tap(Kind::CrossEntropy, "element=0")),
        "wrong-partial:device=1,step=1,element=100,bit=22".into(),
        "corrupted-link:device=0,step=1,element=100,bit=22".into(),
        "wrong-reduction:device=1,step=1,element=100,bit=22".into(),
        "wrong-update:device=0,step=1,element=5,bit=12".into(),
        // So large a parameter that the next step's leaves are not finite.
        "wrong-update:device=0,step=1,element=0,bit=30".into(),
        "skipped-update:device=1,step=1".into(),
    ];
    let opencl = backend::named("opencl", false).unwrap();
    for (number, fault) in cases.iter().enumerate() {
        let run = |name: &str, backend: &dyn backend::Backend| {
            tiny.run_on(&tiny.request(&format!("{name}-{number}"), 2, &[fault]), backend).unwrap()
        };
        let (expected, found) = (run("simulated", &Simulated::detect()), run("opencl", &*opencl));
        for rank in 0..2 {
            assert_eq!(found.records(rank), expected.records(rank), "{fault}, device {rank}");
        }
        let traces = |output: &tiny::Output| {
            let names = tiny::files(&output.folder).into_iter().filter(|name| name.starts_with("traces/"));
            names.map(|name| (std::fs::read(output.folder.join(&name)).unwrap(), name)).collect::<Vec<_>>()
        };
        assert_eq!(traces(&found).len(), traces(&expected).len(), "{fault}");
        assert!(traces(&found) == traces(&expected), "{fault}: traces differ");
    }
}

#[test]
fn a_hundred_steps_of_gpt2_are_the_recorded_ones() {
    a_recorded_run("gpt2");
}

#[test]
fn a_hundred_steps_of_gpt2_with_long_sequences_are_the_recorded_ones() {
    a_recorded_run("gpt2-long");
}

#[test]
fn a_hundred_steps_of_llama_are_the_recorded_ones() {
    a_recorded_run("llama");
}

#[test]
fn a_hundred_steps_of_llama_with_long_sequences_and_sgd_are_the_recorded_ones() {
    a_recorded_run("llama-long");
}

#[test]
fn a_hundred_steps_of_gpt2_are_equal_on_one_two_and_four_devices() {
    let folder = tempfile::tempdir().unwrap();
    let text = std::fs::read_to_string(fixture("gpt2.toml")).unwrap();
    let text = text.replace("leaves = 6", "leaves = 12").replace("devices_max = 2", "devices_max = 4");
    std::fs::write(folder.path().join("gpt2.toml"), text).unwrap();
    std::fs::copy(fixture("corpus.txt"), folder.path().join("corpus.txt")).unwrap();
    let setup = Setup::load(&folder.path().join("gpt2.toml")).unwrap();
    let (tiny, steps) = job_and_steps(&setup);
    assert_eq!((steps.len(), tiny.plan.devices_max), (100, 4));
    for devices in [1, 2, 4] {
        devices_agree(&tiny, &steps, devices);
    }
}
