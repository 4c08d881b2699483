//! The one pass over a study's runs from which everything in a report comes.

use std::collections::BTreeMap;

use crate::html::cut;
use crate::journal::{JournalError, Past, Status};
use crate::json_text::parse_value;
use crate::plan::{Plan, RunSpec};
use crate::report::arms::Arms;
use crate::report::cross::Cross;
use crate::report::failures::Failures;
use crate::report::groups::Groups;
use crate::report::outcome::{Outcome, outcomes};
use crate::report::registered::Register;
use crate::report::timeline::Timeline;
use crate::run_record::RunRecord;
use crate::standing::named;
use crate::tables::Export;
use crate::value::Value;

/// Items of a list that is shown in full up to here.
pub(crate) const MOST_LISTED: usize = 100;

/// What a report is made of.
pub(crate) struct Gathered {
    pub(crate) outcomes: Vec<Outcome>,
    /// Of each outcome, whether every value of it is 0 or 1.
    pub(crate) binary: Vec<bool>,
    pub(crate) register: Register,
    /// Of each contrast.
    pub(crate) arms: Vec<Arms>,
    /// By condition, agent, problem.
    pub(crate) groups: [Groups; 3],
    /// By condition and agent.
    pub(crate) cross: Option<Cross>,
    pub(crate) failures: Failures,
    /// Of evaluations.
    pub(crate) unevaluated: Failures,
    pub(crate) timeline: Timeline,
    pub(crate) statuses: BTreeMap<&'static str, u64>,
    /// Level and digest of the isolation in force, with counts.
    pub(crate) isolation: BTreeMap<(String, String), u64>,
    /// Nodes, with counts.
    pub(crate) nodes: BTreeMap<String, u64>,
    /// Runs of more than one attempt: id, attempts, status.
    pub(crate) retried: Vec<(String, u32, Status)>,
    pub(crate) retried_runs: u64,
    /// Successes after an attempt that failed.
    pub(crate) retried_successes: u64,
    /// Faults in results that failed no run, with counts.
    pub(crate) warnings: BTreeMap<String, u64>,
}

impl Gathered {
    pub(crate) fn read(export: &Export<'_>) -> Result<Self, JournalError> {
        let plan = export.plan;
        let mut gathered = Self::planned(plan);
        for invocation in export.reader.invocations()? {
            gathered
                .timeline
                .invocation(invocation.begun.id, invocation.begun.started_at_ns);
        }
        let mut values = Vec::new();
        export.records(|run, record| {
            values.clear();
            let found = gathered
                .outcomes
                .iter()
                .map(|outcome| outcome.of(export, run, record));
            values.extend(found);
            gathered.add(plan, run, record, &values);
            let past = export.history.find(run.run_id.number());
            let is_retried = past.is_some_and(Past::is_retried_success);
            gathered.retried_successes += u64::from(is_retried);
            Ok::<(), JournalError>(())
        })?;
        for groups in &mut gathered.groups {
            groups.finish(&gathered.outcomes, &gathered.binary);
        }
        Ok(gathered)
    }

    /// Everything that the plan says, before any result.
    fn planned(plan: &Plan<'_>) -> Self {
        let mut outcomes = outcomes(&plan.study.normalised);
        let register = Register::of(&plan.study, &outcomes);
        if outcomes.is_empty() {
            outcomes = vec![
                Outcome::unregistered("primary_outcome", "what the evaluator gave, else the agent"),
                Outcome::unregistered("latency_s", "seconds that the agent took"),
            ];
        }
        let compared = |contrast: usize| -> Vec<usize> {
            let tests = register
                .tests
                .iter()
                .filter_map(|test| test.compares.as_ref().ok());
            let mut found: Vec<usize> = tests
                .filter(|compares| compares.contrast == contrast)
                .map(|compares| compares.outcome)
                .collect();
            found.sort_unstable();
            found.dedup();
            found
        };
        let contrasts = register.contrasts.iter().enumerate();
        let arms = contrasts.map(|(place, contrast)| Arms::of(plan, contrast, &compared(place)));
        let arms = arms.collect();
        let count = outcomes.len();
        let groups = [
            conditions(plan, count),
            actors(plan, "agent", count),
            actors(plan, "problem", count),
        ];
        Self {
            cross: Cross::of(&groups[0], &groups[1], &outcomes),
            groups,
            binary: vec![true; outcomes.len()],
            outcomes,
            arms,
            register,
            failures: Failures::default(),
            unevaluated: Failures::default(),
            timeline: Timeline::default(),
            statuses: BTreeMap::new(),
            isolation: BTreeMap::new(),
            nodes: BTreeMap::new(),
            retried: Vec::new(),
            retried_runs: 0,
            retried_successes: 0,
            warnings: BTreeMap::new(),
        }
    }

    fn add(
        &mut self,
        plan: &Plan<'_>,
        run: &RunSpec<'_>,
        record: &RunRecord,
        values: &[Option<f64>],
    ) {
        let (status, outcomes) = (record.status, &self.outcomes);
        *self.statuses.entry(status.name()).or_default() += 1;
        for (is_binary, value) in self.binary.iter_mut().zip(values) {
            *is_binary &= value.is_none_or(|value| value == 0.0 || value == 1.0);
        }
        for arms in &mut self.arms {
            arms.add(run, status, outcomes, values);
        }
        let (agent, problem) = run.actors_json();
        let ids = [
            run.condition.id().to_string(),
            agent.to_owned(),
            problem.to_owned(),
        ];
        let [condition, agent, problem] = [0, 1, 2].map(|at| self.groups[at].place(&ids[at]));
        for (groups, place) in self.groups.iter_mut().zip([condition, agent, problem]) {
            if let Some(place) = place {
                groups.add(place, status, outcomes, values);
            }
        }
        if let (Some(cross), Some(condition), Some(agent)) = (&mut self.cross, condition, agent) {
            cross.add(condition, agent, outcomes, values);
        }
        if status.is_failure() {
            self.failures.add(record, || whose(plan, run));
        }
        self.unevaluated.add_evaluation(record, || whose(plan, run));
        self.timeline.add(record);
        self.surroundings(record);
        if record.attempts > 1 {
            self.retried_runs += 1;
            if self.retried.len() < MOST_LISTED {
                self.retried
                    .push((record.run_id.clone(), record.attempts, status));
            }
        }
    }

    fn surroundings(&mut self, record: &RunRecord) {
        let text = |part: &str, key: &str| {
            let found = record.outcome.get(part).and_then(|part| part.get(key));
            match found {
                None | Some(Value::Null) => String::new(),
                Some(value) => cut(&value.to_str(), 80),
            }
        };
        let isolation = (text("in_force", "level"), text("in_force", "digest"));
        add(&mut self.isolation, isolation);
        add(&mut self.nodes, text("metrics", "node_id"));
        if record.finish.warnings.len() > 2 {
            let list = parse_value("warnings", &record.finish.warnings).unwrap_or(Value::Null);
            let items = match &list {
                Value::List(items) => items.as_slice(),
                _ => &[],
            };
            for item in items {
                let part = |key: &str| item.get(key).map(Value::to_str).unwrap_or_default();
                add(
                    &mut self.warnings,
                    cut(&format!("{}: {}", part("path"), part("message")), 200),
                );
            }
        }
    }
}

/// Counts under a key; once there are many keys, no new one.
fn add<K: Ord>(counts: &mut BTreeMap<K, u64>, key: K) {
    if counts.len() < 10 * MOST_LISTED || counts.contains_key(&key) {
        *counts.entry(key).or_default() += 1;
    }
}

fn conditions(plan: &Plan<'_>, outcomes: usize) -> Groups {
    let mut groups = Groups::new("condition", outcomes);
    for condition in plan
        .design
        .conditions()
        .filter(|condition| condition.is_admissible())
    {
        let planned = plan
            .coverage
            .conditions
            .get(condition.index())
            .map_or(0, |share| share.planned);
        if groups.groups.len() < crate::report::groups::MOST_GROUPS {
            groups.plan(condition.id().to_string(), label(plan, condition), planned);
        } else {
            groups.left_out += 1;
        }
    }
    groups
}

fn actors(plan: &Plan<'_>, what: &'static str, outcomes: usize) -> Groups {
    let mut groups = Groups::new(what, outcomes);
    let shares = match what {
        "agent" => &plan.coverage.agents,
        _ => &plan.coverage.problems,
    };
    for (id, share) in shares {
        let json = crate::canonical::canonical_json(id);
        groups.plan(json, id.to_str(), share.planned);
    }
    groups
}

/// Whose a run is: agent, problem, condition.
fn whose(plan: &Plan<'_>, run: &RunSpec<'_>) -> String {
    let actor = |what: &str, id| named(id).map(|id| format!("{what} {}", cut(&id, 60)));
    let actors = [
        actor("agent", run.agent_id()),
        actor("problem", run.problem_id()),
    ];
    let condition = Some(label(plan, run.condition));
    let parts: Vec<_> = actors.into_iter().chain([condition]).flatten().collect();
    parts.join(" · ")
}

/// What a condition is, in the words of its levels' labels; what never varies is left out.
pub(crate) fn label(plan: &Plan<'_>, condition: crate::design::Condition<'_>) -> String {
    let factor = |name: &str| plan.study.factors.iter().find(|factor| factor.name == name);
    let parts = condition.factors().filter_map(|(name, value)| {
        let factor = factor(name);
        if factor.is_some_and(|factor| factor.values() == [value.clone()]) {
            return None;
        }
        let level =
            factor.and_then(|factor| factor.levels.iter().find(|level| level.value == *value));
        let shown = match level {
            Some(level) => level.label.clone(),
            None => value
                .as_number()
                .map_or_else(|| value.to_str(), crate::report::figures::number),
        };
        Some(format!("{name} {}", cut(&shown, 40)))
    });
    let blocks = condition
        .blocks()
        .map(|(name, value)| format!("{name} {}", cut(&value.to_str(), 40)));
    let label = parts.chain(blocks).collect::<Vec<_>>().join(" · ");
    match label.is_empty() {
        true => "all runs".to_owned(),
        false => label,
    }
}
