//! A difference, as reports and proposers are told of it.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::super::case::CaseStatus;

/// Where base and candidate differ.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Diff {
    /// The test command, by name.
    pub test: String,
    /// The case's id.
    pub case: String,
    /// In what.
    pub scope: Scope,
    /// Where in a recorded value: its name, and behind it as one would write it in Python.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// What the base has; none where that is nothing.
    pub base: Option<String>,
    /// What the candidate has.
    pub candidate: Option<String>,
    /// What became of the case in the base.
    pub base_status: Option<CaseStatus>,
    /// What became of it now.
    pub candidate_status: Option<CaseStatus>,
    /// What the base says went wrong: the last 40 lines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_error: Option<String>,
    /// What the candidate says went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub candidate_error: Option<String>,
    /// The test's text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
}

/// In what base and candidate differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// What became of the case.
    Status,
    /// The candidate did not run it.
    Missing,
    /// A recorded value.
    Value,
    /// Standard output.
    Stdout,
}

impl fmt::Display for Diff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let status =
            |status: Option<CaseStatus>| status.map_or("absent".to_owned(), |s| s.to_string());
        let (base, candidate) = (status(self.base_status), status(self.candidate_status));
        match self.scope {
            Scope::Status => write!(f, "`{}` was {base} and is {candidate}", self.case),
            Scope::Missing => write!(f, "`{}` was not run", self.case),
            Scope::Value => write!(
                f,
                "`{}` recorded another `{}`",
                self.case,
                self.place.as_deref().unwrap_or_default()
            ),
            Scope::Stdout => write!(f, "`{}` wrote another output", self.case),
        }
    }
}
