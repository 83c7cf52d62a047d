//! How fast attention runs, counted on the causal half: two products forward, five backward.
//!
//! `cargo run --release -p step --example attention_rate -- 1024 4` (positions, sequences; then query heads, key/value
//! heads, head size; `RAYON_NUM_THREADS` sets the threads). Rates in GFLOP/s are the best of several runs, since other
//! programs may be running; beside each stands its fraction of the machine's peak, measured right before.

use std::time::Instant;
use step::dispatch::Backend;
use step::kernels::{self, AttentionShape};
use step::number::philox::philox4x32_10;

/// Words of magnitude 1/2 to 2.
fn words(count: usize, seed: u32) -> Vec<f32> {
    let word = |i: usize| philox4x32_10([i as u32 / 4, 0, 0, seed], [7, 9])[i % 4];
    (0..count).map(|i| f32::from_bits(word(i) & 0x80ff_ffff | 0x3f00_0000)).collect()
}

/// The best rate of several runs in GFLOP/s, and the best fraction of the peak.
fn best(backend: Backend, operations: f64, mut run: impl FnMut()) -> String {
    let (mut rate, mut fraction) = (0.0_f64, 0.0_f64);
    let started = Instant::now();
    while started.elapsed().as_secs_f64() < 1.0 || rate == 0.0 {
        let peak =
            kernels::fma_peak(backend, rayon::current_num_threads(), || started.elapsed().as_secs_f64());
        let round = Instant::now();
        while round.elapsed().as_secs_f64() < 0.01 {
            let clock = Instant::now();
            run();
            let found = operations / clock.elapsed().as_secs_f64() / 1e9;
            (rate, fraction) = (rate.max(found), fraction.max(found / peak));
        }
    }
    format!("{rate:7.1} GFLOP/s, {:3.0} % of peak", 100.0 * fraction)
}

fn main() {
    let numbers: Vec<usize> = std::env::args().skip(1).filter_map(|word| word.parse().ok()).collect();
    let number = |at: usize, otherwise: usize| numbers.get(at).copied().unwrap_or(otherwise);
    let (times, batches, heads) = (number(0, 1024), number(1, 4), number(2, 12));
    let (kv_heads, head_size) = (number(3, heads), number(4, 64));
    let scale = 1.0 / (head_size as f32).sqrt();
    let shape = AttentionShape { batches, times, heads, kv_heads, head_size, scale };
    let (queries, keys) = (batches * times * heads * head_size, batches * times * kv_heads * head_size);
    let (q, k, v, d_o) = (words(queries, 1), words(keys, 2), words(keys, 3), words(queries, 4));
    let [mut o, mut d_q] = [(); 2].map(|_| vec![0.0; queries]);
    let [mut d_k, mut d_v] = [(); 2].map(|_| vec![0.0; keys]);
    let [mut max, mut sum] = [(); 2].map(|_| vec![0.0; batches * heads * times]);
    let product = (batches * heads * head_size * times * (times + 1)) as f64;
    println!("{shape:?}, threads: {}", rayon::current_num_threads());
    for backend in Backend::all().into_iter().skip(2) {
        let forward = best(backend, 2.0 * product, || {
            kernels::grouped_attention_forward(backend, shape, &q, &k, &v, &mut o, &mut max, &mut sum);
        });
        let backward = best(backend, 5.0 * product, || {
            kernels::grouped_attention_backward(
                backend, shape, &q, &k, &v, &o, &d_o, &max, &sum, &mut d_q, &mut d_k, &mut d_v,
            );
        });
        println!("{:8} forward {forward}; backward {backward}", backend.name());
    }
}
