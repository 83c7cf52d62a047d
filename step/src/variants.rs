//! One operation of a plan under a known wrong configuration (docs/spec/variants.md).
//!
//! Where a device departs in an operation whose inputs still agreed, its configuration can be told by its bits: the
//! operation is computed again under every variant here, and the fold of what comes out is held against the device's.
//! The device's tensors are not needed.
//!
//! The operations are written once more over an [`Arithmetic`](arithmetic::Arithmetic), plain and scalar as the
//! reference is; under the profile's own they give the reference's bits, which `tests/variants.rs` holds. A variant is
//! another `Arithmetic` and one line of [`VARIANTS`]; the inner step of a tensor core is one whose `chain` takes
//! products in groups.

// Loops count with the letters of the profile's orders, as the reference's do.
#![allow(clippy::needless_range_loop)]

pub mod arithmetic;
mod attention;
pub mod configurations;
pub mod drill;
mod elementary;
mod elements;
pub mod explain;
mod loss;
mod operation;
mod products;
mod rows;
mod update;

use crate::operation::Call;
use crate::state::State;
use arithmetic::{Arithmetic, Profile};
use configurations as c;
use schemas::plan::{Kind, Plan};

/// A configuration that a device may have been run in by mistake.
#[derive(Clone, Copy)]
pub struct Variant {
    /// Its name in a verdict.
    pub name: &'static str,
    /// Whether it changes nothing but the chains of matrix products.
    products_only: bool,
    operation: fn(&Call, Kind, &mut [&mut [f32]]),
    update: fn(&Plan, &[f32], f32, &mut State),
    norm: fn(&Plan, &[f32]) -> f32,
}

/// Every known configuration, in the order of docs/spec/variants.md.
pub const VARIANTS: [Variant; 16] = [
    Variant::of::<c::Uncontracted>("uncontracted"),
    Variant::of::<c::Contracted>("contracted"),
    Variant::of::<c::ContractedInExpressions>("contracted-in-expressions"),
    Variant::of::<c::ContractedOtherProduct>("contracted-other-product"),
    Variant::of::<c::Flushed<true, true>>("flushed-subnormals"),
    Variant::of::<c::Flushed<true, false>>("flushed-subnormal-inputs"),
    Variant::of::<c::Flushed<false, true>>("flushed-subnormal-results"),
    Variant::of::<c::ReciprocalDivision>("reciprocal-division"),
    Variant::of::<c::Tf32Operands>("tf32-operands"),
    Variant::of::<c::Tf32OperandsTruncated>("tf32-operands-truncated"),
    Variant::of::<c::Bf16Operands>("bf16-operands"),
    Variant::of::<c::Bf16Accumulate>("bf16-accumulate"),
    Variant::of::<c::SplitK<2>>("split-k-2"),
    Variant::of::<c::SplitK<4>>("split-k-4"),
    Variant::of::<c::SplitK<8>>("split-k-8"),
    Variant::of::<c::DescendingK>("descending-k"),
];

/// The profile itself, written the same way: what every variant is a change of.
pub const PROFILE: Variant = Variant::of::<Profile>("profile");

/// Not the name of a variant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("variant: expected one of {}, found {found:?}", names())]
pub struct UnknownVariant {
    /// What was asked for.
    pub found: String,
}

fn names() -> String {
    VARIANTS.iter().map(|variant| variant.name).collect::<Vec<_>>().join(", ")
}

impl Variant {
    const fn of<A: Arithmetic>(name: &'static str) -> Variant {
        Variant {
            name,
            products_only: A::PRODUCTS_ONLY,
            operation: operation::run::<A>,
            update: update::apply::<A>,
            norm: update::norm::<A>,
        }
    }

    /// The variant of a name.
    pub fn named(name: &str) -> Result<Variant, UnknownVariant> {
        let found = VARIANTS.into_iter().find(|variant| variant.name == name);
        found.ok_or_else(|| UnknownVariant { found: name.chars().take(40).collect() })
    }

    /// Whether it can change a bit of an operation of `kind`; on given inputs it may still change none.
    pub fn reaches(&self, kind: Kind) -> bool {
        match kind {
            Kind::Window | Kind::TokenEmbedding => false,
            _ => !self.products_only || products::has_chains(kind),
        }
    }

    /// Whether it can change a bit of norm and optimizer.
    pub fn reaches_update(&self) -> bool {
        !self.products_only
    }

    /// Runs an operation of `kind` in this configuration; `outputs` are of the right lengths. The call's backend
    /// does not matter.
    pub fn run(&self, call: &Call, kind: Kind, outputs: &mut [&mut [f32]]) {
        (self.operation)(call, kind, outputs);
    }

    /// Clips by `norm` and applies a reduced gradient to the state, as `update::apply_with_norm` does.
    pub fn update(&self, plan: &Plan, gradient: &[f32], norm: f32, state: &mut State) {
        (self.update)(plan, gradient, norm, state);
    }

    /// The global norm of a reduced gradient.
    pub fn norm(&self, plan: &Plan, gradient: &[f32]) -> f32 {
        (self.norm)(plan, gradient)
    }
}

impl std::fmt::Debug for Variant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}
