//! Encoded values as JSON text (EX-69), streamed: nothing of the value's size is allocated.

use std::borrow::Cow;
use std::io::{self, Write};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use base64::write::EncoderWriter;
use serde_json::{Value as Json, json};

use super::check::{check, skip_keys};
use super::read::{Array, Reader, Sequence, Text, Token, words};
use super::{Malformed, int, parse_json, scalar};

/// Why no JSON was written.
#[derive(Debug, thiserror::Error)]
pub enum WriteJsonError {
    /// The bytes are no value; nothing was written.
    #[error("malformed value")]
    Malformed(#[from] Malformed),
    /// The writer failed.
    #[error("cannot write")]
    Io(#[from] io::Error),
}

/// Writes the JSON form of encoded bytes. Checks them first, so that nothing is written of what is no value.
///
/// ```
/// use fairtrial_exec::value::{Value, encode, write_json};
///
/// let bytes = encode(&Value::Tuple(vec![Value::Int(3), Value::Float(f64::NAN)]));
/// let mut out = Vec::new();
/// write_json(&bytes, &mut out)?;
/// assert_eq!(out, br#"{"$tuple":[3,{"$float":"NaN"}]}"#);
/// # Ok::<(), fairtrial_exec::value::WriteJsonError>(())
/// ```
pub fn write_json(bytes: &[u8], out: &mut impl Write) -> Result<(), WriteJsonError> {
    check(bytes)?;
    value(&mut Reader::new(bytes), out)
}

/// The JSON form of encoded bytes as a tree, for values known to be modest: [`write_json`] is for all others.
///
/// Ints beyond 64 bits are `$int` here, for the tree has no exact place for them; values that make JSON of over 127
/// levels are refused.
pub fn to_json(bytes: &[u8]) -> Result<Json, Malformed> {
    let too_deep = Malformed {
        offset: 0,
        what: "nested too deeply for a tree of JSON",
    };
    let mut text = Vec::new();
    match write_json(bytes, &mut text) {
        Ok(()) => {}
        Err(WriteJsonError::Malformed(malformed)) => return Err(malformed),
        Err(WriteJsonError::Io(_)) => unreachable!("a `Vec` takes all that is written"),
    }
    let text = std::str::from_utf8(&text).expect("JSON is written as UTF-8");
    parse_json(text).map_err(|_| too_deep)
}

/// The JSON form of a pickle, which stays closed.
#[must_use]
pub fn pickle_to_json(bytes: &[u8]) -> Json {
    json!({"$pickle": STANDARD.encode(bytes)})
}

/// Writes the JSON form of a pickle, which stays closed.
pub fn write_pickle_json(bytes: &[u8], out: &mut impl Write) -> io::Result<()> {
    encoded("$pickle", bytes, out)
}

fn value(reader: &mut Reader<'_>, out: &mut impl Write) -> Result<(), WriteJsonError> {
    match reader.token()? {
        Token::None => out.write_all(b"null")?,
        Token::Bool(true) => out.write_all(b"true")?,
        Token::Bool(false) => out.write_all(b"false")?,
        Token::Int(int) => write!(out, "{int}")?,
        Token::BigInt(bytes) => int::write_json(bytes, out)?,
        Token::Float(number) => float(number, out)?,
        Token::Complex(real, imaginary) => complex(real, imaginary, out)?,
        Token::Str(Text::Plain(string)) => text(string, out)?,
        Token::Str(Text::Surrogates(bytes)) => encoded("$str", bytes, out)?,
        Token::Bytes(bytes) | Token::ByteArray(bytes) => encoded("$bytes", bytes, out)?,
        Token::Ints(ints) => list(words(ints), out, |word, out| write!(out, "{}", word as i64))?,
        Token::Floats(floats) => list(words(floats), out, |word, out| {
            float(f64::from_bits(word), out)
        })?,
        Token::Items(Sequence::List, count) => items(reader, count, out)?,
        Token::Items(sequence, count) => {
            let name = match sequence {
                Sequence::Tuple => "$tuple",
                Sequence::Set => "$set",
                Sequence::List | Sequence::FrozenSet => "$frozenset",
            };
            write!(out, r#"{{"{name}":"#)?;
            items(reader, count, out)?;
            out.write_all(b"}")?;
        }
        Token::Dict { plain, count } => dict(reader, plain, count, out)?,
        Token::Array(parts) => array(&parts, out)?,
        Token::Scalar(parts) => scalar::write_json(&parts, out)?,
    }
    Ok(())
}

fn items(
    reader: &mut Reader<'_>,
    count: usize,
    out: &mut impl Write,
) -> Result<(), WriteJsonError> {
    list(0..count, out, |_, out| value(reader, out))
}

/// Keys stand before values in the bytes, beside them in JSON: two readers.
fn dict(
    values: &mut Reader<'_>,
    plain: bool,
    count: usize,
    out: &mut impl Write,
) -> Result<(), WriteJsonError> {
    let mut keys = values.clone();
    skip_keys(values, plain, count, 0)?;
    let [open, first, between, last, close] = match plain {
        true => ["{", "", ":", "", "}"],
        false => [r#"{"$map":["#, "[", ",", "]", "]}"],
    };
    out.write_all(open.as_bytes())?;
    for index in 0..count {
        let comma = if index > 0 { "," } else { "" };
        write!(out, "{comma}{first}")?;
        value(&mut keys, out)?;
        out.write_all(between.as_bytes())?;
        value(values, out)?;
        out.write_all(last.as_bytes())?;
    }
    Ok(out.write_all(close.as_bytes())?)
}

fn list<W: Write, T, E: From<io::Error>>(
    items: impl Iterator<Item = T>,
    out: &mut W,
    mut item: impl FnMut(T, &mut W) -> Result<(), E>,
) -> Result<(), E> {
    out.write_all(b"[")?;
    for (index, each) in items.enumerate() {
        if index > 0 {
            out.write_all(b",")?;
        }
        item(each, out)?;
    }
    Ok(out.write_all(b"]")?)
}

pub(super) fn array(parts: &Array<'_>, out: &mut impl Write) -> Result<(), WriteJsonError> {
    out.write_all(br#"{"$array":{"dtype":"#)?;
    value(&mut Reader::new(parts.dtype), out)?;
    out.write_all(br#","shape":"#)?;
    list(words(parts.shape), out, |n, out| write!(out, "{n}"))?;
    out.write_all(br#","base64":""#)?;
    let mut data = EncoderWriter::new(&mut *out, &STANDARD);
    match parts.fortran {
        false => data.write_all(parts.data)?,
        true => transpose(parts, &mut data)?,
    }
    Ok(data.finish()?.write_all(br#""}}"#)?)
}

/// An array's items, last index fastest.
pub(super) fn in_c_order<'a>(parts: &Array<'a>) -> Cow<'a, [u8]> {
    if !parts.fortran {
        return Cow::Borrowed(parts.data);
    }
    let mut data = Vec::with_capacity(parts.data.len());
    transpose(parts, &mut data).expect("memory takes what is written to it");
    Cow::Owned(data)
}

/// Writes the items of an array in Fortran order, last index fastest.
fn transpose(parts: &Array<'_>, out: &mut impl Write) -> io::Result<()> {
    let items = parts.data.len().checked_div(parts.item_bytes).unwrap_or(0);
    for index in 0..items {
        let (mut rest, mut stride, mut place) = (index, items, 0);
        for n in words(parts.shape).rev() {
            // The last dimension has the widest stride in Fortran order, and is the fastest to change in C order.
            let n = usize::try_from(n).expect("no dimension exceeds the data's own length");
            stride /= n;
            place += (rest % n) * stride;
            rest /= n;
        }
        out.write_all(&parts.data[place * parts.item_bytes..][..parts.item_bytes])?;
    }
    Ok(())
}

pub(super) fn float(number: f64, out: &mut impl Write) -> io::Result<()> {
    const NAN: u64 = 0x7ff8_0000_0000_0000;
    match number {
        f64::INFINITY => out.write_all(br#"{"$float":"Infinity"}"#),
        f64::NEG_INFINITY => out.write_all(br#"{"$float":"-Infinity"}"#),
        _ if number.to_bits() == NAN => out.write_all(br#"{"$float":"NaN"}"#),
        _ if number.is_nan() => write!(out, r#"{{"$float":"{:016x}"}}"#, number.to_bits()),
        _ => Ok(serde_json::to_writer(out, &number)?),
    }
}

pub(super) fn complex(real: f64, imaginary: f64, out: &mut impl Write) -> io::Result<()> {
    out.write_all(br#"{"$complex":"#)?;
    list([real, imaginary].into_iter(), out, float)?;
    out.write_all(b"}")
}

pub(super) fn text(string: &str, out: &mut impl Write) -> io::Result<()> {
    Ok(serde_json::to_writer(out, string)?)
}

/// Writes an object of one key that holds base64.
pub(super) fn encoded(name: &str, bytes: &[u8], out: &mut impl Write) -> io::Result<()> {
    write!(out, r#"{{"{name}":""#)?;
    let mut data = EncoderWriter::new(&mut *out, &STANDARD);
    data.write_all(bytes)?;
    data.finish()?.write_all(br#""}"#)
}
