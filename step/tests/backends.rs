//! Both compilations of every kernel, and every number of threads, give the same bits.

mod inputs;

use inputs::{assert_bits, both, tokens};
use step::dispatch::{self, Backend};
use step::kernels::{self, AttentionShape};
use step::reference::adamw::AdamwConstants;
use step::reference::matmul::View;
use step::reference::sgd::SgdConstants;

const ROWS: usize = 50;
const CHANNELS: usize = 40;
const HEADS: usize = 4;
const VOCABULARY: usize = 67;
const WORDS: usize = ROWS * CHANNELS;

/// A small pass through every kernel; returns everything written.
fn everything(backend: Backend, x: &[f32], seed: u32) -> Vec<Vec<f32>> {
    let mut written = layers(backend, x);
    let (y, dx) = (written[0].clone(), written[3].clone());
    written.extend(head_and_loss(backend, x, &dx, &tokens(ROWS, VOCABULARY as u32, seed)));
    written.extend(sums_and_update(backend, x, &y, &dx));
    written.extend(llama(backend, x, &tokens(ROWS, VOCABULARY as u32, seed)));
    written
}

/// Normalisation, linear layer, attention, GELU, both ways.
fn layers(backend: Backend, x: &[f32]) -> Vec<Vec<f32>> {
    let [mut y, mut dx, mut o, mut g, mut dg] = [(); 5].map(|_| vec![0.0; WORDS]);
    let [mut mean, mut rstd] = [(); 2].map(|_| vec![0.0; ROWS]);
    let (gain, bias) = (&x[..CHANNELS], &x[CHANNELS..2 * CHANNELS]);
    kernels::layernorm_forward(backend, &x[..WORDS], gain, bias, 0.025, 1e-5, &mut y, &mut mean, &mut rstd);
    kernels::layernorm_backward_input(backend, &y, &x[..WORDS], gain, &mean, &rstd, 0.025, &mut dx);
    let [mut d_gain, mut d_bias] = [(); 2].map(|_| vec![0.0; CHANNELS]);
    kernels::layernorm_backward_parameters(backend, &dx, &x[..WORDS], &mean, &rstd, &mut d_gain, &mut d_bias);

    let mut qkv = vec![0.0; 3 * WORDS];
    let (width, bias) = (3 * CHANNELS, Some(&x[..3 * CHANNELS]));
    kernels::linear(backend, &y, View::rows(x, width), CHANNELS, bias, width, &mut qkv);
    let head_size = CHANNELS / HEADS;
    let shape = AttentionShape {
        batches: 2,
        times: ROWS / 2,
        heads: HEADS,
        kv_heads: HEADS,
        head_size,
        scale: 0.316,
    };
    let [mut max, mut sum] = [(); 2].map(|_| vec![0.0; ROWS * HEADS]);
    let mut d_qkv = vec![0.0; 3 * WORDS];
    kernels::attention_forward(backend, shape, &qkv, &mut o, &mut max, &mut sum);
    kernels::attention_backward(backend, shape, &qkv, &o, &y, &max, &sum, &mut d_qkv);
    kernels::gelu_forward(backend, &x[..WORDS], &mut g);
    kernels::gelu_backward_input(backend, &x[..WORDS], &o, &mut dg);
    vec![y, mean, rstd, dx, d_gain, d_bias, qkv, o, max, sum, d_qkv, g, dg]
}

/// Embedding, head and loss, both ways.
fn head_and_loss(backend: Backend, x: &[f32], dx: &[f32], ids: &[u32]) -> Vec<Vec<f32>> {
    let [mut loss, mut max, mut sum] = [(); 3].map(|_| vec![0.0; ROWS]);
    let [mut logits, mut d_logits] = [(); 2].map(|_| vec![0.0; ROWS * VOCABULARY]);
    let table = View::transposed(x, CHANNELS);
    kernels::linear(backend, dx, table, CHANNELS, None, VOCABULARY, &mut logits);
    kernels::cross_entropy_forward(backend, &logits, ids, VOCABULARY, &mut loss, &mut max, &mut sum);
    kernels::cross_entropy_backward(backend, &logits, ids, &max, &sum, VOCABULARY, 0.02, &mut d_logits);
    let (mut d_wte, mut d_wpe) = (vec![0.0; VOCABULARY * CHANNELS], vec![0.0; WORDS]);
    kernels::embedding_backward_tokens(backend, ids, dx, CHANNELS, &mut d_wte);
    dispatch::embedding_backward_positions(backend, dx, ROWS / 2, CHANNELS, &mut d_wpe);
    let mut embedded = vec![0.0; WORDS];
    dispatch::embedding_forward(backend, ids, x, x, ROWS / 2, CHANNELS, &mut embedded);

    let mut d_w = vec![0.0; CHANNELS * VOCABULARY];
    let (left, right) = (View::transposed(dx, CHANNELS), View::rows(&d_logits, VOCABULARY));
    kernels::matmul(backend, left, right, ROWS, VOCABULARY, &mut d_w);
    let mut column_sums = vec![0.0; VOCABULARY];
    kernels::column_sums(backend, &d_logits, &mut column_sums);
    let mean = vec![dispatch::mean_loss(backend, &loss, 0.02)];
    vec![logits, loss, max, sum, d_logits, d_wte, d_wpe, embedded, d_w, column_sums, mean]
}

/// The parts of a Llama, both ways.
fn llama(backend: Backend, x: &[f32], ids: &[u32]) -> Vec<Vec<f32>> {
    let mut embedded = vec![0.0; WORDS];
    dispatch::token_embedding_forward(backend, ids, x, CHANNELS, &mut embedded);
    let (gain, half) = (&x[..CHANNELS], CHANNELS / HEADS / 2);
    let [mut y, mut dx, mut turned, mut back, mut gated, mut d_gate, mut d_up] =
        [(); 7].map(|_| vec![0.0; WORDS]);
    let (mut rstd, mut d_gain) = (vec![0.0; ROWS], vec![0.0; CHANNELS]);
    kernels::rmsnorm_forward(backend, &x[..WORDS], gain, 0.025, 1e-5, &mut y, &mut rstd);
    kernels::rmsnorm_backward_input(backend, &y, &x[..WORDS], gain, &rstd, 0.025, &mut dx);
    kernels::rmsnorm_backward_gain(backend, &y, &x[..WORDS], &rstd, &mut d_gain);
    let (cos, sin) = (&x[..ROWS / 2 * half], &x[WORDS..WORDS + ROWS / 2 * half]);
    kernels::rope_forward(backend, &y, cos, sin, half, CHANNELS, &mut turned);
    kernels::rope_backward(backend, &dx, cos, sin, half, CHANNELS, &mut back);
    kernels::swiglu_forward(backend, &y, &turned, &mut gated);
    kernels::swiglu_backward(backend, &dx, &y, &turned, &mut d_gate, &mut d_up);

    let (batches, times, scale) = (2, ROWS / 2, 0.316);
    let shape =
        AttentionShape { batches, times, heads: HEADS, kv_heads: HEADS / 2, head_size: 2 * half, scale };
    let (k, v) = (&x[..WORDS / 2], &y[..WORDS / 2]);
    let [mut o, mut d_q] = [(); 2].map(|_| vec![0.0; WORDS]);
    let [mut d_k, mut d_v] = [(); 2].map(|_| vec![0.0; WORDS / 2]);
    let [mut max, mut sum] = [(); 2].map(|_| vec![0.0; ROWS * HEADS]);
    kernels::grouped_attention_forward(backend, shape, &turned, k, v, &mut o, &mut max, &mut sum);
    kernels::grouped_attention_backward(
        backend, shape, &turned, k, v, &o, &gated, &max, &sum, &mut d_q, &mut d_k, &mut d_v,
    );
    let mut written = vec![embedded, y, rstd, dx, d_gain, turned, back, gated, d_gate, d_up];
    written.extend([o, max, sum, d_q, d_k, d_v]);
    for nesterov in [false, true] {
        let (mut p, mut m) = (x[..WORDS].to_vec(), written[1].clone());
        let constants = SgdConstants { momentum: 0.9, nesterov, rate: 1e-2, decay: 0.01 };
        kernels::sgd(backend, constants, 0.7, &written[3], &mut p, &mut m);
        written.extend([p, m]);
    }
    written
}

/// Row sums, adds and the optimizer.
fn sums_and_update(backend: Backend, x: &[f32], y: &[f32], dx: &[f32]) -> Vec<Vec<f32>> {
    let mut scaled = x.to_vec();
    let (left, right) = scaled.split_at_mut(2400);
    let mut scalars = kernels::square_sums(backend, &[(x, 3), (x, 2), (x, 1), (&x[1..], 1)]);
    scalars.extend(kernels::scaled_square_sums(backend, vec![(left, 2), (right, 1)], 0.3));
    scalars.extend([
        dispatch::warp32_sum(backend, x),
        dispatch::warp32_dot(backend, x, x),
        dispatch::warp32_max(backend, x),
    ]);
    let mut sum = vec![0.0; WORDS];
    kernels::add(backend, y, &x[..WORDS], &mut sum);
    kernels::add_in_place(backend, &mut sum, dx);
    kernels::scale_in_place(backend, &mut sum, 0.3);
    let (mut p, mut m) = (x[..WORDS].to_vec(), y.to_vec());
    let mut v: Vec<f32> = y.iter().map(|v| v.abs()).collect();
    let constants = AdamwConstants {
        beta1: 0.9,
        one_minus_beta1: 0.1,
        beta2: 0.95,
        one_minus_beta2: 0.05,
        eps: 1e-8,
        correction1: 2.0,
        correction2: 3.0,
        rate: 1e-3,
        decay: 0.999,
    };
    kernels::adamw(backend, constants, 0.7, dx, &mut p, &mut m, &mut v);
    vec![scalars, scaled, sum, p, m, v]
}

#[test]
fn both_compilations_give_the_same_bits() {
    println!("backends: {:?}", Backend::all().iter().map(|backend| backend.name()).collect::<Vec<_>>());
    for (seed, x) in both(6000, 31).iter().enumerate() {
        let want = everything(Backend::SCALAR, x, seed as u32);
        for backend in Backend::all() {
            for (i, (found, want)) in everything(backend, x, seed as u32).iter().zip(&want).enumerate() {
                assert_bits(found, want, &format!("{} output {i}", backend.name()));
            }
        }
    }
}

#[test]
fn the_number_of_threads_does_not_reach_a_bit() {
    let [x, _] = both(6000, 32);
    let run = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool of threads");
        pool.install(|| everything(Backend::detect(), &x, 1))
    };
    let want = run(1);
    for threads in [2, 3, 7] {
        for (i, (found, want)) in run(threads).iter().zip(&want).enumerate() {
            assert_bits(found, want, &format!("{threads} threads, output {i}"));
        }
    }
}
