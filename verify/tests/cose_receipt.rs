//! COSE receipts: the fixtures' shows what it says, and nothing that was changed of it shows anything.

use schemas::cose_receipt::{CoseReceipt, CoseReceiptError};
use std::path::Path;
use tlog::checkpoint::Checkpoint;
use tlog::note::{KeyName, SigningKey, Verifier as _, VerifierKey};
use verify::cose_receipt::{Receipted, ReceiptedError, check};

fn fixture(name: &str) -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("fixtures").join(name)).unwrap()
}

fn text(name: &str) -> String {
    String::from_utf8(fixture(name)).unwrap().trim().to_owned()
}

/// The fixtures' log, its receipt of entry 3, and that entry.
fn receipt() -> (VerifierKey, Vec<u8>, Vec<u8>) {
    let log = VerifierKey::parse(&text("checkpoint/log.vkey")).unwrap();
    (log, fixture("ledger/receipt.cbor"), fixture("statement/receipt-0.cbor"))
}

#[test]
fn a_receipt_shows_its_entrys_place_under_the_root_of_the_checkpoint() {
    let (log, bytes, entry) = receipt();
    let head = Checkpoint::open(&fixture("checkpoint/size-9.txt"), log.name().as_str(), &log).unwrap().head;
    let shown = Receipted { index: 3, head, issued_at_s: 1_800_000_000 };
    assert_eq!(check(&bytes, &entry, &log), Ok(shown));
    assert_eq!(CoseReceipt::decode(&bytes).unwrap().encode(), bytes);
}

#[test]
fn no_bit_of_a_receipt_can_be_changed_and_none_left_out() {
    let (log, bytes, entry) = receipt();
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut changed = bytes.clone();
            changed[at] ^= 1 << bit;
            assert!(check(&changed, &entry, &log).is_err(), "byte {at} bit {bit}");
        }
        assert!(check(&bytes[..at], &entry, &log).is_err(), "cut at {at}");
    }
    assert!(check(&[&bytes[..], &[0]].concat(), &entry, &log).is_err());
}

#[test]
fn a_receipt_is_of_this_entry_in_this_log_at_this_place() {
    let (log, bytes, entry) = receipt();
    let why = |change: &dyn Fn(&mut CoseReceipt)| {
        let mut changed = CoseReceipt::decode(&bytes).unwrap();
        change(&mut changed);
        check(&changed.encode(), &entry, &log).unwrap_err()
    };
    let other = fixture("statement/receipt-1.cbor");
    assert!(matches!(check(&bytes, &other, &log), Err(ReceiptedError::Entry { .. })));
    let stranger = SigningKey::from_seed(log.name().clone(), &[5; 32]);
    assert!(matches!(check(&bytes, &entry, stranger.verifier()), Err(ReceiptedError::Log { .. })));
    let named = SigningKey::from_seed(KeyName::new("other.example/log").unwrap(), &[5; 32]);
    assert!(matches!(check(&bytes, &entry, named.verifier()), Err(ReceiptedError::Log { .. })));
    // The same key, and another origin beside it.
    let renamed = why(&|receipt| receipt.origin = "other.example/log".into());
    assert!(matches!(renamed, ReceiptedError::Log { found, .. } if found == "other.example/log"));
    assert!(matches!(why(&|receipt| receipt.index = 2), ReceiptedError::Signature { size: 9, .. }));
    assert!(matches!(why(&|receipt| receipt.index = 9), ReceiptedError::Proof(_)));
    assert!(matches!(why(&|receipt| receipt.path[0][0] ^= 1), ReceiptedError::Signature { .. }));
    assert!(matches!(why(&|receipt| receipt.path.truncate(1)), ReceiptedError::Proof(_)));
    assert!(matches!(
        why(&|receipt| receipt.path.clear()),
        ReceiptedError::Form(CoseReceiptError::Form { part: "receipt", .. })
    ));
    // The time is signed, and so is the size; another size in the proof alone is told from the one that is signed.
    assert!(matches!(why(&|receipt| receipt.issued_at_s += 1), ReceiptedError::Signature { .. }));
    assert!(matches!(
        why(&|receipt| receipt.size = 10),
        ReceiptedError::Signature { .. } | ReceiptedError::Proof(_)
    ));
    let at = bytes.windows(3).position(|window| window == [0x83, 9, 3]).unwrap() + 1;
    let mut size = bytes.clone();
    size[at] = 8;
    let expected = CoseReceiptError::Size { expected: 9, found: 8 };
    assert_eq!(check(&size, &entry, &log), Err(ReceiptedError::Form(expected)));
}

#[test]
fn a_receipt_is_read_up_to_its_limit() {
    let (_, bytes, _) = receipt();
    let mut receipt = CoseReceipt::decode(&bytes).unwrap();
    let of_length = |receipt: &mut CoseReceipt, wanted: usize| {
        receipt.origin = "x".repeat(wanted - 600);
        let found = receipt.encode().len();
        receipt.origin = "x".repeat(2 * wanted - 600 - found);
        assert_eq!(receipt.encode().len(), wanted);
        CoseReceipt::decode(&receipt.encode())
    };
    assert_eq!(of_length(&mut receipt, 4096), Ok(receipt.clone()));
    let error = of_length(&mut receipt, 4097).unwrap_err().to_string();
    assert_eq!(error, "COSE receipt: 4097 bytes, expected at most 4096");
}
