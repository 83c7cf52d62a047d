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
    /// The profile's identity.
    pub fn digest(&self) -> ProfileDigest {
        let rules = self.rules.iter().map(|(rule, name)| (Value::text(*rule), Value::text(*name))).collect();
        let row =
            |words: &[u32]| Value::Array(words.iter().map(|word| Value::Uint((*word).into())).collect());
        let tables = self.tables.iter().map(|(table, words)| (Value::text(*table), row(words))).collect();
        let value = Value::map([
            ("id", Value::text(self.id)),
            ("rules", Value::Map(rules)),
            ("tables", Value::Map(tables)),
        ]);
        ProfileDigest(digest("profile", &[&cbor::encode(&value)]))
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
        ("norm", "layernorm-v1"),
        ("attention", "attn-full-v1"),
        ("loss", "cross-entropy-v1"),
        ("embedding", "embedding-v1"),
        ("tree", "ceil-half-v1"),
        ("clip", "global-norm-1024-v1"),
        ("optimizer", "adamw-v1"),
        ("init", "philox-halves8-v1"),
        ("order", "feistel8-philox-v1"),
    ],
    tables: &[],
};
