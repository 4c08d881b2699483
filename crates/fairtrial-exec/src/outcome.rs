//! What happened to a call, and its JSON.

use std::io::Write;

use serde_json::{Map, Value as Json, json};

use crate::capture::Captured;
use crate::metrics::{Margin, Metrics};
use crate::sandbox::InForce;
use crate::spill::Body;
use crate::verdict::Verdict;
use crate::workspace::UpperDir;
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
    /// Who sent a SIGKILL that ended it, where that is not told by the verdict.
    pub killed_by: Option<KilledBy>,
    /// Standard output, bounded.
    pub stdout: Captured,
    /// Standard error, bounded.
    pub stderr: Captured,
    /// Trusted numbers.
    pub metrics: Metrics,
    /// The isolation that really held.
    pub in_force: InForce,
    /// How it fared when it was first run, if this is another run: it had timed out while others used the processors, and
    /// then ran alone.
    pub tried_alone: Option<Box<FirstRun>>,
    /// What it changed in its workspace, if it had one and began. Changes in memory stay there as long as this does. Not
    /// there, too, if this process had no descriptor left for it.
    pub upper: Option<UpperDir>,
}

/// A run that was not believed, because others used the processors meanwhile.
#[derive(Clone, Debug, PartialEq)]
pub struct FirstRun {
    /// What it would have been judged.
    pub verdict: Verdict,
    /// Its numbers.
    pub metrics: Metrics,
}

impl FirstRun {
    /// The contract's `tried_alone` object.
    #[must_use]
    pub fn to_json(&self) -> Json {
        json!({"verdict": self.verdict.name(), "metrics": self.metrics.to_json()})
    }
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
    /// The exception itself, pickled, of a pickled call whose worker could pickle it.
    pub exception: Option<Vec<u8>>,
}

/// How a process ended: one of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It exited.
    Code(i32),
    /// A signal ended it.
    Signal(i32),
}

/// Who killed a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KilledBy {
    /// Nobody of the engine's: another process of the host, or the candidate itself.
    Outside,
}

impl KilledBy {
    /// The name in the public contract.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Outside => "outside",
        }
    }
}

impl Outcome {
    /// The outcome as the contract's JSON object, with the caller's `id`. Fails if the worker's bytes are no value.
    pub fn to_json(&self, id: &Json) -> Result<Json, value::Malformed> {
        let value = self.value.as_ref().map(EncodedValue::to_json).transpose()?;
        let mut object = self.to_json_without_value(id);
        object.insert("value".into(), value.unwrap_or(Json::Null));
        Ok(Json::Object(object))
    }

    /// Writes the contract's JSON object on one line, the value streamed. Nothing is written if the worker's bytes are
    /// no value.
    pub fn write_json(&self, id: &Json, out: &mut impl Write) -> Result<(), value::WriteJsonError> {
        let Some(answer) = &self.value else {
            let object = Json::Object(self.to_json_without_value(id));
            return Ok(write!(out, "{object}")?);
        };
        if answer.format == ResultFormat::Data {
            value::check(answer.body.bytes())?;
        }
        for (index, (key, field)) in self.to_json_without_value(id).iter().enumerate() {
            let before = if index == 0 { '{' } else { ',' };
            write!(out, "{before}{}:", Json::from(key.as_str()))?;
            match key.as_str() {
                "value" => answer.write_json(out)?,
                _ => write!(out, "{field}")?,
            }
        }
        Ok(out.write_all(b"}")?)
    }

    /// The contract's `exit` object, or null.
    #[must_use]
    pub fn exit_json(&self) -> Json {
        self.exit
            .map_or(Json::Null, |exit| exit.to_json(self.killed_by))
    }

    /// As [`Outcome::to_json`] with `value` null: for callers that stream a large value out themselves.
    #[must_use]
    pub fn to_json_without_value(&self, id: &Json) -> Map<String, Json> {
        let object = json!({
            "id": id,
            "verdict": self.verdict.name(),
            "value": null,
            "error": self.error.as_ref().map(ErrorReport::to_json),
            "exit": self.exit_json(),
            "stdout": self.stdout.text(),
            "stderr": self.stderr.text(),
            "dropped": {"stdout": self.stdout.dropped, "stderr": self.stderr.dropped},
            "metrics": self.metrics.to_json(),
            "in_force": self.in_force.to_json(),
            "tried_alone": self.tried_alone.as_ref().map(|first| first.to_json()),
        });
        match object {
            Json::Object(map) => map,
            _ => unreachable!("written as an object above"),
        }
    }
}

impl EncodedValue {
    /// Writes the value in JSON form (EX-69); a pickle stays closed.
    pub fn write_json(&self, out: &mut impl Write) -> Result<(), value::WriteJsonError> {
        match self.format {
            ResultFormat::Data => value::write_json(self.body.bytes(), out),
            ResultFormat::Pickle => Ok(value::write_pickle_json(self.body.bytes(), out)?),
        }
    }

    /// The value in JSON form (EX-69) as a tree, for modest values; a pickle stays closed.
    pub fn to_json(&self) -> Result<Json, value::Malformed> {
        match self.format {
            ResultFormat::Data => value::to_json(self.body.bytes()),
            ResultFormat::Pickle => Ok(value::pickle_to_json(self.body.bytes())),
        }
    }
}

impl ErrorReport {
    /// An error without a traceback.
    #[must_use]
    pub fn new(kind: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            kind: kind.into(),
            message: message.into(),
            ..Self::default()
        }
    }

    /// The contract's `error` object.
    #[must_use]
    pub fn to_json(&self) -> Json {
        json!({"type": self.kind, "message": self.message, "traceback": self.traceback})
    }
}

impl Exit {
    fn to_json(self, killed_by: Option<KilledBy>) -> Json {
        let mut object = match self {
            Self::Code(code) => json!({"code": code, "signal": null}),
            Self::Signal(signal) => json!({"code": null, "signal": signal}),
        };
        if let Some(killed_by) = killed_by {
            object["killed_by"] = killed_by.name().into();
        }
        object
    }
}

impl Margin {
    /// The contract's `margin` object.
    #[must_use]
    pub fn to_json(&self) -> Json {
        json!({"limit": self.limit, "used": self.used})
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
            "cpu_source": self.cpu_source.map(|source| source.to_string()),
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
            "wait_s": seconds(self.wait_ns),
            "wait_source": self.wait_source.map(|source| source.to_string()),
            "margin": self.margin.as_ref().map(Margin::to_json),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(value: Option<EncodedValue>) -> Outcome {
        Outcome {
            verdict: Verdict::Ok,
            value,
            error: None,
            exit: Some(Exit::Code(0)),
            killed_by: None,
            stdout: Captured::default(),
            stderr: Captured::default(),
            metrics: Metrics::default(),
            in_force: InForce {
                mode: "fresh",
                ..InForce::default()
            },
            tried_alone: None,
            upper: None,
        }
    }

    fn answer(format: ResultFormat, bytes: &[u8]) -> Option<EncodedValue> {
        let body = Body::Inline(bytes.to_vec());
        Some(EncodedValue { format, body })
    }

    /// EX-69
    #[test]
    fn a_streamed_outcome_is_the_same_json() {
        let values = [
            None,
            answer(ResultFormat::Data, b"u\x02hi"),
            answer(ResultFormat::Pickle, b"\x80\x05N."),
        ];
        for value in values {
            let outcome = outcome(value);
            let id = json!("a \"b\"");
            let mut out = Vec::new();
            outcome.write_json(&id, &mut out).unwrap();
            let streamed = String::from_utf8(out).unwrap();
            assert_eq!(streamed, outcome.to_json(&id).unwrap().to_string());
        }
    }

    /// EX-63
    #[test]
    fn nothing_is_written_of_an_outcome_whose_value_is_malformed() {
        let outcome = outcome(answer(ResultFormat::Data, b"l"));
        let mut out = Vec::new();
        assert!(outcome.write_json(&Json::Null, &mut out).is_err());
        assert!(out.is_empty());
    }
}
