//! The kernels' source: one text for OpenCL C and CUDA C++, compiled on the machine that runs it.

use sha2::{Digest as _, Sha256};

/// The files in the order in which they are compiled, as one text: name and content.
pub const FILES: &[(&str, &str)] = &[
    ("portable.cl", include_str!("../kernels/portable.cl")),
    ("number.cl", include_str!("../kernels/number.cl")),
    ("fold.cl", include_str!("../kernels/fold.cl")),
    ("warp.cl", include_str!("../kernels/warp.cl")),
    ("matmul.cl", include_str!("../kernels/matmul.cl")),
    ("residual.cl", include_str!("../kernels/residual.cl")),
    ("activation.cl", include_str!("../kernels/activation.cl")),
    ("swiglu.cl", include_str!("../kernels/swiglu.cl")),
    ("rope.cl", include_str!("../kernels/rope.cl")),
    ("norm.cl", include_str!("../kernels/norm.cl")),
    ("rmsnorm.cl", include_str!("../kernels/rmsnorm.cl")),
    ("loss.cl", include_str!("../kernels/loss.cl")),
    ("embedding.cl", include_str!("../kernels/embedding.cl")),
    ("attention.cl", include_str!("../kernels/attention.cl")),
    ("reduce.cl", include_str!("../kernels/reduce.cl")),
    ("clip.cl", include_str!("../kernels/clip.cl")),
    ("adamw.cl", include_str!("../kernels/adamw.cl")),
    ("sgd.cl", include_str!("../kernels/sgd.cl")),
    ("checksum.cl", include_str!("../kernels/checksum.cl")),
    ("selftest.cl", include_str!("../kernels/selftest.cl")),
];

/// The whole text.
pub fn source() -> String {
    FILES.iter().map(|(_, text)| *text).collect::<Vec<_>>().join("\n")
}

/// SHA-256 of the whole text, in hexadecimal: which kernels a receipt was made with.
pub fn digest() -> String {
    Sha256::digest(source().as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}
