//! The operations of a Llama that a GPT-2 does not have.

use crate::case::Case;
use crate::forward64;
use crate::gpt2::{EPS, lines, rows_of, small};
use crate::inputs::{painted, tokens};
use step::number::rotary;
use step::reference::attention::{Head, attention_backward, attention_forward};
use step::reference::embedding::embedding_backward_tokens;
use step::reference::rmsnorm::{rmsnorm_backward_gain, rmsnorm_backward_input, rmsnorm_forward};
use step::reference::rope::rope_backward;
use step::reference::swiglu::swiglu_backward;

pub fn cases() -> Vec<Case> {
    vec![rmsnorm(), rope(), swiglu(), grouped_attention(), token_embedding()]
}

fn rmsnorm() -> Case {
    rmsnorm_with(1.0 / 70.0)
}

/// With another factor than 1/C in the backward pass, to break it.
pub fn rmsnorm_with(inv_c_backward: f32) -> Case {
    let (rows, channels) = (4, 70);
    let (x, gain, d_y) = (painted(rows * channels, 30), painted(channels, 31), painted(rows * channels, 32));
    let (mut y, mut rstd) = (vec![0.0; x.len()], vec![0.0; rows]);
    rmsnorm_forward(&x, &gain, 1.0 / channels as f32, EPS, &mut y, &mut rstd);
    let (mut d_x, mut d_gain) = (y, gain.clone());
    rmsnorm_backward_input(&d_y, &x, &gain, &rstd, inv_c_backward, &mut d_x);
    rmsnorm_backward_gain(&d_y, &x, &rstd, channels, 0, &mut d_gain);
    Case {
        kernels: &["rmsnorm_backward_input", "rmsnorm_backward_gain"],
        inputs: vec![x, gain],
        forward: Box::new(|at| forward64::rmsnorm(&at[0], &at[1], f64::from(EPS))),
        d_out: d_y,
        gradients: vec![(0, d_x), (1, d_gain)],
    }
}

fn rope() -> Case {
    let (batches, times, heads, size) = (2, 9, 3, 8);
    let (half, width) = (size / 2, heads * size);
    let tables = rotary::tables(10_000.0, times as u64, size as u64);
    let [cos, sin] = tables.map(|words| words.into_iter().map(f32::from_bits).collect::<Vec<_>>());
    let words = batches * times * width;
    let (x, d_y) = (painted(words, 33), painted(words, 34));
    let mut d_x = vec![f32::NAN; words];
    rope_backward(&d_y, &cos, &sin, half, width, &mut d_x);
    Case {
        kernels: &["rope_backward"],
        inputs: vec![x],
        forward: Box::new(move |at| forward64::rope(&at[0], 10_000.0, times, width, size)),
        d_out: d_y,
        gradients: vec![(0, d_x)],
    }
}

fn swiglu() -> Case {
    // Through both flat ends and the dip of the gate.
    let gate: Vec<f32> = (-80..=80).map(|i| i as f32 / 8.0).chain(painted(100, 35)).collect();
    let (up, d_y) = (painted(gate.len(), 36), painted(gate.len(), 37));
    let (mut d_gate, mut d_up) = (gate.clone(), up.clone());
    swiglu_backward(&d_y, &gate, &up, &mut d_gate, &mut d_up);
    Case {
        kernels: &["swiglu_backward"],
        inputs: vec![gate, up],
        forward: Box::new(|at| {
            at[0].iter().zip(&at[1]).map(|(gate, up)| forward64::silu(*gate) * up).collect()
        }),
        d_out: d_y,
        gradients: vec![(0, d_gate), (1, d_up)],
    }
}

/// Two heads of queries over one head of keys and values, whose gradient is the sum of theirs.
fn grouped_attention() -> Case {
    let (times, size) = (33, 6);
    let words = times * size;
    let (q, k, v, d_o) = (small(2 * words, 38), small(words, 39), painted(words, 40), painted(2 * words, 41));
    let scale = (1.0 / (size as f64).sqrt()) as f32;
    let [mut o, mut d_q] = [(); 2].map(|()| vec![f32::NAN; 2 * words]);
    let [mut d_k, mut d_v] = [(); 2].map(|()| vec![0.0; words]);
    let [d_k_lines, d_v_lines] = &mut [&mut d_k, &mut d_v].map(|d| lines(d, size));
    for at in [0..words, words..2 * words] {
        let head =
            Head { q: rows_of(&q[at.clone()], size), k: rows_of(&k, size), v: rows_of(&v, size), scale };
        let [mut max, mut sum] = [(); 2].map(|()| vec![0.0; times]);
        attention_forward(head, 0, &mut lines(&mut o[at.clone()], size), &mut max, &mut sum);
        let (o, d_o, d_q) =
            (rows_of(&o[at.clone()], size), rows_of(&d_o[at.clone()], size), &mut lines(&mut d_q[at], size));
        attention_backward(head, o, d_o, &max, &sum, d_q, d_k_lines, d_v_lines);
    }
    Case {
        kernels: &["attention_backward"],
        inputs: vec![q, k, v],
        forward: Box::new(move |at| {
            let heads = at[0].chunks_exact(words);
            heads.flat_map(|q| forward64::attention(q, &at[1], &at[2], size)).collect()
        }),
        d_out: d_o,
        gradients: vec![(0, d_q), (1, d_k), (2, d_v)],
    }
}

fn token_embedding() -> Case {
    let (vocabulary, channels) = (7, 12);
    let ids = tokens(20, vocabulary as u32, 42);
    let (table, d_out) = (painted(vocabulary * channels, 43), painted(ids.len() * channels, 44));
    let mut d_table = table.clone();
    embedding_backward_tokens(&ids, &d_out, channels, 0, &mut d_table);
    let none = vec![0.0; channels];
    Case {
        kernels: &["embedding_backward_tokens"],
        inputs: vec![table],
        forward: Box::new(move |at| forward64::embedding(&ids, &at[0], &none, 1, channels)),
        d_out,
        gradients: vec![(0, d_table)],
    }
}
