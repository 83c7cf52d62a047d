//! A run that is predicted once and then run again and again, each time with another fault.

use crate::draw::Random;
use client::cause;
use client::evidence::{Folders, case_of, locate};
use client::folder::{Entries, Secrets, read_entries, read_secrets};
use client::replay::{self, Replay};
use device::backend::Backend;
use device::job::Job;
use device::run::{Request, run};
use schemas::challenge::challenge;
use schemas::receipt::DeviceRecord;
use schemas::run::Steps;
use schemas::statement::{Payload, Statement};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use step::dispatch;
use step::session::Session;
use step::setup::Setup;
use tests::workshop::Workshop;
use tlog::checkpoint::Checkpoint;
use tlog::hash::leaf_hash;
use tlog::note::{KeyName, SigningKey};
use tlog::tree::{StoredHashes, TreeHead, TreeSize};
use verify::case::{Case, Decision};
use verify::evidence::Evidence;
use verify::receipt::{Admitted, Terms, admit};

const ORIGIN: &str = "campaign.example/log";
/// Leaf index of the prediction in the tree in memory: after the genesis entry and the run.
const PREDICTION_INDEX: u64 = 2;

/// A predicted run and what an honest device computes in it.
pub struct Scene {
    /// For people.
    pub name: &'static str,
    /// Everything to compute from.
    pub setup: Setup,
    /// The honest tensors as bits: by step, leaf and tap. A tap of tokens is empty.
    pub honest: Vec<Vec<Vec<Vec<u32>>>>,
    /// The honest parameters after each step.
    pub parameters: Vec<Vec<u32>>,
    shop: Workshop,
    job: Job,
    entries: Entries,
    secrets: Secrets,
    log: SigningKey,
}

/// What came of a run.
pub struct Located {
    /// What the comparison says.
    pub decision: Decision,
    /// Whether every record, and every answer, is that of an honest run.
    pub unchanged: bool,
}

impl Scene {
    /// The models that faults are planted in.
    pub fn all() -> Vec<Scene> {
        vec![
            Scene::new("gpt2", |shop| shop.write_run("run", 1)),
            Scene::new("llama", |shop| shop.write_llama("run", 2)),
            Scene::new("gpt2-sgd", |shop| {
                shop.write_run("run", 3);
                let path = shop.path("run.toml");
                let text = std::fs::read_to_string(&path).expect("campaign: the run is there");
                let (head, _) = text.split_once("[optimizer]").expect("campaign: it has an optimizer");
                let optimizer = "[optimizer]\nkind = \"sgd\"\nlearning_rate = 0.05\nmomentum = 0.9\n\
                                 weight_decay = 0.0\nclip = 1.0\nschedule = \"constant\"\nwarmup_steps = 0\n\
                                 final_fraction = 1.0\n";
                std::fs::write(path, head.to_owned() + optimizer).expect("campaign: the folder is writable");
            }),
        ]
    }

    fn new(name: &'static str, write: impl Fn(&Workshop)) -> Scene {
        let shop = Workshop::open();
        write(&shop);
        shop.predict("run", None).expect_code(0);
        let entries = read_entries(&shop.path("run/prediction")).expect("campaign: a prediction");
        let secrets = read_secrets(&entries).expect("campaign: its secrets");
        let job = Job::read(&shop.path("run/job")).expect("campaign: a job");
        let setup = replay::load(&entries, &shop.path("run.toml")).expect("campaign: the run's setup");
        let log = SigningKey::from_seed(KeyName::new(ORIGIN).expect("campaign: a name"), &[7; 32]);
        let (honest, parameters) = compute(&setup);
        Scene { name, setup, honest, parameters, shop, job, entries, secrets, log }
    }

    /// The predicted steps.
    pub fn steps(&self) -> Steps {
        self.entries.prediction.steps
    }

    /// A number of devices that can share the run.
    pub fn devices(&self, random: &mut Random) -> u64 {
        1 << random.below(u64::from(self.setup.plan.devices_max.ilog2()) + 1)
    }

    /// A log checkpoint that covers the prediction; each challenges for a step of its own.
    fn checkpoint(&self, random: &mut Random) -> Vec<u8> {
        let mut tree = StoredHashes::new();
        for entry in [ORIGIN.as_bytes(), &self.entries.run_bytes, &self.entries.prediction_bytes] {
            tree.push(leaf_hash(entry));
        }
        tree.push(leaf_hash(&random.next().to_be_bytes()));
        let size = TreeSize(PREDICTION_INDEX + 2);
        let head = TreeHead { size, root: tree.root(size) };
        Checkpoint { origin: ORIGIN.to_owned(), head }.sign(&self.log).into_bytes()
    }

    /// Runs the job on so many devices with these faults, and compares.
    pub fn run(
        &self,
        backend: &dyn Backend,
        devices: u64,
        faults: &[String],
        random: &mut Random,
    ) -> Located {
        let out = self.shop.path("out");
        let _ = std::fs::remove_dir_all(&out);
        let checkpoint = self.checkpoint(random);
        let request = Request {
            checkpoint: checkpoint.clone(),
            devices,
            steps: self.steps(),
            keys: self.shop.path("keys"),
            out: out.clone(),
            traces: Some(u64::MAX),
            faults: faults.to_vec(),
            alone: None,
            hand_in: false,
            snapshot_every: 0,
            stop: Arc::new(AtomicUsize::new(usize::MAX)),
        };
        if let Err(error) = run(&self.job, &request, backend, &mut |_| ()) {
            panic!("campaign: {}: {faults:?}: {error}", self.name);
        }
        self.compare(&out, devices, &checkpoint)
    }

    /// What `client reconcile --replay` does, but for the log.
    fn compare(&self, out: &Path, devices: u64, checkpoint: &[u8]) -> Located {
        let terms = Terms {
            run: &self.entries.run,
            id: self.entries.id,
            log: self.log.verifier(),
            prediction_index: PREDICTION_INDEX,
            opening_index: None,
        };
        let (mut admitted, mut refused) = (Vec::<Admitted>::new(), Vec::new());
        for rank in 0..devices {
            let read = |name: String| std::fs::read(out.join(name)).ok();
            let files = (read(format!("receipt-{rank}.cose")), read(format!("receipt-{rank}.body.cbor")));
            let (Some(bytes), Some(body)) = files else { continue };
            let statement = Statement::open(&bytes).expect("campaign: a device writes statements");
            let Payload::Receipt(receipt) = &statement.payload else { panic!("campaign: not a receipt") };
            match admit(statement.digest, statement.signer, receipt, 9 + rank, &body, &terms) {
                Ok(one) => admitted.push(one),
                Err(why) => refused.push(format!("receipt-{rank}.cose: {why}")),
            }
        }
        let folders: Folders = (0..devices).map(|rank| (rank, out.to_owned())).collect();
        let none = Evidence::none();
        let case = case_of(&self.entries, &self.secrets, &admitted, &refused, &none, None);
        let prediction = &self.entries.folder;
        let locate = |case: &Case| locate(case, prediction, &folders).expect("campaign: a case fits");
        let mut located = locate(&case);
        let replay = Replay::new(&self.entries, &self.secrets, &self.setup, |_| ());
        let replay = replay.expect("campaign: the plan was predicted");
        let expected = replay.expected_answer(challenge(self.entries.id, checkpoint));
        let answer = expected.expect("campaign: the replay is the prediction");
        if located.decision.answers_judged {
            located = locate(&Case { answer, ..case });
        }
        let replayed = cause::replay(&located.decision, &case, &located.evidence, &replay);
        let replayed = replayed.expect("campaign: what is found can be replayed");
        let decision = locate(&Case { answer, replayed: &replayed, ..case }).decision;
        let honest = |one: &Admitted| {
            let rank = one.receipt().rank;
            let mut records =
                one.body().records.iter().map(|record| self.is_predicted(record, rank, devices));
            one.body().records.len() as u64 == self.steps().count()
                && records.all(|one| one)
                && one.receipt().answer == answer
                && one.receipt().checkpoint == checkpoint
        };
        let unchanged = admitted.len() as u64 == devices && admitted.iter().all(honest);
        Located { decision, unchanged }
    }

    /// Whether a record says what was predicted, and that its peers' nodes were the predicted ones.
    fn is_predicted(&self, record: &DeviceRecord, rank: u64, devices: u64) -> bool {
        let Some(predicted) = self.secrets.body.record(record.step) else { return false };
        let each = (self.setup.plan.leaves / devices) as usize;
        let own = rank as usize * each..(rank as usize + 1) * each;
        let (Some(found), Some(expected)) = (&record.outcome, &predicted.outcome) else { return false };
        let nodes = |level: u32, rank: u64| {
            let max = self.setup.plan.devices_max;
            expected.nodes[(2 * max - 2 * (devices >> level) + (rank >> level)) as usize]
        };
        let exchanges = found.exchanges.iter().zip(0..).all(|(exchange, level)| {
            let partner = rank ^ (1 << level);
            exchange.received.checksum == nodes(level, partner)
                && exchange.sum.checksum == nodes(level + 1, rank)
        });
        exchanges
            && record.traces == predicted.traces[own.clone()]
            && record.losses == predicted.losses[own]
            && record.non_finite == predicted.non_finite
            && found.partial.checksum == nodes(0, rank)
            && found.reduced.checksum == expected.reduced
            && found.norm == expected.norm
            && found.parameters.checksum == expected.parameters
            && (found.first_moment, found.second_moment) == (expected.first_moment, expected.second_moment)
    }
}

type Tensors = Vec<Vec<Vec<Vec<u32>>>>;

/// Every tensor of every leaf, and the parameters after each step, by the oracle's own kernels.
fn compute(setup: &Setup) -> (Tensors, Vec<Vec<u32>>) {
    let bits = |words: &[f32]| words.iter().map(|word| word.to_bits()).collect::<Vec<u32>>();
    let session = Session::new(&setup.plan, &setup.tokens, dispatch::Backend::detect());
    let session = session.expect("campaign: the plan was predicted");
    let mut state = setup.state.clone();
    let (mut tensors, mut parameters) = (Vec::new(), Vec::new());
    for step in 0..setup.run.steps {
        let mut leaves = Vec::new();
        for leaf in 0..setup.plan.leaves {
            let mut taps = vec![Vec::new(); setup.plan.taps().count()];
            let mut keep = |tap: usize, words: &mut [f32]| taps[tap] = bits(words);
            session.leaf(step, leaf, &state.parameters, &mut keep);
            leaves.push(taps);
        }
        tensors.push(leaves);
        session.step(&mut state).expect("campaign: the plan was predicted");
        parameters.push(bits(&state.parameters));
    }
    (tensors, parameters)
}
