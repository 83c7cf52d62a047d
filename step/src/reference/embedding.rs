//! Token and position embedding.

/// Embedding, forward.
///
/// Shapes    tokens: [rows] (read); wte: [V, C] (read); wpe: [T_max, C] (read); out: [rows, C] (written);
///           row n has position n mod `times`
/// Order     out[n][c] = wte[tokens[n]][c] + wpe[n mod times][c]
/// Rounding  f32 nearest-even, one add
/// Special   a token outside wte is a broken call (the token stream was checked against the vocabulary)
/// Aliasing  none
/// Source    docs/spec/profile.md#embedding
#[inline(always)]
pub fn embedding_forward(
    tokens: &[u32],
    wte: &[f32],
    wpe: &[f32],
    times: usize,
    channels: usize,
    out: &mut [f32],
) {
    for (n, (row, &token)) in out.chunks_exact_mut(channels).zip(tokens).enumerate() {
        let token_row = &wte[token as usize * channels..][..channels];
        let position_row = &wpe[(n % times) * channels..][..channels];
        for c in 0..channels {
            row[c] = token_row[c] + position_row[c];
        }
    }
}

/// Embedding without positions, forward.
///
/// Shapes    tokens: [rows] (read); table: [V, C] (read); out: [rows, C] (written)
/// Order     out[n][c] = table[tokens[n]][c]
/// Rounding  none: a copy
/// Special   a token outside the table is a broken call (the token stream was checked against the vocabulary)
/// Aliasing  none
/// Source    docs/spec/profile.md#embedding
#[inline(always)]
pub fn token_embedding_forward(tokens: &[u32], table: &[f32], channels: usize, out: &mut [f32]) {
    for (row, &token) in out.chunks_exact_mut(channels).zip(tokens) {
        row.copy_from_slice(&table[token as usize * channels..][..channels]);
    }
}

/// Embedding, backward into the token table.
///
/// Shapes    tokens: [rows] (read); d_out: [rows, C] (read); d_wte: [v, C], the rows of the table from `first` on
///           (written)
/// Order     d_wte[v][c] starts at +0; for n ascending with tokens[n] = first + v:
///           d_wte[v][c] = d_wte[v][c] + d_out[n][c]
/// Rounding  f32 nearest-even after every add
/// Special   rows of tokens that do not occur are +0; tokens of other rows are passed over
/// Aliasing  none
/// Source    docs/spec/profile.md#embedding
#[inline(always)]
pub fn embedding_backward_tokens(
    tokens: &[u32],
    d_out: &[f32],
    channels: usize,
    first: usize,
    d_wte: &mut [f32],
) {
    d_wte.fill(0.0);
    let rows = first..first + d_wte.len() / channels;
    for (d_row, &token) in d_out.chunks_exact(channels).zip(tokens) {
        let token = token as usize;
        if !rows.contains(&token) {
            continue;
        }
        let sum = &mut d_wte[(token - first) * channels..][..channels];
        for c in 0..channels {
            sum[c] += d_row[c];
        }
    }
}

/// Embedding, backward into the position table.
///
/// Shapes    d_out: [B, T, C] (read); d_wpe: [T_max, C] (written)
/// Order     every element starts at +0; for b ascending: d_wpe[t][c] = d_wpe[t][c] + d_out[b][t][c]
/// Rounding  f32 nearest-even after every add
/// Special   positions from T on are +0
/// Aliasing  none
/// Source    docs/spec/profile.md#embedding
#[inline(always)]
pub fn embedding_backward_positions(d_out: &[f32], times: usize, channels: usize, d_wpe: &mut [f32]) {
    d_wpe.fill(0.0);
    for sequence in d_out.chunks_exact(times * channels) {
        for (sum, d) in d_wpe.iter_mut().zip(sequence) {
            *sum += d;
        }
    }
}
