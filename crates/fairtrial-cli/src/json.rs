//! JSON with places: the entries of an object with where each stands, and exact values.

mod exact;

use std::borrow::Cow;
use std::fmt;

use serde::de::{self, DeserializeSeed, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Deserializer, Value as Json};

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

    /// The whole value, every int exact and no key given twice.
    pub(crate) fn value(self) -> Result<Json, Fault> {
        exact::parse(self.text).map_err(|fault| Fault::new(self.at + fault.at, fault.message))
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
            let ours = Raw::whole(&text).value();
            if let Err(fault) = &ours {
                prop_assert!(fault.at <= text.len());
                fault.place(&text);
            }
            if let Ok(theirs) = serde_json::from_str::<Json>(&text) {
                match ours {
                    Ok(ours) => prop_assert_eq!(ours, theirs),
                    Err(fault) => prop_assert!(fault.message.starts_with("duplicate key")),
                }
            } else {
                prop_assert!(ours.is_err());
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
