//! Prints how fast everything but matrix products and attention runs here: the figures of docs/PERFORMANCE.md.
//!
//! `cargo run --release -p step --example rates [-- BACKEND [PART-OF-A-NAME]]`, RAYON_NUM_THREADS threads. Shapes are
//! those of a step of GPT-2 124M on one leaf of 256 rows; every figure is the best of several runs.

use std::time::{Duration, Instant};
use step::checksum::{FoldTables, checksum_f32};
use step::dispatch::{self, Backend};
use step::kernels;
use step::reference::adamw::AdamwConstants;

/// GPT-2 124M.
const CHANNELS: usize = 768;
const VOCABULARY: usize = 50_257;
const LAYERS: usize = 12;
const PARAMETERS: usize = 124_439_808;
/// One leaf of four sequences of 64.
const TIMES: usize = 64;
const ROWS: usize = 256;

/// The time of one call: the best of several.
fn best(mut run: impl FnMut()) -> Duration {
    let (mut best, start) = (Duration::MAX, Instant::now());
    for round in 0.. {
        let before = Instant::now();
        run();
        best = best.min(before.elapsed());
        if round >= 4 && start.elapsed() > Duration::from_millis(600) {
            break;
        }
    }
    best
}

/// A table of rates, and the sum of what one step takes.
struct Table {
    /// Only lines whose name has this in it are measured.
    only: String,
    step: Duration,
}

impl Table {
    /// One line: `words` elements, `bytes` moved, `calls` in a step.
    fn line(&mut self, name: &str, words: usize, bytes: usize, calls: usize, run: impl FnMut()) {
        if !name.contains(&self.only) {
            return;
        }
        let time = best(run);
        self.step += time * calls as u32;
        let (seconds, ns) = (time.as_secs_f64(), time.as_secs_f64() * 1e9 / words as f64);
        let (rate, total) = (bytes as f64 / seconds / 1e9, seconds * 1e3 * calls as f64);
        println!("{name:<30} {ns:>8.4} ns/element {rate:>7.2} GB/s {calls:>3} a step: {total:>8.3} ms");
    }
}

/// `count` values of either sign and magnitude 1/8 to 4.
fn painted(count: usize) -> Vec<f32> {
    let word = |i: usize| (i as u32 + 1).wrapping_mul(2_654_435_761);
    (0..count)
        .map(|i| f32::from_bits(word(i) & 0x807f_ffff | (124 + (word(i) >> 23 & 0xff) % 5) << 23))
        .collect()
}

fn main() {
    let backend = match std::env::args().nth(1).map(|name| name.parse()) {
        None => Backend::detect(),
        Some(Ok(backend)) => backend,
        Some(Err(error)) => return eprintln!("rates: {error}"),
    };
    println!("backend {backend}, {} threads", rayon::current_num_threads());
    let mut table = Table { only: std::env::args().nth(2).unwrap_or_default(), step: Duration::ZERO };
    rows(backend, &mut table);
    loss(backend, &mut table);
    sums(backend, &mut table);
    update(backend, &mut table);
    println!("a step of GPT-2 124M on {ROWS} rows: {:.1} ms of these", table.step.as_secs_f64() * 1e3);
    record(backend, &mut table);
}

/// Kernels over rows of C or 4 C.
fn rows(backend: Backend, table: &mut Table) {
    let (words, wide) = (ROWS * CHANNELS, ROWS * 4 * CHANNELS);
    let (x, gain, bias, mut y) = (painted(wide), painted(CHANNELS), painted(CHANNELS), painted(wide));
    let (mut mean, mut rstd) = (painted(ROWS), painted(ROWS));
    let (mut d_gain, mut d_bias) = (painted(CHANNELS), painted(CHANNELS));
    let narrow = &x[..words];
    table.line("layernorm_forward", words, 8 * words, 2 * LAYERS + 1, || {
        let (y, inv_c) = (&mut y[..words], 1.0 / CHANNELS as f32);
        kernels::layernorm_forward(backend, narrow, &gain, &bias, inv_c, 1e-5, y, &mut mean, &mut rstd);
    });
    table.line("layernorm_backward_input", words, 12 * words, 2 * LAYERS + 1, || {
        let (y, inv_c) = (&mut y[..words], 1.0 / CHANNELS as f32);
        kernels::layernorm_backward_input(backend, narrow, narrow, &gain, &mean, &rstd, inv_c, y);
    });
    table.line("layernorm_backward_parameters", words, 8 * words, 2 * LAYERS + 1, || {
        let out = (&mut d_gain, &mut d_bias);
        kernels::layernorm_backward_parameters(backend, narrow, narrow, &mean, &rstd, out.0, out.1);
    });
    table.line("gelu_forward", wide, 8 * wide, LAYERS, || kernels::gelu_forward(backend, &x, &mut y));
    let d_y = painted(wide);
    table.line("gelu_backward_input", wide, 12 * wide, LAYERS, || {
        kernels::gelu_backward_input(backend, &x, &d_y, &mut y);
    });
    table.line("add (residual)", words, 12 * words, 4 * LAYERS, || {
        kernels::add(backend, narrow, &d_y[..words], &mut y[..words]);
    });
    for (columns, calls) in [(CHANNELS, 2 * LAYERS), (3 * CHANNELS, LAYERS), (4 * CHANNELS, LAYERS)] {
        let words = ROWS * columns;
        table.line(&format!("column_sums of {columns}"), words, 4 * words, calls, || {
            kernels::column_sums(backend, &x[..words], &mut y[..columns]);
        });
    }
}

/// Cross entropy and the embedding.
fn loss(backend: Backend, table: &mut Table) {
    let words = ROWS * VOCABULARY;
    let (logits, mut d_logits) = (painted(words), painted(words));
    let targets: Vec<u32> = (0..ROWS as u32).map(|n| n * 7919 % VOCABULARY as u32).collect();
    let (mut loss, mut max, mut sum) = (painted(ROWS), painted(ROWS), painted(ROWS));
    table.line("cross_entropy_forward", words, 4 * words, 1, || {
        let out = (&mut loss, &mut max, &mut sum);
        kernels::cross_entropy_forward(backend, &logits, &targets, VOCABULARY, out.0, out.1, out.2);
    });
    table.line("cross_entropy_backward", words, 8 * words, 1, || {
        let out = &mut d_logits;
        kernels::cross_entropy_backward(backend, &logits, &targets, &max, &sum, VOCABULARY, 0.01, out);
    });
    let (wte, wpe, words) = (painted(VOCABULARY * CHANNELS), painted(1024 * CHANNELS), ROWS * CHANNELS);
    let (mut out, mut d_wte, mut d_wpe) = (painted(words), painted(wte.len()), painted(wpe.len()));
    table.line("embedding_forward", words, 12 * words, 1, || {
        dispatch::embedding_forward(backend, &targets, &wte, &wpe, TIMES, CHANNELS, &mut out);
    });
    table.line("embedding_backward", d_wte.len(), 4 * d_wte.len(), 1, || {
        kernels::embedding_backward_tokens(backend, &targets, &out, CHANNELS, &mut d_wte);
        dispatch::embedding_backward_positions(backend, &out, TIMES, CHANNELS, &mut d_wpe);
    });
}

/// Row sums by themselves.
fn sums(backend: Backend, table: &mut Table) {
    let x = painted(1 << 15);
    let mut kept = 0.0;
    for columns in [CHANNELS, TIMES] {
        let words = x.len() / columns * columns;
        let each = |row: &mut dyn FnMut(&[f32])| x.chunks_exact(columns).for_each(row);
        table.line(&format!("warp32_sum of {columns}"), words, 4 * words, 0, || {
            each(&mut |x| kept += dispatch::warp32_sum(backend, x));
        });
        table.line(&format!("warp32_dot of {columns}"), words, 4 * words, 0, || {
            each(&mut |x| kept += dispatch::warp32_dot(backend, x, x));
        });
        table.line(&format!("warp32_max of {columns}"), words, 4 * words, 0, || {
            each(&mut |x| kept += dispatch::warp32_max(backend, x));
        });
    }
    std::hint::black_box(kept);
}

/// The optimizer and what goes before it.
fn update(backend: Backend, table: &mut Table) {
    let (mut p, mut m, mut v, mut g) =
        (painted(PARAMETERS), painted(PARAMETERS), vec![1.0; PARAMETERS], painted(PARAMETERS));
    let constants = AdamwConstants {
        beta1: 0.9,
        one_minus_beta1: 0.1,
        beta2: 0.95,
        one_minus_beta2: 0.05,
        eps: 1e-8,
        correction1: 2.0,
        correction2: 3.0,
        rate: 1e-4,
        decay: 0.999,
    };
    let shape =
        [(VOCABULARY + 1024, CHANNELS), (LAYERS * CHANNELS, 9 * CHANNELS), (LAYERS * 3 * CHANNELS, CHANNELS)];
    table.line("square_sums (one leaf)", PARAMETERS, 4 * PARAMETERS, 1, || {
        let mut rest = &g[..];
        let mut tensors = vec![];
        for (rows, columns) in shape {
            let (tensor, after) = rest.split_at(rows * columns);
            tensors.push((tensor, columns));
            rest = after;
        }
        assert!(kernels::square_sums(backend, &tensors)[0] > 0.0);
    });
    table.line("scaled_square_sums (leaves)", PARAMETERS, 8 * PARAMETERS, 0, || {
        let (left, right) = g.split_at_mut(PARAMETERS / 2 / CHANNELS * CHANNELS);
        let tensors = vec![(left, CHANNELS), (right, CHANNELS)];
        assert!(kernels::scaled_square_sums(backend, tensors, 1.0)[0] > 0.0);
    });
    table.line("adamw", PARAMETERS, 28 * PARAMETERS, 1, || {
        kernels::adamw(backend, constants, 0.7, &g, &mut p, &mut m, &mut v);
    });
    table.line("add_in_place (tree)", PARAMETERS, 12 * PARAMETERS, 0, || {
        kernels::add_in_place(backend, &mut g, &p);
    });
}

/// What recording costs: not part of a step without it.
fn record(backend: Backend, table: &mut Table) {
    let words = painted(PARAMETERS);
    table.line("FoldTables::new", PARAMETERS, 0, 1, || {
        std::hint::black_box(FoldTables::new(backend, schemas::fold::FoldKey([1; 32]), PARAMETERS));
    });
    let tables = FoldTables::new(backend, schemas::fold::FoldKey([1; 32]), PARAMETERS);
    let mut kept = 0;
    for (place, words) in [("memory", &words[..]), ("cache", &words[..1 << 16])] {
        let count = words.len();
        table.line(&format!("fold from {place}"), count, 4 * count, 0, || kept ^= tables.fold(words).fold.a);
        table.line(&format!("checksum from {place}"), count, 4 * count, 0, || {
            kept ^= u64::from(checksum_f32(&[count as u64], words).0[0]);
        });
    }
    std::hint::black_box(kept);
}
