//! Prints the rate of matrix products beside the machine's peak: `cargo run --release -p step --example matmul_rate`.
//!
//! Arguments: `backend=NAME`, `threads=N`, `shape=M,N,K` (each may come several times), `kind=NN` (or NT, TN).

use std::time::Instant;
use step::dispatch::Backend;
use step::kernels;
use step::reference::matmul::View;

/// Rows, columns, inner.
type Shape = [usize; 3];

const SHAPES: [Shape; 9] = [
    [256, 768, 768],
    [256, 2304, 768],
    [256, 3072, 768],
    [256, 768, 3072],
    [256, 50257, 768],
    [768, 3072, 256],
    [1024, 3072, 768],
    [1024, 768, 3072],
    [4096, 768, 768],
];

fn wanted<T: std::str::FromStr>(name: &str, otherwise: Vec<T>) -> Vec<T> {
    let arguments = std::env::args().skip(1);
    let values = arguments.filter_map(|a| a.strip_prefix(name)?.strip_prefix('=').map(str::to_owned));
    let given: Vec<T> = values.filter_map(|value| value.parse().ok()).collect();
    if given.is_empty() { otherwise } else { given }
}

fn shapes() -> Vec<Shape> {
    let given: Vec<String> = wanted("shape", vec![]);
    let parse = |text: &String| {
        let numbers: Vec<usize> = text.split(',').filter_map(|number| number.parse().ok()).collect();
        numbers.try_into().ok()
    };
    if given.is_empty() { SHAPES.to_vec() } else { given.iter().filter_map(parse).collect() }
}

/// The best rate of one product in GFLOP/s, and the best rate as a fraction of the peak measured right before it.
fn rate(backend: Backend, threads: usize, kind: &str, [rows, columns, inner]: Shape) -> [f64; 2] {
    let fill = |count: usize| -> Vec<f32> { (0..count).map(|i| (i % 1013) as f32 / 1013.0 - 0.5).collect() };
    let (a, b) = (fill(rows * inner), fill(inner * columns));
    let mut out = vec![0.0; rows * columns];
    let left = if kind == "TN" { View::transposed(&a, rows) } else { View::rows(&a, inner) };
    let right = if kind == "NT" { View::transposed(&b, inner) } else { View::rows(&b, columns) };
    let flops = 2.0 * (rows * columns * inner) as f64;
    let (mut best, mut fraction) = (0.0_f64, Vec::new());
    let begin = Instant::now();
    while fraction.len() < 5 || begin.elapsed().as_secs_f64() < 0.5 {
        let peak = kernels::fma_peak(backend, threads, || begin.elapsed().as_secs_f64());
        let clock = Instant::now();
        kernels::matmul(backend, left, right, inner, columns, &mut out);
        let found = flops / clock.elapsed().as_secs_f64() / 1e9;
        best = best.max(found);
        fraction.push(found / peak);
    }
    fraction.sort_by(f64::total_cmp);
    [best, fraction[fraction.len() * 9 / 10]]
}

fn main() {
    let fastest = vec![Backend::detect()];
    for backend in wanted("backend", fastest) {
        for threads in wanted("threads", vec![1, 2]) {
            let pool =
                rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool of threads");
            let begin = Instant::now();
            pool.install(|| {
                println!(
                    "{backend}, {threads} threads, peak {:.0} GFLOP/s",
                    kernels::fma_peak(backend, threads, || begin.elapsed().as_secs_f64())
                );
                for shape in shapes() {
                    print!("{:>18}", format!("{shape:?}"));
                    let kinds = ["NN", "NT", "TN"].map(str::to_owned).to_vec();
                    for kind in wanted("kind", kinds) {
                        let [best, fraction] = rate(backend, threads, &kind, shape);
                        print!("  {kind} {best:6.1} {:5.1} %", 100.0 * fraction);
                    }
                    println!();
                }
            });
        }
    }
}
