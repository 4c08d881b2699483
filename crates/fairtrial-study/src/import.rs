//! A directory that DRE left half done becomes one of ours: its checkpoints are records of runs that ended (ST-84).

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use num_bigint::BigInt;

use crate::canonical::canonical_json;
use crate::clock::{now_ns, parse_time};
use crate::journal::{Evaluation, Finish, Journal, JournalError, Record, Stage, Start, Status};
use crate::json_text::parse_value;
use crate::plan::Plan;
use crate::ready::Ready;
use crate::value::Value;

/// Where DRE keeps them.
const PLACE: &str = "artifacts/checkpoints";
const AMOUNTS: [&str; 3] = ["cost_usd", "input_tokens", "output_tokens"];

/// Checkpoints of a directory, in the order of their names.
pub(crate) fn checkpoints(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory.join(PLACE)) else {
        return Vec::new();
    };
    let mut found: Vec<_> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "json")
        })
        .collect();
    found.sort();
    found
}

/// Records every planned run that a checkpoint says ended. Tells of those that say nothing: their runs are run.
pub(crate) fn import(
    plan: &Plan<'_>,
    ready: &Ready,
    journal: &Journal,
    directory: &Path,
) -> Result<Vec<String>, Arc<JournalError>> {
    let mut warnings = Vec::new();
    let mut found: HashMap<String, Value> = HashMap::new();
    for path in checkpoints(directory) {
        let name = path.display().to_string();
        let text = fs::read_to_string(&path).unwrap_or_default();
        let value = parse_value(&name, &text).unwrap_or(Value::Null);
        match value.get("run_id").and_then(Value::as_text) {
            Some(run_id) if is_well_formed(&value) => _ = found.insert(run_id.to_owned(), value),
            _ => warnings.push(format!("{name}: is no checkpoint; its run is run again")),
        }
    }
    let mut records = Vec::new();
    for run in plan.runs() {
        let run_id = run.run_id.to_string();
        let Some(checkpoint) = found.get(&run_id) else {
            continue;
        };
        let status = match checkpoint.get("status").and_then(Value::as_text) {
            Some("success") => Status::Success,
            Some("failed") => Status::Failed,
            _ => continue, // pending or skipped: it never ran
        };
        let said = checkpoint.get("run_spec").and_then(|spec| spec.get("seed"));
        if said.is_some_and(|seed| *seed != Value::Int(BigInt::from(run.seed))) {
            warnings.push(format!(
                "{run_id}: its checkpoint is of another seed; it is run again"
            ));
            continue;
        }
        let id = journal.next_start();
        let time = |name: &str| {
            let text = checkpoint.get(name).and_then(Value::as_text);
            text.and_then(parse_time).unwrap_or_else(now_ns)
        };
        let (started_at_ns, finished_at_ns) = (time("started_at"), time("ended_at"));
        let identity = ready.identity(&run);
        records.push(Record::Start(Start {
            id,
            run_id: run_id.clone(),
            seq: 1,
            attempt: 1,
            invocation: 0,
            plan_index: run.index as u64,
            order_index: run.order().into(),
            seed: run.seed.into(),
            identity: identity.map_or(String::new(), |identity| identity.text().to_owned()),
            started_at_ns,
        }));
        records.push(Record::Finish(Box::new(Finish {
            id,
            run_id: run_id.clone(),
            seq: 1,
            status,
            verdict: None,
            stage: Stage::Imported,
            finished_at_ns,
            outcome: canonical_json(&outcome(checkpoint, started_at_ns, finished_at_ns)),
            result: (status == Status::Success).then(|| canonical_json(&result(checkpoint))),
            stdout: String::new(),
            stderr: String::new(),
            warnings: "[]".into(),
        })));
        if let (Status::Success, Some(evaluator)) = (status, &ready.problem(&run).evaluator) {
            records.push(Record::Evaluation(Evaluation {
                start: id,
                run_id,
                seq: 1,
                number: 1,
                evaluator_sha256: evaluator.sha256.clone(),
                status: Status::Success,
                rows: canonical_json(&rows(checkpoint)),
                outcome: "{}".into(),
            }));
        }
    }
    journal.record(records)?;
    Ok(warnings)
}

/// Whether its parts are of the types that DRE writes.
fn is_well_formed(checkpoint: &Value) -> bool {
    let is_map = |name| {
        matches!(
            checkpoint.get(name),
            None | Some(Value::Null | Value::Map(_))
        )
    };
    let is_list = |name| {
        matches!(
            checkpoint.get(name),
            None | Some(Value::Null | Value::List(_))
        )
    };
    is_map("outputs")
        && is_map("metrics")
        && is_map("run_spec")
        && is_list("observations")
        && is_list("evaluator_outputs")
}

/// What a run gave, in our shape.
fn result(checkpoint: &Value) -> Value {
    let part = |name: &str| checkpoint.get(name).cloned();
    let described = checkpoint
        .get("run_spec")
        .and_then(|spec| spec.get("execution_metadata"))
        .cloned();
    let events = match part("observations") {
        Some(Value::List(events)) => events,
        _ => Vec::new(),
    };
    let events = events.into_iter().enumerate().map(|(index, event)| {
        let mut entries = match event {
            Value::Map(entries) => entries,
            _ => Vec::new(),
        };
        entries.retain(|(_, value)| *value != Value::Null);
        entries.push((Value::text("index"), Value::Int(BigInt::from(index))));
        Value::Map(entries)
    });
    let empty = || Value::Map(Vec::new());
    let mut metrics = part("metrics").unwrap_or_else(empty);
    if let Value::Map(entries) = &mut metrics {
        // The integer 0 is how a missing amount is written.
        let is_missing = |key: &Value, value: &Value| {
            AMOUNTS.contains(&key.to_str().as_str()) && *value == Value::Int(BigInt::ZERO)
        };
        entries.retain(|(key, value)| !is_missing(key, value));
    }
    Value::map([
        ("output", part("outputs").unwrap_or_else(empty)),
        ("metrics", metrics),
        ("events", Value::List(events.collect())),
        ("metadata", described.unwrap_or_else(empty)),
        (
            "trace_refs",
            part("trace_refs").unwrap_or(Value::List(Vec::new())),
        ),
    ])
}

/// What is known of how it went.
fn outcome(checkpoint: &Value, started_at_ns: i64, finished_at_ns: i64) -> Value {
    let error = checkpoint.get("error_info").and_then(Value::as_text);
    let error = error.map_or(Value::Null, |text| {
        let (kind, message) = text.split_once(": ").unwrap_or(("", text));
        Value::map([
            ("type", Value::text(kind)),
            ("message", Value::text(message)),
            ("traceback", Value::text("")),
        ])
    });
    let latency = checkpoint.get("latency").cloned().unwrap_or(Value::Null);
    Value::map([
        ("error", error),
        (
            "metrics",
            Value::map([
                ("wall_s", latency),
                ("started_at_ns", Value::Int(BigInt::from(started_at_ns))),
                ("finished_at_ns", Value::Int(BigInt::from(finished_at_ns))),
            ]),
        ),
    ])
}

fn rows(checkpoint: &Value) -> Value {
    let Some(Value::List(rows)) = checkpoint.get("evaluator_outputs") else {
        return Value::List(Vec::new());
    };
    let without_id = rows.iter().map(|row| {
        let mut entries = match row {
            Value::Map(entries) => entries.clone(),
            _ => Vec::new(),
        };
        entries.retain(|(key, _)| key.as_text() != Some("run_id"));
        Value::Map(entries)
    });
    Value::List(without_id.collect())
}
