//! What is to be done with each run, and why. The one place where a journal has its say.

use std::collections::BTreeMap;

use super::{Plan, RunSpec};

/// What is to be done with a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// An action and its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// What.
    pub action: Action,
    /// Why.
    pub reason: String,
}

/// How many runs have which action.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ActionCounts {
    /// To be run.
    pub run: u64,
    /// Reused.
    pub reuse: u64,
    /// To be evaluated again.
    pub evaluate: u64,
    /// To be run again.
    pub rerun: u64,
    /// Recorded, but no longer planned.
    pub orphans: u64,
}

/// Decides what is to be done with runs: without a journal by [`Fresh`], with one by what it recorded.
pub trait Decide {
    /// What is to be done with a run.
    fn decide(&self, run: &RunSpec<'_>) -> Decision;

    /// Recorded runs that are no longer planned.
    fn orphans(&self) -> u64;

    /// How many of all runs have which action, and why; of a change not from what to what.
    fn reasons(&self, plan: &Plan<'_>) -> BTreeMap<(&'static str, String), u64> {
        let mut found = BTreeMap::new();
        for run in plan.runs() {
            let Decision { action, reason } = self.decide(&run);
            let short = reason.split(" (").next().unwrap_or_default().to_owned();
            *found.entry((action.name(), short)).or_default() += 1;
        }
        found
    }

    /// Of all runs.
    fn counts(&self, plan: &Plan<'_>) -> ActionCounts {
        let mut counts = ActionCounts {
            orphans: self.orphans(),
            ..ActionCounts::default()
        };
        for run in plan.runs() {
            match self.decide(&run).action {
                Action::Run => counts.run += 1,
                Action::Reuse => counts.reuse += 1,
                Action::Evaluate => counts.evaluate += 1,
                Action::Rerun => counts.rerun += 1,
            }
        }
        counts
    }
}

/// Nothing was recorded: every run is new.
#[derive(Clone, Copy, Debug)]
pub struct Fresh;

impl Decide for Fresh {
    fn decide(&self, _run: &RunSpec<'_>) -> Decision {
        Decision {
            action: Action::Run,
            reason: "new".into(),
        }
    }

    fn orphans(&self) -> u64 {
        0
    }

    fn reasons(&self, plan: &Plan<'_>) -> BTreeMap<(&'static str, String), u64> {
        BTreeMap::from([((Action::Run.name(), "new".to_owned()), plan.len())])
    }

    fn counts(&self, plan: &Plan<'_>) -> ActionCounts {
        ActionCounts {
            run: plan.len(),
            ..ActionCounts::default()
        }
    }
}
