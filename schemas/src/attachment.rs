//! An attachment: bytes too large for a log entry, named in a statement by SHA-256 and length.

use crate::cbor::Value;
use crate::digest::AttachmentDigest;
use crate::object::{Fields, ObjectError};

/// Longest attachment, in bytes.
pub const ATTACHMENT_BYTES_MAX: u64 = 64 << 20;

/// The name of an attachment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttachmentName {
    /// Plain SHA-256 of the bytes.
    pub sha256: AttachmentDigest,
    /// Length in bytes.
    pub bytes: u64,
}

impl AttachmentName {
    /// The name of `bytes`.
    pub fn of(bytes: &[u8]) -> AttachmentName {
        AttachmentName { sha256: AttachmentDigest::of(bytes), bytes: bytes.len() as u64 }
    }

    /// Whether `bytes` are the attachment named.
    pub fn names(&self, bytes: &[u8]) -> bool {
        *self == AttachmentName::of(bytes)
    }

    /// `[sha256, bytes]`.
    pub fn to_value(self) -> Value {
        Value::Array(vec![Value::bytes(self.sha256.0), Value::Uint(self.bytes)])
    }

    /// Takes a name from a field.
    pub fn take(fields: &mut Fields, field: &'static str) -> Result<AttachmentName, ObjectError> {
        let value = fields.take(field)?;
        AttachmentName::read(fields, field, value)
    }

    /// Reads a name.
    pub fn read(fields: &Fields, field: &'static str, value: Value) -> Result<AttachmentName, ObjectError> {
        let items = fields.as_array(field, value, 2)?;
        let [sha256, bytes] = <[Value; 2]>::try_from(items)
            .map_err(|items| fields.wrong(field, "[sha256, bytes]", format!("{} items", items.len())))?;
        Ok(AttachmentName {
            sha256: AttachmentDigest(fields.as_bytes(field, sha256)?),
            bytes: fields.as_uint(field, bytes, ATTACHMENT_BYTES_MAX)?,
        })
    }
}
