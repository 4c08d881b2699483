//! Limits and isolation, in the words of files; what they mean is the engine's.

use std::path::PathBuf;

use fairtrial_document::node::Content;
use fairtrial_exec::{
    InvalidCall, Level, Limits, Network, OnMissing, Resource, SANDBOX_KEYS, Sandbox,
};
use serde_json::{Map, Value as Json, json};

use super::field::Field;
use super::reader::Record;
use super::units::seconds;
use super::worded::Worded;

/// `cpu` is a time, the others are amounts.
const LIMITS: &[&str] = &[
    "memory",
    "cpu",
    "processes",
    "open_files",
    "file_size",
    "output",
];

const AMOUNTS: [(&str, Resource); 5] = [
    ("memory", Resource::Memory),
    ("processes", Resource::Processes),
    ("open_files", Resource::OpenFiles),
    ("file_size", Resource::FileSize),
    ("output", Resource::Output),
];

pub(super) fn limits(field: &Field<'_, '_>) -> Limits {
    let record = field.record(LIMITS);
    let mut limits = Limits {
        cpu: record.field_or_none("cpu").and_then(Field::duration),
        ..Limits::default()
    };
    for (key, resource) in AMOUNTS {
        let amount = |field: Field<'_, '_>| match resource {
            Resource::Processes | Resource::OpenFiles => field.whole(1..=u64::MAX),
            _ => field.size(),
        };
        if let Some(limit) = record.read(key, |field| liftable(field, amount)) {
            limits.set(resource, limit);
        }
    }
    limits
}

/// What `none` lifts.
fn liftable<'n, 'r, T>(
    field: Field<'n, 'r>,
    read: impl FnOnce(Field<'n, 'r>) -> Option<T>,
) -> Option<Option<T>> {
    match field.written() {
        Some("none") => Some(None),
        _ => read(field).map(Some),
    }
}

/// Those that were set or lifted; the machine's defaults are for the machine to know.
pub(super) fn limits_json(limits: &Limits) -> Json {
    let mut json = Map::new();
    let all = [
        limits.memory_bytes,
        limits.processes,
        limits.open_files,
        limits.file_bytes,
        limits.output_bytes,
    ];
    for ((key, resource), limit) in AMOUNTS.into_iter().zip(all) {
        let said = match limit {
            Some(limit) => json!(limit),
            None if limits.lifted.contains(&resource) => json!("none"),
            None => Json::Null,
        };
        json.insert(key.into(), said);
    }
    json.insert("cpu".into(), limits.cpu.map(seconds).into());
    Json::Object(json)
}

impl Worded for Level {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("none", Self::None),
        ("limits", Self::Limits),
        ("confined", Self::Confined),
        ("strict", Self::Strict),
    ];
}

impl Worded for OnMissing {
    const WORDS: &'static [(&'static str, Self)] =
        &[("fail", Self::Fail), ("degrade", Self::Degrade)];
}

impl Worded for Network {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("none", Self::None),
        ("loopback", Self::Loopback),
        ("host", Self::Host),
    ];
}

/// A level, a level with options as on the command line, or a mapping.
pub(super) fn sandbox(field: Field<'_, '_>) -> Option<Sandbox> {
    let directory = field.reader.directory.clone();
    let text = field.node.as_text().map(str::to_owned);
    let (mut sandbox, record) = match text.as_deref() {
        Some(text) if text.contains(',') => match text.parse::<Sandbox>() {
            Ok(sandbox) => (sandbox, None),
            Err(problem) => return field.object("sandbox", &problem),
        },
        Some(_) => return field.word().map(Sandbox::new),
        None if !matches!(field.node.content, Content::Map(_)) => {
            return field.wrong_type("a level or a mapping", "");
        }
        None => {
            let record = field.record(&SANDBOX_KEYS);
            (from_record(&record)?, Some(record))
        }
    };
    sandbox.resolve(&directory);
    match sandbox.validate() {
        Ok(()) => Some(sandbox),
        Err(invalid) => {
            let objected = objected(&field, record.as_ref(), &invalid);
            objected.object("sandbox", &Sandbox::worded(&invalid))
        }
    }
}

fn objected<'n, 'r>(
    field: &Field<'n, 'r>,
    record: Option<&Record<'n, 'r>>,
    invalid: &InvalidCall,
) -> Field<'n, 'r> {
    let key = invalid.field.strip_prefix("sandbox.").unwrap_or_default();
    let key = SANDBOX_KEYS.into_iter().find(|known| *known == key);
    let inner = record.zip(key).and_then(|(record, key)| record.field(key));
    Field {
        reader: field.reader,
        name: field.name.clone(),
        node: inner.map_or(field.node, |inner| inner.node),
    }
}

fn from_record(record: &Record<'_, '_>) -> Option<Sandbox> {
    let mut sandbox = Sandbox::new(record.require("level", Field::word)?);
    let paths = |field: Field<'_, '_>| {
        let paths = field.lines()?.into_iter().map(PathBuf::from);
        Some(paths.collect())
    };
    let cpus = |field: Field<'_, '_>| {
        let items = field.items()?.into_iter();
        let cpus = items.filter_map(|item| item.count(0..=u32::MAX));
        Some(cpus.map(|cpu| cpu as usize).collect())
    };
    let count = |field: Field<'_, '_>| field.whole(1..=u64::MAX);
    let set = &mut sandbox;
    replace(&mut set.on_missing, record.read("on_missing", Field::word));
    replace(&mut set.network, record.read("network", Field::word));
    replace(&mut set.read, record.read("read", paths));
    replace(&mut set.write, record.read("write", paths));
    let bytes = record.read("scratch_bytes", |field| liftable(field, Field::size));
    replace(&mut set.scratch_bytes, bytes);
    let inodes = record.read("scratch_inodes", |field| liftable(field, count));
    replace(&mut set.scratch_inodes, inodes);
    set.address_space = record.field_or_none("address_space").and_then(Field::size);
    replace(&mut set.devices, record.read("devices", Field::lines));
    set.cpus = record.read("cpus", cpus);
    Some(sandbox)
}

fn replace<T>(place: &mut T, given: Option<T>) {
    if let Some(given) = given {
        *place = given;
    }
}

pub(super) fn sandbox_json(sandbox: &Sandbox) -> Json {
    let paths = |paths: &[PathBuf]| -> Vec<String> {
        let text = |path: &PathBuf| path.to_string_lossy().into_owned();
        paths.iter().map(text).collect()
    };
    // `null` would be the level's own.
    let quota = |quota: Option<u64>| quota.map_or(json!("none"), |quota| json!(quota));
    json!({
        "level": sandbox.level.to_string(),
        "on_missing": sandbox.on_missing.to_string(),
        "network": sandbox.network.to_string(),
        "read": paths(&sandbox.read),
        "write": paths(&sandbox.write),
        "scratch_bytes": quota(sandbox.scratch_bytes),
        "scratch_inodes": quota(sandbox.scratch_inodes),
        "address_space": sandbox.address_space,
        "devices": sandbox.devices,
        "cpus": sandbox.cpus,
    })
}
