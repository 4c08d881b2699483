//! An outcome of the engine as the end of an attempt: status, result, and what is kept of it (ST-10, ST-44, ST-46).

use std::time::Duration;

use fairtrial_exec::value::decode_tree;
use fairtrial_exec::{EngineError, ErrorReport, Outcome, Verdict};
use serde_json::json;

use crate::binding::Contract;
use crate::evaluation;
use crate::journal::{Stage, Status};
use crate::json_text::parse_value;
use crate::result::{self, MAX_VALUES, NoResult, RunResult};
use crate::value::Value;

/// What of a command's output is shown when it is no result.
const SHOWN_BYTES: usize = 200;

/// What is said of an attempt that was stopped.
const STOPPED: &str = "stopped with the study";

/// How an attempt ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: Status,
    pub(crate) verdict: Option<&'static str>,
    pub(crate) stage: Stage,
    pub(crate) result: Option<RunResult>,
    /// JSON.
    pub(crate) outcome: String,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) finished_at_ns: i64,
    /// How long it ran, if it did.
    pub(crate) wall: Option<Duration>,
    /// Of a lost one: there is no use in another try.
    pub(crate) is_final: bool,
}

/// How an evaluation ended.
#[derive(Debug)]
pub(crate) struct Evaluated {
    pub(crate) status: Status,
    pub(crate) rows: Value,
    /// JSON.
    pub(crate) outcome: String,
}

/// Judges an agent's outcome. `is_command`: its result is what it printed.
pub(crate) fn judge(outcome: &Outcome, is_command: bool, contract: Contract) -> Ended {
    let (mut status, mut stage) = status_of(outcome);
    let mut error = outcome.error.clone();
    let mut result = None;
    if status == Status::Success {
        match read(outcome, is_command).and_then(|value| result::parse(&value, contract)) {
            Ok(found) => result = Some(found),
            Err(no_result) => {
                status = Status::Failed;
                stage = Stage::Result;
                error = Some(match no_result {
                    NoResult::NotOk(message) => {
                        stage = Stage::Agent;
                        ErrorReport::new("AgentFailed", message)
                    }
                    NoResult::Bad(message) => ErrorReport::new("BadResult", message),
                });
            }
        }
    }
    if status == Status::Cancelled {
        error = Some(ErrorReport::new("Cancelled", STOPPED)); // nobody else cancels a study's runs
    }
    Ended {
        status,
        verdict: Some(outcome.verdict.name()),
        stage,
        result,
        outcome: kept(outcome, error.as_ref()),
        stdout: outcome.stdout.text(),
        stderr: outcome.stderr.text(),
        finished_at_ns: finished_at(outcome),
        wall: outcome.metrics.wall_ns.map(Duration::from_nanos),
        is_final: false,
    }
}

/// An attempt of which the engine knows nothing.
pub(crate) fn lost(error: &EngineError, finished_at_ns: i64) -> Ended {
    let report = ErrorReport::new("EngineError", error.to_string());
    Ended {
        is_final: error.is_final(),
        ..without_outcome(Status::Lost, Stage::Engine, &report, finished_at_ns)
    }
}

/// An attempt that we stopped, of which nothing more is known.
pub(crate) fn stopped(finished_at_ns: i64) -> Ended {
    let report = ErrorReport::new("Cancelled", STOPPED);
    Ended {
        verdict: Some(Verdict::Cancelled.name()),
        ..without_outcome(Status::Cancelled, Stage::Agent, &report, finished_at_ns)
    }
}

/// An attempt that had not begun when the study was stopped.
pub(crate) fn skipped(finished_at_ns: i64) -> Ended {
    let said = "the study was stopped before it began";
    let report = ErrorReport::new("Cancelled", said);
    Ended {
        verdict: Some(Verdict::Cancelled.name()),
        ..without_outcome(Status::Skipped, Stage::Agent, &report, finished_at_ns)
    }
}

fn without_outcome(
    status: Status,
    stage: Stage,
    report: &ErrorReport,
    finished_at_ns: i64,
) -> Ended {
    Ended {
        status,
        verdict: None,
        stage,
        result: None,
        outcome: json!({"error": report.to_json()}).to_string(),
        stdout: String::new(),
        stderr: String::new(),
        finished_at_ns,
        wall: None,
        is_final: false,
    }
}

/// Judges an evaluator's outcome.
pub(crate) fn judge_evaluation(
    outcome: &Outcome,
    is_command: bool,
    contract: Contract,
) -> Evaluated {
    let (mut status, _) = status_of(outcome);
    let mut error = outcome.error.clone();
    let mut rows = Value::List(Vec::new());
    if status == Status::Success {
        let found = read(outcome, is_command)
            .map_err(|no_result| match no_result {
                NoResult::NotOk(message) | NoResult::Bad(message) => message,
            })
            .and_then(|value| evaluation::rows(&value, contract));
        match found {
            Ok(found) => rows = found,
            Err(message) => {
                status = Status::Failed;
                error = Some(ErrorReport::new("BadEvaluation", message));
            }
        }
    }
    Evaluated {
        status,
        rows,
        outcome: kept(outcome, error.as_ref()),
    }
}

fn status_of(outcome: &Outcome) -> (Status, Stage) {
    use Verdict::{
        BadResult, Cancelled, CpuLimit, DiskLimit, Exception, Exit, Forbidden, MemoryLimit,
        NoResult, Ok, OutputLimit, ProcessLimit, SetupFailed, Signal, Timeout,
    };
    let waited_in_vain = outcome
        .error
        .as_ref()
        .is_some_and(|error| error.kind == "QueueTimeout");
    let status = match outcome.verdict {
        Ok => Status::Success,
        Cancelled if waited_in_vain => return (Status::Failed, Stage::Queue),
        Cancelled => Status::Cancelled,
        Timeout | CpuLimit => Status::Timeout,
        MemoryLimit => Status::Memory,
        Signal | NoResult => Status::Crashed,
        SetupFailed => return (Status::Failed, Stage::Setup),
        OutputLimit | DiskLimit | ProcessLimit | Forbidden | Exit | Exception | BadResult => {
            Status::Failed
        }
    };
    (status, Stage::Agent)
}

/// The value that a call gave, as plain data.
fn read(outcome: &Outcome, is_command: bool) -> Result<Value, NoResult> {
    if is_command {
        return printed(outcome);
    }
    let Some(value) = &outcome.value else {
        return Err(NoResult::Bad("the engine has no value of it".into()));
    };
    let data = decode_tree(value.body.bytes(), MAX_VALUES)
        .map_err(|malformed| NoResult::Bad(format!("the result is not data: {malformed}")))?;
    result::plain(&data, "").map_err(NoResult::Bad)
}

/// The JSON object that a command printed: all it printed, or its last line that is not empty (ST-10).
fn printed(outcome: &Outcome) -> Result<Value, NoResult> {
    if outcome.stdout.dropped > 0 {
        let dropped = outcome.stdout.dropped;
        return Err(NoResult::Bad(format!(
            "its standard output is too long for a result: {dropped} bytes of it were not kept"
        )));
    }
    let text = outcome.stdout.text();
    if text.trim().is_empty() {
        return Err(NoResult::Bad(
            "it printed nothing: one JSON object is expected on standard output".into(),
        ));
    }
    let error = match parse_value("stdout", &text) {
        Ok(value @ Value::Map(_)) => return Ok(value),
        Ok(other) => format!("stdout is {}, not an object", other.kind()),
        Err(fault) => format!("stdout is no JSON: {fault}"),
    };
    let last = text.lines().rev().find(|line| !line.trim().is_empty());
    if let Some(Ok(value @ Value::Map(_))) = last.map(|line| parse_value("stdout", line)) {
        return Ok(value);
    }
    let shown: String = text.chars().take(SHOWN_BYTES).collect();
    Err(NoResult::Bad(format!("{error}; it begins with {shown:?}")))
}

/// What is kept of an outcome beside its value and output.
fn kept(outcome: &Outcome, error: Option<&ErrorReport>) -> String {
    let in_force = &outcome.in_force;
    json!({
        "error": error.map(ErrorReport::to_json),
        "exit": outcome.exit_json(),
        "dropped": {"stdout": outcome.stdout.dropped, "stderr": outcome.stderr.dropped},
        "metrics": outcome.metrics.to_json(),
        "in_force": {"level": in_force.effective.to_string(), "digest": in_force.digest()},
    })
    .to_string()
}

fn finished_at(outcome: &Outcome) -> i64 {
    let at = outcome.metrics.finished_at_ns.unwrap_or_default();
    i64::try_from(at).unwrap_or(i64::MAX)
}
