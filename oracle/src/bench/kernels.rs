//! Rates of single kernels: products against the peak, checksums and folds against the clock.

use super::median;
use super::workload::Shape;
use schemas::fold::FoldKey;
use std::time::Instant;
use step::buffer::Flat;
use step::checksum::{FoldTables, checksum_f32};
use step::dispatch::Backend;
use step::kernels::{fma_peak, matmul};
use step::reference::matmul::View;

/// Times that checksums and folds are tried; the best counts, since a disturbance only slows.
const TRIES: usize = 5;
/// Times that each row of products is tried, each beside the peak of that moment; the median of the ratios counts.
const TURNS: usize = 7;
/// Words of the tensor that checksums and folds are timed on, and of all tensors of a row of products if one product
/// has not more: far more than the caches hold.
const WORDS: usize = 64 << 20;

/// One matrix product of a step.
pub struct Product {
    /// Which layer, and which of its three products.
    pub name: String,
    /// Rows, columns, length of the chain.
    pub shape: [usize; 3],
    /// Of all the step's products of this shape.
    pub flops: f64,
    /// Of the peak, in the median turn.
    pub fraction: f64,
}

/// GB/s.
pub struct Bandwidth {
    /// SHA-256 Merkle roots.
    pub checksum: f64,
    /// Folds.
    pub fold: f64,
}

/// How a product's factors lie: as they are, or transposed.
#[derive(Clone, Copy)]
enum Form {
    Plain,
    RightTransposed,
    LeftTransposed,
}

/// Most bytes that are held here at one time: the factors and the products that are timed in a row, or the tensor that
/// is checksummed and folded.
pub fn bytes_held(shape: &Shape) -> u64 {
    let [factors, outputs] = words_held(shape);
    4 * (factors + outputs).max(WORDS) as u64
}

/// Words of the factors and of the products of the largest row of products.
fn words_held(shape: &Shape) -> [usize; 2] {
    wanted(shape).into_iter().fold([0, 0], |[factors, outputs], (_, [rows, columns, inner], _, times)| {
        let in_a_row = in_a_row([rows, columns, inner], times);
        [factors.max(in_a_row * inner * (rows + columns)), outputs.max(in_a_row * rows * columns)]
    })
}

/// How many products of a shape are timed one after the other, each of tensors of its own as in a step: all that a step
/// has, or as many as there is room for.
fn in_a_row([rows, columns, inner]: [usize; 3], times: f64) -> usize {
    (WORDS / (rows * inner + inner * columns + rows * columns)).clamp(1, times as usize)
}

/// Every product of a step of `shape`: name; rows, columns, inner; how its factors lie; how many there are of it.
fn wanted(shape: &Shape) -> Vec<(String, [usize; 3], Form, f64)> {
    let (n, c) = (shape.rows() as usize, shape.channels as usize);
    let (v, layers) = (shape.vocabulary as usize, shape.layers as f64);
    let linear = [("qkv", c, 3 * c), ("projection", c, c), ("expand", c, 4 * c), ("contract", 4 * c, c)];
    let mut wanted = Vec::new();
    for (name, inputs, outputs) in linear {
        wanted.push((format!("{name} forward"), [n, outputs, inputs], Form::Plain, layers));
        wanted.push((format!("{name} input"), [n, inputs, outputs], Form::RightTransposed, layers));
        wanted.push((format!("{name} weight"), [inputs, outputs, n], Form::LeftTransposed, layers));
    }
    wanted.push(("head forward".into(), [n, v, c], Form::RightTransposed, 1.0));
    wanted.push(("head input".into(), [n, c, v], Form::Plain, 1.0));
    wanted.push(("head weight".into(), [v, c, n], Form::LeftTransposed, 1.0));
    wanted
}

/// The peak, and every product of a step of `shape`, taken in turns: a clock's rate wanders by some hundredths in a
/// second, and what disturbs a turn disturbs both.
///
/// Tensors lie on pages like a step's, and as in a step a product meets factors and outputs that no cache holds. Before
/// each row of products one more is not counted: the threads that measure the peak are others, and the pool's, which a
/// step keeps awake, fell asleep.
pub fn products(backend: Backend, threads: usize, shape: &Shape) -> (f64, Vec<Product>) {
    let clock = Instant::now();
    let [mut factors, mut outputs] = words_held(shape).map(Flat::zeros);
    paint(&mut factors);
    paint(&mut outputs);
    let (mut peaks, mut products) = (Vec::new(), Vec::new());
    for (name, [rows, columns, inner], form, times) in wanted(shape) {
        let in_a_row = in_a_row([rows, columns, inner], times);
        let mut one = |index: usize| {
            let (a, b) = factors.split_at(in_a_row * rows * inner);
            let (a, b) = (&a[index * rows * inner..], &b[index * inner * columns..]);
            let left = match form {
                Form::LeftTransposed => View::transposed(&a[..rows * inner], rows),
                _ => View::rows(&a[..rows * inner], inner),
            };
            let right = match form {
                Form::RightTransposed => View::transposed(&b[..inner * columns], inner),
                _ => View::rows(&b[..inner * columns], columns),
            };
            let out = &mut outputs[index * rows * columns..][..rows * columns];
            matmul(backend, left, right, inner, columns, out);
        };
        let flops = 2.0 * (rows * columns * inner) as f64;
        let mut turn = |_| {
            let peak = fma_peak(backend, threads, || clock.elapsed().as_secs_f64());
            one(in_a_row - 1);
            let start = Instant::now();
            (0..in_a_row).for_each(&mut one);
            let rate = flops * in_a_row as f64 / start.elapsed().as_secs_f64() / 1e9;
            peaks.push(peak);
            rate / peak
        };
        let fraction = median(&(0..TURNS).map(&mut turn).collect::<Vec<_>>());
        products.push(Product { name, shape: [rows, columns, inner], flops: flops * times, fraction });
    }
    (median(&peaks), products)
}

/// Checksums and folds of a tensor that no cache holds.
pub fn bandwidth(backend: Backend) -> Bandwidth {
    let mut words = Flat::zeros(WORDS);
    paint(&mut words);
    let tables = FoldTables::new(backend, FoldKey([1; 32]), WORDS);
    let gigabytes = 4.0 * WORDS as f64 / 1e9;
    let best = |work: &dyn Fn()| {
        let once = |_| {
            let start = Instant::now();
            work();
            start.elapsed().as_secs_f64()
        };
        (0..TRIES).map(once).fold(f64::INFINITY, f64::min)
    };
    let checksum = best(&|| {
        std::hint::black_box(checksum_f32(&[WORDS as u64], &words));
    });
    let fold = best(&|| {
        std::hint::black_box(tables.fold(&words));
    });
    Bandwidth { checksum: gigabytes / checksum, fold: gigabytes / fold }
}

/// Ordinary numbers, no two neighbours the same.
fn paint(words: &mut [f32]) {
    let value = |i: usize| ((i * 2_654_435_761) & 0xffff) as f32 / 65_536.0 - 0.5;
    words.iter_mut().enumerate().for_each(|(i, word)| *word = value(i));
}
