//! Agents, problems, evaluators and runners.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fairtrial_exec::{Isolation, Limits, Resource, parse_duration, parse_size};

use crate::binding::{Binding, Contract, EntryPoint, Packet, Terms};
use crate::compat::Compat;
use crate::fault::{listed, short, suggestion};
use crate::node::{self, Content, Entry, Node};
use crate::read::{Reader, Record, Unknown};
use crate::schema::{BINDING, PACKET};
use crate::value::Value;

const LIMITS: [&str; 6] = [
    "memory",
    "cpu",
    "processes",
    "open_files",
    "file_size",
    "output",
];
const RETRY_ON: [&str; 4] = ["failed", "timeout", "memory", "crashed"];
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

/// The entries of a mapping of ids, each once.
fn named<'n>(reader: &mut Reader, node: &'n Node, what: &str) -> Vec<(String, &'n Node)> {
    let mut found: Vec<(String, &Node)> = Vec::new();
    for entry in reader.entries(node, what) {
        let Some(id) = entry.key.as_text().filter(|id| !id.trim().is_empty()) else {
            let message = format!("an id in `{what}` must be text that is not blank");
            reader.fault(&entry.key.place, "type", message, "quote it");
            continue;
        };
        if found.iter().any(|(known, _)| known == id) {
            let message = format!("`{}` is given twice in `{what}`", short(id));
            reader.fault(&entry.key.place, "repeated_key", message, "rename one");
        }
        found.push((id.into(), &entry.value));
    }
    found
}

fn packet(reader: &mut Reader, node: &Node, id: &str, defaults: &[Entry]) -> Packet {
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
        let key = entry.key.to_value();
        !own.iter().any(|other| other.key.to_value().equals(&key))
    });
    let all: Vec<Entry> = own.iter().chain(inherited).cloned().collect();
    let record = reader.record_of(&node.place, &all, what, BINDING, Unknown::Fault);
    let entry = entry_point(reader, &record, what);
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

fn terms(reader: &mut Reader, record: &Record<'_>) -> Terms {
    let time = |reader: &mut Reader, key: &str| {
        let node = record.node(key).filter(|node| !node.is_null());
        node.and_then(|node| duration(reader, node, key))
    };
    let sandbox = record.maybe_text("sandbox").and_then(|text| {
        text.parse()
            .map_err(|error: String| {
                let place = record.place_of("sandbox").clone();
                reader.fault(&place, "sandbox", error, "");
            })
            .ok()
    });
    let contract = match record.node("contract") {
        Some(node) => reader.choice(node, "contract", &["run", "dre"]).to_str(),
        None => String::new(),
    };
    Terms {
        timeout: time(reader, "timeout"),
        queue_timeout: time(reader, "queue_timeout"),
        limits: limits(reader, record.node("limits")),
        sandbox,
        isolation: match record.text("isolation").as_str() {
            "reuse" => Isolation::Reuse,
            _ => Isolation::Fresh,
        },
        retries: record.count("retries").unwrap_or(0),
        retry_on: retry_on(reader, record.node("retry_on")),
        retry_delay: record
            .node("retry_delay")
            .filter(|node| node.to_value().as_number() != Some(0.0))
            .and_then(|node| duration(reader, node, "retry_delay"))
            .unwrap_or_default(),
        env: variables(reader, record.node("env")),
        pass_env: record.texts("pass_env"),
        interpreter: record.maybe_text("interpreter"),
        python_path: record.texts("python_path"),
        preload: record.texts("preload"),
        files: record.texts("files"),
        version: record.maybe_text("version"),
        metadata: record.get("metadata").clone(),
        contract: match (contract.as_str(), reader.compat) {
            ("dre", _) | ("", Compat::Dre) => Contract::Dre,
            _ => Contract::Run,
        },
    }
}

/// Seconds, or a text such as `5m`.
pub(crate) fn duration(reader: &mut Reader, node: &Node, key: &str) -> Option<Duration> {
    let value = node.to_value();
    let parsed = match (&value, value.as_number()) {
        (Value::Text(text), _) => parse_duration(text),
        (_, Some(seconds)) => Duration::try_from_secs_f64(seconds)
            .ok()
            .filter(|time| !time.is_zero())
            .ok_or_else(|| format!("must be greater than 0, not {}", value.to_repr())),
        _ => Err(format!("must be seconds or a time, not {}", value.kind())),
    };
    parsed
        .map_err(|what| {
            reader.fault(
                &node.place,
                "duration",
                format!("`{key}`: {what}"),
                "as in `30s` or `5m`",
            );
        })
        .ok()
}

fn limits(reader: &mut Reader, node: Option<&Node>) -> Limits {
    let mut limits = Limits::default();
    let Some(node) = node else { return limits };
    for entry in reader.entries(node, "limits") {
        let key = entry.key.to_value().to_str();
        let resource = match key.as_str() {
            "memory" => Some(Resource::Memory),
            "processes" => Some(Resource::Processes),
            "open_files" => Some(Resource::OpenFiles),
            "file_size" => Some(Resource::FileSize),
            "output" => Some(Resource::Output),
            "cpu" => None,
            other => {
                let message = format!("unknown key `{}` in `limits`", short(other));
                reader.fault(
                    &entry.key.place,
                    "unknown_key",
                    message,
                    suggestion(other, LIMITS),
                );
                continue;
            }
        };
        let lifted = entry.value.as_text() == Some("none");
        match resource {
            None if lifted => limits.cpu = None,
            None => limits.cpu = duration(reader, &entry.value, "cpu"),
            Some(resource) if lifted => limits.set(resource, None),
            Some(resource) => {
                if let Some(amount) = amount(reader, &entry.value, &key) {
                    limits.set(resource, Some(amount));
                }
            }
        }
    }
    limits
}

/// A count, or of memory and files a size.
fn amount(reader: &mut Reader, node: &Node, key: &str) -> Option<u64> {
    let is_size = !matches!(key, "processes" | "open_files");
    let parsed = match node.to_value() {
        Value::Int(int) => u64::try_from(int).ok().filter(|amount| *amount > 0),
        Value::Text(text) if is_size => parse_size(&text).ok(),
        _ => None,
    };
    if parsed.is_none() {
        let expected = if is_size { "a size" } else { "a whole number" };
        let message = format!("`{key}` must be {expected} greater than 0");
        reader.fault(&node.place, "limit", message, "as in `512M`, or `none`");
    }
    parsed
}

fn retry_on(reader: &mut Reader, node: Option<&Node>) -> Vec<String> {
    let Some(node) = node else {
        return RETRY_ON.map(String::from).to_vec();
    };
    let Content::List(items) = &node.content else {
        let hint = format!("of {}", listed(RETRY_ON));
        reader.wrong_type(node, "retry_on", "a list", &hint);
        return Vec::new();
    };
    let status = |item| reader.choice(item, "retry_on", &RETRY_ON).to_str();
    items.iter().map(status).collect()
}

fn variables(reader: &mut Reader, node: Option<&Node>) -> Vec<(String, String)> {
    let Some(node) = node else { return Vec::new() };
    let mut variables: Vec<(String, String)> = Vec::new();
    for entry in reader.entries(node, "env") {
        let name = entry.key.to_value().to_str();
        if name.is_empty() || name.contains(['=', '\0']) || entry.key.as_text().is_none() {
            let message = format!("`{}` is no name of a variable", short(&name));
            reader.fault(&entry.key.place, "env", message, "");
        }
        let Some(value) = entry.value.as_text().filter(|text| !text.contains('\0')) else {
            reader.wrong_type(&entry.value, &short(&name), "text", "quote it");
            continue;
        };
        variables.push((name, value.into()));
    }
    variables
}
