//! JSON for people and programs: indented and sorted (SF-55), strict or with bare `NaN` tokens (SF-56).

use std::collections::BTreeMap;

use crate::canonical::{canonical_json, write_text};
use crate::value::Value;

/// Indented by two, keys sorted, ASCII, a newline at the end. Non-finite floats are bare tokens.
pub(crate) fn pretty(value: &Value) -> String {
    let mut text = String::new();
    write(value, 0, &mut text);
    text.push('\n');
    text
}

/// As [`pretty`], strict: a non-finite float is null and named under `non_finite` at the top (ST-77).
pub(crate) fn pretty_strict(value: &Value) -> String {
    pretty(&strict(value))
}

/// A mapping in which non-finite floats are null, each with its text under `non_finite`.
pub(crate) fn strict(value: &Value) -> Value {
    let mut found = Vec::new();
    let mut value = replaced(value, "", &mut found);
    if let (Value::Map(entries), false) = (&mut value, found.is_empty()) {
        entries.push((Value::text("non_finite"), Value::map(found)));
    }
    value
}

fn replaced(value: &Value, pointer: &str, found: &mut Vec<(String, Value)>) -> Value {
    match value {
        Value::Float(float) if !float.is_finite() => {
            found.push((pointer.to_owned(), Value::Text(value.to_str())));
            Value::Null
        }
        Value::List(items) => Value::List(
            items
                .iter()
                .enumerate()
                .map(|(index, item)| replaced(item, &format!("{pointer}/{index}"), found))
                .collect(),
        ),
        Value::Map(entries) => Value::Map(
            entries
                .iter()
                .map(|(key, item)| {
                    let token = key.to_str().replace('~', "~0").replace('/', "~1");
                    let item = replaced(item, &format!("{pointer}/{token}"), found);
                    (key.clone(), item)
                })
                .collect(),
        ),
        other => other.clone(),
    }
}

fn write(value: &Value, depth: usize, out: &mut String) {
    let line = |depth: usize, out: &mut String| {
        out.push('\n');
        out.extend(std::iter::repeat_n("  ", depth));
    };
    match value {
        Value::List(items) if !items.is_empty() => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                *out += if index > 0 { "," } else { "" };
                line(depth + 1, out);
                write(item, depth + 1, out);
            }
            line(depth, out);
            out.push(']');
        }
        Value::Map(entries) if !entries.is_empty() => {
            let sorted: BTreeMap<String, &Value> = entries
                .iter()
                .map(|(key, value)| (key.to_str(), value))
                .collect();
            out.push('{');
            for (index, (key, item)) in sorted.into_iter().enumerate() {
                *out += if index > 0 { "," } else { "" };
                line(depth + 1, out);
                write_text(&key, out);
                *out += ": ";
                write(item, depth + 1, out);
            }
            line(depth, out);
            out.push('}');
        }
        other => *out += &canonical_json(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SF-55, ST-77
    #[test]
    fn it_is_sorted_and_indented_and_strict_where_asked() {
        let value = Value::map([
            (
                "b",
                Value::List(vec![Value::Float(f64::NAN), Value::text("é")]),
            ),
            ("a", Value::Map(Vec::new())),
        ]);
        assert_eq!(
            pretty(&value),
            "{\n  \"a\": {},\n  \"b\": [\n    NaN,\n    \"\\u00e9\"\n  ]\n}\n"
        );
        assert_eq!(
            canonical_json(&strict(&value)),
            r#"{"a":{},"b":[null,"\u00e9"],"non_finite":{"/b/0":"nan"}}"#
        );
    }
}
