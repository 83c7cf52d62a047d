//! The elementary functions of the profile on every one of the 2^32 bit patterns: is every backend's compiled form
//! equal to the reference's scalar function, and how far is that from the true value?
//!
//! The true value is that of CORE-MATH, whose results are correctly rounded: in binary64 to measure a distance, in
//! binary32 to count the results that are not the nearest. A distance is |ours - true| in units in the last place, that
//! is in 2^-23 times the power of two at or below |true|, but not less than 2^-149. The binary64 value is off by less
//! than 2^-29 of such a unit where it is one function, and by a few times that where it is composed (GELU, SiLU).
//!
//! usage: elementary [--every N] [FUNCTION...]
//!
//! The functions are exp, log, tanh, gelu, gelu-backward, silu, silu-backward and silu-backward-up. With `--every N`
//! only the bit patterns divisible by N are taken, and the last of each 65536. For N a power of two up to 65536 the
//! first and the last pattern of each exponent are among them.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use step::dispatch::{self, Backend};
use step::number::elementary;

const CHUNK: usize = 1 << 16;
const CHUNKS: u64 = 1 << 16;
const THREADS: usize = 2;

/// A function and everything that is known of it.
struct Function {
    name: &'static str,
    reference: fn(f32) -> f32,
    /// The compiled form that kernels use; none where it is part of another function's.
    compiled: Option<fn(Backend, &[f32], &mut [f32])>,
    truth: fn(f64) -> f64,
    /// The correctly rounded value, where a library has it.
    nearest: Option<fn(f32) -> f32>,
    /// Ends of intervals, both in, that are measured apart.
    ranges: &'static [(f32, f32)],
}

static ONES: [f32; CHUNK] = [1.0; CHUNK];
const TINY: f32 = f32::MIN_POSITIVE;
const FUNCTIONS: [Function; 8] = [
    Function {
        name: "exp",
        reference: elementary::exp,
        compiled: Some(exp_of_a_row),
        truth: core_math::exp,
        nearest: Some(core_math::expf),
        ranges: &[(-87.0, -1.0), (-1.0, 1.0), (1.0, 88.0)],
    },
    Function {
        name: "log",
        reference: elementary::log,
        compiled: Some(|backend, x, y| x.iter().zip(y).for_each(|(x, y)| *y = dispatch::log(backend, *x))),
        truth: core_math::log,
        nearest: Some(core_math::logf),
        ranges: &[(f32::from_bits(1), f32::from_bits(0x007f_ffff)), (TINY, 0.5), (0.5, 2.0), (2.0, f32::MAX)],
    },
    Function {
        name: "tanh",
        reference: elementary::tanh,
        compiled: None,
        truth: core_math::tanh,
        nearest: Some(core_math::tanhf),
        ranges: &[(0.0, 0.0625), (0.0625, 1.0), (1.0, f32::MAX)],
    },
    Function {
        name: "gelu",
        reference: elementary::gelu,
        compiled: Some(dispatch::gelu_forward),
        truth: |x| x / (1.0 + core_math::exp(-2.0 * gelu_inner(x))),
        nearest: None,
        ranges: &[(-1e4, -3.0), (-3.0, 0.0), (0.0, 3.0), (3.0, f32::MAX)],
    },
    Function {
        name: "gelu-backward",
        reference: |x| elementary::gelu_backward(x, 1.0),
        compiled: Some(|backend, x, y| dispatch::gelu_backward_input(backend, x, &ONES[..x.len()], y)),
        truth: |x| {
            let (up, down) = (core_math::exp(2.0 * gelu_inner(x)), core_math::exp(-2.0 * gelu_inner(x)));
            let slope = (2.0 / std::f64::consts::PI).sqrt() * (1.0 + 3.0 * 0.044715 * x * x);
            // (1 + tanh)/2 = 1/(1 + down); (1 - tanh^2)/2 = 2/((1 + up)(1 + down)).
            1.0 / (1.0 + down) + x * slope * (2.0 / ((1.0 + up) * (1.0 + down)))
        },
        nearest: None,
        ranges: &[(-8.0, 8.0)],
    },
    Function {
        name: "silu",
        reference: |x| one(|y| step::reference::swiglu::swiglu_forward(&[x], &[1.0], y)),
        compiled: Some(|backend, x, y| dispatch::swiglu_forward(backend, x, &ONES[..x.len()], y)),
        truth: |x| x / (1.0 + core_math::exp(-x)),
        nearest: None,
        ranges: &[(-87.0, -1.0), (-1.0, 1.0), (1.0, f32::MAX)],
    },
    Function {
        name: "silu-backward",
        reference: |x| one(|y| step::reference::swiglu::swiglu_backward(&[1.0], &[x], &[1.0], y, &mut [0.0])),
        compiled: Some(|backend, x, y| {
            let ones = &ONES[..x.len()];
            dispatch::swiglu_backward(backend, ones, x, ones, y, &mut [0.0; CHUNK][..x.len()]);
        }),
        truth: |x| {
            let (s, rest) = (1.0 / (1.0 + core_math::exp(-x)), 1.0 / (1.0 + core_math::exp(x)));
            s * (1.0 + x * rest)
        },
        nearest: None,
        ranges: &[(-87.0, -1.0), (-1.0, 1.0), (1.0, 87.0)],
    },
    Function {
        name: "silu-backward-up",
        reference: |x| one(|y| step::reference::swiglu::swiglu_backward(&[1.0], &[x], &[1.0], &mut [0.0], y)),
        compiled: Some(|backend, x, y| {
            let ones = &ONES[..x.len()];
            dispatch::swiglu_backward(backend, ones, x, ones, &mut [0.0; CHUNK][..x.len()], y);
        }),
        truth: |x| x / (1.0 + core_math::exp(-x)),
        nearest: None,
        ranges: &[(-87.0, -1.0), (-1.0, 1.0), (1.0, f32::MAX)],
    },
];

fn gelu_inner(x: f64) -> f64 {
    (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x)
}

fn one(write: impl Fn(&mut [f32])) -> f32 {
    let mut y = [0.0];
    write(&mut y);
    y[0]
}

/// exp as the loss uses it: with the maximum 0 and the sum 1 the gradient of a column that is not the target is
/// ((exp(x - 0) / 1) - 0) * 1.
fn exp_of_a_row(backend: Backend, x: &[f32], y: &mut [f32]) {
    let logits: Vec<f32> = x.iter().copied().chain([0.0]).collect();
    let mut gradient = vec![0.0; logits.len()];
    let target = [x.len() as u32];
    dispatch::cross_entropy_backward(
        backend,
        &logits,
        &target,
        &[0.0],
        &[1.0],
        logits.len(),
        1.0,
        &mut gradient,
    );
    y.copy_from_slice(&gradient[..x.len()]);
}

/// What was found in one range.
#[derive(Clone, Copy, Default)]
struct Found {
    inputs: u64,
    not_nearest: u64,
    units: (f64, u32),
    absolute: (f64, u32),
}

impl Found {
    fn join(&mut self, other: Found) {
        self.inputs += other.inputs;
        self.not_nearest += other.not_nearest;
        if other.units.0 > self.units.0 {
            self.units = other.units;
        }
        if other.absolute.0 > self.absolute.0 {
            self.absolute = other.absolute;
        }
    }

    fn see(&mut self, function: &Function, x: f32, ours: f32) {
        let truth = (function.truth)(f64::from(x));
        let error = (f64::from(ours) - truth).abs();
        // An exponent below that of the subnormal numbers has their unit.
        let exponent = ((truth.to_bits() >> 52 & 0x7ff) as i64 - 1023).max(-126);
        let units = error * f64::from_bits(((23 - exponent + 1023) as u64) << 52);
        let nearest = function.nearest.map_or(truth as f32, |nearest| nearest(x));
        self.join(Found {
            inputs: 1,
            not_nearest: u64::from(nearest.to_bits() != ours.to_bits()),
            units: (units, x.to_bits()),
            absolute: (error, x.to_bits()),
        });
    }
}

/// One chunk of inputs: every backend against the reference, then the reference against the truth.
fn chunk(function: &Function, number: u64, every: u32, found: &mut [Found]) -> Result<(), String> {
    let last = CHUNK as u32 - 1;
    let places = (0..=last).map(|i| (number as u32) << 16 | i);
    let taken = places.filter(|bits| bits % every == 0 || bits & last == last);
    let x: Vec<f32> = taken.map(f32::from_bits).collect();
    let want: Vec<f32> = x.iter().map(|x| (function.reference)(*x)).collect();
    let mut y = vec![0.0; x.len()];
    for backend in Backend::all() {
        let Some(compiled) = function.compiled.filter(|_| backend != Backend::REFERENCE) else { continue };
        compiled(backend, &x, &mut y);
        let differs =
            |(y, want): (&f32, &f32)| y.to_bits() != want.to_bits() && !(y.is_nan() && want.is_nan());
        if let Some(i) = y.iter().zip(&want).position(differs) {
            let bits = [x[i], want[i], y[i]].map(f32::to_bits);
            let [x, want, y] = bits.map(|bits| format!("{bits:#010x}"));
            return Err(format!("{}({x}) on {backend}: expected {want}, found {y}", function.name));
        }
    }
    for (found, (low, high)) in found.iter_mut().zip(function.ranges) {
        for (x, want) in x.iter().zip(&want).filter(|(x, _)| (low..=high).contains(x)) {
            found.see(function, *x, *want);
        }
    }
    Ok(())
}

fn check(function: &Function, every: u32) -> Result<(), String> {
    let next = AtomicU64::new(0);
    let all = Mutex::new((vec![Found::default(); function.ranges.len()], Ok(())));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let mut found = vec![Found::default(); function.ranges.len()];
                let mut outcome = Ok(());
                while outcome.is_ok() {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= CHUNKS {
                        break;
                    }
                    outcome = chunk(function, number, every, &mut found);
                }
                let mut all = all.lock().expect("no thread panics while it holds this");
                all.0.iter_mut().zip(found).for_each(|(all, found)| all.join(found));
                if outcome.is_err() {
                    all.1 = outcome;
                }
            });
        }
    });
    let (found, outcome) = all.into_inner().expect("no thread panics while it holds this");
    outcome?;
    let backends: Vec<&str> = Backend::all().iter().map(|backend| backend.name()).collect();
    let equal = if function.compiled.is_some() { backends.join(" = ") } else { "reference only".into() };
    println!("{}: {equal} on {}", function.name, inputs(every));
    for (found, (low, high)) in found.iter().zip(function.ranges) {
        let Found { inputs, not_nearest, units, absolute } = found;
        println!(
            "  [{low:e}, {high:e}]: {inputs} inputs, {not_nearest} not the nearest, at most {:.4} ulp at {:#010x}, \
             {:.3e} at {:#010x}",
            units.0, units.1, absolute.0, absolute.1
        );
    }
    Ok(())
}

/// Which inputs were taken.
fn inputs(every: u32) -> String {
    match every {
        1 => "all 2^32 inputs".into(),
        _ => format!("every {every}th of the 2^32 inputs and the last of each {CHUNK}"),
    }
}

fn main() {
    let mut asked: Vec<String> = std::env::args().skip(1).collect();
    let mut every = 1;
    if asked.first().is_some_and(|first| first == "--every") {
        let number = asked.get(1).and_then(|number| number.parse().ok()).filter(|number| *number > 0);
        let Some(number) = number else {
            eprintln!("elementary: error: --every: expected a number of at least 1");
            std::process::exit(2);
        };
        every = number;
        asked.drain(..2);
    }
    if let Some(unknown) = asked.iter().find(|name| FUNCTIONS.iter().all(|function| function.name != **name))
    {
        let known: Vec<&str> = FUNCTIONS.iter().map(|function| function.name).collect();
        eprintln!("elementary: error: expected any of {}, found {unknown:?}", known.join(", "));
        std::process::exit(2);
    }
    for function in FUNCTIONS.iter().filter(|f| asked.is_empty() || asked.iter().any(|name| name == f.name)) {
        if let Err(difference) = check(function, every) {
            eprintln!("elementary: error: {difference}");
            std::process::exit(1);
        }
    }
    println!("elementary: every backend equal to the reference on {}", inputs(every));
}
