//! The operations of a GPT-2, and those that every model has.

use crate::case::Case;
use crate::forward64;
use crate::inputs::{painted, tokens};
use step::reference::activation::gelu_backward_input;
use step::reference::attention::{Head, Rows, attention_backward, attention_forward};
use step::reference::embedding::{embedding_backward_positions, embedding_backward_tokens};
use step::reference::loss::{cross_entropy_backward, cross_entropy_forward};
use step::reference::matmul::{View, matmul};
use step::reference::norm::{layernorm_backward_input, layernorm_backward_parameters, layernorm_forward};
use step::reference::reduce::column_sums;
use step::reference::residual::add;

/// Added to a variance.
pub const EPS: f32 = 1e-5;

pub fn cases() -> Vec<Case> {
    vec![linear(), head(), layernorm(), gelu(), attention(), cross_entropy(), embedding(), residual()]
}

/// The rows of a matrix, as kernels write them.
pub fn lines(words: &mut [f32], columns: usize) -> Vec<&mut [f32]> {
    words.chunks_exact_mut(columns).collect()
}

/// The rows of a head that stands alone.
pub fn rows_of(words: &[f32], size: usize) -> Rows<'_> {
    Rows { words, stride: size, width: size }
}

fn product(a: View, b: View, inner: usize, columns: usize, rows: usize) -> Vec<f32> {
    let mut out = vec![f32::NAN; rows * columns];
    matmul(a, b, inner, None, &mut lines(&mut out, columns));
    out
}

fn linear() -> Case {
    let (rows, inputs, outputs) = (7, 33, 19);
    let (x, w, bias) = (painted(rows * inputs, 1), painted(inputs * outputs, 2), painted(outputs, 3));
    let d_y = painted(rows * outputs, 4);
    let d_x = product(View::rows(&d_y, outputs), View::transposed(&w, outputs), outputs, inputs, rows);
    let d_w = product(View::transposed(&x, inputs), View::rows(&d_y, outputs), rows, outputs, inputs);
    let mut d_bias = vec![f32::NAN; outputs];
    column_sums(&d_y, d_bias.len(), 0, &mut d_bias);
    Case {
        kernels: &["matmul", "column_sums"],
        inputs: vec![x, w, bias],
        forward: Box::new(|at| forward64::linear(&at[0], &at[1], &at[2])),
        d_out: d_y,
        gradients: vec![(0, d_x), (1, d_w), (2, d_bias)],
    }
}

/// The projection to the vocabulary, by a table that lies [V, C].
fn head() -> Case {
    let (rows, channels, vocabulary) = (6, 21, 40);
    let (x, table, d_y) =
        (painted(rows * channels, 5), painted(vocabulary * channels, 6), painted(rows * vocabulary, 7));
    let d_x = product(View::rows(&d_y, vocabulary), View::rows(&table, channels), vocabulary, channels, rows);
    let d_table =
        product(View::transposed(&d_y, vocabulary), View::rows(&x, channels), rows, channels, vocabulary);
    Case {
        kernels: &["matmul"],
        inputs: vec![x, table],
        forward: Box::new(move |at| {
            forward64::product(&at[0], &forward64::transposed(&at[1], channels), channels)
        }),
        d_out: d_y,
        gradients: vec![(0, d_x), (1, d_table)],
    }
}

fn layernorm() -> Case {
    layernorm_with(1.0 / 70.0)
}

/// With another factor than 1/C in the backward pass, to break it.
pub fn layernorm_with(inv_c_backward: f32) -> Case {
    let (rows, channels) = (4, 70);
    let (x, gain, bias) = (painted(rows * channels, 8), painted(channels, 9), painted(channels, 10));
    let d_y = painted(rows * channels, 11);
    let mut y = vec![0.0; x.len()];
    let [mut mean, mut rstd] = [(); 2].map(|()| vec![0.0; rows]);
    layernorm_forward(&x, &gain, &bias, 1.0 / channels as f32, EPS, &mut y, &mut mean, &mut rstd);
    let (mut d_x, mut d_gain, mut d_bias) = (y, gain.clone(), bias.clone());
    layernorm_backward_input(&d_y, &x, &gain, &mean, &rstd, inv_c_backward, &mut d_x);
    layernorm_backward_parameters(&d_y, &x, &mean, &rstd, gain.len(), 0, &mut d_gain, &mut d_bias);
    Case {
        kernels: &["layernorm_backward_input", "layernorm_backward_parameters"],
        inputs: vec![x, gain, bias],
        forward: Box::new(|at| forward64::layernorm(&at[0], &at[1], &at[2], f64::from(EPS))),
        d_out: d_y,
        gradients: vec![(0, d_x), (1, d_gain), (2, d_bias)],
    }
}

fn gelu() -> Case {
    // Through both flat ends and the dip.
    let x: Vec<f32> = (-60..=60).map(|i| i as f32 / 10.0).chain(painted(100, 12)).collect();
    let d_y = painted(x.len(), 13);
    let mut d_x = vec![f32::NAN; x.len()];
    gelu_backward_input(&x, &d_y, &mut d_x);
    Case {
        kernels: &["gelu_backward_input"],
        inputs: vec![x],
        forward: Box::new(|at| at[0].iter().map(|x| forward64::gelu(*x)).collect()),
        d_out: d_y,
        gradients: vec![(0, d_x)],
    }
}

/// Scores of a size as in training: with painted ones a softmax has one key and no slope.
pub fn small(count: usize, seed: u32) -> Vec<f32> {
    painted(count, seed).iter().map(|x| x * 0.25).collect()
}

fn attention() -> Case {
    attention_with(|o| o)
}

/// With another output than the forward's given to the backward pass, to break it.
pub fn attention_with(given: fn(Vec<f32>) -> Vec<f32>) -> Case {
    let (times, size) = (37, 5);
    let words = times * size;
    let (q, k, v, d_o) = (small(words, 14), small(words, 15), painted(words, 16), painted(words, 17));
    let head = Head {
        q: rows_of(&q, size),
        k: rows_of(&k, size),
        v: rows_of(&v, size),
        scale: (1.0 / (size as f64).sqrt()) as f32,
    };
    let mut o = vec![f32::NAN; words];
    let [mut max, mut sum] = [(); 2].map(|()| vec![0.0; times]);
    attention_forward(head, 0, &mut lines(&mut o, size), &mut max, &mut sum);
    let [mut d_q, mut d_k, mut d_v] = [(); 3].map(|()| vec![0.0; words]);
    let o = given(o);
    let [d_q_lines, d_k_lines, d_v_lines] = &mut [&mut d_q, &mut d_k, &mut d_v].map(|d| lines(d, size));
    attention_backward(
        head,
        rows_of(&o, size),
        rows_of(&d_o, size),
        &max,
        &sum,
        d_q_lines,
        d_k_lines,
        d_v_lines,
    );
    Case {
        kernels: &["attention_backward"],
        inputs: vec![q, k, v],
        forward: Box::new(move |at| forward64::attention(&at[0], &at[1], &at[2], size)),
        d_out: d_o,
        gradients: vec![(0, d_q), (1, d_k), (2, d_v)],
    }
}

pub fn cross_entropy() -> Case {
    let (rows, vocabulary) = (5, 67);
    let (logits, targets) = (painted(rows * vocabulary, 18), tokens(rows, vocabulary as u32, 19));
    let [mut loss, mut max, mut sum] = [(); 3].map(|()| vec![0.0; rows]);
    cross_entropy_forward(&logits, &targets, vocabulary, &mut loss, &mut max, &mut sum);
    let mut d = vec![f32::NAN; logits.len()];
    cross_entropy_backward(&logits, &targets, &max, &sum, vocabulary, 1.0 / rows as f32, &mut d);
    Case {
        kernels: &["cross_entropy_backward"],
        inputs: vec![logits],
        forward: Box::new(move |at| vec![forward64::cross_entropy(&at[0], &targets)]),
        d_out: vec![1.0],
        gradients: vec![(0, d)],
    }
}

fn embedding() -> Case {
    let (batches, times, times_max, vocabulary, channels) = (3, 6, 8, 9, 10);
    let ids = tokens(batches * times, vocabulary as u32, 20);
    let (wte, wpe) = (painted(vocabulary * channels, 21), painted(times_max * channels, 22));
    let d_out = painted(ids.len() * channels, 23);
    let (mut d_wte, mut d_wpe) = (wte.clone(), wpe.clone());
    embedding_backward_tokens(&ids, &d_out, channels, 0, &mut d_wte);
    embedding_backward_positions(&d_out, times, channels, &mut d_wpe);
    Case {
        kernels: &["embedding_backward_tokens", "embedding_backward_positions"],
        inputs: vec![wte, wpe],
        forward: Box::new(move |at| forward64::embedding(&ids, &at[0], &at[1], times, channels)),
        d_out,
        gradients: vec![(0, d_wte), (1, d_wpe)],
    }
}

/// What is read twice, once as the residual stream and once by a layer, gets the sum of two gradients.
fn residual() -> Case {
    let (x, d_both) = (painted(50, 24), painted(100, 25));
    let mut d_x = vec![f32::NAN; x.len()];
    add(&d_both[..50], &d_both[50..], &mut d_x);
    Case {
        kernels: &["add"],
        inputs: vec![x],
        forward: Box::new(|at| at[0].iter().chain(&at[0]).copied().collect()),
        d_out: d_both,
        gradients: vec![(0, d_x)],
    }
}
