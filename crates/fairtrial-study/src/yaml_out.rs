//! A value as a YAML 1.1 document that reads back as it is (SF-19).

use std::sync::Arc;

use crate::canonical::write_text;
use crate::number::float_text;
use crate::value::Value;

/// The document.
pub(crate) fn to_yaml(value: &Value) -> String {
    let mut text = String::new();
    write(value, 0, &mut text);
    text
}

fn write(value: &Value, depth: usize, out: &mut String) {
    match value {
        Value::Map(entries) if !entries.is_empty() => {
            for (index, (key, item)) in entries.iter().enumerate() {
                if index > 0 {
                    indent(depth, out);
                }
                scalar(key, out);
                out.push(':');
                match item {
                    Value::Map(inner) if !inner.is_empty() => {
                        out.push('\n');
                        indent(depth + 1, out);
                        write(item, depth + 1, out);
                    }
                    Value::List(inner) if !inner.is_empty() => {
                        out.push('\n');
                        indent(depth, out);
                        write(item, depth, out);
                    }
                    _ => {
                        out.push(' ');
                        write(item, depth, out);
                    }
                }
            }
        }
        Value::List(items) if !items.is_empty() => {
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    indent(depth, out);
                }
                *out += "- ";
                write(item, depth + 1, out);
            }
        }
        Value::Map(_) => *out += "{}\n",
        Value::List(_) => *out += "[]\n",
        other => {
            scalar(other, out);
            out.push('\n');
        }
    }
}

fn indent(depth: usize, out: &mut String) {
    out.extend(std::iter::repeat_n("  ", depth));
}

fn scalar(value: &Value, out: &mut String) {
    match value {
        Value::Null => *out += "null",
        Value::Bool(true) => *out += "true",
        Value::Bool(false) => *out += "false",
        Value::Int(int) => *out += &int.to_string(),
        Value::Float(float) => *out += &yaml_float(*float),
        Value::Text(text) => match is_plain(text) {
            true => *out += text,
            false => write_text(text, out),
        },
        Value::Moment(moment) => *out += &moment.to_string(),
        // A key may be anything; in flow style it stays on its line.
        Value::List(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                *out += if index > 0 { ", " } else { "" };
                scalar(item, out);
            }
            out.push(']');
        }
        Value::Map(entries) => {
            out.push('{');
            for (index, (key, item)) in entries.iter().enumerate() {
                *out += if index > 0 { ", " } else { "" };
                scalar(key, out);
                *out += ": ";
                scalar(item, out);
            }
            out.push('}');
        }
    }
}

/// A float of YAML 1.1 has a dot, and its exponent a sign.
fn yaml_float(float: f64) -> String {
    if float.is_nan() {
        return ".nan".into();
    }
    if float.is_infinite() {
        return if float > 0.0 { ".inf" } else { "-.inf" }.into();
    }
    let text = float_text(float);
    match text.split_once('e') {
        Some((digits, exponent)) if !digits.contains('.') => format!("{digits}.0e{exponent}"),
        _ => text,
    }
}

/// Whether the text can stand without quotes and is then read as itself.
fn is_plain(text: &str) -> bool {
    let simple = |c: char| c.is_ascii_alphanumeric() || " _-./+()".contains(c);
    let begins = text
        .chars()
        .next()
        .is_some_and(|c| c.is_ascii_alphanumeric());
    if !begins || !text.chars().all(simple) || text.ends_with(' ') || text.len() > 60 {
        return false;
    }
    let read = crate::yaml::parse(&Arc::from("text"), &format!("- {text}\n"));
    read.is_ok_and(|node| node.to_value() == Value::List(vec![Value::text(text)]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json_text::parse_value;

    /// SF-19
    #[test]
    fn what_is_written_is_read_back() {
        let json = r#"{"a": [1, 1.0, "1", true, "true", null, "null", "~", "", " x", "x: y", "é\n", "no", "1e5",
            1e16, 1e-5, NaN, Infinity, "2026-01-02", {"b": {"c": []}, "d": {}}, [[1], [{"e": 2, "f": [3]}]]],
            "1": 2, "x y": "long text that goes on and on and on and on and on and on and on and on, with a comma"}"#;
        let value = parse_value("test", json).unwrap();
        let text = to_yaml(&value);
        let back = crate::yaml::parse(&Arc::from("test"), &text)
            .unwrap()
            .to_value();
        // As text, for NaN is not equal to itself.
        assert_eq!(back.to_repr(), value.to_repr(), "{text}");
    }
}
