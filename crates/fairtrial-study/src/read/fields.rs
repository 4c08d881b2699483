//! One value at a time: what a key's value must be, and what is made of it in either mode.

use num_bigint::BigInt;

use crate::fault::{listed, short, suggestion};
use crate::node::{Content, Node};
use crate::read::Reader;
use crate::schema::{Field, Kind};
use crate::value::Value;

impl Reader {
    pub(super) fn field(&mut self, node: &Node, field: &Field) -> Value {
        let key = field.key;
        let null_is_default = node.is_null();
        match &field.kind {
            Kind::Own | Kind::Any => node.to_value(),
            Kind::MaybeText
            | Kind::MaybeInt { .. }
            | Kind::MaybeNumber
            | Kind::MaybeRecord(_)
            | Kind::MaybeAnyInt { .. }
                if null_is_default =>
            {
                Value::Null
            }
            Kind::Text(_) | Kind::Required | Kind::MaybeText => self.text(node, key),
            // A level of numbers or booleans is called as its value is written.
            Kind::Level if self.is_native() => match &node.content {
                Content::Scalar(value) if !node.is_null() => value.clone(),
                _ => {
                    self.wrong_type(node, key, "the name or the value of a level", "");
                    Value::text("?")
                }
            },
            Kind::Level => self.text(node, key),
            Kind::Name => {
                let text = self.text(node, key);
                if text.as_text().is_some_and(|text| text.trim().is_empty()) {
                    let message = format!("`{key}` must not be blank");
                    self.fault(&node.place, "blank", message, "");
                }
                text
            }
            Kind::Texts => self.texts(node, key),
            Kind::SomeTexts | Kind::SomeValues => {
                let items = match field.kind {
                    Kind::SomeTexts => self.texts(node, key),
                    _ => self.values(node, key),
                };
                if matches!(&items, Value::List(items) if items.is_empty()) {
                    let message = format!("`{key}` must not be empty");
                    self.fault(&node.place, "empty", message, "");
                }
                items
            }
            Kind::Values => self.values(node, key),
            Kind::Map => match &node.content {
                Content::Map(_) => node.to_value(),
                _ => {
                    self.wrong_type(node, key, "a mapping", "");
                    Value::Map(Vec::new())
                }
            },
            Kind::Truth(default) => self.truth(node, key, *default),
            Kind::Flag(default) => self.flag(node, key, *default),
            Kind::Int { least, default } => self.int(node, key, Some(*least), *default),
            Kind::MaybeInt { least } => self.int(node, key, Some(*least), *least),
            Kind::MaybeAnyInt { default } => self.int(node, key, None, *default),
            Kind::MaybeNumber => match node.to_value() {
                number @ (Value::Int(_) | Value::Float(_)) => number,
                _ => {
                    self.wrong_type(node, key, "a number", "");
                    Value::Null
                }
            },
            Kind::Choice(words) => self.choice(node, key, words),
            Kind::Records(fields) => self.records(node, key, fields),
            Kind::MaybeRecord(fields) => {
                let what = format!("`{key}`");
                self.record(node, &what, fields).to_value(&[])
            }
        }
    }

    fn text(&mut self, node: &Node, key: &str) -> Value {
        match node.to_value() {
            Value::Text(text) => Value::Text(text),
            value if !self.is_native() => {
                let text = value.to_str();
                let message = format!(
                    "`{key}` is {}, read as the text `{}`",
                    value.kind(),
                    short(&text)
                );
                self.findings.warn(&node.place, "type", message, "quote it");
                Value::Text(text)
            }
            _ => {
                self.wrong_type(node, key, "text", "quote it");
                Value::text("?") // not blank, so that one fault makes no second
            }
        }
    }

    /// The items of a list. Under `dre-0.2` text is a list of characters.
    fn values(&mut self, node: &Node, key: &str) -> Value {
        match &node.content {
            Content::List(items) => Value::List(items.iter().map(Node::to_value).collect()),
            Content::Scalar(Value::Text(text)) if !self.is_native() => {
                let message = format!("`{key}` is text, read as a list of its characters");
                self.findings
                    .warn(&node.place, "type", message, "write a list");
                Value::texts(text.chars().map(String::from))
            }
            _ => {
                self.wrong_type(node, key, "a list", "write `[...]` or `- ` items");
                Value::List(vec![Value::text("?")])
            }
        }
    }

    fn texts(&mut self, node: &Node, key: &str) -> Value {
        if let Content::List(items) = &node.content {
            let item = |(index, item): (usize, &Node)| self.text(item, &format!("{key}[{index}]"));
            return Value::List(items.iter().enumerate().map(item).collect());
        }
        self.values(node, key)
    }

    fn truth(&mut self, node: &Node, key: &str, default: bool) -> Value {
        let value = node.to_value();
        if self.is_native() || matches!(value, Value::Bool(_)) {
            return self.flag(node, key, default);
        }
        let truth = value.is_truthy();
        let message = format!("`{key}` is {}, which counts as {truth}", value.kind());
        self.findings
            .warn(&node.place, "type", message, "write true or false");
        Value::Bool(truth)
    }

    fn flag(&mut self, node: &Node, key: &str, default: bool) -> Value {
        match node.to_value() {
            Value::Bool(truth) => Value::Bool(truth),
            _ => {
                self.wrong_type(node, key, "a boolean", "write true or false");
                Value::Bool(default)
            }
        }
    }

    fn int(&mut self, node: &Node, key: &str, least: Option<i64>, default: i64) -> Value {
        let Value::Int(int) = node.to_value() else {
            self.wrong_type(node, key, "an integer", "");
            return default.into();
        };
        match least {
            Some(least) if int < BigInt::from(least) => {
                let message = format!("`{key}` must be at least {least}, not {int}");
                self.fault(&node.place, "range", message, "");
                default.into()
            }
            _ => Value::Int(int),
        }
    }

    pub(crate) fn choice(&mut self, node: &Node, key: &str, words: &[&'static str]) -> Value {
        let value = node.to_value();
        let word = value.to_str();
        if value.as_text().is_some() && words.contains(&word.as_str()) {
            return value;
        }
        let message = format!("`{key}` cannot be `{}`", short(&word));
        let hint = match suggestion(&word, words.iter().copied()) {
            near if near.starts_with("did") => near,
            _ => format!("it is one of {}", listed(words.iter().copied())),
        };
        self.fault(&node.place, "choice", message, hint);
        words[0].into()
    }

    fn records(&mut self, node: &Node, key: &str, fields: &'static [Field]) -> Value {
        let Content::List(items) = &node.content else {
            self.wrong_type(node, key, "a list", "write `- ` items");
            return Value::List(Vec::new());
        };
        let item = |(index, item): (usize, &Node)| {
            let what = format!("`{key}[{index}]`");
            self.record(item, &what, fields).to_value(&[])
        };
        Value::List(items.iter().enumerate().map(item).collect())
    }
}

/// What a key means that is absent.
pub(super) fn default(kind: &Kind) -> Value {
    match kind {
        Kind::Text(text) => (*text).into(),
        Kind::Texts | Kind::Values | Kind::Records(_) => Value::List(Vec::new()),
        Kind::Map => Value::Map(Vec::new()),
        Kind::Truth(truth) | Kind::Flag(truth) => (*truth).into(),
        Kind::Int { default, .. } | Kind::MaybeAnyInt { default } => (*default).into(),
        Kind::Choice(words) => words[0].into(),
        _ => Value::Null,
    }
}
