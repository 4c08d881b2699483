//! Runs grouped by condition, agent or problem: how many, how many failed, and every outcome's estimate.

use std::collections::HashMap;

use crate::journal::Status;
use crate::report::outcome::{Estimate, Missing, Outcome};
use crate::report::reservoir::Reservoir;
use crate::stats::Moments;

/// Groups that a report shows; a study may have a million conditions.
pub(crate) const MOST_GROUPS: usize = 400;
/// Raw points of one plot (ST-81).
const MOST_POINTS: usize = 2000;

/// Runs by what they have in common.
pub(crate) struct Groups {
    /// What groups are: `condition`, `agent`, `problem`.
    pub(crate) what: &'static str,
    pub(crate) groups: Vec<Group>,
    places: HashMap<String, usize>,
    /// Groups that are not shown.
    pub(crate) left_out: u64,
    /// Of each outcome, group and value of some runs.
    pub(crate) points: Vec<Reservoir<(u32, f64)>>,
}

/// Runs that have something in common.
pub(crate) struct Group {
    pub(crate) label: String,
    pub(crate) id: String,
    pub(crate) planned: u64,
    pub(crate) ended: u64,
    pub(crate) failed: u64,
    values: Vec<Moments>,
    /// All values of those outcomes that need them.
    all: Vec<Vec<f64>>,
    /// Filled in the end.
    pub(crate) estimates: Vec<Estimate>,
}

impl Groups {
    pub(crate) fn new(what: &'static str, outcomes: usize) -> Self {
        Self {
            what,
            groups: Vec::new(),
            places: HashMap::new(),
            left_out: 0,
            points: vec![Reservoir::new(MOST_POINTS); outcomes],
        }
    }

    /// Adds a group that is planned.
    pub(crate) fn plan(&mut self, id: String, label: String, planned: u64) {
        if self.groups.len() == MOST_GROUPS {
            self.left_out += 1;
            return;
        }
        let outcomes = self.points.len();
        self.places.insert(id.clone(), self.groups.len());
        self.groups.push(Group {
            label,
            id,
            planned,
            ended: 0,
            failed: 0,
            values: vec![Moments::default(); outcomes],
            all: vec![Vec::new(); outcomes],
            estimates: Vec::new(),
        });
    }

    /// Groups, shown or not.
    pub(crate) fn total(&self) -> u64 {
        self.groups.len() as u64 + self.left_out
    }

    /// The group of an id, if it is shown.
    pub(crate) fn place(&self, id: &str) -> Option<usize> {
        self.places.get(id).copied()
    }

    /// A run that ended.
    pub(crate) fn add(
        &mut self,
        place: usize,
        status: Status,
        outcomes: &[Outcome],
        values: &[Option<f64>],
    ) {
        let group = &mut self.groups[place];
        group.ended += 1;
        group.failed += u64::from(status.is_failure());
        for (at, (outcome, value)) in outcomes.iter().zip(values).enumerate() {
            let value = match (value, &outcome.missing) {
                (None, Missing::Zero) => 0.0,
                (None, _) => continue,
                (Some(value), _) => *value,
            };
            group.values[at].add(value);
            if outcome.aggregation.needs_all() {
                group.all[at].push(value);
            }
            self.points[at].add((place as u32, value));
        }
    }

    /// Makes the estimates; values are let go. `binary` says which outcomes are 0 or 1 in all runs.
    pub(crate) fn finish(&mut self, outcomes: &[Outcome], binary: &[bool]) {
        for group in &mut self.groups {
            let mut all = std::mem::take(&mut group.all);
            let estimates = outcomes.iter().zip(binary).zip(&group.values).zip(&mut all);
            group.estimates = estimates
                .map(|(((outcome, is_binary), moments), all)| {
                    outcome.aggregation.estimate(moments, all, *is_binary)
                })
                .collect();
        }
    }
}
