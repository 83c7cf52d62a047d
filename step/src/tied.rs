//! The gradient of a token table that is also the head's weight, when nothing is recorded.
//!
//! A plan computes the head's part and the embedding's, each as long as the table, and adds them. Where nobody sees the
//! parts, the head's is written where the sum belongs, and what is not +0 of the embedding's is added to it. The bits
//! are those of the sum: the embedding's part starts its sums at +0 and so is never -0 (two addends give -0 only if
//! both are -0); a head's word plus +0, which is all that the untouched rows get, is the word, or +0 where it was -0;
//! and the same +0 more changes no other sum, since -0 + y is +0 + y for every y but -0.

use crate::operation::Manner;
use schemas::plan::{Kind, Operand, Operation, Plan};

/// The plan's operations as they run when nothing is recorded.
pub fn unrecorded(plan: &Plan) -> Vec<(Operation, Manner)> {
    let mut operations: Vec<(Operation, Manner)> =
        plan.operations.iter().map(|operation| (operation.clone(), Manner::Whole)).collect();
    for sum in 0..operations.len() {
        if let Some([head, embedding]) = parts(plan, sum) {
            let table = plan.operations[sum].outputs[0];
            operations[head].0.outputs[0] = table;
            operations[head].1 = Manner::PlusZero;
            operations[embedding].0.outputs[0] = table;
            operations[embedding].1 = Manner::Onto;
            operations[sum].0.inputs.clear();
            operations[sum].1 = Manner::There;
        }
    }
    operations
}

/// The operations of the head's part and of the embedding's, in this order, if `sum` adds two such parts up into a
/// gradient and nothing else reads them.
fn parts(plan: &Plan, sum: usize) -> Option<[usize; 2]> {
    let Operation { kind: Kind::Add, inputs, outputs, .. } = &plan.operations[sum] else { return None };
    let ([head, embedding], [Operand::Gradient(_)]) = (&inputs[..], &outputs[..]) else { return None };
    let of = |part: &Operand, kinds: &[Kind]| {
        let written = |operation: &Operation| operation.outputs.first() == Some(part);
        let at = plan.operations.iter().position(written)?;
        let readers = plan.operations.iter().filter(|operation| operation.inputs.contains(part)).count();
        (readers == 1 && kinds.contains(&plan.operations[at].kind)).then_some(at)
    };
    let head = of(head, &[Kind::ProjectBackwardWeight])?;
    let embedding = of(embedding, &[Kind::EmbeddingBackward, Kind::TokenEmbeddingBackward])?;
    (head < embedding && embedding < sum).then_some([head, embedding])
}
