//! What is to be done with each run, and why. The one place where a journal has its say.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use super::{Plan, RunId, RunSpec};
use crate::ends::Ends;
use crate::identity::Change;
use crate::journal::{JournalError, Status};

/// What is to be done with a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    /// It has not run.
    Run,
    /// Its record stands.
    Reuse,
    /// Its output stands, its evaluation does not.
    Evaluate,
    /// Its record no longer stands.
    Rerun,
}

impl Action {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Run, Self::Reuse, Self::Evaluate, Self::Rerun];

    /// As users read it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Reuse => "reuse",
            Self::Evaluate => "evaluate",
            Self::Rerun => "rerun",
        }
    }
}

/// Why something is to be done with a run (ST-66).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Nothing is known of it.
    New,
    /// Its last start came to no end of its own.
    Ended(Status),
    /// It came to an end of its own.
    Finished,
    /// It came from DRE's checkpoints.
    Imported,
    /// It is not what it was, and the user takes it for the same.
    Accepted(Change),
    /// It is not what it was.
    Changed(Change),
    /// The user wants it run again.
    Retry,
    /// The user wants others run again, and nothing else.
    NotRetried,
    /// Its output was never evaluated.
    NotEvaluated,
    /// Its output was evaluated by another evaluator.
    EvaluatorChanged,
    /// Its evaluation did not go well.
    EvaluationFailed,
    /// The user wants it evaluated again.
    Rescore,
    /// The user wants others evaluated again, and nothing else.
    NotRescored,
}

impl Reason {
    /// Without from what to what: few, however many runs there are.
    #[must_use]
    pub fn kind(&self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Self::New => "new",
            Self::Ended(status) => status.name(),
            Self::Finished => "finished",
            Self::Imported => "imported",
            Self::Accepted(change) => return format!("accepted: {}", change.aspect).into(),
            Self::Changed(change) => return change.aspect.to_string().into(),
            Self::Retry => "retry requested",
            Self::NotRetried => "not retried",
            Self::NotEvaluated => "not evaluated",
            Self::EvaluatorChanged => "evaluator changed",
            Self::EvaluationFailed => "evaluation failed",
            Self::Rescore => "rescore requested",
            Self::NotRescored => "not rescored",
        })
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Accepted(change) => write!(f, "accepted: {change}"),
            Self::Changed(change) => change.fmt(f),
            other => f.write_str(&other.kind()),
        }
    }
}

/// An action and its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// What.
    pub action: Action,
    /// Why.
    pub reason: Reason,
}

/// What is to be done with all runs of a plan, and what became of them: found in one walk, since a walk takes its time.
#[derive(Debug, Default)]
pub struct Survey {
    /// How many runs have which action, and why: see [`Reason::kind`].
    pub reasons: BTreeMap<(Action, Cow<'static, str>), u64>,
    /// Recorded, but no longer planned.
    pub orphans: u64,
    /// What is accepted and not recorded yet.
    pub(crate) accepted: Vec<(RunId, Decision)>,
    /// Of those that ever began.
    pub(crate) ends: Ends,
}

impl Survey {
    /// How many runs have an action.
    #[must_use]
    pub fn count(&self, action: Action) -> u64 {
        let of_it = self.reasons.iter().filter(|((of, _), _)| *of == action);
        of_it.map(|(_, count)| count).sum()
    }

    /// How many runs do not simply stand as they are recorded.
    #[must_use]
    pub fn to_do(&self) -> u64 {
        let to_do = Action::ALL.into_iter();
        let to_do = to_do.filter(|action| *action != Action::Reuse);
        to_do.map(|action| self.count(action)).sum()
    }

    pub(crate) fn add(&mut self, decision: &Decision) {
        let key = (decision.action, decision.reason.kind());
        *self.reasons.entry(key).or_default() += 1;
    }
}

/// Decides what is to be done with runs: without a journal by [`Fresh`], with one by what it recorded.
pub trait Decide {
    /// What is to be done with a run; an error where its record cannot be read.
    fn decide(&self, run: &RunSpec<'_>) -> Result<Decision, JournalError>;

    /// What is to be done with all runs.
    fn survey(&self, plan: &Plan<'_>) -> Result<Survey, JournalError>;
}

/// Nothing was recorded: every run is new.
#[derive(Clone, Copy, Debug)]
pub struct Fresh;

impl Decide for Fresh {
    fn decide(&self, _run: &RunSpec<'_>) -> Result<Decision, JournalError> {
        Ok(Decision {
            action: Action::Run,
            reason: Reason::New,
        })
    }

    fn survey(&self, plan: &Plan<'_>) -> Result<Survey, JournalError> {
        Ok(Survey {
            reasons: BTreeMap::from([((Action::Run, Reason::New.kind()), plan.len())]),
            ..Survey::default()
        })
    }
}
