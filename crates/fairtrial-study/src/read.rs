//! From nodes to records, by the tables of `schema.rs`. Every fault is noted and reading goes on with a default.

pub(crate) mod bindings;
pub(crate) mod checks;
pub(crate) mod design;
mod doubts;
pub(crate) mod factors;
mod fields;
pub(crate) mod policies;
mod sandbox;
mod terms;

use std::collections::HashSet;

use num_bigint::BigInt;

use crate::compat::Compat;
use crate::fault::{Findings, Place, short, suggestion};
use crate::node::{Content, Entry, Node};
use crate::schema::{BINDING, DESIGN, DESIGN_OPTIONS, Field, Kind, RUN_BUDGET, SEED_POLICY};
use crate::value::Value;

/// What the mapping of a whole file is called.
pub(crate) const TOP: &str = "the study";

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
            let written = key.as_text().unwrap_or_default();
            let Some(field) = field_named(fields, written) else {
                self.unknown_key(&entry.key, what, fields, unknown);
                continue;
            };
            let same = |other: &Entry| other.key.as_text() == Some(field.key);
            if written != field.key && entries.iter().any(same) {
                let message = format!("`{}` and `{written}` in {what} say the same", field.key);
                self.fault(&entry.key.place, "repeated_key", message, "keep one");
            }
            match nodes.iter_mut().find(|(known, _)| *known == field.key) {
                Some(known) => known.1 = &entry.value,
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
        let hint = match home_of(&text) {
            Some(home) if what == TOP => format!("it belongs in `{home}`"),
            _ => suggestion(&text, fields.iter().map(|field| field.key)),
        };
        match unknown {
            Unknown::Fault => self.fault(&key.place, "unknown_key", message, hint),
            Unknown::Dubious => self.dubious(&key.place, "unknown_key", message, hint),
        }
    }

    fn absent(&mut self, place: &Place, what: &str, field: &Field) -> Value {
        match field.kind {
            Kind::Name | Kind::Required | Kind::Level | Kind::SomeTexts | Kind::SomeValues => {
                let message = format!("`{}` is missing in {what}", field.key);
                self.fault(place, "missing_key", message, "add it");
                Value::Null
            }
            _ => fields::default(&field.kind),
        }
    }

    /// Repeated keys, here and anywhere below.
    pub(crate) fn repeated_keys(&mut self, node: &Node) {
        match &node.content {
            Content::Scalar(_) => {}
            Content::List(items) => items.iter().for_each(|item| self.repeated_keys(item)),
            Content::Map(entries) => {
                let mut seen = HashSet::new();
                for entry in entries {
                    let key = entry.key.to_value();
                    if !seen.insert(key.equality_key()) {
                        let message = format!("`{}` is given twice", short(&key.to_str()));
                        let hint = "keep one; the last would win";
                        self.dubious(&entry.key.place, "repeated_key", message, hint);
                    }
                    self.repeated_keys(&entry.value);
                }
            }
        }
    }
}

/// The field that a key means. Times are called `timeout_s` in calls, and may be here.
pub(crate) fn field_named<'f>(fields: &'f [Field], written: &str) -> Option<&'f Field> {
    let named = |name: &str| fields.iter().find(|field| field.key == name);
    named(written).or_else(|| {
        let name = written.strip_suffix("_s")?;
        named(name).filter(|field| field.key.ends_with("timeout"))
    })
}

/// The mapping of a study that has this key.
fn home_of(key: &str) -> Option<&'static str> {
    let homes: [(&str, &[Field]); 7] = [
        ("run_budget", RUN_BUDGET),
        ("seed_policy", SEED_POLICY),
        ("design_spec", DESIGN),
        ("design_spec.options", DESIGN_OPTIONS),
        ("order", policies::ORDER),
        ("on_failure", policies::ON_FAILURE),
        ("defaults", &BINDING[4..]), // but the four that say what is run
    ];
    let has = |fields: &[Field]| fields.iter().any(|field| field.key == key);
    homes
        .into_iter()
        .find(|(_, fields)| has(fields))
        .map(|(home, _)| home)
}

/// What becomes of a key that no table has.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Unknown {
    Fault,
    Dubious,
}
