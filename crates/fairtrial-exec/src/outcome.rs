//! What happened to a call, and its JSON.

use serde_json::{Map, Value as Json, json};

use crate::capture::Captured;
use crate::metrics::Metrics;
use crate::sandbox::InForce;
use crate::spill::Body;
use crate::verdict::Verdict;
use crate::{call::ResultFormat, value};

/// What happened to a call. A candidate that crashes, hangs or lies is an `Outcome` too.
#[derive(Debug)]
pub struct Outcome {
    /// What became of it.
    pub verdict: Verdict,
    /// Its answer, still encoded.
    pub value: Option<EncodedValue>,
    /// What went wrong.
    pub error: Option<ErrorReport>,
    /// How the process ended, where that decided anything.
    pub exit: Option<Exit>,
    /// Standard output, bounded.
    pub stdout: Captured,
    /// Standard error, bounded.
    pub stderr: Captured,
    /// Trusted numbers.
    pub metrics: Metrics,
    /// The isolation that really held.
    pub in_force: InForce,
}

/// An answer as the worker encoded it.
#[derive(Debug)]
pub struct EncodedValue {
    /// The codec of the bytes.
    pub format: ResultFormat,
    /// The bytes: inline, or a private mapping that outlives everything else.
    pub body: Body,
}

/// What went wrong, for people and programs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorReport {
    /// Qualified class name, or a name of ours such as `Timeout`.
    pub kind: String,
    /// What the error says.
    pub message: String,
    /// Frames of the user's code with source context, or the stacks of a call that hung.
    pub traceback: String,
}

/// How a process ended: one of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It exited.
    Code(i32),
    /// A signal ended it.
    Signal(i32),
}

impl Outcome {
    /// The outcome as the contract's JSON object, with the caller's `id`. Fails if the worker's bytes are no value.
    pub fn to_json(&self, id: &Json) -> Result<Json, value::Malformed> {
        let value = self.value.as_ref().map(EncodedValue::to_json).transpose()?;
        let mut object = self.to_json_without_value(id);
        object.insert("value".into(), value.unwrap_or(Json::Null));
        Ok(Json::Object(object))
    }

    /// As [`Outcome::to_json`] with `value` null: for callers that stream a large value out themselves.
    #[must_use]
    pub fn to_json_without_value(&self, id: &Json) -> Map<String, Json> {
        let object = json!({
            "id": id,
            "verdict": self.verdict.name(),
            "value": null,
            "error": self.error.as_ref().map(ErrorReport::to_json),
            "exit": self.exit.map(Exit::to_json),
            "stdout": self.stdout.text(),
            "stderr": self.stderr.text(),
            "dropped": {"stdout": self.stdout.dropped, "stderr": self.stderr.dropped},
            "metrics": self.metrics.to_json(),
            "in_force": self.in_force.to_json(),
        });
        match object {
            Json::Object(map) => map,
            _ => unreachable!("written as an object above"),
        }
    }
}

impl EncodedValue {
    /// The value in JSON form (EX-69); a pickle stays closed.
    pub fn to_json(&self) -> Result<Json, value::Malformed> {
        match self.format {
            ResultFormat::Data => value::to_json(self.body.bytes()),
            ResultFormat::Pickle => Ok(value::pickle_to_json(self.body.bytes())),
        }
    }
}

impl ErrorReport {
    /// The contract's `error` object.
    #[must_use]
    pub fn to_json(&self) -> Json {
        json!({"type": self.kind, "message": self.message, "traceback": self.traceback})
    }
}

impl Exit {
    fn to_json(self) -> Json {
        match self {
            Self::Code(code) => json!({"code": code, "signal": null}),
            Self::Signal(signal) => json!({"code": null, "signal": signal}),
        }
    }
}

impl Metrics {
    /// The contract's `metrics` object.
    #[must_use]
    pub fn to_json(&self) -> Json {
        let seconds = |ns: Option<u64>| ns.map(|ns| ns as f64 / 1e9);
        json!({
            "wall_s": seconds(self.wall_ns),
            "queue_s": seconds(self.queue_ns),
            "user_s": seconds(self.user_ns),
            "system_s": seconds(self.system_ns),
            "peak_rss_bytes": self.peak_rss_bytes,
            "peak_source": self.peak_source.map(|source| source.to_string()),
            "started_at_ns": self.started_at_ns,
            "finished_at_ns": self.finished_at_ns,
            "worker_pid": self.worker_pid,
            "worker_id": self.worker_id,
            "node_id": self.node_id,
            "base_rss_bytes": self.base_rss_bytes,
            "leaked_processes": self.leaked_processes,
            "measured_by": self.measured_by.map(|by| by.to_string()),
        })
    }
}
