//! Whole steps: every device of a run in one process, and its step records as the oracle would write them.

use super::{CheckError, Line, first_difference, read_json, unequal};
use crate::backend::{Backend, BackendError, Device, Given, Honest, Leaf, Moments, Spoil, Which};
use crate::checksum::Digested;
use crate::simulated::{Rehearsal, Simulated};
use schemas::cbor;
use schemas::plan::Plan;
use schemas::record::{Outcome, StepRecord};
use schemas::trace::{Meeting, Trace};
use sha2::{Digest as _, Sha256};
use std::path::Path;
use std::sync::Mutex;

/// All devices of a run: as many as its plan allows.
struct Fleet<'a> {
    devices: Vec<Box<dyn Device + 'a>>,
    plan: &'a Plan,
}

/// Compares a run with the records beside it.
pub fn recorded(backend: &dyn Backend, name: &str, path: &Path, most: u64) -> Result<Line, CheckError> {
    let run = Rehearsal::load(path).map_err(CheckError::Run)?;
    let json = path.with_extension("json");
    let value = read_json(&json)?;
    let records =
        value["records"].as_array().map(|list| list.iter().map(|one| one.as_str().unwrap_or_default()));
    let records: Vec<String> = records.into_iter().flatten().take(most as usize).map(str::to_owned).collect();
    if value["plan"] != run.plan.digest().to_string() || records.is_empty() {
        let found = format!("one of plan {}", value["plan"]);
        return Err(CheckError::Form { path: json, expected: "records of the run.toml beside it", found });
    }
    compare(backend, name, &run, &records)
}

/// Compares a run with what the oracle's arithmetic makes of it here.
pub fn beside(backend: &dyn Backend, path: &Path, most: u64) -> Result<Line, CheckError> {
    let run = Rehearsal::load(path).map_err(CheckError::Run)?;
    let what = path.display().to_string();
    let stopped = |source| CheckError::Device { what: what.clone(), source };
    let mut fleet = Fleet::open(&Simulated::detect(), &run).map_err(stopped)?;
    let steps = most.min(run.plan.update.steps() as u64);
    let records = (0..steps).map(|step| fleet.step(step).map(|record| digest(&record)));
    let records = records.collect::<Result<Vec<_>, _>>().map_err(stopped)?;
    compare(backend, &what, &run, &records)
}

fn digest(record: &StepRecord) -> String {
    let digest = Sha256::digest(cbor::encode(&record.to_value()));
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn compare(
    backend: &dyn Backend,
    name: &str,
    run: &Rehearsal,
    records: &[String],
) -> Result<Line, CheckError> {
    let devices = run.plan.devices_max;
    let each = if devices == 1 { "device" } else { "devices" };
    let equal = format!("{} steps equal on {devices} {each}", records.len());
    let what = name.to_owned();
    let stopped = |source| CheckError::Device { what: what.clone(), source };
    let mut fleet = Fleet::open(backend, run).map_err(stopped)?;
    for (step, expected) in (0..).zip(records) {
        let found = fleet.step(step).map_err(stopped)?;
        if digest(&found) != *expected {
            drop(fleet);
            let difference = explain(backend, run, step).map_err(stopped)?;
            let difference = Some(format!("step {step}: {difference}"));
            return Ok(Line { what, equal, difference });
        }
    }
    Ok(Line { what, equal, difference: None })
}

impl<'a> Fleet<'a> {
    fn open(backend: &dyn Backend, run: &'a Rehearsal) -> Result<Fleet<'a>, BackendError> {
        let given = |rank| Given { rank, plan: &run.plan, tokens: &run.tokens, state: &run.state };
        let devices = (0..run.plan.devices_max).map(|rank| backend.open(given(rank)));
        Ok(Fleet { devices: devices.collect::<Result<_, _>>()?, plan: &run.plan })
    }

    /// One step of all devices. Each must hold the same as its peers wherever it should.
    fn step(&mut self, step: u64) -> Result<StepRecord, BackendError> {
        let (leaves, width) = (self.plan.leaves, self.plan.devices_max);
        let each = leaves / width;
        let mut reports: Vec<Leaf> = Vec::new();
        for (rank, device) in (0..).zip(&mut self.devices) {
            reports.extend(device.leaves(step, rank * each..(rank + 1) * each, &Honest)?);
        }
        if let Some(leaf) = reports.iter().position(|leaf| !leaf.finite) {
            return Err(BackendError(format!(
                "step {step}: expected finite leaves, found leaf {leaf} that is not"
            )));
        }
        let (mut checksums, mut folds) = (Vec::new(), Vec::new());
        let mut level = width;
        loop {
            let group = (width / level) as usize;
            let nodes = self.all(|device| device.digest(Which::Node))?;
            for peers in nodes.chunks(group) {
                same(peers, "node")?;
                checksums.push(peers[0].sum.checksum);
                folds.push(peers[0].sum.fold);
            }
            if level == 1 {
                break;
            }
            let bytes = self.all(|device| device.node_bytes())?;
            for (rank, device) in self.devices.iter_mut().enumerate() {
                let partner = rank ^ group;
                device.arrive(&bytes[partner])?;
                device.join(rank < partner)?;
            }
            level /= 2;
        }
        self.all(|device| device.reduce())?;
        let reduced = same(&self.all(|device| device.digest(Which::Reduced))?, "reduced gradient")?;
        let norm = same(&self.all(|device| Ok(device.norm()?.to_bits()))?, "norm")?;
        self.all(|device| device.update(step))?;
        let parameters: Digested = same(&self.all(|device| device.digest(Which::Parameters))?, "parameters")?;
        let Moments { first, second, .. } = same(&self.all(|device| device.moments())?, "moments")?;
        let meeting =
            Meeting { step, nodes: folds, reduced: reduced.sum.fold, parameters: parameters.sum.fold };
        let outcome = Outcome {
            nodes: checksums,
            reduced: reduced.sum.checksum,
            norm,
            parameters: parameters.sum.checksum,
            first_moment: first,
            second_moment: second,
            meeting: meeting.root(),
        };
        let trace = |(leaf, report): (u64, &Leaf)| Trace { step, leaf, folds: report.folds.clone() }.root();
        Ok(StepRecord {
            traces: (0..).zip(&reports).map(trace).collect(),
            losses: reports.iter().map(|report| report.loss).collect(),
            outcome: Some(outcome),
            non_finite: None,
        })
    }

    fn all<T>(
        &mut self,
        each: impl Fn(&mut (dyn Device + 'a)) -> Result<T, BackendError>,
    ) -> Result<Vec<T>, BackendError> {
        self.devices.iter_mut().map(|device| each(&mut **device)).collect()
    }
}

fn same<T: PartialEq + Clone + std::fmt::Debug>(all: &[T], what: &str) -> Result<T, BackendError> {
    match all.iter().find(|one| **one != all[0]) {
        None => Ok(all[0].clone()),
        Some(other) => {
            Err(BackendError(format!("{what}: expected {:?} on every device, found {other:?}", all[0])))
        }
    }
}

/// Keeps a tap's words as they are.
struct Keep {
    leaf: u64,
    tap: usize,
    words: Mutex<Vec<u32>>,
}

impl Spoil for Keep {
    fn wants(&self, leaf: u64, tap: usize) -> bool {
        (leaf, tap) == (self.leaf, self.tap)
    }

    fn spoil(&self, _: u64, _: usize, words: &mut [f32]) {
        *self.words.lock().expect("check: nobody panics here") =
            words.iter().map(|word| word.to_bits()).collect();
    }
}

/// The first difference of a step, all steps before which are equal: one device of each kind runs all leaves.
fn explain(backend: &dyn Backend, run: &Rehearsal, step: u64) -> Result<String, BackendError> {
    let (plan, simulated) = (&run.plan, Simulated::detect());
    let given = Given { rank: 0, plan, tokens: &run.tokens, state: &run.state };
    let mut pair = [simulated.open(given)?, backend.open(given)?];
    for before in 0..step {
        for device in &mut pair {
            device.leaves(before, 0..plan.leaves, &Honest)?;
            device.reduce()?;
            device.norm()?;
            device.update(before)?;
        }
    }
    let [expected, found] = pair.each_mut().map(|device| device.leaves(step, 0..plan.leaves, &Honest));
    let (expected, found) = (expected?, found?);
    for (leaf, (expected, found)) in (0..).zip(expected.iter().zip(&found)) {
        let tap = expected.folds.iter().zip(&found.folds).position(|(one, other)| one != other);
        let Some(tap) = tap.or((expected.folds.len() != found.folds.len()).then_some(found.folds.len()))
        else {
            if expected.loss != found.loss {
                return Ok(unequal(&format!("leaf {leaf}, loss"), 0, expected.loss, found.loss));
            }
            continue;
        };
        let Some(at) = plan.taps().nth(tap) else { continue };
        let words = pair.each_mut().map(|device| -> Result<Vec<u32>, BackendError> {
            let keep = Keep { leaf, tap, words: Mutex::default() };
            device.leaves(step, leaf..leaf + 1, &keep)?;
            Ok(keep.words.into_inner().expect("check: nobody panics here"))
        });
        let [expected, found] = words;
        let name = &plan.operations[at.operation].name;
        let what = format!("leaf {leaf}, {name}, {}", plan.operand_name(at.operand));
        return Ok(match first_difference(&expected?, &found?) {
            Some((element, expected, found)) => unequal(&what, element, expected, found),
            None => format!("{what}: the fold differs and no word does"),
        });
    }
    let mut differences =
        flat_difference(&mut pair, "sum of the leaves' gradients", |device| device.node_bytes())?;
    if differences.is_none() {
        for device in &mut pair {
            device.reduce()?;
        }
        differences = flat_difference(&mut pair, "reduced gradient", |device| device.node_bytes())?;
    }
    if differences.is_none() {
        let [expected, found] = pair.each_mut().map(|device| device.norm());
        let (expected, found) = (expected?.to_bits(), found?.to_bits());
        differences = (expected != found).then(|| unequal("norm", 0, expected, found));
    }
    if differences.is_none() {
        for device in &mut pair {
            device.update(step)?;
        }
        let state = |device: &mut (dyn Device + '_)| {
            let state = device.state()?;
            let all = [state.parameters, state.first_moment, state.second_moment].concat();
            Ok(all.iter().flat_map(|word| word.to_le_bytes()).collect())
        };
        differences = flat_difference(&mut pair, "parameters, first and second moment", state)?;
    }
    let none = "its record differs, and nothing that one device holds: look at checksums and meetings";
    Ok(differences.unwrap_or(none.into()))
}

fn flat_difference<'a>(
    pair: &mut [Box<dyn Device + 'a>; 2],
    what: &str,
    bytes: impl Fn(&mut (dyn Device + 'a)) -> Result<Vec<u8>, BackendError>,
) -> Result<Option<String>, BackendError> {
    let words = pair.each_mut().map(|device| -> Result<Vec<u32>, BackendError> {
        let bytes = bytes(&mut **device)?;
        Ok(bytes.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word)).collect())
    });
    let [expected, found] = words;
    let first = first_difference(&expected?, &found?);
    Ok(first.map(|(element, expected, found)| unequal(what, element, expected, found)))
}
