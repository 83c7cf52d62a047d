//! Every kernel against a plain double or triple loop written from the profile's text.

mod inputs;

use inputs::{assert_bits, both, painted, tokens};
use step::dispatch::Backend;
use step::kernels::{self, AttentionShape};
use step::number::elementary::{exp, log};
use step::reference::adamw::{AdamwConstants, adamw};
use step::reference::matmul::View;
use step::reference::{clip, embedding, norm, reduce, residual};

/// warp32 written as the text says it: an array of lanes and an index for everything.
fn plain_warp32(
    n: usize,
    start: f32,
    step: impl Fn(f32, usize) -> f32,
    join: impl Fn(f32, f32) -> f32,
) -> f32 {
    let mut lane = vec![start; 32];
    for i in 0..n {
        lane[i % 32] = step(lane[i % 32], i);
    }
    for s in [16, 8, 4, 2, 1] {
        let before = lane.clone();
        for i in 0..s {
            lane[i] = join(before[i], before[i + s]);
        }
    }
    lane[0]
}

fn plain_sum(x: &[f32]) -> f32 {
    plain_warp32(x.len(), 0.0, |acc, i| acc + x[i], |a, b| a + b)
}

fn plain_dot(a: &[f32], b: &[f32]) -> f32 {
    plain_warp32(a.len(), 0.0, |acc, i| a[i].mul_add(b[i], acc), |a, b| a + b)
}

fn plain_max(x: &[f32]) -> f32 {
    let max = |a: f32, b: f32| if b > a { b } else { a };
    plain_warp32(x.len(), f32::NEG_INFINITY, |acc, i| max(acc, x[i]), max)
}

/// The chain of one output, over whatever k gives.
fn chain(inner: impl Iterator<Item = (f32, f32)>) -> f32 {
    inner.fold(0.0, |acc, (a, b)| a.mul_add(b, acc))
}

const LENGTHS: [usize; 15] = [0, 1, 2, 15, 16, 31, 32, 33, 63, 64, 65, 95, 96, 128, 1000];

#[test]
fn rows_reduce_in_the_order_of_the_text() {
    for n in LENGTHS {
        for (x, y) in both(n, 1).iter().zip(both(n, 2)) {
            assert_bits(&[reduce::warp32_sum(x)], &[plain_sum(x)], &format!("sum of {n}"));
            assert_bits(&[reduce::warp32_dot(x, &y)], &[plain_dot(x, &y)], &format!("dot of {n}"));
            assert_bits(&[reduce::warp32_max(x)], &[plain_max(x)], &format!("max of {n}"));
        }
    }
    assert_eq!(reduce::warp32_sum(&[-0.0]).to_bits(), 0, "+0 + -0 is +0");
    let with = |first: f32, second: f32| {
        let mut x = vec![-1.0; 40];
        (x[3], x[35]) = (first, second);
        reduce::warp32_max(&x).to_bits()
    };
    assert_eq!([with(0.0, -0.0), with(-0.0, 0.0)], [0, 0x8000_0000], "of two zeros the first stays");
    assert_eq!([with(f32::NAN, 2.0), with(2.0, f32::NAN)], [2.0_f32.to_bits(); 2], "a NaN is passed over");
}

#[test]
fn a_permuted_order_gives_other_bits() {
    // If these mutants agreed with the kernels, no test of order in this file would mean anything.
    let (rows, inner, columns) = (3, 70, 17);
    let [a, b] = [inputs::adversarial(rows * inner, 3), inputs::adversarial(inner * columns, 4)];
    let mut right = vec![0.0; rows * columns];
    kernels::matmul(
        Backend::SCALAR,
        View::rows(&a, inner),
        View::rows(&b, columns),
        inner,
        columns,
        &mut right,
    );
    let mutant = |order: &dyn Fn(usize) -> usize| -> Vec<f32> {
        let outputs = (0..rows * columns).map(|at| (at / columns, at % columns));
        outputs
            .map(|(r, c)| chain((0..inner).map(order).map(|k| (a[r * inner + k], b[k * columns + c]))))
            .collect()
    };
    assert_bits(&right, &mutant(&|k| k), "the unpermuted mutant");
    let differs =
        |other: Vec<f32>| right.iter().zip(&other).filter(|(a, b)| a.to_bits() != b.to_bits()).count();
    assert!(differs(mutant(&|k| inner - 1 - k)) > 0, "k descending");
    assert!(differs(mutant(&|k| k ^ 1)) > 0, "neighbouring k swapped");

    // One sum may agree by luck, twenty do not.
    let x = painted(20 * 70, 5);
    let differs = |kernel: &dyn Fn(&[f32]) -> f32, mutant: &dyn Fn(&[f32]) -> f32| {
        x.chunks(70).any(|row| kernel(row).to_bits() != mutant(row).to_bits())
    };
    let sequential = |x: &[f32]| x.iter().fold(0.0_f32, |acc, x| acc + x);
    let descending = |x: &[f32]| plain_warp32(x.len(), 0.0, |acc, i| acc + x[x.len() - 1 - i], |a, b| a + b);
    let unfused = |x: &[f32]| plain_warp32(x.len(), 0.0, |acc, i| acc + x[i] * x[i], |a, b| a + b);
    assert!(differs(&reduce::warp32_sum, &sequential), "one chain");
    assert!(differs(&reduce::warp32_sum, &descending), "descending lanes");
    assert!(differs(&|x| reduce::warp32_dot(x, x), &unfused), "two roundings where the profile has one");
}

#[test]
fn every_output_of_a_product_is_one_ascending_chain() {
    for (rows, inner, columns) in
        [(1, 1, 1), (6, 5, 16), (7, 33, 17), (13, 64, 48), (2, 0, 3), (200, 9, 31), (5, 700, 1)]
    {
        for (a, b) in both(rows * inner, 6).iter().zip(both(inner * columns, 7)) {
            let want: Vec<f32> = (0..rows * columns)
                .map(|at| {
                    chain((0..inner).map(|k| (a[at / columns * inner + k], b[k * columns + at % columns])))
                })
                .collect();
            let mut out = vec![f32::NAN; rows * columns];
            let (a_t, b_t) = (transpose(a, rows, inner), transpose(&b, inner, columns));
            for backend in Backend::all() {
                kernels::matmul(
                    backend,
                    View::rows(a, inner),
                    View::rows(&b, columns),
                    inner,
                    columns,
                    &mut out,
                );
                assert_bits(&out, &want, "plain by plain");
                kernels::matmul(
                    backend,
                    View::rows(a, inner),
                    View::transposed(&b_t, inner),
                    inner,
                    columns,
                    &mut out,
                );
                assert_bits(&out, &want, "plain by transposed");
                kernels::matmul(
                    backend,
                    View::transposed(&a_t, rows),
                    View::rows(&b, columns),
                    inner,
                    columns,
                    &mut out,
                );
                assert_bits(&out, &want, "transposed by plain");
            }
        }
    }
}

fn transpose(x: &[f32], rows: usize, columns: usize) -> Vec<f32> {
    (0..rows * columns).map(|at| x[at % rows * columns + at / rows]).collect()
}

#[test]
fn a_bias_is_one_add_after_the_product() {
    let (rows, inner, columns) = (5, 40, 33);
    let (x, w, bias) = (painted(rows * inner, 8), painted(inner * columns, 9), painted(columns, 10));
    let mut plain = vec![0.0; rows * columns];
    kernels::matmul(
        Backend::SCALAR,
        View::rows(&x, inner),
        View::rows(&w, columns),
        inner,
        columns,
        &mut plain,
    );
    let want: Vec<f32> = plain.iter().enumerate().map(|(at, v)| v + bias[at % columns]).collect();
    let mut out = vec![0.0; rows * columns];
    kernels::linear(Backend::SCALAR, &x, View::rows(&w, columns), inner, Some(&bias), columns, &mut out);
    assert_bits(&out, &want, "bias after");
    let mut sums = vec![f32::NAN; columns];
    reduce::column_sums(&plain, columns, 0, &mut sums);
    let want: Vec<f32> =
        (0..columns).map(|c| (0..rows).fold(0.0, |acc, r| acc + plain[r * columns + c])).collect();
    assert_bits(&sums, &want, "bias gradient");
}

#[test]
fn layer_normalisation_follows_the_text() {
    for (rows, channels) in [(1, 1), (3, 31), (4, 64), (130, 200)] {
        let (x, gain, bias, d_y) = (
            painted(rows * channels, 11),
            painted(channels, 12),
            painted(channels, 13),
            painted(rows * channels, 14),
        );
        let (inv_c, eps) = (1.0 / channels as f32, 1e-5_f32);
        let words = rows * channels;
        let [mut y, mut d_x, mut want_y, mut want_d] = [(); 4].map(|_| vec![0.0; words]);
        let [mut mean, mut rstd] = [(); 2].map(|_| vec![0.0; rows]);
        kernels::layernorm_forward(
            Backend::detect(),
            &x,
            &gain,
            &bias,
            inv_c,
            eps,
            &mut y,
            &mut mean,
            &mut rstd,
        );
        kernels::layernorm_backward_input(Backend::detect(), &d_y, &x, &gain, &mean, &rstd, inv_c, &mut d_x);
        let (mut want_gain, mut want_bias) = (vec![0.0_f32; channels], vec![0.0_f32; channels]);
        for r in 0..rows {
            let row = r * channels..(r + 1) * channels;
            let (x, d_y) = (&x[row.clone()], &d_y[row.clone()]);
            let mean = plain_sum(x) * inv_c;
            let d: Vec<f32> = x.iter().map(|x| x - mean).collect();
            let rstd = 1.0 / (plain_dot(&d, &d) * inv_c + eps).sqrt();
            let xhat: Vec<f32> = d.iter().map(|d| d * rstd).collect();
            let dyg: Vec<f32> = (0..channels).map(|c| d_y[c] * gain[c]).collect();
            let (m1, m2) = (plain_sum(&dyg) * inv_c, plain_dot(&dyg, &xhat) * inv_c);
            for c in 0..channels {
                want_y[row.start + c] = xhat[c].mul_add(gain[c], bias[c]);
                want_d[row.start + c] = rstd * ((dyg[c] - m1) - xhat[c] * m2);
                want_gain[c] = d_y[c].mul_add(xhat[c], want_gain[c]);
                want_bias[c] += d_y[c];
            }
        }
        assert_bits(&y, &want_y, "y");
        assert_bits(&d_x, &want_d, "d_x");
        let (mut d_gain, mut d_bias) = (vec![9.0; channels], vec![9.0; channels]);
        norm::layernorm_backward_parameters(&d_y, &x, &mean, &rstd, channels, 0, &mut d_gain, &mut d_bias);
        assert_bits(&d_gain, &want_gain, "d_gain");
        assert_bits(&d_bias, &want_bias, "d_bias");
    }
}

#[test]
fn attention_follows_the_text() {
    for (batches, times, heads, size) in [(1, 1, 1, 1), (2, 5, 3, 4), (1, 70, 2, 16), (2, 33, 1, 40)] {
        let channels = heads * size;
        let scale = 1.0 / (size as f32).sqrt();
        let shape = AttentionShape { batches, times, heads, kv_heads: heads, head_size: size, scale };
        let rows = batches * times;
        let (qkv, d_o) = (painted(rows * 3 * channels, 15), painted(rows * channels, 16));
        let (mut o, mut d_qkv) = (vec![0.0; rows * channels], vec![0.0; rows * 3 * channels]);
        let [mut max, mut sum] = [(); 2].map(|_| vec![0.0; batches * heads * times]);
        kernels::attention_forward(Backend::detect(), shape, &qkv, &mut o, &mut max, &mut sum);
        kernels::attention_backward(Backend::detect(), shape, &qkv, &o, &d_o, &max, &sum, &mut d_qkv);
        let mut want_d = vec![0.0_f32; d_qkv.len()];
        for (b, h) in (0..batches).flat_map(|b| (0..heads).map(move |h| (b, h))) {
            let at = |part: usize, t: usize, c: usize| {
                (b * times + t) * 3 * channels + part * channels + h * size + c
            };
            let out_at = |t: usize, c: usize| (b * times + t) * channels + h * size + c;
            for t in 0..times {
                let score = |u| chain((0..size).map(|c| (qkv[at(0, t, c)], qkv[at(1, u, c)]))) * scale;
                let s: Vec<f32> = (0..=t).map(score).collect();
                let m = plain_max(&s);
                let e: Vec<f32> = s.iter().map(|s| exp(s - m)).collect();
                let z = plain_sum(&e);
                let p: Vec<f32> = e.iter().map(|e| e / z).collect();
                assert_bits(
                    &[max[(b * heads + h) * times + t], sum[(b * heads + h) * times + t]],
                    &[m, z],
                    "m, z",
                );
                let d_row: Vec<f32> = (0..size).map(|c| d_o[out_at(t, c)]).collect();
                let o_row: Vec<f32> = (0..size).map(|c| o[out_at(t, c)]).collect();
                let want_o: Vec<f32> =
                    (0..size).map(|c| chain((0..=t).map(|u| (p[u], qkv[at(2, u, c)])))).collect();
                assert_bits(&o_row, &want_o, "o");
                let d = plain_dot(&d_row, &o_row);
                for u in 0..=t {
                    let dp = chain((0..size).map(|c| (d_row[c], qkv[at(2, u, c)])));
                    let ds = (p[u] * (dp - d)) * scale;
                    for c in 0..size {
                        want_d[at(0, t, c)] = ds.mul_add(qkv[at(1, u, c)], want_d[at(0, t, c)]);
                        want_d[at(1, u, c)] = ds.mul_add(qkv[at(0, t, c)], want_d[at(1, u, c)]);
                        want_d[at(2, u, c)] = p[u].mul_add(d_row[c], want_d[at(2, u, c)]);
                    }
                }
            }
        }
        assert_bits(&d_qkv, &want_d, "d_qkv");
    }
}

#[test]
fn cross_entropy_follows_the_text() {
    for (rows, vocabulary) in [(1, 1), (3, 31), (40, 300)] {
        let (logits, targets) = (painted(rows * vocabulary, 17), tokens(rows, vocabulary as u32, 18));
        let inv_n = 1.0 / rows as f32;
        let [mut loss, mut max, mut sum] = [(); 3].map(|_| vec![0.0; rows]);
        let mut d = vec![0.0; rows * vocabulary];
        let backend = Backend::detect();
        kernels::cross_entropy_forward(backend, &logits, &targets, vocabulary, &mut loss, &mut max, &mut sum);
        kernels::cross_entropy_backward(backend, &logits, &targets, &max, &sum, vocabulary, inv_n, &mut d);
        for r in 0..rows {
            let x = &logits[r * vocabulary..(r + 1) * vocabulary];
            let m = plain_max(x);
            let e: Vec<f32> = x.iter().map(|x| exp(x - m)).collect();
            let z = plain_sum(&e);
            let target = targets[r] as usize;
            assert_bits(&[loss[r]], &[(log(z) + m) - x[target]], "loss");
            let hot = |v: usize| if v == target { 1.0 } else { 0.0 };
            let want: Vec<f32> = (0..vocabulary).map(|v| (e[v] / z - hot(v)) * inv_n).collect();
            assert_bits(&d[r * vocabulary..(r + 1) * vocabulary], &want, "d_logits");
        }
    }
}

#[test]
fn embeddings_add_positions_in_ascending_order() {
    let (batches, times, channels, vocabulary, times_max) = (3, 20, 24, 7, 32);
    let ids = tokens(batches * times, vocabulary, 19);
    let (wte, wpe) = (painted(vocabulary as usize * channels, 20), painted(times_max * channels, 21));
    let d = inputs::adversarial(ids.len() * channels, 22);
    let mut out = vec![0.0; d.len()];
    embedding::embedding_forward(&ids, &wte, &wpe, times, channels, &mut out);
    let (mut d_wte, mut d_wpe) = (vec![9.0; wte.len()], vec![9.0; wpe.len()]);
    embedding::embedding_backward_tokens(&ids, &d, channels, 0, &mut d_wte);
    embedding::embedding_backward_positions(&d, times, channels, &mut d_wpe);
    for c in 0..channels {
        for (n, id) in ids.iter().enumerate() {
            let want = wte[*id as usize * channels + c] + wpe[n % times * channels + c];
            assert_bits(&[out[n * channels + c]], &[want], "out");
        }
        for v in 0..vocabulary as usize {
            let hits = (0..ids.len()).filter(|n| ids[*n] as usize == v);
            assert_bits(
                &[d_wte[v * channels + c]],
                &[hits.fold(0.0, |acc, n| acc + d[n * channels + c])],
                "d_wte",
            );
        }
        for t in 0..times_max {
            let rows = (0..batches).filter(|_| t < times).map(|b| d[(b * times + t) * channels + c]);
            assert_bits(&[d_wpe[t * channels + c]], &[rows.fold(0.0, |acc, d| acc + d)], "d_wpe");
        }
    }
}

#[test]
fn norm_clip_and_update_follow_the_text() {
    let (rows, columns) = (2500, 3);
    for x in both(rows * columns, 23) {
        let row =
            |r: usize| plain_dot(&x[r * columns..(r + 1) * columns], &x[r * columns..(r + 1) * columns]);
        let chunk = |first: usize| (first..(first + 1024).min(rows)).fold(0.0, |acc, r| acc + row(r));
        let want = (0..rows).step_by(1024).fold(0.0, |acc, first| acc + chunk(first));
        assert_bits(&kernels::square_sums(Backend::detect(), &[(&x, columns)]), &[want], "square sum");
    }
    assert_bits(
        &[clip::clip_scale(1.0, 1.0, 1e-6), clip::clip_scale(0.5, f32::INFINITY, 1e-6)],
        &[1.0, 1.0],
        "no clip",
    );
    assert_bits(&[clip::clip_scale(4.0, 1.0, 1e-6)], &[1.0 / (4.0 + 1e-6)], "clip");

    let c = AdamwConstants {
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
    let (g, p, m) = (inputs::adversarial(100, 24), painted(100, 25), painted(100, 26));
    let v: Vec<f32> = painted(100, 27).iter().map(|v| v.abs()).collect();
    let (mut new_p, mut new_m, mut new_v) = (p.clone(), m.clone(), v.clone());
    adamw(c, 0.25, &g, &mut new_p, &mut new_m, &mut new_v);
    for i in 0..100 {
        let scaled = g[i] * 0.25;
        let want_m = c.beta1.mul_add(m[i], c.one_minus_beta1 * scaled);
        let want_v = c.beta2.mul_add(v[i], c.one_minus_beta2 * (scaled * scaled));
        let upd = (want_m * c.correction1) / ((want_v * c.correction2).sqrt() + c.eps);
        let want_p = (-c.rate).mul_add(upd, p[i] * c.decay);
        assert_bits(&[new_p[i], new_m[i], new_v[i]], &[want_p, want_m, want_v], "adamw");
    }
    let mut sum = vec![0.0; 100];
    residual::add(&g, &p, &mut sum);
    assert_bits(&sum, &(0..100).map(|i| g[i] + p[i]).collect::<Vec<_>>(), "residual");
}
