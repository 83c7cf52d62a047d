//! The known configurations: what each changes of the profile (docs/spec/variants.md).

use super::arithmetic::{Arithmetic, ascending};

/// `uncontracted`: an fma is a multiply and an add, two roundings.
pub struct Uncontracted;

impl Arithmetic for Uncontracted {
    #[inline(always)]
    fn fma(a: f32, b: f32, c: f32) -> f32 {
        a * b + c
    }
}

/// `contracted`: a product that is added to something is not rounded before.
pub struct Contracted;

impl Arithmetic for Contracted {
    #[inline(always)]
    fn mul_add(a: f32, b: f32, c: f32) -> f32 {
        a.mul_add(b, c)
    }

    #[inline(always)]
    fn product_add(a: f32, b: f32, c: f32) -> f32 {
        a.mul_add(b, c)
    }
}

/// `contracted-in-expressions`: the same, only where product and sum stand in one expression.
pub struct ContractedInExpressions;

impl Arithmetic for ContractedInExpressions {
    #[inline(always)]
    fn mul_add(a: f32, b: f32, c: f32) -> f32 {
        a.mul_add(b, c)
    }
}

/// `contracted-other-product`: of two products that are added, the other one is rounded.
pub struct ContractedOtherProduct;

impl Arithmetic for ContractedOtherProduct {
    #[inline(always)]
    fn fma_product(a: f32, b: f32, c: f32, d: f32) -> f32 {
        c.mul_add(d, a * b)
    }
}

/// `flushed-subnormals`, `-inputs`, `-results`: a subnormal number is a zero of its sign.
pub struct Flushed<const INPUTS: bool, const RESULTS: bool>;

#[inline(always)]
fn flush(x: f32, flushed: bool) -> f32 {
    if flushed && x.is_subnormal() { 0.0_f32.copysign(x) } else { x }
}

impl<const I: bool, const R: bool> Arithmetic for Flushed<I, R> {
    #[inline(always)]
    fn add(a: f32, b: f32) -> f32 {
        flush(flush(a, I) + flush(b, I), R)
    }

    #[inline(always)]
    fn mul(a: f32, b: f32) -> f32 {
        flush(flush(a, I) * flush(b, I), R)
    }

    #[inline(always)]
    fn div(a: f32, b: f32) -> f32 {
        flush(flush(a, I) / flush(b, I), R)
    }

    #[inline(always)]
    fn sqrt(a: f32) -> f32 {
        flush(a, I).sqrt()
    }

    #[inline(always)]
    fn fma(a: f32, b: f32, c: f32) -> f32 {
        flush(flush(a, I).mul_add(flush(b, I), flush(c, I)), R)
    }
}

/// `reciprocal-division`: a quotient is a product with the rounded reciprocal.
pub struct ReciprocalDivision;

impl Arithmetic for ReciprocalDivision {
    #[inline(always)]
    fn div(a: f32, b: f32) -> f32 {
        a * (1.0 / b)
    }
}

/// `tf32-operands`: factors have ten bits behind the point, the nearest, ties away from zero.
pub struct Tf32Operands;

/// An f32 without its last 13 bits, after `add` was added to its magnitude; infinities and NaNs stay.
#[inline(always)]
fn without_13_bits(x: f32, add: u32) -> f32 {
    if x.is_finite() { f32::from_bits((x.to_bits() + add) & !0x1fff) } else { x }
}

impl Arithmetic for Tf32Operands {
    const PRODUCTS_ONLY: bool = true;

    #[inline(always)]
    fn chain(n: usize, factors: impl Fn(usize) -> (f32, f32)) -> f32 {
        ascending::<Self>(0..n, |k| {
            let (a, b) = factors(k);
            (without_13_bits(a, 0x1000), without_13_bits(b, 0x1000))
        })
    }
}

/// `tf32-operands-truncated`: the same, towards zero.
pub struct Tf32OperandsTruncated;

impl Arithmetic for Tf32OperandsTruncated {
    const PRODUCTS_ONLY: bool = true;

    #[inline(always)]
    fn chain(n: usize, factors: impl Fn(usize) -> (f32, f32)) -> f32 {
        ascending::<Self>(0..n, |k| {
            let (a, b) = factors(k);
            (without_13_bits(a, 0), without_13_bits(b, 0))
        })
    }
}

/// The nearest bfloat16, ties to even, as an f32; a NaN stays one.
#[inline(always)]
fn bf16(x: f32) -> f32 {
    let bits = x.to_bits();
    if x.is_nan() { x } else { f32::from_bits((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff_0000) }
}

/// `bf16-operands`: factors are rounded to bfloat16.
pub struct Bf16Operands;

impl Arithmetic for Bf16Operands {
    const PRODUCTS_ONLY: bool = true;

    #[inline(always)]
    fn chain(n: usize, factors: impl Fn(usize) -> (f32, f32)) -> f32 {
        ascending::<Self>(0..n, |k| {
            let (a, b) = factors(k);
            (bf16(a), bf16(b))
        })
    }
}

/// `bf16-accumulate`: the accumulator is rounded to bfloat16 after every product.
pub struct Bf16Accumulate;

impl Arithmetic for Bf16Accumulate {
    const PRODUCTS_ONLY: bool = true;

    #[inline(always)]
    fn chain(n: usize, factors: impl Fn(usize) -> (f32, f32)) -> f32 {
        (0..n).map(factors).fold(0.0, |acc, (a, b)| bf16(a.mul_add(b, acc)))
    }
}

/// `split-k-S`: k is cut into S parts, each a chain of its own; their sums are added, lower k first.
pub struct SplitK<const S: usize>;

impl<const S: usize> Arithmetic for SplitK<S> {
    const PRODUCTS_ONLY: bool = true;

    #[inline(always)]
    fn chain(n: usize, factors: impl Fn(usize) -> (f32, f32)) -> f32 {
        let each = n.div_ceil(S).max(1);
        let mut sum = ascending::<Self>(0..each.min(n), &factors);
        for first in (each..n).step_by(each) {
            sum += ascending::<Self>(first..n.min(first + each), &factors);
        }
        sum
    }
}

/// `descending-k`: the chain begins with the last product.
pub struct DescendingK;

impl Arithmetic for DescendingK {
    const PRODUCTS_ONLY: bool = true;

    #[inline(always)]
    fn chain(n: usize, factors: impl Fn(usize) -> (f32, f32)) -> f32 {
        ascending::<Self>(0..n, |k| factors(n - 1 - k))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(x: f32) -> u32 {
        x.to_bits()
    }

    #[test]
    fn narrow_numbers_are_the_nearest_and_keep_what_is_not_finite() {
        let cases = [
            (0x3f80_1000, 0x3f80_2000, 0x3f80_0000),
            (0x3f80_0fff, 0x3f80_0000, 0x3f80_0000),
            (0xbf80_3000, 0xbf80_4000, 0xbf80_2000),
            (0x7f7f_ffff, 0x7f80_0000, 0x7f7f_e000),
            (0x0000_1000, 0x0000_2000, 0x0000_0000),
            (0x7f80_0001, 0x7f80_0001, 0x7f80_0001),
        ];
        for (x, nearest, truncated) in cases {
            let found = [0x1000, 0].map(|add| hex(without_13_bits(f32::from_bits(x), add)));
            assert_eq!(found, [nearest, truncated], "{x:08x}");
        }
        let cases = [
            (0x3f80_8000, 0x3f80_0000),
            (0x3f81_8000, 0x3f82_0000),
            (0x3f80_8001, 0x3f81_0000),
            (0x7f7f_ffff, 0x7f80_0000),
            (0xff80_0000, 0xff80_0000),
            (0x0000_8001, 0x0001_0000),
        ];
        for (x, nearest) in cases {
            assert_eq!(hex(bf16(f32::from_bits(x))), nearest, "{x:08x}");
        }
        assert!(bf16(f32::from_bits(0x7f80_0001)).is_nan());
    }

    #[test]
    fn parts_of_k_are_whole_and_added_lower_k_first() {
        let terms = [1.0_f32, 2.0, 4.0, 8.0, 16.0, 1e9, -1e9, 3.0, 5.0];
        let chain = |n: usize| SplitK::<2>::chain(n, |k| (terms[k], 1.0));
        // 1 + 2 + 4 + 8 + 16, then 1e9 - 1e9 + 3 + 5.
        assert_eq!(chain(9), 31.0 + 8.0);
        assert_eq!((chain(0), chain(1), chain(2)), (0.0, 1.0, 3.0));
        let parts = std::cell::RefCell::new(vec![]);
        SplitK::<4>::chain(9, |k| {
            parts.borrow_mut().push(k);
            (1.0, 1.0)
        });
        assert_eq!(*parts.borrow(), (0..9).collect::<Vec<_>>(), "each k once: parts of 3, 3, 3 and none");
        assert_eq!(hex(SplitK::<8>::chain(1, |_| (f32::from_bits(1), f32::from_bits(1 << 31 | 1)))), 1 << 31);
    }

    #[test]
    fn a_flushed_zero_keeps_its_sign() {
        let small = f32::from_bits(0x8000_0001);
        assert_eq!(hex(Flushed::<true, false>::mul(small, 1.0)), 0x8000_0000);
        assert_eq!(hex(Flushed::<false, true>::add(small, small)), 0x8000_0000);
        assert_eq!(hex(Flushed::<false, false>::add(small, small)), 0x8000_0002);
        assert_eq!(hex(Flushed::<true, false>::fma(1.0, 1.0, f32::MIN_POSITIVE)), 0x3f80_0000);
    }
}
