//! What is to be done with each run, by what a journal recorded (ST-66 to ST-71).

use std::collections::{HashMap, HashSet};

use crate::import;
use crate::journal::{History, JournalError, Past, Reader, Status};
use crate::plan::{Action, Decide, Decision, Plan, RunSpec};
use crate::ready::Ready;

/// Why a failed run is run again.
pub(crate) const RETRY: &str = "retry requested";
/// How the reason of an accepted change begins.
const ACCEPTED: &str = "accepted: ";

/// What the user wants done with what is there.
#[derive(Clone, Debug, Default)]
pub struct Wishes {
    /// Statuses that are run again.
    pub retry: Vec<Status>,
    /// Nothing else is done.
    pub only_retries: bool,
    /// Only these runs are retried; all if there are none.
    pub retry_runs: HashSet<String>,
    /// Only runs of these conditions are retried; all if there are none.
    pub retry_conditions: HashSet<String>,
    /// What to do with successes whose study changed.
    pub changed: Changed,
    /// Outputs are evaluated again, and no agent is run.
    pub rescore: Option<Rescore>,
    /// Accepted changes: `agent:ID`, `problem:ID`, `terms`, `seed`.
    pub accepted: HashSet<String>,
}

/// Which outputs are evaluated again (ST-79).
#[derive(Clone, Debug, Default)]
pub struct Rescore {
    /// Only those of this problem.
    pub problem: Option<String>,
    /// Also those whose evaluation stands.
    pub all: bool,
}

/// What to do with successes whose study changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Changed {
    /// Refuse to go on.
    #[default]
    Refuse,
    /// Run them again.
    Rerun,
    /// Take them as they are.
    Accept,
}

/// Decides by a journal.
pub struct Recorded<'r> {
    history: &'r History,
    reader: &'r Reader,
    ready: &'r Ready,
    wishes: &'r Wishes,
    orphans: u64,
    /// Changes that were accepted before, as decisions have them.
    accepted: HashMap<String, String>,
    /// Some of it came from DRE's checkpoints.
    has_imports: bool,
}

impl<'r> Recorded<'r> {
    /// Reads what is recorded of the plan's runs.
    pub fn new(
        plan: &Plan<'_>,
        history: &'r History,
        reader: &'r Reader,
        ready: &'r Ready,
        wishes: &'r Wishes,
    ) -> Result<Self, JournalError> {
        let planned = plan
            .runs()
            .filter(|run| history.find(run.run_id.number()).is_some())
            .count();
        Ok(Self {
            history,
            reader,
            ready,
            wishes,
            orphans: (history.len() - planned) as u64,
            accepted: reader.accepted()?.into_iter().collect(), // of several the last
            has_imports: reader.first_stage()?.as_deref() == Some(import::STAGE),
        })
    }

    /// Whether a decision is an acceptance that is not recorded yet.
    pub(crate) fn is_newly_accepted(&self, run: &RunSpec<'_>, decision: &Decision) -> bool {
        decision.reason.starts_with(ACCEPTED)
            && self.accepted.get(&run.run_id.to_string()) != Some(&decision.reason)
    }

    /// What became of a run, if it ever began.
    pub(crate) fn past(&self, run: &RunSpec<'_>) -> Option<&Past> {
        self.history.find(run.run_id.number())
    }

    /// As [`Decide::decide`], and why it could not be.
    pub fn look(&self, run: &RunSpec<'_>) -> Result<Decision, JournalError> {
        let decision = self.look_at(run)?;
        if self.wishes.only_retries && decision.reason != RETRY {
            return Ok(Decision {
                action: Action::Reuse,
                reason: "not retried".into(),
            });
        }
        Ok(decision)
    }

    fn look_at(&self, run: &RunSpec<'_>) -> Result<Decision, JournalError> {
        let decision = |action, reason: &str| Decision {
            action,
            reason: reason.to_owned(),
        };
        if let Some(rescore) = &self.wishes.rescore {
            return self.rescored(run, rescore);
        }
        let Some(past) = self.history.find(run.run_id.number()) else {
            return Ok(decision(Action::Run, "new"));
        };
        let Some((start, status)) = past.shown() else {
            return Ok(decision(Action::Run, past.last.name()));
        };
        let Some(identity) = self.ready.identity(run) else {
            return Ok(decision(Action::Reuse, "finished"));
        };
        if status == Status::Success && !past.is_same(identity.text()) {
            let row = self.reader.start(start)?;
            let (then, seed) = row.map_or((String::new(), 0), |row| (row.identity, row.seed));
            if let Some(difference) = identity.difference(&then, run.seed.into(), seed) {
                return Ok(self.changed(run, difference));
            }
        }
        if status != Status::Success && !past.last.is_its_own() {
            // It was being tried again, and was stopped: that is gone on with.
            return Ok(decision(Action::Run, past.last.name()));
        }
        if status != Status::Success
            && self.is_chosen(run)
            && (self.wishes.retry.contains(&status) || self.is_setup(past)?)
        {
            return Ok(decision(Action::Rerun, RETRY));
        }
        if status == Status::Success
            && let Some(reason) = self.evaluates(run, past)?
        {
            return Ok(decision(Action::Evaluate, reason));
        }
        if self.has_imports {
            let finish = self.reader.finish(start)?;
            if finish.is_some_and(|finish| finish.stage == import::STAGE) {
                return Ok(decision(Action::Reuse, import::STAGE));
            }
        }
        Ok(decision(Action::Reuse, "finished"))
    }

    fn rescored(&self, run: &RunSpec<'_>, rescore: &Rescore) -> Result<Decision, JournalError> {
        let decision = |action, reason: &str| Decision {
            action,
            reason: reason.to_owned(),
        };
        let is_meant = match &rescore.problem {
            Some(problem) => run.problem_id().to_str() == *problem,
            None => true,
        };
        let past = self.history.find(run.run_id.number());
        let past = past.filter(|past| matches!(past.shown(), Some((_, Status::Success))));
        if let (Some(past), true) = (past, is_meant) {
            if let Some(reason) = self.evaluates(run, past)? {
                return Ok(decision(Action::Evaluate, reason));
            }
            if rescore.all && self.ready.problem(run).evaluator.is_some() {
                return Ok(decision(Action::Evaluate, "rescore requested"));
            }
        }
        Ok(decision(Action::Reuse, "not rescored"))
    }

    fn changed(&self, run: &RunSpec<'_>, difference: String) -> Decision {
        let wishes = self.wishes;
        let what = difference.split(' ').next().unwrap_or_default();
        let named = match what {
            "agent" => format!("agent:{}", run.agent_id().to_str()),
            "problem" => format!("problem:{}", run.problem_id().to_str()),
            other => other.to_owned(),
        };
        let reason = format!("{ACCEPTED}{difference}");
        let was_accepted = self.accepted.get(&run.run_id.to_string()) == Some(&reason);
        if was_accepted || wishes.changed == Changed::Accept || wishes.accepted.contains(&named) {
            return Decision {
                action: Action::Reuse,
                reason,
            };
        }
        Decision {
            action: Action::Rerun,
            reason: difference,
        }
    }

    /// Whether it is among the runs that are to be retried, if somebody names them.
    fn is_chosen(&self, run: &RunSpec<'_>) -> bool {
        let wishes = self.wishes;
        let is_among = |chosen: &HashSet<String>, id: &dyn std::fmt::Display| {
            chosen.is_empty() || chosen.contains(&id.to_string())
        };
        is_among(&wishes.retry_runs, &run.run_id)
            && is_among(&wishes.retry_conditions, &run.condition.id())
    }

    /// What failed before the agent could begin is always run again (ST-68).
    fn is_setup(&self, past: &Past) -> Result<bool, JournalError> {
        let Some((start, _)) = past.shown() else {
            return Ok(false);
        };
        let finish = self.reader.finish(start)?;
        Ok(finish.is_some_and(|finish| finish.stage == "setup"))
    }

    /// Why a success has to be evaluated, if it has.
    fn evaluates(
        &self,
        run: &RunSpec<'_>,
        past: &Past,
    ) -> Result<Option<&'static str>, JournalError> {
        let (Some(evaluator), Some((start, _))) =
            (&self.ready.problem(run).evaluator, past.shown())
        else {
            return Ok(None);
        };
        Ok(match self.reader.evaluation(start)? {
            None => Some("not evaluated"),
            Some(row) if row.evaluator_sha256 != evaluator.sha256 => Some("evaluator changed"),
            Some(row) if row.status != "ok" => Some("evaluation failed"),
            Some(_) => None,
        })
    }
}

impl Decide for Recorded<'_> {
    fn decide(&self, run: &RunSpec<'_>) -> Decision {
        self.look(run).unwrap_or_else(|error| Decision {
            action: Action::Run,
            reason: format!("its record cannot be read: {error}"),
        })
    }

    fn orphans(&self) -> u64 {
        self.orphans
    }
}
