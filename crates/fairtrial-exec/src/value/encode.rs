//! Values to bytes: the parts that the tree and the JSON form share.

use super::tree::Value;
use super::{ALIGNMENT, PACK_FROM};

/// The value's bytes.
///
/// ```
/// use fairtrial_exec::value::{Value, encode};
///
/// assert_eq!(encode(&Value::Str("hi".into())), b"u\x02hi");
/// ```
#[must_use]
pub fn encode(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    put(&mut out, value);
    out
}

fn put(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::None => out.push(b'N'),
        Value::Bool(true) => out.push(b'T'),
        Value::Bool(false) => out.push(b'F'),
        Value::Int(int) => put_int(out, *int),
        Value::BigInt(bytes) => put_sized(out, b'I', bytes),
        Value::Float(float) => put_float(out, *float),
        Value::Complex(real, imaginary) => put_complex(out, *real, *imaginary),
        Value::Str(text) => put_text(out, text.as_bytes()),
        Value::SurrogateStr(bytes) => put_text(out, bytes),
        Value::Bytes(bytes) => put_sized(out, b'b', bytes),
        Value::ByteArray(bytes) => put_sized(out, b'B', bytes),
        Value::List(items) => put_list(out, items),
        Value::Tuple(items) => put_items(out, b't', items),
        Value::Set(items) => put_items(out, b'S', items),
        Value::FrozenSet(items) => put_items(out, b'Z', items),
        Value::Dict(pairs) => {
            let plain = pairs
                .iter()
                .all(|(key, _)| matches!(key, Value::Str(text) if is_plain_key(text)));
            put_head(out, if plain { b'o' } else { b'd' }, pairs.len());
            pairs.iter().for_each(|(key, _)| put(out, key));
            pairs.iter().for_each(|(_, value)| put(out, value));
        }
    }
}

fn put_items(out: &mut Vec<u8>, tag: u8, items: &[Value]) {
    put_head(out, tag, items.len());
    items.iter().for_each(|item| put(out, item));
}

fn put_list(out: &mut Vec<u8>, items: &[Value]) {
    let packed = put_packed(out, items, |item| match item {
        Value::Int(int) => Some(Number::Int(*int)),
        Value::Float(float) => Some(Number::Float(*float)),
        _ => None,
    });
    if !packed {
        put_items(out, b'l', items);
    }
}

/// A number that a packed list can hold.
#[derive(Clone, Copy, Debug)]
pub(super) enum Number {
    Int(i64),
    Float(f64),
}

/// Puts a list in packed form, if it is long enough and all numbers are of one type.
pub(super) fn put_packed<T>(
    out: &mut Vec<u8>,
    items: &[T],
    number: impl Fn(&T) -> Option<Number>,
) -> bool {
    let tag = match items.first().and_then(&number) {
        Some(Number::Int(_)) if items.len() >= PACK_FROM => b'q',
        Some(Number::Float(_)) if items.len() >= PACK_FROM => b'D',
        _ => return false,
    };
    let start = out.len();
    put_head(out, tag, items.len());
    for item in items {
        match (tag, number(item)) {
            (b'q', Some(Number::Int(int))) => out.extend(int.to_le_bytes()),
            (b'D', Some(Number::Float(float))) => out.extend(float.to_le_bytes()),
            _ => {
                out.truncate(start);
                return false;
            }
        }
    }
    true
}

/// Whether a key can stand in a JSON object as it is.
pub(super) fn is_plain_key(key: &str) -> bool {
    !key.starts_with('$')
}

pub(super) fn put_head(out: &mut Vec<u8>, tag: u8, count: usize) {
    out.push(tag);
    out.extend((count as u64).to_le_bytes());
}

pub(super) fn put_sized(out: &mut Vec<u8>, tag: u8, bytes: &[u8]) {
    put_head(out, tag, bytes.len());
    out.extend_from_slice(bytes);
}

pub(super) fn put_int(out: &mut Vec<u8>, int: i64) {
    out.push(b'i');
    out.extend(int.to_le_bytes());
}

/// Puts an int given in two's complement, in the short form if it fits.
pub(super) fn put_big_int(out: &mut Vec<u8>, bytes: &[u8]) {
    let fill = if bytes.last().is_some_and(|top| *top >= 0x80) {
        0xff
    } else {
        0
    };
    let mut word = [fill; 8];
    match word.get_mut(..bytes.len()) {
        Some(low) => {
            low.copy_from_slice(bytes);
            put_int(out, i64::from_le_bytes(word));
        }
        None => put_sized(out, b'I', bytes),
    }
}

pub(super) fn put_float(out: &mut Vec<u8>, float: f64) {
    out.push(b'f');
    out.extend(float.to_le_bytes());
}

pub(super) fn put_complex(out: &mut Vec<u8>, real: f64, imaginary: f64) {
    out.push(b'c');
    out.extend(real.to_le_bytes());
    out.extend(imaginary.to_le_bytes());
}

pub(super) fn put_text(out: &mut Vec<u8>, text: &[u8]) {
    match u8::try_from(text.len()) {
        Ok(length) => {
            out.extend([b'u', length]);
            out.extend_from_slice(text);
        }
        Err(_) => put_sized(out, b's', text),
    }
}

/// Puts an array's shape and data, after its tag, order and dtype.
pub(super) fn put_array(out: &mut Vec<u8>, shape: &[u64], data: &[u8]) {
    out.push(shape.len() as u8);
    shape.iter().for_each(|n| out.extend(n.to_le_bytes()));
    out.extend((data.len() as u64).to_le_bytes());
    out.resize(out.len().next_multiple_of(ALIGNMENT), 0);
    out.extend_from_slice(data);
}
