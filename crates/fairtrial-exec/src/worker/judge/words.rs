//! What reports of failed calls say, in words: for people only, and nothing is decided by it.

use std::time::Duration;

use super::Facts;
use crate::limits::Size;
use crate::outcome::{ErrorReport, Exit};
use crate::protocol::launcher::Cause;

impl Facts<'_> {
    /// The code, and what it said last on standard error: mostly that is why.
    pub(super) fn exited(&self, code: i32) -> String {
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

    fn out_of_time(&self, ran_s: f64) -> String {
        let limit = self.call.timeout.unwrap_or(Duration::ZERO);
        let waited_s = self.wait_ns().map(|ns| ns as f64 / 1e9);
        let waited = waited_s.map_or_else(String::new, |waited_s| {
            format!(", of which it was ready to run and had no processor for {waited_s:.2} s")
        });
        let used = self.measured.cpu_use.map(|it| it.used_ns as f64 / 1e9);
        match (self.call.guard(), used) {
            (Some(_), Some(used)) if used > limit.as_secs_f64() => {
                format!(
                    "it used {used:.3} s of processor time (limit {limit:?}) in {ran_s:.2} s{waited}"
                )
            }
            (Some(guard), used) => {
                let used = used.unwrap_or(0.0);
                format!(
                    "stopped {ran_s:.2} s after it began{waited}: it slept or waited longer than {guard:?} and used \
                     {used:.3} s of processor time (limit {limit:?})"
                )
            }
            (None, _) if self.metrics().was_starved() => format!(
                "stopped {ran_s:.2} s after it began (limit {limit:?}){waited}: the machine was busy; `time: cpu` counts \
                 processor time instead"
            ),
            (None, _) => format!("stopped {ran_s:.2} s after it began (limit {limit:?})"),
        }
    }

    /// Which limit it passed, or who wanted its end.
    pub(super) fn stopped(&self, cause: Cause) -> ErrorReport {
        let limits = &self.call.limits;
        let size = |limit: Option<u64>| {
            limit.map_or_else(|| "none".into(), |limit| Size(limit).to_string())
        };
        let ran = self.wall_ns().map_or(0.0, |ns| ns as f64 / 1e9);
        match cause {
            Cause::Timeout => {
                let message = self.out_of_time(ran);
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
            Cause::Cancelled | Cause::Done | Cause::Failed | Cause::Retired => {
                ErrorReport::new("Cancelled", "the caller cancelled it")
            }
            Cause::Misbehaved => ErrorReport::new("BadResult", "it broke the protocol"),
        }
    }
}

/// The stacks a hung interpreter wrote, without our own frames.
pub(super) fn stacks(bytes: &[u8]) -> String {
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
pub(super) fn signal_name(signal: i32) -> String {
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
