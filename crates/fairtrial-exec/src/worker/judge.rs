//! What became of a call: facts in, outcome out. Decides nothing from text that a candidate wrote.

pub(crate) mod words;

use std::time::Duration;

use super::measured::Measured;
use super::{Ending, Mode, Payload, Reply};
use crate::call::{Call, ResultFormat, Time, Work};
use crate::capture::Captured;
use crate::clock::Clock;
use crate::dispatch::Answer;
use crate::error::EngineError;
use crate::event::ExitReason;
use crate::measuring::Count;
use crate::metrics::{Margin, Metrics, PeakSource, WaitSource};
use crate::outcome::{EncodedValue, ErrorReport, Exit, KilledBy, Outcome};
use crate::protocol::launcher::{Cause, CpuUse, End, Shared};
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
    pub(crate) waited_before_ns: Option<u64>,
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
    if facts.used_too_much_time() {
        let error = facts.stopped(Cause::Timeout);
        return Ok(facts.outcome(Verdict::Timeout, None, Some(error), None));
    }
    let (verdict, value, error) = read_reply(&facts, reply)?;
    Ok(facts.outcome(verdict, value, error, None))
}

/// Whether a call timed out by processor time while others used the processors: then it may have needed more than it
/// does alone. One that was run alone is in doubt if some other program used its processor all the same.
pub(crate) fn is_in_doubt(call: &Call, answer: &Answer, end: &End) -> bool {
    let Ok(outcome) = answer else { return false };
    let was_shared = match outcome.tried_alone {
        Some(_) => outcome.metrics.was_starved(),
        None => end.cpu_use.is_some_and(|it| it.shared),
    };
    outcome.verdict == Verdict::Timeout && used_too_much(call, end.cpu_use) && was_shared
}

/// What a call may have failed for want of, for all that is known, though it was within its own limits: beside others it
/// is not judged.
pub(crate) fn lacked(call: &Call, answer: &Answer, end: &End) -> Option<Shared> {
    if lacked_memory(answer, end) {
        return Some(Shared::Memory);
    }
    let shortage = end.shortage.filter(|_| call.sandbox.level > Level::None)?;
    let may_come_of_it = match answer {
        Ok(outcome) => match outcome.verdict {
            Verdict::Timeout => shortage == Shared::FileLock,
            Verdict::SetupFailed
            | Verdict::Signal
            | Verdict::Exit
            | Verdict::Exception
            | Verdict::BadResult
            | Verdict::NoResult => shortage != Shared::FileLock,
            Verdict::Ok
            | Verdict::Cancelled
            | Verdict::CpuLimit
            | Verdict::MemoryLimit
            | Verdict::OutputLimit
            | Verdict::DiskLimit
            | Verdict::ProcessLimit
            | Verdict::Forbidden => false,
        },
        Err(_) => shortage == Shared::ScratchDisk, // large values go there, too
    };
    may_come_of_it.then_some(shortage)
}

/// Whether the kernel ended any of its processes because the host, not the call, was out of memory: what the rest of them
/// answered may come of that.
fn lacked_memory(answer: &Answer, end: &End) -> bool {
    let leaf = end.leaf.as_ref();
    let lost_some = leaf.is_some_and(|leaf| leaf.host_memory && !leaf.memory_limit);
    match answer {
        Ok(outcome) => lost_some && outcome.verdict != Verdict::Cancelled,
        Err(error) => matches!(error, EngineError::HostMemory),
    }
}

fn used_too_much(call: &Call, cpu_use: Option<CpuUse>) -> bool {
    let limit = call.timeout.filter(|_| call.time == Time::Cpu);
    let used = cpu_use.map(|it| u128::from(it.used_ns));
    limit
        .zip(used)
        .is_some_and(|(limit, used)| used > limit.as_nanos())
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
        (None | Some(Ok(_)), _) if facts.used_too_much_time() => {
            let error = facts.stopped(Cause::Timeout);
            (Verdict::Timeout, None, Some(error), None)
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
    let killed = ending.is_none() && exit_of(end.status) == Exit::Signal(libc::SIGKILL);
    let Some(leaf) = end.leaf.as_ref() else {
        return (killed && end.host_memory).then_some(Passed::Host);
    };
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
        Cause::Cancelled | Cause::Done | Cause::Failed | Cause::Retired => Verdict::Cancelled,
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
        let limit = self.call.limits.output_bytes;
        limit.is_some_and(|limit| written(&self.stdout) + written(&self.stderr) > limit)
    }

    /// Whether it used more processor time than its timeout, though it ended before anybody stopped it.
    fn used_too_much_time(&self) -> bool {
        used_too_much(self.call, self.measured.cpu_use)
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
            Exit::Signal(libc::SIGSYS) if self.call.sandbox.level != Level::None => (
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
            tried_alone: None,
            stdout: self.stdout,
            stderr: self.stderr,
            upper: self.upper,
        }
    }

    /// Time in which it was ready to run and did not, since it began.
    fn wait_ns(&self) -> Option<u64> {
        let wall_ns = self.wall_ns()?;
        let before_ns = match self.mode {
            Mode::Command => 0, // what there was before its program began was short
            Mode::Fresh | Mode::Reuse => self.waited_before_ns?,
        };
        let wait_ns = self.measured.wait_ns?.saturating_sub(before_ns);
        Some(wait_ns.min(wall_ns))
    }

    /// Of the limits whose use is known the one that it came nearest to.
    fn margin(&self) -> Option<Margin> {
        let (limits, measured) = (&self.call.limits, &self.measured);
        let cpu_ns = measured.user_ns.zip(measured.system_ns);
        let cpu_ns = cpu_ns.map(|(user_ns, system_ns)| user_ns + system_ns);
        let timed_ns = match self.call.time {
            Time::Wall => self.wall_ns(),
            Time::Cpu => measured.cpu_use.map(|it| it.used_ns),
        };
        let nanoseconds = |time: Option<Duration>| time.map(|time| time.as_nanos() as f64);
        let bytes = |size: Option<u64>| size.map(|size| size as f64);
        let count = |count: Option<u64>| count.map(|count| count as f64);
        let written = written(&self.stdout) + written(&self.stderr);
        let nearest = [
            ("timeout_s", nanoseconds(self.call.timeout), count(timed_ns)),
            ("limits.cpu_s", nanoseconds(limits.cpu), count(cpu_ns)),
            (
                "limits.memory_bytes",
                bytes(limits.memory_bytes),
                bytes(measured.peak.map(|(bytes, _)| bytes)),
            ),
            (
                "limits.output_bytes",
                bytes(limits.output_bytes),
                bytes(Some(written)),
            ),
        ];
        let used = nearest.into_iter().filter_map(|(limit, most, used)| {
            let limit = limit.to_owned();
            let used = used? / most?;
            Some(Margin { limit, used })
        });
        used.max_by(|one, other| one.used.total_cmp(&other.used))
    }

    /// Never below the size at the start: the pages that a worker shares with its warm interpreter count as resident, and
    /// are not charged to its control group.
    fn peak(&self) -> Option<(u64, PeakSource)> {
        let (bytes, source) = self.measured.peak?;
        let Some(base_bytes) = self.base_rss_bytes else {
            return Some((bytes, source)); // a command's own process began with nothing
        };
        let resident = self.measured.max_rss_bytes;
        Some(match resident.filter(|_| self.mode == Mode::Fresh) {
            Some(resident) if resident > bytes => (resident.max(base_bytes), PeakSource::Rusage),
            _ => (bytes.max(base_bytes), source),
        })
    }

    fn metrics(&self) -> Metrics {
        let measured = &self.measured;
        let began = self.began_ns;
        let wait_ns = began.and_then(|_| self.wait_ns());
        let peak = began.and_then(|_| self.peak());
        Metrics {
            wait_ns,
            wait_source: wait_ns.map(|_| WaitSource::Schedstat),
            margin: began.and_then(|_| self.margin()),
            wall_ns: self.wall_ns(),
            queue_ns: began.map(|began| began.saturating_sub(self.submitted_ns)),
            user_ns: began.and(measured.user_ns),
            system_ns: began.and(measured.system_ns),
            cpu_source: began.and(measured.cpu_source),
            peak_rss_bytes: peak.map(|(bytes, _)| bytes),
            peak_source: peak.map(|(_, source)| source),
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

fn written(stream: &Captured) -> u64 {
    stream.head.len() as u64 + stream.tail.len() as u64 + stream.dropped
}

#[cfg(test)]
mod tests;
