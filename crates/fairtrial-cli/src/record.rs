//! One line of JSON for each call: its outcome, or why there was no trial. Large values are streamed.
//!
//! The shape is that of `Outcome::to_json`; a test holds the two together. Written field by field, for the tree that
//! `to_json` builds first costs several times as much as the rest of a `batch` line.

use std::error::Error;
use std::io::{self, Write};

use fairtrial_exec::value::{self, WriteJsonError};
use fairtrial_exec::{
    Captured, Counters, EncodedValue, ErrorReport, Exit, InForce, KilledBy, Margin, Mechanism,
    Metrics, Outcome, ResultFormat,
};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Value as Json, json};

/// Why a record could not be written: the stream failed, or the value is no value.
pub(crate) type RecordError = Box<dyn Error + Send + Sync>;

/// The outcome as the contract's JSON object and a newline.
pub(crate) fn write_outcome(
    outcome: &Outcome,
    id: &Json,
    out: &mut impl Write,
) -> Result<(), RecordError> {
    let Outcome {
        verdict,
        value,
        error,
        exit,
        killed_by,
        stdout,
        stderr,
        metrics,
        in_force,
        tried_alone,
        upper: _, // files, which are no part of the contract's JSON
    } = outcome;
    write_field(out, "{\"id\":", id)?;
    write_field(out, ",\"verdict\":", verdict.name())?;
    out.write_all(b",\"value\":")?;
    match value {
        Some(value) => write_value(value, out)?,
        None => out.write_all(b"null")?,
    }
    write_field(out, ",\"error\":", &error.as_ref().map(ErrorJson))?;
    write_field(
        out,
        ",\"exit\":",
        &exit.map(|exit| ExitJson(exit, *killed_by)),
    )?;
    write_field(out, ",\"stdout\":", &*text(stdout))?;
    write_field(out, ",\"stderr\":", &*text(stderr))?;
    write!(
        out,
        ",\"dropped\":{{\"stdout\":{},\"stderr\":{}}}",
        stdout.dropped, stderr.dropped
    )?;
    write_field(out, ",\"metrics\":", &MetricsJson(metrics))?;
    write_field(out, ",\"in_force\":", &InForceJson(in_force))?;
    let first = tried_alone.as_ref().map(|first| first.to_json());
    write_field(out, ",\"tried_alone\":", &first)?;
    Ok(out.write_all(b"}\n")?)
}

/// The value in JSON form, without a newline.
pub(crate) fn write_value(value: &EncodedValue, out: &mut impl Write) -> Result<(), RecordError> {
    let bytes = value.body.bytes();
    match value.format {
        ResultFormat::Data => value::write_json(bytes, out)?,
        ResultFormat::Pickle => value::write_pickle_json(bytes, out)?,
    }
    Ok(())
}

/// The record of a call that was not tried, and a newline. `kind` is `InvalidCall` or `EngineError`.
pub(crate) fn no_trial(id: &Json, line: u64, kind: &str, message: &str) -> Vec<u8> {
    let record = json!({
        "id": id,
        "line": line,
        "verdict": null,
        "error": {"type": kind, "message": message},
    });
    format!("{record}\n").into_bytes()
}

/// Whether an error means that whoever read our output went away.
pub(crate) fn is_broken_pipe(error: &RecordError) -> bool {
    let kind = if let Some(error) = error.downcast_ref::<serde_json::Error>() {
        error.io_error_kind()
    } else if let Some(WriteJsonError::Io(error)) = error.downcast_ref() {
        Some(error.kind())
    } else {
        error.downcast_ref().map(io::Error::kind)
    };
    kind == Some(io::ErrorKind::BrokenPipe)
}

fn write_field(
    out: &mut impl Write,
    key: &str,
    field: &(impl Serialize + ?Sized),
) -> Result<(), RecordError> {
    out.write_all(key.as_bytes())?;
    Ok(serde_json::to_writer(&mut *out, field)?)
}

/// Most calls print nothing: no copy then.
fn text(stream: &Captured) -> std::borrow::Cow<'_, str> {
    match str::from_utf8(&stream.head) {
        Ok(text) if stream.tail.is_empty() && stream.dropped == 0 => text.into(),
        _ => stream.text().into(),
    }
}

struct ErrorJson<'a>(&'a ErrorReport);

impl Serialize for ErrorJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(3))?;
        map.serialize_entry("type", &self.0.kind)?;
        map.serialize_entry("message", &self.0.message)?;
        map.serialize_entry("traceback", &self.0.traceback)?;
        map.end()
    }
}

struct ExitJson(Exit, Option<KilledBy>);

impl Serialize for ExitJson {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (code, signal) = match self.0 {
            Exit::Code(code) => (Some(code), None),
            Exit::Signal(signal) => (None, Some(signal)),
        };
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("code", &code)?;
        map.serialize_entry("signal", &signal)?;
        if let Some(killed_by) = self.1 {
            map.serialize_entry("killed_by", killed_by.name())?;
        }
        map.end()
    }
}

struct MetricsJson<'a>(&'a Metrics);

impl Serialize for MetricsJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let seconds = |ns: Option<u64>| ns.map(|ns| ns as f64 / 1e9);
        let metrics = self.0;
        let mut map = serializer.serialize_map(Some(18))?;
        map.serialize_entry("wall_s", &seconds(metrics.wall_ns))?;
        map.serialize_entry("queue_s", &seconds(metrics.queue_ns))?;
        map.serialize_entry("user_s", &seconds(metrics.user_ns))?;
        map.serialize_entry("system_s", &seconds(metrics.system_ns))?;
        map.serialize_entry(
            "cpu_source",
            &metrics.cpu_source.map(|source| source.to_string()),
        )?;
        map.serialize_entry("peak_rss_bytes", &metrics.peak_rss_bytes)?;
        map.serialize_entry(
            "peak_source",
            &metrics.peak_source.map(|source| source.to_string()),
        )?;
        map.serialize_entry("started_at_ns", &metrics.started_at_ns)?;
        map.serialize_entry("finished_at_ns", &metrics.finished_at_ns)?;
        map.serialize_entry("worker_pid", &metrics.worker_pid)?;
        map.serialize_entry("worker_id", &metrics.worker_id)?;
        map.serialize_entry("node_id", &metrics.node_id)?;
        map.serialize_entry("base_rss_bytes", &metrics.base_rss_bytes)?;
        map.serialize_entry("leaked_processes", &metrics.leaked_processes)?;
        map.serialize_entry("measured_by", &metrics.measured_by.map(|by| by.to_string()))?;
        map.serialize_entry("wait_s", &seconds(metrics.wait_ns))?;
        map.serialize_entry(
            "wait_source",
            &metrics.wait_source.map(|source| source.to_string()),
        )?;
        map.serialize_entry("margin", &metrics.margin.as_ref().map(Margin::to_json))?;
        map.end()
    }
}

struct InForceJson<'a>(&'a InForce);

impl Serialize for InForceJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(6))?;
        map.serialize_entry("requested", &self.0.requested.to_string())?;
        map.serialize_entry("effective", &self.0.effective.to_string())?;
        map.serialize_entry("mode", self.0.mode)?;
        map.serialize_entry("digest", &self.0.digest())?;
        map.serialize_entry("mechanisms", &MechanismsJson(self.0))?;
        map.serialize_entry("counters", &CountersJson(self.0.counters))?;
        if !self.0.preload_shared.is_empty() {
            map.serialize_entry("preload_shared", &self.0.preload_shared)?;
        }
        map.end()
    }
}

struct MechanismsJson<'a>(&'a InForce);

impl Serialize for MechanismsJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(serde::Serialize)]
        struct State<'a> {
            state: &'a str,
            via: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            errno: Option<&'a str>,
            #[serde(skip_serializing_if = "str::is_empty")]
            hint: &'a str,
        }
        serializer.collect_map(self.0.weak().map(|mechanism| {
            let Mechanism {
                name,
                state,
                via,
                errno,
                hint,
            } = mechanism;
            let state = State {
                state: state.name(),
                via,
                errno: *errno,
                hint,
            };
            (name, state)
        }))
    }
}

struct CountersJson(Counters);

impl Serialize for CountersJson {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let seconds = |ns: Option<u64>| ns.map(|ns| ns as f64 / 1e9);
        let Counters {
            voluntary_switches,
            involuntary_switches,
            minor_faults,
            major_faults,
            throttled_ns,
            memory_stall_ns,
        } = self.0;
        let mut map = serializer.serialize_map(Some(6))?;
        map.serialize_entry("voluntary_switches", &voluntary_switches)?;
        map.serialize_entry("involuntary_switches", &involuntary_switches)?;
        map.serialize_entry("minor_faults", &minor_faults)?;
        map.serialize_entry("major_faults", &major_faults)?;
        map.serialize_entry("throttled_s", &seconds(throttled_ns))?;
        map.serialize_entry("memory_stall_s", &seconds(memory_stall_ns))?;
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairtrial_exec::{
        Body, CpuSource, FirstRun, MeasuredBy, PeakSource, State, Verdict, WaitSource,
    };

    fn full() -> Outcome {
        Outcome {
            verdict: Verdict::Exception,
            value: Some(EncodedValue {
                format: ResultFormat::Data,
                body: Body::Inline(value::from_json(&json!({"a": [1, 2.5, null]})).unwrap()),
            }),
            error: Some(ErrorReport {
                kind: "ValueError".into(),
                message: "bad \"x\"\n".into(),
                traceback: "File".into(),
                exception: None,
            }),
            exit: Some(Exit::Signal(9)),
            killed_by: Some(KilledBy::Outside),
            stdout: Captured {
                head: b"h\xff".to_vec(),
                tail: b"t".to_vec(),
                dropped: 7,
            },
            stderr: Captured {
                head: "é\u{1b}".into(),
                ..Captured::default()
            },
            metrics: Metrics {
                wall_ns: Some(5_004_000_001),
                queue_ns: Some(0),
                user_ns: Some(3),
                system_ns: None,
                cpu_source: Some(CpuSource::Partial),
                peak_rss_bytes: Some(1 << 40),
                peak_source: Some(PeakSource::Vmhwm),
                started_at_ns: Some(u64::MAX),
                finished_at_ns: Some(5),
                worker_pid: Some(4),
                worker_id: Some("0123456789ab".into()),
                node_id: Some("node \"1\"".into()),
                base_rss_bytes: Some(5),
                leaked_processes: Some(2),
                measured_by: Some(MeasuredBy::Engine),
                wait_ns: Some(1_500_000),
                wait_source: Some(WaitSource::Schedstat),
                margin: Some(Margin {
                    limit: "timeout_s".into(),
                    used: 0.25,
                }),
                ..Metrics::default()
            },
            in_force: InForce {
                mode: "fresh",
                mechanisms: vec![
                    Mechanism::new("tree_kill", State::Enforced, "pidfd"),
                    Mechanism::new("memory", State::Unavailable, "level `none`"),
                    Mechanism {
                        errno: Some("EPERM"),
                        hint: "a \"switch\"",
                        ..Mechanism::new("userns", State::Unavailable, "refused")
                    },
                ],
                counters: Counters {
                    voluntary_switches: Some(3),
                    major_faults: Some(0),
                    throttled_ns: Some(1_500_000),
                    ..Counters::default()
                },
                preload_shared: vec!["table".into()],
                ..InForce::default()
            },
            tried_alone: Some(Box::new(FirstRun {
                verdict: Verdict::Timeout,
                metrics: Metrics::default(),
            })),
            upper: None,
        }
    }

    fn written(outcome: &Outcome, id: &Json) -> String {
        let mut out = Vec::new();
        write_outcome(outcome, id, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    /// EX-69
    #[test]
    fn a_record_is_the_outcome_as_the_engine_writes_it() {
        let mut outcome = full();
        let wanted = outcome.to_json(&json!("a")).unwrap();
        assert_eq!(written(&outcome, &json!("a")), format!("{wanted}\n"));
        (outcome.value, outcome.error, outcome.exit) = (None, None, Some(Exit::Code(3)));
        outcome.killed_by = None;
        outcome.metrics = Metrics::default();
        let wanted = outcome.to_json(&json!(-1)).unwrap();
        assert_eq!(written(&outcome, &json!(-1)), format!("{wanted}\n"));
        outcome.exit = None;
        let wanted = outcome.to_json(&Json::Null).unwrap();
        assert_eq!(written(&outcome, &Json::Null), format!("{wanted}\n"));
    }

    #[test]
    fn a_closed_pipe_is_known_wherever_it_shows() {
        struct Closed(usize);
        impl Write for Closed {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                match self.0.checked_sub(bytes.len()) {
                    Some(left) => self.0 = left,
                    None => return Err(io::ErrorKind::BrokenPipe.into()),
                }
                Ok(bytes.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let length = written(&full(), &json!("a")).len();
        for room in 0..length {
            let error = write_outcome(&full(), &json!("a"), &mut Closed(room)).unwrap_err();
            assert!(is_broken_pipe(&error), "{room}: {error:?}");
        }
    }
}
