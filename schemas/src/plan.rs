//! The `plan`: one training step as data (docs/spec/plan.md). The oracle derives it from the config; executors walk
//! it and decide nothing. Every number that is not a tensor operation's result (learning rates, bias corrections,
//! 1/N) stands in it as f32 bits, so that no device needs a library function.

mod encode;

use crate::checksum::Dtype;
use crate::digest::{Checksum, ConfigDigest, PlanDigest, digest};
use crate::object::Object;

/// Most operations in a plan.
pub const OPERATIONS_MAX: usize = 1 << 15;
/// Most elements of one tensor.
pub const ELEMENTS_MAX: u64 = 1 << 38;
/// Most steps whose constants a plan may list.
pub const PLAN_STEPS_MAX: usize = 1 << 20;
/// Most tables of a plan.
pub const TABLES_MAX: usize = 8;
/// Most groups of parameters.
pub const GROUPS_MAX: usize = 16;
/// Most bytes of a plan's tables and steps together: the rest of the 32 MiB is for its lists.
pub const ROWS_BYTES_MAX: u64 = 20 << 20;

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
    /// Constant tensors that are not the result of an operation.
    pub tables: Vec<Table>,
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
    /// NH: heads of queries.
    pub heads: u64,
    /// Longest sequence, at least T; rows of a position table.
    pub positions: u64,
    /// I: width inside the MLP.
    pub inner: u64,
    /// KVH: heads of keys and values; divides NH.
    pub kv_heads: u64,
    /// HS: channels of a head.
    pub head_size: u64,
}

impl Dimensions {
    /// Rows of a leaf: B x T.
    pub fn rows(&self) -> u64 {
        self.batch * self.time
    }

    /// A: channels of all heads of queries, NH x HS.
    pub fn query_width(&self) -> u64 {
        self.heads * self.head_size
    }

    /// K: channels of all heads of keys, and of values, KVH x HS.
    pub fn kv_width(&self) -> u64 {
        self.kv_heads * self.head_size
    }
}

/// A parameter tensor, f32.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Hugging Face name.
    pub name: String,
    /// One or two dimensions.
    pub shape: Vec<u64>,
    /// Whose learning rate and decay apply: an index into [`Update::groups`].
    pub group: usize,
}

/// A constant tensor, as f32 bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Unique name, such as `rope.cos`.
    pub name: String,
    /// One or two dimensions.
    pub shape: Vec<u64>,
    /// Its elements.
    pub words: Vec<u32>,
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
    /// Constant table by index; read only.
    Table(usize),
}

/// Kinds of operations. Inputs, outputs and constants of each are listed in docs/spec/plan.md and checked by
/// [`crate::plan_shapes`]; formulas and orders are the profile's (docs/spec/profile.md).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// () -> tokens [N] u32, targets [N] u32
    Window,
    /// tokens, wte [V,C], wpe [P,C] -> [N,C]
    Embedding,
    /// tokens, table [V,C] -> [N,C]
    TokenEmbedding,
    /// x [N,C], gain [C], bias [C]; (1/C, eps) -> y [N,C], mean [N], rstd [N]
    Layernorm,
    /// x [N,C], gain [C]; (1/C, eps) -> y [N,C], rstd [N]
    Rmsnorm,
    /// x [N,I], w [I,O], bias [O] -> [N,O]
    Linear,
    /// x [N,I], w [O,I] -> [N,O]
    Project,
    /// qkv [N,3A]; (1/sqrt(HS)) -> out [N,A], max [B,NH,T], sum [B,NH,T]
    Attention,
    /// q [N,A], k [N,K], v [N,K]; (1/sqrt(HS)) -> out [N,A], max [B,NH,T], sum [B,NH,T]
    GroupedAttention,
    /// x [N,H*HS], cos [T,HS/2], sin [T,HS/2] -> [N,H*HS]
    Rope,
    /// x -> y, same shape
    Gelu,
    /// gate, up -> y, same shape
    Swiglu,
    /// left, right -> left + right, same shape
    Add,
    /// logits [N,V], targets [N] -> loss [N], max [N], sum [N]
    CrossEntropy,
    /// logits, targets, max, sum; (1/N) -> d_logits [N,V]
    CrossEntropyBackward,
    /// d_y [N,O], w [O,I] -> d_x [N,I]
    ProjectBackwardInput,
    /// d_y [N,O], x [N,I] -> d_w [O,I]
    ProjectBackwardWeight,
    /// d_y, x, mean, rstd, gain; (1/C) -> d_x [N,C], d_gain [C], d_bias [C]
    LayernormBackward,
    /// d_y, x, rstd, gain; (1/C) -> d_x [N,C], d_gain [C]
    RmsnormBackward,
    /// d_y [N,O], w [I,O] -> d_x [N,I]
    LinearBackwardInput,
    /// x [N,I], d_y [N,O] -> d_w [I,O]
    LinearBackwardWeight,
    /// d_y [N,O] -> d_bias [O]
    LinearBackwardBias,
    /// d_y, x -> d_x, same shape
    GeluBackward,
    /// d_y, gate, up -> d_gate, d_up, same shape
    SwigluBackward,
    /// d_out [N,A], qkv [N,3A], out [N,A], max, sum; (1/sqrt(HS)) -> d_qkv [N,3A]
    AttentionBackward,
    /// d_out [N,A], q, k, v, out [N,A], max, sum; (1/sqrt(HS)) -> d_q [N,A], d_k [N,K], d_v [N,K]
    GroupedAttentionBackward,
    /// d_y [N,H*HS], cos, sin -> d_x [N,H*HS]
    RopeBackward,
    /// tokens [N], d_x [N,C] -> d_wte [V,C], d_wpe [P,C]
    EmbeddingBackward,
    /// tokens [N], d_x [N,C] -> d_table [V,C]
    TokenEmbeddingBackward,
}

impl Kind {
    /// Every kind with its name in encoded plans.
    pub const ALL: [(Kind, &'static str); 29] = [
        (Kind::Window, "window"),
        (Kind::Embedding, "embedding"),
        (Kind::TokenEmbedding, "token_embedding"),
        (Kind::Layernorm, "layernorm"),
        (Kind::Rmsnorm, "rmsnorm"),
        (Kind::Linear, "linear"),
        (Kind::Project, "project"),
        (Kind::Attention, "attention"),
        (Kind::GroupedAttention, "grouped_attention"),
        (Kind::Rope, "rope"),
        (Kind::Gelu, "gelu"),
        (Kind::Swiglu, "swiglu"),
        (Kind::Add, "add"),
        (Kind::CrossEntropy, "cross_entropy"),
        (Kind::CrossEntropyBackward, "cross_entropy_backward"),
        (Kind::ProjectBackwardInput, "project_backward_input"),
        (Kind::ProjectBackwardWeight, "project_backward_weight"),
        (Kind::LayernormBackward, "layernorm_backward"),
        (Kind::RmsnormBackward, "rmsnorm_backward"),
        (Kind::LinearBackwardInput, "linear_backward_input"),
        (Kind::LinearBackwardWeight, "linear_backward_weight"),
        (Kind::LinearBackwardBias, "linear_backward_bias"),
        (Kind::GeluBackward, "gelu_backward"),
        (Kind::SwigluBackward, "swiglu_backward"),
        (Kind::AttentionBackward, "attention_backward"),
        (Kind::GroupedAttentionBackward, "grouped_attention_backward"),
        (Kind::RopeBackward, "rope_backward"),
        (Kind::EmbeddingBackward, "embedding_backward"),
        (Kind::TokenEmbeddingBackward, "token_embedding_backward"),
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

/// What follows the tree, as f32 bits.
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
    /// What is done with the clipped gradient.
    pub rule: Rule,
    /// For each group of parameters its constants of each step, from step 0. All are of one length, the steps.
    pub groups: Vec<Vec<GroupStep>>,
}

/// What an optimizer does, with the constants that are the same for all parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rule {
    /// AdamW.
    Adamw {
        /// beta1.
        beta1: u32,
        /// 1 - beta1.
        one_minus_beta1: u32,
        /// beta2.
        beta2: u32,
        /// 1 - beta2.
        one_minus_beta2: u32,
        /// Added to the root of the second moment.
        epsilon: u32,
        /// Bias corrections of each step.
        corrections: Vec<Corrections>,
    },
    /// Stochastic gradient descent; its velocity is the first moment.
    Sgd {
        /// Decay of the velocity.
        momentum: u32,
        /// Whether the step looks ahead.
        nesterov: bool,
    },
}

impl Rule {
    /// The word: `adamw` or `sgd`.
    pub fn word(&self) -> &'static str {
        match self {
            Rule::Adamw { .. } => "adamw",
            Rule::Sgd { .. } => "sgd",
        }
    }
}

/// The bias corrections of one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corrections {
    /// 1 / (1 - beta1^(step + 1)).
    pub first: u32,
    /// 1 / (1 - beta2^(step + 1)).
    pub second: u32,
}

/// What a group's step needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupStep {
    /// Learning rate.
    pub learning_rate: u32,
    /// AdamW: 1 - learning rate x weight decay. SGD: weight decay.
    pub decay: u32,
}

impl Update {
    /// How many steps have constants.
    pub fn steps(&self) -> usize {
        self.groups.first().map_or(0, Vec::len)
    }
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
            Operand::Table(i) => &self.tables[i].shape,
        }
    }

    /// The element type of an operand.
    pub fn dtype(&self, operand: Operand) -> Dtype {
        match operand {
            Operand::Parameter(_) | Operand::Gradient(_) | Operand::Table(_) => Dtype::F32,
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
            Operand::Table(i) => self.tables[i].name.clone(),
        }
    }

    /// P: elements of the flat parameter vector.
    pub fn parameter_count(&self) -> u64 {
        self.parameters.iter().map(|parameter| parameter.shape.iter().product::<u64>()).sum()
    }

    /// How many windows of T + 1 tokens, starting every T, the data set holds.
    pub fn windows(&self) -> u64 {
        (self.data.tokens - 1) / self.dimensions.time
    }
}
