//! Whole-tensor operations: the kernels with independent rows, heads or elements split over threads.
//!
//! A split never cuts a sum: every function here hands whole rows (or heads, or elements) to a kernel, so the
//! number of threads cannot reach a bit. Sums over rows that the profile orders ascending stay on one thread
//! per column.

mod attention;
mod columns;
mod elements;
mod loss;
mod matmul;
mod norm;
mod peak;
mod rope;
mod squares;
mod swiglu;

pub use attention::{
    AttentionShape, attention_backward, attention_forward, grouped_attention_backward,
    grouped_attention_forward,
};
pub use columns::{
    column_sums, embedding_backward_onto, embedding_backward_tokens, layernorm_backward_parameters,
    rmsnorm_backward_gain,
};
pub use elements::{adamw, add, add_in_place, gelu_backward_input, gelu_forward, scale_in_place, sgd};
pub use loss::{cross_entropy_backward, cross_entropy_forward};
pub use matmul::{linear, matmul, matmul_with_bias};
pub use norm::{layernorm_backward_input, layernorm_forward, rmsnorm_backward_input, rmsnorm_forward};
pub use peak::fma_peak;
pub use rope::{rope_backward, rope_forward};
pub use squares::{scaled_square_sums, square_sum, square_sums};
pub use swiglu::{swiglu_backward, swiglu_forward};

/// Words of a row-wise operation done by one task, at least one row.
const ROW_WORDS: usize = 1 << 14;

/// Rows of `columns` words that make one task.
fn rows_per_task(columns: usize) -> usize {
    (ROW_WORDS / columns).max(1)
}
