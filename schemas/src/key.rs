//! Ed25519 keys of people and devices. The log's own key is a C2SP verifier key and lives in `tlog`.

use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};

/// Text before a public key's 64 hexadecimal digits.
const PUBLIC_PREFIX: &str = "ed25519:";
/// Text before a secret key's 64 hexadecimal digits, chosen so that a leaked one can be searched for.
const SECRET_PREFIX: &str = "tallystick-secret-ed25519:";

/// Why a key could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// Not the text form of a public key.
    #[error("expected a public key `ed25519:<64 hexadecimal digits>`, found {found:?}")]
    PublicText {
        /// The text, cut after 80 characters.
        found: String,
    },
    /// Not the text form of a secret key. The text itself is never shown.
    #[error(
        "expected a secret key file: `tallystick-secret-ed25519:<64 hexadecimal digits>` and a line feed"
    )]
    SecretText,
    /// 32 bytes that are not a point of the curve, or one of small order.
    #[error("{0} is not a usable Ed25519 public key")]
    NotAKey(String),
}

/// A public key: 32 bytes, checked to be a usable Ed25519 key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey([u8; 32]);

impl PublicKey {
    /// Checks 32 bytes and makes a key of them. Keys of small order, under which anything verifies, are refused.
    pub fn from_bytes(bytes: [u8; 32]) -> Result<PublicKey, KeyError> {
        Ok(Verifier::from_bytes(bytes)?.public())
    }

    /// The 32 bytes.
    pub fn to_bytes(self) -> [u8; 32] {
        self.0
    }

    /// Whether `signature` is this key's over `message`, by the strict rules (no malleable encodings).
    pub fn verifies(&self, message: &[u8], signature: &[u8; 64]) -> bool {
        Verifier::from_bytes(self.0).is_ok_and(|key| key.verifies(message, signature))
    }
}

/// A public key with its point of the curve, which takes a tenth of a signature's check to find: for who checks both.
pub(crate) struct Verifier(VerifyingKey);

impl Verifier {
    /// As [`PublicKey::from_bytes`].
    pub(crate) fn from_bytes(bytes: [u8; 32]) -> Result<Verifier, KeyError> {
        match VerifyingKey::from_bytes(&bytes) {
            Ok(key) if !key.is_weak() => Ok(Verifier(key)),
            _ => Err(KeyError::NotAKey(hex::encode(bytes))),
        }
    }

    /// The key.
    pub(crate) fn public(&self) -> PublicKey {
        PublicKey(self.0.to_bytes())
    }

    /// As [`PublicKey::verifies`].
    pub(crate) fn verifies(&self, message: &[u8], signature: &[u8; 64]) -> bool {
        self.0.verify_strict(message, &Signature::from_bytes(signature)).is_ok()
    }
}

impl std::fmt::Display for PublicKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{PUBLIC_PREFIX}{}", hex::encode(self.0))
    }
}

impl std::fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}

impl std::str::FromStr for PublicKey {
    type Err = KeyError;
    fn from_str(text: &str) -> Result<PublicKey, KeyError> {
        let bad = || KeyError::PublicText { found: text.chars().take(80).collect() };
        PublicKey::from_bytes(key_bytes(text, PUBLIC_PREFIX).ok_or_else(bad)?)
    }
}

/// A secret key. Its bytes appear only in the text of [`SecretKey::to_text`], meant for a file of mode 0600.
pub struct SecretKey(SigningKey);

impl SecretKey {
    /// Makes a key of 32 random bytes, which the caller takes from the operating system.
    pub fn from_seed(seed: [u8; 32]) -> SecretKey {
        SecretKey(SigningKey::from_bytes(&seed))
    }

    /// Reads the text of a key file.
    pub fn from_text(text: &str) -> Result<SecretKey, KeyError> {
        let line = text.strip_suffix('\n').unwrap_or(text);
        Ok(SecretKey::from_seed(key_bytes(line, SECRET_PREFIX).ok_or(KeyError::SecretText)?))
    }

    /// The text of a key file.
    pub fn to_text(&self) -> String {
        format!("{SECRET_PREFIX}{}\n", hex::encode(self.0.to_bytes()))
    }

    /// The public half.
    pub fn public(&self) -> PublicKey {
        PublicKey(self.0.verifying_key().to_bytes())
    }

    /// Signs `message`.
    pub fn sign(&self, message: &[u8]) -> [u8; 64] {
        self.0.sign(message).to_bytes()
    }
}

impl std::fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SecretKey(of {})", self.public())
    }
}

fn key_bytes(text: &str, prefix: &str) -> Option<[u8; 32]> {
    let digits = text.strip_prefix(prefix)?;
    let lower = digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    let mut bytes = [0; 32];
    (lower && digits.len() == 64 && hex::decode_to_slice(digits, &mut bytes).is_ok()).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_survives_its_text_and_signs() {
        let key = SecretKey::from_text(&SecretKey::from_seed([7; 32]).to_text()).unwrap();
        let public: PublicKey = key.public().to_string().parse().unwrap();
        let signature = key.sign(b"message");
        assert!(public.verifies(b"message", &signature));
        assert!(!public.verifies(b"messagf", &signature));
        for bit in 0..512 {
            let mut flipped = signature;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(!public.verifies(b"message", &flipped), "bit {bit}");
        }
    }

    #[test]
    fn a_secret_never_shows_in_messages() {
        let key = SecretKey::from_seed([0x5a; 32]);
        assert!(!format!("{key:?}").contains("5a5a"));
        let error = SecretKey::from_text(&format!("{SECRET_PREFIX}{}zz", "5a".repeat(31))).unwrap_err();
        assert!(!error.to_string().contains("5a5a"));
    }

    #[test]
    fn weak_and_malformed_public_keys_are_refused() {
        let mut one = [0; 32];
        one[0] = 1; // The neutral point: every signature of a certain form would verify.
        assert!(PublicKey::from_bytes(one).is_err());
        assert!("ed25519:00".parse::<PublicKey>().is_err());
        assert!("rsa:00".parse::<PublicKey>().is_err());
    }
}
