//! A statement: a signed object, exactly as it stands in the log (docs/spec/statement.md).
//!
//! COSE_Sign1 (RFC 9052), tag 18, in deterministic CBOR. Protected header: alg EdDSA, content type, kid (the signer's
//! 32-byte public key, so that a statement can be checked with nothing fetched), CWT claims iss and sub (RFC 9597).
//! The unprotected header is empty, as RFC 9943 asks of what enters a log.

use minicbor::Encoder;

use crate::cbor::{self, CborError, Value};
use crate::digest::{EntryDigest, RunId};
use crate::key::{KeyError, PublicKey, SecretKey, Verifier};
use crate::object::{Object, ObjectError};
use crate::register::Register;
use crate::{opening::Opening, prediction::Prediction, receipt::Receipt, run::Run, verdict::Verdict};

/// Longest statement, in bytes: an entry of the log.
pub const STATEMENT_BYTES_MAX: usize = 60 << 10;
/// Every kind of statement, by its stem.
pub const KINDS: [&str; 6] =
    [Run::STEM, Prediction::STEM, Opening::STEM, Receipt::STEM, Verdict::STEM, Register::STEM];

const COSE_SIGN1: u64 = 18;
const HEADER_ALG: u64 = 1;
const HEADER_CONTENT_TYPE: u64 = 3;
const HEADER_KID: u64 = 4;
const HEADER_CWT_CLAIMS: u64 = 15;
/// RFC 9942.
const HEADER_RECEIPTS: u64 = 394;
/// -8, EdDSA, as `-1 - n`.
const ALG_EDDSA: Value = Value::Nint(7);

/// Why some bytes are not a statement.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StatementError {
    /// Not deterministic CBOR within the limit.
    #[error("statement: {0}")]
    Cbor(#[from] CborError),
    /// Deterministic CBOR, but not a COSE_Sign1 of our form.
    #[error("statement: {part}: expected {expected}, found {found}")]
    Envelope {
        /// Which part.
        part: &'static str,
        /// What was expected.
        expected: String,
        /// What was found.
        found: String,
    },
    /// The signer's key is not usable.
    #[error("statement: kid: {0}")]
    Key(#[from] KeyError),
    /// The signature is not the signer's over these bytes.
    #[error("statement: the signature is not {0}'s over this statement")]
    Signature(PublicKey),
    /// The payload is not the object its content type names.
    #[error("statement: {0}")]
    Payload(#[from] ObjectError),
    /// A kind other than the one wanted.
    #[error("statement: expected a {expected} statement, found a {found} statement")]
    Kind {
        /// Wanted.
        expected: &'static str,
        /// Found.
        found: &'static str,
    },
}

/// A statement's payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// What is to be computed.
    Run(Run),
    /// What it must produce, sealed.
    Prediction(Prediction),
    /// What unseals it.
    Opening(Opening),
    /// What a device says it computed.
    Receipt(Box<Receipt>),
    /// What the comparison says.
    Verdict(Box<Verdict>),
    /// What the log holds of the run.
    Register(Register),
}

impl Payload {
    /// The stem: `run`, `prediction`, `opening`, `receipt`, `verdict` or `register`.
    pub fn stem(&self) -> &'static str {
        match self {
            Payload::Run(_) => Run::STEM,
            Payload::Prediction(_) => Prediction::STEM,
            Payload::Opening(_) => Opening::STEM,
            Payload::Receipt(_) => Receipt::STEM,
            Payload::Verdict(_) => Verdict::STEM,
            Payload::Register(_) => Register::STEM,
        }
    }

    /// The run it belongs to.
    pub fn run(&self) -> RunId {
        match self {
            Payload::Run(run) => run.id(),
            Payload::Prediction(prediction) => prediction.run,
            Payload::Opening(opening) => opening.run,
            Payload::Receipt(receipt) => receipt.run,
            Payload::Verdict(verdict) => verdict.run,
            Payload::Register(register) => register.run,
        }
    }

    fn encode(&self) -> Vec<u8> {
        match self {
            Payload::Run(object) => object.encode(),
            Payload::Prediction(object) => object.encode(),
            Payload::Opening(object) => object.encode(),
            Payload::Receipt(object) => object.encode(),
            Payload::Verdict(object) => object.encode(),
            Payload::Register(object) => object.encode(),
        }
    }

    fn decode(stem: &str, bytes: &[u8]) -> Result<Payload, StatementError> {
        Ok(match stem {
            Run::STEM => Payload::Run(Run::decode(bytes)?),
            Prediction::STEM => Payload::Prediction(Prediction::decode(bytes)?),
            Opening::STEM => Payload::Opening(Opening::decode(bytes)?),
            Receipt::STEM => Payload::Receipt(Box::new(Receipt::decode(bytes)?)),
            Verdict::STEM => Payload::Verdict(Box::new(Verdict::decode(bytes)?)),
            Register::STEM => Payload::Register(Register::decode(bytes)?),
            other => return Err(envelope("content type", "a statement of a known kind", other)),
        })
    }
}

/// A statement whose form and signature have been checked. Whether its signer is trusted is the caller's question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// The entry's name.
    pub digest: EntryDigest,
    /// Who signed.
    pub signer: PublicKey,
    /// What was signed.
    pub payload: Payload,
}

impl Statement {
    /// Signs `payload` and returns the bytes that go into the log.
    ///
    /// Errors if they would be longer than [`STATEMENT_BYTES_MAX`], or if the payload breaks a limit of its own: what
    /// has been signed can always be opened.
    pub fn sign(payload: &Payload, key: &SecretKey) -> Result<Vec<u8>, StatementError> {
        Statement::sign_by(payload, key.public(), |message| key.sign(message))
    }

    /// Like [`Statement::sign`], by a key that is kept elsewhere: `sign` gives its signature over some bytes.
    pub fn sign_by(
        payload: &Payload,
        signer: PublicKey,
        sign: impl FnOnce(&[u8]) -> [u8; 64],
    ) -> Result<Vec<u8>, StatementError> {
        let protected = protected_header(payload.stem(), payload.run(), signer);
        let body = payload.encode();
        Payload::decode(payload.stem(), &body)?;
        let signature = sign(&to_be_signed(&protected, &body));
        let items =
            vec![Value::Bytes(protected), Value::Map(vec![]), Value::Bytes(body), Value::bytes(signature)];
        let bytes = cbor::encode(&Value::Tag(COSE_SIGN1, Box::new(Value::Array(items))));
        match bytes.len() {
            found if found > STATEMENT_BYTES_MAX => {
                Err(CborError::TooLong { found, max: STATEMENT_BYTES_MAX }.into())
            }
            _ => Ok(bytes),
        }
    }

    /// Reads a statement and checks its signature under its own kid.
    pub fn open(bytes: &[u8]) -> Result<Statement, StatementError> {
        Statement::read(bytes, true)
    }

    /// Reads what has been opened once and is known to be the same bytes: the signature is not checked again.
    pub fn reread(bytes: &[u8]) -> Result<Statement, StatementError> {
        Statement::read(bytes, false)
    }

    fn read(bytes: &[u8], signature_too: bool) -> Result<Statement, StatementError> {
        let value = cbor::decode(bytes, STATEMENT_BYTES_MAX)?;
        let (protected, body, signature) = sign1_parts(value)?;
        let (stem, verifier) = header_parts(&protected)?;
        let signer = verifier.public();
        if signature_too && !verifier.verifies(&to_be_signed(&protected, &body), &signature) {
            return Err(StatementError::Signature(signer));
        }
        let payload = Payload::decode(&stem, &body)?;
        // An object has one encoding, so a run's id follows from the bytes at hand.
        let run = if stem == Run::STEM { RunId::of_encoded(&body) } else { payload.run() };
        // The header is rebuilt and compared whole, so that iss and sub cannot disagree with kid and payload.
        if protected != protected_header(&stem, run, signer) {
            let expected = format!("alg, content type, kid, iss {signer}, sub {run}");
            return Err(envelope("protected header", expected, hex::encode(&protected)));
        }
        Ok(Statement { digest: EntryDigest::of(bytes), signer, payload })
    }
}

/// A statement as a transparent statement (RFC 9943): with receipts in its unprotected header, for the tools of SCITT.
/// It is another text of the same statement: the log has it without them, and so do we.
pub fn transparent(statement: &[u8], receipts: &[Vec<u8>]) -> Result<Vec<u8>, StatementError> {
    let (protected, body, signature) = sign1_parts(cbor::decode(statement, STATEMENT_BYTES_MAX)?)?;
    let receipts = Value::Array(receipts.iter().map(Value::bytes).collect());
    let items = vec![
        Value::Bytes(protected),
        Value::Map(vec![(Value::Uint(HEADER_RECEIPTS), receipts)]),
        Value::Bytes(body),
        Value::bytes(signature),
    ];
    Ok(cbor::encode(&Value::Tag(COSE_SIGN1, Box::new(Value::Array(items)))))
}

fn envelope(part: &'static str, expected: impl Into<String>, found: impl Into<String>) -> StatementError {
    StatementError::Envelope {
        part,
        expected: expected.into(),
        // Control characters would reach a terminal with the message.
        found: found.into().chars().take(400).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect(),
    }
}

fn protected_header(stem: &str, run: RunId, signer: PublicKey) -> Vec<u8> {
    let claims = vec![
        (Value::Uint(1), Value::text(signer.to_string())),
        (Value::Uint(2), Value::text(run.to_string())),
    ];
    cbor::encode(&Value::Map(vec![
        (Value::Uint(HEADER_ALG), ALG_EDDSA),
        (Value::Uint(HEADER_CONTENT_TYPE), Value::Text(content_type(stem))),
        (Value::Uint(HEADER_KID), Value::bytes(signer.to_bytes())),
        (Value::Uint(HEADER_CWT_CLAIMS), Value::Map(claims)),
    ]))
}

/// The content type of an object's encoding.
pub fn content_type(stem: &str) -> String {
    format!("application/vnd.tallystick.{stem}+cbor")
}

/// RFC 9052 section 4.4: what is signed.
fn to_be_signed(protected: &[u8], payload: &[u8]) -> Vec<u8> {
    let infallible = "statement: writing to memory cannot fail";
    let mut out = Vec::with_capacity(protected.len() + payload.len() + 32);
    let mut encoder = Encoder::new(&mut out);
    encoder.array(4).expect(infallible).str("Signature1").expect(infallible);
    encoder
        .bytes(protected)
        .expect(infallible)
        .bytes(&[])
        .expect(infallible)
        .bytes(payload)
        .expect(infallible);
    out
}

/// Protected header, payload and signature of a COSE_Sign1.
type Sign1Parts = (Vec<u8>, Vec<u8>, [u8; 64]);

fn sign1_parts(value: Value) -> Result<Sign1Parts, StatementError> {
    let expected = "tag 18 over [protected, {}, payload, signature]";
    let inner = match value {
        Value::Tag(COSE_SIGN1, inner) => inner,
        Value::Tag(tag, _) => return Err(envelope("envelope", expected, format!("tag {tag}"))),
        other => return Err(envelope("envelope", expected, other.kind())),
    };
    let Value::Array(items) = *inner else { return Err(envelope("envelope", expected, inner.kind())) };
    let parts = <[Value; 4]>::try_from(items)
        .map_err(|items| envelope("envelope", expected, format!("{} items", items.len())))?;
    match parts {
        [
            Value::Bytes(protected),
            Value::Map(unprotected),
            Value::Bytes(payload),
            Value::Bytes(signature),
        ] => {
            if !unprotected.is_empty() {
                return Err(envelope(
                    "unprotected header",
                    "an empty map",
                    format!("{} entries", unprotected.len()),
                ));
            }
            let signature = <[u8; 64]>::try_from(&signature[..])
                .map_err(|_| envelope("signature", "64 bytes", format!("{} bytes", signature.len())))?;
            Ok((protected, payload, signature))
        }
        other => Err(envelope("envelope", expected, other.map(|part| part.kind()).join(", "))),
    }
}

/// Content type's stem and kid; the rest of the header is checked by rebuilding it.
fn header_parts(protected: &[u8]) -> Result<(String, Verifier), StatementError> {
    let value = cbor::decode(protected, STATEMENT_BYTES_MAX)?;
    let Value::Map(pairs) = value else { return Err(envelope("protected header", "a map", value.kind())) };
    let mut stem = None;
    let mut signer = None;
    for (key, value) in pairs {
        match (key, value) {
            (Value::Uint(HEADER_CONTENT_TYPE), Value::Text(text)) => {
                let inner = text
                    .strip_prefix("application/vnd.tallystick.")
                    .and_then(|rest| rest.strip_suffix("+cbor"));
                let expected = content_type("<kind>");
                stem =
                    Some(inner.ok_or_else(|| envelope("content type", expected, text.as_str()))?.to_owned());
            }
            (Value::Uint(HEADER_KID), Value::Bytes(kid)) => {
                let key = <[u8; 32]>::try_from(&kid[..]).map_err(|_| {
                    envelope("kid", "a public key of 32 bytes", format!("{} bytes", kid.len()))
                })?;
                signer = Some(Verifier::from_bytes(key)?);
            }
            _ => {}
        }
    }
    let missing = |part| envelope(part, "to be in the protected header", "nothing");
    Ok((stem.ok_or_else(|| missing("content type"))?, signer.ok_or_else(|| missing("kid"))?))
}
