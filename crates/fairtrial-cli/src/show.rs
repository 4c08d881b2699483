//! Outcomes and errors as people read them. Pure, but for the one function that prints why a command failed.

use std::borrow::Cow;
use std::error::Error;
use std::io::{self, Write};
use std::time::Duration;

use fairtrial_exec::{
    Call, Captured, ErrorReport, Exit, KilledBy, Outcome, Size, Time, Verdict, Work,
};

use crate::exit_code::ExitCode;
use crate::failure::Failure;
use crate::terminal::Shown;

/// What is told where agents may not have heard of an interrupt.
pub(crate) const LEFT: &str =
    "interrupted: no answer to the cancellation; agents may still run what they had";

/// Prints why a command could not do its work.
pub(crate) fn failure(failure: &Failure) -> ExitCode {
    let mut out = Shown::on(io::stderr());
    // Nobody is left to tell if standard error itself is gone.
    out.write_all(failure_text(failure).as_bytes())
        .unwrap_or_default();
    failure.exit_code()
}

/// A bad usage is one line; a failed engine says what was attempted and every cause below it.
fn failure_text(failure: &Failure) -> String {
    match failure {
        Failure::Usage(line) | Failure::Base(line) => format!("{line}\n"),
        Failure::Cluster(line) => format!("error: {line}\n"),
        Failure::Interrupted => "interrupted: what was running has been killed\n".into(),
        Failure::Left => format!("{LEFT}\n"),
        Failure::Engine { attempt, cause } => {
            let mut text = format!("error: {attempt}\n");
            let mut next: Option<&dyn Error> = Some(&**cause);
            while let Some(cause) = next {
                text += &format!("  cause: {cause}\n");
                // Messages of `#[error("...: {source}")]` already hold what is below them.
                next = cause
                    .source()
                    .filter(|below| !cause.to_string().ends_with(&below.to_string()));
            }
            text
        }
    }
}

/// What went wrong with a call, why, and where: headline, then traceback. Empty if nothing did.
pub(crate) fn report(call: &Call, outcome: &Outcome) -> String {
    if outcome.verdict == Verdict::Ok {
        return String::new();
    }
    let mut text = format!("{}: {}\n", outcome.verdict, headline(call, outcome));
    if let Some(traceback) = outcome.error.as_ref().and_then(traceback) {
        text += traceback;
        text.push('\n');
    }
    let missing = outcome
        .error
        .as_ref()
        .is_some_and(|error| error.kind == "ModuleNotFoundError");
    if missing {
        // A plain `python FILE` finds them; here only what is named is on the path.
        text += "hint: modules that lie beside the file are found with `--python-path DIR`\n";
    }
    text
}

/// What a traceback adds to the headline: without frames it is but the message again.
fn traceback(error: &ErrorReport) -> Option<&str> {
    let text = error.traceback.trim_end_matches('\n');
    let repeats = !text.contains('\n') && text.ends_with(&error.message);
    (!text.is_empty() && !repeats).then_some(text)
}

/// Kept output, as it was; says in place how much is missing.
pub(crate) fn write_captured(stream: &Captured, out: &mut impl Write) -> io::Result<()> {
    out.write_all(&stream.head)?;
    if stream.dropped > 0 {
        writeln!(out, "\n[{} bytes dropped; see --capture]", stream.dropped)?;
    }
    out.write_all(&stream.tail)
}

/// Whether kept output ends in the middle of a line.
pub(crate) fn ends_mid_line(stream: &Captured) -> bool {
    let last = stream.tail.last().or(stream.head.last());
    last.is_some_and(|byte| *byte != b'\n')
}

fn headline(call: &Call, outcome: &Outcome) -> String {
    let name = &*name(call);
    let error = outcome.error.as_ref();
    match outcome.verdict {
        Verdict::Timeout if call.time == Time::Cpu => {
            with_message(format!("`{name}`"), outcome.error.as_ref())
        }
        Verdict::Timeout => format!("`{name}` {}", stopped(call, outcome)),
        Verdict::CpuLimit => past(
            name,
            "used more processor time than",
            call.limits.cpu.map(seconds),
        ),
        Verdict::MemoryLimit => past(
            name,
            "used more memory than",
            call.limits.memory_bytes.map(size),
        ),
        Verdict::OutputLimit => past(
            name,
            "wrote more output than",
            call.limits.output_bytes.map(size),
        ),
        Verdict::DiskLimit if error.is_some_and(|error| error.kind == "ScratchFull") => {
            with_message(format!("`{name}` wrote too much"), error)
        }
        Verdict::DiskLimit => past(
            name,
            "wrote a larger file or value than",
            call.limits.file_bytes.map(size),
        ),
        Verdict::ProcessLimit => past(
            name,
            "had more processes than",
            call.limits.processes.map(|count| count.to_string()),
        ),
        Verdict::Signal | Verdict::Exit => match outcome.exit {
            Some(Exit::Signal(signal)) => {
                let outside = match outcome.killed_by {
                    Some(KilledBy::Outside) => ", which the engine did not send",
                    None => "",
                };
                format!("`{name}` was ended by {}{outside}", signal_name(signal))
            }
            Some(Exit::Code(code)) => format!("`{name}` exited with code {code}"),
            None => with_message(format!("`{name}` ended"), error),
        },
        Verdict::Exception => match error {
            Some(error) if error.message.is_empty() => format!("`{name}` raised `{}`", error.kind),
            Some(error) => format!("`{name}` raised `{}`: {}", error.kind, error.message),
            None => format!("`{name}` raised"),
        },
        Verdict::SetupFailed => with_message(format!("`{name}` could not be started"), error),
        Verdict::Cancelled => with_message(format!("`{name}` was cancelled"), error),
        Verdict::Forbidden => {
            with_message(format!("`{name}` was stopped at a forbidden act"), error)
        }
        Verdict::BadResult => with_message(format!("the answer of `{name}` is no value"), error),
        Verdict::NoResult => with_message(format!("`{name}` ended without an answer"), error),
        Verdict::Ok => format!("`{name}` answered"),
    }
}

/// What a call runs, in a word.
fn name(call: &Call) -> Cow<'_, str> {
    match &call.work {
        Work::Source(work) => work.function.as_str().into(),
        Work::Command(work) => work
            .argv
            .first()
            .map_or("".into(), |program| program.to_string_lossy()),
        Work::Pickled(_) => "the pickled callable".into(),
    }
}

/// `was stopped 5.00 s after it began (limit 5 s; 0.21 s in the queue not counted); 3 processes killed, none left`
fn stopped(call: &Call, outcome: &Outcome) -> String {
    let metrics = &outcome.metrics;
    let exact = |ns: u64| format!("{:.2} s", ns as f64 / 1e9);
    let after = metrics
        .wall_ns
        .map(|ns| format!(" {} after it began", exact(ns)));
    let facts: Vec<_> = [
        call.timeout
            .map(|limit| format!("limit {}", seconds(limit))),
        metrics
            .queue_ns
            .map(|ns| format!("{} in the queue not counted", exact(ns))),
        metrics.wait_ns.filter(|_| metrics.was_starved()).map(|ns| {
            let waited = exact(ns);
            format!("ready to run without a processor for {waited}: the machine was busy")
        }),
    ]
    .into_iter()
    .flatten()
    .collect();
    let facts = match facts.is_empty() {
        true => String::new(),
        false => format!(" ({})", facts.join("; ")),
    };
    let killed = match metrics.leaked_processes {
        None => String::new(),
        Some(0) => "; 1 process killed, none left".into(),
        Some(others) => format!("; {} processes killed, none left", others + 1),
    };
    format!("was stopped{}{facts}{killed}", after.unwrap_or_default())
}

fn past(name: &str, did: &str, limit: Option<String>) -> String {
    match limit {
        Some(limit) => format!("`{name}` {did} its limit of {limit}"),
        None => format!("`{name}` {did} it may"),
    }
}

fn with_message(what: String, error: Option<&ErrorReport>) -> String {
    match error {
        Some(error) if !error.message.is_empty() => format!("{what}: {}", error.message),
        _ => what,
    }
}

fn size(bytes: u64) -> String {
    Size(bytes).to_string()
}

/// `5 s`, `0.25 s`: as exact as it was written.
fn seconds(time: Duration) -> String {
    format!("{} s", time.as_secs_f64())
}

fn signal_name(signal: i32) -> String {
    let name = match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        5 => "SIGTRAP",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        10 => "SIGUSR1",
        11 => "SIGSEGV",
        12 => "SIGUSR2",
        13 => "SIGPIPE",
        14 => "SIGALRM",
        15 => "SIGTERM",
        24 => "SIGXCPU",
        25 => "SIGXFSZ",
        31 => "SIGSYS",
        other => return format!("signal {other}"),
    };
    format!("signal {signal} ({name})")
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairtrial_exec::{EngineError, InForce, Metrics};

    fn outcome(verdict: Verdict) -> Outcome {
        Outcome {
            verdict,
            value: None,
            error: None,
            exit: None,
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

    fn call() -> Call {
        let mut call = Call::source("", "solve", Vec::new());
        call.timeout = Some(Duration::from_secs(5));
        call.limits.memory_bytes = Some(512 << 20);
        call
    }

    /// EX-97
    #[test]
    fn a_timeout_says_when_and_what_was_not_counted() {
        let mut outcome = outcome(Verdict::Timeout);
        outcome.metrics.wall_ns = Some(5_004_000_000);
        outcome.metrics.queue_ns = Some(210_000_000);
        outcome.metrics.leaked_processes = Some(2);
        outcome.error = Some(ErrorReport {
            message: "it was stopped".into(),
            traceback: "File \"solve.py\", line 3\n".into(),
            ..ErrorReport::default()
        });
        assert_eq!(
            report(&call(), &outcome),
            "timeout: `solve` was stopped 5.00 s after it began (limit 5 s; 0.21 s in the queue not counted); \
             3 processes killed, none left\nFile \"solve.py\", line 3\n"
        );
    }

    /// EX-97
    #[test]
    fn each_verdict_has_a_headline_of_facts() {
        let headline_of = |verdict, exit, kind: &str, message: &str| {
            let mut outcome = outcome(verdict);
            outcome.exit = exit;
            outcome.error = Some(ErrorReport::new(kind, message));
            report(&call(), &outcome)
        };
        assert_eq!(
            headline_of(Verdict::Exception, None, "ValueError", "bad"),
            "exception: `solve` raised `ValueError`: bad\n"
        );
        assert_eq!(
            headline_of(Verdict::Signal, Some(Exit::Signal(11)), "", ""),
            "signal: `solve` was ended by signal 11 (SIGSEGV)\n"
        );
        assert_eq!(
            headline_of(Verdict::Exit, Some(Exit::Code(137)), "", ""),
            "exit: `solve` exited with code 137\n"
        );
        assert_eq!(
            headline_of(Verdict::MemoryLimit, None, "", ""),
            "memory_limit: `solve` used more memory than its limit of 512 MiB\n"
        );
        assert_eq!(
            headline_of(Verdict::SetupFailed, None, "", "no such interpreter"),
            "setup_failed: `solve` could not be started: no such interpreter\n"
        );
        let mut killed = outcome(Verdict::Signal);
        killed.exit = Some(Exit::Signal(9));
        killed.killed_by = Some(KilledBy::Outside);
        assert_eq!(
            report(&call(), &killed),
            "signal: `solve` was ended by signal 9 (SIGKILL), which the engine did not send\n"
        );
        assert_eq!(report(&call(), &outcome(Verdict::Ok)), "");
    }

    #[test]
    fn a_failed_engine_says_what_was_attempted_and_each_cause_once() {
        let engine = EngineError::Io {
            attempt: "cannot make a socket",
            source: io::Error::other("too many open files"),
        };
        assert_eq!(
            failure_text(&engine.into()),
            "error: the engine failed\n  cause: cannot make a socket: too many open files\n"
        );
    }
}
