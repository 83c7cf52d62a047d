//! Typed digests with domain separation.
//!
//! `digest(domain, bytes) = SHA-256("tallystick/v1/" domain 0x00 bytes)`. No domain holds a zero byte, so no digest
//! under one domain can be a digest under another. Each kind of digest is a type of its own: they cannot be swapped.

use sha2::{Digest as _, Sha256};

/// SHA-256 under a domain tag, over the concatenation of `parts` (all but the last of fixed length, by convention).
pub fn digest(domain: &str, parts: &[&[u8]]) -> [u8; 32] {
    let mut hasher = Sha256::new();
    hasher.update(b"tallystick/v1/");
    hasher.update(domain.as_bytes());
    hasher.update([0]);
    parts.iter().for_each(|part| hasher.update(part));
    hasher.finalize().into()
}

/// Why a text is not a digest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}: expected 64 lower-case hexadecimal digits, found {found:?}")]
pub struct DigestTextError {
    /// The kind of digest.
    pub what: &'static str,
    /// The text, cut after 80 characters.
    pub found: String,
}

macro_rules! typed_digest {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub [u8; 32]);

        impl $name {
            /// What this digest identifies, for messages.
            pub const WHAT: &'static str = $what;
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&hex::encode(self.0))
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{}({})", stringify!($name), self)
            }
        }

        impl std::str::FromStr for $name {
            type Err = DigestTextError;
            fn from_str(text: &str) -> Result<Self, DigestTextError> {
                parse_hex(text)
                    .map($name)
                    .ok_or_else(|| DigestTextError { what: $what, found: text.chars().take(80).collect() })
            }
        }
    };
}

fn parse_hex(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    // Lower case only: one digest, one text.
    let strict = text.len() == 64 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    (strict && hex::decode_to_slice(text, &mut bytes).is_ok()).then_some(bytes)
}

typed_digest!(/// Identity of a config object.
    ConfigDigest, "config digest");
typed_digest!(/// Identity of a plan object; also the key of its folds.
    PlanDigest, "plan digest");
typed_digest!(/// Identity of an arithmetic profile.
    ProfileDigest, "profile digest");
typed_digest!(/// Identity of a training state: step number, parameters and moments.
    StateDigest, "state digest");
typed_digest!(/// Identity of a run statement's payload; names the run everywhere.
    RunId, "run id");
typed_digest!(/// What a sealed prediction shows of its step records.
    Seal, "seal");
typed_digest!(/// What a seal is made of: one salted step record.
    StepSeal, "step seal");
typed_digest!(/// Salt that hides step records until the opening.
    Salt, "salt");
typed_digest!(/// Root over the trace of one leaf.
    TraceRoot, "trace root");
typed_digest!(/// Root over the folds of one step's tree nodes, reduced gradient and parameters.
    MeetingRoot, "meeting root");
typed_digest!(/// Merkle commitment to a tensor's values (docs/spec/checksum.md).
    Checksum, "checksum");
typed_digest!(/// What a receipt must answer: derived from a log checkpoint that covers the prediction.
    Challenge, "challenge");
typed_digest!(/// Plain SHA-256 of a log entry; names it.
    EntryDigest, "entry digest");
typed_digest!(/// Plain SHA-256 of an attachment; names it.
    AttachmentDigest, "attachment digest");

impl EntryDigest {
    /// The name of the entry `bytes`.
    pub fn of(bytes: &[u8]) -> EntryDigest {
        EntryDigest(Sha256::digest(bytes).into())
    }
}

impl AttachmentDigest {
    /// The name of the attachment `bytes`.
    pub fn of(bytes: &[u8]) -> AttachmentDigest {
        AttachmentDigest(Sha256::digest(bytes).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn domains_separate_and_the_tag_is_what_the_specification_says() {
        let expected: [u8; 32] = Sha256::digest(b"tallystick/v1/plan\0abc").into();
        assert_eq!(digest("plan", &[b"a", b"bc"]), expected);
        assert_ne!(digest("plan", &[b"abc"]), digest("run", &[b"abc"]));
    }

    #[test]
    fn one_digest_has_one_text() {
        let id = RunId([0xab; 32]);
        assert_eq!(id.to_string().parse(), Ok(id));
        for bad in ["", "ab", &"AB".repeat(32), &"ab".repeat(33), &"g0".repeat(32), &"é".repeat(32)] {
            assert!(bad.parse::<RunId>().is_err(), "{bad}");
        }
    }
}
