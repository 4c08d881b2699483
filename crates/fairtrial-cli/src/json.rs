//! JSON with places: the entries of an object with where each stands, and values without duplicate keys.

use std::borrow::Cow;
use std::fmt;

use serde::de::{self, DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Deserializer, Map, Number, Value as Json};

/// What is wrong with a text, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// Byte offset in the text.
    pub(crate) at: usize,
    /// What is wrong, with a hint in parentheses.
    pub(crate) message: String,
}

impl Fault {
    pub(crate) fn new(at: usize, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { at, message }
    }

    /// `line:column` of the fault in `text`, both from 1, columns in characters.
    pub(crate) fn place(&self, text: &str) -> (usize, usize) {
        let at = (0..=self.at.min(text.len()))
            .rev()
            .find(|at| text.is_char_boundary(*at));
        let before = &text[..at.unwrap_or(0)];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let line = before.matches('\n').count() + 1;
        (line, before[line_start..].chars().count() + 1)
    }
}

/// One entry of an object, not yet parsed further.
#[derive(Clone, Debug)]
pub(crate) struct Entry<'a> {
    pub(crate) key: Cow<'a, str>,
    /// Offset of the key's opening quote.
    pub(crate) key_at: usize,
    pub(crate) value: Raw<'a>,
}

/// A value's own text, and where it stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Raw<'a> {
    pub(crate) text: &'a str,
    pub(crate) at: usize,
}

impl<'a> Raw<'a> {
    /// All of `text`.
    pub(crate) fn whole(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    /// What it is, for messages.
    pub(crate) fn kind(self) -> &'static str {
        match self.text.trim_start().bytes().next() {
            Some(b'{') => "an object",
            Some(b'[') => "an array",
            Some(b'"') => "a string",
            Some(b't' | b'f') => "a boolean",
            Some(b'n') => "null",
            _ => "a number",
        }
    }

    pub(crate) fn is_null(self) -> bool {
        self.text == "null"
    }

    /// Appends the entries of an object, those before a fault included.
    pub(crate) fn entries(self, into: &mut Vec<Entry<'a>>) -> Result<(), Fault> {
        let mut deserializer = Deserializer::from_str(self.text);
        let parsed = Entries { whole: self, into }.deserialize(&mut deserializer);
        parsed
            .and_then(|()| deserializer.end())
            .map_err(|error| self.fault(&error))
    }

    /// The items of an array.
    pub(crate) fn items(self) -> Result<Vec<Raw<'a>>, Fault> {
        let items: Vec<&RawValue> = self.parse()?;
        Ok(items.into_iter().map(|item| self.part(item)).collect())
    }

    /// As `T`.
    pub(crate) fn parse<T: serde::Deserialize<'a>>(self) -> Result<T, Fault> {
        serde_json::from_str(self.text).map_err(|error| self.fault(&error))
    }

    /// The whole value. Duplicate keys are refused at every depth: which of the two was meant nobody knows.
    pub(crate) fn value(self) -> Result<Json, Fault> {
        let mut deserializer = Deserializer::from_str(self.text);
        deserializer.disable_recursion_limit();
        let parsed = Strict { depth: 0 }.deserialize(&mut deserializer);
        parsed
            .and_then(|value| deserializer.end().map(|()| value))
            .map_err(|error| self.fault(&error))
    }

    /// A slice of this text, with its place.
    fn part(self, raw: &'a RawValue) -> Raw<'a> {
        let text = raw.get();
        Raw {
            text,
            at: self.at + (text.as_ptr().addr() - self.text.as_ptr().addr()),
        }
    }

    /// `serde_json` says where in words; we say it in our own way.
    fn fault(self, error: &serde_json::Error) -> Fault {
        let text = error.to_string();
        let message = text
            .rsplit_once(" at line ")
            .map_or(&*text, |(what, _)| what);
        let line_start: usize = self
            .text
            .split_inclusive('\n')
            .take(error.line().saturating_sub(1))
            .map(str::len)
            .sum();
        let at = line_start + error.column().saturating_sub(1);
        Fault::new(self.at + at.min(self.text.len()), message)
    }
}

/// Deserializes an object into its raw entries.
struct Entries<'v, 'a> {
    whole: Raw<'a>,
    into: &'v mut Vec<Entry<'a>>,
}

impl<'de> DeserializeSeed<'de> for Entries<'_, 'de> {
    type Value = ();
    fn deserialize<D: de::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Entries<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<&RawValue>()? {
            let key = self.whole.part(key);
            let value = self.whole.part(map.next_value::<&RawValue>()?);
            let name = if key.text.contains('\\') {
                Cow::Owned(serde_json::from_str(key.text).map_err(de::Error::custom)?)
            } else {
                Cow::Borrowed(&key.text[1..key.text.len() - 1])
            };
            self.into.push(Entry {
                key: name,
                key_at: key.at,
                value,
            });
        }
        Ok(())
    }
}

/// Nesting allowed: that of the data codec.
const MAX_DEPTH: u32 = 1000;

/// With `serde_json`'s `arbitrary_precision`, which another crate may switch on, a number arrives as a map with this key.
const NUMBER_KEY: &str = "$serde_json::private::Number";

/// Deserializes any value, refusing duplicate keys and bottomless nesting.
#[derive(Clone, Copy)]
struct Strict {
    depth: u32,
}

impl Strict {
    fn deeper<E: de::Error>(self) -> Result<Self, E> {
        let depth = self.depth + 1;
        if depth > MAX_DEPTH {
            return Err(E::custom(format_args!("more than {MAX_DEPTH} levels deep")));
        }
        Ok(Self { depth })
    }
}

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Json;
    fn deserialize<D: de::Deserializer<'de>>(self, deserializer: D) -> Result<Json, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json, E> {
        Ok(Json::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Json, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Json, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Json, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Json, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Json, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Json, A::Error> {
        let inner = self.deeper()?;
        let mut items = Vec::new();
        while let Some(item) = seq.next_element_seed(inner)? {
            items.push(item);
        }
        Ok(Json::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Json, A::Error> {
        let inner = self.deeper()?;
        let mut object = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            if key == NUMBER_KEY {
                let digits: String = map.next_value()?;
                let number: Number = digits.parse().map_err(de::Error::custom)?;
                return Ok(Json::Number(number));
            }
            if object.contains_key(&key) {
                return Err(de::Error::custom(format_args!("duplicate key `{key}`")));
            }
            let value = map.next_value_seed(inner)?;
            object.insert(key, value);
        }
        Ok(Json::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fault_of(text: &str) -> String {
        let fault = Raw::whole(text).value().unwrap_err();
        let (line, column) = fault.place(text);
        format!("{line}:{column}: {}", fault.message)
    }

    #[test]
    fn a_fault_is_placed_by_line_and_character() {
        assert_eq!(fault_of("[1, x]"), "1:5: expected value");
        assert_eq!(fault_of("[1,\n  \"é\", x]"), "2:8: expected value");
        assert_eq!(fault_of("[1] 2"), "1:5: trailing characters");
        assert_eq!(fault_of("[1"), "1:2: EOF while parsing a list");
        assert_eq!(fault_of(""), "1:1: EOF while parsing a value");
    }

    #[test]
    fn a_duplicate_key_is_refused_at_any_depth() {
        assert_eq!(
            fault_of(r#"[{"a": {"b": 1, "b": 2}}]"#),
            "1:19: duplicate key `b`"
        );
    }

    /// EX-66
    #[test]
    fn nesting_ends_where_the_codec_ends() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(Raw::whole(&nested(1000)).value().is_ok());
        assert!(fault_of(&nested(1001)).contains("more than 1000 levels deep"));
        assert!(fault_of(&nested(100_000)).contains("more than 1000 levels deep"));
    }

    #[test]
    fn entries_before_a_fault_are_kept() {
        let mut entries = Vec::new();
        let text = r#"{"id": 7, "\u0061": [1], "b" 2}"#;
        let fault = Raw::whole(text).entries(&mut entries).unwrap_err();
        assert_eq!(fault.place(text), (1, 30));
        let seen: Vec<_> = entries
            .iter()
            .map(|e| (&*e.key, e.key_at, e.value.text, e.value.at))
            .collect();
        assert_eq!(seen, [("id", 1, "7", 7), ("a", 10, "[1]", 20)]);
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_placed_without_a_panic(text in "[\\[\\]{}\",:0-9a-z\\\\ \u{e9}\n-]{0,40}") {
            if let Err(fault) = Raw::whole(&text).value() {
                let (line, column) = fault.place(&text);
                prop_assert!(line >= 1 && column >= 1);
            }
            let mut entries = Vec::new();
            if let Err(fault) = Raw::whole(&text).entries(&mut entries) {
                fault.place(&text);
            }
            for entry in entries {
                prop_assert_eq!(&text[entry.value.at..][..entry.value.text.len()], entry.value.text);
            }
        }
    }
}
