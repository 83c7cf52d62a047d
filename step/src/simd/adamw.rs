//! AdamW with its four streams asked for ahead.
//!
//! The arithmetic is the reference's own loop, block by block; elements do not depend on each other. What the processor
//! asks for by itself ends with each page, and four streams meet the end of a page often.

use super::vector::Vector;
use crate::reference::adamw::{AdamwConstants, adamw as block};

/// Words of a block.
const BLOCK: usize = 128;
/// Words that a block is asked for ahead.
const AHEAD: usize = 256;
/// Words of a cache line.
const LINE: usize = 16;

/// See `reference::adamw::adamw`.
#[inline(always)]
pub fn adamw<V: Vector>(
    constants: AdamwConstants,
    scale: f32,
    gradient: &[f32],
    p: &mut [f32],
    m: &mut [f32],
    v: &mut [f32],
) {
    for first in (0..gradient.len()).step_by(BLOCK) {
        for line in (first + AHEAD..first + AHEAD + BLOCK).step_by(LINE) {
            for words in [gradient, &*p, &*m, &*v] {
                V::prefetch(words.get(line));
            }
        }
        let words = first..gradient.len().min(first + BLOCK);
        let [p, m, v] = [&mut p[words.clone()], &mut m[words.clone()], &mut v[words.clone()]];
        block(constants, scale, &gradient[words], p, m, v);
    }
}
