//! YAML documents with places. Scalars are typed by `yaml/scalar.rs`, as YAML 1.1; repeated keys are kept for others to
//! judge.

mod scalar;

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::sync::Arc;

use saphyr_parser::{Event, Parser, ScalarStyle, Span, StrInput, Tag};

use crate::canonical::canonical_json;
use crate::fault::{Fault, Place, fault};
use crate::node::{Content, DEEPEST, Doubt, Entry, Node};
use crate::value::Value;

pub use scalar::plain;

/// Aliases may repeat others; a document that grows beyond this means harm.
const MOST_NODES: usize = 1_000_000;

/// Reads one document.
pub fn parse(file: &Arc<str>, text: &str) -> Result<Node, Fault> {
    let mut loader = Loader {
        file: file.clone(),
        events: Parser::new_from_str(text),
        anchors: HashMap::new(),
        nodes: 0,
    };
    loader.document()
}

struct Loader<'t> {
    file: Arc<str>,
    events: Parser<'t, StrInput<'t>>,
    /// Anchored nodes and how many nodes each holds.
    anchors: HashMap<usize, (Node, usize)>,
    nodes: usize,
}

impl<'t> Loader<'t> {
    fn document(&mut self) -> Result<Node, Fault> {
        let mut document = None;
        loop {
            let (event, span) = self.next()?;
            match event {
                Event::StreamEnd => break,
                Event::DocumentStart(_) if document.is_some() => {
                    let place = self.place(span);
                    let message = "a second document begins here";
                    return Err(fault(
                        &place,
                        "syntax",
                        message,
                        "keep one document per file",
                    ));
                }
                Event::DocumentStart(_) => {
                    let (event, span) = self.next()?;
                    document = Some(self.node(event, span, 0)?);
                }
                _ => {}
            }
        }
        let start = Place {
            file: self.file.clone(),
            line: 1,
            column: 1,
        };
        // An empty file is an empty mapping.
        Ok(document.filter(|node| !node.is_null()).unwrap_or(Node {
            place: start,
            content: Content::Map(Vec::new()),
            doubt: None,
        }))
    }

    fn next(&mut self) -> Result<(Event<'t>, Span), Fault> {
        let ended = (Event::StreamEnd, Span::default());
        self.events
            .next_event()
            .unwrap_or(Ok(ended))
            .map_err(|error| {
                let place = Place {
                    file: self.file.clone(),
                    line: error.marker().line().max(1),
                    column: error.marker().col() + 1,
                };
                fault(&place, "syntax", format!("not YAML: {}", error.info()), "")
            })
    }

    fn place(&self, span: Span) -> Place {
        Place {
            file: self.file.clone(),
            line: span.start.line().max(1),
            column: span.start.col() + 1,
        }
    }

    fn node(&mut self, event: Event<'t>, span: Span, depth: usize) -> Result<Node, Fault> {
        let place = self.place(span);
        self.grow(1, &place)?;
        if depth > DEEPEST {
            let message = format!("nested deeper than {DEEPEST} levels");
            return Err(fault(&place, "depth", message, ""));
        }
        let before = self.nodes;
        let (anchor, mut node) = match event {
            Event::Alias(anchor) => return self.alias(anchor, place),
            Event::Scalar(text, style, anchor, tag) => {
                let tag = tag.as_deref();
                (anchor, scalar_node(&text, style, tag, place)?)
            }
            Event::SequenceStart(anchor, tag) => {
                check_tag(tag.as_deref(), "seq", &place)?;
                (anchor, self.sequence(place, depth)?)
            }
            Event::MappingStart(anchor, tag) => {
                check_tag(tag.as_deref(), "map", &place)?;
                (anchor, self.mapping(place, depth)?)
            }
            _ => {
                return Err(fault(
                    &place,
                    "syntax",
                    "not YAML: a value was expected",
                    "",
                ));
            }
        };
        if is_lone_operator(&node) {
            let message = "a bare `<<` or `=` is no value";
            return Err(fault(&node.place, "syntax", message, "quote it"));
        }
        unmark(&mut node);
        if anchor > 0 {
            let size = self.nodes - before + 1;
            self.anchors.insert(anchor, (node.clone(), size));
        }
        Ok(node)
    }

    fn alias(&mut self, anchor: usize, place: Place) -> Result<Node, Fault> {
        let Some((node, size)) = self.anchors.get(&anchor) else {
            let message = "an alias stands inside what it names";
            return Err(fault(&place, "syntax", message, "write the value out"));
        };
        let (mut node, size) = (node.clone(), *size);
        self.grow(size, &place)?;
        node.place = place;
        Ok(node)
    }

    fn grow(&mut self, nodes: usize, place: &Place) -> Result<(), Fault> {
        self.nodes += nodes;
        if self.nodes > MOST_NODES {
            let message =
                format!("more than {MOST_NODES} values, aliases counted as what they repeat");
            return Err(fault(place, "size", message, ""));
        }
        Ok(())
    }

    fn sequence(&mut self, place: Place, depth: usize) -> Result<Node, Fault> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => break,
                (event, span) => items.push(self.node(event, span, depth + 1)?),
            }
        }
        Ok(Node {
            place,
            content: Content::List(items),
            doubt: None,
        })
    }

    fn mapping(&mut self, place: Place, depth: usize) -> Result<Node, Fault> {
        let mut merged = Vec::new();
        let mut own = Vec::new();
        loop {
            let (event, span) = match self.next()? {
                (Event::MappingEnd, _) => break,
                next => next,
            };
            if is_merge(&event) {
                let (event, span) = self.next()?;
                let value = self.node(event, span, depth + 1)?;
                merged.extend(merge_entries(value)?);
                continue;
            }
            let key = self.key(event, span, depth)?;
            let (event, span) = self.next()?;
            let value = self.node(event, span, depth + 1)?;
            own.push(Entry { key, value });
        }
        Ok(Node {
            place,
            content: Content::Map(overridden(merged, own, python_key)),
            doubt: None,
        })
    }

    fn key(&mut self, event: Event<'t>, span: Span, depth: usize) -> Result<Node, Fault> {
        if let Event::Scalar(text, ScalarStyle::Plain, 0, None) = &event
            && text == "="
        {
            return Ok(Node::scalar(self.place(span), Value::text("=")));
        }
        let key = self.node(event, span, depth + 1)?;
        match key.content {
            Content::Scalar(_) => Ok(key),
            _ => {
                let message = format!("{} cannot be a key", key.kind());
                Err(fault(&key.place, "key", message, "write a scalar"))
            }
        }
    }
}

/// What is merged stands before a mapping's own entries, which replace it; of several merged, the first counts.
///
/// Two entries have one key where `key_of` gives both the same. Keys are looked up, never compared one by one: a file may
/// merge thousands.
fn overridden<K: Hash + Eq>(
    merged: Vec<Entry>,
    own: Vec<Entry>,
    key_of: impl Fn(&Entry) -> K,
) -> Vec<Entry> {
    if merged.is_empty() {
        return own;
    }
    let mut taken: HashSet<K> = own.iter().map(&key_of).collect();
    let mut entries = merged;
    entries.retain(|entry| taken.insert(key_of(entry)));
    entries.extend(own);
    entries
}

/// What Python's dictionaries tell keys apart by.
fn python_key(entry: &Entry) -> String {
    entry.key.to_value().equality_key()
}

fn merge_entries(node: Node) -> Result<Vec<Entry>, Fault> {
    let place = node.place.clone();
    match node.content {
        Content::Map(entries) => Ok(entries),
        Content::List(items) if items.iter().all(|n| matches!(n.content, Content::Map(_))) => {
            let nested: Result<Vec<_>, _> = items.into_iter().map(merge_entries).collect();
            Ok(nested?.into_iter().flatten().collect())
        }
        _ => Err(fault(
            &place,
            "merge",
            "`<<` needs a mapping or a list of mappings",
            "",
        )),
    }
}

fn is_merge(event: &Event<'_>) -> bool {
    matches!(event, Event::Scalar(text, ScalarStyle::Plain, 0, None) if text == "<<")
}

/// Plain `<<` and `=` are marked by a doubt that says so, and refused where they are values.
fn is_lone_operator(node: &Node) -> bool {
    let plain = node.doubt.as_ref().map(|doubt| doubt.text.as_str());
    matches!(plain, Some("<<" | "="))
}

/// Drops doubts that are none: both versions read the same value.
fn unmark(node: &mut Node) {
    let Content::Scalar(value) = &node.content else {
        return;
    };
    if let Some(doubt) = &node.doubt
        && canonical_json(&doubt.newer) == canonical_json(value)
    {
        node.doubt = None;
    }
}

fn scalar_node(
    text: &str,
    style: ScalarStyle,
    tag: Option<&Tag>,
    place: Place,
) -> Result<Node, Fault> {
    let mut node = Node::scalar(place, Value::text(text));
    match tag {
        None if style == ScalarStyle::Plain => {
            let newer = scalar::core(text);
            let value =
                plain(text).map_err(|what| fault(&node.place, "scalar", what, "quote it"))?;
            node.content = Content::Scalar(value);
            node.doubt = Some(Box::new(Doubt {
                text: text.into(),
                newer,
            }));
        }
        None => {}
        Some(tag) => {
            let value = scalar::tagged(text, &tag.suffix).filter(|_| {
                tag.is_yaml_core_schema() || tag.handle.is_empty() || tag.handle == "!!"
            });
            let Some(value) = value else {
                let message = format!("the tag `{}{}` cannot be used here", tag.handle, tag.suffix);
                return Err(fault(&node.place, "tag", message, "leave it out"));
            };
            node.content = Content::Scalar(value);
        }
    }
    Ok(node)
}

fn check_tag(tag: Option<&Tag>, expected: &str, place: &Place) -> Result<(), Fault> {
    match tag {
        Some(tag) if tag.suffix != expected => {
            let message = format!("the tag `{}{}` cannot be used here", tag.handle, tag.suffix);
            Err(fault(place, "tag", message, "leave it out"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn canonical(text: &str) -> String {
        let node = parse(&Arc::from("test"), text).expect("the text is YAML");
        canonical_json(&node.to_value())
    }

    #[test]
    fn own_entries_replace_merged_ones_and_the_first_merged_counts() {
        let table = [
            ("{<<: {a: 1, b: 2}, b: 3}", r#"{"a":1,"b":3}"#),
            ("{b: 3, <<: {a: 1, b: 2}}", r#"{"a":1,"b":3}"#),
            ("{<<: [{a: 1}, {a: 2, c: 3}]}", r#"{"a":1,"c":3}"#),
            ("{<<: {a: 1}, <<: {a: 2}}", r#"{"a":1}"#),
            // As Python has it, 1 and 1.0 are one key; a text and a date never are.
            ("{<<: {1: a}, 1.0: b}", r#"{"1.0":"b"}"#),
        ];
        for (text, expected) in table {
            assert_eq!(canonical(text), expected, "{text}");
        }
        let node = parse(&Arc::from("test"), "{<<: {2026-01-01: a}, '2026-01-01': b}").unwrap();
        assert!(matches!(&node.content, Content::Map(entries) if entries.len() == 2));
    }

    thread_local! {
        static COMPARED: Cell<usize> = const { Cell::new(0) };
    }

    /// A key that counts how often one is compared with another.
    struct Counted(String);

    impl Hash for Counted {
        fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
            self.0.hash(state);
        }
    }

    impl PartialEq for Counted {
        fn eq(&self, other: &Self) -> bool {
            COMPARED.set(COMPARED.get() + 1);
            self.0 == other.0
        }
    }

    impl Eq for Counted {}

    #[test]
    fn merging_thousands_of_keys_looks_at_each_a_few_times() {
        const KEYS: usize = 4000;
        let entries = |from: usize| -> Vec<Entry> {
            let place = Place {
                file: Arc::from("test"),
                line: 1,
                column: 1,
            };
            let scalar = |index: usize| Node::scalar(place.clone(), Value::text(index.to_string()));
            let entry = |index| Entry {
                key: scalar(index),
                value: scalar(index),
            };
            (from..from + KEYS).map(entry).collect()
        };
        let made = Cell::new(0);
        let key = |entry: &Entry| {
            made.set(made.get() + 1);
            Counted(python_key(entry))
        };
        // Half of the merged keys are there already.
        let kept = overridden(entries(0), entries(KEYS / 2), key);
        assert_eq!(kept.len(), KEYS / 2 + KEYS);
        assert_eq!(made.get(), 2 * KEYS);
        assert!(COMPARED.get() <= 4 * KEYS, "{} comparisons", COMPARED.get());
    }
}
