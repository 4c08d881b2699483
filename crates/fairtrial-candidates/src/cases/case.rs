//! Cases and what became of them.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::end::CallEnd;
use super::output::Output;
use super::recorded::Recorded;

/// What became of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CaseStatus {
    /// It held.
    Passed,
    /// It did not hold.
    Failed,
    /// It could not be tried, or not be left: set-up, teardown, collection.
    Error,
    /// It was not tried.
    Skipped,
    /// It failed, as it was expected to.
    Xfailed,
    /// It held against expectation.
    Xpassed,
    /// It took too long.
    TimedOut,
    /// Its process ended with it.
    Crashed,
}

impl CaseStatus {
    /// Whether the case held.
    #[must_use]
    pub fn is_passing(self) -> bool {
        matches!(self, Self::Passed | Self::Xpassed)
    }

    /// Whether the case did not hold. What was skipped did neither.
    #[must_use]
    pub fn is_failing(self) -> bool {
        !self.is_passing() && self != Self::Skipped
    }
}

impl fmt::Display for CaseStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::Error => "error",
            Self::Skipped => "skipped",
            Self::Xfailed => "xfailed",
            Self::Xpassed => "xpassed",
            Self::TimedOut => "timed_out",
            Self::Crashed => "crashed",
        })
    }
}

/// What is known of a case in one run (CA-46).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CaseResult {
    /// What became of it.
    pub status: CaseStatus,
    /// How long it took, by its own word where `trust` is in-process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_s: Option<f64>,
    /// What it wrote to standard output, as far as that can be told from the output of others.
    #[serde(default, skip_serializing_if = "Output::is_empty")]
    pub output: Output,
    /// What went wrong: the last 40 lines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What it recorded, in order; a name may come again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<(String, Recorded)>,
    /// Where its source is in the list of its results.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<usize>,
}

impl CaseResult {
    /// A case of which no more is known.
    #[must_use]
    pub fn new(status: CaseStatus) -> Self {
        Self {
            status,
            duration_s: None,
            output: Output::default(),
            error: None,
            values: Vec::new(),
            source: None,
        }
    }
}

/// Who says what became of the cases (CA-59).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Trust {
    /// The process that ran them, which could have lied.
    InProcess,
    /// A judge that the candidate could not reach.
    Judge,
}

/// The cases of one test command in one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// The test command, by name.
    pub test: String,
    /// Who says so.
    pub trust: Trust,
    /// How the command ended.
    pub end: CallEnd,
    /// Each case by its id, unique within the command.
    pub cases: BTreeMap<String, CaseResult>,
    /// Why there are no cases, or fewer than there should be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<ResultsFault>,
    /// The texts of tests, each once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<String>,
    /// What the command wrote to standard output.
    #[serde(default, skip_serializing_if = "Output::is_empty")]
    pub stdout: Output,
    /// What the command wrote to standard error.
    #[serde(default, skip_serializing_if = "Output::is_empty")]
    pub stderr: Output,
}

impl Results {
    /// The test's text, where it is known.
    pub(super) fn source_of(&self, case: &CaseResult) -> Option<&str> {
        self.sources.get(case.source?).map(String::as_str)
    }
}

/// What is wrong with the results of a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResultsFault {
    /// There are none, and why.
    NoResults(String),
    /// The process ended before its cases did; these were running.
    EndedEarly(Vec<String>),
}

/// A case of an evaluation. Two commands may have cases of equal ids.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CaseKey {
    /// The test command, by name.
    pub test: String,
    /// The case's id.
    pub case: String,
}

impl fmt::Display for CaseKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of `{}`", self.case, self.test)
    }
}
