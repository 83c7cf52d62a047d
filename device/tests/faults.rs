//! Each fault changes exactly the fields of the records that it should, and no other.

mod tiny;

use device::fault::FORMS;
use schemas::object::Object as _;
use schemas::plan::Kind;
use schemas::record::NonFinite;
use schemas::trace::Trace;
use step::dispatch::Backend;
use step::session::Session;
use tiny::{Output, STEPS, Tiny, changes, files};

const AT: u64 = 1;

/// The changes of every rank's record of the fault's step; steps before it are unchanged.
fn changed(clean: &Output, faulty: &Output) -> Vec<Vec<String>> {
    let ranks = 0..clean.receipts.len();
    for rank in ranks.clone() {
        assert_eq!(faulty.record(rank, 0), clean.record(rank, 0), "rank {rank}: before the fault");
    }
    ranks.map(|rank| changes(clean.record(rank, AT), faulty.record(rank, AT))).collect()
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// Runs a fault and compares with an honest run; `expected` has the changed fields of each rank.
fn check(devices: u64, faults: &[&str], expected: &[&str]) -> (Tiny, Output, Output) {
    let tiny = Tiny::new();
    let clean = tiny.run("clean", devices, &[]);
    let faulty = tiny.run("faulty", devices, faults);
    let expected: Vec<Vec<String>> = expected.iter().map(|fields| words(fields)).collect();
    assert_eq!(changed(&clean, &faulty), expected, "{faults:?}");
    (tiny, clean, faulty)
}

/// The first place where traces of a leaf differ.
fn first_difference(clean: &Output, faulty: &Output, rank: u64, leaf: u64) -> Option<usize> {
    let read = |output: &Output| {
        let name = format!("traces/rank-{rank}/step-{AT:06}-leaf-{leaf:04}.cbor");
        Trace::decode(&std::fs::read(output.folder.join(name)).unwrap()).unwrap()
    };
    read(clean).folds.iter().zip(&read(faulty).folds).position(|(one, other)| one != other)
}

/// The tap of an operation's output.
fn tap_of(tiny: &Tiny, operation: &str, output: usize) -> usize {
    let index = tiny.plan.operations.iter().position(|o| o.name == operation).unwrap();
    tiny.plan.operations[..index].iter().map(|o| o.outputs.len()).sum::<usize>() + output
}

/// The name of the plan's first operation of a kind.
fn operation(tiny: &Tiny, kind: Kind) -> String {
    tiny.plan.operations.iter().find(|operation| operation.kind == kind).unwrap().name.clone()
}

#[test]
fn a_bit_flip_in_the_forward_pass_is_inherited_by_everything_after() {
    let tiny = Tiny::new();
    let name = operation(&tiny, Kind::Attention);
    let fault = format!("bit-flip:device=1,step=1,leaf=3,operation={name},element=17,bit=22");
    let after = "sum0 reduced norm parameters first second";
    let expected = [format!("received0 {after}"), format!("trace1 loss1 partial {after}")];
    let (tiny, clean, faulty) = check(2, &[&fault], &expected.each_ref().map(String::as_str));
    assert_eq!(first_difference(&clean, &faulty, 1, 3), Some(tap_of(&tiny, &name, 0)));
    assert_eq!(first_difference(&clean, &faulty, 1, 2), None);
}

#[test]
fn a_bit_flip_in_the_backward_pass_leaves_the_loss_alone() {
    let tiny = Tiny::new();
    let name = operation(&tiny, Kind::LayernormBackward);
    // Output 1 is the gradient of a gain: nothing else of the leaf reads it.
    let fault = format!("bit-flip:device=0,step=1,leaf=0,operation={name},output=1,element=3,bit=25");
    let after = "sum0 reduced norm parameters first second";
    let expected = [format!("trace0 partial {after}"), format!("received0 {after}")];
    let (tiny, clean, faulty) = check(2, &[&fault], &expected.each_ref().map(String::as_str));
    assert_eq!(first_difference(&clean, &faulty, 0, 0), Some(tap_of(&tiny, &name, 1)));
}

#[test]
fn a_wrong_partial_is_sent_and_reduced() {
    let after = "sum0 reduced norm parameters first second";
    let expected = [format!("received0 {after}"), format!("partial {after}")];
    check(
        2,
        &["wrong-partial:device=1,step=1,element=1000,bit=25"],
        &expected.each_ref().map(String::as_str),
    );
    check(
        1,
        &["wrong-partial:device=0,step=1,element=5,bit=25"],
        &["partial reduced norm parameters first second"],
    );
}

#[test]
fn a_corrupted_link_shows_at_its_receiver_alone() {
    let after = "reduced norm parameters first second";
    let receiver = format!("received0 sum0 {after}");
    check(2, &["corrupted-link:device=0,step=1,element=1000,bit=25"], &[&receiver, ""]);
    let receiver = format!("received1 sum1 {after}");
    check(4, &["corrupted-link:device=2,step=1,level=1,element=0,bit=25"], &["", "", &receiver, ""]);
}

#[test]
fn a_corruption_at_the_first_level_reaches_the_partner_at_the_second() {
    let after = "reduced norm parameters first second";
    check(
        4,
        &["corrupted-link:device=3,step=1,element=7,bit=25"],
        &["", &format!("received1 sum1 {after}"), "", &format!("received0 sum0 sum1 {after}")],
    );
}

#[test]
fn a_wrong_reduction_has_the_right_inputs() {
    let after = "reduced norm parameters first second";
    check(2, &["wrong-reduction:device=1,step=1,element=1000,bit=25"], &["", &format!("sum0 {after}")]);
    check(
        4,
        &["wrong-reduction:device=0,step=1,level=0,element=1000,bit=25"],
        &[&format!("sum0 sum1 {after}"), "", &format!("received1 sum1 {after}"), ""],
    );
}

#[test]
fn a_wrong_reduction_is_at_its_own_level_alone() {
    let expected = "sum1 reduced norm parameters first second";
    let fault = "wrong-reduction:device=3,step=1,level=1,element=1000,bit=25";
    check(4, &[fault], &["", "", "", expected]);
}

#[test]
fn the_step_after_a_skipped_update_has_its_own_constants() {
    let tiny = Tiny::new();
    let session = Session::new(&tiny.plan, &tiny.tokens, Backend::SCALAR).unwrap();
    let mut state = tiny.state.clone();
    session.step(&mut state).unwrap();
    state.step = 2;
    let expected = session.step(&mut state).unwrap().record.outcome.unwrap().parameters;
    let faulty = tiny.run("faulty", 1, &["skipped-update:device=0,step=1"]);
    assert_eq!(faulty.record(0, 2).outcome.as_ref().unwrap().parameters.checksum, expected);
}

#[test]
fn a_wrong_update_changes_the_parameters_alone() {
    let (_, clean, faulty) =
        check(2, &["wrong-update:device=1,step=1,element=1000,bit=20"], &["", "parameters"]);
    // Its next leaves start from there.
    assert!(changes(clean.record(1, 2), faulty.record(1, 2)).contains(&"trace0".to_owned()));
    assert!(!changes(clean.record(0, 2), faulty.record(0, 2)).contains(&"trace0".to_owned()));
}

#[test]
fn a_skipped_update_leaves_the_state_before_the_step_and_says_so() {
    let (_, clean, faulty) = check(2, &["skipped-update:device=1,step=1"], &["", "parameters first second"]);
    let (before, found) = (clean.record(1, 0), faulty.record(1, AT));
    let (before, found) = (before.outcome.as_ref().unwrap(), found.outcome.as_ref().unwrap());
    assert_eq!(found.parameters, before.parameters);
    assert_eq!((found.first_moment, found.second_moment), (before.first_moment, before.second_moment));
}

#[test]
fn a_skipped_step_is_missing_and_everything_else_is_true() {
    let tiny = Tiny::new();
    let clean = tiny.run("clean", 2, &[]);
    let faulty = tiny.run("faulty", 2, &["skipped-step:device=1,step=1"]);
    assert_eq!(faulty.records(0), clean.records(0));
    let mut expected = clean.records(1).to_vec();
    expected.remove(1);
    assert_eq!(faulty.records(1), expected);
    assert_eq!(faulty.receipt(1).answer, clean.receipt(1).answer);
}

#[test]
fn a_lying_receipt_lies_about_one_step_and_misleads_no_peer() {
    let fault = ["lying-receipt:device=1,step=1"];
    let (_, clean, faulty) = check(2, &fault, &["", "trace0 trace1 loss0 loss1 partial"]);
    for now in 2..STEPS {
        assert_eq!(faulty.record(0, now), clean.record(0, now));
        assert_eq!(faulty.record(1, now), clean.record(1, now));
    }
}

#[test]
fn a_silent_device_hands_in_nothing_and_the_others_everything() {
    let tiny = Tiny::new();
    let clean = tiny.run("clean", 2, &[]);
    let faulty = tiny.run("faulty", 2, &["silent:device=1"]);
    assert_eq!(faulty.records(0), clean.records(0));
    assert!(faulty.receipts[1].is_none() && faulty.summary.devices[1].entry.is_none());
    assert!(files(&faulty.folder).iter().all(|name| !name.contains("-1")), "{:?}", files(&faulty.folder));
}

#[test]
fn a_replayed_receipt_is_the_old_one_byte_for_byte() {
    let tiny = Tiny::new();
    let mut request = tiny.request("old", 2, &[]);
    request.checkpoint = tiny::CHECKPOINT_BEFORE.to_vec();
    tiny.run_request(&request).unwrap();
    let fault = format!("replayed-receipt:device=1,receipt={}", tiny.path("old/receipt-1.cose").display());
    let output = tiny.run("new", 2, &[&fault]);
    for name in ["receipt-1.cose", "receipt-1.body.cbor"] {
        let read = |folder: &str| std::fs::read(tiny.path(folder).join(name)).unwrap();
        assert_eq!(read("new"), read("old"), "{name}");
    }
    assert_eq!(output.receipt(0).checkpoint, tiny::CHECKPOINT);
    assert_eq!(output.receipt(1).checkpoint, tiny::CHECKPOINT_BEFORE);
    let bytes = std::fs::read(tiny.path("old/receipt-1.cose")).unwrap();
    assert_eq!(output.summary.devices[1].entry, Some(schemas::digest::EntryDigest::of(&bytes)));
}

#[test]
fn a_poisoned_leaf_ends_every_devices_run_at_the_same_place() {
    let tiny = Tiny::new();
    let name = operation(&tiny, Kind::Attention);
    let fault = format!("poison:device=1,step=1,leaf=2,operation={name},element=5");
    let clean = tiny.run("clean", 2, &[]);
    let faulty = tiny.run("faulty", 2, &[&fault]);
    let tap = tap_of(&tiny, &name, 0);
    let changes = changed(&clean, &faulty);
    assert_eq!(changes, [words("outcome non_finite"), words("trace0 loss0 outcome non_finite")]);
    for rank in 0..2 {
        assert_eq!(faulty.records(rank).len(), 2, "records end at the invalid step");
        let at = Some(NonFinite::Tap { leaf: 2, tap: tap as u64 });
        assert_eq!(faulty.record(rank, AT).non_finite, at);
    }
    assert_eq!(faulty.record(1, AT).losses[0], 0x7fc0_0000);
    let trace = std::fs::read(faulty.folder.join("traces/rank-1/step-000001-leaf-0002.cbor")).unwrap();
    assert_eq!(Trace::decode(&trace).unwrap().folds.len(), tap + 1);
    let invalid = faulty.summary.invalid.unwrap();
    assert_eq!((invalid.step, invalid.rank), (1, 0));
}

#[test]
fn of_several_poisoned_leaves_all_devices_name_the_lowest() {
    let tiny = Tiny::new();
    let late = operation(&tiny, Kind::GeluBackward);
    let early = operation(&tiny, Kind::Embedding);
    let poison = |device: u64, leaf: u64, name: &str| {
        format!("poison:device={device},step=1,leaf={leaf},operation={name},element=0")
    };
    let faults = [poison(3, 3, &early), poison(1, 1, &late), poison(2, 2, &early)];
    let faulty = tiny.run("faulty", 4, &faults.each_ref().map(String::as_str));
    for rank in 0..4 {
        let tap = tap_of(&tiny, &late, 0) as u64;
        assert_eq!(faulty.record(rank, AT).non_finite, Some(NonFinite::Tap { leaf: 1, tap }));
        assert_eq!(faulty.records(rank).len(), 2);
    }
}

#[test]
fn a_device_whose_update_is_not_finite_ends_and_the_others_end_after_it() {
    let tiny = Tiny::new();
    let session = Session::new(&tiny.plan, &tiny.tokens, Backend::SCALAR).unwrap();
    let mut state = tiny.state.clone();
    (0..=AT).for_each(|_| drop(session.step(&mut state).unwrap()));
    // Bit 30 of a number in [1, 2) makes it an infinity or a NaN.
    let element = state.parameters.iter().position(|p| p.to_bits() >> 23 == 127).unwrap();
    let fault = format!("wrong-update:device=2,step=1,element={element},bit=30");
    let faulty = tiny.run("faulty", 4, &[&fault]);
    for rank in 0..4 {
        let records = faulty.records(rank);
        assert_eq!(records.len(), 2, "rank {rank}: no record after the step that ended device 2");
        let at = (rank == 2).then_some(NonFinite::Update { stage: 2 });
        assert_eq!(records[1].non_finite, at);
        assert!(records[1].outcome.is_some());
    }
    assert_eq!(faulty.summary.invalid.unwrap().rank, 2);
}

#[test]
fn a_gradient_with_a_nan_has_a_whole_record_and_ends_the_run() {
    let tiny = Tiny::new();
    let session = Session::new(&tiny.plan, &tiny.tokens, Backend::SCALAR).unwrap();
    let mut state = tiny.state.clone();
    let [_, reduced] = [0, AT].map(|_| session.step(&mut state).unwrap().reduced.unwrap());
    // One device's partial is the root, four times the reduced gradient. Every 0 bit of the exponent is flipped.
    let element = 100;
    let bits = (reduced[element] * 4.0).to_bits();
    assert!(bits & 0x007f_ffff != 0, "with a fraction of 0 it would become an infinity");
    let flips: Vec<String> = (23..31)
        .filter(|bit| bits >> bit & 1 == 0)
        .map(|bit| format!("wrong-partial:device=0,step=1,element={element},bit={bit}"))
        .collect();
    let output = tiny.run("faulty", 1, &flips.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(output.records(0).len(), 2);
    let record = output.record(0, AT);
    assert_eq!(record.non_finite, Some(NonFinite::Update { stage: 0 }));
    assert_eq!(record.outcome.as_ref().unwrap().norm, 0x7fc0_0000);
}

#[test]
fn an_answer_is_absent_where_the_run_ended_before_its_step() {
    let tiny = Tiny::new();
    let name = operation(&tiny, Kind::Attention);
    let fault = format!("poison:device=0,step=0,leaf=0,operation={name},element=5");
    let faulty = tiny.run("faulty", 2, &[&fault]);
    assert!((0..2).all(|rank| faulty.receipt(rank).answer.is_none() && faulty.records(rank).len() == 1));
}

#[test]
fn a_fault_that_cannot_be_is_refused_with_what_there_is() {
    let tiny = Tiny::new();
    let good = operation(&tiny, Kind::Attention);
    let flip = |changes: &[(&str, &str)]| {
        let mut keys = vec![
            ("device", "1"),
            ("step", "1"),
            ("leaf", "2"),
            ("operation", good.as_str()),
            ("element", "0"),
            ("bit", "0"),
        ];
        for (key, value) in changes {
            keys.retain(|(one, _)| one != key);
            keys.push((key, value));
        }
        let pairs: Vec<String> = keys.iter().map(|(key, value)| format!("{key}={value}")).collect();
        format!("bit-flip:{}", pairs.join(","))
    };
    let window = &tiny.plan.operations[0].name;
    let count = tiny.plan.parameter_count();
    let partial = |element: &str| format!("wrong-partial:device=0,step=1,element={element},bit=0");
    let cases = [
        ("bitflip:device=1".to_owned(), "wrong-partial, sent-flip, corrupted-link"),
        ("silent".to_owned(), "expected device=..., as in silent:device=1"),
        ("silent:device=2".to_owned(), "device 0 to 1 (2 devices), found 2"),
        ("silent:device=-1".to_owned(), "device 0 to 1 (2 devices), found -1"),
        ("silent:device=1,device=1".to_owned(), "each of device once"),
        ("silent:device=1,step=1".to_owned(), "each of device once, found \"step\""),
        ("silent:device".to_owned(), "key=value"),
        ("replayed-receipt:device=1,receipt=a.txt".to_owned(), "receipt=FILE.cose"),
        ("skipped-step:device=1,step=4".to_owned(), "step 0 to 3 (steps 0..4), found 4"),
        ("corrupted-link:device=0,step=1,level=1,element=0,bit=0".to_owned(), "level 0 to 0 (2 devices"),
        (partial(&count.to_string()), "parameters)"),
        (partial("x"), "found x"),
        ("wrong-partial:device=0,step=1,element=0,bit=32".to_owned(), "bit 0 to 31"),
        (flip(&[("leaf", "1")]), "leaf 2 to 3 (device 1's leaves), found 1"),
        (flip(&[("leaf", "4")]), "leaf 2 to 3 (device 1's leaves), found 4"),
        (flip(&[("operation", "attention")]), good.as_str()),
        (flip(&[("operation", "nonsense")]), good.as_str()),
        (flip(&[("output", "3")]), "output 0 to 2"),
        (flip(&[("element", "64")]), "element 0 to 63"),
        (flip(&[("operation", window)]), "f32"),
        (flip(&[("bit", "")]), "bit 0 to 31"),
    ];
    for (fault, message) in cases {
        let error = tiny.run_request(&tiny.request("out", 2, &[&fault])).err().unwrap().to_string();
        assert!(error.starts_with(&format!("fault {fault:?}: expected ")), "{error}");
        assert!(error.contains(message), "{error}\nshould contain {message}");
        assert!(!tiny.path("out").exists() && !tiny.path("keys").exists());
    }
    let error =
        tiny.run_request(&tiny.request("out", 1, &["wrong-reduction:device=0,step=0,element=0,bit=0"]));
    assert!(error.err().unwrap().to_string().contains("no level (1 devices meet at 0 levels)"));
}

#[test]
fn every_example_is_of_its_own_kind_and_complete() {
    for form in FORMS {
        let (name, keys) = form.example.split_once(':').unwrap();
        assert_eq!(name, form.name);
        let keys: Vec<&str> = keys.split(',').map(|pair| pair.split_once('=').unwrap().0).collect();
        assert!(form.required.iter().all(|key| keys.contains(key)), "{}", form.example);
        assert!(keys.iter().all(|key| form.required.contains(key) || form.optional.contains(key)));
    }
}

#[test]
fn an_old_receipt_that_is_none_is_refused_before_anything_runs() {
    let tiny = Tiny::new();
    tiny.run("old", 1, &[]);
    let old = tiny.path("old/receipt-0.cose");
    let fault = format!("replayed-receipt:device=0,receipt={}", old.display());
    let refused = || {
        let error = tiny.run_request(&tiny.request("out", 1, &[&fault])).err().unwrap().to_string();
        assert!(!tiny.path("out").exists());
        error
    };
    let body = tiny.path("old/receipt-0.body.cbor");
    std::fs::write(&body, b"other records").unwrap();
    assert!(refused().contains("bytes that the receipt names"));
    std::fs::remove_file(&body).unwrap();
    assert!(refused().contains("receipt-0.body.cbor"));
    std::fs::copy(tiny.job_folder().join("run.cose"), &old).unwrap();
    assert!(refused().contains("expected a receipt statement, found a run statement"));
    std::fs::write(&old, b"nothing").unwrap();
    assert!(refused().contains("receipt-0.cose"));
}
