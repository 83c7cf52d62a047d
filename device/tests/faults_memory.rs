//! Faults of memory and of what is read or sent: each changes exactly the fields of the records that it should.

mod tiny;

use schemas::object::Object as _;
use schemas::plan::{Kind, Plan};
use schemas::trace::Trace;
use tiny::{Output, Tiny, changes};

const AT: u64 = 1;
const AFTER: &str = "reduced norm parameters first second";

fn changed(clean: &Output, faulty: &Output) -> Vec<String> {
    let ranks = 0..clean.receipts.len();
    for rank in ranks.clone() {
        assert_eq!(faulty.record(rank, 0), clean.record(rank, 0), "rank {rank}: before the fault");
    }
    ranks.map(|rank| changes(clean.record(rank, AT), faulty.record(rank, AT)).join(" ")).collect()
}

fn folds(output: &Output, rank: u64, leaf: u64) -> Vec<schemas::fold::Fold> {
    let name = format!("traces/rank-{rank}/step-{AT:06}-leaf-{leaf:04}.cbor");
    Trace::decode(&std::fs::read(output.folder.join(name)).unwrap()).unwrap().folds
}

/// The first operation whose output differs.
fn first_operation(plan: &Plan, clean: &Output, faulty: &Output, rank: u64, leaf: u64) -> Option<String> {
    let (one, other) = (folds(clean, rank, leaf), folds(faulty, rank, leaf));
    let tap = one.iter().zip(&other).position(|(one, other)| one != other)?;
    plan.operations.iter().flat_map(|o| o.outputs.iter().map(|_| o.name.clone())).nth(tap)
}

#[test]
fn what_is_sent_wrongly_shows_at_its_receiver_alone() {
    let tiny = Tiny::new();
    let clean = tiny.run("clean", 2, &[]);
    let faulty = tiny.run("faulty", 2, &["sent-flip:device=1,step=1,element=1000,bit=25"]);
    assert_eq!(changed(&clean, &faulty), [format!("received0 sum0 {AFTER}"), String::new()]);
}

#[test]
fn a_weight_that_changes_in_memory_shows_in_every_leaf_from_the_first_operation_that_reads_it() {
    let tiny = Tiny::new();
    let clean = tiny.run("clean", 2, &[]);
    let gain = tiny.plan.parameters.iter().position(|p| p.name.ends_with("ln_1.weight")).unwrap();
    let element = tiny.plan.parameters[..gain].iter().map(|p| p.shape.iter().product::<u64>()).sum::<u64>();
    let fault = format!("weight-flip:device=1,step=1,element={element},bit=22");
    let faulty = tiny.run("faulty", 2, &[&fault]);
    let all = format!("trace0 trace1 loss0 loss1 partial sum0 {AFTER}");
    assert_eq!(changed(&clean, &faulty), [format!("received0 sum0 {AFTER}"), all]);
    let norm = tiny.plan.operations.iter().find(|operation| operation.kind == Kind::Layernorm).unwrap();
    for leaf in 2..4 {
        let first = first_operation(&tiny.plan, &clean, &faulty, 1, leaf);
        assert_eq!(first.as_ref(), Some(&norm.name), "leaf {leaf}");
    }
}

#[test]
fn a_moment_that_changes_in_memory_shows_in_the_update_alone() {
    let tiny = Tiny::new();
    let clean = tiny.run("clean", 2, &[]);
    for (moment, fields) in [(0, "parameters first"), (1, "parameters second")] {
        let fault = format!("moment-flip:device=1,step=1,moment={moment},element=1000,bit=27");
        let faulty = tiny.run(&format!("faulty{moment}"), 2, &[&fault]);
        assert_eq!(changed(&clean, &faulty), ["", fields], "moment {moment}");
    }
}

#[test]
fn a_leaf_that_reads_anothers_windows_has_the_others_trace() {
    let tiny = Tiny::new();
    let clean = tiny.run("clean", 2, &[]);
    let faulty = tiny.run("faulty", 2, &["swapped-leaves:device=1,step=1,leaf=3,with=0"]);
    let all = format!("trace1 loss1 partial sum0 {AFTER}");
    assert_eq!(changed(&clean, &faulty), [format!("received0 sum0 {AFTER}"), all]);
    assert_eq!(folds(&faulty, 1, 3), folds(&clean, 0, 0));
}

#[test]
fn a_stuck_bit_is_stuck_in_every_word_of_its_lane() {
    let tiny = Tiny::new();
    let clean = tiny.run("clean", 1, &[]);
    let operation = tiny.plan.operations.iter().find(|o| o.kind == Kind::Attention).unwrap().name.clone();
    let run = |name: &str, value: u64| {
        let fault =
            format!("stuck-bit:device=0,step=1,leaf=2,operation={operation},lane=5,bit=0,value={value}");
        tiny.run(name, 1, &[&fault])
    };
    // A bit is 0 or 1: of the two faults at least one changes something, and what both leave is not the same.
    let [zero, one] = [run("zero", 0), run("one", 1)];
    let firsts = [&zero, &one].map(|output| first_operation(&tiny.plan, &clean, output, 0, 2));
    assert!(firsts.contains(&Some(operation.clone())), "{firsts:?}");
    assert_ne!(folds(&zero, 0, 2), folds(&one, 0, 2));
    assert_eq!(folds(&one, 0, 1), folds(&clean, 0, 1));
}

#[test]
fn what_cannot_be_is_refused_with_what_there_is() {
    let tiny = Tiny::new();
    let cases = [
        ("moment-flip:device=0,step=1,moment=2,element=0,bit=0", "moment 0 to 1 (2 moments)"),
        ("swapped-leaves:device=1,step=1,leaf=3,with=4", "with 0 to 3 (4 leaves), found 4"),
        ("swapped-leaves:device=1,step=1,leaf=0,with=1", "leaf 2 to 3 (device 1's leaves)"),
        ("sent-flip:device=0,step=1,level=1,element=0,bit=0", "level 0 to 0 (2 devices"),
        ("weight-flip:device=0,step=1,element=0,bit=40", "bit 0 to 31"),
        ("stuck-bit:device=0,step=1,leaf=0,operation=x,bit=0", "value=..., as in stuck-bit:"),
    ];
    for (fault, message) in cases {
        let error = tiny.run_request(&tiny.request("out", 2, &[fault])).err().unwrap().to_string();
        assert!(error.contains(message), "{error}\nshould contain {message}");
    }
}
