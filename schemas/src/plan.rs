//! The `plan`: one training step as data (docs/spec/plan.md). The oracle derives it from the config; executors walk
//! it and decide nothing. Every number that is not a tensor operation's result (learning rates, bias corrections,
//! 1/N) stands in it as f32 bits, so that no device needs a library function.

use crate::cbor::Value;
use crate::checksum::Dtype;
use crate::digest::{Checksum, ConfigDigest, PlanDigest, digest};
use crate::object::{Fields, Object, ObjectError};
use crate::run::{LEAVES_MAX, STEPS_MAX, check_tree};

/// Most operations in a plan.
pub const OPERATIONS_MAX: usize = 1 << 15;
/// Most elements of one tensor.
pub const ELEMENTS_MAX: u64 = 1 << 38;
/// Most steps whose constants a plan may list.
pub const PLAN_STEPS_MAX: usize = 1 << 20;

/// A step as data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Arithmetic profile id.
    pub profile: String,
    /// The config it was derived from.
    pub config: ConfigDigest,
    /// The letters of every shape.
    pub dimensions: Dimensions,
    /// Parameter tensors in registered order: the flat parameter vector is their concatenation.
    pub parameters: Vec<Parameter>,
    /// Tensors that live within one leaf.
    pub tensors: Vec<Tensor>,
    /// What one leaf computes, in order: forward, then backward.
    pub operations: Vec<Operation>,
    /// Leaves in a step and most devices; the gradient tree follows from both.
    pub leaves: u64,
    /// Most devices.
    pub devices_max: u64,
    /// Which tokens each leaf reads.
    pub data: DataOrder,
    /// What follows the tree.
    pub update: Update,
}

/// Shape letters (docs/GLOSSARY.md).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dimensions {
    /// B: sequences in a leaf.
    pub batch: u64,
    /// T: tokens in a sequence.
    pub time: u64,
    /// C: channels.
    pub channels: u64,
    /// V: vocabulary.
    pub vocabulary: u64,
    /// L: layers.
    pub layers: u64,
    /// NH: attention heads; HS = C / NH.
    pub heads: u64,
    /// Rows of the position table, at least T.
    pub positions: u64,
    /// Width inside the MLP.
    pub inner: u64,
}

impl Dimensions {
    /// Rows of a leaf: B x T.
    pub fn rows(&self) -> u64 {
        self.batch * self.time
    }
}

/// A parameter tensor, f32.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Hugging Face name.
    pub name: String,
    /// One or two dimensions.
    pub shape: Vec<u64>,
    /// Whether weight decay applies.
    pub decay: bool,
}

/// A tensor within a leaf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// Unique name, such as `layer0.attention.out`.
    pub name: String,
    /// Element type.
    pub dtype: Dtype,
    /// One to four dimensions.
    pub shape: Vec<u64>,
}

/// What an operation reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operand {
    /// Parameter tensor by index; read only.
    Parameter(usize),
    /// The gradient of a parameter tensor; written by exactly one operation of a leaf.
    Gradient(usize),
    /// Tensor within the leaf; written by exactly one operation, before any that reads it.
    Tensor(usize),
}

/// Kinds of operations. Inputs, outputs and constants of each are listed in docs/spec/plan.md and checked by
/// [`crate::plan_shapes`]; formulas and orders are the profile's (docs/spec/profile.md).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// () -> tokens [N] u32, targets [N] u32
    Window,
    /// tokens, wte [V,C], wpe [P,C] -> [N,C]
    Embedding,
    /// x [N,C], gain [C], bias [C]; (1/C, eps) -> y [N,C], mean [N], rstd [N]
    Layernorm,
    /// x [N,I], w [I,O], bias [O] -> [N,O]
    Linear,
    /// qkv [N,3C]; (1/sqrt(HS)) -> out [N,C], max [B,NH,T], sum [B,NH,T]
    Attention,
    /// x -> y, same shape
    Gelu,
    /// left, right -> left + right, same shape
    Add,
    /// x [N,C], wte [V,C] -> logits [N,V]
    Head,
    /// logits [N,V], targets [N] -> loss [N], max [N], sum [N]
    CrossEntropy,
    /// logits, targets, max, sum; (1/N) -> d_logits [N,V]
    CrossEntropyBackward,
    /// d_logits [N,V], wte [V,C] -> d_x [N,C]
    HeadBackwardInput,
    /// d_logits [N,V], x [N,C] -> d_wte [V,C]
    HeadBackwardWeight,
    /// d_y, x, mean, rstd, gain; (1/C) -> d_x [N,C], d_gain [C], d_bias [C]
    LayernormBackward,
    /// d_y [N,O], w [I,O] -> d_x [N,I]
    LinearBackwardInput,
    /// x [N,I], d_y [N,O] -> d_w [I,O]
    LinearBackwardWeight,
    /// d_y [N,O] -> d_bias [O]
    LinearBackwardBias,
    /// d_y, x -> d_x, same shape
    GeluBackward,
    /// d_out [N,C], qkv [N,3C], out [N,C], max, sum; (1/sqrt(HS)) -> d_qkv [N,3C]
    AttentionBackward,
    /// tokens [N], d_x [N,C] -> d_wte [V,C], d_wpe [P,C]
    EmbeddingBackward,
}

impl Kind {
    /// Every kind with its name in encoded plans.
    pub const ALL: [(Kind, &'static str); 19] = [
        (Kind::Window, "window"),
        (Kind::Embedding, "embedding"),
        (Kind::Layernorm, "layernorm"),
        (Kind::Linear, "linear"),
        (Kind::Attention, "attention"),
        (Kind::Gelu, "gelu"),
        (Kind::Add, "add"),
        (Kind::Head, "head"),
        (Kind::CrossEntropy, "cross_entropy"),
        (Kind::CrossEntropyBackward, "cross_entropy_backward"),
        (Kind::HeadBackwardInput, "head_backward_input"),
        (Kind::HeadBackwardWeight, "head_backward_weight"),
        (Kind::LayernormBackward, "layernorm_backward"),
        (Kind::LinearBackwardInput, "linear_backward_input"),
        (Kind::LinearBackwardWeight, "linear_backward_weight"),
        (Kind::LinearBackwardBias, "linear_backward_bias"),
        (Kind::GeluBackward, "gelu_backward"),
        (Kind::AttentionBackward, "attention_backward"),
        (Kind::EmbeddingBackward, "embedding_backward"),
    ];

    /// The name in encoded plans.
    pub fn name(self) -> &'static str {
        let (_, name) =
            Kind::ALL.into_iter().find(|(kind, _)| *kind == self).expect("plan: every kind is in ALL");
        name
    }
}

/// One operation. Every output is a tap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Unique name, such as `forward.layer0.attention`.
    pub name: String,
    /// What it computes.
    pub kind: Kind,
    /// What it reads, in the order of [`Kind`].
    pub inputs: Vec<Operand>,
    /// What it writes, in the order of [`Kind`].
    pub outputs: Vec<Operand>,
    /// f32 bits, in the order of [`Kind`].
    pub constants: Vec<u32>,
}

/// Which tokens each leaf reads (docs/spec/plan.md, "Data order").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataOrder {
    /// Tokens in the data set.
    pub tokens: u64,
    /// Checksum of the tokens as u32, shape `[tokens]`.
    pub dataset: Checksum,
    /// Key of the permutation.
    pub seed: u64,
}

/// The optimizer's constants, as f32 bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    /// 1/leaves.
    pub inverse_leaves: u32,
    /// 1/N, by which a leaf's summed losses are multiplied.
    pub inverse_rows: u32,
    /// Largest global norm; +infinity for no clipping.
    pub clip: u32,
    /// 1e-6, added to the norm before the division.
    pub clip_epsilon: u32,
    /// beta1.
    pub beta1: u32,
    /// 1 - beta1.
    pub one_minus_beta1: u32,
    /// beta2.
    pub beta2: u32,
    /// 1 - beta2.
    pub one_minus_beta2: u32,
    /// Added to the root of the second moment.
    pub epsilon: u32,
    /// Constants of each step, from step 0.
    pub steps: Vec<StepConstants>,
}

/// What changes from step to step, as f32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepConstants {
    /// Learning rate.
    pub learning_rate: u32,
    /// 1 - learning rate x weight decay, for tensors with decay.
    pub decay: u32,
    /// 1 / (1 - beta1^(step + 1)).
    pub first_correction: u32,
    /// 1 / (1 - beta2^(step + 1)).
    pub second_correction: u32,
}

/// One tap: an output of an operation, in plan order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tap {
    /// Index of the operation.
    pub operation: usize,
    /// What it wrote.
    pub operand: Operand,
}

impl Plan {
    /// The plan's identity, and the key of its folds.
    pub fn digest(&self) -> PlanDigest {
        PlanDigest(digest("plan", &[&self.encode()]))
    }

    /// All taps of a leaf, in order.
    pub fn taps(&self) -> impl Iterator<Item = Tap> + '_ {
        self.operations
            .iter()
            .enumerate()
            .flat_map(|(operation, op)| op.outputs.iter().map(move |&operand| Tap { operation, operand }))
    }

    /// The shape of an operand.
    pub fn shape(&self, operand: Operand) -> &[u64] {
        match operand {
            Operand::Parameter(i) | Operand::Gradient(i) => &self.parameters[i].shape,
            Operand::Tensor(i) => &self.tensors[i].shape,
        }
    }

    /// The element type of an operand.
    pub fn dtype(&self, operand: Operand) -> Dtype {
        match operand {
            Operand::Parameter(_) | Operand::Gradient(_) => Dtype::F32,
            Operand::Tensor(i) => self.tensors[i].dtype,
        }
    }

    /// How many elements an operand has.
    pub fn elements(&self, operand: Operand) -> u64 {
        self.shape(operand).iter().product()
    }

    /// The name of an operand, for people; a gradient is `d_` and its parameter's name.
    pub fn operand_name(&self, operand: Operand) -> String {
        match operand {
            Operand::Parameter(i) => self.parameters[i].name.clone(),
            Operand::Gradient(i) => format!("d_{}", self.parameters[i].name),
            Operand::Tensor(i) => self.tensors[i].name.clone(),
        }
    }

    /// P: elements of the flat parameter vector.
    pub fn parameter_count(&self) -> u64 {
        self.parameters.iter().map(|parameter| parameter.shape.iter().product::<u64>()).sum()
    }

    /// Where parameter `index` starts in the flat vector.
    pub fn parameter_offset(&self, index: usize) -> u64 {
        self.parameters[..index].iter().map(|parameter| parameter.shape.iter().product::<u64>()).sum()
    }

    /// How many windows of T + 1 tokens, starting every T, the data set holds.
    pub fn windows(&self) -> u64 {
        (self.data.tokens - 1) / self.dimensions.time
    }
}

impl Object for Plan {
    const STEM: &'static str = "plan";
    const BYTES_MAX: usize = 32 << 20;

    fn to_value(&self) -> Value {
        Value::map([
            ("profile", Value::text(&self.profile)),
            ("config", Value::bytes(self.config.0)),
            ("dimensions", numbers(&dimension_numbers(&self.dimensions))),
            ("parameters", Value::Array(self.parameters.iter().map(parameter_value).collect())),
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
    fn from_value(value: Value) -> Result<Plan, ObjectError> {
        let mut fields = Fields::open(Self::STEM, value)?;
        let data = fields.take("data")?;
        let update = fields.take("update")?;
        let mut parameters = Vec::new();
        for item in fields.array("parameters", OPERATIONS_MAX)? {
            parameters.push(parameter_from(item)?);
        }
        let mut tensors = Vec::new();
        for item in fields.array("tensors", 4 * OPERATIONS_MAX)? {
            tensors.push(tensor_from(item)?);
        }
        let mut operations = Vec::new();
        for item in fields.array("operations", OPERATIONS_MAX)? {
            operations.push(operation_from(item, parameters.len(), tensors.len())?);
        }
        let plan = Plan {
            profile: fields.text("profile", 40)?,
            config: ConfigDigest(fields.bytes("config")?),
            dimensions: take_dimensions(&mut fields)?,
            parameters,
            tensors,
            operations,
            leaves: fields.uint("leaves", LEAVES_MAX)?,
            devices_max: fields.uint("devices_max", LEAVES_MAX)?,
            data: data_from(data)?,
            update: update_from(update)?,
        };
        check_tree(&fields, plan.leaves, plan.devices_max)?;
        crate::plan_shapes::check(&plan).map_err(|e| fields.wrong("operations", e.expected, e.found))?;
        fields.close()?;
        Ok(plan)
    }
}

fn numbers(numbers: &[u64]) -> Value {
    Value::Array(numbers.iter().map(|&n| Value::Uint(n)).collect())
}

fn dimension_numbers(d: &Dimensions) -> [u64; 8] {
    [d.batch, d.time, d.channels, d.vocabulary, d.layers, d.heads, d.positions, d.inner]
}

fn take_dimensions(fields: &mut Fields) -> Result<Dimensions, ObjectError> {
    let mut found = Vec::new();
    for item in fields.array("dimensions", 8)? {
        match fields.as_uint("dimensions", item, 1 << 24)? {
            0 => return Err(fields.wrong("dimensions", "at least 1", "0")),
            n => found.push(n),
        }
    }
    let [batch, time, channels, vocabulary, layers, heads, positions, inner] = found[..] else {
        return Err(fields.wrong(
            "dimensions",
            "[B, T, C, V, L, NH, positions, inner]",
            format!("{found:?}"),
        ));
    };
    Ok(Dimensions { batch, time, channels, vocabulary, layers, heads, positions, inner })
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
        ("decay", Value::Bool(parameter.decay)),
    ])
}

fn parameter_from(value: Value) -> Result<Parameter, ObjectError> {
    let mut fields = Fields::open(Plan::STEM, value)?;
    let parameter = Parameter {
        name: fields.text("name", 160)?,
        shape: shape_from(&mut fields, 2)?,
        decay: fields.truth("decay")?,
    };
    fields.close()?;
    Ok(parameter)
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

fn operation_from(value: Value, parameters: usize, tensors: usize) -> Result<Operation, ObjectError> {
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
        inputs: operands_from(&mut fields, "inputs", parameters, tensors)?,
        outputs: operands_from(&mut fields, "outputs", parameters, tensors)?,
        constants,
    };
    fields.close()?;
    Ok(operation)
}

fn operands_from(
    fields: &mut Fields,
    field: &'static str,
    parameters: usize,
    tensors: usize,
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
    let steps = update
        .steps
        .iter()
        .flat_map(|step| [step.learning_rate, step.decay, step.first_correction, step.second_correction])
        .flat_map(u32::to_le_bytes)
        .collect();
    Value::map([
        ("inverse_leaves", bits(update.inverse_leaves)),
        ("inverse_rows", bits(update.inverse_rows)),
        ("clip", bits(update.clip)),
        ("clip_epsilon", bits(update.clip_epsilon)),
        ("beta1", bits(update.beta1)),
        ("one_minus_beta1", bits(update.one_minus_beta1)),
        ("beta2", bits(update.beta2)),
        ("one_minus_beta2", bits(update.one_minus_beta2)),
        ("epsilon", bits(update.epsilon)),
        ("steps", Value::Bytes(steps)),
    ])
}

fn update_from(value: Value) -> Result<Update, ObjectError> {
    let mut fields = Fields::open(Plan::STEM, value)?;
    let steps = fields.row::<16>("steps", 1..=PLAN_STEPS_MAX.min(STEPS_MAX as usize))?;
    let constants = |row: [u8; 16]| {
        let word = |at: usize| u32::from_le_bytes(row[at..at + 4].try_into().expect("plan: 4 of 16 bytes"));
        StepConstants {
            learning_rate: word(0),
            decay: word(4),
            first_correction: word(8),
            second_correction: word(12),
        }
    };
    let update = Update {
        inverse_leaves: fields.bits("inverse_leaves")?,
        inverse_rows: fields.bits("inverse_rows")?,
        clip: fields.bits("clip")?,
        clip_epsilon: fields.bits("clip_epsilon")?,
        beta1: fields.bits("beta1")?,
        one_minus_beta1: fields.bits("one_minus_beta1")?,
        beta2: fields.bits("beta2")?,
        one_minus_beta2: fields.bits("one_minus_beta2")?,
        epsilon: fields.bits("epsilon")?,
        steps: steps.into_iter().map(constants).collect(),
    };
    fields.close()?;
    Ok(update)
}
