//! Matrix products: every backend, layout, shape at an edge and number of threads against the plain triple loop.

mod inputs;

use inputs::{adversarial, painted};
use step::dispatch::Backend;
use step::kernels;
use step::reference::matmul::View;

/// Rows, inner, columns.
type Shape = [usize; 3];

/// Words of exponents from -70 to 70, so that products overflow no chain and underflow some; zeros of both signs and
/// subnormals among them.
fn wide(count: usize, seed: u32) -> Vec<f32> {
    let scale = |i: usize| f32::from_bits(((127 - 65 + ((i * 2_654_435_761_usize) >> 7) % 131) as u32) << 23);
    let value = |(i, x): (usize, &f32)| if i % 3 == 0 { x * scale(i) } else { *x };
    adversarial(count, seed).iter().enumerate().map(value).collect()
}

/// Both factors; what is not finite stands in the last row of the left one and the last column of the right one, where
/// it must not reach other outputs.
fn factors([rows, inner, columns]: Shape, seed: u32) -> [Vec<f32>; 2] {
    let (mut a, mut b) = (wide(rows * inner, seed), wide(inner * columns, seed + 1));
    if rows > 1 && columns > 1 && inner > 2 {
        a[(rows - 1) * inner + inner / 2] = f32::INFINITY;
        b[(inner / 2 + 1) * columns - 1] = f32::NAN;
        b[columns - 1] = f32::NEG_INFINITY;
    }
    [a, b]
}

fn transpose(x: &[f32], rows: usize, columns: usize) -> Vec<f32> {
    (0..rows * columns).map(|at| x[at % rows * columns + at / rows]).collect()
}

/// The first output whose bits differ. Any NaN equals any NaN: a fold makes them one word.
fn first_difference(found: &[f32], want: &[f32]) -> Option<usize> {
    assert_eq!(found.len(), want.len());
    let differ = |(x, y): (&f32, &f32)| x.to_bits() != y.to_bits() && !(x.is_nan() && y.is_nan());
    found.iter().zip(want).position(differ)
}

/// The product in each layout of its factors, by name.
fn products(
    backend: Backend,
    [rows, inner, columns]: Shape,
    a: &[f32],
    b: &[f32],
) -> [(&'static str, Vec<f32>); 3] {
    let (a_t, b_t) = (transpose(a, rows, inner), transpose(b, inner, columns));
    let (a, a_t) = (View::rows(a, inner), View::transposed(&a_t, rows));
    let (b, b_t) = (View::rows(b, columns), View::transposed(&b_t, inner));
    [("NN", a, b), ("NT", a, b_t), ("TN", a_t, b)].map(|(name, a, b)| {
        // Whatever was there before must not reach the product.
        let mut out = vec![f32::NAN; rows * columns];
        kernels::matmul(backend, a, b, inner, columns, &mut out);
        (name, out)
    })
}

/// The definition, with k in the order and the cuts that are given: a cut starts a sum of its own.
fn chains([rows, inner, columns]: Shape, a: &[f32], b: &[f32], blocks: &[Vec<usize>]) -> Vec<f32> {
    let chain = |r: usize, c: usize, block: &[usize], acc: f32| {
        block.iter().fold(acc, |acc, k| a[r * inner + k].mul_add(b[k * columns + c], acc))
    };
    let output = |r: usize, c: usize| {
        let sums: Vec<f32> = blocks.iter().map(|block| chain(r, c, block, 0.0)).collect();
        sums.into_iter().reduce(|left, right| left + right).unwrap_or(0.0)
    };
    (0..rows * columns).map(|at| output(at / columns, at % columns)).collect()
}

fn assert_all_equal(shape: Shape) {
    let [a, b] = factors(shape, shape[0] as u32);
    let want = chains(shape, &a, &b, &[(0..shape[1]).collect()]);
    for backend in Backend::all() {
        for (layout, found) in products(backend, shape, &a, &b) {
            let at = first_difference(&found, &want);
            assert_eq!(at.map(|at| (at, found[at], want[at])), None, "{backend} {layout} {shape:?}");
        }
    }
}

#[test]
fn every_edge_of_a_tile_gives_the_same_bits() {
    // Lanes are 8 or 16, a tile is 6 or 14 rows by 2 registers.
    let columns = [1, 7, 8, 9, 15, 16, 17, 23, 31, 32, 33, 47, 63, 64, 65, 97];
    for rows in [1, 2, 5, 6, 7, 8, 13, 14, 15, 16, 27, 28, 29, 43] {
        columns.iter().for_each(|columns| assert_all_equal([rows, 19, *columns]));
    }
}

#[test]
fn every_edge_of_a_block_gives_the_same_bits() {
    // Blocks are 768 of k, 280 rows and 3,072 columns.
    for inner in [0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 127, 767, 768, 769, 1535, 1539, 2311] {
        assert_all_equal([15, inner, 35]);
    }
    for rows in [279, 280, 281, 293, 294, 295, 563] {
        assert_all_equal([rows, 21, 67]);
    }
    for columns in [3071, 3072, 3073, 6151] {
        assert_all_equal([17, 5, columns]);
    }
    // More than one block of everything.
    assert_all_equal([301, 771, 41]);
    assert_all_equal([283, 3, 3079]);
    // Panels that are packed beside the tiles of the one before: into the room of two, and, where a second block of
    // rows needs them all again, into rooms of their own; one round of k and many; by one strip and by some.
    for shape in [[3, 777, 161], [17, 5, 163], [40, 771, 227], [285, 33, 230]] {
        assert_all_equal(shape);
    }
}

#[test]
fn other_orders_of_k_are_found_different() {
    let shape = [15, 1539, 33];
    let [a, b] = [adversarial(15 * 1539, 5), adversarial(1539 * 33, 6)];
    let ascending: Vec<usize> = (0..1539).collect();
    let cut = |size: usize| ascending.chunks(size).map(<[usize]>::to_vec).collect::<Vec<_>>();
    let descending =
        |size: usize| ascending.chunks(size).flat_map(|block| block.iter().rev().copied()).collect();
    for (_, found) in Backend::all().into_iter().flat_map(|backend| products(backend, shape, &a, &b)) {
        let differs =
            |blocks: &[Vec<usize>]| first_difference(&found, &chains(shape, &a, &b, blocks)).is_some();
        assert!(!differs(std::slice::from_ref(&ascending)), "the order of the profile");
        assert!(differs(&cut(513)), "blocks summed apart, then added");
        assert!(differs(&cut(768)), "blocks summed apart, then added");
        assert!(differs(&[descending(513)]), "k descending within a block");
        assert!(differs(&[descending(2)]), "neighbouring k swapped");
    }
}

#[test]
fn a_chain_that_ends_in_minus_zero_keeps_its_sign() {
    // A product below the smallest subnormal leaves -0 in the accumulator; a padded k would make it +0.
    for inner in [1, 7, 17, 769] {
        let (a, b) = (vec![-f32::MIN_POSITIVE; 9 * inner], vec![f32::MIN_POSITIVE; inner * 19]);
        for (layout, found) in
            Backend::all().into_iter().flat_map(|backend| products(backend, [9, inner, 19], &a, &b))
        {
            assert_eq!(first_difference(&found, &[-0.0; 9 * 19]), None, "{layout} {inner}");
        }
    }
}

#[test]
fn a_bias_is_one_add_after_the_last_block() {
    for shape @ [rows, inner, columns] in [[7, 0, 19], [15, 40, 33], [14, 768, 32], [29, 1539, 49], [3, 5, 8]]
    {
        // Beside chains of wide words a bias is nothing; even ones show it in every output.
        let even = [painted(rows * inner, 9), painted(inner * columns, 10)];
        for ([x, w], bias) in [(factors(shape, 9), wide(columns, 10)), (even, painted(columns, 11))] {
            let plain = chains(shape, &x, &w, &[(0..inner).collect()]);
            let want: Vec<f32> = plain.iter().enumerate().map(|(at, v)| v + bias[at % columns]).collect();
            for backend in Backend::all() {
                let mut out = vec![f32::NAN; rows * columns];
                kernels::linear(backend, &x, View::rows(&w, columns), inner, Some(&bias), columns, &mut out);
                assert_eq!(first_difference(&out, &want), None, "{backend} {shape:?}");
            }
        }
    }
}

#[test]
fn the_number_of_threads_does_not_reach_a_product() {
    // Each is worth seven tasks; four and six are cut both ways where that packs least.
    for shape in [[70, 150, 777], [777, 150, 70], [2, 1000, 4000]] {
        let [a, b] = factors(shape, 11);
        let [(_, want), ..] = products(Backend::REFERENCE, shape, &a, &b);
        for threads in [1, 2, 3, 4, 6, 7] {
            let pool =
                rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool of threads");
            for (layout, found) in pool.install(|| products(Backend::detect(), shape, &a, &b)) {
                assert_eq!(first_difference(&found, &want), None, "{threads} threads {layout} {shape:?}");
            }
        }
    }
}

#[test]
fn the_peak_of_every_backend_can_be_measured() {
    let start = std::time::Instant::now();
    for backend in Backend::all() {
        let peak = kernels::fma_peak(backend, 2, || start.elapsed().as_secs_f64());
        assert!(peak.is_finite() && peak > 0.0, "{backend}: {peak}");
    }
}
