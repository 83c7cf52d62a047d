//! The operations on numbers that a profile's orders are written with, so that a configuration can change them.

/// How numbers are added, multiplied, divided, and taken into the chains of matrix products. The defaults are the
/// profile `f32-fma`.
pub trait Arithmetic: 'static {
    /// Whether nothing but `chain` is another one.
    const PRODUCTS_ONLY: bool = false;

    /// a + b.
    #[inline(always)]
    fn add(a: f32, b: f32) -> f32 {
        a + b
    }

    /// a * b.
    #[inline(always)]
    fn mul(a: f32, b: f32) -> f32 {
        a * b
    }

    /// a / b.
    #[inline(always)]
    fn div(a: f32, b: f32) -> f32 {
        a / b
    }

    /// The square root.
    #[inline(always)]
    fn sqrt(a: f32) -> f32 {
        a.sqrt()
    }

    /// fma(a, b, c), where the profile writes it.
    #[inline(always)]
    fn fma(a: f32, b: f32, c: f32) -> f32 {
        a.mul_add(b, c)
    }

    /// fma(a, b, c * d): the addend is itself a rounded product.
    #[inline(always)]
    fn fma_product(a: f32, b: f32, c: f32, d: f32) -> f32 {
        Self::fma(a, b, Self::mul(c, d))
    }

    /// a * b + c, both rounded, in one expression of the profile.
    #[inline(always)]
    fn mul_add(a: f32, b: f32, c: f32) -> f32 {
        Self::add(Self::mul(a, b), c)
    }

    /// p + c, where the profile gave the product p = a * b a name of its own before.
    #[inline(always)]
    fn product_add(a: f32, b: f32, c: f32) -> f32 {
        Self::add(Self::mul(a, b), c)
    }

    /// A chain of `n` products of a matrix product; `factors` gives the k-th pair.
    #[inline(always)]
    fn chain(n: usize, factors: impl Fn(usize) -> (f32, f32)) -> f32 {
        ascending::<Self>(0..n, factors)
    }

    /// a - b: an addition of the other sign.
    #[inline(always)]
    fn sub(a: f32, b: f32) -> f32 {
        Self::add(a, -b)
    }
}

/// A chain over a part of k, ascending, from +0.
#[inline(always)]
pub fn ascending<A: Arithmetic + ?Sized>(
    range: std::ops::Range<usize>,
    factors: impl Fn(usize) -> (f32, f32),
) -> f32 {
    range.map(factors).fold(0.0, |acc, (a, b)| A::fma(a, b, acc))
}

/// The profile `f32-fma`.
pub struct Profile;

impl Arithmetic for Profile {}
