//! Every named fault, injected into real runs, and the verdict it must lead to.

use schemas::statement::{Payload, Statement};
use tests::workshop::Workshop;

/// Predicts, runs two devices with `faults`, reconciles; the verdict must end with `code` and contain every text.
fn check(faults: &[&str], code: i32, texts: &[&str]) {
    let faults: Vec<String> = faults.iter().map(|fault| format!("--fault {fault}")).collect();
    let faults: Vec<&str> = faults.iter().map(String::as_str).collect();
    let (shop, _log, ended) = Workshop::faulty(&faults);
    let mut ended = ended.expect_code(code);
    for text in texts {
        ended = ended.expect_text(text);
    }
    // The bundle says the same to whoever verifies it.
    shop.verify("run.tally").expect_code(code);
}

#[test]
fn no_fault_agrees() {
    check(&[], 0, &["agree"]);
}

#[test]
fn a_flipped_bit_in_a_forward_operation_is_found_with_its_element_and_both_values() {
    let fault = "bit-flip:device=1,step=1,leaf=3,operation=forward.layer1.attention,element=100,bit=30";
    check(
        &[fault],
        1,
        &[
            "diverge at step 1",
            "device 1 (",
            "phase leaf",
            "leaf 3",
            "operation forward.layer1.attention",
            "tensor layer1.attention.out",
            "element 100",
            "bits expected 0x",
            "bit 30 differs",
            "cause fault",
        ],
    );
}

#[test]
fn a_flipped_bit_in_a_backward_operation_is_found() {
    let operation = "backward.layer0.mlp.gelu";
    let fault = format!("bit-flip:device=0,step=2,leaf=0,operation={operation},element=7,bit=3");
    check(
        &[&fault],
        1,
        &["diverge at step 2", "device 0 (", "phase leaf", "leaf 0", operation, "element 7", "bit 3 differs"],
    );
}

#[test]
fn a_wrong_partial_sum_is_told_from_a_wrong_leaf() {
    let texts = [
        "diverge at step 1",
        "device 1 (",
        "phase partial",
        "operation tree",
        "element 50",
        "bit 20 differs",
    ];
    check(&["wrong-partial:device=1,step=1,element=50,bit=20"], 1, &texts);
}

#[test]
fn a_corrupted_link_names_both_ends() {
    let texts =
        ["diverge at step 0", "device 0 (", "phase link", "peer device 1", "element 50", "bit 20 differs"];
    check(&["corrupted-link:device=0,step=0,element=50,bit=20"], 1, &texts);
}

#[test]
fn a_wrong_reduction_is_found() {
    let texts =
        ["diverge at step 2", "device 1 (", "phase reduce", "operation tree", "element 50", "bit 20 differs"];
    check(&["wrong-reduction:device=1,step=2,element=50,bit=20"], 1, &texts);
}

#[test]
fn a_wrong_update_is_found() {
    let texts = [
        "diverge at step 1",
        "device 0 (",
        "phase update",
        "operation adamw",
        "element 50",
        "bit 20 differs",
    ];
    check(&["wrong-update:device=0,step=1,element=50,bit=20"], 1, &texts);
}

#[test]
fn a_skipped_update_is_found() {
    check(
        &["skipped-update:device=1,step=1"],
        1,
        &["diverge at step 1", "device 1 (", "phase update", "operation adamw"],
    );
}

#[test]
fn a_skipped_step_is_incomplete() {
    check(&["skipped-step:device=1,step=1"], 1, &["incomplete", "device 1", "step 1"]);
}

#[test]
fn a_lying_receipt_is_contradicted_by_its_peer() {
    check(
        &["lying-receipt:device=1,step=1"],
        1,
        &["diverge at step 1", "device 1 (", "phase receipt", "peer device 0"],
    );
}

#[test]
fn a_silent_device_is_incomplete() {
    check(&["silent:device=1"], 1, &["incomplete", "device 1 of 2: no receipt"]);
}

#[test]
fn a_nan_in_one_device_is_found() {
    let fault = "poison:device=1,step=1,leaf=2,operation=forward.layer0.attention,element=3";
    check(
        &[fault],
        1,
        &["diverge at step 1", "device 1 (", "phase leaf", "leaf 2", "forward.layer0.attention"],
    );
}

/// Without the step that was chosen there is nothing to answer with, and an honest device is not asked for it.
#[test]
fn a_run_that_ends_at_a_nan_before_the_chosen_step_is_invalid_and_accuses_nobody() {
    let shop = Workshop::open();
    shop.write_run("run", 1);
    // First weights whose squares are beyond f32.
    shop.predict("run", None).expect_code(0);
    let weights = "weights --run run.toml --snapshot run/job/initial.safetensors --out model.safetensors";
    shop.run("oracle", weights).expect_code(0);
    let mut bytes = std::fs::read(shop.path("model.safetensors")).unwrap();
    let start = 8 + u64::from_le_bytes(*bytes.first_chunk().unwrap()) as usize;
    bytes[start..].chunks_exact_mut(4).for_each(|word| word.copy_from_slice(&1e38_f32.to_le_bytes()));
    std::fs::write(shop.path("model.safetensors"), bytes).unwrap();
    let text = std::fs::read_to_string(shop.path("run.toml")).unwrap();
    let text = text.replace("[state]\nseed = 1", "[state]\nweights = \"model.safetensors\"");
    std::fs::write(shop.path("run.toml"), text).unwrap();
    std::fs::remove_dir_all(shop.path("run")).unwrap();

    let log = shop.ledger();
    shop.predict("run", Some(&log)).expect_code(0).expect_text("the prediction ends there");
    shop.challenge("run", &log).expect_code(0);
    shop.devices("run", 2, "receipts", "").expect_code(0);
    for rank in 0..2 {
        let bytes = std::fs::read(shop.path(&format!("run/receipts/receipt-{rank}.cose"))).unwrap();
        let Payload::Receipt(receipt) = Statement::open(&bytes).unwrap().payload else { panic!("a receipt") };
        assert_eq!(receipt.answer, None);
    }
    let ended = shop.reconcile("run", &log, "--replay run.toml").expect_code(1);
    ended
        .expect_text("invalid at step 0: prediction and receipts agree that the run met a NaN or an infinity")
        .expect_text("answers to the challenge: not needed, the verdict was decided before them")
        .expect_text("first not finite: leaf 0, ");
    shop.verify("run.tally").expect_code(1).expect_text("genuine, but verdict is invalid at step 0");
}

#[test]
fn two_faulty_devices_in_one_step_are_both_named() {
    let faults = [
        "bit-flip:device=0,step=1,leaf=1,operation=forward.layer0.attention,element=5,bit=22",
        "bit-flip:device=1,step=1,leaf=2,operation=forward.layer1.attention,element=6,bit=22",
    ];
    check(
        &faults,
        1,
        &[
            "diverge at step 1",
            "device 0 (",
            "device 1 (",
            "forward.layer0.attention",
            "forward.layer1.attention",
        ],
    );
}
