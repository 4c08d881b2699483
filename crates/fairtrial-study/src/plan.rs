//! What is to run: every run of a study with its id, its seeds and its places in plan and order. A plan is walked, not
//! held: beyond its conditions it keeps a few bytes per run.

mod coverage;
mod decision;
mod json;
mod order;
mod pick;
mod run_spec;
mod select;
mod table;
mod walk;

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::OnceLock;

use sha2::{Digest, Sha256};

use crate::canonical::{canonical_json, hex, sha256_hex};
use crate::compat::Compat;
use crate::design::{Design, RuleCaller};
use crate::fault::{Fault, Invalid, Place, fault};
use crate::study::Study;
use crate::value::Value;

pub use coverage::{Coverage, Share};
pub use decision::{Action, Decide, Decision, Fresh, Reason, Survey};
pub use json::WriteError;
pub use pick::Picker;
pub use run_spec::{RunId, RunSpec};
use select::Selection;
use walk::{Cast, Step, Walk};

/// More runs than this exhaust memory before they exhaust patience.
const MOST_RUNS: u64 = 200_000_000;

/// A study's plan.
#[derive(Debug)]
pub struct Plan<'s> {
    /// The study.
    pub study: Cow<'s, Study>,
    /// Its conditions.
    pub design: Design,
    /// Whether conditions run by themselves.
    pub is_standalone: bool,
    /// SHA-256 over the study without what cannot change a result.
    pub study_sha256: String,
    /// SHA-256 over the condition ids.
    pub digest_conditions: String,
    /// SHA-256 over run ids and seeds.
    pub digest_runs: String,
    /// How much of what is possible was planned.
    pub coverage: Coverage,
    /// What is odd, but no error: of the file, of the design, of the plan.
    pub warnings: Vec<Fault>,
    runs: u64,
    /// See [`Plan::order`].
    order: OnceLock<Vec<u32>>,
    selection: Selection,
    cast: Cast,
    id_digits: u32,
}

impl<'s> Plan<'s> {
    /// Plans a study. Starts nothing, but for `callable_ref` rules that no `caller` evaluates: those run in a worker.
    pub fn build(study: &'s Study, caller: Option<RuleCaller<'_>>) -> Result<Self, Invalid> {
        Self::with_id_digits(Cow::Borrowed(study), caller, RunId::DIGITS)
    }

    /// As [`Plan::build`], for whoever keeps the plan and not the study.
    pub fn own(study: Study, caller: Option<RuleCaller<'_>>) -> Result<Plan<'static>, Invalid> {
        Plan::with_id_digits(Cow::Owned(study), caller, RunId::DIGITS)
    }

    /// With shorter run ids, so that a test can see them collide.
    pub(crate) fn with_id_digits(
        study: Cow<'s, Study>,
        caller: Option<RuleCaller<'_>>,
        id_digits: u32,
    ) -> Result<Self, Invalid> {
        let design = Design::build(&study, caller)?;
        let mut warnings = study.warnings.clone();
        warnings.extend(design.warnings.iter().cloned());
        let is_standalone = study.is_standalone();
        warnings.extend(standing(&study, is_standalone));
        let mut plan = Self {
            study_sha256: study_sha256(&study),
            digest_conditions: digest_conditions(&design),
            digest_runs: String::new(),
            coverage: Coverage::default(),
            cast: Cast::of(&study, is_standalone),
            selection: Selection::All,
            order: OnceLock::new(),
            runs: 0,
            study,
            design,
            is_standalone,
            warnings,
            id_digits,
        };
        plan.select()?;
        plan.number()?;
        plan.warnings.sort_by(|a, b| a.place.cmp(&b.place));
        Ok(plan)
    }

    /// How many runs are planned.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.runs
    }

    /// Whether nothing is planned.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.runs == 0
    }

    /// How many conditions produce runs.
    #[must_use]
    pub fn admissible(&self) -> usize {
        self.design
            .conditions()
            .filter(|condition| condition.is_admissible())
            .count()
    }

    /// The runs in plan order, each made as it is asked for.
    pub fn runs(&self) -> impl Iterator<Item = RunSpec<'_>> {
        let mut hasher = run_spec::Hasher::new(self);
        let steps = self.steps().enumerate();
        steps.map(move |(index, step)| hasher.run(&step, index))
    }

    /// Makes runs by their places.
    #[must_use]
    pub fn picker(&self) -> Picker<'_> {
        Picker::new(self)
    }

    /// The indexes of runs in the order in which they are to start.
    #[must_use]
    pub fn run_order(&self) -> Vec<u32> {
        let order = self.order();
        let mut starts = vec![0; order.len()];
        for (index, place) in order.iter().enumerate() {
            starts[*place as usize] = index as u32;
        }
        starts
    }

    /// Of each run, its place in the run order. Made when somebody asks for it: who runs nothing does not.
    fn order(&self) -> &[u32] {
        self.order.get_or_init(|| order::places(self))
    }

    fn steps(&self) -> impl Iterator<Item = Step<'_>> {
        let all = Walk::new(&self.design, &self.cast, self.study.budget.replicates);
        all.enumerate()
            .filter(|(raw, _)| self.selection.holds(*raw))
            .map(|(_, step)| step)
    }

    /// Cuts the plan to `max_runs`.
    fn select(&mut self) -> Result<(), Invalid> {
        let budget = &self.study.budget;
        let sizes = walk::sizes(&self.design, &self.cast, budget.replicates);
        let total = sizes
            .iter()
            .fold(0_u64, |sum, (_, size)| sum.saturating_add(*size));
        let most = budget.max_runs.unwrap_or(u64::MAX);
        self.runs = total.min(most);
        if self.runs > MOST_RUNS {
            let message = format!("the plan has {} runs, more than {MOST_RUNS}", self.runs);
            return Err(refused(
                &self.study.design.place,
                message,
                "plan fewer conditions or replicates",
            ));
        }
        if total <= most {
            return Ok(());
        }
        if self.study.compat == Compat::Native && self.study.sample.is_none() {
            let message = format!("the plan has {total} runs, but `max_runs` is {most}");
            let hint = "raise it, or choose by `sample: balanced` or `sample: first`";
            return Err(refused(&budget.place, message, hint));
        }
        self.selection = Selection::of(&self.study, &self.design, &sizes, most);
        Ok(())
    }

    /// Hashes every run once: digest, coverage, and no id twice.
    fn number(&mut self) -> Result<(), Invalid> {
        let mut ids: Vec<u64> = Vec::with_capacity(self.runs as usize);
        let mut digest = Sha256::new();
        let mut coverage = Coverage::begin(self);
        let mut hasher = run_spec::Hasher::new(self);
        let mut line = String::new();
        for (index, step) in self.steps().enumerate() {
            let run = hasher.run(&step, index);
            coverage.count(&step);
            line.clear();
            if index > 0 {
                line.push('\n');
            }
            run.write_digest_line(&mut line);
            digest.update(line.as_bytes());
            ids.push(run.run_id.number());
        }
        self.digest_runs = hex(&digest.finalize());
        self.coverage = coverage;
        ids.sort_unstable();
        let twice = ids
            .windows(2)
            .find(|pair| pair[0] == pair[1])
            .map(|pair| pair[0]);
        drop(ids);
        match twice {
            Some(id) => Err(self.collision(id)),
            None => Ok(()),
        }
    }

    fn collision(&self, id: u64) -> Invalid {
        let mut hasher = run_spec::Hasher::new(self);
        let runs = self
            .steps()
            .enumerate()
            .map(|(index, step)| hasher.run(&step, index));
        let same: Vec<_> = runs
            .filter(|run| run.run_id.number() == id)
            .take(2)
            .collect();
        let described: Vec<_> = same.iter().map(RunSpec::describe).collect();
        let message = format!(
            "two runs have the id {}: {}",
            same[0].run_id,
            described.join(" and ")
        );
        let hint = "make their factors, agents or problems differ";
        refused(&self.study.design.place, message, hint)
    }
}

fn refused(place: &Place, message: String, hint: &str) -> Invalid {
    Invalid {
        faults: vec![fault(place, "plan", message, hint)],
    }
}

/// What is worth knowing of how a study will run.
fn standing(study: &Study, is_standalone: bool) -> Vec<Fault> {
    let place = Place {
        file: study.file.clone(),
        line: 1,
        column: 1,
    };
    let mut warnings = Vec::new();
    if is_standalone && study.bindings.runner.is_none() {
        let message = "no problems and no runner: planned as standalone conditions";
        warnings.push(fault(
            &place,
            "standalone",
            message,
            "add `runner` to run it",
        ));
    } else if !is_standalone {
        for (key, is_bound) in [
            ("agents", study.bindings.agents.is_some()),
            (
                "problems",
                study.bindings.problems.is_some() || study.problems.is_empty(),
            ),
        ] {
            if !is_bound {
                let message = format!("the file has no `{key}`: the host program must bind them");
                warnings.push(fault(&place, "unbound", message, ""));
            }
        }
    }
    warnings
}

fn digest_conditions(design: &Design) -> String {
    let mut digest = Sha256::new();
    for condition in design.conditions() {
        if condition.index() > 0 {
            digest.update(b"\n");
        }
        digest.update(condition.id().to_string().as_bytes());
    }
    hex(&digest.finalize())
}

/// ST-29: without what cannot change a result.
fn study_sha256(study: &Study) -> String {
    let without = HashMap::from([
        ("", &["output_dir", "on_failure", "order", "export"][..]),
        ("run_budget", &["parallelism", "fail_fast"][..]),
    ]);
    let retries = ["retries", "retry_on", "retry_delay"];
    let Value::Map(mut entries) = study.normalised.clone() else {
        unreachable!("a study is a mapping");
    };
    entries.retain(|(key, _)| !without[""].contains(&key.to_str().as_str()));
    for (key, value) in &mut entries {
        match key.as_text() {
            Some("run_budget") => drop_keys(value, without["run_budget"]),
            Some("agents" | "problems" | "evaluator" | "runner" | "defaults") => {
                drop_everywhere(value, &retries, 3);
            }
            _ => {}
        }
    }
    sha256_hex(canonical_json(&Value::Map(entries)).as_bytes())
}

fn drop_keys(value: &mut Value, keys: &[&str]) {
    if let Value::Map(entries) = value {
        entries.retain(|(key, _)| !keys.iter().any(|drop| key.as_text() == Some(drop)));
    }
}

/// In bindings at most so deep: `problems.ID.evaluator.retries`. Payloads may have such keys of their own.
fn drop_everywhere(value: &mut Value, keys: &[&str], depth: usize) {
    drop_keys(value, keys);
    let Value::Map(entries) = value else { return };
    for (key, value) in entries {
        if depth > 0 && !matches!(key.as_text(), Some("payload" | "metadata" | "env")) {
            drop_everywhere(value, keys, depth - 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ST-24
    #[test]
    fn forged_ids_of_one_digit_collide_and_both_runs_are_named() {
        let text = "study_id: s\ntitle: t\nproblem_ids: [p]\nfactors: {x: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17]}\n";
        let study = Study::parse("study.yaml".as_ref(), text, None).expect("a valid study");
        let invalid =
            Plan::with_id_digits(Cow::Borrowed(&study), None, 1).expect_err("17 runs have 16 ids");
        let line = invalid.to_string();
        assert!(
            line.contains("two runs have the id run-00000000000"),
            "{line}"
        );
        assert_eq!(line.matches("replicate 1, agent").count(), 2, "{line}");
        assert!(Plan::build(&study, None).is_ok());
    }
}
