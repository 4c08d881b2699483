//! A candidate's results beside the base's (CA-50, CA-51, CA-52, CA-55). One difference per case: the first of status,
//! values and output. In the order of tests, then of ids, whatever ran when.

mod diff;
mod values;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::baseline::{BaseCase, Baseline, TestBaseline};
use super::case::{CaseKey, CaseResult, Results, ResultsFault};
use super::text::{clipped, parting};

pub use diff::{Diff, Scope};
pub(super) use values::differing_value;

/// Differences that are kept (CA-55), and new cases.
pub const MOST_DIFFS: usize = 50;

/// Whether outputs are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputTerms {
    /// No.
    #[default]
    Ignore,
    /// Yes, where the base's is steady.
    Compare,
}

/// What comparing found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Comparison {
    /// Cases without a difference.
    pub passed: usize,
    /// Cases that were compared.
    pub total: usize,
    /// The first differences.
    pub diffs: Vec<Diff>,
    /// How many there are: as many as cases that differ.
    pub diffs_total: usize,
    /// Cases that failed in the base and pass now.
    pub fixed: Vec<CaseKey>,
    /// The first cases that the base does not have.
    pub new_cases: Vec<CaseKey>,
    /// How many there are.
    pub new_total: usize,
}

/// Compares a candidate's results, one per test command, with the base's. A command without results has none of its
/// cases.
#[must_use]
pub fn compare(baseline: &Baseline, results: &[Results]) -> Comparison {
    let mut comparison = Comparison::default();
    for test in &baseline.tests {
        let found = results.iter().find(|found| found.test == test.name);
        compare_test(baseline, test, found, &mut comparison);
    }
    never_seen(baseline, results, &mut comparison);
    comparison
}

/// Whether a case of the candidate's is the base's.
enum Compared {
    Same,
    Fixed,
    Differs(Box<Diff>),
}

fn compare_test(
    baseline: &Baseline,
    test: &TestBaseline,
    found: Option<&Results>,
    comparison: &mut Comparison,
) {
    let none = BTreeMap::new();
    let found_cases = found.map_or(&none, |found| &found.cases);
    let ids: BTreeSet<_> = test
        .cases
        .keys()
        .chain(test.quarantine.keys())
        .chain(found_cases.keys())
        .collect();
    for id in ids {
        let case = Beside {
            test,
            found,
            id,
            base: test.cases.get(id),
            candidate: found_cases.get(id),
            must_pass: baseline.must_pass.covers(id),
        };
        let is_new = case.base.is_none() && !test.quarantine.contains_key(id);
        if is_new {
            comparison.note_new(case.key());
        }
        if case.base.is_some() || case.must_pass {
            comparison.add(case.key(), case.compared());
        }
    }
}

/// A case that must pass and that neither base nor candidate has: reported under the first test command, since nobody
/// knows whose it is.
fn never_seen(baseline: &Baseline, results: &[Results], comparison: &mut Comparison) {
    let Some(first) = baseline.tests.first() else {
        return;
    };
    let known = |id: &str| {
        let in_base =
            |test: &TestBaseline| test.cases.contains_key(id) || test.quarantine.contains_key(id);
        let in_found = |found: &Results| found.cases.contains_key(id);
        baseline.tests.iter().any(in_base) || results.iter().any(in_found)
    };
    for id in baseline.must_pass.exact().filter(|id| !known(id)) {
        let case = Beside {
            test: first,
            found: results.iter().find(|found| found.test == first.name),
            id,
            base: None,
            candidate: None,
            must_pass: true,
        };
        comparison.add(case.key(), case.compared());
    }
}

impl Comparison {
    fn add(&mut self, key: CaseKey, compared: Compared) {
        self.total += 1;
        match compared {
            Compared::Same => self.passed += 1,
            Compared::Fixed => {
                self.passed += 1;
                self.fixed.push(key);
            }
            Compared::Differs(diff) => {
                self.diffs_total += 1;
                if self.diffs.len() < MOST_DIFFS {
                    self.diffs.push(*diff);
                }
            }
        }
    }

    fn note_new(&mut self, key: CaseKey) {
        self.new_total += 1;
        if self.new_cases.len() < MOST_DIFFS {
            let case = clipped(&key.case);
            self.new_cases.push(CaseKey { case, ..key });
        }
    }
}

/// One case of base and candidate, side by side.
struct Beside<'a> {
    test: &'a TestBaseline,
    found: Option<&'a Results>,
    id: &'a str,
    base: Option<&'a BaseCase>,
    candidate: Option<&'a CaseResult>,
    must_pass: bool,
}

impl Beside<'_> {
    fn key(&self) -> CaseKey {
        CaseKey {
            test: self.test.name.clone(),
            case: self.id.to_owned(),
        }
    }

    fn compared(&self) -> Compared {
        let Some(candidate) = self.candidate else {
            return match self.can_be_collected_now() {
                true => Compared::Fixed,
                false => self.differs(Scope::Missing, None, None, None),
            };
        };
        let status_differs = || {
            let base = self.base.map(|base| base.result.status.to_string());
            self.differs(
                Scope::Status,
                None,
                base,
                Some(candidate.status.to_string()),
            )
        };
        if self.must_pass && !candidate.status.is_passing() {
            return status_differs();
        }
        let Some(base) = self.base else {
            return Compared::Same; // it must pass, and does
        };
        if base.result.status.is_failing() && candidate.status.is_passing() {
            return Compared::Fixed;
        }
        if base.result.status != candidate.status {
            return status_differs();
        }
        if let Some(value) = differing_value(&base.result, candidate) {
            let (place, base, candidate) = value.shown();
            return self.differs(Scope::Value, Some(place), base, candidate);
        }
        let judged = self.test.output == OutputTerms::Compare && base.steady_output;
        if judged && !base.result.output.same(&candidate.output) {
            let (base, candidate) = parting(&base.result.output.text, &candidate.output.text);
            return self.differs(Scope::Stdout, None, Some(base), Some(candidate));
        }
        Compared::Same
    }

    /// A file that could not be collected has no case for that once it can; its tests are there instead.
    fn can_be_collected_now(&self) -> bool {
        let failed = self
            .base
            .is_some_and(|base| base.result.status.is_failing());
        let (Some(file), Some(found)) = (self.id.strip_suffix("collection"), self.found) else {
            return false;
        };
        failed
            && !self.must_pass
            && file.ends_with("::")
            && found.cases.keys().any(|id| id.starts_with(file))
    }

    fn differs(
        &self,
        scope: Scope,
        place: Option<String>,
        base: Option<String>,
        candidate: Option<String>,
    ) -> Compared {
        let base_result = self.base.map(|base| &base.result);
        let source = base_result.and_then(|base| self.test.source_of(base));
        let own = || self.found?.source_of(self.candidate?);
        let candidate_error = self.candidate.and_then(|candidate| candidate.error.clone());
        Compared::Differs(Box::new(Diff {
            test: self.test.name.clone(),
            case: clipped(self.id),
            scope,
            place,
            base,
            candidate,
            base_status: base_result.map(|base| base.status),
            candidate_status: self.candidate.map(|candidate| candidate.status),
            base_error: base_result.and_then(|base| base.error.clone()),
            candidate_error: candidate_error.or_else(|| self.why_missing()),
            source: source.or_else(own).map(str::to_owned),
        }))
    }

    /// Why the candidate did not run the case, where that is known.
    fn why_missing(&self) -> Option<String> {
        let found = self.found.filter(|_| self.candidate.is_none())?;
        let (file, _) = self.id.split_once("::").unwrap_or((self.id, ""));
        match (
            found.cases.get(&format!("{file}::collection")),
            &found.fault,
        ) {
            (Some(collection), _) => collection.error.clone(),
            (None, Some(ResultsFault::NoResults(why))) => Some(why.clone()),
            (None, Some(ResultsFault::EndedEarly(_))) => Some(format!(
                "its process ended before: {}",
                found.end.described()
            )),
            (None, None) => None,
        }
    }
}

#[cfg(test)]
mod tests;
