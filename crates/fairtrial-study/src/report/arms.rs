//! The two arms of a contrast: which runs belong to them, and which cells hold both. The plan decides it (ST-82).

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::canonical::{canonical_json, hash64};
use crate::journal::Status;
use crate::plan::{Plan, RunSpec};
use crate::report::outcome::{Missing, Outcome};
use crate::report::registered::{Compares, Contrast};
use crate::stats::{Comparison, Direction, Moments, Share, fisher, mcnemar, paired, welch};
use crate::study::{AGENT_FACTORS, PROBLEM_FACTORS};

/// Cells that a paired test needs.
const LEAST_CELLS: usize = 6;

/// A hash of other factors and blocks, agent, problem.
type CellKey = u64;

/// The arms of a contrast, left and right.
pub(crate) struct Arms {
    /// Of each condition, its side and the rest of its assignment.
    places: Vec<Option<(usize, u64)>>,
    without_agent: bool,
    without_problem: bool,
    cells: HashMap<CellKey, u32>,
    /// Of each cell, planned runs by side.
    planned_cells: Vec<[u32; 2]>,
    pub(crate) planned: [u64; 2],
    /// Runs that ended.
    pub(crate) ended: [u64; 2],
    /// Of those, failures.
    pub(crate) failed: [u64; 2],
    measured: Vec<Measured>,
}

/// One outcome in both arms.
struct Measured {
    outcome: usize,
    runs: [Moments; 2],
    /// Of each cell, count and sum by side; empty where cells are not paired.
    cells: Vec<[(u32, f64); 2]>,
    missing: [u64; 2],
}

/// What a comparison found.
pub(crate) struct Found {
    pub(crate) is_paired: bool,
    /// Cells with both arms in the plan.
    pub(crate) cells: usize,
    /// Of those, without values in both arms.
    pub(crate) dropped: usize,
    /// Runs whose values were used.
    pub(crate) n: [u64; 2],
    pub(crate) missing: [u64; 2],
    pub(crate) means: [f64; 2],
    /// Or why there is none.
    pub(crate) comparison: Result<Comparison, String>,
}

impl Arms {
    /// Finds arms and cells. `outcomes` are those that are compared.
    pub(crate) fn of(plan: &Plan<'_>, contrast: &Contrast, outcomes: &[usize]) -> Self {
        let factor = &plan.study.factors[contrast.factor];
        let sides = [contrast.left, contrast.right].map(|level| &factor.levels[level].value);
        let places = plan.design.conditions().map(|condition| {
            let value = condition.factor(&factor.name)?;
            let side = sides.iter().position(|level| level.equals(value))?;
            let mut rest = String::new();
            let others = condition.factors().filter(|(name, _)| *name != factor.name);
            for (name, value) in others.chain(condition.blocks()) {
                rest.push_str(&format!("{name:?}{}", canonical_json(value)));
            }
            Some((side, hash64(&rest)))
        });
        let mut arms = Self {
            places: places.collect(),
            // A factor that chooses the agent is no cell of its own.
            without_agent: AGENT_FACTORS.contains(&factor.name.as_str()),
            without_problem: PROBLEM_FACTORS.contains(&factor.name.as_str()),
            cells: HashMap::new(),
            planned_cells: Vec::new(),
            planned: [0; 2],
            ended: [0; 2],
            failed: [0; 2],
            measured: Vec::new(),
        };
        for run in plan.runs() {
            arms.plan(&run);
        }
        let cells = match arms.is_paired() {
            true => vec![[(0, 0.0); 2]; arms.planned_cells.len()],
            false => Vec::new(),
        };
        let measured = |outcome: &usize| Measured {
            outcome: *outcome,
            runs: [Moments::default(); 2],
            cells: cells.clone(),
            missing: [0; 2],
        };
        arms.measured = outcomes.iter().map(measured).collect();
        arms
    }

    fn plan(&mut self, run: &RunSpec<'_>) {
        let Some((side, key)) = self.key(run) else {
            return;
        };
        self.planned[side] += 1;
        let next = self.planned_cells.len() as u32;
        let cell = *self.cells.entry(key).or_insert(next);
        if cell == next {
            self.planned_cells.push([0; 2]);
        }
        self.planned_cells[cell as usize][side] += 1;
    }

    fn key(&self, run: &RunSpec<'_>) -> Option<(usize, CellKey)> {
        let (side, rest) = self.places[run.condition.index()]?;
        let (agent, problem) = run.actors_json();
        let mut hasher = DefaultHasher::new();
        rest.hash(&mut hasher);
        (!self.without_agent).then_some(agent).hash(&mut hasher);
        (!self.without_problem).then_some(problem).hash(&mut hasher);
        Some((side, hasher.finish()))
    }

    fn both(&self) -> usize {
        let is_both = |cell: &&[u32; 2]| cell.iter().all(|planned| *planned > 0);
        self.planned_cells.iter().filter(is_both).count()
    }

    fn is_paired(&self) -> bool {
        self.both() >= LEAST_CELLS
    }

    /// A run that ended, with its values of all outcomes.
    pub(crate) fn add(
        &mut self,
        run: &RunSpec<'_>,
        status: Status,
        outcomes: &[Outcome],
        values: &[Option<f64>],
    ) {
        let Some((side, key)) = self.key(run) else {
            return;
        };
        self.ended[side] += 1;
        self.failed[side] += u64::from(status.is_failure());
        let cell = self.cells.get(&key).map(|cell| *cell as usize);
        for measured in &mut self.measured {
            let mut value = values[measured.outcome];
            measured.missing[side] += u64::from(value.is_none());
            if value.is_none() && outcomes[measured.outcome].missing == Missing::Zero {
                value = Some(0.0);
            }
            let Some(value) = value else { continue };
            measured.runs[side].add(value);
            if let Some(cell) = cell.and_then(|cell| measured.cells.get_mut(cell)) {
                cell[side].0 += 1;
                cell[side].1 += value;
            }
        }
    }

    /// Compares the arms. `is_binary` says that the outcome is 0 or 1 in every run: then proportions are compared.
    pub(crate) fn compare(&self, compares: &Compares, outcome: &Outcome, is_binary: bool) -> Found {
        let is_paired = self.is_paired();
        let mut measured = self.measured.iter();
        let Some(measured) = measured.find(|measured| measured.outcome == compares.outcome) else {
            unreachable!("arms measure every outcome that is compared in them");
        };
        let mut found = Found {
            is_paired,
            cells: self.both(),
            dropped: 0,
            n: measured.runs.map(|runs| runs.n),
            missing: measured.missing,
            means: measured.runs.map(|runs| runs.mean),
            comparison: Err(String::new()),
        };
        let (left, right) = match is_paired {
            true => self.cell_means(measured, &mut found),
            false => (Vec::new(), Vec::new()),
        };
        found.comparison = self.obstacle(outcome, measured).map_or_else(
            || match is_paired {
                true if left.len() < 2 => Err(format!(
                    "only {} of {} cells have values in both arms",
                    left.len(),
                    found.cells
                )),
                true if is_binary => {
                    let one_each = found.n == [left.len() as u64; 2];
                    proportions_of_cells(&left, &right, one_each, compares.direction)
                        .ok_or_else(|| "no cell has values".to_owned())
                }
                true => paired(&left, &right, compares.direction)
                    .ok_or_else(|| "the differences do not vary".to_owned()),
                false if found.n.iter().any(|n| *n < 2) => {
                    let [left, right] = found.n;
                    Err(format!(
                        "the arms have {left} and {right} values; each needs 2"
                    ))
                }
                false if is_binary => {
                    let [left, right] = measured.runs.map(|runs| Share {
                        hits: runs.hits().unwrap_or_default(),
                        n: runs.n,
                    });
                    fisher(left, right, compares.direction)
                        .ok_or_else(|| "an arm has no value".to_owned())
                }
                false => welch(&measured.runs[0], &measured.runs[1], compares.direction)
                    .ok_or_else(|| "the values do not vary".to_owned()),
            },
            Err,
        );
        found
    }

    /// Of the cells with both arms, the means; what lacks values is dropped and counted.
    fn cell_means(&self, measured: &Measured, found: &mut Found) -> (Vec<f64>, Vec<f64>) {
        let (mut left, mut right) = (Vec::new(), Vec::new());
        found.n = [0; 2];
        for (planned, cell) in self.planned_cells.iter().zip(&measured.cells) {
            if planned.contains(&0) {
                continue;
            }
            let [(n, sum), (m, other)] = *cell;
            if n == 0 || m == 0 {
                found.dropped += 1;
                continue;
            }
            found.n = [found.n[0] + u64::from(n), found.n[1] + u64::from(m)];
            left.push(sum / f64::from(n));
            right.push(other / f64::from(m));
        }
        let mean = |means: &[f64]| Moments::from_iter(means).mean;
        found.means = [mean(&left), mean(&right)];
        (left, right)
    }

    /// What forbids a test, whatever the values are.
    fn obstacle(&self, outcome: &Outcome, measured: &Measured) -> Option<String> {
        if self.planned.contains(&0) {
            return Some("the plan has no run in one of the arms".into());
        }
        if let Some(formula) = &outcome.derivation {
            return Some(format!(
                "the outcome is derived (`{formula}`), which Fairtrial does not compute"
            ));
        }
        match &outcome.missing {
            Missing::Other(policy) => {
                Some(format!("the missing data policy `{policy}` is not known"))
            }
            Missing::Refuse if measured.missing != [0; 2] => {
                Some("values are missing, and the outcome's policy refuses that".into())
            }
            _ => None,
        }
    }
}

/// Of cells with one run in each arm the exact test; of cells with more, where each has a share of its own, the paired test
/// of shares, if they vary.
fn proportions_of_cells(
    left: &[f64],
    right: &[f64],
    one_each: bool,
    direction: Direction,
) -> Option<Comparison> {
    let of_shares = match one_each {
        true => None,
        false => paired(left, right, direction).map(Comparison::of_proportions),
    };
    of_shares.or_else(|| mcnemar(left, right, direction))
}
