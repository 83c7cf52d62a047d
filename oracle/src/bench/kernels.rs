//! Rates of single kernels: products against the peak, checksums and folds against the clock.

use super::workload::Shape;
use schemas::fold::FoldKey;
use std::time::Instant;
use step::checksum::{FoldTables, checksum_f32};
use step::dispatch::Backend;
use step::kernels::{fma_peak, matmul};
use step::reference::matmul::View;

/// Times each product is tried; the best counts, since a disturbance only slows.
const TRIES: usize = 5;
/// Words of the tensor that checksums and folds are timed on: far more than the caches hold.
const WORDS: usize = 64 << 20;

/// One matrix product of a step.
pub struct Product {
    /// Which layer, and which of its three products.
    pub name: String,
    /// Rows, columns, length of the chain.
    pub shape: [usize; 3],
    /// Of all the step's products of this shape.
    pub flops: f64,
    /// For `flops`.
    pub seconds: f64,
}

impl Product {
    /// GFLOP/s.
    pub fn gflops(&self) -> f64 {
        self.flops / self.seconds / 1e9
    }
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

/// Most bytes that are held here at one time: the factors and the product of the largest one, or the tensor that is
/// checksummed and folded.
pub fn bytes_held(shape: &Shape) -> u64 {
    let products = wanted(shape).into_iter().map(|(_, [rows, columns, inner], ..)| {
        rows as u64 * inner as u64 + inner as u64 * columns as u64 + rows as u64 * columns as u64
    });
    4 * products.max().unwrap_or(0).max(WORDS as u64)
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

/// The peak, and every product of a step of `shape`, taken in turns.
pub fn products(backend: Backend, threads: usize, shape: &Shape) -> (f64, Vec<Product>) {
    let clock = Instant::now();
    let measure = || fma_peak(backend, threads, || clock.elapsed().as_secs_f64());
    let mut peak = measure();
    let mut products = Vec::new();
    for (name, [rows, columns, inner], form, times) in wanted(shape) {
        let a = painted(rows * inner);
        let b = painted(inner * columns);
        let mut out = vec![0.0_f32; rows * columns];
        let left = match form {
            Form::LeftTransposed => View::transposed(&a, rows),
            _ => View::rows(&a, inner),
        };
        let right = match form {
            Form::RightTransposed => View::transposed(&b, inner),
            _ => View::rows(&b, columns),
        };
        let mut best = f64::INFINITY;
        for _ in 0..TRIES {
            peak = peak.max(measure());
            let start = Instant::now();
            matmul(backend, left, right, inner, columns, &mut out);
            best = best.min(start.elapsed().as_secs_f64());
        }
        let flops = 2.0 * (rows * columns * inner) as f64 * times;
        products.push(Product { name, shape: [rows, columns, inner], flops, seconds: best * times });
    }
    (peak, products)
}

/// Checksums and folds of a tensor that no cache holds.
pub fn bandwidth(backend: Backend) -> Bandwidth {
    let words = painted(WORDS);
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
fn painted(count: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 2_654_435_761) & 0xffff) as f32 / 65_536.0 - 0.5).collect()
}
