//! SHA-256 of many messages at once, one in each lane of AVX-512 registers.
//!
//! One group of sixteen waits for the latency of each instruction; a second one fills the gaps.
//!
//! `unsafe` here: loads and stores through pointers to whole arrays, and the one call into code compiled for AVX-512.

#![allow(unsafe_code)]

use super::sha256::{Digest, INITIAL, ROUND, Word};
use std::arch::x86_64::*;

/// Registers side by side.
const GROUPS: usize = 2;
/// Messages side by side.
pub const LANES: usize = 16 * GROUPS;
/// Truth tables for `logic`.
const XOR: i32 = 0x96;
const CHOOSE: i32 = 0xca;
const MAJORITY: i32 = 0xe8;

/// Whether this machine can run [`hash`].
pub fn available() -> bool {
    std::arch::is_x86_feature_detected!("avx512f") && std::arch::is_x86_feature_detected!("avx512bw")
}

/// SHA-256(prefix || message) of sixteen messages of as many words, a multiple of 16. The machine is `available`.
pub fn hash<W: Word>(prefix: u8, messages: [&[W]; LANES]) -> [Digest; LANES] {
    assert!(available(), "sha256_wide: AVX-512 was not found");
    // SAFETY: the features were detected in the line above.
    unsafe { hash_lanes(prefix, messages) }
}

#[target_feature(enable = "avx512f,avx512bw")]
fn hash_lanes<W: Word>(prefix: u8, messages: [&[W]; LANES]) -> [Digest; LANES] {
    let words = messages[0].len();
    assert!(words.is_multiple_of(16) && messages.iter().all(|message| message.len() == words));
    let mut state = INITIAL.map(|word| [_mm512_set1_epi32(word as i32); GROUPS]);
    // The prefix moves every byte by one: a word of the message is the last byte of the tensor's word before and
    // the first three of its own.
    let mut before = [_mm512_set1_epi32(i32::from(prefix)); GROUPS];
    let mut block = [[_mm512_setzero_si512(); GROUPS]; 16];
    for first in (0..words).step_by(16) {
        for (g, messages) in messages.as_chunks().0.iter().enumerate() {
            for (word, row) in block.iter_mut().zip(transpose(messages, first)) {
                let own = big_endian(row);
                word[g] = _mm512_or_si512(_mm512_slli_epi32::<24>(before[g]), _mm512_srli_epi32::<8>(own));
                before[g] = own;
            }
        }
        compress(&mut state, &mut block);
    }
    // The last byte, the end mark, and the length in bits.
    let mut block = [[_mm512_setzero_si512(); GROUPS]; 16];
    for g in 0..GROUPS {
        block[0][g] = _mm512_or_si512(_mm512_slli_epi32::<24>(before[g]), _mm512_set1_epi32(0x0080_0000));
        block[15][g] = _mm512_set1_epi32((8 * (4 * words + 1)) as i32);
    }
    compress(&mut state, &mut block);

    let mut digests = [[0; 8]; LANES];
    for (at, words) in state.iter().enumerate() {
        for (digests, word) in digests.as_chunks_mut::<16>().0.iter_mut().zip(words) {
            let mut lanes = [0_u32; 16];
            // SAFETY: sixteen words are 64 bytes.
            unsafe { _mm512_storeu_si512(lanes.as_mut_ptr().cast(), big_endian(*word)) };
            digests.iter_mut().zip(lanes).for_each(|(digest, lane)| digest[at] = lane);
        }
    }
    digests
}

/// Sixteen words, every NaN the one word if they are f32.
#[target_feature(enable = "avx512f,avx512bw")]
fn load<W: Word>(words: &[W; 16]) -> __m512i {
    const { assert!(size_of::<W>() == 4) }
    // SAFETY: a `Word` is four bytes of plain data, sixteen are 64 bytes.
    let raw = unsafe { _mm512_loadu_si512(words.as_ptr().cast()) };
    if !W::FLOAT {
        return raw;
    }
    let value = _mm512_castsi512_ps(raw);
    let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(value, value);
    _mm512_mask_mov_epi32(raw, nan, _mm512_set1_epi32(schemas::fold::NAN_WORD as i32))
}

/// The bytes of every word in the other order.
#[target_feature(enable = "avx512f,avx512bw")]
fn big_endian(words: __m512i) -> __m512i {
    let order = _mm_set_epi8(12, 13, 14, 15, 8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3);
    _mm512_shuffle_epi8(words, _mm512_broadcast_i32x4(order))
}

/// Word first + i of message l in lane l of register i.
#[target_feature(enable = "avx512f,avx512bw")]
fn transpose<W: Word>(messages: &[&[W]; 16], first: usize) -> [__m512i; 16] {
    let rows = messages.map(|message| load(message[first..].first_chunk().expect("sha256_wide: 16 words")));
    let mut pairs = rows;
    for i in (0..16).step_by(2) {
        pairs[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
        pairs[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
    }
    // fours[4 g + w] holds, in its quarter q, word 4 q + w of rows 4 g to 4 g + 3.
    let mut fours = pairs;
    for g in (0..16).step_by(4) {
        fours[g] = _mm512_unpacklo_epi64(pairs[g], pairs[g + 2]);
        fours[g + 1] = _mm512_unpackhi_epi64(pairs[g], pairs[g + 2]);
        fours[g + 2] = _mm512_unpacklo_epi64(pairs[g + 1], pairs[g + 3]);
        fours[g + 3] = _mm512_unpackhi_epi64(pairs[g + 1], pairs[g + 3]);
    }
    let mut columns = fours;
    for w in 0..4 {
        let [a, b, c, d] = [fours[w], fours[4 + w], fours[8 + w], fours[12 + w]];
        let even = [_mm512_shuffle_i32x4::<0x88>(a, b), _mm512_shuffle_i32x4::<0x88>(c, d)];
        let odd = [_mm512_shuffle_i32x4::<0xdd>(a, b), _mm512_shuffle_i32x4::<0xdd>(c, d)];
        columns[w] = _mm512_shuffle_i32x4::<0x88>(even[0], even[1]);
        columns[4 + w] = _mm512_shuffle_i32x4::<0x88>(odd[0], odd[1]);
        columns[8 + w] = _mm512_shuffle_i32x4::<0xdd>(even[0], even[1]);
        columns[12 + w] = _mm512_shuffle_i32x4::<0xdd>(odd[0], odd[1]);
    }
    columns
}

/// One word of every message.
type Words = [__m512i; GROUPS];

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn add(a: Words, b: Words) -> Words {
    let mut sum = a;
    for g in 0..GROUPS {
        sum[g] = _mm512_add_epi32(a[g], b[g]);
    }
    sum
}

/// A truth table of three words whose bits are 0xf0, 0xcc and 0xaa.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn logic<const TABLE: i32>(a: Words, b: Words, c: Words) -> Words {
    let mut bits = a;
    for g in 0..GROUPS {
        bits[g] = _mm512_ternarylogic_epi32::<TABLE>(a[g], b[g], c[g]);
    }
    bits
}

/// Exclusive or of three rotations to the right.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn rotations<const I: i32, const J: i32, const K: i32>(x: Words) -> Words {
    let mut bits = x;
    for g in 0..GROUPS {
        let [i, j, k] =
            [_mm512_ror_epi32::<I>(x[g]), _mm512_ror_epi32::<J>(x[g]), _mm512_ror_epi32::<K>(x[g])];
        bits[g] = _mm512_ternarylogic_epi32::<XOR>(i, j, k);
    }
    bits
}

/// Exclusive or of two rotations and a shift to the right.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn shifts<const I: i32, const J: i32, const K: u32>(x: Words) -> Words {
    let mut bits = x;
    for g in 0..GROUPS {
        let [i, j, k] =
            [_mm512_ror_epi32::<I>(x[g]), _mm512_ror_epi32::<J>(x[g]), _mm512_srli_epi32::<K>(x[g])];
        bits[g] = _mm512_ternarylogic_epi32::<XOR>(i, j, k);
    }
    bits
}

/// One block of every message into the states (FIPS 180-4 section 6.2.2).
#[target_feature(enable = "avx512f,avx512bw")]
fn compress(state: &mut [Words; 8], block: &mut [Words; 16]) {
    let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = *state;
    macro_rules! round {
        ($t:ident, $i:literal, $a:ident $b:ident $c:ident $d:ident $e:ident $f:ident $g:ident $h:ident) => {
            let known = add(block[$i], [_mm512_set1_epi32($t[$i] as i32); GROUPS]);
            let (s1, choice) = (rotations::<6, 11, 25>($e), logic::<CHOOSE>($e, $f, $g));
            let t1 = add(add($h, known), add(s1, choice));
            let (s0, majority) = (rotations::<2, 13, 22>($a), logic::<MAJORITY>($a, $b, $c));
            $d = add($d, t1);
            $h = add(t1, add(s0, majority));
        };
    }
    // The next word of the schedule in the place of the one sixteen before it.
    macro_rules! extend {
        ($i:literal) => {
            let s0 = shifts::<7, 18, 3>(block[($i + 1) % 16]);
            let s1 = shifts::<17, 19, 10>(block[($i + 14) % 16]);
            block[$i] = add(add(block[$i], block[($i + 9) % 16]), add(s0, s1));
        };
    }
    macro_rules! none {
        ($i:literal) => {};
    }
    // Sixteen rounds; the eight names move on by one from round to round instead of the words.
    macro_rules! rounds {
        ($t:ident, $before:ident) => {
            rounds!(@ $t, $before, [a b c d e f g h] 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
        };
        (@ $t:ident, $before:ident, [$a:ident $b:ident $c:ident $d:ident $e:ident $f:ident $g:ident $h:ident]
         $i:literal $($rest:literal)*) => {
            $before!($i);
            round!($t, $i, $a $b $c $d $e $f $g $h);
            rounds!(@ $t, $before, [$h $a $b $c $d $e $f $g] $($rest)*);
        };
        (@ $t:ident, $before:ident, [$($name:ident)*]) => {};
    }
    let [first, rest @ ..] = &ROUND;
    rounds!(first, none);
    for constants in rest {
        rounds!(constants, extend);
    }
    for (sum, word) in state.iter_mut().zip([a, b, c, d, e, f, g, h]) {
        *sum = add(*sum, word);
    }
}
