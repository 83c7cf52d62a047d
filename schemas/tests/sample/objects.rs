//! One small run, from config to bundle: every digest, seal, proof and signature in it is genuine. Only the tensors
//! are made up (`tensor::words`), since schemas does no arithmetic.

use super::tensor::{checksum, fold, sum, words};
use super::{network, tree, witness};
use schemas::attachment::AttachmentName;
use schemas::bundle::{BUNDLE_VERSION, Bundle, Cover, ProvenEntry};
use schemas::challenge::{challenge, chosen_step};
use schemas::checksum::{Dtype, state_digest};
use schemas::completeness::Completeness;
use schemas::config::Config;
use schemas::digest::{Checksum, EntryDigest, Salt};
use schemas::fold::FoldKey;
use schemas::key::SecretKey;
use schemas::object::Object;
use schemas::opened::OpenedStep;
use schemas::opening::Opening;
use schemas::plan::{Operand, Plan};
use schemas::prediction::{OpenBody, Prediction, PredictionBody, step_salt};
use schemas::receipt::{
    Answer, DeviceFacts, DeviceOutcome, DeviceRecord, Exchange, Receipt, ReceiptBody, Sum,
};
use schemas::record::{Outcome, StepRecord};
use schemas::register::{EntryLeaf, ListRoot, PredictionLeaf, Register};
use schemas::run::{Run, Steps};
use schemas::statement::{Payload, Statement};
use schemas::trace::{Meeting, Trace};
use schemas::verdict::{self, Verdict};

/// The origin of the fixtures' log.
pub const ORIGIN: &str = "fixtures.example/tallystick";
/// Every token the fixtures' run reads: 41 of them, from the vocabulary of 11.
pub const TOKENS: u64 = 41;

/// Everything a run leaves behind.
pub struct Sample {
    pub config: Config,
    pub plan: Plan,
    pub run: Run,
    pub body: PredictionBody,
    pub trace: Trace,
    pub meeting: Meeting,
    pub open: Prediction,
    pub receipts: Vec<(Receipt, ReceiptBody)>,
    pub verdict: Verdict,
    pub checkpoints: [String; 2],
    /// In log order, from index 1: run, prediction, two receipts, opening, register, verdict, register.
    pub statements: Vec<Vec<u8>>,
    pub bundle: Bundle,
    pub completeness: Completeness,
    /// Step 1 alone, while the rest is sealed: in the tree of size 3.
    pub opened: OpenedStep,
}

/// Entry 0 of the log (docs/spec/ledger.md).
pub fn genesis() -> Vec<u8> {
    format!("tallystick log v1\norigin {ORIGIN}\n").into_bytes()
}

/// The key of a role; its seed is the role's name padded with zeros. Test keys: never trust them.
pub fn key(role: &str) -> SecretKey {
    let mut seed = [0; 32];
    seed[..role.len()].copy_from_slice(role.as_bytes());
    SecretKey::from_seed(seed)
}

/// The whole sample.
pub fn sample() -> Sample {
    let config = Config::from_toml(network::TINY_TOML).unwrap();
    let tokens: Vec<u32> = words("tokens", TOKENS).into_iter().map(|word| word % 11).collect();
    let dataset = checksum(Dtype::U32, &[TOKENS], &tokens);
    let plan = network::plan(&config, TOKENS, dataset);
    let run = run_of(&config, &plan);
    let steps = Steps { first: 0, end: config.steps };
    let (body, trace, meeting) = body_of(&run, &plan, steps);
    let salt = Salt([0x5a; 32]);
    let name = AttachmentName::of(&body.encode());
    let prediction = Prediction {
        run: run.id(),
        steps,
        seal: body.seal(salt),
        reveal_by: 1_900_000_000,
        by: None,
        open: None,
    };
    let open = Prediction { open: Some(OpenBody { salt, body: name }), ..prediction.clone() };

    // The log: a genesis entry, the run, the prediction; then the checkpoint that the receipts answer.
    let log_key = key("log");
    let mut leaves: Vec<Vec<u8>> = vec![genesis()];
    let predictor = key("predictor");
    leaves.push(Statement::sign(&Payload::Run(run.clone()), &predictor).unwrap());
    leaves.push(Statement::sign(&Payload::Prediction(prediction), &predictor).unwrap());
    let early = tree::checkpoint(ORIGIN, &log_key, &leaves);
    let receipts: Vec<_> =
        (0..2).map(|rank| receipt_of(&run, &plan, &body, rank, early.as_bytes())).collect();
    for (receipt, _) in &receipts {
        let device = key(&format!("device-{}", receipt.rank));
        leaves.push(Statement::sign(&Payload::Receipt(Box::new(receipt.clone())), &device).unwrap());
    }
    let opening = Opening {
        run: run.id(),
        prediction: EntryDigest::of(&leaves[2]),
        open: OpenBody { salt, body: name },
    };
    leaves.push(Statement::sign(&Payload::Opening(opening), &predictor).unwrap());
    leaves.push(Statement::sign(&Payload::Register(register_of(&leaves)), &log_key).unwrap());
    let verdict = Verdict {
        run: run.id(),
        prediction: EntryDigest::of(&leaves[2]),
        opening: Some(EntryDigest::of(&leaves[5])),
        receipts: vec![EntryDigest::of(&leaves[3]), EntryDigest::of(&leaves[4])],
        steps,
        outcome: verdict::Outcome::Agree,
        step: None,
        findings: vec![],
        missing: vec![],
        simulated: true,
        answer: None,
        evidence: vec![],
    };
    leaves.push(Statement::sign(&Payload::Verdict(Box::new(verdict.clone())), &predictor).unwrap());
    leaves.push(Statement::sign(&Payload::Register(register_of(&leaves)), &log_key).unwrap());
    let late = tree::checkpoint(ORIGIN, &log_key, &leaves);
    let bodies = receipts.iter().map(|(_, body)| body.encode());
    let attachments = std::iter::once(body.encode()).chain(bodies).collect();
    // The log's witnesses have cosigned both.
    let [cosigned_early, cosigned_late] =
        [(&early, 0), (&late, 600)].map(|(note, later)| witness::cosigned(note, later));
    let inside = Completeness { entries: None, ..completeness_of(&leaves, &cosigned_late) };
    let bundle = bundle_of(&leaves, [&cosigned_early, &cosigned_late], &plan, attachments, inside);
    let completeness = completeness_of(&leaves, &late);
    let opened = opened_of(&leaves[..3], &early, &run, &body, salt);
    let statements = leaves.split_off(1);
    Sample {
        config,
        plan,
        run,
        body,
        trace,
        meeting,
        open,
        receipts,
        verdict,
        checkpoints: [early, late],
        statements,
        bundle,
        completeness,
        opened,
    }
}

/// Step 1 of the prediction that is the last entry of a log.
fn opened_of(
    leaves: &[Vec<u8>],
    checkpoint: &str,
    run: &Run,
    body: &PredictionBody,
    salt: Salt,
) -> OpenedStep {
    let index = leaves.len() - 1;
    let mut seals = body.step_seals(salt);
    seals.remove(1);
    OpenedStep {
        checkpoint: checkpoint.as_bytes().to_vec(),
        prediction: ProvenEntry {
            index: index as u64,
            bytes: leaves[index].clone(),
            proof: tree::inclusion(index, leaves),
        },
        run: run.clone(),
        step: 1,
        salt: step_salt(salt, 1),
        record: body.records[1].clone(),
        seals,
    }
}

fn run_of(config: &Config, plan: &Plan) -> Run {
    let count = plan.parameter_count();
    let flat = |words: &[u32]| checksum(Dtype::F32, &[count], words);
    let zeros = flat(&vec![0; count as usize]);
    Run {
        name: config.name.clone(),
        profile: config.profile.clone(),
        profile_digest: schemas::profile::F32_FMA.digest(),
        config: config.digest(),
        plan: plan.digest(),
        state: state_digest(0, flat(&words("initial parameters", count)), zeros, zeros),
        dataset: plan.data.dataset,
        steps: config.steps,
        leaves: config.leaves,
        devices_max: config.devices_max,
    }
}

/// The flat tensor of a step that `what` names.
fn tensor(plan: &Plan, step: u64, what: &str) -> Vec<u32> {
    words(&format!("step {step} {what}"), plan.parameter_count())
}

fn body_of(run: &Run, plan: &Plan, steps: Steps) -> (PredictionBody, Trace, Meeting) {
    let mut kept = None;
    let records = (steps.first..steps.end).map(|step| {
        let traces: Vec<Trace> = (0..plan.leaves).map(|leaf| trace_of(plan, step, leaf)).collect();
        let meeting = meeting_of(plan, step);
        let at = |what: &str| sum(FoldKey::from(plan.digest()), &tensor(plan, step, what));
        let record = StepRecord {
            traces: traces.iter().map(Trace::root).collect(),
            losses: (0..plan.leaves).map(|leaf| loss(step, leaf)).collect(),
            outcome: Some(Outcome {
                nodes: ["node 0", "node 1", "root"].map(|node| at(node).checksum).to_vec(),
                reduced: at("reduced").checksum,
                norm: norm(step),
                parameters: at("parameters").checksum,
                first_moment: at("first moment").fold,
                second_moment: at("second moment").fold,
                meeting: meeting.root(),
            }),
            non_finite: None,
        };
        kept.get_or_insert((traces[0].clone(), meeting));
        record
    });
    let records: Vec<_> = records.collect();
    let (trace, meeting) = kept.unwrap();
    (PredictionBody { run: run.id(), first: steps.first, records }, trace, meeting)
}

fn trace_of(plan: &Plan, step: u64, leaf: u64) -> Trace {
    let key = FoldKey::from(plan.digest());
    let fold_of = |operand: Operand| {
        let label = format!("step {step} leaf {leaf} {}", plan.operand_name(operand));
        fold(key, &words(&label, plan.elements(operand)))
    };
    Trace { step, leaf, folds: plan.taps().map(|tap| fold_of(tap.operand)).collect() }
}

fn meeting_of(plan: &Plan, step: u64) -> Meeting {
    let at = |what: &str| fold(FoldKey::from(plan.digest()), &tensor(plan, step, what));
    let nodes = ["node 0", "node 1", "root"].map(at).to_vec();
    Meeting { step, nodes, reduced: at("reduced"), parameters: at("parameters") }
}

fn loss(step: u64, leaf: u64) -> u32 {
    (2.5 - 0.25 * step as f32 + 0.0625 * leaf as f32).to_bits()
}

fn norm(step: u64) -> u32 {
    (1.5 - 0.125 * step as f32).to_bits()
}

/// What the device of `rank`, of two, returns: exactly the prediction.
fn receipt_of(
    run: &Run,
    plan: &Plan,
    body: &PredictionBody,
    rank: u64,
    checkpoint: &[u8],
) -> (Receipt, ReceiptBody) {
    let each = (plan.leaves / 2) as usize;
    let own = rank as usize * each..(rank as usize + 1) * each;
    let records = (body.first..).zip(&body.records).map(|(step, predicted)| {
        let at = |what: &str| -> Sum { sum(FoldKey::from(plan.digest()), &tensor(plan, step, what)) };
        DeviceRecord {
            step,
            traces: predicted.traces[own.clone()].to_vec(),
            losses: predicted.losses[own.clone()].to_vec(),
            outcome: Some(DeviceOutcome {
                partial: at(&format!("node {rank}")),
                exchanges: vec![Exchange { received: at(&format!("node {}", 1 - rank)), sum: at("root") }],
                reduced: at("reduced"),
                norm: norm(step),
                parameters: at("parameters"),
                first_moment: at("first moment").fold,
                second_moment: at("second moment").fold,
            }),
            non_finite: None,
        }
    });
    let own_body = ReceiptBody { run: run.id(), rank, records: records.collect() };
    let steps = Steps { first: 0, end: plan.update.steps() as u64 };
    let asked = challenge(run.id(), checkpoint);
    let step = chosen_step(asked, steps);
    let receipt = Receipt {
        run: run.id(),
        steps,
        devices: 2,
        rank,
        simulated: true,
        facts: DeviceFacts {
            name: "fixture device".into(),
            architecture: "none".into(),
            driver: "none".into(),
            units: 1,
            kernels: "made up".into(),
        },
        checkpoint: checkpoint.to_vec(),
        answer: Some(Answer {
            step,
            reduced: fold(asked.into(), &tensor(plan, step, "reduced")),
            parameters: fold(asked.into(), &tensor(plan, step, "parameters")),
        }),
        body: AttachmentName::of(&own_body.encode()),
    };
    (receipt, own_body)
}

/// The bundle over the entries 1 .. of a log: its receipts answer the checkpoint of size 3, its prediction is entry 2.
fn bundle_of(
    leaves: &[Vec<u8>],
    [early, late]: [&str; 2],
    plan: &Plan,
    mut attachments: Vec<Vec<u8>>,
    completeness: Completeness,
) -> Bundle {
    attachments.sort_by_key(|bytes| AttachmentName::of(bytes).sha256);
    // Bundle order: run, prediction, opening, receipts, verdict.
    let entry = |index: usize| ProvenEntry {
        index: index as u64,
        bytes: leaves[index].clone(),
        proof: tree::inclusion(index, leaves),
    };
    Bundle {
        version: BUNDLE_VERSION,
        checkpoint: late.as_bytes().to_vec(),
        entries: [1, 2, 5, 3, 4, 7].map(entry).to_vec(),
        covers: vec![Cover {
            tree_size: 3,
            inclusion: tree::inclusion(2, &leaves[..3]),
            consistency: tree::consistency(3, leaves),
            checkpoint: Some(early.as_bytes().to_vec()),
        }],
        plan: plan.encode(),
        attachments,
        folds: vec![],
        completeness: Some(completeness),
    }
}

/// The leaves of a log's one run: of its entries, and of its predictions.
fn lists_of(leaves: &[Vec<u8>]) -> (Vec<EntryLeaf>, Vec<PredictionLeaf>) {
    let (mut entries, mut predictions) = (Vec::new(), Vec::new());
    for (index, bytes) in (0..).zip(leaves).skip(1) {
        let Statement { digest: entry, signer, payload } = Statement::open(bytes).unwrap();
        entries.push(EntryLeaf { index, kind: payload.stem(), signer, entry });
        if let Payload::Prediction(Prediction { steps, .. }) = payload {
            predictions.push(PredictionLeaf { index, signer, steps, entry });
        }
    }
    (entries, predictions)
}

/// The register that comes next in a log of one run.
fn register_of(leaves: &[Vec<u8>]) -> Register {
    let (entries, predictions) = lists_of(leaves);
    let list = |leaves: &[Vec<u8>]| ListRoot { count: leaves.len() as u64, root: tree::root(leaves) };
    Register {
        run: Statement::open(&leaves[1]).unwrap().payload.run(),
        size: leaves.len() as u64,
        entries: list(&entries.iter().map(EntryLeaf::encode).collect::<Vec<_>>()),
        predictions: list(&predictions.iter().map(PredictionLeaf::encode).collect::<Vec<_>>()),
    }
}

/// The last entry of a log, a register, with its lists.
fn completeness_of(leaves: &[Vec<u8>], checkpoint: &str) -> Completeness {
    let index = leaves.len() - 1;
    let (entries, predictions) = lists_of(&leaves[..index]);
    let (bytes, proof) = (leaves[index].clone(), tree::inclusion(index, leaves));
    Completeness {
        checkpoint: checkpoint.as_bytes().to_vec(),
        register: ProvenEntry { index: index as u64, bytes, proof },
        predictions,
        entries: Some(entries),
    }
}

/// A known answer for docs/spec/checksum.md: shape, label of the words, checksum, fold under a key of 32 zero bytes.
pub fn known_sums() -> Vec<(Vec<u64>, String, Checksum, schemas::fold::Fold)> {
    [vec![1], vec![3, 4], vec![1024], vec![1025], vec![3, 1024], vec![5000]]
        .into_iter()
        .map(|shape| {
            let label = format!("shape {shape:?}");
            let tensor = words(&label, shape.iter().product());
            let sums = (checksum(Dtype::F32, &shape, &tensor), fold(FoldKey([0; 32]), &tensor));
            (shape, label, sums.0, sums.1)
        })
        .collect()
}
