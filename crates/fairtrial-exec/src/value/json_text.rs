//! JSON text to a tree in which every int is exact.

use std::borrow::Cow;

use serde_json::Value as Json;

/// Parses JSON text and keeps every int exact: those beyond 64 bits become `$int`, for the tree has no place for them.
///
/// ```
/// use fairtrial_exec::value::{from_json, parse_json, write_json};
///
/// let json = parse_json("[1000000000000000000000000000000, 1.0]").unwrap();
/// let mut out = Vec::new();
/// write_json(&from_json(&json).unwrap(), &mut out).unwrap();
/// assert_eq!(out, b"[1000000000000000000000000000000,1.0]");
/// ```
pub fn parse_json(text: &str) -> serde_json::Result<Json> {
    serde_json::from_str(&wrap_long_ints(text))
}

/// The text with ints beyond 64 bits wrapped as `$int`; needs to know only where strings and numbers are.
fn wrap_long_ints(text: &str) -> Cow<'_, str> {
    let bytes = text.as_bytes();
    let (mut wrapped, mut copied, mut at) = (String::new(), 0, 0);
    while at < bytes.len() {
        match bytes[at] {
            b'"' => at = end_of_string(bytes, at),
            b'-' | b'0'..=b'9' => {
                let start = at;
                while matches!(
                    bytes.get(at),
                    Some(b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9')
                ) {
                    at += 1;
                }
                let number = &text[start..at];
                if is_long_int(number) {
                    wrapped += &text[copied..start];
                    wrapped += &format!(r#"{{"$int":"{number}"}}"#);
                    copied = at;
                }
            }
            _ => at += 1,
        }
    }
    match copied {
        0 => Cow::Borrowed(text),
        _ => Cow::Owned(wrapped + &text[copied..]),
    }
}

fn is_long_int(number: &str) -> bool {
    let digits = number.strip_prefix('-').unwrap_or(number);
    digits.len() >= 19
        && !digits.starts_with('0')
        && digits.bytes().all(|byte| byte.is_ascii_digit())
        && number.parse::<i64>().is_err()
        && number.parse::<u64>().is_err()
}

fn end_of_string(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    bytes.len()
}
