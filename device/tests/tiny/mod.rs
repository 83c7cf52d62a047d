//! Tiny jobs, as an oracle would write them, and what comes of running them.
#![allow(dead_code)] // Each test file uses its part.

use device::backend::Backend;
use device::job::Job;
use device::run::{Request, RunError, Summary, run};
use device::simulated::Simulated;
use schemas::challenge::challenge;
use schemas::config::Config;
use schemas::digest::Challenge;
use schemas::key::SecretKey;
use schemas::object::Object as _;
use schemas::plan::Plan;
use schemas::profile::F32_FMA;
use schemas::receipt::{DeviceRecord, Receipt, ReceiptBody, Sum};
use schemas::run::{Run, Steps};
use schemas::statement::{Payload, Statement};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use step::checksum::checksum_u32;
use step::init::initial_parameters;
use step::session::Step;
use step::state::State;
use step::tree::meeting_index;

pub const CHECKPOINT: &[u8] =
    b"log.example/tiny\n5\nAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n\n\xe2\x80\x94 log.example/tiny AAAA\n";
/// As [`CHECKPOINT`], of a smaller tree.
pub const CHECKPOINT_BEFORE: &[u8] =
    b"log.example/tiny\n4\nAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n\n\xe2\x80\x94 log.example/tiny AAAA\n";
pub const STEPS: u64 = 4;
pub const LEAVES: u64 = 4;

const CONFIG: &str = r#"
name = "tiny"
profile = "f32-fma"
steps = 4
leaves = 4
devices_max = 4
[model]
model_type = "gpt2"
vocab_size = 40
n_positions = 8
n_embd = 8
n_layer = 1
n_head = 2
layer_norm_epsilon = 1e-5
activation_function = "gelu_new"
initializer_range = 0.2
[state]
seed = 1
[data]
format = "nanogpt"
files = ["tokens"]
sequences = 1
length = 8
seed = 1
[optimizer]
kind = "adamw"
learning_rate = 1e-2
beta1 = 0.9
beta2 = 0.95
epsilon = 1e-8
weight_decay = 0.1
clip = 1.0
schedule = "constant"
warmup_steps = 0
final_fraction = 0.1
"#;

/// A job and the folder it lives in.
pub struct Tiny {
    pub folder: tempfile::TempDir,
    pub run: Run,
    pub plan: Plan,
    pub tokens: Vec<u32>,
    pub state: State,
}

/// What a run left behind.
pub struct Output {
    pub folder: PathBuf,
    pub summary: Summary,
    /// By rank; none where there is no receipt.
    pub receipts: Vec<Option<(Receipt, ReceiptBody)>>,
}

impl Output {
    pub fn receipt(&self, rank: usize) -> &Receipt {
        &self.receipts[rank].as_ref().unwrap().0
    }

    pub fn records(&self, rank: usize) -> &[DeviceRecord] {
        &self.receipts[rank].as_ref().unwrap().1.records
    }

    pub fn record(&self, rank: usize, step: u64) -> &DeviceRecord {
        self.records(rank).iter().find(|record| record.step == step).unwrap()
    }
}

impl Tiny {
    pub fn new() -> Tiny {
        Tiny::of_steps(STEPS)
    }

    /// A job of any number of steps.
    pub fn of_steps(steps: u64) -> Tiny {
        let config = CONFIG.replace("steps = 4\n", &format!("steps = {steps}\n"));
        let tokens = (0..400_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) % 40).collect();
        Tiny::of(&Config::from_toml(&config).unwrap(), 1, tokens)
    }

    /// A job of another config over tokens of one's own, its first state drawn with a seed.
    pub fn of(config: &Config, seed: u64, tokens: Vec<u32>) -> Tiny {
        let dataset = checksum_u32(&[tokens.len() as u64], &tokens);
        let plan = step::plan::derive(config, tokens.len() as u64, dataset).unwrap();
        let state = State::fresh(initial_parameters(&plan, seed, config.model.initializer_range()));
        let run = Run {
            name: config.name.clone(),
            profile: F32_FMA.id.into(),
            profile_digest: F32_FMA.digest(),
            config: config.digest(),
            plan: plan.digest(),
            state: state.digest(),
            dataset,
            steps: config.steps,
            leaves: config.leaves,
            devices_max: config.devices_max,
        };
        let tiny = Tiny { folder: tempfile::tempdir().unwrap(), run, plan, tokens, state };
        std::fs::create_dir(tiny.job_folder()).unwrap();
        std::fs::write(tiny.job_folder().join("plan.cbor"), tiny.plan.encode()).unwrap();
        let bytes: Vec<u8> = tiny.tokens.iter().flat_map(|token| token.to_le_bytes()).collect();
        std::fs::write(tiny.job_folder().join("tokens.bin"), bytes).unwrap();
        let snapshot = tiny.job_folder().join("initial.safetensors");
        step::snapshot::write(&snapshot, &tiny.plan.parameters, &tiny.state).unwrap();
        tiny.sign_run(&tiny.run);
        tiny
    }

    /// Writes a run statement.
    pub fn sign_run(&self, run: &Run) {
        let key = SecretKey::from_seed([1; 32]);
        let bytes = Statement::sign(&Payload::Run(run.clone()), &key).unwrap();
        std::fs::write(self.job_folder().join("run.cose"), bytes).unwrap();
    }

    pub fn job_folder(&self) -> PathBuf {
        self.folder.path().join("job")
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn job(&self) -> Job {
        Job::read(&self.job_folder()).unwrap_or_else(|error| panic!("{error}"))
    }

    pub fn challenge(&self) -> Challenge {
        challenge(self.run.id(), CHECKPOINT)
    }

    pub fn request(&self, out: &str, devices: u64, faults: &[&str]) -> Request {
        Request {
            checkpoint: CHECKPOINT.to_vec(),
            devices,
            steps: Steps { first: 0, end: self.run.steps },
            keys: self.path("keys"),
            out: self.path(out),
            traces: Some(u64::MAX),
            faults: faults.iter().map(|fault| fault.to_string()).collect(),
            alone: None,
            hand_in: false,
            snapshot_every: 1,
            stop: Arc::new(AtomicUsize::new(usize::MAX)),
        }
    }

    pub fn run(&self, out: &str, devices: u64, faults: &[&str]) -> Output {
        self.run_request(&self.request(out, devices, faults)).unwrap_or_else(|error| panic!("{error}"))
    }

    pub fn run_request(&self, request: &Request) -> Result<Output, RunError> {
        self.run_on(request, &Simulated::detect())
    }

    pub fn run_on(&self, request: &Request, backend: &dyn Backend) -> Result<Output, RunError> {
        let summary = run(&self.job(), request, backend, &mut |_| ())?;
        let receipts = request.ranks().into_iter().map(|rank| read_receipt(&request.out, rank)).collect();
        Ok(Output { folder: request.out.clone(), summary, receipts })
    }

    /// The record of one device in one step is what the oracle says of its share.
    pub fn assert_record(&self, record: &DeviceRecord, predicted: &Step, devices: u64, rank: u64) {
        let outcome = predicted.record.outcome.as_ref().unwrap();
        let meeting = predicted.meeting.as_ref().unwrap();
        let leaves = self.plan.leaves;
        let node = |first: u64, end: u64| {
            let index = meeting_index(&(first..end), leaves, self.plan.devices_max).unwrap();
            Sum { checksum: outcome.nodes[index], fold: meeting.nodes[index] }
        };
        let each = leaves / devices;
        let own = (rank * each) as usize..((rank + 1) * each) as usize;
        assert_eq!(record.losses, predicted.record.losses[own.clone()]);
        assert_eq!(record.traces, predicted.record.traces[own]);
        assert_eq!(record.non_finite, None);
        let found = record.outcome.as_ref().unwrap();
        assert_eq!(found.partial, node(rank * each, (rank + 1) * each));
        assert_eq!(found.exchanges.len() as u32, devices.ilog2());
        for (level, exchange) in found.exchanges.iter().enumerate() {
            let size = each << level;
            let sibling = (rank * each / size) ^ 1;
            assert_eq!(exchange.received, node(sibling * size, (sibling + 1) * size));
            let whole = sibling / 2;
            assert_eq!(exchange.sum, node(whole * 2 * size, (whole + 1) * 2 * size));
        }
        assert_eq!(found.reduced, Sum { checksum: outcome.reduced, fold: meeting.reduced });
        assert_eq!(found.norm, outcome.norm);
        assert_eq!(found.parameters, Sum { checksum: outcome.parameters, fold: meeting.parameters });
        assert_eq!((found.first_moment, found.second_moment), (outcome.first_moment, outcome.second_moment));
    }
}

/// A receipt as the log and the client would read it: signature, body, and that they belong together.
pub fn read_receipt(folder: &Path, rank: u64) -> Option<(Receipt, ReceiptBody)> {
    let statement = std::fs::read(folder.join(format!("receipt-{rank}.cose"))).ok()?;
    let Payload::Receipt(receipt) = Statement::open(&statement).unwrap().payload else {
        panic!("receipt-{rank}.cose is no receipt")
    };
    let body = std::fs::read(folder.join(format!("receipt-{rank}.body.cbor"))).unwrap();
    assert!(receipt.body.names(&body));
    Some((*receipt, ReceiptBody::decode(&body).unwrap()))
}

/// Every file under a folder, by name relative to it.
pub fn files(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false => found.push(path.strip_prefix(folder).unwrap().to_str().unwrap().to_owned()),
            }
        }
    }
    found.sort();
    found
}

/// Which fields of a record differ, by name.
pub fn changes(clean: &DeviceRecord, found: &DeviceRecord) -> Vec<String> {
    let mut names = Vec::new();
    let mut note = |differs: bool, name: &str| names.extend(differs.then(|| name.to_owned()));
    assert_eq!((clean.step, clean.traces.len()), (found.step, found.traces.len()));
    for (i, (one, other)) in clean.traces.iter().zip(&found.traces).enumerate() {
        note(one != other, &format!("trace{i}"));
    }
    for (i, (one, other)) in clean.losses.iter().zip(&found.losses).enumerate() {
        note(one != other, &format!("loss{i}"));
    }
    match (&clean.outcome, &found.outcome) {
        (Some(one), Some(other)) => {
            note(one.partial != other.partial, "partial");
            assert_eq!(one.exchanges.len(), other.exchanges.len());
            for (i, (one, other)) in one.exchanges.iter().zip(&other.exchanges).enumerate() {
                note(one.received != other.received, &format!("received{i}"));
                note(one.sum != other.sum, &format!("sum{i}"));
            }
            note(one.reduced != other.reduced, "reduced");
            note(one.norm != other.norm, "norm");
            note(one.parameters != other.parameters, "parameters");
            note(one.first_moment != other.first_moment, "first");
            note(one.second_moment != other.second_moment, "second");
        }
        (one, other) => note(one.is_some() != other.is_some(), "outcome"),
    }
    note(clean.non_finite != found.non_finite, "non_finite");
    names
}
