//! A policy with two witnesses, a request, an answer and a cosigned checkpoint in their plainest form, for fixtures.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use schemas::key::SecretKey;
use sha2::{Digest as _, Sha256};

use super::objects::{ORIGIN, Sample, genesis, key};
use super::tree;

/// The names of the witnesses, the roles of their keys, and when they cosigned.
const WITNESSES: [(&str, &str, u64); 2] = [
    ("witness.example/first", "witness-0", 1_800_000_000),
    ("witness.example/second", "witness-1", 1_800_000_007),
];

/// Every file under fixtures/witness.
pub fn files(sample: &Sample) -> Vec<(&'static str, String)> {
    let [early, late] = &sample.checkpoints;
    let leaves: Vec<Vec<u8>> = std::iter::once(genesis()).chain(sample.statements.iter().cloned()).collect();
    let old: usize = early.lines().nth(1).unwrap().parse().unwrap();
    let proof: String =
        tree::consistency(old, &leaves).iter().map(|hash| STANDARD.encode(hash) + "\n").collect();
    let text = late.split_once("\n\n").unwrap().0.to_owned() + "\n";
    let lines = WITNESSES.map(|(name, role, time)| cosignature(name, &key(role), time, &text));
    let mut policy = format!("log {}\n", tree::vkey(ORIGIN, &key("log")));
    for ((name, role, _), short) in WITNESSES.iter().zip(["first", "second"]) {
        policy += &format!("witness {short} {} http://{name}/\n", vkey(name, &key(role)));
    }
    policy += "group both 2 first second\nquorum both\n";
    vec![
        ("witness/policy.txt", policy),
        ("witness/request.txt", format!("old {old}\n{proof}\n{late}")),
        ("witness/answer.txt", lines[0].clone()),
        ("witness/cosigned.txt", format!("{late}{}", lines.concat())),
    ]
}

/// cosignature/v1: the time, and an Ed25519 signature over the time and the checkpoint's text.
fn cosignature(name: &str, key: &SecretKey, time: u64, text: &str) -> String {
    let signature = key.sign(format!("cosignature/v1\ntime {time}\n{text}").as_bytes());
    let bytes = [&key_hash(name, key)[..], &time.to_be_bytes(), &signature].concat();
    format!("\u{2014} {name} {}\n", STANDARD.encode(bytes))
}

fn vkey(name: &str, key: &SecretKey) -> String {
    let typed = [&[4][..], &key.public().to_bytes()].concat();
    format!("{name}+{}+{}", hex::encode(key_hash(name, key)), STANDARD.encode(typed))
}

fn key_hash(name: &str, key: &SecretKey) -> [u8; 4] {
    let hash = Sha256::new().chain_update(name).chain_update(b"\n\x04").chain_update(key.public().to_bytes());
    hash.finalize()[..4].try_into().unwrap()
}
