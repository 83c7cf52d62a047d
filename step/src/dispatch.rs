//! Compiles each kernel twice and picks at run time: the one file of this crate that holds `unsafe`.
//!
//! What changes against `reference`: nothing but the instruction set the same inlined bodies are compiled
//! for. Why the bits stay the same: Rust neither reorders floating-point operations nor contracts a*b + c,
//! and `mul_add` is one rounding whether it is an instruction or a library call. Without the `fma` target
//! feature it is such a call, and slow; that, and wider registers, is all that is gained. `tests/backends.rs`
//! compares.

use crate::reference::attention::Head;
use crate::reference::matmul::View;
use crate::reference::{activation, adamw, attention, clip, embedding, loss, matmul, norm, reduce, residual};

/// Which compilation of the kernels runs. A value of the wide kind exists only if this machine can run it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backend(Compiled);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Compiled {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2Fma,
}

impl Backend {
    /// For whatever the crate was compiled for; every machine has it.
    pub const PORTABLE: Backend = Backend(Compiled::Portable);

    /// AVX2 with FMA, if this machine has both.
    pub fn avx2_fma() -> Option<Backend> {
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma") {
            return Some(Backend(Compiled::Avx2Fma));
        }
        None
    }

    /// The fastest this machine can run.
    pub fn detect() -> Backend {
        Self::avx2_fma().unwrap_or(Self::PORTABLE)
    }

    /// Every backend this machine can run.
    pub fn all() -> Vec<Backend> {
        [Some(Self::PORTABLE), Self::avx2_fma()].into_iter().flatten().collect()
    }

    /// A name for people.
    pub fn name(self) -> &'static str {
        match self.0 {
            Compiled::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Compiled::Avx2Fma => "avx2+fma",
        }
    }
}

macro_rules! compile_twice {
    ($($module:ident :: $name:ident ( $($arg:ident : $type:ty),* ) $(-> $result:ty)?;)*) => {$(
        #[doc = concat!("`reference::", stringify!($module), "::", stringify!($name), "` on `backend`.")]
        #[allow(unsafe_code)]
        pub fn $name(backend: Backend, $($arg: $type),*) $(-> $result)? {
            match backend.0 {
                Compiled::Portable => $module::$name($($arg),*),
                #[cfg(target_arch = "x86_64")]
                Compiled::Avx2Fma => {
                    #[target_feature(enable = "avx2,fma")]
                    fn wide($($arg: $type),*) $(-> $result)? {
                        $module::$name($($arg),*)
                    }
                    // SAFETY: `wide` is safe code that needs AVX2 and FMA. `Avx2Fma` is made in one place,
                    // `Backend::avx2_fma`, after both were detected.
                    unsafe { wide($($arg),*) }
                }
            }
        }
    )*};
}

compile_twice! {
    reduce::warp32_sum(x: &[f32]) -> f32;
    reduce::warp32_dot(a: &[f32], b: &[f32]) -> f32;
    reduce::warp32_max(x: &[f32]) -> f32;
    reduce::column_sums(x: &[f32], out: &mut [f32]);
    matmul::matmul(a: View, b: View, inner: usize, columns: usize, out: &mut [f32]);
    matmul::add_bias(bias: &[f32], out: &mut [f32]);
    embedding::embedding_forward(
        tokens: &[u32], wte: &[f32], wpe: &[f32], times: usize, channels: usize, out: &mut [f32]
    );
    embedding::embedding_backward_tokens(tokens: &[u32], d_out: &[f32], channels: usize, d_wte: &mut [f32]);
    embedding::embedding_backward_positions(d_out: &[f32], times: usize, channels: usize, d_wpe: &mut [f32]);
    norm::layernorm_forward(
        x: &[f32], gain: &[f32], bias: &[f32], inv_c: f32, eps: f32,
        y: &mut [f32], mean: &mut [f32], rstd: &mut [f32]
    );
    norm::layernorm_backward_input(
        d_y: &[f32], x: &[f32], gain: &[f32], mean: &[f32], rstd: &[f32], inv_c: f32, d_x: &mut [f32]
    );
    norm::layernorm_backward_parameters(
        d_y: &[f32], x: &[f32], mean: &[f32], rstd: &[f32], d_gain: &mut [f32], d_bias: &mut [f32]
    );
    attention::attention_forward(head: Head, o: &mut [f32], max: &mut [f32], sum: &mut [f32]);
    attention::attention_backward(
        head: Head, o: &[f32], d_o: &[f32], max: &[f32], sum: &[f32],
        d_q: &mut [f32], d_k: &mut [f32], d_v: &mut [f32]
    );
    activation::gelu_forward(x: &[f32], y: &mut [f32]);
    activation::gelu_backward_input(x: &[f32], d_y: &[f32], d_x: &mut [f32]);
    loss::cross_entropy_forward(
        logits: &[f32], targets: &[u32], vocabulary: usize, loss: &mut [f32], max: &mut [f32], sum: &mut [f32]
    );
    loss::mean_loss(loss: &[f32], inv_n: f32) -> f32;
    loss::cross_entropy_backward(
        logits: &[f32], targets: &[u32], max: &[f32], sum: &[f32], vocabulary: usize, inv_n: f32,
        d_logits: &mut [f32]
    );
    residual::add(left: &[f32], right: &[f32], out: &mut [f32]);
    residual::add_in_place(left: &mut [f32], right: &[f32]);
    residual::scale_in_place(x: &mut [f32], factor: f32);
    clip::square_sum_chunk(x: &[f32], columns: usize) -> f32;
    adamw::adamw(
        constants: adamw::AdamwConstants, scale: f32, gradient: &[f32],
        p: &mut [f32], m: &mut [f32], v: &mut [f32]
    );
}
