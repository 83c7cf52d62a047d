//! Arithmetic profiles as data: an id, the version of each rule, and the constants that fix bits
//! (docs/spec/profile.md). The digest stands in every run statement: changing a rule or a constant is a new profile.

use crate::cbor::{self, Value};
use crate::digest::{ProfileDigest, digest};

/// One arithmetic profile.
#[derive(Debug)]
pub struct Profile {
    /// What configs and runs call it.
    pub id: &'static str,
    /// Each rule with the name of its definition in docs/spec/profile.md.
    pub rules: &'static [(&'static str, &'static str)],
    /// Each table of constants, as f32 bits.
    pub tables: &'static [(&'static str, &'static [u32])],
}

impl Profile {
    /// The one encoding: `{id, rules, tables}`.
    pub fn encode(&self) -> Vec<u8> {
        let rules = self.rules.iter().map(|(rule, name)| (Value::text(*rule), Value::text(*name))).collect();
        let row =
            |words: &[u32]| Value::Array(words.iter().map(|word| Value::Uint((*word).into())).collect());
        let tables = self.tables.iter().map(|(table, words)| (Value::text(*table), row(words))).collect();
        cbor::encode(&Value::map([
            ("id", Value::text(self.id)),
            ("rules", Value::Map(rules)),
            ("tables", Value::Map(tables)),
        ]))
    }

    /// The profile's identity.
    pub fn digest(&self) -> ProfileDigest {
        ProfileDigest(digest("profile", &[&self.encode()]))
    }
}

/// Every matrix product one chain of fused multiply-adds, k ascending from +0; portable to every device with a
/// correctly rounded fma.
pub const F32_FMA: Profile = Profile {
    id: "f32-fma",
    rules: &[
        ("matmul", "chain-fma"),
        ("row-sum", "warp32"),
        ("row-max", "warp32"),
        ("exp", "exp-v1"),
        ("log", "log-v1"),
        ("tanh", "tanh-exp-v1"),
        ("gelu", "gelu-new-v1"),
        ("silu", "silu-v1"),
        ("norm", "layernorm-v1"),
        ("rms-norm", "rmsnorm-v1"),
        ("rope", "rope-v1"),
        ("attention", "attn-full-v1"),
        ("grouped-attention", "attn-grouped-v1"),
        ("loss", "cross-entropy-v1"),
        ("embedding", "embedding-v1"),
        ("tree", "ceil-half-v1"),
        ("clip", "global-norm-1024-v1"),
        ("optimizer", "adamw-v1"),
        ("optimizer-sgd", "sgd-v1"),
        ("init", "philox-halves8-v1"),
        ("order", "feistel8-philox-v1"),
    ],
    tables: &[
        // 1.5 x 2^23, log2(e), ln 2 in two parts, then C6 down to C2.
        (
            "exp-v1",
            &[
                0x4b40_0000,
                0x3fb8_aa3b,
                0x3f31_7200,
                0x35bf_be8e,
                0x3ab5_11e9,
                0x3c09_1d10,
                0x3d2a_ac79,
                0x3e2a_aa49,
                0x3eff_fffe,
            ],
        ),
        // sqrt(1/2) rounded down, ln 2 in two parts, then P2 down to P0.
        ("log-v1", &[0x3f35_04f3, 0x3f31_7200, 0x35bf_be8e, 0x3e98_f33c, 0x3ecc_af4e, 0x3f2a_aabd]),
        // sqrt(2 / pi), 0.044715, 3 x 0.044715.
        ("gelu-new-v1", &[0x3f4c_422a, 0x3d37_2713, 0x3e09_5d4f]),
    ],
};
