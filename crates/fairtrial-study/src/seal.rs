//! `fairtrial.json`: what a study was, and hashes by which a later change of its directory is found (ST-78).

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use num_bigint::BigInt;

use crate::canonical::{canonical_json, sha256_hex};
use crate::clock::{Precision, time_text};
use crate::files::{file_sha256, is_same, write_whole};
use crate::format::Format;
use crate::journal::{JournalError, PastInvocation, Reader};
use crate::json_out::pretty_strict;
use crate::json_text::parse_value;
use crate::plan::Plan;
use crate::ready::Ready;
use crate::tables::{Export, ExportError, ExportOptions};
use crate::value::Value;

const OWN_HASH: &str = "sha256";
const CHANGED: &str = "its records are not those of the last orderly end";
/// Derived, and not to be derived again: it says when it was.
const MANIFEST: &str = "manifest.json";
/// The file's name.
pub(crate) const FILE_NAME: &str = "fairtrial.json";

/// Writes it, after all else.
pub(crate) fn write(
    plan: &Plan<'_>,
    ready: &Ready,
    reader: &Reader,
    directory: &Path,
    formats: &BTreeSet<Format>,
) -> Result<(), ExportError> {
    let path = directory.join(FILE_NAME);
    let failed = |source: io::Error| ExportError::File {
        path: path.clone(),
        source,
    };
    let value = sealed(plan, ready, reader, directory, formats).map_err(|error| match error {
        Unsealed::Journal(error) => ExportError::Journal(error),
        Unsealed::File(error) => failed(error),
    })?;
    write_whole(&path, pretty_strict(&with_own_hash(value)).as_bytes()).map_err(failed)
}

/// Its last value is a hash of all others, so that a changed one is found.
fn with_own_hash(sealed: Value) -> Value {
    let Value::Map(mut entries) = sealed else {
        return sealed;
    };
    entries.retain(|(key, _)| key.as_text() != Some(OWN_HASH));
    let hash = own_hash(&entries);
    entries.push((Value::text(OWN_HASH), Value::Text(hash)));
    Value::Map(entries)
}

/// Whether its values are those it was written with.
fn is_whole(entries: &[(Value, Value)]) -> bool {
    let said = entries
        .iter()
        .find(|(key, _)| key.as_text() == Some(OWN_HASH));
    said.is_some_and(|(_, hash)| hash.as_text() == Some(&own_hash(entries)))
}

fn own_hash(entries: &[(Value, Value)]) -> String {
    let others = entries.iter();
    let others = others.filter(|(key, _)| key.as_text() != Some(OWN_HASH));
    sha256_hex(canonical_json(&Value::Map(others.cloned().collect())).as_bytes())
}

/// Whether a directory was sealed after the last invocation that its journal knows of.
pub(crate) fn is_of(reader: &Reader, directory: &Path) -> Result<bool, JournalError> {
    let text = std::fs::read_to_string(directory.join(FILE_NAME)).unwrap_or_default();
    let sealed = parse_value(FILE_NAME, &text).unwrap_or(Value::Null);
    let invocations = reader.invocations()?;
    Ok(match sealed.get("invocations") {
        Some(Value::List(sealed)) => sealed.len() == invocations.len(),
        _ => false,
    })
}

/// What is wrong with a journal: its file is damaged, or since the last orderly end records of it were changed.
pub fn journal_damage(reader: &Reader, directory: &Path) -> Result<Option<String>, JournalError> {
    if let Some(problem) = reader.fault()? {
        return Ok(Some(problem));
    }
    let text = std::fs::read_to_string(directory.join(FILE_NAME)).unwrap_or_default();
    let sealed = parse_value(FILE_NAME, &text).unwrap_or(Value::Null);
    let journal = sealed.get("journal_sha256").and_then(Value::as_text);
    // Whoever goes on with it adds records; those are sealed in the end.
    let is_damaged = match journal {
        Some(journal) if is_of(reader, directory)? => journal != reader.digest()?,
        _ => false,
    };
    Ok(is_damaged.then(|| CHANGED.to_owned()))
}

/// How a sealed directory was named when it was last run: its tables say so. As it is named now where nobody knows.
#[must_use]
pub fn named_output_dir(directory: &Path) -> PathBuf {
    let text = std::fs::read_to_string(directory.join(FILE_NAME)).unwrap_or_default();
    let sealed = parse_value(FILE_NAME, &text).unwrap_or(Value::Null);
    let named = sealed.get("output_dir").and_then(Value::as_text);
    named.map_or_else(|| directory.to_owned(), PathBuf::from)
}

enum Unsealed {
    Journal(JournalError),
    File(io::Error),
}

fn sealed(
    plan: &Plan<'_>,
    ready: &Ready,
    reader: &Reader,
    directory: &Path,
    formats: &BTreeSet<Format>,
) -> Result<Value, Unsealed> {
    let files = hashes(directory, formats).map_err(Unsealed::File)?;
    let invocations = reader.invocations().map_err(Unsealed::Journal)?;
    let isolation = reader.isolation().map_err(Unsealed::Journal)?;
    let journal = reader.digest().map_err(Unsealed::Journal)?;
    let order = &plan.study.order;
    let counted = isolation
        .into_iter()
        .map(|(digest, runs)| (digest, Value::Int(BigInt::from(runs))));
    Ok(Value::map([
        ("format", Value::Int(BigInt::from(1))),
        ("study_id", Value::text(&plan.study.study_id)),
        ("compat", Value::text(plan.study.compat.name())),
        ("output_dir", Value::Text(directory.display().to_string())),
        ("version", Value::text(env!("CARGO_PKG_VERSION"))),
        ("study_sha256", Value::text(&plan.study_sha256)),
        ("digest_conditions", Value::text(&plan.digest_conditions)),
        ("digest_runs", Value::text(&plan.digest_runs)),
        (
            "order",
            Value::map([
                ("policy", Value::text(order.policy.name())),
                ("seed", order.seed.clone()),
            ]),
        ),
        ("identities", ready.parts()),
        ("isolation", Value::map(counted)),
        ("journal_sha256", Value::Text(journal)),
        (
            "files",
            Value::map(
                files
                    .into_iter()
                    .map(|(name, hash)| (name, Value::Text(hash))),
            ),
        ),
        (
            "invocations",
            Value::List(invocations.iter().map(invocation).collect()),
        ),
    ]))
}

fn invocation(row: &PastInvocation) -> Value {
    let begun = &row.begun;
    let time = |ns| Value::Text(time_text(ns, Precision::Microseconds));
    let (ended, reason) = match &row.end {
        Some((at, reason)) => (time(*at), Value::text(reason)),
        None => (Value::Null, Value::Null),
    };
    Value::map([
        ("started_at", time(begun.started_at_ns)),
        ("ended_at", ended),
        ("reason", reason),
        ("host", Value::text(&begun.host)),
        ("pid", Value::Int(BigInt::from(begun.pid))),
        ("workers", Value::Int(BigInt::from(begun.workers))),
        ("backend", Value::text(&begun.backend)),
        (
            "argv",
            parse_value("argv", &begun.argv).unwrap_or(Value::Null),
        ),
        ("study_sha256", Value::text(&begun.study_sha256)),
    ])
}

/// The SHA-256 of every derived file of some formats.
fn hashes(directory: &Path, formats: &BTreeSet<Format>) -> io::Result<BTreeMap<String, String>> {
    let mut found = BTreeMap::new();
    let derived = formats.iter().flat_map(|format| format.derived_files());
    let manifest = formats.contains(&Format::Csv).then_some(&MANIFEST);
    for name in derived.chain(manifest) {
        if let Some(hash) = file_sha256(&directory.join(name))? {
            found.insert((*name).to_owned(), hash);
        }
    }
    Ok(found)
}

/// Notes files of further formats that were made after the last orderly end. A directory without a seal stays without.
pub fn note_files(directory: &Path, formats: &BTreeSet<Format>) -> Result<(), ExportError> {
    let path = directory.join(FILE_NAME);
    let failed = |source: io::Error| ExportError::File {
        path: path.clone(),
        source,
    };
    let Ok(text) = std::fs::read_to_string(&path) else {
        return Ok(());
    };
    let Ok(mut sealed) = parse_value(FILE_NAME, &text) else {
        return Ok(()); // `verify` says so
    };
    let made = hashes(directory, formats).map_err(failed)?;
    let Value::Map(entries) = &mut sealed else {
        return Ok(());
    };
    // What was changed by others before is not made good by this.
    let is_whole = is_whole(entries);
    let mut keys = entries.iter_mut();
    let files = keys.find(|(key, _)| key.as_text() == Some("files"));
    if let Some((_, Value::Map(files))) = files {
        files.retain(|(name, _)| !made.contains_key(&name.to_str()));
        let made = made.into_iter();
        files.extend(made.map(|(name, hash)| (Value::Text(name), Value::Text(hash))));
    }
    if is_whole {
        sealed = with_own_hash(sealed);
    }
    write_whole(&path, pretty_strict(&sealed).as_bytes()).map_err(failed)
}

/// What of a directory is not as it was left; empty if all is. `scratch` is an empty directory to work in.
pub fn verify(
    plan: &Plan<'_>,
    reader: &Reader,
    directory: &Path,
    scratch: &Path,
    input: Vec<u8>,
) -> Result<Vec<String>, ExportError> {
    let path = directory.join(FILE_NAME);
    let mut found = Vec::new();
    let sealed = match std::fs::read_to_string(&path) {
        Ok(text) => match parse_value(FILE_NAME, &text) {
            Ok(value) => value,
            Err(fault) => return Ok(vec![format!("{FILE_NAME}: {fault}")]),
        },
        Err(source) if source.kind() == io::ErrorKind::NotFound => {
            return Ok(vec![format!(
                "{FILE_NAME}: is not there; the study never came to an orderly end (go on with `fairtrial resume`)"
            )]);
        }
        Err(source) => return Err(ExportError::File { path, source }),
    };
    let text = |name: &str| {
        sealed
            .get(name)
            .and_then(Value::as_text)
            .unwrap_or_default()
    };
    for (name, now) in [
        ("study_id", &plan.study.study_id),
        ("study_sha256", &plan.study_sha256),
        ("digest_conditions", &plan.digest_conditions),
        ("digest_runs", &plan.digest_runs),
    ] {
        if text(name) != now {
            found.push(format!("{name}: recorded {}, now {now}", text(name)));
        }
    }
    if !matches!(&sealed, Value::Map(entries) if is_whole(entries)) {
        found.push(format!("{FILE_NAME}: a value of it was changed"));
    }
    if text("journal_sha256") != reader.digest()? {
        found.push(format!("journal.sqlite: {CHANGED}"));
    }
    let all = BTreeSet::from(Format::ALL);
    let here = hashes(directory, &all).map_err(|source| ExportError::File {
        path: directory.to_owned(),
        source,
    })?;
    let recorded = sealed.get("files").cloned().unwrap_or(Value::Null);
    let derived = all.iter().flat_map(|format| format.derived_files());
    for name in derived.chain([&MANIFEST]) {
        let then = recorded.get(name).and_then(Value::as_text);
        match (then, here.get(*name).map(String::as_str)) {
            (then, now) if then == now => {}
            (Some(_), None) => found.push(format!("{name}: gone")),
            (None, Some(_)) => found.push(format!("{name}: was not there")),
            _ => found.push(format!("{name}: changed since it was written")),
        }
    }
    let formats = Format::ALL.into_iter().filter(|format| {
        let mut files = format.derived_files().iter();
        let is_there = files.any(|name| recorded.get(name).is_some());
        is_there && is_remade(*format, text("version"))
    });
    let formats = formats.collect();
    let again = rederive(
        plan,
        reader,
        directory,
        scratch,
        (input, formats),
        &mut found,
    );
    match again {
        Err(ExportError::Journal(error)) => found.push(format!("journal.sqlite: {error}")),
        other => other?,
    }
    Ok(found)
}

/// Whether this build makes the same bytes of the same journal: where somebody else's library lays them out, only the
/// version that made them is sure to.
fn is_remade(format: Format, version: &str) -> bool {
    match format {
        Format::Csv | Format::Json => true,
        Format::Parquet | Format::Sqlite => {
            format.is_built_in() && version == env!("CARGO_PKG_VERSION")
        }
        Format::Dre => false,
    }
}

/// Tables say what the journal says, whatever their hashes are said to be.
fn rederive(
    plan: &Plan<'_>,
    reader: &Reader,
    directory: &Path,
    scratch: &Path,
    (input, formats): (Vec<u8>, BTreeSet<Format>),
    found: &mut Vec<String>,
) -> Result<(), ExportError> {
    let history = reader.history()?;
    let options = ExportOptions {
        output_dir: named_output_dir(directory),
        input: input.into(),
        formats,
        ..ExportOptions::default()
    };
    let export = Export {
        plan,
        reader,
        history: &history,
        options: &options,
    };
    export.write(scratch)?;
    let names = options
        .formats
        .iter()
        .flat_map(|format| format.derived_files());
    for name in names {
        let known = found
            .iter()
            .any(|line| line.starts_with(&format!("{name}:")));
        let (here, remade) = (directory.join(name), scratch.join(name));
        let failed = |source| ExportError::File {
            path: here.clone(),
            source,
        };
        let is_there = here.exists() || remade.exists();
        if !known && is_there && !(here.exists() && is_same(&here, &remade).map_err(failed)?) {
            found.push(format!("{name}: is not what the journal says"));
        }
    }
    Ok(())
}
