//! One, two and four devices: the same bits wherever they speak of the same thing, and those of the prediction.

mod tiny;

use device::checksum::{Coefficients, checksum_f32};
use schemas::challenge::chosen_step;
use schemas::fold::FoldKey;
use schemas::object::Object as _;
use schemas::receipt::Answer;
use schemas::run::Steps;
use schemas::trace::Trace;
use step::dispatch::Backend;
use step::session::Session;
use tiny::{LEAVES, Output, STEPS, Tiny, files};

#[test]
fn every_topology_gives_the_predicted_values() {
    let tiny = Tiny::new();
    let outputs = [1, 2, 4].map(|devices| tiny.run(&format!("out-{devices}"), devices, &[]));
    let session = Session::new(&tiny.plan, &tiny.tokens, Backend::SCALAR).unwrap();
    let mut state = tiny.state.clone();
    for now in 0..STEPS {
        let predicted = session.step(&mut state).unwrap();
        for output in &outputs {
            let devices = output.receipts.len() as u64;
            for rank in 0..devices {
                tiny.assert_record(output.record(rank as usize, now), &predicted, devices, rank);
            }
        }
    }
}

#[test]
fn the_answer_is_the_keyed_folds_of_the_chosen_step_on_every_device() {
    let tiny = Tiny::new();
    let steps = Steps { first: 0, end: STEPS };
    let chosen = chosen_step(tiny.challenge(), steps);
    let session = Session::new(&tiny.plan, &tiny.tokens, Backend::SCALAR).unwrap();
    let mut state = tiny.state.clone();
    let mut reduced = None;
    while state.step <= chosen {
        reduced = session.step(&mut state).unwrap().reduced;
    }
    let keyed = Coefficients::new(FoldKey::from(tiny.challenge()), tiny.plan.parameter_count());
    let expected = Answer {
        step: chosen,
        reduced: keyed.fold(&reduced.unwrap()),
        parameters: keyed.fold(&state.parameters),
    };
    for devices in [1, 4] {
        let output = tiny.run(&format!("out-{devices}"), devices, &[]);
        for rank in 0..devices as usize {
            assert_eq!(output.receipt(rank).answer, Some(expected));
        }
    }
    let mut request = tiny.request("other", 1, &[]);
    request.checkpoint = tiny::CHECKPOINT_BEFORE.to_vec();
    let other = tiny.run_request(&request).unwrap();
    assert_ne!(other.receipt(0).answer, Some(expected));
}

#[test]
fn receipts_say_what_was_run_and_are_signed_by_the_device() {
    let tiny = Tiny::new();
    let output = tiny.run("out", 2, &[]);
    for rank in 0..2 {
        let receipt = output.receipt(rank);
        assert_eq!((receipt.run, receipt.devices, receipt.rank), (tiny.run.id(), 2, rank as u64));
        assert_eq!(receipt.steps, Steps { first: 0, end: STEPS });
        assert_eq!(receipt.checkpoint, tiny::CHECKPOINT);
        assert!(receipt.simulated && !receipt.facts.name.is_empty());
        let key = std::fs::read_to_string(tiny.path(&format!("keys/device-{rank}.pub"))).unwrap();
        assert_eq!(format!("{}\n", output.summary.devices[rank].key), key);
        let bytes = std::fs::read(output.folder.join(format!("receipt-{rank}.cose"))).unwrap();
        let signer = schemas::statement::Statement::open(&bytes).unwrap().signer;
        assert_eq!(signer, output.summary.devices[rank].key);
        let body = &output.receipts[rank].as_ref().unwrap().1;
        assert_eq!((body.run, body.rank), (tiny.run.id(), rank as u64));
    }
}

#[test]
fn traces_are_kept_only_when_asked_for_and_have_the_roots_of_the_records() {
    let tiny = Tiny::new();
    let output = tiny.run("out", 2, &[]);
    let names = files(&output.folder);
    assert_eq!(names.iter().filter(|name| name.starts_with("traces/")).count() as u64, STEPS * LEAVES);
    for (rank, leaf) in (0..LEAVES).map(|leaf| (leaf / 2, leaf)) {
        for now in 0..STEPS {
            let name = format!("traces/rank-{rank}/step-{now:06}-leaf-{leaf:04}.cbor");
            let trace = Trace::decode(&std::fs::read(output.folder.join(name)).unwrap()).unwrap();
            assert_eq!((trace.step, trace.leaf, trace.folds.len()), (now, leaf, tiny.plan.taps().count()));
            assert_eq!(trace.root(), output.record(rank as usize, now).traces[leaf as usize % 2]);
        }
    }
    let mut request = tiny.request("bare", 2, &[]);
    request.traces = None;
    tiny.run_request(&request).unwrap();
    let expected = [
        "log.jsonl",
        "loss.svg",
        "receipt-0.body.cbor",
        "receipt-0.cose",
        "receipt-1.body.cbor",
        "receipt-1.cose",
    ];
    assert_eq!(files(&request.out), expected);
}

#[test]
fn some_steps_alone_have_the_records_of_the_whole_run() {
    let tiny = Tiny::new();
    let whole = tiny.run("whole", 2, &[]);
    let mut request = tiny.request("part", 2, &[]);
    request.steps = Steps { first: 1, end: 3 };
    let part = tiny.run_request(&request).unwrap();
    for rank in 0..2 {
        assert_eq!(part.records(rank), &whole.records(rank)[1..3]);
        assert_eq!(part.receipt(rank).steps, request.steps);
        let answer = part.receipt(rank).answer.unwrap();
        assert_eq!(answer.step, chosen_step(tiny.challenge(), request.steps));
    }
    assert!(
        files(&request.out).iter().all(|name| !name.contains("step-000000") && !name.contains("step-000003"))
    );
}

#[test]
fn two_runs_of_one_job_give_the_same_files() {
    let tiny = Tiny::new();
    let (one, other) = (tiny.run("one", 4, &[]), tiny.run("other", 4, &[]));
    let contents = |output: &Output| {
        let read = |name: &String| std::fs::read(output.folder.join(name)).unwrap();
        // The log says how long steps took.
        let names = files(&output.folder).into_iter().filter(|name| name != "log.jsonl");
        names.map(|name| read(&name)).collect::<Vec<_>>()
    };
    assert_eq!(contents(&one), contents(&other));
}

#[test]
fn the_devices_own_checksums_and_folds_are_those_of_the_oracle() {
    for count in [1_usize, 1023, 1024, 1025, 4096, 5000, 70_000] {
        let words: Vec<f32> =
            (0..count as u32).map(|i| f32::from_bits(i.wrapping_mul(2_654_435_761))).collect();
        let shape = [count as u64];
        assert_eq!(checksum_f32(&words), step::checksum::checksum_f32(&shape, &words));
        let key = FoldKey([3; 32]);
        let (mine, theirs) = (
            Coefficients::new(key, shape[0]),
            step::checksum::FoldTables::new(step::dispatch::Backend::detect(), key, count),
        );
        assert_eq!(mine.digest(&words).sum.fold, theirs.fold(&words).fold);
        assert_eq!(mine.digest(&words).finite, theirs.fold(&words).finite);
    }
}

#[test]
fn the_work_of_a_step_is_counted_from_the_plan() {
    let tiny = Tiny::new();
    let steps = Steps { first: 1, end: 3 };
    let needs = device::estimate::estimate(&tiny.plan, 2, steps);
    // 8 rows; weights of 8 x 24, 8 x 8, 8 x 32, 32 x 8 and the head's 8 x 40, each in three products; attention over
    // 8 x 9 / 2 pairs of 8 channels, two products forward and five backward.
    let products = 3 * 8 * (192 + 64 + 256 + 256 + 320);
    let leaf = products + 8 * 9 / 2 * 8 * (2 + 5);
    assert_eq!(
        (needs.step_fma, needs.run_fma),
        (4 * leaf, 3 * 4 * leaf),
        "steps before the first are run too"
    );
    assert_eq!((needs.leaves_per_device, needs.step_tokens), (2, 32));
    let words = tiny.plan.parameter_count();
    assert_eq!((needs.state_bytes, needs.step_link_bytes), (12 * words, 2 * 4 * words));
    assert_eq!(needs.trace_files, 8);
    let output = tiny.run("out", 2, &[]);
    let name = output.folder.join("traces/rank-0/step-000001-leaf-0000.cbor");
    let bytes = std::fs::metadata(name).unwrap().len();
    assert!(bytes <= needs.trace_bytes / needs.trace_files, "a trace of {bytes} bytes");
}
