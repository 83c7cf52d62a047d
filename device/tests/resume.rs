//! A run that is interrupted goes on from where it was, to the bits of one that was not; and only the same run does.

mod tiny;

use device::journal::JournalError;
use device::run::{Request, RunError};
use schemas::run::Steps;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use tiny::{Output, Tiny, files};

const STEPS: u64 = 8;

fn request(tiny: &Tiny, out: &str, devices: u64) -> Request {
    Request { snapshot_every: 2, ..tiny.request(out, devices, &[]) }
}

/// Runs a job until `steps` steps are finished, as if a signal came then.
fn interrupt(tiny: &Tiny, request: &Request, steps: u64) {
    request.stop.store(steps as usize, Ordering::Relaxed);
    let error = tiny.run_request(request).err().unwrap().to_string();
    request.stop.store(usize::MAX, Ordering::Relaxed);
    assert!(error.ends_with(&format!("was told to stop before step {steps}")), "{error}");
}

/// Receipts and traces: everything that anybody else will judge.
fn judged(output: &Output) -> Vec<(String, Vec<u8>)> {
    let names = files(&output.folder).into_iter().filter(|name| !name.starts_with("lo"));
    names.map(|name| (name.clone(), std::fs::read(output.folder.join(name)).unwrap())).collect()
}

fn work(request: &Request, rank: u64) -> PathBuf {
    request.out.join(format!("work/rank-{rank}"))
}

fn log(folder: &Path) -> Vec<(u64, String)> {
    let text = std::fs::read_to_string(folder.join("log.jsonl")).unwrap();
    let line = |line: &str| {
        let value: serde_json::Value = serde_json::from_str(line).unwrap();
        (value["step"].as_u64().unwrap(), value["loss"].to_string())
    };
    text.lines().map(line).collect()
}

#[test]
fn a_run_that_is_stopped_after_any_step_goes_on_to_the_same_bits() {
    let tiny = Tiny::of_steps(STEPS);
    for devices in [1, 2, 4] {
        let whole = tiny.run_request(&request(&tiny, &format!("whole-{devices}"), devices)).unwrap();
        for steps in 0..STEPS {
            let request = request(&tiny, &format!("out-{devices}-{steps}"), devices);
            interrupt(&tiny, &request, steps);
            assert!(!request.out.join("receipt-0.cose").exists());
            let resumed = tiny.run_request(&request).unwrap();
            assert_eq!(judged(&resumed), judged(&whole), "{devices} devices stopped after {steps} steps");
            assert_eq!(log(&request.out), log(&whole.folder));
            assert!(!request.out.join("work").exists());
        }
    }
}

#[test]
fn a_run_can_be_stopped_again_and_again_and_each_step_is_recorded_once() {
    let tiny = Tiny::of_steps(STEPS);
    let whole = tiny.run_request(&request(&tiny, "whole", 2)).unwrap();
    let request = request(&tiny, "out", 2);
    for steps in 1..STEPS {
        interrupt(&tiny, &request, steps);
    }
    let resumed = tiny.run_request(&request).unwrap();
    assert!(resumed.summary.resumed.unwrap() >= STEPS - 1, "what is finished is not computed again");
    assert_eq!(judged(&resumed), judged(&whole));
    assert_eq!(log(&request.out), log(&whole.folder));
}

#[test]
fn faults_and_invalid_steps_are_the_same_after_an_interruption() {
    let tiny = Tiny::of_steps(STEPS);
    let poison =
        format!("poison:device=1,step=6,leaf=2,operation={},element=0", tiny.plan.operations[1].name);
    for faults in [
        &["wrong-update:device=0,step=2,element=7,bit=3", "skipped-step:device=1,step=4"][..],
        &["wrong-update:device=1,step=3,element=1,bit=20", "silent:device=0"],
        &["skipped-update:device=1,step=1", "lying-receipt:device=0,step=1"],
        &[&poison],
    ] {
        let with = |out: &str| Request { snapshot_every: 2, ..tiny.request(out, 2, faults) };
        let whole = tiny.run_request(&with("whole")).unwrap();
        for steps in [2, 3, 5] {
            let request = with("out");
            interrupt(&tiny, &request, steps);
            let resumed = tiny.run_request(&request).unwrap();
            assert_eq!(judged(&resumed), judged(&whole), "{faults:?} stopped after {steps}");
            assert_eq!(resumed.summary.invalid, whole.summary.invalid);
            std::fs::remove_dir_all(&request.out).unwrap();
        }
        std::fs::remove_dir_all(&whole.folder).unwrap();
    }
}

#[test]
fn a_run_is_gone_on_with_only_as_it_was_begun() {
    let tiny = Tiny::of_steps(STEPS);
    let begun = request(&tiny, "out", 2);
    interrupt(&tiny, &begun, 3);
    let other = |change: &dyn Fn(&mut Request)| {
        let mut request = request(&tiny, "out", 2);
        change(&mut request);
        match tiny.run_request(&request) {
            Err(RunError::Journal(error @ JournalError::Differs { .. })) => error.to_string(),
            other => panic!("{:?}", other.map(|output| output.summary)),
        }
    };
    for (what, change) in [
        (
            "challenge",
            &(|request: &mut Request| request.checkpoint = tiny::CHECKPOINT_BEFORE.to_vec())
                as &dyn Fn(&mut Request),
        ),
        ("devices 2, expected 4", &|request| request.devices = 4),
        ("steps 0..8, expected 1..8", &|request| request.steps = Steps { first: 1, end: STEPS }),
        ("key ed25519:", &|request| request.keys = tiny.path("other-keys")),
        ("traces all, expected none", &|request| request.traces = None),
        ("traces all, expected of the last 2 steps", &|request| request.traces = Some(2)),
        ("faults , expected silent:device=0", &|request| request.faults = vec!["silent:device=0".into()]),
    ] {
        let error = other(change);
        assert!(error.contains(&format!("work/rank-0: it was begun with {what}")), "{error}");
    }
    // How often a snapshot is written changes no bit.
    let mut seldom = request(&tiny, "out", 2);
    seldom.snapshot_every = 0;
    let whole = tiny.run_request(&request(&tiny, "whole", 2)).unwrap();
    assert_eq!(judged(&tiny.run_request(&seldom).unwrap()), judged(&whole));
}

#[test]
fn another_job_does_not_go_on_with_a_run() {
    let (tiny, other) = (Tiny::of_steps(STEPS), Tiny::of_steps(STEPS + 1));
    interrupt(&tiny, &request(&tiny, "out", 2), 3);
    let mut request = request(&other, "out", 2);
    request.out = tiny.path("out");
    request.steps.end = STEPS;
    let error = other.run_request(&request).err().unwrap().to_string();
    assert!(error.contains("it was begun with run "), "{error}");
}

#[test]
fn two_processes_do_not_work_in_one_folder() {
    let tiny = Tiny::of_steps(STEPS);
    let request = request(&tiny, "out", 2);
    interrupt(&tiny, &request, 3);
    let lock = std::fs::File::open(work(&request, 1).join("lock")).unwrap();
    lock.try_lock().unwrap();
    let error = tiny.run_request(&request).err().unwrap();
    assert!(
        matches!(&error, RunError::Journal(JournalError::Busy { path }) if path.ends_with("rank-1")),
        "{error}"
    );
    drop(lock);
    tiny.run_request(&request).unwrap();
}

#[test]
fn a_damaged_snapshot_is_told_from_a_whole_one_and_an_earlier_one_taken() {
    let tiny = Tiny::of_steps(STEPS);
    let whole = tiny.run_request(&request(&tiny, "whole", 2)).unwrap();
    for (number, damage) in [
        &(|path: &Path| std::fs::remove_file(path).unwrap()) as &dyn Fn(&Path),
        &|path| std::fs::remove_file(path.with_extension("digest")).unwrap(),
        &|path| change(path, |bytes| bytes.truncate(bytes.len() / 2)),
        &|path| change(path, |bytes| *bytes.last_mut().unwrap() ^= 1),
        &|path| change(path, |bytes| bytes.push(0)),
        &|path| change(path, |bytes| bytes[0] = 0xff),
        &|path| std::fs::write(path, b"").unwrap(),
        &|path| change(&path.with_extension("digest"), |bytes| bytes[0] ^= 1),
    ]
    .into_iter()
    .enumerate()
    {
        let request = request(&tiny, &format!("out-{number}"), 2);
        interrupt(&tiny, &request, 6);
        let snapshots = files(&work(&request, 0).join("snapshots"));
        assert!(snapshots.contains(&"step-000006.safetensors".to_owned()), "{snapshots:?}");
        damage(&work(&request, 0).join("snapshots/step-000006.safetensors"));
        let resumed = tiny.run_request(&request).unwrap();
        assert_eq!(resumed.summary.resumed, Some(4), "damage {number}");
        assert!(
            resumed.summary.notes.iter().any(|note| note.contains("step-000006")),
            "{:?}",
            resumed.summary.notes
        );
        assert_eq!(judged(&resumed), judged(&whole), "damage {number}");
    }
}

#[test]
fn a_snapshot_of_another_state_with_its_own_digest_is_not_taken() {
    let tiny = Tiny::of_steps(STEPS);
    let faulty = Request {
        snapshot_every: 2,
        ..tiny.request("faulty", 2, &["wrong-update:device=0,step=3,element=7,bit=3"])
    };
    interrupt(&tiny, &faulty, 4);
    let request = request(&tiny, "out", 2);
    interrupt(&tiny, &request, 4);
    for ending in ["safetensors", "digest"] {
        let name = format!("snapshots/step-000004.{ending}");
        std::fs::copy(work(&faulty, 0).join(&name), work(&request, 0).join(&name)).unwrap();
    }
    let resumed = tiny.run_request(&request).unwrap();
    assert!(resumed.summary.notes[0].contains("of the record before it"), "{:?}", resumed.summary.notes);
    assert_eq!(judged(&resumed), judged(&tiny.run_request(&self::request(&tiny, "whole", 2)).unwrap()));
}

#[test]
fn damaged_records_are_computed_again() {
    let tiny = Tiny::of_steps(STEPS);
    let whole = tiny.run_request(&request(&tiny, "whole", 2)).unwrap();
    for (number, at) in [0, 1, 2, 3, 4].into_iter().enumerate() {
        let request = request(&tiny, &format!("out-{number}"), 2);
        interrupt(&tiny, &request, 6);
        change(&work(&request, 1).join("records"), |bytes| {
            let place = at * (bytes.len() - 1) / 4;
            bytes[place] ^= 0x10;
        });
        let resumed = tiny.run_request(&request).unwrap();
        assert!(resumed.summary.resumed.unwrap() < 6);
        assert!(resumed.summary.notes.iter().any(|note| note.contains("rank-1/records")));
        assert_eq!(judged(&resumed), judged(&whole), "damage {number}");
    }
}

#[test]
fn what_a_run_was_begun_for_has_to_be_readable() {
    let tiny = Tiny::of_steps(STEPS);
    let request = request(&tiny, "out", 1);
    interrupt(&tiny, &request, 3);
    let file = work(&request, 0).join("request.json");
    change(&file, |bytes| bytes.truncate(30));
    let error = tiny.run_request(&request).err().unwrap();
    assert!(matches!(error, RunError::Journal(JournalError::Unreadable { .. })), "{error}");
    // Without it, records might be of another request and answer another challenge.
    std::fs::remove_file(&file).unwrap();
    let error = tiny.run_request(&request).err().unwrap();
    assert!(error.to_string().contains("records beside it"), "{error}");
    assert!(!file.exists());
}

#[test]
fn a_run_does_not_go_on_with_other_kernels_than_its_receipt_will_name() {
    let tiny = Tiny::of_steps(STEPS);
    let request = request(&tiny, "out", 1);
    interrupt(&tiny, &request, 3);
    let file = work(&request, 0).join("request.json");
    let begun = std::fs::read_to_string(&file).unwrap();
    let kernels = concat!("simulated ", env!("CARGO_PKG_VERSION"));
    assert!(begun.contains(kernels), "{begun}");
    std::fs::write(&file, begun.replace(kernels, "simulated 0.0.0")).unwrap();
    let error = tiny.run_request(&request).err().unwrap();
    assert!(error.to_string().contains("begun with kernels simulated 0.0.0"), "{error}");
}

#[test]
fn the_last_two_snapshots_and_the_last_traces_are_kept_and_no_others() {
    let tiny = Tiny::of_steps(STEPS);
    let mut request = request(&tiny, "out", 2);
    request.traces = Some(3);
    interrupt(&tiny, &request, 7);
    let kept = files(&work(&request, 0));
    let snapshots: Vec<&String> = kept.iter().filter(|name| name.ends_with(".safetensors")).collect();
    assert!(
        snapshots.len() <= 3 && snapshots.contains(&&"snapshots/step-000006.safetensors".to_owned()),
        "{kept:?}"
    );
    assert_eq!(kept.iter().filter(|name| name.starts_with("traces/")).count(), 3 * 2, "{kept:?}");
    let resumed = tiny.run_request(&request).unwrap();
    let traces: Vec<String> =
        files(&resumed.folder).into_iter().filter(|name| name.starts_with("traces/")).collect();
    assert_eq!(traces.len() as u64, 3 * tiny::LEAVES);
    assert!(
        traces.iter().all(|name| (5..8).any(|step| name.contains(&format!("step-{step:06}")))),
        "{traces:?}"
    );
}

#[test]
fn a_run_that_was_ended_while_it_handed_in_hands_in_the_same() {
    let tiny = Tiny::of_steps(STEPS);
    let whole = tiny.run_request(&request(&tiny, "whole", 2)).unwrap();
    // Everything is finished, and a receipt cannot be put in its place.
    let request = request(&tiny, "out", 2);
    std::fs::create_dir_all(request.out.join("receipt-1.cose/in-the-way")).unwrap();
    std::fs::create_dir_all(work(&request, 1)).unwrap();
    let error = tiny.run_request(&request).err().unwrap();
    assert!(matches!(error, RunError::Staging(_)), "{error}");
    assert!(request.out.join("receipt-0.cose").exists() && work(&request, 0).exists());
    std::fs::remove_dir_all(request.out.join("receipt-1.cose")).unwrap();
    let resumed = tiny.run_request(&request).unwrap();
    assert_eq!(resumed.summary.resumed, Some(STEPS), "nothing is computed again");
    assert_eq!(judged(&resumed), judged(&whole));
}

#[test]
fn a_snapshot_has_the_bytes_that_the_oracle_writes() {
    let tiny = Tiny::new();
    let mine = device::snapshot::State {
        parameters: tiny.state.parameters.to_vec(),
        first_moment: tiny.state.parameters.iter().map(|word| word * 0.5).collect(),
        second_moment: tiny.state.parameters.iter().map(|word| word * word).collect(),
    };
    for step in [0, 7, 1_000_000] {
        let theirs = step::state::State {
            step,
            parameters: mine.parameters.to_vec().into(),
            first_moment: mine.first_moment.to_vec().into(),
            second_moment: mine.second_moment.to_vec().into(),
        };
        let path = tiny.path("theirs.safetensors");
        step::snapshot::write(&path, &tiny.plan.parameters, &theirs).unwrap();
        let mut bytes = Vec::new();
        device::snapshot::write(&mut bytes, &tiny.plan, step, &mine).unwrap();
        assert_eq!(bytes, std::fs::read(&path).unwrap(), "step {step}");
        let back = device::snapshot::read(&bytes, &tiny.plan, step).unwrap();
        assert_eq!(back.digest(step), mine.digest(step));
        assert!(device::snapshot::read(&bytes, &tiny.plan, step + 1).is_err());
    }
}

fn change(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = std::fs::read(path).unwrap();
    change(&mut bytes);
    std::fs::write(path, bytes).unwrap();
}

/// What is done to a trace's file.
type Damage = fn(&Path);

const DAMAGES: [(&str, Damage); 4] = [
    ("No such file", |path| std::fs::remove_file(path).unwrap()),
    ("expected a trace: ", |path| std::fs::write(path, b"").unwrap()),
    ("expected the trace with root ", |path| {
        let mut bytes = std::fs::read(path).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        std::fs::write(path, bytes).unwrap();
    }),
    ("expected the trace with root ", |path| {
        let other = path.to_str().unwrap().replace("-leaf-0003", "-leaf-0002");
        std::fs::copy(other, path).unwrap();
    }),
];

#[test]
fn a_trace_that_was_lost_or_damaged_is_computed_again_from_a_snapshot_before_it() {
    let tiny = Tiny::of_steps(STEPS);
    let whole = tiny.run_request(&request(&tiny, "whole", 2)).unwrap();
    // With a snapshot before steps 2, 4, 6 and 7, of which the last regular two are kept.
    for (number, ((said, damage), (step, start))) in
        DAMAGES.iter().flat_map(|damage| [(6, 6), (5, 4), (3, 0)].map(|at| (damage, at))).enumerate()
    {
        let request = request(&tiny, &format!("out-{number}"), 2);
        interrupt(&tiny, &request, 7);
        let path = work(&request, 1).join(format!("traces/step-{step:06}-leaf-0003.cbor"));
        damage(&path);
        let resumed = tiny.run_request(&request).unwrap();
        assert_eq!(resumed.summary.resumed, Some(start), "{said}, step {step}");
        let [note] = &resumed.summary.notes[..] else { panic!("{:?}", resumed.summary.notes) };
        assert!(note.starts_with(&format!("{}: {said}", path.display())), "{note}");
        assert_eq!(judged(&resumed), judged(&whole), "{said}, step {step}");
    }
}

#[test]
fn only_traces_that_are_handed_in_are_looked_for() {
    let tiny = Tiny::of_steps(STEPS);
    for (kept, faults, step) in [(Some(3), "", 4), (None, "", 6), (Some(u64::MAX), "silent:device=1", 6)] {
        let faults: Vec<&str> = [faults].into_iter().filter(|fault| !fault.is_empty()).collect();
        let request = Request { traces: kept, snapshot_every: 2, ..tiny.request("out", 2, &faults) };
        interrupt(&tiny, &request, 7);
        let path = work(&request, 1).join(format!("traces/step-{step:06}-leaf-0003.cbor"));
        // Of the last three of eight steps, the fifth of the first seven is not one.
        let _ = std::fs::remove_file(path);
        let resumed = tiny.run_request(&request).unwrap();
        assert_eq!((resumed.summary.resumed, resumed.summary.notes.len()), (Some(7), 0), "{kept:?}");
        std::fs::remove_dir_all(&request.out).unwrap();
    }
}

#[test]
fn traces_of_a_finished_run_are_looked_for_until_they_are_handed_in() {
    let tiny = Tiny::of_steps(STEPS);
    let whole = tiny.run_request(&request(&tiny, "whole", 2)).unwrap();
    // Something in the way of the traces' place, and then of a receipt's: all steps are finished.
    for (blocked, lost, start) in
        [("traces", true, 6), ("traces", false, STEPS), ("receipt-0.cose", false, STEPS)]
    {
        let request = request(&tiny, "out", 2);
        let place = request.out.join(blocked);
        if blocked == "traces" {
            std::fs::create_dir_all(&request.out).unwrap();
            std::fs::write(&place, b"").unwrap();
        } else {
            interrupt(&tiny, &request, 1);
            std::fs::create_dir(&place).unwrap();
        }
        assert!(matches!(tiny.run_request(&request), Err(RunError::Staging(_))));
        if blocked == "traces" { std::fs::remove_file(&place) } else { std::fs::remove_dir(&place) }.unwrap();
        if lost {
            std::fs::remove_file(work(&request, 0).join("traces/step-000007-leaf-0001.cbor")).unwrap();
        }
        let resumed = tiny.run_request(&request).unwrap();
        assert_eq!(resumed.summary.resumed, Some(start), "{blocked}");
        assert_eq!(resumed.summary.notes.len(), usize::from(lost));
        assert_eq!(judged(&resumed), judged(&whole));
        std::fs::remove_dir_all(&request.out).unwrap();
    }
}
