//! What goes over elements, tokens and columns, over an arithmetic.

use super::arithmetic::Arithmetic;
use super::elementary;

/// left + right.
pub fn add<A: Arithmetic>(left: &[f32], right: &[f32], out: &mut [f32]) {
    for ((out, left), right) in out.iter_mut().zip(left).zip(right) {
        *out = A::add(*left, *right);
    }
}

/// GELU of every element.
pub fn gelu<A: Arithmetic>(x: &[f32], y: &mut [f32]) {
    y.iter_mut().zip(x).for_each(|(y, x)| *y = elementary::gelu::<A>(*x));
}

/// Its gradient.
pub fn gelu_backward<A: Arithmetic>(d_y: &[f32], x: &[f32], d_x: &mut [f32]) {
    for ((d_x, x), d_y) in d_x.iter_mut().zip(x).zip(d_y) {
        *d_x = elementary::gelu_backward::<A>(*x, *d_y);
    }
}

/// SwiGLU.
pub fn swiglu<A: Arithmetic>(gate: &[f32], up: &[f32], y: &mut [f32]) {
    for ((y, gate), up) in y.iter_mut().zip(gate).zip(up) {
        *y = A::mul(A::mul(*gate, elementary::sigmoid::<A>(*gate)), *up);
    }
}

/// Its gradients.
pub fn swiglu_backward<A: Arithmetic>(
    d_y: &[f32],
    gate: &[f32],
    up: &[f32],
    d_gate: &mut [f32],
    d_up: &mut [f32],
) {
    for i in 0..d_y.len() {
        let s = elementary::sigmoid::<A>(gate[i]);
        d_up[i] = A::mul(d_y[i], A::mul(gate[i], s));
        let t = A::fma(gate[i], A::sub(1.0, s), 1.0);
        d_gate[i] = A::mul(A::mul(d_y[i], up[i]), A::mul(s, t));
    }
}

/// Rotation of rows of `width` words; `sign` is 1 forward and -1 backward.
pub fn rope<A: Arithmetic>(
    x: &[f32],
    [cos, sin]: [&[f32]; 2],
    half: usize,
    width: usize,
    sign: f32,
    y: &mut [f32],
) {
    let times = cos.len() / half;
    for (n, (x, y)) in x.chunks_exact(width).zip(y.chunks_exact_mut(width)).enumerate() {
        let at = n % times * half;
        for (x, y) in x.chunks_exact(2 * half).zip(y.chunks_exact_mut(2 * half)) {
            for i in 0..half {
                let (x1, x2) = (x[i], x[i + half]);
                let (c, s) = (cos[at + i], sin[at + i] * sign);
                y[i] = A::fma_product(x1, c, -x2, s);
                y[i + half] = A::fma_product(x2, c, x1, s);
            }
        }
    }
}

/// Rows of a token table, plus those of a position table if there is one.
pub fn embedding<A: Arithmetic>(
    tokens: &[u32],
    table: &[f32],
    positions: Option<&[f32]>,
    times: usize,
    channels: usize,
    out: &mut [f32],
) {
    for (n, (out, &token)) in out.chunks_exact_mut(channels).zip(tokens).enumerate() {
        let row = &table[token as usize * channels..][..channels];
        match positions {
            Some(positions) => add::<A>(row, &positions[n % times * channels..][..channels], out),
            None => out.copy_from_slice(row),
        }
    }
}

/// The gradient of a token table.
pub fn embedding_backward<A: Arithmetic>(tokens: &[u32], d_x: &[f32], channels: usize, d_table: &mut [f32]) {
    d_table.fill(0.0);
    for (d_row, &token) in d_x.chunks_exact(channels).zip(tokens) {
        let row = &mut d_table[token as usize * channels..][..channels];
        row.iter_mut().zip(d_row).for_each(|(sum, d)| *sum = A::add(*sum, *d));
    }
}

/// Sums of the rows of each group of `out.len()` words or fewer, from +0: a position table's gradient, a bias's.
pub fn sums_of_rows<A: Arithmetic>(rows: &[f32], width: usize, out: &mut [f32]) {
    out.fill(0.0);
    for row in rows.chunks_exact(width) {
        out.iter_mut().zip(row).for_each(|(sum, d)| *sum = A::add(*sum, *d));
    }
}
