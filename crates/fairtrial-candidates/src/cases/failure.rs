//! Why a candidate is not correct, or not known to be (CA-54).

use std::fmt;

use serde::{Deserialize, Serialize};

use super::case::Results;
use super::compare::{Comparison, Diff};
use super::end::CallEnd;
use super::text::last_lines;
use crate::stage::Rejection;

/// What kind of failure it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// Its change cannot be made.
    ApplyFailed,
    /// It changes nothing.
    NoOp,
    /// It touches what it may not.
    ProtectedPath,
    /// It does not build.
    BuildFailed,
    /// It takes too long.
    Timeout,
    /// Its process ended before its work did.
    Crash,
    /// It wants more than it may have.
    Limit,
    /// It gave no results.
    NoResults,
    /// It does something else than the base.
    Mismatch,
    /// It wrote a protected path while it ran.
    Tampered,
    /// Its benchmark fails.
    BenchFailed,
    /// The engine, the machine or the judge failed; nothing is known of the candidate.
    Infra,
    /// It was not run.
    NotRun,
}

impl FailureKind {
    /// Every kind.
    pub const ALL: [Self; 13] = [
        Self::ApplyFailed,
        Self::NoOp,
        Self::ProtectedPath,
        Self::BuildFailed,
        Self::Timeout,
        Self::Crash,
        Self::Limit,
        Self::NoResults,
        Self::Mismatch,
        Self::Tampered,
        Self::BenchFailed,
        Self::Infra,
        Self::NotRun,
    ];

    /// The name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ApplyFailed => "apply_failed",
            Self::NoOp => "no_op",
            Self::ProtectedPath => "protected_path",
            Self::BuildFailed => "build_failed",
            Self::Timeout => "timeout",
            Self::Crash => "crash",
            Self::Limit => "limit",
            Self::NoResults => "no_results",
            Self::Mismatch => "mismatch",
            Self::Tampered => "tampered",
            Self::BenchFailed => "bench_failed",
            Self::Infra => "infra",
            Self::NotRun => "not_run",
        }
    }
}

impl fmt::Display for FailureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A failed candidate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// What kind of failure.
    pub kind: FailureKind,
    /// What happened, in a sentence.
    pub message: String,
    /// The first differences.
    #[serde(default)]
    pub diffs: Vec<Diff>,
    /// How many there are.
    #[serde(default)]
    pub diffs_total: usize,
    /// The call that showed it.
    #[serde(default)]
    pub outcome: Option<CallSummary>,
    /// Whether trying again may help: an engine error, not a set-up that cannot be had (CA-56).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub retry: bool,
}

/// A call in a few lines.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallSummary {
    /// The test command, by name; or `build`, or a bench command's.
    pub of: String,
    /// How it ended.
    #[serde(flatten)]
    pub end: CallEnd,
    /// The last lines of its standard output.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub stdout: String,
    /// The last lines of its standard error.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub stderr: String,
}

impl CallSummary {
    /// Of the call that gave these results.
    #[must_use]
    pub fn of(results: &Results) -> Self {
        Self {
            of: results.test.clone(),
            end: results.end.clone(),
            stdout: last_lines(&results.stdout.text),
            stderr: last_lines(&results.stderr.text),
        }
    }
}

impl Failure {
    /// A failure of which no more is to be said.
    #[must_use]
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            diffs: Vec::new(),
            diffs_total: 0,
            outcome: None,
            retry: false,
        }
    }

    /// The engine could not do its work: `infra`, and worth another try.
    #[must_use]
    pub fn of_engine(error: &(dyn std::error::Error + 'static)) -> Self {
        let chain = std::iter::successors(Some(error), |error| error.source());
        let message: Vec<_> = chain.map(ToString::to_string).collect();
        Self {
            retry: true,
            ..Self::new(FailureKind::Infra, message.join(": "))
        }
    }

    /// This failure, shown by a call.
    #[must_use]
    pub fn shown_by(mut self, call: CallSummary) -> Self {
        self.outcome = Some(call);
        self
    }

    /// This failure, with what comparing found.
    #[must_use]
    pub(super) fn with(mut self, comparison: &Comparison) -> Self {
        self.diffs.clone_from(&comparison.diffs);
        self.diffs_total = comparison.diffs_total;
        self
    }
}

impl From<&Rejection> for Failure {
    fn from(rejection: &Rejection) -> Self {
        let kind = match rejection {
            Rejection::ApplyFailed(_) => FailureKind::ApplyFailed,
            Rejection::NoOp => FailureKind::NoOp,
            Rejection::ProtectedPath { .. } => FailureKind::ProtectedPath,
        };
        Self::new(kind, rejection.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CA-54
    #[test]
    fn kinds_have_the_names_of_the_contract() {
        let names = FailureKind::ALL.map(FailureKind::name).join(" ");
        assert_eq!(
            names,
            "apply_failed no_op protected_path build_failed timeout crash limit no_results mismatch tampered \
             bench_failed infra not_run"
        );
        for kind in FailureKind::ALL {
            let text = serde_json::to_string(&kind).expect("JSON");
            assert_eq!(text, format!("\"{kind}\""));
            assert_eq!(
                serde_json::from_str::<FailureKind>(&text).expect("read"),
                kind
            );
        }
    }

    /// CA-54
    #[test]
    fn a_rejection_is_a_failure_of_its_kind() {
        let failure = Failure::from(&Rejection::NoOp);
        assert_eq!(failure.kind.name(), Rejection::NoOp.kind());
        assert_eq!(failure.message, "changes nothing");
    }

    /// CA-56
    #[test]
    fn engine_errors_are_infra_and_tried_again() {
        let error = std::io::Error::other("no space left");
        let failure = Failure::of_engine(&error);
        assert_eq!((failure.kind, failure.retry), (FailureKind::Infra, true));
        assert_eq!(failure.message, "no space left");
        let text = serde_json::to_string(&failure).expect("JSON");
        assert!(text.contains(r#""retry":true"#));
        assert_eq!(
            serde_json::from_str::<Failure>(&text).expect("read"),
            failure
        );
    }
}
