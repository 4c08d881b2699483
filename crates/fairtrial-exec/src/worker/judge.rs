//! What became of a call: facts in, outcome out. Decides nothing from text that a candidate wrote.

pub(crate) mod words;

use super::measured::Measured;
use super::{Ending, Mode, Payload, Reply};
use crate::call::{Call, ResultFormat, Work};
use crate::capture::Captured;
use crate::clock::Clock;
use crate::dispatch::Answer;
use crate::error::EngineError;
use crate::event::ExitReason;
use crate::measuring::Count;
use crate::metrics::Metrics;
use crate::outcome::{EncodedValue, ErrorReport, Exit, KilledBy, Outcome};
use crate::protocol::launcher::{Cause, End};
use crate::sandbox::{Level, Means, in_force};
use crate::spill::{Body, SettleError};
use crate::value::{self, Value};
use crate::verdict::Verdict;
use crate::workspace::UpperDir;
use words::signal_name;

/// All that is known of a call when it is judged.
pub(crate) struct Facts<'a> {
    pub(crate) call: &'a Call,
    pub(crate) mode: Mode,
    pub(crate) means: &'a Means,
    pub(crate) clock: Clock,
    pub(crate) submitted_ns: u64,
    pub(crate) began_ns: Option<u64>,
    pub(crate) finished_ns: Option<u64>,
    pub(crate) base_rss_bytes: Option<u64>,
    pub(crate) worker_pid: Option<u32>,
    pub(crate) worker_id: &'a str,
    pub(crate) node_id: &'a str,
    pub(crate) stdout: Captured,
    pub(crate) stderr: Captured,
    pub(crate) stacks: &'a [u8],
    pub(crate) measured: Measured,
    pub(crate) upper: Option<UpperDir>,
}

/// Whether somebody else ended a process: neither itself, nor its limit of memory.
pub(crate) fn was_killed_from_outside(end: &End) -> bool {
    let exit = exit_of(end.status);
    let killed = matches!(exit, Exit::Signal(libc::SIGKILL | libc::SIGTERM));
    killed && !end.leaf.as_ref().is_some_and(|leaf| leaf.memory_limit)
}

/// Of a worker that answered and lives on.
pub(crate) fn replied(facts: Facts<'_>, reply: Result<Reply, SettleError>) -> Answer {
    if facts.wrote_too_much() {
        let error = facts.stopped(Cause::OutputLimit);
        return Ok(facts.outcome(Verdict::OutputLimit, None, Some(error), None));
    }
    let (verdict, value, error) = read_reply(&facts, reply)?;
    Ok(facts.outcome(verdict, value, error, None))
}

/// Of a worker that is gone with its tree. `ending` is why it was ended; `None` means that nobody ended it.
pub(crate) fn ended(
    facts: Facts<'_>,
    ending: Option<Result<Result<Reply, SettleError>, Ending>>,
    end: &End,
) -> Answer {
    let exit = exit_of(end.status);
    let passed = passed(&ending, end);
    if passed == Some(Passed::Host) {
        return Err(EngineError::HostMemory);
    }
    let (verdict, value, error, exit) = match (ending, passed) {
        (None | Some(Ok(_)), Some(Passed::Limit(cause))) => {
            (stopped(cause), None, Some(facts.stopped(cause)), None)
        }
        (None | Some(Ok(_)), _) if facts.wrote_too_much() => {
            let error = facts.stopped(Cause::OutputLimit);
            (Verdict::OutputLimit, None, Some(error), None)
        }
        (Some(Ok(reply)), _) => {
            let (verdict, value, error) = read_reply(&facts, reply)?;
            (verdict, value, error, None)
        }
        (Some(Err(Ending::Stopped(cause))), _) => {
            (stopped(cause), None, Some(facts.stopped(cause)), None)
        }
        (Some(Err(Ending::Misbehaved(reason))), _) => {
            let error = ErrorReport::new("BadResult", format!("no answer: {reason}"));
            (Verdict::BadResult, None, Some(error), None)
        }
        (
            None
            | Some(Err(
                Ending::Replied(_) | Ending::Unprepared(_) | Ending::NoAck | Ending::Retired(_),
            )),
            _,
        ) => {
            let (verdict, error) = facts.by_itself(exit);
            (verdict, None, error, Some(exit))
        }
    };
    let Some((kind, problem)) = filled(verdict, end) else {
        return Ok(facts.outcome(verdict, value, error, exit));
    };
    let message = match error {
        Some(error) => format!("{problem}: {}", error.message),
        None => problem.to_owned(),
    };
    let error = Some(ErrorReport::new(kind, message));
    Ok(facts.outcome(Verdict::DiskLimit, None, error, exit))
}

/// What was full when a call ended by itself. That explains a failure; and what a full workspace holds is not whole,
/// whatever the program says.
fn filled(verdict: Verdict, end: &End) -> Option<(&'static str, &'static str)> {
    let failed = matches!(
        verdict,
        Verdict::Exception | Verdict::Exit | Verdict::Signal | Verdict::BadResult
    );
    if failed && end.scratch_full {
        Some(("ScratchFull", "its directory was full"))
    } else if (failed || verdict == Verdict::Ok) && end.upper_full {
        Some(("WorkspaceFull", "its workspace was full"))
    } else {
        None
    }
}

/// What a call's cgroup says of an end that nobody brought about.
#[derive(PartialEq)]
enum Passed {
    Limit(Cause),
    /// The host had no memory left, which is no fault of the call's.
    Host,
}

fn passed(
    ending: &Option<Result<Result<Reply, SettleError>, Ending>>,
    end: &End,
) -> Option<Passed> {
    if let Some(cause) = end.passed {
        return Some(Passed::Limit(cause));
    }
    let leaf = end.leaf.as_ref()?;
    let killed = ending.is_none() && exit_of(end.status) == Exit::Signal(libc::SIGKILL);
    if leaf.memory_limit {
        Some(Passed::Limit(Cause::MemoryLimit))
    } else if leaf.host_memory && killed {
        Some(Passed::Host)
    } else if leaf.refused > 0 {
        Some(Passed::Limit(Cause::ProcessLimit))
    } else {
        None
    }
}

/// Why a worker is gone, for observers.
pub(crate) fn exit_reason(ending: Option<&Ending>, had_call: bool, mode: Mode) -> ExitReason {
    match ending {
        Some(Ending::Replied(_)) => ExitReason::CallDone,
        Some(Ending::Stopped(Cause::Timeout)) => ExitReason::Timeout,
        Some(Ending::Stopped(Cause::Cancelled)) => ExitReason::Cancelled,
        Some(Ending::Stopped(cause)) => ExitReason::Limit(stopped(*cause)),
        Some(Ending::Retired(reason)) => *reason,
        Some(Ending::Misbehaved(_) | Ending::NoAck | Ending::Unprepared(_)) => ExitReason::Crashed,
        None if had_call && mode == Mode::Command => ExitReason::CallDone,
        None => ExitReason::Crashed,
    }
}

/// The kernel's wait status as one of two facts.
pub(crate) fn exit_of(status: i32) -> Exit {
    let signal = status & 0x7f;
    if signal == 0 {
        Exit::Code((status >> 8) & 0xff)
    } else {
        Exit::Signal(signal)
    }
}

fn stopped(cause: Cause) -> Verdict {
    match cause {
        Cause::Cancelled | Cause::Done | Cause::Retired => Verdict::Cancelled,
        Cause::Timeout => Verdict::Timeout,
        Cause::CpuLimit => Verdict::CpuLimit,
        Cause::MemoryLimit => Verdict::MemoryLimit,
        Cause::OutputLimit => Verdict::OutputLimit,
        Cause::DiskLimit => Verdict::DiskLimit,
        Cause::ProcessLimit => Verdict::ProcessLimit,
        Cause::Misbehaved => Verdict::BadResult,
    }
}

type Judged = (Verdict, Option<EncodedValue>, Option<ErrorReport>);

fn read_reply(
    facts: &Facts<'_>,
    reply: Result<Reply, SettleError>,
) -> Result<Judged, crate::error::EngineError> {
    let bad = |reason: String| {
        (
            Verdict::BadResult,
            None,
            Some(ErrorReport::new("BadResult", reason)),
        )
    };
    match reply {
        Ok(Reply::Value(payload)) => {
            let format = facts
                .call
                .python()
                .map_or(ResultFormat::Data, |terms| terms.result);
            let body = payload.into_body();
            if format == ResultFormat::Data
                && let Err(malformed) = value::check(body.bytes())
            {
                return Ok(bad(format!("what it sent is no value: {malformed}")));
            }
            Ok((Verdict::Ok, Some(EncodedValue { format, body }), None))
        }
        Ok(Reply::Error(payload)) => Ok(match read_record(payload.into_body().bytes()) {
            Some((verdict, mut report)) => {
                report.exception = report.exception.filter(|_| facts.trusts_pickles());
                (verdict, None, Some(report))
            }
            None => bad("the error record it sent cannot be read".into()),
        }),
        Err(SettleError::Engine(error)) => Err(error),
        Err(lie) => Ok(bad(lie.to_string())),
    }
}

impl Payload {
    fn into_body(self) -> Body {
        match self {
            Self::Inline(bytes) => Body::Inline(bytes),
            Self::Settled(body) => body,
            Self::Filed(_) => unreachable!("settled before it is judged"),
        }
    }
}

/// The verdict that an error record claims; which may be claimed, [`read_record`] knows.
pub(crate) fn record_verdict(record: &[u8]) -> Option<String> {
    value::decode_small(record).ok()?.get("verdict")?.to_text()
}

pub(crate) fn read_record(record: &[u8]) -> Option<(Verdict, ErrorReport)> {
    let record = value::decode_small(record).ok()?;
    let text = |key: &str| record.get(key).and_then(Value::to_text);
    let verdict = match text("verdict")?.as_str() {
        "exception" => Verdict::Exception,
        "bad_result" => Verdict::BadResult,
        "setup_failed" => Verdict::SetupFailed,
        _ => return None,
    };
    let report = ErrorReport {
        kind: text("type")?,
        message: text("message")?,
        traceback: text("traceback")?,
        exception: record
            .get("exception")
            .and_then(Value::as_bytes)
            .map(<[u8]>::to_vec),
    };
    Some((verdict, report))
}

impl Facts<'_> {
    /// Whether the caller will unpickle what the call gives: a stranger's exception never, whatever its record holds.
    fn trusts_pickles(&self) -> bool {
        matches!(&self.call.work, Work::Pickled(work) if work.python.result == ResultFormat::Pickle)
    }

    /// Whether the output passed its limit before the call was over, though too late for anybody to stop it.
    fn wrote_too_much(&self) -> bool {
        let size = |stream: &Captured| {
            stream.head.len() as u64 + stream.tail.len() as u64 + stream.dropped
        };
        let limit = self.call.limits.output_bytes;
        limit.is_some_and(|limit| size(&self.stdout) + size(&self.stderr) > limit)
    }

    /// What a process that nobody stopped died of.
    fn by_itself(&self, exit: Exit) -> (Verdict, Option<ErrorReport>) {
        let command = self.mode == Mode::Command;
        match exit {
            Exit::Signal(libc::SIGXFSZ) => (
                Verdict::DiskLimit,
                Some(ErrorReport::new(
                    "DiskLimit",
                    "it wrote a file beyond the limit (SIGXFSZ)",
                )),
            ),
            Exit::Signal(libc::SIGXCPU) => (
                Verdict::CpuLimit,
                Some(ErrorReport::new(
                    "CpuLimit",
                    "it used more processor time than allowed (SIGXCPU)",
                )),
            ),
            Exit::Signal(libc::SIGSYS) if self.call.sandbox.level == Level::Strict => (
                Verdict::Forbidden,
                Some(ErrorReport::new(
                    "Forbidden",
                    "it used system calls of a foreign kind, which the filter does not allow (SIGSYS)",
                )),
            ),
            Exit::Signal(signal) => (
                Verdict::Signal,
                Some(ErrorReport::new(
                    "Signal",
                    format!("killed by {}", signal_name(signal)),
                )),
            ),
            Exit::Code(0) if command => (Verdict::Ok, None),
            Exit::Code(0) => (
                Verdict::NoResult,
                Some(ErrorReport::new(
                    "NoResult",
                    "it exited with code 0 and gave no answer",
                )),
            ),
            Exit::Code(code) => (
                Verdict::Exit,
                Some(ErrorReport::new("Exit", self.exited(code))),
            ),
        }
    }

    fn wall_ns(&self) -> Option<u64> {
        Some(self.finished_ns?.saturating_sub(self.began_ns?))
    }

    fn outcome(
        self,
        verdict: Verdict,
        value: Option<EncodedValue>,
        error: Option<ErrorReport>,
        exit: Option<Exit>,
    ) -> Outcome {
        let metrics = self.metrics();
        let mut in_force = in_force(self.call, self.mode, self.means);
        if self.began_ns.is_some() {
            in_force.counters = self.measured.counters;
        }
        let unexplained = exit == Some(Exit::Signal(libc::SIGKILL)) && verdict == Verdict::Signal;
        Outcome {
            verdict,
            value,
            error,
            exit,
            killed_by: unexplained.then_some(KilledBy::Outside),
            metrics,
            in_force,
            stdout: self.stdout,
            stderr: self.stderr,
            upper: self.upper,
        }
    }

    fn metrics(&self) -> Metrics {
        let measured = &self.measured;
        let began = self.began_ns;
        Metrics {
            wall_ns: self.wall_ns(),
            queue_ns: began.map(|began| began.saturating_sub(self.submitted_ns)),
            user_ns: began.and(measured.user_ns),
            system_ns: began.and(measured.system_ns),
            peak_rss_bytes: began.and(measured.peak.map(|(bytes, _)| bytes)),
            peak_source: began.and(measured.peak.map(|(_, source)| source)),
            started_at_ns: began.map(|began| self.clock.unix_ns(began)),
            finished_at_ns: began
                .and(self.finished_ns)
                .map(|finished| self.clock.unix_ns(finished)),
            worker_pid: self.worker_pid,
            worker_id: Some(self.worker_id.to_owned()),
            node_id: Some(self.node_id.to_owned()),
            base_rss_bytes: self.base_rss_bytes,
            leaked_processes: began.and(measured.leaked),
            measured_by: began.and(measured.by),
            counted: Count::all(&self.call.counted, &measured.counted),
        }
    }
}

#[cfg(test)]
mod tests;
