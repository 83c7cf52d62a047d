//! Faults drawn at random, each with what a verdict ought to say of it.

use crate::scene::Scene;
use schemas::checksum::Dtype;
use schemas::plan::Operand;
use schemas::verdict::Phase;

/// Numbers that are the same for one seed (splitmix64).
pub struct Random(u64);

impl Random {
    /// Starts from a seed.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// Any number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`, which is small beside 2^64.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// The forms that are drawn; the first ones more often, since there is most to tell of them.
const FORMS: [&str; 21] = [
    "bit-flip",
    "bit-flip",
    "bit-flip",
    "bit-flip",
    "bit-flip",
    "stuck-bit",
    "weight-flip",
    "weight-flip",
    "moment-flip",
    "swapped-leaves",
    "poison",
    "wrong-partial",
    "sent-flip",
    "corrupted-link",
    "wrong-reduction",
    "wrong-update",
    "skipped-update",
    "skipped-step",
    "lying-receipt",
    "silent",
    "two bit-flips",
];

/// What a verdict ought to say.
#[derive(Debug)]
pub enum Truth {
    /// A finding.
    Finding(Expected),
    /// Nothing can be compared: the device is named as what is missing.
    Missing,
}

/// What a finding ought to say. What is `None` does not apply.
#[derive(Debug)]
pub struct Expected {
    /// Whose finding it is: the device that departed, or the one at which a link's damage shows.
    pub rank: u64,
    /// The other end of a link.
    pub peer: Option<u64>,
    /// Any of these: a weight may show in a leaf or only in the update.
    pub phases: Vec<Phase>,
    /// Any of these.
    pub operations: Option<Vec<String>>,
    /// If exactly one word was changed: which, and how.
    pub word: Option<Word>,
}

/// One changed word.
#[derive(Debug)]
pub struct Word {
    /// The tensor's name.
    pub tensor: String,
    /// Its place in it.
    pub element: u64,
    /// The honest bits, where they are known here.
    pub honest: Option<u32>,
    /// The bits that differ, where they are known here.
    pub mask: Option<u32>,
}

/// A fault and its truth.
#[derive(Debug)]
pub struct Draw {
    /// The value of `--fault`.
    pub text: String,
    /// Its form.
    pub form: &'static str,
    /// The step it strikes.
    pub step: u64,
    /// What ought to be said.
    pub truth: Truth,
}

impl Draw {
    /// Whether the fault is in computing a leaf.
    pub fn in_leaf(&self) -> bool {
        matches!(self.form, "bit-flip" | "stuck-bit" | "swapped-leaves" | "poison")
    }
}

/// One fault, or two on different devices in one step.
pub fn draw(scene: &Scene, devices: u64, random: &mut Random) -> Vec<Draw> {
    let form = FORMS[random.below(FORMS.len() as u64) as usize];
    let step = random.below(scene.steps().count());
    if form == "two bit-flips" {
        let first = random.below(devices);
        let second = (first + 1) % devices;
        let mut draws = vec![one(scene, devices, random, "bit-flip", step, first)];
        if second != first {
            draws.push(one(scene, devices, random, "bit-flip", step, second));
        }
        return draws;
    }
    let among_many = matches!(form, "sent-flip" | "corrupted-link" | "wrong-reduction");
    // With one device there are no links; then the fault is one of the device's own.
    let form = if among_many && devices == 1 { "wrong-partial" } else { form };
    let rank = random.below(devices);
    vec![one(scene, devices, random, form, step, rank)]
}

fn one(scene: &Scene, devices: u64, random: &mut Random, form: &'static str, step: u64, rank: u64) -> Draw {
    let plan = &scene.setup.plan;
    let each = plan.leaves / devices;
    let leaf = rank * each + random.below(each);
    let bit = random.below(32);
    let element = random.below(plan.parameter_count());
    let at = format!("device={rank},step={step}");
    let levels = u64::from(devices.ilog2());
    let level = if levels == 0 { 0 } else { random.below(levels) };
    let partner = rank ^ (1 << level);
    let finding = |phase, operation: Option<&str>, word| {
        let operations = operation.map(|operation| vec![operation.to_owned()]);
        Truth::Finding(Expected { rank, peer: None, phases: vec![phase], operations, word })
    };
    let flat = |prefix: &str, honest: Option<u32>| {
        let (name, within) = parameter_at(scene, element);
        Some(Word { tensor: format!("{prefix}{name}"), element: within, honest, mask: Some(1 << bit) })
    };
    let update = plan.update.rule.word();
    let place = format!("{at},element={element},bit={bit}");
    let (text, truth) = match form {
        "bit-flip" | "stuck-bit" | "poison" => return tap(scene, random, form, step, rank, leaf, bit as u32),
        "swapped-leaves" => {
            let with = (leaf + 1 + random.below(plan.leaves - 1)) % plan.leaves;
            let first = plan.operations[0].name.as_str();
            (format!("{at},leaf={leaf},with={with}"), finding(Phase::Leaf, Some(first), None))
        }
        "weight-flip" => {
            let (mut operations, phases) = (readers(scene, element), vec![Phase::Leaf, Phase::Update]);
            operations.push(update.to_owned());
            let expected = Expected { rank, peer: None, phases, operations: Some(operations), word: None };
            (place, Truth::Finding(expected))
        }
        "moment-flip" => {
            let moments = if update == "adamw" { 2 } else { 1 };
            let moment = random.below(moments);
            // What the step makes of the wrong word depends on the gradient.
            let word = flat(["adamw.m.", "adamw.v."][moment as usize], None);
            let word = word.map(|word| Word { mask: None, ..word });
            (format!("{place},moment={moment}"), finding(Phase::Update, Some(update), word))
        }
        "wrong-partial" => (place, finding(Phase::Partial, Some("tree"), flat("d_", None))),
        "corrupted-link" | "sent-flip" => {
            // A finding is on the device that received.
            let (rank, peer) = if form == "sent-flip" { (partner, rank) } else { (rank, partner) };
            let (phases, word) = (vec![Phase::Link], flat("d_", None));
            let expected = Expected { rank, peer: Some(peer), phases, operations: None, word };
            (format!("{place},level={level}"), Truth::Finding(expected))
        }
        "wrong-reduction" => {
            (format!("{place},level={level}"), finding(Phase::Reduce, Some("tree"), flat("d_", None)))
        }
        "wrong-update" => {
            let honest = scene.parameters[step as usize][element as usize];
            (place, finding(Phase::Update, Some(update), flat("", Some(honest))))
        }
        "skipped-update" => (at, finding(Phase::Update, Some(update), None)),
        "lying-receipt" if devices > 1 => (at, finding(Phase::Receipt, None, None)),
        // Alone it contradicts nobody: its leaf is not the predicted one.
        "lying-receipt" => (at, finding(Phase::Leaf, None, None)),
        "skipped-step" => (at, Truth::Missing),
        "silent" => (format!("device={rank}"), Truth::Missing),
        other => unreachable!("draw: form {other}"),
    };
    Draw { text: format!("{form}:{text}"), form, step, truth }
}

/// A fault in what an operation computed.
fn tap(
    scene: &Scene,
    random: &mut Random,
    form: &'static str,
    step: u64,
    rank: u64,
    leaf: u64,
    bit: u32,
) -> Draw {
    let plan = &scene.setup.plan;
    let taps: Vec<_> = plan.taps().collect();
    let number = loop {
        let number = random.below(taps.len() as u64) as usize;
        if plan.dtype(taps[number].operand) == Dtype::F32 {
            break number;
        }
    };
    let operand = taps[number].operand;
    let operation = &plan.operations[taps[number].operation];
    let output = operation.outputs.iter().position(|one| *one == operand).expect("draw: a tap is an output");
    let honest = &scene.honest[step as usize][leaf as usize][number];
    let element = random.below(honest.len() as u64);
    let value = random.below(2) as u32;
    let lane = random.below(honest.len().min(32) as u64);
    let changed = |word: u32| match form {
        "bit-flip" => word ^ (1 << bit),
        "stuck-bit" => word & !(1 << bit) | value << bit,
        _ => 0x7fc0_0000,
    };
    let places: Vec<u64> = match form {
        "stuck-bit" => (lane..honest.len() as u64).step_by(32).collect(),
        _ => vec![element],
    };
    let wrong: Vec<u64> = places
        .into_iter()
        .filter(|place| changed(honest[*place as usize]) != honest[*place as usize])
        .collect();
    // A tensor of one word is always explained by one word, and so nothing is said of it.
    let word = (wrong.len() == 1 && honest.len() > 1).then(|| {
        let before = honest[wrong[0] as usize];
        let tensor = plan.operand_name(operand);
        Word { tensor, element: wrong[0], honest: Some(before), mask: Some(before ^ changed(before)) }
    });
    let expected = Expected {
        rank,
        peer: None,
        phases: vec![Phase::Leaf],
        operations: Some(vec![operation.name.clone()]),
        word,
    };
    let more = match form {
        "bit-flip" => format!("element={element},bit={bit}"),
        "stuck-bit" => format!("lane={lane},bit={bit},value={value}"),
        _ => format!("element={element}"),
    };
    let name = &operation.name;
    let text =
        format!("{form}:device={rank},step={step},leaf={leaf},operation={name},output={output},{more}");
    Draw { text, form, step, truth: Truth::Finding(expected) }
}

/// The parameter in which an element of the flat vector falls, and its place in it.
fn parameter_at(scene: &Scene, element: u64) -> (String, u64) {
    let mut rest = element;
    for parameter in &scene.setup.plan.parameters {
        let elements: u64 = parameter.shape.iter().product();
        if rest < elements {
            return (parameter.name.clone(), rest);
        }
        rest -= elements;
    }
    unreachable!("draw: element {element} is a parameter's")
}

/// The operations that read the parameter in which an element falls.
fn readers(scene: &Scene, element: u64) -> Vec<String> {
    let plan = &scene.setup.plan;
    let (name, _) = parameter_at(scene, element);
    let index = plan.parameters.iter().position(|one| one.name == name).expect("draw: it is a parameter");
    let reads = |inputs: &[Operand]| inputs.contains(&Operand::Parameter(index));
    plan.operations.iter().filter(|one| reads(&one.inputs)).map(|one| one.name.clone()).collect()
}
