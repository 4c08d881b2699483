//! Records as rows. Columns and their order are SF-53, SF-54 and ST-75.

use std::borrow::Cow;

use num_bigint::BigInt;

use super::layout::{EVALUATION_COLUMNS, EVENT_COLUMNS};
use super::{Export, ExportError};
use crate::clock::{Precision, time_text};
use crate::compat::Compat;
use crate::describe::{family, recorded_problem};
use crate::journal::{Finish, Start, Status};
use crate::json_text::parse_value;
use crate::plan::RunSpec;
use crate::run_record::RunRecord;
use crate::value::Value;

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
        said_of_end(
            text(record.error_info.as_deref()),
            record.finish.verdict.as_deref(),
            mask,
        ),
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
        Value::text(record.finish.stage.name()),
        Value::text(record.evaluation_name()),
        int(run.order()),
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

/// What was said of an end; masked, without the time that was measured when it was stopped.
fn said_of_end(said: Value, verdict: Option<&str>, mask: bool) -> Value {
    match said {
        Value::Text(text) if mask && verdict == Some("timeout") => Value::Text(unmeasured(&text)),
        said => said,
    }
}

/// `stopped 1.01 s after it began (limit 1s)` without its number.
fn unmeasured(text: &str) -> String {
    let parts = text
        .split_once("stopped ")
        .and_then(|(before, rest)| Some((before, rest.split_once(" s after it began")?)));
    match parts {
        Some((before, (number, after))) if number.parse::<f64>().is_ok() => {
            format!("{before}stopped after it began{after}")
        }
        _ => text.to_owned(),
    }
}

/// A row of `events.csv`.
pub(super) fn event(event: &Value, mask: bool, record: &RunRecord) -> Vec<Value> {
    let event = masked_event(event, mask, record);
    EVENT_COLUMNS
        .iter()
        .map(|(column, _)| {
            let value = event.get(column).cloned().unwrap_or(Value::Null);
            match *column {
                "meta_json" => Value::Text(crate::canonical::canonical_json(&value)),
                _ => value,
            }
        })
        .collect()
}

/// An event without the time that the agent did not give, which is that of the end.
pub(super) fn masked_event<'v>(event: &'v Value, mask: bool, record: &RunRecord) -> Cow<'v, Value> {
    let mut event = Cow::Borrowed(event);
    let automatic = Value::Text(time_text(record.finished_at_ns, Precision::Seconds));
    if mask
        && event.get("timestamp") == Some(&automatic)
        && let Value::Map(entries) = event.to_mut()
    {
        let mut entries = entries.iter_mut();
        let time = entries.find(|(key, _)| key.as_text() == Some("timestamp"));
        if let Some((_, value)) = time {
            *value = Value::Null;
        }
    }
    event
}

/// A row of `evaluations.csv`.
pub(super) fn evaluation(record: &RunRecord, item: &Value) -> Vec<Value> {
    EVALUATION_COLUMNS
        .iter()
        .map(|(column, _)| match *column {
            "run_id" => Value::text(&record.run_id),
            "notes_json" => {
                Value::Text(spaced_json(item.get("notes_json").unwrap_or(&Value::Null)))
            }
            name => item.get(name).cloned().unwrap_or(Value::Null),
        })
        .collect()
}

/// Sorted keys, with a blank behind `,` and `:`, as Python's `json.dumps` has it.
pub(super) fn spaced_json(value: &Value) -> String {
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
    record: Option<&RunRecord>,
) -> Result<Vec<Vec<Value>>, ExportError> {
    let mask = export.options.mask_volatile;
    let mut rows = Vec::new();
    let Some(past) = export.history.find(run.run_id.number()) else {
        return Ok(rows); // it never began
    };
    if let Some(record) = record
        && (past.starts, record.status) == (1, Status::Success)
    {
        // As most are, and all that is to be said is known.
        let outcome = Some(&record.outcome);
        let output = Some(&record.outputs);
        let row = attempt(mask, &record.start, Some(&record.finish), outcome, output);
        return Ok(vec![row]);
    }
    for start in export.reader.starts_of(&run.run_id.to_string())? {
        let finish = export.reader.finish(start.id)?;
        let status = finish.as_ref().map_or(Status::Lost, |finish| finish.status);
        if mask && !status.is_its_own() {
            continue;
        }
        let parsed = |text: Option<&str>| text.and_then(|text| parse_value("journal", text).ok());
        let outcome = parsed(finish.as_ref().map(|finish| finish.outcome.as_str()));
        let result = parsed(finish.as_ref().and_then(|finish| finish.result.as_deref()));
        let output = result.as_ref().and_then(|result| result.get("output"));
        rows.push(attempt(
            mask,
            &start,
            finish.as_ref(),
            outcome.as_ref(),
            output,
        ));
    }
    Ok(rows)
}

fn attempt(
    mask: bool,
    start: &Start,
    finish: Option<&Finish>,
    outcome: Option<&Value>,
    output: Option<&Value>,
) -> Vec<Value> {
    let status = finish.map_or(Status::Lost, |finish| finish.status);
    let time = |ns: i64| match mask {
        true => Value::Null,
        false => Value::Text(time_text(ns, Precision::Microseconds)),
    };
    let error = |name: &str| {
        let error = outcome.and_then(|outcome| outcome.get("error"));
        error
            .and_then(|error| error.get(name))
            .cloned()
            .unwrap_or(Value::Null)
    };
    vec![
        Value::text(&start.run_id),
        if mask { Value::Null } else { int(start.seq) },
        int(start.attempt),
        Value::text(status.name()),
        text(finish.and_then(|finish| finish.verdict.as_deref())),
        text(finish.map(|finish| finish.stage.name())),
        time(start.started_at_ns),
        finish.map_or(Value::Null, |finish| time(finish.finished_at_ns)),
        error("type"),
        said_of_end(
            error("message"),
            finish.and_then(|finish| finish.verdict.as_deref()),
            mask,
        ),
        output.map_or(Value::Null, |output| {
            Value::Text(crate::canonical::canonical_json(output))
        }),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ST-76: masked tables have nothing that was measured.
    #[test]
    fn what_is_said_of_a_timeout_is_masked() {
        let said = Value::text("Timeout: stopped 1.01 s after it began (limit 1s)");
        let masked = Value::text("Timeout: stopped after it began (limit 1s)");
        let shown = |verdict, mask| said_of_end(said.clone(), verdict, mask);
        assert_eq!(shown(Some("timeout"), true), masked);
        assert_eq!(shown(Some("timeout"), false), said);
        assert_eq!(shown(Some("exception"), true), said);
    }
}
