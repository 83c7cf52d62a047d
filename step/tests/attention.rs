//! Attention on every backend gives the bits of its definition, and of no other order.

mod inputs;

use inputs::{adversarial, assert_bits, painted};
use step::dispatch::Backend;
use step::kernels::{self, AttentionShape};
use step::number::elementary::exp;

/// What attention writes: o, max, sum, d_q, d_k, d_v.
type Written = [Vec<f32>; 6];
const NAMES: [&str; 6] = ["o", "max", "sum", "d_q", "d_k", "d_v"];

/// q, k, v, d_o.
struct Inputs {
    shape: AttentionShape,
    words: [Vec<f32>; 4],
}

fn shape(batches: usize, times: usize, kv_heads: usize, group: usize, head_size: usize) -> AttentionShape {
    let scale = 1.0 / (head_size as f32).sqrt();
    AttentionShape { batches, times, heads: kv_heads * group, kv_heads, head_size, scale }
}

fn draw(shape: AttentionShape, from: fn(usize, u32) -> Vec<f32>) -> Inputs {
    let queries = shape.batches * shape.times * shape.heads * shape.head_size;
    let keys = shape.batches * shape.times * shape.kv_heads * shape.head_size;
    Inputs { shape, words: [from(queries, 1), from(keys, 2), from(keys, 3), from(queries, 4)] }
}

/// Words so small that products of them round to zeros of both signs: a link more or less turns -0 into +0.
fn tiny(count: usize, seed: u32) -> Vec<f32> {
    let word = |x: f32| f32::from_bits((x.to_bits() & 0x8000_0000) | (x.to_bits() >> 3 & 3));
    painted(count, seed).into_iter().map(word).collect()
}

/// Painted words, some of them not finite or as large as can be: sums overflow, maxima are infinite, NaN spreads.
fn wild(count: usize, seed: u32) -> Vec<f32> {
    let odd = [f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::MAX, f32::MIN, -0.0];
    let pick = |x: f32| match x.to_bits() % 512 {
        i @ 0..6 => odd[i as usize],
        _ => x,
    };
    painted(count, seed).into_iter().map(pick).collect()
}

/// Words whose scores are all -infinity or NaN: a row maximum of -infinity.
fn sunk(count: usize, seed: u32) -> Vec<f32> {
    painted(count, seed).into_iter().map(|x| if seed == 1 { f32::MAX } else { -x.abs() * 8.0 }).collect()
}

fn run(backend: Backend, inputs: &Inputs) -> Written {
    let (shape, [q, k, v, d_o]) = (inputs.shape, &inputs.words);
    let [mut o, mut d_q] = [(); 2].map(|_| vec![7.0; q.len()]);
    let [mut d_k, mut d_v] = [(); 2].map(|_| vec![7.0; k.len()]);
    let [mut max, mut sum] = [(); 2].map(|_| vec![7.0; shape.batches * shape.heads * shape.times]);
    kernels::grouped_attention_forward(backend, shape, q, k, v, &mut o, &mut max, &mut sum);
    kernels::grouped_attention_backward(
        backend, shape, q, k, v, &o, d_o, &max, &sum, &mut d_q, &mut d_k, &mut d_v,
    );
    [o, max, sum, d_q, d_k, d_v]
}

fn assert_same(found: &Written, expected: &Written, what: &str) {
    for ((found, expected), name) in found.iter().zip(expected).zip(NAMES) {
        assert_bits(found, expected, &format!("{what}: {name}"));
    }
}

fn assert_all_backends(inputs: &Inputs, what: &str) {
    let want = run(Backend::REFERENCE, inputs);
    for backend in Backend::all() {
        assert_same(&run(backend, inputs), &want, &format!("{backend} {what} {:?}", inputs.shape));
    }
}

#[test]
fn every_length_and_head_size_gives_the_bits_of_the_reference() {
    // Around a register's lanes, the lanes of warp32, a block of queries; more than one and more than two blocks.
    for times in [1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 70, 131] {
        for head_size in [1, 4, 8, 16, 40, 64, 80, 128] {
            let inputs = draw(shape(1, times, 1, 1, head_size), adversarial);
            assert_all_backends(&inputs, "adversarial");
        }
    }
}

#[test]
fn every_group_gives_the_bits_of_the_reference() {
    for group in 1..=4 {
        for (times, head_size) in [(1, 64), (5, 4), (17, 40), (64, 16), (67, 24), (131, 8)] {
            assert_all_backends(&draw(shape(2, times, 2, group, head_size), painted), "painted");
            assert_all_backends(&draw(shape(1, times, 3, group, head_size), adversarial), "adversarial");
        }
    }
}

#[test]
fn hostile_values_give_the_bits_of_the_reference() {
    for times in [2, 9, 16, 33, 64, 70, 131] {
        for head_size in [1, 8, 20, 64] {
            for (from, name) in [(tiny as fn(usize, u32) -> Vec<f32>, "tiny"), (wild, "wild"), (sunk, "sunk")]
            {
                let inputs = draw(shape(1, times, 1, 2, head_size), from);
                assert_all_backends(&inputs, name);
            }
        }
    }
    // The inputs do what they are for.
    let [o, max, sum, ..] = run(Backend::REFERENCE, &draw(shape(1, 70, 1, 1, 8), tiny));
    assert!(o.iter().any(|o| o.to_bits() == 0x8000_0000), "no -0 in o");
    assert!(max.iter().chain(&sum).all(|x| x.is_finite()), "tiny is not finite");
    let [_, max, sum, ..] = run(Backend::REFERENCE, &draw(shape(1, 70, 1, 1, 8), sunk));
    assert!(
        max.iter().zip(&sum).all(|(m, z)| *m == f32::NEG_INFINITY && z.is_nan()),
        "a maximum is not -infinity"
    );
    let [_, max, ..] = run(Backend::REFERENCE, &draw(shape(1, 70, 1, 1, 8), wild));
    assert!(max.contains(&f32::INFINITY) && max.iter().any(|x| x.is_finite()), "no infinite maximum");
}

#[test]
fn packed_rows_give_the_bits_of_three_matrices() {
    let inputs = draw(shape(2, 67, 3, 1, 12), adversarial);
    let (shape, [q, k, v, d_o]) = (inputs.shape, &inputs.words);
    let channels = shape.heads * shape.head_size;
    let mut qkv = Vec::new();
    for ((q, k), v) in q.chunks(channels).zip(k.chunks(channels)).zip(v.chunks(channels)) {
        qkv.extend([q, k, v].concat());
    }
    for backend in Backend::all() {
        let want = run(Backend::REFERENCE, &inputs);
        let (mut o, mut d_qkv) = (vec![7.0; q.len()], vec![7.0; qkv.len()]);
        let [mut max, mut sum] = [(); 2].map(|_| vec![7.0; want[1].len()]);
        kernels::attention_forward(backend, shape, &qkv, &mut o, &mut max, &mut sum);
        kernels::attention_backward(backend, shape, &qkv, &o, d_o, &max, &sum, &mut d_qkv);
        let [mut d_q, mut d_k, mut d_v] = [(); 3].map(|_| Vec::new());
        for row in d_qkv.chunks(3 * channels) {
            d_q.extend(&row[..channels]);
            d_k.extend(&row[channels..2 * channels]);
            d_v.extend(&row[2 * channels..]);
        }
        assert_same(&[o, max, sum, d_q, d_k, d_v], &want, backend.name());
    }
}

#[test]
fn neither_threads_nor_what_ran_before_change_a_bit() {
    // One head only, cut into pieces by queries, and more heads than threads.
    for (batches, kv_heads, group) in [(1, 1, 1), (2, 2, 2)] {
        for backend in Backend::all() {
            let inputs = draw(shape(batches, 150, kv_heads, group, 12), adversarial);
            let other = draw(shape(1, 170, 1, 1, 24), wild);
            let want = run(Backend::REFERENCE, &inputs);
            for threads in [1, 2, 3, 7] {
                let pool =
                    rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool of threads");
                let found = pool.install(|| {
                    run(backend, &other);
                    run(backend, &inputs)
                });
                assert_same(&found, &want, &format!("{backend}, {threads} threads"));
            }
        }
    }
}

/// Orders that are not the definition's.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Order {
    Ascending,
    KeysDescending,
    QueriesDescending,
    HeadsDescending,
    FilledWithZeros,
}

fn order(count: usize, descending: bool) -> Vec<usize> {
    if descending { (0..count).rev().collect() } else { (0..count).collect() }
}

/// Attention of one sequence and one key/value head, from the text, in `order`; max and sum are taken as given.
fn from_text(inputs: &Inputs, max: &[f32], sum: &[f32], o: &[f32], taken: Order) -> [Vec<f32>; 4] {
    let (shape, [q, k, v, d_o]) = (inputs.shape, &inputs.words);
    let (times, group, size) = (shape.times, shape.heads, shape.head_size);
    let [mut new_o, mut d_q] = [(); 2].map(|_| vec![0.0_f32; q.len()]);
    let [mut d_k, mut d_v] = [(); 2].map(|_| vec![0.0_f32; k.len()]);
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).fold(0.0_f32, |acc, (a, b)| a.mul_add(*b, acc));
    for h in order(group, taken == Order::HeadsDescending) {
        for t in order(times, taken == Order::QueriesDescending) {
            let at = (t * group + h) * size;
            let row = at..at + size;
            let d = step::reference::reduce::warp32_dot(&d_o[row.clone()], &o[row.clone()]);
            let keys = if taken == Order::FilledWithZeros { times } else { t + 1 };
            for u in order(keys, taken == Order::KeysDescending) {
                let key = u * size..(u + 1) * size;
                let s = dot(&q[row.clone()], &k[key.clone()]) * shape.scale;
                let seen = |x: f32| if u <= t { x } else { 0.0 };
                let p = seen(exp(s - max[h * times + t]) / sum[h * times + t]);
                let dp = dot(&d_o[row.clone()], &v[key.clone()]);
                let ds = seen((p * (dp - d)) * shape.scale);
                for c in 0..size {
                    new_o[at + c] = p.mul_add(v[u * size + c], new_o[at + c]);
                    d_q[at + c] = ds.mul_add(k[u * size + c], d_q[at + c]);
                    d_k[u * size + c] = ds.mul_add(q[at + c], d_k[u * size + c]);
                    d_v[u * size + c] = p.mul_add(d_o[at + c], d_v[u * size + c]);
                }
            }
        }
    }
    [new_o, d_q, d_k, d_v]
}

#[test]
fn a_permuted_order_gives_other_bits() {
    let same = |a: &[f32], b: &[f32]| a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits());
    let differing = |inputs: &Inputs, taken: Order| {
        let [o, max, sum, d_q, d_k, d_v] = run(Backend::detect(), inputs);
        let [new_o, new_q, new_k, new_v] = from_text(inputs, &max, &sum, &o, taken);
        [(o, new_o), (d_q, new_q), (d_k, new_k), (d_v, new_v)].map(|(found, other)| !same(&found, &other))
    };
    let inputs = draw(shape(1, 70, 1, 3, 8), painted);
    assert_eq!(differing(&inputs, Order::Ascending), [false; 4]);
    assert_eq!(differing(&inputs, Order::KeysDescending), [true, true, false, false]);
    assert_eq!(differing(&inputs, Order::QueriesDescending), [false, false, true, true]);
    assert_eq!(differing(&inputs, Order::HeadsDescending), [false, false, true, true]);
    let inputs = draw(shape(1, 70, 1, 3, 8), tiny);
    assert_eq!(differing(&inputs, Order::Ascending), [false; 4]);
    assert!(differing(&inputs, Order::FilledWithZeros)[0], "zeros for later keys leave o as it is");
}
