//! The module for pages answers as this machine does, byte for byte: every fixture, every kind of bundle that
//! `verify`'s tests know, every changed byte of one.
//!
//! `make wasm-check` runs this: it builds the module and says in `BROWSER_WASM` where it is. Node carries it out.

#[path = "../../verify/tests/support/mod.rs"]
mod support;

use schemas::bundle::Bundle;
use schemas::key::SecretKey;
use schemas::object::Object as _;
use schemas::record::NonFinite;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;
use support::log::Log;
use support::story::{Story, device_key, predictor_key};
use support::{Vector, World, invalid_bodies, invalid_world, outcome};
use tempfile::TempDir;

/// Bundles and what to ask about them.
struct Cases {
    folder: TempDir,
    bundles: Vec<Vec<u8>>,
    asked: Vec<Case>,
}

/// One question: a policy, the number of a bundle, where to cut it, and which byte to replace by which.
struct Case {
    policy: String,
    bundle: usize,
    end: usize,
    change: Option<(usize, u8)>,
}

/// What came back for all cases.
#[derive(Debug, Default)]
struct Compared {
    /// How many answers had each status.
    statuses: BTreeMap<u8, usize>,
    /// The numbers of the checks that failed.
    failed: BTreeSet<u64>,
    /// Milliseconds of all cases, here and in the module.
    ms: (f64, f64),
}

impl Cases {
    fn new() -> Cases {
        Cases { folder: tempfile::tempdir().unwrap(), bundles: vec![], asked: vec![] }
    }

    fn add(&mut self, bytes: Vec<u8>) -> usize {
        std::fs::write(self.path(self.bundles.len()), &bytes).unwrap();
        self.bundles.push(bytes);
        self.bundles.len() - 1
    }

    fn path(&self, bundle: usize) -> PathBuf {
        self.folder.path().join(bundle.to_string())
    }

    fn ask(&mut self, policy: &str, bundle: usize) {
        let end = self.bundles[bundle].len();
        self.asked.push(Case { policy: policy.into(), bundle, end, change: None });
    }

    fn ask_changed(&mut self, policy: &str, bundle: usize, at: usize, byte: u8) {
        self.ask(policy, bundle);
        self.asked.last_mut().unwrap().change = Some((at, byte));
    }

    fn ask_cut(&mut self, policy: &str, bundle: usize, end: usize) {
        self.ask(policy, bundle);
        self.asked.last_mut().unwrap().end = end;
    }

    /// Answers every case here and in the module, and asserts that the answers are the same.
    fn compare(&self) -> Compared {
        let module = std::env::var_os("BROWSER_WASM")
            .expect("expected the module's path in BROWSER_WASM; `make wasm-check`");
        let line = |case: &Case| {
            let Case { policy, bundle, end, change } = case;
            json!({ "policy": policy, "bundle": self.path(*bundle), "end": end, "change": change })
                .to_string()
                + "\n"
        };
        let list = self.folder.path().join("cases");
        std::fs::write(&list, self.asked.iter().map(line).collect::<String>()).unwrap();
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/answers.mjs");
        let output = Command::new("node").arg(program).arg(module).arg(list).output().unwrap();
        assert!(output.status.success(), "node: {}", String::from_utf8_lossy(&output.stderr));
        let answers = String::from_utf8(output.stdout).unwrap();
        assert_eq!(answers.lines().count(), self.asked.len());

        let mut compared = Compared::default();
        for (case, answer) in self.asked.iter().zip(answers.lines()) {
            let mut bytes = self.bundles[case.bundle][..case.end].to_vec();
            if let Some((at, byte)) = case.change {
                bytes[at] = byte;
            }
            let start = Instant::now();
            let here = browser::check(case.policy.as_bytes(), &bytes);
            compared.ms.0 += start.elapsed().as_secs_f64() * 1e3;
            let (ms, answer) = answer.split_once(' ').unwrap();
            compared.ms.1 += ms.parse::<f64>().unwrap();
            let of = (case.bundle, case.end, case.change);
            assert_eq!(answer, format!("{} {}", here.status, here.json), "{of:?} under {}", case.policy);
            *compared.statuses.entry(here.status).or_default() += 1;
            let value: Value = serde_json::from_str(&here.json).unwrap();
            let checks = value["checks"].as_array().into_iter().flatten();
            compared
                .failed
                .extend(checks.filter(|c| c["state"] == "failed").map(|c| c["number"].as_u64().unwrap()));
        }
        // tools/wasm.sh adds these up.
        println!("wasm: {} answers equal", self.asked.len());
        compared
    }
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("fixtures")
}

/// The key of a role in the fixtures; see their README.
fn fixture_key(role: &str) -> String {
    let mut seed = [0; 32];
    seed[..role.len()].copy_from_slice(role.as_bytes());
    SecretKey::from_seed(seed).public().to_string()
}

fn policy(log_key: &str, predictors: &[&str], devices: &[&str], signers: &[&str]) -> String {
    json!({ "log_key": log_key, "predictor_keys": predictors, "device_keys": devices, "verdict_keys": signers })
        .to_string()
}

/// A policy with the predictor's key and any device, for a story's log.
fn policy_of(story: &Story) -> String {
    policy(&story.log.key().to_string(), &[&predictor_key().public().to_string()], &[], &[])
}

/// Whatever the fixtures' folders hold as bytes: encoded objects, and the inputs that are refused.
fn fixture_bytes(folder: &Path, found: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let ending = path.extension().and_then(|ending| ending.to_str());
        if path.is_dir() {
            fixture_bytes(&path, found);
        } else if ending == Some("cbor") {
            found.insert(path.clone(), std::fs::read(&path).unwrap());
        } else if ending == Some("txt") && folder.ends_with("rejected") {
            let text = std::fs::read_to_string(&path).unwrap();
            let (_, digits) = text.split_once("\n\n").unwrap();
            found.insert(path, hex(&digits.split_whitespace().collect::<String>()));
        }
    }
}

fn hex(digits: &str) -> Vec<u8> {
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
}

#[test]
fn every_fixture_has_the_same_answer() {
    let log = std::fs::read_to_string(fixtures().join("checkpoint/log.vkey")).unwrap();
    let [predictor, first, second] = ["predictor", "device-0", "device-1"].map(fixture_key);
    let any_device = policy(&log, &[&predictor], &[], &[]);
    let mut found = BTreeMap::new();
    fixture_bytes(&fixtures(), &mut found);
    let mut cases = Cases::new();
    for bytes in found.values() {
        let bundle = cases.add(bytes.clone());
        cases.ask(&any_device, bundle);
    }
    let agree = cases.add(found[&fixtures().join("bundle/agree.cbor")].clone());
    let weak = format!("ed25519:{}", "00".repeat(32));
    let trust = std::fs::read_to_string(fixtures().join("witness/policy.txt")).unwrap();
    for policy in [
        // Policy files: one that this bundle meets, one that it does not, one that is none.
        format!("{trust}predictor {predictor}\nfaulty 1\ncomplete yes\n"),
        format!("{trust}predictor {predictor}\nsimulated no\n"),
        format!("{trust}predictors {predictor}\n"),
        policy(&log, &[&predictor], &[&first, &second], &[&predictor]),
        policy(&log, &[&predictor, &first], &[&second, &first], &[]),
        policy(&log, &[&predictor], &[&first], &[]),
        policy(&log, &[&first], &[], &[]),
        policy(&log, &[&predictor], &[], &[&first]),
        policy(Story::new().log.key().to_string().as_str(), &[&predictor], &[], &[]),
        // Not usable.
        policy(&log, &[], &[], &[]),
        policy(&log, &[&weak], &[], &[]),
        policy("log", &[&predictor], &[], &[]),
        policy(&log, &["\u{e9}\u{1f600}"], &[], &[]),
        json!({ "log_key": log, "predictor_keys": [predictor], "devices": [] }).to_string(),
        json!({ "log_key": log }).to_string(),
        json!({ "log_key": 7, "predictor_keys": [predictor] }).to_string(),
        String::from("{\"log_key\""),
        String::new(),
        format!("{}{any_device}", " ".repeat(browser::POLICY_BYTES_MAX)),
    ] {
        cases.ask(&policy, agree);
    }
    let compared = cases.compare();
    assert!(found.len() > 100, "{} fixtures", found.len());
    assert_eq!((compared.statuses[&0], compared.statuses[&1]), (7, 5), "{compared:?}");
    assert!(compared.failed.is_superset(&BTreeSet::from([1, 2, 4, 9])), "{compared:?}");
}

#[test]
fn every_kind_of_bundle_has_the_same_answer() {
    let mut cases = Cases::new();
    let mut ask = |story: &Story, bundle: &Bundle| {
        let bundle = cases.add(bundle.encode());
        cases.ask(&policy_of(story), bundle);
    };
    let small = World::new(2, 2, 2);
    for (leaves, devices_max, devices) in [(2, 2, 2), (4, 4, 4), (3, 1, 1), (4, 4, 2)] {
        let world = World::new(leaves, devices_max, 3);
        let story = Story::whole(&world, &world.bodies(devices), vec![], devices == 2);
        ask(&story, &story.bundle(&world));
    }
    // A log with more entries than 32 bits count.
    let mut far = Story::within(Log::after(5 << 33, "log.example/test", 1));
    far.tell(&small, &small.bodies(2), vec![], true);
    ask(&far, &far.bundle(&small));
    // Diverging, with a word that the folds locate; then one that nothing explains.
    for evidence in [vec![small.meetings[1].encode()], vec![]] {
        let mut bodies = small.bodies(2);
        outcome(&mut bodies, 1, 1).parameters = small.sum_with(1, Vector::Parameters, &[(4, 1 << 22)]);
        let story = Story::whole(&small, &bodies, evidence, false);
        ask(&story, &story.bundle(&small));
    }
    let mut bodies = small.bodies(2);
    outcome(&mut bodies, 1, 1).norm ^= 1;
    let story = Story::whole(&small, &bodies, vec![], false);
    ask(&story, &story.bundle(&small));
    let at = NonFinite::Tap { leaf: 5, tap: 3 };
    let world = invalid_world(at);
    let story = Story::whole(&world, &invalid_bodies(&world, 2, at), vec![], false);
    ask(&story, &story.bundle(&world));
    // Made openly, and one receipt of two.
    for openly in [true, false] {
        let mut story = Story::new();
        story.log_run(&small);
        story.log_prediction(&small, openly);
        let note = story.log.checkpoint(story.log.size());
        let body = &small.bodies(2)[0];
        let receipt = story.receipt(&small, 2, body, &note);
        story.log_receipt(receipt, body, device_key(0));
        if !openly {
            story.log_opening(&small);
        }
        story.log_verdict(&small, None);
        ask(&story, &story.bundle(&small));
    }
    // Parts in another order, left out, twice, or another's.
    let story = Story::whole(&small, &small.bodies(2), vec![], true);
    let whole = story.bundle(&small);
    for at in 0..whole.entries.len() {
        let (mut fewer, mut twice, mut first, mut nowhere) =
            (whole.clone(), whole.clone(), whole.clone(), whole.clone());
        fewer.entries.remove(at);
        twice.entries.push(whole.entries[at].clone());
        first.entries.swap(0, at);
        nowhere.entries[at].index |= 1 << 40;
        [fewer, twice, first, nowhere].iter().for_each(|bundle| ask(&story, bundle));
    }
    for at in 0..whole.attachments.len() {
        let mut fewer = whole.clone();
        fewer.attachments.remove(at);
        ask(&story, &fewer);
    }
    let (mut other_plan, mut no_cover, mut far_cover) = (whole.clone(), whole.clone(), whole.clone());
    other_plan.plan = World::new(2, 2, 3).plan.encode();
    no_cover.covers.clear();
    far_cover.covers[0].tree_size += 1 << 32;
    [other_plan, no_cover, far_cover].iter().for_each(|bundle| ask(&story, bundle));
    let mut verdict = story.verdict(&small, None);
    verdict.steps.end += 1;
    let mut lied = Story::whole(&small, &small.bodies(2), vec![], true);
    lied.log_verdict_of(verdict);
    ask(&lied, &lied.bundle(&small));
    let compared = cases.compare();
    assert_eq!(compared.statuses[&0], 6, "{compared:?}");
    assert_eq!(compared.failed, BTreeSet::from([3, 4, 5, 6, 7, 8, 9]), "{compared:?}");
}

#[test]
fn every_changed_byte_and_every_cut_has_the_same_answer() {
    let world = World::new(2, 2, 2);
    let story = Story::whole(&world, &world.bodies(2), vec![], true);
    let policy = policy_of(&story);
    let mut cases = Cases::new();
    let bytes = story.bundle(&world).encode();
    let bundle = cases.add(bytes.clone());
    // Headers of strings, lists and maps whose length has eight bytes, and so may not fit into a pointer there.
    let headers = [0x5b, 0x7b, 0x9b, 0xbb];
    for (at, byte) in bytes.iter().enumerate() {
        cases.ask_cut(&policy, bundle, at);
        let header = headers[at % 4];
        for changed in [byte ^ 0x01, byte ^ 0x80, if *byte == header { !header } else { header }] {
            cases.ask_changed(&policy, bundle, at, changed);
        }
    }
    let compared = cases.compare();
    assert!(!compared.statuses.contains_key(&0));
    assert!(compared.failed.is_superset(&BTreeSet::from([1, 2, 3, 5, 6, 7])), "{compared:?}");
}

#[test]
fn a_long_bundle_has_the_same_answer_and_its_time_is_told() {
    let world = World::new(8, 4, 100);
    let story = Story::whole(&world, &world.bodies(4), vec![], true);
    let mut cases = Cases::new();
    let bytes = story.bundle(&world).encode();
    let kb = bytes.len() / 1000;
    let bundle = cases.add(bytes);
    // The first one there includes what is compiled at first use.
    for _ in 0..8 {
        cases.ask(&policy_of(&story), bundle);
    }
    let compared = cases.compare();
    assert_eq!(compared.statuses, BTreeMap::from([(0, 8)]));
    let [here, there] = [compared.ms.0, compared.ms.1].map(|ms| ms / 8.0);
    println!(
        "wasm: a bundle of {kb} kB is checked in {there:.1} ms, and in {here:.1} ms by this machine's own code"
    );
}
