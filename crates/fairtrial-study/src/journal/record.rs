//! What a journal holds.

use std::fmt;
use std::str::FromStr;

/// The number of a start, by which its end is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StartId(pub i64);

/// How an attempt ended (ST-44).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Status {
    /// A valid result.
    Success,
    /// It raised, exited, broke a limit of files or output, or gave no valid result.
    Failed,
    /// It took too long.
    Timeout,
    /// It took too much memory.
    Memory,
    /// It died of a signal, or without a word.
    Crashed,
    /// It was stopped for another's sake.
    Cancelled,
    /// It began, and nobody knows how it ended.
    Lost,
    /// It had not begun when the study was stopped.
    Skipped,
}

impl Status {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Success,
        Self::Failed,
        Self::Timeout,
        Self::Memory,
        Self::Crashed,
        Self::Cancelled,
        Self::Lost,
        Self::Skipped,
    ];

    /// As tables have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Failed => "failed",
            Self::Timeout => "timeout",
            Self::Memory => "memory",
            Self::Crashed => "crashed",
            Self::Cancelled => "cancelled",
            Self::Lost => "lost",
            Self::Skipped => "skipped",
        }
    }

    /// As the evaluation of an output has it: its success is called `ok`.
    pub fn evaluation_name(self) -> &'static str {
        match self {
            Self::Success => "ok",
            other => other.name(),
        }
    }

    /// Of an evaluation, by [`Status::evaluation_name`].
    pub(super) fn of_evaluation(text: &str) -> Result<Self, String> {
        match text {
            "ok" => Ok(Self::Success),
            other => other.parse(),
        }
    }

    /// Whether the attempt ended of its own: only such ends count as attempts, and only they are shown.
    pub fn is_its_own(self) -> bool {
        !matches!(self, Self::Cancelled | Self::Lost | Self::Skipped)
    }

    /// Whether the policy on failures counts it (ST-51).
    pub fn is_failure(self) -> bool {
        self.is_its_own() && self != Self::Success
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Status {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|status| status.name() == text)
            .ok_or_else(|| format!("`{text}` is no status"))
    }
}

/// Where an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// It waited too long for its turn.
    Queue,
    /// Before the agent could begin.
    Setup,
    /// In the agent.
    Agent,
    /// The agent gave no valid result.
    Result,
    /// The engine failed.
    Engine,
    /// In another program, whose record was taken over.
    Imported,
}

impl Stage {
    const ALL: [Self; 6] = [
        Self::Queue,
        Self::Setup,
        Self::Agent,
        Self::Result,
        Self::Engine,
        Self::Imported,
    ];

    /// As tables have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Queue => "queue",
            Self::Setup => "setup",
            Self::Agent => "agent",
            Self::Result => "result",
            Self::Engine => "engine",
            Self::Imported => "imported",
        }
    }
}

impl FromStr for Stage {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|stage| stage.name() == text)
            .ok_or_else(|| format!("`{text}` is no stage"))
    }
}

/// One run of the command.
#[derive(Debug, Clone)]
pub struct Invocation {
    /// Its number.
    pub id: i64,
    /// When it began, in nanoseconds since 1970.
    pub started_at_ns: i64,
    /// Its process.
    pub pid: u32,
    /// On this machine.
    pub host: String,
    /// Its arguments, as a JSON list.
    pub argv: String,
    /// The study file.
    pub study_path: String,
    /// The SHA-256 of its bytes, which are a blob.
    pub study_blob: String,
    /// Of what can change a result (ST-29).
    pub study_sha256: String,
    /// Of the planned runs (SF-44).
    pub digest_runs: String,
    /// How many at once.
    pub workers: u32,
    /// Where.
    pub backend: String,
    /// In which order, as JSON.
    pub run_order: String,
}

/// An attempt begins.
#[derive(Debug, Clone)]
pub struct Start {
    /// Its number in the journal.
    pub id: StartId,
    /// Of this run.
    pub run_id: String,
    /// Which of the run's starts.
    pub seq: u32,
    /// 1 and those before that ended of their own.
    pub attempt: u32,
    /// By this invocation.
    pub invocation: i64,
    /// The run's place in the plan.
    pub plan_index: u64,
    /// The run's place in the run order.
    pub order_index: u64,
    /// Its seed.
    pub seed: u64,
    /// What it is (ST-65).
    pub identity: String,
    /// When, in nanoseconds since 1970.
    pub started_at_ns: i64,
}

/// An attempt ended.
#[derive(Debug, Clone)]
pub struct Finish {
    /// The start's number.
    pub id: StartId,
    /// Of this run.
    pub run_id: String,
    /// Which of the run's starts.
    pub seq: u32,
    /// How.
    pub status: Status,
    /// What the engine said, if there was a trial.
    pub verdict: Option<String>,
    /// Where.
    pub stage: Stage,
    /// When, in nanoseconds since 1970.
    pub finished_at_ns: i64,
    /// Error, exit, times and isolation, as JSON.
    pub outcome: String,
    /// What it gave, as JSON.
    pub result: Option<String>,
    /// What it wrote.
    pub stdout: String,
    /// What it wrote.
    pub stderr: String,
    /// Faults that did not fail it (ST-13), as a JSON list.
    pub warnings: String,
}

/// A run's output was evaluated.
#[derive(Debug, Clone)]
pub struct Evaluation {
    /// The start whose output it is.
    pub start: StartId,
    /// Of this run.
    pub run_id: String,
    /// Which of the run's starts.
    pub seq: u32,
    /// Which evaluation of this output.
    pub number: u32,
    /// By whom.
    pub evaluator_sha256: String,
    /// How: see [`Status::evaluation_name`].
    pub status: Status,
    /// The rows, as a JSON list.
    pub rows: String,
    /// Error, exit and times, as JSON.
    pub outcome: String,
}

/// What is done with a run, and why (ST-66).
#[derive(Debug, Clone)]
pub(crate) struct Decision {
    /// By this invocation.
    pub invocation: i64,
    /// With this run.
    pub run_id: String,
    /// `run`, `evaluate`, `rerun`, or `reuse` of what was accepted.
    pub action: &'static str,
    /// Why.
    pub reason: String,
}

/// One thing to be remembered.
#[derive(Debug, Clone)]
pub(crate) enum Record {
    /// The command began.
    Invocation(Invocation),
    /// The command ended.
    InvocationEnd {
        /// Which.
        id: i64,
        /// When.
        ended_at_ns: i64,
        /// Why.
        reason: &'static str,
    },
    /// Bytes under their SHA-256; those that are there are there.
    Blob {
        /// In hexadecimal.
        sha256: String,
        /// Themselves.
        bytes: Vec<u8>,
    },
    /// See [`Start`].
    Start(Start),
    /// See [`Finish`].
    Finish(Box<Finish>),
    /// See [`Evaluation`].
    Evaluation(Evaluation),
    /// See [`Decision`].
    Decision(Decision),
}
