//! The gradient of a token table that is also the head's weight, in one piece: the bits of the sum of its two parts.

mod inputs;
mod runs;

use inputs::{adversarial, assert_bits, tokens};
use runs::{SMALL, run};
use schemas::plan::{Kind, Operand};
use step::dispatch::Backend;
use step::kernels;
use step::operation::Manner;
use step::reference::matmul::View;
use step::tied::unrecorded;

/// Rows, tokens there are, channels.
const SHAPE: [usize; 3] = [23, 41, 37];

#[test]
fn what_is_added_onto_the_heads_part_is_the_sum_of_both_parts() {
    let [rows, vocabulary, channels] = SHAPE;
    let tokens = tokens(rows, 29, 1);
    assert!(tokens.iter().enumerate().any(|(n, token)| tokens[..n].contains(token)));
    let mut d_x = adversarial(rows * channels, 2);
    // A row of -0 for a token of its own: its sum is +0.
    let alone = (0..rows).find(|n| tokens.iter().filter(|token| **token == tokens[*n]).count() == 1);
    d_x[alone.expect("a token that occurs once") * channels..][..channels].fill(-0.0);
    // Products of one sign that are below every subnormal: chains that end at -0.
    let (tiny, mut d_logits) = (f32::from_bits(1), adversarial(rows * vocabulary, 3));
    let mut x = adversarial(rows * channels, 4);
    for n in 0..rows {
        d_logits[n * vocabulary..][..vocabulary / 2].fill(-tiny);
        x[n * channels..][..channels / 2].fill(tiny);
    }
    for backend in Backend::all() {
        let (left, right) = (View::transposed(&d_logits, vocabulary), View::rows(&x, channels));
        let words = || vec![f32::NAN; vocabulary * channels];
        let [mut head, mut embedding, mut want, mut found] = [words(), words(), words(), words()];
        kernels::matmul(backend, left, right, rows, channels, &mut head);
        kernels::embedding_backward_tokens(backend, &tokens, &d_x, channels, &mut embedding);
        kernels::add(backend, &head, &embedding, &mut want);
        let untouched = (0..vocabulary / 2).find(|token| !tokens.contains(&(*token as u32)));
        let at = untouched.expect("a token that does not occur") * channels;
        assert_eq!([head[at], want[at]].map(f32::to_bits), [-0.0_f32, 0.0].map(f32::to_bits));

        kernels::matmul_with_bias(backend, left, right, rows, &vec![0.0; channels], &mut found);
        kernels::embedding_backward_onto(backend, &tokens, &d_x, channels, &mut found);
        assert_bits(&found, &want, backend.name());
    }
}

#[test]
fn a_plan_whose_head_is_the_table_writes_no_part_when_nothing_is_recorded() {
    let (plan, _) = run(SMALL);
    let operations = unrecorded(&plan);
    let changed: Vec<(Kind, Manner)> = operations
        .iter()
        .filter(|(_, manner)| *manner != Manner::Whole)
        .map(|(operation, manner)| (operation.kind, *manner))
        .collect();
    let want = [
        (Kind::ProjectBackwardWeight, Manner::PlusZero),
        (Kind::EmbeddingBackward, Manner::Onto),
        (Kind::Add, Manner::There),
    ];
    assert_eq!(changed, want);
    let table = |(operation, _): &&(_, _)| {
        let operation: &schemas::plan::Operation = operation;
        operation.outputs[0] == Operand::Gradient(0)
    };
    assert_eq!(operations.iter().filter(table).count(), 3);
}
