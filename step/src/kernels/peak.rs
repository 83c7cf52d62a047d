//! The machine's rate of fused multiply-adds, which a matrix product's rate is a fraction of.

use crate::dispatch::{self, Backend};
use std::sync::Barrier;

/// Rounds of one measurement: well below a millisecond, so that a neighbour rarely falls into the best one.
const ROUNDS: usize = 20_000;

/// The machine's peak in GFLOP/s (an fma counts two) with the registers of `backend`: the best of several short runs on
/// `threads` threads at once. No memory is touched. `clock` gives seconds: nothing in this crate knows the time.
pub fn fma_peak(backend: Backend, threads: usize, clock: impl Fn() -> f64 + Sync) -> f64 {
    let start = Barrier::new(threads);
    let one = || {
        let mut best = 0.0_f64;
        for _ in 0..8 {
            start.wait();
            let before = clock();
            let products = ROUNDS * dispatch::peak(backend, ROUNDS);
            best = best.max(2.0 * products as f64 / (clock() - before));
        }
        best / 1e9
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(one)).collect();
        threads.into_iter().map(|thread| thread.join().expect("peak: a measuring thread ends")).sum()
    })
}
