//! Canonical JSON, the one text of a value; ids and digests over it.

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};

use crate::number::float_text;
use crate::value::Value;

/// The canonical JSON of a value.
#[must_use]
pub fn canonical_json(value: &Value) -> String {
    let mut text = String::new();
    write_canonical(value, &mut text);
    text
}

/// Appends the canonical JSON of a value.
pub fn write_canonical(value: &Value, out: &mut String) {
    match value {
        Value::Null => *out += "null",
        Value::Bool(true) => *out += "true",
        Value::Bool(false) => *out += "false",
        Value::Int(int) => *out += &int.to_string(),
        Value::Float(float) => write_float(*float, out),
        Value::Text(text) => write_text(text, out),
        Value::Moment(moment) => write_text(&moment.to_string(), out),
        Value::List(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_canonical(item, out);
            }
            out.push(']');
        }
        Value::Map(entries) => {
            // Keys become text first: of two that then are equal, the last stays.
            let sorted: BTreeMap<String, &Value> = entries
                .iter()
                .map(|(key, value)| (key.to_str(), value))
                .collect();
            out.push('{');
            for (index, (key, value)) in sorted.into_iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_text(&key, out);
                out.push(':');
                write_canonical(value, out);
            }
            out.push('}');
        }
    }
}

fn write_float(float: f64, out: &mut String) {
    if float.is_nan() {
        *out += "NaN";
    } else if float.is_infinite() {
        *out += if float > 0.0 { "Infinity" } else { "-Infinity" };
    } else {
        *out += &float_text(float);
    }
}

/// Appends text as a JSON string in ASCII.
pub fn write_text(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => *out += "\\\"",
            '\\' => *out += "\\\\",
            '\n' => *out += "\\n",
            '\r' => *out += "\\r",
            '\t' => *out += "\\t",
            '\u{8}' => *out += "\\b",
            '\u{c}' => *out += "\\f",
            ' '..='~' => out.push(c),
            c => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    *out += &format!("\\u{unit:04x}");
                }
            }
        }
    }
    out.push('"');
}

/// SHA-256 in lower-case hex.
#[must_use]
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// Lower-case hex digits.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits
        .map(|digit| char::from(DIGITS[usize::from(digit)]))
        .collect()
}

/// The first 16 hex digits of SHA-256, as a number.
#[must_use]
pub fn hash64(text: &str) -> u64 {
    let digest = Sha256::digest(text.as_bytes());
    let first: [u8; 8] = digest[..8].try_into().expect("a digest has 32 bytes");
    u64::from_be_bytes(first)
}

/// `prefix`, a dash, and twelve hex digits of SHA-256 over the payload's canonical JSON.
#[must_use]
pub fn stable_id(prefix: &str, payload: &Value) -> String {
    format!("{prefix}-{}", ShortHash::of(&canonical_json(payload)))
}

/// The twelve hex digits of an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShortHash(pub u64);

impl ShortHash {
    /// The hash of a canonical text.
    #[must_use]
    pub fn of(canonical: &str) -> Self {
        Self(hash64(canonical) >> 16)
    }
}

impl std::fmt::Display for ShortHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:012x}", self.0)
    }
}
