//! What became of a call: facts in, outcome out. Decides nothing from text that a candidate wrote.

use std::time::Duration;

use super::{Ending, Mode, Payload, Reply};
use crate::call::{Call, ResultFormat, Work};
use crate::capture::Captured;
use crate::clock::Clock;
use crate::dispatch::Answer;
use crate::error::EngineError;
use crate::event::ExitReason;
use crate::limits::Size;
use crate::linux::cpu_clock::{CpuTimes, process_cpu_ns, split};
use crate::linux::perf::Uncounted;
use crate::linux::proc_files::ProcFiles;
use crate::linux::proc_status::Status;
use crate::linux::proc_tree::descendants;
use crate::measuring::Count;
use crate::metrics::{MeasuredBy, Metrics, PeakSource};
use crate::outcome::{EncodedValue, ErrorReport, Exit, KilledBy, Outcome};
use crate::protocol::launcher::{Cause, End};
use crate::sandbox::{Counters, Level, Means, in_force};
use crate::spill::{Body, SettleError};
use crate::value::{self, Value};
use crate::verdict::Verdict;
use crate::workspace::UpperDir;

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

/// Counters read outside the worker.
#[derive(Debug, Default)]
pub(crate) struct Measured {
    user_ns: Option<u64>,
    system_ns: Option<u64>,
    pub(crate) peak: Option<(u64, PeakSource)>,
    leaked: Option<u64>,
    counters: Counters,
    counted: Vec<Result<u64, Uncounted>>,
    by: Option<MeasuredBy>,
    /// Resident now, of a worker that lives on.
    pub(crate) rss_bytes: Option<u64>,
}

impl Measured {
    /// Of a tree that is gone.
    pub(crate) fn of_dead(end: &End) -> Self {
        let peak = match end.sampled_rss_bytes {
            _ if end
                .leaf
                .as_ref()
                .is_some_and(|leaf| leaf.peak_bytes.is_some()) =>
            {
                let peak = end.leaf.as_ref().and_then(|leaf| leaf.peak_bytes);
                (peak.unwrap_or(0), PeakSource::Cgroup)
            }
            Some(sampled) if sampled > end.max_rss_bytes => (sampled, PeakSource::Sampled),
            _ => (end.max_rss_bytes, PeakSource::Rusage),
        };
        // Of processes that nobody waited for only the cgroup knows.
        let all_ns = end.leaf.as_ref().and_then(|leaf| leaf.cpu_ns).unwrap_or(0);
        let rest_ns = all_ns.saturating_sub(end.user_ns + end.system_ns);
        Self {
            user_ns: Some(end.user_ns + rest_ns),
            system_ns: Some(end.system_ns),
            peak: Some(peak),
            leaked: Some(end.leaked),
            counters: counters(end),
            counted: end.counted.clone(),
            by: Some(MeasuredBy::Engine),
            rss_bytes: None,
        }
    }

    /// Of a call among others that were sent ahead: what the worker says, which runs trusted functions.
    pub(crate) fn by_worker(usage: Option<(u64, u64)>) -> Self {
        Self {
            user_ns: usage.map(|(user_ns, _)| user_ns),
            system_ns: usage.map(|(_, system_ns)| system_ns),
            by: usage.map(|_| MeasuredBy::Worker),
            ..Self::default()
        }
    }

    /// Of a worker between two calls.
    pub(crate) fn of_living(pid: u32, cpu_before_ns: Option<u64>, files: &mut ProcFiles) -> Self {
        let status = files.read().ok();
        let cpu_ns =
            cpu_before_ns.and_then(|before| Some(process_cpu_ns(pid).ok()?.saturating_sub(before)));
        let cpu = cpu_ns.map(|cpu_ns| share_out(cpu_ns, files));
        let leaked = match &status {
            Some(status) if has_no_child(files, status) => Some(0),
            _ => descendants(pid).ok().map(|below| below.len() as u64),
        };
        Self {
            user_ns: cpu.map(|cpu| cpu.user_ns),
            system_ns: cpu.map(|cpu| cpu.system_ns),
            peak: status.and_then(|status| Some((status.hwm_bytes?, PeakSource::Vmhwm))),
            leaked,
            counted: Vec::new(),
            counters: Counters::default(), // those of all its calls would mislead
            by: Some(MeasuredBy::Engine),
            rss_bytes: status.and_then(|status| status.rss_bytes),
        }
    }
}

fn counters(end: &End) -> Counters {
    let leaf = end.leaf.as_ref();
    Counters {
        voluntary_switches: Some(end.counts.voluntary_switches),
        involuntary_switches: Some(end.counts.involuntary_switches),
        minor_faults: Some(end.counts.minor_faults),
        major_faults: Some(end.counts.major_faults),
        throttled_ns: leaf.and_then(|leaf| leaf.throttled_ns),
        memory_stall_ns: leaf.and_then(|leaf| leaf.memory_stall_ns),
    }
}

fn has_no_child(files: &mut ProcFiles, status: &Status) -> bool {
    let children = files.children(status.threads);
    children.is_ok_and(|children| children.is_empty())
}

/// The sum is exact; the kernel knows the two parts only by ticks, which say nothing of a call shorter than one.
fn share_out(cpu_ns: u64, files: &mut ProcFiles) -> CpuTimes {
    const TICK_NS: u64 = 10_000_000;
    let stat = (cpu_ns >= TICK_NS).then(|| files.stat().ok()).flatten();
    match stat {
        Some(stat) => split(cpu_ns, &stat),
        None => CpuTimes {
            user_ns: cpu_ns,
            system_ns: 0,
        },
    }
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
    let (verdict, value, error, exit) = match ending {
        None | Some(Ok(_)) if matches!(passed, Some(Passed::Limit(_))) => {
            let Some(Passed::Limit(cause)) = passed else {
                unreachable!("just seen")
            };
            (stopped(cause), None, Some(facts.stopped(cause)), None)
        }
        None | Some(Ok(_)) if facts.wrote_too_much() => {
            let error = facts.stopped(Cause::OutputLimit);
            (Verdict::OutputLimit, None, Some(error), None)
        }
        Some(Ok(reply)) => {
            let (verdict, value, error) = read_reply(&facts, reply)?;
            (verdict, value, error, None)
        }
        Some(Err(Ending::Stopped(cause))) => {
            (stopped(cause), None, Some(facts.stopped(cause)), None)
        }
        Some(Err(Ending::Misbehaved(reason))) => (
            Verdict::BadResult,
            None,
            Some(ErrorReport::new(
                "BadResult",
                format!("no answer: {reason}"),
            )),
            None,
        ),
        Some(Err(
            Ending::Replied(_) | Ending::Unprepared(_) | Ending::NoAck | Ending::Retired(_),
        ))
        | None => {
            let (verdict, error) = facts.by_itself(exit);
            (verdict, None, error, Some(exit))
        }
    };
    let failed = matches!(
        verdict,
        Verdict::Exception | Verdict::Exit | Verdict::Signal | Verdict::BadResult
    );
    if failed && end.scratch_full {
        let message = match error {
            Some(error) => format!("its directory was full: {}", error.message),
            None => "its directory was full".to_owned(),
        };
        let error = Some(ErrorReport::new("ScratchFull", message));
        return Ok(facts.outcome(Verdict::DiskLimit, None, error, exit));
    }
    let ended_by_itself = failed || verdict == Verdict::Ok;
    if ended_by_itself && end.upper_full {
        let problem = "its workspace was full";
        let message = error.map_or_else(
            || problem.to_owned(),
            |error| format!("{problem}: {}", error.message),
        );
        let error = Some(ErrorReport::new("WorkspaceFull", message));
        return Ok(facts.outcome(Verdict::DiskLimit, None, error, exit));
    }
    Ok(facts.outcome(verdict, value, error, exit))
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

    /// The code, and what it said last on standard error: mostly that is why.
    fn exited(&self, code: i32) -> String {
        /// Characters of what it said.
        const MOST: usize = 200;
        let stderr = self.stderr.bytes();
        let text = String::from_utf8_lossy(&stderr);
        let last = text
            .lines()
            .rev()
            .map(str::trim)
            .find(|line| !line.is_empty());
        match last {
            None => format!("exited with code {code}"),
            Some(line) => {
                let said: String = line.chars().take(MOST).collect();
                format!("exited with code {code}: {said}")
            }
        }
    }

    fn stopped(&self, cause: Cause) -> ErrorReport {
        let limits = &self.call.limits;
        let size = |limit: Option<u64>| {
            limit.map_or_else(|| "none".into(), |limit| Size(limit).to_string())
        };
        let ran = self.wall_ns().map_or(0.0, |ns| ns as f64 / 1e9);
        match cause {
            Cause::Timeout => {
                let limit = self.call.timeout.unwrap_or(Duration::ZERO);
                let message = format!("stopped {ran:.2} s after it began (limit {limit:?})");
                ErrorReport {
                    traceback: stacks(self.stacks),
                    ..ErrorReport::new("Timeout", message)
                }
            }
            Cause::CpuLimit => {
                let limit = limits.cpu.unwrap_or(Duration::ZERO);
                ErrorReport::new(
                    "CpuLimit",
                    format!("it used more processor time than the limit of {limit:?}"),
                )
            }
            Cause::MemoryLimit => ErrorReport::new(
                "MemoryLimit",
                format!(
                    "it used more memory than the limit of {}",
                    size(limits.memory_bytes)
                ),
            ),
            Cause::OutputLimit => ErrorReport::new(
                "OutputLimit",
                format!(
                    "it wrote more output than the limit of {}",
                    size(limits.output_bytes)
                ),
            ),
            Cause::DiskLimit => ErrorReport::new(
                "DiskLimit",
                format!(
                    "its result is larger than the limit of {}",
                    size(limits.file_bytes)
                ),
            ),
            Cause::ProcessLimit => {
                let limit = limits.processes.unwrap_or(0);
                ErrorReport::new(
                    "ProcessLimit",
                    format!("it had more processes than the limit of {limit}"),
                )
            }
            Cause::Cancelled | Cause::Done | Cause::Retired => {
                ErrorReport::new("Cancelled", "the caller cancelled it")
            }
            Cause::Misbehaved => ErrorReport::new("BadResult", "it broke the protocol"),
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

/// The stacks a hung interpreter wrote, without our own frames.
fn stacks(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let begin = [text.find("Thread 0x"), text.find("Current thread 0x")]
        .into_iter()
        .flatten()
        .min();
    let lines = begin.map_or("", |begin| &text[begin..]).lines();
    // Below our own frames of a thread there are only those of the bootstrap.
    let mut ours = false;
    let users = lines.filter(|line| {
        ours = line.contains("File \"<fairtrial>\"") || (ours && line.starts_with(' '));
        !ours
    });
    users.flat_map(|line| [line, "\n"]).collect()
}

/// `SIGSEGV`, `EXIT(3)` and the like.
pub(crate) fn exit_name(exit: Exit) -> String {
    match exit {
        Exit::Code(code) => format!("EXIT({code})"),
        Exit::Signal(signal) => signal_name(signal),
    }
}

/// `SIGSEGV` and the like.
fn signal_name(signal: i32) -> String {
    const NAMES: [&str; 31] = [
        "SIGHUP",
        "SIGINT",
        "SIGQUIT",
        "SIGILL",
        "SIGTRAP",
        "SIGABRT",
        "SIGBUS",
        "SIGFPE",
        "SIGKILL",
        "SIGUSR1",
        "SIGSEGV",
        "SIGUSR2",
        "SIGPIPE",
        "SIGALRM",
        "SIGTERM",
        "SIGSTKFLT",
        "SIGCHLD",
        "SIGCONT",
        "SIGSTOP",
        "SIGTSTP",
        "SIGTTIN",
        "SIGTTOU",
        "SIGURG",
        "SIGXCPU",
        "SIGXFSZ",
        "SIGVTALRM",
        "SIGPROF",
        "SIGWINCH",
        "SIGIO",
        "SIGPWR",
        "SIGSYS",
    ];
    let name = usize::try_from(signal - 1)
        .ok()
        .and_then(|index| NAMES.get(index));
    name.map_or_else(|| format!("signal {signal}"), |name| (*name).to_owned())
}

#[cfg(test)]
mod tests;
