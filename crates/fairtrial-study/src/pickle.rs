//! Plain values as a pickle: how the host program's own functions get their arguments. Writes only; no memo, no objects.

use crate::value::Value;

/// A protocol that every supported interpreter reads.
const PROTOCOL: &[u8] = b"\x80\x04";

/// `(values, {})`: the arguments of a call.
pub(crate) fn arguments<'v>(values: impl IntoIterator<Item = &'v Value>) -> Vec<u8> {
    let mut out = PROTOCOL.to_vec();
    out.push(b'(');
    for value in values {
        write(value, &mut out);
    }
    out.extend(b"t}\x86.");
    out
}

fn write(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Null => out.push(b'N'),
        Value::Bool(true) => out.push(0x88),
        Value::Bool(false) => out.push(0x89),
        Value::Int(int) => match i32::try_from(int) {
            Ok(int) => sized(b'J', &int.to_le_bytes(), &[], out),
            Err(_) => long(&int.to_signed_bytes_le(), out),
        },
        Value::Float(float) => sized(b'G', &float.to_be_bytes(), &[], out),
        Value::Text(text) => write_text(text, out),
        Value::Moment(moment) => write_text(&moment.to_string(), out),
        Value::List(items) => {
            out.extend(b"](");
            for item in items {
                write(item, out);
            }
            out.push(b'e');
        }
        Value::Map(entries) => {
            out.extend(b"}(");
            for (key, value) in entries {
                write(key, out);
                write(value, out);
            }
            out.push(b'u');
        }
    }
}

fn write_text(text: &str, out: &mut Vec<u8>) {
    let size = (text.len() as u64).to_le_bytes();
    sized(0x8d, &size, text.as_bytes(), out);
}

/// An integer as its bytes in two's complement; four of them say how many.
fn long(bytes: &[u8], out: &mut Vec<u8>) {
    let size = (bytes.len() as u32).to_le_bytes();
    sized(0x8b, &size, bytes, out);
}

fn sized(opcode: u8, head: &[u8], body: &[u8], out: &mut Vec<u8>) {
    out.push(opcode);
    out.extend(head);
    out.extend(body);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json_text::parse_value;

    /// ST-87. What Python makes of it is tested with the Python package.
    #[test]
    fn values_are_pickled_by_the_book() {
        let pickled = |json: &str| arguments([&parse_value("test", json).unwrap()]);
        assert_eq!(pickled("null"), b"\x80\x04(Nt}\x86.");
        assert_eq!(
            pickled("[true, -2]"),
            b"\x80\x04(](\x88J\xfe\xff\xff\xffet}\x86."
        );
        assert_eq!(
            pickled("{\"a\": 1.5}"),
            b"\x80\x04(}(\x8d\x01\0\0\0\0\0\0\0aG\x3f\xf8\0\0\0\0\0\0ut}\x86."
        );
        assert_eq!(
            pickled("4294967295"),
            b"\x80\x04(\x8b\x05\0\0\0\xff\xff\xff\xff\0t}\x86."
        );
    }
}
