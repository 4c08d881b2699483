//! On which terms a binding runs.

use std::time::Duration;

use fairtrial_exec::{Isolation, Limits, Resource, Time, parse_duration, parse_size};

use crate::binding::{Contract, Terms};
use crate::compat::Compat;
use crate::fault::{listed, short, suggestion};
use crate::node::{Content, Node};
use crate::read::{Reader, Record, sandbox};
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

/// The options of a record that was read by the table of bindings.
pub(crate) fn terms(reader: &mut Reader, record: &Record<'_>) -> Terms {
    let time = |reader: &mut Reader, key: &str| {
        let node = record.node(key).filter(|node| !node.is_null());
        node.and_then(|node| duration(reader, node, key))
    };
    let sandbox = record.node("sandbox").filter(|node| !node.is_null());
    let sandbox = sandbox.and_then(|node| sandbox::sandbox(reader, node));
    let contract = match record.node("contract") {
        Some(node) => reader.choice(node, "contract", &["run", "dre"]).to_str(),
        None => String::new(),
    };
    let timeout = time(reader, "timeout");
    let counts = match record.text("time").as_str() {
        "cpu" => Time::Cpu,
        _ => Time::Wall,
    };
    if counts == Time::Cpu && record.node("timeout").is_none() {
        let place = record.place_of("time").clone();
        let message = "`time: cpu` says what a timeout counts: set `timeout`, too";
        reader.fault(&place, "time", message, "as in `timeout: 2s`");
    }
    Terms {
        timeout,
        time: counts,
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
        pass_env: passed(reader, record),
        pass_env_place: record.place_of("pass_env").clone(),
        interpreter: record.maybe_text("interpreter"),
        python_path: record.texts("python_path"),
        preload: record.texts("preload"),
        preload_shared: preload_shared(reader, record),
        files: record.texts("files"),
        version: record.maybe_text("version"),
        metadata: record.get("metadata").clone(),
        contract: match (contract.as_str(), reader.compat) {
            ("dre", _) | ("", Compat::Dre) => Contract::Dre,
            _ => Contract::Run,
        },
    }
}

/// Modules that are preloaded, too.
fn preload_shared(reader: &mut Reader, record: &Record) -> Vec<String> {
    let (preload, shared) = (record.texts("preload"), record.texts("preload_shared"));
    if let Some(module) = shared.iter().find(|module| !preload.contains(module)) {
        let message = format!(
            "`{}` in `preload_shared` is not a module of `preload`",
            short(module)
        );
        let hint = "name it in `preload`, too, or leave it out";
        reader.fault(record.place_of("preload_shared"), "preload", message, hint);
    }
    shared
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
pub(super) fn amount(reader: &mut Reader, node: &Node, key: &str) -> Option<u64> {
    let is_size = !matches!(key, "processes" | "open_files" | "scratch_inodes");
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

/// Names of variables.
fn passed(reader: &mut Reader, record: &Record<'_>) -> Vec<String> {
    let names = record.texts("pass_env");
    for name in &names {
        if name.is_empty() || name.contains(['=', '\0']) {
            let message = format!("`{}` in `pass_env` is no name of a variable", short(name));
            let hint = "name the variable; its value is taken when it is run";
            reader.fault(record.place_of("pass_env"), "env", message, hint);
        }
    }
    names
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
