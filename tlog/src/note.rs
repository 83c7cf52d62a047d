//! Signed notes (C2SP signed-note v1.0.0): a text, a blank line, and one or more signature lines.
//!
//! ```text
//! example.com/log
//! 3
//! Wqx3HImawpLnS/Gv4ubjAvi1WIOy0b8Ze0amvqbavKk=
//!
//! <em dash> example.com/log M9e0lvAQRtH832pk2RTbeSeZMkp4FZSdJYFBUjO5SKxuRbywPUF3...
//! ```
//!
//! The text is everything up to and including the newline before the last empty line. A signature line is an em
//! dash, a space, the key name, a space, and base64 of a big-endian 4-byte key ID followed by the signature. A key
//! ID is the first four bytes of SHA-256(name || 0x0A || signature type || public key). A verifier key ("vkey")
//! reads `<name>+<8 hex digits of key ID>+<base64 of signature type || public key>`.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::Signer as _;
use sha2::{Digest, Sha256};
use thiserror::Error;

/// Longest note that is looked at.
pub const NOTE_BYTES_MAX: usize = 256 * 1024;
/// Most signatures a note may carry; the specification asks for at least 16.
pub const SIGNATURES_MAX: usize = 64;
/// Longest key name.
pub const KEY_NAME_BYTES_MAX: usize = 255;
/// Signature type 0x01: Ed25519 over the note text.
pub const ED25519: u8 = 0x01;

const KEY_ID_BYTES: usize = 4;
const ED25519_BYTES: usize = 32;
pub(crate) const PRIVATE_PREFIX: &str = "PRIVATE+KEY+";

/// Why a text is not a key.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum KeyError {
    /// Names are not empty, have no spaces, no plus and no control characters.
    #[error("key name {found:?} is empty, too long, or has a space, a plus or a control character")]
    BadName {
        /// The name found.
        found: String,
    },
    /// The text has not the three parts of a vkey.
    #[error("verifier key is not of the form <name>+<8 hex digits>+<base64>")]
    BadForm,
    /// The key signs otherwise than is expected here: a witness's key in a log's place, or the other way round.
    #[error("key has signature type {found:#04x}, expected {expected:#04x}")]
    UnsupportedType {
        /// The type byte expected.
        expected: u8,
        /// The type byte found.
        found: u8,
    },
    /// The bytes are not a valid Ed25519 public key.
    #[error("public key is not a valid ed25519 key")]
    BadPublicKey,
    /// The key ID in the text is not the one that the key has.
    #[error("key id is {found:08x}, expected {expected:08x}")]
    WrongId {
        /// The ID computed from the key.
        expected: u32,
        /// The ID in the text.
        found: u32,
    },
}

/// Why bytes are not a signed note, or not one to be trusted.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NoteError {
    /// The note is longer than the limit.
    #[error("note is {found} bytes, expected at most {NOTE_BYTES_MAX}")]
    TooLong {
        /// Bytes found.
        found: usize,
    },
    /// The note is not valid UTF-8, or has a control character other than a newline.
    #[error("note is not utf-8 text without control characters")]
    NotText,
    /// There is no text followed by an empty line and at least one signature line.
    #[error("note has no text followed by an empty line and signatures")]
    NoSignatures,
    /// There are more signatures than the limit.
    #[error("note has more than {SIGNATURES_MAX} signatures")]
    TooManySignatures,
    /// A line below the text is not a signature line.
    #[error("line {line} of the signatures is not a signature line")]
    BadSignatureLine {
        /// Its number, from 1.
        line: usize,
    },
    /// A signature that names a known key does not verify: the whole note is rejected.
    #[error("signature of known key {name} does not verify")]
    BadSignature {
        /// The key's name.
        name: String,
    },
    /// No signature is from a known key.
    #[error("note has no signature of a known key ({found} of unknown keys)")]
    NoKnownKey {
        /// Number of signatures that were ignored.
        found: usize,
    },
}

/// A key name: not empty, without Unicode spaces, plus signs or control characters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyName(String);

impl KeyName {
    /// Checks and wraps a name.
    pub fn new(name: &str) -> Result<KeyName, KeyError> {
        let bad = |c: char| c.is_whitespace() || c.is_control() || c == '+';
        if name.is_empty() || name.len() > KEY_NAME_BYTES_MAX || name.contains(bad) {
            return Err(KeyError::BadName { found: name.chars().take(KEY_NAME_BYTES_MAX).collect() });
        }
        Ok(KeyName(name.to_owned()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for KeyName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// A key ID: it tells keys of one name apart. It is short, so it identifies and does not authenticate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId(pub u32);

impl KeyId {
    /// SHA-256(name || 0x0A || signature type || public key), its first four bytes.
    pub fn of(name: &KeyName, signature_type: u8, public_key: &[u8]) -> KeyId {
        let mut sha = Sha256::new();
        sha.update(name.as_str());
        sha.update([b'\n', signature_type]);
        sha.update(public_key);
        let digest = sha.finalize();
        KeyId(u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]))
    }
}

/// A key that is known and trusted to verify note signatures of one type.
pub trait Verifier {
    /// The key's name.
    fn name(&self) -> &KeyName;
    /// The key's ID.
    fn id(&self) -> KeyId;
    /// Whether `signature` (without the key ID) is this key's over `text`.
    fn verify(&self, text: &str, signature: &[u8]) -> bool;
}

/// An Ed25519 verifier key (signature type 0x01).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifierKey {
    name: KeyName,
    id: KeyId,
    key: ed25519_dalek::VerifyingKey,
}

impl VerifierKey {
    fn new(name: KeyName, key: ed25519_dalek::VerifyingKey) -> VerifierKey {
        VerifierKey { id: KeyId::of(&name, ED25519, key.as_bytes()), name, key }
    }

    /// Parses a vkey. The ID in the text must be the one computed from name and key.
    pub fn parse(text: &str) -> Result<VerifierKey, KeyError> {
        let (name, id, bytes) = split_key(text, ED25519)?;
        let key = VerifierKey::new(name, public_key(&bytes)?);
        check_id(key.id, id)?;
        Ok(key)
    }

    /// The raw public key.
    pub fn public_key(&self) -> &[u8; 32] {
        self.key.as_bytes()
    }

    /// Whether `signature` is this key's over bytes that are no note; the counterpart of [`SigningKey::sign_bytes`].
    pub fn verify_bytes(&self, message: &[u8], signature: &[u8; 64]) -> bool {
        let signature = ed25519_dalek::Signature::from_bytes(signature);
        self.key.verify_strict(message, &signature).is_ok()
    }
}

impl std::fmt::Display for VerifierKey {
    /// Writes the vkey.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&join_key(&self.name, self.id, ED25519, self.key.as_bytes()))
    }
}

impl Verifier for VerifierKey {
    fn name(&self) -> &KeyName {
        &self.name
    }

    fn id(&self) -> KeyId {
        self.id
    }

    fn verify(&self, text: &str, signature: &[u8]) -> bool {
        let Ok(signature) = ed25519_dalek::Signature::from_slice(signature) else { return false };
        self.key.verify_strict(text.as_bytes(), &signature).is_ok()
    }
}

/// The log's Ed25519 signing key. Its secret is erased when dropped and never shown by `Debug`.
pub struct SigningKey {
    secret: ed25519_dalek::SigningKey,
    public: VerifierKey,
}

impl SigningKey {
    /// Makes the key of a name from a 32-byte secret seed.
    pub fn from_seed(name: KeyName, seed: &[u8; 32]) -> SigningKey {
        let secret = ed25519_dalek::SigningKey::from_bytes(seed);
        let public = VerifierKey::new(name, secret.verifying_key());
        SigningKey { secret, public }
    }

    /// Parses what [`SigningKey::to_secret_text`] writes; surrounding white space is ignored.
    pub fn parse_secret_text(text: &str) -> Result<SigningKey, KeyError> {
        let rest = strip_private(text)?;
        let (name, id, seed) = split_key(rest, ED25519)?;
        let key = SigningKey::from_seed(name, &seed);
        check_id(key.public.id, id)?;
        Ok(key)
    }

    /// The key as text, for a file that only its owner may read:
    /// `PRIVATE+KEY+<name>+<8 hex digits>+<base64 of 0x01 || seed>`, the form of Go's note package.
    pub fn to_secret_text(&self) -> String {
        let key = join_key(&self.public.name, self.public.id, ED25519, self.secret.as_bytes());
        format!("{PRIVATE_PREFIX}{key}")
    }

    /// The public half, which formats as the vkey.
    pub fn verifier(&self) -> &VerifierKey {
        &self.public
    }

    /// Signs a text (which must end in a newline) and returns the whole note.
    pub fn sign(&self, text: &str) -> String {
        assert!(text.ends_with('\n'), "tlog: a note's text ends in a newline");
        assert!(!has_control(text), "tlog: a note's text has no control characters");
        let signature = NoteSignature {
            name: self.public.name.clone(),
            id: self.public.id,
            bytes: self.secret.sign(text.as_bytes()).to_bytes().to_vec(),
        };
        format!("{text}\n{signature}")
    }

    /// Signs bytes that are no note: a COSE Sig_structure. These begin with 0x84, and a note, which is UTF-8, cannot.
    pub fn sign_bytes(&self, message: &[u8]) -> [u8; 64] {
        assert!(message.first() == Some(&0x84), "tlog: what is signed besides notes is an array of four");
        self.secret.sign(message).to_bytes()
    }
}

impl std::fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SigningKey({})", self.public)
    }
}

/// One signature line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoteSignature {
    /// The name of the key that is said to have signed.
    pub name: KeyName,
    /// Its ID.
    pub id: KeyId,
    /// The signature, without the key ID.
    pub bytes: Vec<u8>,
}

impl std::fmt::Display for NoteSignature {
    /// Writes the signature line, with its newline.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut bytes = self.id.0.to_be_bytes().to_vec();
        bytes.extend_from_slice(&self.bytes);
        writeln!(f, "\u{2014} {} {}", self.name, STANDARD.encode(bytes))
    }
}

impl NoteSignature {
    /// Whether this line says that it is of that key.
    pub fn is_of(&self, key: &dyn Verifier) -> bool {
        self.name == *key.name() && self.id == key.id()
    }

    /// Parses signature lines that stand alone, as a witness answers them, strictly and within the limits of a note.
    pub fn parse_lines(bytes: &[u8]) -> Result<Vec<NoteSignature>, NoteError> {
        if bytes.len() > NOTE_BYTES_MAX {
            return Err(NoteError::TooLong { found: bytes.len() });
        }
        let text = std::str::from_utf8(bytes).map_err(|_| NoteError::NotText)?;
        if has_control(text) {
            return Err(NoteError::NotText);
        }
        parse_signatures(text)
    }
}

/// A note whose form has been checked and whose signatures have not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedNote {
    text: String,
    signatures: Vec<NoteSignature>,
}

impl SignedNote {
    /// Parses a note strictly. Nothing in it is to be trusted until [`SignedNote::open`] has succeeded.
    pub fn parse(bytes: &[u8]) -> Result<SignedNote, NoteError> {
        if bytes.len() > NOTE_BYTES_MAX {
            return Err(NoteError::TooLong { found: bytes.len() });
        }
        let note = std::str::from_utf8(bytes).map_err(|_| NoteError::NotText)?;
        if has_control(note) {
            return Err(NoteError::NotText);
        }
        let split = note.rfind("\n\n").ok_or(NoteError::NoSignatures)?;
        let (text, below) = (&note[..split + 1], &note[split + 2..]);
        Ok(SignedNote { text: text.to_owned(), signatures: parse_signatures(below)? })
    }

    /// The text, ending in a newline.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// All signature lines, of known and unknown keys.
    pub fn signatures(&self) -> &[NoteSignature] {
        &self.signatures
    }

    /// Verifies the note and returns its text.
    ///
    /// Signatures of unknown keys are ignored, even if they share a name or an ID (but not both) with a known one.
    /// A signature of a known key that fails rejects the note, and so does the lack of any signature of one.
    pub fn open(&self, known: &[&dyn Verifier]) -> Result<&str, NoteError> {
        let mut verified = 0;
        for signature in &self.signatures {
            let Some(key) = known.iter().find(|key| signature.is_of(**key)) else { continue };
            if !key.verify(&self.text, &signature.bytes) {
                return Err(NoteError::BadSignature { name: signature.name.as_str().to_owned() });
            }
            verified += 1;
        }
        if verified == 0 {
            return Err(NoteError::NoKnownKey { found: self.signatures.len() });
        }
        Ok(&self.text)
    }
}

pub(crate) fn has_control(text: &str) -> bool {
    text.bytes().any(|byte| byte < 0x20 && byte != b'\n')
}

/// One or more signature lines, each with its newline.
fn parse_signatures(lines: &str) -> Result<Vec<NoteSignature>, NoteError> {
    let lines = lines.strip_suffix('\n').ok_or(NoteError::NoSignatures)?;
    let mut signatures = Vec::new();
    for (at, line) in lines.split('\n').enumerate() {
        if at == SIGNATURES_MAX {
            return Err(NoteError::TooManySignatures);
        }
        signatures.push(parse_signature(line).ok_or(NoteError::BadSignatureLine { line: at + 1 })?);
    }
    Ok(signatures)
}

fn parse_signature(line: &str) -> Option<NoteSignature> {
    let (name, encoded) = line.strip_prefix("\u{2014} ")?.split_once(' ')?;
    let name = KeyName::new(name).ok()?;
    let bytes = STANDARD.decode(encoded).ok()?;
    let (id, signature) = bytes.split_first_chunk::<KEY_ID_BYTES>()?;
    if signature.is_empty() {
        return None;
    }
    Some(NoteSignature { name, id: KeyId(u32::from_be_bytes(*id)), bytes: signature.to_vec() })
}

/// What a secret key's text holds after its prefix; white space around it is ignored.
pub(crate) fn strip_private(text: &str) -> Result<&str, KeyError> {
    text.trim().strip_prefix(PRIVATE_PREFIX).ok_or(KeyError::BadForm)
}

/// The Ed25519 public key of 32 bytes.
pub(crate) fn public_key(bytes: &[u8; ED25519_BYTES]) -> Result<ed25519_dalek::VerifyingKey, KeyError> {
    let key = ed25519_dalek::VerifyingKey::from_bytes(bytes).map_err(|_| KeyError::BadPublicKey)?;
    // With a key of small order almost anything verifies.
    if key.is_weak() {
        return Err(KeyError::BadPublicKey);
    }
    Ok(key)
}

/// Splits `<name>+<8 hex digits>+<base64 of signature type || 32 bytes>`. The base64 may itself contain plus signs.
pub(crate) fn split_key(text: &str, expected: u8) -> Result<(KeyName, KeyId, [u8; ED25519_BYTES]), KeyError> {
    let (name, rest) = text.split_once('+').ok_or(KeyError::BadForm)?;
    let (id, encoded) = rest.split_once('+').ok_or(KeyError::BadForm)?;
    let name = KeyName::new(name)?;
    let hex_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    if id.len() != 8 || !id.bytes().all(hex_digit) {
        return Err(KeyError::BadForm);
    }
    let id = u32::from_str_radix(id, 16).map_err(|_| KeyError::BadForm)?;
    let bytes = STANDARD.decode(encoded).map_err(|_| KeyError::BadForm)?;
    let (signature_type, key) = bytes.split_first().ok_or(KeyError::BadForm)?;
    if *signature_type != expected {
        return Err(KeyError::UnsupportedType { expected, found: *signature_type });
    }
    let key = key.try_into().map_err(|_| KeyError::BadForm)?;
    Ok((name, KeyId(id), key))
}

pub(crate) fn join_key(name: &KeyName, id: KeyId, signature_type: u8, key: &[u8; ED25519_BYTES]) -> String {
    let mut bytes = vec![signature_type];
    bytes.extend_from_slice(key);
    format!("{name}+{:08x}+{}", id.0, STANDARD.encode(bytes))
}

pub(crate) fn check_id(expected: KeyId, found: KeyId) -> Result<(), KeyError> {
    if expected != found {
        return Err(KeyError::WrongId { expected: expected.0, found: found.0 });
    }
    Ok(())
}
