//! Agents, problems, evaluators and runners.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use crate::binding::{Binding, EntryPoint, Packet};
use crate::fault::short;
use crate::node::{self, Content, Entry, Node};
use crate::read::terms::terms;
use crate::read::{Reader, Record, Unknown, field_named};
use crate::schema::{BINDING, PACKET};
use crate::value::Value;

const FORMS: [&str; 4] = ["python", "command", "source", "function"];

/// `id: binding` for each agent.
pub(crate) fn agents(
    reader: &mut Reader,
    node: &Node,
    defaults: &[Entry],
) -> Vec<(String, Binding)> {
    named(reader, node, "agents")
        .into_iter()
        .filter_map(|(id, node)| {
            let what = format!("agent `{}`", short(&id));
            Some((id, binding(reader, node, &what, defaults)?))
        })
        .collect()
}

/// `id: packet` for each problem, here or in the file named here.
pub(crate) fn problems(
    reader: &mut Reader,
    node: &Node,
    defaults: &[Entry],
    directory: &Path,
) -> Vec<(String, Packet)> {
    let loaded;
    let node = match node.as_text() {
        None => node,
        Some(path) => match problem_file(node, path, directory) {
            Ok(found) => {
                reader.repeated_keys(&found);
                loaded = found;
                &loaded
            }
            Err(fault) => {
                reader.findings.faults.push(fault);
                return Vec::new();
            }
        },
    };
    reader.doubts(node);
    named(reader, node, "problems")
        .into_iter()
        .map(|(id, node)| {
            let packet = packet(reader, node, &id, defaults);
            (id, packet)
        })
        .collect()
}

fn problem_file(node: &Node, path: &str, directory: &Path) -> Result<Node, crate::fault::Fault> {
    let full = directory.join(path);
    let text = std::fs::read_to_string(&full).map_err(|error| {
        let message = format!("cannot read the problems in `{}`: {error}", short(path));
        let hint = "name a YAML or JSON file, relative to this one";
        crate::fault::fault(&node.place, "problem_file", message, hint)
    })?;
    node::parse(&full, &Arc::from(full.display().to_string()), &text)
}

/// The entries of a mapping of ids; of a repeated one the last.
fn named<'n>(reader: &mut Reader, node: &'n Node, what: &str) -> Vec<(String, &'n Node)> {
    let mut found: Vec<(String, &Node)> = Vec::new();
    let mut places: HashMap<&str, usize> = HashMap::new();
    for entry in reader.entries(node, what) {
        let Some(id) = entry.key.as_text().filter(|id| !id.trim().is_empty()) else {
            let message = format!("an id in `{what}` must be text that is not blank");
            reader.fault(&entry.key.place, "type", message, "quote it");
            continue;
        };
        let at = *places.entry(id).or_insert(found.len());
        match found.get_mut(at) {
            Some(known) => known.1 = &entry.value,
            None => found.push((id.into(), &entry.value)),
        }
    }
    found
}

pub(crate) fn packet(reader: &mut Reader, node: &Node, id: &str, defaults: &[Entry]) -> Packet {
    let what = format!("problem `{}`", short(id));
    let record = reader.strict_record(node, &what, PACKET);
    let evaluator = record.node("evaluator").filter(|node| !node.is_null());
    let evaluator =
        evaluator.and_then(|node| binding(reader, node, &format!("evaluator of {what}"), defaults));
    Packet {
        place: node.place.clone(),
        family: record.text("family"),
        brief: record.text("brief"),
        payload: record.get("payload").clone(),
        metadata: record.get("metadata").clone(),
        files: record.texts("files"),
        written: record.to_value(&[]),
        evaluator,
    }
}

/// One binding; what it does not say, the defaults do.
pub(crate) fn binding(
    reader: &mut Reader,
    node: &Node,
    what: &str,
    defaults: &[Entry],
) -> Option<Binding> {
    binding_of(reader, node, what, defaults, None)
}

/// One binding; if what is called is known already, the node has only its options.
pub(crate) fn binding_of(
    reader: &mut Reader,
    node: &Node,
    what: &str,
    defaults: &[Entry],
    known: Option<EntryPoint>,
) -> Option<Binding> {
    reader.doubts(node);
    let own = match &node.content {
        Content::Map(entries) => entries.clone(),
        Content::Scalar(Value::Text(_)) => vec![Entry {
            key: Node::scalar(node.place.clone(), "python".into()),
            value: node.clone(),
        }],
        _ => {
            let expected = "a mapping, or `FILE.py:FUNCTION`";
            reader.wrong_type(node, what, expected, "");
            return None;
        }
    };
    let inherited = defaults.iter().filter(|entry| {
        let meant = |entry: &Entry| {
            let written = entry.key.as_text()?;
            field_named(BINDING, written).map(|field| field.key)
        };
        let key = meant(entry);
        key.is_none() || !own.iter().any(|other| meant(other) == key)
    });
    let all: Vec<Entry> = own.iter().chain(inherited).cloned().collect();
    let record = reader.record_of(&node.place, &all, what, BINDING, Unknown::Fault);
    let entry = match known {
        Some(entry) => own_function(reader, &record, what, entry),
        None => entry_point(reader, &record, what),
    };
    let terms = terms(reader, &record);
    let entry = entry?;
    if matches!(entry, EntryPoint::Command(_))
        && own
            .iter()
            .any(|other| other.key.as_text() == Some("contract"))
    {
        let place = record.place_of("contract").clone();
        let message = "`contract` is for Python functions; a command has one contract only";
        reader.fault(&place, "ignored_option", message, "remove it");
    }
    let written = Content::Map(own);
    let written = Node {
        place: node.place.clone(),
        content: written,
        doubt: None,
    };
    Some(Binding {
        place: node.place.clone(),
        written: written.to_value(),
        entry,
        terms,
    })
}

/// Checks the options that every binding starts from; returns their entries.
pub(crate) fn defaults<'n>(reader: &mut Reader, node: &'n Node) -> &'n [Entry] {
    reader.doubts(node);
    let record = reader.strict_record(node, "`defaults`", BINDING);
    for form in FORMS {
        if record.node(form).is_some() {
            let message = format!("`{form}` cannot be a default");
            reader.fault(
                record.place_of(form),
                "binding",
                message,
                "put it in a binding",
            );
        }
    }
    terms(reader, &record);
    match &node.content {
        Content::Map(entries) => entries,
        _ => &[],
    }
}

/// A function that is at hand needs no name.
fn own_function(
    reader: &mut Reader,
    record: &Record<'_>,
    what: &str,
    entry: EntryPoint,
) -> Option<EntryPoint> {
    let mut forms = FORMS.iter();
    let Some(form) = forms.find(|form| record.node(form).is_some()) else {
        return Some(entry);
    };
    let message = format!("{what} is a function, and has `{form}`");
    reader.fault(
        record.place_of(form),
        "binding",
        message,
        "keep one of the two",
    );
    None
}

fn entry_point(reader: &mut Reader, record: &Record<'_>, what: &str) -> Option<EntryPoint> {
    let given: Vec<_> = FORMS[..3]
        .iter()
        .filter(|form| record.node(form).is_some_and(|node| !node.is_null()))
        .collect();
    let [form] = given[..] else {
        let message = format!("{what} needs exactly one of `python`, `command` and `source`");
        reader.fault(
            &record.place,
            "binding",
            message,
            "as in `python: agent.py:solve`",
        );
        return None;
    };
    let function = record.maybe_text("function");
    if *form != "source" && function.is_some() {
        let message = "`function` belongs to `source`";
        let hint = "write `python: FILE.py:FUNCTION`";
        reader.fault(record.place_of("function"), "ignored_option", message, hint);
    }
    match *form {
        "python" => python(reader, record),
        "command" => command(reader, record.node("command")?),
        _ => {
            let Some(function) = function else {
                let message = format!("{what} has `source` and no `function`");
                reader.fault(&record.place, "binding", message, "add `function: NAME`");
                return None;
            };
            let source = record.maybe_text("source")?;
            Some(EntryPoint::Source { source, function })
        }
    }
}

fn python(reader: &mut Reader, record: &Record<'_>) -> Option<EntryPoint> {
    let text = record.maybe_text("python")?;
    match text.rsplit_once(':') {
        Some((file, function)) if !file.is_empty() && is_identifier(function) => {
            Some(EntryPoint::Python {
                file: file.into(),
                function: function.into(),
            })
        }
        _ => {
            let message = format!("`{}` does not name a function of a file", short(&text));
            let hint = "write `FILE.py:FUNCTION`";
            reader.fault(record.place_of("python"), "binding", message, hint);
            None
        }
    }
}

fn is_identifier(name: &str) -> bool {
    let mut chars = name.chars();
    chars.next().is_some_and(|c| c.is_alphabetic() || c == '_')
        && chars.all(|c| c.is_alphanumeric() || c == '_')
}

fn command(reader: &mut Reader, node: &Node) -> Option<EntryPoint> {
    let Content::List(items) = &node.content else {
        let hint = "write a list, as in `[./agent, --fast]`; there is no shell";
        reader.wrong_type(node, "command", "a list of texts", hint);
        return None;
    };
    let argv: Option<Vec<String>> = items
        .iter()
        .map(|item| item.as_text().map(Into::into))
        .collect();
    match argv {
        Some(argv) if argv.first().is_some_and(|program| !program.is_empty()) => {
            Some(EntryPoint::Command(argv))
        }
        _ => {
            let message = "`command` must be a list of texts, the program first";
            reader.fault(
                &node.place,
                "type",
                message,
                "quote numbers and words like `no`",
            );
            None
        }
    }
}
