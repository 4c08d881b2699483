//! Writes Python's `marshal` format: what the engine says to its shim, decoded there at C speed.
//!
//! Names of the host's that are not UTF-8 become texts as Python has them, with a surrogate for each odd byte.
//!
//! Only the few types below, in the encoding that every Python 3 reads. The engine never reads marshal.

use std::ffi::OsStr;

use crate::value::Value;

/// A dict under construction.
#[derive(Debug)]
pub(crate) struct Dict(Vec<u8>);

impl Dict {
    pub(crate) fn new() -> Self {
        Self(vec![b'{'])
    }

    pub(crate) fn text(mut self, key: &str, value: impl AsRef<OsStr>) -> Self {
        self.key(key);
        write_text(&mut self.0, value);
        self
    }

    pub(crate) fn integer(mut self, key: &str, value: u64) -> Self {
        self.key(key);
        write_integer(&mut self.0, value);
        self
    }

    pub(crate) fn boolean(mut self, key: &str, value: bool) -> Self {
        self.key(key);
        self.0.push(if value { b'T' } else { b'F' });
        self
    }

    pub(crate) fn texts(
        mut self,
        key: &str,
        values: impl ExactSizeIterator<Item = impl AsRef<OsStr>>,
    ) -> Self {
        self.key(key);
        write_length(&mut self.0, b'[', values.len());
        values.for_each(|value| write_text(&mut self.0, value));
        self
    }

    pub(crate) fn pairs(mut self, key: &str, values: &[(u32, u64)]) -> Self {
        self.key(key);
        write_length(&mut self.0, b'[', values.len());
        for (first, second) in values {
            write_length(&mut self.0, b'(', 2);
            write_integer(&mut self.0, u64::from(*first));
            write_integer(&mut self.0, *second);
        }
        self
    }

    /// Names to a text, or to `None`.
    pub(crate) fn options(
        mut self,
        key: &str,
        values: impl Iterator<Item = (impl AsRef<OsStr>, Option<impl AsRef<OsStr>>)>,
    ) -> Self {
        self.key(key);
        self.0.push(b'{');
        for (name, value) in values {
            write_text(&mut self.0, name);
            match value {
                Some(value) => write_text(&mut self.0, value),
                None => self.0.push(b'N'),
            }
        }
        self.0.push(b'0');
        self
    }

    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.0.push(b'0');
        self.0
    }

    fn key(&mut self, key: &str) {
        write_text(&mut self.0, key);
    }
}

/// A value of everyday types; of any other, none.
pub(crate) fn value(value: &Value) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    write_value(&mut out, value)?;
    Some(out)
}

fn write_value(out: &mut Vec<u8>, value: &Value) -> Option<()> {
    match value {
        Value::None => out.push(b'N'),
        Value::Bool(truth) => out.push(if *truth { b'T' } else { b'F' }),
        Value::Int(int) => match (i32::try_from(*int), u64::try_from(*int)) {
            (Ok(small), _) => {
                out.push(b'i');
                out.extend_from_slice(&small.to_le_bytes());
            }
            (_, Ok(large)) => write_integer(out, large),
            _ => return None,
        },
        Value::Float(float) => {
            out.push(b'g');
            out.extend_from_slice(&float.to_le_bytes());
        }
        Value::Str(text) => write_text(out, text),
        Value::List(items) => write_values(out, b'[', items)?,
        Value::Tuple(items) => write_values(out, b'(', items)?,
        Value::Dict(pairs) => {
            out.push(b'{');
            for (key, value) in pairs {
                write_value(out, key)?;
                write_value(out, value)?;
            }
            out.push(b'0');
        }
        _ => return None,
    }
    Some(())
}

fn write_values(out: &mut Vec<u8>, tag: u8, values: &[Value]) -> Option<()> {
    write_length(out, tag, values.len());
    values.iter().try_for_each(|value| write_value(out, value))
}

fn write_length(out: &mut Vec<u8>, tag: u8, length: usize) {
    out.push(tag);
    out.extend_from_slice(
        &u32::try_from(length)
            .expect("headers are far below 4 GiB")
            .to_le_bytes(),
    );
}

fn write_text(out: &mut Vec<u8>, text: impl AsRef<OsStr>) {
    let text = text.as_ref();
    if text.to_str().is_some() {
        write_length(out, b'u', text.len());
        return out.extend_from_slice(text.as_encoded_bytes());
    }
    let mut escaped = Vec::new();
    for chunk in text.as_encoded_bytes().utf8_chunks() {
        escaped.extend_from_slice(chunk.valid().as_bytes());
        for byte in chunk.invalid() {
            // U+DC00 plus the byte, which is at least 0x80.
            escaped.extend_from_slice(&[0xED, 0xB0 | byte >> 6, 0x80 | byte & 0x3F]);
        }
    }
    write_length(out, b'u', escaped.len());
    out.extend_from_slice(&escaped);
}

/// Small ones in four bytes, the rest in Python's 15-bit digits.
fn write_integer(out: &mut Vec<u8>, value: u64) {
    if let Ok(small) = i32::try_from(value) {
        out.push(b'i');
        out.extend_from_slice(&small.to_le_bytes());
        return;
    }
    let digits: Vec<u16> = (0..5)
        .map(|index| ((value >> (15 * index)) & 0x7fff) as u16)
        .collect();
    let used = digits
        .iter()
        .rposition(|digit| *digit != 0)
        .map_or(0, |last| last + 1);
    write_length(out, b'l', used);
    digits[..used]
        .iter()
        .for_each(|digit| out.extend_from_slice(&digit.to_le_bytes()));
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    /// As `marshal.dumps((None, [True, -1, 2**40], {"k": 0.5}), 2)` has it, but for tuples that it shortens.
    #[test]
    fn everyday_values_are_written_and_others_are_not() {
        let everyday = Value::Tuple(vec![
            Value::None,
            Value::List(vec![Value::Bool(true), Value::Int(-1), Value::Int(1 << 40)]),
            Value::Dict(vec![(Value::Str("k".into()), Value::Float(0.5))]),
        ]);
        let expected = b"(\x03\0\0\0N[\x03\0\0\0Ti\xff\xff\xff\xffl\x03\0\0\0\0\0\0\0\0\x04{u\x01\0\0\0kg\0\0\0\0\0\0\xe0\x3f0";
        assert_eq!(value(&everyday).as_deref(), Some(&expected[..]));
        for other in [
            Value::Int(i64::MIN),
            Value::Bytes(vec![1]),
            Value::Set(Vec::new()),
        ] {
            assert_eq!(value(&Value::List(vec![other])), None);
        }
    }

    /// As `marshal.dumps("d\udcffé\udc80")` has it.
    #[test]
    fn odd_bytes_become_the_surrogates_that_python_has_for_them() {
        let mut out = Vec::new();
        write_text(&mut out, OsStr::from_bytes(b"d\xff\xc3\xa9\x80"));
        assert_eq!(out, b"u\x09\0\0\0d\xed\xb3\xbf\xc3\xa9\xed\xb2\x80");
    }
}
