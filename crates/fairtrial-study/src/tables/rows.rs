//! Records as rows. Columns and their order are SF-53, SF-54 and ST-75.

use num_bigint::BigInt;

use super::{Export, ExportError};
use crate::clock::{Precision, time_text};
use crate::compat::Compat;
use crate::describe::{family, recorded_problem};
use crate::journal::Status;
use crate::json_text::parse_value;
use crate::plan::RunSpec;
use crate::run_record::RunRecord;
use crate::value::Value;

/// The columns of a table.
pub(super) type Columns = &'static [&'static str];

/// Of `runs.csv` before `error_info`.
pub(super) const REQUIRED_RUN_COLUMNS: usize = 21;
/// Of `events.csv` without a row.
pub(super) const REQUIRED_EVENT_COLUMNS: usize = 7;

pub(super) const RUN_COLUMNS: Columns = &[
    "study_id",
    "condition_id",
    "run_id",
    "problem_id",
    "problem_family",
    "agent_id",
    "agent_kind",
    "pattern_name",
    "model_name",
    "seed",
    "replicate",
    "status",
    "start_time",
    "end_time",
    "latency_s",
    "input_tokens",
    "output_tokens",
    "cost_usd",
    "primary_outcome",
    "trace_path",
    "manifest_path",
    "error_info",
    "attempts",
    "verdict",
    "stage",
    "evaluation_status",
    "order_index",
    "seed64",
    "identity",
    "warnings",
    "queue_s",
    "start_s",
    "evaluate_s",
    "user_s",
    "system_s",
    "peak_rss_bytes",
    "exit_code",
    "signal",
    "node_id",
];

pub(super) const EVENT_COLUMNS: Columns = &[
    "timestamp",
    "record_id",
    "text",
    "session_id",
    "actor_id",
    "event_type",
    "meta_json",
    "level",
    "study_id",
    "run_id",
    "condition_id",
    "trial_id",
    "step_id",
    "tool_name",
    "evaluation_id",
];

pub(super) const EVALUATION_COLUMNS: Columns = &[
    "run_id",
    "evaluator_id",
    "metric_name",
    "metric_value",
    "metric_unit",
    "aggregation_level",
    "notes_json",
];

pub(super) const ATTEMPT_COLUMNS: Columns = &[
    "run_id",
    "seq",
    "attempt",
    "status",
    "verdict",
    "stage",
    "started_at",
    "finished_at",
    "error_type",
    "error_message",
    "output_json",
];

fn int(number: impl Into<BigInt>) -> Value {
    Value::Int(number.into())
}

fn text(text: Option<&str>) -> Value {
    text.map_or(Value::Null, Value::text)
}

/// A row of `runs.csv`.
pub(super) fn run(export: &Export<'_>, run: &RunSpec<'_>, record: &RunRecord) -> Vec<Value> {
    let (plan, mask) = (export.plan, export.options.mask_volatile);
    let is_dre = plan.study.compat == Compat::Dre;
    let precision = match is_dre {
        true => Precision::Seconds,
        false => Precision::Microseconds,
    };
    let volatile = |value: Value| if mask { Value::Null } else { value };
    let time = |ns| volatile(Value::Text(time_text(ns, precision)));
    let said = |key| {
        let said = record.said(plan, run, key).cloned();
        said.unwrap_or_else(|| Value::text("unknown"))
    };
    let metric = |name| record.metric(name).cloned();
    let is_success = record.status == Status::Success;
    let status = match (is_dre, is_success) {
        (true, false) => "failed",
        _ => record.status.name(),
    };
    let family = match plan.is_standalone {
        true => None,
        false => family(&plan.study.bindings, run),
    };
    let manifest = export.options.output_dir.join("manifest.json");
    let mut row = vec![
        Value::text(&plan.study.study_id),
        Value::Text(run.condition.id().to_string()),
        Value::text(&record.run_id),
        recorded_problem(run),
        Value::text(family.unwrap_or("unknown")),
        run.agent_id().clone(),
        said("agent_kind"),
        said("pattern_name"),
        said("model_name"),
        int(run.seed),
        int(run.replicate),
        Value::text(status),
        time(record.started_at_ns),
        time(record.finished_at_ns),
        volatile(Value::Float(record.latency_s)),
        metric("input_tokens").unwrap_or_else(|| int(0)),
        metric("output_tokens").unwrap_or_else(|| int(0)),
        Value::Float(record.cost()),
        metric("primary_outcome").unwrap_or(Value::Null),
        record
            .trace_refs
            .first()
            .cloned()
            .unwrap_or(Value::text("")),
        volatile(Value::Text(manifest.display().to_string())),
        text(record.error_info.as_deref()),
    ];
    if !is_dre {
        row.extend(native(run, record, mask));
    }
    row
}

/// ST-75
fn native(run: &RunSpec<'_>, record: &RunRecord, mask: bool) -> Vec<Value> {
    let volatile = |value: Value| if mask { Value::Null } else { value };
    let measured = |name: &str| {
        let found = record.outcome.get("metrics").and_then(|all| all.get(name));
        volatile(found.cloned().unwrap_or(Value::Null))
    };
    let exit = |name: &str| {
        let found = record.outcome.get("exit").and_then(|exit| exit.get(name));
        found.cloned().unwrap_or(Value::Null)
    };
    let start_ns = record.started_at_ns - record.start.started_at_ns;
    let queued = measured("queue_s").as_number().unwrap_or(0.0);
    let evaluated = record.evaluation_outcome.get("metrics");
    let evaluated = evaluated.and_then(|all| all.get("wall_s")).cloned();
    let warnings = parse_value("warnings", &record.finish.warnings).unwrap_or(Value::Null);
    let warnings = match &warnings {
        Value::List(items) => items.len(),
        _ => 0,
    };
    vec![
        int(record.attempts),
        text(record.finish.verdict.as_deref()),
        Value::text(&record.finish.stage),
        Value::text(&record.evaluation_status),
        int(run.order),
        Value::Text(format!("{:016x}", run.seed64)),
        Value::text(&record.start.identity),
        int(warnings),
        measured("queue_s"),
        volatile(Value::Float((start_ns as f64 / 1e9 - queued).max(0.0))),
        volatile(evaluated.unwrap_or(Value::Null)),
        measured("user_s"),
        measured("system_s"),
        measured("peak_rss_bytes"),
        exit("code"),
        exit("signal"),
        measured("node_id"),
    ]
}

/// A row of `events.csv`.
pub(super) fn event(event: &Value, mask: bool, record: &RunRecord) -> Vec<Value> {
    let automatic = Value::Text(time_text(record.finished_at_ns, Precision::Seconds));
    EVENT_COLUMNS
        .iter()
        .map(|column| {
            let value = event.get(column).cloned().unwrap_or(Value::Null);
            match *column {
                "meta_json" => Value::Text(crate::canonical::canonical_json(&value)),
                // What the agent did not give is the time of the end.
                "timestamp" if mask && value == automatic => Value::Null,
                _ => value,
            }
        })
        .collect()
}

/// A row of `evaluations.csv`.
pub(super) fn evaluation(record: &RunRecord, item: &Value) -> Vec<Value> {
    EVALUATION_COLUMNS
        .iter()
        .map(|column| match *column {
            "run_id" => Value::text(&record.run_id),
            "notes_json" => {
                Value::Text(spaced_json(item.get("notes_json").unwrap_or(&Value::Null)))
            }
            name => item.get(name).cloned().unwrap_or(Value::Null),
        })
        .collect()
}

/// Sorted keys, with a blank behind `,` and `:`, as Python's `json.dumps` has it.
fn spaced_json(value: &Value) -> String {
    match value {
        Value::List(items) => {
            let items: Vec<_> = items.iter().map(spaced_json).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Map(entries) => {
            let sorted: std::collections::BTreeMap<_, _> = entries
                .iter()
                .map(|(key, value)| (key.to_str(), value))
                .collect();
            let entries: Vec<_> = sorted
                .into_iter()
                .map(|(key, value)| {
                    let key = crate::canonical::canonical_json(&Value::Text(key));
                    format!("{key}: {}", spaced_json(value))
                })
                .collect();
            format!("{{{}}}", entries.join(", "))
        }
        other => crate::canonical::canonical_json(other),
    }
}

/// The rows of `attempts.csv` of one run: every start, with how it ended (ST-45, ST-49).
pub(super) fn attempts(
    export: &Export<'_>,
    run: &RunSpec<'_>,
) -> Result<Vec<Vec<Value>>, ExportError> {
    let mask = export.options.mask_volatile;
    let mut rows = Vec::new();
    if export.history.find(run.run_id.number()).is_none() {
        return Ok(rows); // it never began
    }
    for start in export.reader.starts_of(&run.run_id.to_string())? {
        let finish = export.reader.finish(start.id)?;
        let status = finish.as_ref().map_or(Status::Lost, |finish| finish.status);
        if mask && !status.is_its_own() {
            continue;
        }
        let time = |ns: i64| match mask {
            true => Value::Null,
            false => Value::Text(time_text(ns, Precision::Microseconds)),
        };
        let outcome = finish.as_ref().map(|finish| finish.outcome.as_str());
        let outcome = outcome.and_then(|text| parse_value("outcome", text).ok());
        let error = |name: &str| {
            let error = outcome.as_ref().and_then(|outcome| outcome.get("error"));
            error
                .and_then(|error| error.get(name))
                .cloned()
                .unwrap_or(Value::Null)
        };
        let result = finish.as_ref().and_then(|finish| finish.result.as_deref());
        let result = result.and_then(|text| parse_value("result", text).ok());
        let output = result.as_ref().and_then(|result| result.get("output"));
        rows.push(vec![
            Value::text(&start.run_id),
            if mask { Value::Null } else { int(start.seq) },
            int(start.attempt),
            Value::text(status.name()),
            text(finish.as_ref().and_then(|finish| finish.verdict.as_deref())),
            text(finish.as_ref().map(|finish| finish.stage.as_str())),
            time(start.started_at_ns),
            finish
                .as_ref()
                .map_or(Value::Null, |finish| time(finish.finished_at_ns)),
            error("type"),
            error("message"),
            output.map_or(Value::Null, |output| {
                Value::Text(crate::canonical::canonical_json(output))
            }),
        ]);
    }
    Ok(rows)
}
