//! The smallest plan with every rule's parts: embedding, tied head, loss, and their gradients.

use schemas::checksum::Dtype;
use schemas::digest::{Checksum, ConfigDigest};
use schemas::plan::{
    Corrections, DataOrder, Dimensions, GroupStep, Kind, Operand, Operation, Parameter, Plan, Rule, Tensor,
    Update,
};

pub fn plan(leaves: u64, devices_max: u64, steps: u64, time: u64) -> Plan {
    let tensor =
        |name: &str, dtype, shape: &[u64]| Tensor { name: name.into(), dtype, shape: shape.to_vec() };
    let parameter =
        |name: &str, shape: &[u64]| Parameter { name: name.into(), shape: shape.to_vec(), group: 0 };
    Plan {
        profile: "f32-fma".into(),
        config: ConfigDigest([1; 32]),
        dimensions: Dimensions {
            batch: 1,
            time,
            channels: 3,
            vocabulary: 5,
            layers: 1,
            heads: 1,
            positions: 2,
            inner: 1,
            kv_heads: 1,
            head_size: 3,
        },
        parameters: vec![parameter("wte", &[5, 3]), parameter("wpe", &[2, 3])],
        tables: vec![],
        tensors: vec![
            tensor("tokens", Dtype::U32, &[time]),
            tensor("targets", Dtype::U32, &[time]),
            tensor("x", Dtype::F32, &[time, 3]),
            tensor("logits", Dtype::F32, &[time, 5]),
            tensor("row_loss", Dtype::F32, &[time]),
            tensor("max", Dtype::F32, &[time]),
            tensor("sum", Dtype::F32, &[time]),
            tensor("d_logits", Dtype::F32, &[time, 5]),
            tensor("d_x", Dtype::F32, &[time, 3]),
        ],
        operations: operations(),
        leaves,
        devices_max,
        data: DataOrder { tokens: 100, dataset: Checksum([2; 32]), seed: 7 },
        update: update(steps),
    }
}

fn operations() -> Vec<Operation> {
    let operation =
        |name: &str, kind, inputs: &[Operand], outputs: &[Operand], constants: &[u32]| Operation {
            name: name.into(),
            kind,
            inputs: inputs.to_vec(),
            outputs: outputs.to_vec(),
            constants: constants.to_vec(),
        };
    let [tokens, targets, x, logits, loss, max, sum, d_logits, d_x] = std::array::from_fn(Operand::Tensor);
    let [wte, wpe] = [0, 1].map(Operand::Parameter);
    let [d_wte, d_wpe] = [0, 1].map(Operand::Gradient);
    vec![
        operation("window", Kind::Window, &[], &[tokens, targets], &[]),
        operation("forward.embedding", Kind::Embedding, &[tokens, wte, wpe], &[x], &[]),
        operation("forward.head", Kind::Project, &[x, wte], &[logits], &[]),
        operation("forward.loss", Kind::CrossEntropy, &[logits, targets], &[loss, max, sum], &[]),
        operation(
            "backward.loss",
            Kind::CrossEntropyBackward,
            &[logits, targets, max, sum],
            &[d_logits],
            &[0x3f00_0000],
        ),
        operation("backward.head", Kind::ProjectBackwardInput, &[d_logits, wte], &[d_x], &[]),
        operation("backward.embedding", Kind::EmbeddingBackward, &[tokens, d_x], &[d_wte, d_wpe], &[]),
    ]
}

fn update(steps: u64) -> Update {
    Update {
        inverse_leaves: 0x3e80_0000,
        inverse_rows: 0x3f00_0000,
        clip: 0x3f80_0000,
        clip_epsilon: 5,
        rule: Rule::Adamw {
            beta1: 6,
            one_minus_beta1: 7,
            beta2: 8,
            one_minus_beta2: 9,
            epsilon: 10,
            corrections: vec![Corrections { first: 3, second: 4 }; steps as usize],
        },
        groups: vec![vec![GroupStep { learning_rate: 1, decay: 2 }; steps as usize]],
    }
}
