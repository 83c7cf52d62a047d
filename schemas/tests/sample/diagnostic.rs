//! CBOR diagnostic notation (RFC 8949 section 8) for people to read beside the bytes.

use schemas::cbor::{self, Value};
use std::fmt::Write as _;

const LINE_MAX: usize = 100;
const BYTES_SHOWN_MAX: usize = 64;

/// The notation of one item, with line breaks. Byte strings longer than 64 bytes are cut in the middle; the
/// protected header and payload of a COSE_Sign1 are shown decoded, between `<<` and `>>`.
pub fn text(value: &Value) -> String {
    let mut out = String::new();
    write(value, 0, false, &mut out);
    out.push('\n');
    out
}

fn write(value: &Value, indent: usize, embedded: bool, out: &mut String) {
    match value {
        Value::Array(items) => {
            let parts: Vec<String> = items.iter().map(|item| nested(item, indent, embedded)).collect();
            join('[', ']', &parts, indent, out);
        }
        Value::Map(pairs) => {
            let mut sorted: Vec<_> = pairs.iter().map(|(k, v)| (cbor::encode(k), k, v)).collect();
            sorted.sort_by(|a, b| a.0.cmp(&b.0));
            let pair = |(_, k, v): &(Vec<u8>, &Value, &Value)| {
                format!("{}: {}", nested(k, indent, false), nested(v, indent, false))
            };
            join('{', '}', &sorted.iter().map(pair).collect::<Vec<_>>(), indent, out);
        }
        Value::Tag(tag, inner) => {
            write!(out, "{tag}(").unwrap();
            write(inner, indent, *tag == 18, out);
            out.push(')');
        }
        Value::Bytes(bytes) => match cbor::decode(bytes, bytes.len()) {
            Ok(inner @ Value::Map(_)) if embedded => {
                out.push_str("<<");
                write(&inner, indent, false, out);
                out.push_str(">>");
            }
            _ => out.push_str(&byte_string(bytes)),
        },
        Value::Uint(n) => write!(out, "{n}").unwrap(),
        Value::Nint(n) => write!(out, "{}", -1 - i128::from(*n)).unwrap(),
        Value::Text(text) => write!(out, "{text:?}").unwrap(),
        Value::Bool(truth) => write!(out, "{truth}").unwrap(),
        Value::Null => out.push_str("null"),
    }
}

fn nested(value: &Value, indent: usize, embedded: bool) -> String {
    let mut out = String::new();
    write(value, indent + 1, embedded, &mut out);
    out
}

fn byte_string(bytes: &[u8]) -> String {
    if bytes.len() <= BYTES_SHOWN_MAX {
        return format!("h'{}'", hex::encode(bytes));
    }
    let (head, tail) = (hex::encode(&bytes[..24]), hex::encode(&bytes[bytes.len() - 8..]));
    format!("h'{head} ... {tail}' / {} bytes /", bytes.len())
}

fn join(open: char, close: char, parts: &[String], indent: usize, out: &mut String) {
    let flat = parts.join(", ");
    if !flat.contains('\n') && flat.len() + 2 * indent <= LINE_MAX {
        write!(out, "{open}{flat}{close}").unwrap();
        return;
    }
    let pad = "  ".repeat(indent + 1);
    out.push(open);
    for (i, part) in parts.iter().enumerate() {
        let comma = if i + 1 < parts.len() { "," } else { "" };
        write!(out, "\n{pad}{part}{comma}").unwrap();
    }
    write!(out, "\n{}{close}", "  ".repeat(indent)).unwrap();
}
