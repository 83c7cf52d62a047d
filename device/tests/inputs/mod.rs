//! Inputs for the kernel tests: painted from a counter, or picked to hurt.

// Each test file uses a part of it.
#![allow(dead_code)]

use step::number::philox::philox4x32_10;

/// Words that go wrong first: signed zeros, subnormals, the ends of the range, neighbours of one.
const EDGES: [u32; 16] = [
    0x0000_0000,
    0x8000_0000,
    0x0000_0001,
    0x8000_0001,
    0x007f_ffff,
    0x0080_0000,
    0x8080_0000,
    0x3f7f_ffff,
    0x3f80_0000,
    0x3f80_0001,
    0xbf80_0001,
    0x4b00_0001,
    0xcb7f_ffff,
    0x2000_0000,
    0xa000_0001,
    0x4b7f_ffff,
];

/// `count` values of magnitude 1/8 to 4 with full mantissas: multiples of one power of two would add exactly
/// and hide a wrong order.
pub fn painted(count: usize, seed: u32) -> Vec<f32> {
    let word = |i: usize| philox4x32_10([i as u32 / 4, 0, 0, seed], [7, 9])[i % 4];
    let value = |bits: u32| f32::from_bits((bits & 0x807f_ffff) | (124 + (bits >> 23 & 0xff) % 5) << 23);
    (0..count).map(|i| value(word(i))).collect()
}

/// `count` values of widely different size and sign, edges among them, so that any change of order shows.
pub fn adversarial(count: usize, seed: u32) -> Vec<f32> {
    let word = |i: usize| philox4x32_10([i as u32 / 4, 1, 0, seed], [7, 9])[i % 4];
    let value = |bits: u32| match bits % 16 {
        0 => f32::from_bits(EDGES[(bits >> 8) as usize % EDGES.len()]),
        _ => {
            // Exponents from -5 to 5: sums cancel, and every add loses bits.
            let exponent = 122 + (bits >> 9) % 11;
            f32::from_bits((bits & 0x8000_0000) | (exponent << 23) | (bits.wrapping_mul(2_654_435_761) >> 9))
        }
    };
    (0..count).map(|i| value(word(i))).collect()
}

/// Both kinds.
pub fn both(count: usize, seed: u32) -> [Vec<f32>; 2] {
    [painted(count, seed), adversarial(count, seed)]
}

/// `count` tokens below `vocabulary`.
pub fn tokens(count: usize, vocabulary: u32, seed: u32) -> Vec<u32> {
    (0..count).map(|i| philox4x32_10([i as u32, 2, 0, seed], [7, 9])[0] % vocabulary).collect()
}

/// Panics at the first element whose bits differ.
pub fn assert_bits(found: &[f32], expected: &[f32], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}: length");
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        // Any NaN equals any NaN: a fold makes them one word.
        let same = found.to_bits() == expected.to_bits() || (found.is_nan() && expected.is_nan());
        assert!(same, "{what}: element {i} is {found:e} ({:#010x}), expected {expected:e}", found.to_bits());
    }
}
