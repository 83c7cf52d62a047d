//! Rehearsed faults: what a device, a link or an operator can do wrong, done on purpose and in one known place, so
//! that a verdict can be seen to name it.

use crate::backend::Which;
use schemas::checksum::Dtype;
use schemas::counted::counted;
use schemas::digest::TraceRoot;
use schemas::plan::{Plan, Rule};
use schemas::receipt::DeviceRecord;
use schemas::run::Steps;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::{Path, PathBuf};

/// One kind of fault, for people.
pub struct Form {
    /// What `--fault` calls it.
    pub name: &'static str,
    /// Keys that must be given.
    pub required: &'static [&'static str],
    /// Keys that may be given; each is 0 if it is not.
    pub optional: &'static [&'static str],
    /// What happens.
    pub what: &'static str,
    /// What a reconciliation says of it.
    pub verdict: &'static str,
    /// A whole `--fault` value.
    pub example: &'static str,
}

/// Every kind of fault, from the leaves to the receipt.
pub const FORMS: [Form; 16] = [
    Form {
        name: "bit-flip",
        required: &["device", "step", "leaf", "operation", "element", "bit"],
        optional: &["output"],
        what: "flips one bit of what an operation computed, before its fold; everything after inherits it",
        verdict: "device, phase leaf, operation, tensor, element and both bit patterns",
        example: "bit-flip:device=1,step=3,leaf=4,operation=forward.layer0.attention,element=17,bit=30",
    },
    Form {
        name: "stuck-bit",
        required: &["device", "step", "leaf", "operation", "bit", "value"],
        optional: &["output", "lane"],
        what: "one bit is 0 or 1 (value) in every 32nd word, from `lane` on, of what an operation computed",
        verdict: "device, phase leaf, operation, tensor; the word too if only one was changed by it",
        example: "stuck-bit:device=1,step=3,leaf=4,operation=forward.layer0.attention,bit=12,value=1",
    },
    Form {
        name: "weight-flip",
        required: &["device", "step", "element", "bit"],
        optional: &[],
        what: "flips one bit of the parameters in memory before the step's leaves",
        verdict: "device, phase leaf, the first operation whose output it changes; else phase update",
        example: "weight-flip:device=1,step=3,element=1000,bit=22",
    },
    Form {
        name: "moment-flip",
        required: &["device", "step", "element", "bit"],
        optional: &["moment"],
        what: "flips one bit of the optimizer's first or second moment (moment 0 or 1) before the step",
        verdict: "device, phase update, the optimizer, the moment and its element",
        example: "moment-flip:device=1,step=3,moment=1,element=1000,bit=22",
    },
    Form {
        name: "swapped-leaves",
        required: &["device", "step", "leaf", "with"],
        optional: &[],
        what: "reads another leaf's windows (with) in place of this leaf's",
        verdict: "device, phase leaf, the operation that reads tokens",
        example: "swapped-leaves:device=1,step=3,leaf=4,with=5",
    },
    Form {
        name: "poison",
        required: &["device", "step", "leaf", "operation", "element"],
        optional: &["output"],
        what: "writes a NaN into what an operation computed; the step is invalid and the run ends there",
        verdict: "device, phase leaf, operation; the predicted step was finite",
        example: "poison:device=0,step=2,leaf=0,operation=forward.layer0.attention,element=5",
    },
    Form {
        name: "wrong-partial",
        required: &["device", "step", "element", "bit"],
        optional: &[],
        what: "flips one bit in the sum of the device's own leaves, before its digest and before it is sent",
        verdict: "device, phase partial, parameter and element",
        example: "wrong-partial:device=1,step=3,element=1000,bit=22",
    },
    Form {
        name: "sent-flip",
        required: &["device", "step", "element", "bit"],
        optional: &["level"],
        what: "flips one bit of what the device sends to its partner at a level, after its digest",
        verdict: "phase link, on the partner that received it; peer: this device",
        example: "sent-flip:device=1,step=3,level=0,element=1000,bit=22",
    },
    Form {
        name: "corrupted-link",
        required: &["device", "step", "element", "bit"],
        optional: &["level"],
        what: "flips one bit in what arrives at the device from its partner at a level, before its digest",
        verdict: "device, phase link, the peer, parameter and element",
        example: "corrupted-link:device=0,step=3,level=0,element=1000,bit=22",
    },
    Form {
        name: "wrong-reduction",
        required: &["device", "step", "element", "bit"],
        optional: &["level"],
        what: "flips one bit in the sum of the device's node and its partner's at a level",
        verdict: "device, phase reduce, parameter and element",
        example: "wrong-reduction:device=1,step=3,level=0,element=1000,bit=22",
    },
    Form {
        name: "wrong-update",
        required: &["device", "step", "element", "bit"],
        optional: &[],
        what: "flips one bit in the new parameters, before their digest; later steps go on from there",
        verdict: "device, phase update, parameter and element",
        example: "wrong-update:device=0,step=3,element=1000,bit=10",
    },
    Form {
        name: "skipped-update",
        required: &["device", "step"],
        optional: &[],
        what: "does not run the optimizer; the record says truly what parameters and moments are",
        verdict: "device, phase update; more than one word differs, so the cause takes a replay",
        example: "skipped-update:device=1,step=3",
    },
    Form {
        name: "skipped-step",
        required: &["device", "step"],
        optional: &[],
        what: "the step is run, peers get its true gradient, but the receipt has no record of it",
        verdict: "incomplete: no record of that step from that device",
        example: "skipped-step:device=1,step=3",
    },
    Form {
        name: "lying-receipt",
        required: &["device", "step"],
        optional: &[],
        what: "the record has made-up trace roots, losses and partial; peers get the true gradient",
        verdict: "device, phase receipt: it contradicts what a peer says it received (2 devices or more)",
        example: "lying-receipt:device=1,step=3",
    },
    Form {
        name: "replayed-receipt",
        required: &["device", "receipt"],
        optional: &[],
        what: "hands in an old receipt (FILE.cose, with FILE.body.cbor beside it) in place of its own",
        verdict: "incomplete: that receipt is refused, for another run or a challenge before the prediction",
        example: "replayed-receipt:device=0,receipt=old/receipt-0.cose",
    },
    Form {
        name: "silent",
        required: &["device"],
        optional: &[],
        what: "takes part in the run and hands in nothing",
        verdict: "incomplete: no receipt from that device",
        example: "silent:device=1",
    },
];

/// Why a `--fault` was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("fault {fault:?}: expected {expected}, found {found}")]
pub struct FaultError {
    /// The value given to `--fault`.
    pub fault: String,
    /// What there is.
    pub expected: String,
    /// What was given.
    pub found: String,
}

/// The faults of one run, each checked against its plan. Empty for an honest run.
#[derive(Debug, Default)]
pub struct Faults(Vec<Fault>);

#[derive(Debug)]
struct Fault {
    device: u64,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Tap { step: u64, leaf: u64, tap: usize, change: Change },
    Swap { step: u64, leaf: u64, with: u64 },
    State { step: u64, which: Which, place: Place },
    Sent { step: u64, level: usize, place: Place },
    Partial { step: u64, place: Place },
    Link { step: u64, level: usize, place: Place },
    Reduction { step: u64, level: usize, place: Place },
    Update { step: u64, place: Place },
    SkippedUpdate { step: u64 },
    SkippedStep { step: u64 },
    LyingReceipt { step: u64 },
    Replayed { receipt: PathBuf },
    Silent,
}

#[derive(Debug)]
enum Change {
    Flip(Place),
    Stuck { lane: usize, bit: u32, value: bool },
    Nan { element: usize },
}

impl Change {
    fn apply(&self, words: &mut [f32]) {
        match *self {
            Change::Flip(ref place) => place.flip(words),
            Change::Nan { element } => words[element] = f32::NAN,
            Change::Stuck { lane, bit, value } => {
                for word in words.iter_mut().skip(lane).step_by(LANES) {
                    let others = word.to_bits() & !(1 << bit);
                    *word = f32::from_bits(others | u32::from(value) << bit);
                }
            }
        }
    }
}

/// Every how many words a stuck bit is met: the lanes of a warp.
const LANES: usize = 32;

#[derive(Debug)]
struct Place {
    element: usize,
    bit: u32,
}

impl Place {
    fn flip(&self, words: &mut [f32]) {
        words[self.element] = f32::from_bits(words[self.element].to_bits() ^ (1 << self.bit));
    }

    fn flip_bytes(&self, bytes: &mut [u8]) {
        // Little-endian: bit 0 of a word is bit 0 of its first byte.
        bytes[4 * self.element + self.bit as usize / 8] ^= 1 << (self.bit % 8);
    }
}

impl Faults {
    /// Reads `--fault` values and checks every number in them against what the run has.
    pub fn read(texts: &[String], plan: &Plan, devices: u64, steps: Steps) -> Result<Faults, FaultError> {
        let mut faults = Vec::new();
        for text in texts {
            let values = Values::read(text)?;
            faults.push(values.fault(plan, devices, steps)?);
        }
        Ok(Faults(faults))
    }

    /// Whether the device hands in nothing of its own.
    pub fn without_files(&self, device: u64) -> bool {
        self.silent(device) || self.replayed(device).is_some()
    }

    /// Whether the device hands in nothing at all.
    pub fn silent(&self, device: u64) -> bool {
        self.of(device).any(|kind| matches!(kind, Kind::Silent))
    }

    /// The old receipt the device hands in.
    pub fn replayed(&self, device: u64) -> Option<&Path> {
        self.of(device).find_map(|kind| match kind {
            Kind::Replayed { receipt } => Some(receipt.as_path()),
            _ => None,
        })
    }

    /// Whether the device leaves a step out of its receipt.
    pub fn skips_record(&self, device: u64, now: u64) -> bool {
        self.of(device).any(|kind| matches!(kind, Kind::SkippedStep { step } if *step == now))
    }

    /// Whether the device does not run the optimizer in a step.
    pub fn skips_update(&self, device: u64, now: u64) -> bool {
        self.of(device).any(|kind| matches!(kind, Kind::SkippedUpdate { step } if *step == now))
    }

    /// Changes a tap's tensor before its fold.
    pub fn spoil_tap(&self, device: u64, now: u64, its_leaf: u64, its_tap: usize, words: &mut [f32]) {
        for kind in self.of(device) {
            if let Kind::Tap { step, leaf, tap, change } = kind
                && (*step, *leaf, *tap) == (now, its_leaf, its_tap)
            {
                change.apply(words);
            }
        }
    }

    /// The leaf whose windows a device reads in place of its own leaf's.
    pub fn data_of(&self, device: u64, now: u64, its_leaf: u64) -> u64 {
        let swapped = self.of(device).find_map(|kind| match kind {
            Kind::Swap { step, leaf, with } if (*step, *leaf) == (now, its_leaf) => Some(*with),
            _ => None,
        });
        swapped.unwrap_or(its_leaf)
    }

    /// Vectors, elements and bits of the state that are flipped before a step.
    pub fn state_flips(&self, device: u64, now: u64) -> Vec<(Which, u64, u32)> {
        let flips = self.of(device).filter_map(|kind| match kind {
            Kind::State { step, which, place } if *step == now => {
                Some((*which, place.element as u64, place.bit))
            }
            _ => None,
        });
        flips.collect()
    }

    /// Changes the bytes that go out over a link.
    pub fn spoil_sent(&self, device: u64, now: u64, its_level: usize, bytes: &mut [u8]) {
        for kind in self.of(device) {
            match kind {
                Kind::Sent { step, level, place } if (*step, *level) == (now, its_level) => {
                    place.flip_bytes(bytes);
                }
                _ => {}
            }
        }
    }

    /// Whether a tap's tensor is changed.
    pub fn wants_tap(&self, device: u64, now: u64, its_leaf: u64, its_tap: usize) -> bool {
        self.of(device).any(|kind| match kind {
            Kind::Tap { step, leaf, tap, .. } => (*step, *leaf, *tap) == (now, its_leaf, its_tap),
            _ => false,
        })
    }

    /// Elements and bits of the sum of a device's own leaves that are flipped before its digest.
    pub fn partial_flips(&self, device: u64, now: u64) -> Vec<(u64, u32)> {
        self.flips(device, |kind| match kind {
            Kind::Partial { step, place } if *step == now => Some(place),
            _ => None,
        })
    }

    /// Changes the bytes that arrive over a link.
    pub fn spoil_arrival(&self, device: u64, now: u64, its_level: usize, bytes: &mut [u8]) {
        for kind in self.of(device) {
            match kind {
                Kind::Link { step, level, place } if (*step, *level) == (now, its_level) => {
                    place.flip_bytes(bytes);
                }
                _ => {}
            }
        }
    }

    /// Elements and bits of the sum of two nodes that are flipped before its digest.
    pub fn sum_flips(&self, device: u64, now: u64, its_level: usize) -> Vec<(u64, u32)> {
        self.flips(device, |kind| match kind {
            Kind::Reduction { step, level, place } if (*step, *level) == (now, its_level) => Some(place),
            _ => None,
        })
    }

    /// Elements and bits of the new parameters that are flipped before their digest.
    pub fn update_flips(&self, device: u64, now: u64) -> Vec<(u64, u32)> {
        self.flips(device, |kind| match kind {
            Kind::Update { step, place } if *step == now => Some(place),
            _ => None,
        })
    }

    fn flips<'a>(&'a self, device: u64, place: impl Fn(&'a Kind) -> Option<&'a Place>) -> Vec<(u64, u32)> {
        self.of(device).filter_map(place).map(|place| (place.element as u64, place.bit)).collect()
    }

    /// Makes up what a lying receipt says of a step: every bit of the trace roots and the partial, and the last bit
    /// of each loss.
    pub fn falsify(&self, device: u64, record: &mut DeviceRecord) {
        if !self.of(device).any(|kind| matches!(kind, Kind::LyingReceipt { step } if *step == record.step)) {
            return;
        }
        record.traces.iter_mut().for_each(|TraceRoot(bytes)| bytes.iter_mut().for_each(|byte| *byte ^= 0xff));
        record.losses.iter_mut().for_each(|bits| *bits ^= 1);
        if let Some(outcome) = &mut record.outcome {
            outcome.partial.checksum.0.iter_mut().for_each(|byte| *byte ^= 0xff);
            outcome.partial.fold.a ^= u64::MAX;
            outcome.partial.fold.b ^= u64::MAX;
        }
    }

    fn of(&self, device: u64) -> impl Iterator<Item = &Kind> {
        self.0.iter().filter(move |fault| fault.device == device).map(|fault| &fault.kind)
    }
}

/// A `--fault` value, split into keys.
struct Values<'a> {
    text: &'a str,
    form: &'static Form,
    values: BTreeMap<&'a str, &'a str>,
}

impl<'a> Values<'a> {
    fn read(text: &'a str) -> Result<Values<'a>, FaultError> {
        let (name, mut rest) = text.split_once(':').unwrap_or((text, ""));
        let Some(form) = FORMS.iter().find(|form| form.name == name) else {
            let names = FORMS.map(|form| form.name).join(", ");
            return Err(error(text, format!("name:key=value,... with one of {names}"), format!("{name:?}")));
        };
        let mut values = BTreeMap::new();
        let keys: Vec<&str> = form.required.iter().chain(form.optional).copied().collect();
        while !rest.is_empty() {
            // A path may hold commas, so it takes all the rest.
            let pair = match rest.split_once(',') {
                Some((pair, after)) if !rest.starts_with("receipt=") => {
                    rest = after;
                    pair
                }
                _ => std::mem::take(&mut rest),
            };
            let Some((key, value)) = pair.split_once('=') else {
                return Err(error(
                    text,
                    format!("key=value with one of {}", keys.join(", ")),
                    format!("{pair:?}"),
                ));
            };
            if !keys.contains(&key) || values.insert(key, value).is_some() {
                return Err(error(text, format!("each of {} once", keys.join(", ")), format!("{key:?}")));
            }
        }
        match form.required.iter().find(|key| !values.contains_key(*key)) {
            Some(key) => Err(error(text, format!("{key}=..., as in {}", form.example), "none")),
            None => Ok(Values { text, form, values }),
        }
    }

    /// A number below `end`; 0 if it was not given.
    fn below(&self, key: &str, end: u64, what: impl Display) -> Result<u64, FaultError> {
        self.within(key, 0, end, what)
    }

    fn within(&self, key: &str, first: u64, end: u64, what: impl Display) -> Result<u64, FaultError> {
        let text = self.values.get(key).copied().unwrap_or("0");
        let number = text.parse::<u64>().ok().filter(|number| (first..end).contains(number));
        let last = end.checked_sub(1).filter(|last| first <= *last);
        let expected = match last {
            Some(last) => format!("{key} {first} to {last} ({what})"),
            None => format!("no {key} ({what})"),
        };
        number.ok_or_else(|| error(self.text, expected, text))
    }

    fn fault(&self, plan: &Plan, devices: u64, steps: Steps) -> Result<Fault, FaultError> {
        let device = self.below("device", devices, counted(devices, "device"))?;
        let step = match self.values.contains_key("step") {
            true => self.within("step", steps.first, steps.end, format!("steps {steps}"))?,
            false => 0,
        };
        let levels = devices.ilog2();
        let level = || {
            let what = format!("{devices} devices meet at {levels} levels");
            Ok(self.below("level", levels.into(), what)? as usize)
        };
        let place = || {
            let what = format!("{} parameters", plan.parameter_count());
            let element = self.below("element", plan.parameter_count(), what)? as usize;
            Ok(Place { element, bit: self.bit()? })
        };
        let kind = match self.form.name {
            "bit-flip" => self.tap(plan, devices, device, step, |element| {
                Ok(Change::Flip(Place { element: element("element")?, bit: self.bit()? }))
            })?,
            "poison" => self.tap(plan, devices, device, step, |element| {
                Ok(Change::Nan { element: element("element")? })
            })?,
            "stuck-bit" => self.tap(plan, devices, device, step, |element| {
                let value = self.below("value", 2, "a bit is 0 or 1")? == 1;
                Ok(Change::Stuck { lane: element("lane")?, bit: self.bit()?, value })
            })?,
            "swapped-leaves" => {
                let leaf = self.leaf(plan, devices, device)?;
                let with = self.below("with", plan.leaves, counted(plan.leaves, "leaf"))?;
                Kind::Swap { step, leaf, with }
            }
            "weight-flip" => Kind::State { step, which: Which::Parameters, place: place()? },
            "moment-flip" => {
                let moments = if let Rule::Adamw { .. } = plan.update.rule { 2 } else { 1 };
                let moment = self.below("moment", moments, format!("{moments} moments"))?;
                let which = [Which::FirstMoment, Which::SecondMoment][moment as usize];
                Kind::State { step, which, place: place()? }
            }
            "sent-flip" => Kind::Sent { step, level: level()?, place: place()? },
            "wrong-partial" => Kind::Partial { step, place: place()? },
            "corrupted-link" => Kind::Link { step, level: level()?, place: place()? },
            "wrong-reduction" => Kind::Reduction { step, level: level()?, place: place()? },
            "wrong-update" => Kind::Update { step, place: place()? },
            "skipped-update" => Kind::SkippedUpdate { step },
            "skipped-step" => Kind::SkippedStep { step },
            "lying-receipt" => Kind::LyingReceipt { step },
            "replayed-receipt" => Kind::Replayed { receipt: self.receipt()? },
            "silent" => Kind::Silent,
            name => unreachable!("fault: form {name} is built here"),
        };
        Ok(Fault { device, kind })
    }

    fn bit(&self) -> Result<u32, FaultError> {
        Ok(self.below("bit", 32, "a word has 32 bits")? as u32)
    }

    fn tap(
        &self,
        plan: &Plan,
        devices: u64,
        device: u64,
        step: u64,
        change: impl FnOnce(&dyn Fn(&str) -> Result<usize, FaultError>) -> Result<Change, FaultError>,
    ) -> Result<Kind, FaultError> {
        let leaf = self.leaf(plan, devices, device)?;
        let name = self.values["operation"];
        let Some(operation) = plan.operations.iter().position(|operation| operation.name == name) else {
            return Err(error(self.text, format!("operation {}", likely(plan, name)), format!("{name:?}")));
        };
        let outputs = &plan.operations[operation].outputs;
        let names = outputs.iter().map(|&operand| plan.operand_name(operand)).collect::<Vec<_>>().join(", ");
        let output = self.below("output", outputs.len() as u64, names)? as usize;
        let operand = outputs[output];
        let (shape, tensor) = (plan.shape(operand), plan.operand_name(operand));
        if plan.dtype(operand) != Dtype::F32 {
            return Err(error(
                self.text,
                "an operation that writes f32 numbers",
                format!("{tensor}, of tokens"),
            ));
        }
        let element = |key: &str| {
            let what = format!("{tensor} has shape {shape:?}");
            Ok(self.below(key, plan.elements(operand), what)? as usize)
        };
        let change = change(&element)?;
        let before: usize =
            plan.operations[..operation].iter().map(|operation| operation.outputs.len()).sum();
        Ok(Kind::Tap { step, leaf, tap: before + output, change })
    }

    /// One of the device's own leaves.
    fn leaf(&self, plan: &Plan, devices: u64, device: u64) -> Result<u64, FaultError> {
        let each = plan.leaves / devices;
        self.within("leaf", device * each, (device + 1) * each, format!("device {device}'s leaves"))
    }

    fn receipt(&self) -> Result<PathBuf, FaultError> {
        let path = Path::new(self.values["receipt"]);
        match path.extension() {
            Some(extension) if extension == "cose" => Ok(path.to_owned()),
            _ => Err(error(self.text, "receipt=FILE.cose", format!("{:?}", self.values["receipt"]))),
        }
    }
}

/// The operations that may have been meant: those with `name` in them, or else as many as a screen holds.
fn likely(plan: &Plan, name: &str) -> String {
    let all: Vec<&str> = plan.operations.iter().map(|operation| operation.name.as_str()).collect();
    let alike: Vec<&str> = all.iter().filter(|one| !name.is_empty() && one.contains(name)).copied().collect();
    let shown = if alike.is_empty() { &all } else { &alike };
    let mut text = shown.iter().take(40).copied().collect::<Vec<_>>().join(", ");
    if shown.len() > 40 {
        text += &format!(" and {} more (`device faults --job` lists all)", shown.len() - 40);
    }
    text
}

fn error(fault: &str, expected: impl Into<String>, found: impl Into<String>) -> FaultError {
    FaultError { fault: fault.into(), expected: expected.into(), found: found.into() }
}
