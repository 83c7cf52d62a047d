//! The elementary functions of the profile, over an arithmetic. Source: docs/spec/profile.md, the same names.

use super::arithmetic::Arithmetic;

/// The profile's only NaN.
const NAN_BITS: u32 = crate::number::elementary::NAN_BITS;

#[inline(always)]
fn bits(pattern: u32) -> f32 {
    f32::from_bits(pattern)
}

/// `exp-v1`.
#[inline(always)]
pub fn exp<A: Arithmetic>(x: f32) -> f32 {
    if x.is_nan() {
        return bits(NAN_BITS);
    }
    if x < -87.0 {
        return 0.0;
    }
    let x = if x > 88.0 { 88.0 } else { x };
    let magic = bits(0x4b40_0000);
    let t = A::product_add(x, bits(0x3fb8_aa3b), magic);
    let n = A::sub(t, magic);
    let r = A::fma(n, -bits(0x3f31_7200), x);
    let r = A::fma(n, -bits(0x35bf_be8e), r);
    let mut p = bits(0x3ab5_11e9);
    for c in [0x3c09_1d10, 0x3d2a_ac79, 0x3e2a_aa49, 0x3eff_fffe, 0x3f80_0000, 0x3f80_0000] {
        p = A::fma(p, r, bits(c));
    }
    A::mul(p, bits(t.to_bits().wrapping_sub(0x4b40_0000).wrapping_add(127) << 23))
}

/// `log-v1`.
#[inline(always)]
pub fn log<A: Arithmetic>(x: f32) -> f32 {
    if x.is_nan() || x < 0.0 {
        return bits(NAN_BITS);
    }
    if x == 0.0 {
        return f32::NEG_INFINITY;
    }
    if x == f32::INFINITY {
        return x;
    }
    let half = 0x3f35_04f3_u32;
    let subnormal = x < f32::MIN_POSITIVE;
    let scaled = if subnormal { A::mul(x, 8_388_608.0) } else { x };
    let o = scaled.to_bits().wrapping_sub(half);
    let n = ((o as i32 >> 23) + if subnormal { -23 } else { 0 }) as f32;
    let m = bits((o & 0x007f_ffff) + half);
    let f = A::sub(m, 1.0);
    let s = A::div(f, A::add(m, 1.0));
    let z = A::mul(s, s);
    let p = A::fma(bits(0x3e98_f33c), z, bits(0x3ecc_af4e));
    let p = A::fma(p, z, bits(0x3f2a_aabd));
    // d = f - q with q = z * p.
    let d = A::product_add(-z, p, f);
    let l = A::fma(-s, d, f);
    let l = A::fma(n, bits(0x35bf_be8e), l);
    A::fma(n, bits(0x3f31_7200), l)
}

/// `tanh-v1`.
#[inline(always)]
fn tanh<A: Arithmetic>(u: f32) -> f32 {
    let a = u.abs();
    let e = exp::<A>(A::add(a, a));
    A::sub(1.0, A::div(2.0, A::add(e, 1.0))).copysign(u)
}

const GELU_K: u32 = 0x3f4c_422a;

#[inline(always)]
fn gelu_tanh<A: Arithmetic>(x: f32) -> f32 {
    let t = A::fma(bits(0x3d37_2713), A::mul(x, x), 1.0);
    tanh::<A>(A::mul(A::mul(bits(GELU_K), x), t))
}

/// `gelu-new`.
#[inline(always)]
pub fn gelu<A: Arithmetic>(x: f32) -> f32 {
    let th = gelu_tanh::<A>(x);
    A::mul(A::mul(0.5, x), A::add(1.0, th))
}

/// `gelu-new`, backward.
#[inline(always)]
pub fn gelu_backward<A: Arithmetic>(x: f32, d_y: f32) -> f32 {
    let th = gelu_tanh::<A>(x);
    let h = A::mul(0.5, x);
    let slope = A::fma(bits(0x3e09_5d4f), A::mul(x, x), 1.0);
    let s = A::mul(A::fma(-th, th, 1.0), A::mul(bits(GELU_K), slope));
    A::mul(d_y, A::fma_product(h, s, 0.5, A::add(1.0, th)))
}

/// 1 / (1 + exp(-x)).
#[inline(always)]
pub fn sigmoid<A: Arithmetic>(x: f32) -> f32 {
    A::div(1.0, A::add(1.0, exp::<A>(-x)))
}
