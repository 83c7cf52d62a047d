//! How fast the machine multiplies and adds at best: chains in registers, no memory.

use super::vector::Vector;
use std::hint::black_box;

/// Runs `rounds` rounds of as many independent chains as a matrix product's tile has; returns the fma of a round.
#[inline(always)]
pub fn peak<V: Vector>(rounds: usize) -> usize {
    macro_rules! of_rows {
        ($($rows:literal)*) => {
            match V::TILE_ROWS {
                $($rows => chains::<V, $rows>(rounds),)*
                rows => unreachable!("peak: a tile of {rows} rows"),
            }
        };
    }
    of_rows!(6 14)
}

#[inline(always)]
fn chains<V: Vector, const R: usize>(rounds: usize) -> usize {
    let (factor, addend) = (V::splat(black_box(0.5)), V::splat(black_box(0.25)));
    let mut acc = [[V::splat(black_box(1.0)); 2]; R];
    for _ in 0..rounds {
        for r in 0..R {
            for w in 0..2 {
                acc[r][w] = acc[r][w].fma(factor, addend);
            }
        }
    }
    let mut lanes = [0.0; 32];
    for pair in acc {
        for value in pair {
            value.store(&mut lanes);
            black_box(&mut lanes);
        }
    }
    2 * R * V::LANES
}
