//! The one encoding of a plan.

use super::{
    Corrections, DataOrder, Dimensions, ELEMENTS_MAX, GROUPS_MAX, GroupStep, Kind, OPERATIONS_MAX, Operand,
    Operation, PLAN_STEPS_MAX, Parameter, Plan, Rule, TABLES_MAX, Table, Tensor, Update,
};
use crate::cbor::Value;
use crate::checksum::Dtype;
use crate::digest::{Checksum, ConfigDigest};
use crate::layout::{ITEM_BYTES_MAX, Layout};
use crate::object::{Fields, Object, ObjectError};
use crate::run::{LEAVES_MAX, check_tree};
use crate::source::Place;

/// The fields that are no lists, but for the update, whose rows can be long.
const SMALL: [&str; 6] = ["profile", "config", "dimensions", "leaves", "devices_max", "data"];

impl Object for Plan {
    const STEM: &'static str = "plan";
    const BYTES_MAX: usize = 32 << 20;

    fn to_value(&self) -> Value {
        Value::map([
            ("profile", Value::text(&self.profile)),
            ("config", Value::bytes(self.config.0)),
            ("dimensions", numbers(&dimension_numbers(&self.dimensions))),
            ("parameters", Value::Array(self.parameters.iter().map(parameter_value).collect())),
            ("tables", Value::Array(self.tables.iter().map(table_value).collect())),
            ("tensors", Value::Array(self.tensors.iter().map(tensor_value).collect())),
            ("operations", Value::Array(self.operations.iter().map(operation_value).collect())),
            ("leaves", Value::Uint(self.leaves)),
            ("devices_max", Value::Uint(self.devices_max)),
            (
                "data",
                Value::map([
                    ("tokens", Value::Uint(self.data.tokens)),
                    ("dataset", Value::bytes(self.data.dataset.0)),
                    ("seed", Value::Uint(self.data.seed)),
                ]),
            ),
            ("update", update_value(&self.update)),
        ])
    }

    /// Checks everything an executor relies on: indexes, shapes, arities, each tensor written once and before it is
    /// read, each gradient written exactly once. A plan that decodes can be walked without a further check.
    fn decode(bytes: &[u8]) -> Result<Plan, ObjectError> {
        let lists = ["parameters", "tables", "tensors", "operations"];
        let place = Place::whole(&bytes);
        let names = [&SMALL[..], &lists, &["update"]].concat();
        let mut layout = Layout::open(Self::STEM, &bytes, place, Self::BYTES_MAX, &names)?;
        let mut fields = layout.fields(&SMALL, ITEM_BYTES_MAX)?;
        let data = fields.take("data")?;
        let update = layout.fields(&["update"], Self::BYTES_MAX as u64)?.take("update")?;
        let parameters = layout.array("parameters", OPERATIONS_MAX)?.read(ITEM_BYTES_MAX, parameter_from)?;
        let tables = layout.array("tables", TABLES_MAX)?.read(Self::BYTES_MAX as u64, table_from)?;
        let tensors = layout.array("tensors", 4 * OPERATIONS_MAX)?.read(ITEM_BYTES_MAX, tensor_from)?;
        let counts = [parameters.len(), tensors.len(), tables.len()];
        let operations = layout.array("operations", OPERATIONS_MAX)?;
        let operations = operations.read(ITEM_BYTES_MAX, |item| operation_from(item, counts))?;
        let plan = Plan {
            profile: fields.text("profile", 40)?,
            config: ConfigDigest(fields.bytes("config")?),
            dimensions: take_dimensions(&mut fields)?,
            parameters,
            tables,
            tensors,
            operations,
            leaves: fields.uint("leaves", LEAVES_MAX)?,
            devices_max: fields.uint("devices_max", LEAVES_MAX)?,
            data: data_from(data)?,
            update: update_from(update)?,
        };
        check_tree(&fields, plan.leaves, plan.devices_max)?;
        crate::plan_shapes::check(&plan).map_err(|e| fields.wrong("operations", e.expected, e.found))?;
        layout.close()?;
        Ok(plan)
    }
}

fn numbers(numbers: &[u64]) -> Value {
    Value::Array(numbers.iter().map(|&n| Value::Uint(n)).collect())
}

fn dimension_numbers(d: &Dimensions) -> [u64; 10] {
    let Dimensions {
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
    } = *d;
    [batch, time, channels, vocabulary, layers, heads, positions, inner, kv_heads, head_size]
}

fn take_dimensions(fields: &mut Fields) -> Result<Dimensions, ObjectError> {
    let mut found = Vec::new();
    for item in fields.array("dimensions", 10)? {
        match fields.as_uint("dimensions", item, 1 << 24)? {
            0 => return Err(fields.wrong("dimensions", "at least 1", "0")),
            n => found.push(n),
        }
    }
    let [batch, time, channels, vocabulary, layers, heads, positions, inner, kv_heads, head_size] = found[..]
    else {
        return Err(fields.wrong(
            "dimensions",
            "[B, T, C, V, L, NH, positions, I, KVH, HS]",
            format!("{found:?}"),
        ));
    };
    Ok(Dimensions { batch, time, channels, vocabulary, layers, heads, positions, inner, kv_heads, head_size })
}

fn shape_from(fields: &mut Fields, rank_max: usize) -> Result<Vec<u64>, ObjectError> {
    let mut shape = Vec::new();
    for item in fields.array("shape", rank_max)? {
        shape.push(fields.as_uint("shape", item, ELEMENTS_MAX)?);
    }
    let elements = shape.iter().try_fold(1u64, |product, &dimension| product.checked_mul(dimension));
    match elements {
        Some(1..=ELEMENTS_MAX) if !shape.is_empty() => Ok(shape),
        _ => Err(fields.wrong(
            "shape",
            format!("1 to {rank_max} dimensions, 1 to {ELEMENTS_MAX} elements"),
            format!("{shape:?}"),
        )),
    }
}

fn parameter_value(parameter: &Parameter) -> Value {
    Value::map([
        ("name", Value::text(&parameter.name)),
        ("shape", numbers(&parameter.shape)),
        ("group", Value::Uint(parameter.group as u64)),
    ])
}

fn parameter_from(value: Value) -> Result<Parameter, ObjectError> {
    let mut fields = Fields::open(Plan::STEM, value)?;
    let parameter = Parameter {
        name: fields.text("name", 160)?,
        shape: shape_from(&mut fields, 2)?,
        group: fields.uint("group", GROUPS_MAX as u64 - 1)? as usize,
    };
    fields.close()?;
    Ok(parameter)
}

fn table_value(table: &Table) -> Value {
    Value::map([
        ("name", Value::text(&table.name)),
        ("shape", numbers(&table.shape)),
        ("words", Value::Bytes(table.words.iter().flat_map(|word| word.to_le_bytes()).collect())),
    ])
}

fn table_from(value: Value) -> Result<Table, ObjectError> {
    let mut fields = Fields::open(Plan::STEM, value)?;
    let shape = shape_from(&mut fields, 2)?;
    let elements = shape.iter().product::<u64>() as usize;
    let words = fields.row::<4>("words", elements..=elements)?;
    let words = words.into_iter().map(u32::from_le_bytes).collect();
    let table = Table { name: fields.text("name", 160)?, shape, words };
    fields.close()?;
    Ok(table)
}

fn tensor_value(tensor: &Tensor) -> Value {
    Value::map([
        ("name", Value::text(&tensor.name)),
        ("dtype", Value::Uint(tensor.dtype.code().into())),
        ("shape", numbers(&tensor.shape)),
    ])
}

fn tensor_from(value: Value) -> Result<Tensor, ObjectError> {
    let mut fields = Fields::open(Plan::STEM, value)?;
    let code = fields.uint("dtype", 255)?;
    let tensor = Tensor {
        name: fields.text("name", 160)?,
        dtype: Dtype::from_code(code)
            .ok_or_else(|| fields.wrong("dtype", "1 (f32) or 2 (u32)", code.to_string()))?,
        shape: shape_from(&mut fields, 4)?,
    };
    fields.close()?;
    Ok(tensor)
}

fn operation_value(operation: &Operation) -> Value {
    let operand = |operand: &Operand| match *operand {
        Operand::Parameter(i) => numbers(&[0, i as u64]),
        Operand::Gradient(i) => numbers(&[1, i as u64]),
        Operand::Tensor(i) => numbers(&[2, i as u64]),
        Operand::Table(i) => numbers(&[3, i as u64]),
    };
    Value::map([
        ("name", Value::text(&operation.name)),
        ("kind", Value::text(operation.kind.name())),
        ("inputs", Value::Array(operation.inputs.iter().map(operand).collect())),
        ("outputs", Value::Array(operation.outputs.iter().map(operand).collect())),
        (
            "constants",
            Value::Array(operation.constants.iter().map(|&bits| Value::Uint(bits.into())).collect()),
        ),
    ])
}

/// `counts`: how many parameters, tensors and tables are listed.
fn operation_from(value: Value, counts: [usize; 3]) -> Result<Operation, ObjectError> {
    let mut fields = Fields::open(Plan::STEM, value)?;
    let word = fields.text("kind", 40)?;
    let kind = Kind::ALL.into_iter().find(|(_, name)| *name == word).map(|(kind, _)| kind);
    let mut constants = Vec::new();
    for item in fields.array("constants", 8)? {
        constants.push(fields.as_uint("constants", item, u32::MAX.into())? as u32);
    }
    let operation = Operation {
        name: fields.text("name", 160)?,
        kind: kind.ok_or_else(|| fields.wrong("kind", "a kind of docs/spec/plan.md", word))?,
        inputs: operands_from(&mut fields, "inputs", counts)?,
        outputs: operands_from(&mut fields, "outputs", counts)?,
        constants,
    };
    fields.close()?;
    Ok(operation)
}

fn operands_from(
    fields: &mut Fields,
    field: &'static str,
    [parameters, tensors, tables]: [usize; 3],
) -> Result<Vec<Operand>, ObjectError> {
    let mut operands = Vec::new();
    for item in fields.array(field, 8)? {
        let mut pair = Vec::new();
        for number in fields.as_array(field, item, 2)? {
            pair.push(fields.as_uint(field, number, u32::MAX.into())? as usize);
        }
        operands.push(match pair[..] {
            [0, i] if i < parameters => Operand::Parameter(i),
            [1, i] if i < parameters => Operand::Gradient(i),
            [2, i] if i < tensors => Operand::Tensor(i),
            [3, i] if i < tables => Operand::Table(i),
            _ => return Err(fields.wrong(field, "[class, index] of a listed tensor", format!("{pair:?}"))),
        });
    }
    Ok(operands)
}

fn data_from(value: Value) -> Result<DataOrder, ObjectError> {
    let mut fields = Fields::open(Plan::STEM, value)?;
    let data = DataOrder {
        tokens: fields.uint("tokens", ELEMENTS_MAX)?,
        dataset: Checksum(fields.bytes("dataset")?),
        seed: fields.uint("seed", u64::MAX)?,
    };
    fields.close()?;
    Ok(data)
}

fn update_value(update: &Update) -> Value {
    let bits = |bits: u32| Value::Uint(bits.into());
    let group = |steps: &Vec<GroupStep>| row(steps.iter().map(|step| [step.learning_rate, step.decay]));
    let kind = Value::text(update.rule.word());
    let rule = match &update.rule {
        Rule::Adamw { beta1, one_minus_beta1, beta2, one_minus_beta2, epsilon, corrections } => Value::map([
            ("kind", kind),
            ("beta1", bits(*beta1)),
            ("one_minus_beta1", bits(*one_minus_beta1)),
            ("beta2", bits(*beta2)),
            ("one_minus_beta2", bits(*one_minus_beta2)),
            ("epsilon", bits(*epsilon)),
            ("corrections", row(corrections.iter().map(|step| [step.first, step.second]))),
        ]),
        Rule::Sgd { momentum, nesterov } => {
            Value::map([("kind", kind), ("momentum", bits(*momentum)), ("nesterov", Value::Bool(*nesterov))])
        }
    };
    Value::map([
        ("inverse_leaves", bits(update.inverse_leaves)),
        ("inverse_rows", bits(update.inverse_rows)),
        ("clip", bits(update.clip)),
        ("clip_epsilon", bits(update.clip_epsilon)),
        ("rule", rule),
        ("groups", Value::Array(update.groups.iter().map(group).collect())),
    ])
}

/// Pairs of words, little-endian.
fn row(pairs: impl Iterator<Item = [u32; 2]>) -> Value {
    Value::Bytes(pairs.flatten().flat_map(u32::to_le_bytes).collect())
}

/// The counterpart of `row`.
fn pairs(fields: &mut Fields, field: &'static str) -> Result<Vec<[u32; 2]>, ObjectError> {
    let rows = fields.row::<8>(field, 1..=PLAN_STEPS_MAX)?;
    let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |word: u32, byte| word << 8 | u32::from(*byte));
    Ok(rows.iter().map(|pair| [word(&pair[..4]), word(&pair[4..])]).collect())
}

fn update_from(value: Value) -> Result<Update, ObjectError> {
    let mut fields = Fields::open(Plan::STEM, value)?;
    let rule = rule_from(fields.take("rule")?)?;
    let mut groups = Vec::new();
    for item in fields.array("groups", GROUPS_MAX)? {
        let mut group = Fields::named(Plan::STEM, &["groups"], vec![item]);
        let steps = pairs(&mut group, "groups")?;
        groups.push(
            steps.into_iter().map(|[learning_rate, decay]| GroupStep { learning_rate, decay }).collect(),
        );
    }
    let update = Update {
        inverse_leaves: fields.bits("inverse_leaves")?,
        inverse_rows: fields.bits("inverse_rows")?,
        clip: fields.bits("clip")?,
        clip_epsilon: fields.bits("clip_epsilon")?,
        rule,
        groups,
    };
    fields.close()?;
    Ok(update)
}

fn rule_from(value: Value) -> Result<Rule, ObjectError> {
    let mut fields = Fields::open(Plan::STEM, value)?;
    let rule = match fields.text("kind", 40)?.as_str() {
        "adamw" => Rule::Adamw {
            beta1: fields.bits("beta1")?,
            one_minus_beta1: fields.bits("one_minus_beta1")?,
            beta2: fields.bits("beta2")?,
            one_minus_beta2: fields.bits("one_minus_beta2")?,
            epsilon: fields.bits("epsilon")?,
            corrections: pairs(&mut fields, "corrections")?
                .into_iter()
                .map(|[first, second]| Corrections { first, second })
                .collect(),
        },
        "sgd" => Rule::Sgd { momentum: fields.bits("momentum")?, nesterov: fields.truth("nesterov")? },
        other => return Err(fields.wrong("kind", "adamw or sgd", other)),
    };
    fields.close()?;
    Ok(rule)
}
