//! A run told from its first entry to its bundle, with room for other tellings.

use super::log::Log;
use super::{Vector, World, fold};
use schemas::attachment::AttachmentName;
use schemas::bundle::{BUNDLE_VERSION, BUNDLE_VERSION_1, Bundle, Cover};
use schemas::challenge::{challenge, chosen_step};
use schemas::completeness::Completeness;
use schemas::digest::{AttachmentDigest, EntryDigest, RunId, Salt};
use schemas::key::SecretKey;
use schemas::object::Object as _;
use schemas::opening::Opening;
use schemas::prediction::{OpenBody, Prediction};
use schemas::receipt::{Answer, DeviceFacts, Receipt, ReceiptBody};
use schemas::register::{EntryLeaf, ListRoot, PredictionLeaf, Register};
use schemas::statement::{Payload, Statement};
use schemas::verdict::{Outcome, Verdict};
use tlog::compact::CompactTree;
use tlog::hash::leaf_hash;
use tlog::note::VerifierKey;
use verify::case::{Case, Decision};
use verify::evidence::Evidence;
use verify::policy::Policy;
use verify::receipt::{Admitted, Refusal, Terms, admit};
use verify::reconcile::reconcile;

pub const SALT: Salt = Salt([42; 32]);

pub fn predictor_key() -> SecretKey {
    SecretKey::from_seed([11; 32])
}

pub fn device_key(rank: u64) -> SecretKey {
    SecretKey::from_seed([20 + rank as u8; 32])
}

/// A policy with the predictor's key and any device.
pub fn policy(log: &VerifierKey) -> Policy {
    Policy::new(log.clone(), vec![predictor_key().public()], vec![], vec![]).unwrap()
}

/// One logged receipt.
pub struct Logged {
    pub index: u64,
    pub entry: EntryDigest,
    pub receipt: Receipt,
    pub signer: SecretKey,
    pub body: Vec<u8>,
}

/// What has been logged so far.
pub struct Story {
    pub log: Log,
    pub run_index: u64,
    pub prediction_index: u64,
    pub prediction: Option<Prediction>,
    pub opening_index: Option<u64>,
    pub receipts: Vec<Logged>,
    pub verdict_index: Option<u64>,
    pub evidence: Vec<Vec<u8>>,
    /// The witnesses in the checkpoint that the receipts answer, and their times.
    pub cosigners: Vec<(u8, u64)>,
}

impl Story {
    pub fn new() -> Story {
        Story::within(Log::new("log.example/test", 1))
    }

    /// A story that goes into this log.
    pub fn within(log: Log) -> Story {
        Story {
            log,
            run_index: 0,
            prediction_index: 0,
            prediction: None,
            opening_index: None,
            receipts: vec![],
            verdict_index: None,
            evidence: vec![],
            cosigners: vec![],
        }
    }

    /// Everything, for these bodies, with evidence and expected answer.
    pub fn whole(world: &World, bodies: &[ReceiptBody], evidence: Vec<Vec<u8>>, replayed: bool) -> Story {
        let mut story = Story::new();
        story.tell(world, bodies, evidence, replayed);
        story
    }

    /// The same, from here on.
    pub fn tell(&mut self, world: &World, bodies: &[ReceiptBody], evidence: Vec<Vec<u8>>, replayed: bool) {
        self.log_run(world);
        self.log.append(b"somebody else's".to_vec());
        self.log_prediction(world, false);
        let note = self.log.cosigned(self.log.size(), &self.cosigners);
        for body in bodies {
            let receipt = self.receipt(world, bodies.len() as u64, body, &note);
            self.log_receipt(receipt, body, device_key(body.rank));
        }
        self.log_opening(world);
        self.evidence = evidence;
        let answer = replayed.then(|| honest_answer(world, &note));
        self.log_verdict(world, answer);
    }

    pub fn sign(&mut self, payload: Payload, key: &SecretKey) -> u64 {
        self.log.append(Statement::sign(&payload, key).unwrap())
    }

    pub fn log_run(&mut self, world: &World) {
        self.run_index = self.sign(Payload::Run(world.run.clone()), &predictor_key());
    }

    pub fn log_prediction(&mut self, world: &World, openly: bool) {
        let open = openly.then(|| open_body(world));
        let seal = world.body.seal(SALT);
        let prediction =
            Prediction { run: world.id, steps: world.steps, seal, reveal_by: 2_000_000_000, by: None, open };
        self.prediction = Some(prediction.clone());
        self.prediction_index = self.sign(Payload::Prediction(prediction), &predictor_key());
    }

    pub fn log_opening(&mut self, world: &World) {
        self.log_opening_of(world, open_body(world).body);
    }

    /// An opening that names this body.
    pub fn log_opening_of(&mut self, world: &World, body: AttachmentName) {
        let prediction = self.digest(self.prediction_index);
        let opening = Opening { run: world.id, prediction, open: OpenBody { salt: SALT, body } };
        self.opening_index = Some(self.sign(Payload::Opening(opening), &predictor_key()));
    }

    pub fn receipt(&self, world: &World, devices: u64, body: &ReceiptBody, note: &[u8]) -> Receipt {
        Receipt {
            run: world.id,
            steps: world.steps,
            devices,
            rank: body.rank,
            simulated: true,
            facts: DeviceFacts {
                name: "toy".into(),
                architecture: "toy".into(),
                driver: "1".into(),
                units: 1,
                kernels: "v".into(),
            },
            checkpoint: note.to_vec(),
            answer: Some(honest_answer(world, note)),
            body: AttachmentName::of(&body.encode()),
        }
    }

    pub fn log_receipt(&mut self, receipt: Receipt, body: &ReceiptBody, signer: SecretKey) {
        let index = self.sign(Payload::Receipt(Box::new(receipt.clone())), &signer);
        let entry = self.digest(index);
        self.receipts.push(Logged { index, entry, receipt, signer, body: body.encode() });
    }

    pub fn digest(&self, index: u64) -> EntryDigest {
        EntryDigest::of(self.log.entry(index))
    }

    pub fn terms<'a>(&'a self, world: &'a World) -> Terms<'a> {
        Terms {
            run: &world.run,
            id: world.id,
            log: self.log.key(),
            prediction_index: self.prediction_index,
            opening_index: self.opening_index,
        }
    }

    pub fn admit(&self, world: &World, logged: &Logged) -> Result<Admitted, Refusal> {
        let terms = self.terms(world);
        admit(logged.entry, logged.signer.public(), &logged.receipt, logged.index, &logged.body, &terms)
    }

    pub fn admitted(&self, world: &World) -> Vec<Admitted> {
        self.receipts.iter().map(|logged| self.admit(world, logged).unwrap()).collect()
    }

    pub fn decision(&self, world: &World, answer: Option<Answer>) -> Decision {
        let mut evidence = Evidence::none();
        self.evidence.iter().for_each(|bytes| evidence.add(bytes).unwrap());
        decide(world, &self.admitted(world), &[], &evidence, answer)
    }

    pub fn verdict(&self, world: &World, answer: Option<Answer>) -> Verdict {
        let decision = self.decision(world, answer);
        let mut receipts: Vec<&Logged> = self.receipts.iter().collect();
        receipts.sort_by_key(|logged| (logged.receipt.rank, logged.entry));
        Verdict {
            run: world.id,
            prediction: self.digest(self.prediction_index),
            opening: self.opening_index.map(|index| self.digest(index)),
            receipts: receipts.iter().map(|logged| logged.entry).collect(),
            steps: world.steps,
            outcome: decision.outcome,
            step: decision.step,
            findings: decision.findings,
            missing: decision.missing,
            simulated: decision.simulated,
            answer,
            evidence: self.evidence.iter().map(|bytes| AttachmentName::of(bytes)).collect(),
        }
    }

    pub fn log_verdict(&mut self, world: &World, answer: Option<Answer>) {
        let verdict = self.verdict(world, answer);
        self.log_verdict_of(verdict);
    }

    pub fn log_verdict_of(&mut self, verdict: Verdict) {
        self.verdict_index = Some(self.sign(Payload::Verdict(Box::new(verdict)), &predictor_key()));
    }

    pub fn bundle(&self, world: &World) -> Bundle {
        let size = self.log.size();
        let mut receipts: Vec<&Logged> = self.receipts.iter().collect();
        receipts.sort_by_key(|logged| (logged.receipt.rank, logged.entry));
        let mut indexes = vec![self.run_index, self.prediction_index];
        indexes.extend(self.opening_index);
        indexes.extend(receipts.iter().map(|logged| logged.index));
        indexes.extend(self.verdict_index);
        let mut sizes: Vec<u64> = receipts.iter().map(|logged| checkpoint_size(&logged.receipt)).collect();
        sizes.sort();
        sizes.dedup();
        let cover = |tree_size: u64| Cover {
            tree_size,
            inclusion: self.log.inclusion(self.prediction_index, tree_size),
            consistency: self.log.consistency(tree_size, size),
            checkpoint: None,
        };
        let mut attachments: Vec<Vec<u8>> = vec![world.body.encode()];
        attachments.extend(receipts.iter().map(|logged| logged.body.clone()));
        attachments.extend(self.evidence.clone());
        attachments.sort_by_key(|bytes| AttachmentDigest::of(bytes));
        attachments.dedup();
        Bundle {
            version: BUNDLE_VERSION_1,
            checkpoint: self.log.checkpoint(size),
            entries: indexes.into_iter().map(|index| self.log.proven(index, size)).collect(),
            covers: sizes.into_iter().map(cover).collect(),
            plan: world.plan.encode(),
            attachments,
            folds: vec![],
            completeness: None,
        }
    }

    /// Leaves out the bodies of receipts that the prediction implies.
    pub fn leave_out_implied(&self, world: &World, bundle: &mut Bundle) {
        use schemas::receipt::ReceiptBody;
        let bodies: Vec<ReceiptBody> =
            self.receipts.iter().map(|logged| ReceiptBody::decode(&logged.body).unwrap()).collect();
        let devices = self.receipts[0].receipt.devices;
        let terms = verify::implied::Terms { run: &world.run, id: world.id, body: &world.body, devices };
        let (folds, which) = terms.folds(&bodies.iter().collect::<Vec<_>>());
        bundle.folds = folds;
        for (logged, implied) in self.receipts.iter().zip(which) {
            if implied {
                bundle.attachments.retain(|bytes| *bytes != logged.body);
            }
        }
    }

    /// The register that the log adds now.
    pub fn register(&mut self) -> u64 {
        let (entries, predictions) = self.lists();
        let register = Register {
            run: entries.first().map(|_| self.run_id()).unwrap(),
            size: self.log.size(),
            entries: list_root(entries.iter().map(EntryLeaf::encode)),
            predictions: list_root(predictions.iter().map(PredictionLeaf::encode)),
        };
        self.log.append_register(register)
    }

    fn run_id(&self) -> RunId {
        Statement::open(self.log.entry(self.run_index)).unwrap().payload.run()
    }

    /// What the log holds of the run, up to now. (Tests have one run in a log.)
    pub fn lists(&self) -> (Vec<EntryLeaf>, Vec<PredictionLeaf>) {
        let first = self.log.size() - self.log.entries.len() as u64;
        let statements = (first..).zip(&self.log.entries);
        let statements: Vec<_> =
            statements.filter_map(|(index, bytes)| Some((index, Statement::open(bytes).ok()?))).collect();
        let entries = statements.iter().map(|(index, statement)| EntryLeaf::of(*index, statement)).collect();
        let predictions =
            statements.iter().filter_map(|(index, statement)| PredictionLeaf::of(*index, statement));
        (entries, predictions.collect())
    }

    /// A bundle of version 2: the register is logged now; the checkpoint that held the prediction first and the last
    /// one are cosigned by these witnesses.
    pub fn bundle_2(&mut self, world: &World, first: &[(u8, u64)], last: &[(u8, u64)]) -> Bundle {
        let (_, predictions) = self.lists();
        let register = self.register();
        let (size, tree_size) = (self.log.size(), self.prediction_index + 1);
        let mut bundle = self.bundle(world);
        bundle.version = BUNDLE_VERSION;
        bundle.checkpoint = self.log.cosigned(size, last);
        if !first.is_empty() {
            bundle.covers.retain(|cover| cover.tree_size != tree_size);
            bundle.covers.push(Cover {
                tree_size,
                inclusion: self.log.inclusion(self.prediction_index, tree_size),
                consistency: self.log.consistency(tree_size, size),
                checkpoint: Some(self.log.cosigned(tree_size, first)),
            });
            bundle.covers.sort_by_key(|cover| cover.tree_size);
        }
        bundle.completeness = Some(Completeness {
            checkpoint: bundle.checkpoint.clone(),
            register: self.log.proven(register, size),
            predictions,
            entries: None,
        });
        bundle
    }
}

/// A verdict that nobody reached.
pub fn some_verdict(world: &World, story: &Story, receipts: Vec<EntryDigest>) -> Verdict {
    Verdict {
        run: world.id,
        prediction: story.digest(story.prediction_index),
        opening: story.opening_index.map(|index| story.digest(index)),
        receipts,
        steps: world.steps,
        outcome: Outcome::Agree,
        step: None,
        findings: vec![],
        missing: vec![],
        simulated: true,
        answer: None,
        evidence: vec![],
    }
}

pub fn list_root(leaves: impl Iterator<Item = Vec<u8>>) -> ListRoot {
    let mut tree = CompactTree::new();
    leaves.for_each(|leaf| tree.push(leaf_hash(&leaf)));
    ListRoot { count: tree.head().size.0, root: *tree.head().root.as_bytes() }
}

fn open_body(world: &World) -> OpenBody {
    OpenBody { salt: SALT, body: AttachmentName::of(&world.body.encode()) }
}

fn checkpoint_size(receipt: &Receipt) -> u64 {
    std::str::from_utf8(&receipt.checkpoint).unwrap().lines().nth(1).unwrap().parse().unwrap()
}

/// The answer of a device that holds the predicted tensors.
pub fn honest_answer(world: &World, note: &[u8]) -> Answer {
    let challenge = challenge(world.id, note);
    let step = chosen_step(challenge, world.steps);
    let keyed = |vector| fold(challenge.into(), &world.vector(step, vector));
    Answer { step, reduced: keyed(Vector::Reduced), parameters: keyed(Vector::Parameters) }
}

/// Receipts to be compared, with nothing refused, answered or replayed.
pub fn case<'a>(world: &'a World, receipts: &'a [Admitted], evidence: &'a Evidence) -> Case<'a> {
    Case {
        run: &world.run,
        plan: &world.plan,
        plan_digest: world.plan_digest(),
        steps: world.steps,
        body: &world.body,
        receipts,
        refused: &[],
        evidence,
        answer: None,
        replayed: &[],
    }
}

pub fn decide(
    world: &World,
    receipts: &[Admitted],
    refused: &[String],
    evidence: &Evidence,
    answer: Option<Answer>,
) -> Decision {
    reconcile(&Case { refused, answer, ..case(world, receipts, evidence) }).unwrap()
}
