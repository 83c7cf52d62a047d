//! Elementary functions whose definition is the sequence of operations written here.
//!
//! Each line is one IEEE 754 operation (or one fma), so every machine with a correctly rounded fma gives the
//! same bits. The constants are bit patterns and are part of the profile: changing one is a new profile.
//! The polynomials are minimax fits (Remez) in exact arithmetic, rounded to `f32`. The errors stated are the
//! largest found against `f64` over a dense sample; they say how good the functions are, not what they are.

/// The only NaN the profile writes.
pub const NAN_BITS: u32 = 0x7fc0_0000;

/// 1.5 * 2^23: adding it to |x| < 2^22 leaves round-to-nearest(x) in the low mantissa bits.
const MAGIC_BITS: u32 = 0x4b40_0000;
/// log2(e).
const LOG2E_BITS: u32 = 0x3fb8_aa3b;
/// ln 2 with the last nine mantissa bits cleared, so that n * LN2_HI is exact for every exponent n.
const LN2_HI_BITS: u32 = 0x3f31_7200;
/// ln 2 - LN2_HI.
const LN2_LO_BITS: u32 = 0x35bf_be8e;

/// exp(r) = 1 + r + r^2 (C2 + C3 r + C4 r^2 + C5 r^3 + C6 r^4) on |r| <= ln2/2; fit error 2^-28.
const EXP_C2_BITS: u32 = 0x3eff_fffe;
const EXP_C3_BITS: u32 = 0x3e2a_aa49;
const EXP_C4_BITS: u32 = 0x3d2a_ac79;
const EXP_C5_BITS: u32 = 0x3c09_1d10;
const EXP_C6_BITS: u32 = 0x3ab5_11e9;

/// (ln(m) - 2 s) / (s z) = P0 + P1 z + P2 z^2 with s = (m-1)/(m+1), z = s^2; fit error 2^-29.
const LOG_P0_BITS: u32 = 0x3f2a_aabd;
const LOG_P1_BITS: u32 = 0x3ecc_af4e;
const LOG_P2_BITS: u32 = 0x3e98_f33c;
/// The lower end of the mantissa interval of the logarithm: sqrt(1/2) rounded down.
const SQRT_HALF_BITS: u32 = 0x3f35_04f3;

/// sqrt(2 / pi), of the tanh form of GELU.
const GELU_K_BITS: u32 = 0x3f4c_422a;
/// 0.044715.
const GELU_C_BITS: u32 = 0x3d37_2713;
/// 3 * 0.044715, rounded once from the exact product.
const GELU_3C_BITS: u32 = 0x3e09_5d4f;

#[inline(always)]
fn bits(pattern: u32) -> f32 {
    f32::from_bits(pattern)
}

/// One rounding: a * b + c.
#[inline(always)]
pub fn fma(a: f32, b: f32, c: f32) -> f32 {
    a.mul_add(b, c)
}

/// `exp-v1`.
///
/// Shapes    one value
/// Order     t = x*log2e; t = t + magic; n = t - magic; r = fma(n, -ln2hi, x); r = fma(n, -ln2lo, r);
///           p = C6; p = fma(p, r, C5), C4, C3, C2, 1, 1; result p * 2^n, 2^n built from the bits of t
/// Rounding  f32 nearest-even after every operation; fma where written; never a subnormal result
/// Special   NaN gives 0x7fc00000; x < -87 gives +0; x > 88 is taken as 88
/// Aliasing  none
/// Source    docs/spec/profile.md#exp-v1
///
/// Largest error on [-87, 88], of all inputs: 0.8912 units in the last place.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    let clamped = if x > 88.0 { 88.0 } else { x };
    let product = clamped * bits(LOG2E_BITS);
    let t = product + bits(MAGIC_BITS);
    let n = t - bits(MAGIC_BITS);
    let r = fma(n, -bits(LN2_HI_BITS), clamped);
    let r = fma(n, -bits(LN2_LO_BITS), r);
    let p = fma(bits(EXP_C6_BITS), r, bits(EXP_C5_BITS));
    let p = fma(p, r, bits(EXP_C4_BITS));
    let p = fma(p, r, bits(EXP_C3_BITS));
    let p = fma(p, r, bits(EXP_C2_BITS));
    let p = fma(p, r, 1.0);
    let p = fma(p, r, 1.0);
    // The low bits of t hold n in -126..=127 (x was in [-87, 88]), so n + 127 fits the exponent field. For
    // other x the shift gives some number, which the two selections below throw away.
    let power = bits(t.to_bits().wrapping_sub(MAGIC_BITS).wrapping_add(127) << 23);
    let y = p * power;
    let y = if x < -87.0 { 0.0 } else { y };
    if x.is_nan() { bits(NAN_BITS) } else { y }
}

/// `log-v1`, the natural logarithm.
///
/// Shapes    one value
/// Order     x * 2^23 and n = -23 if subnormal, else n = 0; by bits x = m * 2^e with m in [sqrt(1/2), sqrt 2);
///           n = n + e; f = m - 1; s = f / (m + 1); z = s*s; p = fma(P2, z, P1); p = fma(p, z, P0);
///           q = z*p; d = f - q; l = fma(-s, d, f); l = fma(n, ln2lo, l); result fma(n, ln2hi, l)
/// Rounding  f32 nearest-even after every operation; fma where written
/// Special   NaN and x < 0 give 0x7fc00000; +0 and -0 give -infinity; +infinity gives +infinity
/// Aliasing  none
/// Source    docs/spec/profile.md#log-v1
///
/// Why the order is right: 2 s = f - s f, so ln m = 2 s + s q = f - s (f - q), and the large part f is exact.
/// Largest error on all positive finite numbers: 0.9534 units in the last place.
#[inline(always)]
pub fn log(x: f32) -> f32 {
    if x.is_nan() || x < 0.0 {
        return bits(NAN_BITS);
    }
    if x == 0.0 {
        return f32::NEG_INFINITY;
    }
    if x == f32::INFINITY {
        return x;
    }
    let subnormal = x < f32::MIN_POSITIVE;
    let scaled = if subnormal { x * 8_388_608.0 } else { x };
    let offset = scaled.to_bits().wrapping_sub(SQRT_HALF_BITS);
    let exponent = (offset as i32 >> 23) + if subnormal { -23 } else { 0 };
    let m = bits((offset & 0x007f_ffff) + SQRT_HALF_BITS);
    let n = exponent as f32;
    let f = m - 1.0;
    let s = f / (m + 1.0);
    let z = s * s;
    let p = fma(bits(LOG_P2_BITS), z, bits(LOG_P1_BITS));
    let p = fma(p, z, bits(LOG_P0_BITS));
    let q = z * p;
    let d = f - q;
    let l = fma(-s, d, f);
    let l = fma(n, bits(LN2_LO_BITS), l);
    fma(n, bits(LN2_HI_BITS), l)
}

/// `tanh-v1`.
///
/// Shapes    one value
/// Order     e = exp(|u| + |u|); th = 1 - 2 / (e + 1); the sign of u is copied onto th
/// Rounding  f32 nearest-even after every operation
/// Special   NaN gives NaN (the words are made one pattern before a fold); |u| large gives exactly 1
/// Aliasing  none
/// Source    docs/spec/profile.md#tanh-v1
#[inline(always)]
pub fn tanh(u: f32) -> f32 {
    let magnitude = u.abs();
    let e = exp(magnitude + magnitude);
    let th = 1.0 - 2.0 / (e + 1.0);
    th.copysign(u)
}

/// The inner tanh of GELU: t = fma(c, x*x, 1); u = (k*x)*t; tanh(u).
#[inline(always)]
fn gelu_tanh(x: f32) -> f32 {
    let t = fma(bits(GELU_C_BITS), x * x, 1.0);
    let u = (bits(GELU_K_BITS) * x) * t;
    tanh(u)
}

/// `gelu-new` (the tanh form used by GPT-2).
///
/// Shapes    one value
/// Order     t = fma(c, x*x, 1); u = (k*x)*t; th = tanh(u); y = (0.5*x)*(1 + th)
/// Rounding  f32 nearest-even after every operation; fma where written
/// Special   NaN gives NaN; x so large that x*x overflows still has th = 1
/// Aliasing  none
/// Source    docs/spec/profile.md#gelu
#[inline(always)]
pub fn gelu(x: f32) -> f32 {
    let th = gelu_tanh(x);
    (0.5 * x) * (1.0 + th)
}

/// `gelu-new`, backward: the derivative at `x` times `dy`.
///
/// Shapes    one value each
/// Order     th as in `gelu`; h = 0.5*x; s = fma(-th, th, 1) * (k * fma(3c, x*x, 1));
///           d = dy * fma(h, s, 0.5 * (1 + th))
/// Rounding  f32 nearest-even after every operation; fma where written
/// Special   NaN gives NaN
/// Aliasing  none
/// Source    docs/spec/profile.md#gelu
#[inline(always)]
pub fn gelu_backward(x: f32, dy: f32) -> f32 {
    let th = gelu_tanh(x);
    let h = 0.5 * x;
    let s = fma(-th, th, 1.0) * (bits(GELU_K_BITS) * fma(bits(GELU_3C_BITS), x * x, 1.0));
    dy * fma(h, s, 0.5 * (1.0 + th))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Distance from the exact value in units in the last place of the exact value's binade.
    fn error_ulp(found: f32, exact: f64) -> f64 {
        let near = exact as f32;
        let ulp = f64::from(f32::from_bits(near.abs().to_bits() + 1)) - f64::from(near.abs());
        ((f64::from(found) - exact) / ulp).abs()
    }

    /// Every `stride`-th bit pattern from `from` to `to`, both of one sign.
    fn patterns(from: f32, to: f32, stride: usize) -> impl Iterator<Item = f32> {
        (from.to_bits()..=to.to_bits()).step_by(stride).map(f32::from_bits)
    }

    #[test]
    fn exp_is_within_one_unit_of_the_true_value() {
        let mut worst = 0.0_f64;
        for x in patterns(1e-9, 88.0, 97).chain(patterns(-1e-9, -87.0, 97)) {
            worst = worst.max(error_ulp(exp(x), f64::from(x).exp()));
        }
        println!("exp-v1: largest error {worst:.4} ulp");
        assert!(worst < 1.0, "worst {worst}");
    }

    #[test]
    fn log_is_within_one_unit_of_the_true_value() {
        let mut worst = 0.0_f64;
        for x in patterns(f32::from_bits(1), f32::MAX, 499).chain(patterns(0.5, 2.0, 7)) {
            if x != 1.0 {
                worst = worst.max(error_ulp(log(x), f64::from(x).ln()));
            }
        }
        println!("log-v1: largest error {worst:.4} ulp");
        assert!(worst < 1.0, "worst {worst}");
    }

    #[test]
    fn tanh_and_gelu_follow_the_true_values() {
        let (mut tanh_worst, mut gelu_worst, mut slope_worst) = (0.0_f64, 0.0_f64, 0.0_f64);
        for x in patterns(1e-6, 12.0, 997).chain(patterns(-1e-6, -12.0, 997)) {
            let wide = f64::from(x);
            let (k, c) = ((2.0 / std::f64::consts::PI).sqrt(), 0.044715);
            let th = (k * (wide + c * wide * wide * wide)).tanh();
            let slope = 0.5 * (1.0 + th) + 0.5 * wide * (1.0 - th * th) * k * (1.0 + 3.0 * c * wide * wide);
            tanh_worst = tanh_worst.max((f64::from(tanh(x)) - wide.tanh()).abs());
            gelu_worst = gelu_worst.max((f64::from(gelu(x)) - 0.5 * wide * (1.0 + th)).abs());
            slope_worst = slope_worst.max((f64::from(gelu_backward(x, 1.0)) - slope).abs());
        }
        println!("absolute errors: tanh {tanh_worst:.2e}, gelu {gelu_worst:.2e}, slope {slope_worst:.2e}");
        assert!(tanh_worst < 1.8e-7 && gelu_worst < 8e-7 && slope_worst < 8e-7);
    }

    #[test]
    fn special_values_are_as_written() {
        assert_eq!(exp(f32::from_bits(0xffc1_2345)).to_bits(), NAN_BITS);
        assert_eq!(exp(f32::NEG_INFINITY).to_bits(), 0);
        assert_eq!(exp(-87.00001).to_bits(), 0);
        assert_eq!(exp(f32::INFINITY).to_bits(), exp(88.0).to_bits());
        assert_eq!(exp(0.0).to_bits(), 1.0_f32.to_bits());
        assert_eq!(exp(-0.0).to_bits(), 1.0_f32.to_bits());
        assert!(exp(-87.0) >= f32::MIN_POSITIVE);
        assert_eq!(log(1.0).to_bits(), 0);
        assert_eq!(log(0.0), f32::NEG_INFINITY);
        assert_eq!(log(-0.0), f32::NEG_INFINITY);
        assert_eq!(log(f32::INFINITY), f32::INFINITY);
        assert_eq!(log(-1.0).to_bits(), NAN_BITS);
        assert_eq!(log(f32::NAN).to_bits(), NAN_BITS);
        assert_eq!(tanh(f32::INFINITY).to_bits(), 1.0_f32.to_bits());
        assert_eq!(tanh(-0.0).to_bits(), (-0.0_f32).to_bits());
        assert_eq!(gelu(f32::MAX).to_bits(), f32::MAX.to_bits());
    }

    /// A digest-like sum over a sample pins the constants: a changed bit in any of them changes it.
    #[test]
    fn the_frozen_constants_have_not_moved() {
        let mut sum = 0_u64;
        for i in 0..200_000_u32 {
            let x = (i as f32 - 100_000.0) * 0.001;
            for y in [exp(x), log(x.abs()), tanh(x), gelu(x), gelu_backward(x, 1.5)] {
                sum = sum.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(u64::from(y.to_bits()));
            }
        }
        assert_eq!(sum, 0xd9ce_c446_2e48_4f7b, "{sum:#018x}");
    }
}
