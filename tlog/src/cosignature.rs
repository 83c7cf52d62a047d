//! Cosignatures (C2SP tlog-cosignature, type cosignature/v1): a witness's signed statement that, at a stated time,
//! a checkpoint was the largest consistent one it had seen of that log.
//!
//! A cosignature is a signature line of the checkpoint's note. Its bytes after the key ID are the time as a
//! big-endian u64 of POSIX seconds, then an Ed25519 signature over
//!
//! ```text
//! cosignature/v1
//! time <decimal>
//! <the note's text>
//! ```
//!
//! The signed message does not name the cosigner. So one key must never serve two cosigners; that is up to whoever
//! runs them, and a policy refuses two witnesses with one key (see [`crate::policy`]). A witness's key has signature
//! type 0x04 and so another key ID than a log's key of the same bytes: neither passes for the other.

use ed25519_dalek::Signer as _;

use crate::note::{
    KeyError, KeyId, KeyName, NoteError, NoteSignature, PRIVATE_PREFIX, SignedNote, Verifier, check_id,
    has_control, join_key, public_key, split_key, strip_private,
};

/// Signature type 0x04: a time and an Ed25519 signature over the time and the note's text.
pub const COSIGNATURE_V1: u8 = 0x04;
/// Latest time a cosignature may state.
pub const TIME_S_MAX: u64 = i64::MAX as u64;

const TIME_BYTES: usize = 8;
const SIGNATURE_BYTES: usize = 64;

/// A witness's verifier key (signature type 0x04).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CosignerKey {
    name: KeyName,
    id: KeyId,
    key: ed25519_dalek::VerifyingKey,
}

/// A cosignature that has been verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cosignature {
    /// The witness that made it.
    pub witness: CosignerKey,
    /// When it says to have made it, in POSIX seconds.
    pub time_s: u64,
}

impl CosignerKey {
    fn new(name: KeyName, key: ed25519_dalek::VerifyingKey) -> CosignerKey {
        CosignerKey { id: KeyId::of(&name, COSIGNATURE_V1, key.as_bytes()), name, key }
    }

    /// Parses a vkey. The ID in the text must be the one computed from name and key.
    pub fn parse(text: &str) -> Result<CosignerKey, KeyError> {
        let (name, id, bytes) = split_key(text, COSIGNATURE_V1)?;
        let key = CosignerKey::new(name, public_key(&bytes)?);
        check_id(key.id, id)?;
        Ok(key)
    }

    /// The raw public key.
    pub fn public_key(&self) -> &[u8; 32] {
        self.key.as_bytes()
    }

    /// The time that a signature (without the key ID) states for `text`, if it is this key's.
    pub fn time_of(&self, text: &str, signature: &[u8]) -> Option<u64> {
        let (time, signature) = signature.split_first_chunk::<TIME_BYTES>()?;
        let time_s = u64::from_be_bytes(*time);
        if time_s > TIME_S_MAX {
            return None;
        }
        let signature = ed25519_dalek::Signature::from_slice(signature).ok()?;
        self.key.verify_strict(message(text, time_s).as_bytes(), &signature).ok()?;
        Some(time_s)
    }
}

impl std::fmt::Display for CosignerKey {
    /// Writes the vkey.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&join_key(&self.name, self.id, COSIGNATURE_V1, self.key.as_bytes()))
    }
}

impl Verifier for CosignerKey {
    fn name(&self) -> &KeyName {
        &self.name
    }

    fn id(&self) -> KeyId {
        self.id
    }

    fn verify(&self, text: &str, signature: &[u8]) -> bool {
        self.time_of(text, signature).is_some()
    }
}

/// A witness's signing key. Its secret is erased when dropped and never shown by `Debug`.
pub struct CosigningKey {
    secret: ed25519_dalek::SigningKey,
    public: CosignerKey,
}

impl CosigningKey {
    /// Makes the key of a name from a 32-byte secret seed.
    pub fn from_seed(name: KeyName, seed: &[u8; 32]) -> CosigningKey {
        let secret = ed25519_dalek::SigningKey::from_bytes(seed);
        let public = CosignerKey::new(name, secret.verifying_key());
        CosigningKey { secret, public }
    }

    /// Parses what [`CosigningKey::to_secret_text`] writes; surrounding white space is ignored.
    pub fn parse_secret_text(text: &str) -> Result<CosigningKey, KeyError> {
        let (name, id, seed) = split_key(strip_private(text)?, COSIGNATURE_V1)?;
        let key = CosigningKey::from_seed(name, &seed);
        check_id(key.public.id, id)?;
        Ok(key)
    }

    /// The key as text, for a file that only its owner may read:
    /// `PRIVATE+KEY+<name>+<8 hex digits>+<base64 of 0x04 || seed>`.
    pub fn to_secret_text(&self) -> String {
        let key = join_key(&self.public.name, self.public.id, COSIGNATURE_V1, self.secret.as_bytes());
        format!("{PRIVATE_PREFIX}{key}")
    }

    /// The public half, which formats as the vkey.
    pub fn verifier(&self) -> &CosignerKey {
        &self.public
    }

    /// The cosignature of a checkpoint's text (which must end in a newline) at a time.
    pub fn cosign(&self, text: &str, time_s: u64) -> NoteSignature {
        assert!(time_s <= TIME_S_MAX, "tlog: a cosignature's time is below 2^63");
        assert!(text.ends_with('\n') && !has_control(text), "tlog: a note's text is lines");
        let mut bytes = time_s.to_be_bytes().to_vec();
        bytes.extend_from_slice(&self.secret.sign(message(text, time_s).as_bytes()).to_bytes());
        NoteSignature { name: self.public.name.clone(), id: self.public.id, bytes }
    }
}

impl std::fmt::Debug for CosigningKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CosigningKey({})", self.public)
    }
}

/// What is signed. One number has one decimal, so one time has one message.
fn message(text: &str, time_s: u64) -> String {
    format!("cosignature/v1\ntime {time_s}\n{text}")
}

impl NoteSignature {
    /// The time that a line of a cosignature's length states. Nothing is verified: this is for notes whose lines have
    /// been, such as those a log has kept.
    pub fn stated_time_s(&self) -> Option<u64> {
        let (time, signature) = self.bytes.split_first_chunk::<TIME_BYTES>()?;
        (signature.len() == SIGNATURE_BYTES).then(|| u64::from_be_bytes(*time))
    }
}

impl SignedNote {
    /// The cosignatures of known witnesses, at most one for each, in the order of `witnesses`.
    ///
    /// Lines of unknown keys are ignored. A line of a known witness that does not verify rejects the note, as with any
    /// known key. Of several lines of one witness the earliest counts: it says most, and the witness signed it.
    pub fn cosignatures(&self, witnesses: &[CosignerKey]) -> Result<Vec<Cosignature>, NoteError> {
        let mut found = Vec::new();
        for witness in witnesses {
            let mut earliest: Option<u64> = None;
            for line in self.signatures().iter().filter(|line| line.is_of(witness)) {
                let wrong = || NoteError::BadSignature { name: witness.name.as_str().to_owned() };
                let time_s = witness.time_of(self.text(), &line.bytes).ok_or_else(wrong)?;
                earliest = Some(earliest.map_or(time_s, |earliest| earliest.min(time_s)));
            }
            found.extend(earliest.map(|time_s| Cosignature { witness: witness.clone(), time_s }));
        }
        Ok(found)
    }
}
