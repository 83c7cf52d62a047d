//! The taps of a leaf, one by one: what stands behind each fold of a trace.

use super::grouped;
use schemas::plan::{Operand, Plan};
use serde_json::{Value, json};
use step::memory::lives;

/// One tap.
pub struct Row {
    /// Its number in a trace.
    number: usize,
    operation: String,
    kind: &'static str,
    tensor: String,
    shape: Vec<u64>,
    bytes: u64,
    /// The operations that it is needed in, the one that writes it first; of a gradient, up to the end of the leaf.
    needed: [usize; 2],
}

/// Every tap of a leaf, in order.
pub fn rows(plan: &Plan) -> Vec<Row> {
    let lives = lives(plan);
    let row = |(number, tap): (usize, schemas::plan::Tap)| {
        let operation = &plan.operations[tap.operation];
        let last = match tap.operand {
            Operand::Tensor(tensor) => *lives[tensor].end(),
            _ => plan.operations.len() - 1,
        };
        Row {
            number,
            operation: operation.name.clone(),
            kind: operation.kind.name(),
            tensor: plan.operand_name(tap.operand),
            shape: plan.shape(tap.operand).to_vec(),
            bytes: 4 * plan.elements(tap.operand),
            needed: [tap.operation, last],
        }
    };
    plan.taps().enumerate().map(row).collect()
}

/// The taps as a table, with their totals.
pub fn table(rows: &[Row]) -> String {
    let width = |of: fn(&Row) -> usize| rows.iter().map(of).max().unwrap_or(0);
    let (names, tensors) = (width(|row| row.operation.len()), width(|row| row.tensor.len()));
    let (kinds, shapes) = (width(|row| row.kind.len()), width(|row| format!("{:?}", row.shape).len()));
    let mut text = format!(
        "  {:>5} {:names$} {:kinds$} {:tensors$} {:shapes$} {:>13} needed in operations\n",
        "tap", "operation", "kind", "tensor", "shape", "bytes"
    );
    for row in rows {
        let (shape, bytes) = (format!("{:?}", row.shape), grouped(row.bytes));
        text.push_str(&format!(
            "  {:>5} {:names$} {:kinds$} {:tensors$} {shape:shapes$} {bytes:>13} {} to {}\n",
            row.number, row.operation, row.kind, row.tensor, row.needed[0], row.needed[1]
        ));
    }
    let total = grouped(rows.iter().map(|row| row.bytes).sum());
    text.push_str(&format!("  {} taps of {total} bytes; {} bytes of folds\n", rows.len(), 16 * rows.len()));
    text
}

/// The taps as JSON.
pub fn to_json(rows: &[Row]) -> Value {
    let one = |row: &Row| {
        json!({
            "tap": row.number, "operation": row.operation, "kind": row.kind, "tensor": row.tensor,
            "shape": row.shape, "bytes": row.bytes, "needed_in": row.needed,
        })
    };
    rows.iter().map(one).collect()
}
