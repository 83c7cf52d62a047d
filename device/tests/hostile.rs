//! Jobs that do not hold together are refused with what is wrong, before anything is computed or written.

mod tiny;

use device::job::Job;
use device::run::RunError;
use schemas::digest::{Checksum, ConfigDigest, PlanDigest, ProfileDigest, StateDigest, digest};
use schemas::key::SecretKey;
use schemas::object::Object as _;
use schemas::plan::Plan;
use schemas::run::{Run, Steps};
use schemas::statement::{Payload, Statement};
use serde_json::{Map, Value, json};
use std::path::PathBuf;
use tiny::{STEPS, Tiny};

/// Reads a job that must be refused.
fn refused(tiny: &Tiny) -> String {
    match Job::read(&tiny.job_folder()) {
        Ok(_) => panic!("the job was taken"),
        Err(error) => error.to_string(),
    }
}

fn assert_refused(tiny: &Tiny, message: &str) {
    let error = refused(tiny);
    assert!(error.contains(message), "{error}\nshould contain {message}");
}

fn file(tiny: &Tiny, name: &str) -> PathBuf {
    tiny.job_folder().join(name)
}

fn bytes(tiny: &Tiny, name: &str) -> Vec<u8> {
    std::fs::read(file(tiny, name)).unwrap()
}

fn put(tiny: &Tiny, name: &str, bytes: &[u8]) {
    std::fs::write(file(tiny, name), bytes).unwrap();
}

const FILES: [&str; 4] = ["run.cose", "plan.cbor", "initial.safetensors", "tokens.bin"];

#[test]
fn every_file_must_be_there() {
    for name in FILES {
        let tiny = Tiny::new();
        std::fs::remove_file(file(&tiny, name)).unwrap();
        assert_refused(&tiny, name);
    }
}

#[test]
fn a_file_longer_than_any_of_its_kind_is_refused_unread() {
    for name in FILES {
        let tiny = Tiny::new();
        // A sparse file: reading it would take longer than any test may.
        std::fs::File::create(file(&tiny, name)).unwrap().set_len(1 << 42).unwrap();
        assert_refused(&tiny, "found 4398046511104 bytes");
    }
}

#[test]
fn every_byte_of_every_file_matters() {
    for name in FILES {
        let tiny = Tiny::new();
        let whole = bytes(&tiny, name);
        // Some 200 places of each file, the first and the last among them.
        for at in (0..whole.len()).step_by(whole.len() / 200 + 1).chain([whole.len() - 1]) {
            let mut flipped = whole.clone();
            flipped[at] ^= 1;
            put(&tiny, name, &flipped);
            // Spaces at the end of a safetensors header are no part of what it says.
            let unread = name == "initial.safetensors" && whole[at] == b' ';
            assert!(unread || Job::read(&tiny.job_folder()).is_err(), "{name}: byte {at}");
        }
    }
}

#[test]
fn every_truncation_of_a_file_is_refused() {
    for name in FILES {
        let tiny = Tiny::new();
        let whole = bytes(&tiny, name);
        for length in (0..whole.len()).step_by(whole.len() / 100 + 1).chain([whole.len() - 1]) {
            put(&tiny, name, &whole[..length]);
            refused(&tiny);
        }
        put(&tiny, name, &[whole, vec![0]].concat());
        refused(&tiny);
    }
}

#[test]
fn a_truncated_plan_is_refused_even_if_the_run_names_it() {
    let tiny = Tiny::new();
    let plan = bytes(&tiny, "plan.cbor");
    let cut = &plan[..plan.len() / 2];
    put(&tiny, "plan.cbor", cut);
    assert_refused(&tiny, &format!("plan.cbor: digest is {}", PlanDigest(digest("plan", &[cut]))));
    tiny.sign_run(&Run { plan: PlanDigest(digest("plan", &[cut])), ..tiny.run.clone() });
    assert_refused(&tiny, "plan.cbor: plan: not well-formed CBOR");
}

#[test]
fn a_statement_that_is_not_the_signed_run_is_refused() {
    let tiny = Tiny::new();
    let mut flipped = bytes(&tiny, "run.cose");
    *flipped.last_mut().unwrap() ^= 1;
    put(&tiny, "run.cose", &flipped);
    assert_refused(&tiny, "run.cose: statement: the signature is not");
    let output = {
        let tiny = Tiny::new();
        let output = tiny.run("out", 1, &[]);
        std::fs::read(output.folder.join("receipt-0.cose")).unwrap()
    };
    put(&tiny, "run.cose", &output);
    assert_refused(&tiny, "expected a run statement, found a receipt statement");
}

#[test]
fn a_run_of_another_profile_is_refused() {
    let tiny = Tiny::new();
    tiny.sign_run(&Run { profile: "bf16-mma-16x25".into(), ..tiny.run.clone() });
    assert_refused(&tiny, "this device computes f32-fma");
    tiny.sign_run(&Run { profile_digest: ProfileDigest([0; 32]), ..tiny.run.clone() });
    assert_refused(&tiny, &format!("profile is f32-fma ({})", "00".repeat(32)));
}

#[test]
fn what_run_and_plan_both_say_must_be_the_same() {
    let tiny = Tiny::new();
    let run = || tiny.run.clone();
    let cases = [
        (Run { config: ConfigDigest([1; 32]), ..run() }, "config digest"),
        (Run { dataset: Checksum([1; 32]), ..run() }, "data set checksum"),
        (Run { leaves: 8, ..run() }, "number of leaves is 4, the run statement says 8"),
        (Run { devices_max: 2, ..run() }, "devices_max is 4, the run statement says 2"),
        (Run { steps: 5, ..run() }, "number of steps is 4, the run statement says 5"),
    ];
    for (run, message) in cases {
        tiny.sign_run(&run);
        assert_refused(&tiny, message);
    }
    tiny.sign_run(&Run { state: StateDigest([1; 32]), ..run() });
    assert_refused(&tiny, "initial.safetensors: state digest is");
}

#[test]
fn tokens_are_as_many_and_as_small_as_the_plan_says() {
    let tiny = Tiny::new();
    let whole = bytes(&tiny, "tokens.bin");
    for length in [0, 1596, 1599, 1604] {
        let mut wrong = whole.clone();
        wrong.resize(length, 0);
        put(&tiny, "tokens.bin", &wrong);
        assert_refused(&tiny, &format!("expected 1600 bytes (400 tokens), found {length} bytes"));
    }
    let mut wrong = whole;
    wrong[400] ^= 1;
    put(&tiny, "tokens.bin", &wrong);
    assert_refused(&tiny, "tokens.bin: checksum is");
    // A data set that is the run's, with a token that the model has no row for.
    wrong[800..804].copy_from_slice(&40_u32.to_le_bytes());
    put(&tiny, "tokens.bin", &wrong);
    let words: Vec<u32> = wrong.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word)).collect();
    let mut plan: Plan = tiny.plan.clone();
    plan.data.dataset = device::checksum::checksum_u32(&words);
    put(&tiny, "plan.cbor", &plan.encode());
    tiny.sign_run(&Run { plan: plan.digest(), dataset: plan.data.dataset, ..tiny.run.clone() });
    assert_refused(&tiny, "tokens.bin: token 200 is 40, expected less than the vocabulary of 40");
}

/// The parts of the job's snapshot: header and data.
fn snapshot_parts(tiny: &Tiny) -> (Map<String, Value>, Vec<u8>) {
    let whole = bytes(tiny, "initial.safetensors");
    let length = u64::from_le_bytes(whole[..8].try_into().unwrap()) as usize;
    (serde_json::from_slice(&whole[8..8 + length]).unwrap(), whole[8 + length..].to_vec())
}

fn put_snapshot(tiny: &Tiny, header: &Map<String, Value>, data: &[u8]) {
    let mut text = serde_json::to_vec(header).unwrap();
    text.resize(text.len().next_multiple_of(8), b' ');
    let whole = [&(text.len() as u64).to_le_bytes()[..], &text, data].concat();
    put(tiny, "initial.safetensors", &whole);
}

#[test]
fn a_snapshot_has_every_tensor_of_the_plan_and_no_other() {
    let tiny = Tiny::new();
    let (header, data) = snapshot_parts(&tiny);
    let name = format!("adamw.v.{}", tiny.plan.parameters.last().unwrap().name);
    let [start, end] = [0, 1].map(|i| header[&name]["data_offsets"][i].as_u64().unwrap() as usize);
    assert_eq!(end, data.len(), "the last tensor is the last in the file");

    let mut less = header.clone();
    less.remove(&name);
    put_snapshot(&tiny, &less, &data[..start]);
    assert_refused(&tiny, &format!("initial.safetensors: expected tensor {name:?}, found none of that name"));

    let mut more = header.clone();
    more.insert("extra".into(), json!({"dtype": "F32", "shape": [1], "data_offsets": [end, end + 4]}));
    put_snapshot(&tiny, &more, &[data.clone(), vec![0; 4]].concat());
    assert_refused(&tiny, "initial.safetensors: expected no tensor \"extra\"");

    let mut renamed = header.clone();
    let entry = renamed.remove(&name).unwrap();
    renamed.insert("other".into(), entry);
    put_snapshot(&tiny, &renamed, &data);
    assert_refused(&tiny, &format!("expected tensor {name:?}"));
}

#[test]
fn a_snapshots_types_and_shapes_are_the_plans() {
    let tiny = Tiny::new();
    let (header, data) = snapshot_parts(&tiny);
    let name = tiny.plan.parameters[0].name.clone();
    let mut wrong = header.clone();
    wrong[&name]["dtype"] = json!("U32");
    put_snapshot(&tiny, &wrong, &data);
    assert_refused(&tiny, &format!("tensor {name:?}: expected F32 [40, 8], found U32 [40, 8]"));
    let mut wrong = header.clone();
    wrong[&name]["shape"] = json!([8, 40]);
    put_snapshot(&tiny, &wrong, &data);
    assert_refused(&tiny, "expected F32 [40, 8], found F32 [8, 40]");
    for step in [json!("1"), json!("00"), json!("")] {
        let mut wrong = header.clone();
        wrong["__metadata__"]["step"] = step;
        put_snapshot(&tiny, &wrong, &data);
        assert_refused(&tiny, "expected step \"0\" in the metadata");
    }
    let mut wrong = header.clone();
    wrong.remove("__metadata__");
    put_snapshot(&tiny, &wrong, &data);
    assert_refused(&tiny, "expected step \"0\" in the metadata, found None");
    put_snapshot(&tiny, &header, &data);
    tiny.job();
}

#[test]
fn hostile_snapshot_headers_are_refused() {
    let tiny = Tiny::new();
    let (header, data) = snapshot_parts(&tiny);
    for length in [0, 1, u64::MAX, 1 << 40, 7 << 20] {
        let whole = [&u64::to_le_bytes(length)[..], b"{}", &data].concat();
        put(&tiny, "initial.safetensors", &whole);
        assert_refused(&tiny, "initial.safetensors: not a safetensors file");
    }
    let name = tiny.plan.parameters[0].name.clone();
    for offsets in [json!([0, u64::MAX]), json!([8, 4]), json!([4, 1284]), json!([-1, 4])] {
        let mut wrong = header.clone();
        wrong[&name]["data_offsets"] = offsets;
        put_snapshot(&tiny, &wrong, &data);
        assert_refused(&tiny, "initial.safetensors: not a safetensors file");
    }
    let mut wrong = header.clone();
    wrong[&name]["shape"] = json!([u64::MAX, 8]);
    put_snapshot(&tiny, &wrong, &data);
    assert_refused(&tiny, "initial.safetensors: not a safetensors file");
}

#[test]
fn steps_and_devices_the_run_does_not_have_are_refused_and_nothing_is_written() {
    let tiny = Tiny::new();
    let refuse = |devices: u64, first: u64, end: u64, message: &str| {
        let mut request = tiny.request("out", devices, &[]);
        request.steps = Steps { first, end };
        let error = tiny.run_request(&request).err().unwrap();
        assert!(matches!(error, RunError::Job(_)) && error.to_string().contains(message), "{error}");
        assert!(!tiny.path("out").exists() && !tiny.path("keys").exists());
    };
    refuse(1, 0, STEPS + 1, "steps 0..5 are not within the run's steps 0..4");
    refuse(1, 2, 2, "steps 2..2 are not within");
    for devices in [0, 3, 8, 1 << 40] {
        refuse(devices, 0, STEPS, &format!("{devices} devices cannot share a step of this run"));
    }
}

#[test]
fn a_checkpoint_that_no_receipt_can_hold_is_refused() {
    let tiny = Tiny::new();
    for length in [0, (16 << 10) + 1] {
        let mut request = tiny.request("out", 1, &[]);
        request.checkpoint = vec![b'a'; length];
        let error = tiny.run_request(&request).err().unwrap().to_string();
        assert!(error.contains(&format!("1 to 16384 bytes of a checkpoint note, found {length}")), "{error}");
    }
    let mut request = tiny.request("out", 1, &[]);
    request.checkpoint = vec![b'a'; (16 << 10) - tiny::CHECKPOINT.len()];
    request.checkpoint.extend(tiny::CHECKPOINT);
    tiny.run_request(&request).unwrap();
}

#[test]
fn an_output_folder_in_use_is_left_as_it_is() {
    let tiny = Tiny::new();
    tiny.run("out", 1, &[]);
    let before = tiny::files(&tiny.path("out"));
    let error = tiny.run_request(&tiny.request("out", 2, &[])).err().unwrap().to_string();
    assert!(error.contains("expected a new or empty folder"), "{error}");
    assert_eq!(tiny::files(&tiny.path("out")), before);
}

#[test]
fn the_signer_of_the_run_is_named() {
    let tiny = Tiny::new();
    assert_eq!(tiny.job().signer, SecretKey::from_seed([1; 32]).public());
    let other = SecretKey::from_seed([2; 32]);
    put(&tiny, "run.cose", &Statement::sign(&Payload::Run(tiny.run.clone()), &other).unwrap());
    assert_eq!(tiny.job().signer, other.public());
}
