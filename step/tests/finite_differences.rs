//! Is every backward kernel the derivative of its forward? The slope of an independent forward in f64, measured by
//! central differences, against what our backward computes in f32.
//!
//! The forwards (`forward64`) are written from the papers. What a backward kernel takes over from its forward (means,
//! maxima, sums) comes from our own forward, as in a step.

mod forward64;
// Shared with tests that use more of it.
#[allow(dead_code)]
mod inputs;

use inputs::{painted, tokens};
use step::reference::activation::gelu_backward_input;
use step::reference::attention::{Head, attention_backward, attention_forward};
use step::reference::embedding::{embedding_backward_positions, embedding_backward_tokens};
use step::reference::loss::{cross_entropy_backward, cross_entropy_forward};
use step::reference::matmul::{View, matmul};
use step::reference::norm::{layernorm_backward_input, layernorm_backward_parameters, layernorm_forward};
use step::reference::reduce::column_sums;
use step::reference::residual::add;

/// Largest error of a gradient, as a fraction of its largest element. Some 2^-24 a rounding, and sums of up to 70
/// terms; the differences themselves are good to 1e-9.
const ERROR_MAX: f64 = 1e-6;
/// Half the distance at which a slope is measured. In f64 that leaves about ten digits of it.
const STEP: f64 = 1e-5;
const EPS: f32 = 1e-5;

type Forward = Box<dyn Fn(&[Vec<f64>]) -> Vec<f64>>;

/// An operation, and what our backward kernels say of it.
struct Case {
    /// Their names in `step/src/reference`.
    kernels: &'static [&'static str],
    /// What the forward reads.
    inputs: Vec<Vec<f32>>,
    /// In f64.
    forward: Forward,
    /// The gradient of the loss with respect to the forward's output.
    d_out: Vec<f32>,
    /// Our gradients: of which input, and what.
    gradients: Vec<(usize, Vec<f32>)>,
}

impl Case {
    /// Largest error of a gradient of input `of`, as a fraction of the largest slope.
    fn error(&self, of: usize, gradient: &[f32]) -> f64 {
        let mut at: Vec<Vec<f64>> = self.inputs.iter().map(|x| wide(x)).collect();
        assert_eq!(gradient.len(), at[of].len(), "{:?}: length", self.kernels);
        let loss = |at: &[Vec<f64>]| -> f64 {
            let out = (self.forward)(at);
            assert_eq!(out.len(), self.d_out.len(), "{:?}: output", self.kernels);
            out.iter().zip(&self.d_out).map(|(y, d)| y * f64::from(*d)).sum()
        };
        let (mut difference, mut largest) = (0.0_f64, 0.0_f64);
        for (i, found) in gradient.iter().enumerate() {
            let x = at[of][i];
            at[of][i] = x + STEP;
            let above = loss(&at);
            at[of][i] = x - STEP;
            let below = loss(&at);
            at[of][i] = x;
            let slope = (above - below) / (2.0 * STEP);
            difference = difference.max((f64::from(*found) - slope).abs());
            largest = largest.max(slope.abs());
        }
        difference / largest
    }
}

fn wide(x: &[f32]) -> Vec<f64> {
    x.iter().map(|x| f64::from(*x)).collect()
}

fn product(a: View, b: View, inner: usize, columns: usize, rows: usize) -> Vec<f32> {
    let mut out = vec![f32::NAN; rows * columns];
    matmul(a, b, inner, columns, &mut out);
    out
}

fn linear() -> Case {
    let (rows, inputs, outputs) = (7, 33, 19);
    let (x, w, bias) = (painted(rows * inputs, 1), painted(inputs * outputs, 2), painted(outputs, 3));
    let d_y = painted(rows * outputs, 4);
    let d_x = product(View::rows(&d_y, outputs), View::transposed(&w, outputs), outputs, inputs, rows);
    let d_w = product(View::transposed(&x, inputs), View::rows(&d_y, outputs), rows, outputs, inputs);
    let mut d_bias = vec![f32::NAN; outputs];
    column_sums(&d_y, &mut d_bias);
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
fn layernorm_with(inv_c_backward: f32) -> Case {
    let (rows, channels) = (4, 70);
    let (x, gain, bias) = (painted(rows * channels, 8), painted(channels, 9), painted(channels, 10));
    let d_y = painted(rows * channels, 11);
    let mut y = vec![0.0; x.len()];
    let [mut mean, mut rstd] = [(); 2].map(|()| vec![0.0; rows]);
    layernorm_forward(&x, &gain, &bias, 1.0 / channels as f32, EPS, &mut y, &mut mean, &mut rstd);
    let (mut d_x, mut d_gain, mut d_bias) = (y, gain.clone(), bias.clone());
    layernorm_backward_input(&d_y, &x, &gain, &mean, &rstd, inv_c_backward, &mut d_x);
    layernorm_backward_parameters(&d_y, &x, &mean, &rstd, &mut d_gain, &mut d_bias);
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
fn small(count: usize, seed: u32) -> Vec<f32> {
    painted(count, seed).iter().map(|x| x * 0.25).collect()
}

fn attention() -> Case {
    attention_with(|o| o)
}

/// With another output than the forward's given to the backward pass, to break it.
fn attention_with(given: fn(Vec<f32>) -> Vec<f32>) -> Case {
    let (times, size) = (37, 5);
    let words = times * size;
    let (q, k, v, d_o) = (small(words, 14), small(words, 15), painted(words, 16), painted(words, 17));
    let head = Head { q: &q, k: &k, v: &v, head_size: size, scale: (1.0 / (size as f64).sqrt()) as f32 };
    let mut o = vec![f32::NAN; words];
    let [mut max, mut sum] = [(); 2].map(|()| vec![0.0; times]);
    attention_forward(head, &mut o, &mut max, &mut sum);
    let [mut d_q, mut d_k, mut d_v] = [(); 3].map(|()| vec![f32::NAN; words]);
    attention_backward(head, &given(o), &d_o, &max, &sum, &mut d_q, &mut d_k, &mut d_v);
    Case {
        kernels: &["attention_backward"],
        inputs: vec![q, k, v],
        forward: Box::new(move |at| forward64::attention(&at[0], &at[1], &at[2], size)),
        d_out: d_o,
        gradients: vec![(0, d_q), (1, d_k), (2, d_v)],
    }
}

fn cross_entropy() -> Case {
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
    embedding_backward_tokens(&ids, &d_out, channels, &mut d_wte);
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

fn cases() -> Vec<Case> {
    vec![linear(), head(), layernorm(), gelu(), attention(), cross_entropy(), embedding(), residual()]
}

#[test]
fn every_backward_kernel_is_the_slope_of_its_forward() {
    let mut wrong = Vec::new();
    for case in cases() {
        for (of, gradient) in &case.gradients {
            let error = case.error(*of, gradient);
            println!("{:?}, input {of}: largest error {error:.1e}", case.kernels);
            if error.is_nan() || error > ERROR_MAX {
                wrong.push(format!("{:?}, input {of}: largest error {error:e}", case.kernels));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

#[test]
fn every_backward_kernel_has_a_case() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/reference");
    let mut found = 0;
    for file in std::fs::read_dir(folder).expect("the reference is there") {
        let text = std::fs::read_to_string(file.expect("a file").path()).expect("a text");
        let names = text.lines().filter_map(|line| line.strip_prefix("pub fn ")?.split(['(', '<']).next());
        for name in names.filter(|name| name.contains("backward")) {
            assert!(cases().iter().any(|case| case.kernels.contains(&name)), "{name} has no case");
            found += 1;
        }
    }
    assert!(found >= 7, "only {found} backward kernels found");
}

#[test]
fn a_broken_backward_is_seen() {
    let seen = |case: &Case, of: usize, gradient: &[f32], how: &str| {
        let error = case.error(of, gradient);
        assert!(error > 100.0 * ERROR_MAX, "{:?}, input {of}, {how}: largest error {error:e}", case.kernels);
    };
    for case in cases() {
        for (of, gradient) in &case.gradients {
            let negated: Vec<f32> = gradient.iter().map(|d| -d).collect();
            seen(&case, *of, &negated, "the wrong sign");
            let larger: Vec<f32> = gradient.iter().map(|d| d * 1.001).collect();
            seen(&case, *of, &larger, "a wrong factor");
            let mut turned = gradient.clone();
            turned.rotate_left(1);
            seen(&case, *of, &turned, "the wrong place");
        }
    }
    // Without the means of the gradient along a row.
    let case = layernorm_with(0.0);
    seen(&case, 0, &case.gradients[0].1, "a missing term");
    // Without the softmax's own slope: D = d_o . o.
    let case = attention_with(|o| vec![0.0; o.len()]);
    seen(&case, 0, &case.gradients[0].1, "a missing term");
    seen(&case, 1, &case.gradients[1].1, "a missing term");
    // Bare probabilities: without the one of the target.
    let case = cross_entropy();
    let bare: Vec<f32> = case.gradients[0].1.iter().map(|d| d.max(0.0)).collect();
    seen(&case, 0, &bare, "a missing term");
}
