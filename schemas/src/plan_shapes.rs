//! What an executor relies on in a plan: arities, shapes, and that everything is written once and before it is read.

use crate::checksum::Dtype;
use crate::plan::{Kind, Operand, Operation, Plan, Rule};
use std::collections::HashSet;

/// A rule that a plan breaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShapeError {
    /// The rule.
    pub expected: String,
    /// What the plan has.
    pub found: String,
}

fn broken(expected: impl Into<String>, found: impl Into<String>) -> ShapeError {
    ShapeError { expected: expected.into(), found: found.into() }
}

/// Checks every rule of docs/spec/plan.md, "Well-formed plans".
pub fn check(plan: &Plan) -> Result<(), ShapeError> {
    check_whole(plan)?;
    let mut written: HashSet<Operand> = HashSet::new();
    let mut names: HashSet<&str> = HashSet::new();
    for operation in &plan.operations {
        if !names.insert(&operation.name) {
            return Err(broken("unique operation names", &operation.name));
        }
        check_signature(plan, operation)?;
        for input in &operation.inputs {
            let readable =
                matches!(input, Operand::Parameter(_) | Operand::Table(_)) || written.contains(input);
            if !readable {
                return Err(broken(
                    format!("{}: inputs written before", operation.name),
                    plan.operand_name(*input),
                ));
            }
        }
        for output in &operation.outputs {
            let fresh =
                !matches!(output, Operand::Parameter(_) | Operand::Table(_)) && written.insert(*output);
            if !fresh {
                return Err(broken(
                    format!("{}: outputs written once", operation.name),
                    plan.operand_name(*output),
                ));
            }
        }
    }
    if let Some(i) = (0..plan.parameters.len()).find(|&i| !written.contains(&Operand::Gradient(i))) {
        return Err(broken(
            "a gradient for every parameter",
            format!("none for {}", plan.parameters[i].name),
        ));
    }
    match (0..plan.tensors.len()).find(|&i| !written.contains(&Operand::Tensor(i))) {
        Some(i) => Err(broken("every tensor to be written", format!("{} is not", plan.tensors[i].name))),
        None => Ok(()),
    }
}

fn check_whole(plan: &Plan) -> Result<(), ShapeError> {
    let d = &plan.dimensions;
    if !d.heads.is_multiple_of(d.kv_heads) || d.time > d.positions {
        return Err(broken("KVH that divides NH, time at most positions", format!("{d:?}")));
    }
    if plan.data.tokens <= d.time {
        return Err(broken(
            format!("more than {} tokens (one window)", d.time),
            plan.data.tokens.to_string(),
        ));
    }
    let mut total: u64 = 0;
    let mut names: HashSet<&str> = HashSet::new();
    for parameter in &plan.parameters {
        total = total.saturating_add(parameter.shape.iter().product());
        if !names.insert(&parameter.name) {
            return Err(broken("unique parameter names", &parameter.name));
        }
    }
    if total == 0 || total > crate::plan::ELEMENTS_MAX {
        return Err(broken(
            format!("1 to {} parameters in all", crate::plan::ELEMENTS_MAX),
            total.to_string(),
        ));
    }
    check_update(plan)?;
    let mut names: HashSet<&str> = HashSet::new();
    if let Some(twice) = plan.tables.iter().find(|table| !names.insert(&table.name)) {
        return Err(broken("unique table names", &twice.name));
    }
    let mut names: HashSet<&str> = HashSet::new();
    if let Some(twice) = plan.tensors.iter().find(|tensor| !names.insert(&tensor.name)) {
        return Err(broken("unique tensor names", &twice.name));
    }
    let losses = plan.operations.iter().filter(|operation| operation.kind == Kind::CrossEntropy).count();
    let windows = plan.operations.iter().filter(|operation| operation.kind == Kind::Window).count();
    match (windows, losses, plan.operations.first().map(|operation| operation.kind)) {
        (1, 1, Some(Kind::Window)) => Ok(()),
        _ => Err(broken("one window, first, and one cross_entropy", format!("{windows} and {losses}"))),
    }
}

/// Every parameter has a group, and every group and correction the same steps.
fn check_update(plan: &Plan) -> Result<(), ShapeError> {
    let update = &plan.update;
    if let Some(parameter) = plan.parameters.iter().find(|parameter| parameter.group >= update.groups.len()) {
        let found = format!("group {} of {}", parameter.group, update.groups.len());
        return Err(broken(format!("{}: a group that is listed", parameter.name), found));
    }
    let mut lengths: Vec<usize> = update.groups.iter().map(Vec::len).collect();
    if let Rule::Adamw { corrections, .. } = &update.rule {
        lengths.push(corrections.len());
    }
    match lengths.windows(2).all(|pair| pair[0] == pair[1]) {
        true => Ok(()),
        false => Err(broken("as many steps in every group and in the corrections", format!("{lengths:?}"))),
    }
}

/// The signature of a kind: shapes of inputs, shapes of outputs, number of constants. Free widths (a linear layer's
/// I and O, an elementwise operation's shape) are taken from the operation's own operands and so must agree.
fn check_signature(plan: &Plan, operation: &Operation) -> Result<(), ShapeError> {
    let d = &plan.dimensions;
    let (n, c, v, p) = (d.rows(), d.channels, d.vocabulary, d.positions);
    let (a, k) = (d.query_width(), d.kv_width());
    let rows = vec![n];
    let heads = vec![d.batch, d.heads, d.time];
    let own = |operands: &[Operand], index: usize| {
        operands.get(index).map(|&operand| plan.shape(operand).to_vec()).unwrap_or_default()
    };
    let last = |shape: &[u64]| shape.last().copied().unwrap_or(0);
    let ends = |shape: &[u64]| (shape.first().copied().unwrap_or(0), last(shape));
    let (inputs, outputs, constants) = match operation.kind {
        Kind::Window => (vec![], vec![rows.clone(), rows], 0),
        Kind::Embedding => (vec![rows, vec![v, c], vec![p, c]], vec![vec![n, c]], 0),
        Kind::TokenEmbedding => (vec![rows, vec![v, c]], vec![vec![n, c]], 0),
        Kind::Layernorm => (vec![vec![n, c], vec![c], vec![c]], vec![vec![n, c], rows.clone(), rows], 2),
        Kind::Rmsnorm => (vec![vec![n, c], vec![c]], vec![vec![n, c], rows], 2),
        Kind::Linear => {
            let (i, o) = ends(&own(&operation.inputs, 1));
            (vec![vec![n, i], vec![i, o], vec![o]], vec![vec![n, o]], 0)
        }
        Kind::Project => {
            let (o, i) = ends(&own(&operation.inputs, 1));
            (vec![vec![n, i], vec![o, i]], vec![vec![n, o]], 0)
        }
        Kind::Attention => (vec![vec![n, 3 * a]], vec![vec![n, a], heads.clone(), heads], 1),
        Kind::GroupedAttention => {
            (vec![vec![n, a], vec![n, k], vec![n, k]], vec![vec![n, a], heads.clone(), heads], 1)
        }
        Kind::Rope | Kind::RopeBackward => {
            // Whole heads of whole pairs.
            if !d.head_size.is_multiple_of(2) {
                return Err(broken(format!("{}: an even HS", operation.name), d.head_size.to_string()));
            }
            let width = last(&own(&operation.inputs, 0)) / d.head_size * d.head_size;
            let (rows, table) = (vec![n, width], vec![d.time, d.head_size / 2]);
            (vec![rows.clone(), table.clone(), table], vec![rows], 0)
        }
        Kind::Gelu => {
            let x = own(&operation.inputs, 0);
            (vec![x.clone()], vec![x], 0)
        }
        Kind::Add | Kind::GeluBackward | Kind::Swiglu => {
            let x = own(&operation.inputs, 0);
            (vec![x.clone(), x.clone()], vec![x], 0)
        }
        Kind::SwigluBackward => {
            let x = own(&operation.inputs, 0);
            (vec![x.clone(), x.clone(), x.clone()], vec![x.clone(), x], 0)
        }
        Kind::CrossEntropy => (vec![vec![n, v], rows.clone()], vec![rows.clone(), rows.clone(), rows], 0),
        Kind::CrossEntropyBackward => {
            (vec![vec![n, v], rows.clone(), rows.clone(), rows], vec![vec![n, v]], 1)
        }
        Kind::ProjectBackwardInput => {
            let (o, i) = ends(&own(&operation.inputs, 1));
            (vec![vec![n, o], vec![o, i]], vec![vec![n, i]], 0)
        }
        Kind::ProjectBackwardWeight => {
            let (o, i) = (last(&own(&operation.inputs, 0)), last(&own(&operation.inputs, 1)));
            (vec![vec![n, o], vec![n, i]], vec![vec![o, i]], 0)
        }
        Kind::LayernormBackward => {
            (vec![vec![n, c], vec![n, c], rows.clone(), rows, vec![c]], vec![vec![n, c], vec![c], vec![c]], 1)
        }
        Kind::RmsnormBackward => (vec![vec![n, c], vec![n, c], rows, vec![c]], vec![vec![n, c], vec![c]], 1),
        Kind::LinearBackwardInput => {
            let (i, o) = ends(&own(&operation.inputs, 1));
            (vec![vec![n, o], vec![i, o]], vec![vec![n, i]], 0)
        }
        Kind::LinearBackwardWeight => {
            let (i, o) = (last(&own(&operation.inputs, 0)), last(&own(&operation.inputs, 1)));
            (vec![vec![n, i], vec![n, o]], vec![vec![i, o]], 0)
        }
        Kind::LinearBackwardBias => {
            let o = last(&own(&operation.inputs, 0));
            (vec![vec![n, o]], vec![vec![o]], 0)
        }
        Kind::AttentionBackward => {
            (vec![vec![n, a], vec![n, 3 * a], vec![n, a], heads.clone(), heads], vec![vec![n, 3 * a]], 1)
        }
        Kind::GroupedAttentionBackward => {
            let (query, kv) = (vec![n, a], vec![n, k]);
            let inputs = vec![
                query.clone(),
                query.clone(),
                kv.clone(),
                kv.clone(),
                query.clone(),
                heads.clone(),
                heads,
            ];
            (inputs, vec![query, kv.clone(), kv], 1)
        }
        Kind::EmbeddingBackward => (vec![rows, vec![n, c]], vec![vec![v, c], vec![p, c]], 0),
        Kind::TokenEmbeddingBackward => (vec![rows, vec![n, c]], vec![vec![v, c]], 0),
    };
    check_side(plan, operation, "inputs", &operation.inputs, &inputs)?;
    check_side(plan, operation, "outputs", &operation.outputs, &outputs)?;
    if operation.constants.len() != constants {
        let found = operation.constants.len().to_string();
        return Err(broken(format!("{}: {constants} constants", operation.name), found));
    }
    check_dtypes(plan, operation)
}

fn check_side(
    plan: &Plan,
    operation: &Operation,
    side: &str,
    operands: &[Operand],
    shapes: &[Vec<u64>],
) -> Result<(), ShapeError> {
    let found: Vec<&[u64]> = operands.iter().map(|&operand| plan.shape(operand)).collect();
    match found == *shapes {
        true => Ok(()),
        false => {
            Err(broken(format!("{}: {side} of shapes {shapes:?}", operation.name), format!("{found:?}")))
        }
    }
}

/// Tokens and targets are u32, everything else is f32.
fn check_dtypes(plan: &Plan, operation: &Operation) -> Result<(), ShapeError> {
    let integers: (&[usize], &[usize]) = match operation.kind {
        Kind::Window => (&[], &[0, 1]),
        Kind::Embedding | Kind::EmbeddingBackward | Kind::TokenEmbedding | Kind::TokenEmbeddingBackward => {
            (&[0], &[])
        }
        Kind::CrossEntropy | Kind::CrossEntropyBackward => (&[1], &[]),
        _ => (&[], &[]),
    };
    for (operands, integers) in [(&operation.inputs, integers.0), (&operation.outputs, integers.1)] {
        for (index, &operand) in operands.iter().enumerate() {
            let expected = if integers.contains(&index) { Dtype::U32 } else { Dtype::F32 };
            if plan.dtype(operand) != expected {
                let found = format!("{} is {:?}", plan.operand_name(operand), plan.dtype(operand));
                return Err(broken(format!("{}: operand {index} to be {expected:?}", operation.name), found));
            }
        }
    }
    Ok(())
}
