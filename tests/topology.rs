//! One prediction serves every number of devices and threads: the bits do not depend on either.

use schemas::object::Object;
use schemas::prediction::PredictionBody;
use schemas::receipt::ReceiptBody;
use tests::workshop::Workshop;

#[test]
fn one_two_and_four_devices_give_the_predicted_bits() {
    let shop = Workshop::open();
    shop.write_run("run", 1);
    shop.predict("run", None).expect_code(0);
    // The form of a checkpoint is all that a device can check; nothing is reconciled here.
    let note = format!("example.org/log\n7\n{0}=\n\n\u{2014} example.org/log {0}\n", "A".repeat(43));
    std::fs::write(shop.path("run/job/challenge.note"), note).unwrap();
    let bytes = std::fs::read(shop.path("run/prediction/body.cbor")).unwrap();
    let predicted = PredictionBody::decode(&bytes).unwrap();
    let devices_max = 4;
    for count in [1, 2, 4] {
        shop.devices("run", count, &format!("receipts-{count}"), "").expect_code(0);
        for rank in 0..count {
            let file = shop.path(&format!("run/receipts-{count}/receipt-{rank}.body.cbor"));
            let body = ReceiptBody::decode(&std::fs::read(file).unwrap()).unwrap();
            assert_eq!(body.records.len(), 3);
            for (record, expected) in body.records.iter().zip(&predicted.records) {
                let leaves = (4 / count) as usize;
                let own = rank as usize * leaves..(rank as usize + 1) * leaves;
                assert_eq!(record.traces, expected.traces[own.clone()], "devices {count} rank {rank}");
                assert_eq!(record.losses, expected.losses[own], "devices {count} rank {rank}");
                let (found, expected) =
                    (record.outcome.as_ref().unwrap(), expected.outcome.as_ref().unwrap());
                // Levels of the record's nodes: `devices_max` first, the root last.
                let level = 2 * (devices_max - count) as usize;
                assert_eq!(found.partial.checksum, expected.nodes[level + rank as usize], "{count} {rank}");
                assert_eq!(found.reduced.checksum, expected.reduced);
                assert_eq!(found.norm, expected.norm);
                assert_eq!(found.parameters.checksum, expected.parameters);
                assert_eq!(found.first_moment, expected.first_moment);
                assert_eq!(found.second_moment, expected.second_moment);
            }
        }
    }
    shop.devices("run", 8, "receipts-8", "").expect_code(2);
}

#[test]
fn the_number_of_threads_changes_no_bit() {
    let shop = Workshop::open();
    shop.write_run("run", 1);
    let predict = |threads: u32| {
        let out = format!("threads-{threads}");
        let arguments = format!(
            "predict --run run.toml --steps 0..3 --key predictor.key --threads {threads} --out {out}"
        );
        shop.run("oracle", &arguments).expect_code(0);
        std::fs::read(shop.path(&format!("{out}/prediction/body.cbor"))).unwrap()
    };
    let one = predict(1);
    for threads in [2, 3, 7] {
        assert_eq!(predict(threads), one, "{threads} threads");
    }
}
