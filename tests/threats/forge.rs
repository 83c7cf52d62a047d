//! What a dishonest party makes with keys that it has: statements, copied receipts, a log's entries, bundles.

use crate::lying;
use schemas::attachment::AttachmentName;
use schemas::bundle::{Bundle, Cover};
use schemas::digest::Checksum;
use schemas::fold::Fold;
use schemas::key::SecretKey;
use schemas::object::Object as _;
use schemas::prediction::PredictionBody;
use schemas::receipt::{Answer, DeviceFacts, Receipt, ReceiptBody};
use schemas::run::{Run, Steps};
use schemas::statement::{Payload, Statement};
use std::path::Path;
use tests::workshop::{Log, Workshop};
use tlog::checkpoint::Checkpoint;
use tlog::entries::decode_bundle;
use tlog::note::{SigningKey, Verifier as _};

pub fn secret(shop: &Workshop, key: &str) -> SecretKey {
    SecretKey::from_text(&std::fs::read_to_string(shop.path(key)).unwrap()).unwrap()
}

pub fn read(shop: &Workshop, file: &str) -> Vec<u8> {
    std::fs::read(shop.path(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// What a signed statement says.
pub fn said(shop: &Workshop, file: &str) -> Payload {
    Statement::open(&read(shop, file)).unwrap().payload
}

/// Signs with a key of the folder and writes.
pub fn sign(shop: &Workshop, file: &str, payload: &Payload, key: &str) {
    let bytes = Statement::sign(payload, &secret(shop, key)).unwrap();
    std::fs::write(shop.path(file), bytes).unwrap();
}

pub fn run_of(shop: &Workshop, name: &str) -> Run {
    let Payload::Run(run) = said(shop, &format!("{name}/job/run.cose")) else { panic!("not a run") };
    run
}

pub fn receipt(shop: &Workshop, folder: &str, rank: u64) -> (Receipt, ReceiptBody) {
    let file = |ending: &str| format!("{folder}/receipt-{rank}.{ending}");
    let Payload::Receipt(receipt) = said(shop, &file("cose")) else { panic!("not a receipt") };
    (*receipt, ReceiptBody::decode(&read(shop, &file("body.cbor"))).unwrap())
}

/// Signs a receipt of this body, whatever it says, and puts both where the device would.
pub fn hand_in(shop: &Workshop, folder: &str, (mut receipt, body): (Receipt, ReceiptBody), key: &str) {
    std::fs::create_dir_all(shop.path(folder)).unwrap();
    let (bytes, rank) = (body.encode(), receipt.rank);
    receipt.body = AttachmentName::of(&bytes);
    std::fs::write(shop.path(&format!("{folder}/receipt-{rank}.body.cbor")), bytes).unwrap();
    sign(shop, &format!("{folder}/receipt-{rank}.cose"), &Payload::Receipt(Box::new(receipt)), key);
}

/// A receipt for which nothing was computed: every record is copied from a prediction, folds and answer are made up.
pub fn copied(
    shop: &Workshop,
    name: &str,
    body: &PredictionBody,
    (rank, devices): (u64, u64),
) -> (Receipt, ReceiptBody) {
    let (run, id) = (run_of(shop, name), shop.run_id(name));
    let folds: Vec<Fold> = (0..body.records.len() as u64 * (2 * devices + 1)).map(fold).collect();
    let terms = verify::implied::Terms { run: &run, id, body, devices };
    let body = terms.body(rank, &folds).unwrap();
    let checkpoint = read(shop, &format!("{name}/job/challenge.note"));
    let steps = Steps { first: body.records[0].step, end: run.steps };
    let step = schemas::challenge::chosen_step(schemas::challenge::challenge(id, &checkpoint), steps);
    let facts = DeviceFacts {
        name: "a card that never was".into(),
        architecture: "none".into(),
        driver: "none".into(),
        units: 1,
        kernels: "none".into(),
    };
    let answer = Some(Answer { step, reduced: fold(1), parameters: fold(2) });
    let body_name = AttachmentName::of(b"");
    let simulated = false;
    (Receipt { run: id, steps, devices, rank, simulated, facts, checkpoint, answer, body: body_name }, body)
}

pub fn fold(number: u64) -> Fold {
    Fold { a: number.wrapping_mul(0x9e37_79b9_7f4a_7c15), b: !number }
}

pub fn sum(number: u8) -> schemas::receipt::Sum {
    schemas::receipt::Sum { checksum: Checksum([number; 32]), fold: fold(number.into()) }
}

/// Keys of devices, as `device run` makes them.
pub fn device_key(shop: &Workshop, rank: u64) -> String {
    let name = format!("keys/device-{rank}.key");
    if !shop.path(&name).exists() {
        std::fs::create_dir_all(shop.path("keys")).unwrap();
        shop.run("client", &format!("keygen {name}")).expect_code(0);
    }
    name
}

/// Every entry of a log, and its key: what its operator has.
pub fn as_operator(shop: &Workshop, log: &Log) -> lying::Log {
    let key = std::fs::read_to_string(shop.path("log/log.key")).unwrap();
    let key = SigningKey::parse_secret_text(&key).unwrap();
    let facts: serde_json::Value = serde_json::from_slice(&log.get("/log.json")).unwrap();
    let size = facts["size"].as_u64().unwrap();
    let bundle = log.get(&format!("/tile/entries/000.p/{size}"));
    let entries = decode_bundle(&bundle).unwrap().into_iter().map(<[u8]>::to_vec).collect();
    let own = lying::Log::of(entries, key);
    assert!(log.page("/checkpoint").starts_with(&own.checkpoint(size)), "nothing is made up so far");
    own
}

pub fn bundle(shop: &Workshop, file: &str) -> Bundle {
    Bundle::decode(&read(shop, file)).unwrap()
}

/// Writes a bundle, proven anew in the tree of all entries of a log: as good as anybody could make it.
pub fn write_bundle(shop: &Workshop, file: &str, mut bundle: Bundle, log: &lying::Log) {
    let size = log.size();
    let index_of = |bytes: &[u8]| {
        let index = log.entries.iter().position(|entry| entry == bytes);
        index.expect("the entry is in the log") as u64
    };
    for entry in &mut bundle.entries {
        *entry = log.proven(index_of(&entry.bytes));
    }
    bundle.checkpoint = log.checkpoint(size).into_bytes();
    let prediction = bundle.entries[1].index;
    let receipts = bundle.entries.iter().map(|entry| Statement::open(&entry.bytes).unwrap());
    let mut sizes: Vec<u64> = receipts.filter_map(|one| answered(&one.payload, log)).collect();
    sizes.sort_unstable();
    sizes.dedup();
    // What a tree without the prediction would need cannot be made.
    sizes.retain(|size| *size > prediction);
    let cover = |tree_size: u64| Cover {
        tree_size,
        inclusion: log.inclusion(prediction, tree_size),
        consistency: log.consistency(tree_size, size),
        checkpoint: None,
    };
    bundle.covers = sizes.into_iter().map(cover).collect();
    if bundle.completeness.is_some() {
        let whole = log.completeness(Statement::open(&bundle.entries[0].bytes).unwrap().payload.run());
        bundle.completeness = Some(schemas::completeness::Completeness { entries: None, ..whole });
    }
    bundle.attachments.sort_by_key(|bytes| AttachmentName::of(bytes).sha256);
    std::fs::write(shop.path(file), bundle.encode()).unwrap();
}

/// The size of the tree that a receipt answers.
fn answered(payload: &Payload, log: &lying::Log) -> Option<u64> {
    let Payload::Receipt(receipt) = payload else { return None };
    let key = log.key().verifier();
    Some(Checkpoint::open(&receipt.checkpoint, key.name().as_str(), key).unwrap().head.size.0)
}

/// Copies a folder with all that is in it.
pub fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        match entry.file_type().unwrap().is_dir() {
            true => copy_folder(&entry.path(), &to.join(entry.file_name())),
            false => std::fs::copy(entry.path(), to.join(entry.file_name())).map(|_| ()).unwrap(),
        }
    }
}
