//! Worked examples of every kind of operation (`fixtures/step/operations.json`), each as a plan of one operation.

use super::{CheckError, Line, first_difference, read_json, unequal};
use crate::backend::BackendError;
use crate::checksum::Coefficients;
use crate::executor::{flat, memories};
use crate::launches::{self, Shapes, Step};
use crate::machine::{Build, Machine};
use crate::order;
use crate::places::{Layout, Place, Places};
use schemas::checksum::Dtype;
use schemas::digest::{Checksum, ConfigDigest};
use schemas::fold::FoldKey;
use schemas::plan::{DataOrder, Dimensions, Kind, Operand, Operation, Plan, Rule, Tensor, Update};
use schemas::profile::F32_FMA;
use serde_json::Value;
use std::path::Path;

/// Tensors given to an operation and expected of it.
pub struct Example {
    plan: Plan,
    inputs: Vec<Vec<u32>>,
    outputs: Vec<Vec<u32>>,
}

/// Reads the examples of a file.
pub fn read(path: &Path) -> Result<Vec<Example>, CheckError> {
    let value = read_json(path)?;
    let form = |found: String| CheckError::Form {
        path: path.to_owned(),
        expected: "an array of worked examples",
        found,
    };
    let list = value.as_array().ok_or_else(|| form("no array".into()))?;
    let one = |(index, value)| example(value).ok_or_else(|| form(format!("another value at place {index}")));
    list.iter().enumerate().map(one).collect()
}

fn example(value: &Value) -> Option<Example> {
    let name = value["kind"].as_str()?;
    let (kind, _) = Kind::ALL.into_iter().find(|(_, kind)| *kind == name)?;
    let numbers = |value: &Value| value.as_array()?.iter().map(Value::as_u64).collect::<Option<Vec<_>>>();
    let [batch, time, channels, vocabulary, layers, heads, positions, inner, kv_heads, head_size] =
        numbers(&value["dimensions"])?.try_into().ok()?;
    let dimensions = Dimensions {
        batch,
        time,
        channels,
        vocabulary,
        layers,
        heads,
        positions,
        inner,
        kv_heads,
        head_size,
    };
    let (mut tensors, mut words) = (Vec::new(), Vec::new());
    let mut sides = [Vec::new(), Vec::new()];
    for (side, list) in sides.iter_mut().zip([&value["inputs"], &value["outputs"]]) {
        for tensor in list.as_array()? {
            side.push(Operand::Tensor(tensors.len()));
            let shape = numbers(&tensor["shape"])?;
            let found = read_words(&tensor["words"])?;
            let dtype = if tensor["dtype"] == "u32" { Dtype::U32 } else { Dtype::F32 };
            if shape.iter().product::<u64>() != found.len() as u64 {
                return None;
            }
            tensors.push(Tensor { name: format!("tensor {}", tensors.len()), dtype, shape });
            words.push(found);
        }
    }
    let [inputs, outputs] = sides;
    let expected = words.split_off(inputs.len());
    let constants = read_words(&value["constants"])?;
    let plan =
        one_operation(dimensions, tensors, Operation { name: name.into(), kind, inputs, outputs, constants });
    Some(Example { plan, inputs: words, outputs: expected })
}

fn read_words(value: &Value) -> Option<Vec<u32>> {
    value.as_str()?.split_whitespace().map(|word| u32::from_str_radix(word, 16).ok()).collect()
}

/// A plan that is never encoded: what a leaf's launches are made from, and nothing else.
fn one_operation(dimensions: Dimensions, tensors: Vec<Tensor>, operation: Operation) -> Plan {
    let rows = dimensions.rows() as f32;
    Plan {
        profile: F32_FMA.id.into(),
        config: ConfigDigest([0; 32]),
        dimensions,
        parameters: vec![],
        tables: vec![],
        tensors,
        operations: vec![operation],
        leaves: 1,
        devices_max: 1,
        data: DataOrder { tokens: dimensions.time + 1, dataset: Checksum([0; 32]), seed: 0 },
        update: Update {
            inverse_leaves: 1_f32.to_bits(),
            inverse_rows: (1.0 / rows).to_bits(),
            clip: f32::INFINITY.to_bits(),
            clip_epsilon: 0,
            rule: Rule::Sgd { momentum: 0, nesterov: false },
            groups: vec![],
        },
    }
}

/// Launches of three shapes: what does well with a build, few rows to a group, and others.
pub fn shapes(build: &Build) -> [Shapes; 3] {
    let best = Shapes::of(build);
    match build.staged {
        true => [
            best,
            Shapes { items: 32, blocks: 2, rows: 1, tile: 32, heads_words: 1, busy: 1 },
            Shapes { items: 128, blocks: 1, rows: 3, tile: 64, heads_words: 1 << 12, busy: 1 },
        ],
        false => [
            best,
            Shapes { items: 1, blocks: 1, rows: 1, tile: 1, heads_words: 1, busy: 1 },
            Shapes { items: 3, blocks: 2, rows: 5, tile: 4, heads_words: 1 << 10, busy: 1 },
        ],
    }
}

/// Runs every example with launches of a shape.
pub fn run(
    machine: &mut dyn Machine,
    examples: &[Example],
    shapes: &Shapes,
    build: &Build,
) -> Result<Line, BackendError> {
    let Shapes { items, rows, tile, .. } = shapes;
    let what = format!("operations, {items} items, {rows} rows, tile {tile}");
    let equal = format!("{} examples equal, and their folds", examples.len());
    for (index, example) in examples.iter().enumerate() {
        if let Some(difference) = one(machine, example, shapes, build)? {
            let difference = Some(format!("example {index}, {difference}"));
            return Ok(Line { what, equal, difference });
        }
    }
    Ok(Line { what, equal, difference: None })
}

fn bytes_of(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn read_place(machine: &mut dyn Machine, place: Place, elements: u64) -> Result<Vec<u32>, BackendError> {
    let mut bytes = vec![0; 4 * elements as usize];
    machine.read(place.buffer, 4 * place.at, &mut bytes)?;
    Ok(bytes.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word)).collect())
}

fn one(
    machine: &mut dyn Machine,
    example: &Example,
    shapes: &Shapes,
    build: &Build,
) -> Result<Option<String>, BackendError> {
    let Example { plan, inputs, outputs } = example;
    let layout = Layout::of(plan, shapes, build)?;
    let key = FoldKey::from(plan.digest());
    let flat = Place { buffer: machine.allocate(4)?, at: 0 };
    let memories = memories(machine, plan, &layout, key, [flat; 2])?;
    let places = Places { layout: &layout, memories };
    let operation = &plan.operations[0];
    for (operand, words) in operation.inputs.iter().zip(inputs) {
        let place = places.of(*operand);
        machine.write(place.buffer, 4 * place.at, &bytes_of(words))?;
        if plan.dtype(*operand) == Dtype::U32
            && words.iter().all(|&token| u64::from(token) < plan.dimensions.vocabulary)
        {
            machine.write(
                memories.sorted,
                0,
                &bytes_of(&order::sorted(words, plan.dimensions.vocabulary)),
            )?;
        }
    }
    let steps = launches::launches(plan, &places, shapes, build);
    let Some(Step { launches, taps, after, .. }) = steps.first() else {
        return Ok(Some(format!("{}: expected launches, found none", operation.name)));
    };
    launches.iter().chain(after).try_for_each(|launch| machine.launch(launch))?;
    let coefficients = Coefficients::new(key, taps.iter().map(|tap| tap.elements).max().unwrap_or(0));
    for (output, (tap, expected)) in taps.iter().zip(outputs).enumerate() {
        let what = format!("{}, output {output}", operation.name);
        let found = read_place(machine, tap.place, tap.elements)?;
        if let Some((element, expected, found)) = first_difference(expected, &found) {
            return Ok(Some(unequal(&what, element, expected, found)));
        }
        let mut sums = vec![0; 24 * tap.sums as usize];
        machine.read(memories.sums, 8 * tap.sums_at, &mut sums)?;
        let floats: Vec<f32> = expected.iter().map(|word| f32::from_bits(*word)).collect();
        let (fold, finite) = flat::added(&sums);
        let expected = (coefficients.fold(&floats), floats.iter().all(|word| word.is_finite()));
        if build.recorded && (fold, finite) != expected {
            return Ok(Some(format!(
                "{what}: expected fold and finiteness {expected:?}, found {:?}",
                (fold, finite)
            )));
        }
    }
    Ok(None)
}
