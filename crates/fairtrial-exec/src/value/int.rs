//! Ints of any size as text.

use std::io::{self, Write};

use num_bigint::BigInt;

/// Ints of more bytes than this are written in hexadecimal: decimal digits cost the square of their number.
pub const MAX_DECIMAL_BYTES: usize = 50_000;
/// Ints of more digits than this are no plain JSON.
const MAX_PLAIN_DIGITS: usize = 4000;

/// Writes the JSON form of an int given in two's complement.
pub(super) fn write_json(bytes: &[u8], out: &mut impl Write) -> io::Result<()> {
    let bytes = trimmed(bytes);
    if bytes.len() > MAX_DECIMAL_BYTES {
        out.write_all(br#"{"$int":""#)?;
        write_hex(bytes, out)?;
        return out.write_all(br#""}"#);
    }
    let decimal = BigInt::from_signed_bytes_le(bytes).to_string();
    if decimal.trim_start_matches('-').len() <= MAX_PLAIN_DIGITS {
        out.write_all(decimal.as_bytes())
    } else {
        write!(out, r#"{{"$int":"{decimal}"}}"#)
    }
}

/// Parses what `$int` holds: decimal, or hexadecimal after `0x`. Gives two's complement.
pub(super) fn parse(text: &str) -> Option<Vec<u8>> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", text),
    };
    let (radix, digits) = match digits.strip_prefix("0x") {
        Some(digits) => (16, digits),
        None if digits.len() > MAX_DECIMAL_BYTES * 5 / 2 => return None,
        None => (10, digits),
    };
    if !digits.chars().all(|digit| digit.is_digit(radix)) {
        return None; // the parser would let underscores pass
    }
    BigInt::parse_bytes(format!("{sign}{digits}").as_bytes(), radix)
        .map(|int| int.to_signed_bytes_le())
}

/// Without bytes that only repeat the sign.
fn trimmed(mut bytes: &[u8]) -> &[u8] {
    while let [rest @ .., below, top] = bytes
        && *top == sign_extension(*below)
    {
        bytes = &bytes[..rest.len() + 1];
    }
    bytes
}

fn sign_extension(byte: u8) -> u8 {
    if byte < 0x80 { 0 } else { 0xff }
}

/// Writes the magnitude from the top, so that nothing of the int's size is allocated.
fn write_hex(bytes: &[u8], out: &mut impl Write) -> io::Result<()> {
    let negative = bytes.last().is_some_and(|top| *top >= 0x80);
    let lowest = bytes.iter().position(|byte| *byte != 0).unwrap_or(0);
    out.write_all(if negative { b"-0x" } else { b"0x" })?;
    for (index, byte) in bytes.iter().enumerate().rev() {
        let magnitude = match (negative, index.cmp(&lowest)) {
            (false, _) | (true, std::cmp::Ordering::Less) => *byte,
            (true, std::cmp::Ordering::Equal) => byte.wrapping_neg(),
            (true, std::cmp::Ordering::Greater) => !byte,
        };
        write!(out, "{magnitude:02x}")?;
    }
    Ok(())
}
