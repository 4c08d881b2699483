//! A numpy scalar as the JSON of the number, text or bytes it holds.

use std::io::Write;

use super::Value;
use super::dtype::{self, Simple};
use super::read::{Array, Reader, Scalar, Text, Token};
use super::to_json::{WriteJsonError, array, complex, encoded, float, text};

/// Writes what the scalar holds, or an `$array` of shape `[]` where JSON has no form for that.
pub(super) fn write_json(scalar: &Scalar<'_>, out: &mut impl Write) -> Result<(), WriteJsonError> {
    match simple(scalar.dtype).map(|simple| plain(simple, scalar.data)) {
        Some(Plain::Bool(value)) => write!(out, "{value}")?,
        Some(Plain::Signed(value)) => write!(out, "{value}")?,
        Some(Plain::Unsigned(value)) => write!(out, "{value}")?,
        Some(Plain::Float(value)) => float(value, out)?,
        Some(Plain::Complex(real, imaginary)) => complex(real, imaginary, out)?,
        Some(Plain::Text(value)) => text(&value, out)?,
        Some(Plain::Bytes) => encoded("$bytes", scalar.data, out)?,
        Some(Plain::Other) | None => array(&as_array(scalar), out)?,
    }
    Ok(())
}

/// The number or text that an item of this type holds.
pub(super) fn tree(dtype: &[u8], data: &[u8]) -> Option<Value> {
    Some(match plain(simple(dtype)?, data) {
        Plain::Bool(value) => Value::Bool(value),
        Plain::Signed(value) => Value::Int(value),
        Plain::Unsigned(value) => match i64::try_from(value) {
            Ok(value) => Value::Int(value),
            Err(_) => Value::BigInt([&value.to_le_bytes()[..], &[0]].concat()),
        },
        Plain::Float(value) => Value::Float(value),
        Plain::Text(value) => Value::Str(value),
        Plain::Complex(..) | Plain::Bytes | Plain::Other => return None,
    })
}

fn simple(dtype: &[u8]) -> Option<Simple> {
    match Reader::new(dtype).token() {
        Ok(Token::Str(Text::Plain(text))) => dtype::simple(text),
        _ => None,
    }
}

enum Plain {
    Bool(bool),
    Signed(i64),
    Unsigned(u64),
    Float(f64),
    Complex(f64, f64),
    Text(String),
    Bytes,
    Other,
}

fn plain(simple: Simple, data: &[u8]) -> Plain {
    let number = |data: &[u8]| {
        let mut word = [0; 8];
        word[..data.len()].copy_from_slice(data);
        if simple.big_endian {
            word[..data.len()].reverse();
        }
        u64::from_le_bytes(word)
    };
    match (simple.kind, simple.bytes) {
        (b'b', _) => Plain::Bool(data != [0]),
        (b'u', _) => Plain::Unsigned(number(data)),
        (b'i', bytes) => {
            let unused = 64 - 8 * bytes;
            Plain::Signed((number(data) as i64) << unused >> unused)
        }
        (b'f', bytes @ (2 | 4 | 8)) => Plain::Float(widen(number(data), bytes)),
        (b'c', bytes @ (8 | 16)) => {
            let (real, imaginary) = data.split_at(data.len() / 2);
            Plain::Complex(
                widen(number(real), bytes / 2),
                widen(number(imaginary), bytes / 2),
            )
        }
        (b'U', _) => data
            .chunks(4)
            .map(|code| char::from_u32(number(code) as u32))
            .collect::<Option<_>>()
            .map_or(Plain::Other, Plain::Text),
        (b'S', _) => Plain::Bytes,
        _ => Plain::Other,
    }
}

/// The float of 2, 4 or 8 bytes with these bits.
fn widen(bits: u64, bytes: u64) -> f64 {
    match bytes {
        8 => f64::from_bits(bits),
        4 => f32::from_bits(bits as u32).into(),
        _ => half(bits as u16),
    }
}

fn half(bits: u16) -> f64 {
    let fraction = f64::from(bits & 0x3ff) / 1024.0;
    let magnitude = match (bits >> 10) & 0x1f {
        0 => fraction * 2f64.powi(-14),
        0x1f if fraction == 0.0 => f64::INFINITY,
        0x1f => f64::NAN,
        exponent => (1.0 + fraction) * 2f64.powi(i32::from(exponent) - 15),
    };
    if bits & 0x8000 == 0 {
        magnitude
    } else {
        -magnitude
    }
}

fn as_array<'a>(scalar: &Scalar<'a>) -> Array<'a> {
    Array {
        fortran: false,
        dtype: scalar.dtype,
        item_bytes: scalar.data.len(),
        shape: &[],
        data: scalar.data,
    }
}
