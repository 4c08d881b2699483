//! What is known of a run that ended, put together from plan, journal and study file: the one source of all tables.

use num_bigint::BigInt;

use crate::canonical::{canonical_json, stable_id};
use crate::clock::{Precision, time_text};
use crate::compat::Compat;
use crate::describe::{self, recorded_problem};
use crate::fault::Fault;
use crate::journal::{Evaluation, Finish, History, JournalError, Reader, Start, Status};
use crate::json_text::parse_value;
use crate::plan::{Plan, RunSpec};
use crate::result::number_of;
use crate::value::Value;

/// Names that are measured, whatever an agent reports under them (ST-16).
const MEASURED: [&str; 4] = [
    "latency_s",
    "tool_call_count",
    "step_event_count",
    "unique_actor_count",
];
const STEPS: [&str; 3] = ["step", "tool_call", "assistant_output"];

/// A run that ended.
#[derive(Clone, Debug)]
pub struct RunRecord {
    /// Its id.
    pub run_id: String,
    /// How it ended.
    pub status: Status,
    /// `"<Type>: <message>"` of a failure.
    pub error_info: Option<String>,
    /// What it gave.
    pub outputs: Value,
    /// What it reported, and what was measured.
    pub metrics: Value,
    /// Its events, all fifteen fields each.
    pub events: Vec<Value>,
    /// Rows of its evaluation.
    pub evaluations: Vec<Value>,
    /// What it said of itself.
    pub metadata: Value,
    /// Where its traces are.
    pub trace_refs: Vec<Value>,
    /// How long the agent took.
    pub latency_s: f64,
    /// When it began, in nanoseconds since 1970.
    pub started_at_ns: i64,
    /// When it ended.
    pub finished_at_ns: i64,
    /// How its evaluation ended, if there was one.
    pub evaluation: Option<Status>,
    /// Attempts that ended of their own.
    pub attempts: u32,
    /// As recorded.
    pub start: Start,
    /// As recorded.
    pub finish: Finish,
    /// What is kept of the engine's outcome.
    pub outcome: Value,
    /// What is kept of the evaluation's outcome; null without one.
    pub evaluation_outcome: Value,
}

impl RunRecord {
    /// What tables show of a run; none if it never ended of its own.
    pub fn read(
        plan: &Plan<'_>,
        run: &RunSpec<'_>,
        history: &History,
        reader: &Reader,
    ) -> Result<Option<Self>, JournalError> {
        let Some(past) = history.find(run.run_id.number()) else {
            return Ok(None);
        };
        let Some((start, _)) = past.shown() else {
            return Ok(None);
        };
        let (Some(row), Some(finish)) = (reader.start(start)?, reader.finish(start)?) else {
            return Err(reader.damaged(format!("an end of {} is gone", run.run_id)));
        };
        let evaluation = reader.evaluation(start)?;
        let attempts = past.attempts.into();
        let record = Self::new(plan, run, attempts, row, finish, evaluation);
        let record = record.map_err(|fault| {
            let run_id = &run.run_id;
            reader.damaged(format!("what it holds of {run_id} cannot be read: {fault}"))
        });
        record.map(Some)
    }

    /// Puts together what is known.
    fn new(
        plan: &Plan<'_>,
        run: &RunSpec<'_>,
        attempts: u32,
        start: Start,
        finish: Finish,
        evaluation: Option<Evaluation>,
    ) -> Result<Self, Fault> {
        let json = |text: &str| parse_value("journal", text);
        let result = finish.result.as_deref().map_or(Ok(Value::Null), json)?;
        let outcome = json(&finish.outcome)?;
        let at = |name: &str| {
            let number = outcome.get("metrics").and_then(|m| m.get(name))?;
            match number {
                Value::Int(int) => i64::try_from(int).ok(),
                _ => None,
            }
        };
        let latency_s = outcome
            .get("metrics")
            .and_then(|metrics| metrics.get("wall_s"))
            .and_then(Value::as_number)
            .unwrap_or(0.0);
        let (rows, evaluation_outcome) = match &evaluation {
            None => (Value::Null, Value::Null),
            Some(row) => (json(&row.rows)?, json(&row.outcome)?),
        };
        let started_at_ns = at("started_at_ns").unwrap_or(start.started_at_ns);
        let finished_at_ns = at("finished_at_ns").unwrap_or(finish.finished_at_ns);
        let mut record = Self {
            run_id: start.run_id.clone(),
            status: finish.status,
            error_info: error_info(&outcome, finish.status, plan.study.compat),
            outputs: Value::Map(Vec::new()),
            metrics: Value::map([("latency_s", Value::Float(latency_s))]),
            events: Vec::new(),
            evaluations: list(Some(&rows)),
            metadata: Value::Map(Vec::new()),
            trace_refs: Vec::new(),
            latency_s,
            started_at_ns,
            finished_at_ns,
            evaluation: evaluation.map(|row| row.status),
            attempts,
            start,
            finish,
            outcome,
            evaluation_outcome,
        };
        if record.status == Status::Success {
            record.fill(plan, run, &result);
        }
        Ok(record)
    }

    fn fill(&mut self, plan: &Plan<'_>, run: &RunSpec<'_>, result: &Value) {
        let part = |name: &str| result.get(name).cloned();
        let empty = || Value::Map(Vec::new());
        self.outputs = part("output").unwrap_or_else(empty);
        self.metadata = part("metadata").unwrap_or_else(empty);
        self.trace_refs = list(result.get("trace_refs"));
        let is_standalone = matches!(run.agent_id(), Value::Null) && plan.is_standalone;
        let is_dre = plan.study.compat == Compat::Dre;
        let reported = part("metrics").unwrap_or_else(empty);
        if is_standalone && is_dre {
            self.metrics = self.own_metrics(reported);
            return;
        }
        self.events = self.all_events(plan, run, &list(result.get("events")));
        self.metrics = self.all_metrics(&reported, is_dre);
    }

    /// SF-47: every field there, ids forced, one automatic event where there is none.
    fn all_events(&self, plan: &Plan<'_>, run: &RunSpec<'_>, given: &[Value]) -> Vec<Value> {
        let now = || Value::Text(time_text(self.finished_at_ns, Precision::Seconds));
        let id = |index: Value, event_type: Option<&Value>| {
            let mut payload = vec![("run_id", Value::text(&self.run_id)), ("index", index)];
            if let Some(event_type) = event_type {
                payload.push(("event_type", event_type.clone()));
            }
            Value::Text(stable_id("evt", &Value::map(payload)))
        };
        let event = |item: &Value, automatic: bool| {
            let said = |name: &str, default: Value| item.get(name).cloned().unwrap_or(default);
            let event_type = said("event_type", Value::text("event"));
            let index = said("index", Value::Int(BigInt::ZERO));
            let own_id = id(index, (!automatic).then_some(&event_type));
            Value::map([
                (
                    "timestamp",
                    item.get("timestamp").cloned().unwrap_or_else(now),
                ),
                ("record_id", said("record_id", own_id)),
                ("text", said("text", Value::text(""))),
                ("session_id", said("session_id", Value::text(&self.run_id))),
                ("actor_id", said("actor_id", Value::text("agent"))),
                ("event_type", event_type),
                ("meta_json", said("meta_json", Value::Map(Vec::new()))),
                ("level", said("level", Value::text("step"))),
                ("study_id", Value::text(&plan.study.study_id)),
                ("run_id", Value::text(&self.run_id)),
                ("condition_id", Value::Text(run.condition.id().to_string())),
                ("trial_id", said("trial_id", Value::Null)),
                ("step_id", said("step_id", Value::Null)),
                ("tool_name", said("tool_name", Value::Null)),
                ("evaluation_id", said("evaluation_id", Value::Null)),
            ])
        };
        if !given.is_empty() {
            return given.iter().map(|item| event(item, false)).collect();
        }
        let text = match self.outputs.get("text") {
            Some(text) => text.to_str(),
            None => String::new(),
        };
        let automatic = Value::map([
            ("event_type", Value::text("assistant_output")),
            ("text", Value::Text(text)),
            (
                "meta_json",
                Value::map([("auto_generated", Value::Bool(true))]),
            ),
        ]);
        vec![event(&automatic, true)]
    }

    /// SF-47: DRE adds to a standalone callback's metrics how long it took, where they do not say.
    fn own_metrics(&self, mut reported: Value) -> Value {
        let says = reported.get("latency_s").is_some();
        if let (Value::Map(entries), false) = (&mut reported, says) {
            entries.push((Value::text("latency_s"), Value::Float(self.latency_s)));
        }
        reported
    }

    /// SF-49, ST-16: what was measured, and what the agent reports beside it.
    fn all_metrics(&self, reported: &Value, is_dre: bool) -> Value {
        let mut entries: Vec<(Value, Value)> = Vec::new();
        if let Value::Map(given) = reported {
            for (key, value) in given {
                let name = key.to_str();
                let name = match MEASURED.contains(&name.as_str()) && !is_dre {
                    true => format!("reported.{name}"),
                    false => name,
                };
                entries.push((Value::Text(name), value.clone())); // no name comes twice
            }
        }
        let mut put = |name: &str, value: Value| {
            entries.retain(|(key, _)| key.as_text() != Some(name));
            entries.push((Value::text(name), value));
        };
        let of_type = |kinds: &[&str]| {
            let events = self.events.iter().filter(|event| {
                let kind = event.get("event_type").and_then(Value::as_text);
                kind.is_some_and(|kind| kinds.contains(&kind))
            });
            Value::Int(BigInt::from(events.count()))
        };
        let mut actors: Vec<_> = self
            .events
            .iter()
            .filter_map(|event| event.get("actor_id").map(Value::to_str))
            .collect();
        actors.sort_unstable();
        actors.dedup();
        put("tool_call_count", of_type(&["tool_call"]));
        put("step_event_count", of_type(&STEPS));
        put("unique_actor_count", Value::Int(BigInt::from(actors.len())));
        put("latency_s", Value::Float(self.latency_s));
        let cost = reported.get("cost_usd").and_then(number_of);
        put("cost_usd", Value::Float(cost.unwrap_or(0.0)));
        for name in ["input_tokens", "output_tokens"] {
            put(name, amount(reported.get(name)));
        }
        // By DRE's rules an agent that says null has said it.
        let own = reported
            .get("primary_outcome")
            .filter(|value| is_dre || **value != Value::Null);
        let scored = self
            .evaluations
            .first()
            .and_then(|row| row.get("metric_value"));
        let primary = match is_dre || self.evaluation.is_none() {
            true => own.or(scored),
            false => scored,
        };
        let primary = primary.cloned();
        entries.retain(|(key, _)| key.as_text() != Some("primary_outcome"));
        if let Some(primary) = primary {
            entries.push((Value::text("primary_outcome"), primary));
        }
        Value::Map(entries)
    }

    /// Why its evaluation failed; none if there was none, or it went well.
    pub(crate) fn evaluation_error(&self) -> Option<String> {
        let status = self
            .evaluation
            .filter(|status| *status != Status::Success)?;
        let (kind, message) = error_parts(&self.evaluation_outcome);
        Some(error_text(&kind, &message, status.name()))
    }

    /// `none`, `ok`, or how its evaluation failed.
    #[must_use]
    pub fn evaluation_name(&self) -> &'static str {
        self.evaluation.map_or("none", Status::evaluation_name)
    }

    /// What ended it: the engine's verdict, or, where that is `ok` and the run failed for all that, its error or stage.
    pub(crate) fn cause(&self) -> String {
        match self.finish.verdict.as_deref() {
            Some(verdict) if verdict != "ok" || self.status == Status::Success => {
                verdict.to_owned()
            }
            _ => match error_parts(&self.outcome) {
                (kind, _) if !kind.is_empty() => kind,
                _ => self.finish.stage.name().to_owned(),
            },
        }
    }

    /// A metric.
    #[must_use]
    pub fn metric(&self, name: &str) -> Option<&Value> {
        self.metrics.get(name)
    }

    /// What it cost, if it says so.
    pub(crate) fn cost(&self) -> f64 {
        self.metric("cost_usd").and_then(number_of).unwrap_or(0.0)
    }

    /// What the run's agent is, by its own word or the file's.
    pub(crate) fn said<'v>(
        &'v self,
        plan: &'v Plan<'_>,
        run: &RunSpec<'_>,
        key: &str,
    ) -> Option<&'v Value> {
        describe::said(&plan.study.bindings, run, &self.metadata, key)
    }

    /// As DRE keeps it (SF-56).
    pub(crate) fn checkpoint(&self, plan: &Plan<'_>, run: &RunSpec<'_>) -> Value {
        let bindings = &plan.study.bindings;
        let execution = describe::execution_metadata(bindings, run, &self.metadata);
        let is_success = self.status == Status::Success;
        let time = |ns| Value::Text(time_text(ns, Precision::Seconds));
        let said = |key: &str| execution.get(key).cloned().unwrap_or(Value::Null);
        let mut provenance = Vec::new();
        if plan.is_standalone {
            provenance.push(("execution_mode", Value::text("condition_runner")));
        }
        if is_success && !plan.is_standalone {
            for key in ["agent_id", "problem_id", "problem_family"] {
                provenance.push((key, said(key)));
            }
            for key in [
                "model_name",
                "model_provider",
                "request_id",
                "trace_dir",
                "trace_path",
            ] {
                // What the agent said, were it empty.
                let own = self.metadata.get(key).cloned();
                provenance.push((key, own.unwrap_or_else(|| said(key))));
            }
            let text = canonical_json(&execution);
            provenance.push(("execution_metadata", Value::Text(text)));
        } else if !is_success {
            provenance.push(("agent_id", run.agent_id().clone()));
        }
        let spec = Value::map([
            ("agent_spec_ref", run.agent_id().clone()),
            ("condition_id", Value::Text(run.condition.id().to_string())),
            ("execution_metadata", execution),
            ("problem_id", recorded_problem(run)),
            ("problem_spec_ref", run.problem_id().clone()),
            ("replicate", Value::Int(BigInt::from(run.replicate))),
            ("run_id", Value::text(&self.run_id)),
            ("seed", Value::Int(BigInt::from(run.seed))),
            ("study_id", Value::text(&plan.study.study_id)),
        ]);
        let status = if is_success { "success" } else { "failed" };
        Value::map([
            ("artifact_refs", Value::List(Vec::new())),
            ("cost", Value::Float(self.cost())),
            ("ended_at", time(self.finished_at_ns)),
            (
                "error_info",
                self.error_info.clone().map_or(Value::Null, Value::Text),
            ),
            (
                "evaluator_outputs",
                Value::List(
                    self.evaluations
                        .iter()
                        .map(|row| self.with_id(row))
                        .collect(),
                ),
            ),
            ("latency", Value::Float(self.latency_s)),
            ("metrics", self.metrics.clone()),
            ("observations", Value::List(self.events.clone())),
            ("outputs", self.outputs.clone()),
            ("provenance_info", Value::map(provenance)),
            ("run_id", Value::text(&self.run_id)),
            ("run_spec", spec),
            ("started_at", time(self.started_at_ns)),
            ("status", Value::text(status)),
            ("trace_refs", Value::List(self.trace_refs.clone())),
        ])
    }

    /// An evaluation's row with the run's id.
    pub(crate) fn with_id(&self, row: &Value) -> Value {
        let mut entries = match row {
            Value::Map(entries) => entries.clone(),
            _ => Vec::new(),
        };
        entries.push((Value::text("run_id"), Value::text(&self.run_id)));
        Value::Map(entries)
    }
}

/// A float, or the integer 0 where there is no number.
fn amount(value: Option<&Value>) -> Value {
    match value.and_then(number_of) {
        Some(number) => Value::Float(number),
        None => Value::Int(BigInt::ZERO),
    }
}

fn list(value: Option<&Value>) -> Vec<Value> {
    match value {
        Some(Value::List(items)) => items.clone(),
        _ => Vec::new(),
    }
}

fn error_info(outcome: &Value, status: Status, compat: Compat) -> Option<String> {
    if status == Status::Success {
        return None;
    }
    let (kind, message) = error_parts(outcome);
    Some(match (kind.is_empty(), message.is_empty()) {
        (false, true) if compat == Compat::Dre => format!("{kind}: "),
        _ => error_text(&kind, &message, status.name()),
    })
}

/// Type and message of the error that is kept of an attempt or an evaluation; empty where there is none.
pub(crate) fn error_parts(outcome: &Value) -> (String, String) {
    let error = outcome.get("error");
    let part = |name: &str| {
        let text = error
            .and_then(|error| error.get(name))
            .and_then(Value::as_text);
        text.unwrap_or_default().to_owned()
    };
    (part("type"), part("message"))
}

/// `"<Type>: <message>"`, or what there is of it.
fn error_text(kind: &str, message: &str, otherwise: &str) -> String {
    match (kind.is_empty(), message.is_empty()) {
        (true, true) => otherwise.to_owned(),
        (true, false) => message.to_owned(),
        (false, true) => kind.to_owned(),
        (false, false) => format!("{kind}: {message}"),
    }
}
