//! Recorded values as text, close to how Python shows them.

use std::fmt::Write as _;

use super::{NotFinite, Recorded, Tagged};

impl Recorded {
    /// The value as Python would show it, or nearly so.
    #[must_use]
    pub fn shown(&self) -> String {
        let mut out = String::new();
        self.write(&mut out);
        out
    }

    fn write(&self, out: &mut String) {
        match self {
            Self::None => out.push_str("None"),
            Self::Bool(true) => out.push_str("True"),
            Self::Bool(false) => out.push_str("False"),
            Self::Int(int) => add(out, int),
            Self::Float(float) => add(out, format_args!("{float:?}")),
            Self::Text(text) => quote(out, text),
            Self::List(items) => list(out, "[", items, "]"),
            Self::Other(tagged) => tagged.write(out),
        }
    }
}

impl Tagged {
    fn write(&self, out: &mut String) {
        match self {
            Self::Int(hex) => out.push_str(hex),
            Self::Float(NotFinite::Nan) => out.push_str("nan"),
            Self::Float(NotFinite::Infinity) => out.push_str("inf"),
            Self::Float(NotFinite::MinusInfinity) => out.push_str("-inf"),
            Self::Complex(real, imaginary) => {
                add(
                    out,
                    format_args!("({} + {}j)", real.shown(), imaginary.shown()),
                );
            }
            Self::Bytes(base64) => add(out, format_args!("bytes(base64 {base64})")),
            Self::Bytearray(base64) => add(out, format_args!("bytearray(base64 {base64})")),
            Self::Memoryview(base64) => add(out, format_args!("memoryview(base64 {base64})")),
            Self::Surrogates(base64) => add(out, format_args!("str(base64 {base64})")),
            Self::Tuple(items) if items.len() == 1 => list(out, "(", items, ",)"),
            Self::Tuple(items) => list(out, "(", items, ")"),
            Self::Set(items) if items.is_empty() => out.push_str("set()"),
            Self::Set(items) => list(out, "{", items, "}"),
            Self::Frozenset(items) => list(out, "frozenset({", items, "})"),
            Self::Dict(entries) => dict(out, entries),
            Self::Exception(kind, message) => {
                add(out, format_args!("{kind}({})", message.shown()));
            }
            Self::Floats(array) | Self::Array(array) => add(
                out,
                format_args!(
                    "array({}, shape {:?}, base64 {})",
                    array.dtype, array.shape, array.data
                ),
            ),
            Self::Items(array) => {
                add(
                    out,
                    format_args!("array({}, shape {:?}, ", array.dtype, array.shape),
                );
                list(out, "[", &array.items, "])");
            }
            Self::Subclass(kind, value) => add(out, format_args!("{kind}({})", value.shown())),
            Self::Object(kind, fields) => object(out, kind, fields),
            Self::Repr(kind, shown) => match shown {
                Recorded::Text(text) if text.contains(last_part(kind)) => out.push_str(text),
                _ => add(out, format_args!("{kind}: {}", shown.shown())),
            },
            Self::Large(large) => add(
                out,
                format_args!(
                    "<{} of {} bytes, sha256 {}>",
                    large.kind, large.bytes, large.sha256
                ),
            ),
            Self::Cycle(levels) => add(out, format_args!("<the value {levels} levels out>")),
        }
    }
}

fn add(out: &mut String, text: impl std::fmt::Display) {
    write!(out, "{text}").expect("a string takes all");
}

fn quote(out: &mut String, text: &str) {
    out.push('\'');
    for letter in text.chars() {
        match letter {
            '\'' | '\\' | '\n' | '\r' | '\t' => out.extend(letter.escape_default()),
            _ if letter.is_control() => add(out, format_args!("\\x{:02x}", letter as u32)),
            _ => out.push(letter),
        }
    }
    out.push('\'');
}

fn list(out: &mut String, open: &str, items: &[Recorded], close: &str) {
    out.push_str(open);
    for (at, item) in items.iter().enumerate() {
        out.push_str(if at == 0 { "" } else { ", " });
        item.write(out);
    }
    out.push_str(close);
}

fn dict(out: &mut String, entries: &[(Recorded, Recorded)]) {
    out.push('{');
    for (at, (key, item)) in entries.iter().enumerate() {
        out.push_str(if at == 0 { "" } else { ", " });
        key.write(out);
        out.push_str(": ");
        item.write(out);
    }
    out.push('}');
}

fn object(out: &mut String, kind: &str, fields: &[(String, Recorded)]) {
    out.push_str(kind);
    out.push('(');
    for (at, (name, item)) in fields.iter().enumerate() {
        out.push_str(if at == 0 { "" } else { ", " });
        out.push_str(name);
        out.push('=');
        item.write(out);
    }
    out.push(')');
}

fn last_part(kind: &str) -> &str {
    kind.rsplit('.').next().expect("at least one part")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CA-55
    #[test]
    fn values_are_shown_nearly_as_python_does() {
        let table = [
            ("[null,true,-1,0.5,1.0]", "[None, True, -1, 0.5, 1.0]"),
            (r#""it's\n\u0000é""#, r"'it\'s\n\x00é'"),
            (r#"{"tuple":[1]}"#, "(1,)"),
            (r#"{"set":[]}"#, "set()"),
            (r#"{"frozenset":[1]}"#, "frozenset({1})"),
            (r#"{"dict":[["a",{"float":"nan"}]]}"#, "{'a': nan}"),
            (r#"{"exception":["KeyError","'k'"]}"#, r"KeyError('\'k\'')"),
            (
                r#"{"subclass":["m.Pair",{"tuple":[1,2]}]}"#,
                "m.Pair((1, 2))",
            ),
            (r#"{"object":["m.C",[["x",1],["y",2]]]}"#, "m.C(x=1, y=2)"),
            (
                r#"{"repr":["decimal.Decimal","Decimal('1')"]}"#,
                "Decimal('1')",
            ),
            (r#"{"repr":["m.Odd","mute"]}"#, "m.Odd: 'mute'"),
            (r#"{"complex":[1.0,2.0]}"#, "(1.0 + 2.0j)"),
        ];
        for (form, shown) in table {
            let value: Recorded = serde_json::from_str(form).expect("a value");
            assert_eq!(value.shown(), shown);
        }
    }
}
