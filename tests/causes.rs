//! Why a device departed, told from its bits: an honest device in a wrong configuration and a faulty one, end to end.

use schemas::digest::AttachmentDigest;
use schemas::key::SecretKey;
use schemas::object::Object as _;
use schemas::plan::{Plan, Tap};
use schemas::statement::{Payload, Statement};
use schemas::trace::Trace;
use tests::workshop::{Ended, Log, Workshop};

/// `run/` predicted and committed.
fn predicted(more: &str) -> (Workshop, Log) {
    predicted_of_width(24, more)
}

/// The same of a model with so many channels.
fn predicted_of_width(channels: u64, more: &str) -> (Workshop, Log) {
    let shop = Workshop::open();
    shop.write_run("run", 1);
    let text = std::fs::read_to_string(shop.path("run.toml"))
        .unwrap()
        .replace("n_embd = 24", &format!("n_embd = {channels}"));
    std::fs::write(shop.path("run.toml"), text).unwrap();
    if channels != 24 {
        // Which step's norm is another hangs on every word of the text: one that does not change.
        std::fs::copy(tests::workshop::workspace().join("LICENSE-APACHE"), shop.path("corpus.txt")).unwrap();
    }
    let log = shop.ledger();
    let commit = format!("--commit --ledger {} --log-key log/log.pub {more}", log.url);
    let predict = format!("predict --run run.toml --steps 0..3 --out run --key predictor.key {commit}");
    shop.run("oracle", &predict).expect_code(0);
    shop.challenge("run", &log).expect_code(0);
    (shop, log)
}

/// Runs two devices, reconciles with a replay, verifies: the verdict diverges and has every text.
fn diverges(shop: &Workshop, log: &Log, devices: &str, texts: &[&str]) -> Ended {
    shop.devices("run", 2, "receipts", devices).expect_code(0);
    let mut ended = shop.reconcile("run", log, "--replay run.toml").expect_code(1);
    for text in texts {
        ended = ended.expect_text(text);
    }
    let genuine = shop.verify("run.tally").expect_code(1).expect_text("genuine, but verdict is diverge");
    assert!(
        genuine.stdout.contains("\n8. comparison gives the logged verdict again [ok]"),
        "{}",
        genuine.stdout
    );
    ended
}

#[test]
fn contraction_switched_off_in_one_operation_is_named_as_a_configuration() {
    let (shop, log) = predicted("");
    let operation = "forward.layer1.mlp.expand";
    let drill = format!("--traces --misconfigured 1:{operation}:uncontracted");
    let named = format!("operation {operation}");
    let texts = [
        "diverge at step 0",
        "device 1 (",
        "phase leaf",
        "leaf 2",
        &named,
        "cause configuration: uncontracted",
        "more than one word differs; computed again in this configuration it has the device's bits",
    ];
    diverges(&shop, &log, &drill, &texts);
    // Nobody who verifies computes anything again, and is told so.
    let word =
        "note: that a configuration is the cause, or that no known one is, is the verdict signer's word";
    shop.verify("run.tally").expect_code(1).expect_text(word);

    // The same of one leaf, without a log: the trace, held against the receipt and the prediction.
    let pinpoint =
        "pinpoint run/receipts/traces/rank-1/step-000000-leaf-0002.cbor --prediction run/prediction";
    let all = format!("{pinpoint} --receipt run/receipts/receipt-1.cose --replay run.toml");
    let ended = shop.run("client", &all).expect_code(1).expect_text("step 0, leaf 2: not as predicted");
    ended.expect_text(&named).expect_text("cause configuration: uncontracted");
    let json = shop.run("client", &format!("{all} --json")).expect_code(1);
    let value: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    let plan = Plan::decode(&std::fs::read(shop.path("run/prediction/plan.cbor")).unwrap()).unwrap();
    let tap = plan.taps().position(|tap| plan.operations[tap.operation].name == operation).unwrap();
    assert_eq!(
        (&value["operation"], &value["tap"], &value["cause"]),
        (&operation.into(), &tap.into(), &"configuration: uncontracted".into())
    );
    let ended = shop.run("client", pinpoint).expect_code(1).expect_text("cause undetermined");
    ended.expect_text("hint: --replay run.toml tries every known configuration");
}

#[test]
fn a_stuck_bit_is_named_as_a_fault() {
    let (shop, log) = predicted("");
    let operation = "forward.layer1.mlp.expand";
    let fault = format!("stuck-bit:device=1,step=1,leaf=3,operation={operation},bit=12,value=1");
    let texts = [
        "diverge at step 1",
        "device 1 (",
        "phase leaf",
        "leaf 3",
        "operation forward.layer1.mlp.expand",
        "cause fault",
        "more than one word differs; computed again, no known configuration gives these bits",
    ];
    diverges(&shop, &log, &format!("--traces --fault {fault}"), &texts);
    let pinpoint =
        "pinpoint run/receipts/traces/rank-1/step-000001-leaf-0003.cbor --prediction run/prediction";
    let ended = shop.run("client", &format!("{pinpoint} --replay run.toml")).expect_code(1);
    ended.expect_text("more than one word differs; computed again, no known configuration gives these bits");
    damaged_trace_of_the_prediction(&shop);
}

/// A byte of a trace that the prediction's folder keeps is flipped: it is not taken for the predicted one.
fn damaged_trace_of_the_prediction(shop: &Workshop) {
    let right = "run/receipts/traces/rank-0/step-000001-leaf-0001.cbor";
    let pinpoint = format!("pinpoint {right} --prediction run/prediction");
    shop.run("client", &pinpoint).expect_code(0);
    let trace = std::fs::read(shop.path(right)).unwrap();
    let mut flipped = 0;
    for file in std::fs::read_dir(shop.path("run/prediction/steps")).unwrap() {
        let path = file.unwrap().path();
        let mut bytes = std::fs::read(&path).unwrap();
        if let Some(at) = bytes.windows(trace.len()).position(|window| window == trace) {
            // The last fold's last byte.
            let folds = Trace::decode(&trace).unwrap().folds;
            let last: Vec<u8> = folds.last().unwrap().to_bytes().to_vec();
            let within = trace.windows(16).position(|window| window == last).unwrap();
            bytes[at + within] ^= 1;
            // The file is whole; only its trace is another.
            let digest = AttachmentDigest::of(&bytes[32..]).0;
            bytes[..32].copy_from_slice(&digest);
            std::fs::write(&path, bytes).unwrap();
            flipped += 1;
        }
    }
    assert_eq!(flipped, 1, "one file keeps the predicted trace");
    shop.run("client", &pinpoint).expect_code(2).expect_text("keeps no trace of step 1, leaf 1");
    shop.run("client", &format!("{pinpoint} --replay run.toml")).expect_code(0);
}

#[test]
fn one_flipped_bit_is_a_fault_with_both_values_their_bits_and_their_distance() {
    // No trace is kept by the oracle: the leaf is computed again.
    let (shop, log) = predicted("--no-traces");
    let operation = "forward.layer0.attention";
    let fault = format!("bit-flip:device=0,step=1,leaf=0,operation={operation},element=34,bit=3");
    let texts = [
        "diverge at step 1",
        "device 0 (",
        "operation forward.layer0.attention",
        "element 34",
        "bit 3 differs, 8 units in the last place apart",
        "cause fault",
        "one wrong word explains it exactly",
    ];
    diverges(&shop, &log, &format!("--traces --fault {fault}"), &texts);

    let pinpoint =
        "pinpoint run/receipts/traces/rank-0/step-000001-leaf-0000.cbor --prediction run/prediction";
    shop.write_run("other", 2);
    let ended = shop.run("client", &format!("{pinpoint} --replay other.toml")).expect_code(2);
    ended
        .expect_text("other.toml describes run ")
        .expect_text("hint: give the run.toml that the prediction was");
    let ended = shop.run("client", pinpoint).expect_code(2);
    ended.expect_text("keeps no trace of step 1, leaf 0").expect_text("hint: --replay run.toml");
    let json = shop.run("client", &format!("{pinpoint} --replay run.toml --json")).expect_code(1);
    let value: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(value["word"]["flipped_bits"], serde_json::json!([3]), "{value}");
    assert_eq!((&value["word"]["units_apart"], &value["cause"]), (&8.into(), &"fault".into()));
    let plan = Plan::decode(&std::fs::read(shop.path("run/job/plan.cbor")).unwrap()).unwrap();
    let named = |tap: &Tap| plan.operations[tap.operation].name == operation;
    let (tap, at) = plan.taps().enumerate().find(|(_, tap)| named(tap)).unwrap();
    let tensor = plan.operand_name(at.operand);
    assert_eq!((&value["tap"], &value["tensor"]), (&tap.into(), &tensor.clone().into()));
    assert_eq!((&value["step"], &value["leaf"], &value["agrees"]), (&1.into(), &0.into(), &false.into()));
    let note = value["note"].as_str().unwrap();
    assert!(note.ends_with("; one wrong word explains it exactly"), "{note}");
    let told = shop.run("client", &format!("{pinpoint} --replay run.toml")).expect_code(1);
    told.expect_text("element 34")
        .expect_text(&format!("tensor {tensor}"))
        .expect_text("bit 3 differs, 8 units in the last place apart");
    let right = "pinpoint run/receipts/traces/rank-0/step-000001-leaf-0001.cbor --prediction run/prediction";
    let ended = shop.run("client", &format!("{right} --replay run.toml")).expect_code(0);
    ended.expect_text("step 1, leaf 1: every fold is as predicted");
    // A trace that its device did not sign, or another device's.
    let unsigned = format!("{pinpoint} --receipt run/receipts/receipt-1.cose --replay run.toml");
    shop.run("client", &unsigned).expect_code(2).expect_text("leaf 0 is not one of device 1");
    not_the_signed_one(&shop);
    let folder = shop.path("run/receipts/traces/rank-0");
    std::fs::copy(folder.join("step-000001-leaf-0001.cbor"), folder.join("other.cbor")).unwrap();
    let receipt = "--receipt run/receipts/receipt-0.cose --replay run.toml --prediction run/prediction";
    shop.run("client", &format!("pinpoint run/receipts/traces/rank-0/other.cbor {receipt}")).expect_code(0);
    shop.run("client", &format!("pinpoint run.toml {receipt}"))
        .expect_code(2)
        .expect_text("device run --traces");
}

/// Receipts and traces that do not belong together.
fn not_the_signed_one(shop: &Workshop) {
    let receipts = shop.path("run/receipts");
    let write = |name: &str, bytes: &[u8]| std::fs::write(receipts.join(name), bytes).unwrap();
    let read = |name: &str| std::fs::read(receipts.join(name)).unwrap();
    let trace = "run/receipts/traces/rank-0/step-000001-leaf-0001.cbor";
    let refused = |trace: &str, receipt: &str, why: &str| {
        let all = format!("pinpoint {trace} --receipt run/receipts/{receipt} --prediction run/prediction");
        shop.run("client", &format!("{all} --replay run.toml")).expect_code(2).expect_text(why);
    };
    // Of another run.
    let statement = Statement::open(&read("receipt-0.cose")).unwrap();
    let Payload::Receipt(mut receipt) = statement.payload else { panic!("a receipt") };
    receipt.run.0[0] ^= 1;
    let key = SecretKey::from_seed([9; 32]);
    write("other.cose", &Statement::sign(&Payload::Receipt(receipt), &key).unwrap());
    write("other.body.cbor", &read("receipt-0.body.cbor"));
    refused(trace, "other.cose", "found one for another run, ");
    // With another device's body.
    write("mixed.cose", &read("receipt-0.cose"));
    write("mixed.body.cbor", &read("receipt-1.body.cbor"));
    refused(trace, "mixed.cose", "mixed.body.cbor: expected the body that the receipt names, ");
    // Not the trace that was signed.
    let path = shop.path(trace);
    let mut changed = Trace::decode(&std::fs::read(&path).unwrap()).unwrap();
    changed.folds[3].a ^= 1;
    std::fs::write(path.with_file_name("changed.cbor"), changed.encode()).unwrap();
    let why = format!("the trace has root {}, the receipt of device 0 has ", changed.root());
    refused(&trace.replace("step-000001-leaf-0001", "changed"), "receipt-0.cose", &why);
}

#[test]
fn windows_in_another_order_are_named_by_the_leaf_they_belong_to() {
    let (shop, log) = predicted("");
    let texts = [
        "diverge at step 1",
        "device 1 (",
        "phase leaf",
        "leaf 2",
        "operation window",
        "tensor tokens",
        "cause configuration: data-of-step-1-leaf-0",
    ];
    diverges(&shop, &log, "--traces --fault swapped-leaves:device=1,step=1,leaf=2,with=0", &texts);
}

#[test]
fn sums_that_nobody_kept_are_computed_again_and_an_update_that_was_left_out_is_a_fault() {
    let (shop, log) = predicted("--no-traces");
    let texts = [
        "diverge at step 1",
        "device 1 (",
        "phase partial",
        "operation tree",
        "element 5",
        "bit 3 differs, 8 units in the last place apart",
        "their sum is not; one wrong word explains it exactly",
    ];
    diverges(&shop, &log, "--fault wrong-partial:device=1,step=1,element=5,bit=3", &texts);

    // A moment that differs in many words, all of them the last step's.
    let (shop, log) = predicted("");
    let texts = [
        "diverge at step 1",
        "phase update",
        "operation adamw",
        "cause fault",
        "the first moment after the step is not; more than one word differs; computed again, no known configuration",
    ];
    diverges(&shop, &log, "--fault skipped-update:device=1,step=1", &texts);
}

#[test]
fn an_optimizer_and_a_norm_in_another_configuration_are_named() {
    let (shop, log) = predicted("");
    let texts = [
        "device 1 (",
        "phase update",
        "operation adamw",
        "cause configuration: uncontracted",
        "computed again in this configuration",
    ];
    diverges(&shop, &log, "--misconfigured 1:adamw:uncontracted", &texts);

    // A norm is one number of 24 bits, which most ways to add up leave as it is; of this width one step's is another.
    let (shop, log) = predicted_of_width(80, "");
    let texts = [
        "device 1 (",
        "phase update",
        "operation norm",
        "tensor norm",
        "cause configuration: uncontracted",
        "the reduced gradient is as predicted, its norm is not; computed again in this configuration",
    ];
    diverges(&shop, &log, "--misconfigured 1:norm:uncontracted", &texts);
}

/// A wrong configuration from step 0 on, and a prediction from step 1 on: the honest device begins it with wrong
/// parameters, too.
#[test]
fn what_went_wrong_before_the_first_record_is_no_devices_fault() {
    let shop = Workshop::open();
    shop.write_run("run", 1);
    let log = shop.ledger();
    let commit = format!("--commit --ledger {} --log-key log/log.pub", log.url);
    let predict = format!("predict --run run.toml --steps 1..3 --out run --key predictor.key {commit}");
    shop.run("oracle", &predict).expect_code(0);
    shop.challenge("run", &log).expect_code(0);
    let run =
        "run --backend simulated --job run/job --challenge run/job/challenge.note --devices 2 --steps 1..3";
    let drill = "--misconfigured 1:forward.layer1.mlp.contract:uncontracted";
    shop.run("device", &format!("{run} --keys keys --out run/receipts --traces {drill}")).expect_code(0);
    let mut ended = shop.reconcile("run", &log, "--replay run.toml").expect_code(1);
    for text in [
        "diverge at step 1",
        "device 0 (",
        "device 1 (",
        "operation forward.embedding",
        "no record shows the state before step 1: this may come of an earlier step, and of any device",
    ] {
        ended = ended.expect_text(text);
    }
    shop.verify("run.tally").expect_code(1).expect_text("genuine, but verdict is diverge");
    assert_eq!(ended.stdout.matches("cause      undetermined\n").count(), 2, "{}", ended.stdout);

    let pinpoint = |step: u64, more: &str| {
        let trace = format!("run/receipts/traces/rank-1/step-00000{step}-leaf-0002.cbor");
        let all = format!("pinpoint {trace} --prediction run/prediction --replay run.toml {more}");
        shop.run("client", &all).expect_code(1).expect_text("operation forward.embedding")
    };
    let receipt = "--receipt run/receipts/receipt-1.cose";
    for more in ["", receipt] {
        let ended = pinpoint(1, more).expect_text("cause undetermined");
        ended.expect_text("no record shows the state before step 1");
    }
    // A step whose device says that it did not begin as predicted; without its receipt nobody says so.
    let ended = pinpoint(2, receipt).expect_text("cause undetermined");
    ended.expect_text("its parameters after step 1 are not as predicted either, so this may be inherited");
    pinpoint(2, "").expect_text("note: without --receipt nothing shows that the trace is of this run");
}

#[test]
fn without_a_replay_a_cause_is_left_open_and_the_way_to_it_told() {
    let (shop, log) = predicted("");
    let drill = "--traces --misconfigured 0:backward.layer0.mlp.expand.weight:split-k-2";
    shop.devices("run", 2, "receipts", drill).expect_code(0);
    let ended = shop.reconcile("run", &log, "--no-replay").expect_code(1);
    let ended = ended.expect_text("cause undetermined").expect_text("more than one word differs");
    ended.expect_text("hint: --replay run.toml tries every known configuration");
    let verified = shop.verify("run.tally").expect_code(1);
    assert!(!verified.stdout.contains("configuration"), "{}", verified.stdout);
}

#[test]
fn traces_are_taken_from_each_devices_own_folder_and_by_what_they_say() {
    let (shop, log) = predicted("");
    let operation = "forward.layer1.mlp.expand";
    let fault = format!("bit-flip:device=1,step=1,leaf=3,operation={operation},element=7,bit=4");
    shop.devices("run", 2, "receipts", &format!("--traces --fault {fault}")).expect_code(0);
    let receipts = shop.path("run/receipts");
    std::fs::create_dir_all(receipts.join("other/traces")).unwrap();
    for name in ["receipt-1.cose", "receipt-1.body.cbor", "traces/rank-1"] {
        std::fs::rename(receipts.join(name), receipts.join("other").join(name)).unwrap();
    }
    // In place of the leaf's trace another one's: it is left out, and none is at hand.
    let traces = receipts.join("other/traces/rank-1");
    let (wrong, kept) = (traces.join("step-000001-leaf-0003.cbor"), traces.join("kept.cbor"));
    std::fs::rename(&wrong, &kept).unwrap();
    for other in ["step-000001-leaf-0002.cbor", "step-000000-leaf-0003.cbor"] {
        std::fs::copy(traces.join(other), &wrong).unwrap();
        let ended = shop.reconcile("run", &log, "--no-replay --receipts run/receipts/other").expect_code(1);
        ended
            .expect_text("step-000001-leaf-0003.cbor is not what its name says; it is left out")
            .expect_text("leaf 3 differs; the device's trace of it is not at hand");
    }
    std::fs::rename(&kept, &wrong).unwrap();
    let ended = shop.reconcile("run", &log, "--no-replay --receipts run/receipts/other").expect_code(1);
    ended
        .expect_text("device 1 (")
        .expect_text(&format!("operation {operation}"))
        .expect_text("element 7")
        .expect_text("bit 4 differs, 16 units in the last place apart");
}

#[test]
fn a_drill_that_cannot_be_is_refused_with_what_there_is() {
    let (shop, _log) = predicted("");
    for (drill, told) in [
        ("1:forward.layer0.attention", "expected RANK:OPERATION:VARIANT"),
        ("x:forward.layer0.attention:uncontracted", "expected a rank, found \"x\""),
        ("1:forward.layer0.attention:fast-math", "expected one of uncontracted, contracted"),
        ("1:forward.nothing:uncontracted", "expected an operation of the plan"),
        ("1:forward.layer0.mlp.gelu:split-k-2", "that split-k-2 reaches"),
    ] {
        let out = format!("out-{}", drill.len());
        shop.devices("run", 2, &out, &format!("--misconfigured {drill}")).expect_code(2).expect_text(told);
    }
    shop.devices("run", 2, "opencl", "--backend opencl --misconfigured 1:adamw:uncontracted")
        .expect_code(2)
        .expect_text("expected --backend simulated");
}
