//! What is to be done with each run, by what a journal recorded (ST-66 to ST-71).

use std::collections::{HashMap, HashSet};

use crate::identity::{Aspect, Change};
use crate::journal::{History, JournalError, Past, Reader, Stage, Status};
use crate::plan::{Action, Decide, Decision, Plan, Reason, RunSpec, Survey};
use crate::ready::Ready;

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
    /// Changes that were accepted before, as decisions have them.
    accepted: HashMap<String, String>,
    /// Some of it came from DRE's checkpoints.
    has_imports: bool,
}

impl<'r> Recorded<'r> {
    /// By what a reader reads, of which the history is read already.
    pub fn new(
        history: &'r History,
        reader: &'r Reader,
        ready: &'r Ready,
        wishes: &'r Wishes,
    ) -> Result<Self, JournalError> {
        Ok(Self {
            history,
            reader,
            ready,
            wishes,
            accepted: reader.accepted()?.into_iter().collect(), // of several the last
            has_imports: reader.first_stage()? == Some(Stage::Imported),
        })
    }

    /// What became of a run, if it ever began.
    pub(crate) fn past(&self, run: &RunSpec<'_>) -> Option<&Past> {
        self.history.find(run.run_id.number())
    }

    fn look(&self, run: &RunSpec<'_>, past: Option<&Past>) -> Result<Decision, JournalError> {
        let decision = self.look_at_all(run, past)?;
        if self.wishes.only_retries && decision.reason != Reason::Retry {
            return Ok(Decision {
                action: Action::Reuse,
                reason: Reason::NotRetried,
            });
        }
        Ok(decision)
    }

    fn look_at_all(
        &self,
        run: &RunSpec<'_>,
        past: Option<&Past>,
    ) -> Result<Decision, JournalError> {
        let decision = |action, reason| Ok(Decision { action, reason });
        if let Some(rescore) = &self.wishes.rescore {
            return self.rescored(run, past, rescore);
        }
        let Some(past) = past else {
            return decision(Action::Run, Reason::New);
        };
        let Some((start, status)) = past.shown() else {
            return decision(Action::Run, Reason::Ended(past.last));
        };
        let Some(identity) = self.ready.identity(run) else {
            return decision(Action::Reuse, Reason::Finished);
        };
        if status == Status::Success && !past.is_same(identity.text()) {
            let row = self.reader.start(start)?;
            let (then, seed) = row.map_or((String::new(), 0), |row| (row.identity, row.seed));
            if let Some(change) = identity.difference(&then, run.seed.into(), seed) {
                return Ok(self.changed(run, change));
            }
        }
        if status != Status::Success && !past.last.is_its_own() {
            // It was being tried again, and was stopped: that is gone on with.
            return decision(Action::Run, Reason::Ended(past.last));
        }
        if status != Status::Success
            && self.is_chosen(run)
            && (self.wishes.retry.contains(&status) || self.is_setup(past)?)
        {
            return decision(Action::Rerun, Reason::Retry);
        }
        if status == Status::Success
            && let Some(reason) = self.evaluates(run, past)?
        {
            return decision(Action::Evaluate, reason);
        }
        if self.has_imports {
            let finish = self.reader.finish(start)?;
            if finish.is_some_and(|finish| finish.stage == Stage::Imported) {
                return decision(Action::Reuse, Reason::Imported);
            }
        }
        decision(Action::Reuse, Reason::Finished)
    }

    fn rescored(
        &self,
        run: &RunSpec<'_>,
        past: Option<&Past>,
        rescore: &Rescore,
    ) -> Result<Decision, JournalError> {
        let decision = |action, reason| Ok(Decision { action, reason });
        let is_meant = match &rescore.problem {
            Some(problem) => run.problem_id().to_str() == *problem,
            None => true,
        };
        let past = past.filter(|past| matches!(past.shown(), Some((_, Status::Success))));
        if let (Some(past), true) = (past, is_meant) {
            if let Some(reason) = self.evaluates(run, past)? {
                return decision(Action::Evaluate, reason);
            }
            if rescore.all && self.ready.problem(run).evaluator.is_some() {
                return decision(Action::Evaluate, Reason::Rescore);
            }
        }
        decision(Action::Reuse, Reason::NotRescored)
    }

    fn changed(&self, run: &RunSpec<'_>, change: Change) -> Decision {
        let wishes = self.wishes;
        let named = match change.aspect {
            Aspect::Agent => format!("agent:{}", run.agent_id().to_str()),
            Aspect::Problem => format!("problem:{}", run.problem_id().to_str()),
            other => other.name().to_owned(),
        };
        let accepted = Reason::Accepted(change.clone());
        let is_accepted = wishes.changed == Changed::Accept || wishes.accepted.contains(&named);
        if is_accepted || self.was_accepted(run, &accepted) {
            return Decision {
                action: Action::Reuse,
                reason: accepted,
            };
        }
        Decision {
            action: Action::Rerun,
            reason: Reason::Changed(change),
        }
    }

    /// Whether this very change of a run was accepted before.
    fn was_accepted(&self, run: &RunSpec<'_>, reason: &Reason) -> bool {
        let before = self.accepted.get(&run.run_id.to_string());
        before.is_some_and(|before| *before == reason.to_string())
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
        Ok(finish.is_some_and(|finish| finish.stage == Stage::Setup))
    }

    /// Why a success has to be evaluated, if it has.
    fn evaluates(&self, run: &RunSpec<'_>, past: &Past) -> Result<Option<Reason>, JournalError> {
        let (Some(evaluator), Some((start, _))) =
            (&self.ready.problem(run).evaluator, past.shown())
        else {
            return Ok(None);
        };
        Ok(match self.reader.evaluation(start)? {
            None => Some(Reason::NotEvaluated),
            Some(row) if row.evaluator_sha256 != evaluator.sha256 => Some(Reason::EvaluatorChanged),
            Some(row) if row.status != Status::Success => Some(Reason::EvaluationFailed),
            Some(_) => None,
        })
    }
}

impl Decide for Recorded<'_> {
    fn decide(&self, run: &RunSpec<'_>) -> Result<Decision, JournalError> {
        self.look(run, self.past(run))
    }

    fn survey(&self, plan: &Plan<'_>) -> Result<Survey, JournalError> {
        let unwell = self.reader.failed_evaluations()?;
        let mut survey = Survey::default();
        for run in plan.runs() {
            let past = self.past(&run);
            let decision = self.look(&run, past)?;
            survey.add(&decision);
            if let Some(past) = past {
                survey.ends.add(past, &unwell);
            }
            if matches!(decision.reason, Reason::Accepted(_))
                && !self.was_accepted(&run, &decision.reason)
            {
                survey.accepted.push((run.run_id, decision));
            }
        }
        survey.orphans = self.history.len() as u64 - survey.ends.begun();
        Ok(survey)
    }
}
