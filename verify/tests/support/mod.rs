//! A small world to check: a plan, a prediction, honest devices, and a log in memory. Numbers are made up (nothing
//! here computes a gradient), but folds are folds of real words, so that a wrong word can be located.

#![allow(dead_code, reason = "each test file uses another part")]

pub mod judged;
pub mod log;
pub mod story;
mod tiny_plan;
pub mod trust;

use schemas::checksum::Dtype;
use schemas::digest::{Checksum, MeetingRoot, PlanDigest, RunId, StateDigest, TraceRoot, digest};
use schemas::fold::{BLOCK_WORDS, Fold, FoldKey};
use schemas::object::Object as _;
use schemas::plan::Plan;
use schemas::prediction::PredictionBody;
use schemas::receipt::{DeviceOutcome, DeviceRecord, Exchange, ReceiptBody, Sum};
use schemas::record::{NonFinite, Outcome, StepRecord};
use schemas::run::{Run, Steps};
use schemas::trace::{Meeting, Trace};

/// A flat vector of a step: all parameters' elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vector {
    Node(u64),
    Reduced,
    Parameters,
    FirstMoment,
    SecondMoment,
}

impl Vector {
    fn tag(self) -> u64 {
        match self {
            Vector::Node(node) => 100 + node,
            Vector::Reduced => 1,
            Vector::Parameters => 2,
            Vector::FirstMoment => 3,
            Vector::SecondMoment => 4,
        }
    }
}

/// A run with its prediction, and everything the prediction rests on.
pub struct World {
    pub plan: Plan,
    pub run: Run,
    pub id: RunId,
    pub steps: Steps,
    pub body: PredictionBody,
    pub traces: Vec<Vec<Trace>>,
    pub meetings: Vec<Meeting>,
}

impl World {
    pub fn new(leaves: u64, devices_max: u64, count: u64) -> World {
        World::of_time(leaves, devices_max, count, 2)
    }

    /// A world whose leaves have `time` rows.
    pub fn of_time(leaves: u64, devices_max: u64, count: u64, time: u64) -> World {
        World::of_plan(tiny_plan::plan(leaves, devices_max, count, time))
    }

    /// A world of all steps of a plan.
    pub fn of_plan(plan: Plan) -> World {
        let mut world = World::unpredicted(plan);
        for step in 0..world.run.steps {
            world.predict(step);
        }
        world
    }

    /// A long world, quickly made: what its records say is nothing's sum.
    pub fn long(leaves: u64, devices_max: u64, count: u64) -> World {
        let mut world = World::unpredicted(tiny_plan::plan(leaves, devices_max, count, 2));
        for step in 0..count {
            let name = |what: u64| digest("test/long", &[&step.to_le_bytes(), &what.to_le_bytes()]);
            let nodes = 2 * devices_max - 1;
            world.body.records.push(StepRecord {
                traces: (0..leaves).map(|leaf| TraceRoot(name(leaf))).collect(),
                losses: vec![0x4000_0000; leaves as usize],
                outcome: Some(Outcome {
                    nodes: (0..nodes).map(|node| Checksum(name(5000 + node))).collect(),
                    reduced: Checksum(name(9000)),
                    norm: 0x3f00_0000,
                    parameters: Checksum(name(9001)),
                    first_moment: Fold { a: step, b: 1 },
                    second_moment: Fold { a: step, b: 2 },
                    meeting: MeetingRoot(name(9002)),
                }),
                non_finite: None,
            });
        }
        world
    }

    /// The same run, predicted from a later step on.
    pub fn beginning_at(mut self, step: u64) -> World {
        (self.steps.first, self.body.first) = (step, step);
        self.body.records.drain(..step as usize);
        self.traces.drain(..step as usize);
        self.meetings.drain(..step as usize);
        self
    }

    fn unpredicted(plan: Plan) -> World {
        let (leaves, devices_max, count) = (plan.leaves, plan.devices_max, plan.update.steps() as u64);
        let plan_bytes = plan.encode();
        assert_eq!(Plan::decode(&plan_bytes).unwrap(), plan, "the tiny plan is well formed");
        let run = Run {
            name: "tiny".into(),
            profile: plan.profile.clone(),
            profile_digest: schemas::profile::F32_FMA.digest(),
            config: plan.config,
            plan: plan.digest(),
            state: StateDigest([4; 32]),
            dataset: plan.data.dataset,
            steps: count,
            leaves,
            devices_max,
        };
        let id = run.id();
        World {
            body: PredictionBody { run: id, first: 0, records: vec![] },
            traces: vec![],
            meetings: vec![],
            steps: Steps { first: 0, end: count },
            plan,
            run,
            id,
        }
    }

    fn predict(&mut self, step: u64) {
        let nodes = 2 * self.run.devices_max - 1;
        let traces: Vec<Trace> = (0..self.run.leaves).map(|leaf| self.trace(step, leaf)).collect();
        let meeting = Meeting {
            step,
            nodes: (0..nodes).map(|node| self.sum(step, Vector::Node(node)).fold).collect(),
            reduced: self.sum(step, Vector::Reduced).fold,
            parameters: self.sum(step, Vector::Parameters).fold,
        };
        self.body.records.push(StepRecord {
            traces: traces.iter().map(Trace::root).collect(),
            losses: (0..self.run.leaves).map(|leaf| 0x4000_0000 + (step * 100 + leaf) as u32).collect(),
            outcome: Some(Outcome {
                nodes: (0..nodes).map(|node| self.sum(step, Vector::Node(node)).checksum).collect(),
                reduced: self.sum(step, Vector::Reduced).checksum,
                norm: 0x3f00_0000 + step as u32,
                parameters: self.sum(step, Vector::Parameters).checksum,
                first_moment: self.sum(step, Vector::FirstMoment).fold,
                second_moment: self.sum(step, Vector::SecondMoment).fold,
                meeting: meeting.root(),
            }),
            non_finite: None,
        });
        self.traces.push(traces);
        self.meetings.push(meeting);
    }

    pub fn plan_digest(&self) -> PlanDigest {
        self.run.plan
    }

    pub fn fold_key(&self) -> FoldKey {
        self.run.plan.into()
    }

    pub fn parameter_words(&self) -> u64 {
        self.plan.parameter_count()
    }

    /// The words of a vector of a step.
    pub fn vector(&self, step: u64, vector: Vector) -> Vec<u32> {
        words(&[step, vector.tag()], self.parameter_words())
    }

    pub fn sum(&self, step: u64, vector: Vector) -> Sum {
        self.sum_of(&self.vector(step, vector))
    }

    /// Checksum and fold of words. The checksum only has to tell words apart here.
    pub fn sum_of(&self, words: &[u32]) -> Sum {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let checksum = Checksum(digest("test/sum", &[&[Dtype::F32.code()], &bytes]));
        Sum { checksum, fold: fold(self.fold_key(), words) }
    }

    /// The sum of a vector with some words changed by exclusive or.
    pub fn sum_with(&self, step: u64, vector: Vector, changes: &[(usize, u32)]) -> Sum {
        let mut words = self.vector(step, vector);
        changes.iter().for_each(|(element, change)| words[*element] ^= change);
        self.sum_of(&words)
    }

    pub fn tap_words(&self, step: u64, leaf: u64, tap: usize) -> Vec<u32> {
        let operand = self.plan.taps().nth(tap).unwrap().operand;
        words(&[1000 + step, leaf, tap as u64], self.plan.elements(operand))
    }

    pub fn trace(&self, step: u64, leaf: u64) -> Trace {
        let taps = self.plan.taps().count();
        let folds = (0..taps).map(|tap| fold(self.fold_key(), &self.tap_words(step, leaf, tap))).collect();
        Trace { step, leaf, folds }
    }

    /// A trace with one word of one tap changed, and every later tap different in many words.
    pub fn wrong_trace(&self, step: u64, leaf: u64, tap: usize, changes: &[(usize, u32)]) -> Trace {
        let mut trace = self.trace(step, leaf);
        let mut words = self.tap_words(step, leaf, tap);
        changes.iter().for_each(|(element, change)| words[*element] ^= change);
        trace.folds[tap] = fold(self.fold_key(), &words);
        for later in tap + 1..trace.folds.len() {
            let words: Vec<u32> =
                self.tap_words(step, leaf, later).iter().map(|word| word.wrapping_mul(5) ^ 9).collect();
            trace.folds[later] = fold(self.fold_key(), &words);
        }
        trace
    }

    /// The position of the node that `rank` of `devices` holds after `level` exchanges.
    pub fn node(&self, devices: u64, rank: u64, level: u32) -> u64 {
        2 * self.run.devices_max - 2 * (devices >> level) + (rank >> level)
    }

    /// What honest devices report.
    pub fn bodies(&self, devices: u64) -> Vec<ReceiptBody> {
        (0..devices)
            .map(|rank| ReceiptBody {
                run: self.id,
                rank,
                records: self.steps_iter().map(|step| self.honest(devices, rank, step)).collect(),
            })
            .collect()
    }

    /// What devices report that did as predicted, with folds that are nothing's.
    pub fn implied_bodies(&self, devices: u64) -> Vec<ReceiptBody> {
        let terms = verify::implied::Terms { run: &self.run, id: self.id, body: &self.body, devices };
        let count = self.body.records.len() as u64 * (2 * devices + 1);
        let folds: Vec<Fold> = (1..=count).map(|a| Fold { a, b: 1 }).collect();
        (0..devices).map(|rank| terms.body(rank, &folds).unwrap()).collect()
    }

    fn steps_iter(&self) -> std::ops::Range<u64> {
        self.steps.first..self.steps.end
    }

    fn honest(&self, devices: u64, rank: u64, step: u64) -> DeviceRecord {
        let each = (self.run.leaves / devices) as usize;
        let own = rank as usize * each..(rank as usize + 1) * each;
        let record = self.body.record(step).unwrap();
        let node = |node| self.sum(step, Vector::Node(node));
        let exchanges = (0..devices.ilog2()).map(|level| Exchange {
            received: node(self.node(devices, rank ^ (1 << level), level)),
            sum: node(self.node(devices, rank, level + 1)),
        });
        let expected = record.outcome.as_ref().unwrap();
        DeviceRecord {
            step,
            traces: record.traces[own.clone()].to_vec(),
            losses: record.losses[own].to_vec(),
            outcome: Some(DeviceOutcome {
                partial: node(self.node(devices, rank, 0)),
                exchanges: exchanges.collect(),
                reduced: self.sum(step, Vector::Reduced),
                norm: expected.norm,
                parameters: self.sum(step, Vector::Parameters),
                first_moment: expected.first_moment,
                second_moment: expected.second_moment,
            }),
            non_finite: None,
        }
    }
}

/// The outcome in a device's record of a step.
pub fn outcome(bodies: &mut [ReceiptBody], rank: usize, step: usize) -> &mut DeviceOutcome {
    bodies[rank].records[step].outcome.as_mut().unwrap()
}

/// A world whose prediction becomes invalid at step 1.
pub fn invalid_world(at: NonFinite) -> World {
    let mut world = World::new(8, 4, 3);
    world.body.records.truncate(2);
    let record = &mut world.body.records[1];
    record.non_finite = Some(at);
    if let NonFinite::Tap { leaf, .. } = at {
        record.outcome = None;
        record.losses[leaf as usize] = 0x7fc0_0000;
        record.traces[leaf as usize].0[0] ^= 1;
    }
    world
}

/// What honest devices report in such a world.
pub fn invalid_bodies(world: &World, devices: u64, at: NonFinite) -> Vec<ReceiptBody> {
    let mut honest = World::new(8, 4, 3).bodies(devices);
    for body in &mut honest {
        body.records.truncate(2);
        let each = body.records[1].traces.len() as u64;
        let record = &mut body.records[1];
        record.non_finite = Some(at);
        if let NonFinite::Tap { leaf, .. } = at {
            record.outcome = None;
            if leaf / each == body.rank {
                record.traces[(leaf % each) as usize] = world.body.records[1].traces[leaf as usize];
                record.losses[(leaf % each) as usize] = 0x7fc0_0000;
            }
        }
    }
    honest
}

/// A fold by its definition.
pub fn fold(key: FoldKey, words: &[u32]) -> Fold {
    let mut fold = Fold::default();
    for (block, row) in words.chunks(BLOCK_WORDS).enumerate() {
        let (f, f2) = key.factor(block as u64);
        for (j, &word) in row.iter().enumerate() {
            let (t, t2) = key.table(j as u64);
            let word = u64::from(word);
            fold.a = fold.a.wrapping_add(word.wrapping_mul(t.wrapping_mul(f)));
            fold.b = fold.b.wrapping_add(word.wrapping_mul(word).wrapping_mul(t2.wrapping_mul(f2)));
        }
    }
    fold
}

/// Made-up words, the same for the same tags.
pub fn words(tags: &[u64], count: u64) -> Vec<u32> {
    let tags: Vec<u8> = tags.iter().flat_map(|tag| tag.to_le_bytes()).collect();
    let seed = digest("test/words", &[&tags]);
    let mut state = u64::from_le_bytes(seed[..8].try_into().unwrap()) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u32
    };
    (0..count).map(|_| next()).collect()
}
