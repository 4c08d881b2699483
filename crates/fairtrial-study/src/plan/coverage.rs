//! How much of what is possible was planned, per condition, agent and problem.

use std::collections::HashMap;

use super::walk::{Chosen, Step, Walk};
use super::{Plan, Selection};
use crate::value::Value;

/// How much of what is possible was planned. Agents and problems are empty when standalone.
#[derive(Debug, Default)]
pub struct Coverage {
    /// Of each condition, in design order; an inadmissible one can have no runs.
    pub conditions: Vec<Share>,
    /// Of each agent, first seen first.
    pub agents: Vec<(Value, Share)>,
    /// Of each problem, first seen first.
    pub problems: Vec<(Value, Share)>,
    agent_places: Places,
    problem_places: Places,
    is_standalone: bool,
}

/// Planned of possible runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// Runs in the plan.
    pub planned: u64,
    /// Runs without `max_runs`.
    pub possible: u64,
}

/// Where an actor is counted: by its place in the study's list, or by its canonical text.
#[derive(Debug, Default)]
struct Places {
    listed: Vec<Option<usize>>,
    own: HashMap<String, usize>,
}

impl Places {
    fn of(&mut self, actor: &Chosen<'_>, shares: &mut Vec<(Value, Share)>) -> usize {
        if let Chosen::Listed(at, _) = actor
            && let Some(Some(place)) = self.listed.get(*at)
        {
            return *place;
        }
        let found = actor.actor();
        let place = *self.own.entry(found.json.clone()).or_insert_with(|| {
            shares.push((found.id.clone(), Share::default()));
            shares.len() - 1
        });
        if let Chosen::Listed(at, _) = actor {
            self.listed.resize(self.listed.len().max(at + 1), None);
            self.listed[*at] = Some(place);
        }
        place
    }
}

impl Coverage {
    /// Counts what is possible; nothing is planned yet.
    pub(super) fn begin(plan: &Plan<'_>) -> Self {
        let mut coverage = Self {
            conditions: vec![Share::default(); plan.design.len()],
            is_standalone: plan.is_standalone,
            ..Self::default()
        };
        if !matches!(plan.selection, Selection::All) {
            let all = Walk::new(&plan.design, &plan.cast, plan.study.budget.replicates);
            for step in all {
                coverage.add(
                    &step,
                    Share {
                        planned: 0,
                        possible: 1,
                    },
                );
            }
        }
        coverage
    }

    /// Counts a planned run. Where nothing was cut, it is what is possible, too.
    pub(super) fn count(&mut self, step: &Step<'_>) {
        let condition = &self.conditions[step.condition.index()];
        let possible = u64::from(condition.possible == condition.planned);
        self.add(
            step,
            Share {
                planned: 1,
                possible,
            },
        );
    }

    fn add(&mut self, step: &Step<'_>, share: Share) {
        bump(&mut self.conditions[step.condition.index()], share);
        if self.is_standalone {
            return;
        }
        let agent = self.agent_places.of(&step.agent, &mut self.agents);
        bump(&mut self.agents[agent].1, share);
        let problem = self.problem_places.of(&step.problem, &mut self.problems);
        bump(&mut self.problems[problem].1, share);
    }
}

fn bump(share: &mut Share, by: Share) {
    share.planned += by.planned;
    share.possible += by.possible;
}
