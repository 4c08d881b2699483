//! The base's own results, folded over its runs: what candidates are compared with.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::case::{CaseKey, CaseResult, CaseStatus, Results, ResultsFault};
use super::compare::{OutputTerms, differing_value};
use super::end::Ended;
use super::must_pass::MustPass;
use super::text::last_lines;

/// What the base does, and what of it is judged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Baseline {
    /// Each test command, in the order of the evaluation's file.
    pub tests: Vec<TestBaseline>,
    /// Cases that must pass whatever the base did.
    pub must_pass: MustPass,
}

/// What the base does under one test command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TestBaseline {
    /// The command's name.
    pub name: String,
    /// Whether outputs are compared.
    pub output: OutputTerms,
    /// The cases that are judged.
    pub cases: BTreeMap<String, BaseCase>,
    /// Cases that are not judged, and why.
    pub quarantine: BTreeMap<String, Unsteady>,
    /// How runs of the base ended. An end that the base has too is not held against a candidate.
    pub ends: BTreeSet<Ended>,
    /// The texts of tests, each once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<String>,
}

/// A case of the base that is judged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BaseCase {
    /// Of its first run.
    #[serde(flatten)]
    pub result: CaseResult,
    /// Whether its output was the same in all runs; if not it is not compared.
    pub steady_output: bool,
}

/// Why a case is not judged (CA-47, CA-52).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unsteady {
    /// It timed out in a run of the base.
    TimedOut,
    /// It was there in some runs only.
    Absent {
        /// In how many it was there.
        seen: usize,
        /// Of how many.
        runs: usize,
    },
    /// Its status differed.
    Status(Vec<CaseStatus>),
    /// A recorded value differed.
    Value(String),
}

/// The base cannot be compared with (CA-47).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("baseline unusable: {message}")]
pub struct Unusable {
    /// Why.
    pub message: String,
    /// What the first failure wrote.
    pub output: String,
}

/// All runs of the base under one test command.
#[derive(Clone, Debug)]
pub struct TestRuns {
    /// The command's name.
    pub name: String,
    /// Whether outputs are compared.
    pub output: OutputTerms,
    /// At least one.
    pub runs: Vec<Results>,
}

impl Baseline {
    /// Folds the runs of the base.
    ///
    /// # Errors
    /// A command gave no results, or no case is usable: passing in the base as it should, or asked for by `must_pass`.
    pub fn fold(tests: Vec<TestRuns>, must_pass: MustPass) -> Result<Self, Unusable> {
        for test in &tests {
            test.check()?;
        }
        let first_failure = first_failure(&tests);
        let tests: Vec<_> = tests.into_iter().map(TestBaseline::fold).collect();
        let baseline = Self { tests, must_pass };
        if baseline.has_a_usable_case() {
            return Ok(baseline);
        }
        Err(Unusable {
            message: baseline.why_unusable(),
            output: first_failure,
        })
    }

    /// How many cases are judged.
    #[must_use]
    pub fn judged(&self) -> usize {
        self.tests.iter().map(|test| test.cases.len()).sum()
    }

    /// The cases that are not judged, in order.
    pub fn quarantined(&self) -> impl Iterator<Item = (CaseKey, &Unsteady)> {
        self.tests.iter().flat_map(|test| {
            test.quarantine.iter().map(|(case, why)| {
                let (test, case) = (test.name.clone(), case.clone());
                (CaseKey { test, case }, why)
            })
        })
    }

    fn has_a_usable_case(&self) -> bool {
        // `must_pass` judges a case even if the base did not run it, or not twice alike.
        self.must_pass.exact().next().is_some()
            || self.tests.iter().any(|test| {
                test.cases.iter().any(|(id, case)| {
                    let status = case.result.status;
                    status.is_passing()
                        || status == CaseStatus::Xfailed
                        || self.must_pass.covers(id)
                }) || test.quarantine.keys().any(|id| self.must_pass.covers(id))
            })
    }

    fn why_unusable(&self) -> String {
        let late = |why: &Unsteady| *why == Unsteady::TimedOut;
        let timed_out = self.quarantined().filter(|(_, why)| late(why)).count();
        let quarantined = self.quarantined().count();
        match self.judged() {
            0 if quarantined == timed_out => format!("all its cases timed out ({timed_out})"),
            0 => format!("no case does the same in all runs ({quarantined} quarantined)"),
            judged => {
                format!("no case passes ({judged} fail or are skipped, {quarantined} quarantined)")
            }
        }
    }
}

impl TestRuns {
    /// Whether there is anything to compare with.
    fn check(&self) -> Result<(), Unusable> {
        let Some(first) = self.runs.first() else {
            return Err(Unusable {
                message: format!("test `{}` was not run", self.name),
                output: String::new(),
            });
        };
        let unusable = |run: &Results, why: &str| {
            Err(Unusable {
                message: format!("test `{}`: {why}", self.name),
                output: said(run),
            })
        };
        let stopped =
            |run: &&Results| matches!(run.end.ended(), Ended::SetupFailed | Ended::Cancelled);
        if let Some(run) = self.runs.iter().find(stopped) {
            return unusable(run, &run.end.described());
        }
        match self.runs.iter().all(|run| run.cases.is_empty()) {
            false => Ok(()),
            true => match &first.fault {
                Some(ResultsFault::NoResults(why)) => unusable(first, why),
                _ => unusable(first, "it has no cases"),
            },
        }
    }
}

impl TestBaseline {
    fn fold(test: TestRuns) -> Self {
        let ids: BTreeSet<_> = test
            .runs
            .iter()
            .flat_map(|run| run.cases.keys().cloned())
            .collect();
        let ends = test.runs.iter().map(end_of).collect();
        let mut baseline = Self {
            name: test.name,
            output: test.output,
            cases: BTreeMap::new(),
            quarantine: BTreeMap::new(),
            ends,
            sources: Vec::new(),
        };
        for id in ids {
            let results: Vec<_> = test.runs.iter().map(|run| run.cases.get(&id)).collect();
            match steady(&results) {
                Ok(case) => drop(baseline.cases.insert(id, case)),
                Err(why) => drop(baseline.quarantine.insert(id, why)),
            }
        }
        let first = test.runs.into_iter().next();
        baseline.sources = first.map_or(Vec::new(), |run| run.sources);
        baseline
    }

    /// The test's text, where it is known.
    pub(super) fn source_of(&self, case: &CaseResult) -> Option<&str> {
        self.sources.get(case.source?).map(String::as_str)
    }
}

/// How a run ended, as far as that is held against a candidate.
pub(super) fn end_of(run: &Results) -> Ended {
    match (run.end.ended(), &run.fault) {
        (Ended::Finished, Some(ResultsFault::EndedEarly(_))) => {
            let late = |case: &CaseResult| case.status == CaseStatus::TimedOut;
            match run.cases.values().any(late) {
                true => Ended::Timeout,
                false => Ended::Crash,
            }
        }
        (ended, _) => ended,
    }
}

/// The case if all runs agree on it.
fn steady(results: &[Option<&CaseResult>]) -> Result<BaseCase, Unsteady> {
    let seen: Vec<_> = results.iter().flatten().copied().collect();
    let statuses: BTreeSet<_> = seen.iter().map(|result| result.status).collect();
    if statuses.contains(&CaseStatus::TimedOut) {
        return Err(Unsteady::TimedOut);
    }
    if seen.len() < results.len() {
        let (seen, runs) = (seen.len(), results.len());
        return Err(Unsteady::Absent { seen, runs });
    }
    if statuses.len() > 1 {
        return Err(Unsteady::Status(statuses.into_iter().collect()));
    }
    let (first, others) = seen.split_first().expect("an id comes from a run");
    let mut differing = others
        .iter()
        .filter_map(|other| differing_value(first, other));
    if let Some(differing) = differing.next() {
        return Err(Unsteady::Value(differing.name));
    }
    Ok(BaseCase {
        result: (*first).clone(),
        steady_output: others.iter().all(|other| first.output.same(&other.output)),
    })
}

/// What the first case that failed says, or the first command's own output.
fn first_failure(tests: &[TestRuns]) -> String {
    let runs = || tests.iter().flat_map(|test| &test.runs);
    let mut failing = runs().flat_map(|run| {
        let cases = run
            .cases
            .iter()
            .filter(|(_, case)| case.status.is_failing());
        cases.map(move |(id, case)| (run, id, case))
    });
    match failing.next() {
        Some((run, id, case)) => match &case.error {
            Some(error) => format!("{id}: {}\n{error}", case.status),
            None => format!("{id}: {}\n{}", case.status, said(run)),
        },
        None => runs().next().map_or(String::new(), said),
    }
}

/// The last lines of what a command wrote.
fn said(run: &Results) -> String {
    match run.stderr.is_empty() {
        true => last_lines(&run.stdout.text),
        false => last_lines(&run.stderr.text),
    }
}

#[cfg(test)]
mod tests;
