//! An outcome as it travels.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use fairtrial_exec::{
    Body, Captured, Counters, CpuSource, EncodedValue, ErrorReport, Exit, FirstRun, InForce,
    KilledBy, Margin, MeasuredBy, Mechanism, Metrics, Outcome, PeakSource, State, Verdict,
    WaitSource,
};
use serde::{Deserialize, Serialize};

use super::carried::{Carried, Outgoing, OutgoingBody};
use super::is_default;
use crate::blobs::Blob;

/// A value longer than this goes into a blob without being copied first.
const LONG_VALUE: usize = 32 << 10;

/// The name of an exception's type is the candidate's to choose; only so much of it travels. The shim tells no more.
const MOST_KIND: usize = 2 << 10;

/// As [`Outcome`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OutcomeRecord {
    verdict: String,
    #[serde(default, skip_serializing_if = "is_default")]
    value: Option<ValueRecord>,
    #[serde(default, skip_serializing_if = "is_default")]
    error: Option<ErrorRecord>,
    #[serde(default, skip_serializing_if = "is_default")]
    exit_code: Option<i32>,
    #[serde(default, skip_serializing_if = "is_default")]
    exit_signal: Option<i32>,
    #[serde(default, skip_serializing_if = "is_default")]
    killed_outside: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    stdout: StreamRecord,
    #[serde(default, skip_serializing_if = "is_default")]
    stderr: StreamRecord,
    metrics: MetricsRecord,
    in_force: InForceRecord,
    #[serde(default, skip_serializing_if = "is_default")]
    tried_alone: Option<FirstRunRecord>,
}

/// As [`FirstRun`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct FirstRunRecord {
    verdict: String,
    metrics: MetricsRecord,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct ValueRecord {
    format: String,
    body: Carried,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct ErrorRecord {
    #[serde(rename = "type")]
    kind: String,
    message: Carried,
    traceback: Carried,
    #[serde(default, skip_serializing_if = "is_default")]
    exception: Option<Carried>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct StreamRecord {
    #[serde(default, skip_serializing_if = "is_default")]
    head: Carried,
    #[serde(default, skip_serializing_if = "is_default")]
    tail: Carried,
    #[serde(default, skip_serializing_if = "is_default")]
    dropped: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct MetricsRecord {
    wall_ns: Option<u64>,
    queue_ns: Option<u64>,
    user_ns: Option<u64>,
    system_ns: Option<u64>,
    cpu_source: Option<String>,
    peak_rss_bytes: Option<u64>,
    peak_source: Option<String>,
    started_at_ns: Option<u64>,
    finished_at_ns: Option<u64>,
    worker_pid: Option<u32>,
    worker_id: Option<String>,
    node_id: Option<String>,
    base_rss_bytes: Option<u64>,
    leaked_processes: Option<u64>,
    measured_by: Option<String>,
    wait_ns: Option<u64>,
    wait_source: Option<String>,
    margin: Option<MarginRecord>,
}

/// As [`Margin`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct MarginRecord {
    limit: String,
    used: f64,
}

/// Of the mechanisms only those that are not enforced: the digest stands for all.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct InForceRecord {
    requested: String,
    effective: String,
    on_missing: String,
    mode: String,
    digest: String,
    #[serde(default, skip_serializing_if = "is_default")]
    weak: Vec<MechanismRecord>,
    #[serde(default, skip_serializing_if = "is_default")]
    preload_shared: Vec<String>,
    /// In the order of [`Counters`].
    #[serde(default, skip_serializing_if = "is_default")]
    counters: [Option<u64>; 6],
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct MechanismRecord {
    name: String,
    state: String,
    via: String,
    #[serde(default, skip_serializing_if = "is_default")]
    errno: Option<String>,
    #[serde(default, skip_serializing_if = "is_default")]
    hint: String,
}

impl OutcomeRecord {
    pub(super) fn is_cancelled(&self) -> bool {
        self.verdict == Verdict::Cancelled.name()
    }

    pub(super) fn of(outcome: Outcome, outgoing: &mut Vec<Outgoing>) -> Self {
        let value = outcome.value.map(|value| ValueRecord {
            format: value.format.to_string(),
            body: carry_value(value.body, outgoing),
        });
        let stream = |captured: &Captured| StreamRecord {
            head: Carried::here(&captured.head),
            tail: Carried::here(&captured.tail),
            dropped: captured.dropped,
        };
        Self {
            verdict: outcome.verdict.name().to_owned(),
            value,
            error: outcome.error.map(|error| ErrorRecord {
                message: Carried::here(error.message.as_bytes()),
                traceback: Carried::here(error.traceback.as_bytes()),
                exception: error.exception.map(|bytes| Carried::here(&bytes)),
                kind: shortened(error.kind, MOST_KIND),
            }),
            exit_code: match outcome.exit {
                Some(Exit::Code(code)) => Some(code),
                _ => None,
            },
            exit_signal: match outcome.exit {
                Some(Exit::Signal(signal)) => Some(signal),
                _ => None,
            },
            killed_outside: outcome.killed_by == Some(KilledBy::Outside),
            stdout: stream(&outcome.stdout),
            stderr: stream(&outcome.stderr),
            metrics: MetricsRecord::of(outcome.metrics),
            in_force: InForceRecord::of(&outcome.in_force),
            tried_alone: outcome.tried_alone.map(|first| FirstRunRecord {
                verdict: first.verdict.name().to_owned(),
                metrics: MetricsRecord::of(first.metrics),
            }),
        }
    }

    fn pieces(&self) -> impl Iterator<Item = &Carried> {
        let value = self.value.iter().map(|value| &value.body);
        let error = self.error.iter().flat_map(|error| {
            [&error.message, &error.traceback]
                .into_iter()
                .chain(&error.exception)
        });
        let streams = [&self.stdout, &self.stderr];
        let streams = streams
            .into_iter()
            .flat_map(|stream| [&stream.head, &stream.tail]);
        value.chain(error).chain(streams)
    }

    fn pieces_mut(&mut self) -> impl Iterator<Item = &mut Carried> {
        let value = self.value.iter_mut().map(|value| &mut value.body);
        let error = self.error.iter_mut().flat_map(|error| {
            let texts = [&mut error.message, &mut error.traceback];
            texts.into_iter().chain(&mut error.exception)
        });
        let streams = [&mut self.stdout, &mut self.stderr];
        let streams = streams
            .into_iter()
            .flat_map(|stream| [&mut stream.head, &mut stream.tail]);
        value.chain(error).chain(streams)
    }

    pub(super) fn put_longest_aside(&mut self) -> Option<Outgoing> {
        let longest = self.pieces_mut().max_by_key(|piece| piece.length())?;
        match longest.length() {
            0 => None,
            _ => longest.put_aside(),
        }
    }

    pub(super) fn blobs(&self) -> Vec<&Blob> {
        self.pieces()
            .filter_map(|piece| piece.bytes().err())
            .collect()
    }

    /// `None` if a word in it is not known here, or a blob is not there.
    pub(super) fn to_outcome(
        &self,
        mut fetch: impl FnMut(&Blob) -> Option<Body>,
    ) -> Option<Outcome> {
        let mut bytes = |carried: &Carried| match carried.bytes() {
            Ok(bytes) => Some(Body::Inline(bytes)),
            Err(blob) => fetch(blob),
        };
        let value = match &self.value {
            Some(value) => Some(EncodedValue {
                format: value.format.parse().ok()?,
                body: bytes(&value.body)?,
            }),
            None => None,
        };
        let mut small = |carried: &Carried| bytes(carried).map(|body| body.bytes().to_vec());
        let error = match &self.error {
            Some(error) => Some(ErrorReport {
                kind: error.kind.clone(),
                message: String::from_utf8(small(&error.message)?).ok()?,
                traceback: String::from_utf8(small(&error.traceback)?).ok()?,
                exception: match &error.exception {
                    Some(exception) => Some(small(exception)?),
                    None => None,
                },
            }),
            None => None,
        };
        let mut stream = |record: &StreamRecord| {
            Some(Captured {
                head: small(&record.head)?,
                tail: small(&record.tail)?,
                dropped: record.dropped,
            })
        };
        let exit = self.exit_code.map(Exit::Code);
        let tried_alone = match &self.tried_alone {
            Some(first) => Some(Box::new(FirstRun {
                verdict: verdict(&first.verdict)?,
                metrics: first.metrics.to_metrics()?,
            })),
            None => None,
        };
        Some(Outcome {
            verdict: verdict(&self.verdict)?,
            value,
            error,
            exit: exit.or(self.exit_signal.map(Exit::Signal)),
            killed_by: self.killed_outside.then_some(KilledBy::Outside),
            stdout: stream(&self.stdout)?,
            stderr: stream(&self.stderr)?,
            metrics: self.metrics.to_metrics()?,
            in_force: self.in_force.to_in_force()?,
            tried_alone,
            upper: None,
        })
    }
}

fn verdict(name: &str) -> Option<Verdict> {
    let mut all = Verdict::ALL.into_iter();
    all.find(|verdict| verdict.name() == name)
}

/// The beginning of a text, of so many bytes at most.
pub(crate) fn shortened(mut text: String, most: usize) -> String {
    let mut cuts = (0..=most.min(text.len())).rev();
    let cut = cuts.find(|at| text.is_char_boundary(*at));
    text.truncate(cut.expect("a text can be cut at 0"));
    text
}

fn carry_value(body: Body, outgoing: &mut Vec<Outgoing>) -> Carried {
    if body.len() <= LONG_VALUE {
        return Carried::here(body.bytes());
    }
    let blob = Blob::of(body.bytes());
    outgoing.push(Outgoing {
        blob,
        body: OutgoingBody::Value(Arc::new(body)),
    });
    Carried::Blob(blob)
}

impl MetricsRecord {
    fn of(metrics: Metrics) -> Self {
        Self {
            wall_ns: metrics.wall_ns,
            queue_ns: metrics.queue_ns,
            user_ns: metrics.user_ns,
            system_ns: metrics.system_ns,
            cpu_source: metrics.cpu_source.map(|source| source.to_string()),
            peak_rss_bytes: metrics.peak_rss_bytes,
            peak_source: metrics.peak_source.map(|source| source.to_string()),
            started_at_ns: metrics.started_at_ns,
            finished_at_ns: metrics.finished_at_ns,
            worker_pid: metrics.worker_pid,
            worker_id: metrics.worker_id,
            node_id: metrics.node_id,
            base_rss_bytes: metrics.base_rss_bytes,
            leaked_processes: metrics.leaked_processes,
            measured_by: metrics.measured_by.map(|by| by.to_string()),
            wait_ns: metrics.wait_ns,
            wait_source: metrics.wait_source.map(|source| source.to_string()),
            margin: metrics.margin.map(|margin| MarginRecord {
                limit: margin.limit,
                used: margin.used,
            }),
        }
    }

    fn to_metrics(&self) -> Option<Metrics> {
        let sources = [
            PeakSource::Cgroup,
            PeakSource::Vmhwm,
            PeakSource::Rusage,
            PeakSource::Sampled,
        ];
        Some(Metrics {
            wall_ns: self.wall_ns,
            queue_ns: self.queue_ns,
            user_ns: self.user_ns,
            system_ns: self.system_ns,
            cpu_source: named(
                self.cpu_source.as_deref(),
                [CpuSource::Cgroup, CpuSource::Partial],
            )?,
            peak_rss_bytes: self.peak_rss_bytes,
            peak_source: named(self.peak_source.as_deref(), sources)?,
            started_at_ns: self.started_at_ns,
            finished_at_ns: self.finished_at_ns,
            worker_pid: self.worker_pid,
            worker_id: self.worker_id.clone(),
            node_id: self.node_id.clone(),
            base_rss_bytes: self.base_rss_bytes,
            leaked_processes: self.leaked_processes,
            measured_by: named(
                self.measured_by.as_deref(),
                [MeasuredBy::Engine, MeasuredBy::Worker],
            )?,
            wait_ns: self.wait_ns,
            wait_source: named(self.wait_source.as_deref(), [WaitSource::Schedstat])?,
            margin: self.margin.as_ref().map(|margin| Margin {
                limit: margin.limit.clone(),
                used: margin.used,
            }),
            counted: Vec::new(), // only what is measured on this machine is counted
        })
    }
}

/// The one of that name, if there is a name; `None` if nobody has it.
fn named<T: ToString, const N: usize>(name: Option<&str>, all: [T; N]) -> Option<Option<T>> {
    match name {
        Some(name) => Some(Some(all.into_iter().find(|it| it.to_string() == name)?)),
        None => Some(None),
    }
}

impl InForceRecord {
    fn of(in_force: &InForce) -> Self {
        let counters = &in_force.counters;
        Self {
            requested: in_force.requested.to_string(),
            effective: in_force.effective.to_string(),
            on_missing: in_force.on_missing.to_string(),
            mode: in_force.mode.to_owned(),
            digest: in_force.digest(),
            weak: in_force
                .weak()
                .map(|mechanism| MechanismRecord {
                    name: mechanism.name.to_owned(),
                    state: mechanism.state.name().to_owned(),
                    via: mechanism.via.to_owned(),
                    errno: mechanism.errno.map(str::to_owned),
                    hint: mechanism.hint.to_owned(),
                })
                .collect(),
            preload_shared: in_force.preload_shared.clone(),
            counters: [
                counters.voluntary_switches,
                counters.involuntary_switches,
                counters.minor_faults,
                counters.major_faults,
                counters.throttled_ns,
                counters.memory_stall_ns,
            ],
        }
    }

    fn to_in_force(&self) -> Option<InForce> {
        let states = [
            State::Enforced,
            State::Sampled,
            State::Partial,
            State::Unavailable,
        ];
        let weak = self.weak.iter().map(|record| {
            Some(Mechanism {
                name: known(&record.name),
                state: states
                    .into_iter()
                    .find(|state| state.name() == record.state)?,
                via: known(&record.via),
                errno: record.errno.as_deref().map(known),
                hint: known(&record.hint),
            })
        });
        let [
            voluntary_switches,
            involuntary_switches,
            minor_faults,
            major_faults,
            throttled_ns,
            memory_stall_ns,
        ] = self.counters;
        Some(InForce {
            requested: self.requested.parse().ok()?,
            effective: self.effective.parse().ok()?,
            on_missing: self.on_missing.parse().ok()?,
            mode: known(&self.mode),
            mechanisms: weak.collect::<Option<_>>()?,
            preload_shared: self.preload_shared.clone(),
            counters: Counters {
                voluntary_switches,
                involuntary_switches,
                minor_faults,
                major_faults,
                throttled_ns,
                memory_stall_ns,
            },
            elsewhere: Some(self.digest.clone()),
        })
    }
}

/// Different words about isolation that are kept, at most: agents have a few dozen.
const MOST_WORDS: usize = 512;
/// No word of the engine's is longer.
const LONGEST_WORD: usize = 1024;
/// In place of a word for which there is no room.
const UNKNOWN_WORD: &str = "not known here";

/// A word about isolation as the engine has them: for good. Each is kept once, and only so many are taken; whatever comes
/// then is unknown, and its outcome is read all the same.
#[must_use]
pub fn known(word: &str) -> &'static str {
    static WORDS: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut words = WORDS.lock().unwrap_or_else(PoisonError::into_inner);
    match words.get(word) {
        Some(word) => word,
        None if words.len() < MOST_WORDS && word.len() <= LONGEST_WORD => {
            let word: &'static str = Box::leak(word.to_owned().into_boxed_str());
            words.insert(word);
            word
        }
        None => UNKNOWN_WORD,
    }
}
