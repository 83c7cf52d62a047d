//! Matrix products, over an arithmetic.

use super::arithmetic::Arithmetic;
use crate::reference::matmul::View;
use rayon::prelude::*;
use schemas::plan::Kind;

/// Whether an operation of `kind` has chains of matrix products.
pub fn has_chains(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Linear
            | Kind::LinearBackwardInput
            | Kind::LinearBackwardWeight
            | Kind::Project
            | Kind::ProjectBackwardInput
            | Kind::ProjectBackwardWeight
            | Kind::Attention
            | Kind::AttentionBackward
            | Kind::GroupedAttention
            | Kind::GroupedAttentionBackward
    )
}

/// out[r][c] = chain over k of a[r][k] x b[k][c], plus a bias of each column if given. Rows do not depend on each other
/// and may go to any thread.
pub fn matmul<A: Arithmetic>(
    a: View,
    b: View,
    inner: usize,
    bias: Option<&[f32]>,
    columns: usize,
    out: &mut [f32],
) {
    out.par_chunks_exact_mut(columns).enumerate().for_each(|(r, row)| {
        for c in 0..columns {
            let product = A::chain(inner, |k| (a.at(r, k), b.at(k, c)));
            row[c] = bias.map_or(product, |bias| A::add(product, bias[c]));
        }
    });
}
