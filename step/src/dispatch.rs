//! Picks the instruction set at run time: the one place that turns a [`Backend`] into a call.
//!
//! What changes from backend to backend: nothing but instructions. `reference` runs the definition as the crate was
//! compiled. The others run the kernels of `simd` with the `Vector` of their instruction set, or, where elements do
//! not depend on each other and no order is to be kept, the reference's own loop, compiled for that instruction set:
//! Rust neither reorders floating-point operations nor contracts a*b + c, and `mul_add` is one rounding whether it
//! is an instruction or a library call. `tests/backends.rs` compares them all.

use crate::number::elementary;
use crate::reference::attention::{Head, Rows};
use crate::reference::fold::{self, Sums};
use crate::reference::matmul::View;
use crate::reference::{activation, adamw, attention, clip, embedding, loss, matmul, norm, reduce, residual};
use crate::reference::{rmsnorm, rope, sgd, swiglu};
use crate::simd;
use std::fmt;
use std::str::FromStr;

/// Which kernels run. A value exists only if this machine can run it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backend(Set);

/// Instruction sets, slowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Set {
    Reference,
    Scalar,
    #[cfg(target_arch = "aarch64")]
    Neon,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

/// Not the name of a backend, or of one that this machine lacks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("backend: expected one this machine can run ({}), found {found:?}", names())]
pub struct UnknownBackend {
    /// What was asked for.
    pub found: String,
}

fn names() -> String {
    Backend::all().iter().map(|backend| backend.name()).collect::<Vec<_>>().join(", ")
}

impl Backend {
    /// The definition: plain loops over scalars.
    pub const REFERENCE: Backend = Backend(Set::Reference);
    /// The vector kernels over arrays; every machine has it.
    pub const SCALAR: Backend = Backend(Set::Scalar);

    /// Every backend this machine can run, slowest first.
    pub fn all() -> Vec<Backend> {
        let mut all = vec![Self::REFERENCE, Self::SCALAR];
        #[cfg(target_arch = "aarch64")]
        all.push(Backend(Set::Neon));
        #[cfg(target_arch = "x86_64")]
        {
            let avx2 =
                std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma");
            let avx512 = std::arch::is_x86_feature_detected!("avx512f")
                && std::arch::is_x86_feature_detected!("avx512bw")
                && std::arch::is_x86_feature_detected!("avx512dq")
                && std::arch::is_x86_feature_detected!("avx512vl");
            all.extend(avx2.then_some(Backend(Set::Avx2)));
            all.extend((avx2 && avx512).then_some(Backend(Set::Avx512)));
        }
        all
    }

    /// The fastest this machine can run.
    pub fn detect() -> Backend {
        Self::all().pop().unwrap_or(Self::SCALAR)
    }

    /// The name that `--backend` takes and a prediction records.
    pub fn name(self) -> &'static str {
        match self.0 {
            Set::Reference => "reference",
            Set::Scalar => "scalar",
            #[cfg(target_arch = "aarch64")]
            Set::Neon => "neon",
            #[cfg(target_arch = "x86_64")]
            Set::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Set::Avx512 => "avx512",
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Backend {
    type Err = UnknownBackend;

    fn from_str(name: &str) -> Result<Backend, UnknownBackend> {
        let found = Backend::all().into_iter().find(|backend| backend.name() == name);
        found.ok_or_else(|| UnknownBackend { found: name.chars().take(40).collect() })
    }
}

/// One function for each line: `loops` compiles the reference's loop for every instruction set, `vectors` calls the
/// kernel of the same name in `simd` with its `Vector`, and `meters` does so for what measures the machine and has no
/// definition to equal.
macro_rules! dispatch {
    (@body loops $vector:ty, $module:ident, $name:ident, $($arg:ident),*) => { $module::$name($($arg),*) };
    (@reference meters $module:ident, $name:ident, $($arg:ident),*) => {
        simd::$module::$name::<simd::scalar::Scalar>($($arg),*)
    };
    (@reference $how:ident $module:ident, $name:ident, $($arg:ident),*) => { $module::$name($($arg),*) };
    (@body $how:ident $vector:ty, $module:ident, $name:ident, $($arg:ident),*) => {
        simd::$module::$name::<$vector>($($arg),*)
    };
    ($($how:ident $module:ident :: $name:ident ( $($arg:ident : $type:ty),* ) $(-> $result:ty)?;)*) => {$(
        #[doc = concat!("`reference::", stringify!($module), "::", stringify!($name), "` on `backend`.")]
        #[allow(unsafe_code)]
        pub fn $name(backend: Backend, $($arg: $type),*) $(-> $result)? {
            match backend.0 {
                Set::Reference => dispatch!(@reference $how $module, $name, $($arg),*),
                Set::Scalar => dispatch!(@body $how simd::scalar::Scalar, $module, $name, $($arg),*),
                #[cfg(target_arch = "aarch64")]
                Set::Neon => dispatch!(@body $how simd::neon::Neon, $module, $name, $($arg),*),
                #[cfg(target_arch = "x86_64")]
                Set::Avx2 => {
                    #[target_feature(enable = "avx2,fma")]
                    fn compiled($($arg: $type),*) $(-> $result)? {
                        dispatch!(@body $how simd::avx2::Avx2, $module, $name, $($arg),*)
                    }
                    // SAFETY: `compiled` needs AVX2 and FMA. `Avx2` is made in one place, `Backend::all`, after both
                    // were detected.
                    unsafe { compiled($($arg),*) }
                }
                #[cfg(target_arch = "x86_64")]
                Set::Avx512 => {
                    #[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl")]
                    fn compiled($($arg: $type),*) $(-> $result)? {
                        dispatch!(@body $how simd::avx512::Avx512, $module, $name, $($arg),*)
                    }
                    // SAFETY: as for AVX2, with the parts of AVX-512 named above.
                    unsafe { compiled($($arg),*) }
                }
            }
        }
    )*};
}

dispatch! {
    loops elementary::log(x: f32) -> f32;
    vectors reduce::warp32_sum(x: &[f32]) -> f32;
    vectors reduce::warp32_dot(a: &[f32], b: &[f32]) -> f32;
    vectors reduce::warp32_max(x: &[f32]) -> f32;
    loops reduce::column_sums(x: &[f32], width: usize, first: usize, out: &mut [f32]);
    vectors matmul::matmul(a: View, b: View, inner: usize, bias: Option<&[f32]>, out: &mut [&mut [f32]]);
    meters peak::peak(rounds: usize) -> usize;
    loops embedding::embedding_forward(
        tokens: &[u32], wte: &[f32], wpe: &[f32], times: usize, channels: usize, out: &mut [f32]
    );
    loops embedding::embedding_backward_tokens(
        tokens: &[u32], d_out: &[f32], channels: usize, first: usize, d_wte: &mut [f32]
    );
    loops embedding::embedding_backward_positions(d_out: &[f32], times: usize, channels: usize, d_wpe: &mut [f32]);
    loops embedding::token_embedding_forward(tokens: &[u32], table: &[f32], channels: usize, out: &mut [f32]);
    loops norm::layernorm_forward(
        x: &[f32], gain: &[f32], bias: &[f32], inv_c: f32, eps: f32,
        y: &mut [f32], mean: &mut [f32], rstd: &mut [f32]
    );
    loops norm::layernorm_backward_input(
        d_y: &[f32], x: &[f32], gain: &[f32], mean: &[f32], rstd: &[f32], inv_c: f32, d_x: &mut [f32]
    );
    loops norm::layernorm_backward_parameters(
        d_y: &[f32], x: &[f32], mean: &[f32], rstd: &[f32], width: usize, first: usize,
        d_gain: &mut [f32], d_bias: &mut [f32]
    );
    loops rmsnorm::rmsnorm_forward(
        x: &[f32], gain: &[f32], inv_c: f32, eps: f32, y: &mut [f32], rstd: &mut [f32]
    );
    loops rmsnorm::rmsnorm_backward_input(
        d_y: &[f32], x: &[f32], gain: &[f32], rstd: &[f32], inv_c: f32, d_x: &mut [f32]
    );
    loops rmsnorm::rmsnorm_backward_gain(
        d_y: &[f32], x: &[f32], rstd: &[f32], width: usize, first: usize, d_gain: &mut [f32]
    );
    loops rope::rope_forward(x: &[f32], cos: &[f32], sin: &[f32], half: usize, width: usize, y: &mut [f32]);
    loops rope::rope_backward(d_y: &[f32], cos: &[f32], sin: &[f32], half: usize, width: usize, d_x: &mut [f32]);
    vectors attention::attention_forward(
        head: Head, first: usize, o: &mut [&mut [f32]], max: &mut [f32], sum: &mut [f32]
    );
    vectors attention::attention_backward(
        head: Head, o: Rows, d_o: Rows, max: &[f32], sum: &[f32],
        d_q: &mut [&mut [f32]], d_k: &mut [&mut [f32]], d_v: &mut [&mut [f32]]
    );
    loops activation::gelu_forward(x: &[f32], y: &mut [f32]);
    loops activation::gelu_backward_input(x: &[f32], d_y: &[f32], d_x: &mut [f32]);
    loops swiglu::swiglu_forward(gate: &[f32], up: &[f32], y: &mut [f32]);
    loops swiglu::swiglu_backward(d_y: &[f32], gate: &[f32], up: &[f32], d_gate: &mut [f32], d_up: &mut [f32]);
    loops loss::cross_entropy_forward(
        logits: &[f32], targets: &[u32], vocabulary: usize, loss: &mut [f32], max: &mut [f32], sum: &mut [f32]
    );
    loops loss::mean_loss(loss: &[f32], inv_n: f32) -> f32;
    loops loss::cross_entropy_backward(
        logits: &[f32], targets: &[u32], max: &[f32], sum: &[f32], vocabulary: usize, inv_n: f32,
        d_logits: &mut [f32]
    );
    loops residual::add(left: &[f32], right: &[f32], out: &mut [f32]);
    loops residual::add_in_place(left: &mut [f32], right: &[f32]);
    loops residual::scale_in_place(x: &mut [f32], factor: f32);
    vectors clip::square_sum_chunk(x: &[f32], columns: usize) -> f32;
    vectors clip::scaled_square_sum_chunk(x: &mut [f32], columns: usize, factor: f32) -> f32;
    vectors adamw::adamw(
        constants: adamw::AdamwConstants, scale: f32, gradient: &[f32],
        p: &mut [f32], m: &mut [f32], v: &mut [f32]
    );
    loops sgd::sgd(constants: sgd::SgdConstants, scale: f32, gradient: &[f32], p: &mut [f32], m: &mut [f32]);
    vectors fold::fold_f32(words: &[f32], t: &[u64], t_square: &[u64], factors: &[(u64, u64)]) -> Sums;
    loops fold::fold_u32(words: &[u32], t: &[u64], t_square: &[u64], factors: &[(u64, u64)]) -> Sums;
}
