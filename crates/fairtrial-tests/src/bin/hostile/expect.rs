//! What a trial is expected to end as, and what is known of how it did.

use fairtrial_exec::Verdict;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

/// How a trial should end at one level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    /// Nothing is promised, and nothing is run.
    NotClaimed,
    /// This verdict.
    Verdict(Verdict),
    /// One of these.
    OneOf(&'static [Verdict]),
    /// `ok`, and every attempt in the program's list was refused.
    Denied,
    /// No outcome, but this error of the engine's.
    EngineError(&'static str),
    /// A story that has looked for itself.
    Held,
}

/// What the engine's host saw.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Got {
    pub(crate) answer: Answer,
    /// The call beside it, and the one after it; none where a story has none.
    pub(crate) sibling: Option<String>,
    pub(crate) next: Option<String>,
    /// Processes of the program a second after the outcome, and ports that nobody held before.
    pub(crate) left: Vec<String>,
    /// What a story found wrong.
    pub(crate) problems: Vec<String>,
    pub(crate) seconds: f64,
}

/// How the call ended.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// A story's several calls, or nothing came.
    #[default]
    None,
    /// The contract's JSON.
    Outcome(Json),
    /// The engine could not do its work.
    Error { kind: String, message: String },
}

/// All that is known of a trial.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) got: Option<Got>,
    /// How the engine's host ended, if not as it should, and what it said.
    pub(crate) host: Option<String>,
    /// SB-73: what is not as it was.
    pub(crate) changes: Vec<String>,
    /// Why it could not be tried.
    pub(crate) skipped: Option<String>,
}

/// The judgement on a trial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Judgement {
    Held,
    Failed(Vec<String>),
    /// SB-74: never passed.
    Skipped(String),
    /// Failed for a reason that the table names.
    Known(&'static str, Vec<String>),
}

/// As the table says it.
impl std::fmt::Display for Expected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = match self {
            Self::NotClaimed => "-".into(),
            Self::Verdict(verdict) => verdict.name().into(),
            Self::OneOf(verdicts) => verdicts
                .iter()
                .map(|verdict| verdict.name())
                .collect::<Vec<_>>()
                .join(" or "),
            Self::Denied => "denied".into(),
            Self::EngineError(kind) => format!("error {kind}"),
            Self::Held => "held".into(),
        };
        f.pad(&text)
    }
}
