//! Values of files, as Python knows them: their text, their equality, their truth. Not their JSON.

use num_bigint::BigInt;

use crate::moment::Moment;
use crate::number::float_text;

/// A value. `1`, `1.0` and `true` are three values, though Python finds them equal.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// `null`.
    Null,
    /// A boolean.
    Bool(bool),
    /// An integer of any size.
    Int(BigInt),
    /// A float, perhaps not finite.
    Float(f64),
    /// Text.
    Text(String),
    /// A date, or a date and time.
    Moment(Moment),
    /// A sequence.
    List(Vec<Value>),
    /// A mapping, in the order it was written.
    Map(Vec<(Value, Value)>),
}

impl Value {
    /// Text.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    /// A mapping with text keys.
    pub fn map<K: Into<String>>(entries: impl IntoIterator<Item = (K, Value)>) -> Self {
        let entry = |(key, value): (K, Value)| (Self::Text(key.into()), value);
        Self::Map(entries.into_iter().map(entry).collect())
    }

    /// A list of texts.
    pub fn texts<T: AsRef<str>>(texts: impl IntoIterator<Item = T>) -> Self {
        Self::List(texts.into_iter().map(|t| Self::text(t.as_ref())).collect())
    }

    /// The text, if it is one.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The value of a text key in a mapping; of several the last.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Value> {
        let Self::Map(entries) = self else {
            return None;
        };
        let mut found = entries.iter().rev();
        found
            .find(|(known, _)| known.as_text() == Some(key))
            .map(|(_, value)| value)
    }

    /// As a float, if it is an integer or a float; booleans are no numbers here.
    #[must_use]
    pub fn as_number(&self) -> Option<f64> {
        match self {
            Self::Int(int) => Some(int_to_float(int)),
            Self::Float(float) => Some(*float),
            _ => None,
        }
    }

    /// What it is called in messages.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a boolean",
            Self::Int(_) => "an integer",
            Self::Float(_) => "a float",
            Self::Text(_) => "text",
            Self::Moment(_) => "a date",
            Self::List(_) => "a list",
            Self::Map(_) => "a mapping",
        }
    }

    /// Python's `bool(x)`.
    #[must_use]
    pub fn is_truthy(&self) -> bool {
        match self {
            Self::Null => false,
            Self::Bool(truth) => *truth,
            Self::Int(int) => *int != BigInt::ZERO,
            Self::Float(float) => *float != 0.0,
            Self::Text(text) => !text.is_empty(),
            Self::Moment(_) => true,
            Self::List(items) => !items.is_empty(),
            Self::Map(entries) => !entries.is_empty(),
        }
    }

    /// Python's `x == y`: numbers and booleans by amount, mappings in any order.
    #[must_use]
    pub fn equals(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Int(a), Self::Int(b)) => a == b,
            (Self::Text(a), Self::Text(b)) => a == b,
            (Self::List(a), Self::List(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.equals(b))
            }
            (Self::Map(a), Self::Map(b)) => {
                let holds = |entry: &(Value, Value)| {
                    b.iter()
                        .any(|(key, value)| key.equals(&entry.0) && value.equals(&entry.1))
                };
                a.len() == b.len() && a.iter().all(holds)
            }
            _ => match (self.amount(), other.amount()) {
                (Some(a), Some(b)) => a.compare(&b) == Some(std::cmp::Ordering::Equal),
                _ => self == other,
            },
        }
    }

    /// A text that values have in common exactly if Python finds them equal (what is inside lists and mappings left aside).
    #[must_use]
    pub fn equality_key(&self) -> String {
        match self.amount() {
            Some(Amount::Int(int)) => format!("n{int}"),
            Some(Amount::Float(float)) if float.is_finite() && float.fract() == 0.0 => {
                format!("n{}", float_to_int(float))
            }
            // Not in quotes, as the same text would be.
            _ if matches!(self, Self::Moment(_)) => self.to_str(),
            _ => crate::canonical::canonical_json(self),
        }
    }

    /// Python's `str(x)`.
    #[must_use]
    pub fn to_str(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Moment(moment) => moment.to_string(),
            other => other.to_repr(),
        }
    }

    /// Python's `repr(x)`.
    #[must_use]
    pub fn to_repr(&self) -> String {
        match self {
            Self::Null => "None".into(),
            Self::Bool(true) => "True".into(),
            Self::Bool(false) => "False".into(),
            Self::Int(int) => int.to_string(),
            Self::Float(float) if float.is_nan() => "nan".into(),
            Self::Float(float) if float.is_infinite() => infinite(*float).into(),
            Self::Float(float) => float_text(*float),
            Self::Text(text) => text_repr(text),
            Self::Moment(moment) => moment.to_repr(),
            Self::List(items) => {
                let items: Vec<_> = items.iter().map(Self::to_repr).collect();
                format!("[{}]", items.join(", "))
            }
            Self::Map(entries) => {
                let entry = |(key, value): &(Value, Value)| {
                    format!("{}: {}", key.to_repr(), value.to_repr())
                };
                let entries: Vec<_> = entries.iter().map(entry).collect();
                format!("{{{}}}", entries.join(", "))
            }
        }
    }

    /// As a number, if Python can calculate with it.
    #[must_use]
    pub fn amount(&self) -> Option<Amount> {
        match self {
            Self::Bool(truth) => Some(Amount::Int(BigInt::from(u8::from(*truth)))),
            Self::Int(int) => Some(Amount::Int(int.clone())),
            Self::Float(float) => Some(Amount::Float(*float)),
            _ => None,
        }
    }
}

impl From<i64> for Value {
    fn from(int: i64) -> Self {
        Self::Int(int.into())
    }
}

impl From<bool> for Value {
    fn from(truth: bool) -> Self {
        Self::Bool(truth)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::text(text)
    }
}

/// What arithmetic and comparison see: a boolean is 0 or 1.
#[derive(Clone, Debug)]
pub enum Amount {
    /// An integer, or a boolean as 0 or 1.
    Int(BigInt),
    /// A float.
    Float(f64),
}

impl Amount {
    /// Exact, also between a large integer and a float; none with NaN.
    #[must_use]
    pub fn compare(&self, other: &Self) -> Option<std::cmp::Ordering> {
        match (self, other) {
            (Self::Int(a), Self::Int(b)) => Some(a.cmp(b)),
            (Self::Float(a), Self::Float(b)) => a.partial_cmp(b),
            (Self::Int(a), Self::Float(b)) => compare_mixed(a, *b),
            (Self::Float(a), Self::Int(b)) => compare_mixed(b, *a).map(std::cmp::Ordering::reverse),
        }
    }

    /// Correctly rounded; beyond the floats, infinite.
    #[must_use]
    pub fn to_float(&self) -> f64 {
        match self {
            Self::Int(int) => int_to_float(int),
            Self::Float(float) => *float,
        }
    }
}

fn compare_mixed(int: &BigInt, float: f64) -> Option<std::cmp::Ordering> {
    use std::cmp::Ordering::{Equal, Greater, Less};
    if float.is_nan() {
        return None;
    }
    if float.is_infinite() {
        return Some(if float > 0.0 { Less } else { Greater });
    }
    let whole = float_to_int(float.trunc());
    Some(match int.cmp(&whole) {
        Equal if float.fract() > 0.0 => Less,
        Equal if float.fract() < 0.0 => Greater,
        order => order,
    })
}

/// Correctly rounded; beyond the floats, infinite.
#[must_use]
pub fn int_to_float(int: &BigInt) -> f64 {
    let text = int.to_string();
    text.parse().expect("decimal digits are a float")
}

/// A finite float's whole part. Its decimal text is exact.
#[must_use]
pub fn float_to_int(float: f64) -> BigInt {
    let text = format!("{:.0}", float.trunc());
    text.parse()
        .expect("a finite float without decimals is an integer")
}

fn infinite(float: f64) -> &'static str {
    if float > 0.0 { "inf" } else { "-inf" }
}

/// Python's `repr` of a string: single quotes unless only those occur, what cannot be printed escaped.
fn text_repr(text: &str) -> String {
    let quote = if text.contains('\'') && !text.contains('"') {
        '"'
    } else {
        '\''
    };
    let mut repr = String::from(quote);
    for c in text.chars() {
        match c {
            '\\' => repr += "\\\\",
            '\n' => repr += "\\n",
            '\r' => repr += "\\r",
            '\t' => repr += "\\t",
            c if c == quote => repr.extend(['\\', c]),
            c if is_printable(c) => repr.push(c),
            c if u32::from(c) < 0x100 => repr += &format!("\\x{:02x}", u32::from(c)),
            c if u32::from(c) < 0x10000 => repr += &format!("\\u{:04x}", u32::from(c)),
            c => repr += &format!("\\U{:08x}", u32::from(c)),
        }
    }
    repr.push(quote);
    repr
}

/// Near to Python's `isprintable`: controls, separators, formats and private use are not. Unassigned characters, which
/// differ between versions of Unicode, count as printable.
fn is_printable(c: char) -> bool {
    !matches!(u32::from(c),
        0..=0x1f | 0x7f..=0xa0 | 0xad | 0x600..=0x605 | 0x61c | 0x6dd | 0x70f | 0x1680 | 0x180e
        | 0x2000..=0x200f | 0x2028..=0x202f | 0x205f..=0x206f | 0x3000 | 0xe000..=0xf8ff | 0xfeff
        | 0xfff0..=0xfffb | 0xfffe..=0xffff | 0x110bd | 0x110cd | 0x1d173..=0x1d17a | 0xe0000..=0x10ffff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_repr_are_pythons() {
        let table = [
            (Value::Null, "None"),
            (Value::Bool(true), "True"),
            (Value::Float(1e16), "1e+16"),
            (Value::Float(f64::NEG_INFINITY), "-inf"),
            (Value::text("it's"), "\"it's\""),
            (
                Value::text("a'\"\n\u{7f}é\u{200b}"),
                "'a\\'\"\\n\\x7fé\\u200b'",
            ),
            (
                Value::Map(vec![(Value::from(1), Value::List(vec!["x".into()]))]),
                "{1: ['x']}",
            ),
        ];
        for (value, repr) in table {
            assert_eq!(value.to_repr(), repr);
        }
        assert_eq!(Value::text("it's").to_str(), "it's");
    }

    /// SF-28
    #[test]
    fn equality_is_pythons() {
        let one = Value::from(1);
        assert!(one.equals(&Value::Float(1.0)) && one.equals(&Value::Bool(true)));
        assert!(!one.equals(&Value::text("1")) && !Value::Null.equals(&Value::Bool(false)));
        assert!(!Value::Float(f64::NAN).equals(&Value::Float(f64::NAN)));
        let large = Value::Int("9007199254740993".parse().expect("an integer"));
        assert!(!large.equals(&Value::Float(9_007_199_254_740_992.0)));
    }
}
