//! The smallest plan there can be: an embedding, a tied head and the loss. Rejected cases start from it.

use schemas::checksum::Dtype;
use schemas::digest::{Checksum, ConfigDigest};
use schemas::plan::{
    Corrections, DataOrder, Dimensions, GroupStep, Kind, Operand, Operation, Parameter, Plan, Rule, Tensor,
    Update,
};

const ONE: u32 = 0x3f80_0000;
const HALF: u32 = 0x3f00_0000;

/// B = 1, T = 2, C = 2, V = 3; one leaf, one step.
pub fn plan() -> Plan {
    use Operand::{Gradient, Parameter as Param, Tensor as Local};
    let parameter =
        |name: &str, shape: [u64; 2]| Parameter { name: name.into(), shape: shape.into(), group: 0 };
    let tensor = |(name, dtype, shape): (&str, Dtype, &[u64])| Tensor {
        name: name.into(),
        dtype,
        shape: shape.into(),
    };
    let operation = |(name, kind, inputs, outputs): (&str, Kind, &[Operand], &[Operand])| Operation {
        name: name.into(),
        kind,
        inputs: inputs.into(),
        outputs: outputs.into(),
        constants: if kind == Kind::CrossEntropyBackward { vec![HALF] } else { vec![] },
    };
    let (f32, u32) = (Dtype::F32, Dtype::U32);
    let tensors: [(&str, Dtype, &[u64]); 11] = [
        ("tokens", u32, &[2]),
        ("targets", u32, &[2]),
        ("x", f32, &[2, 2]),
        ("logits", f32, &[2, 3]),
        ("loss", f32, &[2]),
        ("max", f32, &[2]),
        ("sum", f32, &[2]),
        ("d_logits", f32, &[2, 3]),
        ("d_x", f32, &[2, 2]),
        ("d_wte.head", f32, &[3, 2]),
        ("d_wte.embedding", f32, &[3, 2]),
    ];
    let operations: [(&str, Kind, &[Operand], &[Operand]); 8] = [
        ("window", Kind::Window, &[], &[Local(0), Local(1)]),
        ("embedding", Kind::Embedding, &[Local(0), Param(0), Param(1)], &[Local(2)]),
        ("head", Kind::Project, &[Local(2), Param(0)], &[Local(3)]),
        ("loss", Kind::CrossEntropy, &[Local(3), Local(1)], &[Local(4), Local(5), Local(6)]),
        ("d_loss", Kind::CrossEntropyBackward, &[Local(3), Local(1), Local(5), Local(6)], &[Local(7)]),
        ("d_head.input", Kind::ProjectBackwardInput, &[Local(7), Param(0)], &[Local(8)]),
        ("d_head.weight", Kind::ProjectBackwardWeight, &[Local(7), Local(2)], &[Local(9)]),
        ("d_embedding", Kind::EmbeddingBackward, &[Local(0), Local(8)], &[Local(10), Gradient(1)]),
    ];
    let tied: (&str, Kind, &[Operand], &[Operand]) =
        ("d_tied", Kind::Add, &[Local(9), Local(10)], &[Gradient(0)]);
    Plan {
        profile: "f32-fma".into(),
        config: ConfigDigest([1; 32]),
        dimensions: Dimensions {
            batch: 1,
            time: 2,
            channels: 2,
            vocabulary: 3,
            layers: 1,
            heads: 1,
            positions: 2,
            inner: 8,
            kv_heads: 1,
            head_size: 2,
        },
        parameters: vec![parameter("wte", [3, 2]), parameter("wpe", [2, 2])],
        tables: vec![],
        tensors: tensors.into_iter().map(tensor).collect(),
        operations: operations.into_iter().chain([tied]).map(operation).collect(),
        leaves: 1,
        devices_max: 1,
        data: DataOrder { tokens: 5, dataset: Checksum([2; 32]), seed: 3 },
        update: Update {
            inverse_leaves: ONE,
            inverse_rows: HALF,
            clip: 0x7f80_0000,
            clip_epsilon: 0x3586_37bd,
            rule: Rule::Adamw {
                beta1: 0,
                one_minus_beta1: ONE,
                beta2: 0,
                one_minus_beta2: ONE,
                epsilon: 0x322b_cc77,
                corrections: vec![Corrections { first: ONE, second: ONE }],
            },
            groups: vec![vec![GroupStep { learning_rate: HALF, decay: ONE }]],
        },
    }
}
