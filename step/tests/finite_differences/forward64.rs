//! The forward of each operation in f64, written from the papers' formulas and from no code of this crate. Plain sums
//! from left to right: in f64 their order is far below what is looked at.

/// [rows, inner] times [inner, columns].
pub fn product(a: &[f64], b: &[f64], inner: usize) -> Vec<f64> {
    let columns = b.len() / inner;
    let entry = |row: &[f64], c: usize| (0..inner).map(|k| row[k] * b[k * columns + c]).sum();
    a.chunks_exact(inner).flat_map(|row| (0..columns).map(move |c| entry(row, c))).collect()
}

/// [rows, columns] to [columns, rows].
pub fn transposed(a: &[f64], columns: usize) -> Vec<f64> {
    (0..columns).flat_map(|c| a.chunks_exact(columns).map(move |row| row[c])).collect()
}

/// x w + bias.
pub fn linear(x: &[f64], w: &[f64], bias: &[f64]) -> Vec<f64> {
    let mut out = product(x, w, w.len() / bias.len());
    out.chunks_exact_mut(bias.len()).for_each(|row| row.iter_mut().zip(bias).for_each(|(y, b)| *y += b));
    out
}

/// Ba, Kiros and Hinton 2016.
pub fn layernorm(x: &[f64], gain: &[f64], bias: &[f64], eps: f64) -> Vec<f64> {
    let channels = gain.len() as f64;
    let row = |x: &[f64]| {
        let mean = x.iter().sum::<f64>() / channels;
        let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / channels;
        let scaled = |c: usize| (x[c] - mean) / (variance + eps).sqrt() * gain[c] + bias[c];
        (0..x.len()).map(scaled).collect::<Vec<_>>()
    };
    x.chunks_exact(gain.len()).flat_map(row).collect()
}

/// Hendrycks and Gimpel 2016, the form with tanh.
pub fn gelu(x: f64) -> f64 {
    let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
    0.5 * x * (1.0 + inner.tanh())
}

/// e^x over its sum.
pub fn softmax(x: &[f64]) -> Vec<f64> {
    let most = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let e: Vec<f64> = x.iter().map(|x| (x - most).exp()).collect();
    let sum: f64 = e.iter().sum();
    e.iter().map(|e| e / sum).collect()
}

/// Vaswani et al. 2017, causal, one head: q, k, v are [T, size].
pub fn attention(q: &[f64], k: &[f64], v: &[f64], size: usize) -> Vec<f64> {
    let mut out = Vec::new();
    for (t, q) in q.chunks_exact(size).enumerate() {
        let score = |k: &[f64]| q.iter().zip(k).map(|(q, k)| q * k).sum::<f64>() / (size as f64).sqrt();
        let p = softmax(&k.chunks_exact(size).take(t + 1).map(score).collect::<Vec<_>>());
        out.extend((0..size).map(|c| p.iter().enumerate().map(|(u, p)| p * v[u * size + c]).sum::<f64>()));
    }
    out
}

/// Mean over rows of -log of the target's probability.
pub fn cross_entropy(logits: &[f64], targets: &[u32]) -> f64 {
    let vocabulary = logits.len() / targets.len();
    let row = |(x, target): (&[f64], &u32)| -softmax(x)[*target as usize].ln();
    logits.chunks_exact(vocabulary).zip(targets).map(row).sum::<f64>() / targets.len() as f64
}

/// Rows of the token table plus rows of the position table.
pub fn embedding(tokens: &[u32], wte: &[f64], wpe: &[f64], times: usize, channels: usize) -> Vec<f64> {
    let entry = |n: usize, c: usize| wte[tokens[n] as usize * channels + c] + wpe[n % times * channels + c];
    (0..tokens.len()).flat_map(|n| (0..channels).map(move |c| entry(n, c))).collect()
}

/// Zhang and Sennrich 2019.
pub fn rmsnorm(x: &[f64], gain: &[f64], eps: f64) -> Vec<f64> {
    let row = |x: &[f64]| {
        let square = x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64;
        x.iter().zip(gain).map(|(x, gain)| x / (square + eps).sqrt() * gain).collect::<Vec<_>>()
    };
    x.chunks_exact(gain.len()).flat_map(row).collect()
}

/// Su et al. 2021, in Hugging Face's pairing: elements i and i + size/2 of a head are a point of the plane, turned by
/// t / theta^(2i/size). Row n of x has position n mod times.
pub fn rope(x: &[f64], theta: f64, times: usize, width: usize, size: usize) -> Vec<f64> {
    let turned = |at: usize| {
        let (row, i) = (at / width % times, at % size % (size / 2));
        let (sin, cos) = (row as f64 / theta.powf(2.0 * i as f64 / size as f64)).sin_cos();
        let is_low = at % size < size / 2;
        if is_low { x[at] * cos - x[at + size / 2] * sin } else { x[at] * cos + x[at - size / 2] * sin }
    };
    (0..x.len()).map(turned).collect()
}

/// Elfwing, Uchibe and Doya 2017: the gate of SwiGLU (Shazeer 2020).
pub fn silu(x: f64) -> f64 {
    x / (1.0 + (-x).exp())
}
