//! The sandbox of a binding: a level, a level with options as on the command line, or a mapping with the keys of calls.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use fairtrial_exec::{InvalidCall, Sandbox};

use super::terms::amount;
use crate::fault::short;
use crate::node::{Content, Node};
use crate::read::{Reader, Record};
use crate::schema::SANDBOX;
use crate::value::Value;

/// Reads one. Relative paths stay so: they are the study file's when it is run.
pub(super) fn sandbox(reader: &mut Reader, node: &Node) -> Option<Sandbox> {
    let record = match &node.content {
        Content::Scalar(Value::Text(text)) => {
            let parsed = text.parse::<Sandbox>();
            return match parsed.and_then(|sandbox| Ok((checked(&sandbox)?, sandbox))) {
                Ok(((), sandbox)) => Some(sandbox),
                Err(problem) => {
                    reader.fault(&node.place, "sandbox", problem, "");
                    None
                }
            };
        }
        Content::Map(_) => reader.strict_record(node, "`sandbox`", SANDBOX),
        _ => {
            let hint = "as in `strict`, or `{level: strict, network: loopback}`";
            reader.wrong_type(node, "sandbox", "a level or a mapping", hint);
            return None;
        }
    };
    let before = reader.findings.faults.len();
    let sandbox = from_record(reader, &record)?;
    if reader.findings.faults.len() > before {
        return None;
    }
    match checked(&sandbox) {
        Ok(()) => Some(sandbox),
        Err(problem) => {
            reader.fault(&node.place, "sandbox", problem, "");
            None
        }
    }
}

fn checked(sandbox: &Sandbox) -> Result<(), String> {
    let mut there = sandbox.clone();
    there.resolve(Path::new("/"));
    there
        .validate()
        .map_err(|invalid| Sandbox::worded(&invalid))
}

fn from_record(reader: &mut Reader, record: &Record<'_>) -> Option<Sandbox> {
    record.node("level")?; // that it is missing was said
    let mut sandbox = Sandbox::new(word(reader, record, "level")?);
    if let Some(on_missing) = word(reader, record, "on_missing") {
        sandbox.on_missing = on_missing;
    }
    if let Some(network) = word(reader, record, "network") {
        sandbox.network = network;
    }
    let paths = |key| record.texts(key).into_iter().map(PathBuf::from).collect();
    sandbox.read = paths("read");
    sandbox.write = paths("write");
    sandbox.devices = record.texts("devices");
    for (key, place) in [
        ("scratch_bytes", &mut sandbox.scratch_bytes),
        ("scratch_inodes", &mut sandbox.scratch_inodes),
    ] {
        match given(record, key) {
            None => {}
            Some(node) if node.as_text() == Some("none") => *place = None,
            Some(node) => *place = amount(reader, node, key),
        }
    }
    if let Some(node) = given(record, "address_space") {
        sandbox.address_space = amount(reader, node, "address_space");
    }
    if let Some(node) = given(record, "cpus") {
        sandbox.cpus = cpus(reader, node);
    }
    Some(sandbox)
}

fn given<'n>(record: &Record<'n>, key: &str) -> Option<&'n Node> {
    record.node(key).filter(|node| !node.is_null())
}

fn word<T: FromStr<Err = InvalidCall>>(
    reader: &mut Reader,
    record: &Record<'_>,
    key: &str,
) -> Option<T> {
    let text = record.maybe_text(key)?;
    let parsed = text.parse();
    let refused = |invalid: InvalidCall| {
        let message = format!("`{key}` of `sandbox`: {}", invalid.problem);
        reader.fault(record.place_of(key), "sandbox", message, "");
    };
    parsed.map_err(refused).ok()
}

fn cpus(reader: &mut Reader, node: &Node) -> Option<Vec<usize>> {
    let Content::List(items) = &node.content else {
        reader.wrong_type(node, "cpus", "a list of processors", "as in `[0, 1]`");
        return None;
    };
    let mut cpus = Vec::new();
    for item in items {
        let cpu = match item.to_value() {
            Value::Int(int) => usize::try_from(int).ok(),
            _ => None,
        };
        match cpu {
            Some(cpu) => cpus.push(cpu),
            None => {
                let text = item.to_value().to_str();
                let message = format!("`{}` is no number of a processor", short(&text));
                reader.fault(&item.place, "sandbox", message, "");
            }
        }
    }
    Some(cpus)
}
