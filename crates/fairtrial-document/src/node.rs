//! A document as it was written: values with their places.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use crate::fault::{Fault, Place, fault};
use crate::value::Value;
use crate::{json_text, yaml};

/// Nothing that a person writes is nested deeper; what is deeper would exhaust the stack.
pub const DEEPEST: usize = 100;

/// A value and its place.
#[derive(Clone, Debug)]
pub struct Node {
    /// Where it begins.
    pub place: Place,
    /// What it is.
    pub content: Content,
    /// How YAML 1.2 reads this plain scalar, where it reads another value than YAML 1.1.
    pub doubt: Option<Box<Doubt>>,
}

/// A scalar that two versions of YAML read differently.
#[derive(Clone, Debug)]
pub struct Doubt {
    /// As it was written.
    pub text: String,
    /// As YAML 1.2 reads it.
    pub newer: Value,
}

/// What stands at a place.
#[derive(Clone, Debug)]
pub enum Content {
    /// Anything but a list or a mapping.
    Scalar(Value),
    /// A sequence.
    List(Vec<Node>),
    /// A mapping, repeated keys included.
    Map(Vec<Entry>),
}

/// A key of a mapping and its value.
#[derive(Clone, Debug)]
pub struct Entry {
    /// A scalar.
    pub key: Node,
    /// Anything.
    pub value: Node,
}

impl Node {
    /// A scalar that means one thing in every version of YAML.
    #[must_use]
    pub fn scalar(place: Place, value: Value) -> Self {
        Self {
            place,
            content: Content::Scalar(value),
            doubt: None,
        }
    }

    /// The value without places. Of repeated keys the last wins, at the first one's position, as in Python.
    #[must_use]
    pub fn to_value(&self) -> Value {
        self.clone().into_value()
    }

    /// As [`Node::to_value`], for who needs the places no more.
    #[must_use]
    pub fn into_value(self) -> Value {
        match self.content {
            Content::Scalar(value) => value,
            Content::List(items) => Value::List(items.into_iter().map(Self::into_value).collect()),
            Content::Map(entries) => {
                let entries = entries.into_iter();
                let entries =
                    entries.map(|entry| (entry.key.into_value(), entry.value.into_value()));
                match entries.len() {
                    0..=FEW => few(entries),
                    _ => many(entries),
                }
            }
        }
    }

    /// What it is called in messages.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match &self.content {
            Content::Scalar(value) => value.kind(),
            Content::List(_) => "a list",
            Content::Map(_) => "a mapping",
        }
    }

    /// The text, if it is one.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        match &self.content {
            Content::Scalar(Value::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// Whether it is `null`.
    #[must_use]
    pub fn is_null(&self) -> bool {
        matches!(self.content, Content::Scalar(Value::Null))
    }
}

/// So many keys are compared sooner than hashed.
const FEW: usize = 16;

fn few(entries: impl ExactSizeIterator<Item = (Value, Value)>) -> Value {
    let mut map: Vec<(Value, Value)> = Vec::with_capacity(entries.len());
    for (key, value) in entries {
        let is_same = |known: &Value| match (known, &key) {
            (Value::Text(known), Value::Text(key)) => known == key,
            (Value::Text(_), _) | (_, Value::Text(_)) => false,
            (known, key) => known.equality_key() == key.equality_key(),
        };
        match map.iter_mut().find(|(known, _)| is_same(known)) {
            Some(known) => known.1 = value,
            None => map.push((key, value)),
        }
    }
    Value::Map(map)
}

fn many(entries: impl ExactSizeIterator<Item = (Value, Value)>) -> Value {
    let mut map: Vec<(Value, Value)> = Vec::with_capacity(entries.len());
    let mut places = HashMap::with_capacity(entries.len());
    for (key, value) in entries {
        let at = *places.entry(key.equality_key()).or_insert(map.len());
        match map.get_mut(at) {
            Some(known) => known.1 = value,
            None => map.push((key, value)),
        }
    }
    Value::Map(map)
}

/// Reads a document by its file name's extension; the text is the file's.
pub fn parse(path: &Path, file: &Arc<str>, text: &str) -> Result<Node, Fault> {
    let start = Place {
        file: file.clone(),
        line: 1,
        column: 1,
    };
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    match extension(path).as_str() {
        "yaml" | "yml" => yaml::parse(file, text),
        "json" => json_text::parse(file, text),
        other => Err(fault(
            &start,
            "extension",
            format!("a file ending in `.{other}` is not read"),
            "name it `.yaml`, `.yml` or `.json`",
        )),
    }
}

/// The extension of a file name, in lower case.
#[must_use]
pub fn extension(path: &Path) -> String {
    let extension = path.extension().unwrap_or_default();
    extension.to_string_lossy().to_lowercase()
}
