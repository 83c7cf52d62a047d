//! The tables of rotary positions, in binary64 and without a library function.
//!
//! A library's sin, cos or pow may differ in the last place between machines, and a plan derived on one could
//! then not be derived on the other. Here every operation is an add, sub, mul or div of binary64, in the order
//! written, and the last step rounds once to f32. Source: docs/spec/plan.md#rotary-tables.

/// ln 2.
const LN2: f64 = std::f64::consts::LN_2;
/// ln 2 in two parts, the first with 32 bits, so that its product with a small integer is exact.
const LN2_HI: f64 = f64::from_bits(0x3fe6_2e42_fee0_0000);
const LN2_LO: f64 = f64::from_bits(0x3dea_39ef_3579_3c76);
/// 1 / ln 2.
const INVERSE_LN2: f64 = std::f64::consts::LOG2_E;
/// pi/2 in three parts, the first two with 33 bits.
const HALF_PI: [f64; 3] = [
    f64::from_bits(0x3ff9_21fb_5440_0000),
    f64::from_bits(0x3dd0_b461_1a60_0000),
    f64::from_bits(0x3ba3_198a_2e03_7073),
];
/// 2 / pi.
const INVERSE_HALF_PI: f64 = std::f64::consts::FRAC_2_PI;

/// ln(x) for a normal x of at least 1: with x = m 2^n, m in [1, 2), halved above 4/3, s = (m - 1) / (m + 1),
/// ln x = n ln 2 + 2 s (1 + z/3 + z^2/5 + ... + z^14/29), z = s^2.
fn ln(x: f64) -> f64 {
    let n = (x.to_bits() >> 52) as i64 - 1023;
    let m = f64::from_bits(x.to_bits() & ((1 << 52) - 1) | 1023 << 52);
    let (m, n) = if m * 3.0 > 4.0 { (m * 0.5, n + 1) } else { (m, n) };
    let s = (m - 1.0) / (m + 1.0);
    let z = s * s;
    let mut sum = 1.0 / 29.0;
    for odd in (0..14).rev() {
        sum = sum * z + 1.0 / f64::from(2 * odd + 1);
    }
    n as f64 * LN2 + (2.0 * s) * sum
}

/// exp(-x) for 0 <= x < 700: k = floor(x / ln 2 + 1/2), r = k ln 2 - x, exp(-x) = 2^-k (1 + r + r^2/2! + ... +
/// r^14/14!).
fn exp_of_minus(x: f64) -> f64 {
    let k = (x * INVERSE_LN2 + 0.5) as i64;
    let r = (k as f64 * LN2_HI - x) + k as f64 * LN2_LO;
    let mut sum = 1.0;
    for j in (1..=14).rev() {
        sum = 1.0 + (sum * r) / f64::from(j);
    }
    sum * f64::from_bits(((1023 - k) as u64) << 52)
}

/// cos and sin of 0 <= a < 2^20: k = floor(a 2/pi + 1/2), r = a - k pi/2, both series to r^17, then by quadrant.
fn cos_sin(a: f64) -> [f64; 2] {
    let k = (a * INVERSE_HALF_PI + 0.5) as i64;
    let n = k as f64;
    let r = ((a - n * HALF_PI[0]) - n * HALF_PI[1]) - n * HALF_PI[2];
    let z = r * r;
    let (mut cos, mut sin) = (1.0, 1.0);
    for j in (1..=8).rev() {
        let j = f64::from(j);
        cos = 1.0 - (cos * z) / ((2.0 * j - 1.0) * (2.0 * j));
        sin = 1.0 - (sin * z) / ((2.0 * j) * (2.0 * j + 1.0));
    }
    sin *= r;
    match k % 4 {
        0 => [cos, sin],
        1 => [-sin, cos],
        2 => [-cos, -sin],
        _ => [sin, -cos],
    }
}

/// theta^(-2 i / HS).
fn frequency(theta: f64, head_size: u64, i: u64) -> f64 {
    exp_of_minus(((2 * i) as f64 / head_size as f64) * ln(theta))
}

/// The tables cos and sin, [times, head_size / 2] each, as f32 bits: of position x frequency.
pub fn tables(theta: f64, times: u64, head_size: u64) -> [Vec<u32>; 2] {
    let frequencies: Vec<f64> = (0..head_size / 2).map(|i| frequency(theta, head_size, i)).collect();
    let mut words = [vec![], vec![]];
    for t in 0..times {
        for frequency in &frequencies {
            let values = cos_sin(t as f64 * frequency);
            for (words, value) in words.iter_mut().zip(values) {
                words.push((value as f32).to_bits());
            }
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithm_and_exponential_are_right_to_the_last_bits_of_an_f64() {
        for theta in [1.0, 1.5, 2.0, 10.0, 1e4, 12_345.678, 5e5, 1e6, 1e9] {
            assert!((ln(theta) - theta.ln()).abs() <= 4e-16 * theta.ln(), "{theta}");
            for i in 0..64 {
                let exact = theta.powf(-(i as f64) / 64.0);
                let error = (frequency(theta, 128, i) - exact).abs() / exact;
                // The exponent reaches 20, and its own rounding is magnified by so much.
                assert!(error < 8e-15, "{theta} {i}: {error:e}");
            }
        }
    }

    #[test]
    fn sine_and_cosine_are_right_to_the_last_bits_of_an_f64() {
        let mut worst: f64 = 0.0;
        for i in 0..400_000 {
            let a = f64::from(i) * 2.621_437_1;
            let [cos, sin] = cos_sin(a);
            worst = worst.max((cos - a.cos()).abs()).max((sin - a.sin()).abs());
        }
        assert!(worst < 4e-16, "{worst:e}");
    }

    /// Rounded to f32 the tables are those of the platform's functions but where a value lies next to the middle of
    /// two neighbours.
    #[test]
    fn the_tables_are_the_nearest_f32_of_the_exact_values() {
        let (theta, times, size) = (10_000.0, 2048, 64);
        let [cos, sin] = tables(theta, times, size);
        let mut other = 0;
        for t in 0..times {
            for i in 0..size / 2 {
                let a = t as f64 * theta.powf(-((2 * i) as f64) / size as f64);
                let at = (t * size / 2 + i) as usize;
                for (found, exact) in [(cos[at], a.cos()), (sin[at], a.sin())] {
                    let near = f64::from(f32::from_bits(found));
                    other += u32::from(found != (exact as f32).to_bits());
                    // Half a unit in the last place of a number below 1, and what the angle's rounding moves.
                    assert!((near - exact).abs() < 2.98e-8 + 1e-11, "{t} {i}");
                }
            }
        }
        assert!(other < 4, "{other} of 131072 differ");
        assert_eq!((cos[0], sin[0]), (0x3f80_0000, 0));
    }
}
