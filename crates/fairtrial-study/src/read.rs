//! From nodes to records, by the tables of `schema.rs`. Every fault is noted and reading goes on with a default.

pub(crate) mod bindings;
pub(crate) mod checks;
pub(crate) mod design;
pub(crate) mod factors;
pub(crate) mod policies;

use num_bigint::BigInt;

use crate::compat::Compat;
use crate::fault::{Findings, Place, listed, short, suggestion};
use crate::node::{Content, Entry, Node};
use crate::schema::{Field, Kind};
use crate::value::Value;

/// Reads nodes in one mode and collects what it finds.
pub(crate) struct Reader {
    pub(crate) compat: Compat,
    pub(crate) findings: Findings,
}

/// A mapping that was read: all its keys, defaults filled in, in the table's order.
#[derive(Debug)]
pub(crate) struct Record<'n> {
    pub(crate) place: Place,
    values: Vec<(&'static str, Value)>,
    nodes: Vec<(&'static str, &'n Node)>,
}

impl<'n> Record<'n> {
    pub(crate) fn get(&self, key: &str) -> &Value {
        let found = self.values.iter().find(|(known, _)| *known == key);
        found.map_or(&Value::Null, |(_, value)| value)
    }

    pub(crate) fn text(&self, key: &str) -> String {
        self.maybe_text(key).unwrap_or_default()
    }

    pub(crate) fn maybe_text(&self, key: &str) -> Option<String> {
        self.get(key).as_text().map(Into::into)
    }

    pub(crate) fn texts(&self, key: &str) -> Vec<String> {
        self.list(key).iter().map(Value::to_str).collect()
    }

    pub(crate) fn list(&self, key: &str) -> &[Value] {
        match self.get(key) {
            Value::List(items) => items,
            _ => &[],
        }
    }

    pub(crate) fn flag(&self, key: &str) -> bool {
        *self.get(key) == Value::Bool(true)
    }

    pub(crate) fn int(&self, key: &str) -> Option<BigInt> {
        match self.get(key) {
            Value::Int(int) => Some(int.clone()),
            _ => None,
        }
    }

    /// A count; one beyond any plan is as good as the largest.
    pub(crate) fn count(&self, key: &str) -> Option<u64> {
        self.int(key)
            .map(|int| u64::try_from(int).unwrap_or(u64::MAX))
    }

    /// The node of a key that was given.
    pub(crate) fn node(&self, key: &str) -> Option<&'n Node> {
        let found = self.nodes.iter().find(|(known, _)| *known == key);
        found.map(|(_, node)| *node)
    }

    /// Where a key's value is, else where the mapping begins.
    pub(crate) fn place_of(&self, key: &str) -> &Place {
        self.node(key).map_or(&self.place, |node| &node.place)
    }

    /// The mapping in the table's order, without these keys and those left to the caller.
    pub(crate) fn to_value(&self, without: &[&str]) -> Value {
        let kept = self.values.iter();
        let kept = kept.filter(|(key, _)| !without.contains(key));
        Value::map(kept.map(|(key, value)| (*key, value.clone())))
    }
}

impl Reader {
    pub(crate) fn fault(
        &mut self,
        place: &Place,
        code: &'static str,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        self.findings.fault(place, code, message, hint);
    }

    /// An accident of DRE's: refused natively, else a warning.
    pub(crate) fn dubious(
        &mut self,
        place: &Place,
        code: &'static str,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        match self.compat {
            Compat::Native => self.findings.fault(place, code, message, hint),
            Compat::Dre => self.findings.warn(place, code, message, hint),
        }
    }

    pub(crate) fn is_native(&self) -> bool {
        self.compat == Compat::Native
    }

    pub(crate) fn wrong_type(&mut self, node: &Node, key: &str, expected: &str, hint: &str) {
        let message = format!("`{key}` must be {expected}, not {}", node.kind());
        self.fault(&node.place, "type", message, hint);
    }

    /// The entries of a mapping, or a fault.
    pub(crate) fn entries<'n>(&mut self, node: &'n Node, what: &str) -> &'n [Entry] {
        match &node.content {
            Content::Map(entries) => entries,
            _ => {
                self.wrong_type(node, what, "a mapping", "");
                &[]
            }
        }
    }

    /// Reads a mapping. Unknown keys are dubious; see [`Self::strict_record`].
    pub(crate) fn record<'n>(
        &mut self,
        node: &'n Node,
        what: &str,
        fields: &'static [Field],
    ) -> Record<'n> {
        let entries = self.entries(node, what);
        self.record_of(&node.place, entries, what, fields, Unknown::Dubious)
    }

    /// Reads a mapping whose unknown keys are faults in both modes.
    pub(crate) fn strict_record<'n>(
        &mut self,
        node: &'n Node,
        what: &str,
        fields: &'static [Field],
    ) -> Record<'n> {
        let entries = self.entries(node, what);
        self.record_of(&node.place, entries, what, fields, Unknown::Fault)
    }

    /// Reads entries that stand for a mapping at a place.
    pub(crate) fn record_of<'n>(
        &mut self,
        place: &Place,
        entries: &'n [Entry],
        what: &str,
        fields: &'static [Field],
        unknown: Unknown,
    ) -> Record<'n> {
        let mut nodes: Vec<(&'static str, &Node)> = Vec::new();
        for entry in entries {
            let key = entry.key.to_value();
            let field = fields.iter().find(|field| key.as_text() == Some(field.key));
            let Some(field) = field else {
                self.unknown_key(&entry.key, what, fields, unknown);
                continue;
            };
            match nodes.iter_mut().find(|(known, _)| *known == field.key) {
                Some(known) => {
                    let message = format!("`{}` is given twice in {what}", field.key);
                    let hint = "keep one; the last would win";
                    self.dubious(&entry.key.place, "repeated_key", message, hint);
                    known.1 = &entry.value;
                }
                None => nodes.push((field.key, &entry.value)),
            }
        }
        let values = fields.iter().map(|field| {
            let node = nodes.iter().find(|(key, _)| *key == field.key);
            let value = match node {
                Some((_, node)) => self.field(node, field),
                None => self.absent(place, what, field),
            };
            (field.key, value)
        });
        Record {
            values: values.collect(),
            place: place.clone(),
            nodes,
        }
    }

    fn unknown_key(&mut self, key: &Node, what: &str, fields: &'static [Field], unknown: Unknown) {
        let text = short(&key.to_value().to_str());
        let message = format!("unknown key `{text}` in {what}");
        let hint = suggestion(&text, fields.iter().map(|field| field.key));
        match unknown {
            Unknown::Fault => self.fault(&key.place, "unknown_key", message, hint),
            Unknown::Dubious => self.dubious(&key.place, "unknown_key", message, hint),
        }
    }

    fn absent(&mut self, place: &Place, what: &str, field: &Field) -> Value {
        match field.kind {
            Kind::Name | Kind::Required | Kind::SomeTexts | Kind::SomeValues => {
                let message = format!("`{}` is missing in {what}", field.key);
                self.fault(place, "missing_key", message, "add it");
                Value::Null
            }
            _ => default(&field.kind),
        }
    }

    fn field(&mut self, node: &Node, field: &Field) -> Value {
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
                Content::Map(_) => {
                    self.repeated_keys(node, key);
                    node.to_value()
                }
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

    /// Repeated keys anywhere below.
    pub(crate) fn repeated_keys(&mut self, node: &Node, what: &str) {
        match &node.content {
            Content::Scalar(_) => {}
            Content::List(items) => items.iter().for_each(|item| self.repeated_keys(item, what)),
            Content::Map(entries) => {
                for (index, entry) in entries.iter().enumerate() {
                    let key = entry.key.to_value();
                    let mut earlier = entries[..index].iter();
                    if earlier.any(|other| other.key.to_value().equals(&key)) {
                        let message =
                            format!("`{}` is given twice in `{what}`", short(&key.to_str()));
                        let hint = "keep one; the last would win";
                        self.dubious(&entry.key.place, "repeated_key", message, hint);
                    }
                    self.repeated_keys(&entry.value, what);
                }
            }
        }
    }

    /// Warns of each plain scalar below that YAML 1.1 and YAML 1.2 read differently.
    pub(crate) fn doubts(&mut self, node: &Node) {
        if !self.is_native() {
            return;
        }
        match &node.content {
            Content::Scalar(value) => {
                let Some(doubt) = &node.doubt else { return };
                let message = format!(
                    "`{}` is {} here, as YAML 1.1 has it, and {} in YAML 1.2",
                    short(&doubt.text),
                    described(value),
                    described(&doubt.newer)
                );
                let hint = format!(
                    "write `\"{}\"` for text, or {} for this value",
                    short(&doubt.text),
                    plain_form(value, &doubt.text)
                );
                self.findings
                    .warn(&node.place, "yaml_version", message, hint);
            }
            Content::List(items) => items.iter().for_each(|item| self.doubts(item)),
            Content::Map(entries) => {
                for entry in entries {
                    self.doubts(&entry.key);
                    self.doubts(&entry.value);
                }
            }
        }
    }
}

/// What becomes of a key that no table has.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Unknown {
    Fault,
    Dubious,
}

fn default(kind: &Kind) -> Value {
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

fn described(value: &Value) -> String {
    match value {
        Value::Text(text) => format!("the text `{}`", short(text)),
        Value::Moment(moment) => format!("the time {moment}"),
        Value::Bool(truth) => truth.to_string(),
        other => other.to_repr(),
    }
}

/// A way to write a value that both versions read alike.
fn plain_form(value: &Value, text: &str) -> String {
    match value {
        Value::Text(_) => format!("`'{}'`", short(text)),
        Value::Bool(truth) => format!("`{truth}`"),
        Value::Moment(moment) => format!("`\"{moment}\"`"),
        other => format!("`{}`", other.to_repr()),
    }
}
