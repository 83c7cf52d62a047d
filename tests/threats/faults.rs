//! Cards, links and configurations that go wrong without anybody's will: each is named for what it is.

use tests::workshop::Workshop;

/// A run with these faults diverges with all of these texts, and its bundle says the same.
fn named(faults: &[&str], texts: &[&str]) {
    let (shop, _log, ended) = Workshop::faulty(faults);
    let ended = ended.expect_code(1);
    texts.iter().fold(ended, |ended, text| ended.expect_text(text));
    shop.verify("run.tally").expect_code(1).expect_text("genuine, but verdict is diverge at step 1");
}

/// A card that computes wrongly and does not say so.
#[test]
fn a_card_that_computes_wrongly() {
    let flip = "--fault bit-flip:device=0,step=1,leaf=1,operation=forward.layer0.attention,element=5,bit=22";
    let stuck = "--fault stuck-bit:device=1,step=1,leaf=3,operation=backward.layer1.mlp.gelu,bit=12,value=1";
    let named_both = ["device 0 (", "operation forward.layer0.attention", "element 5", "bit 22 differs"];
    let stuck_too = ["device 1 (", "operation backward.layer1.mlp.gelu", "cause fault"];
    named(&[flip, stuck], &[&named_both[..], &stuck_too].concat());
    let weight = "--fault weight-flip:device=1,step=1,element=100,bit=26";
    named(&[weight], &["device 1 (", "phase leaf", "leaf 2", "cause fault"]);
    let moment = "--fault moment-flip:device=0,step=1,moment=1,element=1000,bit=22";
    named(&[moment], &["device 0 (", "phase update", "operation adamw", "tensor adamw.v.", "element 1000"]);
}

/// What was computed, what was sent, what arrived and what was added have a checksum each.
#[test]
fn a_link_or_a_sum_that_corrupts() {
    let place = "step=1,element=50,bit=20";
    named(
        &[&format!("--fault wrong-partial:device=1,{place}")],
        &["device 1 (", "phase partial", "element 50"],
    );
    for (form, receiver, sender) in [("sent-flip", 1, 0), ("corrupted-link", 0, 1)] {
        let struck = if form == "sent-flip" { sender } else { receiver };
        let fault = format!("--fault {form}:device={struck},{place}");
        let texts = [
            &format!("device {receiver} ("),
            "phase link",
            &format!("peer device {sender}"),
            "element 50",
            "bit 20 differs",
        ];
        named(&[&fault], &texts);
    }
    named(
        &[&format!("--fault wrong-reduction:device=1,{place}")],
        &["device 1 (", "phase reduce", "element 50"],
    );
}

/// An honest card that was set up wrongly is not called faulty, and a faulty one is not excused.
#[test]
fn a_configuration_is_told_from_a_fault() {
    let operation = "forward.layer1.mlp.expand";
    let configured = format!("--misconfigured 1:{operation}:uncontracted");
    let (shop, _log, ended) = Workshop::faulty(&[&configured]);
    let ended = ended.expect_code(1).expect_text(operation).expect_text("cause configuration: uncontracted");
    ended.expect_text("computed again in this configuration it has the device's bits");
    shop.verify("run.tally").expect_code(1).expect_text("is the verdict signer's word");
    let stuck = format!("--fault stuck-bit:device=1,step=1,leaf=3,operation={operation},bit=12,value=1");
    named(&[&stuck], &[operation, "cause fault", "no known configuration gives these bits"]);
}
