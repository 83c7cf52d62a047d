//! Every kernel over rows and elements, on every backend, at the lengths where registers and blocks begin and end:
//! the bits of the reference, with values that hurt.

mod inputs;

use inputs::{adversarial, assert_bits, painted, tokens};
use step::dispatch::{self, Backend};
use step::kernels;
use step::number::philox::philox4x32_10;
use step::reference::adamw::AdamwConstants;
use step::reference::{clip, embedding, norm, reduce, residual, rmsnorm};

const LENGTHS: [usize; 25] =
    [0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 63, 64, 65, 97, 127, 128, 129, 251, 255, 257, 1009, 4099];

/// Any bits at all: every exponent, subnormals, zeros, infinities and NaNs.
fn hostile(count: usize, seed: u32) -> Vec<f32> {
    let ends = [0x7f80_0000, 0xff80_0000, 0x7fc0_0000, 0xffc1_2345, 0, 0x8000_0000, 1, 0x8000_0001];
    let word = |i: usize| philox4x32_10([i as u32, 3, 0, seed], [7, 9]);
    let pick =
        |[bits, choice, ..]: [u32; 4]| if choice % 16 == 0 { ends[choice as usize / 16 % 8] } else { bits };
    (0..count).map(|i| f32::from_bits(pick(word(i)))).collect()
}

/// As `run` gives it on the reference, so on every backend; `run` takes a length and four times as many words.
fn same(name: &str, run: impl Fn(Backend, usize, &[f32]) -> Vec<f32>) {
    for n in LENGTHS {
        for (kind, x) in [painted(4 * n, 1), adversarial(4 * n, 2), hostile(4 * n, 3)].iter().enumerate() {
            let want = run(Backend::REFERENCE, n, x);
            for backend in Backend::all() {
                assert_bits(
                    &run(backend, n, x),
                    &want,
                    &format!("{name} on {backend}, {n} words of kind {kind}"),
                );
            }
        }
    }
}

#[test]
fn rows_reduce_to_the_same_bits() {
    same("warp32_sum", |backend, n, x| vec![dispatch::warp32_sum(backend, &x[..n])]);
    same("warp32_dot", |backend, n, x| vec![dispatch::warp32_dot(backend, &x[..n], &x[n..2 * n])]);
    same("warp32_dot of one row", |backend, n, x| vec![dispatch::warp32_dot(backend, &x[..n], &x[..n])]);
    same("warp32_max", |backend, n, x| vec![dispatch::warp32_max(backend, &x[..n])]);
    same("square_sum_chunk", |backend, n, x| {
        let chunk = |columns| dispatch::square_sum_chunk(backend, x, columns);
        vec![chunk(n.max(1)), chunk(1), chunk(3)]
    });
    same("scaled_square_sum_chunk", |backend, n, x| {
        let mut scaled = x.to_vec();
        let sum = dispatch::scaled_square_sum_chunk(backend, &mut scaled, n.max(1), 0.3);
        scaled.push(sum);
        scaled
    });
    same("mean_loss", |backend, _, x| vec![dispatch::mean_loss(backend, x, 0.3)]);
}

#[test]
fn a_maximum_keeps_the_first_of_two_zeros_and_passes_over_a_nan() {
    for backend in Backend::all() {
        for at in 0..32 {
            let max = |first: f32, second: f32| {
                let mut x = vec![-1.0; 71];
                (x[at], x[at + 32]) = (first, second);
                dispatch::warp32_max(backend, &x).to_bits()
            };
            assert_eq!([max(0.0, -0.0), max(-0.0, 0.0)], [0, 0x8000_0000], "{backend}: lane {at}");
            assert_eq!(
                [max(f32::NAN, 2.0), max(2.0, f32::NAN)],
                [2.0_f32.to_bits(); 2],
                "{backend}: lane {at}"
            );
        }
    }
}

#[test]
fn another_order_gives_other_bits_on_every_backend() {
    let rows: Vec<Vec<f32>> = (0..20).map(|seed| painted(130, 40 + seed)).collect();
    let reversed = |x: &Vec<f32>| x.iter().rev().copied().collect::<Vec<f32>>();
    // As if there were 16 lanes: every second block of 16 changes places with its neighbour's other half.
    let narrow = |x: &Vec<f32>| (0..x.len()).map(|i| x[(i ^ 16).min(x.len() - 1)]).collect::<Vec<f32>>();
    let half = |x: &Vec<f32>| [&x[64..], &x[..64]].concat();
    for backend in Backend::all() {
        let sum = |x: &Vec<f32>| dispatch::warp32_sum(backend, x).to_bits();
        let dot = |x: &Vec<f32>| dispatch::warp32_dot(backend, x, x).to_bits();
        for mutant in [&reversed as &dyn Fn(&Vec<f32>) -> Vec<f32>, &half] {
            assert!(rows.iter().any(|x| sum(x) != sum(&mutant(x))), "{backend}: sum");
            assert!(rows.iter().any(|x| dot(x) != dot(&mutant(x))), "{backend}: dot");
        }
        // Lanes i and i + 16 meet first, and an add does not know left from right.
        assert!(
            rows.iter().all(|x| sum(&x[..128].to_vec()) == sum(&narrow(&x[..128].to_vec()))),
            "{backend}"
        );
        let sums = |x: &[f32], columns: usize| kernels::square_sums(backend, &[(x, columns)])[0].to_bits();
        let x = painted(3000 * 2, 50);
        assert_ne!(sums(&x, 2), sums(&x, 1), "{backend}: rows of another length");
        assert_ne!(sums(&x, 2), clip::square_sum_chunk(&x, 2).to_bits(), "{backend}: one chunk for all rows");
        assert_eq!(kernels::square_sum(backend, &x, 2).to_bits(), sums(&x, 2), "{backend}: a tensor alone");
    }
}

#[test]
fn elements_come_to_the_same_bits() {
    same("gelu", |backend, n, x| {
        let (mut y, mut d_x) = (vec![9.0; n], vec![9.0; n]);
        dispatch::gelu_forward(backend, &x[..n], &mut y);
        dispatch::gelu_backward_input(backend, &x[..n], &x[n..2 * n], &mut d_x);
        [y, d_x].concat()
    });
    same("residual", |backend, n, x| {
        let (mut out, mut left) = (vec![9.0; n], x[..n].to_vec());
        dispatch::add(backend, &x[..n], &x[n..2 * n], &mut out);
        dispatch::add_in_place(backend, &mut left, &x[n..2 * n]);
        dispatch::scale_in_place(backend, &mut left, 0.3);
        [out, left].concat()
    });
    let constants = AdamwConstants {
        beta1: 0.9,
        one_minus_beta1: 0.1,
        beta2: 0.95,
        one_minus_beta2: 0.05,
        eps: 1e-8,
        correction1: 10.0,
        correction2: 20.0,
        rate: 3e-4,
        decay: 0.9999,
    };
    same("adamw", |backend, n, x| {
        let [mut p, mut m, mut v] = [0, 1, 2].map(|part| x[part * n..(part + 1) * n].to_vec());
        dispatch::adamw(backend, constants, 0.7, &x[3 * n..], &mut p, &mut m, &mut v);
        [p, m, v].concat()
    });
}

#[test]
fn normalised_rows_come_to_the_same_bits() {
    same("layernorm", |backend, n, x| {
        if n == 0 {
            return vec![];
        }
        let (gain, bias, inv_c) = (&x[..n], &x[n..2 * n], 1.0 / n as f32);
        let (mut y, mut d_x) = (vec![9.0; 4 * n], vec![9.0; 4 * n]);
        let (mut mean, mut rstd) = (vec![9.0; 4], vec![9.0; 4]);
        kernels::layernorm_forward(backend, x, gain, bias, inv_c, 1e-5, &mut y, &mut mean, &mut rstd);
        kernels::layernorm_backward_input(backend, &y, x, gain, &mean, &rstd, inv_c, &mut d_x);
        let (mut d_gain, mut d_bias) = (vec![9.0; n], vec![9.0; n]);
        kernels::layernorm_backward_parameters(backend, &y, x, &mean, &rstd, &mut d_gain, &mut d_bias);
        [y, d_x, mean, rstd, d_gain, d_bias].concat()
    });
}

#[test]
fn cross_entropy_comes_to_the_same_bits() {
    for vocabulary in [1, 15, 16, 17, 33, 50_257] {
        let rows = 3;
        let targets = tokens(rows, vocabulary as u32, 5);
        let kinds =
            [painted(rows * vocabulary, 6), adversarial(rows * vocabulary, 7), hostile(rows * vocabulary, 8)];
        for x in kinds {
            let run = |backend: Backend| {
                let [mut loss, mut max, mut sum] = [(); 3].map(|()| vec![9.0; rows]);
                let mut d = vec![9.0; x.len()];
                kernels::cross_entropy_forward(
                    backend, &x, &targets, vocabulary, &mut loss, &mut max, &mut sum,
                );
                kernels::cross_entropy_backward(backend, &x, &targets, &max, &sum, vocabulary, 0.3, &mut d);
                [loss, max, sum, d].concat()
            };
            let want = run(Backend::REFERENCE);
            for backend in Backend::all() {
                assert_bits(&run(backend), &want, &format!("{backend}: vocabulary of {vocabulary}"));
            }
        }
    }
}

/// Columns, and rows of a table, go to tasks in parts: the parts together are the whole.
#[test]
fn columns_in_parts_are_the_columns_of_the_whole() {
    let rows = 37;
    for width in [1, 31, 255, 256, 257, 511, 512, 513, 1000] {
        let (x, d_y) = (adversarial(rows * width, 9), painted(rows * width, 10));
        let (mean, rstd) = (painted(rows, 11), painted(rows, 12));
        let [mut sums, mut d_gain, mut d_bias, mut d_rms] = [(); 4].map(|()| vec![9.0; width]);
        reduce::column_sums(&x, width, 0, &mut sums);
        norm::layernorm_backward_parameters(&d_y, &x, &mean, &rstd, width, 0, &mut d_gain, &mut d_bias);
        rmsnorm::rmsnorm_backward_gain(&d_y, &x, &rstd, width, 0, &mut d_rms);
        let want = [sums, d_gain, d_bias, d_rms].concat();
        for backend in Backend::all() {
            let [mut sums, mut d_gain, mut d_bias, mut d_rms] = [(); 4].map(|()| vec![9.0; width]);
            kernels::column_sums(backend, &x, &mut sums);
            kernels::layernorm_backward_parameters(backend, &d_y, &x, &mean, &rstd, &mut d_gain, &mut d_bias);
            kernels::rmsnorm_backward_gain(backend, &d_y, &x, &rstd, &mut d_rms);
            assert_bits(
                &[sums, d_gain, d_bias, d_rms].concat(),
                &want,
                &format!("{backend}: {width} columns"),
            );
        }
    }
    // A task owns 2^20 words of a table.
    let (channels, vocabulary) = (700, 3100);
    let mut ids = tokens(200, vocabulary, 13);
    ids.extend([0, 1497, 1498, 2995, 2996, vocabulary - 1, 1497, 0]);
    let d = adversarial(ids.len() * channels, 14);
    let mut want = vec![9.0; vocabulary as usize * channels];
    embedding::embedding_backward_tokens(&ids, &d, channels, 0, &mut want);
    for backend in Backend::all() {
        let mut found = vec![9.0; want.len()];
        kernels::embedding_backward_tokens(backend, &ids, &d, channels, &mut found);
        assert_bits(&found, &want, &format!("{backend}: table"));
    }
}

#[test]
fn tensors_summed_together_are_tensors_summed_one_by_one() {
    let shapes = [(1, 5000), (2500, 3), (1024, 2), (1025, 2), (1, 1), (3000, 1)];
    let tensors: Vec<Vec<f32>> =
        shapes.iter().zip(20..).map(|((rows, columns), seed)| adversarial(rows * columns, seed)).collect();
    let plain = |x: &[f32], columns: usize| {
        let chunks: Vec<f32> =
            x.chunks(1024 * columns).map(|chunk| clip::square_sum_chunk(chunk, columns)).collect();
        clip::ascending_sum(&chunks)
    };
    let with = |factor: f32| -> (Vec<Vec<f32>>, Vec<f32>) {
        let mut scaled = tensors.clone();
        scaled.iter_mut().for_each(|x| residual::scale_in_place(x, factor));
        let sums = scaled.iter().zip(shapes).map(|(x, (_, columns))| plain(x, columns)).collect();
        (scaled, sums)
    };
    for backend in Backend::all() {
        let all: Vec<(&[f32], usize)> =
            tensors.iter().zip(shapes).map(|(x, (_, columns))| (&x[..], columns)).collect();
        assert_bits(&kernels::square_sums(backend, &all), &with(1.0).1, &format!("{backend}: sums"));
        let alone: Vec<f32> =
            all.iter().map(|(x, columns)| kernels::square_sum(backend, x, *columns)).collect();
        assert_bits(&alone, &with(1.0).1, &format!("{backend}: sums of single tensors"));
        let mut scaled = tensors.clone();
        let all = scaled.iter_mut().zip(shapes).map(|(x, (_, columns))| (&mut x[..], columns)).collect();
        let sums = kernels::scaled_square_sums(backend, all, 0.3);
        let (want, want_sums) = with(0.3);
        assert_bits(&sums, &want_sums, &format!("{backend}: sums of scaled tensors"));
        assert_bits(&scaled.concat(), &want.concat(), &format!("{backend}: scaled tensors"));
    }
}
