//! The products of attention, in register tiles: each lane is one output's chain, and a chain has exactly its links.
//!
//! Keys u and queries t of a block meet in a triangle u <= t. Outputs that have a link for every step of a tile's
//! loop take it together; the links before or after those, which only some rows of a tile have, are taken row by
//! row. Nothing is filled with zeros.

use super::super::vector::Vector;
use std::ops::Range;

/// Queries of a block.
pub const QUERIES: usize = 64;

/// A key's scores, one for each query of a block.
pub type Scores = [f32; QUERIES];

/// Rows of the next tile, of `left` rows: enough chains in flight to hide what an fma takes.
#[inline(always)]
fn next_rows<V: Vector>(left: usize) -> usize {
    let rows = if V::LANES == 16 { 8 } else { 6 };
    match left {
        8 if rows == 6 => 4,
        _ if left >= rows => rows,
        4.. => 4,
        _ => 1,
    }
}

/// `$function::<V, R, W>(arguments)` with R of `$rows`.
macro_rules! of_rows {
    ($rows:expr, $function:ident::<$vector:ident, $wide:literal>($($argument:expr),* $(,)?)) => {
        match $rows {
            8 => $function::<$vector, 8, $wide>($($argument),*),
            6 => $function::<$vector, 6, $wide>($($argument),*),
            4 => $function::<$vector, 4, $wide>($($argument),*),
            _ => $function::<$vector, 1, $wide>($($argument),*),
        }
    };
}

/// Calls a tile's function, as `function(row, column, ...)`, over `rows` rows of `pitch` words: two registers wide
/// where they fit, one at the end of a row.
macro_rules! in_tiles {
    ($vector:ident, $rows:expr, $pitch:expr, $function:ident($($argument:expr),*)) => {
        let mut row = 0;
        while row < $rows {
            let tile_rows = next_rows::<$vector>($rows - row);
            let mut c = 0;
            while c < $pitch {
                if c + 2 * $vector::LANES <= $pitch {
                    of_rows!(tile_rows, $function::<$vector, 2>(row, c, $($argument),*));
                    c += 2 * $vector::LANES;
                } else {
                    of_rows!(tile_rows, $function::<$vector, 1>(row, c, $($argument),*));
                    c += $vector::LANES;
                }
            }
            row += tile_rows;
        }
    };
}

/// Words from column c on, W registers.
#[inline(always)]
fn load_line<V: Vector, const W: usize>(line: &[f32], c: usize) -> [V; W] {
    let line = &line[c..c + W * V::LANES];
    let mut registers = [V::splat(0.0); W];
    for w in 0..W {
        registers[w] = V::load(&line[w * V::LANES..]);
    }
    registers
}

/// Rows `row` to `row` + R, from column c on.
#[inline(always)]
fn load_tile<V: Vector, const R: usize, const W: usize>(
    from: &[f32],
    pitch: usize,
    row: usize,
    c: usize,
) -> [[V; W]; R] {
    let mut acc = [[V::splat(0.0); W]; R];
    for (acc, line) in acc.iter_mut().zip(from[row * pitch..].chunks_exact(pitch)) {
        *acc = load_line::<V, W>(line, c);
    }
    acc
}

/// The counterpart of `load_tile`.
#[inline(always)]
fn store_tile<V: Vector, const R: usize, const W: usize>(
    acc: [[V; W]; R],
    to: &mut [f32],
    pitch: usize,
    row: usize,
    c: usize,
) {
    for (acc, line) in acc.iter().zip(to[row * pitch..].chunks_exact_mut(pitch)) {
        let line = &mut line[c..c + W * V::LANES];
        for w in 0..W {
            acc[w].store(&mut line[w * V::LANES..]);
        }
    }
}

/// acc[r][w] goes on with fma(factor(r), line[w], acc), for the rows r of `range`.
#[inline(always)]
fn link<V: Vector, const R: usize, const W: usize>(
    acc: &mut [[V; W]; R],
    range: Range<usize>,
    factor: impl Fn(usize) -> f32,
    line: [V; W],
) {
    for r in range {
        let factor = V::splat(factor(r));
        for w in 0..W {
            acc[r][w] = factor.fma(line[w], acc[r][w]);
        }
    }
}

/// `$body` with `$j` = 1, 2, ... up to `$rows` - 1, each a constant, so that accumulators stay in registers.
macro_rules! triangle {
    ($j:ident, $rows:expr, $body:block) => {
        triangle!(@ $j $rows, $body, 1 2 3 4 5 6 7)
    };
    (@ $j:ident $rows:expr, $body:block, $($step:literal)*) => {$(
        if $step < $rows {
            const $j: usize = $step;
            $body
        }
    )*};
}

/// Where keys and queries meet: before all of the queries, or with the last key the last query's. In the second case
/// the first key is the first query's, or one before it where keys are only stepped over (`over_keys`).
#[derive(Clone, Copy)]
pub struct Corner {
    /// First key.
    pub key: usize,
    /// One past the last key.
    pub key_end: usize,
    /// First query.
    pub query: usize,
    /// One past the last query.
    pub query_end: usize,
}

/// out[u][t] = chain over c ascending, from +0, of fma(rows[u][c], across[c][t], acc), at least for u <= t.
///
/// rows: [keys, pitch], `size` of `pitch` used; across: [size, QUERIES]; out: [keys, QUERIES].
#[inline(always)]
pub fn scores<V: Vector>(
    corner: Corner,
    rows: &[f32],
    pitch: usize,
    size: usize,
    across: &[Scores],
    out: &mut [Scores],
) {
    for lane in (0..corner.query_end - corner.query).step_by(2 * V::LANES) {
        // Keys after the last query of these lanes meet none of them.
        let keys = corner.key_end.min(corner.query + lane + 2 * V::LANES).saturating_sub(corner.key);
        let mut u = 0;
        while u < keys {
            let tile_rows = next_rows::<V>(keys - u);
            of_rows!(tile_rows, score_tile::<V, 2>(u, lane, rows, pitch, size, across, out));
            u += tile_rows;
        }
    }
}

/// Columns of a step of `score_tile`, so that a row's words are looked up once for all of them.
const STEP: usize = 8;

#[inline(always)]
fn score_tile<V: Vector, const R: usize, const W: usize>(
    u: usize,
    lane: usize,
    rows: &[f32],
    pitch: usize,
    size: usize,
    across: &[Scores],
    out: &mut [Scores],
) {
    let rows = &rows[u * pitch..];
    let mut acc = [[V::splat(0.0); W]; R];
    let (steps, rest) = across[..size].as_chunks::<STEP>();
    for (i, across) in steps.iter().enumerate() {
        let mut a = [&[0.0; STEP]; R];
        for r in 0..R {
            a[r] = rows[r * pitch + i * STEP..].first_chunk().expect("attention: a row of a tile");
        }
        for k in 0..STEP {
            link(&mut acc, 0..R, |r| a[r][k], load_line::<V, W>(&across[k], lane));
        }
    }
    for (k, across) in (size - rest.len()..size).zip(rest) {
        link(&mut acc, 0..R, |r| rows[r * pitch + k], load_line::<V, W>(across, lane));
    }
    store_tile(acc, out.as_flattened_mut(), QUERIES, u, lane);
}

/// out[t][c] goes on with fma(factors[u][t], rows[u][c], acc) for u ascending, u <= t.
///
/// factors: [keys, QUERIES]; rows: [keys, pitch]; out: [queries, pitch].
#[inline(always)]
pub fn over_keys<V: Vector>(corner: Corner, factors: &[Scores], rows: &[f32], pitch: usize, out: &mut [f32]) {
    in_tiles!(V, corner.query_end - corner.query, pitch, key_tile(corner, factors, rows, pitch, out));
}

/// Queries t to t + R of the block, W registers of columns.
#[inline(always)]
fn key_tile<V: Vector, const R: usize, const W: usize>(
    t: usize,
    c: usize,
    corner: Corner,
    factors: &[Scores],
    rows: &[f32],
    pitch: usize,
    out: &mut [f32],
) {
    // Every row of the tile has the keys up to the first row's query.
    let common = corner.key_end.min(corner.query + t + 1) - corner.key;
    let mut acc = load_tile::<V, R, W>(out, pitch, t, c);
    let mut steps = factors.iter().zip(rows.chunks_exact(pitch));
    for (factors, row) in steps.by_ref().take(common) {
        link(&mut acc, 0..R, |r| factors[t..t + R][r], load_line::<V, W>(row, c));
    }
    if corner.key + common < corner.key_end {
        // Row r has r keys more.
        triangle!(J, R, {
            let (factors, row) = steps.next().expect("attention: a key of the diagonal");
            link(&mut acc, J..R, |r| factors[t..t + R][r], load_line::<V, W>(row, c));
        });
    }
    store_tile(acc, out, pitch, t, c);
}

/// out[u][c] goes on with fma(factors[u][t], rows[t][c], acc) for t ascending, t >= u.
///
/// factors: [keys, QUERIES]; rows: [queries, pitch]; out: [keys, pitch].
#[inline(always)]
pub fn over_queries<V: Vector>(
    corner: Corner,
    factors: &[Scores],
    rows: &[f32],
    pitch: usize,
    out: &mut [f32],
) {
    in_tiles!(V, corner.key_end - corner.key, pitch, query_tile(corner, factors, rows, pitch, out));
}

/// Keys u to u + R of the panel, W registers of columns.
#[inline(always)]
fn query_tile<V: Vector, const R: usize, const W: usize>(
    u: usize,
    c: usize,
    corner: Corner,
    factors: &[Scores],
    rows: &[f32],
    pitch: usize,
    out: &mut [f32],
) {
    let factors: &[Scores; R] =
        factors[u..].first_chunk().expect("attention: a factor for each row of a tile");
    let mut acc = load_tile::<V, R, W>(out, pitch, u, c);
    let mut steps = (0..QUERIES.min(corner.query_end - corner.query)).zip(rows.chunks_exact(pitch));
    if corner.key_end > corner.query {
        if u > 0 {
            steps.nth(u - 1);
        }
        // Row r begins with its own key's query.
        triangle!(J, R, {
            let (t, row) = steps.next().expect("attention: a query of the diagonal");
            link(&mut acc, 0..J, |r| factors[r][t], load_line::<V, W>(row, c));
        });
    }
    for (t, row) in steps {
        link(&mut acc, 0..R, |r| factors[r][t], load_line::<V, W>(row, c));
    }
    store_tile(acc, out, pitch, u, c);
}
