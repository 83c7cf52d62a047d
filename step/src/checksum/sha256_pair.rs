//! SHA-256 of a few messages at once with the SHA instructions of x86.
//!
//! One message waits for the latency of each instruction; a second one and a third fill the gaps. `unsafe` here: loads
//! and stores through pointers to whole arrays, and the one call into code compiled for these instructions.

#![allow(unsafe_code)]

use super::sha256::{Digest, INITIAL, ROUND, Word};
use std::arch::x86_64::*;

/// Messages side by side.
pub const LANES: usize = 2;

/// Whether this machine can run [`hash`].
pub fn available() -> bool {
    std::arch::is_x86_feature_detected!("sha")
        && std::arch::is_x86_feature_detected!("ssse3")
        && std::arch::is_x86_feature_detected!("sse4.1")
}

/// SHA-256(prefix || message) of messages of as many words, a multiple of 16. The machine is `available`.
pub fn hash<W: Word>(prefix: u8, messages: [&[W]; LANES]) -> [Digest; LANES] {
    assert!(available(), "sha256_pair: the SHA instructions were not found");
    // SAFETY: the features were detected in the line above.
    unsafe { hash_lanes(prefix, messages) }
}

#[target_feature(enable = "sha,ssse3,sse4.1")]
fn hash_lanes<W: Word>(prefix: u8, messages: [&[W]; LANES]) -> [Digest; LANES] {
    let words = messages[0].len();
    assert!(words.is_multiple_of(16) && messages.iter().all(|message| message.len() == words));
    let [a, b, c, d, e, f, g, h] = INITIAL.map(|word| word as i32);
    // The instructions want the state as (a, b, e, f) and (c, d, g, h), the first named in the highest lane.
    let mut states = [[_mm_set_epi32(a, b, e, f), _mm_set_epi32(c, d, g, h)]; LANES];
    // The prefix moves every byte by one: sixteen bytes of the message are the last one of the sixteen before and
    // fifteen of their own.
    let mut before = [_mm_slli_si128::<15>(_mm_set1_epi8(prefix as i8)); LANES];
    for first in (0..words).step_by(16) {
        let mut blocks = [[_mm_setzero_si128(); 4]; LANES];
        for l in 0..LANES {
            let quarters = messages[l][first..].as_chunks::<4>().0;
            for (block, quarter) in blocks[l].iter_mut().zip(quarters) {
                let own = load(quarter);
                *block = big_endian(_mm_alignr_epi8::<15>(own, before[l]));
                before[l] = own;
            }
        }
        compress(&mut states, blocks);
    }
    // The last byte, the end mark, and the length in bits.
    let mut blocks = [[_mm_setzero_si128(); 4]; LANES];
    for l in 0..LANES {
        let end_mark = _mm_slli_si128::<1>(_mm_cvtsi32_si128(0x80));
        blocks[l][0] = big_endian(_mm_or_si128(_mm_srli_si128::<15>(before[l]), end_mark));
        blocks[l][3] = _mm_set_epi32((8 * (4 * words + 1)) as i32, 0, 0, 0);
    }
    compress(&mut states, blocks);
    states.map(|[abef, cdgh]| {
        let (mut high, mut low) = ([0_u32; 4], [0_u32; 4]);
        // SAFETY: four words are 16 bytes.
        unsafe {
            _mm_storeu_si128(high.as_mut_ptr().cast(), big_endian(abef));
            _mm_storeu_si128(low.as_mut_ptr().cast(), big_endian(cdgh));
        }
        [high[3], high[2], low[3], low[2], high[1], high[0], low[1], low[0]]
    })
}

/// Four words, every NaN the one word if they are f32.
#[target_feature(enable = "sha,ssse3,sse4.1")]
fn load<W: Word>(words: &[W; 4]) -> __m128i {
    const { assert!(size_of::<W>() == 4) }
    // SAFETY: a `Word` is four bytes of plain data, four are 16 bytes.
    let raw = unsafe { _mm_loadu_si128(words.as_ptr().cast()) };
    if !W::FLOAT {
        return raw;
    }
    let value = _mm_castsi128_ps(raw);
    let nan_word = _mm_castsi128_ps(_mm_set1_epi32(schemas::fold::NAN_WORD as i32));
    _mm_castps_si128(_mm_blendv_ps(value, nan_word, _mm_cmpunord_ps(value, value)))
}

/// The bytes of every word in the other order.
#[target_feature(enable = "sha,ssse3,sse4.1")]
fn big_endian(words: __m128i) -> __m128i {
    _mm_shuffle_epi8(words, _mm_set_epi8(12, 13, 14, 15, 8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3))
}

/// One block of every message into the states, four rounds at a time.
#[target_feature(enable = "sha,ssse3,sse4.1")]
fn compress(states: &mut [[__m128i; 2]; LANES], mut blocks: [[__m128i; 4]; LANES]) {
    let before = *states;
    for (sixteen, constants) in ROUND.iter().enumerate() {
        for (i, constants) in constants.as_chunks::<4>().0.iter().enumerate() {
            let constants = load(constants);
            for l in 0..LANES {
                let block = &mut blocks[l];
                if sixteen > 0 {
                    let [one, two, three, four] = [0, 1, 2, 3].map(|next| block[(i + next) % 4]);
                    let sum =
                        _mm_add_epi32(_mm_sha256msg1_epu32(one, two), _mm_alignr_epi8::<4>(four, three));
                    block[i] = _mm_sha256msg2_epu32(sum, four);
                }
                let known = _mm_add_epi32(block[i], constants);
                let [abef, cdgh] = &mut states[l];
                *cdgh = _mm_sha256rnds2_epu32(*cdgh, *abef, known);
                *abef = _mm_sha256rnds2_epu32(*abef, *cdgh, _mm_shuffle_epi32::<0x0e>(known));
            }
        }
    }
    for (state, before) in states.iter_mut().zip(before) {
        *state = [_mm_add_epi32(state[0], before[0]), _mm_add_epi32(state[1], before[1])];
    }
}
